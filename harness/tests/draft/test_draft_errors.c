/*
 * test_draft_errors.c - calls that contradict the interface: each is refused with its own code, leaves the cache as
 * long as it was, and leaves the handle fit for the next call. The engine's own refusals are here too.
 */
#include "support/draft_case.h"

#include <limits.h>
#include <stdlib.h>

static void init(draft_case *c) { draft_case_init(c, 7, op_engine(DFLASH_ISA_BEST, 1, true)); }

static void expect_refusal(dflash_status status, const dflash_error *err, dflash_status expected, const char *code) {
    ck_assert_int_eq(status, expected);
    ck_assert_int_eq(err->status, expected);
    ck_assert_str_eq(err->code, code);
    ck_assert_uint_gt(strlen(err->message), 30);
}

/* The handle still computes what it computed before. */
static void expect_fit(const draft_case *c) {
    float *out = draft_case_block(c);
    op_expect_bits(c->out, out, c->out_size, "after a refused call");
    op_output_free(out);
}

START_TEST(a_context_of_negative_or_absurd_size_is_refused) {
    static const int wrong[] = {-1, INT_MIN, INT_MAX};
    draft_case c;
    init(&c);
    dflash_kv *kv = draft_case_cache(&c, 20);
    for (int i = 0; i < 3; i++) {
        dflash_error err = {0};
        expect_refusal(dflash_ctx_features(c.draft, c.taps, wrong[i], c.features, &err), &err, DFLASH_ERR_ARGUMENT,
                       "context.rows");
        expect_refusal(dflash_forward_block(c.draft, c.features, c.noise, c.pos, wrong[i], c.out, &err), &err,
                       DFLASH_ERR_ARGUMENT, "context.rows");
        expect_refusal(dflash_forward(c.draft, c.taps, c.noise, c.pos, wrong[i], c.out, &err), &err,
                       DFLASH_ERR_ARGUMENT, "context.rows");
        expect_refusal(dflash_ingest_ctx(c.draft, kv, c.features, c.pos, wrong[i], &err), &err, DFLASH_ERR_ARGUMENT,
                       "context.rows");
    }
    ck_assert_int_eq(dflash_kv_len(kv), 0);
    dflash_kv_destroy(kv);
    expect_fit(&c);
    draft_case_release(&c);
}
END_TEST

START_TEST(a_cache_of_another_draft_is_refused) {
    draft_case a, b;
    init(&a);
    draft_case_init(&b, 3, op_engine(DFLASH_ISA_BEST, 1, true));
    dflash_kv *foreign = draft_case_cache(&b, 40);
    dflash_error err = {0};
    expect_refusal(dflash_ingest_ctx(a.draft, foreign, a.features, a.pos, 1, &err), &err, DFLASH_ERR_ARGUMENT,
                   "kv.foreign");
    expect_refusal(dflash_forward_round(a.draft, foreign, a.noise, a.pos, a.out, &err), &err, DFLASH_ERR_ARGUMENT,
                   "kv.foreign");
    ck_assert_int_eq(dflash_kv_len(foreign), 0);
    dflash_kv_destroy(foreign);
    draft_case_release(&b);
    draft_case_release(&a);
}
END_TEST

