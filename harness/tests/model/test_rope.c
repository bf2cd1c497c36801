/*
 * test_rope.c - the rotary tables: float32 sequences pinned by digests of tables that were computed outside this
 * project's code, the values of the YaRN formula in double, attention factors, and the rounding of the angle.
 *
 * The digests (FNV-1a over the little-endian bytes) come from a script that rounds each operation of the sequences to
 * float32 one by one; for most of these parameters the reference was seen to make the same tables.
 */
#include "support/op_case.h"
#include "model/rope.h"
#include "model/rope_rows.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_HALF = 128 };

#define PLAIN(dim, base)                                                                                               \
    { .type = DFLASH_ROPE_DEFAULT, .rotary_dim = dim, .theta = base }
#define LINEAR(dim, base, f)                                                                                           \
    { .type = DFLASH_ROPE_LINEAR, .rotary_dim = dim, .theta = base, .factor = f }
#define YARN(dim, base, f, orig, fast, slow, cut)                                                                      \
    {                                                                                                                  \
        .type = DFLASH_ROPE_YARN, .rotary_dim = dim, .theta = base, .factor = f, .original_max_position = orig,        \
        .beta_fast = fast, .beta_slow = slow, .truncate = cut                                                          \
    }
#define LLAMA3(dim, base, f, low, high, orig)                                                                          \
    {                                                                                                                  \
        .type = DFLASH_ROPE_LLAMA3, .rotary_dim = dim, .theta = base, .factor = f, .low_freq_factor = low,             \
        .high_freq_factor = high, .original_max_position = orig                                                        \
    }

static const struct {
    dflash_rope_config rope;
    uint64_t digest;
} pinned[] = {
    {PLAIN(128, 1e6), 0xb887ea2d8c5fcba4u},
    {PLAIN(128, 1e7), 0x4c7200cc90040102u},
    {PLAIN(64, 1e4), 0xb04819d1a0d52427u},
    {PLAIN(16, 1e6), 0x1c634e3214f6b56du},
    {PLAIN(128, 5e5), 0x0b90a58d0c177ffeu},
    {PLAIN(64, 8e6), 0xeadb0670348c5b16u},
    {PLAIN(80, 1e7), 0x06c344e1337b71b1u},
    {PLAIN(2, 1e6), 0x4b72477f9c5c2f98u},
    {PLAIN(4, 1e4), 0x125834bf6ef1fa24u},
    {PLAIN(64, 1234567.891), 0x1fd6ecf08803673du}, /* theta itself is rounded first */
    {LINEAR(128, 1e6, 4), 0xb18ebfdf7da4b916u},
    {LINEAR(64, 1e4, 3.7), 0xf39ac08c205f3302u},
    {LINEAR(16, 1e6, 8), 0x952aefc7015dfac5u},
    {LINEAR(128, 1e7, 2.3), 0x85de7f8812169232u},
    {YARN(128, 1e7, 32, 8192, 32, 1, true), 0xe9fc5a4586672914u},
    {YARN(64, 1e7, 1.5625, 262144, 32, 1, true), 0xa18a5d8fe9379e0eu},
    {YARN(64, 1e4, 16, 4096, 32, 1, true), 0x74b6da3286380a89u},
    {YARN(16, 1e6, 16, 256, 32, 1, true), 0xffdbbeb1023f4f10u},
    {YARN(16, 1e7, 8, 1024, 16, 2, false), 0x9fc60bac27ba456bu}, /* limits that are no integers */
    {YARN(128, 1e6, 4, 32768, 32, 1, false), 0x465ffb6d338c0ee5u},
    {YARN(128, 1e7, 1.25, 8192, 32, 1, false), 0x2d358a7781010e94u}, /* a ramp whose 1 - (1 - r) is not r shows */
    {YARN(64, 1e4, 1.1, 4096, 32, 1, true), 0xe1ecc7239c34d810u},
    {YARN(64, 1e4, 16, 4096, 3, 3, false), 0xaea23e56f62a1935u}, /* lo = hi = 18.7 */
    {YARN(16, 1e4, 4, 6, 32, 1, true), 0x6012dc6cb94c83fbu},     /* both limits are below 0: lo = hi = 0 */
    {YARN(8, 2, 4, 1 << 20, 32, 1, true), 0x39b37c6d55060a84u},  /* hi is cut to dim - 1 and falls below lo */
    {YARN(16, 1e6, 16, 64, 32, 1, true), 0x2c5ea2bd6a77abcdu},   /* lo is cut to 0 */
    {YARN(4, 1e4, 8, 4096, 32, 1, true), 0x43300cb8c8a29f31u},
    {YARN(2, 1e4, 8, 4096, 32, 1, true), 0x4b72477f9c5c2f98u},
    {YARN(8, 1e4, 8, 197, 32, 1, true), 0x970b0fed4d4e579bu},
    {LLAMA3(128, 5e5, 8, 1, 4, 8192), 0x5b8166a97b875595u},
    {LLAMA3(16, 1e6, 8, 1, 4, 256), 0x8e8c50109cb7788du},
    {LLAMA3(64, 5e5, 32, 1, 4, 8192), 0xf23c01738f29c748u},
    {LLAMA3(128, 1e6, 7.3, 1.3, 4.7, 5000), 0xab09b18747f95c82u},
};
enum { PINNED = sizeof pinned / sizeof *pinned };

