/*
 * test_printable.c - control characters of names, paths and messages from elsewhere reach no terminal, log or report:
 * they are shown as \xNN, and no name can begin a line that looks like the program's own.
 */
#include "support/child.h"
#include "common/error.h"
#include "base/json_text.h"
#include "history/postmortem.h"
#include "common/printable.h"
#include "support/result_case.h"
#include "suites.h"

#include <stdlib.h>
#include <string.h>

/* ---- The function ---- */

static const struct {
    const char *text, *shown;
} pieces[] = {{"", ""},
              {"layers.0.attn", "layers.0.attn"},
              {"a\nb\tc\rd", "a\\x0ab\\x09c\\x0dd"},
              {"\x1b[31mred", "\\x1b[31mred"},
              {"\x7f", "\\x7f"},
              {"\xc2\x9b"
               "31m",
               "\\xc2\\x9b"
               "31m"}, /* U+009B begins a sequence as ESC [ does */
              {"\xc2\xa0x", "\xc2\xa0x"},
              {"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x99\x82", "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x99\x82"},
              {"\xc3", "\\xc3"},                   /* cut off */
              {"\xc0\x80", "\\xc0\\x80"},          /* overlong */
              {"\xed\xa0\x80", "\\xed\\xa0\\x80"}, /* a surrogate */
              {"\x9b"
               "31m",
               "\\x9b"
               "31m"}};

START_TEST(control_characters_and_what_is_no_utf8_are_written_as_hex) {
    char out[64];
    ck_assert_uint_eq(df_printable(pieces[_i].text, out, sizeof out), strlen(pieces[_i].shown));
    ck_assert_str_eq(out, pieces[_i].shown);
    ck_assert_uint_eq(df_printable(pieces[_i].text, NULL, 0), strlen(pieces[_i].shown));
}
END_TEST

START_TEST(what_does_not_fit_is_cut_between_characters) {
    static const char text[] = "a\x1b\xe2\x82\xac";
    static const char *const cut[] = {"", "a", "a", "a", "a", "a\\x1b", "a\\x1b", "a\\x1b", "a\\x1b\xe2\x82\xac"};
    for (size_t size = 1; size <= 9; size++) {
        char out[16];
        ck_assert_uint_eq(df_printable(text, out, size), 8);
        ck_assert_str_eq(out, cut[size - 1]);
    }
}
END_TEST

START_TEST(an_error_message_is_one_line) {
    dflash_error err;
    df_fail(&err, DFLASH_ERR_IO, "a.code", "Cannot open %s.", "a\n\x1b]0;title\a");
    ck_assert_str_eq(err.message, "Cannot open a\\x0a\\x1b]0;title\\x07.");
    child run = CHILD("check", "--checkpoint", "no\x1b[2J\nPASS: all", "--oracle", "oracles/tiny-edge.h5");
    ck_assert_ptr_null(strstr(run.out, "\nPASS"));
    child_expect(run, 4, "no\\x1b[2J\\x0aPASS: all", NULL);
}
END_TEST

START_TEST(a_case_cannot_be_named_with_control_characters) {
    char path[SCRATCH_PATH];
    scratch_write_text("cases.json",
                       "{\"cases\":[{\"name\":\"a\\u001b[2J\",\"checkpoint\":\"b\",\"oracle\":\"c\",\"stored\":true,"
                       "\"synth\":{\"config\":\"x\",\"seed\":1,\"dtype\":\"bf16\",\"profile\":\"unit\"}}]}");
    child_expect(CHILD("gate", "--cases", scratch_path("cases.json", path)), 3, "", "cases.entry: Case 1 of ");
    child_expect(CHILD("gate", "--cases", path), 3, "", "(a\\x1b[2J): expected name");
}
END_TEST

/* ---- Reports ---- */

/* ESC, a line end and U+009B, as JSON. */
static const char evil[] = "\"x\\u001b[2J\\nPASS: 9 of 9 cases passed\\u009bm\"";

static const struct {
    result_kind kind;
    const char *path;
} places[] = {{RESULT_PASS, "cases/0/case"},
              {RESULT_FAIL, "cases/0/case"},
              {RESULT_REFUSED, "cases/0/case"},
              {RESULT_FAIL, "command"},
              {RESULT_FAIL, "when"},
              {RESULT_FAIL, "cases/0/command"},
              {RESULT_FAIL, "environment/compiler"},
              {RESULT_FAIL, "environment/commit"},
              {RESULT_FAIL, "cases/0/checkpoint/path"},
              {RESULT_FAIL, "cases/0/oracle/path"},
              {RESULT_FAIL, "cases/0/rounds/0/name"},
              {RESULT_FAIL, "cases/0/stages/0/bar/origin"},
              {RESULT_FAIL, "cases/0/growth/0/source"},
              {RESULT_REFUSED, "cases/0/error/code"},
              {RESULT_REFUSED, "cases/0/error/message"},
              {RESULT_NOTHING, "filter"}};
