/* bisect_git.c - see bisect_git.h: the search itself. */
#include "bisect/bisect_git.h"

#include "bisect/bisect_step.h"
#include "common/error.h"
#include "bisect/git_history.h"
#include "base/process.h"
#include "base/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Everything a search holds while it runs. */
typedef struct hunt {
    const dp_git_options *options;
    dp_git_result *out;
    dp_search search;
    char good_path[600];
    dflash_error *err;
    dp_progress progress;
} hunt;

/* ---- One step ---- */

static void show(hunt *h, const dp_commit *commit) {
    char what[120];
    const int tried = h->out->steps - 1; /* this one is begun */
    h->progress.total = h->search.state != NULL ? tried + dp_search_steps(&h->search) : 0.0;
    snprintf(what, sizeof what, "%.12s %.50s", commit->hash, commit->subject);
    dp_progress_update(&h->progress, tried, what);
}

/* Compares a step's run with the good one's. */
static dflash_status judge(hunt *h, const dp_step_run *run, dp_git_step *step) {
    if (run->figures) {
        const bool comparable =
            dp_figures_compare(h->good_path, run->path, &h->options->judge, step->stage, step->note);
        step->trial = !comparable ? DP_TRIAL_SKIPPED : step->stage[0] != '\0' ? DP_TRIAL_BAD : DP_TRIAL_GOOD;
        return DFLASH_OK;
    }
    dp_compare_options options = h->options->judge;
    dp_file_comparison c;
    options.files.a = h->good_path;
    options.files.b = run->path;
    dp_compare_files(&options, &c);
    const dp_file_stage *first = dp_first_divergent_file_stage(&c);
    step->trial = c.verdict == DP_PASS ? DP_TRIAL_GOOD : c.verdict == DP_FAIL ? DP_TRIAL_BAD : DP_TRIAL_SKIPPED;
    if (first != NULL) snprintf(step->stage, sizeof step->stage, "%s", first->spec.name);
    if (c.verdict == DP_NOTHING) snprintf(step->note, sizeof step->note, "the filter matches no stage");
    if (c.verdict == DP_REFUSED || c.verdict == DP_ERROR)
        snprintf(step->note, sizeof step->note, "%s: %.340s", c.error.code, c.error.message);
    const dflash_status status = c.verdict == DP_ERROR ? c.error.status : DFLASH_OK;
    if (status != DFLASH_OK) *h->err = c.error;
    dp_file_comparison_release(&c);
    return status;
}

/* Runs the commit; candidate -1 is the good revision, whose run is kept. */
static dflash_status take_step(hunt *h, int candidate, dp_git_step **out) {
    dp_git_result *r = h->out;
    const dp_commit *commit = candidate < 0 ? &r->good : &r->candidate[candidate];
    dp_git_step *step = &r->step[r->steps];
    dp_step_run run;
    char name[32];
    *step = (dp_git_step){.candidate = candidate, .trial = DP_TRIAL_SKIPPED};
    *out = step;
    snprintf(name, sizeof name, "step%d", r->steps++);
    show(h, commit);
    TRY(dp_step_run_revision(h->options, r->scratch, commit, name, r->by_figures, &run, h->err));
    r->builds += run.built;
    snprintf(step->note, sizeof step->note, "%s", run.note);
    if (run.done && run.figures && candidate >= 0 && !r->by_figures) {
        run.done = false; /* the good revision recorded and this one cannot */
        snprintf(step->note, sizeof step->note, "it has no command record, and the good revision has");
    }
    dflash_status status = DFLASH_OK;
    if (run.done && candidate < 0) {
        step->trial = DP_TRIAL_GOOD;
        r->by_figures = run.figures;
        snprintf(h->good_path, sizeof h->good_path, "%s", run.path);
    } else if (run.done) {
        status = judge(h, &run, step);
    }
    r->skipped += step->trial == DP_TRIAL_SKIPPED;
    /* Recordings of large drafters would pile up: of bad runs the last candidate's is wanted, of others none. */
    if (candidate >= 0 && step->trial != DP_TRIAL_BAD) unlink(run.path);
    return status;
}

/* ---- The ends ---- */

static dflash_status end_failed(const hunt *h, const char *which, const dp_commit *commit, const dp_git_step *step) {
    return df_fail(
        h->err, DFLASH_ERR_REFUSED, "bisect.end",
        "The %s revision %.12s gives nothing to compare: %.600s. Both ends must build and run; choose another, "
        "or give --build and --run.",
        which, commit->hash, step->note);
}

