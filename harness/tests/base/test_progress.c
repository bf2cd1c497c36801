/*
 * test_progress.c - long work shows on a terminal how far it is, how fast and how long it will take, removes that
 * again, and writes a line in ten seconds into a log.
 */
#include "support/child.h"
#include "base/progress.h"
#include "support/result_case.h"
#include "suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLEAR "\r\033[K"

static char out[SCRATCH_PATH], folder[SCRATCH_PATH];

typedef struct job {
    const char *word[12];
    const char *label;
    const char *says; /* something of what is at work, shown at least once */
} job;

static const job jobs[] = {
    {{"soak", "--runs", "60"}, "soak: ", " runs/s, "},
    {{"gate", "-k", "tiny-d*"}, "gate: ", ": tiny-dflash2, loading weights"},
    {{"check", "--checkpoint", "fixtures/small/tiny-dflash2", "--oracle", "oracles/tiny-dflash2-far.h5"},
     "check: ",
     ": loading weights"},
    {{"identity", "--case", "tiny-plain", "--schedules", "40"}, "identity: ", ": tiny-plain, "},
    {{"ladder", "--case", "tiny-dflash2"}, "ladder: ", ": the stored weights"},
    {{"synth", "--config", "fixtures/small/tiny-hot/config.json", "--seed", "1", "--out", folder}, "synth: ", " %"}};
enum { JOBS = sizeof jobs / sizeof *jobs };

static child run_job(const job *j, bool terminal) {
    int count = 0;
    while (count < 12 && j->word[count] != NULL) count++;
    child_next.terminal = terminal;
    return child_words(j->word, count);
}

/* Every line that was shown fits the terminal, begins with a clearing, and the last one is removed. */
static void is_one_line_that_goes_away(const char *text) {
    const size_t length = strlen(text), clear = strlen(CLEAR);
    ck_assert_msg(strchr(text, '\n') == NULL, "a line end: %s", text);
    ck_assert_msg(length > clear && strcmp(text + length - clear, CLEAR) == 0, "not removed: %s", text);
    for (const char *at = text; *at != '\0';) {
        ck_assert_msg(strncmp(at, CLEAR, clear) == 0, "over what stood there: %.60s", at);
        at += clear;
        const size_t shown = strcspn(at, "\r");
        ck_assert_uint_lt(shown, 100);
        at += shown;
    }
}

START_TEST(a_terminal_is_shown_progress_which_then_goes_away) {
    scratch_path("made", folder);
    child run = run_job(&jobs[_i], true);
    ck_assert_msg(run.code == 0, "code %d: %s", run.code, run.err);
    is_one_line_that_goes_away(run.err);
    ck_assert_msg(strstr(run.err, jobs[_i].label) != NULL, "no %s in %s", jobs[_i].label, run.err);
    ck_assert_msg(strstr(run.err, jobs[_i].says) != NULL, "no \"%s\" in %s", jobs[_i].says, run.err);
    child_release(&run);
    if (strcmp(jobs[_i].label, "synth: ") == 0) tf_remove_dir(folder);
}
END_TEST

START_TEST(a_quick_job_leaves_nothing_in_a_log) {
    scratch_path("made", folder);
    child_expect(run_job(&jobs[_i], false), 0, NULL, "");
    if (strcmp(jobs[_i].label, "synth: ") == 0) tf_remove_dir(folder);
}
END_TEST

/* What a function prints to stderr, which is a file meanwhile. */
static void in_a_log(void (*print)(void), char *text, size_t size) {
    const int kept = dup(STDERR_FILENO);
    FILE *log = tmpfile();
    ck_assert(kept >= 0 && log != NULL && dup2(fileno(log), STDERR_FILENO) == STDERR_FILENO);
    print();
    ck_assert(dup2(kept, STDERR_FILENO) == STDERR_FILENO && close(kept) == 0);
    rewind(log);
    text[fread(text, 1, size - 1, log)] = '\0';
    fclose(log);
}

/* Three updates; ten seconds seem to pass before the second. */
static void go_on_for_ten_seconds(void) {
    dp_progress p;
    dp_progress_begin(&p, "gate", "cases", 4.0);
    dp_progress_update(&p, 1.0, "early");
    p.started -= 10.5, p.shown -= 10.5;
    dp_progress_update(&p, 2.0, "tiny-plain");
    dp_progress_update(&p, 3.0, "too soon");
    dp_progress_end(&p);
}

START_TEST(a_log_gets_a_plain_line_in_ten_seconds) {
    char text[512];
    in_a_log(go_on_for_ten_seconds, text, sizeof text);
    ck_assert_str_eq(text, "gate: 50 %, 11.4 cases/min, 11 s left: tiny-plain\n");
}
END_TEST

