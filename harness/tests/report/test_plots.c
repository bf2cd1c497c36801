/*
 * test_plots.c - the data of the plots: zeros on the floor, what is not finite in a series of its own, rows on the
 * lines of their tokens; and gnuplot drawing all of them.
 */
#include "support/page_case.h"
#include "report/plot_files.h"
#include "support/scratch.h"
#include "suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static dp_plots plots;

static void set_up(void) {
    dflash_error err = {.message = ""};
    scratch_open();
    ck_assert_msg(dp_plots_begin(sf_folder, &plots, &err) == DFLASH_OK, "%s", err.message);
}

static void tear_down(void) { scratch_close(); }

/* The data file of a plot of the document's case; NULL when there was nothing to draw. Deletes the document. */
static char *data_of(cJSON *document, dp_plot plot) {
    bool any = false;
    dflash_error err = {.message = ""};
    char path[SCRATCH_PATH];
    size_t length;
    dp_result_file file;
    page_read(document, &file);
    ck_assert_int_eq(dp_plot_write(&plots, plot, &file.item[0].result, "x", &any, &err), DFLASH_OK);
    dp_result_file_release(&file);
    cJSON_Delete(document);
    scratch_path("x.dat", path);
    ck_assert_int_eq(any, access(path, F_OK) == 0);
    return any ? scratch_read(path, &length) : NULL;
}

/* The rows of a block, up to the two empty lines that end it; "" when there is no such block. */
static const char *block(const char *data, const char *name, char out[4096]) {
    char head[64];
    out[0] = '\0';
    snprintf(head, sizeof head, "# %s\n", name);
    const char *at = strstr(data, head);
    if (at == NULL) return out;
    at += strlen(head);
    const char *end = strstr(at, "\n\n\n");
    ck_assert_msg(end != NULL && end > at, "the block %s is empty or has no end", name);
    snprintf(out, 4096, "%.*s\n", (int)(end - at), at);
    return out;
}

START_TEST(a_zero_stands_on_the_floor_and_a_small_error_above_it) {
    char text[4096];
    cJSON *document = page_document("x");
    cJSON *a = cJSON_GetObjectItem(page_stage(document, "ctx.features"), "chained");
    cJSON *b = cJSON_GetObjectItem(page_stage(document, "final"), "chained");
    cJSON_SetNumberValue(cJSON_GetObjectItem(a, "rel_l2"), 0);
    cJSON_SetNumberValue(cJSON_GetObjectItem(b, "rel_l2"), 1e-30);
    char *data = data_of(document, DP_PLOT_STAGES);
    ck_assert_str_eq(block(data, "chained", text), "0 1e-12\n1 1e-07\n2 1e-07\n3 1e-07\n4 1e-07\n5 2e-12\n6 1e-07\n");
    ck_assert_str_eq(block(data, "not-finite", text), "");
    ck_assert_str_eq(block(data, "failed", text), "");
    ck_assert_str_eq(block(data, "first", text), "");
    free(data);
}
END_TEST

START_TEST(what_is_not_finite_leaves_the_curve_and_is_marked) {
    char text[4096];
    cJSON *document = page_document("x");
    page_break(document, "layers.1.out", NAN);
    char *data = data_of(document, DP_PLOT_STAGES);
    ck_assert_str_eq(block(data, "chained", text), "0 1e-07\n1 1e-07\n2 1e-07\n3 1e-07\n4 NaN\n5 NaN\n6 NaN\n");
    ck_assert_str_eq(block(data, "not-finite", text), "4 10\n5 10\n6 10\n");
    ck_assert_str_eq(block(data, "failed", text), "");
    ck_assert_str_eq(block(data, "first-name-left", text), "4 2e-11 \"layers.1.out\"\n");
    free(data);
}
END_TEST

