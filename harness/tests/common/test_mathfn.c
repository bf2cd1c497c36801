/*
 * test_mathfn.c - the exponential, sigmoid and SiLU of mathfn.h against long double, over the whole range of float32.
 *
 * Errors are measured in units in the last place of float32 at the exact value. A digest of 100,000 results pins every
 * bit: C and CUDA, today and later, must agree with it.
 */
#include "common/mathfn.h"
#include "support/op_case.h"

#include <float.h>

static float of_bits(uint32_t bits) { return df_bits_to_f32(bits); }

/* The distance of neighbouring float32 values at `exact`, for results that are not zero and do not overflow. */
static long double unit_at(long double exact) {
    int exponent = 0;
    frexpl(exact, &exponent);
    return ldexpl(1.0L, exponent - 24 < -149 ? -149 : exponent - 24);
}

static double ulp_error(float actual, long double exact) {
    return (double)(fabsl((long double)actual - exact) / unit_at(exact));
}

typedef struct worst {
    double error;
    float at;
} worst;

static void note(worst *w, double error, float at) {
    if (error > w->error) *w = (worst){error, at};
}

/* The largest argument whose exponential is finite in float32, found without the code under test. */
static bool overflows(float x) { return expl((long double)x) >= (long double)FLT_MAX + 0x1p103L; }

static void check_exp(float x, worst *w) {
    const float actual = df_exp(x);
    if (overflows(x)) {
        OP_REQUIRE(isinf(actual) && actual > 0, "exp(%a) = %a, expected infinity", (double)x, (double)actual);
        return;
    }
    OP_REQUIRE(actual >= 0 && isfinite(actual), "exp(%a) = %a", (double)x, (double)actual);
    note(w, ulp_error(actual, expl((long double)x)), x);
}

/* An exhaustive run over 2^-9 < |x| < 104 found 1.0476 ulp at most (at -0x1.45c5dp+6) and 332 arguments past 1 ulp, all
 * far below zero, where n times the error of the split of ln 2 adds up. The sweeps here visit fewer arguments. */
static const double exp_bound = 1.05;

START_TEST(exp_is_within_its_bound_over_every_exponent_and_both_signs) {
    worst w = {0};
    uint32_t compared = 0;
    for (uint64_t bits = 0; bits <= 0xffffffffu; bits += 997) {
        const float x = of_bits((uint32_t)bits);
        if (isnan(x)) continue;
        compared++;
        if (x < -200.0f)
            OP_REQUIRE(df_f32_to_bits(df_exp(x)) == 0, "exp(%a) is not zero", (double)x);
        else if (x > 200.0f)
            OP_REQUIRE(isinf(df_exp(x)) && df_exp(x) > 0, "exp(%a) is finite", (double)x);
        else
            check_exp(x, &w);
    }
    ck_assert_uint_gt(compared, 4000000);
    ck_assert_msg(w.error < exp_bound, "%.4f ulp at %a", w.error, (double)w.at);
}
END_TEST

START_TEST(exp_is_within_its_bound_on_a_dense_sweep_of_the_arguments_that_matter) {
    worst w = {0};
    for (int sign = 0; sign < 2; sign++)
        for (uint32_t bits = 0x3d800000u; bits < 0x42d20000u; bits += 127) /* 2^-4 to 105 */
            check_exp(of_bits(bits | (uint32_t)sign << 31), &w);
    ck_assert_msg(w.error < exp_bound, "%.4f ulp at %a", w.error, (double)w.at);
}
END_TEST

START_TEST(exp_is_exact_at_zero_and_one_near_it) {
    ck_assert_uint_eq(df_f32_to_bits(df_exp(0.0f)), 0x3f800000u);
    ck_assert_uint_eq(df_f32_to_bits(df_exp(-0.0f)), 0x3f800000u);
    for (uint32_t bits = 1; bits < 0x33000000u; bits += 99991) { /* below 2^-25, subnormals included */
        OP_REQUIRE(df_exp(of_bits(bits)) == 1.0f, "exp of 0x%08x", bits);
        OP_REQUIRE(df_exp(of_bits(bits | 0x80000000u)) == 1.0f, "exp of 0x%08x", bits | 0x80000000u);
    }
}
END_TEST

