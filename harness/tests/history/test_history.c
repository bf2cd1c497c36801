/*
 * test_history.c - runs on record: lines that are whole beside other writers and after a cut, what the table tells, and
 * when a drift is a warning.
 */
#include "support/child.h"
#include "history/history.h"
#include "support/result_case.h"
#include "suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[SCRATCH_PATH];

static void set_up(void) {
    scratch_open();
    scratch_path("runs.jsonl", path);
}

static dflash_status append(cJSON *document, dflash_error *err) {
    dp_result_file file;
    dflash_status status = dp_result_parse(document, "a.json", &file, err);
    if (status == DFLASH_OK) status = dp_history_append(path, &file, err);
    dp_result_file_release(&file);
    return status;
}

static void append_good(cJSON *document) {
    dflash_error err = {.message = ""};
    ck_assert_msg(append(document, &err) == DFLASH_OK, "%s: %s", err.code, err.message);
}

static dp_history read_all(void) {
    dp_history history;
    dflash_error err = {.message = ""};
    ck_assert_msg(dp_history_read(path, &history, &err) == DFLASH_OK, "%s", err.message);
    return history;
}

/* ---- Lines ---- */

START_TEST(a_line_holds_what_the_run_was_and_how_near_its_bar) {
    cJSON *document = result_check(RESULT_PASS), *stage;
    double used = 0.0, final = NAN;
    cJSON_ArrayForEach(stage, result_at(document, "cases/0/stages")) {
        const double share = 1.0 - cJSON_GetObjectItem(stage, "headroom")->valuedouble;
        if (share > used) used = share;
        if (strcmp(cJSON_GetObjectItem(stage, "name")->valuestring, "final") == 0) final = share;
    }
    append_good(document);
    append_good(document);
    dp_history history = read_all();
    ck_assert_int_eq(history.lines, 2);
    ck_assert_int_eq(history.count, 2);
    ck_assert_int_eq(history.torn_count, 0);
    const dp_history_entry *e = &history.entry[1];
    ck_assert_str_eq(e->name, "tiny-plain");
    ck_assert_str_eq(e->verdict, "PASS");
    ck_assert_str_eq(e->when, result_at(document, "when")->valuestring);
    ck_assert_str_eq(e->commit, result_at(document, "environment/commit")->valuestring);
    ck_assert_msg(fabs(e->used - used) < 1e-12 && fabs(e->final - final) < 1e-12, "%g %g", e->used, e->final);
    ck_assert_str_eq(e->series, history.entry[0].series);
    dp_history_release(&history);
    cJSON_Delete(document);
}
END_TEST

START_TEST(runs_that_cannot_be_compared_are_other_series) {
    static const struct {
        const char *key, *json;
    } other[] = {
        {"cases/0/oracle/sha256", "\"0000000000000000000000000000000000000000000000000000000000000000\""},
        {"cases/0/checkpoint/tensors_sha256", "\"0000000000000000000000000000000000000000000000000000000000000000\""},
        {"cases/0/precision", "\"q8_0\""},
        {"cases/0/class", "\"fast\""},
        {"cases/0/backend", "\"cuda\""},
        {"filter", "\"ctx.*\""}};
    cJSON *document = result_check(RESULT_PASS);
    append_good(document);
    result_put(document, "environment/commit", "\"another\"");
    append_good(document);
    result_put(document, other[_i].key, other[_i].json);
    append_good(document);
    dp_history history = read_all();
    ck_assert_str_eq(history.entry[0].series, history.entry[1].series);
    ck_assert_str_ne(history.entry[0].series, history.entry[2].series);
    dp_history_release(&history);
    cJSON_Delete(document);
}
END_TEST

