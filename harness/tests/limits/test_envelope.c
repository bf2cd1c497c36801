/* test_envelope.c - limits from reference spreads, the floor under them, and headroom; nothing that is not a number may
 * pass. */
#include "limits/bounds.h"
#include "support/compare_case.h"
#include "limits/envelope.h"

#include <math.h>
#include <string.h>

/* A stage whose floor is one rounding. */
static const dp_stage_spec sums = {.name = "layers.0.mlp.up", .stage = DFLASH_STAGE_MLP_UP, .rank = 2, .dim = {5, 64}};

START_TEST(the_bar_is_the_bracket_times_its_factor) {
    const dp_difference reference_spread = {.count = 4, .l2_rel = 1e-5, .max_rel = 3e-5, .largest_in_row = 2};
    const dp_limit limit = dp_limit_chained(&sums, &reference_spread, 1.0);
    ck_assert_double_eq(limit.l2_rel, 4e-5);
    ck_assert_double_eq(limit.max_rel, 8 * 3e-5);
    ck_assert_double_eq(limit.reference_spread_l2_rel, 1e-5);
    ck_assert_double_eq(limit.reference_spread_max_rel, 3e-5);
    ck_assert_str_eq(limit.origin, "4 x the reference's float32 spread (L2), 8 x the reference's float32 spread (max)");
}
END_TEST

START_TEST(an_exact_reference_leaves_room_for_one_rounding) {
    /* One rounding is 2^-24 of the value; the largest value of a row is 3 times its rms here. */
    const dp_difference reference_spread = {.count = 4, .largest_in_row = 3};
    const dp_limit limit = dp_limit_chained(&sums, &reference_spread, 1.0);
    ck_assert_double_eq(limit.l2_rel, 4 * 0x1p-24);
    ck_assert_double_eq(limit.max_rel, 8 * 3 * 0x1p-24);
    ck_assert_double_eq(limit.reference_spread_l2_rel, 0.0);
    ck_assert_str_eq(limit.origin,
                     "4 x one float32 rounding of the result (L2), 8 x one float32 rounding of the result (max)");
}
END_TEST

/* A row shares the error of its root, so that a norm of one row has one draw of it. */
START_TEST(a_norm_has_room_for_what_a_norm_rounds) {
    const dp_difference reference_spread = {.count = 4, .l2_rel = 0x1p-25, .max_rel = 0x1p-25, .largest_in_row = 3};
    const dp_stage_spec many = {
        .name = "layers.1.attn.norm", .layer = 1, .stage = DFLASH_STAGE_ATTN_NORM, .rank = 2, .dim = {64, 64}};
    dp_stage_spec one = many, first = many;
    first.layer = 0; /* the block's first token, and 63 that are equal */
    one.dim[0] = 1;
    const dp_limit limit = dp_limit_chained(&many, &reference_spread, 1.0),
                   alone = dp_limit_chained(&one, &reference_spread, 1.0);
    /* 64 squares in a chain: 64/9; the quotient 1/3 and the sum with eps 1/2; of these a quarter. Root, inverse and two
     * products, 1/3 each. */
    const double cost = 0x1p-24 * sqrt((64.0 / 9.0 + 5.0 / 6.0) / 4.0 + 4.0 / 3.0);
    ck_assert_double_eq_tol(limit.floor_l2_rel, cost, 1e-12 * cost);
    ck_assert_double_eq_tol(limit.l2_rel, 4 * cost, 1e-12 * cost);
    ck_assert_double_eq_tol(limit.floor_max_rel, 3 * cost * fmax(1.0, dp_peak_limit(64) / 8), 1e-12 * cost);
    ck_assert_str_eq(limit.origin, "4 x what its own operations round (L2), 8 x what its own operations round (max)");
    ck_assert_double_eq_tol(alone.l2_rel, dp_noise_limit(1) * cost, 1e-12 * cost); /* one draw */
    ck_assert(alone.l2_rel > 1.5 * limit.l2_rel);
    ck_assert_double_eq_tol(dp_limit_chained(&first, &reference_spread, 1.0).l2_rel, dp_noise_limit(2) * cost,
                            1e-12 * cost);
    dp_stage_spec confidence = {.name = "confidence.raw", .stage = DFLASH_STAGE_CONFIDENCE_RAW, .rank = 1, .dim = {1}};
    const double one_slot = dp_own_floor(&confidence, 1.0).l2;
    confidence.dim[0] = 64;
    ck_assert(one_slot > 1.5 * dp_own_floor(&confidence, 1.0).l2);
    ck_assert_double_eq(dp_own_floor(&sums, 1.0).l2, 0x1p-24); /* many draws: no more than a rounding */
}
END_TEST

