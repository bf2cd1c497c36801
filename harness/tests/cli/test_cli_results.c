/* test_cli_results.c - what a check prints as JSON and writes to files, and that neither can be lost in silence. */
#include "support/cli_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int length_of(const cJSON *object, const char *key) {
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(object, key);
    ck_assert(cJSON_IsArray(list));
    return cJSON_GetArraySize(list);
}

static double number(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    ck_assert_msg(cJSON_IsNumber(item), "there is no number %s", key);
    return item->valuedouble;
}

static const cJSON *member(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    ck_assert_msg(cJSON_IsObject(item), "there is no object %s", key);
    return item;
}

START_TEST(json_holds_the_verdict_every_stage_every_round_and_the_environment) {
    static const char *const numbers[] = {"compared", "rel_l2",  "max_rel_rms", "max_abs", "cosine",    "ulp_median",
                                          "ulp_p99",  "ulp_max", "nan",         "inf",     "sign_flips"};
    static const char *const limits[] = {"rel_l2", "max_rel_rms", "bracket_rel_l2", "bracket_max_rel_rms"};
    static const char *const alone[] = {"share", "tightness", "noise", "noise_bar"};
    static const char *const facts[] = {"version", "commit", "compiler", "flags", "cuda", "hdf5", "cjson", "cpu", "os"};
    cJSON *document = child_json(CHILD("check", CLI_PLAIN, "--json"), 0);
    ck_assert_str_eq(child_text(document, "schema"), "dflash-parity-result");
    ck_assert_str_eq(child_text(document, "verdict"), "PASS");
    ck_assert(number(document, "exit_code") == 0 && number(document, "schema_version") == 2);
    ck_assert_str_eq(child_text(document, "command"),
                     "dflash-parity check --checkpoint fixtures/small/tiny-plain --oracle "
                     "oracles/tiny-plain.h5 --json");
    const cJSON *environment = member(document, "environment");
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) child_text(environment, facts[i]);
    ck_assert(cJSON_IsBool(cJSON_GetObjectItemCaseSensitive(environment, "dirty")));
    const cJSON *result = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(document, "cases"), 0);
    ck_assert(number(result, "stages_known") == 59 && number(result, "stages_compared") == 59);
    ck_assert(number(result, "stages_failed") == 0 && number(result, "stages_isolated") == 59);
    ck_assert(number(result, "context_rows") == 24 && number(result, "block_rows") == 5);
    ck_assert_str_eq(child_text(member(result, "checkpoint"), "path"), "fixtures/small/tiny-plain");
    ck_assert_str_eq(child_text(member(result, "oracle"), "path"), "oracles/tiny-plain.h5");
    ck_assert_int_eq(length_of(result, "stages"), 59);
    ck_assert_int_eq(length_of(result, "rounds"), 9);
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(result, "stages")) {
        child_text(item, "name");
        child_text(member(item, "bar"), "origin");
        ck_assert(cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(item, "pass")));
        ck_assert(cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(member(item, "isolated"), "pass")));
        number(item, "headroom");
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) number(member(item, "chained"), numbers[i]);
        for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) number(member(item, "bar"), limits[i]);
        for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) number(member(item, "isolated"), alone[i]);
    }
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(result, "rounds"))
        ck_assert(cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(item, "identical")) && number(item, "compared") > 0);
    cJSON_Delete(document);
}
END_TEST

START_TEST(json_of_a_refusal_holds_its_code_and_no_stage) {
    cJSON *result = child_case(
        CHILD("check", "--checkpoint", "fixtures/small/tiny-plain", "--oracle", "oracles/tiny-hot.h5", "--json"), 3);
    ck_assert_str_eq(child_text(result, "verdict"), "REFUSED");
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(result, "error");
    ck_assert_str_eq(child_text(error, "code"), "geometry.field.differs");
    ck_assert_ptr_nonnull(strstr(child_text(error, "message"), "hidden_size"));
    ck_assert_int_eq(length_of(result, "stages"), 0);
    ck_assert_int_eq(length_of(result, "rounds"), 0);
    cJSON_Delete(result);
}
END_TEST

