/* pass.c - see pass.h: the steps of a pass, and the layer as the list of its steps. */
#include "draft/pass.h"

#include "common/canon.h"
#include "common/error.h"
#include "draft/conv.h"
#include "model/observe.h"

#include <string.h>

enum { MOST_CONTEXT = 1 << 30 }; /* context and block together still count in an int */

int df_query_width(const dflash_config *c) { return c->n_heads * c->head_dim; }
int df_key_width(const dflash_config *c) { return c->n_kv_heads * c->head_dim; }

/* ---- Showing stages ---- */

static dflash_status show(const df_pass *p, dflash_stage stage, int layer, float *data, int rank,
                          const int64_t dim[4]) {
    dflash_stage_view view = {.stage = stage, .layer = layer, .rank = rank};
    for (int i = 0; i < rank; i++) view.dim[i] = dim[i];
    return df_show(p->draft, view, data, p->err);
}

static dflash_status show_rows(const df_pass *p, dflash_stage stage, int layer, float *data, int rows, int columns) {
    return show(p, stage, layer, data, 2, (const int64_t[4]){rows, columns});
}

static dflash_status show_heads(const df_pass *p, dflash_stage stage, int layer, float *data, int rows, int heads) {
    return show(p, stage, layer, data, 3, (const int64_t[4]){rows, heads, p->c->head_dim});
}

/* ---- Set-up ---- */

