/* test_postmortem_recordings.c - recordings in a postmortem: judged by an oracle or by the first of them, alone and
 * beside results. */
#include "support/postmortem_case.h"
#include "support/recording_case.h"

#include "support/child.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char oracle[] = "oracles/tiny-plain.h5", day2[] = "2026-01-02T00:00:00Z", day4[] = "2026-01-04T00:00:00Z";

/* B as it now is becomes the next file, written at midnight of that January day. */
static void add_b(const char *name, int day) {
    char path[SCRATCH_PATH];
    const time_t newyear = 1767225600; /* 2026-01-01T00:00:00Z */
    const struct timespec when = {.tv_sec = newyear + (time_t)(day - 1) * 86400};
    scratch_copy(sf_path, name);
    scratch_path(name, path);
    ck_assert_int_eq(utimensat(AT_FDCWD, path, (const struct timespec[2]){when, when}, 0), 0);
    pm_add_file(path);
}

static bool row_3(int64_t i) { return i / 96 == 3; }

static bool only_7(int64_t i) { return i == 7; }

static char *markdown_of(const dp_postmortem *summary) {
    char *text = NULL;
    dflash_error err = {.message = ""};
    ck_assert_msg(dp_postmortem_markdown(summary, &text, &err) == DFLASH_OK, "%s", err.message);
    return text;
}

/* ---- Verdicts ---- */

START_TEST(recordings_are_judged_by_the_oracle_and_ordered_by_the_time_of_their_files) {
    dp_postmortem summary;
    rc_open("tiny-plain");
    add_b("run-b.h5", 2);
    rc_change("layers.1.attn.context", row_3, 1.02f, 0.0f);
    add_b("run-c.h5", 3);
    rc_open("tiny-plain");
    add_b("run-a.h5", 1); /* named last, written first */
    pm_options.oracle = oracle;
    pm_read(&summary);
    ck_assert_int_eq(summary.run_count, 3);
    ck_assert_str_eq(summary.run[0].when, "2026-01-01T00:00:00Z");
    ck_assert_str_eq(summary.run[2].path, pm_path[1]);
    const dp_past_case *item = &summary.item[0];
    ck_assert_str_eq(item->name, "tiny-plain");
    ck_assert_int_eq(item->last_good, 1);
    ck_assert_int_eq(item->first_bad, 2);
    const dp_result *bad = &item->in_run[2]->result;
    ck_assert_int_eq(bad->stage_count, bad->stages_known);
    ck_assert_int_eq(bad->failed_stages, 1);
    ck_assert_int_eq(bad->isolated_count, 0);
    ck_assert_ptr_nonnull(bad->plot.stage[0].row);
    char *text = markdown_of(&summary);
    pm_holds(text, (const char *const[]){"first at `layers.1.attn.context`", "`tiny-plain` fails: 1 of 59",
                                         "The recording against `tiny-plain.h5`, stage by stage:", "1 divergent",
                                         "The worst element, [3, ", "the limits of `tiny-plain.h5`",
                                         "    dflash-parity compare oracles/tiny-plain.h5 ", NULL});
    free(text);
    dp_postmortem_release(&summary);
}
END_TEST

START_TEST(without_an_oracle_the_first_recording_is_what_bits_are_held_against) {
    dp_postmortem summary;
    rc_open("tiny-plain");
    add_b("run-a.h5", 1);
    add_b("run-b.h5", 2);
    rc_change("layers.1.attn.norm", only_7, 1.0000002f, 0.0f); /* far inside the envelope */
    add_b("run-c.h5", 3);
    add_b("run-d.h5", 4); /* as c, and so as bad as c */
    rc_open("tiny-plain");
    add_b("run-e.h5", 5);
    pm_read(&summary);
    const dp_past_case *item = &summary.item[0];
    ck_assert_str_eq(item->name, "recordings");
    ck_assert_int_eq(item->last_good, 1);
    ck_assert_int_eq(item->first_bad, 2);
    ck_assert_int_eq(item->last_bad, 3);
    ck_assert_int_eq(item->good_again, 4);
    const dp_past_recording *recording = &summary.run[2].recording;
    ck_assert(recording->by_bits);
    int ulp = 0;
    for (int i = 0; i < recording->stage_count; i++) ulp += recording->stage[i].reached == DP_BITS_ULP;
    ck_assert_int_eq(ulp, 1);
    char *text = markdown_of(&summary), *page = NULL;
    dflash_error err;
    pm_holds(text, (const char *const[]){"`recordings` does not give the bits of `run-a.h5`", "1 of 59 stages differ",
                                         "58 identical, 1 ulp",
                                         "1 of the 480 values of `layers.1.attn.norm` differ, the "
                                         "first at [0, 7]: ",
                                         "largest distance is ", NULL});
    free(text);
    ck_assert_int_eq(dp_postmortem_html(&summary, NULL, &page, &err), DFLASH_OK);
    page_is_sound(page);
    pm_holds(page, (const char *const[]){"aria-label=\"Share of the limit used", "(file)", "58 identical", NULL});
    free(page);
    dp_postmortem_release(&summary);
}
END_TEST

