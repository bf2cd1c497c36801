/*
 * draft.c - the forward programs.
 *
 * forward_block and forward_round run the same layer program over the same operations; they differ only in where the
 * context's keys and values come from: recomputed from the features, or cached by ingest_ctx, which computes them with
 * the same operations. A row's arithmetic never depends on its companions, so the results agree bit for bit.
 */
#include "draft/conv.h"

#include "common/canon.h"
#include "common/error.h"
#include "kv/kv.h"
#include "model/observe.h"

/* One call in progress: the model, its operations and the rotary tables of the rows it computes. */
typedef struct pass {
    dflash_draft *draft;
    dflash_engine *engine;
    const df_ops *ops;
    const dflash_config *c;
    dflash_error *err;
    float eps;
    float *cos, *sin; /* [rows, rotary_dim / 2], row 0 = the first row of `pos` given to pass_begin */
    df_key_map keys;  /* the positions of the keys, for the attention */
} pass;

/* Keys and values of one layer as the layer program sees them. Rows 0..context are the context, then B rows of the
 * block. This call computes the rows from `first` on: all of them from the features, or the block's alone when the
 * context's are cached. raw and normed are the steps before the rotation, of the computed rows. */
typedef struct layer_keys {
    const float *features; /* [context, H]; NULL when the context's rows are cached */
    float *raw, *normed;   /* [context + B - first, nkv * hd] */
    float *k, *v;          /* [context + B, nkv * hd] */
    int first, context;
} layer_keys;

/* Scratch of the block's rows, reused by every layer. */
typedef struct block_rows {
    float *n;                          /* [B, H] normed rows */
    float *dyn, *conv;                 /* dflash2: [B, 2, k, G] a sublayer's dynamic kernels, [B, H] convolved rows */
    float *q, *q_normed, *q_roped, *a; /* [B, nh * hd] */
    float *o, *x_mid;                  /* [B, H] */
    float *gate, *up, *act;            /* [B, F] */
    float *down;                       /* [B, H] */
} block_rows;

enum { MOST_CONTEXT = 1 << 30 }; /* context and block together still count in an int */

static int query_width(const dflash_config *c) { return c->n_heads * c->head_dim; }
static int key_width(const dflash_config *c) { return c->n_kv_heads * c->head_dim; }

/* ---- Showing stages ---- */

static dflash_status show(const pass *p, dflash_stage stage, int layer, float *data, int rank, const int64_t dim[4]) {
    dflash_stage_view view = {.stage = stage, .layer = layer, .rank = rank};
    for (int i = 0; i < rank; i++) view.dim[i] = dim[i];
    return df_show(p->draft, view, data, p->err);
}

static dflash_status show_rows(const pass *p, dflash_stage stage, int layer, float *data, int rows, int columns) {
    return show(p, stage, layer, data, 2, (const int64_t[4]){rows, columns});
}

static dflash_status show_heads(const pass *p, dflash_stage stage, int layer, float *data, int rows, int heads) {
    return show(p, stage, layer, data, 3, (const int64_t[4]){rows, heads, p->c->head_dim});
}

/* ---- Set-up ---- */

static dflash_status take(const pass *p, int rows, int columns, float **out) {
    *out = df_arena_floats(&p->engine->arena, (size_t)rows * (size_t)columns, p->err);
    return *out != NULL ? DFLASH_OK : DFLASH_ERR_MEMORY;
}

/* A part of the tables of a call, each on a boundary that any device likes. */
static size_t part(size_t values) { return (values + 15) / 16 * 16; }

/* The segments of canon.h that the keys at positions pos[keys] lie in; first[] gets the row where each starts, and the
 * number of keys behind the last. */
static int key_segments(const int32_t *pos, int keys, int32_t *first) {
    int segments = 0;
    for (int i = 0, end; i < keys; i = end) { /* positions increase: no more keys of a segment than places left in it */
        const int left = DF_SEGMENT - pos[i] % DF_SEGMENT;
        end = left < keys - i ? i + left : keys;
        while (pos[end - 1] / DF_SEGMENT != pos[i] / DF_SEGMENT) end--;
        first[segments++] = i;
    }
    first[segments] = keys;
    return segments;
}

/* Starts a call over `rows` rows at positions `pos`. keys > 0: its attention sees that many, at positions key_pos. The
 * tables are made on the host and go to the engine's memory together. */