START_TEST(a_failure_and_a_refusal_are_on_record_too) {
    static const result_kind kinds[] = {RESULT_FAIL, RESULT_NAN, RESULT_REFUSED};
    cJSON *document = result_gate(kinds, 3);
    append_good(document);
    dp_history history = read_all();
    ck_assert_int_eq(history.lines, 1);
    ck_assert_int_eq(history.count, 3);
    ck_assert_str_eq(history.entry[0].verdict, "FAIL");
    ck_assert(history.entry[0].used > 1.0 && isfinite(history.entry[0].used));
    ck_assert(history.entry[1].used == INFINITY);
    ck_assert_str_eq(history.entry[2].verdict, "REFUSED");
    ck_assert(isnan(history.entry[2].used));
    dp_history_release(&history);
    cJSON_Delete(document);
}
END_TEST

enum { WRITERS = 8, LINES = 100 };

START_TEST(eight_writers_leave_every_line_whole) {
    cJSON *document = result_check(RESULT_REFUSED);
    pid_t writer[WRITERS];
    int seen[WRITERS] = {0};
    for (int w = 0; w < WRITERS; w++) {
        writer[w] = fork();
        ck_assert_int_ge(writer[w], 0);
        if (writer[w] > 0) continue;
        dflash_error err;
        char name[8];
        snprintf(name, sizeof name, "\"%d\"", w);
        result_put(document, "cases/0/case", name);
        for (int i = 0; i < LINES; i++)
            if (append(document, &err) != DFLASH_OK) _exit(1);
        _exit(0);
    }
    for (int w = 0; w < WRITERS; w++) {
        int status = 0;
        ck_assert_int_eq(waitpid(writer[w], &status, 0), writer[w]);
        ck_assert_int_eq(status, 0);
    }
    dp_history history = read_all();
    ck_assert_int_eq(history.torn_count, 0);
    ck_assert_int_eq(history.lines, WRITERS * LINES);
    for (int i = 0; i < history.count; i++) seen[atoi(history.entry[i].name)]++;
    for (int w = 0; w < WRITERS; w++) ck_assert_int_eq(seen[w], LINES);
    dp_history_release(&history);
    cJSON_Delete(document);
}
END_TEST

START_TEST(a_torn_last_line_is_told_kept_and_not_mixed_with_the_next) {
    cJSON *document = result_check(RESULT_REFUSED);
    size_t length, longer;
    append_good(document);
    append_good(document);
    char *text = scratch_read(path, &length);
    const size_t cut = length - 40;
    scratch_write("runs.jsonl", text, cut);
    dp_history history = read_all();
    ck_assert_int_eq(history.lines, 1);
    ck_assert_int_eq(history.torn_count, 1);
    ck_assert_int_eq(history.torn[0], 2);
    dp_history_release(&history);
    append_good(document);
    history = read_all();
    ck_assert_int_eq(history.lines, 2);
    ck_assert_int_eq(history.torn_count, 1);
    ck_assert_int_eq(history.torn[0], 2);
    dp_history_release(&history);
    char *after = scratch_read(path, &longer);
    ck_assert_mem_eq(after, text, cut); /* what was torn is still there */
    child_expect(CHILD("history", path), 0, "line 2 of ", "");
    free(text);
    free(after);
    cJSON_Delete(document);
}
END_TEST

START_TEST(every_cut_of_a_line_is_torn_and_costs_no_other_line) {
    cJSON *document = result_check(RESULT_REFUSED);
    size_t length;
    append_good(document);
    char *text = scratch_read(path, &length);
    for (size_t cut = 1; cut + 1 < length; cut++) {
        scratch_write("runs.jsonl", text, cut);
        append_good(document);
        dp_history history = read_all();
        ck_assert_msg(history.lines == 1 && history.torn_count == 1 && history.torn[0] == 1,
                      "cut at %zu: %d lines, %d torn", cut, history.lines, history.torn_count);
        dp_history_release(&history);
    }
    free(text);
    cJSON_Delete(document);
}
END_TEST