START_TEST(json_of_a_failure_names_the_stage_and_both_values) {
    scratch_copy_case("tiny-yarn-explicit");
    scratch_edit_config("rope_parameters/attention_factor", "1.0");
    scratch_edit_record("geometry", "rope/attention_scaling", "1");
    cJSON *result =
        child_case(CHILD("check", "--checkpoint", sf_folder, "--oracle", sf_path, "--json", "-k", "rope.*"), 1);
    ck_assert_str_eq(child_text(result, "verdict"), "FAIL");
    ck_assert(number(result, "stages_failed") == 2);
    const cJSON *stage = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(result, "stages"), 1);
    ck_assert_str_eq(child_text(stage, "name"), "rope.cos");
    ck_assert(cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(stage, "pass")));
    ck_assert(number(stage, "headroom") < 0);
    const cJSON *worst = member(member(stage, "chained"), "worst");
    ck_assert_double_eq_tol(number(worst, "got") * 0.9, number(worst, "want"), 1e-6);
    cJSON_Delete(result);
}
END_TEST

/* The numbers of a run: stages and rounds as text, without times and the command. */
static char *numbers_of(child run) {
    cJSON *result = child_case(run, 0);
    cJSON *kept = cJSON_CreateObject();
    static const char *const keys[] = {"verdict", "stages", "rounds"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        cJSON_AddItemToObject(kept, keys[i], cJSON_DetachItemFromObjectCaseSensitive(result, keys[i]));
    char *text = cJSON_PrintUnformatted(kept);
    ck_assert_uint_gt(strlen(text), 1000);
    cJSON_Delete(kept);
    cJSON_Delete(result);
    return text;
}

START_TEST(the_numbers_depend_neither_on_threads_nor_on_the_instruction_set) {
    char *expected = numbers_of(CHILD("check", CLI_PLAIN, "--json", "--threads", "1"));
    char *found[] = {numbers_of(CHILD("check", CLI_PLAIN, "--json", "--threads", "2")),
                     numbers_of(CHILD("check", CLI_PLAIN, "--json", "--threads", "3")),
                     numbers_of(CHILD("check", CLI_PLAIN, "--json", "--isa", "generic", "--threads", "2"))};
    for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
        ck_assert_str_eq(found[i], expected);
        free(found[i]);
    }
    free(expected);
}
END_TEST

START_TEST(the_instruction_set_that_was_used_is_on_record) {
    cJSON *result = child_case(CHILD("check", CLI_PLAIN, "--json", "--isa", "generic", "--threads", "3"), 0);
    ck_assert_str_eq(child_text(result, "isa"), "generic");
    ck_assert(number(result, "threads") == 3);
    ck_assert_str_eq(child_text(result, "class"), "exact");
    cJSON_Delete(result);
}
END_TEST

/* ---- Files ---- */

START_TEST(out_writes_the_same_json_that_is_printed) {
    char path[SCRATCH_PATH];
    size_t length;
    child run = CHILD("check", CLI_EDGE, "--json", "--out", scratch_path("result.json", path));
    ck_assert_int_eq(run.code, 0);
    char *written = scratch_read(path, &length);
    ck_assert_uint_eq(strlen(run.out), length + 1); /* a newline ends what is printed */
    ck_assert_int_eq(strncmp(run.out, written, length), 0);
    ck_assert_int_eq(sf_files_in_folder(), 1);
    free(written);
    child_release(&run);
    /* A table and a file: the file is the same but for the command. */
    child_expect(CHILD("check", CLI_EDGE, "--out", path), 0, "PASS: ", "");
    written = scratch_read(path, &length);
    ck_assert_ptr_nonnull(strstr(written, "\"verdict\":\t\"PASS\""));
    free(written);
}
END_TEST

