/*
 * test_ops.c - normalisation, rotation and the elementwise operations of every instruction set, against scalar code
 * written from ops.h. The matrix product and attention have files of their own.
 */
#include "common/mathfn.h"
#include "support/op_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

START_TEST(every_instruction_set_of_this_machine_is_tested) {
    dflash_isa isa[OP_ISAS];
    const int isas = op_isas(isa);
    ck_assert_int_ge(isas, 1);
    for (int e = 0; e < isas; e++) dflash_engine_destroy(op_engine(isa[e], 1, false)); /* checks the name too */
    /* What op_isas leaves out is refused by name rather than replaced. */
    for (dflash_isa asked = DFLASH_ISA_AVX2; asked <= DFLASH_ISA_AVX512; asked++) {
        bool present = false;
        for (int e = 0; e < isas; e++) present = present || isa[e] == asked;
        if (present) continue;
        const dflash_engine_options options = {.isa = asked, .threads = 1};
        dflash_error err = {0};
        dflash_engine *engine = NULL;
        ck_assert_int_eq(dflash_engine_create(&options, &engine, &err), DFLASH_ERR_DEVICE);
        ck_assert_str_eq(err.code, "engine.isa");
        ck_assert_ptr_null(engine);
    }
    dflash_engine *best = op_engine(DFLASH_ISA_BEST, 1, false), *widest = op_engine(isa[isas - 1], 1, false);
    ck_assert_str_eq(dflash_engine_isa(best), dflash_engine_isa(widest));
    dflash_engine_destroy(best);
    dflash_engine_destroy(widest);
}
END_TEST

/* ---- RMSNorm ---- */

static void scalar_norm(const float *x, const float *weight, int n, float eps, float *y) {
    const float mean = op_dot(x, x, n) / (float)n;
    const float inverse = 1.0f / sqrtf(mean + eps);
    for (int i = 0; i < n; i++) {
        const float scaled = x[i] * inverse;
        y[i] = weight[i] * scaled;
    }
}

static void check_norm(dflash_engine *engine, int rows, int n, float size, op_random *random) {
    const float eps = 1e-6f;
    const size_t count = (size_t)rows * (size_t)n;
    float *x = op_floats(count), *weight = op_floats((size_t)n), *expected = op_floats(count), *y = op_output(count);
    dflash_error err = {0};
    char what[80];
    snprintf(what, sizeof what, "%s rmsnorm n=%d rows=%d", dflash_engine_isa(engine), n, rows);
    op_fill(random, x, count);
    op_fill(random, weight, (size_t)n);
    for (size_t i = 0; i < count; i++) x[i] *= size;
    for (int row = 0; row < rows; row++) scalar_norm(x + row * n, weight, n, eps, expected + row * n);
    ck_assert_int_eq(engine->ops->rmsnorm(engine, x, weight, rows, n, eps, y, &err), DFLASH_OK);
    op_output_check(y, count, what);
    op_expect_bits(expected, y, count, what);
    free(x);
    free(weight);
    free(expected);
    op_output_free(y);
}

START_TEST(norms_have_the_canonical_bits) {
    static const int sizes[] = {1, 3, 8, 12, 63, 64, 65, 128, 200, 255, 256, 257, 320, 1000, 2560};
    static const int row_counts[] = {1, 2, 7, 8, 9, 17, 40};
    static const float magnitudes[] = {1.0f, 1e4f, 1e-3f}; /* the last: eps takes part */
    op_random random = {30};
    dflash_isa isa[OP_ISAS];
    const int isas = op_isas(isa);
    for (int e = 0; e < isas; e++)
        for (int threads = 1; threads <= 3; threads++) {
            dflash_engine *engine = op_engine(isa[e], threads, false);
            for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
                for (size_t r = 0; r < sizeof row_counts / sizeof *row_counts; r++)
                    check_norm(engine, row_counts[r], sizes[n], magnitudes[(n + r) % 3], &random);
            dflash_engine_destroy(engine);
        }
}
END_TEST

