/*
 * test_bisect_git.c - bisection over the revisions of a small repository, whose "build" and "run" are a line of shell:
 * a revision holds the file `which`, and its run copies the recording of that name. The program's own build is
 * exercised by hand; what is tested here is everything round it.
 */
#include "support/recording_case.h"
#include "support/recording_cases.h"

#include "support/child.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char repository[SCRATCH_PATH], temporary[SCRATCH_PATH], build[] = "test ! -e broken", run[512];

static void shell(const char *command) {
    char line[4096];
    snprintf(line, sizeof line,
             "cd %s && export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b "
             "GIT_AUTHOR_DATE=2026-01-02T03:04:05Z GIT_COMMITTER_DATE=2026-01-02T03:04:05Z && { %s; } >/dev/null 2>&1",
             repository, command);
    ck_assert_msg(system(line) == 0, "%s", command);
}

/* A commit whose run is the recording `which`. */
static void commit(const char *which, const char *subject) {
    char line[1024];
    snprintf(line, sizeof line, "echo %s > which && echo '%s' > note && git add -A && git commit -qm '%s'", which,
             subject, subject);
    shell(line);
}

static bool row_3(int64_t i) { return i / 96 == 3; }

/* The recordings `good` and `bad` (layers.1.attn.norm, row 3) and an empty repository. */
static void open_repository(void) {
    scratch_open();
    rc_open("tiny-plain");
    scratch_copy(rc_a, "good");
    rc_change("layers.1.attn.norm", row_3, 2.0f, 0.0f);
    scratch_copy(sf_path, "bad");
    snprintf(run, sizeof run, "cp \"%s/$(cat which)\" \"$DP_RECORDING\"", sf_folder);
    snprintf(repository, sizeof repository, "%s.git-test", sf_folder);
    snprintf(temporary, sizeof temporary, "%s.tmp-test", sf_folder);
    ck_assert_int_eq(mkdir(repository, 0700), 0);
    ck_assert_int_eq(mkdir(temporary, 0700), 0);
    setenv("TMPDIR", temporary, 1);
    shell("git init -q . && git symbolic-ref HEAD refs/heads/line");
}

static int entries(const char *path) {
    int count = 0;
    DIR *listing = opendir(path);
    ck_assert_ptr_nonnull(listing);
    for (const struct dirent *entry; (entry = readdir(listing)) != NULL;) count += entry->d_name[0] != '.';
    closedir(listing);
    return count;
}

/* Nothing may be left in the folder for temporary files. */
static void close_repository(void) {
    char line[2 * SCRATCH_PATH + 16];
    const int left = entries(temporary);
    snprintf(line, sizeof line, "rm -rf %s %s", repository, temporary);
    ck_assert_int_eq(system(line), 0);
    unsetenv("TMPDIR");
    scratch_close();
    ck_assert_int_eq(left, 0);
}

#define BISECT(...) CHILD("bisect", "--repo", repository, "--build", build, "--run", run, "--good", __VA_ARGS__)

static double git_number(const cJSON *json, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(json, "git"), key);
    ck_assert_msg(cJSON_IsNumber(item), "no number %s", key);
    return item->valuedouble;
}

