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

/* ---- Time ---- */

static dflash_status check_times(const dp_postmortem *summary, dflash_error *err) {
    for (int r = 0; r < summary->run_count; r++)
        if (!dp_is_moment(summary->run[r].when))
            return df_fail(err, DFLASH_ERR_REFUSED, "postmortem.when",
                           "%s says that it began at '%.40s': expected a time in UTC such as 2026-01-31T12:00:00Z, "
                           "without which it cannot be put in order. Give the files in order with --order given.",
                           summary->run[r].path, summary->run[r].when);
    return DFLASH_OK;
}

static bool later(const dp_past_run *a, const dp_past_run *b) {
    return a->position != b->position ? a->position > b->position : strcmp(a->when, b->when) > 0;
}

/* Insertion keeps equal runs in the order given. */
static void sort(dp_postmortem *summary) {
    for (int i = 1; i < summary->run_count; i++) {
        const dp_past_run run = summary->run[i];
        int at = i;
        for (; at > 0 && later(&summary->run[at - 1], &run); at--) summary->run[at] = summary->run[at - 1];
        summary->run[at] = run;
    }
}

/* ---- Revisions ---- */

/* A name that only a commit can have: a file must not choose a branch or a tag. */
static bool is_hash(const char *text) {
    enum { SHORTEST = 7, LONGEST = 40 };
    const size_t length = strlen(text);
    return length >= SHORTEST && length <= LONGEST && strspn(text, "0123456789abcdef") == length;
}

static dflash_status find_commit(const dp_postmortem *summary, dp_past_run *run, const char *scratch,
                                 dflash_error *err) {
    const char *name = dp_past_commit(run);
    dflash_error why;
    if (!is_hash(name)) {
        if (summary->options.order != DP_ORDER_REVISION) return DFLASH_OK;
        return df_fail(err, DFLASH_ERR_REFUSED, "postmortem.commit",
                       "%s names the commit '%.40s': expected 7 to 40 hexadecimal digits, without which the run has no "
                       "place among the revisions. Leave it out, or order by time.",
                       run->path, name);
    }
    const dflash_status status = dp_git_commit(summary->options.repository, name, scratch, &run->commit, &why);
    if (status == DFLASH_OK) return DFLASH_OK;
    if (status != DFLASH_ERR_REFUSED) {
        *err = why;
        return status;
    }
    return df_fail(err, DFLASH_ERR_REFUSED, "postmortem.commit",
                   "The commit %s of %s is not known in %s: expected the repository that the run was built from, with "
                   "all of its history. Give that with --repo, or fetch what is missing. (%.300s)",
                   name, run->path, summary->options.repository, why.message);
}

static dflash_status find_positions(dp_postmortem *summary, const char *scratch, dflash_error *err) {
    const dp_commit **commit = calloc((size_t)summary->run_count + 1, sizeof *commit);
    int *position = calloc((size_t)summary->run_count + 1, sizeof *position);
    dflash_status status =
        commit != NULL && position != NULL ? DFLASH_OK : df_fail_memory(err, "the revisions", sizeof *commit);
    for (int r = 0; status == DFLASH_OK && r < summary->run_count; r++) commit[r] = &summary->run[r].commit;
    if (status == DFLASH_OK)
        status = dp_git_positions(summary->options.repository, commit, summary->run_count, scratch, position, err);
    for (int r = 0; status == DFLASH_OK && r < summary->run_count; r++) summary->run[r].position = position[r];
    free(commit);
    free(position);
    return status;
}

static dflash_status ask_repository(dp_postmortem *summary, dflash_error *err) {
    char scratch[DP_FOLDER_PATH] = "";
    dp_interruptions_begin();
    dflash_status status = dp_scratch_make(scratch, err);
    for (int r = 0; status == DFLASH_OK && r < summary->run_count; r++)
        status = find_commit(summary, &summary->run[r], scratch, err);
    if (status == DFLASH_OK && summary->options.order == DP_ORDER_REVISION)
        status = find_positions(summary, scratch, err);
    dp_scratch_remove(scratch);
    dp_interruptions_end();
    return status;
}

dflash_status dp_past_put_in_order(dp_postmortem *summary, dflash_error *err) {
    if (summary->options.order != DP_ORDER_GIVEN) TRY(check_times(summary, err));
    if (summary->options.repository != NULL) TRY(ask_repository(summary, err));
    if (summary->options.order != DP_ORDER_GIVEN) sort(summary);
    return DFLASH_OK;
}

/* ---- Between two runs ---- */

dflash_status dp_postmortem_commits(const dp_postmortem *summary, int before, int after, dp_past_commits *out,
                                    dflash_error *err) {
    const dp_commit *from = &summary->run[before].commit, *to = &summary->run[after].commit;
    const char *repository = summary->options.repository;
    char scratch[DP_FOLDER_PATH] = "";
    dp_commit *behind = NULL;
    *out = (dp_past_commits){.known = repository != NULL && from->hash[0] != '\0' && to->hash[0] != '\0'};
    if (!out->known) return DFLASH_OK;
    dp_interruptions_begin();
    dflash_status status = dp_scratch_make(scratch, err);
    if (status == DFLASH_OK) status = dp_git_only_in(repository, to, from, scratch, &out->commit, &out->count, err);
    if (status == DFLASH_OK) status = dp_git_only_in(repository, from, to, scratch, &behind, &out->left_behind, err);
    free(behind);
    dp_scratch_remove(scratch);
    dp_interruptions_end();
    return status;
}

void dp_past_commits_release(dp_past_commits *commits) {
    free(commits->commit);
    *commits = (dp_past_commits){.commit = NULL};
}
