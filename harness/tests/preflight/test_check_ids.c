/*
 * test_check_ids.c - the gate on integers: ids that differ, that the reference contradicts itself about, and those that
 * no table has a row for, which nothing may be read by.
 */
#include "support/check_case.h"
#include "formulas/evaluate_parts.h"
#include "support/recording_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *object_of(dp_run run, const char *stage, char out[96]) {
    snprintf(out, 96, "/stages/%s/%s", dp_run_name(run), stage);
    return out;
}

static void put(dp_run run, const char *stage, int64_t index, double id) {
    char object[96];
    scratch_change_value(object_of(run, stage, object), index, 0.0, id);
}

/* ---- Ids that differ ---- */

static const struct {
    const char *fixture, *stage;
    int64_t index;
} ids[] = {
    {"tiny-dflash2", "select.path", 3},
    {"tiny-dflash2", "select.topk_ids", 31},
    {"tiny-dflash2-k3", "select.path", 0},
    {"tiny-dspark", "markov.tokens", 4},
    {"tiny-dspark-rnn", "markov.tokens", 0},
    {"tiny-dspark", "confidence.window", 0},
    {"tiny-dspark-gated", "confidence.window", 0},
};
enum { IDS = sizeof ids / sizeof *ids };

START_TEST(one_id_that_differs_fails_that_stage_alone) {
    char object[96];
    dp_result result;
    scratch_copy_case(ids[_i].fixture);
    for (int run = DP_RUN_F64; run <= DP_RUN_F32; run++) {
        snprintf(object, sizeof object, "/stages/%s/%s", dp_run_name((dp_run)run), ids[_i].stage);
        scratch_change_value(object, ids[_i].index, 1.0, -1.0);
    }
    scratch_check(NULL, &result);
    ck_assert_int_eq(result.verdict, DP_FAIL);
    ck_assert_int_eq(dp_verdict_exit_code(result.verdict), 1);
    ck_assert_int_eq(result.stage_count, result.stages_known);
    ck_assert_int_eq(result.failed_stages, 1);
    ck_assert_int_eq(result.failed_variants, 0);
    const dp_stage_result *worst = dp_worst_stage(&result);
    ck_assert_str_eq(worst->name, ids[_i].stage);
    ck_assert(worst->exact && !worst->pass);
    ck_assert_int_eq(worst->difference.mismatches, 1);
    ck_assert_int_eq(worst->difference.worst, ids[_i].index);
    ck_assert(fabs(worst->difference.worst_got - worst->difference.worst_want - 1.0) < 1e-9);
    dp_result_release(&result);
    scratch_check(ids[_i].stage, &result); /* and asked for alone, it still fails */
    ck_assert_int_eq(result.verdict, DP_FAIL);
    ck_assert_int_eq(result.stage_count, 1);
    dp_result_release(&result);
}
END_TEST

START_TEST(integers_on_which_the_reference_contradicts_itself_are_refused) {
    char object[96];
    scratch_copy_case(ids[_i].fixture);
    snprintf(object, sizeof object, "/stages/float32/%s", ids[_i].stage);
    scratch_change_value(object, ids[_i].index, 1.0, -1.0);
    scratch_expect_stop(DP_REFUSED, "oracle.integers", ids[_i].stage, "float32", NULL);
}
END_TEST

/* ---- Ids that no table has ---- */

static const struct {
    const char *fixture, *stage;
    int64_t index;
    double id;
    const char *found, *allowed;
} outside[] = {
    {"tiny-dspark", "markov.tokens", 0, 2e9, "2000000000", "0 to 319"},
    {"tiny-dspark", "markov.tokens", 1, 320, "320", "0 to 319"},
    {"tiny-dspark", "markov.tokens", 2, -1, "-1", "0 to 319"},
    {"tiny-dspark-gated", "markov.tokens", 0, 2e9, "2000000000", "0 to 319"},
    {"tiny-dspark-rnn", "markov.tokens", 3, -2147483648.0, "-2147483648", "0 to 319"},
    {"tiny-dflash2", "select.path", 0, 2e9, "2000000000", "0 to 319"},
    {"tiny-dflash2", "select.path", 2, -7, "-7", "0 to 319"},
    {"tiny-dflash2", "select.topk_ids", 5, 2e9, "2000000000", "0 to 319"},
    {"tiny-dflash2-k3", "select.topk_ids", 0, -1, "-1", "0 to 3"},
    {"tiny-dspark", "confidence.window", 0, 1, " 1:", "2 to "},
    {"tiny-dspark-gated", "confidence.window", 0, 2e9, "2000000000", "2 to "},
};
enum { OUTSIDE = sizeof outside / sizeof *outside };

