/*
 * test_draft_rounds.c - forward_round over a cache gives the bits of forward_block however the context got there: in
 * chunks of any size, between rounds, after rejected rows that held anything at all.
 */
#include "preflight/preflight.h"
#include "support/draft_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void init(draft_case *c, int index) { draft_case_init(c, index, op_engine(DFLASH_ISA_BEST, 2, true)); }

static void expect_round(const draft_case *c, dflash_kv *kv, const char *what) {
    ck_assert_int_eq(dflash_kv_len(kv), c->context);
    float *out = draft_case_round(c, kv);
    op_expect_bits(c->out, out, c->out_size, what);
    op_output_free(out);
    ck_assert_int_eq(dflash_kv_len(kv), c->context); /* the block is in flight, not committed */
}

START_TEST(a_round_has_the_bits_of_a_block_for_chunks_of_any_size) {
    static const int chunks[] = {DRAFT_CONTEXT, 1, 7, 16, 17, 64};
    draft_case c;
    init(&c, _i);
    for (size_t s = 0; s < sizeof chunks / sizeof *chunks; s++) {
        dflash_kv *kv = draft_case_cache(&c, c.context + c.config->block);
        for (int row = 0; row < c.context; row += chunks[s])
            draft_case_ingest(&c, kv, row, c.context - row < chunks[s] ? c.context - row : chunks[s]);
        expect_round(&c, kv, "chunks");
        expect_round(&c, kv, "the same round again");
        dflash_kv_destroy(kv);
    }
    draft_case_release(&c);
}
END_TEST

/* dflash_ingest_taps is dflash_ctx_features and dflash_ingest_ctx in one, also where rows are dropped before they are
 * computed. */
START_TEST(taps_ingested_directly_have_the_bits_of_ingested_features) {
    static const int chunks[] = {1, 7, 16, 17, DRAFT_CONTEXT};
    draft_case c;
    dflash_error err = {0};
    init(&c, _i);
    bool slides = true;
    for (int i = 0; i < c.config->n_layers; i++) slides = slides && c.config->layer[i].window > 0;
    const int capacity = slides ? c.config->sliding_window + 2 * c.config->block : c.context + c.config->block;
    const size_t width = (size_t)(c.config->n_taps * c.config->hidden);
    for (size_t s = 0; s < sizeof chunks / sizeof *chunks; s++) {
        dflash_kv *kv = draft_case_cache(&c, capacity);
        for (int row = 0; row < c.context; row += chunks[s]) {
            const int rows = c.context - row < chunks[s] ? c.context - row : chunks[s];
            ck_assert_msg(dflash_ingest_taps(c.draft, kv, c.taps + (size_t)row * width, c.pos + row, rows, &err) ==
                              DFLASH_OK,
                          "%s", err.message);
        }
        float *out = draft_case_round(&c, kv);
        op_expect_bits(c.out, out, c.out_size, "taps");
        op_output_free(out);
        ck_assert_int_eq(dflash_ingest_taps(c.draft, kv, c.taps, c.pos, 1, &err), DFLASH_ERR_ARGUMENT);
        ck_assert_str_eq(err.code, "positions.order");
        dflash_kv_destroy(kv);
    }
    draft_case_release(&c);
}
END_TEST

