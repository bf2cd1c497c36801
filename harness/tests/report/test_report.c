/*
 * test_report.c - reports of real results: what each format says of a pass, a failure, a refusal and values that are
 * not finite, that text from outside stays text in all of them, and the command that makes them.
 */
#include "support/child.h"
#include "base/colour.h"
#include "support/page_case.h"
#include "report/report.h"
#include "support/result_case.h"
#include "suites.h"

#include <stdlib.h>
#include <string.h>

static void holds(const char *text, const char *word) {
    ck_assert_msg(strstr(text, word) != NULL, "\"%s\" is not in: %.3000s", word, text);
}

static void lacks(const char *text, const char *word) {
    ck_assert_msg(strstr(text, word) == NULL, "\"%s\" is in: %.3000s", word, text);
}

static int times(const char *text, const char *word) {
    int n = 0;
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) n++;
    return n;
}

static char *rendered(result_kind kind, dp_report_format format) {
    cJSON *document = result_check(kind);
    char *text = result_render(document, format);
    cJSON_Delete(document);
    return text;
}

static const dp_report_format streams[] = {DP_REPORT_TEXT, DP_REPORT_MARKDOWN, DP_REPORT_JUNIT, DP_REPORT_GITHUB};
enum { STREAMS = sizeof streams / sizeof *streams };

/* ---- What they say ---- */

START_TEST(a_failure_is_told_with_its_stage_in_every_format) {
    char *text = rendered(RESULT_FAIL, streams[_i]);
    holds(text, "layers.1.attn.norm");
    if (streams[_i] == DP_REPORT_TEXT) holds(text, "FAIL: 59 of 59 stages compared");
    if (streams[_i] == DP_REPORT_MARKDOWN) holds(text, "## dflash-parity check: FAIL\n\n0 of 1 cases passed");
    if (streams[_i] == DP_REPORT_JUNIT) holds(text, "<failure message=");
    if (streams[_i] == DP_REPORT_GITHUB) holds(text, "::error title=tiny-plain FAIL at layers.1.attn.norm::");
    free(text);
}
END_TEST

START_TEST(a_pass_says_what_was_compared_and_no_format_holds_a_failure) {
    char *text = rendered(RESULT_PASS, streams[_i]);
    if (streams[_i] == DP_REPORT_TEXT) holds(text, "PASS: 59 of 59 stages compared");
    if (streams[_i] == DP_REPORT_MARKDOWN) holds(text, "1 of 1 cases passed");
    if (streams[_i] == DP_REPORT_MARKDOWN) holds(text, "<summary>59 stages inside their limits</summary>");
    if (streams[_i] == DP_REPORT_JUNIT) holds(text, "failures=\"0\" errors=\"0\"");
    if (streams[_i] == DP_REPORT_GITHUB) holds(text, "::notice title=dflash-parity PASS::1 of 1 cases passed");
    lacks(text, "FAIL");
    lacks(text, "<failure");
    lacks(text, "::error");
    free(text);
}
END_TEST

START_TEST(a_refusal_is_an_error_with_its_code_in_every_format) {
    char *text = rendered(RESULT_REFUSED, streams[_i]);
    holds(text, streams[_i] == DP_REPORT_MARKDOWN ? "provenance.tensor.differs" : "provenance.");
    holds(text, streams[_i] == DP_REPORT_JUNIT    ? "tests=\"1\" failures=\"0\" errors=\"1\""
                : streams[_i] == DP_REPORT_GITHUB ? "::error title=tiny-plain REFUSED::"
                                                  : "REFUSED");
    lacks(text, "PASS");
    free(text);
}
END_TEST

START_TEST(nothing_compared_is_no_pass_in_any_format) {
    char *text = rendered(RESULT_NOTHING, streams[_i]);
    holds(text, streams[_i] == DP_REPORT_JUNIT    ? "errors=\"1\""
                : streams[_i] == DP_REPORT_GITHUB ? "::error title=tiny-plain NOTHING COMPARED::"
                                                  : "NOTHING COMPARED");
    lacks(text, "PASS");
    free(text);
}
END_TEST

