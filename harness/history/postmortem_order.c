/*
 * postmortem_order.c - puts the runs of a postmortem in order, by time or along the commits of a repository, and tells
 * the commits between two of them.
 */
#include "history/postmortem.h"

#include "base/clock.h"
#include "common/error.h"
#include "base/process.h"

#include <stdlib.h>
#include <string.h>

const char *dp_order_text(dp_order order) {
    static const char *const text[] = {[DP_ORDER_TIME] = "in order of time",
                                       [DP_ORDER_GIVEN] = "in the order given",
                                       [DP_ORDER_REVISION] = "in order of revision"};
    return text[order];
}

/* ---- Time ----------------------------------------------------------------------------------------------------------
 */

static df_status check_times(const dp_postmortem *story, df_error *err) {
    for (int r = 0; r < story->run_count; r++)
        if (!dp_is_moment(story->run[r].when))
            return df_fail(err, DF_ERR_REFUSED, "postmortem.when",
                           "%s says that it began at '%.40s': expected a time in UTC such as 2026-01-31T12:00:00Z, "
                           "without which it cannot be put in order. Give the files in order with --order given.",
                           story->run[r].path, story->run[r].when);
    return DF_OK;
}

static bool later(const dp_past_run *a, const dp_past_run *b) {
    return a->position != b->position ? a->position > b->position : strcmp(a->when, b->when) > 0;
}

/* Insertion keeps equal runs in the order given. */
static void sort(dp_postmortem *story) {
    for (int i = 1; i < story->run_count; i++) {
        const dp_past_run run = story->run[i];
        int at = i;
        for (; at > 0 && later(&story->run[at - 1], &run); at--) story->run[at] = story->run[at - 1];
        story->run[at] = run;
    }
}

/* ---- Revisions -----------------------------------------------------------------------------------------------------
 */

/* A name that only a commit can have: a file must not choose a branch or a tag. */
static bool is_hash(const char *text) {
    enum { SHORTEST = 7, LONGEST = 40 };
    const size_t length = strlen(text);
    return length >= SHORTEST && length <= LONGEST && strspn(text, "0123456789abcdef") == length;
}

static df_status find_commit(const dp_postmortem *story, dp_past_run *run, const char *scratch, df_error *err) {
    const char *name = dp_past_commit(run);
    df_error why;
    if (!is_hash(name)) {
        if (story->options.order != DP_ORDER_REVISION) return DF_OK;
        return df_fail(err, DF_ERR_REFUSED, "postmortem.commit",
                       "%s names the commit '%.40s': expected 7 to 40 hexadecimal digits, without which the run has no "
                       "place among the revisions. Leave it out, or order by time.",
                       run->path, name);
    }
    const df_status status = dp_git_commit(story->options.repository, name, scratch, &run->commit, &why);
    if (status == DF_OK) return DF_OK;
    if (status != DF_ERR_REFUSED) {
        *err = why;
        return status;
    }
    return df_fail(err, DF_ERR_REFUSED, "postmortem.commit",
                   "The commit %s of %s is not known in %s: expected the repository that the run was built from, with "
                   "all of its history. Give that with --repo, or fetch what is missing. (%.300s)",
                   name, run->path, story->options.repository, why.message);
}

static df_status find_positions(dp_postmortem *story, const char *scratch, df_error *err) {
    const dp_commit **commit = calloc((size_t)story->run_count + 1, sizeof *commit);
    int *position = calloc((size_t)story->run_count + 1, sizeof *position);
    df_status status =
        commit != NULL && position != NULL ? DF_OK : df_fail_memory(err, "the revisions", sizeof *commit);
    for (int r = 0; status == DF_OK && r < story->run_count; r++) commit[r] = &story->run[r].commit;
    if (status == DF_OK)
        status = dp_git_positions(story->options.repository, commit, story->run_count, scratch, position, err);
    for (int r = 0; status == DF_OK && r < story->run_count; r++) story->run[r].position = position[r];
    free(commit);
    free(position);
    return status;
}

static df_status ask_repository(dp_postmortem *story, df_error *err) {
    char scratch[DP_FOLDER_PATH] = "";
    dp_interruptions_begin();
    df_status status = dp_scratch_make(scratch, err);
    for (int r = 0; status == DF_OK && r < story->run_count; r++)
        status = find_commit(story, &story->run[r], scratch, err);
    if (status == DF_OK && story->options.order == DP_ORDER_REVISION) status = find_positions(story, scratch, err);
    dp_scratch_remove(scratch);
    dp_interruptions_end();
    return status;
}

df_status dp_past_put_in_order(dp_postmortem *story, df_error *err) {
    if (story->options.order != DP_ORDER_GIVEN) TRY(check_times(story, err));
    if (story->options.repository != NULL) TRY(ask_repository(story, err));
    if (story->options.order != DP_ORDER_GIVEN) sort(story);
    return DF_OK;
}

/* ---- Between two runs ----------------------------------------------------------------------------------------------
 */

df_status dp_postmortem_commits(const dp_postmortem *story, int before, int after, dp_past_commits *out,
                                df_error *err) {
    const dp_commit *from = &story->run[before].commit, *to = &story->run[after].commit;
    const char *repository = story->options.repository;
    char scratch[DP_FOLDER_PATH] = "";
    dp_commit *behind = NULL;
    *out = (dp_past_commits){.known = repository != NULL && from->hash[0] != '\0' && to->hash[0] != '\0'};
    if (!out->known) return DF_OK;
    dp_interruptions_begin();
    df_status status = dp_scratch_make(scratch, err);
    if (status == DF_OK) status = dp_git_only_in(repository, to, from, scratch, &out->commit, &out->count, err);
    if (status == DF_OK) status = dp_git_only_in(repository, from, to, scratch, &behind, &out->left_behind, err);
    free(behind);
    dp_scratch_remove(scratch);
    dp_interruptions_end();
    return status;
}

void dp_past_commits_release(dp_past_commits *commits) {
    free(commits->commit);
    *commits = (dp_past_commits){.commit = NULL};
}
