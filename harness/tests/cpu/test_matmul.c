/*
 * test_matmul.c - the matrix product of every instruction set against a scalar product written from canon.h's text
 * (op_case.c), bit for bit, over sizes on both sides of every tile, segment and task edge.
 */
#include "support/op_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_ROWS = 130, MOST_OUTPUTS = 33 };

static const int sizes[] = {1, 3, 63, 64, 65, 128, 200, 2560};
static const int outputs[] = {1, 7, 8, 9, 33};
static const int row_counts[] = {1, 2, 15, 16, 17, 40, 130};
static const df_dtype dtypes[] = {DF_BF16, DF_F16, DF_F32};
enum {
    SIZES = sizeof sizes / sizeof *sizes,
    OUTPUTS = sizeof outputs / sizeof *outputs,
    ROW_COUNTS = sizeof row_counts / sizeof *row_counts
};

/* Weights in their stored width, the same as float32, and the canonical products with and without bias. */
typedef struct product {
    df_matrix w;
    void *stored;
    float *wide, *bias, *x;
    float *plain, *biased; /* [MOST_ROWS, w.out] */
} product;

static void product_init(product *p, df_dtype dtype, int n, int k, op_random *random) {
    *p = (product){.w = {.dtype = dtype, .out = n, .in = k}};
    const size_t count = (size_t)n * (size_t)k;
    p->stored = op_alloc(count * df_dtype_size(dtype));
    p->wide = op_floats(count);
    for (size_t i = 0; i < count; i++) {
        const float value = op_unit(random);
        const uint16_t half = dtype == DF_F16 ? df_f32_to_f16(value) : df_f32_to_bf16(value);
        if (dtype == DF_F32)
            memcpy((char *)p->stored + i * 4, &value, 4);
        else
            memcpy((char *)p->stored + i * 2, &half, 2);
        p->wide[i] = dtype == DF_F32 ? value : dtype == DF_F16 ? df_f16_to_f32(half) : df_bf16_to_f32(half);
    }
    p->w.data = p->stored;
    p->bias = op_floats((size_t)n);
    p->x = op_floats((size_t)MOST_ROWS * (size_t)k);
    op_fill(random, p->bias, (size_t)n);
    op_fill(random, p->x, (size_t)MOST_ROWS * (size_t)k);
    p->plain = op_floats((size_t)MOST_ROWS * (size_t)n);
    p->biased = op_floats((size_t)MOST_ROWS * (size_t)n);
    for (int row = 0; row < MOST_ROWS; row++)
        for (int o = 0; o < n; o++) {
            const float sum = op_dot(p->wide + o * k, p->x + row * k, k);
            p->plain[row * n + o] = sum;
            p->biased[row * n + o] = sum + p->bias[o];
        }
}

static void product_release(product *p) {
    free(p->stored);
    free(p->wide);
    free(p->bias);
    free(p->x);
    free(p->plain);
    free(p->biased);
}

static void multiply(dflash_engine *engine, const df_matrix *w, const float *bias, const float *x, int rows, float *y) {
    dflash_error err = {0};
    ck_assert_msg(df_arena_reset(&engine->arena, &err) == DFLASH_OK, "%s", err.message);
    ck_assert_msg(engine->ops->matmul(engine, w, bias, x, rows, y, &err) == DFLASH_OK, "%s", err.message);
    ck_assert_uint_eq(engine->arena.in_use, 0); /* scratch is given back */
}

static void check_product(dflash_engine *engine, const product *p, int rows, bool bias) {
    char what[120];
    snprintf(what, sizeof what, "%s %s K=%d N=%d rows=%d bias=%d", dflash_engine_isa(engine), df_dtype_name(p->w.dtype),
             (int)p->w.in, (int)p->w.out, rows, bias);
    const size_t n = (size_t)rows * (size_t)p->w.out;
    float *y = op_output(n);
    multiply(engine, &p->w, bias ? p->bias : NULL, p->x, rows, y);
    op_output_check(y, n, what);
    op_expect_bits(bias ? p->biased : p->plain, y, n, what);
    op_output_free(y);
}

/* _i is the index of K. Every size of the other kinds for the short sums, the corners for the long one. */
START_TEST(products_have_the_canonical_bits) {
    op_random random = {(uint64_t)(100 + _i)};
    dflash_isa isa[OP_ISAS];
    const int isas = op_isas(isa), k = sizes[_i];
    dflash_engine *engine[OP_ISAS];
    for (int e = 0; e < isas; e++) engine[e] = op_engine(isa[e], 2, true);
    int checked = 0;
    for (int d = 0; d < 3; d++)
        for (int n = 0; n < OUTPUTS; n++) {
            if (k > 1000 && outputs[n] != 7 && outputs[n] != 33) continue;
            product p;
            product_init(&p, dtypes[d], outputs[n], k, &random);
            for (int e = 0; e < isas; e++)
                for (int r = 0; r < ROW_COUNTS; r++)
                    for (int bias = k > 1000 ? r % 2 : 0; bias < (k > 1000 ? r % 2 + 1 : 2); bias++, checked++)
                        check_product(engine[e], &p, row_counts[r], bias == 1);
            product_release(&p);
        }
    ck_assert_int_ge(checked, isas * 3 * 2 * ROW_COUNTS);
    for (int e = 0; e < isas; e++) dflash_engine_destroy(engine[e]);
}
END_TEST

/* The order matters here: the comparison above could not hold for a product that sums in another one. */
START_TEST(a_product_summed_from_left_to_right_differs) {
    op_random random = {7};
    product p;
    product_init(&p, DF_F32, 33, 200, &random);
    int differ = 0;
    for (int o = 0; o < 33; o++) {
        float chain = 0.0f;
        for (int k = 0; k < 200; k++) chain = fmaf(p.wide[o * 200 + k], p.x[k], chain);
        differ += chain != p.plain[o];
    }
    ck_assert_int_gt(differ, 10);
    product_release(&p);
}
END_TEST