START_TEST(a_line_that_does_not_fit_on_the_disk_leaves_the_file_as_it_was) {
    cJSON *document = result_check(RESULT_PASS);
    size_t before, after;
    append_good(document);
    append_good(document);
    char *text = scratch_read(path, &before);
    child_next.file_size = before + before / 4;
    child_expect(CHILD("check", "--checkpoint", "fixtures/small/tiny-plain", "--oracle", "oracles/tiny-plain.h5",
                       "--history", path),
                 4, NULL, "history.write");
    char *same = scratch_read(path, &after);
    ck_assert_uint_eq(before, after);
    ck_assert_mem_eq(text, same, before);
    free(text);
    free(same);
    cJSON_Delete(document);
}
END_TEST

START_TEST(check_and_gate_append_one_line_each) {
    child_expect(CHILD("check", "--checkpoint", "fixtures/small/tiny-plain", "--oracle", "oracles/tiny-plain.h5",
                       "--history", path),
                 0, "PASS", "");
    child_expect(CHILD("gate", "-k", "tiny-[py]*", "--history", path), 0, "PASS", "");
    dp_history history = read_all();
    ck_assert_int_eq(history.lines, 2);
    ck_assert_int_gt(history.count, 2);
    dp_history_release(&history);
    child_expect(CHILD("check", "--checkpoint", "fixtures/small/tiny-plain", "--oracle", "oracles/tiny-plain.h5",
                       "--history", "/no/such/folder/file"),
                 4, NULL, "atomic.open");
}
END_TEST

/* ---- Drift ---- */

/* A history of one case with these shares. */
static void write_shares(const double *share, int count) {
    char *text = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&text, &length);
    for (int i = 0; i < count; i++) {
        fprintf(to,
                "{\"history\":1,\"when\":\"2026-01-%02dT00:00:00Z\",\"commit\":\"c%d\",\"dirty\":false,\"verdict\":"
                "\"PASS\","
                "\"cases\":[{\"case\":\"one\",\"verdict\":\"PASS\",\"series\":\"0123456789abcdef\",\"stage\":\"final\","
                "\"final\":null,\"used\":",
                i % 28 + 1, i);
        fprintf(to, isfinite(share[i]) ? "%.17g}]}\n" : "\"inf\"}]}\n", share[i]);
    }
    fclose(to);
    scratch_write_text("runs.jsonl", text);
    free(text);
}

static dp_drift drift_of(const double *share, int count, int window, int series_count) {
    dp_drift drift;
    dflash_error err;
    write_shares(share, count);
    dp_history history = read_all();
    ck_assert_int_eq(history.lines, count);
    ck_assert_int_eq(dp_drift_of(&history, "0123456789abcdef", "one", window, series_count, &drift, &err), DFLASH_OK);
    drift.first = drift.last = NULL; /* they go with the history */
    dp_history_release(&history);
    return drift;
}

START_TEST(a_share_that_grows_run_by_run_is_a_warning_far_below_the_bar) {
    const double share[] = {0.010, 0.011, 0.013, 0.014, 0.016, 0.019};
    const dp_drift drift = drift_of(share, 6, 20, 1);
    ck_assert(drift.growing && drift.rise > drift.scatter);
    ck_assert_int_eq(drift.changes, 6);
    ck_assert(fabs(drift.chance - 1.0 / 720.0) < 1e-12); /* one order of 6! rises all the way */
}
END_TEST

START_TEST(what_does_not_grow_is_no_warning) {
    static const struct {
        const char *what;
        double share[16];
        int count;
    } quiet[] = {{"constant", {0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2}, 8},
                 {"falling", {0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1}, 8},
                 {"to and fro", {0.2, 0.3, 0.2, 0.3, 0.2, 0.3, 0.2, 0.3}, 8},
                 {"one step", {0.2, 0.2, 0.2, 0.2, 0.3, 0.3, 0.3, 0.3}, 8},
                 {"three rises", {0.1, 0.2, 0.3}, 3},
                 {"unrest with a slight rise", {0.20, 0.60, 0.10, 0.50, 0.25, 0.65, 0.15, 0.55}, 8},
                 {"two levels that hardly rise",
                  {0.200, 0.600, 0.201, 0.601, 0.202, 0.602, 0.203, 0.603, 0.204, 0.604, 0.205, 0.605, 0.206, 0.606,
                   0.207, 0.607},
                  16},
                 {"failures", {INFINITY, INFINITY, INFINITY, INFINITY, INFINITY}, 5}};
    const dp_drift drift = drift_of(quiet[_i].share, quiet[_i].count, 20, 1);
    ck_assert_msg(!drift.growing, "%s: chance %g, rise %g, scatter %g", quiet[_i].what, drift.chance, drift.rise,
                  drift.scatter);
}
END_TEST