START_TEST(values_that_are_not_finite_are_told_in_every_format) {
    char *text = rendered(RESULT_NAN, streams[_i]);
    static const char *const word[] = {[DP_REPORT_TEXT] = "values that are not finite cannot be held against it",
                                       [DP_REPORT_MARKDOWN] = "| none |",
                                       [DP_REPORT_JUNIT] = "which leaves no distance",
                                       [DP_REPORT_GITHUB] = "::error title=tiny-plain FAIL at layers.0.mlp."};
    holds(text, word[streams[_i]]);
    free(text);
}
END_TEST

START_TEST(the_full_table_shows_no_distance_beside_a_nan) {
    static const char *const names[] = {"layers.0.mlp.act", "final"};
    dp_result run;
    char *text = NULL;
    size_t length = 0;
    scratch_copy_case("tiny-plain");
    scratch_flip_weight("layers.0.mlp.gate_proj.weight", 3, 14, true);
    scratch_flip_weight("layers.0.mlp.up_proj.weight", 3, 14, true);
    scratch_check(NULL, &run);
    FILE *to = open_memstream(&text, &length);
    dp_report_full(to, &run);
    fclose(to);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char word[64];
        snprintf(word, sizeof word, "FAIL  %-26s ", names[i]);
        const char *line = strstr(text, word);
        ck_assert_msg(line != NULL, "no line of %s", names[i]);
        char count[32], measure[3][32];
        ck_assert_int_eq(sscanf(line + strlen(word), "%31s %31s %31s %31s", count, measure[0], measure[1], measure[2]),
                         4);
        for (int m = 0; m < 3; m++) ck_assert_msg(strstr(measure[m], "nan") != NULL, "%.120s", line);
    }
    const char *finite = strstr(text, "ok    ctx.features");
    ck_assert(finite != NULL && memmem(finite, 90, "nan", 3) == NULL);
    free(text);
    dp_result_release(&run);
}
END_TEST

START_TEST(the_lines_of_a_verdict_are_no_wider_than_a_hundred_columns) {
    static const result_kind kinds[] = {RESULT_PASS, RESULT_FAIL, RESULT_NAN, RESULT_NOTHING};
    char *text = rendered(kinds[_i], DP_REPORT_TEXT);
    int lines = 0;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        const bool closing = strncmp(line, "PASS: ", 6) == 0 || strncmp(line, "FAIL: ", 6) == 0 ||
                             strncmp(line, "NOTHING COMPARED: ", 18) == 0;
        const bool second =
            strstr(line, " alone, ") != NULL && strncmp(line, "      ", 6) == 0 && line[6] >= '0' && line[6] <= '9';
        lines += closing || second;
        ck_assert_msg(!(closing || second) || strlen(line) <= 100, "%zu columns: %s", strlen(line), line);
    }
    ck_assert_int_eq(lines, kinds[_i] == RESULT_NOTHING ? 1 : 2);
    free(text);
}
END_TEST

START_TEST(a_gate_without_a_case_is_an_error_in_every_format) {
    cJSON *document = result_gate(NULL, 0);
    char *text = result_render(document, streams[_i]);
    holds(text, streams[_i] == DP_REPORT_JUNIT    ? "errors=\"1\""
                : streams[_i] == DP_REPORT_GITHUB ? "::error title=NOTHING COMPARED"
                                                  : "NOTHING COMPARED");
    lacks(text, "PASS");
    free(text);
    cJSON_Delete(document);
}
END_TEST

/* ---- Forms ---- */

static int count_of(const char *text, const char *attribute) {
    int sum = 0;
    const size_t length = strlen(attribute);
    for (const char *at = strstr(text, attribute); at != NULL; at = strstr(at + 1, attribute)) sum += atoi(at + length);
    return sum;
}

