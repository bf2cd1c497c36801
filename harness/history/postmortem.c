/* postmortem.c - see postmortem.h; reading the runs, collecting their cases, and the outcome of each. */
#include "history/postmortem.h"

#include "check/divergence.h"
#include "common/error.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- Reading ---- */

static dflash_status read_run(dp_past_run *run, dflash_error *err) {
    if (dp_file_is_hdf5(run->path)) return dp_past_open_recording(run, err);
    TRY(dp_result_read(run->path, &run->file, err));
    run->environment = run->file.environment;
    snprintf(run->when, sizeof run->when, "%s", run->file.when);
    return DFLASH_OK;
}

/* Two results of one content are copies, since no two runs take the same times. Recordings of one content may well be
 * two runs. */
static dflash_status check_distinct(const dp_past_run *a, const dp_past_run *b, dflash_error *err) {
    struct stat x, y;
    char digest[2][DP_DIGEST_TEXT];
    if (stat(a->path, &x) != 0 || stat(b->path, &y) != 0) return DFLASH_OK; /* reading them says so */
    const bool same = x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    bool copy = !same && !a->is_recording && !b->is_recording && x.st_size == y.st_size;
    if (copy) {
        dp_file_digest(a->path, digest[0]);
        dp_file_digest(b->path, digest[1]);
        copy = strcmp(digest[0], digest[1]) == 0;
    }
    if (!same && !copy) return DFLASH_OK;
    return df_fail(err, DFLASH_ERR_REFUSED, "postmortem.twice",
                   "%s and %s are %s: expected every run once, for one that is counted twice would pass for two. Leave "
                   "one of them out.",
                   a->path, b->path, same ? "the same file" : "copies of one file");
}

static dflash_status read_runs(dp_postmortem *summary, dflash_error *err) {
    for (int i = 0; i < summary->options.count; i++) {
        dp_past_run *run = &summary->run[i];
        *run = (dp_past_run){.path = summary->options.paths[i], .position = -1};
        summary->run_count++;
        TRY(read_run(run, err));
        for (int j = 0; j < i; j++) TRY(check_distinct(&summary->run[j], run, err));
    }
    return DFLASH_OK;
}

/* ---- Cases ---- */

static dp_past_case *find(dp_postmortem *summary, const char *name) {
    for (int i = 0; i < summary->item_count; i++)
        if (strcmp(summary->item[i].name, name) == 0) return &summary->item[i];
    return NULL;
}

static dflash_status collect(dp_postmortem *summary, dflash_error *err) {
    for (int r = 0; r < summary->run_count; r++) {
        const dp_result_file *file = &summary->run[r].file;
        for (int i = 0; i < file->count; i++) {
            dp_past_case *past = find(summary, file->item[i].name);
            if (past == NULL) {
                dp_past_case *grown = realloc(summary->item, (size_t)(summary->item_count + 1) * sizeof *grown);
                if (grown == NULL) return df_fail_memory(err, "the list of cases", sizeof *grown);
                summary->item = grown;
                past = &summary->item[summary->item_count];
                *past = (dp_past_case){.name = file->item[i].name};
                past->in_run = calloc((size_t)summary->run_count, sizeof *past->in_run);
                if (past->in_run == NULL) return df_fail_memory(err, "a case's runs", sizeof *past->in_run);
                summary->item_count++;
            }
            past->in_run[r] = &file->item[i];
        }
    }
    if (summary->item_count > 0) return DFLASH_OK;
    return df_fail(err, DFLASH_ERR_REFUSED, "postmortem.empty",
                   "The %d result files hold no case, so there is no story to tell. Give results of runs that compared "
                   "something.",
                   summary->run_count);
}

/* Whether another run has a case of this one. */
static bool shares(const dp_postmortem *summary, int run) {
    for (int i = 0; i < summary->item_count; i++)
        for (int r = 0; summary->item[i].in_run[run] != NULL && r < summary->run_count; r++)
            if (r != run && summary->item[i].in_run[r] != NULL) return true;
    return false;
}

/* A run that has nothing in common with the others is of another series, given by mistake. */
static dflash_status check_series(const dp_postmortem *summary, dflash_error *err) {
    for (int r = 0; summary->run_count > 1 && r < summary->run_count; r++) {
        const dp_result_file *file = &summary->run[r].file;
        if (file->count == 0 || shares(summary, r)) continue;
        return df_fail(err, DFLASH_ERR_REFUSED, "postmortem.case",
                       "%s has %d case%s, the first %.60s, and none of them is in another of the %d files: expected "
                       "runs of the same cases. Give results that share a case.",
                       summary->run[r].path, file->count, file->count == 1 ? "" : "s", file->item[0].name,
                       summary->run_count);
    }
    return DFLASH_OK;
}

