/*
 * test_postmortem.c - runs in order, the last good and the first bad, what changed between them, and the command.
 */
#include "child.h"
#include "page_case.h"
#include "postmortem.h"
#include "scratch.h"
#include "suites.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 6 };
static char paths[MOST][SCRATCH_PATH];
static int files;

static void set_up(void) {
    scratch_open();
    files = 0;
}

static void set_environment(cJSON *document, const char *key, const char *value) {
    page_set(cJSON_GetObjectItem(document, "environment"), key, value);
}

/* Writes the document as the next file and deletes it. */
static void add(cJSON *document, const char *when, const char *commit) {
    char name[32];
    snprintf(name, sizeof name, "run%d.json", files);
    page_set(document, "when", when);
    set_environment(document, "commit", commit);
    char *text = cJSON_PrintUnformatted(document);
    scratch_write_text(name, text);
    scratch_path(name, paths[files++]);
    cJSON_free(text);
    cJSON_Delete(document);
}

static cJSON *bad(const char *stage) {
    cJSON *document = page_document("tiny-plain");
    page_break(document, stage, 1e-3);
    return document;
}

static df_status read_all(dp_order order, dp_postmortem *story, df_error *err) {
    const char *list[MOST];
    for (int i = 0; i < files; i++) list[i] = paths[i];
    return dp_postmortem_read(list, files, order, story, err);
}

static const char *commit_of(const dp_postmortem *story, int run) {
    return cJSON_GetObjectItem(cJSON_GetObjectItem(story->run[run].document, "environment"), "commit")->valuestring;
}

START_TEST(runs_are_ordered_by_their_start_or_as_given) {
    dp_postmortem story;
    df_error err = {.message = ""};
    add(bad("layers.0.out"), "2026-01-03T00:00:00Z", "third");
    add(page_document("tiny-plain"), "2026-01-01T00:00:00Z", "first");
    add(page_document("tiny-plain"), "2026-01-02T00:00:00Z", "second");
    add(page_document("tiny-plain"), "2026-01-02T00:00:00Z", "second-too");
    ck_assert_int_eq(read_all(DP_ORDER_TIME, &story, &err), DF_OK);
    ck_assert_str_eq(commit_of(&story, 0), "first");
    ck_assert_str_eq(commit_of(&story, 1), "second");
    ck_assert_str_eq(commit_of(&story, 2), "second-too");
    ck_assert_str_eq(commit_of(&story, 3), "third");
    ck_assert_int_eq(story.item[0].last_good, 2);
    ck_assert_int_eq(story.item[0].first_bad, 3);
    ck_assert_int_eq(story.item[0].good_again, -1);
    dp_postmortem_release(&story);
    ck_assert_int_eq(read_all(DP_ORDER_GIVEN, &story, &err), DF_OK);
    ck_assert_str_eq(commit_of(&story, 0), "third");
    ck_assert_int_eq(story.item[0].last_good, -1);
    ck_assert_int_eq(story.item[0].first_bad, 0);
    ck_assert_int_eq(story.item[0].good_again, 1);
    dp_postmortem_release(&story);
}
END_TEST

START_TEST(a_pass_that_did_not_compare_the_stage_is_not_the_last_good) {
    dp_postmortem story;
    df_error err = {.message = ""};
    cJSON *filtered = page_document("tiny-plain"), *stages = cJSON_GetObjectItem(page_only_case(filtered), "stages");
    cJSON_Delete(cJSON_DetachItemViaPointer(stages, page_stage(filtered, "layers.0.out")));
    add(page_document("tiny-plain"), "2026-01-01T00:00:00Z", "whole");
    add(filtered, "2026-01-02T00:00:00Z", "filtered");
    add(bad("layers.0.out"), "2026-01-03T00:00:00Z", "bad");
    ck_assert_int_eq(read_all(DP_ORDER_TIME, &story, &err), DF_OK);
    ck_assert_str_eq(commit_of(&story, story.item[0].last_good), "whole");
    ck_assert_str_eq(commit_of(&story, story.item[0].first_bad), "bad");
    dp_postmortem_release(&story);
}
END_TEST

START_TEST(of_a_broken_streak_the_first_run_is_told) {
    dp_postmortem story;
    df_error err = {.message = ""};
    add(bad("final"), "2026-01-01T00:00:00Z", "old-fault");
    add(page_document("tiny-plain"), "2026-01-02T00:00:00Z", "good");
    add(bad("layers.0.out"), "2026-01-03T00:00:00Z", "bad");
    add(bad("layers.1.out"), "2026-01-04T00:00:00Z", "bad-too");
    add(page_document("tiny-plain"), "2026-01-05T00:00:00Z", "fixed");
    ck_assert_int_eq(read_all(DP_ORDER_TIME, &story, &err), DF_OK);
    ck_assert_int_eq(story.item[0].last_good, 1);
    ck_assert_int_eq(story.item[0].first_bad, 2);
    ck_assert_int_eq(story.item[0].last_bad, 3);
    ck_assert_int_eq(story.item[0].good_again, 4);
    dp_postmortem_release(&story);
}
END_TEST

