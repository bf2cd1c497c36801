/*
 * test_growth.c - added and inherited error, growth by layer and the sentence about them, on results that are made by
 * hand; and that the report of a real check shows them.
 */
#include "check/divergence.h"
#include "report/report.h"
#include "suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A result over `count` stages that pass chained with the given errors. */
static dp_result made(dp_stage_result *stage, const char *const *name, const double *chained, int count) {
    for (int i = 0; i < count; i++) {
        stage[i] = (dp_stage_result){.difference = {.count = 1, .l2_rel = chained[i]}, .headroom = 0.5, .pass = true};
        strcpy(stage[i].name, name[i]);
    }
    return (dp_result){.stage = stage, .stage_count = count};
}

/* The stage was run alone, with this error and this share of its bound; noise is half of what it may be. */
static void alone(dp_stage_result *stage, double added, double share) {
    stage->isolated = (dp_isolated){.judged = true,
                                    .pass = share <= 1.0,
                                    .difference = {.count = 1, .l2_rel = added},
                                    .share = share,
                                    .noise = 1.0,
                                    .noise_limit = 2.0,
                                    .peak = 1.0,
                                    .peak_limit = 5.0};
}

static void grow(dp_result *result) {
    dflash_error err;
    ck_assert_int_eq(dp_growth(result, &err), DFLASH_OK);
}

static const char *const three_layers[] = {"ctx.fc",       "layers.0.attn.context", "layers.0.out", "layers.1.mlp.down",
                                           "layers.1.out", "layers.2.attn.context", "layers.2.out", "final"};
enum { STAGES = sizeof three_layers / sizeof *three_layers };
static const double chained[STAGES] = {1e-7, 2e-7, 3e-7, 5e-7, 6e-7, 7e-7, 9e-7, 1e-6};

START_TEST(squares_of_added_and_inherited_error_make_the_chained_one) {
    dp_stage_result stage = {.difference = {.l2_rel = 5e-7}};
    ck_assert(!dp_share_of(&stage).known);
    alone(&stage, 3e-7, 0.5);
    const dp_share share = dp_share_of(&stage);
    ck_assert(share.known);
    ck_assert_double_eq_tol(share.inherited, 4e-7, 1e-20);
    ck_assert_double_eq(share.added, 3e-7);
    alone(&stage, 6e-7, 0.5); /* more than the chained error: nothing is left to be inherited */
    ck_assert_double_eq(dp_share_of(&stage).inherited, 0.0);
}
END_TEST

START_TEST(a_layers_factor_is_its_output_error_over_its_input_error) {
    dp_stage_result stage[STAGES];
    dp_result result = made(stage, three_layers, chained, STAGES);
    for (int i = 0; i < STAGES; i++) alone(&stage[i], 1e-8, 0.2);
    stage[3].isolated.noise = 1.5;
    grow(&result);
    ck_assert_int_eq(result.layer_count, 3);
    ck_assert_double_eq(result.layer[0].in, 0.0);
    ck_assert_double_eq(result.layer[0].factor, 0.0); /* the block's input is exact */
    ck_assert_double_eq_tol(result.layer[1].factor, 2.0, 1e-12);
    ck_assert_double_eq_tol(result.layer[2].factor, 1.5, 1e-12);
    ck_assert_double_eq_tol(dp_mean_growth(&result), sqrt(3.0), 1e-12);
    ck_assert_str_eq(result.layer[1].source, "layers.1.mlp.down");
    ck_assert_double_eq(result.layer[1].source_share, 0.75);
    ck_assert(stage[4].share.known);
    free(result.layer);
}
END_TEST