START_TEST(pictures_are_progress_too) {
    char result[SCRATCH_PATH], page[SCRATCH_PATH];
    cJSON *document = result_check(RESULT_FAIL);
    result_write(document, "a.json", result);
    child_next.terminal = true;
    child run = CHILD("postmortem", result, "--out", scratch_path("a.html", page));
    ck_assert_msg(run.code == 0, "code %d: %s", run.code, run.err);
    is_one_line_that_goes_away(run.err);
    ck_assert_msg(strstr(run.err, "gnuplot: ") != NULL, "no gnuplot in %s", run.err);
    child_release(&run);
    cJSON_Delete(document);
}
END_TEST

/* ---- The line itself ---- */

/* What dp_progress writes; a test's own standard error takes the place of the terminal. */
static char *shown(void (*body)(dp_progress *)) {
    dp_progress progress;
    const int saved = dup(STDERR_FILENO);
    FILE *to = fopen(scratch_path("shown", out), "w+");
    ck_assert(saved >= 0 && to != NULL);
    fflush(stderr);
    ck_assert_int_ge(dup2(fileno(to), STDERR_FILENO), 0);
    dp_progress_begin(&progress, "job", "runs", 200.0);
    progress.terminal = true;
    body(&progress);
    dp_progress_end(&progress);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    fclose(to);
    size_t length;
    return scratch_read(out, &length);
}

static void half_way(dp_progress *p) {
    p->started -= 10.0;
    dp_progress_update(p, 100.0, "what");
}
static void slow(dp_progress *p) {
    p->started -= 1000.0;
    dp_progress_update(p, 10.0, NULL);
}
static void at_the_start(dp_progress *p) { dp_progress_update(p, 0.0, NULL); }
static void of_unknown_length(dp_progress *p) {
    p->total = 0.0;
    p->started -= 2.0;
    dp_progress_update(p, 6.0, NULL);
}
static void of_bytes(dp_progress *p) {
    p->unit = NULL;
    p->total = 4e9;
    p->started -= 2.0;
    dp_progress_update(p, 1e9, NULL);
}
static void too_wide(dp_progress *p) {
    dp_progress_update(p, 0.0,
                       "a name that goes on and on, as names of cases may, until the line has no room for it left");
}
static void twice_at_once(dp_progress *p) {
    dp_progress_update(p, 0.0, "first");
    dp_progress_update(p, 0.0, "second");
}
static void part_of_a_part(dp_progress *p) {
    const dp_progress_part part = {p, 100.0, 100.0, "a case"}, half = dp_progress_stretch(&part, 0.5, 1.0);
    p->started -= 10.0;
    dp_progress_share(&half, 0.5, "a stage");
}
static void nothing(dp_progress *p) { (void)p; }

static const struct {
    void (*body)(dp_progress *);
    const char *text;
} lines[] = {
    {half_way, CLEAR "job: 50 %, 10 runs/s, 10 s left: what" CLEAR},
    {slow, CLEAR "job: 5 %, 0.6 runs/min, 5.3 h left" CLEAR},
    {at_the_start, CLEAR "job: 0 %" CLEAR},
    {of_unknown_length, CLEAR "job: 6 runs, 3 runs/s" CLEAR},
    {of_bytes, CLEAR "job: 25 %, 500 MB/s, 6 s left" CLEAR},
    {too_wide, CLEAR "job: 0 %: a name that goes on and on, as names of cases may, until the line has" CLEAR},
    {twice_at_once, CLEAR "job: 0 %: first" CLEAR},
    {part_of_a_part, CLEAR "job: 88 %, 17.5 runs/s, 1 s left: a case, a stage" CLEAR},
    {nothing, ""},
};

START_TEST(the_line_says_share_rate_and_time_left) {
    char *text = shown(lines[_i].body);
    ck_assert_str_eq(text, lines[_i].text);
    free(text);
}
END_TEST

Suite *suite_progress(void) {
    Suite *suite = suite_create("progress");
    TCase *tests = tcase_create("progress");
    tcase_add_checked_fixture(tests, scratch_open, scratch_close);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, a_terminal_is_shown_progress_which_then_goes_away, 0, JOBS);
    tcase_add_loop_test(tests, a_quick_job_leaves_nothing_in_a_log, 0, JOBS);
    tcase_add_test(tests, a_log_gets_a_plain_line_in_ten_seconds);
    tcase_add_test(tests, pictures_are_progress_too);
    tcase_add_loop_test(tests, the_line_says_share_rate_and_time_left, 0, sizeof lines / sizeof *lines);
    suite_add_tcase(suite, tests);
    return suite;
}
