/*
 * test_postmortem.c - results of several runs in order, the last good and the first bad, what changed between them, and
 * the command.
 */
#include "support/child.h"
#include "support/postmortem_case.h"
#include "suites.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char day1[] = "2026-01-01T00:00:00Z", day2[] = "2026-01-02T00:00:00Z", day3[] = "2026-01-03T00:00:00Z",
                  day4[] = "2026-01-04T00:00:00Z", day5[] = "2026-01-05T00:00:00Z";

/* ---- Order and outcome ---- */

/* Runs of the only case; -1: there is none. */
static void expect(const dp_postmortem *summary, int last_good, int first_bad, int last_bad, int good_again) {
    ck_assert_int_eq(summary->item_count, 1);
    ck_assert_int_eq(summary->item[0].last_good, last_good);
    ck_assert_int_eq(summary->item[0].first_bad, first_bad);
    ck_assert_int_eq(summary->item[0].last_bad, last_bad);
    ck_assert_int_eq(summary->item[0].good_again, good_again);
}

static char *outcome_of(const dp_postmortem *summary) {
    char *text = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&text, &length);
    ck_assert_ptr_nonnull(to);
    dp_postmortem_outcome(to, summary, &summary->item[0]);
    fclose(to);
    return text;
}

static void outcome_holds(const dp_postmortem *summary, const char *word) {
    char *text = outcome_of(summary);
    pm_holds(text, (const char *const[]){word, NULL});
    free(text);
}

START_TEST(runs_are_ordered_by_their_start_or_as_given) {
    dp_postmortem summary;
    pm_add(pm_bad("layers.0.out"), day3, "third");
    pm_add(pm_good(), day1, "first");
    pm_add(pm_good(), day2, "second");
    cJSON *equal = pm_good();
    pm_set_fact(equal, "cpu", "another");
    pm_add(equal, day2, "second-too");
    pm_read(&summary);
    ck_assert_str_eq(pm_commit(&summary, 0), "first");
    ck_assert_str_eq(pm_commit(&summary, 1), "second");
    ck_assert_str_eq(pm_commit(&summary, 2), "second-too");
    ck_assert_str_eq(pm_commit(&summary, 3), "third");
    expect(&summary, 2, 3, 3, -1);
    dp_postmortem_release(&summary);
    pm_options.order = DP_ORDER_GIVEN;
    pm_read(&summary);
    ck_assert_str_eq(pm_commit(&summary, 0), "third");
    expect(&summary, -1, 0, 0, 1);
    dp_postmortem_release(&summary);
}
END_TEST

static void set_count(cJSON *document, const char *key, int change) {
    char path[64], text[16];
    snprintf(path, sizeof path, "cases/0/%s", key);
    snprintf(text, sizeof text, "%d", result_at(document, path)->valueint + change);
    result_put(document, path, text);
}

START_TEST(a_pass_that_did_not_compare_the_stage_is_not_the_last_good) {
    dp_postmortem summary;
    cJSON *filtered = pm_good();
    cJSON_Delete(cJSON_DetachItemViaPointer(result_at(filtered, "cases/0/stages"), page_stage(filtered, "final")));
    set_count(filtered, "stages_compared", -1);
    set_count(filtered, "stages_isolated", -1);
    set_count(filtered, "coverage/stages_whole", -1);
    set_count(filtered, "coverage/alone_fed", -1);
    pm_add(pm_good(), day1, "whole");
    pm_add(filtered, day2, "filtered");
    pm_add(pm_bad("final"), day3, "bad");
    pm_read(&summary);
    expect(&summary, 0, 2, 2, -1);
    dp_postmortem_release(&summary);
}
END_TEST

/* The stage passes in the chained run and is not run alone, or fails alone. */
static cJSON *without_isolated(const char *name) {
    cJSON *document = pm_good(), *stage = page_stage(document, name);
    cJSON_ReplaceItemInObjectCaseSensitive(stage, "isolated", cJSON_CreateNull());
    cJSON_ReplaceItemInObjectCaseSensitive(stage, "share", cJSON_CreateNull());
    set_count(document, "stages_isolated", -1);
    set_count(document, "coverage/alone_fed", -1);
    return document;
}

static cJSON *bad_alone(const char *name) {
    cJSON *document = pm_good(), *isolated = cJSON_GetObjectItem(page_stage(document, name), "isolated");
    char first[96];
    cJSON_ReplaceItemInObjectCaseSensitive(isolated, "pass", cJSON_CreateFalse());
    snprintf(first, sizeof first, "{\"stage\":\"%s\",\"by\":\"isolated\"}", name);
    result_put(document, "cases/0/first_divergence", first);
    result_put(document, "cases/0/isolated_failed", "1");
    pm_set_verdict(document, "FAIL", 1);
    return document;
}

