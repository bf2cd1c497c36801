/*
 * test_gpu_record.c - reports/gpu/record.sh with programs that only pretend, and what gpu-record and release-check make
 * of the results: no GPU is needed to see that a record is never made of less than it stands for.
 */
#include "support/cli_case.h"

#include "base/process.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Writes what --out or --digests names, and ends with the code in the file `code` when its words hold those in `when`.
 */
static const char pretender[] = "#!/bin/sh\n"
                                "words=\"$*\"\n"
                                "here=$(dirname \"$0\")\n"
                                "while [ $# -gt 0 ]; do\n"
                                "    case $1 in --out) echo '{\"stages\":[1],\"kept\":2}' >\"$2\" ;; esac\n"
                                "    shift\n"
                                "done\n"
                                "case $words in *$(cat \"$here/when\")*) exit $(cat \"$here/code\") ;; esac\n"
                                "exit 0\n";

static char program[SCRATCH_PATH], results[SCRATCH_PATH], said[SCRATCH_PATH];

/* A program that ends with `code` when it is called with these words. */
static void pretend(const char *when, const char *code) {
    scratch_write_text("when", when);
    scratch_write_text("code", code);
    scratch_write_text("program", pretender);
    ck_assert_int_eq(chmod(scratch_path("program", program), 0700), 0);
    char tool[SCRATCH_PATH];
    scratch_write_text("compute-sanitizer", "#!/bin/sh\nexit 0\n");
    ck_assert_int_eq(chmod(scratch_path("compute-sanitizer", tool), 0700), 0);
    scratch_path("results", results);
    scratch_path("said", said);
}

/* record.sh with these words behind the usual ones; its exit code. What it says goes to `said`. */
static int record(const char *a, const char *b, const char *c, const char *d) {
    char path[2 * SCRATCH_PATH];
    int code = -1;
    dflash_error err;
    snprintf(path, sizeof path, "PATH=%s:/usr/bin:/bin", sf_folder);
    const char *const environment[] = {path, NULL};
    const char *const argv[] = {
        "sh", "reports/gpu/record.sh", "--binary", program, "--tests", program, "--out", results, a, b, c, d, NULL};
    unlink(said);
    const dp_process process = {.argv = argv, .environment = environment, .out = said, .err = said};
    ck_assert_int_eq(dp_process_run(&process, &code, &err), DFLASH_OK);
    return code;
}

static void expect_in(const char *path, const char *words, bool there) {
    size_t length;
    char *text = scratch_read(path, &length);
    ck_assert_msg((strstr(text, words) != NULL) == there, "'%s' %s in:\n%s", words, there ? "expected" : "found", text);
    free(text);
}

static const char *in_results(const char *name, char path[SCRATCH_PATH + 32]) {
    snprintf(path, SCRATCH_PATH + 32, "%s/%s", results, name);
    return path;
}

static const char *make_record(char path[SCRATCH_PATH], int code, const char *verdict) {
    child_expect(CHILD("gpu-record", "--results", results, "--name", "x", "--out", scratch_path("x.record.json", path)),
                 code, verdict, "");
    return path;
}

static void remove_results(void) { tf_remove_dir(results); }

