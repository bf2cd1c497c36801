/* hosted.c - see hosted.h. */
#include "run/hosted.h"

#include <string.h>

/* One buffer of a call: the caller's own on the CPU, a copy in the engine's memory elsewhere. */
typedef struct guest {
    df_engine *engine;
    float *data, *owned;
} guest;

/* Values that go in. */
static df_status admit(df_draft *draft, const float *values, size_t n, guest *out, df_error *err) {
    df_engine *engine = df_draft_engine(draft);
    *out = (guest){.engine = engine};
    if (df_engine_on_host(engine)) {
        out->data = (float *)(uintptr_t)values; /* read only, by a function that says so */
        return DF_OK;
    }
    df_status status = df_engine_alloc(engine, n, &out->owned, err);
    if (status == DF_OK && values != NULL) status = df_engine_upload(engine, out->owned, values, n, err);
    out->data = out->owned;
    return status;
}

/* Room for values that come out: NaN until they do, so that what a call leaves out is not taken from the one before. */
static df_status reserve(df_draft *draft, float *values, size_t n, guest *out, df_error *err) {
    df_engine *engine = df_draft_engine(draft);
    *out = (guest){.engine = engine, .data = values};
    if (n > 0) memset(values, 0xff, n * sizeof *values);
    if (df_engine_on_host(engine)) return DF_OK;
    df_status status = df_engine_alloc(engine, n, &out->owned, err);
    if (status == DF_OK) status = df_engine_upload(engine, out->owned, values, n, err);
    out->data = out->owned;
    return status;
}

static df_status fetch(const guest *from, float *values, size_t n, df_error *err) {
    return from->owned != NULL ? df_engine_download(from->engine, values, from->owned, n, err) : DF_OK;
}

static void leave(guest *g) {
    if (g->owned != NULL) df_engine_free(g->engine, g->owned);
}

static size_t rows_of(const df_draft *draft, int rows) {
    return rows > 0 ? (size_t)rows * (size_t)df_draft_config(draft)->hidden : 0;
}

df_status dp_ctx_features(df_draft *draft, const float *taps, int t, float *features, df_error *err) {
    const size_t n = rows_of(draft, t);
    guest in, out = {.owned = NULL};
    df_status status = admit(draft, taps, n * (size_t)df_draft_config(draft)->n_taps, &in, err);
    if (status == DF_OK) status = reserve(draft, features, n, &out, err);
    if (status == DF_OK) status = df_ctx_features(draft, in.data, t, out.data, err);
    if (status == DF_OK) status = fetch(&out, features, n, err);
    leave(&in);
    leave(&out);
    return status;
}

df_status dp_embed_block(df_draft *draft, const df_table *embedding, int32_t anchor, float *noise, df_error *err) {
    const size_t n = rows_of(draft, df_draft_config(draft)->block);
    guest out;
    df_status status = reserve(draft, noise, n, &out, err);
    if (status == DF_OK) status = df_embed_block(draft, embedding, anchor, out.data, err);
    if (status == DF_OK) status = fetch(&out, noise, n, err);
    leave(&out);
    return status;
}

df_status dp_forward_block(df_draft *draft, const float *features, const float *noise, const int32_t *pos, int ctx,
                           float *out, df_error *err) {
    const size_t block = rows_of(draft, df_draft_config(draft)->block);
    guest context, in = {.owned = NULL}, result = {.owned = NULL};
    df_status status = admit(draft, features, rows_of(draft, ctx), &context, err);
    if (status == DF_OK) status = admit(draft, noise, block, &in, err);
    if (status == DF_OK) status = reserve(draft, out, block, &result, err);
    if (status == DF_OK) status = df_forward_block(draft, context.data, in.data, pos, ctx, result.data, err);
    if (status == DF_OK) status = fetch(&result, out, block, err);
    leave(&context);
    leave(&in);
    leave(&result);
    return status;
}

df_status dp_forward(df_draft *draft, const float *taps, const float *noise, const int32_t *pos, int ctx, float *out,
                     df_error *err) {
    const size_t block = rows_of(draft, df_draft_config(draft)->block);
    guest context, in = {.owned = NULL}, result = {.owned = NULL};
    df_status status = admit(draft, taps, rows_of(draft, ctx) * (size_t)df_draft_config(draft)->n_taps, &context, err);
    if (status == DF_OK) status = admit(draft, noise, block, &in, err);
    if (status == DF_OK) status = reserve(draft, out, block, &result, err);
    if (status == DF_OK) status = df_forward(draft, context.data, in.data, pos, ctx, result.data, err);
    if (status == DF_OK) status = fetch(&result, out, block, err);
    leave(&context);
    leave(&in);
    leave(&result);
    return status;
}

df_status dp_ingest_ctx(df_draft *draft, df_kv *kv, const float *features, const int32_t *pos, int t, df_error *err) {
    guest in;
    df_status status = admit(draft, features, rows_of(draft, t), &in, err);
    if (status == DF_OK) status = df_ingest_ctx(draft, kv, in.data, pos, t, err);
    if (status == DF_OK) status = df_engine_finish(df_draft_engine(draft), err);
    leave(&in);
    return status;
}