START_TEST(repeated_runs_neither_hide_a_drift_nor_make_one) {
    double share[60];
    for (int i = 0; i < 60; i++) share[i] = 0.01 * (1 + i / 10); /* six values, ten runs each */
    ck_assert(drift_of(share, 60, 60, 1).growing);
    ck_assert_int_eq(drift_of(share, 60, 60, 1).changes, 6);
    for (int i = 0; i < 60; i++) share[i] = i < 30 ? 0.01 : 0.02;
    ck_assert(!drift_of(share, 60, 60, 1).growing);
}
END_TEST

START_TEST(only_the_last_runs_count_and_many_series_ask_for_more) {
    const double share[] = {0.9, 0.8, 0.7, 0.6, 0.1, 0.2, 0.3, 0.4};
    ck_assert(!drift_of(share, 8, 8, 1).growing);
    ck_assert(drift_of(share, 8, 4, 1).growing); /* 1 of 24 orders: under 1 in 20 */
    ck_assert(!drift_of(share, 8, 4, 2).growing);
}
END_TEST

/* Counts the orders one by one. */
static void count_orders(int *order, int n, int at, int least, double *hits, double *all) {
    if (at == n) {
        int s = 0;
        for (int i = 0; i < n; i++)
            for (int j = i + 1; j < n; j++) s += order[j] > order[i] ? 1 : -1;
        *all += 1.0;
        *hits += s >= least;
        return;
    }
    for (int i = at; i < n; i++) {
        const int a = order[at], b = order[i];
        order[at] = b, order[i] = a;
        count_orders(order, n, at + 1, least, hits, all);
        order[at] = a, order[i] = b;
    }
}

START_TEST(the_chance_is_that_of_counting_every_order) {
    for (int n = 2; n <= 7; n++)
        for (int s = -n * (n - 1) / 2; s <= n * (n - 1) / 2; s++) {
            int order[7] = {0, 1, 2, 3, 4, 5, 6};
            double hits = 0.0, all = 0.0;
            count_orders(order, n, 0, s, &hits, &all);
            ck_assert_msg(fabs(dp_trend_chance(n, s) - hits / all) < 1e-12, "n %d, s %d", n, s);
        }
}
END_TEST

START_TEST(random_orders_warn_no_more_often_than_the_rule_says) {
    enum { HISTORIES = 2000, RUNS = 12 };
    dp_history_entry entry[RUNS];
    char series[] = "0123456789abcdef", name[] = "one";
    uint64_t state = 12345;
    int warnings = 0;
    for (int h = 0; h < HISTORIES; h++) {
        for (int i = 0; i < RUNS; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            entry[i] = (dp_history_entry){.name = name, .used = (double)(state >> 11) * 0x1p-53};
            memcpy(entry[i].series, series, sizeof series);
        }
        const dp_history history = {.entry = entry, .count = RUNS};
        dp_drift drift;
        dflash_error err;
        ck_assert_int_eq(dp_drift_of(&history, series, name, 20, 1, &drift, &err), DFLASH_OK);
        warnings += drift.growing;
    }
    /* Expected at most 100 with a standard deviation under 10: six of them above that is 160. */
    ck_assert_msg(warnings <= 160, "%d of %d", warnings, HISTORIES);
}
END_TEST

/* ---- The command ---- */

