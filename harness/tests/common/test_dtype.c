/*
 * test_dtype.c - the conversions of impl/common/dtype.h, exhaustively where 65536 inputs allow it.
 *
 * The reference is arithmetic in double with ldexp and rint, which shares nothing with the bit manipulation under test.
 */
#include "common/dtype.h"
#include "suites.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { ALL_16_BITS = 65536 };

/* A 16-bit format with one sign bit: fraction bits, the exponent of the smallest normal, the largest finite value. */
typedef struct narrow_format {
    int fraction, least_exponent;
    double largest;
    float (*widen)(uint16_t);
    uint16_t (*narrow)(float);
} narrow_format;

static float widen_f16(uint16_t bits) { return df_f16_to_f32(bits); }
static float widen_bf16(uint16_t bits) { return df_bf16_to_f32(bits); }
static uint16_t narrow_bf16(float value) { return df_f32_to_bf16(value); }

static const narrow_format F16 = {10, -14, 65504.0, widen_f16, df_f32_to_f16};
static const narrow_format BF16 = {7, -126, 0x1.FEp127, widen_bf16, narrow_bf16};

/* The value of 16 bits by the definition of the format. */
static double value_of(const narrow_format *format, uint32_t bits) {
    const uint32_t fraction = bits & ((1u << format->fraction) - 1);
    const int exponent = (int)(bits >> format->fraction & ((1u << (15 - format->fraction)) - 1));
    const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
    if (exponent == (1 << (15 - format->fraction)) - 1) return fraction == 0 ? sign * INFINITY : (double)NAN;
    if (exponent == 0) return sign * ldexp(fraction, format->least_exponent - format->fraction);
    return sign * ldexp((double)(fraction + (1u << format->fraction)),
                        format->least_exponent + exponent - 1 - format->fraction);
}

/* The nearest value of the format, ties to even, beyond the largest to infinity. */
static double nearest(const narrow_format *format, double value) {
    int exponent = 0;
    if (value == 0 || isinf(value)) return value;
    frexp(value, &exponent);
    exponent = exponent - 1 < format->least_exponent ? format->least_exponent : exponent - 1;
    const double unit = ldexp(1.0, exponent - format->fraction);
    const double rounded = rint(value / unit) * unit;
    return fabs(rounded) > format->largest ? copysign(INFINITY, value) : rounded;
}

static void expect_nearest(const narrow_format *format, float value) {
    const uint16_t bits = format->narrow(value);
    const double expected = nearest(format, value), actual = value_of(format, bits);
    ck_assert_msg(actual == expected && !signbit(actual) == !signbit(value), "%a became 0x%04x = %a, expected %a",
                  (double)value, bits, actual, expected);
}

static void every_value_widens_and_returns(const narrow_format *format) {
    int nan_count = 0;
    for (uint32_t i = 0; i < ALL_16_BITS; i++) {
        const double expected = value_of(format, i);
        const float wide = format->widen((uint16_t)i);
        if (isnan(expected)) {
            nan_count++;
            ck_assert_msg(isnan(wide), "0x%04x is a NaN and became %a", i, (double)wide);
            const uint16_t back = format->narrow(wide);
            ck_assert_msg(isnan(value_of(format, back)), "NaN 0x%04x came back as 0x%04x", i, back);
            ck_assert_uint_eq(back & 0x8000u, i & 0x8000u);
        } else {
            ck_assert_msg((double)wide == expected && !signbit(wide) == !signbit(expected), "0x%04x became %a, not %a",
                          i, (double)wide, expected);
            ck_assert_uint_eq(format->narrow(wide), i);
        }
    }
    ck_assert_int_eq(nan_count, 2 * ((1 << format->fraction) - 1));
}

/* Midpoints of neighbours are exact in float32; so are the values a hair to either side. */
static void every_midpoint_rounds_to_even(const narrow_format *format) {
    for (uint32_t i = 0; isfinite(value_of(format, i + 1)); i++) {
        const float middle = (float)((value_of(format, i) + value_of(format, i + 1)) / 2);
        ck_assert_uint_eq(format->narrow(middle), i + (i & 1));
        ck_assert_uint_eq(format->narrow(nextafterf(middle, 0)), i);
        ck_assert_uint_eq(format->narrow(nextafterf(middle, INFINITY)), i + 1);
        ck_assert_uint_eq(format->narrow(-middle), 0x8000u | (i + (i & 1)));
    }
}

/* Float32 patterns spread over the whole range, from a fixed seed. */
static void random_floats_round_to_nearest(const narrow_format *format) {
    uint32_t bits = 12345;
    for (int i = 0; i < 300000; i++) {
        bits = bits * 1664525u + 1013904223u;
        const float value = df_bits_to_f32(bits);
        if (!isnan(value)) expect_nearest(format, value);
    }
    /* the same around the range of the format */
    for (int i = 0; i < 300000; i++) {
        bits = bits * 1664525u + 1013904223u;
        expect_nearest(format, ldexpf((float)(int32_t)bits, -31 + (int)(bits % 48u) - 28));
    }
}