static dflash_status pass_begin(pass *p, dflash_draft *draft, const int32_t *pos, int rows, const int32_t *key_pos,
                                int keys, dflash_error *err) {
    *p = (pass){.draft = draft, .engine = draft->engine, .ops = draft->engine->ops, .c = &draft->config, .err = err};
    p->eps = (float)draft->config.rms_eps;
    TRY(df_arena_reset(&p->engine->arena, err));
    if (rows == 0) return DFLASH_OK;
    const int half = p->c->rope.rotary_dim / 2;
    const size_t angles = part((size_t)rows * (size_t)half), positions = part((size_t)keys),
                 total = 2 * angles + 2 * positions + part(1);
    const df_memory *memory = &p->engine->memory;
    void *window;
    p->cos = df_arena_floats(&p->engine->arena, total, err);
    if (p->cos == NULL) return DFLASH_ERR_MEMORY;
    p->sin = p->cos + angles;
    TRY(memory->map(memory->owner, p->cos, total * sizeof(float), &window, err));
    float *host = window;
    df_rope_rows_get(&draft->rope, p->engine->pool, pos, rows, host, host + angles);
    int32_t *host_pos = (int32_t *)(void *)(host + 2 * angles);
    if (keys > 0) memcpy(host_pos, key_pos, (size_t)keys * sizeof *host_pos);
    p->keys.segments = key_segments(key_pos, keys, host_pos + positions);
    p->keys.pos = (const int32_t *)(const void *)(p->cos + 2 * angles);
    p->keys.segment_first = p->keys.pos + positions;
    return memory->unmap(memory->owner, p->cos, total * sizeof(float), err);
}

/* The frequencies belong to the draft, not to the call: they are shown and cannot be replaced. */
static dflash_status show_rope(const pass *p, int rows) {
    const int half = p->c->rope.rotary_dim / 2;
    df_observe_rows(p->draft, DFLASH_STAGE_ROPE_INV_FREQ, half, 0, p->draft->inv_freq, NULL);
    TRY(show_rows(p, DFLASH_STAGE_ROPE_COS, -1, p->cos, rows, half));
    return show_rows(p, DFLASH_STAGE_ROPE_SIN, -1, p->sin, rows, half);
}

static dflash_status take_block_rows(const pass *p, block_rows *b) {
    const dflash_config *c = p->c;
    TRY(take(p, c->block, c->hidden, &b->n));
    if (c->family == DFLASH_FAMILY_DFLASH2) {
        TRY(take(p, c->block, df_conv_width(c), &b->dyn));
        TRY(take(p, c->block, c->hidden, &b->conv));
    }
    TRY(take(p, c->block, query_width(c), &b->q));
    TRY(take(p, c->block, query_width(c), &b->q_normed));
    TRY(take(p, c->block, query_width(c), &b->q_roped));
    TRY(take(p, c->block, query_width(c), &b->a));
    TRY(take(p, c->block, c->hidden, &b->o));
    TRY(take(p, c->block, c->hidden, &b->x_mid));
    TRY(take(p, c->block, c->intermediate, &b->gate));
    TRY(take(p, c->block, c->intermediate, &b->up));
    TRY(take(p, c->block, c->intermediate, &b->act));
    TRY(take(p, c->block, c->hidden, &b->down));
    return DFLASH_OK;
}

/* ---- The steps ---- */

/* y = x W^T + bias for the rows that this call computes of k_proj or v_proj: the context's features, then the block's
 * rows n. */
static dflash_status project_computed(const pass *p, const df_matrix *w, const float *bias, const layer_keys *keys,
                                      const float *n, float *y) {
    const int context = keys->context - keys->first;
    if (context > 0) TRY(p->ops->matmul(p->engine, w, bias, keys->features, context, y, p->err));
    return p->ops->matmul(p->engine, w, bias, n, p->c->block, y + (size_t)context * (size_t)key_width(p->c), p->err);
}

/* dflash2: *rows, the input of a sublayer, becomes its convolution; the kernels stay in b->dyn for convolve_output. The
 * other families have no convolution and leave *rows as it is. Context rows are never convolved. */