/* ---- The outcome ---- */

static bool passes(const dp_result_case *item) { return item->result.verdict == DP_PASS; }

static bool has_variant(const dp_result *result, const char *name) {
    for (int i = 0; i < result->variant_count; i++)
        if (strcmp(result->variant[i].name, name) == 0) return true;
    return false;
}

/* Whether a run that passes compared what the other failed by: the stage, alone where it failed alone only, or else the
 * rounds. */
static bool compared(const dp_result *good, const dp_result *bad) {
    dp_divergence_by by;
    const dp_stage_result *first = dp_first_divergence(bad, &by);
    if (first != NULL) {
        const dp_stage_result *stage = dp_stage_named(good, first->name);
        return stage != NULL && (!first->pass || stage->isolated.judged);
    }
    for (int i = 0; i < bad->variant_count; i++)
        if (!bad->variant[i].identical && !has_variant(good, bad->variant[i].name)) return false;
    return true;
}

static void judge(const dp_postmortem *summary, dp_past_case *item) {
    const dp_result_case *const *run = item->in_run;
    item->last_good = item->first_bad = item->last_bad = item->good_again = item->first_before = -1;
    for (int r = 0; r < summary->run_count; r++)
        if (run[r] != NULL && !passes(run[r])) item->last_bad = r;
    for (int r = 0; r < summary->run_count; r++) {
        if (run[r] == NULL || !passes(run[r])) continue;
        if (item->last_bad >= 0 && !compared(&run[r]->result, &run[item->last_bad]->result)) continue;
        if (item->last_bad < 0 || r < item->last_bad)
            item->last_good = r;
        else if (item->good_again < 0)
            item->good_again = r;
    }
    for (int r = 0; r < summary->run_count && item->last_bad >= 0; r++) {
        if (run[r] == NULL || passes(run[r])) continue;
        if (r > item->last_good && item->first_bad < 0) item->first_bad = r;
        if (r < item->last_good && item->bad_before++ == 0) item->first_before = r;
    }
}

static void bad_first(dp_postmortem *summary) {
    for (int i = 1; i < summary->item_count; i++) {
        const dp_past_case item = summary->item[i];
        int at = i;
        for (; at > 0 && item.last_bad >= 0 && summary->item[at - 1].last_bad < 0; at--)
            summary->item[at] = summary->item[at - 1];
        summary->item[at] = item;
    }
}

int dp_postmortem_bad_cases(const dp_postmortem *summary) {
    int bad = 0;
    while (bad < summary->item_count && summary->item[bad].last_bad >= 0) bad++;
    return bad;
}

/* ---- The whole ---- */

dflash_status dp_postmortem_read(const dp_postmortem_options *options, dp_postmortem *out, dflash_error *err) {
    *out = (dp_postmortem){.options = *options};
    out->run = calloc((size_t)options->count + 1, sizeof *out->run);
    if (out->run == NULL) return df_fail_memory(err, "the list of runs", (size_t)options->count * sizeof *out->run);
    dflash_status status = read_runs(out, err);
    if (status == DFLASH_OK) status = dp_past_put_in_order(out, err);
    if (status == DFLASH_OK) status = dp_past_judge_recordings(out, err);
    if (status == DFLASH_OK) status = collect(out, err);
    if (status == DFLASH_OK) status = check_series(out, err);
    for (int i = 0; status == DFLASH_OK && i < out->item_count; i++) judge(out, &out->item[i]);
    if (status == DFLASH_OK) bad_first(out);
    if (status != DFLASH_OK) dp_postmortem_release(out);
    return status;
}

void dp_postmortem_release(dp_postmortem *summary) {
    for (int i = 0; i < summary->run_count; i++) {
        dp_result_file_release(&summary->run[i].file);
        dp_past_recording_release(&summary->run[i].recording);
    }
    for (int i = 0; i < summary->item_count; i++) free(summary->item[i].in_run);
    free(summary->run);
    free(summary->item);
    free(summary->series);
    *summary = (dp_postmortem){.run = NULL};
}
