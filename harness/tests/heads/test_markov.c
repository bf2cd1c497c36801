/*
 * test_markov.c - DSpark's Markov heads: the corrected logits against double precision, the chain of tokens, and that
 * each property of the chain (which token is `prev`, the state, the order of the gate's inputs) decides something here.
 */
#include "suites.h"

#include "support/dspark_case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ANCHOR = 13, REDUCED = 97 };

static const dflash_engine_options PLAIN = {.threads = 1, .poison_scratch = true};
static const dflash_proposal_options GREEDY = {.temperature = 0};
static const dflash_markov_kind KINDS[] = {DFLASH_MARKOV_VANILLA, DFLASH_MARKOV_GATED, DFLASH_MARKOV_RNN};

static ds_case it;
static dflash_table *table;

static void teardown(void) {
    dflash_table_destroy(table);
    table = NULL;
    ds_free(&it);
}

/* ---- Running the head ---- */

typedef struct result {
    float logits[DS_N * DS_V];
    int32_t seen[DS_N], token[DS_N];
    int stages;
} result;

static void observe(void *user, const dflash_stage_view *view) {
    result *r = user;
    r->stages++;
    if (view->stage == DFLASH_STAGE_MARKOV_LOGITS) {
        ck_assert(view->rank == 2 && view->dim[0] == DS_N && view->i32 == NULL);
        memcpy(r->logits, view->f32, (size_t)(DS_N * view->dim[1]) * sizeof(float));
    } else {
        ck_assert_int_eq(view->stage, DFLASH_STAGE_MARKOV_TOKENS);
        ck_assert(view->rank == 1 && view->dim[0] == DS_N && view->f32 == NULL);
        memcpy(r->seen, view->i32, sizeof r->seen);
    }
}

static void propose(int vocab, int32_t anchor, result *r) {
    dflash_error err = {0};
    memset(r, 0, sizeof *r);
    dflash_draft_observe(&it.draft, observe, r);
    const dflash_status status = dflash_propose(&it.draft, table, it.logits, it.rows, DS_N, vocab, anchor, &GREEDY,
                                                &(dflash_proposal){.token = r->token}, &err);
    ck_assert_msg(status == DFLASH_OK, "%s: %s", err.code, err.message);
    ck_assert_int_eq(r->stages, 2);
    ck_assert_mem_eq(r->seen, r->token, sizeof r->token);
}

/* ---- The reference ---- */

/* Corrected logits when the slots' tokens are `token`. */
static void reference(int vocab, int32_t anchor, const int32_t *token, ds_fault fault, dp_real *logits) {
    ds_markov_logits(&it.draft, it.rows, it.logits, DS_N, vocab, anchor, token, fault, logits);
}

static int best(const dp_real *logits, int vocab) {
    int at = 0;
    for (int i = 1; i < vocab; i++)
        if (logits[i].value > logits[at].value) at = i;
    return at;
}

static int outside(const result *r, const dp_real *want, int first, int count) {
    int wrong = 0;
    for (int i = first; i < first + count; i++) wrong += !ds_close(r->logits[i], want[i]);
    return wrong;
}

/* ---- Values ---- */

START_TEST(every_head_agrees_with_double_precision_and_chooses_its_best) {
    static result r;
    static dp_real want[DS_N * DS_V];
    ds_make(&it, KINDS[_i], DS_V, &PLAIN);
    propose(DS_V, ANCHOR, &r);
    reference(DS_V, ANCHOR, r.token, DS_RIGHT, want);
    for (int slot = 0; slot < DS_N; slot++) ck_assert_int_eq(r.token[slot], best(want + slot * DS_V, DS_V));
    for (int i = 0; i < DS_N * DS_V; i++)
        ck_assert_msg(ds_close(r.logits[i], want[i]), "slot %d row %d: %.9g, not %.9g +- %.3g", i / DS_V, i % DS_V,
                      (double)r.logits[i], want[i].value, want[i].error);
}
END_TEST