dflash_status df_pass_take(const df_pass *p, int rows, int columns, float **out) {
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

dflash_status df_pass_begin(df_pass *p, dflash_draft *draft, const int32_t *pos, int rows, const int32_t *key_pos,
                            int keys, dflash_error *err) {
    *p = (df_pass){.draft = draft, .engine = draft->engine, .ops = draft->engine->ops, .c = &draft->config, .err = err};
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
dflash_status df_pass_show_rope(const df_pass *p, int rows) {
    const int half = p->c->rope.rotary_dim / 2;
    df_observe_rows(p->draft, DFLASH_STAGE_ROPE_INV_FREQ, half, 0, p->draft->inv_freq, NULL);
    TRY(show_rows(p, DFLASH_STAGE_ROPE_COS, -1, p->cos, rows, half));
    return show_rows(p, DFLASH_STAGE_ROPE_SIN, -1, p->sin, rows, half);
}

dflash_status df_take_block_rows(const df_pass *p, df_block_rows *b) {
    const dflash_config *c = p->c;
    TRY(df_pass_take(p, c->block, c->hidden, &b->n));
    if (c->family == DFLASH_FAMILY_DFLASH2) {
        TRY(df_pass_take(p, c->block, df_conv_width(c), &b->dyn));
        TRY(df_pass_take(p, c->block, c->hidden, &b->conv));
    }
    TRY(df_pass_take(p, c->block, df_query_width(c), &b->q));
    TRY(df_pass_take(p, c->block, df_query_width(c), &b->q_normed));
    TRY(df_pass_take(p, c->block, df_query_width(c), &b->q_roped));
    TRY(df_pass_take(p, c->block, df_query_width(c), &b->a));
    TRY(df_pass_take(p, c->block, c->hidden, &b->o));
    TRY(df_pass_take(p, c->block, c->hidden, &b->x_mid));
    TRY(df_pass_take(p, c->block, c->intermediate, &b->gate));
    TRY(df_pass_take(p, c->block, c->intermediate, &b->up));
    TRY(df_pass_take(p, c->block, c->intermediate, &b->act));
    TRY(df_pass_take(p, c->block, c->hidden, &b->down));
    return DFLASH_OK;
}

/* ---- Steps: each computes and shows what it made ---- */

/* y = x W^T + bias */
static dflash_status linear(const df_pass *p, dflash_stage stage, int layer, const df_matrix *w, const float *bias,
                            const float *x, int rows, float *y) {
    TRY(p->ops->matmul(p->engine, w, bias, x, rows, y, p->err));
    return show_rows(p, stage, layer, y, rows, (int)w->out);
}

/* The same for the rows that this call computes of a layer's keys or values: the context's features, then the block's
 * rows n. */
static dflash_status linear_keys(const df_pass *p, dflash_stage stage, int layer, const df_matrix *w, const float *bias,
                                 const df_layer_keys *keys, const float *n, float *y) {
    const int context = keys->context - keys->first, width = df_key_width(p->c);
    if (context > 0) TRY(p->ops->matmul(p->engine, w, bias, keys->features, context, y, p->err));
    TRY(p->ops->matmul(p->engine, w, bias, n, p->c->block, y + (size_t)context * (size_t)width, p->err));
    return show_rows(p, stage, layer, y, context + p->c->block, width);
}

/* RMSNorm over rows of the hidden size. */
static dflash_status norm(const df_pass *p, dflash_stage stage, int layer, const float *x, const float *weight,
                          int rows, float *y) {
    TRY(p->ops->rmsnorm(p->engine, x, weight, rows, p->c->hidden, p->eps, y, p->err));
    return show_rows(p, stage, layer, y, rows, p->c->hidden);
}

/* RMSNorm over each head. */
static dflash_status head_norm(const df_pass *p, dflash_stage stage, int layer, const float *x, const float *weight,
                               int rows, int heads, float *y) {
    TRY(p->ops->rmsnorm(p->engine, x, weight, rows * heads, p->c->head_dim, p->eps, y, p->err));
    return show_heads(p, stage, layer, y, rows, heads);
}

/* Rotates each head; the first row's angles are those of row `first` of the call. */
static dflash_status rotate(const df_pass *p, dflash_stage stage, int layer, const float *x, int first, int rows,
                            int heads, float *y) {
    const dflash_config *c = p->c;
    const size_t table = (size_t)first * (size_t)(c->rope.rotary_dim / 2);
    TRY(p->ops->rope(p->engine, x, p->cos + table, p->sin + table, rows, heads, c->head_dim, c->rope.rotary_dim, y,
                     p->err));
    return show_heads(p, stage, layer, y, rows, heads);
}

/* b->a = softmax attention of the block's queries over the context's keys and its own. */
static dflash_status attend(const df_pass *p, int layer, const df_block_rows *b, const df_layer_keys *keys,
                            const int32_t *pos) {
    const dflash_config *c = p->c;
    const df_attention_args attention = {.q = b->q_roped,
                                         .k = keys->k,
                                         .v = keys->v,
                                         .q_pos = pos + keys->context,
                                         .k_pos = pos,
                                         .map = p->keys,
                                         .rows = c->block,
                                         .keys = keys->context + c->block,
                                         .n_heads = c->n_heads,
                                         .n_kv_heads = c->n_kv_heads,
                                         .head_dim = c->head_dim,
                                         .window = c->layer[layer].window,
                                         .causal = c->layer[layer].causal,
                                         .out = b->a};
    TRY(p->ops->attention(p->engine, &attention, p->err));
    return show_rows(p, DFLASH_STAGE_ATTN_CONTEXT, layer, b->a, c->block, df_query_width(c));
}

/* b->act = silu(gate) * up */
static dflash_status activate(const df_pass *p, int layer, const df_block_rows *b) {
    const int rows = p->c->block, width = p->c->intermediate;
    TRY(p->ops->silu_mul(p->engine, b->gate, b->up, (size_t)rows * (size_t)width, b->act, p->err));
    return show_rows(p, DFLASH_STAGE_MLP_ACT, layer, b->act, rows, width);
}

/* sum = x + y, of the block's rows; sum may be x. */
static dflash_status add(const df_pass *p, dflash_stage stage, int layer, const float *x, const float *y, float *sum) {
    const int rows = p->c->block, hidden = p->c->hidden;
    TRY(p->ops->add(p->engine, x, y, (size_t)rows * (size_t)hidden, sum, p->err));
    return show_rows(p, stage, layer, sum, rows, hidden);
}

/* dflash2: *rows, the input of a sublayer, becomes its convolution; the kernels stay in b->dyn for convolve_output. The
 * other families have no convolution and leave *rows as it is. Context rows are never convolved. */
static dflash_status convolve_input(const df_pass *p, int layer, dflash_sublayer sublayer, const df_block_rows *b,
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
static dflash_status convolve_output(const df_pass *p, int layer, dflash_sublayer sublayer, const df_block_rows *b,
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

/* ---- The layer ---- */

dflash_status df_run_layer(const df_pass *p, int i, const df_block_rows *b, const df_layer_keys *keys,
                           const int32_t *pos, float *x) {
    const dflash_config *c = p->c;
    const df_layer_weights *w = &p->draft->weights.layer[i];
    const int rows = c->block, cached = keys->first, context = keys->context - cached, computed = context + rows;
    float *const k = keys->k + (size_t)cached * (size_t)df_key_width(c); /* the computed rows */
    float *const v = keys->v + (size_t)cached * (size_t)df_key_width(c);
    const float *n = b->n, *o = b->o, *m = b->n, *down = b->down;

    TRY(norm(p, DFLASH_STAGE_ATTN_NORM, i, x, w->input_norm, rows, b->n));
    TRY(convolve_input(p, i, DFLASH_SUBLAYER_ATTENTION, b, &n));
    TRY(linear(p, DFLASH_STAGE_ATTN_Q_PROJ, i, &w->q, w->q_bias, n, rows, b->q));
    TRY(linear_keys(p, DFLASH_STAGE_ATTN_K_PROJ, i, &w->k, w->k_bias, keys, n, keys->raw));
    TRY(linear_keys(p, DFLASH_STAGE_ATTN_V, i, &w->v, w->v_bias, keys, n, v));
    TRY(head_norm(p, DFLASH_STAGE_ATTN_Q_NORM, i, b->q, w->q_norm, rows, c->n_heads, b->q_normed));
    TRY(head_norm(p, DFLASH_STAGE_ATTN_K_NORM, i, keys->raw, w->k_norm, computed, c->n_kv_heads, keys->normed));
    TRY(rotate(p, DFLASH_STAGE_ATTN_Q_ROPE, i, b->q_normed, context, rows, c->n_heads, b->q_roped));
    TRY(rotate(p, DFLASH_STAGE_ATTN_K_ROPE, i, keys->normed, 0, computed, c->n_kv_heads, k));
    TRY(attend(p, i, b, keys, pos));
    TRY(linear(p, DFLASH_STAGE_ATTN_O_PROJ, i, &w->o, w->o_bias, b->a, rows, b->o));
    TRY(convolve_output(p, i, DFLASH_SUBLAYER_ATTENTION, b, &o));
    TRY(add(p, DFLASH_STAGE_ATTN_RESIDUAL, i, x, o, b->x_mid));

    TRY(norm(p, DFLASH_STAGE_MLP_NORM, i, b->x_mid, w->post_norm, rows, b->n));
    TRY(convolve_input(p, i, DFLASH_SUBLAYER_MLP, b, &m));
    TRY(linear(p, DFLASH_STAGE_MLP_GATE, i, &w->gate, NULL, m, rows, b->gate));
    TRY(linear(p, DFLASH_STAGE_MLP_UP, i, &w->up, NULL, m, rows, b->up));
    TRY(activate(p, i, b));
    TRY(linear(p, DFLASH_STAGE_MLP_DOWN, i, &w->down, NULL, b->act, rows, b->down));
    TRY(convolve_output(p, i, DFLASH_SUBLAYER_MLP, b, &down));
    return add(p, DFLASH_STAGE_LAYER_OUT, i, b->x_mid, down, x);
}

/* ---- Before and after the layers ---- */

dflash_status df_make_features(const df_pass *p, const float *taps, int rows, float *features) {
    const df_weights *w = &p->draft->weights;
    float *fc;
    TRY(df_pass_take(p, rows, p->c->hidden, &fc));
    TRY(linear(p, DFLASH_STAGE_CTX_FC, -1, &w->fc, NULL, taps, rows, fc));
    return norm(p, DFLASH_STAGE_CTX_FEATURES, -1, fc, w->hidden_norm, rows, features);
}

dflash_status df_start_stream(const df_pass *p, const float *noise, float **x) {
    const df_memory *memory = &p->engine->memory;
    TRY(df_pass_take(p, p->c->block, p->c->hidden, x));
    return memory->copy(memory->owner, *x, noise, (size_t)p->c->block * (size_t)p->c->hidden * sizeof **x, p->err);
}

dflash_status df_final_norm(const df_pass *p, const float *x, float *out) {
    return norm(p, DFLASH_STAGE_FINAL, -1, x, p->draft->weights.norm, p->c->block, out);
}

dflash_status df_check_context(int ctx, dflash_error *err) {
    if (ctx >= 0 && ctx <= MOST_CONTEXT) return DFLASH_OK;
    return df_fail(err, DFLASH_ERR_ARGUMENT, "context.rows", "The number of context rows must lie in 0..%d: found %d.",
                   MOST_CONTEXT, ctx);
}

dflash_status df_check_cache(const dflash_draft *draft, const dflash_kv *kv, dflash_error *err) {
    if (kv->draft == draft) return DFLASH_OK;
    return df_fail(
        err, DFLASH_ERR_ARGUMENT, "kv.foreign",
        "The cache was made for another draft model: its rows have other sizes or other weights behind them. "
        "Use dflash_kv_create with this draft.");
}

bool df_unwatched(const dflash_draft *draft) { return draft->observe == NULL && draft->replace == NULL; }