START_TEST(a_stage_outside_its_bar_is_marked_and_the_layers_are_named) {
    char text[4096];
    cJSON *document = page_document("x");
    page_break(document, "layers.0.out", 1e-3);
    page_isolate(document, "layers.0.out");
    char *data = data_of(document, DP_PLOT_STAGES);
    ck_assert_str_eq(block(data, "failed", text), "2 0.001\n3 0.001\n4 0.001\n5 0.001\n6 0.001\n");
    ck_assert_str_eq(block(data, "isolated", text), "0 1e-12\n1 1e-12\n2 0.001\n3 1e-12\n4 1e-12\n5 1e-12\n6 1e-12\n");
    ck_assert_str_eq(block(data, "groups", text),
                     "0 60 \"start\"\n1.5 60 \"layer 0\"\n3.5 60 \"layer 1\"\n5.5 60 \"end\"\n");
    ck_assert_str_eq(block(data, "borders", text), "0.5 1e-13\n0.5 200\n\n2.5 1e-13\n2.5 200\n\n4.5 1e-13\n4.5 200\n");
    ck_assert_str_eq(block(data, "first-name-right", text), "2 2e-11 \"layers.0.out\"\n");
    ck_assert_str_eq(block(data, "first", text), "2 1e-13\n2 25\n"); /* ends below the names at 60 */
    free(data);
}
END_TEST

START_TEST(of_many_stages_every_second_or_third_is_named) {
    char text[16384];
    cJSON *document = page_document("x"), *stages = cJSON_GetObjectItem(page_only_case(document), "stages");
    for (int i = 0; i < 140; i++) cJSON_AddItemToArray(stages, cJSON_Duplicate(page_stage(document, "final"), true));
    char *data = data_of(document, DP_PLOT_STAGES);
    snprintf(text, sizeof text, "%.*s", (int)(strstr(data, "\n\n\n") - data), data);
    int named = 0;
    for (const char *at = text; (at = strstr(at, "\"")) != NULL; at += strcspn(at + 1, "\"") + 2) named += at[1] != '"';
    ck_assert_int_eq(named, 49); /* of 147, room for 72 */
    ck_assert_ptr_nonnull(strstr(text, "\n3 1e-12 \"1.context\"\n4 1e-12 \"\"\n5 1e-12 \"\"\n6 1e-12 \"logits\"\n"));
    free(data);
}
END_TEST

START_TEST(a_stage_that_was_not_shown_has_no_bar_and_no_point) {
    char text[4096];
    cJSON *document = page_document("x"), *stage = page_stage(document, "logits");
    page_break(document, "logits", 1e-3);
    page_isolate(document, "logits");
    cJSON_SetNumberValue(cJSON_GetObjectItem(cJSON_GetObjectItem(stage, "chained"), "compared"), 0);
    cJSON *difference = cJSON_GetObjectItem(cJSON_GetObjectItem(stage, "isolated"), "difference");
    cJSON_SetNumberValue(cJSON_GetObjectItem(difference, "compared"), 0);
    char *data = data_of(document, DP_PLOT_STAGES);
    ck_assert_ptr_nonnull(strstr(block(data, "envelope", text), "\n5 1e-06\n6 NaN\n"));
    ck_assert_ptr_nonnull(strstr(block(data, "isolated", text), "\n5 1e-12\n6 NaN\n"));
    ck_assert_str_eq(block(data, "not-finite", text), "6 10\n");
    free(data);
}
END_TEST

START_TEST(an_id_has_no_error_size_alone) {
    char text[4096];
    cJSON *document = page_document("x");
    page_break(document, "final", 1e-3);
    page_isolate(document, "final");
    for (cJSON *stage = page_stage(document, "final"); stage != NULL; stage = stage->next) {
        cJSON_ReplaceItemInObject(stage, "exact", cJSON_CreateTrue());
        cJSON_ReplaceItemInObject(stage, "bar", cJSON_CreateNull());
    }
    char *data = data_of(document, DP_PLOT_STAGES);
    ck_assert_str_eq(block(data, "isolated", text), "0 1e-12\n1 1e-12\n2 1e-12\n3 1e-12\n4 1e-12\n5 1\n6 1e-12\n");
    free(data);
}
END_TEST

START_TEST(rows_of_the_heat_map_stand_on_the_lines_of_their_tokens) {
    char text[4096];
    cJSON *document = page_document("x");
    page_break(document, "logits", NAN);
    char *data = data_of(document, DP_PLOT_HEATMAP);
    block(data, "cells", text);
    /* ctx.features speaks of the six context rows, a layer of the four block rows, logits of the block's last three. */
    ck_assert_ptr_nonnull(strstr(text, "0 0 -10.000\n1 0 NaN\n"));
    ck_assert_ptr_nonnull(strstr(text, "0 1 -7.000\n1 1 NaN\n"));
    ck_assert_ptr_nonnull(strstr(text, "0 6 NaN\n1 6 -7.000\n"));
    ck_assert_ptr_nonnull(strstr(text, "6 6 NaN\n"));
    ck_assert_ptr_nonnull(strstr(text, "6 7 -7.000\n"));
    ck_assert_ptr_nonnull(strstr(text, "6 9 1.000\n"));
    ck_assert_str_eq(block(data, "not-finite", text), "6 9\n");
    free(data);
}
END_TEST