START_TEST(junit_counts_what_it_holds) {
    static const result_kind kinds[] = {RESULT_PASS, RESULT_FAIL, RESULT_REFUSED, RESULT_NAN};
    cJSON *document = result_gate(kinds, 4);
    const cJSON *item;
    int stages = 0, alone = 0, rounds = 0, failed = 0;
    cJSON_ArrayForEach(item, result_at(document, "cases")) {
        stages += cJSON_GetArraySize(cJSON_GetObjectItem(item, "stages"));
        rounds += cJSON_GetArraySize(cJSON_GetObjectItem(item, "rounds"));
        alone += cJSON_GetObjectItem(item, "stages_isolated")->valueint;
        failed += cJSON_GetObjectItem(item, "stages_failed")->valueint;
        failed += cJSON_GetObjectItem(item, "isolated_failed")->valueint;
        failed += cJSON_GetObjectItem(item, "rounds_failed")->valueint;
    }
    char *text = result_render(document, DP_REPORT_JUNIT);
    page_tags_are_balanced(strstr(text, "<testsuites>"));
    ck_assert_int_eq(times(text, "<testsuite "), 4);
    ck_assert_int_eq(times(text, "<testcase "), stages + alone + rounds + 1);
    ck_assert_int_eq(count_of(text, " tests=\""), times(text, "<testcase "));
    ck_assert_int_eq(times(text, "<failure "), failed);
    ck_assert_int_eq(count_of(text, " failures=\""), failed);
    ck_assert_int_eq(times(text, "<error "), 1);
    ck_assert_int_eq(count_of(text, " errors=\""), 1);
    ck_assert_int_ge(failed, 2);
    ck_assert_int_eq(times(text, "<property name=\"commit\""), 4);
    free(text);
    cJSON_Delete(document);
}
END_TEST

START_TEST(markdown_tells_what_does_not_pass_first_and_folds_the_rest) {
    static const result_kind kinds[] = {RESULT_PASS, RESULT_FAIL, RESULT_REFUSED};
    cJSON *document = result_gate(kinds, 3);
    char *text = result_render(document, DP_REPORT_MARKDOWN);
    holds(text, "## dflash-parity gate: REFUSED\n\n1 of 3 cases passed");
    ck_assert_ptr_nonnull(strstr(strstr(text, "### case1: FAIL"), "### case2: REFUSED"));
    ck_assert_ptr_nonnull(strstr(strstr(text, "### case2: REFUSED"), "### case0: PASS"));
    ck_assert_int_eq(times(text, "<details"), times(text, "</details>"));
    free(text);
    cJSON_Delete(document);
}
END_TEST

/* Adds copies of the last stage until there are `count`. */
static void multiply_stages(cJSON *document, int count) {
    cJSON *stages = result_at(document, "cases/0/stages");
    char number[16];
    snprintf(number, sizeof number, "%d", count);
    const cJSON *last = cJSON_GetArrayItem(stages, cJSON_GetArraySize(stages) - 1);
    const int added = count - cJSON_GetArraySize(stages);
    const bool failed = !cJSON_IsTrue(cJSON_GetObjectItem(last, "pass"));
    const bool alone = cJSON_IsObject(cJSON_GetObjectItem(last, "isolated"));
    for (int i = 0; i < added; i++) cJSON_AddItemToArray(stages, cJSON_Duplicate(last, true));
    cJSON *compared = result_at(document, "cases/0/stages_compared"),
          *bad = result_at(document, "cases/0/stages_failed");
    cJSON *isolated = result_at(document, "cases/0/stages_isolated");
    cJSON_SetNumberValue(compared, count);
    cJSON_SetNumberValue(bad, bad->valuedouble + (failed ? added : 0));
    cJSON_SetNumberValue(isolated, isolated->valuedouble + (alone ? added : 0));
}

