/*
 * test_selector.c - the candidate selector of dflash2: paths worked by hand, bits against scalar code written from
 * selector.h on the stored checkpoints, the sampled walk, and every refusal. Here too are the helpers of
 * propose_case.h.
 */
#include "model/model.h"
#include "support/op_case.h"
#include "heads/pick.h"
#include "support/propose_case.h"
#include "run/recording.h"

#include <math.h>
#include <stdlib.h>

/* ---- By hand ---- */

/*
 * A selector of rank 2 and top-2 over six tokens, put in the place of a checkpoint's: h is the first two values of a
 * row, both 1 here. Predecessor p adds (its first value) to successors with (1, 0) and (its second) to those with (0,
 * 1).
 */
enum { TOKENS = 6, RANK = 2, TOP = 2, SLOTS = 3 };
static const float PREDECESSOR[TOKENS * RANK] = {2, 0, /* 1 */ 0, 2, /* 2 */ 0.5f, 0, /* 3 */ 0, 3, 0, 0, 0, 0};
static const float SUCCESSOR[TOKENS * RANK] = {0, 0, 0, 0, /* 2 */ 1, 0, /* 3 */ 0, 1, /* 4 */ 1, 0, /* 5 */ 0, 1};

static dflash_engine *engine;
static dflash_draft *draft;
static float *projection, *rows;
static dp_recording stages;

static void use_hand_selector(void) {
    const size_t width = (size_t)draft->config.hidden;
    projection = calloc(RANK * width, sizeof *projection);
    rows = calloc(SLOTS * width, sizeof *rows);
    ck_assert(projection != NULL && rows != NULL);
    projection[0] = projection[width + 1] = 1.0f;
    for (size_t slot = 0; slot < SLOTS; slot++) rows[slot * width] = rows[slot * width + 1] = 1.0f;
    draft->config.vocab = TOKENS;
    draft->config.selector_vocab = 0;
    draft->config.selector_rank = RANK;
    draft->config.selector_top_k = TOP;
    draft->weights.selector_projection =
        (df_matrix){.dtype = DF_F32, .out = RANK, .in = draft->config.hidden, .data = projection};
    draft->weights.predecessor = (df_matrix){.dtype = DF_F32, .out = TOKENS, .in = RANK, .data = PREDECESSOR};
    draft->weights.successor = (df_matrix){.dtype = DF_F32, .out = TOKENS, .in = RANK, .data = SUCCESSOR};
}

static void setup(void) {
    engine = op_engine(DFLASH_ISA_BEST, 2, true);
    draft = pc_load(engine, "fixtures/small/tiny-dflash2");
    use_hand_selector();
}

static void teardown(void) {
    dp_recording_release(&stages);
    free(projection);
    free(rows);
    dflash_draft_destroy(draft);
    dflash_engine_destroy(engine);
}

/* 2 and 3 lead at slot 0, 4 and 5 at slots 1 and 2, by a little. */
static const float LOGITS[SLOTS * TOKENS] = {-9, -9, 4,     3.75f,   -9, -9, /**/ -9, -9, -9,
                                             -9, 5,  5.25f, /**/ -9, -9, -9, -9,      1,  1};

static dflash_status propose(const dflash_table *table, const float *logits, int32_t anchor, float temperature,
                             const float *uniform, const dflash_proposal *out, dflash_error *err) {
    const dflash_proposal_options options = {.temperature = temperature, .uniform = uniform};
    return dflash_propose(draft, table, logits, rows, SLOTS, TOKENS, anchor, &options, out, err);
}