static dflash_status convolve_input(const pass *p, int layer, dflash_sublayer sublayer, const block_rows *b,
                                    const float **rows) {
    const dflash_config *c = p->c;
    const bool attention = sublayer == DFLASH_SUBLAYER_ATTENTION;
    if (c->family != DFLASH_FAMILY_DFLASH2) return DFLASH_OK;
    const df_conv_weights *conv = df_conv_of(p->draft, layer, sublayer);
    TRY(df_conv_project(p->draft, conv, *rows, c->block, b->dyn, p->err));
    TRY(show(p, attention ? DFLASH_STAGE_ATTN_CONV_DYN : DFLASH_STAGE_MLP_CONV_DYN, layer, b->dyn, 4,
             (const int64_t[4]){c->block, 2, c->conv_kernel, c->hidden / c->conv_group}));
    TRY(df_conv_apply(p->draft, conv, 0, *rows, b->dyn, c->block, b->conv, p->err));
    TRY(show_rows(p, attention ? DFLASH_STAGE_ATTN_CONV_IN : DFLASH_STAGE_MLP_CONV_IN, layer, b->conv, c->block,
                  c->hidden));
    *rows = b->conv;
    return DFLASH_OK;
}

/* dflash2: *rows, the output of the sublayer, becomes its convolution with the same kernels' other half. */
static dflash_status convolve_output(const pass *p, int layer, dflash_sublayer sublayer, const block_rows *b,
                                     const float **rows) {
    const dflash_config *c = p->c;
    const bool attention = sublayer == DFLASH_SUBLAYER_ATTENTION;
    if (c->family != DFLASH_FAMILY_DFLASH2) return DFLASH_OK;
    TRY(df_conv_apply(p->draft, df_conv_of(p->draft, layer, sublayer), 1, *rows, b->dyn, c->block, b->conv, p->err));
    TRY(show_rows(p, attention ? DFLASH_STAGE_ATTN_CONV_OUT : DFLASH_STAGE_MLP_CONV_OUT, layer, b->conv, c->block,
                  c->hidden));
    *rows = b->conv;
    return DFLASH_OK;
}