START_TEST(a_refusal_is_written_too) {
    char path[SCRATCH_PATH];
    size_t length;
    scratch_path("result.json", path);
    child_expect(
        CHILD("check", "--checkpoint", "fixtures/small/tiny-plain", "--oracle", "oracles/tiny-hot.h5", "--out", path),
        3, "REFUSED", "");
    char *written = scratch_read(path, &length);
    ck_assert_ptr_nonnull(strstr(written, "geometry.field.differs"));
    free(written);
}
END_TEST

START_TEST(a_result_that_cannot_be_written_is_an_error_and_leaves_nothing) {
    char path[SCRATCH_PATH];
    child_expect(CHILD("check", CLI_EDGE, "--out", scratch_path("missing/result.json", path)), 4, "",
                 "atomic.open"); /* before the work: nothing is printed */
    child_expect(CHILD("check", CLI_EDGE, "--out", "/dev/full"), 4, "", "atomic.target");
    child_expect(CHILD("check", CLI_EDGE, "--out", sf_folder), 4, "", "atomic.target");
    ck_assert_int_eq(sf_files_in_folder(), 0);
}
END_TEST

START_TEST(a_full_disk_leaves_what_stood_there_before) {
    char path[SCRATCH_PATH];
    size_t length;
    scratch_path("result.json", path);
    child_next.file_size = 1000; /* the table of one stage fits, the JSON does not */
    child_expect(CHILD("check", CLI_EDGE, "-k", "final", "--out", path), 4, "PASS", "atomic.write");
    ck_assert_int_eq(sf_files_in_folder(), 0);
    scratch_write_text("result.json", "of yesterday");
    child_next.file_size = 1000;
    child_expect(CHILD("check", CLI_EDGE, "-k", "final", "--out", path), 4, "PASS", "atomic.write");
    char *kept = scratch_read(path, &length);
    ck_assert_str_eq(kept, "of yesterday");
    ck_assert_int_eq(sf_files_in_folder(), 1);
    free(kept);
}
END_TEST

START_TEST(a_verdict_that_cannot_be_printed_is_no_pass) {
    static const struct {
        const char *word[7];
    } runs[] = {{{"check", CLI_EDGE}},
                {{"check", CLI_EDGE, "--json"}},
                {{"check", CLI_EDGE, "--list"}},
                {{"gate", "-k", "tiny-edge"}},
                {{"gate", "-k", "tiny-edge", "--json"}},
                {{"gate", "--list"}},
                {{"inspect", "oracles/tiny-edge.h5"}}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        int count = 0;
        while (count < 7 && runs[i].word[count] != NULL) count++;
        child_next.out = "/dev/full";
        child_expect(child_words(runs[i].word, count), 4, "", "output.write");
    }
}
END_TEST

void cli_add_results(Suite *suite) {
    TCase *tests = cli_case("results");
    tcase_add_test(tests, json_holds_the_verdict_every_stage_every_round_and_the_environment);
    tcase_add_test(tests, json_of_a_refusal_holds_its_code_and_no_stage);
    tcase_add_test(tests, json_of_a_failure_names_the_stage_and_both_values);
    tcase_add_test(tests, the_numbers_depend_neither_on_threads_nor_on_the_instruction_set);
    tcase_add_test(tests, the_instruction_set_that_was_used_is_on_record);
    tcase_add_test(tests, out_writes_the_same_json_that_is_printed);
    tcase_add_test(tests, a_refusal_is_written_too);
    tcase_add_test(tests, a_result_that_cannot_be_written_is_an_error_and_leaves_nothing);
    tcase_add_test(tests, a_full_disk_leaves_what_stood_there_before);
    tcase_add_test(tests, a_verdict_that_cannot_be_printed_is_no_pass);
    suite_add_tcase(suite, tests);
}
