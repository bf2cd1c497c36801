/*
 * test_result.c - result files are read back as they were written, and what is cut off, of another version, incomplete
 * or at odds with itself is refused.
 */
#include "base/json_text.h"
#include "report/report.h"
#include "support/result_case.h"
#include "suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Bit for bit, as the page promises; NaN is one value there. */
static bool same(double a, double b) { return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b)); }

START_TEST(a_result_reads_back_as_the_run_had_it) {
    dp_result run;
    dp_result_file file;
    dflash_error err = {.message = ""};
    scratch_copy_case("tiny-plain");
    scratch_options.report = true;
    scratch_check(NULL, &run);
    cJSON *document = dp_document_begin("check", "a command", NULL);
    dp_document_add(document, "tiny-plain", &run);
    dp_document_end(document, run.verdict);
    char path[SCRATCH_PATH];
    ck_assert_int_eq(dp_write_json(scratch_path("a.json", path), document, &err), DFLASH_OK);
    ck_assert_msg(dp_result_read(path, &file, &err) == DFLASH_OK, "%s", err.message);
    ck_assert_str_eq(file.command, "a command");
    ck_assert_int_eq(file.count, 1);
    const dp_result *back = &file.item[0].result;
    ck_assert_int_eq(back->verdict, DP_PASS);
    ck_assert_int_eq(back->stage_count, run.stage_count);
    ck_assert_int_eq(back->isolated_count, run.isolated_count);
    ck_assert_int_eq(back->variant_count, 9);
    for (int i = 0; i < run.stage_count; i++) {
        const dp_stage_result *a = &run.stage[i], *b = &back->stage[i];
        ck_assert_str_eq(a->name, b->name);
        ck_assert(same(a->difference.l2_rel, b->difference.l2_rel) && a->difference.count == b->difference.count);
        ck_assert(same(a->limit.l2_rel, b->limit.l2_rel) && same(a->limit.max_rel, b->limit.max_rel));
        ck_assert(same(a->headroom, b->headroom));
        ck_assert(same(a->difference.worst_got, b->difference.worst_got));
        ck_assert(same(a->difference.worst_want, b->difference.worst_want));
        ck_assert(same(a->difference.cosine, b->difference.cosine));
        ck_assert(same(a->isolated.worst_bound, b->isolated.worst_bound));
        ck_assert_str_eq(a->limit.origin, b->limit.origin);
        ck_assert(same(a->isolated.share, b->isolated.share) && a->isolated.pass == b->isolated.pass);
        ck_assert(a->difference.worst == b->difference.worst);
    }
    for (int i = 0; i < run.variant_count; i++) ck_assert(run.variant[i].compared == back->variant[i].compared);
    ck_assert(same(run.total_seconds, back->total_seconds));
    dp_result_file_release(&file);
    dp_result_release(&run);
    cJSON_Delete(document);
}
END_TEST

static int built; /* allocations of documents */
static void *counted(size_t bytes) {
    built++;
    return malloc(bytes);
}

START_TEST(a_document_that_nobody_asked_for_is_not_built) {
    cJSON_Hooks counting = {.malloc_fn = counted, .free_fn = free};
    dp_result run;
    scratch_copy_case("tiny-plain");
    scratch_check("final", &run);
    cJSON_InitHooks(&counting);
    built = 0;
    dp_document_add(NULL, "tiny-plain", &run);
    dp_document_end(NULL, run.verdict);
    const int unasked = built;
    cJSON *document = dp_document_begin("check", "a command", NULL);
    dp_document_add(document, "tiny-plain", &run);
    const int asked = built;
    cJSON_Delete(document);
    cJSON_InitHooks(NULL);
    dp_result_release(&run);
    ck_assert_int_eq(unasked, 0);
    ck_assert_int_gt(asked, 0); /* the count counts */
}
END_TEST