/* Layer `i` on the block's rows x[B, H], in place. `pos` counts the context's rows first, the block's after them. */
static dflash_status run_layer(const pass *p, int i, const block_rows *b, const layer_keys *keys, const int32_t *pos,
                               float *x) {
    const dflash_config *c = p->c;
    const df_ops *ops = p->ops;
    dflash_engine *e = p->engine;
    const df_layer_weights *w = &p->draft->weights.layer[i];
    const int rows = c->block, computed = keys->context + rows - keys->first;
    float *const k = keys->k + (size_t)keys->first * (size_t)key_width(c); /* the computed rows */
    float *const v = keys->v + (size_t)keys->first * (size_t)key_width(c);
    const size_t block_table = (size_t)(keys->context - keys->first) * (size_t)(c->rope.rotary_dim / 2);

    TRY(ops->rmsnorm(e, x, w->input_norm, rows, c->hidden, p->eps, b->n, p->err));
    TRY(show_rows(p, DFLASH_STAGE_ATTN_NORM, i, b->n, rows, c->hidden));
    const float *n = b->n;
    TRY(convolve_input(p, i, DFLASH_SUBLAYER_ATTENTION, b, &n));
    TRY(ops->matmul(e, &w->q, w->q_bias, n, rows, b->q, p->err));
    TRY(show_rows(p, DFLASH_STAGE_ATTN_Q_PROJ, i, b->q, rows, query_width(c)));
    TRY(project_computed(p, &w->k, w->k_bias, keys, n, keys->raw));
    TRY(show_rows(p, DFLASH_STAGE_ATTN_K_PROJ, i, keys->raw, computed, key_width(c)));
    TRY(project_computed(p, &w->v, w->v_bias, keys, n, v));
    TRY(show_rows(p, DFLASH_STAGE_ATTN_V, i, v, computed, key_width(c)));
    TRY(ops->rmsnorm(e, b->q, w->q_norm, rows * c->n_heads, c->head_dim, p->eps, b->q_normed, p->err));
    TRY(show_heads(p, DFLASH_STAGE_ATTN_Q_NORM, i, b->q_normed, rows, c->n_heads));
    TRY(ops->rmsnorm(e, keys->raw, w->k_norm, computed * c->n_kv_heads, c->head_dim, p->eps, keys->normed, p->err));
    TRY(show_heads(p, DFLASH_STAGE_ATTN_K_NORM, i, keys->normed, computed, c->n_kv_heads));
    TRY(ops->rope(e, b->q_normed, p->cos + block_table, p->sin + block_table, rows, c->n_heads, c->head_dim,
                  c->rope.rotary_dim, b->q_roped, p->err));
    TRY(show_heads(p, DFLASH_STAGE_ATTN_Q_ROPE, i, b->q_roped, rows, c->n_heads));
    TRY(ops->rope(e, keys->normed, p->cos, p->sin, computed, c->n_kv_heads, c->head_dim, c->rope.rotary_dim, k,
                  p->err));
    TRY(show_heads(p, DFLASH_STAGE_ATTN_K_ROPE, i, k, computed, c->n_kv_heads));
    const df_attention_args attention = {.q = b->q_roped,
                                         .k = keys->k,
                                         .v = keys->v,
                                         .q_pos = pos + keys->context,
                                         .k_pos = pos,
                                         .map = p->keys,
                                         .rows = rows,
                                         .keys = keys->context + rows,
                                         .n_heads = c->n_heads,
                                         .n_kv_heads = c->n_kv_heads,
                                         .head_dim = c->head_dim,
                                         .window = c->layer[i].window,
                                         .causal = c->layer[i].causal,
                                         .out = b->a};
    TRY(ops->attention(e, &attention, p->err));
    TRY(show_rows(p, DFLASH_STAGE_ATTN_CONTEXT, i, b->a, rows, query_width(c)));
    TRY(ops->matmul(e, &w->o, w->o_bias, b->a, rows, b->o, p->err));
    TRY(show_rows(p, DFLASH_STAGE_ATTN_O_PROJ, i, b->o, rows, c->hidden));
    const float *o = b->o;
    TRY(convolve_output(p, i, DFLASH_SUBLAYER_ATTENTION, b, &o));
    TRY(ops->add(e, x, o, (size_t)rows * (size_t)c->hidden, b->x_mid, p->err));
    TRY(show_rows(p, DFLASH_STAGE_ATTN_RESIDUAL, i, b->x_mid, rows, c->hidden));
    TRY(ops->rmsnorm(e, b->x_mid, w->post_norm, rows, c->hidden, p->eps, b->n, p->err));
    TRY(show_rows(p, DFLASH_STAGE_MLP_NORM, i, b->n, rows, c->hidden));
    const float *m = b->n;
    TRY(convolve_input(p, i, DFLASH_SUBLAYER_MLP, b, &m));
    TRY(ops->matmul(e, &w->gate, NULL, m, rows, b->gate, p->err));
    TRY(show_rows(p, DFLASH_STAGE_MLP_GATE, i, b->gate, rows, c->intermediate));
    TRY(ops->matmul(e, &w->up, NULL, m, rows, b->up, p->err));
    TRY(show_rows(p, DFLASH_STAGE_MLP_UP, i, b->up, rows, c->intermediate));
    TRY(ops->silu_mul(e, b->gate, b->up, (size_t)rows * (size_t)c->intermediate, b->act, p->err));
    TRY(show_rows(p, DFLASH_STAGE_MLP_ACT, i, b->act, rows, c->intermediate));
    TRY(ops->matmul(e, &w->down, NULL, b->act, rows, b->down, p->err));
    TRY(show_rows(p, DFLASH_STAGE_MLP_DOWN, i, b->down, rows, c->hidden));
    const float *down = b->down;
    TRY(convolve_output(p, i, DFLASH_SUBLAYER_MLP, b, &down));
    TRY(ops->add(e, b->x_mid, down, (size_t)rows * (size_t)c->hidden, x, p->err));
    TRY(show_rows(p, DFLASH_STAGE_LAYER_OUT, i, x, rows, c->hidden));
    return DFLASH_OK;
}

/* k = rope(k_norm(k_proj(x))), v = v_proj(x) of `rows` context rows: what run_layer computes for them, row by row. */
static dflash_status ingest_layer(const pass *p, int i, const float *x, int rows, float *raw, float *normed, float *k,
                                  float *v) {
    const dflash_config *c = p->c;
    const df_layer_weights *w = &p->draft->weights.layer[i];
    TRY(p->ops->matmul(p->engine, &w->k, w->k_bias, x, rows, raw, p->err));
    TRY(p->ops->rmsnorm(p->engine, raw, w->k_norm, rows * c->n_kv_heads, c->head_dim, p->eps, normed, p->err));
    TRY(p->ops->rope(p->engine, normed, p->cos, p->sin, rows, c->n_kv_heads, c->head_dim, c->rope.rotary_dim, k,
                     p->err));
    return p->ops->matmul(p->engine, &w->v, w->v_bias, x, rows, v, p->err);
}

