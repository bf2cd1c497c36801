/*
 * selector.c - see selector.h.
 *
 * Only the top-k and the hidden projection are large; the walk reads k + 1 codebook rows a slot and is sequential, so
 * it runs on the host.
 */
#include "selector.h"

#include "canon.h"
#include "error.h"
#include "gather.h"
#include "observe.h"
#include "slot.h"
#include "table.h"
#include "topk.h"

#include <math.h>
#include <stdlib.h>

/* One call in progress. Host memory, one allocation each for floats and integers. */
typedef struct selection {
    df_draft *draft;
    const int32_t *ids; /* of the logits' columns, or NULL */
    df_error *err;
    int n, k, rank, vocab;
    float *floats;
    float *value, *score, *hidden;            /* [n, k], [n, k], [n, r] */
    float *predecessor, *successor, *scratch; /* [r], [r], [k] */
    int32_t *integers;
    int32_t *candidate, *path; /* [n, k] target ids, [n] */
} selection;

/* Ids below this may be proposed, and may come before. */
static int id_bound(const df_config *config) {
    return config->selector_vocab != 0 ? config->selector_vocab : config->vocab;
}

static df_status check_call(const selection *s, int32_t anchor) {
    const int bound = id_bound(&s->draft->config);
    if (s->k > s->vocab)
        return df_fail(
            s->err, DF_ERR_REFUSED, "selector.top_k",
            "The selector chooses among %d candidates a slot, but the logits have %d columns. Pass the logits of "
            "the head that the drafter was trained with.",
            s->k, s->vocab);
    if (anchor >= 0 && anchor < bound) return DF_OK;
    return df_fail(
        s->err, DF_ERR_REFUSED, "selector.anchor",
        "The anchor is token %d, outside the selector's vocabulary of %d: it has no predecessor embedding. Pass "
        "the id of the last accepted token.",
        anchor, bound);
}

static df_status take_memory(selection *s) {
    const size_t slots = (size_t)s->n * (size_t)s->k, rank = (size_t)s->rank;
    const size_t floats = 2 * slots + ((size_t)s->n + 2) * rank + (size_t)s->k, integers = slots + (size_t)s->n;
    s->floats = malloc(floats * sizeof *s->floats);
    s->integers = malloc(integers * sizeof *s->integers);
    if (s->floats == NULL || s->integers == NULL)
        return df_fail_memory(s->err, "the selector's candidates", (floats + integers) * sizeof(float));
    s->value = s->floats;
    s->score = s->value + slots;
    s->hidden = s->score + slots;
    s->predecessor = s->hidden + (size_t)s->n * rank;
    s->successor = s->predecessor + rank;
    s->scratch = s->successor + rank;
    s->candidate = s->integers;
    s->path = s->candidate + slots;
    return DF_OK;
}

/* ---- Candidates
 * -------------------------------------------------------------------------------------------------------- */

/* A slot's top-k is independent of the others: what went wrong is kept by slot, so that the first is reported whatever
 * the threads did. */
typedef struct topk_job {
    const selection *s;
    const float *logits;
    int *found;      /* [n] */
    df_error *error; /* [n] */
} topk_job;

static void topk_task(void *context, int slot, int worker) {
    (void)worker;
    const topk_job *job = context;
    const selection *s = job->s;
    const size_t at = (size_t)slot * (size_t)s->k;
    job->error[slot].status = DF_OK;
    df_topk(job->logits + (size_t)slot * (size_t)s->vocab, s->vocab, s->k, "the logits", slot, s->value + at,
            s->candidate + at, &job->found[slot], &job->error[slot]);
}

static df_status check_topk(const topk_job *job) {
    const selection *s = job->s;
    for (int slot = 0; slot < s->n; slot++) {
        if (job->error[slot].status != DF_OK) {
            if (s->err != NULL) *s->err = job->error[slot];
            return job->error[slot].status;
        }
        if (job->found[slot] < s->k)
            return df_fail(
                s->err, DF_ERR_REFUSED, "selector.unfillable",
                "Slot %d: only %d of its %d logits are finite, too few for %d candidates. A slot is never filled "
                "with a masked token; find out what masked the others.",
                slot, job->found[slot], s->vocab, s->k);
    }
    return DF_OK;
}

static df_status find_candidates(const selection *s, const float *logits) {
    topk_job job = {.s = s, .logits = logits};
    job.found = malloc((size_t)s->n * sizeof *job.found);
    job.error = malloc((size_t)s->n * sizeof *job.error);
    df_status status = DF_OK;
    if (job.found == NULL || job.error == NULL) {
        status = df_fail_memory(s->err, "the top-k of each slot", (size_t)s->n * sizeof *job.error);
    } else {
        df_pool_run(s->draft->engine->pool, topk_task, &job, s->n);
        status = check_topk(&job);
    }
    free(job.found);
    free(job.error);
    return status;
}