START_TEST(a_long_context_is_folded_and_the_largest_error_stands) {
    char text[4096];
    cJSON *document = page_document("x"), *item = page_only_case(document),
          *stage = page_stage(document, "ctx.features");
    cJSON *rows = cJSON_CreateArray();
    for (int i = 0; i < 256; i++) cJSON_AddItemToArray(rows, cJSON_CreateNumber(i == 6 ? 1e-2 : 1e-8));
    cJSON_SetNumberValue(cJSON_GetObjectItem(stage, "row_group"), 2);
    cJSON_ReplaceItemInObject(stage, "rows", rows);
    cJSON_ReplaceItemInObject(stage, "shape", cJSON_CreateIntArray((const int[]){512, 8}, 2));
    cJSON_SetNumberValue(cJSON_GetObjectItem(item, "context_rows"), 512);
    char *data = data_of(document, DP_PLOT_HEATMAP);
    block(data, "cells", text);
    ck_assert_ptr_nonnull(strstr(text, "0 0 -8.000\n"));
    ck_assert_ptr_nonnull(strstr(text, "0 1 -2.000\n"));
    ck_assert_ptr_nonnull(strstr(text, "0 2 -8.000\n"));
    ck_assert_ptr_nonnull(strstr(data, "\n0 63 -8.000\n"));
    ck_assert_ptr_nonnull(strstr(data, "\n6 67 -7.000\n"));
    ck_assert_ptr_null(strstr(data, "\n0 68 "));
    /* Of 68 lines the labels of the four of the block would cover each other; layers are named in the band above. */
    ck_assert_ptr_nonnull(strstr(block(data, "lines", text), "64 \"block 0\"\n"));
    ck_assert_ptr_null(strstr(text, "\"block 1\""));
    ck_assert_ptr_nonnull(strstr(block(data, "groups", text), "1.5 -2.88 \"layer 0\"\n"));
    free(data);
}
END_TEST

START_TEST(the_ulp_histogram_keeps_its_zero_bin_and_sets_apart_what_is_not_finite) {
    char text[4096];
    cJSON *document = page_document("x");
    cJSON *ulp = cJSON_GetObjectItem(page_stage(document, "layers.1.attn.context"), "ulp");
    cJSON_ReplaceItemInArray(ulp, 9, cJSON_CreateNumber(20));
    cJSON_ReplaceItemInArray(ulp, 35, cJSON_CreateNumber(8));
    cJSON_ReplaceItemInArray(ulp, 11, cJSON_CreateNumber(8));
    char *data = data_of(document, DP_PLOT_ULP);
    ck_assert_str_eq(block(data, "bins", text), "0 10 \"0, bit-equal\"\n1 50 \"< 1\"\n2 0 \"< 2\"\n3 20 \"< 4\"\n");
    ck_assert_str_eq(block(data, "not-finite", text), "5 20 \"not finite\"\n");
    free(data);
}
END_TEST

START_TEST(scatter_marks_the_worst_and_what_is_not_finite) {
    char text[4096];
    cJSON *document = page_document("x");
    cJSON *got = cJSON_GetObjectItem(
        cJSON_GetObjectItem(cJSON_GetObjectItem(page_only_case(document), "plots"), "scatter"), "got");
    cJSON_ReplaceItemInArray(got, 0, cJSON_CreateString("inf"));
    char *data = data_of(document, DP_PLOT_SCATTER);
    ck_assert_str_eq(block(data, "points", text), "2.25 2\n3 3\n");
    ck_assert_str_eq(block(data, "not-finite", text), "1 3\n");
    ck_assert_str_eq(block(data, "worst", text), "1.25 1.5\n");
    free(data);
}
END_TEST