START_TEST(the_bound_is_tight_enough_to_see_each_fault) {
    static result r;
    static dp_real right[DS_N * DS_V], want[DS_N * DS_V];
    ds_make(&it, KINDS[_i], DS_V, &PLAIN);
    propose(DS_V, ANCHOR, &r);
    reference(DS_V, ANCHOR, r.token, DS_RIGHT, right);
    for (ds_fault f = DS_PREV_STAYS_ANCHOR; f <= DS_BIAS_DROPPED; f++) {
        if (f != DS_PREV_STAYS_ANCHOR && KINDS[_i] == DFLASH_MARKOV_VANILLA) continue;
        if ((f == DS_STATE_FORGOTTEN || f == DS_THIRDS_ROTATED) && KINDS[_i] != DFLASH_MARKOV_RNN) continue;
        reference(DS_V, ANCHOR, r.token, f, want);
        for (int i = 0; i < DS_N * DS_V; i++) want[i].error = right[i].error;
        const int last = (DS_N - 1) * DS_V;
        ck_assert_msg(outside(&r, want, last, DS_V) > DS_V * 9 / 10, "fault %d is within the bound", (int)f);
        const bool shows_at_first = f != DS_PREV_STAYS_ANCHOR && f != DS_STATE_FORGOTTEN;
        ck_assert_msg((outside(&r, want, 0, DS_V) > 0) == shows_at_first, "fault %d at the first slot", (int)f);
    }
}
END_TEST

START_TEST(the_predecessor_changes_the_winner_at_the_first_and_at_a_later_slot) {
    static result r, other;
    static dp_real want[DS_N * DS_V], stale[DS_N * DS_V];
    ds_make(&it, KINDS[_i], DS_V, &PLAIN);
    propose(DS_V, ANCHOR, &r);
    int first = 0;
    for (int32_t anchor = 0; anchor < 20; anchor++) {
        propose(DS_V, anchor, &other);
        first += other.token[0] != r.token[0];
    }
    ck_assert_int_gt(first, 0);
    reference(DS_V, ANCHOR, r.token, DS_RIGHT, want);
    reference(DS_V, ANCHOR, r.token, DS_PREV_STAYS_ANCHOR, stale);
    int later = 0;
    for (int slot = 1; slot < DS_N; slot++) later += best(want + slot * DS_V, DS_V) != best(stale + slot * DS_V, DS_V);
    ck_assert_int_gt(later, 0);
    /* and the head changes what the plain logits say */
    int changed = 0;
    for (int slot = 0; slot < DS_N; slot++) {
        dp_real plain[DS_V];
        ds_exact(it.logits + slot * DS_V, DS_V, plain);
        changed += r.token[slot] != best(plain, DS_V);
    }
    ck_assert_int_gt(changed, 1);
}
END_TEST

START_TEST(nothing_is_kept_between_calls_and_a_slot_does_not_see_later_ones) {
    static result r, again;
    ds_make(&it, KINDS[_i], DS_V, &PLAIN);
    propose(DS_V, ANCHOR, &r);
    propose(DS_V, ANCHOR + 1, &again);
    propose(DS_V, ANCHOR, &again);
    ck_assert_mem_eq(again.logits, r.logits, sizeof r.logits);
    ck_assert_mem_eq(again.token, r.token, sizeof r.token);
    /* fewer slots, unobserved: the same tokens */
    dflash_draft_observe(&it.draft, NULL, NULL);
    dflash_error err = {0};
    for (int n = 1; n < DS_N; n++) {
        int32_t token[DS_N];
        const dflash_proposal out = {.token = token};
        ck_assert_int_eq(dflash_propose(&it.draft, NULL, it.logits, it.rows, n, DS_V, ANCHOR, &GREEDY, &out, &err),
                         DFLASH_OK);
        ck_assert_mem_eq(token, r.token, (size_t)n * sizeof *token);
    }
}
END_TEST

START_TEST(every_instruction_set_and_thread_count_gives_the_same_bits) {
    static result first, r;
    for (int isa = DFLASH_ISA_GENERIC, runs = 0; isa <= DFLASH_ISA_REFERENCE; isa++)
        for (int threads = 1; threads <= 3; threads += 2) {
            const dflash_engine_options options = {.isa = (dflash_isa)isa, .threads = threads};
            dflash_engine *probe = NULL;
            if (dflash_engine_create(&options, &probe, NULL) != DFLASH_OK) continue; /* this machine lacks it */
            dflash_engine_destroy(probe);
            if (runs > 0) ds_free(&it);
            ds_make(&it, KINDS[_i], DS_V, &options);
            propose(DS_V, ANCHOR, &r);
            if (runs++ == 0) first = r;
            ck_assert_mem_eq(r.logits, first.logits, sizeof r.logits);
            ck_assert_mem_eq(r.token, first.token, sizeof r.token);
        }
}
END_TEST

