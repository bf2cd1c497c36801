/* test_postmortem_revisions.c - runs ordered along the commits of a small repository, and the commits between them. */
#include "support/child.h"
#include "support/postmortem_case.h"
#include "support/recording_case.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { REVISIONS = 4, HASH = 16 };
static const char day1[] = "2026-01-01T00:00:00Z", day2[] = "2026-01-02T00:00:00Z", day3[] = "2026-01-03T00:00:00Z",
                  day4[] = "2026-01-04T00:00:00Z";
static char repository[SCRATCH_PATH], revision[REVISIONS][HASH];

/* Runs a line of shell in the repository; what it prints is read into out[HASH], unless that is NULL. */
static void shell(const char *command, char *out) {
    char line[1024];
    snprintf(line, sizeof line,
             "cd %s && export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b "
             "GIT_AUTHOR_DATE=2026-01-02T03:04:05Z GIT_COMMITTER_DATE=2026-01-02T03:04:05Z && { %s; } 2>/dev/null",
             repository, command);
    FILE *pipe = popen(line, "r");
    ck_assert_ptr_nonnull(pipe);
    char text[256] = "";
    while (fgets(text, sizeof text, pipe) != NULL) continue;
    ck_assert_msg(pclose(pipe) == 0, "%s", command);
    if (out != NULL) snprintf(out, HASH, "%.12s", text);
}

/* A repository whose history is 0, 1, 2 in a line, all of one second, and 3 beside 2, a child of 1. */
static void open_repository(void) {
    pm_open();
    snprintf(repository, sizeof repository, "%s.git-test", sf_folder);
    ck_assert_int_eq(mkdir(repository, 0700), 0);
    shell("git init -q . && git symbolic-ref HEAD refs/heads/line", NULL);
    shell("git commit -q --allow-empty -m zero && git rev-parse HEAD", revision[0]);
    shell("git commit -q --allow-empty -m 'one | pipe' && git rev-parse HEAD", revision[1]);
    shell("git commit -q --allow-empty -m two && git rev-parse HEAD", revision[2]);
    shell("git checkout -q -b side HEAD~1 && git commit -q --allow-empty -m three && git rev-parse HEAD", revision[3]);
    pm_options.order = DP_ORDER_REVISION;
    pm_options.repository = repository;
}

static void close_repository(void) {
    char line[SCRATCH_PATH + 16];
    snprintf(line, sizeof line, "rm -rf %s", repository);
    ck_assert_int_eq(system(line), 0);
    scratch_close();
}

static char *markdown_of(const dp_postmortem *summary) {
    char *text = NULL;
    dflash_error err = {.message = ""};
    ck_assert_msg(dp_postmortem_markdown(summary, &text, &err) == DFLASH_OK, "%s", err.message);
    return text;
}

START_TEST(runs_follow_their_commits_and_runs_of_one_commit_their_time) {
    dp_postmortem summary;
    pm_add(pm_bad("final"), day1, revision[2]); /* run first, built last */
    pm_add(pm_good(), day4, revision[0]);
    pm_add(pm_good(), day3, revision[1]);
    pm_add(pm_good(), day2, revision[1]);
    pm_read(&summary);
    static const int order[] = {1, 3, 2, 0};
    for (int r = 0; r < 4; r++) ck_assert_str_eq(summary.run[r].path, pm_path[order[r]]);
    ck_assert_int_eq(summary.item[0].last_good, 2);
    ck_assert_int_eq(summary.item[0].first_bad, 3);
    ck_assert_str_eq(summary.run[3].commit.subject, "two");
    char *text = markdown_of(&summary);
    pm_holds(text,
             (const char *const[]){"in order of revision", "1 commit after the last good run's", "` `two`", NULL});
    ck_assert_ptr_null(strstr(text, "pipe"));
    free(text);
    dp_postmortem_release(&summary);
    pm_options.order = DP_ORDER_TIME;
    pm_read(&summary); /* the same runs by time are another story */
    ck_assert_str_eq(summary.run[0].path, pm_path[0]);
    ck_assert_int_eq(summary.item[0].last_good, -1);
    dp_postmortem_release(&summary);
}
END_TEST

START_TEST(the_commits_between_good_and_bad_are_listed_oldest_first) {
    dp_postmortem summary;
    dp_past_commits commits;
    dflash_error err;
    char *page = NULL;
    pm_add(pm_good(), day1, revision[0]);
    pm_add(pm_bad("final"), day2, revision[2]);
    pm_read(&summary);
    ck_assert_int_eq(dp_postmortem_commits(&summary, 0, 1, &commits, &err), DFLASH_OK);
    ck_assert(commits.known);
    ck_assert_int_eq(commits.count, 2);
    ck_assert_int_eq(commits.left_behind, 0);
    ck_assert_str_eq(commits.commit[0].subject, "one | pipe");
    ck_assert_str_eq(commits.commit[1].subject, "two");
    dp_past_commits_release(&commits);
    char *text = markdown_of(&summary);
    pm_holds(text, (const char *const[]){"2 commits after the last good run's", "one \\| pipe", NULL});
    free(text);
    ck_assert_int_eq(dp_postmortem_html(&summary, NULL, &page, &err), DFLASH_OK);
    page_is_sound(page);
    pm_holds(page, (const char *const[]){"<h3>Commits between them</h3>", "</code> one | pipe</li>", NULL});
    free(page);
    dp_postmortem_release(&summary);
    pm_options.repository = NULL;
    pm_options.order = DP_ORDER_TIME;
    pm_read(&summary);
    ck_assert_int_eq(dp_postmortem_commits(&summary, 0, 1, &commits, &err), DFLASH_OK);
    ck_assert(!commits.known);
    dp_past_commits_release(&commits);
    dp_postmortem_release(&summary);
}
END_TEST