/* Every stage of the round is the tail of the same stage of forward_block, and the cache is its head. */
START_TEST(every_stage_of_a_round_and_the_cache_have_the_bits_of_a_block) {
    draft_case c;
    dflash_error err = {0};
    dp_recording block = {0}, round = {0};
    init(&c, _i);
    dflash_kv *kv = draft_case_cache(&c, c.context + c.config->block + 3);
    dflash_draft_observe(c.draft, dp_recording_observe, &block);
    op_output_free(draft_case_block(&c));
    dflash_draft_observe(c.draft, NULL, NULL);
    draft_case_ingest(&c, kv, 0, c.context);
    dflash_draft_observe(c.draft, dp_recording_observe, &round);
    op_output_free(draft_case_round(&c, kv));
    dflash_draft_observe(c.draft, NULL, NULL);
    ck_assert_int_eq(dp_recording_status(&block, &err), DFLASH_OK);
    ck_assert_int_eq(dp_recording_status(&round, &err), DFLASH_OK);
    ck_assert_int_eq(block.count, round.count);
    ck_assert_int_gt(block.count, 17 * c.config->n_layers);
    for (int i = 0; i < block.count; i++) {
        const dp_recorded *b = &block.stage[i], *r = &round.stage[i];
        char name[DFLASH_STAGE_NAME_MAX];
        size_t width = 1;
        ck_assert(b->stage == r->stage && b->layer == r->layer && b->rank == r->rank);
        for (int d = 1; d < b->rank; d++) {
            ck_assert_int_eq((int)b->dim[d], (int)r->dim[d]);
            width *= (size_t)b->dim[d];
        }
        if (b->stage != DFLASH_STAGE_ROPE_INV_FREQ) ck_assert_int_eq((int)r->dim[0], c.config->block);
        op_expect_bits(b->value + (size_t)(b->dim[0] - r->dim[0]) * width, r->value, (size_t)r->dim[0] * width,
                       dflash_stage_name(b->stage, b->layer, name));
    }
    const size_t cached = (size_t)(c.context * c.config->n_kv_heads * c.config->head_dim);
    for (int layer = 0; layer < c.config->n_layers; layer++) {
        float *k = op_output(cached), *v = op_output(cached);
        ck_assert_int_eq(dflash_kv_read(kv, layer, k, v, &err), DFLASH_OK);
        op_output_check(k, cached, "kv.k");
        op_output_check(v, cached, "kv.v");
        op_expect_bits(dp_recording_find(&block, DFLASH_STAGE_ATTN_K_ROPE, layer)->value, k, cached, "kv.k");
        op_expect_bits(dp_recording_find(&block, DFLASH_STAGE_ATTN_V, layer)->value, v, cached, "kv.v");
        ck_assert_int_eq(dflash_kv_read(kv, layer, NULL, NULL, &err), DFLASH_OK); /* either may be left out */
        op_output_free(k);
        op_output_free(v);
    }
    dp_recording_release(&block);
    dp_recording_release(&round);
    dflash_kv_destroy(kv);
    draft_case_release(&c);
}
END_TEST

/* A context row holding NaN, at positions past the committed ones, that is ingested only to be forgotten. */
static void ingest_and_reject(const draft_case *c, dflash_kv *kv, int rows) {
    const size_t n = (size_t)rows * (size_t)c->config->hidden;
    float *poison = op_floats(n);
    int32_t *pos = op_alloc((size_t)rows * sizeof *pos);
    dflash_error err = {0};
    const int len = dflash_kv_len(kv);
    for (size_t i = 0; i < n; i++) poison[i] = NAN;
    for (int i = 0; i < rows; i++) pos[i] = c->pos[len > 0 ? len - 1 : 0] + 1 + i;
    ck_assert_msg(dflash_ingest_ctx(c->draft, kv, poison, pos, rows, &err) == DFLASH_OK, "%s", err.message);
    ck_assert_int_eq(dflash_kv_len(kv), len + rows);
    ck_assert_int_eq(dflash_kv_truncate(kv, len, &err), DFLASH_OK);
    ck_assert_int_eq(dflash_kv_len(kv), len);
    free(poison);
    free(pos);
}

/* A block of NaN drafted over what is committed so far. */
static void draft_garbage(const draft_case *c, dflash_kv *kv) {
    float *noise = op_floats(c->out_size), *out = op_floats(c->out_size);
    int32_t *pos = op_alloc((size_t)c->config->block * sizeof *pos);
    dflash_error err = {0};
    const int len = dflash_kv_len(kv);
    for (size_t i = 0; i < c->out_size; i++) noise[i] = NAN;
    for (int i = 0; i < c->config->block; i++) pos[i] = len > 0 ? c->pos[len - 1] + 1 + i : c->pos[0] + i;
    ck_assert_msg(dflash_forward_round(c->draft, kv, noise, pos, out, &err) == DFLASH_OK, "%s", err.message);
    free(noise);
    free(out);
    free(pos);
}