START_TEST(what_a_recording_holds_that_is_not_finite_fails_and_is_no_reference) {
    dp_postmortem summary;
    rc_open("tiny-plain");
    add_b("run-a.h5", 1);
    int64_t count;
    float *values = rc_values("layers.2.out", &count);
    values[5] = NAN;
    rc_put_values("layers.2.out", values);
    free(values);
    add_b("run-b.h5", 2);
    pm_read(&summary);
    ck_assert_int_eq(summary.item[0].first_bad, 1);
    ck_assert_int_eq(summary.item[0].in_run[1]->result.verdict, DP_FAIL);
    char *text = markdown_of(&summary), *page = NULL;
    dflash_error err;
    pm_holds(text, (const char *const[]){"first at `layers.2.out`", "1 are not finite", NULL});
    free(text);
    ck_assert_int_eq(dp_postmortem_html(&summary, NULL, &page, &err), DFLASH_OK);
    page_is_sound(page);
    free(page);
    dp_postmortem_release(&summary);
    pm_options.order = DP_ORDER_GIVEN;
    snprintf(pm_path[0], SCRATCH_PATH, "%s", pm_path[1]);
    pm_count = 1;
    pm_refused("postmortem.reference", pm_path[0], "layers.2.out holds values that are not finite");
}
END_TEST

START_TEST(a_stage_that_a_recording_lacks_or_has_too_many_fails) {
    dp_postmortem summary;
    rc_open("tiny-plain");
    add_b("run-a.h5", 1);
    sf_remove_link(RC_STAGE "layers.1.mlp.act");
    add_b("run-b.h5", 2);
    pm_read(&summary);
    const dp_result *bad = &summary.item[0].in_run[1]->result;
    ck_assert_int_eq(bad->verdict, DP_FAIL);
    ck_assert_int_eq(bad->failed_stages, 1);
    char *text = markdown_of(&summary);
    pm_holds(text, (const char *const[]){"began at `layers.1.mlp.act`", "not there in the shape expected",
                                         "1 that could not be compared", NULL});
    free(text);
    dp_postmortem_release(&summary);
    rc_open("tiny-plain");
    const hid_t file = sf_edit(); /* logits, of a run without a head */
    ck_assert_int_ge(H5Ocopy(file, RC_STAGE "final", file, RC_STAGE "logits", H5P_DEFAULT, H5P_DEFAULT), 0);
    ck_assert_int_ge(H5Fclose(file), 0);
    add_b("run-b.h5", 2);
    pm_count = 2;
    pm_read(&summary);
    bad = &summary.item[0].in_run[1]->result;
    ck_assert_int_eq(bad->verdict, DP_FAIL);
    ck_assert_int_eq(bad->failed_stages, 1);
    ck_assert_str_eq(bad->stage[bad->stage_count - 1].name, "logits");
    dp_postmortem_release(&summary);
}
END_TEST

/* Ids that a fault changes are told as tokens. */
START_TEST(the_effect_on_the_tokens_is_told) {
    dp_postmortem summary;
    rc_open("tiny-dspark");
    add_b("run-a.h5", 1);
    scratch_change_value(RC_STAGE "markov.tokens", 1, 0.0, 3.0);
    add_b("run-b.h5", 2);
    pm_options.oracle = "oracles/tiny-dspark.h5";
    pm_read(&summary);
    char *text = markdown_of(&summary);
    pm_holds(text, (const char *const[]){"first at `markov.tokens`",
                                         "drafted tokens differs from the reference's, first at "
                                         "position 1: 3 instead of ",
                                         NULL});
    free(text);
    dp_postmortem_release(&summary);
}
END_TEST

/* ---- Beside results ---- */