START_TEST(the_command_shows_the_table_and_the_warning_and_writes_the_plot) {
    const double share[] = {0.01, 0.02, 0.03, 0.04, 0.05, INFINITY};
    char folder[SCRATCH_PATH], data[SCRATCH_PATH];
    size_t length;
    write_shares(share, 6);
    child_expect(CHILD("history", path), 0, "warn: the share has grown over 5 changes, by 4 % of the limit", "");
    child_expect(CHILD("history", path), 0, "6 runs, 1 series, 1 with a drift that grows", "");
    child_expect(CHILD("history", path), 0, "beyond", "");
    child_expect(CHILD("history", path, "--last", "3"), 0, "6 runs, 1 series, 0 with a drift that grows", "");
    child_expect(CHILD("history", path, "-k", "two"), 5, "6 runs, 0 series", "-k 'two' matches no case of ");
    snprintf(folder, sizeof folder, "%s", sf_folder);
    child_expect(CHILD("history", path, "--plot", folder), 0, NULL, NULL);
    char *text = scratch_read(scratch_path("drift.dat", data), &length);
    ck_assert_ptr_nonnull(strstr(text, "one"));
    ck_assert_ptr_nonnull(strstr(text, "0.05"));
    free(text);
    child_next.out = "/dev/full";
    child_expect(CHILD("history", path), 4, "", "output.write");
}
END_TEST

START_TEST(the_command_refuses_what_it_cannot_use) {
    char none[SCRATCH_PATH];
    child_expect(CHILD("history"), 2, "", "FILE is missing");
    child_expect(CHILD("history", path, "--last", "1"), 2, "", "found '1'");
    child_expect(CHILD("history", path, "--last"), 2, "", "--last needs a value");
    child_expect(CHILD("history", path, "--wrong"), 2, "", "--wrong");
    child_expect(CHILD("history", scratch_path("none", none)), 4, "", "file.open");
    scratch_write_text("runs.jsonl", "");
    child_expect(CHILD("history", path), 5, "0 runs", "");
    scratch_write_text("runs.jsonl", "{\"history\":2,\"cases\":[]}\nnot json\n[]\n\n");
    child_expect(CHILD("history", path), 3, "line 4 of ", "is no history; give a file that check or gate wrote");
    scratch_write_text("runs.jsonl", "1\n2\n3\n4\n5\n6\n7\n");
    child run = CHILD("history", path);
    ck_assert_ptr_null(strstr(run.out, "line 6 of "));
    child_expect(run, 3, "nor are 2 more of its lines", "is no history");
}
END_TEST

Suite *suite_history(void) {
    Suite *suite = suite_create("history");
    TCase *tests = tcase_create("history");
    tcase_add_checked_fixture(tests, set_up, scratch_close);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_line_holds_what_the_run_was_and_how_near_its_bar);
    tcase_add_loop_test(tests, runs_that_cannot_be_compared_are_other_series, 0, 6);
    tcase_add_test(tests, a_failure_and_a_refusal_are_on_record_too);
    tcase_add_test(tests, eight_writers_leave_every_line_whole);
    tcase_add_test(tests, a_torn_last_line_is_told_kept_and_not_mixed_with_the_next);
    tcase_add_test(tests, every_cut_of_a_line_is_torn_and_costs_no_other_line);
    tcase_add_test(tests, a_line_that_does_not_fit_on_the_disk_leaves_the_file_as_it_was);
    tcase_add_test(tests, check_and_gate_append_one_line_each);
    tcase_add_test(tests, a_share_that_grows_run_by_run_is_a_warning_far_below_the_bar);
    tcase_add_loop_test(tests, what_does_not_grow_is_no_warning, 0, 8);
    tcase_add_test(tests, repeated_runs_neither_hide_a_drift_nor_make_one);
    tcase_add_test(tests, only_the_last_runs_count_and_many_series_ask_for_more);
    tcase_add_test(tests, the_chance_is_that_of_counting_every_order);
    tcase_add_test(tests, random_orders_warn_no_more_often_than_the_rule_says);
    tcase_add_test(tests, the_command_shows_the_table_and_the_warning_and_writes_the_plot);
    tcase_add_test(tests, the_command_refuses_what_it_cannot_use);
    suite_add_tcase(suite, tests);
    return suite;
}