START_TEST(values_that_are_not_finite_leave_no_distance_to_share_or_to_grow) {
    dp_stage_result stage[STAGES];
    dp_result result = made(stage, three_layers, chained, STAGES);
    char text[DP_GROWTH_TEXT];
    for (int i = 0; i < STAGES; i++) alone(&stage[i], 1e-8, 0.2);
    stage[4].difference = (dp_difference){.count = 1, .nan = 1, .nonfinite = 1, .l2_rel = 0.0}; /* all that is left */
    stage[4].pass = false;
    grow(&result);
    ck_assert(stage[4].share.known && stage[4].share.added > 0.0 && isnan(stage[4].share.inherited));
    ck_assert_double_eq_tol(result.layer[1].in, 3e-7, 1e-20);
    ck_assert(isnan(result.layer[1].out) && isnan(result.layer[1].factor));
    ck_assert(isnan(result.layer[2].in) && isnan(result.layer[2].factor));
    ck_assert_str_eq(dp_growth_text(&result, text), "No stage adds more than its bound, yet the chained run leaves its "
                                                    "limits at layer 1 out; the output of layer 1 is not finite");
    stage[4].difference.nonfinite = 0;
    stage[4].isolated.difference.nonfinite = 1;
    ck_assert(isnan(dp_share_of(&stage[4]).added) && isnan(dp_share_of(&stage[4]).inherited));
    free(result.layer);
}
END_TEST

START_TEST(a_bound_that_is_reached_in_full_is_no_source_but_one_that_is_left_is) {
    dp_stage_result stage = {.exact = false};
    alone(&stage, 1e-8, 1.0);
    ck_assert_double_eq(dp_added_share(&stage), 0.5);
    alone(&stage, 1e-8, 40.0);
    ck_assert_double_eq(dp_added_share(&stage), 40.0);
    stage.isolated.difference.nonfinite = 1;
    ck_assert(isinf(dp_added_share(&stage)));
    stage.isolated.judged = false;
    ck_assert_double_eq(dp_added_share(&stage), 0.0);
}
END_TEST

static void expect_text(dp_result *result, const char *expected) {
    char text[DP_GROWTH_TEXT];
    grow(result);
    ck_assert_str_eq(dp_growth_text(result, text), expected);
    free(result->layer);
    result->layer = NULL;
}

START_TEST(the_sentence_names_the_stage_that_adds_the_error) {
    dp_stage_result stage[STAGES];
    dp_result result = made(stage, three_layers, chained, STAGES);
    for (int i = 0; i < STAGES; i++) alone(&stage[i], 1e-8, 0.2);
    expect_text(&result, "No stage adds more than its bound; the chained error grows by 1.7 x a layer");
    alone(&stage[5], 1e-4, 40.0);
    expect_text(&result, "Layer 2 attn.context adds 40 x its bound; everything after only carries it");
    alone(&stage[7], 1e-4, 3.0);
    expect_text(&result, "Layer 2 attn.context adds 40 x its bound, and 1 later stage adds more than its bound too");
    alone(&stage[6], 1e-4, 2.0);
    expect_text(&result, "Layer 2 attn.context adds 40 x its bound, and 2 later stages add more than their bounds too");
    alone(&stage[6], 1e-8, 0.2);
    stage[5].isolated.difference.nonfinite = 2;
    stage[7].isolated.pass = true;
    expect_text(&result, "Layer 2 attn.context makes 2 values that are not finite from finite inputs; everything after "
                         "only carries it");
}
END_TEST

START_TEST(the_sentence_says_what_it_cannot_know) {
    dp_stage_result stage[STAGES];
    dp_result result = made(stage, three_layers, chained, STAGES), empty = {.stage = NULL};
    expect_text(&result, "No stage was run alone, so added and inherited error cannot be told apart; the chained error "
                         "grows by 1.7 x a layer");
    stage[4].pass = false;
    expect_text(&result, "No stage was run alone, so added and inherited error cannot be told apart; first outside its "
                         "limit is layer 1 out; the chained error grows by 1.7 x a layer");
    for (int i = 0; i < STAGES; i++) alone(&stage[i], 1e-8, 0.2);
    expect_text(&result, "No stage adds more than its bound, yet the chained run leaves its limits at layer 1 out; the "
                         "chained error grows by 1.7 x a layer");
    stage[4].isolated.pass = false;
    stage[4].isolated.noise = 5.0;
    expect_text(&result, "Layer 1 out adds 2.5 x the rounding noise that it may; everything after only carries it");
    stage[4].isolated.noise = 1.0;
    stage[4].isolated.oracle_share = 7.0;
    expect_text(&result, "Layer 1 out is not what follows from the oracle's own inputs (7 x what rounding them can "
                         "change); everything after only carries it");
    expect_text(&empty, "");
}
END_TEST