START_TEST(every_double_reads_back_to_the_bit_in_as_few_digits_as_that_takes) {
    static const struct {
        double value;
        const char *text;
    } number[] = {{0.1, "0.1"},
                  {1.0 / 3.0, "0.3333333333333333"},
                  {0.1 + 0.2, "0.30000000000000004"},
                  {1.0 + 0x1p-52, "1.0000000000000002"},
                  {5e-324, "4.94065645841247e-324"},
                  {0x1.fffffffffffffp1023, "1.7976931348623157e+308"},
                  {-0.0, "-0"},
                  {0.0, "0"},
                  {-7.0, "-7"},
                  {0x1p53, "9007199254740992"},
                  {123456789012.0, "123456789012"},
                  {(double)0x1.99999ap-4F, "0.10000000149011612"}};
    uint64_t bits = 1;
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
        cJSON *item = cJSON_CreateNumber(number[i].value);
        char *text = dp_json_print(item, false);
        ck_assert_str_eq(text, number[i].text);
        cJSON *back = cJSON_Parse(text);
        ck_assert(same(back->valuedouble, number[i].value));
        ck_assert(cJSON_IsNumber(item)); /* the document itself is left alone */
        cJSON_Delete(back);
        cJSON_free(text);
        cJSON_Delete(item);
    }
    for (int i = 0; i < 20000; i++) {
        double value;
        bits = bits * 6364136223846793005U + 1442695040888963407U;
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value)) continue;
        cJSON *item = cJSON_CreateNumber(value);
        char *text = dp_json_print(item, false);
        cJSON *back = cJSON_Parse(text);
        ck_assert_msg(same(back->valuedouble, value), "%s is not %a", text, value);
        cJSON_Delete(back);
        cJSON_free(text);
        cJSON_Delete(item);
    }
}
END_TEST

START_TEST(values_that_are_not_finite_survive_the_file) {
    dp_result_file file;
    dflash_error err = {.message = ""};
    char path[SCRATCH_PATH];
    cJSON *document = result_check(RESULT_NAN);
    result_write(document, "nan.json", path);
    ck_assert_msg(dp_result_read(path, &file, &err) == DFLASH_OK, "%s", err.message);
    int nonfinite = 0;
    for (int i = 0; i < file.item[0].result.stage_count; i++) {
        const dp_stage_result *stage = &file.item[0].result.stage[i];
        if (stage->difference.nonfinite == 0) continue;
        nonfinite++;
        ck_assert(!stage->pass && stage->headroom == -INFINITY && !isfinite(stage->difference.worst_got));
    }
    ck_assert_int_gt(nonfinite, 10);
    dp_result_file_release(&file);
    cJSON_Delete(document);
}
END_TEST

static void prefix_is_refused(const char *text, size_t length, const char *path) {
    dp_result_file file;
    dflash_error err = {.message = ""};
    scratch_write("cut.json", text, length);
    const dflash_status status = dp_result_read(path, &file, &err);
    ck_assert_msg(status == DFLASH_ERR_REFUSED && strcmp(err.code, "result.json") == 0,
                  "the first %zu bytes: status %d, %s", length, status, err.code);
    dp_result_file_release(&file);
}

START_TEST(every_truncated_prefix_is_refused) {
    static const result_kind kinds[] = {RESULT_REFUSED, RESULT_FAIL};
    const size_t step = _i == 0 ? 1 : 997; /* a whole result is 200 kB: every prefix of it would take minutes */
    char path[SCRATCH_PATH];
    cJSON *document = result_check(kinds[_i]);
    char *text = cJSON_PrintUnformatted(document);
    const size_t length = strlen(text);
    scratch_path("cut.json", path);
    for (size_t n = 0; n < length; n += step) prefix_is_refused(text, n, path);
    prefix_is_refused(text, length - 1, path);
    cJSON_free(text);
    cJSON_Delete(document);
}
END_TEST

START_TEST(text_after_the_document_is_refused) {
    char path[SCRATCH_PATH];
    cJSON *document = result_check(RESULT_REFUSED);
    char *text = cJSON_PrintUnformatted(document), *more = malloc(strlen(text) + 3);
    sprintf(more, "%s{}", text);
    prefix_is_refused(more, strlen(more), scratch_path("cut.json", path));
    free(more);
    cJSON_free(text);
    cJSON_Delete(document);
}
END_TEST

/* ---- Every key is demanded ---- */

/* Names and values that a reader only shows. */
static bool only_shown(const char *path) {
    static const char *const shown[] = {"environment/", "checkpoint/geometry/", "oracle/provenance/", "device/"};
    static const char *const demanded[] = {"environment/version", "environment/commit", "environment/compiler",
                                           "environment/dirty"};
    for (size_t i = 0; i < sizeof demanded / sizeof *demanded; i++)
        if (strcmp(path, demanded[i]) == 0) return false;
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        if (strstr(path, shown[i]) != NULL) return true;
    return false;
}