START_TEST(an_integer_out_of_its_range_is_refused_in_every_run_and_in_each) {
    scratch_copy_case(outside[_i].fixture);
    for (int run = 0; run < DP_RUN_COUNT; run++) put((dp_run)run, outside[_i].stage, outside[_i].index, outside[_i].id);
    scratch_expect_stop(DP_REFUSED, "oracle.ids.range", outside[_i].stage, outside[_i].found, outside[_i].allowed);
    for (int run = 0; run < DP_RUN_COUNT; run++) {
        scratch_copy_case(outside[_i].fixture);
        put((dp_run)run, outside[_i].stage, outside[_i].index, outside[_i].id);
        scratch_expect_stop(DP_REFUSED, "oracle.ids.range", outside[_i].stage, dp_run_name((dp_run)run),
                            outside[_i].allowed);
    }
}
END_TEST

START_TEST(a_window_of_the_whole_block_is_allowed_and_no_larger_one) {
    dp_result result;
    for (int more = 0; more <= 1; more++) {
        scratch_copy_case("tiny-dspark"); /* a block of 5 */
        for (int run = 0; run < DP_RUN_COUNT; run++) put((dp_run)run, "confidence.window", 0, 5.0 + 1 + more);
        scratch_check(NULL, &result);
        ck_assert_int_eq(result.verdict, more == 0 ? DP_PASS : DP_REFUSED);
        if (more == 1) ck_assert_str_eq(result.error.code, "oracle.ids.range");
        dp_result_release(&result);
    }
}
END_TEST

START_TEST(an_anchor_outside_the_vocabulary_is_refused) {
    static const char *const headed[] = {"tiny-dflash2", "tiny-dspark"};
    static const double wrong[] = {320, -1, 1e6, 2e9};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char id[32];
        scratch_copy_case(headed[_i]);
        scratch_change_value("/inputs/anchor", 0, 0.0, wrong[i]);
        snprintf(id, sizeof id, "%d", (int)wrong[i]);
        scratch_expect_stop(DP_REFUSED, "oracle.ids.range", id, "319", "anchor");
    }
}
END_TEST

START_TEST(ids_outside_the_selectors_own_vocabulary_are_refused) {
    scratch_copy_case("tiny-dflash2"); /* the anchor is 184, and the first slot's candidates reach 304 */
    scratch_edit_config("selector_vocab_size", "300");
    scratch_edit_record("geometry", "selector_vocab_size", "300");
    scratch_expect_stop(DP_REFUSED, "oracle.ids.range", "304", "0 to 299", "select.topk_ids");
    scratch_edit_config("selector_vocab_size", "184");
    scratch_edit_record("geometry", "selector_vocab_size", "184");
    scratch_expect_stop(DP_REFUSED, "oracle.ids.range", "184", "0 to 183", "anchor");
}
END_TEST

/* ---- Candidates ---- */

START_TEST(candidates_that_are_no_order_of_different_ones_are_refused) {
    for (int run = 0; run < DP_RUN_COUNT; run++) {
        char object[96];
        int64_t count;
        scratch_copy_case("tiny-dflash2");
        double *id = scratch_values(object_of((dp_run)run, "select.topk_ids", object), &count);
        put((dp_run)run, "select.topk_ids", 3, id[1]); /* of one slot, twice */
        scratch_expect_stop(DP_REFUSED, "oracle.ids.order", "again", dp_run_name((dp_run)run), "slot 0");
        free(id);
        scratch_copy_case("tiny-dflash2");
        double *value = scratch_values(object_of((dp_run)run, "select.topk_values", object), &count);
        const double most = value[0];
        value[0] = value[2]; /* the values of two candidates, exchanged */
        value[2] = most;
        scratch_set_values(object, value);
        free(value);
        scratch_expect_stop(DP_REFUSED, "oracle.ids.order", "of a larger value", dp_run_name((dp_run)run), "slot 0");
    }
}
END_TEST

START_TEST(candidates_of_one_value_stand_by_their_ids) {
    char object[96];
    int64_t count;
    scratch_copy_case("tiny-dflash2");
    double *id = scratch_values(object_of(DP_RUN_F64, "select.topk_ids", object), &count);
    int64_t at = 0; /* neighbours of a slot, the higher id first: equal values would have them the other way round */
    while (at + 1 < count && !(at % 4 < 3 && id[at] > id[at + 1])) at++;
    ck_assert_int_lt(at + 1, count);
    free(id);
    double *value = scratch_values(object_of(DP_RUN_F64, "select.topk_values", object), &count);
    value[at + 1] = value[at];
    scratch_set_values(object, value);
    free(value);
    scratch_expect_stop(DP_REFUSED, "oracle.ids.order", "of the same value", "float64", NULL);
}
END_TEST

/* ---- Files that are compared ---- */