static uint64_t digest(const float *x, int n) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (int i = 0; i < n; i++)
        for (int shift = 0; shift < 32; shift += 8)
            hash = (hash ^ (df_f32_to_bits(x[i]) >> shift & 0xffu)) * 0x100000001b3u;
    return hash;
}

START_TEST(the_table_has_the_bits_of_the_float32_sequence) {
    const dflash_rope_config *rope = &pinned[_i].rope;
    const int half = rope->rotary_dim / 2;
    float *table = op_output((size_t)half);
    df_rope_inv_freq(rope, table);
    op_output_check(table, (size_t)half, "inv_freq");
    for (int i = 0; i < half; i++) ck_assert(isfinite(table[i]) && table[i] > 0);
    ck_assert_msg(digest(table, half) == pinned[_i].digest, "case %d, %s, dim %d: digest 0x%016llx", _i,
                  dflash_rope_type_name(rope->type), rope->rotary_dim, (unsigned long long)digest(table, half));
    op_output_free(table);
}
END_TEST

static void expect_near(double actual, double expected, double relative) {
    ck_assert_msg(fabs(actual - expected) <= relative * fabs(expected), "%.10g, expected %.10g", actual, expected);
}

/* The values that the specification lists, good to the ten digits it gives. */
START_TEST(yarn_tables_have_the_published_values) {
    static const struct {
        dflash_rope_config rope;
        int lo, hi;
        double scaling;
        struct {
            int i;
            double value;
        } at[4];
    } published[] = {
        {YARN(128, 1e7, 32, 8192, 32, 1, true),
         14,
         29,
         1.3465735902799727,
         {{14, 2.942727176e-2}, {21, 2.765919341e-3}, {28, 8.298824766e-5}, {63, 4.019990453e-9}}},
        {YARN(64, 1e7, 1.5625, 262144, 32, 1, true),
         14,
         22,
         1.044628710262842,
         {{1, .6042963902}, {15, 4.997507e-4}, {22, 9.855530e-6}, {22, 9.855530e-6}}},
        {YARN(64, 1e4, 16, 4096, 32, 1, true),
         10,
         23,
         1.2772588722239782,
         {{11, 3.912856979e-2}, {16, 5.673076923e-3}, {31, 8.334508951e-6}, {31, 8.334508951e-6}}},
    };
    for (size_t c = 0; c < sizeof published / sizeof *published; c++) {
        const dflash_rope_config *rope = &published[c].rope;
        float table[MOST_HALF];
        df_rope_inv_freq(rope, table);
        for (int i = 0; i < 4; i++) expect_near(table[published[c].at[i].i], published[c].at[i].value, 2e-7);
        for (int i = 0; i < rope->rotary_dim / 2; i++) { /* the formula of the specification, in double */
            const double plain = pow(rope->theta, -2.0 * i / rope->rotary_dim);
            const double at = ((double)i - published[c].lo) / (published[c].hi - published[c].lo);
            const double ramp = at < 0 ? 0 : at > 1 ? 1 : at;
            /* Past 2e-7 only by the cancellation in 1 - ramp near its end, which is absolute. */
            const double cancelled = 1.2e-7 * plain * (ramp > 0 && ramp < 1 ? 1 : 0);
            const double expected = plain / rope->factor * ramp + plain * (1 - ramp);
            ck_assert_double_le(fabs((double)table[i] - expected), 2e-7 * expected + cancelled);
        }
        ck_assert_double_eq_tol(df_rope_attention_scaling(rope), published[c].scaling, 1e-15);
    }
}
END_TEST