START_TEST(positions_out_of_order_are_refused_by_every_program) {
    draft_case c;
    init(&c);
    const int32_t last = c.pos[9];
    dflash_kv *kv = draft_case_cache(&c, c.context + c.config->block);
    draft_case_ingest(&c, kv, 0, 10);
    const struct {
        int at;
        int32_t value;
    } wrong[] = {{0, -1}, {0, INT32_MIN}, {3, c.pos[2]}, {3, c.pos[1]}, {c.context, c.pos[c.context - 1]}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) { /* negative, repeated, falling, at the seam */
        dflash_error err = {0};
        const int32_t before = c.pos[wrong[i].at];
        float *out = op_output(c.out_size);
        c.pos[wrong[i].at] = wrong[i].value;
        expect_refusal(dflash_forward_block(c.draft, c.features, c.noise, c.pos, c.context, out, &err), &err,
                       DFLASH_ERR_ARGUMENT, "positions.order");
        expect_refusal(dflash_forward(c.draft, c.taps, c.noise, c.pos, c.context, out, &err), &err, DFLASH_ERR_ARGUMENT,
                       "positions.order");
        c.pos[wrong[i].at] = before;
        op_output_free(out);
    }
    const int32_t rows[][2] = {
        {last, last + 1}, {last - 1, last + 1}, {-1, last + 1}, {last + 1, last + 1}, {last + 2, last + 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dflash_error err = {0};
        expect_refusal(dflash_ingest_ctx(c.draft, kv, c.features, rows[i], 2, &err), &err, DFLASH_ERR_ARGUMENT,
                       "positions.order");
        ck_assert_int_eq(dflash_kv_len(kv), 10);
    }
    dflash_error err = {0};
    expect_refusal(dflash_forward_round(c.draft, kv, c.noise, c.pos + 9, c.out, &err), &err, DFLASH_ERR_ARGUMENT,
                   "positions.order"); /* the block starts at the last cached position */
    ck_assert_int_eq(dflash_kv_len(kv), 10);
    draft_case_ingest(&c, kv, 10, c.context - 10); /* and the cache holds what it held */
    op_output_free(c.out);
    c.out = draft_case_block(&c);
    float *out = draft_case_round(&c, kv);
    op_expect_bits(c.out, out, c.out_size, "a round after refused calls");
    op_output_free(out);
    dflash_kv_destroy(kv);
    draft_case_release(&c);
}
END_TEST

START_TEST(a_cache_smaller_than_a_block_is_refused) {
    draft_case c;
    init(&c);
    const int wrong[] = {c.config->block - 1, 0, -1, INT_MIN};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dflash_error err = {0};
        dflash_kv *kv = NULL;
        expect_refusal(dflash_kv_create(c.draft, wrong[i], &kv, &err), &err, DFLASH_ERR_ARGUMENT, "kv.capacity");
        ck_assert_ptr_null(kv);
    }
    draft_case_release(&c);
}
END_TEST

START_TEST(a_full_cache_refuses_rows_and_blocks_and_keeps_its_length) {
    draft_case c;
    dflash_error err = {0};
    init(&c);
    const int block = c.config->block, capacity = 10 + block;
    dflash_kv *kv = draft_case_cache(&c, capacity);
    expect_refusal(dflash_ingest_ctx(c.draft, kv, c.features, c.pos, capacity + 1, &err), &err, DFLASH_ERR_ARGUMENT,
                   "kv.full");
    ck_assert_int_eq(dflash_kv_len(kv), 0);
    draft_case_ingest(&c, kv, 0, 11);
    expect_refusal(dflash_forward_round(c.draft, kv, c.noise, c.pos + 11, c.out, &err), &err, DFLASH_ERR_ARGUMENT,
                   "kv.full");
    ck_assert_int_eq(dflash_kv_len(kv), 11);
    draft_case_ingest(&c, kv, 11, block - 1); /* to the last row */
    ck_assert_int_eq(dflash_kv_len(kv), capacity);
    err = (dflash_error){0};
    expect_refusal(dflash_ingest_ctx(c.draft, kv, c.features, c.pos + capacity, 1, &err), &err, DFLASH_ERR_ARGUMENT,
                   "kv.full");
    expect_refusal(dflash_ingest_ctx(c.draft, kv, c.features, c.pos + capacity, 1 << 30, &err), &err,
                   DFLASH_ERR_ARGUMENT, "kv.full");
    ck_assert_int_eq(dflash_kv_len(kv), capacity);
    ck_assert_int_eq(dflash_ingest_ctx(c.draft, kv, NULL, NULL, 0, &err), DFLASH_OK); /* no row always fits */
    ck_assert_int_eq(dflash_kv_truncate(kv, 10, &err), DFLASH_OK);
    ck_assert_int_eq(dflash_forward_round(c.draft, kv, c.noise, c.pos + 10, c.out, &err),
                     DFLASH_OK); /* and now a block does */
    dflash_kv_destroy(kv);
    draft_case_release(&c);
}
END_TEST

START_TEST(a_truncation_beyond_the_length_is_refused) {
    draft_case c;
    init(&c);
    dflash_kv *kv = draft_case_cache(&c, 40);
    draft_case_ingest(&c, kv, 0, 12);
    const int wrong[] = {13, 40, INT_MAX, -1, INT_MIN};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dflash_error err = {0};
        expect_refusal(dflash_kv_truncate(kv, wrong[i], &err), &err, DFLASH_ERR_ARGUMENT, "kv.truncate");
        ck_assert_int_eq(dflash_kv_len(kv), 12);
    }
    dflash_kv_destroy(kv);
    draft_case_release(&c);
}
END_TEST

