/*
 * test_compare.c - every measure of dp_compare against values worked out by hand, and the bits that
 * dp_first_bit_difference tells apart. Limits and headroom are test_envelope.c's.
 */
#include "support/compare_case.h"
#include "common/dtype.h"
#include "judge/rounds.h"
#include "store/stage_set.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

dp_array compare_array(double *value, int64_t rows, int64_t columns) {
    return (dp_array){.rank = 2,
                      .dim = {rows, columns},
                      .total = rows * columns,
                      .stride = 1,
                      .count = rows * columns,
                      .value = value};
}

dp_difference compare_run(const double *got, const dp_array *want, int64_t row_length) {
    dp_difference difference;
    dflash_error err;
    ck_assert_int_eq(dp_compare(got, want, row_length, &difference, &err), DFLASH_OK);
    return difference;
}

static void near(double found, double expected) {
    ck_assert_msg(fabs(found - expected) <= 4 * DBL_EPSILON * fabs(expected), "%.17g is not %.17g", found, expected);
}

START_TEST(equal_tensors_differ_by_nothing) {
    double want[] = {1, -2, 0, 4};
    const dp_array array = compare_array(want, 2, 2);
    const dp_difference d = compare_run(want, &array, 2);
    ck_assert_int_eq(d.count, 4);
    ck_assert(d.max_abs == 0.0 && d.max_rel == 0.0 && d.l2_rel == 0.0 && d.ulp_max == 0.0 && d.ulp_median == 0.0);
    near(d.cosine, 1.0);
    ck_assert_int_eq(d.nonfinite, 0);
    ck_assert_int_eq(d.sign_flips, 0);
    ck_assert_int_eq(d.worst, 0); /* a place is named even where all are equally good */
}
END_TEST

START_TEST(each_measure_has_the_value_that_a_hand_gives) {
    /* rows (3, 4) of rms sqrt(12.5) and (1, 1) of rms 1; errors 0, 0.5, 0, 0.25 */
    double want[] = {3, 4, 1, 1};
    const double got[] = {3, 4.5, 1, 0.75};
    const dp_array array = compare_array(want, 2, 2);
    const dp_difference d = compare_run(got, &array, 2);
    near(d.max_abs, 0.5);
    near(d.max_rel, 0.25); /* against 0.5 / 3.54 in the first row */
    near(d.l2_rel, sqrt(0.25 + 0.0625) / sqrt(27.0));
    near(d.cosine, (9 + 18 + 1 + 0.75) / sqrt(27.0) / sqrt(9 + 20.25 + 1 + 0.5625));
    near(d.largest_in_row, 4 / sqrt(12.5));
    ck_assert_int_eq(d.worst, 3);
    ck_assert(d.worst_got == 0.75 && d.worst_want == 1.0);
}
END_TEST

START_TEST(a_rows_scale_is_its_own) {
    /* The same absolute error weighs a thousand times more in a row that is a thousand times smaller. */
    double want[] = {1000, 1000, 1, 1};
    const double got[] = {1000.5, 1000, 1, 1.001};
    const dp_array array = compare_array(want, 2, 2);
    const dp_difference by_row = compare_run(got, &array, 2), as_one = compare_run(got, &array, 4);
    ck_assert_int_eq(by_row.worst, 3);
    ck_assert(fabs(by_row.max_rel - 1e-3) < 1e-12);
    ck_assert_int_eq(as_one.worst, 0);
    near(as_one.max_rel, 0.5 / sqrt((2e6 + 2) / 4));
}
END_TEST

START_TEST(a_row_is_a_token_and_every_frequency_is_a_row) {
    const int64_t dim[] = {3, 24, 2, 16};
    ck_assert_int_eq(dp_row_length(DFLASH_STAGE_KV_K, 4, dim), 32);
    ck_assert_int_eq(dp_row_length(DFLASH_STAGE_KV_V, 4, dim), 32);
    ck_assert_int_eq(dp_row_length(DFLASH_STAGE_ATTN_Q_NORM, 3, (const int64_t[]){5, 6, 16}), 96);
    ck_assert_int_eq(dp_row_length(DFLASH_STAGE_FINAL, 2, (const int64_t[]){5, 96}), 96);
    ck_assert_int_eq(dp_row_length(DFLASH_STAGE_ROPE_INV_FREQ, 1, (const int64_t[]){8}), 1);
    double want[] = {1, 1e-8};
    const double got[] = {1, 1.5e-8};
    const dp_array array = compare_array(want, 1, 2);
    near(compare_run(got, &array, 1).max_rel, 0.5);
    ck_assert(compare_run(got, &array, 2).max_rel < 1e-8);
}
END_TEST