START_TEST(recordings_and_results_of_one_case_are_one_series) {
    dp_postmortem summary;
    pm_add(pm_good(), day2, "aaaaaaa");
    pm_add(pm_bad("final"), day4, "bbbbbbb");
    rc_open("tiny-plain");
    add_b("run-a.h5", 1);
    rc_change("layers.1.attn.context", row_3, 1.02f, 0.0f);
    add_b("run-b.h5", 3);
    pm_options.oracle = oracle;
    pm_read(&summary);
    ck_assert_int_eq(summary.item_count, 1);
    ck_assert_str_eq(summary.item[0].name, "tiny-plain");
    ck_assert_ptr_null(summary.series);
    ck_assert_int_eq(summary.run[0].is_recording, true);
    ck_assert_int_eq(summary.run[3].is_recording, false);
    ck_assert_int_eq(summary.item[0].last_good, 1);
    ck_assert_int_eq(summary.item[0].first_bad, 2);
    dp_changes changes;
    dflash_error err;
    ck_assert_int_eq(dp_postmortem_changes(&summary, &summary.item[0], 1, 2, &changes, &err), DFLASH_OK);
    ck_assert_str_eq(pm_change(&changes, "checkpoint.tensors_sha256"), "none"); /* it did not change */
    ck_assert_str_eq(pm_change(&changes, "checkpoint.config_sha256"), "none");
    ck_assert_str_eq(pm_change(&changes, "oracle.sha256"), "none");
    ck_assert_str_eq(pm_change(&changes, "environment.gpu"), "none -> " DP_NOT_ON_RECORD);
    dp_changes_release(&changes);
    dp_postmortem_release(&summary);
}
END_TEST

START_TEST(recordings_beside_results_need_the_oracle_of_the_results) {
    pm_add(pm_good(), day2, "aaaaaaa");
    rc_open("tiny-plain");
    add_b("run-a.h5", 1);
    pm_refused("postmortem.oracle", pm_path[0], "expected --oracle FILE");
    pm_options.oracle = "oracles/tiny-edge.h5";
    pm_refused("postmortem.oracle", pm_path[1], "one judge");
    pm_options.oracle = pm_path[1];
    pm_refused("postmortem.oracle", pm_path[1], "one judge");
    pm_count = 1;
    rc_open("tiny-causal");
    add_b("run-b.h5", 1);
    pm_options.oracle = "oracles/tiny-causal.h5";
    pm_refused("postmortem.case", pm_path[1], "no case that the results hold");
}
END_TEST

/* ---- Refusals ---- */

START_TEST(recordings_of_another_drafter_input_or_precision_are_refused) {
    rc_open("tiny-plain");
    add_b("run-a.h5", 1);
    scratch_edit_record("geometry", "rms_norm_eps", "0.5");
    add_b("run-b.h5", 2);
    pm_refused("geometry.field.differs", pm_path[1], "rms_norm_eps");
    pm_count = 1;
    rc_open("tiny-plain");
    scratch_change_value("/inputs/noise_embedding", 7, 1.0, 1.0); /* the next bfloat16 */
    add_b("run-b.h5", 2);
    pm_refused("compare.input.differs", pm_path[1], "noise_embedding");
    pm_count = 1;
    rc_open("tiny-plain");
    scratch_edit_record("provenance", "tensors/norm.weight/sha256", "\"00\"");
    add_b("run-b.h5", 2);
    pm_refused("compare.weights.differs", pm_path[1], "norm.weight");
    pm_count = 1;
    rc_open("tiny-plain");
    scratch_edit_record("provenance", "precision", "\"fp8\"");
    add_b("run-b.h5", 2);
    pm_refused("postmortem.precision", pm_path[1], "fp8");
}
END_TEST

START_TEST(an_oracle_is_no_run_and_a_recording_is_no_oracle) {
    char path[SCRATCH_PATH];
    rc_open("tiny-plain");
    add_b("run-a.h5", 1);
    pm_add_file(oracle);
    pm_refused("postmortem.oracle", oracle, "is an oracle");
    pm_count = 1;
    pm_options.oracle = rc_a;
    scratch_copy(rc_a, "other.h5");
    pm_options.oracle = scratch_path("other.h5", path);
    pm_refused("postmortem.oracle", path, "no limits");
    pm_options.oracle = "oracles/tiny-causal.h5";
    pm_refused("geometry.field.differs", pm_path[0], "tiny-causal");
}
END_TEST