static dflash_status try_ends(hunt *h) {
    dp_git_step *step = NULL;
    dp_git_result *r = h->out;
    const dp_commit *bad = &r->candidate[r->candidates - 1];
    TRY(take_step(h, -1, &step));
    if (step->trial != DP_TRIAL_GOOD) return end_failed(h, "good", &r->good, step);
    if (h->options->judge.expect == DP_EXPECT_ENVELOPE && !r->by_figures && h->options->judge.files.limits == NULL)
        return df_fail(h->err, DFLASH_ERR_ARGUMENT, "compare.expect",
                       "There is no oracle whose envelope could be expected. Give --oracle or --case.");
    TRY(take_step(h, r->candidates - 1, &step));
    if (step->trial == DP_TRIAL_SKIPPED) return end_failed(h, "bad", bad, step);
    if (step->trial == DP_TRIAL_BAD) return DFLASH_OK;
    return df_fail(h->err, DFLASH_ERR_REFUSED, "bisect.same",
                   "The run of the bad revision %.12s is what is expected of it beside the good one's, %.12s, at every "
                   "stage compared: there is nothing to search for. Choose other revisions, inputs or --expect.",
                   bad->hash, r->good.hash);
}

/* ---- The whole ---- */

static dflash_status look_up(hunt *h) {
    const dp_git_options *o = h->options;
    dp_git_result *r = h->out;
    dp_commit bad;
    TRY(dp_git_commit(o->repository, o->good, r->scratch, &r->good, h->err));
    TRY(dp_git_commit(o->repository, o->bad, r->scratch, &bad, h->err));
    TRY(dp_git_between(o->repository, &r->good, &bad, r->scratch, &r->candidate, &r->candidates, h->err));
    r->step = calloc((size_t)r->candidates + 1, sizeof *r->step);
    if (r->step == NULL) return df_fail_memory(h->err, "the steps", (size_t)r->candidates * sizeof *r->step);
    return dp_git_clone(o->repository, r->scratch, h->err);
}

static const dp_git_step *step_of(const dp_git_result *r, int candidate, int *index) {
    for (*index = 0; *index < r->steps; ++*index)
        if (r->step[*index].candidate == candidate) return &r->step[*index];
    return NULL;
}

/* What diverges in the first candidate that is known to be bad, and where. */
static dflash_status describe_culprit(hunt *h) {
    dp_git_result *r = h->out;
    int index = 0;
    const dp_git_step *step = step_of(r, r->last, &index);
    snprintf(r->stage, sizeof r->stage, "%s", step->stage);
    if (r->candidate[r->last].parents > 1)
        TRY(dp_git_brought_in(h->options->repository, &r->candidate[r->last], r->scratch, &r->brought_in, h->err));
    if (r->by_figures) return DFLASH_OK;
    snprintf(r->paths[0], sizeof r->paths[0], "%s", h->good_path);
    snprintf(r->paths[1], sizeof r->paths[1], "%s/step%d.run", r->scratch, index);
    r->compared = h->options->judge;
    r->compared.files.a = r->paths[0];
    r->compared.files.b = r->paths[1];
    dp_bisect_files(&r->compared, NULL, h->options->subject.checkpoint, &r->bisection);
    r->found = true;
    return DFLASH_OK;
}

static dflash_status search(hunt *h) {
    dp_git_result *r = h->out;
    TRY(look_up(h));
    TRY(try_ends(h));
    TRY(dp_search_begin(r->candidates, &h->search, h->err));
    for (int next; (next = dp_search_next(&h->search)) >= 0;) {
        dp_git_step *step = NULL;
        TRY(take_step(h, next, &step));
        h->search.state[next] = step->trial;
    }
    dp_search_suspects(&h->search, &r->first, &r->last);
    return describe_culprit(h);
}

dflash_status dp_bisect_git(const dp_git_options *options, dp_git_result *out, dflash_error *err) {
    *out = (dp_git_result){.steps = 0};
    hunt h = {.options = options, .out = out, .err = err};
    dflash_status status = dp_scratch_make(out->scratch, err);
    if (status == DFLASH_OK) {
        dp_interruptions_begin();
        dp_progress_begin(&h.progress, "bisect", "revisions", 0.0);
        status = search(&h);
        dp_progress_end(&h.progress);
        if (status != DFLASH_OK) dp_scratch_remove(out->scratch);
        dp_interruptions_end();
    }
    if (status != DFLASH_OK) out->scratch[0] = '\0';
    dp_search_release(&h.search);
    return status;
}

