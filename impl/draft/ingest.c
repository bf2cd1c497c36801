/* ingest.c - context rows into the cache: the keys and values that forward_block computes for them, row by row. */
#include "draft/pass.h"

#include "common/error.h"

/* k = rope(k_norm(k_proj(x))), v = v_proj(x) of `rows` context rows: what run_layer computes for them, row by row. */
static dflash_status ingest_layer(const df_pass *p, int i, const float *x, int rows, float *raw, float *normed,
                                  float *k, float *v) {
    const dflash_config *c = p->c;
    const df_layer_weights *w = &p->draft->weights.layer[i];
    TRY(p->ops->matmul(p->engine, &w->k, w->k_bias, x, rows, raw, p->err));
    TRY(p->ops->rmsnorm(p->engine, raw, w->k_norm, rows * c->n_kv_heads, c->head_dim, p->eps, normed, p->err));
    TRY(p->ops->rope(p->engine, normed, p->cos, p->sin, rows, c->n_kv_heads, c->head_dim, c->rope.rotary_dim, k,
                     p->err));
    return p->ops->matmul(p->engine, &w->v, w->v_bias, x, rows, v, p->err);
}

/* Rows of the context, given by their taps or by their features, into the cache. */
static dflash_status ingest(dflash_draft *draft, dflash_kv *kv, const float *taps, const float *features,
                            const int32_t *pos, int t, dflash_error *err) {
    df_pass p;
    const dflash_config *c = &draft->config;
    TRY(df_check_cache(draft, kv, err));
    TRY(df_check_context(t, err));
    df_kv_append_plan plan;
    TRY(df_kv_plan(kv, pos, t, &plan, err)); /* first of all: a count that cannot be true reads no positions */
    TRY(df_kv_check_next(kv, pos, t, "the ingested rows", err));
    if (plan.skip > 0) {
        if (taps != NULL) taps += (size_t)plan.skip * (size_t)c->n_taps * (size_t)c->hidden;
        if (features != NULL) features += (size_t)plan.skip * (size_t)c->hidden;
        pos += plan.skip;
        t -= plan.skip;
    }
    TRY(df_pass_begin(&p, draft, pos, t, NULL, 0, err));
    df_ingest_args args = {.config = c,
                           .weights = &draft->weights,
                           .taps = taps,
                           .features = features,
                           .cos = p.cos,
                           .sin = p.sin,
                           .rows = t,
                           .k = df_kv_row(kv, kv->k, 0, kv->len),
                           .v = df_kv_row(kv, kv->v, 0, kv->len),
                           .layer_stride = (size_t)kv->capacity * (size_t)df_key_width(c)};
    if (plan.drop > 0) {
        TRY(df_pass_take(&p, t, c->n_layers * df_key_width(c), &args.k));
        TRY(df_pass_take(&p, t, c->n_layers * df_key_width(c), &args.v));
        args.layer_stride = (size_t)t * (size_t)df_key_width(c);
    }
    bool done = false;
    const bool at_once = t > 0 && p.ops->ingest != NULL && df_unwatched(draft);
    if (at_once) TRY(p.ops->ingest(p.engine, &args, &done, err));
    if (!done && taps != NULL) {
        float *made;
        TRY(df_pass_take(&p, t, c->hidden, &made));
        TRY(df_make_features(&p, taps, t, made));
        args.taps = NULL;
        args.features = made;
        if (at_once) TRY(p.ops->ingest(p.engine, &args, &done, err));
    }
    if (!done) {
        float *raw, *normed;
        TRY(df_pass_take(&p, t, df_key_width(c), &raw));
        TRY(df_pass_take(&p, t, df_key_width(c), &normed));
        for (int i = 0; i < c->n_layers; i++)
            TRY(ingest_layer(&p, i, args.features, t, raw, normed, args.k + (size_t)i * args.layer_stride,
                             args.v + (size_t)i * args.layer_stride));
    }
    return df_kv_append(kv, &plan, pos, t, plan.drop > 0 ? args.k : NULL, plan.drop > 0 ? args.v : NULL, err);
}

dflash_status dflash_ingest_ctx(dflash_draft *draft, dflash_kv *kv, const float *features, const int32_t *pos, int t,
                                dflash_error *err) {
    return ingest(draft, kv, NULL, features, pos, t, err);
}

dflash_status dflash_ingest_taps(dflash_draft *draft, dflash_kv *kv, const float *taps, const int32_t *pos, int t,
                                 dflash_error *err) {
    return ingest(draft, kv, taps, NULL, pos, t, err);
}