START_TEST(exp_overflows_at_the_right_float) {
    float last = 88.0f;
    while (!overflows(nextafterf(last, INFINITY))) last = nextafterf(last, INFINITY);
    ck_assert(isfinite(df_exp(last)));
    ck_assert(df_exp(last) > 0x1.fffp127f);
    const float first = nextafterf(last, INFINITY);
    ck_assert(isinf(df_exp(first)) && df_exp(first) > 0);
    float x = first;
    for (int i = 0; i < 200000; i++, x = nextafterf(x, INFINITY)) OP_REQUIRE(isinf(df_exp(x)), "exp(%a)", (double)x);
    ck_assert(isinf(df_exp(FLT_MAX)) && df_exp(FLT_MAX) > 0);
}
END_TEST

START_TEST(exp_underflows_through_the_subnormals_to_zero) {
    int subnormal = 0, zero = 0;
    for (float x = -87.0f; x > -110.0f; x -= 0x1p-12f) {
        const float y = df_exp(x);
        const long double exact = expl((long double)x);
        subnormal += y > 0 && y < FLT_MIN;
        zero += y == 0;
        OP_REQUIRE(fabsl((long double)y - exact) < unit_at(exact), "exp(%a) = %a", (double)x, (double)y);
        if (exact < 0x1p-150L * 0.999L) OP_REQUIRE(df_f32_to_bits(y) == 0, "exp(%a) = %a", (double)x, (double)y);
        if (exact > 0x1p-150L * 1.001L) OP_REQUIRE(y > 0, "exp(%a) = %a", (double)x, (double)y);
    }
    ck_assert_int_gt(subnormal, 50000);
    ck_assert_int_gt(zero, 10000);
    ck_assert_uint_eq(df_f32_to_bits(df_exp(-FLT_MAX)), 0);
}
END_TEST

static void expect_rising(float from, float to) {
    float before = df_exp(from);
    for (float x = nextafterf(from, INFINITY); x <= to; x = nextafterf(x, INFINITY)) {
        const float y = df_exp(x);
        OP_REQUIRE(y >= before, "exp falls from %a to %a at %a", (double)before, (double)y, (double)x);
        before = y;
    }
}

START_TEST(exp_never_falls_near_its_ends_and_near_the_changes_of_n) {
    expect_rising(-104.5f, -102.5f);
    expect_rising(-88.0f, -87.0f); /* into the subnormals */
    expect_rising(88.0f, 89.0f);
    for (int n = -149; n <= 127; n++) { /* n changes half way between multiples of ln 2 */
        const float middle = ((float)n + 0.5f) * 0.693147182f;
        expect_rising(middle - fabsf(middle) * 0x1p-16f, middle + fabsf(middle) * 0x1p-16f);
    }
    expect_rising(-0x1p-126f, 0x1p-126f * 0x1p-10f - 0x1p-126f);
}
END_TEST

START_TEST(exp_of_infinities_and_nan) {
    ck_assert(isinf(df_exp(INFINITY)) && df_exp(INFINITY) > 0);
    ck_assert_uint_eq(df_f32_to_bits(df_exp(-INFINITY)), 0);
    static const uint32_t nans[] = {0x7fc00000u, 0xffc00000u, 0x7fc12345u, 0xffffffffu};
    for (size_t i = 0; i < sizeof nans / sizeof *nans; i++)
        ck_assert_uint_eq(df_f32_to_bits(df_exp(of_bits(nans[i]))), nans[i]); /* the payload survives */
    ck_assert(isnan(df_exp(of_bits(0x7f800001u))));
}
END_TEST

static long double exact_sigmoid(float x) { return 1.0L / (1.0L + expl(-(long double)x)); }

/* 1 + e^-x overflows in float32 below this; the results below it are zero instead of at most 1e-36. */
static const float cliff = -88.7228f;

