/*
 * reference.c - the operations of ops.h written to be read: one loop a definition, in the canonical order, on one
 * thread. `--isa reference` runs a drafter on them, and every faster backend of the exact class must have their bits.
 *
 * The tree over segments is evaluated here by recursion, as canon.h defines it, and not by the stack that canon.h
 * offers to the others. Elementary functions are mathfn.h's, which define the class. The operations from rows to tokens
 * have one plain text, cpu/heads.c.
 */
#include "cpu/cpu_ops.h"

#include "common/canon.h"
#include "common/error.h"
#include "common/mathfn.h"
#include "weights/quant.h"

#include <math.h>
#include <string.h>

/* ---- Sums ---- */

/* The terms a[i] b[i] of a sum; `place` (NULL: i) is the place of a term in the canonical order and only grows. */
typedef struct terms {
    const float *a, *b; /* b NULL: ones */
    size_t stride_b;
    const int32_t *place;
    int count, next; /* next: the first that has not been added */
} terms;

static int64_t segment_of_next(const terms *t) { return (t->place != NULL ? t->place[t->next] : t->next) / DF_SEGMENT; }

/* The node that covers segments [first, first + 2^level). False: it has no terms. */
static bool node(terms *t, int64_t first, int level, float *value) {
    if (t->next == t->count || segment_of_next(t) >= first + ((int64_t)1 << level)) return false;
    if (level == 0) {
        float sum = 0.0f;
        for (; t->next < t->count && segment_of_next(t) == first; t->next++)
            sum = t->b != NULL ? fmaf(t->a[t->next], t->b[(size_t)t->next * t->stride_b], sum) : sum + t->a[t->next];
        *value = sum + 0.0f;
        return true;
    }
    float left, right;
    const bool has_left = node(t, first, level - 1, &left);
    const bool has_right = node(t, first + ((int64_t)1 << (level - 1)), level - 1, &right);
    *value = has_left && has_right ? left + right : has_left ? left : right;
    return has_left || has_right;
}

static float canonical_sum(const float *a, const float *b, size_t stride_b, const int32_t *place, int count) {
    terms t = {a, b, stride_b, place, count, count - 1};
    float value = 0.0f;
    int level = 0;
    while (count > 0 && segment_of_next(&t) >> level != 0) level++; /* the root covers the last segment */
    t.next = 0;
    node(&t, 0, level, &value);
    return value;
}

/* ---- Products ---- */

static void widen_row(const df_matrix *w, int64_t row, float *out) {
    const unsigned char *from = (const unsigned char *)w->data + (size_t)row * df_row_bytes(w->dtype, w->in);
    for (int64_t i = 0; i < w->in; i++) {
        uint16_t half;
        switch (w->dtype) {
        case DF_F32:
            memcpy(&out[i], from + (size_t)i * sizeof *out, sizeof *out);
            break;
        case DF_F16:
        case DF_BF16:
            memcpy(&half, from + (size_t)i * sizeof half, sizeof half);
            out[i] = w->dtype == DF_F16 ? df_f16_to_f32(half) : df_bf16_to_f32(half);
            break;
        case DF_Q8_0:
        case DF_Q4_0:
            if (i % DF_QUANT_BLOCK != 0) break;
            if (w->dtype == DF_Q8_0)
                df_q8_0_decode(from + df_row_bytes(DF_Q8_0, i), &out[i]);
            else
                df_q4_0_decode(from + df_row_bytes(DF_Q4_0, i), &out[i]);
            break;
        }
    }
}

static void round_operands(dflash_products products, float *value, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        value[i] = products == DFLASH_PRODUCTS_TF32   ? df_round_to_tf32(value[i])
                   : products == DFLASH_PRODUCTS_BF16 ? df_round_to_bf16(value[i])
                                                      : value[i];
}

static dflash_status matmul(dflash_engine *engine, const df_matrix *w, const float *bias, const float *x, int rows,
                            float *y, dflash_error *err) {
    const df_arena_mark mark = df_arena_get_mark(&engine->arena);
    float *weights = df_arena_floats(&engine->arena, 2 * (size_t)w->in, err), *row = weights + w->in;
    if (weights == NULL) return DFLASH_ERR_MEMORY;
    for (int64_t o = 0; o < w->out; o++) {
        widen_row(w, o, weights);
        round_operands(engine->options.products, weights, w->in);
        for (int r = 0; r < rows; r++) {
            memcpy(row, x + (size_t)r * (size_t)w->in, (size_t)w->in * sizeof *row);
            round_operands(engine->options.products, row, w->in);
            const float sum = canonical_sum(weights, row, 1, NULL, (int)w->in);
            y[(size_t)r * (size_t)w->out + (size_t)o] = bias != NULL ? sum + bias[o] : sum;
        }
    }
    df_arena_rewind(&engine->arena, mark);
    return DFLASH_OK;
}

/* ---- Norms and rotation ---- */

static dflash_status rmsnorm(dflash_engine *engine, const float *x, const float *weight, int rows, int n, float eps,
                             float *y, dflash_error *err) {
    (void)engine;
    (void)err;
    for (int r = 0; r < rows; r++, x += n, y += n) {
        const float scale = 1.0f / sqrtf(canonical_sum(x, x, 1, NULL, n) / (float)n + eps);
        for (int i = 0; i < n; i++) y[i] = weight[i] * (x[i] * scale);
    }
    return DFLASH_OK;
}