/* A cache in which context + block + `spare` rows may be committed for a while without any being dropped: one whose
 * layers all slide keeps the room of a block free, and would rather drop rows than fill it (test_kv.c). */
static dflash_kv *cache_that_drops_nothing(const draft_case *c, int spare) {
    bool slides = true;
    for (int i = 0; i < c->config->n_layers; i++) slides = slides && c->config->layer[i].window > 0;
    return draft_case_cache(c, c->context + c->config->block * (slides ? 2 : 1) + spare);
}

START_TEST(rejected_rows_leave_no_trace) {
    draft_case c;
    dflash_error err = {0};
    init(&c, _i);
    dflash_kv *kv = cache_that_drops_nothing(&c, 0);
    ingest_and_reject(&c, kv, 30);
    draft_case_ingest(&c, kv, 0, 40);
    ingest_and_reject(&c, kv, c.context + c.config->block - 40); /* to the last row there is */
    draft_garbage(&c, kv);
    draft_case_ingest(&c, kv, 40, c.context - 40);
    draft_garbage(&c, kv);
    expect_round(&c, kv, "after rejected rows");
    /* Committed rows too may be forgotten and ingested again. */
    ck_assert_int_eq(dflash_kv_truncate(kv, 13, &err), DFLASH_OK);
    ingest_and_reject(&c, kv, 9);
    draft_case_ingest(&c, kv, 13, c.context - 13);
    expect_round(&c, kv, "after a truncation");
    ck_assert_int_eq(dflash_kv_truncate(kv, c.context, &err), DFLASH_OK); /* to its own length: nothing happens */
    expect_round(&c, kv, "after a truncation to the same length");
    ck_assert_int_eq(dflash_kv_truncate(kv, 0, &err), DFLASH_OK);
    draft_case_ingest(&c, kv, 0, c.context);
    expect_round(&c, kv, "after starting over");
    dflash_kv_destroy(kv);
    draft_case_release(&c);
}
END_TEST

START_TEST(random_schedules_of_acceptance_have_the_bits_of_a_block) {
    draft_case c;
    dflash_error err = {0};
    op_random random = {(uint64_t)(500 + _i)};
    init(&c, _i);
    for (int round = 0; round < 6; round++) {
        dflash_kv *kv = cache_that_drops_nothing(&c, op_below(&random, 4));
        int steps = 0;
        while (dflash_kv_len(kv) < c.context) {
            const int len = dflash_kv_len(kv), left = c.context - len;
            const int rows = op_below(&random, left < 12 ? left + 1 : 13); /* none at all happens too */
            draft_case_ingest(&c, kv, len, rows);
            if (op_below(&random, 3) == 0) draft_garbage(&c, kv);
            if (op_below(&random, 3) == 0) ingest_and_reject(&c, kv, 1 + op_below(&random, c.config->block));
            if (op_below(&random, 6) == 0)
                ck_assert_int_eq(dflash_kv_truncate(kv, dflash_kv_len(kv) / 2, &err), DFLASH_OK);
            OP_REQUIRE(++steps < 10000, "the schedule does not end");
        }
        expect_round(&c, kv, "a random schedule");
        dflash_kv_destroy(kv);
    }
    draft_case_release(&c);
}
END_TEST

START_TEST(a_round_over_an_empty_cache_has_the_bits_of_a_block_without_context) {
    draft_case c;
    dflash_error err = {0};
    init(&c, _i);
    float *block = op_output(c.out_size);
    ck_assert_int_eq(dflash_forward_block(c.draft, NULL, c.noise, c.pos + c.context, 0, block, &err), DFLASH_OK);
    op_output_check(block, c.out_size, "forward_block without context");
    ck_assert(!op_same_bits(block, c.out, c.out_size));
    dflash_kv *kv = draft_case_cache(&c, c.config->block); /* the smallest there is */
    float *round = draft_case_round(&c, kv);
    op_expect_bits(block, round, c.out_size, "no context");
    ck_assert_int_eq(dflash_kv_len(kv), 0);
    dflash_kv_destroy(kv);
    op_output_free(block);
    op_output_free(round);
    draft_case_release(&c);
}
END_TEST

