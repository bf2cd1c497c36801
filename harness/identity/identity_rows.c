/* identity_rows.c - variants about the rows that share a call: in another order, and beside rows full of NaN. */
#include "common/error.h"
#include "run/hosted.h"
#include "identity/identity_variants.h"
#include "base/random.h"

#include <stdlib.h>
#include <string.h>

/* to[i] = from[order[i]], rows of n values. */
static void gather_rows(const float *from, const int *order, int rows, size_t n, float *to) {
    for (int i = 0; i < rows; i++) memcpy(to + (size_t)i * n, from + (size_t)order[i] * n, n * sizeof *to);
}

/* to[order[i]] = from[i]: undoes gather_rows. */
static void scatter_rows(const float *from, const int *order, int rows, size_t n, float *to) {
    for (int i = 0; i < rows; i++) memcpy(to + (size_t)order[i] * n, from + (size_t)i * n, n * sizeof *to);
}

static int *random_order(uint64_t random, int rows) {
    int *order = malloc(((size_t)rows + 1) * sizeof *order);
    for (int i = 0; order != NULL && i < rows; i++) {
        const int j = dp_random_below(&random, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    return order;
}

/* The first `rows` rows of a stage of a run over permuted rows, put back in order, against the reference's. */
static dflash_status compare_back(const dp_reference *r, const dp_recorded *run, const int *order, int rows,
                                  dp_pair *pair, dflash_error *err) {
    const dp_recorded *own = dp_recording_find(&r->block, run->stage, run->layer);
    if (own == NULL || own->rank != run->rank || run->dim[0] < rows ||
        !dp_dims_equal(own->rank, own->dim, run->rank, run->dim))
        return dp_pair_lacking(run->stage, run->layer, pair, err);
    const size_t n = (size_t)dp_dims_product(run->rank - 1, run->dim + 1);
    float *back = malloc(((size_t)rows * n + 1) * sizeof *back);
    if (back == NULL) return df_fail_memory(err, "rows in order", (size_t)rows * n * sizeof *back);
    int64_t dim[4];
    memcpy(dim, own->dim, sizeof dim);
    dim[0] = rows;
    scatter_rows(run->value, order, rows, n, back);
    const dflash_status status =
        dp_pair_floats(run->stage, run->layer, run->rank, dim, own->value, back, &r->subject->in, pair, err);
    free(back);
    return status;
}

/* Stages whose context rows follow from the row's features alone. */
static bool of_one_row(dflash_stage stage) {
    return stage == DFLASH_STAGE_CTX_FC || stage == DFLASH_STAGE_CTX_FEATURES || stage == DFLASH_STAGE_ATTN_K_PROJ ||
           stage == DFLASH_STAGE_ATTN_V || stage == DFLASH_STAGE_ATTN_K_NORM;
}

static dflash_status run_logits(const dp_reference *r, const float *rows, int n, float *logits, dflash_error *err) {
    return dp_logits(r->rig.draft, r->rig.head, rows, n, logits, err);
}

/* The harvested rows of the reference's `final`. */
static const float *harvested(const dp_reference *r, int *n) {
    const dp_recorded *final = dp_recording_find(&r->block, DFLASH_STAGE_FINAL, -1);
    int first = 0;
    dflash_harvest_rows(&r->subject->in.config, &first, n);
    return final != NULL ? final->value + (size_t)first * (size_t)r->subject->in.config.hidden : NULL;
}

static dflash_status permute_logits(const dp_reference *r, dp_pair *pair, dflash_error *err) {
    const size_t hidden = (size_t)r->subject->in.config.hidden;
    int n = 0;
    const float *rows = harvested(r, &n);
    if (r->rig.head == NULL) return DFLASH_OK;
    if (rows == NULL) return dp_pair_lacking(DFLASH_STAGE_LOGITS, -1, pair, err);
    const int vocab = dflash_table_vocab(r->rig.head);
    int *order = random_order(r->subject->seed + 1, n);
    float *mixed = malloc((size_t)n * hidden * sizeof *mixed),
          *logits = malloc((size_t)n * (size_t)vocab * sizeof *logits);
    dflash_status status =
        order != NULL && mixed != NULL && logits != NULL ? DFLASH_OK : df_fail_memory(err, "permuted rows", 0);
    if (status == DFLASH_OK) {
        gather_rows(rows, order, n, hidden, mixed);
        status = run_logits(r, mixed, n, logits, err);
    }
    const dp_recorded run = {.stage = DFLASH_STAGE_LOGITS, .layer = -1, .rank = 2, .dim = {n, vocab}, .value = logits};
    if (status == DFLASH_OK) status = compare_back(r, &run, order, n, pair, err);
    free(order);
    free(mixed);
    free(logits);
    return status;
}

/* ctx_features and forward_block over the context's rows in another order. Positions stay where they are, so of the
 * keys only the steps before the rotation can be compared, and nothing of the block. */
dflash_status dp_variant_rows_permuted(const dp_reference *r, int argument, dp_pair *pair, dflash_error *err) {
    const dp_preflight *in = &r->subject->in;
    const dflash_config *c = &in->config;
    const size_t hidden = (size_t)c->hidden, tap = (size_t)c->n_taps * hidden, rows = (size_t)in->context;
    dp_recording run = {.stage = NULL};
    int *order = random_order(r->subject->seed, in->context);
    float *taps = malloc((rows * tap + 1) * sizeof *taps), *features = malloc((rows * hidden + 1) * sizeof *features),
          *out = malloc((size_t)c->block * hidden * sizeof *out);
    (void)argument;
    dflash_status status = order != NULL && taps != NULL && features != NULL && out != NULL
                               ? DFLASH_OK
                               : df_fail_memory(err, "permuted rows", rows * (tap + hidden) * sizeof *taps);
    if (status == DFLASH_OK) {
        gather_rows(in->taps, order, in->context, tap, taps);
        dflash_draft_observe(r->rig.draft, dp_recording_observe, &run);
        status = dp_ctx_features(r->rig.draft, taps, in->context, features, err);
        if (status == DFLASH_OK)
            status = dp_forward_block(r->rig.draft, features, in->noise, in->pos, in->context, out, err);
        dflash_draft_observe(r->rig.draft, NULL, NULL);
    }
    if (status == DFLASH_OK) status = dp_recording_status(&run, err);
    for (int i = 0; status == DFLASH_OK && i < run.count; i++)
        if (of_one_row(run.stage[i].stage)) status = compare_back(r, &run.stage[i], order, in->context, pair, err);
    if (status == DFLASH_OK) status = permute_logits(r, pair, err);
    dp_recording_release(&run);
    free(order);
    free(taps);
    free(features);
    free(out);
    return status;
}

/* ---- Beside NaN ---- */

/* Row i of `from` becomes row 2i + 1 of the result, the others are full of NaN. The caller frees it. */
static float *between_nan(const float *from, int rows, size_t n) {
    const size_t bytes = (2 * (size_t)rows + 1) * n * sizeof(float);
    float *to = malloc(bytes);
    if (to == NULL) return NULL;
    memset(to, 0xff, bytes);
    for (size_t i = 0; i < (size_t)rows; i++) memcpy(to + (2 * i + 1) * n, from + i * n, n * sizeof *to);
    return to;
}

/* The live rows of such a result, moved to its front. */
static void pick_live(float *values, int rows, size_t n) {
    for (size_t i = 0; i < (size_t)rows; i++) memcpy(values + i * n, values + (2 * i + 1) * n, n * sizeof *values);
}

static dflash_status compare_live(const dp_reference *r, dflash_stage stage, float *values, int rows, int columns,
                                  dp_pair *pair, dflash_error *err) {
    const dp_recorded *own = dp_recording_find(&r->block, stage, -1);
    if (own == NULL || own->dim[0] != rows || own->dim[1] != columns) return dp_pair_lacking(stage, -1, pair, err);
    pick_live(values, rows, (size_t)columns);
    return dp_pair_floats(stage, -1, 2, own->dim, own->value, values, &r->subject->in, pair, err);
}

static dflash_status features_beside_nan(const dp_reference *r, dp_pair *pair, dflash_error *err) {
    const dp_preflight *in = &r->subject->in;
    const dflash_config *c = &in->config;
    const size_t all = 2 * (size_t)in->context + 1;
    float *taps = between_nan(in->taps, in->context, (size_t)c->n_taps * (size_t)c->hidden),
          *features = malloc(all * (size_t)c->hidden * sizeof *features);
    dflash_status status =
        taps != NULL && features != NULL ? DFLASH_OK : df_fail_memory(err, "rows beside NaN", all * 4);
    if (status == DFLASH_OK) status = dp_ctx_features(r->rig.draft, taps, (int)all, features, err);
    if (status == DFLASH_OK)
        status = compare_live(r, DFLASH_STAGE_CTX_FEATURES, features, in->context, c->hidden, pair, err);
    free(taps);
    free(features);
    return status;
}

static dflash_status logits_beside_nan(const dp_reference *r, dp_pair *pair, dflash_error *err) {
    int n = 0;
    const float *rows = harvested(r, &n);
    if (r->rig.head == NULL) return DFLASH_OK;
    if (rows == NULL) return dp_pair_lacking(DFLASH_STAGE_LOGITS, -1, pair, err);
    const int vocab = dflash_table_vocab(r->rig.head), all = 2 * n + 1;
    float *mixed = between_nan(rows, n, (size_t)r->subject->in.config.hidden),
          *logits = malloc((size_t)all * (size_t)vocab * sizeof *logits);
    dflash_status status =
        mixed != NULL && logits != NULL ? DFLASH_OK : df_fail_memory(err, "rows beside NaN", (size_t)all * 4);
    if (status == DFLASH_OK) status = run_logits(r, mixed, all, logits, err);
    if (status == DFLASH_OK) status = compare_live(r, DFLASH_STAGE_LOGITS, logits, n, vocab, pair, err);
    free(mixed);
    free(logits);
    return status;
}

/* Context rows and logits computed in a call with rows of NaN; a round over a cache in which rows of NaN lie before and
 * behind what is committed. */
dflash_status dp_variant_rows_beside_nan(const dp_reference *r, int argument, dp_pair *pair, dflash_error *err) {
    (void)argument;
    dflash_status status = features_beside_nan(r, pair, err);
    if (status == DFLASH_OK) status = logits_beside_nan(r, pair, err);
    return status == DFLASH_OK ? dp_variant_round_over(r, &r->rig, true, pair, err) : status;
}