START_TEST(a_pass_that_did_not_run_the_stage_alone_is_not_good_where_it_fails_alone) {
    dp_postmortem summary;
    pm_add(pm_good(), day1, "whole");
    pm_add(without_isolated("layers.1.mlp.up"), day2, "chained");
    pm_add(bad_alone("layers.1.mlp.up"), day3, "bad");
    pm_read(&summary);
    expect(&summary, 0, 2, 2, -1);
    dp_postmortem_release(&summary);
    pm_count--;
    pm_add(pm_bad("layers.1.mlp.up"), day3, "bad-chained"); /* which the second run did compare */
    pm_read(&summary);
    expect(&summary, 1, 2, 2, -1);
    dp_postmortem_release(&summary);
}
END_TEST

START_TEST(of_a_broken_streak_the_first_run_is_told) {
    dp_postmortem summary;
    pm_add(pm_good(), day1, "good");
    pm_add(pm_bad("layers.0.out"), day2, "bad");
    pm_add(pm_bad("layers.1.out"), day3, "bad-too");
    pm_add(pm_good(), day4, "fixed");
    pm_read(&summary);
    expect(&summary, 0, 1, 2, 3);
    outcome_holds(&summary, "It passes again in `fixed of 2026-01-04");
    dp_postmortem_release(&summary);
}
END_TEST

START_TEST(a_fault_that_comes_and_goes_is_told_as_one) {
    dp_postmortem summary;
    pm_add(pm_good(), day1, "good");
    pm_add(pm_bad("layers.0.out"), day2, "bad");
    pm_add(pm_good(), day3, "good-again");
    pm_add(pm_bad("layers.0.out"), day4, "bad-again");
    pm_read(&summary);
    expect(&summary, 2, 3, 3, -1);
    ck_assert_int_eq(summary.item[0].bad_before, 1);
    ck_assert_int_eq(summary.item[0].first_before, 1);
    outcome_holds(&summary, "It comes and goes: before that it did not pass in 1 run, `bad of 2026-01-02");
    dp_postmortem_release(&summary);
    pm_add(pm_bad("final"), day5, "bad-still");
    pm_read(&summary);
    expect(&summary, 2, 3, 4, -1);
    ck_assert_int_eq(summary.item[0].bad_before, 1);
    dp_postmortem_release(&summary);
}
END_TEST

START_TEST(a_series_that_was_never_good_and_one_that_always_was_say_so) {
    dp_postmortem summary;
    char *page = NULL;
    dflash_error err;
    pm_add(pm_bad("layers.0.out"), day1, "a");
    pm_add(pm_bad("layers.0.out"), day2, "b");
    pm_read(&summary);
    expect(&summary, -1, 0, 1, -1);
    outcome_holds(&summary, "has no good run here; the first bad one is `a of");
    ck_assert_int_eq(dp_postmortem_html(&summary, NULL, &page, &err), DFLASH_OK);
    pm_holds(page, (const char *const[]){"No run here is good", NULL});
    free(page);
    dp_postmortem_release(&summary);
    pm_count = 0;
    pm_add(pm_good(), day1, "a");
    pm_add(pm_good(), day2, "b");
    pm_read(&summary);
    expect(&summary, 1, -1, -1, -1);
    outcome_holds(&summary, "passes in every run that has it");
    ck_assert_int_eq(dp_postmortem_html(&summary, NULL, &page, &err), DFLASH_OK);
    page_is_sound(page);
    pm_holds(page, (const char *const[]){"every case passes in these runs", NULL});
    free(page);
    dp_postmortem_release(&summary);
}
END_TEST

/* ---- What changed ---- */

static void forget(cJSON *document, const char *path, const char *key) {
    cJSON_DeleteItemFromObjectCaseSensitive(result_at(document, path), key);
}