START_TEST(a_layer_that_does_not_exist_cannot_be_read) {
    draft_case c;
    init(&c);
    dflash_kv *kv = draft_case_cache(&c, 40);
    draft_case_ingest(&c, kv, 0, 3);
    const size_t n = (size_t)(3 * c.config->n_kv_heads * c.config->head_dim);
    const int wrong[] = {-1, c.config->n_layers, INT_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dflash_error err = {0};
        float *k = op_floats(n), *v = op_floats(n);
        expect_refusal(dflash_kv_read(kv, wrong[i], k, v, &err), &err, DFLASH_ERR_ARGUMENT, "kv.layer");
        free(k);
        free(v);
    }
    dflash_kv_destroy(kv);
    draft_case_release(&c);
}
END_TEST

START_TEST(an_error_record_is_optional) {
    draft_case c;
    init(&c);
    ck_assert_int_eq(dflash_ctx_features(c.draft, c.taps, -1, c.features, NULL), DFLASH_ERR_ARGUMENT);
    draft_case_release(&c);
}
END_TEST

START_TEST(engines_that_the_cpu_does_not_have_are_refused_by_name) {
    static const struct {
        dflash_engine_options options;
        dflash_status status;
        const char *code;
    } wrong[] = {
        {{.backend = (dflash_backend)2}, DFLASH_ERR_ARGUMENT, "engine.backend"},
        {{.numeric_class = (dflash_class)3}, DFLASH_ERR_ARGUMENT, "engine.class"},
        {{.backend = DFLASH_BACKEND_CUDA, .numeric_class = (dflash_class)3}, DFLASH_ERR_ARGUMENT, "engine.class"},
        {{.backend = DFLASH_BACKEND_CUDA, .numeric_class = (dflash_class)-1}, DFLASH_ERR_ARGUMENT, "engine.class"},
        {{.numeric_class = DFLASH_CLASS_CUBLAS}, DFLASH_ERR_ARGUMENT, "engine.class"},
        {{.numeric_class = DFLASH_CLASS_FAST}, DFLASH_ERR_ARGUMENT, "engine.class"},
        {{.products = (dflash_products)3}, DFLASH_ERR_ARGUMENT, "engine.products"},
        {{.device = 1}, DFLASH_ERR_ARGUMENT, "engine.device"},
        {{.device = -1}, DFLASH_ERR_ARGUMENT, "engine.device"},
        {{.backend = DFLASH_BACKEND_CUDA, .device = -1}, DFLASH_ERR_ARGUMENT, "engine.device"},
        {{.threads = -1}, DFLASH_ERR_ARGUMENT, "engine.threads"},
        {{.threads = INT_MIN}, DFLASH_ERR_ARGUMENT, "engine.threads"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dflash_error err = {0};
        dflash_engine *engine = NULL;
        expect_refusal(dflash_engine_create(&wrong[i].options, &engine, &err), &err, wrong[i].status, wrong[i].code);
        ck_assert_ptr_null(engine);
    }
    dflash_engine *all = op_engine(DFLASH_ISA_BEST, 0, false); /* 0: as many as the process may use */
    ck_assert_int_ge(dflash_engine_threads(all), 1);
    dflash_engine_destroy(all);
    dflash_engine_destroy(NULL);
}
END_TEST

TCase *tcase_draft_errors(void) {
    TCase *tcase = tcase_create("errors");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, a_cache_of_another_draft_is_refused);
    tcase_add_test(tcase, a_context_of_negative_or_absurd_size_is_refused);
    tcase_add_test(tcase, positions_out_of_order_are_refused_by_every_program);
    tcase_add_test(tcase, a_cache_smaller_than_a_block_is_refused);
    tcase_add_test(tcase, a_full_cache_refuses_rows_and_blocks_and_keeps_its_length);
    tcase_add_test(tcase, a_truncation_beyond_the_length_is_refused);
    tcase_add_test(tcase, a_layer_that_does_not_exist_cannot_be_read);
    tcase_add_test(tcase, an_error_record_is_optional);
    tcase_add_test(tcase, engines_that_the_cpu_does_not_have_are_refused_by_name);
    return tcase;
}
