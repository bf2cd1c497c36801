/*
 * test_manifest.c - which oracle a case of a list may be judged by: the one that the manifest pins, that was written by
 * what its signature says, and that was generated as the case says. Each is broken alone, and the gate refuses.
 */
#include "suites.h"

#include "support/cli_case.h"
#include "preflight/manifest.h"
#include "check/run_facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char REFERENCE[] = "dflash.model";

static cJSON *case_entry, *manifest_json;

/* Sets a key of an object, given as JSON text; NULL deletes it. */
static void set(cJSON *object, const char *key, const char *json) {
    cJSON_DeleteItemFromObjectCaseSensitive(object, key);
    if (json != NULL) cJSON_AddItemToObject(object, key, cJSON_Parse(json));
}

static cJSON *in(cJSON *object, const char *key) { return cJSON_GetObjectItemCaseSensitive(object, key); }
static cJSON *pinned(void) { return in(in(manifest_json, "oracles"), sf_path); }
static cJSON *signature(void) { return in(in(manifest_json, "signatures"), "s"); }

/* What the copy's provenance says of its packages and its reference, as a signature. */
static cJSON *sign(void) {
    dflash_error err = {0};
    dp_oracle *oracle = NULL;
    const cJSON *package;
    ck_assert_msg(dp_oracle_open(sf_path, &oracle, &err) == DFLASH_OK, "%s", err.message);
    const cJSON *provenance = dp_oracle_provenance(oracle);
    cJSON *out = cJSON_Parse("{\"generator\":{},\"references\":{},\"packages\":{}}");
    const cJSON *reference = cJSON_GetObjectItemCaseSensitive(provenance, "reference");
    ck_assert_str_eq(cJSON_GetObjectItemCaseSensitive(reference, "module")->valuestring, REFERENCE);
    cJSON_AddStringToObject(in(out, "references"), REFERENCE,
                            cJSON_GetObjectItemCaseSensitive(reference, "sha256")->valuestring);
    cJSON_ArrayForEach(package, cJSON_GetObjectItemCaseSensitive(provenance, "packages")) cJSON_AddStringToObject(
        cJSON_AddObjectToObject(in(out, "packages"), package->string), "version", package->valuestring);
    dp_oracle_close(oracle);
    return out;
}

static void pin(void) {
    char digest[DP_DIGEST_TEXT];
    struct stat info;
    ck_assert_int_eq(stat(sf_path, &info), 0);
    dp_file_digest(sf_path, digest);
    cJSON_SetNumberValue(in(pinned(), "bytes"), (double)info.st_size);
    ck_assert_ptr_nonnull(cJSON_SetValuestring(in(pinned(), "sha256"), digest));
}