START_TEST(permuted_rows_give_permuted_bits) {
    op_random random = {8};
    dflash_isa isa[OP_ISAS];
    const int isas = op_isas(isa), k = 200, n = 33;
    product p;
    product_init(&p, DF_BF16, n, k, &random);
    int order[MOST_ROWS];
    for (int i = 0; i < MOST_ROWS; i++) order[i] = i;
    for (int i = MOST_ROWS - 1; i > 0; i--) {
        const int j = op_below(&random, i + 1), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    float *x = op_floats((size_t)MOST_ROWS * (size_t)k);
    for (int i = 0; i < MOST_ROWS; i++) memcpy(x + i * k, p.x + order[i] * k, (size_t)k * sizeof(float));
    for (int e = 0; e < isas; e++) {
        dflash_engine *engine = op_engine(isa[e], 1, false);
        float *y = op_output((size_t)MOST_ROWS * (size_t)n);
        multiply(engine, &p.w, p.bias, x, MOST_ROWS, y);
        for (int i = 0; i < MOST_ROWS; i++)
            op_expect_bits(p.biased + order[i] * n, y + i * n, (size_t)n, dflash_engine_isa(engine));
        op_output_free(y);
        dflash_engine_destroy(engine);
    }
    free(x);
    product_release(&p);
}
END_TEST

START_TEST(a_row_of_nan_or_infinity_leaves_its_companions_alone) {
    op_random random = {9};
    dflash_isa isa[OP_ISAS];
    const int isas = op_isas(isa), k = 65, n = 9, rows = 40;
    const int spoiled[] = {0, 5, 15, 16, 39};
    product p;
    product_init(&p, DF_F16, n, k, &random);
    for (size_t s = 0; s < sizeof spoiled / sizeof *spoiled; s++)
        for (int i = 0; i < k; i++) p.x[spoiled[s] * k + i] = s % 2 == 0 ? NAN : INFINITY;
    for (int e = 0; e < isas; e++) {
        dflash_engine *engine = op_engine(isa[e], 2, false);
        float *y = op_output((size_t)rows * (size_t)n);
        multiply(engine, &p.w, NULL, p.x, rows, y);
        op_output_check(y, (size_t)rows * (size_t)n, dflash_engine_isa(engine));
        for (int row = 0; row < rows; row++) {
            bool bad = false;
            for (size_t s = 0; s < sizeof spoiled / sizeof *spoiled; s++) bad = bad || spoiled[s] == row;
            for (int o = 0; bad && o < n; o++) ck_assert(!isfinite(y[row * n + o]));
            if (!bad) op_expect_bits(p.plain + row * n, y + row * n, (size_t)n, dflash_engine_isa(engine));
        }
        op_output_free(y);
        dflash_engine_destroy(engine);
    }
    product_release(&p);
}
END_TEST

START_TEST(a_weight_row_of_infinities_leaves_the_other_outputs_alone) {
    op_random random = {10};
    dflash_isa isa[OP_ISAS];
    const int isas = op_isas(isa), k = 64, n = 9;
    product p;
    product_init(&p, DF_F32, n, k, &random);
    float *w = p.stored;
    for (int i = 0; i < k; i++) w[8 * k + i] = INFINITY; /* the row that a partial tile repeats */
    for (int e = 0; e < isas; e++) {
        dflash_engine *engine = op_engine(isa[e], 1, false);
        float *y = op_output((size_t)n);
        multiply(engine, &p.w, NULL, p.x, 1, y);
        op_expect_bits(p.plain, y, 8, dflash_engine_isa(engine));
        ck_assert(!isfinite(y[8]));
        op_output_free(y);
        dflash_engine_destroy(engine);
    }
    product_release(&p);
}
END_TEST

START_TEST(the_number_of_threads_changes_no_bit_of_a_product) {
    op_random random = {11};
    dflash_isa isa[OP_ISAS];
    const int isas = op_isas(isa), n = 300, rows = 40;
    product p;
    product_init(&p, DF_BF16, n, 128, &random);
    for (int e = 0; e < isas; e++)
        for (int threads = 1; threads <= 3; threads++) {
            dflash_engine *engine = op_engine(isa[e], threads, true);
            for (int again = 0; again < 3; again++) check_product(engine, &p, rows, true);
            dflash_engine_destroy(engine);
        }
    product_release(&p);
}
END_TEST

START_TEST(a_product_of_no_rows_writes_nothing) {
    op_random random = {12};
    product p;
    product_init(&p, DF_BF16, 8, 64, &random);
    dflash_engine *engine = op_engine(DFLASH_ISA_BEST, 1, false);
    float *y = op_output(0);
    multiply(engine, &p.w, p.bias, NULL, 0, y);
    op_output_check(y, 0, "no rows");
    op_output_free(y);
    dflash_engine_destroy(engine);
    product_release(&p);
}
END_TEST

TCase *tcase_matmul(void) {
    TCase *tcase = tcase_create("matmul");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, products_have_the_canonical_bits, 0, SIZES);
    tcase_add_test(tcase, a_product_summed_from_left_to_right_differs);
    tcase_add_test(tcase, permuted_rows_give_permuted_bits);
    tcase_add_test(tcase, a_row_of_nan_or_infinity_leaves_its_companions_alone);
    tcase_add_test(tcase, a_weight_row_of_infinities_leaves_the_other_outputs_alone);
    tcase_add_test(tcase, the_number_of_threads_changes_no_bit_of_a_product);
    tcase_add_test(tcase, a_product_of_no_rows_writes_nothing);
    return tcase;
}
