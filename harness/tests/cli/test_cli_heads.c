/*
 * test_cli_heads.c - the output head and the precision mode on the command line, and in a list of cases; what an id
 * that differs looks like in the table and in JSON.
 */
#include "support/cli_case.h"

#include <stdio.h>
#include <string.h>

#define FAMILY(name) "--checkpoint", "fixtures/small/" name, "--oracle", "oracles/" name ".h5"
#define Q8_0 "--checkpoint", "fixtures/small/tiny-plain", "--oracle", "oracles/tiny-plain-q8_0.h5"

START_TEST(a_head_can_be_given_as_a_file) {
    child_expect(CHILD("check", FAMILY("tiny-dflash2"), "--lm-head", "fixtures/small/tiny-dflash2/model.safetensors"),
                 0, "\nPASS: ", "");
    child_expect(CHILD("check", FAMILY("tiny-dflash2"), "--lm-head", "fixtures/small/tiny-dspark/model.safetensors"), 3,
                 "REFUSED: provenance.head.differs: ", "");
    child_expect(CHILD("check", FAMILY("tiny-dflash2"), "--lm-head", "fixtures/small/tiny-plain/model.safetensors"), 3,
                 "REFUSED: table.tensor.missing: ", "");
    child_expect(CHILD("check", FAMILY("tiny-dflash2"), "--lm-head", "no/such/file"), 4,
                 "ERROR: safetensors.open: ", "");
    child_expect(CHILD("check", FAMILY("tiny-dflash2"), "--lm-head", "fixtures/cases.json"), 3, "REFUSED: safetensors.",
                 "");
}
END_TEST

/* The output head of tiny-dflash2 as the tied embedding of a target, with a neighbour that nobody reads. */
static const char *write_tied(char path[SCRATCH_PATH]) {
    scratch_copy_case("tiny-dflash2");
    tf_file *stored = scratch_tensors(), *target = tf_new();
    const tf_entry *head = tf_get(stored, "lm_head.weight");
    tf_add(target, "model.embed_tokens.weight", head->dtype, head->rank, head->dim, head->data);
    tf_add(target, "model.layers.0.mlp.up_proj.weight", "F8_E4M3", 2, (const int64_t[]){3, 7}, NULL);
    tf_write(target, scratch_path("target.safetensors", path));
    tf_free(stored);
    tf_free(target);
    return path;
}