/* features = hidden_norm(fc(taps)) */
static dflash_status make_features(const pass *p, const float *taps, int rows, float *features) {
    const df_weights *w = &p->draft->weights;
    const int hidden = p->c->hidden;
    float *fc;
    TRY(take(p, rows, hidden, &fc));
    TRY(p->ops->matmul(p->engine, &w->fc, NULL, taps, rows, fc, p->err));
    TRY(show_rows(p, DFLASH_STAGE_CTX_FC, -1, fc, rows, hidden));
    TRY(p->ops->rmsnorm(p->engine, fc, w->hidden_norm, rows, hidden, p->eps, features, p->err));
    return show_rows(p, DFLASH_STAGE_CTX_FEATURES, -1, features, rows, hidden);
}

static dflash_status start_stream(const pass *p, const float *noise, float **x) {
    const df_memory *memory = &p->engine->memory;
    TRY(take(p, p->c->block, p->c->hidden, x));
    return memory->copy(memory->owner, *x, noise, (size_t)p->c->block * (size_t)p->c->hidden * sizeof **x, p->err);
}

static dflash_status final_norm(const pass *p, const float *x, float *out) {
    const dflash_config *c = p->c;
    TRY(p->ops->rmsnorm(p->engine, x, p->draft->weights.norm, c->block, c->hidden, p->eps, out, p->err));
    TRY(show_rows(p, DFLASH_STAGE_FINAL, -1, out, c->block, c->hidden));
    return DFLASH_OK;
}

static dflash_status check_context(int ctx, dflash_error *err) {
    if (ctx >= 0 && ctx <= MOST_CONTEXT) return DFLASH_OK;
    return df_fail(err, DFLASH_ERR_ARGUMENT, "context.rows", "The number of context rows must lie in 0..%d: found %d.",
                   MOST_CONTEXT, ctx);
}

static dflash_status check_cache(const dflash_draft *draft, const dflash_kv *kv, dflash_error *err) {
    if (kv->draft == draft) return DFLASH_OK;
    return df_fail(
        err, DFLASH_ERR_ARGUMENT, "kv.foreign",
        "The cache was made for another draft model: its rows have other sizes or other weights behind them. "
        "Use dflash_kv_create with this draft.");
}

/* ---- The programs ---- */

dflash_status dflash_ctx_features(dflash_draft *draft, const float *taps, int t, float *features, dflash_error *err) {
    pass p;
    TRY(check_context(t, err));
    TRY(pass_begin(&p, draft, NULL, 0, NULL, 0, err));
    return make_features(&p, taps, t, features);
}

dflash_status dflash_forward_block(dflash_draft *draft, const float *features, const float *noise, const int32_t *pos,
                                   int ctx, float *out, dflash_error *err) {
    pass p;
    block_rows b;
    TRY(check_context(ctx, err));
    const int rows = ctx + draft->config.block;
    TRY(df_check_positions(pos, rows, -1, "the context and the block", err));
    TRY(pass_begin(&p, draft, pos, rows, pos, rows, err));
    TRY(show_rope(&p, rows));
    TRY(take_block_rows(&p, &b));
    layer_keys keys = {.features = features, .first = 0, .context = ctx};
    TRY(take(&p, rows, key_width(p.c), &keys.raw));
    TRY(take(&p, rows, key_width(p.c), &keys.normed));
    TRY(take(&p, rows, key_width(p.c), &keys.k));
    TRY(take(&p, rows, key_width(p.c), &keys.v));
    float *x;
    TRY(start_stream(&p, noise, &x));
    for (int i = 0; i < p.c->n_layers; i++) TRY(run_layer(&p, i, &b, &keys, pos, x));
    return final_norm(&p, x, out);
}

dflash_status dflash_forward(dflash_draft *draft, const float *taps, const float *noise, const int32_t *pos, int ctx,
                             float *out, dflash_error *err) {
    float *features;
    TRY(check_context(ctx, err));
    TRY(dflash_engine_alloc(draft->engine, (size_t)ctx * (size_t)draft->config.hidden, &features, err));
    dflash_status status = dflash_ctx_features(draft, taps, ctx, features, err);
    if (status == DFLASH_OK) status = dflash_forward_block(draft, features, noise, pos, ctx, out, err);
    dflash_engine_free(draft->engine, features);
    return status;
}

/* Where nobody looks at the stages, a device may run all of them as one program. */
static bool unwatched(const dflash_draft *draft) { return draft->observe == NULL && draft->replace == NULL; }