START_TEST(a_tie_goes_to_the_lower_row) {
    static result r;
    ds_make(&it, DFLASH_MARKOV_VANILLA, DS_V, &PLAIN);
    /* every row of W2 alike: the bias changes no order, so the made ties stay ties */
    for (int i = 1; i < DS_V; i++) {
        float *w2 = it.owned[1];
        ck_assert_ptr_eq(w2, it.draft.weights.markov_w2.data);
        memcpy(w2 + i * DS_R, w2, DS_R * sizeof *w2);
    }
    for (int slot = 0; slot < DS_N; slot++)
        it.logits[slot * DS_V + 200] = it.logits[slot * DS_V + 40 + slot] = it.logits[slot * DS_V + 100] = 9.0f;
    propose(DS_V, ANCHOR, &r);
    for (int slot = 0; slot < DS_N; slot++) ck_assert_int_eq(r.token[slot], 40 + slot);
}
END_TEST

/* ---- Sampling and a reduced vocabulary ---- */

START_TEST(a_sampled_chain_draws_from_the_distribution_it_records) {
    static float probability[DS_N * DS_V];
    static int32_t candidate[DS_N * DS_V];
    static dp_real want[DS_N * DS_V];
    const float uniform[DS_N] = {0.95f, 0.02f, 0.5f, 0.77f, 0.31f, 0.0f};
    const dflash_proposal_options options = {.temperature = 0.7f, .uniform = uniform};
    int32_t token[DS_N];
    float share[DS_N];
    const dflash_proposal out = {token, share, candidate, probability};
    ds_make(&it, KINDS[_i], DS_V, &PLAIN);
    dflash_error err = {0};
    ck_assert_msg(dflash_propose(&it.draft, NULL, it.logits, it.rows, DS_N, DS_V, ANCHOR, &options, &out, &err) ==
                      DFLASH_OK,
                  "%s", err.message);
    reference(DS_V, ANCHOR, token, DS_RIGHT, want); /* the drawn tokens are the predecessors */
    int not_best = 0;
    for (int slot = 0; slot < DS_N; slot++) {
        const float *p = probability + slot * DS_V;
        double sum = 0;
        for (int i = 0; i < DS_V; i++) sum += exp(want[slot * DS_V + i].value / (double)options.temperature);
        for (int i = 0; i < DS_V; i++) {
            const double right = exp(want[slot * DS_V + i].value / (double)options.temperature) / sum;
            ck_assert_msg(fabs((double)p[i] - right) < 1e-5 * right, "slot %d row %d: %.9g, not %.9g", slot, i,
                          (double)p[i], right);
            ck_assert_int_eq(candidate[slot * DS_V + i], i);
        }
        ck_assert_int_eq(token[slot], dflash_draw(p, DS_V, uniform[slot]));
        ck_assert(share[slot] == p[token[slot]]);
        not_best += token[slot] != best(want + slot * DS_V, DS_V);
    }
    ck_assert_int_gt(not_best, 0);
}
END_TEST

/* A table of REDUCED rows; row i stands for token 2 i + 3. */
static void make_reduced(int target_vocab) {
    static float values[REDUCED * DS_H];
    int32_t offset[REDUCED];
    dflash_error err = {0};
    for (int i = 0; i < REDUCED; i++) offset[i] = i + 3;
    dflash_table_destroy(table);
    ck_assert_int_eq(dflash_table_create(it.draft.engine, "F32", REDUCED, DS_H, values, &table, &err), DFLASH_OK);
    ck_assert_msg(dflash_table_set_offsets(table, offset, target_vocab, &err) == DFLASH_OK, "%s", err.message);
}

START_TEST(a_reduced_vocabulary_biases_its_own_rows_and_remembers_target_ids) {
    static result r;
    static dp_real want[DS_N * DS_V];
    ds_make(&it, KINDS[_i], REDUCED, &PLAIN);
    make_reduced(DS_W1);
    propose(REDUCED, ANCHOR, &r);
    reference(REDUCED, ANCHOR, r.token, DS_RIGHT, want); /* W1 rows by target id, W2 rows by row */
    ck_assert_int_eq(outside(&r, want, 0, DS_N * REDUCED), 0);
    for (int slot = 0; slot < DS_N; slot++)
        ck_assert_int_eq(r.token[slot], 2 * best(want + slot * REDUCED, REDUCED) + 3);
    int32_t row[DS_N]; /* a chain that took rows for ids would give other values */
    for (int slot = 0; slot < DS_N; slot++) row[slot] = (r.token[slot] - 3) / 2;
    reference(REDUCED, ANCHOR, row, DS_RIGHT, want);
    ck_assert_int_gt(outside(&r, want, REDUCED, REDUCED), REDUCED / 2);
}
END_TEST

