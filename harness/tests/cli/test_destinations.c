/*
 * test_destinations.c - where results go is looked at before anything runs: what cannot be written, two results in one
 * file and a result in the place of an input are refused at once, and nothing that was there is touched.
 */
#include "support/cli_case.h"
#include "suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EDGE "check", CLI_EDGE, "-k", "final"

static char path[6][SCRATCH_PATH + 16];

/* "PREFIXscratch-folder/NAME" */
static const char *at(int slot, const char *prefix, const char *name) {
    char full[SCRATCH_PATH];
    snprintf(path[slot], sizeof path[slot], "%s%s", prefix, scratch_path(name, full));
    return path[slot];
}

static void unchanged(const char *name, const char *text) {
    char full[SCRATCH_PATH];
    size_t length;
    char *found = scratch_read(scratch_path(name, full), &length);
    ck_assert_str_eq(found, text);
    free(found);
}

/* Nothing was run: no table was printed. */
#define REFUSED(code, word, ...) child_expect(CHILD(__VA_ARGS__), code, "", word)

START_TEST(what_cannot_be_written_is_said_before_the_run) {
    static const struct {
        const char *option, *prefix, *name, *code;
    } bad[] = {{"--out", "", "none/a.json", "atomic.open"},      {"--report", "junit=", "none/a.xml", "atomic.open"},
               {"--history", "", "none/h.jsonl", "atomic.open"}, {"--out", "", "folder", "atomic.target"},
               {"--report", "html=", "folder", "atomic.target"}, {"--report", "text=", "folder/", "atomic.target"},
               {"--history", "", "folder", "history.open"}};
    char full[SCRATCH_PATH];
    ck_assert_int_eq(mkdir(scratch_path("folder", full), 0777), 0);
    at(0, bad[_i].prefix, bad[_i].name);
    REFUSED(4, bad[_i].code, EDGE, bad[_i].option, path[0]);
    REFUSED(4, bad[_i].code, "gate", "-k", "tiny-edge", bad[_i].option, path[0]);
    ck_assert_int_eq(rmdir(full), 0); /* nothing was left in it */
    ck_assert_int_eq(sf_files_in_folder(), 0);
}
END_TEST

START_TEST(a_folder_or_history_that_may_not_be_written_is_said_before_the_run) {
    char full[SCRATCH_PATH];
    if (geteuid() == 0) { /* root may write anywhere but where there is no writing at all */
        REFUSED(4, "atomic.open", EDGE, "--report", "text=/proc/a.txt");
        REFUSED(4, "atomic.open", EDGE, "--history", "/proc/h.jsonl");
        return;
    }
    scratch_write_text("h.jsonl", "");
    ck_assert_int_eq(chmod(scratch_path("h.jsonl", full), 0444), 0);
    REFUSED(4, "history.open", EDGE, "--history", full);
    ck_assert_int_eq(mkdir(scratch_path("folder", full), 0555), 0);
    REFUSED(4, "atomic.open", EDGE, "--report", at(0, "text=", "folder/a.txt"));
    rmdir(full);
}
END_TEST

START_TEST(two_results_in_one_file_are_a_usage_error) {
    char full[SCRATCH_PATH];
    scratch_write_text("a", "of yesterday");
    ck_assert_int_eq(symlink("a", scratch_path("link", full)), 0);
    at(0, "", "a");
    at(1, "text=", "a");
    at(2, "markdown=", "./a");
    at(3, "", "link");
    at(4, "junit=", "new");
    at(5, "html=", "new");
    REFUSED(2, "--out and --report name the same file", EDGE, "--out", path[0], "--report", path[1]);
    REFUSED(2, "--report and --report name the same file", EDGE, "--report", path[1], "--report", path[2]);
    REFUSED(2, "--out and --history name the same file", EDGE, "--out", path[0], "--history", path[3]);
    REFUSED(2, "--report and --report name the same file", EDGE, "--report", path[4], "--report", path[5]);
    REFUSED(2, "--out and --history name the same file", "gate", "--out", path[0], "--history", path[0]);
    unchanged("a", "of yesterday");
    ck_assert_int_eq(sf_files_in_folder(), 2);
}
END_TEST