START_TEST(the_predecessor_changes_the_winner_at_the_first_slot_and_at_a_later_one) {
    int32_t path[SLOTS], candidate[SLOTS * TOP];
    float share[SLOTS];
    const dflash_proposal out = {.token = path, .share = share, .candidate = candidate};
    dflash_error err = {0};
    dflash_draft_observe(draft, dp_recording_observe, &stages);
    ck_assert_int_eq(propose(NULL, LOGITS, 0, 0, NULL, &out, &err), DFLASH_OK); /* anchor 0 lifts 2, 2 lifts 4 past 5 */
    dflash_draft_observe(draft, NULL, NULL);
    ck_assert(path[0] == 2 && path[1] == 4 &&
              path[2] == 4); /* at slot 2 predecessor 4 adds nothing: a tie, the first */
    static const float scores[] = {6, 3.75f, 5.25f, 5.5f, 1, 1};
    const dp_recorded *seen = dp_recording_find(&stages, DFLASH_STAGE_SELECT_SCORES, -1);
    op_expect_bits(scores, seen->value, SLOTS * TOP, "scores");
    ck_assert(candidate[0] == 2 && candidate[1] == 3 && candidate[2] == 5 && candidate[3] == 4);
    ck_assert_double_lt(fabs(share[0] - 1 / (1 + exp(-2.25))), 1e-6);
    ck_assert_double_lt(fabs(share[1] - 1 / (1 + exp(-0.25))), 1e-6);
    ck_assert(share[2] == 0.5f);
    ck_assert_int_eq(propose(NULL, LOGITS, 1, 0, NULL, &out, &err), DFLASH_OK); /* anchor 1 lifts 3, which lifts 5 */
    ck_assert(path[0] == 3 && path[1] == 5 && path[2] == 4);
    ck_assert_int_eq(propose(NULL, LOGITS, 4, 0, NULL, &out, &err), DFLASH_OK); /* anchor 4 leaves the logits' winner */
    ck_assert(path[0] == 2 && path[1] == 4 && path[2] == 4);
}
END_TEST

START_TEST(a_reduced_vocabulary_walks_the_codebooks_by_target_id) {
    /* Four columns that are tokens 2, 3, 4, 5. */
    static const float logits[SLOTS * 4] = {4, 3.75f, -9, -9, /**/ -9, -9, 5, 5.25f, /**/ -9, -9, 1, 1};
    static const float w[4] = {0};
    static const int32_t offset[4] = {2, 2, 2, 2};
    int32_t path[SLOTS], candidate[SLOTS * TOP];
    const dflash_proposal out = {.token = path, .candidate = candidate};
    const dflash_proposal_options greedy = {.temperature = 0};
    dflash_table *table = NULL;
    dflash_error err = {0};
    ck_assert_int_eq(dflash_table_create(engine, "F32", 4, 1, w, &table, &err), DFLASH_OK);
    ck_assert_int_eq(dflash_table_set_offsets(table, offset, TOKENS, &err), DFLASH_OK);
    ck_assert_int_eq(dflash_propose(draft, table, logits, rows, SLOTS, 4, 1, &greedy, &out, &err), DFLASH_OK);
    ck_assert(path[0] == 3 && path[1] == 5 && path[2] == 4);
    ck_assert(candidate[0] == 2 && candidate[1] == 3 && candidate[2] == 5 && candidate[3] == 4);
    dflash_table_destroy(table);
}
END_TEST

START_TEST(the_sampled_walk_reproduces_from_its_recorded_distributions) {
    int32_t path[SLOTS], candidate[SLOTS * TOP];
    float share[SLOTS], probability[SLOTS * TOP];
    const dflash_proposal out = {path, share, candidate, probability};
    dflash_error err = {0};
    int second_choices = 0;
    for (int step = 0; step < 50; step++) {
        const float uniform[SLOTS] = {(float)step * 0.02f, (float)(step * 7 % 50) * 0.02f,
                                      (float)(step * 13 % 50) * 0.02f};
        const float temperature = 2.0f;
        ck_assert_int_eq(propose(NULL, LOGITS, step % 2, temperature, uniform, &out, &err), DFLASH_OK);
        int32_t prev = step % 2;
        for (int slot = 0; slot < SLOTS; slot++) {
            float score[TOP], expected[TOP];
            for (int b = 0; b < TOP; b++) {
                const int32_t id = candidate[slot * TOP + b];
                score[b] = LOGITS[slot * TOKENS + id] + PREDECESSOR[prev * 2] * SUCCESSOR[id * 2] +
                           PREDECESSOR[prev * 2 + 1] * SUCCESSOR[id * 2 + 1];
            }
            ck_assert_int_eq(df_pick_softmax(score, TOP, temperature, expected, "the scores", slot, &err), DFLASH_OK);
            op_expect_bits(expected, probability + slot * TOP, TOP, "the distribution");
            const int drawn = pc_draw(expected, TOP, uniform[slot]);
            ck_assert_int_eq(path[slot], candidate[slot * TOP + drawn]);
            ck_assert(share[slot] == expected[drawn]);
            second_choices += score[drawn] < score[1 - drawn];
            prev = path[slot];
        }
    }
    ck_assert_int_gt(second_choices, 10); /* it was no greedy walk */
}
END_TEST

