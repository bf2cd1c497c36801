/* test_identity_command.c - `dflash-parity identity` as a user runs it: words, verdicts, digests, replays. */
#include "support/identity_cases.h"

#include "support/cli_case.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *word[6];
    const char *complaint;
} usage[] = {
    {{"--fast"}, "unknown word '--fast'"},
    {{"--case"}, "--case needs a value"},
    {{"--schedules", "many"}, "from 0 to 10000000, found 'many'"},
    {{"--seed"}, "--seed takes a whole number"},
    {{"--case", "tiny-plain", "--checkpoint", "x"}, "exclude each other"},
    {{"--precision", "bf16"}, "--precision belongs to --checkpoint"},
    {{"--checkpoint", "fixtures/small/tiny-plain", "--precision", "bf17"}, "found 'bf17'"},
    {{"--replay", "i3 d"}, "--replay needs --case or --checkpoint"},
    {{"--case", "tiny-plain", "--replay", "i3"}, "schedule.draft"},
    {{"--case", "tiny-plain", "--replay", "i3 q d"}, "schedule.word"},
    {{"--against", "x.json", "-k", "round.*"}, "-k does not apply"},
};
enum { USAGE = sizeof usage / sizeof *usage };

START_TEST(a_wrong_word_of_identity_is_a_usage_error) {
    const char *words[8] = {"identity"};
    int count = 1;
    for (int i = 0; i < 6 && usage[_i].word[i] != NULL; i++) words[count++] = usage[_i].word[i];
    child_expect(child_words(words, count), 2, "", usage[_i].complaint);
}
END_TEST

START_TEST(one_case_prints_every_arm_and_passes) {
    child run = CHILD("identity", "--case", "tiny-dspark", "--schedules", "5");
    ck_assert_ptr_nonnull(strstr(run.out, "\nok    round.all          identical: "));
    ck_assert_ptr_nonnull(strstr(run.out, "\nok    rows.nan           identical: "));
    ck_assert_ptr_nonnull(strstr(run.out, "; 5 histories, "));
    ck_assert_ptr_nonnull(strstr(run.out, "\nok    history.long       identical: "));
    ck_assert_ptr_nonnull(strstr(run.out, "every bit; 1 history, 300 blocks"));
    child_expect(run, 0, "\nPASS: 1 of 1 cases passed, ", "");
}
END_TEST

START_TEST(a_filter_that_matches_nothing_compares_nothing) {
    child_expect(CHILD("identity", "--case", "tiny-plain", "-k", "no.variant"), 5, "NOTHING COMPARED: 0 of 1 cases",
                 "-k 'no.variant' matches no variant");
    child_expect(CHILD("identity", "--case", "no-case"), 5, "NOTHING COMPARED: 0 of 0 cases", "no case is chosen");
    child_expect(CHILD("identity", "--case", "no-case", "--list"), 5, "", "is chosen");
    child_expect(CHILD("identity", "--case", "tiny-p*n", "--list", "-k", "history.*"), 0,
                 "tiny-plain history.random\ntiny-plain history.long\n", "");
}
END_TEST

START_TEST(by_default_the_stored_cases_run_and_full_size_ones_when_they_are_named) {
    child run = CHILD("identity", "--list", "-k", "round.all");
    ck_assert_ptr_nonnull(strstr(run.out, "tiny-plain round.all\n"));
    ck_assert_ptr_null(strstr(run.out, "qwen3-4b-dflash"));
    child_release(&run);
    child_expect(CHILD("identity", "--list", "-k", "round.all", "--case", "*"), 0, "qwen3-4b-dflash round.all\n", "");
}
END_TEST

START_TEST(a_checkpoint_without_an_oracle_runs_on_inputs_from_the_seed) {
    child_expect(CHILD("identity", "--checkpoint", "fixtures/small/tiny-dflash2", "--precision", "q8_0", "--schedules",
                       "3", "-k", "[!t]*"),
                 0, "PASS: 1 of 1 cases passed", "");
    child_expect(CHILD("identity", "--checkpoint", "fixtures"), 4, "ERROR", "");
    child_expect(CHILD("identity", "--checkpoint", "fixtures/small/tiny-edge", "--precision", "q8_0"), 3, "REFUSED",
                 "");
}
END_TEST

START_TEST(a_replay_runs_one_history) {
    child_expect(CHILD("identity", "--case", "tiny-dflash2", "--replay", "c26 i30 d i5 t4 d x i1 d"), 0,
                 "1 history, 3 blocks", "");
    child run = CHILD("identity", "--case", "tiny-dflash2", "--replay", "c20 i30 d");
    ck_assert_ptr_nonnull(strstr(run.out, "refused: kv.full: "));
    child_expect(run, 1, "FAIL  replay             refused by the drafter", "");
}
END_TEST