static dflash_status rope(dflash_engine *engine, const float *x, const float *cos_table, const float *sin_table,
                          int rows, int heads, int head_dim, int rotary_dim, float *y, dflash_error *err) {
    const int half = rotary_dim / 2;
    (void)engine;
    (void)err;
    for (int i = 0; i < rows * heads; i++, x += head_dim, y += head_dim) {
        const float *c = cos_table + (size_t)(i / heads) * (size_t)half,
                    *s = sin_table + (size_t)(i / heads) * (size_t)half;
        for (int d = 0; d < half; d++) {
            y[d] = fmaf(x[d], c[d], -(x[d + half] * s[d]));
            y[d + half] = fmaf(x[d + half], c[d], x[d] * s[d]);
        }
        for (int d = rotary_dim; d < head_dim; d++) y[d] = x[d];
    }
    return DFLASH_OK;
}

/* ---- Attention ---- */

static bool sees(const df_attention_args *a, int64_t query, int64_t key) {
    if (a->causal && key > query) return false;
    return a->window == 0 || (query - key < a->window && key - query < a->window);
}

/* One query head: p[keys] and at[keys] are scratch. The keys that a query sees are neighbours, because positions grow.
 */
static void attend(const df_attention_args *a, int row, int head, float *p, int32_t *at) {
    const size_t stride = (size_t)a->n_kv_heads * (size_t)a->head_dim, hd = (size_t)a->head_dim;
    const size_t kv = (size_t)(head / (a->n_heads / a->n_kv_heads)) * hd;
    const float *q = a->q + ((size_t)row * (size_t)a->n_heads + (size_t)head) * hd;
    float *out = a->out + ((size_t)row * (size_t)a->n_heads + (size_t)head) * hd, most = -INFINITY;
    int n = 0, first = 0;
    for (int key = 0; key < a->keys; key++) {
        if (!sees(a, a->q_pos[row], a->k_pos[key])) continue;
        p[n] = canonical_sum(a->k + (size_t)key * stride + kv, q, 1, NULL, a->head_dim) *
               (1.0f / sqrtf((float)a->head_dim));
        most = p[n] > most ? p[n] : most;
        if (n == 0) first = key;
        at[n++] = a->k_pos[key];
    }
    for (int i = 0; i < n; i++) p[i] = df_exp(p[i] - most);
    const float denominator = canonical_sum(p, NULL, 0, at, n);
    for (size_t d = 0; d < hd; d++)
        out[d] = canonical_sum(p, a->v + (size_t)first * stride + kv + d, stride, at, n) / denominator;
}

static dflash_status attention(dflash_engine *engine, const df_attention_args *a, dflash_error *err) {
    const df_arena_mark mark = df_arena_get_mark(&engine->arena);
    float *scratch = df_arena_floats(&engine->arena, 2 * (size_t)a->keys, err);
    if (scratch == NULL) return DFLASH_ERR_MEMORY;
    int32_t *at = (int32_t *)(void *)(scratch + a->keys);
    for (int row = 0; row < a->rows; row++)
        for (int head = 0; head < a->n_heads; head++) attend(a, row, head, scratch, at);
    df_arena_rewind(&engine->arena, mark);
    return DFLASH_OK;
}

/* ---- Element by element ---- */

static dflash_status silu_mul(dflash_engine *engine, const float *gate, const float *up, size_t n, float *y,
                              dflash_error *err) {
    (void)engine;
    (void)err;
    for (size_t i = 0; i < n; i++) y[i] = df_silu(gate[i]) * up[i];
    return DFLASH_OK;
}

static dflash_status add(dflash_engine *engine, const float *a, const float *b, size_t n, float *y, dflash_error *err) {
    (void)engine;
    (void)err;
    for (size_t i = 0; i < n; i++) y[i] = a[i] + b[i];
    return DFLASH_OK;
}

static dflash_status scale_cap(dflash_engine *engine, const float *x, size_t n, float scale, float cap, float *y,
                               dflash_error *err) {
    (void)engine;
    (void)err;
    for (size_t i = 0; i < n; i++) y[i] = cap > 0.0f ? cap * df_tanh(x[i] * scale / cap) : x[i] * scale;
    return DFLASH_OK;
}

static dflash_status conv(dflash_engine *engine, const df_conv_args *a, dflash_error *err) {
    (void)engine;
    (void)err;
    const int groups = a->hidden / a->group;
    for (int row = 0; row < a->rows; row++)
        for (int c = 0; c < a->hidden; c++) {
            float y = 0.0f;
            for (int o = 0; o < a->kernel && o <= row; o++) {
                const float x = a->x[(size_t)(row - o) * (size_t)a->hidden + (size_t)c];
                const float dynamic =
                    a->dyn[(size_t)row * a->dyn_stride + (size_t)o * (size_t)groups + (size_t)(c / a->group)];
                y = fmaf(a->base[(size_t)o * (size_t)a->hidden + (size_t)c], x, y);
                y = fmaf(dynamic, x, y);
            }
            a->y[(size_t)row * (size_t)a->hidden + (size_t)c] = y;
        }
    return DFLASH_OK;
}

const df_ops df_reference_ops = {.name = "reference",
                                 .matmul = matmul,
                                 .rmsnorm = rmsnorm,
                                 .rope = rope,
                                 .attention = attention,
                                 .silu_mul = silu_mul,
                                 .add = add,
                                 .conv = conv,
                                 .scale_cap = scale_cap,
                                 .gather = df_cpu_gather,
                                 .topk = df_cpu_topk,
                                 .choose = df_cpu_choose,
                                 .score = df_cpu_score,
                                 .markov_gate = df_cpu_markov_gate,
                                 .markov_cell = df_cpu_markov_cell,
                                 .probe_fma = df_cpu_probe_fma_generic,
                                 .probe_read = df_cpu_probe_read_generic};
