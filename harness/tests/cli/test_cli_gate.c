/* test_cli_gate.c - the gate over lists of cases: the worst case decides, lists are read strictly, recipes are
 * followed. */
#include "support/cli_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char list_path[SCRATCH_PATH];

#define EDGE_SYNTH                                                                                                     \
    "{\"config\":\"fixtures/small/tiny-edge/config.json\",\"seed\":11,\"dtype\":\"bf16\",\"profile\":\"unit\"}"

/* Cases of stored checkpoints, "NAME CHECKPOINT ORACLE" each; good, failing, refused and lost are the usual ones. */
static void write_list(const char *const *name, int count) {
    char text[4096] = "{\"cases\":[";
    size_t at = strlen(text);
    for (int i = 0; i < count; i++) {
        const bool failing = strcmp(name[i], "failing") == 0, refused = strcmp(name[i], "refused") == 0,
                   lost = strcmp(name[i], "lost") == 0;
        at +=
            (size_t)snprintf(text + at, sizeof text - at,
                             "%s{\"name\":\"%s\",\"checkpoint\":\"%s\",\"oracle\":\"%s\",\"stored\":true,\"synth\":%s}",
                             i > 0 ? "," : "", name[i], failing ? sf_folder : "fixtures/small/tiny-edge",
                             failing   ? sf_path
                             : refused ? "oracles/tiny-plain.h5"
                             : lost    ? "oracles/no-such-oracle.h5"
                                       : "oracles/tiny-edge.h5",
                             EDGE_SYNTH);
        ck_assert_uint_lt(at, sizeof text - 4);
    }
    strcpy(text + at, "]}");
    scratch_write_text("cases.json", text);
    scratch_path("cases.json", list_path);
    scratch_copy_case("tiny-edge");
    scratch_edit_config("rms_norm_eps", "1e-3");
    scratch_edit_record("geometry", "rms_norm_eps", "1e-3");
}

static const struct {
    const char *name[4];
    int code;
    const char *last;
} mixes[] = {
    {{"good", "also-good"}, 0, "\nPASS: 2 of 2 cases passed, 118 stages and 18 rounds compared"},
    {{"good", "failing"}, 1, "\nFAIL: 1 of 2 cases passed, 118 stages and 18 rounds compared"},
    {{"failing", "good"}, 1, "\nFAIL: 1 of 2 cases passed"},
    {{"good", "refused"}, 3, "\nREFUSED: 1 of 2 cases passed, 59 stages and 9 rounds compared"},
    {{"refused", "failing", "good"}, 3, "\nREFUSED: 1 of 3 cases passed"},
    {{"good", "lost"}, 4, "\nERROR: 1 of 2 cases passed"},
    {{"lost", "refused", "failing", "good"}, 4, "\nERROR: 1 of 4 cases passed"},
};
enum { MIXES = sizeof mixes / sizeof *mixes };

START_TEST(the_worst_case_decides_and_every_case_is_run) {
    int count = 0;
    while (count < 4 && mixes[_i].name[count] != NULL) count++;
    write_list(mixes[_i].name, count);
    child run = CHILD("gate", "--cases", list_path);
    for (int i = 0; i < count; i++) {
        char word[40];
        snprintf(word, sizeof word, " %s ", mixes[_i].name[i]);
        ck_assert_msg(strstr(run.out, word) != NULL, "no line of %s in %s", mixes[_i].name[i], run.out);
    }
    child_expect(run, mixes[_i].code, mixes[_i].last, "");
}
END_TEST

START_TEST(a_failing_case_shows_the_stages_that_fail_and_a_refused_one_why) {
    static const char *const names[] = {"failing", "refused", "lost"};
    write_list(names, 3);
    child run = CHILD("gate", "--cases", list_path);
    ck_assert_ptr_nonnull(strstr(run.out, "FAIL  ctx.features"));
    ck_assert_ptr_null(strstr(run.out, "ok    ctx.fc"));
    ck_assert_ptr_nonnull(strstr(run.out, "REFUSED: geometry.field.differs: "));
    child_expect(run, 4, "ERROR: oracle.open: ", "");
}
END_TEST