START_TEST(a_result_takes_the_place_of_nothing_that_is_read) {
    char oracle[SCRATCH_PATH], folder[SCRATCH_PATH];
    size_t before, after;
    scratch_copy_case("tiny-edge");
    snprintf(oracle, sizeof oracle, "%s", sf_path);
    snprintf(folder, sizeof folder, "%s", sf_folder);
    free(scratch_read(oracle, &before));
    at(0, "", "model.safetensors");
    at(1, "junit=", "config.json");
    at(2, "html=", "result.json");
#define SPOILED "check", "--checkpoint", folder, "--oracle", oracle
    REFUSED(2, "this command reads", SPOILED, "--out", oracle);
    REFUSED(2, "this command reads", SPOILED, "--out", path[0]);
    REFUSED(2, "this command reads", SPOILED, "--report", path[1]);
    REFUSED(2, "this command reads", SPOILED, "--history", oracle);
    REFUSED(2, "this command reads", "gate", "--out", "fixtures/cases.json");
    REFUSED(2, "this command reads", "gate", "--report", "text=oracles/tiny-plain.h5");
    REFUSED(2, "this command reads", "record", "--checkpoint", folder, "--oracle", oracle, "--out", oracle);
    REFUSED(2, "this command reads", "ladder", "--checkpoint", folder, "--oracle", oracle, "--out", oracle);
    REFUSED(2, "this command reads", "compare", oracle, oracle, "--out", oracle);
    REFUSED(2, "this command reads", "identity", "--checkpoint", folder, "--out", path[0]);
    free(scratch_read(oracle, &after));
    ck_assert_uint_eq(before, after);
    child_expect(CHILD(SPOILED, "--out", at(3, "", "result.json")), 0, "PASS", "");
    REFUSED(2, "this command reads", "report", path[3], "--as", "text", "--out", path[3]);
    REFUSED(2, "this command reads", "postmortem", path[3], "--out", path[3]);
    REFUSED(2, "--out and --markdown name the same file", "postmortem", path[3], "--out", path[0], "--markdown",
            path[0]);
    child_expect(CHILD("report", path[3]), 0, "PASS", ""); /* it is still a result */
}
END_TEST

START_TEST(options_that_a_command_does_not_have_are_no_silence) {
    REFUSED(2, "--report belongs to check and gate", "ladder", "--case", "tiny-edge", "--report", "text=a");
    REFUSED(2, "--history belongs to check and gate", "identity", "--history", "h.jsonl");
    REFUSED(2, "--history belongs to check and gate", "bench", "--history", "h.jsonl");
}
END_TEST

START_TEST(every_kind_of_result_of_one_run_is_written_and_the_history_grows) {
    at(0, "", "a.json");
    at(1, "junit=", "a.xml");
    at(2, "markdown=", "a.md");
    at(3, "", "h.jsonl");
    for (int run = 1; run <= 2; run++) {
        char full[SCRATCH_PATH];
        size_t length;
        int lines = 0;
        child_expect(CHILD(EDGE, "--out", path[0], "--report", path[1], "--report", path[2], "--history", path[3]), 0,
                     "PASS", "");
        char *history = scratch_read(scratch_path("h.jsonl", full), &length);
        for (const char *c = history; *c != '\0'; c++) lines += *c == '\n';
        ck_assert_int_eq(lines, run);
        free(history);
        ck_assert_int_eq(sf_files_in_folder(), 4);
    }
    /* --list and --help write nothing and so look at nothing. */
    child_expect(CHILD(EDGE, "--list", "--history", "none/h.jsonl"), 0, "final", "");
}
END_TEST

Suite *suite_destinations(void) {
    Suite *suite = suite_create("destinations");
    TCase *tests = cli_case("destinations");
    tcase_add_loop_test(tests, what_cannot_be_written_is_said_before_the_run, 0, 7);
    tcase_add_test(tests, a_folder_or_history_that_may_not_be_written_is_said_before_the_run);
    tcase_add_test(tests, two_results_in_one_file_are_a_usage_error);
    tcase_add_test(tests, a_result_takes_the_place_of_nothing_that_is_read);
    tcase_add_test(tests, options_that_a_command_does_not_have_are_no_silence);
    tcase_add_test(tests, every_kind_of_result_of_one_run_is_written_and_the_history_grows);
    suite_add_tcase(suite, tests);
    return suite;
}