START_TEST(the_commit_and_the_stage_are_named_and_the_checkout_is_left_alone) {
    commit("good", "start");
    for (int i = 0; i < 4; i++) commit("good", i == 0 ? "a" : i == 1 ? "b" : i == 2 ? "c" : "d");
    commit("bad", "breaks the norm");
    for (int i = 0; i < 5; i++) commit("bad", i == 0 ? "e" : i == 1 ? "f" : i == 2 ? "g" : i == 3 ? "h" : "i");
    shell("echo mine > which && echo untracked > extra && git status --porcelain > ../$(basename $PWD).before; true");
    child result = BISECT("HEAD~10", "--bad", "HEAD");
    ck_assert_ptr_nonnull(strstr(result.out, "first divergent commit: "));
    ck_assert_ptr_nonnull(strstr(result.out, " breaks the norm\n  author date 2026-01-02T03:04:05"));
    ck_assert_ptr_nonnull(strstr(result.out, "first divergent stage: layers.1.attn.norm [5, 96]"));
    ck_assert_ptr_nonnull(strstr(result.out, "rows:      row 3 of 5"));
    child_expect(result, 1, "revisions built, 0 skipped", "");
    shell("test \"$(cat which)\" = mine && test -e extra && git symbolic-ref HEAD | grep -q line && "
          "git status --porcelain | cmp - ../$(basename $PWD).before; r=$?; rm ../$(basename $PWD).before; exit $r");
    cJSON *json = child_json(BISECT("HEAD~10", "--bad", "HEAD", "--json"), 1);
    ck_assert(git_number(json, "commits") == 10);
    ck_assert(git_number(json, "builds") <= 6); /* both ends, and the four bits of ten */
    cJSON_Delete(json);
}
END_TEST

START_TEST(a_step_that_cannot_be_built_is_skipped) {
    commit("good", "start");
    commit("good", "a");
    shell("touch broken");
    commit("bad", "cannot be built");
    shell("rm broken");
    commit("bad", "b");
    child result = BISECT("HEAD~3", "--bad", "HEAD");
    ck_assert_ptr_nonnull(strstr(result.out, "skipped"));
    ck_assert_ptr_nonnull(strstr(result.out, "the build ended with code 1"));
    ck_assert_ptr_nonnull(strstr(result.out, "one of 2, since those between could not be tried:"));
    child_expect(result, 1, "1 skipped", "");
    shell("touch broken");
    commit("bad", "the end cannot be built");
    child_expect(BISECT("HEAD~4", "--bad", "HEAD"), 3, "", "bisect.end: The bad revision");
}
END_TEST

START_TEST(a_step_that_leaves_no_recording_or_no_recording_that_can_be_compared_is_skipped) {
    commit("good", "start");
    commit("missing", "leaves none");
    commit("note", "leaves something else");
    commit("bad", "end");
    char note[SCRATCH_PATH];
    scratch_write_text("note", "not a recording");
    scratch_path("note", note);
    child result = BISECT("HEAD~3", "--bad", "HEAD");
    ck_assert_ptr_nonnull(strstr(result.out, "oracle.format"));
    ck_assert_ptr_nonnull(strstr(result.out, "the run ended with code 1"));
    child_expect(result, 1, "2 skipped", "");
}
END_TEST

START_TEST(a_merge_stands_for_the_branch_that_it_brought_in) {
    commit("good", "start");
    shell("git checkout -q -b side");
    commit("bad", "on the branch");
    shell("git checkout -q line && echo other > other && git add other && git commit -qm main");
    shell("git merge -q --no-ff -m 'the merge' side");
    shell("echo more > more && git add more && git commit -qm after");
    child result = BISECT("HEAD~3", "--bad", "HEAD");
    ck_assert_ptr_nonnull(strstr(result.out, " the merge\n"));
    child_expect(result, 1, "a merge that brought in 1 commits", "");
    child_expect(BISECT("side", "--bad", "HEAD"), 3, "", "bisect.");
}
END_TEST

START_TEST(ends_that_make_no_search_are_refused) {
    commit("good", "start");
    commit("good", "a");
    child_expect(BISECT("HEAD~1", "--bad", "HEAD"), 3, "", "bisect.same");
    child_expect(BISECT("HEAD", "--bad", "HEAD~1"), 3, "", "bisect.ancestry");
    child_expect(BISECT("HEAD", "--bad", "HEAD"), 3, "", "bisect.ancestry");
    child_expect(BISECT("no-such-revision", "--bad", "HEAD"), 3, "", "bisect.revision");
    child_expect(BISECT("--help", "--bad", "HEAD"), 3, "", "bisect.revision");
    child_expect(CHILD("bisect", "--repo", sf_folder, "--good", "a", "--bad", "b", "--run", run), 3, "",
                 "bisect.revision");
}
END_TEST