START_TEST(markdown_of_a_huge_case_is_short_and_still_names_the_stage) {
    cJSON *document = result_check(RESULT_FAIL), *environment = result_at(document, "environment");
    multiply_stages(document, 3000);
    cJSON_DeleteItemFromObjectCaseSensitive(result_at(document, "cases/0"), "coverage"); /* it was of fewer stages */
    for (int i = 0; i < 60; i++) {
        char name[32];
        snprintf(name, sizeof name, "fact%d", i);
        cJSON_AddStringToObject(environment, name, "&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&");
    }
    char *text = result_render(document, DP_REPORT_MARKDOWN);
    ck_assert_uint_le(strlen(text), DP_MARKDOWN_MOST);
    holds(text, "It began at `layers.1.attn.norm`");
    holds(text, "These are the first 100; the result file holds all ");
    holds(text, "The environment is too long");
    ck_assert_int_eq(times(text, "<details"), times(text, "</details>"));
    free(text);
    cJSON_Delete(document);
}
END_TEST

START_TEST(markdown_of_many_cases_is_short_and_says_what_it_leaves_out) {
    static const result_kind one = RESULT_FAIL;
    cJSON *document = result_gate(&one, 1), *cases = result_at(document, "cases");
    for (int i = 1; i < 900; i++) cJSON_AddItemToArray(cases, cJSON_CreateObjectReference(cases->child->child));
    char *text = result_render(document, DP_REPORT_MARKDOWN);
    ck_assert_uint_le(strlen(text), DP_MARKDOWN_MOST);
    holds(text, " more cases are not listed.");
    holds(text, " of 900 cases are not shown in detail");
    free(text);
    cJSON_Delete(document);
}
END_TEST

START_TEST(github_shows_ten_annotations_and_counts_the_rest) {
    static const result_kind one = RESULT_FAIL;
    cJSON *document = result_gate(&one, 1), *cases = result_at(document, "cases");
    for (int i = 1; i < 13; i++) cJSON_AddItemToArray(cases, cJSON_CreateObjectReference(cases->child->child));
    char *text = result_render(document, DP_REPORT_GITHUB);
    ck_assert_int_eq(times(text, "::error title="), 10);
    holds(text, "13 cases do not pass");
    free(text);
    cJSON_Delete(document);
}
END_TEST

/* ---- Text from outside ---- */

static const char hostile[] = "\"a<b>`*|&'@x</details>]]>\\n::error::%0A,c: \\u0007\"";

static char *hostile_report(result_kind kind, dp_report_format format) {
    cJSON *document = result_check(kind);
    static const char *const paths[] = {"command",         "environment/compiler",    "cases/0/case",
                                        "cases/0/command", "cases/0/checkpoint/path", "cases/0/oracle/path"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) result_put(document, paths[i], hostile);
    if (kind == RESULT_REFUSED) result_put(document, "cases/0/error/message", hostile);
    if (kind == RESULT_REFUSED) result_put(document, "cases/0/error/code", hostile);
    char *text = result_render(document, format);
    cJSON_Delete(document);
    return text;
}

static const result_kind hostile_kinds[] = {RESULT_PASS, RESULT_FAIL, RESULT_REFUSED};

START_TEST(text_from_outside_stays_text_in_junit) {
    char *text = hostile_report(hostile_kinds[_i], DP_REPORT_JUNIT);
    page_tags_are_balanced(strstr(text, "<testsuites>"));
    lacks(text, "<b>");
    lacks(text, "]]>");
    lacks(text, "\a");
    holds(text, "a&#60;b&#62;");
    for (const char *at = strchr(text, '&'); at != NULL; at = strchr(at + 1, '&'))
        ck_assert_msg(at[1] == '#' && strchr(at, ';') != NULL, "an & is not escaped: %.40s", at);
    free(text);
}
END_TEST

