/*
 * test_kept_plots.c - report --keep-data: the plots of a page with their data and scripts, each drawn again by hand,
 * and folders that cannot hold them.
 */
#include "support/child.h"
#include "base/process.h"
#include "support/result_case.h"
#include "suites.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The scratch folder is emptied of files alone. */
static void tear_down(void) {
    char keep[SCRATCH_PATH];
    dp_scratch_remove(scratch_path("kept", keep));
    scratch_close();
}

static char *page_of(const char *result, const char *keep) {
    char out[SCRATCH_PATH];
    size_t length;
    scratch_path("page.html", out);
    if (keep != NULL)
        child_expect(CHILD("report", result, "--as", "html", "--out", out, "--keep-data", keep), 0, "", "");
    else
        child_expect(CHILD("report", result, "--as", "html", "--out", out), 0, "", "");
    return scratch_read(out, &length);
}

START_TEST(the_plots_of_a_page_are_kept_and_drawn_again_by_hand) {
    static const char *const plot[] = {"stages", "heatmap", "scatter", "ulp", "rope"};
    char path[SCRATCH_PATH], keep[SCRATCH_PATH], line[4 * SCRATCH_PATH];
    cJSON *document = result_check(RESULT_FAIL);
    result_write(document, "a.json", path);
    scratch_path("kept", keep);
    char *page = page_of(path, NULL), *kept = page_of(path, keep);
    ck_assert_str_eq(page, kept);
    for (size_t i = 0; i < sizeof plot / sizeof *plot; i++) {
        snprintf(
            line, sizeof line,
            "cmp -s reports/%s.gp %s/%s.gp && grep -q '</svg>' %s/case1-%s.svg && cd %s && "
            "gnuplot -d -e \"data='case1-%s.dat'; out='again.svg'\" %s.gp 2> warnings && grep -q '</svg>' again.svg && "
            "rm again.svg",
            plot[i], keep, plot[i], keep, plot[i], keep, plot[i], plot[i]);
        ck_assert_msg(system(line) == 0, "this does not end well: %s", line);
    }
    free(page);
    free(kept);
    cJSON_Delete(document);
}
END_TEST

START_TEST(without_gnuplot_data_and_scripts_are_kept) {
    static const char *const there[] = {"case1-stages.dat", "stages.gp", "case1-scatter.dat", "scatter.gp"};
    char path[SCRATCH_PATH], keep[SCRATCH_PATH], file[2 * SCRATCH_PATH], *before = strdup(getenv("PATH"));
    cJSON *document = result_check(RESULT_PASS);
    result_write(document, "a.json", path);
    scratch_path("kept", keep);
    ck_assert_int_eq(setenv("PATH", sf_folder, 1), 0);
    char *page = page_of(path, keep);
    ck_assert_int_eq(setenv("PATH", before, 1), 0);
    ck_assert_ptr_nonnull(strstr(page, "gnuplot is not installed"));
    for (size_t i = 0; i < sizeof there / sizeof *there; i++) {
        snprintf(file, sizeof file, "%s/%s", keep, there[i]);
        ck_assert_msg(access(file, F_OK) == 0, "%s was not kept", there[i]);
    }
    free(before);
    free(page);
    cJSON_Delete(document);
}
END_TEST

START_TEST(a_folder_that_keeps_nothing_is_an_error_and_leaves_no_page) {
    static const struct {
        const char *folder, *blocked, *code; /* `blocked`: a folder stands there */
    } bad[] = {{"no/folder", NULL, "plot.folder: "},
               {"a.json", NULL, "plot.folder: "},
               {"kept", "case1-stages.dat", "plot.data: "},
               {"kept", "stages.gp", "atomic.target: "}};
    char path[SCRATCH_PATH], out[SCRATCH_PATH], keep[SCRATCH_PATH], blocked[2 * SCRATCH_PATH];
    cJSON *document = result_check(RESULT_PASS);
    result_write(document, "a.json", path);
    scratch_path("page.html", out);
    scratch_path(bad[_i].folder, keep);
    if (bad[_i].blocked != NULL) {
        snprintf(blocked, sizeof blocked, "%s/%s", keep, bad[_i].blocked);
        ck_assert(mkdir(keep, 0700) == 0 && mkdir(blocked, 0700) == 0);
    }
    child_expect(CHILD("report", path, "--as", "html", "--out", out, "--keep-data", keep), 4, "", bad[_i].code);
    ck_assert_int_ne(access(out, F_OK), 0);
    child_expect(CHILD("report", path, "--as", "text", "--keep-data", keep), 2, "", "needs --as html");
    cJSON_Delete(document);
}
END_TEST

Suite *suite_kept_plots(void) {
    Suite *suite = suite_create("kept_plots");
    TCase *tests = tcase_create("kept_plots");
    tcase_add_checked_fixture(tests, scratch_open, tear_down);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, the_plots_of_a_page_are_kept_and_drawn_again_by_hand);
    tcase_add_test(tests, without_gnuplot_data_and_scripts_are_kept);
    tcase_add_loop_test(tests, a_folder_that_keeps_nothing_is_an_error_and_leaves_no_page, 0, 4);
    suite_add_tcase(suite, tests);
    return suite;
}