START_TEST(each_measure_says_what_its_own_bar_rests_on) {
    const dp_difference reference_spread = {.count = 4, .l2_rel = 1e-9, .max_rel = 1e-5, .largest_in_row = 3};
    const dp_limit limit = dp_limit_chained(&sums, &reference_spread, 1.0);
    ck_assert_double_eq(limit.l2_rel, 4 * 0x1p-24);
    ck_assert_double_eq(limit.max_rel, 8e-5);
    ck_assert_str_eq(limit.origin,
                     "4 x one float32 rounding of the result (L2), 8 x the reference's float32 spread (max)");
}
END_TEST

START_TEST(a_coarser_class_has_bars_as_much_wider_as_its_roundings) {
    const dp_difference reference_spread = {.count = 4, .l2_rel = 1e-6, .max_rel = 3e-6, .largest_in_row = 2};
    ck_assert_double_eq(dp_class_coarseness(DFLASH_CLASS_EXACT), 1.0);
    ck_assert_double_eq(dp_class_coarseness(DFLASH_CLASS_CUBLAS), 1.0);
    ck_assert_double_eq(dp_class_coarseness(DFLASH_CLASS_FAST), 128.0); /* 2^-17 of an activation's pair over 2^-24 */
    const dp_limit limit = dp_limit_chained(&sums, &reference_spread, 64.0);
    ck_assert_double_eq_tol(limit.l2_rel, 64 * 4e-6, 1e-18);
    ck_assert_double_eq_tol(limit.max_rel, 64 * 24e-6, 1e-18);
    ck_assert_str_eq(limit.origin,
                     "4 x 64 (class) x the reference's float32 spread (L2), 8 x 64 (class) x the reference's "
                     "float32 spread (max)");
}
END_TEST

START_TEST(headroom_is_the_share_of_the_tighter_measure) {
    const dp_limit limit = {.l2_rel = 1e-6, .max_rel = 1e-5};
    const dp_difference half = {.count = 1, .l2_rel = 5e-7, .max_rel = 1e-6};
    const dp_difference most = {.count = 1, .l2_rel = 1e-7, .max_rel = 9e-6};
    const dp_difference none = {.count = 1};
    ck_assert_double_eq_tol(dp_headroom(&limit, &half), 0.5, 1e-12);
    ck_assert_double_eq_tol(dp_headroom(&limit, &most), 0.1, 1e-12);
    ck_assert_double_eq(dp_headroom(&limit, &none), 1.0);
    ck_assert(dp_headroom(&limit, &most) < DP_WARN_HEADROOM && dp_headroom(&limit, &half) > DP_WARN_HEADROOM);
}
END_TEST

START_TEST(at_the_bar_nothing_is_left_and_beyond_it_headroom_is_negative) {
    const dp_limit limit = {.l2_rel = 1e-6, .max_rel = 1e-5};
    const dp_difference at = {.count = 1, .l2_rel = 1e-6, .max_rel = 1e-5};
    const dp_difference l2 = {.count = 1, .l2_rel = 3e-6}, max = {.count = 1, .max_rel = 2e-5};
    ck_assert_double_eq(dp_headroom(&limit, &at), 0.0);
    ck_assert_double_eq_tol(dp_headroom(&limit, &l2), -2.0, 1e-12);
    ck_assert_double_eq_tol(dp_headroom(&limit, &max), -1.0, 1e-12);
}
END_TEST

START_TEST(a_single_nan_leaves_nothing_however_wide_the_bar) {
    const dp_limit limit = {.l2_rel = 1e6, .max_rel = 1e6};
    const dp_difference nan = {.count = 1000, .nonfinite = 1};
    ck_assert(dp_headroom(&limit, &nan) == -INFINITY);
}
END_TEST