START_TEST(margins_tell_flipped_rows_from_the_same) {
    char text[4096];
    char *data = data_of(page_document("x"), DP_PLOT_MARGINS);
    ck_assert_str_eq(block(data, "same", text), "1e-07 0.5 \"position 0\"\n1e-12 1e-12 \"position 2\"\n");
    ck_assert_str_eq(block(data, "flipped", text), "1 0.25 \"position 1\"\n");
    free(data);
    data = data_of(page_document("x"), DP_PLOT_ROPE);
    ck_assert_str_eq(block(data, "difference", text), "0 1e-12\n1 1e-08\n");
    free(data);
}
END_TEST

START_TEST(a_case_that_compared_nothing_has_no_plot) {
    for (int plot = 0; plot < DP_PLOT_COUNT; plot++) {
        cJSON *document = page_document("x");
        page_refuse(document, "a.b", "c");
        ck_assert_ptr_null(data_of(document, (dp_plot)plot));
    }
}
END_TEST

/* ---- gnuplot ---- */

static void draws(const char *script) {
    dflash_error err = {.message = ""};
    char *svg = NULL;
    ck_assert_msg(dp_plots_draw(&plots, script, "x", "it's <a> title", &svg, &err) == DFLASH_OK, "%s", err.message);
    ck_assert_ptr_nonnull(strstr(svg, "</svg>"));
    ck_assert_ptr_nonnull(strstr(svg, "it's &lt;a> title"));
    free(svg);
}

START_TEST(gnuplot_draws_every_plot_of_a_pass_and_of_a_run_that_is_not_finite) {
    cJSON *document = page_document("x");
    dflash_error err = {.message = ""};
    bool any = false;
    if (_i >= DP_PLOT_COUNT) page_break(document, "layers.1.attn.context", NAN);
    dp_result_file file;
    page_read(document, &file);
    ck_assert_int_eq(dp_plot_write(&plots, (dp_plot)(_i % DP_PLOT_COUNT), &file.item[0].result, "x", &any, &err),
                     DFLASH_OK);
    dp_result_file_release(&file);
    ck_assert(any);
    draws(dp_plot_script((dp_plot)(_i % DP_PLOT_COUNT)));
    cJSON_Delete(document);
}
END_TEST

static char *drawn(cJSON *document, dp_plot plot) {
    dflash_error err = {.message = ""};
    char *svg = NULL;
    free(data_of(document, plot));
    ck_assert_msg(dp_plots_draw(&plots, dp_plot_script(plot), "x", "t", &svg, &err) == DFLASH_OK, "%s", err.message);
    return svg;
}

/* The height at which a text begins to stand in a picture. */
static double height_of(const char *svg, const char *text) {
    char word[64];
    double x, y;
    snprintf(word, sizeof word, ">%s<", text);
    const char *at = strstr(svg, word), *place = NULL;
    ck_assert_msg(at != NULL, "the picture does not say %s", text);
    for (const char *s = strstr(svg, "translate("); s != NULL && s < at; s = strstr(s + 1, "translate(")) place = s;
    ck_assert(place != NULL && sscanf(place, "translate(%lf,%lf)", &x, &y) == 2);
    return y;
}

START_TEST(labels_of_an_axis_stand_apart_and_only_an_index_is_one) {
    char *svg = drawn(page_document("x"), DP_PLOT_ROPE);
    ck_assert_double_gt(height_of(svg, "1e-3") - height_of(svg, "not finite"), 15.0);
    ck_assert_ptr_null(strstr(svg, ">-1<"));
    ck_assert_ptr_null(strstr(svg, ">0.5<"));
    free(svg);
    svg = drawn(page_document("x"), DP_PLOT_STAGES);
    ck_assert_double_gt(height_of(svg, "1") - height_of(svg, "not finite"), 15.0);
    free(svg);
}
END_TEST

START_TEST(a_key_stands_below_the_points_of_a_scatter) {
    char *svg = drawn(page_document("x"), DP_PLOT_SCATTER);
    ck_assert_double_gt(height_of(svg, "elements"), height_of(svg, "reference (float64)"));
    free(svg);
}
END_TEST