static const char *change_of(const dp_change *list, int count, const char *name) {
    static char text[256];
    for (int i = 0; i < count; i++)
        if (strcmp(list[i].name, name) == 0) {
            snprintf(text, sizeof text, "%s -> %s", list[i].before, list[i].after);
            return text;
        }
    return "none";
}

START_TEST(changes_are_found_in_every_part_and_in_both_directions) {
    dp_postmortem story;
    dp_change *list = NULL;
    int count = 0;
    df_error err = {.message = ""};
    cJSON *before = page_document("tiny-plain"), *after = bad("layers.0.out"), *item = page_only_case(after);
    set_environment(before, "driver", "550");
    set_environment(after, "compiler", "gcc 13.1.0");
    page_set(cJSON_GetObjectItem(item, "checkpoint"), "tensors_sha256", "t1");
    cJSON *packages =
        cJSON_GetObjectItem(cJSON_GetObjectItem(cJSON_GetObjectItem(item, "oracle"), "provenance"), "packages");
    page_set(packages, "torch", "2.9.1");
    page_set(packages, "extra", "1.0");
    page_set(item, "precision", "q8_0");
    add(before, "2026-01-01T00:00:00Z", "same");
    add(after, "2026-01-02T00:00:00Z", "same");
    ck_assert_int_eq(read_all(DP_ORDER_TIME, &story, &err), DF_OK);
    ck_assert_int_eq(dp_postmortem_changes(&story, &story.item[0], 0, 1, &list, &count, &err), DF_OK);
    ck_assert_str_eq(change_of(list, count, "environment.compiler"), "gcc 12.2.0 -> gcc 13.1.0");
    ck_assert_str_eq(change_of(list, count, "environment.driver"), "550 -> -");
    ck_assert_str_eq(change_of(list, count, "checkpoint.tensors_sha256"), "t0 -> t1");
    ck_assert_str_eq(change_of(list, count, "oracle.provenance.packages.torch"), "2.9.0 -> 2.9.1");
    ck_assert_str_eq(change_of(list, count, "oracle.provenance.packages.extra"), "- -> 1.0");
    ck_assert_str_eq(change_of(list, count, "precision"), "stored -> q8_0");
    ck_assert_int_eq(count, 6);
    dp_changes_release(list, count);
    dp_postmortem_release(&story);
}
END_TEST