/* Keys that the stored results, written before them, do not have; where they are, their type counts. */
static bool newer(const char *path) {
    static const char *const keys[] = {"cases/coverage", "cases/stages/sketch", "cases/stages/isolated/fed_values"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(path, keys[i]) == 0) return true;
    return false;
}

static bool refused(cJSON *document) {
    dp_result_file file;
    dflash_error err = {.message = ""};
    const dflash_status status = dp_result_parse(document, "a.json", &file, &err);
    dp_result_file_release(&file);
    return status == DFLASH_ERR_REFUSED && strncmp(err.code, "result.", 7) == 0;
}

/* Takes every key away, then puts `true` and a string there; of an array the first entry alone is looked into. */
static int demand(cJSON *document, cJSON *object, const char *prefix, char *loose, size_t size) {
    int keys = 0;
    for (cJSON *item = object->child, *next; item != NULL; item = next) {
        char path[200];
        next = item->next;
        snprintf(path, sizeof path, "%s%s", prefix, item->string);
        if (only_shown(path)) continue;
        keys++;
        cJSON saved = *item; /* its name and its neighbours stay */
        char *name = item->string;
        char other[] = "another";
        item->string = other;
        const bool missing = refused(document) || newer(path);
        item->string = name;
        item->type = cJSON_IsBool(&saved) ? cJSON_Array : cJSON_True;
        item->child = NULL;
        const bool wrong = refused(document);
        *item = saved;
        if (!missing || !wrong)
            snprintf(loose + strlen(loose), size - strlen(loose), " %s (%s)", path, missing ? "type" : "missing");
        cJSON *inside = cJSON_IsArray(item) && cJSON_IsObject(item->child) ? item->child : item;
        snprintf(path, sizeof path, "%s%s/", prefix, item->string);
        if (cJSON_IsObject(inside)) keys += demand(document, inside, path, loose, size);
    }
    return keys;
}

START_TEST(every_key_of_the_schema_is_demanded_with_its_type) {
    static const result_kind kinds[] = {RESULT_PASS, RESULT_FAIL, RESULT_REFUSED};
    char loose[4000] = "";
    cJSON *document = result_check(kinds[_i]);
    ck_assert(!refused(document));
    const int keys = demand(document, document, "", loose, sizeof loose);
    ck_assert_msg(loose[0] == '\0', "not demanded:%s", loose);
    ck_assert_int_gt(keys, kinds[_i] == RESULT_REFUSED ? 50 : 100);
    cJSON_Delete(document);
}
END_TEST

START_TEST(what_contradicts_itself_is_refused) {
    static const struct {
        result_kind kind;
        const char *path, *json, *code, *word;
    } lies[] = {{RESULT_PASS, "schema", "\"dflash-parity-gate\"", "result.schema", "dflash-parity-gate"},
                {RESULT_PASS, "schema_version", "1", "result.version", "version 1"},
                {RESULT_PASS, "schema_version", "3", "result.version", "version 3"},
                {RESULT_PASS, "cases/0/stages_compared", "58", "result.counts", "stages_compared"},
                {RESULT_FAIL, "cases/0/stages_failed", "0", "result.counts", "stages_failed"},
                {RESULT_FAIL, "cases/0/verdict", "\"PASS\"", "result.counts", "verdict is PASS"},
                {RESULT_PASS, "cases/0/verdict", "\"FAIL\"", "result.counts", "verdict is FAIL"},
                {RESULT_NOTHING, "cases/0/verdict", "\"PASS\"", "result.counts", "of 0 comparisons"},
                {RESULT_FAIL, "verdict", "\"PASS\"", "result.key", "worst case"},
                {RESULT_FAIL, "cases/0/exit_code", "0", "result.key", "exit_code"},
                {RESULT_FAIL, "cases/0/first_divergence/stage", "\"final\"", "result.counts", "first_divergence"},
                {RESULT_FAIL, "cases/0/first_divergence", "null", "result.counts", "first_divergence"},
                {RESULT_PASS, "cases/0/stages/9/layer", "1", "result.key", "layer"},
                {RESULT_PASS, "cases/0/stages/9/chained/worst/at", "[1]", "result.key", "\"at\""},
                {RESULT_PASS, "cases/0/stages/9/chained/worst/at", "[999, 1, 1]", "result.key", "coordinates of"},
                {RESULT_REFUSED, "cases/0/error", "null", "result.key", "REFUSED and ERROR"},
                {RESULT_PASS, "cases", "[]", "result.key", "exactly one case"},
                {RESULT_PASS, "verdict", "\"FINE\"", "result.key", "verdict"},
                {RESULT_PASS, "cases/0/stages/4/name", "\"layers.0.nothing\"", "result.key", "stage 5"},
                {RESULT_PASS, "cases/0/stages/4/shape", "[0, 8]", "result.key", "above 0"},
                {RESULT_PASS, "cases/0/stages/4/headroom", "\"NaN\"", "result.key", "headroom"},
                {RESULT_PASS, "cases/0/stages/4/headroom", "null", "result.key", "headroom"},
                {RESULT_PASS, "cases/0/stages/4/ulp", "[1, 2, 3]", "result.key", "ulp"},
                {RESULT_PASS, "cases/0/stages/4/chained/compared", "1.5", "result.key", "compared"},
                {RESULT_PASS, "cases/0/stages/4/chained/worst/index", "1e9", "result.key", "index"},
                {RESULT_PASS, "cases/0/rounds/0/identical", "false", "result.key", "first_difference"}};
    cJSON *document = result_check(lies[_i].kind);
    result_put(document, lies[_i].path, lies[_i].json);
    for (int v = DP_PASS; v <= DP_NOTHING; v++) { /* a verdict is changed with its exit code */
        char exit_path[40], quoted[24], code[8];
        const int folder = (int)(strlen(lies[_i].path) - strlen("verdict"));
        snprintf(quoted, sizeof quoted, "\"%s\"", dp_verdict_name((dp_verdict)v));
        if (strcmp(quoted, lies[_i].json) != 0) continue;
        snprintf(exit_path, sizeof exit_path, "%.*sexit_code", folder, lies[_i].path);
        snprintf(code, sizeof code, "%d", dp_verdict_exit_code((dp_verdict)v));
        result_put(document, exit_path, code);
    }
    result_refused(document, lies[_i].code, lies[_i].word);
    cJSON_Delete(document);
}
END_TEST