START_TEST(a_bad_run_on_another_branch_is_said_to_be_no_descendant) {
    dp_postmortem summary;
    dp_past_commits commits;
    dflash_error err;
    pm_options.order = DP_ORDER_TIME;
    pm_add(pm_good(), day1, revision[2]);
    pm_add(pm_bad("final"), day2, revision[3]);
    pm_read(&summary);
    ck_assert_int_eq(dp_postmortem_commits(&summary, 0, 1, &commits, &err), DFLASH_OK);
    ck_assert_int_eq(commits.count, 1);
    ck_assert_int_eq(commits.left_behind, 1);
    dp_past_commits_release(&commits);
    char *text = markdown_of(&summary);
    pm_holds(text,
             (const char *const[]){"does not descend from the last good run's: 1 commit is only in its history, and 1",
                                   "three", NULL});
    free(text);
    dp_postmortem_release(&summary);
}
END_TEST

START_TEST(builds_that_were_not_of_their_commit_alone_are_marked) {
    dp_postmortem summary;
    char name[DP_RUN_NAME], *page = NULL;
    dflash_error err;
    pm_add(pm_good(), day1, revision[1]);
    pm_add(pm_bad("final"), day2, revision[1]);
    for (int i = 0; i < 2; i++) {
        size_t length;
        char *text = scratch_read(pm_path[i], &length);
        cJSON *document = cJSON_Parse(text);
        free(text);
        result_put(document, "environment/dirty", i == 1 ? "true" : "false");
        char file[16], path[SCRATCH_PATH];
        snprintf(file, sizeof file, "run%d.json", i);
        result_write(document, file, path);
        cJSON_Delete(document);
    }
    pm_read(&summary);
    ck_assert_ptr_null(strchr(dp_past_run_name(&summary.run[0], name), '+'));
    ck_assert_ptr_nonnull(strchr(dp_past_run_name(&summary.run[1], name), '+'));
    char *text = markdown_of(&summary);
    pm_holds(text, (const char *const[]){"| `environment.dirty` | `false` | `true` |",
                                         "The first bad run was built from a tree that differed", "of the same commit",
                                         NULL});
    free(text);
    ck_assert_int_eq(dp_postmortem_html(&summary, NULL, &page, &err), DFLASH_OK);
    pm_holds(page, (const char *const[]){"</code> dirty", NULL});
    free(page);
    dp_postmortem_release(&summary);
}
END_TEST

static const struct {
    const char *commit, *mention;
} unknown[] = {{"0123456789ab", "0123456789ab"}, {"unknown", "hexadecimal"}, {"line", "'line'"}, {"--all", "'--all'"}};
enum { UNKNOWN = sizeof unknown / sizeof *unknown };

START_TEST(a_commit_that_the_repository_does_not_know_is_refused_by_file_and_name) {
    pm_add(pm_good(), day1, revision[0]);
    pm_add(pm_bad("final"), day2, unknown[_i].commit);
    pm_refused("postmortem.commit", pm_path[1], unknown[_i].mention);
    pm_options.order = DP_ORDER_TIME; /* a commit of another repository is still a mistake; none on record is not */
    if (_i == 0) {
        pm_refused("postmortem.commit", pm_path[1], unknown[_i].mention);
        return;
    }
    dp_postmortem summary;
    pm_read(&summary);
    ck_assert_str_eq(summary.run[1].commit.hash, "");
    dp_postmortem_release(&summary);
}
END_TEST

START_TEST(what_is_no_repository_is_refused) {
    pm_add(pm_good(), day1, revision[0]);
    pm_options.repository = sf_folder;
    pm_refused("postmortem.commit", sf_folder, "");
}
END_TEST

START_TEST(recordings_and_results_are_ordered_by_revision_together) {
    dp_postmortem summary;
    char path[SCRATCH_PATH], engine[64];
    pm_add(pm_good(), day2, revision[1]);
    pm_add(pm_good(), day1, revision[0]);
    rc_open("tiny-plain");
    snprintf(engine, sizeof engine, "{\"name\":\"x\",\"commit\":\"%s\"}", revision[2]);
    scratch_edit_record("provenance", "engine", engine);
    scratch_copy(sf_path, "b.h5");
    pm_add_file(scratch_path("b.h5", path));
    pm_options.oracle = "oracles/tiny-plain.h5";
    pm_read(&summary);
    ck_assert_str_eq(summary.run[0].path, pm_path[1]);
    ck_assert_str_eq(summary.run[1].path, pm_path[0]);
    ck_assert_str_eq(summary.run[2].path, pm_path[2]);
    dp_postmortem_release(&summary);
    child_expect(CHILD("postmortem", pm_path[0], pm_path[1], "--order", "revision", "--repo", repository), 0,
                 "in order of revision", "");
}
END_TEST

void postmortem_add_revisions(Suite *suite) {
    TCase *tests = tcase_create("revisions");
    tcase_add_checked_fixture(tests, open_repository, close_repository);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, runs_follow_their_commits_and_runs_of_one_commit_their_time);
    tcase_add_test(tests, the_commits_between_good_and_bad_are_listed_oldest_first);
    tcase_add_test(tests, a_bad_run_on_another_branch_is_said_to_be_no_descendant);
    tcase_add_test(tests, builds_that_were_not_of_their_commit_alone_are_marked);
    tcase_add_loop_test(tests, a_commit_that_the_repository_does_not_know_is_refused_by_file_and_name, 0, UNKNOWN);
    tcase_add_test(tests, what_is_no_repository_is_refused);
    tcase_add_test(tests, recordings_and_results_are_ordered_by_revision_together);
    suite_add_tcase(suite, tests);
}