/* Rows of the context, given by their taps or by their features, into the cache. */
static dflash_status ingest(dflash_draft *draft, dflash_kv *kv, const float *taps, const float *features,
                            const int32_t *pos, int t, dflash_error *err) {
    pass p;
    const dflash_config *c = &draft->config;
    TRY(check_cache(draft, kv, err));
    TRY(check_context(t, err));
    df_kv_append_plan plan;
    TRY(df_kv_plan(kv, pos, t, &plan, err)); /* first of all: a count that cannot be true reads no positions */
    TRY(df_kv_check_next(kv, pos, t, "the ingested rows", err));
    if (plan.skip > 0) {
        if (taps != NULL) taps += (size_t)plan.skip * (size_t)c->n_taps * (size_t)c->hidden;
        if (features != NULL) features += (size_t)plan.skip * (size_t)c->hidden;
        pos += plan.skip;
        t -= plan.skip;
    }
    TRY(pass_begin(&p, draft, pos, t, NULL, 0, err));
    df_ingest_args args = {.config = c,
                           .weights = &draft->weights,
                           .taps = taps,
                           .features = features,
                           .cos = p.cos,
                           .sin = p.sin,
                           .rows = t,
                           .k = df_kv_row(kv, kv->k, 0, kv->len),
                           .v = df_kv_row(kv, kv->v, 0, kv->len),
                           .layer_stride = (size_t)kv->capacity * (size_t)key_width(c)};
    if (plan.drop > 0) {
        TRY(take(&p, t, c->n_layers * key_width(c), &args.k));
        TRY(take(&p, t, c->n_layers * key_width(c), &args.v));
        args.layer_stride = (size_t)t * (size_t)key_width(c);
    }
    bool done = false;
    const bool at_once = t > 0 && p.ops->ingest != NULL && unwatched(draft);
    if (at_once) TRY(p.ops->ingest(p.engine, &args, &done, err));
    if (!done && taps != NULL) {
        float *made;
        TRY(take(&p, t, c->hidden, &made));
        TRY(make_features(&p, taps, t, made));
        args.taps = NULL;
        args.features = made;
        if (at_once) TRY(p.ops->ingest(p.engine, &args, &done, err));
    }
    if (!done) {
        float *raw, *normed;
        TRY(take(&p, t, key_width(c), &raw));
        TRY(take(&p, t, key_width(c), &normed));
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

static dflash_status round_at_once(const pass *p, dflash_kv *kv, const float *noise, float *out, bool *done) {
    const dflash_draft *draft = p->draft;
    if (p->ops->round == NULL || !unwatched(draft)) return DFLASH_OK;
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
                                .layer_stride = (size_t)kv->capacity * (size_t)key_width(p->c),
                                .out = out};
    return p->ops->round(p->engine, &args, done, p->err);
}

dflash_status dflash_forward_round(dflash_draft *draft, dflash_kv *kv, const float *noise, const int32_t *pos,
                                   float *out, dflash_error *err) {
    pass p;
    block_rows b;
    const int rows = draft->config.block;
    TRY(check_cache(draft, kv, err));
    if (rows > kv->capacity - kv->len)
        return df_fail(
            err, DFLASH_ERR_ARGUMENT, "kv.full",
            "The cache holds %d of at most %d rows, so a block of %d does not fit. Create it with more capacity "
            "or truncate it first.",
            kv->len, kv->capacity, rows);
    TRY(df_kv_check_next(kv, pos, rows, "the block", err));
    for (int row = 0; row < rows; row++) kv->pos[kv->len + row] = pos[row]; /* in flight: len does not move */
    TRY(pass_begin(&p, draft, pos, rows, kv->pos, kv->len + rows, err));
    bool done = false;
    TRY(round_at_once(&p, kv, noise, out, &done));
    if (done) return DFLASH_OK;
    TRY(show_rope(&p, rows));
    TRY(take_block_rows(&p, &b));
    layer_keys keys = {.first = kv->len, .context = kv->len};
    TRY(take(&p, rows, key_width(p.c), &keys.raw));
    TRY(take(&p, rows, key_width(p.c), &keys.normed));
    float *x;
    TRY(start_stream(&p, noise, &x));
    for (int i = 0; i < p.c->n_layers; i++) {
        keys.k = df_kv_row(kv, kv->k, i, 0);
        keys.v = df_kv_row(kv, kv->v, i, 0);
        TRY(run_layer(&p, i, &b, &keys, kv->pos, x));
    }
    return final_norm(&p, x, out);
}