START_TEST(a_search_shows_a_terminal_how_far_it_is) {
    static const char clear[] = "\r\033[K";
    commit("good", "start");
    commit("good", "a");
    commit("bad", "breaks the norm");
    child_next.terminal = true;
    child result = BISECT("HEAD~2", "--bad", "HEAD");
    ck_assert_int_eq(result.code, 1);
    ck_assert_ptr_nonnull(strstr(result.err, "bisect: 0 revisions: "));
    const size_t length = strlen(result.err);
    ck_assert(length > strlen(clear) && strcmp(result.err + length - strlen(clear), clear) == 0);
    child_release(&result);
}
END_TEST

/* The steps run in folders of their own, so the file of a head reaches them by its whole path, its tensor as it was. */
START_TEST(the_head_that_was_named_reaches_every_step) {
    char fake[1024];
    commit("good", "start");
    commit("bad", "breaks the norm");
    snprintf(fake, sizeof fake,
             "mkdir -p build-bisect && printf '%%s\\n' '#!/bin/sh' "
             "'for w; do case $p in --out) o=$w;; --lm-head) h=$w;; esac; p=$w; done' "
             "'test -f \"${h%%:*}\" && test \"${h##*:}\" = the.head && cp \"%s/$(cat which)\" \"$o\"' "
             ">build-bisect/dflash-parity && chmod +x build-bisect/dflash-parity",
             sf_folder);
    child_expect(CHILD("bisect", "--repo", repository, "--build", fake, "--good", "HEAD~1", "--bad", "HEAD",
                       "--checkpoint", "fixtures/small/tiny-plain", "--oracle", "oracles/tiny-plain.h5", "--lm-head",
                       "fixtures/small/tiny-dflash2/model.safetensors:the.head"),
                 1, "revisions built, 0 skipped", "");
}
END_TEST

START_TEST(an_interruption_ends_the_step_and_removes_the_scratch_copy) {
    commit("good", "start");
    commit("bad", "a");
    fflush(NULL);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        if (freopen("/dev/null", "w", stderr) == NULL) _exit(1);
        execl(DP_BUILD_DIR "/dflash-parity", "dflash-parity", "bisect", "--repo", repository, "--good", "HEAD~1",
              "--bad", "HEAD", "--build", "touch ../../started; sleep 60", "--run", run, (char *)NULL);
        _exit(1);
    }
    char started[SCRATCH_PATH + 16];
    struct stat info;
    int status = 0;
    snprintf(started, sizeof started, "%s/started", temporary);
    while (stat(started, &info) != 0) usleep(10000);
    ck_assert_int_gt(entries(temporary), 1);
    ck_assert_int_eq(kill(pid, SIGTERM), 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 4);
    ck_assert_int_eq(unlink(started), 0);
    ck_assert_int_eq(entries(temporary), 0);
}
END_TEST

void bisect_add_git(Suite *suite) {
    TCase *tests = tcase_create("git");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, open_repository, close_repository);
    tcase_add_test(tests, the_commit_and_the_stage_are_named_and_the_checkout_is_left_alone);
    tcase_add_test(tests, a_step_that_cannot_be_built_is_skipped);
    tcase_add_test(tests, a_step_that_leaves_no_recording_or_no_recording_that_can_be_compared_is_skipped);
    tcase_add_test(tests, a_merge_stands_for_the_branch_that_it_brought_in);
    tcase_add_test(tests, ends_that_make_no_search_are_refused);
    tcase_add_test(tests, a_search_shows_a_terminal_how_far_it_is);
    tcase_add_test(tests, the_head_that_was_named_reaches_every_step);
    tcase_add_test(tests, an_interruption_ends_the_step_and_removes_the_scratch_copy);
    suite_add_tcase(suite, tests);
}