START_TEST(changes_are_found_in_every_part_and_what_is_not_on_record_is_not_equal) {
    dp_postmortem summary;
    dp_changes changes;
    dflash_error err = {.message = ""};
    cJSON *before = pm_good(), *after = pm_bad("layers.0.out");
    pm_set_fact(before, "flags", "-O2");
    pm_set_fact(after, "flags", "-O3");
    pm_set_fact(after, "driver", "550"); /* the other ran without a device */
    forget(before, "environment", "cpu");
    forget(before, "environment", "os");
    forget(after, "environment", "os");
    page_set(result_at(after, "cases/0/checkpoint"), "tensors_sha256", "t1");
    cJSON_ReplaceItemInObject(result_at(before, "cases/0/checkpoint"), "config_sha256", cJSON_CreateNull());
    cJSON_ReplaceItemInObject(result_at(after, "cases/0/checkpoint"), "config_sha256", cJSON_CreateNull());
    page_set(result_at(before, "cases/0/oracle/provenance/packages"), "torch", "2.9.0");
    page_set(result_at(after, "cases/0/oracle/provenance/packages"), "torch", "2.9.1");
    page_set(result_at(after, "cases/0/oracle/provenance/packages"), "extra", "1.0");
    page_set(page_only_case(after), "precision", "q8_0");
    pm_add(before, day1, "before");
    pm_add(after, day2, "after");
    pm_read(&summary);
    ck_assert_int_eq(dp_postmortem_changes(&summary, &summary.item[0], 0, 1, &changes, &err), DFLASH_OK);
    ck_assert_str_eq(pm_change(&changes, "environment.commit"), "before -> after");
    ck_assert_str_eq(pm_change(&changes, "environment.flags"), "-O2 -> -O3");
    ck_assert_str_eq(pm_change(&changes, "environment.driver"), "none -> 550");
    ck_assert_int_eq(strncmp(pm_change(&changes, "environment.cpu"), DP_NOT_ON_RECORD " -> ", 17), 0);
    ck_assert_int_eq(strcmp(pm_change(&changes, "checkpoint.tensors_sha256") + 64, " -> t1"), 0);
    ck_assert_str_eq(pm_change(&changes, "oracle.provenance.packages.torch"), "2.9.0 -> 2.9.1");
    ck_assert_str_eq(pm_change(&changes, "oracle.provenance.packages.extra"), DP_NOT_ON_RECORD " -> 1.0");
    ck_assert_str_eq(pm_change(&changes, "precision"), "stored -> q8_0");
    ck_assert_int_eq(changes.count, 8);
    ck_assert_str_eq(changes.missing, "environment.os, checkpoint.config_sha256");
    dp_changes_release(&changes);
    dp_postmortem_release(&summary);
}
END_TEST

START_TEST(two_runs_of_one_build_changed_in_nothing) {
    dp_postmortem summary;
    dp_changes changes;
    dflash_error err = {.message = ""};
    pm_add(pm_good(), day1, "same");
    pm_add(pm_bad("layers.0.out"), day2, "same");
    pm_read(&summary);
    ck_assert_int_eq(dp_postmortem_changes(&summary, &summary.item[0], 0, 1, &changes, &err), DFLASH_OK);
    ck_assert_msg(changes.count == 0, "%s changed", changes.count > 0 ? changes.change[0].name : "");
    ck_assert_str_eq(changes.missing, "");
    dp_changes_release(&changes);
    dp_postmortem_release(&summary);
}
END_TEST

/* ---- Text and page ---- */

START_TEST(the_text_tells_the_story_and_its_tables_hold_hostile_names) {
    dp_postmortem summary;
    dflash_error err = {.message = ""};
    char *text = NULL;
    cJSON *after = pm_bad("layers.1.attn.context");
    pm_set_fact(after, "compiler", "a|b`c\nd");
    result_put(after, "cases/0/plots/tokens", "{\"stage\":\"logits\",\"got\":[7,8,9],\"want\":[7,5,9]}");
    pm_add(pm_good(), day1, "aaaa");
    pm_add(after, day2, "bbbb");
    pm_read(&summary);
    ck_assert_int_eq(dp_postmortem_markdown(&summary, &text, &err), DFLASH_OK);
    pm_holds(text, (const char *const[]){
                       "1 of 1 cases did not pass, over 2 runs in order of time",
                       "`tiny-plain` last passed in `aaaa of 2026-01-01T00:00:00Z`; first bad is `bbbb",
                       "fails, first at `layers.1.attn.context`", "stages after it,",
                       "1 of 3 drafted tokens differs from the reference's, first at position 1: 8 instead of 5",
                       "` | `a\\|b'c\\x0ad` |", "    dflash-parity check --checkpoint ", NULL});
    ck_assert_ptr_null(strstr(text, "\n\n\n"));
    free(text);
    dp_postmortem_release(&summary);
}
END_TEST