START_TEST(ties_and_collapsed_neighbours_take_the_lower_id) {
    float logits[SLOTS * TOKENS];
    int32_t path[SLOTS], candidate[SLOTS * TOP];
    const dflash_proposal out = {.token = path, .candidate = candidate};
    dflash_error err = {0};
    for (int i = 0; i < SLOTS * TOKENS; i++) {
        /* Apart in float32, the same in bf16: what a reference in bf16 hands over. */
        const float fine = 10.0f + (float)(i % TOKENS) * 0.001f;
        logits[i] = i < TOKENS ? 3.0f : df_bf16_to_f32(df_f32_to_bf16(fine));
    }
    ck_assert_int_eq(propose(NULL, logits, 4, 0, NULL, &out, &err), DFLASH_OK);
    for (int slot = 0; slot < SLOTS; slot++)
        ck_assert(candidate[slot * TOP] == 0 && candidate[slot * TOP + 1] == 1 && path[slot] == 0);
}
END_TEST

START_TEST(slots_that_cannot_be_chosen_are_refused) {
    float logits[SLOTS * TOKENS];
    int32_t path[SLOTS];
    const dflash_proposal out = {.token = path};
    dflash_error err = {0};
    memcpy(logits, LOGITS, sizeof logits);
    logits[TOKENS + 1] = NAN;
    pc_refused(propose(NULL, logits, 0, 0, NULL, &out, &err), DFLASH_ERR_REFUSED, &err, "proposal.nan");
    ck_assert_ptr_nonnull(strstr(err.message, "Slot 1"));
    for (int i = 0; i < TOKENS; i++) logits[TOKENS + i] = i == 3 ? 1.0f : -INFINITY;
    pc_refused(propose(NULL, logits, 0, 0, NULL, &out, &err), DFLASH_ERR_REFUSED, &err, "selector.unfillable");
    ck_assert_ptr_nonnull(strstr(err.message, "Slot 1"));
    logits[TOKENS + 3] = -INFINITY;
    pc_refused(propose(NULL, logits, 0, 0, NULL, &out, &err), DFLASH_ERR_REFUSED, &err, "selector.unfillable");
    logits[0] = NAN; /* the first slot at fault is the one reported */
    pc_refused(propose(NULL, logits, 0, 0, NULL, &out, &err), DFLASH_ERR_REFUSED, &err, "proposal.nan");
    ck_assert_ptr_nonnull(strstr(err.message, "Slot 0"));
    rows[2 * (size_t)draft->config.hidden] = NAN; /* finite logits, a hidden state that is not */
    pc_refused(propose(NULL, LOGITS, 0, 0, NULL, &out, &err), DFLASH_ERR_REFUSED, &err, "proposal.nan");
    ck_assert_ptr_nonnull(strstr(err.message, "Slot 2"));
}
END_TEST

START_TEST(ids_and_widths_outside_the_selector_are_refused) {
    int32_t path[SLOTS];
    const dflash_proposal out = {.token = path};
    const dflash_proposal_options greedy = {.temperature = 0};
    dflash_error err = {0};
    pc_refused(propose(NULL, LOGITS, -1, 0, NULL, &out, &err), DFLASH_ERR_REFUSED, &err, "selector.anchor");
    pc_refused(propose(NULL, LOGITS, TOKENS, 0, NULL, &out, &err), DFLASH_ERR_REFUSED, &err, "selector.anchor");
    draft->config.selector_vocab = 5; /* fewer than the codebooks' rows */
    pc_refused(propose(NULL, LOGITS, 5, 0, NULL, &out, &err), DFLASH_ERR_REFUSED, &err, "selector.anchor");
    pc_refused(propose(NULL, LOGITS, 0, 0, NULL, &out, &err), DFLASH_ERR_REFUSED, &err, "selector.candidate");
    ck_assert_ptr_nonnull(strstr(err.message, "Slot 1: candidate 0 is token 5"));
    draft->config.selector_vocab = 0;
    pc_refused(dflash_propose(draft, NULL, LOGITS, rows, SLOTS, 1, 0, &greedy, &out, &err), DFLASH_ERR_REFUSED, &err,
               "selector.top_k");
    const float wide[SLOTS * (TOKENS + 1)] = {9, 8, 0, 0, 0, 0, 0,
                                              0, 0, 0, 0, 0, 9, 8}; /* a seventh column, at slot 1 */
    pc_refused(dflash_propose(draft, NULL, wide, rows, SLOTS, TOKENS + 1, 0, &greedy, &out, &err), DFLASH_ERR_REFUSED,
               &err, "selector.candidate");
}
END_TEST

/* ---- On the stored checkpoints ---- */