START_TEST(a_recording_that_was_cut_off_or_is_given_twice_is_refused) {
    char path[SCRATCH_PATH];
    size_t length;
    rc_open("tiny-plain");
    add_b("run-a.h5", 1);
    pm_add_file(pm_path[0]);
    pm_refused("postmortem.twice", pm_path[0], "the same file");
    pm_count = 1;
    char *data = scratch_read(rc_a, &length);
    scratch_write("cut.h5", data, length / 2);
    free(data);
    pm_add_file(scratch_path("cut.h5", path));
    pm_refused("oracle.damaged", path, "");
    pm_count = 1;
    scratch_write_text("words.h5", "not HDF5");
    pm_add_file(scratch_path("words.h5", path));
    pm_refused("oracle.format", path, "");
}
END_TEST

/* An engine that says little of itself is not credited with facts. */
START_TEST(facts_that_an_engine_does_not_give_are_not_on_record) {
    dp_postmortem summary;
    dp_changes changes;
    dflash_error err;
    rc_open("tiny-plain");
    scratch_edit_record("provenance", "engine", "{\"name\":\"other\",\"commit\":\"abc\"}");
    add_b("run-a.h5", 1);
    rc_change("final", only_7, 2.0f, 0.0f);
    scratch_edit_record("provenance", "engine", "{\"name\":\"other\",\"flags\":\"-O2\"}");
    add_b("run-b.h5", 2);
    pm_read(&summary);
    ck_assert_int_eq(dp_postmortem_changes(&summary, &summary.item[0], 0, 1, &changes, &err), DFLASH_OK);
    ck_assert_str_eq(pm_change(&changes, "environment.commit"), "abc -> " DP_NOT_ON_RECORD);
    ck_assert_str_eq(pm_change(&changes, "environment.flags"), DP_NOT_ON_RECORD " -> -O2");
    ck_assert_int_eq(changes.count, 2);
    pm_holds(changes.missing, (const char *const[]){"environment.version, environment.dirty, environment.compiler",
                                                    "backend", "isa", NULL});
    dp_changes_release(&changes);
    char name[DP_RUN_NAME];
    ck_assert_str_eq(dp_past_run_name(&summary.run[1], name), "run-b.h5 recorded 2026-01-02T00:00:00Z");
    dp_postmortem_release(&summary);
}
END_TEST

START_TEST(the_command_takes_recordings_and_report_sends_them_there) {
    rc_open("tiny-plain");
    add_b("run-a.h5", 1);
    rc_change("final", only_7, 2.0f, 0.0f);
    add_b("run-b.h5", 2);
    child_expect(CHILD("postmortem", pm_path[0], pm_path[1]), 0, "does not give the bits of `run-a.h5`", "");
    child_expect(CHILD("postmortem", pm_path[1], pm_path[0], "--oracle", oracle), 0, "first at `final`", "");
    child_expect(CHILD("postmortem", pm_path[0], "--oracle", "oracles/none.h5"), 4, "", "oracle.open");
    child_expect(CHILD("report", pm_path[0]), 3, "", "result.recording");
    char path[SCRATCH_PATH];
    scratch_copy(pm_path[0], "named.json");
    child_expect(CHILD("report", scratch_path("named.json", path)), 3, "", "give a recording to `postmortem`");
    child_expect(CHILD("report", "build/dflash-parity"), 3, "", "file.text");
    child_expect(CHILD("report", "README.md"), 3, "", "result.json");
    child_expect(CHILD("report", "fixtures/cases.json"), 3, "", "result.schema");
}
END_TEST

void postmortem_add_recordings(Suite *suite) {
    TCase *tests = tcase_create("recordings");
    tcase_add_checked_fixture(tests, pm_open, scratch_close);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, recordings_are_judged_by_the_oracle_and_ordered_by_the_time_of_their_files);
    tcase_add_test(tests, without_an_oracle_the_first_recording_is_what_bits_are_held_against);
    tcase_add_test(tests, what_a_recording_holds_that_is_not_finite_fails_and_is_no_reference);
    tcase_add_test(tests, a_stage_that_a_recording_lacks_or_has_too_many_fails);
    tcase_add_test(tests, the_effect_on_the_tokens_is_told);
    tcase_add_test(tests, recordings_and_results_of_one_case_are_one_series);
    tcase_add_test(tests, recordings_beside_results_need_the_oracle_of_the_results);
    tcase_add_test(tests, recordings_of_another_drafter_input_or_precision_are_refused);
    tcase_add_test(tests, an_oracle_is_no_run_and_a_recording_is_no_oracle);
    tcase_add_test(tests, a_recording_that_was_cut_off_or_is_given_twice_is_refused);
    tcase_add_test(tests, facts_that_an_engine_does_not_give_are_not_on_record);
    tcase_add_test(tests, the_command_takes_recordings_and_report_sends_them_there);
    suite_add_tcase(suite, tests);
}