START_TEST(a_filter_selects_cases_and_one_that_matches_none_is_no_pass) {
    static const char *const names[] = {"good", "failing"};
    write_list(names, 2);
    child_expect(CHILD("gate", "--cases", list_path, "-k", "g*"), 0, "PASS: 1 of 1 cases passed", "");
    child run = CHILD("gate", "--cases", list_path, "-k", "x*");
    ck_assert_ptr_nonnull(strstr(run.out, "The filter 'x*' matches no case"));
    child_expect(run, 5, "NOTHING COMPARED: 0 of 0 cases", "");
    child_expect(CHILD("gate", "--cases", list_path, "-k", "x*", "--prepare"), 5, "", "matches no case");
    child_expect(CHILD("gate", "--cases", list_path, "--list"), 0, "good\nfailing\n", "");
}
END_TEST

START_TEST(json_of_a_gate_holds_every_case_and_out_writes_the_same) {
    static const char *const names[] = {"good", "failing", "refused"};
    char path[SCRATCH_PATH];
    size_t length;
    write_list(names, 3);
    child run = CHILD("gate", "--cases", list_path, "--json", "--out", scratch_path("gate.json", path));
    char *written = scratch_read(path, &length);
    ck_assert_int_eq(strncmp(run.out, written, length), 0);
    ck_assert_str_eq(run.out + length, "\n");
    free(written);
    cJSON *result = child_json(run, 3);
    ck_assert_str_eq(child_text(result, "schema"), "dflash-parity-result");
    ck_assert_str_eq(child_text(result, "verdict"), "REFUSED");
    child_text(cJSON_GetObjectItemCaseSensitive(result, "environment"), "compiler");
    const cJSON *cases = cJSON_GetObjectItemCaseSensitive(result, "cases");
    ck_assert_int_eq(cJSON_GetArraySize(cases), 3);
    static const char *const verdicts[] = {"PASS", "FAIL", "REFUSED"};
    for (int i = 0; i < 3; i++) {
        const cJSON *item = cJSON_GetArrayItem(cases, i);
        ck_assert_str_eq(child_text(item, "case"), names[i]);
        ck_assert_str_eq(child_text(item, "verdict"), verdicts[i]);
        ck_assert_int_eq(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(item, "stages")), i < 2 ? 59 : 0);
    }
    cJSON_Delete(result);
    child_expect(CHILD("gate", "--cases", list_path, "-k", "good", "--out", "/dev/full"), 4, "", "atomic.target");
}
END_TEST

/* ---- Lists that are not lists ---- */

#define ENTRY(synth)                                                                                                   \
    "{\"cases\":[{\"name\":\"a\",\"checkpoint\":\"b\",\"oracle\":\"c\",\"stored\":true,\"synth\":" synth "}]}"
static const struct {
    const char *text, *code, *word;
} malformed[] = {
    {"", "cases.json", "not JSON"},
    {"{\"cases\":[", "cases.json", "not JSON"},
    {"[]", "cases.json", "no such array"},
    {"{\"cases\":{}}", "cases.json", "no such array"},
    {"{\"cases\":[]}", "cases.json", "an empty array"},
    {ENTRY(EDGE_SYNTH) " trailing", "cases.json", "not JSON"},
    {"{\"cases\":[1]}", "cases.entry", "expected name"},
    {"{\"cases\":[{\"name\":\"a\",\"oracle\":\"c\"}]}", "cases.entry", "(a): expected checkpoint"},
    {"{\"cases\":[{\"name\":\"a\",\"checkpoint\":\"b\"}]}", "cases.entry", "expected oracle"},
    {"{\"cases\":[{\"name\":\"a\",\"checkpoint\":\"b\",\"oracle\":\"c\",\"stored\":1}]}", "cases.entry",
     "expected stored"},
    {ENTRY("null"), "cases.entry", "expected synth,"},
    {ENTRY("{\"seed\":1}"), "cases.entry", "expected synth.config"},
    {ENTRY("{\"config\":\"x\",\"seed\":1.5,\"dtype\":\"bf16\",\"profile\":\"unit\"}"), "cases.entry",
     "expected synth.seed"},
    {ENTRY("{\"config\":\"x\",\"seed\":-1,\"dtype\":\"bf16\",\"profile\":\"unit\"}"), "cases.entry",
     "expected synth.seed"},
    {ENTRY("{\"config\":\"x\",\"seed\":\"1\",\"dtype\":\"bf16\",\"profile\":\"unit\"}"), "cases.entry",
     "expected synth.seed"},
    {ENTRY("{\"config\":\"x\",\"seed\":1,\"dtype\":\"f8\",\"profile\":\"unit\"}"), "cases.entry",
     "expected synth.dtype"},
    {ENTRY("{\"config\":\"x\",\"seed\":1,\"dtype\":\"bf16\",\"profile\":\"cold\"}"), "cases.entry",
     "expected synth.profile"},
};
enum { MALFORMED = sizeof malformed / sizeof *malformed };