START_TEST(the_text_tells_the_story_and_its_tables_hold_hostile_names) {
    dp_postmortem story;
    df_error err = {.message = ""};
    char *text = NULL;
    cJSON *after = bad("layers.1.attn.context");
    set_environment(after, "compiler", "a|b`c\nd");
    add(page_document("tiny-plain"), "2026-01-01T00:00:00Z", "aaaa");
    add(after, "2026-01-02T00:00:00Z", "bbbb");
    ck_assert_int_eq(read_all(DP_ORDER_TIME, &story, &err), DF_OK);
    ck_assert_int_eq(dp_postmortem_markdown(&story, &text, &err), DF_OK);
    static const char *const words[] = {
        "1 of 1 cases did not pass, over 2 runs",
        "`tiny-plain` last passed in `aaaa of 2026-01-01T00:00:00Z`; first bad is `bbbb",
        "fails, first at `layers.1.attn.context`",
        "Of the 3 stages after it, 3",
        "1 of 3 drafted tokens differ",
        "| `environment.compiler` | `gcc 12.2.0` | `a\\|b'c d` |",
        "    dflash-parity check --checkpoint c"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        ck_assert_msg(strstr(text, words[i]) != NULL, "the text lacks: %s\n%s", words[i], text);
    free(text);
    dp_postmortem_release(&story);
}
END_TEST

START_TEST(the_page_is_sound_and_drawn) {
    dp_postmortem story;
    df_error err = {.message = ""};
    char *page = NULL;
    add(page_document("tiny-<plain>"), "2026-01-01T00:00:00Z", "aaaa");
    cJSON *after = page_document("tiny-<plain>");
    page_break(after, "layers.1.attn.context", 1e-3);
    add(after, "2026-01-02T00:00:00Z", "bbbb");
    ck_assert_int_eq(read_all(DP_ORDER_TIME, &story, &err), DF_OK);
    ck_assert_int_eq(dp_postmortem_html(&story, NULL, &page, &err), DF_OK);
    page_is_sound(page);
    ck_assert_ptr_nonnull(strstr(page, "<h1>Postmortem: tiny-&lt;plain&gt;</h1>"));
    ck_assert_ptr_nonnull(strstr(page, "aria-label=\"Share of the bar used, run by run\""));
    ck_assert_ptr_nonnull(strstr(page, "aria-label=\"Error of each stage"));
    ck_assert_ptr_null(strstr(page, "Plots are missing"));
    free(page);
    dp_postmortem_release(&story);
}
END_TEST

START_TEST(what_is_no_result_file_is_refused) {
    static const struct {
        const char *name, *text, *code;
    } bad_files[] = {
        {"a.h5", "x", "postmortem.recording"},
        {"a.json", "{}", "postmortem.result"},
        {"a.json", "not json", "postmortem.result"},
        {"a.json", "{\"schema\":\"dflash-parity-result\",\"schema_version\":1,\"cases\":[]}", "postmortem.result"},
        {"a.json", "{\"schema\":\"dflash-parity-result\",\"schema_version\":2,\"cases\":[]}", "postmortem.empty"}};
    dp_postmortem story;
    df_error err = {.message = ""};
    char path[SCRATCH_PATH];
    scratch_write_text(bad_files[_i].name, bad_files[_i].text);
    const char *list[] = {scratch_path(bad_files[_i].name, path)};
    ck_assert_int_eq(dp_postmortem_read(list, 1, DP_ORDER_TIME, &story, &err), DF_ERR_REFUSED);
    ck_assert_str_eq(err.code, bad_files[_i].code);
}
END_TEST

START_TEST(the_command_writes_the_text_and_the_page) {
    char page[SCRATCH_PATH], text[SCRATCH_PATH];
    size_t length;
    add(bad("layers.0.out"), "2026-01-02T00:00:00Z", "bbbb");
    add(page_document("tiny-plain"), "2026-01-01T00:00:00Z", "aaaa");
    scratch_path("p.html", page);
    scratch_path("p.md", text);
    child_expect(CHILD("postmortem", paths[0], paths[1], "--out", page, "--markdown", text), 0, "", "");
    char *written = scratch_read(text, &length);
    ck_assert_ptr_nonnull(strstr(written, "last passed in `aaaa of"));
    free(written);
    written = scratch_read(page, &length);
    page_is_sound(written);
    free(written);
    child_expect(CHILD("postmortem", paths[0], paths[1]), 0, "first bad is `bbbb of", "");
    child_expect(CHILD("postmortem", paths[0], "--order", "given", paths[1]), 0, "has no good run here", "");
    child_expect(CHILD("postmortem"), 2, "", "RESULT is missing");
    child_expect(CHILD("postmortem", paths[0], "--order", "age"), 2, "", "time or given, not 'age'");
    child_expect(CHILD("postmortem", paths[0], "--out"), 2, "", "--out needs a value");
    child_expect(CHILD("postmortem", paths[0], "--wrong"), 2, "", "unknown option --wrong");
    child_expect(CHILD("postmortem", "oracles/tiny-plain.h5"), 3, "", "postmortem.recording");
    child_expect(CHILD("postmortem", scratch_path("none.json", text)), 4, "", "file.open");
    child_expect(CHILD("postmortem", paths[0], "--out", "/dev/full"), 4, NULL, "atomic.target");
    child_next.out = "/dev/full";
    child_expect(CHILD("postmortem", paths[0]), 4, "", "output.write");
}
END_TEST

Suite *suite_postmortem(void) {
    Suite *suite = suite_create("postmortem");
    TCase *tests = tcase_create("postmortem");
    tcase_add_checked_fixture(tests, set_up, scratch_close);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, runs_are_ordered_by_their_start_or_as_given);
    tcase_add_test(tests, a_pass_that_did_not_compare_the_stage_is_not_the_last_good);
    tcase_add_test(tests, of_a_broken_streak_the_first_run_is_told);
    tcase_add_test(tests, changes_are_found_in_every_part_and_in_both_directions);
    tcase_add_test(tests, the_text_tells_the_story_and_its_tables_hold_hostile_names);
    tcase_add_test(tests, the_page_is_sound_and_drawn);
    tcase_add_loop_test(tests, what_is_no_result_file_is_refused, 0, 5);
    tcase_add_test(tests, the_command_writes_the_text_and_the_page);
    suite_add_tcase(suite, tests);
    return suite;
}