static void set_up(void) {
    scratch_open();
    scratch_copy_case("tiny-edge");
    case_entry = cJSON_Parse("{\"name\":\"one\",\"stored\":true,\"context\":17,\"start\":333,\"input_seed\":21,"
                             "\"input_profile\":\"unit\",\"sample_stride\":1,\"synth\":{\"config\":"
                             "\"fixtures/small/tiny-edge/config.json\",\"seed\":11,\"dtype\":\"bf16\",\"profile\":"
                             "\"unit\"}}");
    cJSON_AddStringToObject(case_entry, "checkpoint", sf_folder);
    cJSON_AddStringToObject(case_entry, "oracle", sf_path);
    manifest_json = cJSON_Parse("{\"schema\":1,\"oracles\":{},\"signatures\":{}}");
    cJSON *entry = cJSON_AddObjectToObject(in(manifest_json, "oracles"), sf_path);
    cJSON_AddNumberToObject(entry, "bytes", 0);
    cJSON_AddStringToObject(entry, "sha256", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
    cJSON_AddStringToObject(entry, "signature", "s");
    cJSON_AddItemToObject(in(manifest_json, "signatures"), "s", sign());
    pin();
}

static void tear_down(void) {
    cJSON_Delete(case_entry);
    cJSON_Delete(manifest_json);
    scratch_close();
}

static char list_path[SCRATCH_PATH], manifest_path[SCRATCH_PATH];

/* Writes both files and runs the gate over them; without `with_manifest` the list names none. */
static child gate(bool with_manifest, const char *option) {
    cJSON *list = cJSON_Parse("{\"schema\":1,\"cases\":[]}");
    cJSON_AddItemToArray(in(list, "cases"), cJSON_Duplicate(case_entry, true));
    scratch_path("manifest.json", manifest_path);
    if (with_manifest) cJSON_AddStringToObject(list, "manifest", manifest_path);
    char *text = cJSON_Print(list), *pins = cJSON_Print(manifest_json);
    scratch_write_text("cases.json", text);
    scratch_write_text("manifest.json", pins);
    free(text);
    free(pins);
    cJSON_Delete(list);
    scratch_path("cases.json", list_path);
    return option != NULL ? CHILD("gate", "--cases", list_path, option) : CHILD("gate", "--cases", list_path);
}

static void expect_refused(const char *code, const char *word) {
    child run = gate(true, NULL);
    ck_assert_msg(strstr(run.out, word) != NULL || strstr(run.err, word) != NULL, "\"%s\" is in neither of: %s\n%s",
                  word, run.out, run.err);
    const bool in_table = strstr(run.out, code) != NULL;
    child_expect(run, 3, in_table ? code : "", in_table ? "" : code);
}

/* ---- The file ---- */

START_TEST(an_oracle_that_its_manifest_pins_passes) {
    child run = gate(true, NULL);
    ck_assert_ptr_null(strstr(run.out, "Not pinned"));
    child_expect(run, 0, "PASS: 1 of 1 cases passed", "");
    cJSON *result = child_json(gate(true, "--json"), 0);
    ck_assert_str_eq(child_text(in(result, "environment"), "manifest"), manifest_path);
    cJSON_Delete(result);
}
END_TEST

START_TEST(a_list_without_a_manifest_passes_and_says_so) {
    child_expect(gate(false, NULL), 0, "Not pinned: ", "");
    cJSON *result = child_json(gate(false, "--json"), 0);
    ck_assert(cJSON_IsNull(in(in(result, "environment"), "manifest")));
    cJSON_Delete(result);
}
END_TEST

/* A limit widened in the file, every digest inside it right again. */
START_TEST(an_oracle_that_was_edited_is_refused_though_it_is_whole) {
    scratch_edit_record("provenance", "float32_orders/largest/final", "[1e-6, 1e-5]");
    child_expect(gate(false, NULL), 0, "PASS: 1 of 1", "");
    expect_refused("manifest.digest", "is not the oracle that was stored");
    pin();
    child_expect(gate(true, NULL), 0, "PASS: 1 of 1", "");
}
END_TEST

START_TEST(an_entry_of_the_same_size_and_another_digest_is_refused) {
    cJSON_SetValuestring(in(pinned(), "sha256"), "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
    expect_refused("manifest.digest", "0123456789abcdef0123");
}
END_TEST

START_TEST(a_case_without_an_entry_an_entry_without_a_case_and_one_without_a_file_are_refused) {
    cJSON *stray = cJSON_Duplicate(pinned(), true);
    cJSON_AddItemToObject(in(manifest_json, "oracles"), "oracles/stray.h5", stray);
    expect_refused("manifest.extra", "oracles/stray.h5");
    cJSON_DeleteItemFromObjectCaseSensitive(in(manifest_json, "oracles"), sf_path);
    cJSON_DeleteItemFromObjectCaseSensitive(in(manifest_json, "oracles"), "oracles/stray.h5");
    expect_refused("manifest.case", "has no entry for");
    cJSON_AddItemToObject(in(manifest_json, "oracles"), "gone.h5",
                          cJSON_Parse("{\"bytes\":1,\"sha256\":"
                                      "\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\","
                                      "\"signature\":\"s\"}"));
    set(case_entry, "oracle", "\"gone.h5\"");
    expect_refused("manifest.file", "there is no such file");
}
END_TEST

START_TEST(a_manifest_that_is_none_is_refused) {
    set(pinned(), "bytes", NULL);
    expect_refused("manifest.entry", "not complete");
    pin();
    set(pinned(), "bytes", "1");
    set(pinned(), "signature", "\"t\"");
    expect_refused("manifest.entry", "not complete");
    set(pinned(), "signature", "\"s\"");
    set(signature(), "packages", "1");
    expect_refused("manifest.entry", "not complete");
    set(manifest_json, "schema", "2");
    expect_refused("manifest.json", "is not a manifest");
    gate(true, NULL);
    ck_assert_int_eq(unlink(manifest_path), 0);
    child_expect(CHILD("gate", "--cases", list_path), 4, "", "file.open");
}
END_TEST

START_TEST(a_list_with_a_key_that_no_list_has_is_refused) {
    child_expect(gate(false, NULL), 0, "Not pinned", "");
    scratch_write_text("cases.json", "{\"manifests\":\"m.json\",\"cases\":[1]}");
    child_expect(CHILD("gate", "--cases", list_path), 3, "", "\"manifests\"");
    scratch_write_text("cases.json", "{\"manifest\":7,\"cases\":[1]}");
    child_expect(CHILD("gate", "--cases", list_path), 3, "", "cases.entry");
}
END_TEST

/* ---- What wrote it ---- */

START_TEST(an_oracle_of_another_reference_or_other_packages_than_signed_is_refused) {
    char *signed_digest = strdup(in(in(signature(), "references"), REFERENCE)->valuestring);
    set(in(signature(), "references"), REFERENCE, "\"00\"");
    expect_refused("manifest.signature", REFERENCE);
    set(in(signature(), "references"), REFERENCE, NULL);
    expect_refused("manifest.signature", "says nothing");
    cJSON_AddStringToObject(in(signature(), "references"), REFERENCE, signed_digest);
    set(in(in(signature(), "packages"), "torch"), "version", "\"1.0\"");
    expect_refused("manifest.signature", "the package torch");
    free(signed_digest);
}
END_TEST

START_TEST(a_generator_that_went_on_is_news_and_no_refusal) {
    char said[400], digest[DP_DIGEST_TEXT], *changed = NULL;
    size_t size;
    dp_manifest manifest = {.document = manifest_json,
                            .oracles = in(manifest_json, "oracles"),
                            .signatures = in(manifest_json, "signatures")};
    scratch_write_text("rope.py", "pass\n");
    char path[SCRATCH_PATH];
    dp_file_digest(scratch_path("rope.py", path), digest);
    cJSON_AddStringToObject(in(signature(), "generator"), "rope.py", digest);
    for (int turn = 0; turn < 2; turn++) {
        FILE *to = open_memstream(&changed, &size);
        dp_manifest_print_age(&manifest, sf_folder, to);
        fclose(to);
        snprintf(said, sizeof said, "%s", changed);
        free(changed);
        ck_assert_str_eq(
            said, turn == 0 ? "oracles: all 1 were written by the generator as it is\n"
                            : "oracles: the generator changed after 1 of 1 were written (rope.py); `make oracles` "
                              "writes them again\n");
        scratch_write_text("rope.py", "pass  # and more\n");
    }
    child_expect(gate(true, NULL), 0, "PASS: 1 of 1", "");
}
END_TEST

/* ---- What was asked for ---- */

static const struct {
    const char *key, *value, *words;
} facts[] = {
    {"context", "18", "the case says context 18, the oracle was generated with 17"},
    {"start", "334", "the case says start 334, the oracle was generated with 333"},
    {"input_seed", "22", "the case says input_seed 22, the oracle was generated with 21"},
    {"input_profile", "\"hot\"", "the case says input_profile \"hot\", the oracle was generated with \"unit\""},
    {"sample_stride", "3", "the case says sample_stride 3, the oracle was generated with 1"},
    {"full_stages", "[\"final\"]", "the case says full_stages [\"final\"], the oracle was generated with nothing"},
    {"precision", "\"q8_0\"", "provenance.precision"},
};
enum { CASE_FACTS = sizeof facts / sizeof *facts };

START_TEST(an_oracle_of_another_input_than_its_case_says_is_refused) {
    set(case_entry, facts[_i].key, facts[_i].value);
    child run = gate(false, NULL);
    child_expect(run, 3, facts[_i].words, "");
}
END_TEST

START_TEST(a_fact_may_be_left_out_where_nothing_is_pinned_and_nowhere_else) {
    set(case_entry, "start", NULL);
    child_expect(gate(false, NULL), 0, "PASS: 1 of 1", "");
    expect_refused("cases.entry", "lacks \"start\"");
}
END_TEST

START_TEST(a_request_that_its_own_file_contradicts_is_refused) {
    static const struct {
        const char *key, *value, *words;
    } lies[] = {{"request/context", "18", "context 18, but the number of its context rows is 17"},
                {"request/start", "1", "start 1, but the position of the block's first row is 333"},
                {"request/input_seed", "20", "input_seed 20, but the seed used is 21"},
                {"seeds_passed_over", "[{\"seed\":20,\"why\":\"tie\"}]", "but a seed that was passed over is 20"}};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        scratch_copy_case("tiny-edge");
        scratch_edit_record("provenance", lies[i].key, lies[i].value);
        scratch_expect_stop(DP_REFUSED, "provenance.request", lies[i].words, NULL, NULL);
    }
    scratch_copy_case("tiny-edge");
    scratch_edit_record("provenance", "request/input_seed", "20");
    scratch_edit_record("provenance", "seeds_passed_over", "[{\"seed\":20,\"why\":\"tie\"}]");
    scratch_expect_pass();
}
END_TEST

START_TEST(every_key_of_a_provenance_record_is_known_and_there) {
    static const struct {
        const char *key, *value, *code;
    } edits[] = {{"note", "\"x\"", "oracle.provenance.unknown"},
                 {"engine", "{\"name\":\"x\"}", "oracle.provenance.unknown"},
                 {"generator", NULL, "oracle.provenance"},
                 {"command", "1", "oracle.provenance"},
                 {"config_sha256", "\"00\"", "oracle.provenance"},
                 {"tensors", NULL, "oracle.provenance"},
                 {"packages", NULL, "oracle.provenance"},
                 {"reference", "{\"module\":\"m\",\"sha256\":\"0\"}", "oracle.provenance"},
                 {"seed", "1.5", "oracle.provenance"},
                 {"request", NULL, "oracle.provenance"},
                 {"request/start", NULL, "oracle.provenance"},
                 {"request/profile", "\"unit\"", "oracle.provenance"},
                 {"adapters", "\"x\"", "oracle.provenance"},
                 {"float32_orders", NULL, "oracle.provenance"},
                 {"head", "1", "oracle.provenance"},
                 {"precision", "1", "oracle.provenance"},
                 {"seeds_passed_over", "[1]", "oracle.provenance"},
                 {"second_opinion", "{}", "oracle.provenance"}};
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        scratch_copy_case("tiny-edge");
        scratch_edit_record("provenance", edits[i].key, edits[i].value);
        scratch_expect_stop(DP_REFUSED, edits[i].code, NULL, NULL, NULL);
    }
}
END_TEST

