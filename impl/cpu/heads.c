/*
 * heads.c - the operations from rows to tokens: gathers, top-k, choices, the selector's scores, the Markov head's
 * steps.
 *
 * Compiled once: what they read is small beside the products, and the top-k, which is not, is bound by memory. They
 * refuse a bad row at once; only a top-k that comes short is left to its choice.
 */
#include "cpu/cpu_ops.h"

#include "common/canon.h"
#include "common/error.h"
#include "heads/gather.h"
#include "common/mathfn.h"
#include "heads/slot.h"
#include "heads/topk.h"

#include <stdlib.h>

dflash_status df_cpu_gather(dflash_engine *engine, const df_matrix *table, const int32_t *ids, int n, float scale,
                            float *out, size_t stride, dflash_error *err) {
    (void)engine;
    (void)err;
    for (int i = 0; i < n; i++, out += stride) {
        df_gather_row(table, ids[i], out);
        for (int64_t j = 0; j < table->in; j++) out[j] *= scale;
    }
    return DFLASH_OK;
}

/* A slot's top-k is independent of the others: what went wrong is kept by slot, so that the first is reported whatever
 * the threads did. */
typedef struct topk_job {
    const df_topk_args *args;
    dflash_error *error; /* [n] */
} topk_job;

static void topk_task(void *context, int slot, int worker) {
    (void)worker;
    const topk_job *job = context;
    const df_topk_args *a = job->args;
    const size_t at = (size_t)slot * (size_t)a->k;
    int found = 0;
    a->choice[slot] = (df_choice){.fault = DF_FAULT_NONE};
    job->error[slot].status = DFLASH_OK;
    df_topk(a->rows + (size_t)slot * (size_t)a->width, a->width, a->k, a->what, slot, a->value + at, a->id + at, &found,
            &job->error[slot]);
    if (found < a->k) a->choice[slot] = (df_choice){.fault = DF_FAULT_FEW, .at = found};
    for (int i = 0; i < found && a->ids != NULL; i++) a->id[at + (size_t)i] = a->ids[a->id[at + (size_t)i]];
}

/* The first slot that failed decides, and one that came short says so in its choice: what that means is the caller's.
 */
dflash_status df_cpu_topk(dflash_engine *engine, const df_topk_args *args, dflash_error *err) {
    topk_job job = {.args = args, .error = malloc((size_t)args->n * sizeof *job.error)};
    if (job.error == NULL) return df_fail_memory(err, "the top-k of each slot", (size_t)args->n * sizeof *job.error);
    df_pool_run(engine->pool, topk_task, &job, args->n);
    int slot = 0; /* the first at fault */
    while (slot < args->n && job.error[slot].status == DFLASH_OK && args->choice[slot].fault == DF_FAULT_NONE) slot++;
    const dflash_status status = slot < args->n ? job.error[slot].status : DFLASH_OK;
    if (status != DFLASH_OK && err != NULL) *err = job.error[slot];
    free(job.error);
    return status;
}

dflash_status df_cpu_choose(dflash_engine *engine, const df_choose_args *args, dflash_error *err) {
    (void)engine;
    for (int i = 0; i < args->n; i++) TRY(df_slot_choose(args, i, err));
    return DFLASH_OK;
}

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

dflash_status df_cpu_score(dflash_engine *engine, const df_score_args *args, dflash_error *err) {
    const df_arena_mark mark = df_arena_get_mark(&engine->arena);
    float *before = df_arena_floats(&engine->arena, 2 * (size_t)args->rank, err);
    if (before == NULL) return DFLASH_ERR_MEMORY;
    float *after = before + args->rank;
    df_gather_row(args->predecessor, *args->prev, before);
    for (int j = 0; j < args->rank; j++) before[j] *= args->hidden[j];
    for (int i = 0; i < args->k; i++) {
        df_gather_row(args->successor, args->candidate[i], after);
        args->score[i] = args->value[i] + canonical_dot(before, after, args->rank);
    }
    df_arena_rewind(&engine->arena, mark);
    return DFLASH_OK;
}

dflash_status df_cpu_markov_gate(dflash_engine *engine, const float *gate, int rank, float *embedding,
                                 dflash_error *err) {
    (void)engine;
    (void)err;
    for (int j = 0; j < rank; j++) embedding[j] = df_sigmoid(gate[j]) * embedding[j];
    return DFLASH_OK;
}

dflash_status df_cpu_markov_cell(dflash_engine *engine, const float *joint, int rank, float *state, float *embedding,
                                 dflash_error *err) {
    (void)engine;
    (void)err;
    const float *keep = joint, *candidate = keep + rank, *output = candidate + rank;
    for (int j = 0; j < rank; j++) {
        const float s = df_sigmoid(keep[j]), fresh = (1.0f - s) * df_tanh(candidate[j]);
        state[j] = fmaf(s, state[j], fresh);
        embedding[j] = df_tanh(output[j]);
    }
    return DFLASH_OK;
}