START_TEST(a_malformed_list_is_refused_with_the_entry_and_what_it_lacks) {
    scratch_write_text("cases.json", malformed[_i].text);
    scratch_path("cases.json", list_path);
    child run = CHILD("gate", "--cases", list_path);
    ck_assert_ptr_nonnull(strstr(run.err, malformed[_i].word));
    child_expect(run, 3, "", malformed[_i].code);
}
END_TEST

START_TEST(two_cases_of_one_name_are_refused) {
    static const char *const names[] = {"good", "other", "good"};
    write_list(names, 3);
    child_expect(CHILD("gate", "--cases", list_path), 3, "", "Cases 1 and 3 of ");
}
END_TEST

START_TEST(a_list_that_cannot_be_read_is_named) {
    static const char binary[] = "{\"cases\":[]}\0{}";
    child_expect(CHILD("gate", "--cases", "no/such/list.json"), 4, "", "file.open: Cannot open no/such/list.json");
    child_expect(CHILD("gate", "--cases", sf_folder), 4, "", "file.read: Reading ");
    scratch_write("cases.json", binary, sizeof binary);
    child_expect(CHILD("gate", "--cases", scratch_path("cases.json", list_path)), 3, "", "file.text: ");
}
END_TEST

/* ---- Checkpoints made from a recipe ---- */

static char made[SCRATCH_PATH], made_model[SCRATCH_PATH];

/* One case that is not stored, of tiny-edge's oracle. Its config is the scratch copy, for tests that change it. */
static void write_recipe(unsigned seed) {
    char text[2048], config[SCRATCH_PATH];
    snprintf(
        text, sizeof text,
        "{\"cases\":[{\"name\":\"made\",\"checkpoint\":\"%s\",\"oracle\":\"oracles/tiny-edge.h5\",\"stored\":false,"
        "\"synth\":{\"config\":\"%s\",\"seed\":%u,\"dtype\":\"bf16\",\"profile\":\"unit\"}}]}",
        scratch_path("made", made), scratch_path("config.json", config), seed);
    scratch_write_text("cases.json", text);
    scratch_path("cases.json", list_path);
    scratch_path("made/model.safetensors", made_model);
}

static ino_t made_inode(void) {
    struct stat info;
    ck_assert_int_eq(stat(made_model, &info), 0);
    return info.st_ino;
}

static void remove_made(void) { tf_remove_dir(made); }

START_TEST(a_checkpoint_that_is_not_stored_is_made_once) {
    scratch_copy("fixtures/small/tiny-edge/config.json", "config.json");
    write_recipe(11);
    child_expect(CHILD("gate", "--cases", list_path), 0, "PASS: 1 of 1 cases passed, 59 stages", "");
    /* A new file keeps its name's old one in place until it is whole, so another inode means another file. */
    const ino_t first = made_inode();
    child_expect(CHILD("gate", "--cases", list_path), 0, "PASS: 1 of 1", "");
    ck_assert(made_inode() == first);
    remove_made();
}
END_TEST

START_TEST(prepare_makes_checkpoints_and_compares_nothing) {
    scratch_copy("fixtures/small/tiny-edge/config.json", "config.json");
    write_recipe(12);
    child_expect(CHILD("gate", "--cases", list_path, "--prepare"), 0, "", "");
    made_inode();
    remove_made();
}
END_TEST