START_TEST(a_sampled_tensor_is_measured_where_it_is_stored) {
    /* Elements 1, 4, 7 of a [3, 4] tensor: one in row 0, two in row 1. */
    float full[12];
    for (int i = 0; i < 12; i++) full[i] = (float)i;
    double want[] = {1, 4, 8};
    const dp_array array = {.rank = 2, .dim = {3, 4}, .total = 12, .stride = 3, .offset = 1, .count = 3, .value = want};
    double *got = NULL;
    dflash_error err;
    ck_assert_int_eq(dp_gather(full, &array, &got, &err), DFLASH_OK);
    ck_assert(got[0] == 1.0 && got[1] == 4.0 && got[2] == 7.0);
    const dp_difference d = compare_run(got, &array, 4);
    ck_assert_int_eq(d.count, 3);
    ck_assert_int_eq(d.worst, 7); /* in the full tensor */
    near(d.max_rel, 1 / sqrt((16.0 + 64.0) / 2));
    near(d.l2_rel, 1 / sqrt(1.0 + 16.0 + 64.0));
    free(got);
}
END_TEST

START_TEST(a_row_has_a_value_of_its_rms_where_samples_miss_it) {
    double want[] = {0.25}, rms[] = {2};
    const double got[] = {0.5};
    dp_array array = {
        .rank = 2, .dim = {1, 4}, .total = 4, .stride = 4, .offset = 1, .count = 1, .value = want, .rms = rms};
    const dp_difference small = compare_run(got, &array, 4);
    near(small.max_rel, 0.125);
    near(small.largest_in_row, 1.0);
    want[0] = 6;
    near(compare_run(got, &array, 4).largest_in_row, 3.0);
}
END_TEST

START_TEST(a_sample_may_end_exactly_on_the_last_element) {
    float full[10];
    for (int i = 0; i < 10; i++) full[i] = (float)(i * i);
    double want[] = {4, 25, 64};
    const dp_array array = {.rank = 1, .dim = {10}, .total = 10, .stride = 3, .offset = 2, .count = 3, .value = want};
    double *got = NULL;
    dflash_error err;
    ck_assert_int_eq(dp_gather(full, &array, &got, &err), DFLASH_OK);
    ck_assert(compare_run(got, &array, 10).max_abs == 0.0);
    free(got);
}
END_TEST

START_TEST(nan_and_infinity_are_counted_and_the_first_is_named) {
    double want[] = {1, 2, 3, 4};
    const double got[] = {1.5, NAN, -INFINITY, 4};
    const dp_array array = compare_array(want, 2, 2);
    const dp_difference d = compare_run(got, &array, 2);
    ck_assert_int_eq(d.nonfinite, 2);
    ck_assert(d.nan == 1 && d.inf == 1);
    ck_assert_int_eq(d.worst, 1);
    ck_assert(isnan(d.worst_got) && d.worst_want == 2.0);
    near(d.max_abs, 0.5); /* of the others */
    ck_assert_int_eq(d.count, 4);
}
END_TEST

START_TEST(a_tensor_of_nan_alone_still_counts_every_one) {
    double want[] = {1, 2};
    const double got[] = {NAN, NAN};
    const dp_array array = compare_array(want, 1, 2);
    const dp_difference d = compare_run(got, &array, 2);
    ck_assert_int_eq(d.nonfinite, 2);
    ck_assert(d.nan == 2 && d.inf == 0);
    ck_assert_int_eq(d.worst, 0);
    ck_assert(d.ulp_max == 0.0);
}
END_TEST

START_TEST(a_zero_row_admits_no_error) {
    double want[] = {0, 0, 1, 1};
    const double same[] = {0, -0.0, 1, 1}, off[] = {0, 1e-30, 1, 1};
    const dp_array array = compare_array(want, 2, 2);
    const dp_difference equal = compare_run(same, &array, 2), wrong = compare_run(off, &array, 2);
    ck_assert(equal.max_rel == 0.0 && equal.sign_flips == 0);
    ck_assert(isinf(wrong.max_rel) && wrong.max_rel > 0);
    ck_assert_int_eq(wrong.worst, 1);
    ck_assert(isfinite(wrong.l2_rel));
}
END_TEST

START_TEST(the_cosine_of_zero_vectors_is_defined) {
    double zero[] = {0, 0}, one[] = {1, 0};
    const double turned[] = {0, 1}, back[] = {-2, 0};
    const dp_array nothing = compare_array(zero, 1, 2), something = compare_array(one, 1, 2);
    ck_assert(compare_run(zero, &nothing, 2).cosine == 1.0);
    ck_assert(compare_run(zero, &something, 2).cosine == 0.0);
    ck_assert(compare_run(one, &nothing, 2).cosine == 0.0);
    ck_assert(compare_run(turned, &something, 2).cosine == 0.0);
    near(compare_run(back, &something, 2).cosine, -1.0);
}
END_TEST

START_TEST(sign_flips_need_two_nonzero_values) {
    double want[] = {1, -1, 0, 2, -0.0};
    const double got[] = {-1, 1, -3, 0, 0.0};
    const dp_array array = compare_array(want, 1, 5);
    ck_assert_int_eq(compare_run(got, &array, 5).sign_flips, 2);
}
END_TEST

