/*
 * test_products.c - simulated narrow products: the rounding of an operand bit by bit, and the matrix product of every
 * instruction set and weight width against the canonical sum of operands that were rounded first.
 */
#include "support/op_case.h"

#include "weights/quant.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* One operand, as bits, and what TF32 and bf16 make of it. */
static const struct {
    uint32_t bits, tf32, bf16;
} roundings[] = {
    {0x3f800000, 0x3f800000, 0x3f800000}, /* 1 */
    {0x80000000, 0x80000000, 0x80000000}, /* -0 keeps its sign */
    {0x3f800fff, 0x3f800000, 0x3f800000}, /* just under half a TF32 unit */
    {0x3f801000, 0x3f800000, 0x3f800000}, /* half a TF32 unit above an even one: down */
    {0x3f801001, 0x3f802000, 0x3f800000}, /* just over half */
    {0x3f803000, 0x3f804000, 0x3f800000}, /* half above an odd one: up */
    {0x3f808000, 0x3f808000, 0x3f800000}, /* half a bf16 unit above an even one: down */
    {0x3f808001, 0x3f808000, 0x3f810000}, /* just over half */
    {0xbf818000, 0xbf818000, 0xbf820000}, /* half above an odd one: away, by magnitude */
    {0x3fffffff, 0x40000000, 0x40000000}, /* the carry reaches the exponent */
    {0x7f7fffff, 0x7f800000, 0x7f800000}, /* the largest value becomes infinite */
    {0x7f7fe000, 0x7f7fe000, 0x7f800000}, /* the largest of TF32 stays in TF32 */
    {0x7f800000, 0x7f800000, 0x7f800000}, /* infinities */
    {0xff800000, 0xff800000, 0xff800000},
    {0x7fc00000, 0x7fc00000, 0x7fc00000}, /* NaN */
    {0x7f800001, 0x7fc00000, 0x7fc00000}, /* a signalling one whose payload would be rounded away stays NaN */
    {0xffffffff, 0xffffe000, 0xffff0000},
    {0x00000001, 0x00000000, 0x00000000}, /* subnormals are rounded like the others, not flushed */
    {0x00003000, 0x00004000, 0x00000000},
    {0x00018000, 0x00018000, 0x00020000},
    {0x007fffff, 0x00800000, 0x00800000}, /* into the normal range */
};
enum { ROUNDINGS = sizeof roundings / sizeof *roundings };

START_TEST(operands_are_rounded_to_nearest_even_and_special_values_kept) {
    const float value = df_bits_to_f32(roundings[_i].bits);
    ck_assert_uint_eq(df_f32_to_bits(df_round_to_tf32(value)), roundings[_i].tf32);
    ck_assert_uint_eq(df_f32_to_bits(df_round_to_bf16(value)), roundings[_i].bf16);
}
END_TEST

START_TEST(a_rounded_operand_is_the_nearest_of_its_width_and_stays_what_it_is) {
    op_random random = {31};
    for (int i = 0; i < 200000; i++) {
        const float x = df_bits_to_f32((uint32_t)op_next(&random));
        if (!isfinite(x)) continue;
        const float t = df_round_to_tf32(x), b = df_round_to_bf16(x);
        OP_REQUIRE(df_round_to_tf32(t) == t && df_round_to_bf16(b) == b && df_round_to_tf32(b) == b,
                   "0x%08x is not rounded once and for all", df_f32_to_bits(x));
        /* Half a unit in the last place: 2^-11 and 2^-8 of the power of two below, 2^-137 and 2^-134 when subnormal. */
        int exponent;
        frexpf(x, &exponent);
        if (exponent < -125) exponent = -125;
        OP_REQUIRE(!isfinite(t) || fabs((double)t - (double)x) <= ldexp(1.0, exponent - 12), "0x%08x in TF32",
                   df_f32_to_bits(x));
        OP_REQUIRE(!isfinite(b) || fabs((double)b - (double)x) <= ldexp(1.0, exponent - 9), "0x%08x in bf16",
                   df_f32_to_bits(x));
    }
}
END_TEST

static const df_dtype dtypes[] = {DF_F32, DF_F16, DF_BF16, DF_Q8_0, DF_Q4_0};
enum { DTYPES = sizeof dtypes / sizeof *dtypes, OUTPUTS = 19, ROWS = 18 };

/* `wide` as it is held in `dtype`, and overwritten by what is read back from that. */
static void *hold(df_dtype dtype, float *wide, int n, int k) {
    unsigned char *stored = op_alloc((size_t)n * df_row_bytes(dtype, k));
    for (int o = 0; o < n; o++) {
        unsigned char *row = stored + (size_t)o * df_row_bytes(dtype, k);
        float *w = wide + o * k;
        uint16_t *half = (uint16_t *)(void *)row;
        for (int i = 0; i < k && (dtype == DF_F16 || dtype == DF_BF16); i++) {
            half[i] = dtype == DF_F16 ? df_f32_to_f16(w[i]) : df_f32_to_bf16(w[i]);
            w[i] = dtype == DF_F16 ? df_f16_to_f32(half[i]) : df_bf16_to_f32(half[i]);
        }
        if (dtype == DF_F32) memcpy(row, w, (size_t)k * sizeof *w);
        if (dtype == DF_Q8_0) df_quantize_q8_0(w, k, row), df_dequantize_q8_0(row, 0, k, w);
        if (dtype == DF_Q4_0) df_quantize_q4_0(w, k, row), df_dequantize_q4_0(row, 0, k, w);
    }
    return stored;
}