START_TEST(json_holds_every_arm_and_every_stage) {
    cJSON *result = child_json(CHILD("identity", "--case", "tiny-plain", "-k", "round.all", "--json"), 0);
    ck_assert_str_eq(child_text(result, "schema"), "dflash-parity-identity");
    const cJSON *item = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(result, "cases"), 0);
    const cJSON *variant = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(item, "arms"), 0);
    ck_assert_str_eq(child_text(variant, "state"), "identical");
    const cJSON *stages = cJSON_GetObjectItemCaseSensitive(variant, "stages");
    ck_assert_int_eq(cJSON_GetArraySize(stages), 57);
    ck_assert_str_eq(child_text(cJSON_GetArrayItem(stages, 0), "name"), "kv.k");
    ck_assert_str_eq(child_text(cJSON_GetArrayItem(stages, 0), "class"), "identical");
    cJSON_Delete(result);
}
END_TEST

/* ---- Digests ---- */

static char digests[SCRATCH_PATH];

static void write_digests(void) {
    scratch_path("digests.json", digests);
    child_expect(CHILD("identity", "--case", "tiny-edge", "-k", "round.all", "--isa", "generic", "--threads", "1",
                       "--digests", digests),
                 0, "PASS", "");
}

static void spoil(const char *from, const char *to) {
    size_t length;
    char *text = scratch_read(digests, &length), *at = strstr(text, from);
    ck_assert_ptr_nonnull(at);
    ck_assert_uint_eq(strlen(from), strlen(to));
    memcpy(at, to, strlen(to));
    scratch_write("digests.json", text, length);
    free(text);
}

/* The first digit of the first digest becomes another. */
static void flip_digit(void) {
    static const char key[] = "\"digest\":\t\"";
    size_t length;
    char *text = scratch_read(digests, &length), *at = strstr(text, key);
    ck_assert_ptr_nonnull(at);
    at += strlen(key);
    *at = *at == '0' ? '1' : '0';
    scratch_write("digests.json", text, length);
    free(text);
}

START_TEST(digests_of_plain_c_agree_with_those_of_the_best_instruction_set) {
    write_digests();
    child_expect(CHILD("identity", "--case", "tiny-edge", "--threads", "2", "--against", digests), 0,
                 "59 stages compared by digest", "");
}
END_TEST

START_TEST(another_digest_case_or_stage_is_a_failure) {
    write_digests();
    child_expect(CHILD("identity", "--case", "tiny-bias", "--against", digests), 1, "0 stages compared by digest", "");
    child_expect(CHILD("identity", "--case", "tiny-[be]*", "--against", digests), 1, "not in the file", "");
    child_expect(CHILD("identity", "--case", "tiny-edge", "--seed", "9", "--against", digests), 0, "0 differ", "");
    spoil("layers.1.mlp.gate", "layers.7.mlp.gate");
    child run = CHILD("identity", "--case", "tiny-edge", "--against", digests);
    ck_assert_ptr_nonnull(strstr(run.out, "layers.1.mlp.gate          not in the file"));
    ck_assert_ptr_nonnull(strstr(run.out, "layers.7.mlp.gate          not in this run"));
    child_expect(run, 1, "FAIL: 1 of 1 cases ran", "");
    spoil("layers.7.mlp.gate", "layers.1.mlp.gate");
    flip_digit();
    child_expect(CHILD("identity", "--case", "tiny-edge", "--against", digests), 1,
                 "ctx.fc                     another digest", "");
    scratch_write_text("digests.json", "{\"schema\":\"dflash-parity-digests\",\"schema_version\":1,\"digests\":[]}");
    child_expect(CHILD("identity", "--case", "tiny-edge", "--against", digests), 1, "0 stages compared by digest", "");
    scratch_write_text("digests.json", "{}");
    child_expect(CHILD("identity", "--case", "tiny-edge", "--against", digests), 3, "", "digests.json"); /* at once */
}
END_TEST

START_TEST(digests_that_cannot_be_written_are_no_pass) {
    child_expect(CHILD("identity", "--case", "tiny-edge", "-k", "round.all", "--digests", "/dev/full"), 4, NULL,
                 "atomic");
}
END_TEST

void identity_add_command(Suite *suite) {
    TCase *tests = cli_case("command");
    tcase_add_loop_test(tests, a_wrong_word_of_identity_is_a_usage_error, 0, USAGE);
    tcase_add_test(tests, one_case_prints_every_arm_and_passes);
    tcase_add_test(tests, a_filter_that_matches_nothing_compares_nothing);
    tcase_add_test(tests, by_default_the_stored_cases_run_and_full_size_ones_when_they_are_named);
    tcase_add_test(tests, a_checkpoint_without_an_oracle_runs_on_inputs_from_the_seed);
    tcase_add_test(tests, a_replay_runs_one_history);
    tcase_add_test(tests, json_holds_every_arm_and_every_stage);
    tcase_add_test(tests, digests_of_plain_c_agree_with_those_of_the_best_instruction_set);
    tcase_add_test(tests, another_digest_case_or_stage_is_a_failure);
    tcase_add_test(tests, digests_that_cannot_be_written_are_no_pass);
    suite_add_tcase(suite, tests);
}