START_TEST(every_f16_value_widens_exactly_and_returns) { every_value_widens_and_returns(&F16); }
END_TEST

START_TEST(every_bf16_value_widens_exactly_and_returns) { every_value_widens_and_returns(&BF16); }
END_TEST

START_TEST(f16_midpoints_round_to_even) { every_midpoint_rounds_to_even(&F16); }
END_TEST

START_TEST(bf16_midpoints_round_to_even) { every_midpoint_rounds_to_even(&BF16); }
END_TEST

START_TEST(random_floats_round_to_the_nearest_f16) { random_floats_round_to_nearest(&F16); }
END_TEST

START_TEST(random_floats_round_to_the_nearest_bf16) { random_floats_round_to_nearest(&BF16); }
END_TEST

START_TEST(overflow_becomes_infinity_exactly_at_the_midpoint) {
    ck_assert_uint_eq(df_f32_to_f16(65519.996f), 0x7bff);
    ck_assert_uint_eq(df_f32_to_f16(65520.0f), 0x7c00);
    ck_assert_uint_eq(df_f32_to_f16(-65520.0f), 0xfc00);
    ck_assert_uint_eq(df_f32_to_f16(FLT_MAX), 0x7c00);
    ck_assert_uint_eq(df_f32_to_bf16(df_bits_to_f32(0x7f7f7fffu)), 0x7f7f);
    ck_assert_uint_eq(df_f32_to_bf16(df_bits_to_f32(0x7f7f8000u)), 0x7f80);
    ck_assert_uint_eq(df_f32_to_bf16(-FLT_MAX), 0xff80);
}
END_TEST

START_TEST(infinities_and_zeros_keep_their_sign) {
    const float values[] = {INFINITY, -INFINITY, 0.0f, -0.0f};
    const uint16_t f16[] = {0x7c00, 0xfc00, 0x0000, 0x8000}, bf16[] = {0x7f80, 0xff80, 0x0000, 0x8000};
    for (size_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(df_f32_to_f16(values[i]), f16[i]);
        ck_assert_uint_eq(df_f32_to_bf16(values[i]), bf16[i]);
    }
}
END_TEST

START_TEST(a_nan_whose_payload_is_only_in_the_lost_bits_stays_a_nan) {
    const uint32_t payloads[] = {1u, 0x1fffu, 0xffffu, 0x7fffffu};
    for (size_t i = 0; i < 4; i++) {
        for (uint32_t sign = 0; sign <= 0x80000000u; sign += 0x80000000u) {
            const float nan_value = df_bits_to_f32(sign | 0x7f800000u | payloads[i]);
            ck_assert(isnan(df_f16_to_f32(df_f32_to_f16(nan_value))));
            ck_assert(isnan(df_bf16_to_f32(df_f32_to_bf16(nan_value))));
            if (sign != 0) break;
        }
    }
}
END_TEST

START_TEST(sizes_and_names_are_those_of_safetensors) {
    ck_assert_uint_eq(df_dtype_size(DF_F32), 4);
    ck_assert_uint_eq(df_dtype_size(DF_F16), 2);
    ck_assert_uint_eq(df_dtype_size(DF_BF16), 2);
    ck_assert_str_eq(df_dtype_name(DF_F32), "F32");
    ck_assert_str_eq(df_dtype_name(DF_F16), "F16");
    ck_assert_str_eq(df_dtype_name(DF_BF16), "BF16");
}
END_TEST

Suite *suite_dtype(void) {
    Suite *suite = suite_create("dtype");
    TCase *tests = tcase_create("conversions");
    tcase_add_test(tests, every_f16_value_widens_exactly_and_returns);
    tcase_add_test(tests, every_bf16_value_widens_exactly_and_returns);
    tcase_add_test(tests, f16_midpoints_round_to_even);
    tcase_add_test(tests, bf16_midpoints_round_to_even);
    tcase_add_test(tests, random_floats_round_to_the_nearest_f16);
    tcase_add_test(tests, random_floats_round_to_the_nearest_bf16);
    tcase_add_test(tests, overflow_becomes_infinity_exactly_at_the_midpoint);
    tcase_add_test(tests, infinities_and_zeros_keep_their_sign);
    tcase_add_test(tests, a_nan_whose_payload_is_only_in_the_lost_bits_stays_a_nan);
    tcase_add_test(tests, sizes_and_names_are_those_of_safetensors);
    tcase_set_timeout(tests, 60);
    suite_add_tcase(suite, tests);
    return suite;
}