START_TEST(a_changed_seed_makes_the_checkpoint_again) {
    scratch_copy("fixtures/small/tiny-edge/config.json", "config.json");
    write_recipe(11);
    child_expect(CHILD("gate", "--cases", list_path, "--prepare"), 0, "", "");
    write_recipe(12);
    child_expect(CHILD("gate", "--cases", list_path), 3, "provenance.tensor.differs", "");
    write_recipe(11);
    child_expect(CHILD("gate", "--cases", list_path), 0, "PASS", "");
    remove_made();
}
END_TEST

START_TEST(a_changed_config_makes_the_checkpoint_again_however_long_it_is) {
    size_t length;
    char *config = scratch_read("fixtures/small/tiny-edge/config.json", &length);
    char *padded = malloc(length + 20001);
    ck_assert_ptr_nonnull(padded);
    memcpy(padded, config, length);
    memset(padded + length, ' ', 20000);
    scratch_write("config.json", padded, length + 20000);
    write_recipe(11);
    child_expect(CHILD("gate", "--cases", list_path, "--prepare"), 0, "", "");
    const ino_t first = made_inode();
    child_expect(CHILD("gate", "--cases", list_path, "--prepare"), 0, "", "");
    ck_assert(made_inode() == first);
    padded[length + 19999] = '\n';
    scratch_write("config.json", padded, length + 20000);
    child_expect(CHILD("gate", "--cases", list_path, "--prepare"), 0, "", "");
    ck_assert(made_inode() != first);
    free(padded);
    free(config);
    remove_made();
}
END_TEST

START_TEST(a_recipe_that_cannot_be_followed_leaves_no_checkpoint) {
    write_recipe(11); /* its config is not there */
    child_expect(CHILD("gate", "--cases", list_path), 4, "ERROR: file.open: ", "");
    ck_assert_int_ne(access(made, F_OK), 0);
    scratch_write_text("config.json", "{}");
    child_expect(CHILD("gate", "--cases", list_path), 3, "REFUSED: config.", "");
    ck_assert_int_ne(access(made, F_OK), 0);
    child_expect(CHILD("gate", "--cases", list_path, "--prepare"), 3, "", "config.");
    /* A disk that is full: neither the checkpoint nor a part of it, nor a recipe that would vouch for one. */
    scratch_copy("fixtures/small/tiny-edge/config.json", "config.json");
    child_next.file_size = 100000;
    child_expect(CHILD("gate", "--cases", list_path), 4, "ERROR: ", "");
    ck_assert_int_ne(access(made_model, F_OK), 0);
    ck_assert_int_ne(access(made, F_OK), 0);
}
END_TEST

void cli_add_gate(Suite *suite) {
    TCase *tests = cli_case("gate");
    tcase_add_loop_test(tests, the_worst_case_decides_and_every_case_is_run, 0, MIXES);
    tcase_add_test(tests, a_failing_case_shows_the_stages_that_fail_and_a_refused_one_why);
    tcase_add_test(tests, a_filter_selects_cases_and_one_that_matches_none_is_no_pass);
    tcase_add_test(tests, json_of_a_gate_holds_every_case_and_out_writes_the_same);
    tcase_add_loop_test(tests, a_malformed_list_is_refused_with_the_entry_and_what_it_lacks, 0, MALFORMED);
    tcase_add_test(tests, two_cases_of_one_name_are_refused);
    tcase_add_test(tests, a_list_that_cannot_be_read_is_named);
    tcase_add_test(tests, a_checkpoint_that_is_not_stored_is_made_once);
    tcase_add_test(tests, prepare_makes_checkpoints_and_compares_nothing);
    tcase_add_test(tests, a_changed_seed_makes_the_checkpoint_again);
    tcase_add_test(tests, a_changed_config_makes_the_checkpoint_again_however_long_it_is);
    tcase_add_test(tests, a_recipe_that_cannot_be_followed_leaves_no_checkpoint);
    suite_add_tcase(suite, tests);
}