START_TEST(a_tied_head_is_taken_and_named_in_every_output) {
    char path[SCRATCH_PATH], named[SCRATCH_PATH + 64], list[SCRATCH_PATH], text[4096], out[SCRATCH_PATH];
    write_tied(path);
    child_expect(CHILD("check", FAMILY("tiny-dflash2"), "--lm-head", path), 0,
                 "\noutput head: model.embed_tokens.weight of ", "");
    snprintf(named, sizeof named, "%s:model.embed_tokens.weight", path);
    cJSON *result = child_case(CHILD("check", FAMILY("tiny-dflash2"), "--lm-head", named, "--json"), 0);
    const cJSON *head = cJSON_GetObjectItemCaseSensitive(result, "head");
    ck_assert_str_eq(child_text(head, "source"), named);
    ck_assert_str_eq(child_text(head, "tensor"), "model.embed_tokens.weight");
    ck_assert_ptr_nonnull(strstr(child_text(result, "command"), named));
    cJSON_Delete(result);
    scratch_path("out.json", out);
    child_expect(CHILD("check", FAMILY("tiny-dflash2"), "--lm-head", named, "--out", out), 0, "PASS", "");
    child_expect(CHILD("report", out), 0, "\noutput head: model.embed_tokens.weight of ", "");
    snprintf(named, sizeof named, "%s:lm_head.weight", path);
    child_expect(CHILD("check", FAMILY("tiny-dflash2"), "--lm-head", named), 3, "REFUSED: table.tensor.missing: ", "");
    /* in a list of cases, and where the same option is taken */
    snprintf(text, sizeof text,
             "{\"cases\":[{\"name\":\"one\",\"checkpoint\":\"fixtures/small/tiny-dflash2\",\"oracle\":"
             "\"oracles/tiny-dflash2.h5\",\"lm_head\":\"%s\",\"stored\":true,\"synth\":{\"config\":"
             "\"fixtures/small/tiny-dflash2/config.json\",\"seed\":1,\"dtype\":\"bf16\",\"profile\":\"unit\"}}]}",
             path);
    scratch_write_text("cases.json", text);
    scratch_path("cases.json", list);
    child_expect(CHILD("gate", "--cases", list), 0, "output head: model.embed_tokens.weight of ", "");
    child_expect(CHILD("identity", "--cases", list, "--schedules", "1", "-k", "observer.off"), 0, "PASS: 1 of 1", "");
    child_expect(CHILD("ladder", FAMILY("tiny-dflash2"), "--lm-head", path, "--modes", "f32"), 0, "f32", "");
    child_expect(CHILD("identity", "--checkpoint", "fixtures/small/tiny-dflash2", "--lm-head", path, "--schedules", "1",
                       "-k", "observer.off"),
                 0, "PASS: 1 of 1", "");
    child_expect(CHILD("identity", "--lm-head", path), 2, "", "--lm-head belongs to --checkpoint");
    child_expect(CHILD("identity", "--checkpoint", "fixtures/small/tiny-dflash2", "--lm-head", named), 3,
                 "table.tensor.missing", "");
    scratch_path("run.h5", out);
    child_expect(CHILD("record", FAMILY("tiny-dflash2"), "--lm-head", path, "--out", out), 0,
                 " threads, output head model.embed_tokens.weight\n", "");
    child_expect(CHILD("inspect", out), 0, "model.embed_tokens.weight", "");
    child_expect(CHILD("record", FAMILY("tiny-dflash2"), "--lm-head", path, "--out", path), 2, "", "reads");
}
END_TEST

START_TEST(the_precision_must_be_the_oracles) {
    child_expect(CHILD("check", Q8_0, "--precision", "q8_0"), 0, "\nPASS: 59 of 59 stages compared", "");
    child_expect(CHILD("check", Q8_0), 3, "REFUSED: provenance.precision: ", "");
    child_expect(CHILD("check", Q8_0, "--precision", "q4_0"), 3, "Give --precision q8_0", "");
    child_expect(CHILD("check", CLI_PLAIN, "--precision", "q8_0"), 3, "Give --precision stored", "");
    child_expect(CHILD("check", CLI_PLAIN, "--precision", "stored"), 0, "\nPASS: ", "");
    child_expect(CHILD("check", Q8_0, "--list"), 3, "", "provenance.precision");
    child_expect(CHILD("check", Q8_0, "--list", "--precision", "q8_0", "-k", "final"), 0, "final\n", "");
}
END_TEST

START_TEST(the_list_of_a_family_has_its_stages_after_final) {
    child_expect(
        CHILD("check", FAMILY("tiny-dflash2"), "--list"), 0,
        "final\nlogits\nselect.topk_values\nselect.topk_ids\nselect.hidden\nselect.scores\nselect.path\nkv.k\n", "");
    child_expect(CHILD("check", FAMILY("tiny-dspark"), "--list"), 0,
                 "final\nlogits\nmarkov.logits\nmarkov.tokens\nconfidence.raw\nconfidence.window\nkv.k\n", "");
    child_expect(CHILD("check", FAMILY("tiny-dspark-rnn"), "--list"), 0,
                 "final\nlogits\nmarkov.logits\nmarkov.tokens\nkv.k\n", "");
}
END_TEST