START_TEST(the_attention_factor_follows_its_order_of_precedence) {
    dflash_rope_config rope = YARN(64, 1e4, 16, 4096, 32, 1, true);
    ck_assert_double_eq_tol(df_rope_attention_scaling(&rope), 0.1 * log(16.0) + 1.0, 1e-15);
    rope.mscale = 1.0; /* alone it is not enough */
    ck_assert_double_eq_tol(df_rope_attention_scaling(&rope), 0.1 * log(16.0) + 1.0, 1e-15);
    rope.mscale = 0.0, rope.mscale_all_dim = 0.7;
    ck_assert_double_eq_tol(df_rope_attention_scaling(&rope), 0.1 * log(16.0) + 1.0, 1e-15);
    rope.mscale = 1.0, rope.mscale_all_dim = 1.0; /* the pair cancels */
    ck_assert(df_rope_attention_scaling(&rope) == 1.0);
    rope.mscale = 0.707, rope.mscale_all_dim = 0.3;
    ck_assert_double_eq_tol(df_rope_attention_scaling(&rope),
                            (0.1 * 0.707 * log(16.0) + 1.0) / (0.1 * 0.3 * log(16.0) + 1.0), 1e-15);
    rope.has_attention_factor = true, rope.attention_factor = 0.9; /* given: it beats the pair */
    ck_assert(df_rope_attention_scaling(&rope) == 0.9);
    rope.has_attention_factor = false, rope.mscale = rope.mscale_all_dim = 0.0, rope.factor = 1.0;
    ck_assert(df_rope_attention_scaling(&rope) == 1.0);
    rope.factor = 0.5; /* m(s, k) = 1 for s <= 1 */
    ck_assert(df_rope_attention_scaling(&rope) == 1.0);
}
END_TEST

START_TEST(only_yarn_scales_attention) {
    const dflash_rope_config others[] = {PLAIN(64, 1e4), LINEAR(64, 1e4, 4), LLAMA3(64, 5e5, 32, 1, 4, 8192)};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        dflash_rope_config rope = others[i];
        rope.has_attention_factor = true, rope.attention_factor = 3.0, rope.mscale = 2.0, rope.mscale_all_dim = 1.0;
        ck_assert(df_rope_attention_scaling(&rope) == 1.0);
    }
}
END_TEST

START_TEST(llama3_keeps_short_waves_and_divides_long_ones) {
    const dflash_rope_config plain = PLAIN(128, 5e5), scaled = LLAMA3(128, 5e5, 8, 1, 4, 8192);
    float before[64], after[64];
    int kept = 0, divided = 0, between = 0;
    df_rope_inv_freq(&plain, before);
    df_rope_inv_freq(&scaled, after);
    for (int i = 0; i < 64; i++) {
        const double wavelength = 6.283185307179586 / (double)before[i];
        if (wavelength < 8192.0 / 4) {
            kept++;
            ck_assert(after[i] == before[i]);
        } else if (wavelength > 8192.0) {
            divided++;
            ck_assert(after[i] == before[i] / 8.0f);
        } else {
            between++;
            const double smooth = (8192.0 / wavelength - 1) / (4 - 1);
            expect_near(after[i], (1 - smooth) * (double)before[i] / 8 + smooth * (double)before[i], 1e-6);
        }
    }
    ck_assert_int_gt(kept, 20);
    ck_assert_int_gt(divided, 20);
    ck_assert_int_gt(between, 2);
}
END_TEST

/* At position 100,000 the float32 angle is up to 4e-3 from the exact product: it is that rounded angle which counts. */
START_TEST(the_angle_is_rounded_to_float32_and_its_cosine_is_not_approximated) {
    static const int32_t pos[] = {0, 1, 1000, 100000, 1048576, 16777217, INT32_MAX};
    enum { ROWS = sizeof pos / sizeof *pos, HALF = 64 };
    const dflash_rope_config rope = PLAIN(128, 1e6);
    const float scaling = 1.3465735f;
    float inv[HALF], *c = op_output(ROWS * HALF), *s = op_output(ROWS * HALF);
    df_rope_inv_freq(&rope, inv);
    df_rope_tables(inv, HALF, scaling, pos, ROWS, c, s);
    op_output_check(c, ROWS * HALF, "cos");
    op_output_check(s, ROWS * HALF, "sin");
    double moved = 0;
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < HALF; i++) {
            const double exact_angle = (double)(float)pos[row] * (double)inv[i]; /* exact: 24 bits by 24 bits */
            const float angle = (float)exact_angle;
            const float cosine = (float)cosl((long double)angle), sine = (float)sinl((long double)angle);
            ck_assert(c[row * HALF + i] == cosine * scaling);
            ck_assert(s[row * HALF + i] == sine * scaling);
            if (pos[row] == 100000) moved = fmax(moved, fabs((double)angle - exact_angle));
        }
    ck_assert_double_gt(moved, 1e-3); /* the rounding matters here: an exact angle would give other tables */
    ck_assert_double_lt(moved, 4e-3);
    for (int i = 0; i < HALF; i++) ck_assert(c[i] == scaling && s[i] == 0.0f);
    op_output_free(c);
    op_output_free(s);
}
END_TEST

