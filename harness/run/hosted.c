/* hosted.c - see hosted.h. */
#include "run/hosted.h"

#include <string.h>

/* One buffer of a call: the caller's own on the CPU, a copy in the engine's memory elsewhere. */
typedef struct guest {
    dflash_engine *engine;
    float *data, *owned;
} guest;

/* Values that go in. */
static dflash_status preflight(dflash_draft *draft, const float *values, size_t n, guest *out, dflash_error *err) {
    dflash_engine *engine = dflash_draft_engine(draft);
    *out = (guest){.engine = engine};
    if (dflash_engine_on_host(engine)) {
        out->data = (float *)(uintptr_t)values; /* read only, by a function that says so */
        return DFLASH_OK;
    }
    dflash_status status = dflash_engine_alloc(engine, n, &out->owned, err);
    if (status == DFLASH_OK && values != NULL) status = dflash_engine_upload(engine, out->owned, values, n, err);
    out->data = out->owned;
    return status;
}

/* Room for values that come out: NaN until they do, so that what a call leaves out is not taken from the one before. */
static dflash_status reserve(dflash_draft *draft, float *values, size_t n, guest *out, dflash_error *err) {
    dflash_engine *engine = dflash_draft_engine(draft);
    *out = (guest){.engine = engine, .data = values};
    if (n > 0) memset(values, 0xff, n * sizeof *values);
    if (dflash_engine_on_host(engine)) return DFLASH_OK;
    dflash_status status = dflash_engine_alloc(engine, n, &out->owned, err);
    if (status == DFLASH_OK) status = dflash_engine_upload(engine, out->owned, values, n, err);
    out->data = out->owned;
    return status;
}

static dflash_status fetch(const guest *from, float *values, size_t n, dflash_error *err) {
    return from->owned != NULL ? dflash_engine_download(from->engine, values, from->owned, n, err) : DFLASH_OK;
}

static void leave(guest *g) {
    if (g->owned != NULL) dflash_engine_free(g->engine, g->owned);
}

static size_t rows_of(const dflash_draft *draft, int rows) {
    return rows > 0 ? (size_t)rows * (size_t)dflash_draft_config(draft)->hidden : 0;
}

dflash_status dp_ctx_features(dflash_draft *draft, const float *taps, int t, float *features, dflash_error *err) {
    const size_t n = rows_of(draft, t);
    guest in, out = {.owned = NULL};
    dflash_status status = preflight(draft, taps, n * (size_t)dflash_draft_config(draft)->n_taps, &in, err);
    if (status == DFLASH_OK) status = reserve(draft, features, n, &out, err);
    if (status == DFLASH_OK) status = dflash_ctx_features(draft, in.data, t, out.data, err);
    if (status == DFLASH_OK) status = fetch(&out, features, n, err);
    leave(&in);
    leave(&out);
    return status;
}

dflash_status dp_embed_block(dflash_draft *draft, const dflash_table *embedding, int32_t anchor, float *noise,
                             dflash_error *err) {
    const size_t n = rows_of(draft, dflash_draft_config(draft)->block);
    guest out;
    dflash_status status = reserve(draft, noise, n, &out, err);
    if (status == DFLASH_OK) status = dflash_embed_block(draft, embedding, anchor, out.data, err);
    if (status == DFLASH_OK) status = fetch(&out, noise, n, err);
    leave(&out);
    return status;
}

dflash_status dp_forward_block(dflash_draft *draft, const float *features, const float *noise, const int32_t *pos,
                               int ctx, float *out, dflash_error *err) {
    const size_t block = rows_of(draft, dflash_draft_config(draft)->block);
    guest context, in = {.owned = NULL}, result = {.owned = NULL};
    dflash_status status = preflight(draft, features, rows_of(draft, ctx), &context, err);
    if (status == DFLASH_OK) status = preflight(draft, noise, block, &in, err);
    if (status == DFLASH_OK) status = reserve(draft, out, block, &result, err);
    if (status == DFLASH_OK) status = dflash_forward_block(draft, context.data, in.data, pos, ctx, result.data, err);
    if (status == DFLASH_OK) status = fetch(&result, out, block, err);
    leave(&context);
    leave(&in);
    leave(&result);
    return status;
}

dflash_status dp_forward(dflash_draft *draft, const float *taps, const float *noise, const int32_t *pos, int ctx,
                         float *out, dflash_error *err) {
    const size_t block = rows_of(draft, dflash_draft_config(draft)->block);
    guest context, in = {.owned = NULL}, result = {.owned = NULL};
    dflash_status status =
        preflight(draft, taps, rows_of(draft, ctx) * (size_t)dflash_draft_config(draft)->n_taps, &context, err);
    if (status == DFLASH_OK) status = preflight(draft, noise, block, &in, err);
    if (status == DFLASH_OK) status = reserve(draft, out, block, &result, err);
    if (status == DFLASH_OK) status = dflash_forward(draft, context.data, in.data, pos, ctx, result.data, err);
    if (status == DFLASH_OK) status = fetch(&result, out, block, err);
    leave(&context);
    leave(&in);
    leave(&result);
    return status;
}

dflash_status dp_ingest_ctx(dflash_draft *draft, dflash_kv *kv, const float *features, const int32_t *pos, int t,
                            dflash_error *err) {
    guest in;
    dflash_status status = preflight(draft, features, rows_of(draft, t), &in, err);
    if (status == DFLASH_OK) status = dflash_ingest_ctx(draft, kv, in.data, pos, t, err);
    if (status == DFLASH_OK) status = dflash_engine_finish(dflash_draft_engine(draft), err);
    leave(&in);
    return status;
}