START_TEST(a_norm_agrees_with_double_precision_and_keeps_rows_apart) {
    op_random random = {31};
    enum { ROWS = 3, N = 2560 };
    float *x = op_floats(ROWS * N), *weight = op_floats(N), *clean = op_output(ROWS * N), *y = op_output(ROWS * N);
    double *exact = op_alloc(N * sizeof *exact);
    dflash_error err = {0};
    op_fill(&random, x, ROWS * N);
    op_fill(&random, weight, N);
    dflash_engine *engine = op_engine(DFLASH_ISA_BEST, 1, false);
    ck_assert_int_eq(engine->ops->rmsnorm(engine, x, weight, ROWS, N, 1e-6f, clean, &err), DFLASH_OK);
    double squares = 0;
    for (int i = 0; i < N; i++) squares += (double)x[i] * x[i];
    for (int i = 0; i < N; i++) exact[i] = weight[i] * (x[i] / sqrt(squares / N + (double)1e-6f));
    ck_assert_double_lt(op_relative_l2(clean, exact, N), 2e-7);
    x[N + 100] = NAN;
    ck_assert_int_eq(engine->ops->rmsnorm(engine, x, weight, ROWS, N, 1e-6f, y, &err), DFLASH_OK);
    op_expect_bits(clean, y, N, "the row before one with a NaN");
    op_expect_bits(clean + 2 * N, y + 2 * N, N, "the row after one with a NaN");
    for (int i = 0; i < N; i++) ck_assert(isnan(y[N + i]));
    dflash_engine_destroy(engine);
    free(x);
    free(weight);
    free(exact);
    op_output_free(clean);
    op_output_free(y);
}
END_TEST

/* ---- Rotation ---- */

START_TEST(a_rotation_worked_by_hand) {
    /* Pairs (1, 3) and (2, 4); the first is turned by a quarter, the last two channels stay as they are. */
    const float x[] = {1, 2, 3, 4, 50, 60};
    const float c[] = {0.0f, 0.75f}, s[] = {1.0f, 0.5f};
    const float expected[] = {-3.0f, 2 * 0.75f - 4 * 0.5f, 1.0f, 4 * 0.75f + 2 * 0.5f, 50, 60};
    dflash_isa isa[OP_ISAS];
    const int isas = op_isas(isa);
    for (int e = 0; e < isas; e++) {
        dflash_engine *engine = op_engine(isa[e], 1, false);
        float *y = op_output(6);
        dflash_error err = {0};
        ck_assert_int_eq(engine->ops->rope(engine, x, c, s, 1, 1, 6, 4, y, &err), DFLASH_OK);
        op_output_check(y, 6, "rope");
        op_expect_bits(expected, y, 6, dflash_engine_isa(engine));
        op_output_free(y);
        dflash_engine_destroy(engine);
    }
}
END_TEST

static void check_rotation(dflash_engine *engine, int rows, int heads, int head_dim, int rotary, op_random *random) {
    const int half = rotary / 2;
    const size_t count = (size_t)(rows * heads * head_dim), table = (size_t)(rows * half);
    float *x = op_floats(count), *c = op_floats(table), *s = op_floats(table), *expected = op_floats(count);
    float *y = op_output(count);
    dflash_error err = {0};
    op_fill(random, x, count);
    op_fill(random, c, table);
    op_fill(random, s, table);
    for (size_t i = 0; i < count; i++) {
        const int row = (int)i / (heads * head_dim), d = (int)i % head_dim;
        const float *at = c + row * half + d % (half > 0 ? half : 1), *as = s + row * half + d % (half > 0 ? half : 1);
        if (d < half) {
            const float product = x[i + (size_t)half] * *as;
            expected[i] = fmaf(x[i], *at, -product);
        } else if (d < rotary) {
            const float product = x[i - (size_t)half] * *as;
            expected[i] = fmaf(x[i], *at, product);
        } else {
            expected[i] = x[i];
        }
    }
    ck_assert_int_eq(engine->ops->rope(engine, x, c, s, rows, heads, head_dim, rotary, y, &err), DFLASH_OK);
    op_output_check(y, count, "rope");
    op_expect_bits(expected, y, count, dflash_engine_isa(engine));
    free(x);
    free(c);
    free(s);
    free(expected);
    op_output_free(y);
}

START_TEST(full_and_partial_rotations_have_the_documented_bits) {
    static const int head_dims[] = {8, 12, 16, 64, 80, 128};
    op_random random = {32};
    dflash_isa isa[OP_ISAS];
    const int isas = op_isas(isa);
    for (int e = 0; e < isas; e++) {
        dflash_engine *engine = op_engine(isa[e], 2, false);
        for (size_t d = 0; d < sizeof head_dims / sizeof *head_dims; d++)
            for (int rows = 1; rows <= 21; rows += 5) {
                check_rotation(engine, rows, 3, head_dims[d], head_dims[d], &random);
                check_rotation(engine, rows, 2, head_dims[d], head_dims[d] / 2, &random);
                check_rotation(engine, rows, 1, head_dims[d], 2, &random);
            }
        dflash_engine_destroy(engine);
    }
}
END_TEST