START_TEST(a_measure_that_is_no_number_leaves_nothing) {
    /* From squares that overflow: a float64 reference may hold 1e200. */
    double huge[] = {1e200, -1e200};
    const double got[] = {1, 2};
    const dp_array array = compare_array(huge, 1, 2);
    const dp_difference overflowed = compare_run(got, &array, 2);
    const dp_limit limit = {.l2_rel = 1, .max_rel = 1};
    ck_assert(isnan(overflowed.l2_rel));
    ck_assert(dp_headroom(&limit, &overflowed) == -INFINITY);
    const dp_difference infinite = {.count = 1, .max_rel = INFINITY};
    ck_assert(dp_headroom(&limit, &infinite) == -INFINITY);
}
END_TEST

START_TEST(an_infinite_bar_lets_no_error_through) {
    /* A zero row in the truth that the reference's float32 run does not meet makes an infinite reference spread. */
    double want[] = {0, 0, 1, 1};
    const double reference[] = {1e-9, 0, 1, 1}, got[] = {0.5, 0, 1, 1};
    const dp_array array = compare_array(want, 2, 2);
    const dp_difference reference_spread = compare_run(reference, &array, 2), wrong = compare_run(got, &array, 2);
    const dp_difference right = compare_run(want, &array, 2);
    const dp_limit limit = dp_limit_chained(&sums, &reference_spread, 1.0);
    ck_assert(isinf(limit.max_rel));
    ck_assert(dp_headroom(&limit, &wrong) == -INFINITY);
    ck_assert_double_eq(dp_headroom(&limit, &right), 1.0);
    const dp_difference small = {.count = 4, .l2_rel = 1e-12, .max_rel = 1e-12};
    ck_assert(dp_headroom(&limit, &small) == -INFINITY);
}
END_TEST

START_TEST(a_stage_of_zeros_passes_only_as_zeros) {
    double zero[] = {0, 0, 0, 0};
    const double tiny[] = {0, 0, 0, 1e-38};
    const dp_array array = compare_array(zero, 2, 2);
    const dp_difference reference_spread = compare_run(zero, &array, 2), off = compare_run(tiny, &array, 2);
    const dp_limit limit = dp_limit_chained(&sums, &reference_spread, 1.0);
    ck_assert_double_eq(dp_headroom(&limit, &reference_spread), 1.0);
    ck_assert(dp_headroom(&limit, &off) == -INFINITY);
}
END_TEST

START_TEST(every_number_has_a_name_a_reason_and_a_source) {
    for (int i = 0; i < DP_RULE_COUNT; i++) {
        const dp_rule *rule = dp_rule_of((dp_rule_id)i);
        ck_assert_msg(rule->name != NULL && rule->why != NULL && rule->source != NULL, "rule %d", i);
        ck_assert_msg(strlen(rule->why) > 60 && strlen(rule->source) > 10, "%s has no reason", rule->name);
        ck_assert_msg(strchr(rule->why, ' ') != NULL && strchr(rule->why, '.') != NULL, "%s has no reason", rule->name);
    }
    ck_assert(DP_WARN_HEADROOM > dp_rule_value(DP_RULE_FAIL));
}
END_TEST

void compare_add_envelope(Suite *suite) {
    TCase *tests = tcase_create("envelope");
    tcase_add_test(tests, the_bar_is_the_bracket_times_its_factor);
    tcase_add_test(tests, an_exact_reference_leaves_room_for_one_rounding);
    tcase_add_test(tests, a_norm_has_room_for_what_a_norm_rounds);
    tcase_add_test(tests, each_measure_says_what_its_own_bar_rests_on);
    tcase_add_test(tests, a_coarser_class_has_bars_as_much_wider_as_its_roundings);
    tcase_add_test(tests, headroom_is_the_share_of_the_tighter_measure);
    tcase_add_test(tests, at_the_bar_nothing_is_left_and_beyond_it_headroom_is_negative);
    tcase_add_test(tests, a_single_nan_leaves_nothing_however_wide_the_bar);
    tcase_add_test(tests, a_measure_that_is_no_number_leaves_nothing);
    tcase_add_test(tests, an_infinite_bar_lets_no_error_through);
    tcase_add_test(tests, a_stage_of_zeros_passes_only_as_zeros);
    tcase_add_test(tests, every_number_has_a_name_a_reason_and_a_source);
    suite_add_tcase(suite, tests);
}
