/*
 * draft.c - the forward programs.
 *
 * forward_block and forward_round run the same layer program (pass.c) over the same operations; they differ only in
 * where the context's keys and values come from: recomputed from the features, or cached by an ingestion (ingest.c),
 * which computes them with the same operations. A row's arithmetic never depends on its companions, so the results
 * agree bit for bit.
 */
#include "draft/pass.h"

#include "common/error.h"

dflash_status dflash_ctx_features(dflash_draft *draft, const float *taps, int t, float *features, dflash_error *err) {
    df_pass p;
    TRY(df_check_context(t, err));
    TRY(df_pass_begin(&p, draft, NULL, 0, NULL, 0, err));
    return df_make_features(&p, taps, t, features);
}

dflash_status dflash_forward_block(dflash_draft *draft, const float *features, const float *noise, const int32_t *pos,
                                   int ctx, float *out, dflash_error *err) {
    df_pass p;
    df_block_rows b;
    TRY(df_check_context(ctx, err));
    const int rows = ctx + draft->config.block;
    TRY(df_check_positions(pos, rows, -1, "the context and the block", err));
    TRY(df_pass_begin(&p, draft, pos, rows, pos, rows, err));
    TRY(df_pass_show_rope(&p, rows));
    TRY(df_take_block_rows(&p, &b));
    df_layer_keys keys = {.features = features, .first = 0, .context = ctx};
    TRY(df_pass_take(&p, rows, df_key_width(p.c), &keys.raw));
    TRY(df_pass_take(&p, rows, df_key_width(p.c), &keys.normed));
    TRY(df_pass_take(&p, rows, df_key_width(p.c), &keys.k));
    TRY(df_pass_take(&p, rows, df_key_width(p.c), &keys.v));
    float *x;
    TRY(df_start_stream(&p, noise, &x));
    for (int i = 0; i < p.c->n_layers; i++) TRY(df_run_layer(&p, i, &b, &keys, pos, x));
    return df_final_norm(&p, x, out);
}

dflash_status dflash_forward(dflash_draft *draft, const float *taps, const float *noise, const int32_t *pos, int ctx,
                             float *out, dflash_error *err) {
    float *features;
    TRY(df_check_context(ctx, err));
    TRY(dflash_engine_alloc(draft->engine, (size_t)ctx * (size_t)draft->config.hidden, &features, err));
    dflash_status status = dflash_ctx_features(draft, taps, ctx, features, err);
    if (status == DFLASH_OK) status = dflash_forward_block(draft, features, noise, pos, ctx, out, err);
    dflash_engine_free(draft->engine, features);
    return status;
}

static dflash_status round_at_once(const df_pass *p, dflash_kv *kv, const float *noise, float *out, bool *done) {
    const dflash_draft *draft = p->draft;
    if (p->ops->round == NULL || !df_unwatched(draft)) return DFLASH_OK;
    const df_round_args args = {.config = p->c,
                                .weights = &draft->weights,
                                .noise = noise,
                                .cos = p->cos,
                                .sin = p->sin,
                                .key_pos = kv->pos,
                                .map = p->keys,
                                .keys = kv->len + p->c->block,
                                .k = kv->k,
                                .v = kv->v,
                                .layer_stride = (size_t)kv->capacity * (size_t)df_key_width(p->c),
                                .out = out};
    return p->ops->round(p->engine, &args, done, p->err);
}

dflash_status dflash_forward_round(dflash_draft *draft, dflash_kv *kv, const float *noise, const int32_t *pos,
                                   float *out, dflash_error *err) {
    df_pass p;
    df_block_rows b;
    const int rows = draft->config.block;
    TRY(df_check_cache(draft, kv, err));
    if (rows > kv->capacity - kv->len)
        return df_fail(
            err, DFLASH_ERR_ARGUMENT, "kv.full",
            "The cache holds %d of at most %d rows, so a block of %d does not fit. Create it with more capacity "
            "or truncate it first.",
            kv->len, kv->capacity, rows);
    TRY(df_kv_check_next(kv, pos, rows, "the block", err));
    for (int row = 0; row < rows; row++) kv->pos[kv->len + row] = pos[row]; /* in flight: len does not move */
    TRY(df_pass_begin(&p, draft, pos, rows, kv->pos, kv->len + rows, err));
    bool done = false;
    TRY(round_at_once(&p, kv, noise, out, &done));
    if (done) return DFLASH_OK;
    TRY(df_pass_show_rope(&p, rows));
    TRY(df_take_block_rows(&p, &b));
    df_layer_keys keys = {.first = kv->len, .context = kv->len};
    TRY(df_pass_take(&p, rows, df_key_width(p.c), &keys.raw));
    TRY(df_pass_take(&p, rows, df_key_width(p.c), &keys.normed));
    float *x;
    TRY(df_start_stream(&p, noise, &x));
    for (int i = 0; i < p.c->n_layers; i++) {
        keys.k = df_kv_row(kv, kv->k, i, 0);
        keys.v = df_kv_row(kv, kv->v, i, 0);
        TRY(df_run_layer(&p, i, &b, &keys, kv->pos, x));
    }
    return df_final_norm(&p, x, out);
}