/* ---- Element by element ---- */

typedef dflash_status (*pair_fn)(dflash_engine *, const float *, const float *, size_t, float *, dflash_error *);

static void check_pairs(dflash_engine *engine, pair_fn fn, bool silu, size_t n, op_random *random) {
    float *a = op_floats(n), *b = op_floats(n), *expected = op_floats(n), *y = op_output(n);
    char what[80];
    dflash_error err = {0};
    snprintf(what, sizeof what, "%s %s n=%zu", dflash_engine_isa(engine), silu ? "silu_mul" : "add", n);
    op_fill(random, a, n);
    op_fill(random, b, n);
    for (size_t i = 0; i < n; i++) {
        a[i] *= 20.0f;
        expected[i] = silu ? df_silu(a[i]) * b[i] : a[i] + b[i];
    }
    ck_assert_int_eq(fn(engine, a, b, n, y, &err), DFLASH_OK);
    op_output_check(y, n, what);
    op_expect_bits(expected, y, n, what);
    memcpy(y, a, n * sizeof(float)); /* in place, over the first operand and then over the second */
    ck_assert_int_eq(fn(engine, y, b, n, y, &err), DFLASH_OK);
    op_expect_bits(expected, y, n, what);
    memcpy(y, b, n * sizeof(float));
    ck_assert_int_eq(fn(engine, a, y, n, y, &err), DFLASH_OK);
    op_output_check(y, n, what);
    op_expect_bits(expected, y, n, what);
    free(a);
    free(b);
    free(expected);
    op_output_free(y);
}

START_TEST(elementwise_operations_reach_every_tail_and_work_in_place) {
    static const size_t counts[] = {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 100, 16383, 16384, 16385, 40000};
    op_random random = {33};
    dflash_isa isa[OP_ISAS];
    const int isas = op_isas(isa);
    for (int e = 0; e < isas; e++)
        for (int threads = 1; threads <= 3; threads++) {
            dflash_engine *engine = op_engine(isa[e], threads, false);
            for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
                check_pairs(engine, engine->ops->silu_mul, true, counts[n], &random);
                check_pairs(engine, engine->ops->add, false, counts[n], &random);
            }
            dflash_engine_destroy(engine);
        }
}
END_TEST

START_TEST(elementwise_operations_treat_special_values_alike_everywhere) {
    static const float gate[] = {0.0f, -0.0f, INFINITY, -90.0f, -104.5f, 89.0f, -1e30f, 1e30f, 0x1p-149f, -3.0f, 3.0f};
    enum { N = sizeof gate / sizeof *gate };
    float up[N], expected[N];
    dflash_isa isa[OP_ISAS];
    const int isas = op_isas(isa);
    for (int i = 0; i < N; i++) {
        up[i] = 0.75f;
        expected[i] = df_silu(gate[i]) * up[i];
    }
    for (int e = 0; e < isas; e++) {
        dflash_engine *engine = op_engine(isa[e], 1, false);
        float *y = op_output(N);
        dflash_error err = {0};
        ck_assert_int_eq(engine->ops->silu_mul(engine, gate, up, N, y, &err), DFLASH_OK);
        op_expect_bits(expected, y, N, dflash_engine_isa(engine));
        op_output_free(y);
        dflash_engine_destroy(engine);
    }
}
END_TEST

Suite *suite_ops(void) {
    Suite *suite = suite_create("ops");
    TCase *tcase = tcase_create("rows");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, every_instruction_set_of_this_machine_is_tested);
    tcase_add_test(tcase, norms_have_the_canonical_bits);
    tcase_add_test(tcase, a_norm_agrees_with_double_precision_and_keeps_rows_apart);
    tcase_add_test(tcase, a_rotation_worked_by_hand);
    tcase_add_test(tcase, full_and_partial_rotations_have_the_documented_bits);
    tcase_add_test(tcase, elementwise_operations_reach_every_tail_and_work_in_place);
    tcase_add_test(tcase, elementwise_operations_treat_special_values_alike_everywhere);
    suite_add_tcase(suite, tcase);
    suite_add_tcase(suite, tcase_matmul());
    suite_add_tcase(suite, tcase_products());
    suite_add_tcase(suite, tcase_attention());
    suite_add_tcase(suite, tcase_attention_masks());
    return suite;
}