enum { PLACES = sizeof places / sizeof *places };

static void is_clean(const char *text, const char *what) {
    for (const char *at = text; *at != '\0'; at++) {
        const unsigned char c = (unsigned char)*at;
        ck_assert_msg((c >= 0x20 || c == '\n') && c != 0x7f && !(c == 0xc2 && (unsigned char)at[1] < 0xa0),
                      "byte 0x%02x in the %s: %.60s", c, what, at);
    }
    ck_assert_msg(strstr(text, "\nPASS: 9") == NULL, "a line of its own in the %s", what);
}

START_TEST(no_report_holds_a_control_character_of_a_result_file) {
    static const struct {
        dp_report_format format;
        const char *name;
    } formats[] = {{DP_REPORT_TEXT, "text"},
                   {DP_REPORT_MARKDOWN, "markdown"},
                   {DP_REPORT_JUNIT, "junit"},
                   {DP_REPORT_GITHUB, "github"}};
    cJSON *document = result_check(places[_i].kind);
    int shown = 0;
    result_put(document, places[_i].path, evil);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        char *text = result_render(document, formats[i].format);
        is_clean(text, formats[i].name);
        shown += strstr(text, "x1b[2J") != NULL || strstr(text, "x1b\\[2J") != NULL;
        free(text);
    }
    /* A check names no case in its text, and some reports leave a place out; at least one shows it. */
    if (strstr(places[_i].path, "origin") == NULL && strstr(places[_i].path, "rounds") == NULL)
        ck_assert_msg(shown > 0, "nobody shows %s", places[_i].path);
    /* The file keeps what it had. */
    ck_assert_ptr_nonnull(strchr(result_at(document, places[_i].path)->valuestring, '\x1b'));
    cJSON_Delete(document);
}
END_TEST

START_TEST(a_stage_with_a_control_character_is_refused) {
    cJSON *document = result_check(RESULT_FAIL);
    result_put(document, "cases/0/stages/3/name", evil);
    result_refused(document, "result.key", "the name of a stage");
    cJSON_Delete(document);
}
END_TEST

START_TEST(keys_histories_and_stories_are_no_way_round) {
    char path[SCRATCH_PATH], history[SCRATCH_PATH];
    cJSON *document = result_check(RESULT_FAIL);
    cJSON_AddStringToObject(result_at(document, "environment"), "k\x1b[2J", "value");
    result_put(document, "cases/0/case", evil);
    result_write(document, "a.json", path);
    char *text = result_render(document, DP_REPORT_MARKDOWN);
    is_clean(text, "markdown");
    ck_assert_ptr_nonnull(strstr(text, "k\\\\x1b\\[2J"));
    free(text);
    child_expect(CHILD("postmortem", path), 0, "x1b[2J", "");
    child_expect(CHILD("report", path), 0, "FAIL: ", ""); /* child.c looks for escapes in every output */
    scratch_write_text("h.jsonl",
                       "{\"history\":1,\"when\":\"2026-01-02T00:00:00Z\",\"commit\":\"c\\u001b[2J\",\"dirty\":false,"
                       "\"verdict\":\"PASS\",\"cases\":[{\"case\":\"a\\u001b[2J\",\"verdict\":\"PASS\",\"series\":"
                       "\"0123456789abcdef\",\"stage\":\"final\",\"used\":0.1,\"final\":0.1}]}\n");
    child_expect(CHILD("history", scratch_path("h.jsonl", history)), 0, "a\\x1b[2J", "");
    cJSON_Delete(document);
}
END_TEST

Suite *suite_printable(void) {
    Suite *suite = suite_create("printable");
    TCase *tests = tcase_create("printable");
    tcase_add_checked_fixture(tests, scratch_open, scratch_close);
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, control_characters_and_what_is_no_utf8_are_written_as_hex, 0,
                        sizeof pieces / sizeof *pieces);
    tcase_add_test(tests, what_does_not_fit_is_cut_between_characters);
    tcase_add_test(tests, an_error_message_is_one_line);
    tcase_add_test(tests, a_case_cannot_be_named_with_control_characters);
    tcase_add_loop_test(tests, no_report_holds_a_control_character_of_a_result_file, 0, PLACES);
    tcase_add_test(tests, a_stage_with_a_control_character_is_refused);
    tcase_add_test(tests, keys_histories_and_stories_are_no_way_round);
    suite_add_tcase(suite, tests);
    return suite;
}