dflash_status dp_ingest_taps(dflash_draft *draft, dflash_kv *kv, const float *taps, const int32_t *pos, int t,
                             dflash_error *err) {
    guest in;
    dflash_status status =
        preflight(draft, taps, rows_of(draft, t) * (size_t)dflash_draft_config(draft)->n_taps, &in, err);
    if (status == DFLASH_OK) status = dflash_ingest_taps(draft, kv, in.data, pos, t, err);
    if (status == DFLASH_OK) status = dflash_engine_finish(dflash_draft_engine(draft), err);
    leave(&in);
    return status;
}

dflash_status dp_forward_round(dflash_draft *draft, dflash_kv *kv, const float *noise, const int32_t *pos, float *out,
                               dflash_error *err) {
    const size_t block = rows_of(draft, dflash_draft_config(draft)->block);
    guest in, result = {.owned = NULL};
    dflash_status status = preflight(draft, noise, block, &in, err);
    if (status == DFLASH_OK) status = reserve(draft, out, block, &result, err);
    if (status == DFLASH_OK) status = dflash_forward_round(draft, kv, in.data, pos, result.data, err);
    if (status == DFLASH_OK) status = fetch(&result, out, block, err);
    leave(&in);
    leave(&result);
    return status;
}

/* Values of the dynamic kernels of `rows` rows. */
static size_t kernels_of(const dflash_draft *draft, int rows) {
    const dflash_config *c = dflash_draft_config(draft);
    return rows > 0 && c->conv_group > 0
               ? (size_t)rows * 2 * (size_t)c->conv_kernel * (size_t)(c->hidden / c->conv_group)
               : 0;
}

dflash_status dp_conv_prepare(dflash_draft *draft, int layer, dflash_sublayer sublayer, const float *x, int rows,
                              float *y, float *dyn, dflash_error *err) {
    guest in, out = {.owned = NULL}, kernels = {.owned = NULL};
    dflash_status status = preflight(draft, x, rows_of(draft, rows), &in, err);
    if (status == DFLASH_OK) status = reserve(draft, y, rows_of(draft, rows), &out, err);
    if (status == DFLASH_OK) status = reserve(draft, dyn, kernels_of(draft, rows), &kernels, err);
    if (status == DFLASH_OK)
        status = dflash_conv_prepare(draft, layer, sublayer, in.data, rows, out.data, kernels.data, err);
    if (status == DFLASH_OK) status = fetch(&out, y, rows_of(draft, rows), err);
    if (status == DFLASH_OK) status = fetch(&kernels, dyn, kernels_of(draft, rows), err);
    leave(&in);
    leave(&out);
    leave(&kernels);
    return status;
}

dflash_status dp_conv_finish(dflash_draft *draft, int layer, dflash_sublayer sublayer, const float *x, const float *dyn,
                             int rows, float *y, dflash_error *err) {
    guest in, out = {.owned = NULL}, kernels = {.owned = NULL};
    dflash_status status = preflight(draft, x, rows_of(draft, rows), &in, err);
    if (status == DFLASH_OK) status = preflight(draft, dyn, kernels_of(draft, rows), &kernels, err);
    if (status == DFLASH_OK) status = reserve(draft, y, rows_of(draft, rows), &out, err);
    if (status == DFLASH_OK)
        status = dflash_conv_finish(draft, layer, sublayer, in.data, kernels.data, rows, out.data, err);
    if (status == DFLASH_OK) status = fetch(&out, y, rows_of(draft, rows), err);
    leave(&in);
    leave(&out);
    leave(&kernels);
    return status;
}

dflash_status dp_logits(dflash_draft *draft, const dflash_table *head, const float *rows, int n, float *logits,
                        dflash_error *err) {
    const size_t values = n > 0 ? (size_t)n * (size_t)dflash_table_vocab(head) : 0;
    guest in, out = {.owned = NULL};
    dflash_status status = preflight(draft, rows, rows_of(draft, n), &in, err);
    if (status == DFLASH_OK) status = reserve(draft, logits, values, &out, err);
    if (status == DFLASH_OK) status = dflash_logits(draft, head, in.data, n, out.data, err);
    if (status == DFLASH_OK) status = fetch(&out, logits, values, err);
    leave(&in);
    leave(&out);
    return status;
}

dflash_status dp_propose(dflash_draft *draft, const dflash_table *table, const float *logits, const float *rows, int n,
                         int vocab, int32_t anchor, const dflash_proposal_options *options, const dflash_proposal *out,
                         dflash_error *err) {
    guest scores, in = {.owned = NULL};
    dflash_status status = preflight(draft, logits, n > 0 && vocab > 0 ? (size_t)n * (size_t)vocab : 0, &scores, err);
    if (status == DFLASH_OK) status = preflight(draft, rows, rows_of(draft, n), &in, err);
    if (status == DFLASH_OK)
        status = dflash_propose(draft, table, scores.data, in.data, n, vocab, anchor, options, out, err);
    leave(&scores);
    leave(&in);
    return status;
}

dflash_status dp_confidence(dflash_draft *draft, const float *rows, const int32_t *prev, int n, float *raw,
                            dflash_error *err) {
    guest in;
    dflash_status status = preflight(draft, rows, rows_of(draft, n), &in, err);
    if (status == DFLASH_OK) status = dflash_confidence(draft, in.data, prev, n, raw, err);
    leave(&in);
    return status;
}