START_TEST(without_a_gpu_nothing_is_recorded) {
    char path[SCRATCH_PATH];
    pretend("--backend cuda", "4");
    ck_assert_int_eq(record("--record", scratch_path("x.record.json", path), NULL, NULL), 4);
    expect_in(said, "no GPU that this program can run on; nothing is recorded", true);
    ck_assert_int_ne(access(results, F_OK), 0);
    ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

START_TEST(results_of_an_earlier_run_outlive_a_refusal) {
    char path[SCRATCH_PATH + 32];
    pretend("nothing", "0");
    ck_assert_int_eq(record(NULL, NULL, NULL, NULL), 0);
    pretend("--backend cuda", "4");
    ck_assert_int_eq(record(NULL, NULL, NULL, NULL), 4);
    expect_in(in_results("steps.tsv", path), "gate-exact\t0\t", true);
    remove_results();
}
END_TEST

START_TEST(words_that_record_does_not_know_are_usage_errors) {
    pretend("nothing", "0");
    ck_assert_int_eq(record("--quick", "1", NULL, NULL), 2);
    expect_in(said, "unknown word '--quick'", true);
    ck_assert_int_eq(record("--only", NULL, NULL, NULL), 2);
    expect_in(said, "--only needs a value", true);
    ck_assert_int_eq(record("--tests", "no/such/tests", NULL, NULL), 2);
    expect_in(said, "no/such/tests is not there to be run", true);
    ck_assert_int_ne(access(results, F_OK), 0);
}
END_TEST

START_TEST(a_record_of_every_step_passes_and_is_fresh) {
    char path[SCRATCH_PATH], steps[SCRATCH_PATH + 32];
    pretend("nothing", "0");
    ck_assert_int_eq(record(NULL, NULL, NULL, NULL), 0);
    expect_in(in_results("steps.tsv", steps), "racecheck-fast-unobserved\t0\t", true);
    expect_in(steps, "bench --table --backend cuda", true);
    make_record(path, 0, "PASS");
    expect_in(path, "\"kept\":\t2", true);
    expect_in(path, "\"stages\"", false);
    expect_in(path, "nvidia_smi", true);
    child_expect(CHILD("release-check", "--records", path), 0, "fresh", "");
    remove_results();
}
END_TEST

START_TEST(a_step_that_failed_or_did_not_run_is_no_pass) {
    char path[SCRATCH_PATH];
    pretend("gate --backend cuda --class fast", "1");
    ck_assert_int_eq(record(NULL, NULL, NULL, NULL), 0);
    expect_in(said, "gate-fast: exit code 1", true);
    expect_in(said, "bench-table: exit code 0", true);
    make_record(path, 1, "    gate-fast ended with exit code 1\nFAIL");
    remove_results();
    pretend("nothing", "0");
    ck_assert_int_eq(record("--only", "gate-*", NULL, NULL), 0);
    make_record(path, 1, "    identity-exact did not run\n");
    child_expect(CHILD("release-check", "--records", path), 1, "verdict FAIL", "");
    remove_results();
}
END_TEST

/* A run that was cut off, or whose results came back in part: exit codes alone are no record. */
START_TEST(a_step_whose_result_is_lost_is_no_pass) {
    static const struct {
        const char *file, *words;
    } lost[] = {{"results/gate-fast.json", "    gate-fast left no result\nFAIL"},
                {"results/digests-exact.json", "    digests-exact left no result\nFAIL"},
                {"results/identity-cublas.json", "    identity-cublas left no result\nFAIL"},
                {"results/bench-table.json", "    bench-table left no result\nFAIL"}};
    char path[SCRATCH_PATH], file[SCRATCH_PATH];
    pretend("nothing", "0");
    ck_assert_int_eq(record(NULL, NULL, NULL, NULL), 0);
    ck_assert_int_eq(unlink(scratch_path(lost[_i].file, file)), 0);
    make_record(path, 1, lost[_i].words);
    expect_in(path, "left no result", true);
    child_expect(CHILD("release-check", "--records", path), 1, "verdict FAIL", "");
    remove_results();
}
END_TEST

START_TEST(steps_may_run_one_after_the_other_but_not_of_two_programs) {
    char path[SCRATCH_PATH], steps[SCRATCH_PATH + 32];
    pretend("gate --backend cuda --class fast", "1");
    ck_assert_int_eq(record("--only", "[dpgi]*", NULL, NULL), 0);
    expect_in(in_results("steps.tsv", steps), "gate-fast\t1\t", true);
    scratch_write_text("when", "nothing");
    ck_assert_int_eq(record("--only", "gate-fast", NULL, NULL), 0);
    expect_in(steps, "gate-fast\t1\t", false);
    make_record(path, 1, "FAIL");
    ck_assert_int_eq(record("--only", "[!dpgi]*", NULL, NULL), 0);
    make_record(path, 0, "PASS"); /* every step has run by now */
    remove_results();

    pretend("nothing", "0");
    ck_assert_int_eq(record("--only", "gate-*", NULL, NULL), 0);
    scratch_write_text("program", "#!/bin/sh\nexit 0\n");
    ck_assert_int_eq(chmod(program, 0700), 0);
    ck_assert_int_eq(record("--only", "suite", NULL, NULL), 3);
    expect_in(said, "come from other programs", true);
    expect_in(in_results("steps.tsv", steps), "suite", false);
    remove_results();
}
END_TEST

START_TEST(results_that_are_none_are_refused) {
    char path[SCRATCH_PATH], file[SCRATCH_PATH];
    scratch_path("results", results);
    scratch_path("x.record.json", file);
    child_expect(CHILD("gpu-record", "--results", results, "--name", "x", "--out", file), 4, "", "file.open");
    child_expect(CHILD("gpu-record", "--results", results, "--name", "x", "--out", "/no/such/x.json"), 4, "",
                 "atomic.open");
    ck_assert_int_eq(mkdir(results, 0700), 0);
    scratch_write_text("results/steps.tsv", "");
    child_expect(CHILD("gpu-record", "--results", results, "--name", "x", "--out", file), 3, "", "gpu.steps");
    scratch_write_text("results/steps.tsv", "gate-exact\tzero\t1\tgate\n");
    child_expect(CHILD("gpu-record", "--results", results, "--name", "x", "--out", file), 3, "", "is no step");
    scratch_write_text("results/steps.tsv", "gate-exact\t0\t1\tgate\n");
    scratch_write_text("results/gate-exact.json", "{");
    child_expect(CHILD("gpu-record", "--results", results, "--name", "x", "--out", file), 3, "", "gpu.result");
    ck_assert_int_ne(access(file, F_OK), 0);
    remove_results();
    scratch_write_text("x.record.json", "{\"schema\":\"other\"}");
    child_expect(CHILD("release-check", "--records", file), 3, "", "gpu.record");
    child_expect(CHILD("release-check", "--records", scratch_path("no*such", path)), 5, "no record of a GPU", "");
}
END_TEST

START_TEST(a_record_is_stale_when_a_source_changed_came_or_went) {
    char path[SCRATCH_PATH];
    size_t length;
    pretend("nothing", "0");
    ck_assert_int_eq(record(NULL, NULL, NULL, NULL), 0);
    make_record(path, 0, "PASS");
    remove_results();
    char *text = scratch_read(path, &length);
    cJSON *json = cJSON_Parse(text), *sources = cJSON_GetObjectItemCaseSensitive(json, "sources");
    free(text);
    ck_assert(cJSON_IsObject(sources));
    cJSON_SetValuestring(cJSON_GetObjectItemCaseSensitive(sources, "impl/draft/draft.c"), "00");
    cJSON_DeleteItemFromObjectCaseSensitive(sources, "impl/kv/kv.c");
    cJSON_AddStringToObject(sources, "impl/cuda/former.cu", "00");
    text = cJSON_Print(json);
    scratch_write_text("x.record.json", text);
    free(text);
    cJSON_Delete(json);
    child run = CHILD("release-check", "--records", path);
    static const char *const words[] = {"changed  impl/draft/draft.c\n", "new      impl/kv/kv.c\n",
                                        "gone     impl/cuda/former.cu\n", "3 files above are not as they were"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        ck_assert_msg(strstr(run.out, words[i]) != NULL, "expected '%s' in:\n%s", words[i], run.out);
    child_expect(run, 1, "stale", "");
}
END_TEST

Suite *suite_gpu_record(void) {
    Suite *suite = suite_create("gpu_record");
    TCase *tests = cli_case("gpu_record");
    tcase_add_test(tests, without_a_gpu_nothing_is_recorded);
    tcase_add_test(tests, results_of_an_earlier_run_outlive_a_refusal);
    tcase_add_test(tests, words_that_record_does_not_know_are_usage_errors);
    tcase_add_test(tests, a_record_of_every_step_passes_and_is_fresh);
    tcase_add_test(tests, a_step_that_failed_or_did_not_run_is_no_pass);
    tcase_add_loop_test(tests, a_step_whose_result_is_lost_is_no_pass, 0, 4);
    tcase_add_test(tests, steps_may_run_one_after_the_other_but_not_of_two_programs);
    tcase_add_test(tests, results_that_are_none_are_refused);
    tcase_add_test(tests, a_record_is_stale_when_a_source_changed_came_or_went);
    suite_add_tcase(suite, tests);
    return suite;
}