START_TEST(a_config_of_other_bytes_is_refused_though_it_says_the_same) {
    size_t length;
    char path[SCRATCH_PATH], *text = scratch_read(scratch_path("config.json", path), &length);
    text[strlen(text) - 1] = ' '; /* the line's end */
    scratch_write_text("config.json", text);
    free(text);
    scratch_expect_stop(DP_REFUSED, "provenance.config", "is not the file", "Put the old config.json back", NULL);
}
END_TEST

Suite *suite_manifest(void) {
    Suite *suite = suite_create("manifest");
    TCase *tests = tcase_create("manifest");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, an_oracle_that_its_manifest_pins_passes);
    tcase_add_test(tests, a_list_without_a_manifest_passes_and_says_so);
    tcase_add_test(tests, an_oracle_that_was_edited_is_refused_though_it_is_whole);
    tcase_add_test(tests, an_entry_of_the_same_size_and_another_digest_is_refused);
    tcase_add_test(tests, a_case_without_an_entry_an_entry_without_a_case_and_one_without_a_file_are_refused);
    tcase_add_test(tests, a_manifest_that_is_none_is_refused);
    tcase_add_test(tests, a_list_with_a_key_that_no_list_has_is_refused);
    tcase_add_test(tests, an_oracle_of_another_reference_or_other_packages_than_signed_is_refused);
    tcase_add_test(tests, a_generator_that_went_on_is_news_and_no_refusal);
    tcase_add_loop_test(tests, an_oracle_of_another_input_than_its_case_says_is_refused, 0, CASE_FACTS);
    tcase_add_test(tests, a_fact_may_be_left_out_where_nothing_is_pinned_and_nowhere_else);
    tcase_add_test(tests, a_request_that_its_own_file_contradicts_is_refused);
    tcase_add_test(tests, every_key_of_a_provenance_record_is_known_and_there);
    tcase_add_test(tests, a_config_of_other_bytes_is_refused_though_it_says_the_same);
    suite_add_tcase(suite, tests);
    return suite;
}