/* Columns of the logits become target ids, each of which must have a row in the codebooks. */
static df_status name_candidates(const selection *s) {
    const int bound = id_bound(&s->draft->config);
    for (int i = 0; i < s->n * s->k; i++) {
        if (s->ids != NULL) s->candidate[i] = s->ids[s->candidate[i]];
        if (s->candidate[i] < bound) continue;
        return df_fail(
            s->err, DF_ERR_REFUSED, "selector.candidate",
            "Slot %d: candidate %d is token %d, outside the selector's vocabulary of %d: it has no codebook row "
            "that was trained. The logits are of another head, or its padding rows were not masked.",
            i / s->k, i % s->k, s->candidate[i], bound);
    }
    return DF_OK;
}

/* ---- The walk
 * ----------------------------------------------------------------------------------------------------------- */

static float canonical_dot(const float *a, const float *b, int n) {
    df_sum sum;
    df_tree_reset(&sum.tree);
    for (int first = 0; first < n; first += DF_SEGMENT) {
        const int end = n - first < DF_SEGMENT ? n : first + DF_SEGMENT;
        float segment = 0.0f;
        for (int j = first; j < end; j++) segment = fmaf(a[j], b[j], segment);
        df_sum_push(&sum, (unsigned)(first / DF_SEGMENT), segment);
    }
    return df_sum_total(&sum);
}

/* The scores of one slot's candidates after `prev`. */
static void score_slot(const selection *s, int slot, int32_t prev) {
    const df_weights *w = &s->draft->weights;
    const float *hidden = s->hidden + (size_t)slot * (size_t)s->rank;
    df_gather_row(&w->predecessor, prev, s->predecessor);
    for (int j = 0; j < s->rank; j++) s->predecessor[j] *= hidden[j];
    for (size_t i = (size_t)slot * (size_t)s->k, end = i + (size_t)s->k; i < end; i++) {
        df_gather_row(&w->successor, s->candidate[i], s->successor);
        s->score[i] = s->value[i] + canonical_dot(s->predecessor, s->successor, s->rank);
    }
}

static df_status walk(const selection *s, int32_t anchor, const df_proposal_options *options, const df_proposal *out) {
    int32_t prev = anchor;
    for (int slot = 0; slot < s->n; slot++) {
        const size_t at = (size_t)slot * (size_t)s->k;
        score_slot(s, slot, prev);
        TRY(df_slot_choose(s->score + at, s->k, s->candidate + at, "the selector's scores", slot, options, s->scratch,
                           out, &prev, s->err));
        s->path[slot] = prev;
    }
    return DF_OK;
}

static df_status project_rows(const selection *s, const float *rows) {
    df_engine *engine = s->draft->engine;
    const size_t n = (size_t)s->n * (size_t)s->rank;
    float *hidden = df_arena_floats(&engine->arena, n, s->err);
    if (hidden == NULL) return DF_ERR_MEMORY;
    TRY(engine->ops->matmul(engine, &s->draft->weights.selector_projection, NULL, rows, s->n, hidden, s->err));
    return df_engine_download(engine, s->hidden, hidden, n, s->err);
}

static df_status run(selection *s, const float *logits, const float *rows, int32_t anchor,
                     const df_proposal_options *options, const df_proposal *out) {
    TRY(check_call(s, anchor));
    TRY(take_memory(s));
    TRY(find_candidates(s, logits));
    TRY(name_candidates(s));
    TRY(project_rows(s, rows));
    TRY(walk(s, anchor, options, out));
    df_observe_rows(s->draft, DF_STAGE_SELECT_TOPK_VALUES, s->n, s->k, s->value, NULL);
    df_observe_rows(s->draft, DF_STAGE_SELECT_TOPK_IDS, s->n, s->k, NULL, s->candidate);
    df_observe_rows(s->draft, DF_STAGE_SELECT_HIDDEN, s->n, s->rank, s->hidden, NULL);
    df_observe_rows(s->draft, DF_STAGE_SELECT_SCORES, s->n, s->k, s->score, NULL);
    df_observe_rows(s->draft, DF_STAGE_SELECT_PATH, s->n, 0, NULL, s->path);
    return DF_OK;
}

df_status df_selector_propose(df_draft *draft, const df_table *table, const float *logits, const float *rows, int n,
                              int vocab, int32_t anchor, const df_proposal_options *options, const df_proposal *out,
                              df_error *err) {
    selection s = {.draft = draft,
                   .ids = df_table_ids(table),
                   .err = err,
                   .n = n,
                   .k = draft->config.selector_top_k,
                   .rank = draft->config.selector_rank,
                   .vocab = vocab};
    const df_status status = run(&s, logits, rows, anchor, options, out);
    free(s.floats);
    free(s.integers);
    return status;
}