static float *widened(const df_matrix *matrix) {
    const size_t n = (size_t)(matrix->out * matrix->in);
    float *values = op_floats(n);
    ck_assert_int_eq(matrix->dtype, DF_BF16);
    for (size_t i = 0; i < n; i++) {
        uint16_t narrow;
        memcpy(&narrow, (const char *)matrix->data + 2 * i, sizeof narrow);
        values[i] = df_bf16_to_f32(narrow);
    }
    return values;
}

/* The walk as selector.h words it; the k best by selection, k times. */
static void scalar_walk(const dflash_draft *d, const float *logits, const float *given, int n, int vocab,
                        int32_t anchor, float *values, int32_t *ids, float *hidden, float *scores, int32_t *path) {
    const int k = d->config.selector_top_k, r = d->config.selector_rank;
    float *w = widened(&d->weights.selector_projection), *pred = widened(&d->weights.predecessor);
    float *succ = widened(&d->weights.successor), *t = op_floats((size_t)r);
    int32_t prev = anchor;
    for (int slot = 0; slot < n; slot++) {
        for (int j = 0; j < r; j++) {
            hidden[slot * r + j] =
                op_dot(w + j * d->config.hidden, given + (size_t)slot * (size_t)d->config.hidden, d->config.hidden);
            t[j] = pred[prev * r + j] * hidden[slot * r + j];
        }
        const float *row = logits + (size_t)slot * (size_t)vocab;
        int best = 0;
        for (int b = 0; b < k; b++) {
            int at = -1;
            for (int i = 0; i < vocab; i++) {
                bool taken = false;
                for (int earlier = 0; earlier < b; earlier++) taken = taken || ids[slot * k + earlier] == i;
                if (!taken && (at < 0 || row[i] > row[at])) at = i;
            }
            ids[slot * k + b] = at;
            values[slot * k + b] = row[at];
            scores[slot * k + b] = row[at] + op_dot(t, succ + at * r, r);
            if (scores[slot * k + b] > scores[slot * k + best]) best = b;
        }
        prev = path[slot] = ids[slot * k + best];
    }
    free(w);
    free(pred);
    free(succ);
    free(t);
}

static const dp_recorded *stage(const dp_recording *recording, dflash_stage which, int rank, int64_t d0, int64_t d1) {
    const dp_recorded *found = dp_recording_find(recording, which, -1);
    ck_assert_ptr_nonnull(found);
    ck_assert_int_eq(found->rank, rank);
    ck_assert_int_eq(found->dim[0], d0);
    if (rank == 2) ck_assert_int_eq(found->dim[1], d1);
    return found;
}

static void check_checkpoint(const char *dir, dflash_isa isa, int threads, int *moved) {
    dflash_engine *e = op_engine(isa, threads, true);
    dflash_draft *d = pc_load(e, dir);
    const int n = d->config.block - 1, k = d->config.selector_top_k, r = d->config.selector_rank;
    const int vocab = d->config.selector_vocab != 0 ? d->config.selector_vocab : d->config.vocab;
    const size_t slots = (size_t)(n * k), hidden = (size_t)(n * r);
    float *logits = op_floats((size_t)(n * vocab)), *given = op_floats((size_t)(n * d->config.hidden));
    float *values = op_floats(slots), *scores = op_floats(slots), *h = op_floats(hidden);
    int32_t *ids = op_alloc(slots * sizeof *ids), *path = op_alloc((size_t)n * sizeof *path);
    int32_t *token = op_alloc((size_t)n * sizeof *token);
    op_random random = {70};
    for (int draw = 0; draw < 8; draw++) {
        op_fill(&random, logits, (size_t)(n * vocab));
        op_fill(&random, given, (size_t)(n * d->config.hidden));
        for (int i = 0; i < n * vocab; i += 7) logits[i] = 0.875f; /* ties made near the top */
        const int32_t anchor = op_below(&random, vocab);
        const dflash_proposal out = {.token = token};
        const dflash_proposal_options greedy = {.temperature = 0};
        dp_recording seen = {0};
        dflash_error err = {0};
        scalar_walk(d, logits, given, n, vocab, anchor, values, ids, h, scores, path);
        dflash_draft_observe(d, dp_recording_observe, &seen);
        ck_assert_msg(dflash_propose(d, NULL, logits, given, n, vocab, anchor, &greedy, &out, &err) == DFLASH_OK, "%s",
                      err.message);
        dflash_draft_observe(d, NULL, NULL);
        op_expect_bits(values, stage(&seen, DFLASH_STAGE_SELECT_TOPK_VALUES, 2, n, k)->value, slots, "values");
        ck_assert_mem_eq(ids, stage(&seen, DFLASH_STAGE_SELECT_TOPK_IDS, 2, n, k)->integer, slots * sizeof *ids);
        op_expect_bits(h, stage(&seen, DFLASH_STAGE_SELECT_HIDDEN, 2, n, r)->value, hidden, "hidden");
        op_expect_bits(scores, stage(&seen, DFLASH_STAGE_SELECT_SCORES, 2, n, k)->value, slots, "scores");
        ck_assert_mem_eq(path, stage(&seen, DFLASH_STAGE_SELECT_PATH, 1, n, 0)->integer, (size_t)n * sizeof *path);
        ck_assert_mem_eq(path, token, (size_t)n * sizeof *path);
        for (int slot = 0; slot < n; slot++) *moved += path[slot] != ids[slot * k];
        ck_assert_int_eq(dflash_propose(d, NULL, logits, given, n, vocab, anchor, &greedy, &out, &err), DFLASH_OK);
        ck_assert_mem_eq(path, token, (size_t)n * sizeof *path); /* nobody looking changes nothing */
        dp_recording_release(&seen);
    }
    free(logits);
    free(given);
    free(values);
    free(scores);
    free(h);
    free(ids);
    free(path);
    free(token);
    dflash_draft_destroy(d);
    dflash_engine_destroy(e);
}