START_TEST(what_is_no_document_is_refused) {
    static const struct {
        const char *text, *code;
    } bad[] = {{"", "result.json"},
               {"not json", "result.json"},
               {"[]", "result.schema"},
               {"7", "result.schema"},
               {"{}", "result.schema"},
               {"{\"schema\":\"dflash-parity-result\"}", "result.version"},
               {"{\"schema\":\"dflash-parity-result\",\"schema_version\":2}", "result.key"}};
    dp_result_file file;
    dflash_error err = {.message = ""};
    char path[SCRATCH_PATH];
    scratch_write_text("a.json", bad[_i].text);
    ck_assert_int_eq(dp_result_read(scratch_path("a.json", path), &file, &err), DFLASH_ERR_REFUSED);
    ck_assert_str_eq(err.code, bad[_i].code);
    dp_result_file_release(&file);
}
END_TEST

START_TEST(keys_that_a_reader_does_not_know_are_left_alone) {
    cJSON *document = result_check(RESULT_PASS);
    cJSON_AddStringToObject(document, "later", "addition");
    cJSON_AddStringToObject(result_at(document, "cases/0/stages/0"), "later", "addition");
    ck_assert(!refused(document));
    cJSON_Delete(document);
}
END_TEST

Suite *suite_result(void) {
    Suite *suite = suite_create("result");
    TCase *tests = tcase_create("result");
    tcase_add_checked_fixture(tests, scratch_open, scratch_close);
    tcase_set_timeout(tests, 240); /* thousands of prefixes, slow under sanitizers */
    tcase_add_test(tests, a_result_reads_back_as_the_run_had_it);
    tcase_add_test(tests, a_document_that_nobody_asked_for_is_not_built);
    tcase_add_test(tests, every_double_reads_back_to_the_bit_in_as_few_digits_as_that_takes);
    tcase_add_test(tests, values_that_are_not_finite_survive_the_file);
    tcase_add_loop_test(tests, every_truncated_prefix_is_refused, 0, 2);
    tcase_add_test(tests, text_after_the_document_is_refused);
    tcase_add_loop_test(tests, every_key_of_the_schema_is_demanded_with_its_type, 0, 3);
    tcase_add_loop_test(tests, what_contradicts_itself_is_refused, 0, 26);
    tcase_add_loop_test(tests, what_is_no_document_is_refused, 0, 7);
    tcase_add_test(tests, keys_that_a_reader_does_not_know_are_left_alone);
    suite_add_tcase(suite, tests);
    return suite;
}