START_TEST(a_table_row_depends_on_its_position_alone) {
    const dflash_rope_config rope = YARN(64, 1e4, 16, 4096, 32, 1, true);
    const int32_t together[] = {7, 900, 70000};
    float inv[32], c[96], s[96], c_alone[32], s_alone[32];
    df_rope_inv_freq(&rope, inv);
    df_rope_tables(inv, 32, 1.25f, together, 3, c, s);
    for (int row = 0; row < 3; row++) {
        df_rope_tables(inv, 32, 1.25f, &together[row], 1, c_alone, s_alone);
        op_expect_bits(c + 32 * row, c_alone, 32, "cos of a row alone");
        op_expect_bits(s + 32 * row, s_alone, 32, "sin of a row alone");
    }
}
END_TEST

/* Rows that are kept, that push each other out, that come back, and a context that threads make together. */
START_TEST(rows_that_are_kept_are_the_rows_that_would_be_made) {
    enum { HALF = 32, MOST = 1000 };
    const dflash_rope_config rope = YARN(64, 1e4, 16, 4096, 32, 1, true);
    static const struct {
        int first, n;
    } calls[] = {{0, 1}, {0, 16},     {250, 16}, {5, 16}, {250, 16}, {5 + DF_ROPE_KEPT, 16}, {5, 16}, {3, MOST},
                 {9, 4}, {70000, 64}, {5, 65},   {5, 96}, {5, 16}};
    float inv[HALF], *c = op_output(MOST * HALF), *s = op_output(MOST * HALF), *c_made = op_output(MOST * HALF),
                     *s_made = op_output(MOST * HALF);
    df_rope_rows rows;
    df_pool *pool;
    dflash_error err;
    df_rope_inv_freq(&rope, inv);
    ck_assert(df_rope_rows_open(&rows, inv, HALF, 1.25f, &err) == DFLASH_OK &&
              df_pool_create(3, &pool, &err) == DFLASH_OK);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        int32_t pos[MOST];
        for (int row = 0; row < calls[i].n; row++) pos[row] = calls[i].first + 2 * row;
        df_rope_rows_get(&rows, pool, pos, calls[i].n, c, s);
        df_rope_tables(inv, HALF, 1.25f, pos, calls[i].n, c_made, s_made);
        op_expect_bits(c, c_made, (size_t)calls[i].n * HALF, "cos of kept rows");
        op_expect_bits(s, s_made, (size_t)calls[i].n * HALF, "sin of kept rows");
    }
    df_pool_destroy(pool);
    df_rope_rows_close(&rows);
    op_output_free(c);
    op_output_free(s);
    op_output_free(c_made);
    op_output_free(s_made);
}
END_TEST

Suite *suite_rope(void) {
    Suite *suite = suite_create("rope");
    TCase *tcase = tcase_create("tables");
    tcase_add_loop_test(tcase, the_table_has_the_bits_of_the_float32_sequence, 0, PINNED);
    tcase_add_test(tcase, yarn_tables_have_the_published_values);
    tcase_add_test(tcase, the_attention_factor_follows_its_order_of_precedence);
    tcase_add_test(tcase, only_yarn_scales_attention);
    tcase_add_test(tcase, llama3_keeps_short_waves_and_divides_long_ones);
    tcase_add_test(tcase, the_angle_is_rounded_to_float32_and_its_cosine_is_not_approximated);
    tcase_add_test(tcase, a_table_row_depends_on_its_position_alone);
    tcase_add_test(tcase, rows_that_are_kept_are_the_rows_that_would_be_made);
    suite_add_tcase(suite, tcase);
    return suite;
}