/* ---- Refusals ---- */

static void refuse(int vocab, int32_t anchor, const char *code, const char *word) {
    dflash_error err = {0};
    int32_t token[DS_N];
    const dflash_proposal out = {.token = token};
    const dflash_status status =
        dflash_propose(&it.draft, table, it.logits, it.rows, DS_N, vocab, anchor, &GREEDY, &out, &err);
    ck_assert_msg(status == DFLASH_ERR_REFUSED && strcmp(err.code, code) == 0 && strstr(err.message, word) != NULL,
                  "expected %s with \"%s\", got %d %s: %s", code, word, (int)status, err.code, err.message);
}

START_TEST(vocabularies_that_contradict_are_refused) {
    ds_make(&it, KINDS[_i], REDUCED, &PLAIN);
    refuse(DS_V, ANCHOR, "markov.vocab", "97");
    refuse(REDUCED, ANCHOR, "markov.target_vocab", "offsets"); /* rows would be taken for ids */
    make_reduced(DS_W1 + 1);
    refuse(REDUCED, ANCHOR, "markov.target_vocab", "212");
    make_reduced(DS_W1 - 1);
    refuse(REDUCED, ANCHOR, "markov.target_vocab", "210");
    make_reduced(DS_W1);
    refuse(REDUCED, DS_W1, "markov.anchor", "211");
}
END_TEST

START_TEST(an_anchor_outside_the_vocabulary_is_refused) {
    ds_make(&it, KINDS[_i], DS_V, &PLAIN);
    refuse(DS_V, -1, "markov.anchor", "-1");
    refuse(DS_V, DS_V, "markov.anchor", "211");
    refuse(DS_V, INT32_MAX, "markov.anchor", "2147483647");
}
END_TEST

START_TEST(a_row_without_a_best_value_is_refused_at_its_slot) {
    ds_make(&it, KINDS[_i], DS_V, &PLAIN);
    for (int slot = 0; slot < DS_N; slot += DS_N - 1) {
        char word[16];
        float kept[DS_V], *row = it.logits + slot * DS_V;
        memcpy(kept, row, sizeof kept);
        snprintf(word, sizeof word, "lot %d", slot);
        row[17] = NAN;
        refuse(DS_V, ANCHOR, "proposal.nan", word);
        for (int i = 0; i < DS_V; i++) row[i] = -INFINITY;
        refuse(DS_V, ANCHOR, "proposal.nofinite", word);
        memcpy(row, kept, sizeof kept);
    }
    if (KINDS[_i] == DFLASH_MARKOV_VANILLA) return; /* reads no rows */
    it.rows[2 * DS_H + 9] = NAN;
    refuse(DS_V, ANCHOR, "proposal.nan", "lot 2");
}
END_TEST

Suite *suite_markov(void) {
    Suite *suite = suite_create("markov");
    TCase *tests = tcase_create("markov");
    const int kinds = (int)(sizeof KINDS / sizeof *KINDS);
    tcase_add_checked_fixture(tests, NULL, teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, every_head_agrees_with_double_precision_and_chooses_its_best, 0, kinds);
    tcase_add_loop_test(tests, the_bound_is_tight_enough_to_see_each_fault, 0, kinds);
    tcase_add_loop_test(tests, the_predecessor_changes_the_winner_at_the_first_and_at_a_later_slot, 0, kinds);
    tcase_add_loop_test(tests, nothing_is_kept_between_calls_and_a_slot_does_not_see_later_ones, 0, kinds);
    tcase_add_loop_test(tests, every_instruction_set_and_thread_count_gives_the_same_bits, 0, kinds);
    tcase_add_test(tests, a_tie_goes_to_the_lower_row);
    tcase_add_loop_test(tests, a_sampled_chain_draws_from_the_distribution_it_records, 0, kinds);
    tcase_add_loop_test(tests, a_reduced_vocabulary_biases_its_own_rows_and_remembers_target_ids, 0, kinds);
    tcase_add_loop_test(tests, vocabularies_that_contradict_are_refused, 0, kinds);
    tcase_add_loop_test(tests, an_anchor_outside_the_vocabulary_is_refused, 0, kinds);
    tcase_add_loop_test(tests, a_row_without_a_best_value_is_refused_at_its_slot, 0, kinds);
    suite_add_tcase(suite, tests);
    return suite;
}