START_TEST(the_page_is_sound_and_drawn) {
    dp_postmortem summary;
    dflash_error err = {.message = ""};
    char *page = NULL;
    cJSON *before = pm_good(), *after = pm_bad("layers.1.attn.context");
    page_set(page_only_case(before), "case", "tiny-<plain>");
    page_set(page_only_case(after), "case", "tiny-<plain>");
    pm_add(before, day1, "aaaa");
    pm_add(after, day2, "bbbb");
    pm_read(&summary);
    ck_assert_int_eq(dp_postmortem_html(&summary, NULL, &page, &err), DFLASH_OK);
    page_is_sound(page);
    pm_holds(page, (const char *const[]){"<h1>Postmortem: tiny-&lt;plain&gt;</h1>",
                                         "aria-label=\"Share of the limit used, run by run\"",
                                         "aria-label=\"Error of each stage", "<h2 id=\"paste\">", NULL});
    ck_assert_ptr_null(strstr(page, "Plots are missing"));
    free(page);
    dp_postmortem_release(&summary);
}
END_TEST

/* ---- Refusals ---- */

static const struct {
    const char *text, *code, *mention;
} no_results[] = {
    {"{}", "result.schema", "dflash-parity-result"},
    {"not json", "result.json", "not JSON"},
    {"{\"schema\":\"dflash-parity-result\",\"schema_version\":1,\"cases\":[]}", "result.version", "version 1"},
    {"{\"schema\":\"dflash-parity-result\",\"schema_version\":2,\"cases\":[]}", "result.key", "tool"},
};
enum { NO_RESULTS = sizeof no_results / sizeof *no_results };

START_TEST(what_is_no_result_file_is_refused) {
    char path[SCRATCH_PATH];
    pm_add(pm_good(), day1, "a");
    scratch_write_text("b.json", no_results[_i].text);
    pm_add_file(scratch_path("b.json", path));
    pm_refused(no_results[_i].code, path, no_results[_i].mention);
}
END_TEST

START_TEST(a_result_that_was_cut_off_or_contradicts_itself_is_refused) {
    char path[SCRATCH_PATH];
    size_t length;
    pm_add(pm_good(), day1, "a");
    char *text = scratch_read(pm_path[0], &length);
    scratch_write("cut.json", text, length - 20);
    free(text);
    pm_add_file(scratch_path("cut.json", path));
    pm_refused("result.json", path, "not all of it");
    pm_count = 0;
    cJSON *lie = pm_bad("final");
    pm_set_verdict(lie, "PASS", 0);
    pm_add(lie, day1, "a");
    pm_refused("result.counts", pm_path[0], "the verdict is PASS");
    pm_count = 0;
    cJSON *empty = result_gate(NULL, 0);
    pm_add(empty, day1, "a");
    pm_refused("postmortem.empty", "hold no case", "");
}
END_TEST

START_TEST(a_run_given_twice_is_refused) {
    char path[SCRATCH_PATH];
    pm_add(pm_good(), day1, "a");
    pm_add_file(pm_path[0]);
    pm_refused("postmortem.twice", pm_path[0], "the same file");
    pm_count--;
    ck_assert_int_eq(symlink(pm_path[0], scratch_path("link.json", path)), 0);
    pm_add_file(path);
    pm_refused("postmortem.twice", path, "the same file");
    pm_count--;
    scratch_copy(pm_path[0], "copy.json");
    pm_add_file(scratch_path("copy.json", path));
    pm_refused("postmortem.twice", path, "copies of one file");
}
END_TEST

START_TEST(a_run_of_another_case_is_refused) {
    cJSON *other = pm_good();
    page_set(page_only_case(other), "case", "somewhere-else");
    pm_add(pm_good(), day1, "a");
    pm_add(pm_bad("final"), day2, "b");
    pm_add(other, day3, "c");
    pm_refused("postmortem.case", pm_path[2], "somewhere-else");
}
END_TEST

START_TEST(a_start_that_cannot_be_ordered_is_refused_unless_the_order_is_given) {
    dp_postmortem summary;
    pm_add(pm_good(), day1, "a");
    pm_add(pm_bad("final"), "yesterday", "b");
    pm_refused("postmortem.when", pm_path[1], "yesterday");
    pm_options.order = DP_ORDER_GIVEN;
    pm_read(&summary);
    expect(&summary, 0, 1, 1, -1);
    dp_postmortem_release(&summary);
}
END_TEST

START_TEST(an_oracle_without_a_recording_to_judge_is_refused) {
    pm_add(pm_good(), day1, "a");
    pm_options.oracle = "oracles/tiny-plain.h5";
    pm_refused("postmortem.oracle", "oracles/tiny-plain.h5", "no recording was given");
}
END_TEST

/* ---- The command ---- */