df_status dp_ingest_taps(df_draft *draft, df_kv *kv, const float *taps, const int32_t *pos, int t, df_error *err) {
    guest in;
    df_status status = admit(draft, taps, rows_of(draft, t) * (size_t)df_draft_config(draft)->n_taps, &in, err);
    if (status == DF_OK) status = df_ingest_taps(draft, kv, in.data, pos, t, err);
    if (status == DF_OK) status = df_engine_finish(df_draft_engine(draft), err);
    leave(&in);
    return status;
}

df_status dp_forward_round(df_draft *draft, df_kv *kv, const float *noise, const int32_t *pos, float *out,
                           df_error *err) {
    const size_t block = rows_of(draft, df_draft_config(draft)->block);
    guest in, result = {.owned = NULL};
    df_status status = admit(draft, noise, block, &in, err);
    if (status == DF_OK) status = reserve(draft, out, block, &result, err);
    if (status == DF_OK) status = df_forward_round(draft, kv, in.data, pos, result.data, err);
    if (status == DF_OK) status = fetch(&result, out, block, err);
    leave(&in);
    leave(&result);
    return status;
}

/* Values of the dynamic kernels of `rows` rows. */
static size_t kernels_of(const df_draft *draft, int rows) {
    const df_config *c = df_draft_config(draft);
    return rows > 0 && c->conv_group > 0
               ? (size_t)rows * 2 * (size_t)c->conv_kernel * (size_t)(c->hidden / c->conv_group)
               : 0;
}

df_status dp_conv_prepare(df_draft *draft, int layer, df_sublayer sublayer, const float *x, int rows, float *y,
                          float *dyn, df_error *err) {
    guest in, out = {.owned = NULL}, kernels = {.owned = NULL};
    df_status status = admit(draft, x, rows_of(draft, rows), &in, err);
    if (status == DF_OK) status = reserve(draft, y, rows_of(draft, rows), &out, err);
    if (status == DF_OK) status = reserve(draft, dyn, kernels_of(draft, rows), &kernels, err);
    if (status == DF_OK) status = df_conv_prepare(draft, layer, sublayer, in.data, rows, out.data, kernels.data, err);
    if (status == DF_OK) status = fetch(&out, y, rows_of(draft, rows), err);
    if (status == DF_OK) status = fetch(&kernels, dyn, kernels_of(draft, rows), err);
    leave(&in);
    leave(&out);
    leave(&kernels);
    return status;
}

df_status dp_conv_finish(df_draft *draft, int layer, df_sublayer sublayer, const float *x, const float *dyn, int rows,
                         float *y, df_error *err) {
    guest in, out = {.owned = NULL}, kernels = {.owned = NULL};
    df_status status = admit(draft, x, rows_of(draft, rows), &in, err);
    if (status == DF_OK) status = admit(draft, dyn, kernels_of(draft, rows), &kernels, err);
    if (status == DF_OK) status = reserve(draft, y, rows_of(draft, rows), &out, err);
    if (status == DF_OK) status = df_conv_finish(draft, layer, sublayer, in.data, kernels.data, rows, out.data, err);
    if (status == DF_OK) status = fetch(&out, y, rows_of(draft, rows), err);
    leave(&in);
    leave(&out);
    leave(&kernels);
    return status;
}

df_status dp_logits(df_draft *draft, const df_table *head, const float *rows, int n, float *logits, df_error *err) {
    const size_t values = n > 0 ? (size_t)n * (size_t)df_table_vocab(head) : 0;
    guest in, out = {.owned = NULL};
    df_status status = admit(draft, rows, rows_of(draft, n), &in, err);
    if (status == DF_OK) status = reserve(draft, logits, values, &out, err);
    if (status == DF_OK) status = df_logits(draft, head, in.data, n, out.data, err);
    if (status == DF_OK) status = fetch(&out, logits, values, err);
    leave(&in);
    leave(&out);
    return status;
}

df_status dp_propose(df_draft *draft, const df_table *table, const float *logits, const float *rows, int n, int vocab,
                     int32_t anchor, const df_proposal_options *options, const df_proposal *out, df_error *err) {
    guest scores, in = {.owned = NULL};
    df_status status = admit(draft, logits, n > 0 && vocab > 0 ? (size_t)n * (size_t)vocab : 0, &scores, err);
    if (status == DF_OK) status = admit(draft, rows, rows_of(draft, n), &in, err);
    if (status == DF_OK) status = df_propose(draft, table, scores.data, in.data, n, vocab, anchor, options, out, err);
    leave(&scores);
    leave(&in);
    return status;
}

df_status dp_confidence(df_draft *draft, const float *rows, const int32_t *prev, int n, float *raw, df_error *err) {
    guest in;
    df_status status = admit(draft, rows, rows_of(draft, n), &in, err);
    if (status == DF_OK) status = df_confidence(draft, in.data, prev, n, raw, err);
    leave(&in);
    return status;
}