START_TEST(the_first_sentence_names_the_bar_that_a_stage_run_alone_exceeds) {
    dp_stage_result stage[STAGES];
    dp_result result = made(stage, three_layers, chained, STAGES);
    char text[DP_SENTENCE];
    result.verdict = DP_FAIL;
    for (int i = 0; i < STAGES; i++) alone(&stage[i], 1e-8, 0.2);
    dp_isolated *bad = &stage[4].isolated;
    bad->pass = false;
    bad->noise = 1.5;
    bad->noise_limit = 1.25;
    bad->peak_limit = 9.0;
    ck_assert_ptr_nonnull(strstr(dp_result_sentence(&result, text), "together they are off by 1.5 times their rounding "
                                                                    "noise, where 1.25 is the most"));
    ck_assert_ptr_null(strstr(text, "times its bound"));
    bad->noise = 1.0;
    bad->peak = 12.0;
    ck_assert_ptr_nonnull(strstr(dp_result_sentence(&result, text), "the largest error is 12 times its rounding noise, "
                                                                    "where 9 is the most"));
    bad->peak = 1.0;
    bad->oracle_share = 7.0;
    ck_assert_ptr_nonnull(strstr(dp_result_sentence(&result, text), "the oracle's own values do not follow from its "
                                                                    "inputs: they are off by 7 times"));
    bad->share = 3.0;
    ck_assert_ptr_nonnull(strstr(dp_result_sentence(&result, text), "its worst element is off by 3 times its bound"));
    bad->difference.nonfinite = 2;
    ck_assert_ptr_nonnull(strstr(dp_result_sentence(&result, text), "2 of its values are NaN or infinite"));
}
END_TEST

START_TEST(layers_whose_ends_a_filter_left_out_are_not_made_up) {
    static const char *const some[] = {"layers.0.out", "layers.2.out", "final"};
    dp_stage_result stage[3];
    dp_result result = made(stage, some, chained, 3);
    grow(&result);
    ck_assert_int_eq(result.layer_count, 1);
    ck_assert_int_eq(result.layer[0].layer, 0);
    ck_assert_str_eq(result.layer[0].source, "");
    ck_assert_double_eq(dp_mean_growth(&result), 0.0);
    free(result.layer);
}
END_TEST

START_TEST(a_real_check_tells_added_from_inherited_error) {
    const dp_check_options options = {.checkpoint = "fixtures/small/tiny-plain", .oracle = "oracles/tiny-plain.h5"};
    dp_result result;
    dp_check(&options, &result);
    ck_assert_int_eq(result.verdict, DP_PASS);
    ck_assert_int_eq(result.layer_count, 3);
    int known = 0;
    for (int i = 0; i < result.stage_count; i++) {
        const dp_stage_result *stage = &result.stage[i];
        known += stage->share.known;
        if (strcmp(stage->name, "layers.2.out") == 0) ck_assert(stage->share.inherited > 2 * stage->share.added);
        if (strcmp(stage->name, "ctx.fc") == 0) ck_assert(stage->share.inherited == 0.0 && stage->share.added > 0.0);
    }
    ck_assert_int_gt(known, 50);
    for (int i = 0; i < 3; i++) ck_assert(result.layer[i].source[0] != '\0' && result.layer[i].source_share <= 1.0);
    dp_result_release(&result);
}
END_TEST

Suite *suite_growth(void) {
    Suite *suite = suite_create("growth");
    TCase *tests = tcase_create("growth");
    tcase_add_test(tests, squares_of_added_and_inherited_error_make_the_chained_one);
    tcase_add_test(tests, a_layers_factor_is_its_output_error_over_its_input_error);
    tcase_add_test(tests, values_that_are_not_finite_leave_no_distance_to_share_or_to_grow);
    tcase_add_test(tests, a_bound_that_is_reached_in_full_is_no_source_but_one_that_is_left_is);
    tcase_add_test(tests, the_sentence_names_the_stage_that_adds_the_error);
    tcase_add_test(tests, the_sentence_says_what_it_cannot_know);
    tcase_add_test(tests, the_first_sentence_names_the_bar_that_a_stage_run_alone_exceeds);
    tcase_add_test(tests, layers_whose_ends_a_filter_left_out_are_not_made_up);
    tcase_add_test(tests, a_real_check_tells_added_from_inherited_error);
    suite_add_tcase(suite, tests);
    return suite;
}
