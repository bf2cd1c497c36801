/*
 * test_junit.c - the JUnit report is valid, whatever the result file holds.
 *
 * Two schemas are in use, the one of Jenkins's xUnit plugin (junit-10.xsd) and the stricter one of Ant's output (Windy
 * Road's JUnit.xsd). What they demand is tested here by itself; where DP_JUNIT_XSD holds the paths of schema files,
 * separated by colons, xmllint also holds every kind of report against each.
 */
#include "support/page_case.h"
#include "support/result_case.h"
#include "suites.h"

#include <stdlib.h>
#include <string.h>

enum { KINDS = 7 };

/* Every kind of result: pass, failure, NaN, refusal, nothing compared, several cases, no case; hostile is put in too.
 */
static cJSON *document_of(int kind) {
    static const result_kind several[] = {RESULT_PASS, RESULT_NAN, RESULT_REFUSED, RESULT_FAIL};
    static const char hostile[] = "\"<&'\\u001b\\n]]> \\\"\"";
    if (kind == 6) return result_gate(NULL, 0);
    cJSON *document = kind < 5 ? result_check((result_kind)kind) : result_gate(several, 4);
    result_put(document, "cases/0/case", hostile);
    result_put(document, "cases/0/oracle/path", "\"\"");
    if (kind == RESULT_FAIL) result_put(document, "when", "\"2026-02-30T00:00:00Z\""); /* a day that there is not */
    result_put(document, "cases/0/seconds/total", kind == 0 ? "\"nan\"" : kind == 1 ? "-1e3" : "1e9");
    cJSON_AddStringToObject(result_at(document, "environment"), "", "of no name");
    cJSON_AddStringToObject(result_at(document, "environment"), "  ", "of a blank name");
    if (kind == RESULT_REFUSED) result_put(document, "cases/0/error/message", hostile);
    return document;
}

/* The value of an attribute of the element that `at` is inside of; fails when it lacks it. */
static const char *value_of(const char *element, const char *name, char out[256]) {
    char key[32];
    snprintf(key, sizeof key, " %s=\"", name);
    const char *at = strstr(element, key);
    ck_assert_msg(at != NULL && at < strchr(element, '>'), "no %s in %.120s", name, element);
    at += strlen(key);
    snprintf(out, 256, "%.*s", (int)strcspn(at, "\""), at);
    return out;
}

static void is_seconds(const char *text) {
    const size_t whole = strspn(text, "0123456789");
    ck_assert_msg(whole > 0 && text[whole] == '.' && strspn(text + whole + 1, "0123456789") == 3 &&
                      text[whole + 4] == '\0',
                  "no seconds: %s", text);
}

/* Between the tags of one suite: properties, test cases with at most one fault, both streams, and nothing else. */
static void check_suite(const char *suite, const char *end) {
    static const char *const required[] = {"name",     "id",    "package",  "timestamp",
                                           "hostname", "tests", "failures", "errors"};
    char value[256];
    for (size_t i = 0; i < sizeof required / sizeof *required; i++)
        ck_assert_msg(value_of(suite, required[i], value)[0] != '\0', "empty: %s", required[i]);
    ck_assert_uint_eq(strlen(value_of(suite, "timestamp", value)), strlen("2026-01-02T03:04:05"));
    is_seconds(value_of(suite, "time", value));
    const char *properties = strstr(suite, "<properties"), *first = strstr(suite, "<testcase "),
               *out = strstr(suite, "<system-out>"), *err = strstr(suite, "<system-err>");
    ck_assert(properties != NULL && first != NULL && properties < first && first < out && out < err && err < end);
    for (const char *p = strstr(suite, "<property "); p != NULL && p < end; p = strstr(p + 1, "<property ")) {
        value_of(p, "name", value);
        ck_assert_msg(value[strspn(value, " ")] != '\0', "a property without a name");
        value_of(p, "value", value);
    }
    for (const char *c = first; c != NULL && c < end; c = strstr(c + 1, "<testcase ")) {
        const char *close = strstr(c, "</testcase>");
        ck_assert(close != NULL && close < out);
        is_seconds(value_of(c, "time", value));
        ck_assert_str_ne(value_of(c, "name", value), "");
        ck_assert_str_ne(value_of(c, "classname", value), "");
        const char *fault = strstr(c, "<failure "), *error = strstr(c, "<error ");
        if (fault == NULL || fault > close) fault = error;
        if (fault == NULL || fault > close) continue;
        ck_assert_str_ne(value_of(fault, "type", value), "");
        value_of(fault, "message", value);
        const char *more = strstr(fault + 1, "<failure ");
        ck_assert(more == NULL || more > close);
    }
}

START_TEST(every_report_has_the_form_that_both_schemas_demand) {
    cJSON *document = document_of(_i);
    char *text = result_render(document, DP_REPORT_JUNIT), value[256];
    int suites = 0;
    page_tags_are_balanced(strstr(text, "<testsuites>"));
    for (const char *s = strstr(text, "<testsuite "); s != NULL; s = strstr(s + 1, "<testsuite ")) {
        check_suite(s, strstr(s, "</testsuite>"));
        ck_assert_int_eq(atoi(value_of(s, "id", value)), suites++);
    }
    ck_assert_int_eq(suites, _i == 5 ? 4 : 1);
    ck_assert_ptr_null(strchr(text, '\x1b'));
    free(text);
    cJSON_Delete(document);
}
END_TEST

START_TEST(a_nan_is_told_as_a_count_and_not_as_a_distance) {
    cJSON *document = result_check(RESULT_NAN);
    char *text = result_render(document, DP_REPORT_JUNIT);
    ck_assert_ptr_nonnull(strstr(text, " NaN and "));
    ck_assert_ptr_nonnull(strstr(text, "which leaves no distance to a limit"));
    ck_assert_ptr_nonnull(strstr(text, "Run alone: "));
    for (const char *f = strstr(text, "<failure message=\"rel L2 "); f != NULL;
         f = strstr(f + 1, "<failure message=\"rel"))
        ck_assert_ptr_null(memmem(f, strcspn(f, "\n"), "NaN", 3));
    free(text);
    cJSON_Delete(document);
}
END_TEST

START_TEST(xmllint_finds_every_report_valid) {
    char *schemas = strdup(getenv("DP_JUNIT_XSD"));
    char path[SCRATCH_PATH], command[2 * SCRATCH_PATH + 600];
    cJSON *document = document_of(_i);
    char *text = result_render(document, DP_REPORT_JUNIT);
    scratch_write_text("a.xml", text);
    for (char *schema = strtok(schemas, ":"); schema != NULL; schema = strtok(NULL, ":")) {
        snprintf(command, sizeof command, "xmllint --noout --schema '%.500s' '%s'", schema,
                 scratch_path("a.xml", path));
        ck_assert_msg(system(command) == 0, "kind %d is not valid by %s", _i, schema);
    }
    free(schemas);
    free(text);
    cJSON_Delete(document);
}
END_TEST

Suite *suite_junit(void) {
    Suite *suite = suite_create("junit");
    TCase *tests = tcase_create("junit");
    tcase_add_checked_fixture(tests, scratch_open, scratch_close);
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, every_report_has_the_form_that_both_schemas_demand, 0, KINDS);
    tcase_add_test(tests, a_nan_is_told_as_a_count_and_not_as_a_distance);
    if (getenv("DP_JUNIT_XSD") != NULL) tcase_add_loop_test(tests, xmllint_finds_every_report_valid, 0, KINDS);
    suite_add_tcase(suite, tests);
    return suite;
}