START_TEST(the_walk_has_the_documented_bits_on_every_instruction_set_and_thread_count) {
    dflash_isa isa[OP_ISAS];
    const int isas = op_isas(isa);
    int moved = 0;
    for (int e = 0; e < isas; e++)
        for (int threads = 1; threads <= 3; threads++) {
            check_checkpoint("fixtures/small/tiny-dflash2", isa[e], threads, &moved);
            check_checkpoint("fixtures/small/tiny-dflash2-k3", isa[e], threads, &moved);
        }
    ck_assert_int_gt(moved, 50); /* the selector's choice is often not the best logit */
}
END_TEST

START_TEST(the_bound_of_a_checkpoint_with_fewer_selectable_tokens_than_codebook_rows_holds) {
    dflash_draft *d = pc_load(engine, "fixtures/small/tiny-dflash2-k3"); /* 371 of 384 */
    float *logits = op_floats(384), *given = op_floats((size_t)d->config.hidden);
    int32_t token;
    const dflash_proposal out = {.token = &token};
    const dflash_proposal_options greedy = {.temperature = 0};
    dflash_error err = {0};
    op_random random = {71};
    op_fill(&random, logits, 384);
    op_fill(&random, given, (size_t)d->config.hidden);
    for (int i = 371; i < 384; i++) logits[i] = -INFINITY; /* masked, as a server would */
    ck_assert_int_eq(dflash_propose(d, NULL, logits, given, 1, 384, 370, &greedy, &out, &err), DFLASH_OK);
    pc_refused(dflash_propose(d, NULL, logits, given, 1, 384, 371, &greedy, &out, &err), DFLASH_ERR_REFUSED, &err,
               "selector.anchor");
    logits[371] = 5.0f;
    pc_refused(dflash_propose(d, NULL, logits, given, 1, 384, 0, &greedy, &out, &err), DFLASH_ERR_REFUSED, &err,
               "selector.candidate");
    free(logits);
    free(given);
    dflash_draft_destroy(d);
}
END_TEST

TCase *tcase_selector(void) {
    TCase *tcase = tcase_create("selector");
    tcase_set_timeout(tcase, 300);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, the_predecessor_changes_the_winner_at_the_first_slot_and_at_a_later_one);
    tcase_add_test(tcase, a_reduced_vocabulary_walks_the_codebooks_by_target_id);
    tcase_add_test(tcase, the_sampled_walk_reproduces_from_its_recorded_distributions);
    tcase_add_test(tcase, ties_and_collapsed_neighbours_take_the_lower_id);
    tcase_add_test(tcase, slots_that_cannot_be_chosen_are_refused);
    tcase_add_test(tcase, ids_and_widths_outside_the_selector_are_refused);
    tcase_add_test(tcase, the_walk_has_the_documented_bits_on_every_instruction_set_and_thread_count);
    tcase_add_test(tcase, the_bound_of_a_checkpoint_with_fewer_selectable_tokens_than_codebook_rows_holds);
    return tcase;
}