START_TEST(text_from_outside_stays_text_in_markdown) {
    char *text = hostile_report(hostile_kinds[_i], DP_REPORT_MARKDOWN);
    bool fenced = false;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        const bool fence = strncmp(line, "```", 3) == 0;
        if (fence) fenced = !fenced;
        if (fence || fenced) continue;
        /* Outside code nothing of it marks up, breaks a table or notifies anyone. */
        bool code = false;
        for (const char *at = line; *at != '\0'; at++) {
            if (*at == '\\' && !code)
                at++;
            else if (*at == '`')
                code = !code;
            else if (!code)
                ck_assert_msg(*at != '@' && strncmp(at, "<b>", 3) != 0 && strncmp(at, "b>", 2) != 0, "not escaped: %s",
                              at);
        }
        ck_assert_msg(!code, "a tick is not closed: %s", line);
    }
    free(text);
}
END_TEST

START_TEST(text_from_outside_begins_no_workflow_command) {
    char *text = hostile_report(hostile_kinds[_i], DP_REPORT_GITHUB);
    int commands = 0;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (strncmp(line, "::", 2) != 0) continue;
        commands++;
        ck_assert_msg(strncmp(line, "::error title=", 14) == 0 ||
                          strncmp(line, "::notice title=dflash-parity PASS::", 35) == 0,
                      "a command from outside: %s", line);
    }
    ck_assert_int_eq(commands, 1);
    free(text);
}
END_TEST

/* ---- The command ---- */

START_TEST(the_command_renders_every_format_to_a_file_or_standard_output) {
    static const struct {
        const char *as, *word;
    } formats[] = {{"text", "FAIL: 59 of 59"},
                   {"markdown", "## dflash-parity"},
                   {"junit", "<testsuites>"},
                   {"github", "::error title="},
                   {"html", "<!"}};
    char path[SCRATCH_PATH], out[SCRATCH_PATH];
    size_t length;
    cJSON *document = result_check(RESULT_FAIL);
    result_write(document, "a.json", path);
    child_expect(CHILD("report", path, "--as", formats[_i].as), 0, formats[_i].word, "");
    child_expect(CHILD("report", path, "--as", formats[_i].as, "--out", scratch_path("out", out)), 0, "", "");
    char *text = scratch_read(out, &length);
    holds(text, formats[_i].word);
    if (strcmp(formats[_i].as, "html") == 0) page_is_sound(text);
    free(text);
    cJSON_Delete(document);
}
END_TEST

START_TEST(the_command_refuses_what_it_cannot_use) {
    char path[SCRATCH_PATH], none[SCRATCH_PATH];
    cJSON *document = result_check(RESULT_PASS);
    result_write(document, "a.json", path);
    child_expect(CHILD("report"), 2, "", "RESULT is missing");
    child_expect(CHILD("report", path, "--as", "pdf"), 2, "", "found 'pdf'");
    child_expect(CHILD("report", path, "--as"), 2, "", "--as needs a value");
    child_expect(CHILD("report", path, "--wrong"), 2, "", "unknown word '--wrong'");
    child_expect(CHILD("report", path, path), 2, "", "one RESULT at a time");
    child_expect(CHILD("report", scratch_path("none.json", none)), 4, "", "file.open");
    child_expect(CHILD("report", "oracles/tiny-plain.h5"), 3, "", "result.recording");
    child_expect(CHILD("report", path, "--out", "/dev/full"), 4, "", "atomic.target");
    child_next.out = "/dev/full";
    child_expect(CHILD("report", path), 4, "", "output.write");
    result_put(document, "schema_version", "1");
    result_write(document, "a.json", path);
    child_expect(CHILD("report", path), 3, "", "result.version");
    cJSON_Delete(document);
}
END_TEST