START_TEST(json_says_the_precision_of_a_result) {
    cJSON *result = child_case(CHILD("check", Q8_0, "--precision", "q8_0", "--json"), 0);
    ck_assert_str_eq(child_text(result, "precision"), "q8_0");
    cJSON_Delete(result);
    result = child_case(CHILD("check", Q8_0, "--json"), 3);
    ck_assert_str_eq(child_text(result, "precision"), "stored");
    ck_assert_str_eq(child_text(cJSON_GetObjectItemCaseSensitive(result, "error"), "code"), "provenance.precision");
    cJSON_Delete(result);
}
END_TEST

/* One case of tiny-plain's q8_0 oracle, in a mode. */
static const char *write_list(const char *precision, char path[SCRATCH_PATH]) {
    char text[1024];
    snprintf(text, sizeof text,
             "{\"cases\":[{\"name\":\"one\",\"checkpoint\":\"fixtures/small/tiny-plain\",\"oracle\":"
             "\"oracles/tiny-plain-q8_0.h5\",%s\"stored\":true,\"synth\":{\"config\":"
             "\"fixtures/small/tiny-plain/config.json\",\"seed\":1,\"dtype\":\"bf16\",\"profile\":\"unit\"}}]}",
             precision);
    scratch_write_text("cases.json", text);
    return scratch_path("cases.json", path);
}

START_TEST(a_case_of_a_list_runs_in_its_own_precision) {
    char path[SCRATCH_PATH];
    child_expect(CHILD("gate", "--cases", write_list("\"precision\":\"q8_0\",", path)), 0,
                 "\nPASS: 1 of 1 cases passed, 59 stages and 9 rounds compared", "");
    child_expect(CHILD("gate", "--cases", write_list("", path)), 3, "REFUSED: provenance.precision: ", "");
    child_expect(CHILD("gate", "--cases", write_list("\"precision\":\"q4_0\",", path)), 3,
                 "REFUSED: provenance.precision: ", "");
    child_expect(CHILD("gate", "--cases", write_list("\"precision\":\"q5_0\",", path)), 3, "", "cases.precision");
}
END_TEST

START_TEST(an_id_that_differs_is_shown_with_both_values) {
    scratch_copy_case("tiny-dflash2");
    scratch_change_value("/stages/float64/select.path", 1, 1.0, 1.0);
    scratch_change_value("/stages/float32/select.path", 1, 1.0, 1.0);
    child run = CHILD("check", "--checkpoint", sf_folder, "--oracle", sf_path);
    ck_assert_ptr_nonnull(strstr(run.out, "\nFAIL  select.path "));
    ck_assert_msg(strstr(run.out, "178") != NULL && strstr(run.out, "179") != NULL, "%s", run.out);
    child_expect(run, 1, "1 outside their limits", "");
    cJSON *result =
        child_case(CHILD("check", "--checkpoint", sf_folder, "--oracle", sf_path, "--json", "-k", "*.path"), 1);
    const cJSON *stage = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(result, "stages"), 0);
    ck_assert_str_eq(child_text(stage, "name"), "select.path");
    const cJSON *worst = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(stage, "chained"), "worst");
    ck_assert_int_eq(cJSON_GetObjectItemCaseSensitive(worst, "got")->valueint, 178);
    ck_assert_int_eq(cJSON_GetObjectItemCaseSensitive(worst, "want")->valueint, 179);
    cJSON_Delete(result);
}
END_TEST

void cli_add_heads(Suite *suite) {
    TCase *tests = cli_case("heads");
    tcase_add_test(tests, a_head_can_be_given_as_a_file);
    tcase_add_test(tests, a_tied_head_is_taken_and_named_in_every_output);
    tcase_add_test(tests, the_precision_must_be_the_oracles);
    tcase_add_test(tests, the_list_of_a_family_has_its_stages_after_final);
    tcase_add_test(tests, json_says_the_precision_of_a_result);
    tcase_add_test(tests, a_case_of_a_list_runs_in_its_own_precision);
    tcase_add_test(tests, an_id_that_differs_is_shown_with_both_values);
    suite_add_tcase(suite, tests);
}