void dp_git_result_release(dp_git_result *result) {
    dp_bisection_release(&result->bisection);
    dp_scratch_remove(result->scratch);
    free(result->candidate);
    free(result->step);
    *result = (dp_git_result){.steps = 0};
}

/* ---- Words ---- */

static const char *trial_name(dp_trial trial) {
    static const char *const names[] = {"untried", "good", "bad", "skipped"};
    return names[trial];
}

void dp_git_text(FILE *to, const dp_git_result *r) {
    fprintf(to, "%d commits after %.12s, first parents only\n", r->candidates, r->good.hash);
    for (int i = 0; i < r->steps; i++) {
        const dp_git_step *s = &r->step[i];
        const dp_commit *c = s->candidate < 0 ? &r->good : &r->candidate[s->candidate];
        fprintf(to, "  %-7s %.12s %.60s%s%s\n", trial_name(s->trial), c->hash, c->subject,
                s->stage[0] != '\0'  ? ": "
                : s->note[0] != '\0' ? ": "
                                     : "",
                s->stage[0] != '\0' ? s->stage : s->note);
    }
    if (r->first == r->last) {
        const dp_commit *c = &r->candidate[r->last];
        fprintf(to, "first divergent commit: %.12s %s\n  author date %s\n", c->hash, c->subject, c->date);
    } else {
        fprintf(to, "the first divergent commit is one of %d, since those between could not be tried:\n",
                r->last - r->first + 1);
        for (int i = r->first; i <= r->last; i++)
            fprintf(to, "  %.12s %s\n    author date %s\n", r->candidate[i].hash, r->candidate[i].subject,
                    r->candidate[i].date);
    }
    if (r->brought_in > 0)
        fprintf(to, "  a merge that brought in %d commits; bisect its branch with --bad %.12s^2\n", r->brought_in,
                r->candidate[r->last].hash);
    if (r->found)
        dp_bisection_text(to, &r->bisection);
    else
        fprintf(to, "first divergent stage: %s, by the figures of the checks (the good revision cannot record)\n",
                r->stage);
    fprintf(to, "%d revisions built, %d skipped\n", r->builds, r->skipped);
}

static cJSON *commit_json(const dp_commit *commit) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "hash", commit->hash);
    cJSON_AddStringToObject(object, "subject", commit->subject);
    cJSON_AddStringToObject(object, "author_date", commit->date);
    return object;
}

void dp_git_json(cJSON *object, const dp_git_result *r) {
    cJSON *git = cJSON_AddObjectToObject(object, "git");
    cJSON_AddItemToObject(git, "good", commit_json(&r->good));
    cJSON_AddNumberToObject(git, "commits", r->candidates);
    cJSON_AddNumberToObject(git, "builds", r->builds);
    cJSON_AddNumberToObject(git, "skipped", r->skipped);
    cJSON_AddBoolToObject(git, "by_figures", r->by_figures);
    cJSON *suspects = cJSON_AddArrayToObject(git, "first_divergent_commit");
    for (int i = r->first; i <= r->last; i++) cJSON_AddItemToArray(suspects, commit_json(&r->candidate[i]));
    cJSON_AddStringToObject(git, "stage", r->stage);
    if (r->brought_in > 0) cJSON_AddNumberToObject(git, "merge_brought_in", r->brought_in);
    cJSON *steps = cJSON_AddArrayToObject(git, "steps");
    for (int i = 0; i < r->steps; i++) {
        const dp_git_step *s = &r->step[i];
        cJSON *step = commit_json(s->candidate < 0 ? &r->good : &r->candidate[s->candidate]);
        cJSON_AddStringToObject(step, "trial", trial_name(s->trial));
        if (s->stage[0] != '\0') cJSON_AddStringToObject(step, "stage", s->stage);
        if (s->note[0] != '\0') cJSON_AddStringToObject(step, "note", s->note);
        cJSON_AddItemToArray(steps, step);
    }
    if (r->found) dp_bisection_json(object, &r->bisection);
}