START_TEST(check_writes_the_reports_that_are_asked_for) {
    char markdown[SCRATCH_PATH], junit[SCRATCH_PATH], word[2][SCRATCH_PATH + 16];
    size_t length;
    snprintf(word[0], sizeof word[0], "markdown=%s", scratch_path("a.md", markdown));
    snprintf(word[1], sizeof word[1], "junit=%s", scratch_path("a.xml", junit));
    child_expect(CHILD("check", "--checkpoint", "fixtures/small/tiny-plain", "--oracle", "oracles/tiny-plain.h5",
                       "--report", word[0], "--report", word[1]),
                 0, "PASS", "");
    char *text = scratch_read(markdown, &length);
    holds(text, "## dflash-parity check: PASS");
    free(text);
    text = scratch_read(junit, &length);
    holds(text, "errors=\"0\"");
    free(text);
    child_expect(CHILD("check", "--checkpoint", "fixtures/small/tiny-plain", "--oracle", "oracles/tiny-plain.h5",
                       "--report", "markdown"),
                 2, "", "--report");
}
END_TEST

START_TEST(colour_is_for_verdict_words_and_wanted_by_terminals_alone) {
    char *text = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&text, &length);
    dp_colour_write(to, "FAIL  a\nok    b  warn\nokay\nPASS: c\n");
    fclose(to);
    ck_assert_str_eq(
        text, "\x1b[31mFAIL\x1b[0m  a\n\x1b[32mok\x1b[0m    b\x1b[33m  warn\x1b[0m\nokay\n\x1b[32mPASS\x1b[0m: c\n");
    free(text);
    to = tmpfile();
    ck_assert(!dp_colour_wanted(to));
    fclose(to);
}
END_TEST

Suite *suite_report(void) {
    Suite *suite = suite_create("report");
    TCase *tests = tcase_create("report");
    tcase_add_checked_fixture(tests, scratch_open, scratch_close);
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, a_failure_is_told_with_its_stage_in_every_format, 0, STREAMS);
    tcase_add_loop_test(tests, a_pass_says_what_was_compared_and_no_format_holds_a_failure, 0, STREAMS);
    tcase_add_loop_test(tests, a_refusal_is_an_error_with_its_code_in_every_format, 0, STREAMS);
    tcase_add_loop_test(tests, nothing_compared_is_no_pass_in_any_format, 0, STREAMS);
    tcase_add_loop_test(tests, values_that_are_not_finite_are_told_in_every_format, 0, STREAMS);
    tcase_add_test(tests, the_full_table_shows_no_distance_beside_a_nan);
    tcase_add_loop_test(tests, the_lines_of_a_verdict_are_no_wider_than_a_hundred_columns, 0, 4);
    tcase_add_loop_test(tests, a_gate_without_a_case_is_an_error_in_every_format, 0, STREAMS);
    tcase_add_test(tests, junit_counts_what_it_holds);
    tcase_add_test(tests, markdown_tells_what_does_not_pass_first_and_folds_the_rest);
    tcase_add_test(tests, markdown_of_a_huge_case_is_short_and_still_names_the_stage);
    tcase_add_test(tests, markdown_of_many_cases_is_short_and_says_what_it_leaves_out);
    tcase_add_test(tests, github_shows_ten_annotations_and_counts_the_rest);
    tcase_add_loop_test(tests, text_from_outside_stays_text_in_junit, 0, 3);
    tcase_add_loop_test(tests, text_from_outside_stays_text_in_markdown, 0, 3);
    tcase_add_loop_test(tests, text_from_outside_begins_no_workflow_command, 0, 3);
    tcase_add_loop_test(tests, the_command_renders_every_format_to_a_file_or_standard_output, 0, 5);
    tcase_add_test(tests, the_command_refuses_what_it_cannot_use);
    tcase_add_test(tests, check_writes_the_reports_that_are_asked_for);
    tcase_add_test(tests, colour_is_for_verdict_words_and_wanted_by_terminals_alone);
    suite_add_tcase(suite, tests);
    return suite;
}