START_TEST(the_command_writes_the_text_and_the_page) {
    char page[SCRATCH_PATH], text[SCRATCH_PATH];
    size_t length;
    pm_add(pm_bad("layers.0.out"), day2, "bbbb");
    pm_add(pm_good(), day1, "aaaa");
    scratch_path("p.html", page);
    scratch_path("p.md", text);
    child_expect(CHILD("postmortem", pm_path[0], pm_path[1], "--out", page, "--markdown", text), 0, "", "");
    char *written = scratch_read(text, &length);
    ck_assert_ptr_nonnull(strstr(written, "last passed in `aaaa of"));
    free(written);
    written = scratch_read(page, &length);
    page_is_sound(written);
    free(written);
    child_expect(CHILD("postmortem", pm_path[0], pm_path[1]), 0, "first bad is `bbbb of", "");
    child_expect(CHILD("postmortem", pm_path[0], "--order", "given", pm_path[1]), 0, "has no good run here", "");
    child_expect(CHILD("postmortem"), 2, "", "RUN is missing");
    child_expect(CHILD("postmortem", pm_path[0], "--keep-data", sf_folder), 2, "", "needs --out FILE");
    child_expect(CHILD("postmortem", pm_path[0], pm_path[1], "--out", page, "--keep-data", pm_path[0]), 4, NULL,
                 "plot.folder: ");
    child_expect(CHILD("postmortem", pm_path[0], pm_path[1], "--out", page, "--keep-data", sf_folder), 0, NULL, "");
    static const char *const kept[] = {"drift.dat", "drift.gp", "drift.svg", "case1-stages.dat", "stages.gp"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        char path[SCRATCH_PATH];
        ck_assert_msg(access(scratch_path(kept[i], path), F_OK) == 0, "%s was not kept", kept[i]);
    }
    child_expect(CHILD("postmortem", pm_path[0], "--order", "age"), 2, "", "time, revision or given, not 'age'");
    child_expect(CHILD("postmortem", pm_path[0], "--order", "revision"), 2, "", "needs --repo DIR");
    child_expect(CHILD("postmortem", pm_path[0], "--out"), 2, "", "--out needs a value");
    child_expect(CHILD("postmortem", pm_path[0], "--wrong"), 2, "", "unknown word '--wrong'");
    child_expect(CHILD("postmortem", "oracles/tiny-plain.h5"), 3, "", "postmortem.oracle");
    child_expect(CHILD("postmortem", scratch_path("none.json", text)), 4, "", "file.open");
    child_expect(CHILD("postmortem", pm_path[0], "--out", "/dev/full"), 4, NULL, "atomic.target");
    child_next.out = "/dev/full";
    child_expect(CHILD("postmortem", pm_path[0]), 4, "", "output.write");
}
END_TEST

Suite *suite_postmortem(void) {
    Suite *suite = suite_create("postmortem");
    TCase *tests = tcase_create("results");
    tcase_add_checked_fixture(tests, pm_open, scratch_close);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, runs_are_ordered_by_their_start_or_as_given);
    tcase_add_test(tests, a_pass_that_did_not_compare_the_stage_is_not_the_last_good);
    tcase_add_test(tests, a_pass_that_did_not_run_the_stage_alone_is_not_good_where_it_fails_alone);
    tcase_add_test(tests, of_a_broken_streak_the_first_run_is_told);
    tcase_add_test(tests, a_fault_that_comes_and_goes_is_told_as_one);
    tcase_add_test(tests, a_series_that_was_never_good_and_one_that_always_was_say_so);
    tcase_add_test(tests, changes_are_found_in_every_part_and_what_is_not_on_record_is_not_equal);
    tcase_add_test(tests, two_runs_of_one_build_changed_in_nothing);
    tcase_add_test(tests, the_text_tells_the_story_and_its_tables_hold_hostile_names);
    tcase_add_test(tests, the_page_is_sound_and_drawn);
    tcase_add_loop_test(tests, what_is_no_result_file_is_refused, 0, NO_RESULTS);
    tcase_add_test(tests, a_result_that_was_cut_off_or_contradicts_itself_is_refused);
    tcase_add_test(tests, a_run_given_twice_is_refused);
    tcase_add_test(tests, a_run_of_another_case_is_refused);
    tcase_add_test(tests, a_start_that_cannot_be_ordered_is_refused_unless_the_order_is_given);
    tcase_add_test(tests, an_oracle_without_a_recording_to_judge_is_refused);
    tcase_add_test(tests, the_command_writes_the_text_and_the_page);
    suite_add_tcase(suite, tests);
    postmortem_add_recordings(suite);
    postmortem_add_revisions(suite);
    return suite;
}