START_TEST(a_doctored_oracle_compares_with_nothing) {
    char spoilt[SCRATCH_PATH], good[SCRATCH_PATH];
    dp_file_comparison c;
    scratch_copy_case("tiny-dspark");
    scratch_copy("oracles/tiny-dspark.h5", "good.h5");
    put(DP_RUN_BF16, "markov.tokens", 0, 2e9);
    scratch_path("oracle.h5", spoilt);
    scratch_path("good.h5", good);
    const dp_file_pair_options files[] = {
        {.a = spoilt, .b = good}, {.a = good, .b = spoilt}, {.a = good, .b = good, .limits = spoilt}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        dp_compare_files(&(dp_compare_options){.files = files[i]}, &c);
        ck_assert_int_eq(c.verdict, DP_REFUSED);
        ck_assert_str_eq(c.error.code, "oracle.ids.range");
        dp_file_comparison_release(&c);
    }
}
END_TEST

static void expect_id_fault(dp_stage_fault fault, const char *stage) {
    dp_file_comparison c;
    rc_compare(&(dp_compare_options){.filter = NULL}, &c);
    ck_assert_msg(c.verdict == DP_FAIL, "verdict %d %s", (int)c.verdict, c.error.message);
    const dp_file_stage *first = dp_first_divergent_file_stage(&c);
    ck_assert_str_eq(first->spec.name, stage);
    ck_assert_int_eq(first->fault, fault);
    dp_file_comparison_release(&c);
}

/* An engine's choice is what is judged: one that it cannot have made fails, also where both files have it. */
START_TEST(a_recording_of_ids_that_no_table_has_fails) {
    static const struct {
        const char *fixture, *stage;
        double id;
    } wrong[] = {{"tiny-dspark", "markov.tokens", 2e9},
                 {"tiny-dspark", "confidence.window", 1},
                 {"tiny-dflash2", "select.topk_ids", -1},
                 {"tiny-dflash2", "select.path", 320}};
    char object[96];
    rc_open(wrong[_i].fixture);
    snprintf(object, sizeof object, RC_STAGE "%s", wrong[_i].stage);
    scratch_change_value(object, 0, 0.0, wrong[_i].id);
    expect_id_fault(DP_FAULT_IDS_B, wrong[_i].stage);
    scratch_copy(sf_path, "a.h5");
    expect_id_fault(DP_FAULT_IDS_A, wrong[_i].stage);
}
END_TEST

START_TEST(a_recording_with_an_anchor_that_no_table_has_is_refused) {
    rc_open("tiny-dspark");
    scratch_change_value("/inputs/anchor", 0, 0.0, 2e9);
    scratch_copy(sf_path, "a.h5");
    rc_expect_refusal("oracle.ids.range", "anchor");
}
END_TEST

/* ---- The reader of rows ---- */

START_TEST(a_row_that_a_matrix_does_not_have_is_not_read) {
    enum { OUT = 3, IN = 32 };
    static const int64_t none[] = {-1, OUT, 2000000000, INT64_MAX, INT64_MIN};
    for (int dtype = DF_F32; dtype <= DF_Q4_0; dtype++) {
        const size_t row = df_row_bytes((df_dtype)dtype, IN);
        void *data = calloc(OUT, row); /* no byte more, so that a sanitizer sees what is read beyond */
        const df_matrix matrix = {.dtype = (df_dtype)dtype, .out = OUT, .in = IN, .data = data};
        double value[IN];
        for (int64_t i = 0; i < OUT; i++) ck_assert(dp_matrix_row(&matrix, i, value) && value[0] == 0.0);
        for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
            ck_assert(!dp_matrix_row(&matrix, none[i], value));
            for (int k = 0; k < IN; k++) ck_assert(isnan(value[k]));
        }
        free(data);
    }
}
END_TEST

void check_add_ids(Suite *suite) {
    TCase *tests = check_case("ids");
    tcase_add_loop_test(tests, one_id_that_differs_fails_that_stage_alone, 0, IDS);
    tcase_add_loop_test(tests, integers_on_which_the_reference_contradicts_itself_are_refused, 0, IDS);
    tcase_add_loop_test(tests, an_integer_out_of_its_range_is_refused_in_every_run_and_in_each, 0, OUTSIDE);
    tcase_add_test(tests, a_window_of_the_whole_block_is_allowed_and_no_larger_one);
    tcase_add_loop_test(tests, an_anchor_outside_the_vocabulary_is_refused, 0, 2);
    tcase_add_test(tests, ids_outside_the_selectors_own_vocabulary_are_refused);
    tcase_add_test(tests, candidates_that_are_no_order_of_different_ones_are_refused);
    tcase_add_test(tests, candidates_of_one_value_stand_by_their_ids);
    tcase_add_test(tests, a_doctored_oracle_compares_with_nothing);
    tcase_add_loop_test(tests, a_recording_of_ids_that_no_table_has_fails, 0, 4);
    tcase_add_test(tests, a_recording_with_an_anchor_that_no_table_has_is_refused);
    tcase_add_test(tests, a_row_that_a_matrix_does_not_have_is_not_read);
    suite_add_tcase(suite, tests);
}