START_TEST(gnuplot_draws_curves_of_several_runs_whose_labels_stay_in_their_quotes) {
    static const char *const point[] = {"a", "b\"b\\b\nb", "c"};
    static const int x[] = {0, 1, 2};
    static const double value[] = {0, NAN, 1e9};
    const dp_plot_curve curve = {.label = "case \"1\"", .count = 3, .point = point, .x = x, .value = value};
    dflash_error err = {.message = ""};
    char path[SCRATCH_PATH];
    size_t length;
    ck_assert_int_eq(dp_plot_write_curves(&plots, "x", &curve, 1, true, &err), DFLASH_OK);
    char *data = scratch_read(scratch_path("x.dat", path), &length);
    ck_assert_str_eq(data, "\"case _1_\"\n0 0.0001 \"a\"\n1 1000 \"b_b_b_b\"\n2 500 \"c\"\n\n\n");
    free(data);
    draws("drift");
    draws("ladder");
}
END_TEST

START_TEST(gnuplot_that_is_missing_or_fails_is_told) {
    dflash_error err = {.message = ""};
    char *svg = NULL;
    ck_assert_int_eq(dp_plots_draw(&plots, "stages", "there-is-no-data", "t", &svg, &err), DFLASH_ERR_IO);
    ck_assert_str_eq(err.code, "plot.gnuplot");
    ck_assert_ptr_null(svg);
    ck_assert_int_eq(setenv("PATH", sf_folder, 1), 0);
    ck_assert_int_eq(dp_plots_draw(&plots, "stages", "x", "t", &svg, &err), DFLASH_ERR_IO);
    ck_assert_str_eq(err.code, "plot.gnuplot.missing");
    ck_assert_ptr_nonnull(strstr(err.message, "gnuplot is not installed"));
}
END_TEST

START_TEST(a_temporary_folder_goes_away_with_what_is_in_it_and_a_kept_one_stays) {
    dp_plots own;
    dflash_error err = {.message = ""};
    ck_assert_int_eq(setenv("TMPDIR", sf_folder, 1), 0);
    ck_assert_int_eq(dp_plots_begin(NULL, &own, &err), DFLASH_OK);
    char path[SCRATCH_PATH];
    snprintf(path, sizeof path, "%.200s/x.dat", own.folder);
    FILE *file = fopen(path, "w");
    ck_assert(file != NULL && fclose(file) == 0);
    dp_plots_end(&own);
    ck_assert_int_ne(access(own.folder, F_OK), 0);
    dp_plots_end(&plots);
    ck_assert_int_eq(access(plots.folder, F_OK), 0);
    ck_assert_int_eq(dp_plots_begin("/proc/no", &own, &err), DFLASH_ERR_IO);
    ck_assert_str_eq(err.code, "plot.folder");
}
END_TEST

Suite *suite_plots(void) {
    Suite *suite = suite_create("plots");
    TCase *tests = tcase_create("plots");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_zero_stands_on_the_floor_and_a_small_error_above_it);
    tcase_add_test(tests, what_is_not_finite_leaves_the_curve_and_is_marked);
    tcase_add_test(tests, a_stage_outside_its_bar_is_marked_and_the_layers_are_named);
    tcase_add_test(tests, rows_of_the_heat_map_stand_on_the_lines_of_their_tokens);
    tcase_add_test(tests, a_long_context_is_folded_and_the_largest_error_stands);
    tcase_add_test(tests, the_ulp_histogram_keeps_its_zero_bin_and_sets_apart_what_is_not_finite);
    tcase_add_test(tests, scatter_marks_the_worst_and_what_is_not_finite);
    tcase_add_test(tests, margins_tell_flipped_rows_from_the_same);
    tcase_add_test(tests, a_case_that_compared_nothing_has_no_plot);
    tcase_add_loop_test(tests, gnuplot_draws_every_plot_of_a_pass_and_of_a_run_that_is_not_finite, 0,
                        2 * DP_PLOT_COUNT);
    tcase_add_test(tests, of_many_stages_every_second_or_third_is_named);
    tcase_add_test(tests, a_stage_that_was_not_shown_has_no_bar_and_no_point);
    tcase_add_test(tests, an_id_has_no_error_size_alone);
    tcase_add_test(tests, labels_of_an_axis_stand_apart_and_only_an_index_is_one);
    tcase_add_test(tests, a_key_stands_below_the_points_of_a_scatter);
    tcase_add_test(tests, gnuplot_draws_curves_of_several_runs_whose_labels_stay_in_their_quotes);
    tcase_add_test(tests, gnuplot_that_is_missing_or_fails_is_told);
    tcase_add_test(tests, a_temporary_folder_goes_away_with_what_is_in_it_and_a_kept_one_stays);
    suite_add_tcase(suite, tests);
    return suite;
}