static dflash_engine *narrow_engine(dflash_isa isa, dflash_products products) {
    const dflash_engine_options options = {.isa = isa, .threads = 2, .poison_scratch = true, .products = products};
    dflash_error err = {0};
    dflash_engine *engine = NULL;
    ck_assert_msg(dflash_engine_create(&options, &engine, &err) == DFLASH_OK, "%s", err.message);
    return engine;
}

static float rounded(dflash_products products, float value) {
    return products == DFLASH_PRODUCTS_TF32   ? df_round_to_tf32(value)
           : products == DFLASH_PRODUCTS_BF16 ? df_round_to_bf16(value)
                                              : value;
}

/* _i is the width of the weights. Sums over less than a chunk, a whole segment, and more than one with a rest. */
START_TEST(narrow_products_are_the_canonical_sums_of_rounded_operands) {
    static const int sizes[] = {32, 64, 224, 233};
    op_random random = {(uint64_t)(40 + _i)};
    const df_dtype dtype = dtypes[_i];
    dflash_isa isa[OP_ISAS];
    const int isas = op_isas(isa);
    for (int s = 0; s < 4; s++) {
        const int k = df_dtype_is_block(dtype) ? sizes[s] / 32 * 32 : sizes[s];
        float *wide = op_floats((size_t)(OUTPUTS * k)), *x = op_floats((size_t)(ROWS * k)),
              *want = op_floats(OUTPUTS * ROWS), *w = op_floats((size_t)k), *row = op_floats((size_t)k);
        op_fill(&random, wide, (size_t)(OUTPUTS * k));
        op_fill(&random, x, (size_t)(ROWS * k));
        void *stored = hold(dtype, wide, OUTPUTS, k);
        for (dflash_products p = DFLASH_PRODUCTS_F32; p <= DFLASH_PRODUCTS_BF16; p++) {
            for (int r = 0; r < ROWS; r++)
                for (int o = 0; o < OUTPUTS; o++) {
                    for (int i = 0; i < k; i++) w[i] = rounded(p, wide[o * k + i]), row[i] = rounded(p, x[r * k + i]);
                    want[r * OUTPUTS + o] = op_dot(w, row, k);
                }
            for (int e = 0; e < isas; e++) {
                dflash_engine *engine = narrow_engine(isa[e], p);
                const df_matrix matrix = {.dtype = dtype, .out = OUTPUTS, .in = k, .data = stored};
                float *y = op_output(OUTPUTS * ROWS);
                dflash_error err = {0};
                char what[80];
                snprintf(what, sizeof what, "%s %s %s K=%d", dflash_engine_isa(engine), df_dtype_name(dtype),
                         dflash_products_name(p), k);
                ck_assert_int_eq(df_arena_reset(&engine->arena, &err), DFLASH_OK);
                ck_assert_msg(engine->ops->matmul(engine, &matrix, NULL, x, ROWS, y, &err) == DFLASH_OK, "%s",
                              err.message);
                op_output_check(y, OUTPUTS * ROWS, what);
                op_expect_bits(want, y, OUTPUTS * ROWS, what);
                op_output_free(y);
                dflash_engine_destroy(engine);
            }
        }
        free(wide), free(x), free(want), free(w), free(row), free(stored);
    }
}
END_TEST

START_TEST(products_have_names_that_are_parsed_back) {
    dflash_products found = DFLASH_PRODUCTS_F32;
    for (dflash_products p = DFLASH_PRODUCTS_F32; p <= DFLASH_PRODUCTS_BF16; p++) {
        ck_assert(dflash_products_parse(dflash_products_name(p), &found));
        ck_assert_int_eq(found, p);
    }
    ck_assert(!dflash_products_parse("f16", &found) && !dflash_products_parse("", &found) &&
              !dflash_products_parse("TF32", &found));
}
END_TEST

TCase *tcase_products(void) {
    TCase *tcase = tcase_create("products");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, operands_are_rounded_to_nearest_even_and_special_values_kept, 0, ROUNDINGS);
    tcase_add_test(tcase, a_rounded_operand_is_the_nearest_of_its_width_and_stays_what_it_is);
    tcase_add_loop_test(tcase, narrow_products_are_the_canonical_sums_of_rounded_operands, 0, DTYPES);
    tcase_add_test(tcase, products_have_names_that_are_parsed_back);
    return tcase;
}