START_TEST(sigmoid_and_silu_stay_within_their_bounds) {
    worst sigmoid = {0}, silu = {0}, below = {0};
    for (uint64_t bits = 0; bits <= 0xffffffffu; bits += 1499) {
        const float x = of_bits((uint32_t)bits);
        if (isnan(x) || isinf(x)) continue;
        const float s = df_sigmoid(x), y = df_silu(x);
        OP_REQUIRE(s >= 0.0f && s <= 1.0f, "sigmoid(%a) = %a", (double)x, (double)s);
        if (x < cliff) {
            OP_REQUIRE(y <= 0.0f && s < 0x1p-126f, "x = %a: silu %a, sigmoid %a", (double)x, (double)y, (double)s);
            note(&below, fabs((double)((long double)y - (long double)x * exact_sigmoid(x < -1e4f ? -1e4f : x))), x);
        } else if (x > 200.0f) {
            OP_REQUIRE(s == 1.0f && y == x, "x = %a: silu %a, sigmoid %a", (double)x, (double)y, (double)s);
        } else {
            const long double exact = exact_sigmoid(x);
            note(&sigmoid, ulp_error(s, exact), x);
            if (x != 0.0f) note(&silu, ulp_error(y, (long double)x * exact), x);
        }
    }
    /* Measured with every fifth argument: sigmoid 2.4807 (at -0x1.0a2bd8p+4), silu 2.4031 (at -0x1.0af0b8p+4). */
    ck_assert_msg(sigmoid.error < 2.6, "sigmoid: %.4f ulp at %a", sigmoid.error, (double)sigmoid.at);
    ck_assert_msg(silu.error < 2.6, "silu: %.4f ulp at %a", silu.error, (double)silu.at);
    ck_assert_msg(below.error < 0x1p-119, "silu below the cliff: %g at %a", below.error, (double)below.at);
}
END_TEST

START_TEST(sigmoid_and_silu_at_their_special_points) {
    ck_assert(df_sigmoid(0.0f) == 0.5f);
    ck_assert(df_sigmoid(INFINITY) == 1.0f);
    ck_assert_uint_eq(df_f32_to_bits(df_sigmoid(-INFINITY)), 0);
    ck_assert_uint_eq(df_f32_to_bits(df_silu(0.0f)), 0);
    ck_assert_uint_eq(df_f32_to_bits(df_silu(-0.0f)), 0x80000000u);
    ck_assert(isinf(df_silu(INFINITY)));
    ck_assert(isnan(df_silu(-INFINITY))); /* -inf / inf, as every x / (1 + e^-x) has it */
    ck_assert(isnan(df_silu(NAN)) && isnan(df_sigmoid(NAN)));
    ck_assert_uint_eq(df_f32_to_bits(df_silu(-1000.0f)), 0x80000000u);
}
END_TEST

/* FNV-1a over little-endian bytes. */
static void digest(uint64_t *hash, float value) {
    const uint32_t bits = df_f32_to_bits(value);
    for (int i = 0; i < 4; i++) *hash = (*hash ^ (bits >> 8 * i & 0xffu)) * 0x100000001b3u;
}

START_TEST(the_bits_of_a_hundred_thousand_results_are_pinned) {
    uint64_t exp_hash = 0xcbf29ce484222325u, silu_hash = exp_hash, sigmoid_hash = exp_hash;
    op_random random = {20};
    for (int i = 0; i < 100000; i++) {
        const float x = op_unit(&random) * (i % 2 == 0 ? 105.0f : 12.0f);
        digest(&exp_hash, df_exp(x));
        digest(&silu_hash, df_silu(x));
        digest(&sigmoid_hash, df_sigmoid(x));
    }
    ck_assert_msg(exp_hash == 0x0088cb9b1e7a828eu && silu_hash == 0x517fe00aaa8ef171u &&
                      sigmoid_hash == 0x56823e8766892e0du,
                  "digests are exp 0x%016llx, silu 0x%016llx, sigmoid 0x%016llx", (unsigned long long)exp_hash,
                  (unsigned long long)silu_hash, (unsigned long long)sigmoid_hash);
}
END_TEST

Suite *suite_mathfn(void) {
    Suite *suite = suite_create("mathfn");
    TCase *tcase = tcase_create("functions");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, exp_is_within_its_bound_over_every_exponent_and_both_signs);
    tcase_add_test(tcase, exp_is_within_its_bound_on_a_dense_sweep_of_the_arguments_that_matter);
    tcase_add_test(tcase, exp_is_exact_at_zero_and_one_near_it);
    tcase_add_test(tcase, exp_overflows_at_the_right_float);
    tcase_add_test(tcase, exp_underflows_through_the_subnormals_to_zero);
    tcase_add_test(tcase, exp_never_falls_near_its_ends_and_near_the_changes_of_n);
    tcase_add_test(tcase, exp_of_infinities_and_nan);
    tcase_add_test(tcase, sigmoid_and_silu_stay_within_their_bounds);
    tcase_add_test(tcase, sigmoid_and_silu_at_their_special_points);
    tcase_add_test(tcase, the_bits_of_a_hundred_thousand_results_are_pinned);
    suite_add_tcase(suite, tcase);
    return suite;
}