/* An oracle holds at least one context row (every stage of it at least one value), so none is of a block without any.
 * tiny-alone is the same thing: its one row lies outside every window, so the reference computed its block from the
 * block alone. */
START_TEST(a_block_without_context_has_the_bits_of_one_whose_context_is_out_of_sight) {
    dp_preflight in;
    dflash_draft *draft = NULL;
    dflash_error err = {0};
    dflash_engine *engine = op_engine(DFLASH_ISA_BEST, 2, true);
    ck_assert_msg(dp_preflight_run("fixtures/small/tiny-long-window", "oracles/tiny-alone.h5", DFLASH_PRECISION_STORED,
                                   &in, &err) == DFLASH_OK,
                  "%s", err.message);
    ck_assert_int_eq(in.context, 1);
    ck_assert_int_ge(in.pos[1] - in.pos[0], in.config.sliding_window);
    ck_assert_int_eq(dflash_draft_load(engine, "fixtures/small/tiny-long-window", &draft, &err), DFLASH_OK);
    const size_t size = (size_t)in.config.block * (size_t)in.config.hidden;
    float *features = op_output((size_t)in.config.hidden), *with = op_output(size), *without = op_output(size);
    ck_assert_int_eq(dflash_ctx_features(draft, in.taps, 1, features, &err), DFLASH_OK);
    ck_assert_int_eq(dflash_forward_block(draft, features, in.noise, in.pos, 1, with, &err), DFLASH_OK);
    ck_assert_int_eq(dflash_forward_block(draft, NULL, in.noise, in.pos + 1, 0, without, &err), DFLASH_OK);
    op_expect_bits(with, without, size, "no context");
    op_output_free(features);
    op_output_free(with);
    op_output_free(without);
    dp_preflight_release(&in);
    dflash_draft_destroy(draft);
    dflash_engine_destroy(engine);
}
END_TEST

START_TEST(two_caches_of_one_draft_do_not_touch_each_other) {
    draft_case c;
    init(&c, _i);
    dflash_kv *kv = draft_case_cache(&c, c.context + c.config->block), *other = draft_case_cache(&c, c.context + 40);
    for (int row = 0; row < c.context; row += 10) {
        draft_case_ingest(&c, kv, row, 10);
        draft_garbage(&c, other);
        ingest_and_reject(&c, other, 8);
    }
    expect_round(&c, kv, "beside another cache");
    dflash_kv_destroy(other);
    expect_round(&c, kv, "after the other cache is gone");
    dflash_kv_destroy(kv);
    draft_case_release(&c);
}
END_TEST

TCase *tcase_draft_rounds(void) {
    TCase *tcase = tcase_create("rounds");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, a_round_has_the_bits_of_a_block_for_chunks_of_any_size, 0, DRAFT_FIXTURES);
    tcase_add_loop_test(tcase, taps_ingested_directly_have_the_bits_of_ingested_features, 0, DRAFT_FIXTURES);
    tcase_add_loop_test(tcase, every_stage_of_a_round_and_the_cache_have_the_bits_of_a_block, 0, DRAFT_FIXTURES);
    tcase_add_loop_test(tcase, rejected_rows_leave_no_trace, 0, DRAFT_FIXTURES);
    tcase_add_loop_test(tcase, random_schedules_of_acceptance_have_the_bits_of_a_block, 0, DRAFT_FIXTURES);
    tcase_add_loop_test(tcase, a_round_over_an_empty_cache_has_the_bits_of_a_block_without_context, 0, DRAFT_FIXTURES);
    tcase_add_test(tcase, a_block_without_context_has_the_bits_of_one_whose_context_is_out_of_sight);
    tcase_add_loop_test(tcase, two_caches_of_one_draft_do_not_touch_each_other, 0, DRAFT_FIXTURES);
    return tcase;
}