START_TEST(ulps_are_those_of_float32_at_the_reference) {
    /* The spacing is 2^-23 in [1, 2), 2^-22 in [2, 4), and 2^-24 just under 1. */
    double want[] = {1, 2, 0x1.fffffep-1};
    const double got[] = {1 + 0x1p-23, 2 + 0x1p-23, 0x1.fffffep-1 + 0x1p-23};
    const dp_array array = compare_array(want, 1, 3);
    const dp_difference d = compare_run(got, &array, 3);
    near(d.ulp_max, 2.0);
    near(d.ulp_median, 1.0);
    const dp_array first = compare_array(want, 1, 1), second = compare_array(want + 1, 1, 1);
    near(compare_run(got, &first, 1).ulp_max, 1.0);
    near(compare_run(got + 1, &second, 1).ulp_max, 0.5);
}
END_TEST

START_TEST(below_the_normal_range_the_ulp_is_the_subnormal_spacing) {
    double want[] = {0, 0x1p-149, 0x1p-130, 0x1p-126, 0x1p-125};
    for (int i = 0; i < 5; i++) {
        const double got = want[i] + 0x1p-149;
        const dp_array array = compare_array(&want[i], 1, 1);
        near(compare_run(&got, &array, 1).ulp_max, i == 4 ? 0.5 : 1.0);
    }
}
END_TEST

START_TEST(ulp_percentiles_are_ranks_of_the_sorted_errors) {
    double want[200], got[200];
    for (int i = 0; i < 200; i++) {
        want[i] = 1.0;
        got[i] = 1.0 + 0x1p-23 * ((i * 77) % 200); /* 0..199 in another order */
    }
    const dp_array array = compare_array(want, 1, 200);
    const dp_difference d = compare_run(got, &array, 200);
    near(d.ulp_median, 100);
    near(d.ulp_p99, 197); /* floor(199 * 0.99) */
    near(d.ulp_max, 199);
}
END_TEST

START_TEST(rank_four_rows_are_one_token_of_one_layer) {
    /* [2 layers, 2 tokens, 1 head, 2]: the last token of the second layer is tiny, and so is its error. */
    double want[] = {9, 9, 9, 9, 9, 9, 1e-3, 1e-3};
    const double got[] = {9, 9, 9, 9, 9, 9.001, 1.5e-3, 1e-3};
    const int64_t dim[] = {2, 2, 1, 2};
    const dp_array array = {.rank = 4, .dim = {2, 2, 1, 2}, .total = 8, .stride = 1, .count = 8, .value = want};
    const dp_difference d = compare_run(got, &array, dp_row_length(DFLASH_STAGE_KV_K, 4, dim));
    ck_assert_int_eq(d.worst, 6);
    ck_assert(fabs(d.max_rel - 0.5) < 1e-9);
}
END_TEST

START_TEST(bits_are_compared_not_values) {
    const float zero[] = {1, 0.0f}, minus[] = {1, -0.0f};
    const float quiet[] = {2, df_bits_to_f32(0x7fc00000u)}, other[] = {2, df_bits_to_f32(0x7fc00001u)};
    ck_assert_int_eq(dp_first_bit_difference(zero, zero, 2), -1);
    ck_assert_int_eq(dp_first_bit_difference(zero, minus, 2), 1);
    ck_assert_int_eq(dp_first_bit_difference(quiet, quiet, 2), -1); /* one NaN equals itself */
    ck_assert_int_eq(dp_first_bit_difference(quiet, other, 2), 1);
    ck_assert_int_eq(dp_first_bit_difference(zero, quiet, 2), 0);
    ck_assert_int_eq(dp_first_bit_difference(zero, minus, 1), -1); /* as far as asked and no further */
    ck_assert_int_eq(dp_first_bit_difference(zero, minus, 0), -1);
}
END_TEST

Suite *suite_compare(void) {
    Suite *suite = suite_create("compare");
    TCase *tests = tcase_create("difference");
    tcase_add_test(tests, equal_tensors_differ_by_nothing);
    tcase_add_test(tests, each_measure_has_the_value_that_a_hand_gives);
    tcase_add_test(tests, a_rows_scale_is_its_own);
    tcase_add_test(tests, a_row_is_a_token_and_every_frequency_is_a_row);
    tcase_add_test(tests, a_sampled_tensor_is_measured_where_it_is_stored);
    tcase_add_test(tests, a_row_has_a_value_of_its_rms_where_samples_miss_it);
    tcase_add_test(tests, a_sample_may_end_exactly_on_the_last_element);
    tcase_add_test(tests, nan_and_infinity_are_counted_and_the_first_is_named);
    tcase_add_test(tests, a_tensor_of_nan_alone_still_counts_every_one);
    tcase_add_test(tests, a_zero_row_admits_no_error);
    tcase_add_test(tests, the_cosine_of_zero_vectors_is_defined);
    tcase_add_test(tests, sign_flips_need_two_nonzero_values);
    tcase_add_test(tests, ulps_are_those_of_float32_at_the_reference);
    tcase_add_test(tests, below_the_normal_range_the_ulp_is_the_subnormal_spacing);
    tcase_add_test(tests, ulp_percentiles_are_ranks_of_the_sorted_errors);
    tcase_add_test(tests, rank_four_rows_are_one_token_of_one_layer);
    tcase_add_test(tests, bits_are_compared_not_values);
    suite_add_tcase(suite, tests);
    compare_add_envelope(suite);
    return suite;
}
