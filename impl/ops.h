/*
 * ops.h - the table of operations that a backend fills.
 *
 * The forward programs (draft.c) are written against this table alone. An operation's arithmetic for a row never
 * depends on how many rows share the call. Buffers are in the engine's memory; outputs never alias inputs unless said
 * so. An operation may use the engine's arena; the caller resets it once per forward.
 */
#ifndef DF_OPS_H
#define DF_OPS_H

#include "weights.h"

/* Which keys each query may see and where sums over keys are cut: absolute positions decide both. */
typedef struct df_attention_args {
    const float *q;               /* [rows, nh, hd], rotated */
    const float *k, *v;           /* [keys, nkv, hd], k rotated */
    const int32_t *q_pos, *k_pos; /* host memory; k_pos strictly increasing; every query sees at least one key */
    int rows, keys;
    int n_heads, n_kv_heads, head_dim;
    int window; /* 0 = none */
    bool causal;
    float *out; /* [rows, nh * hd] */
} df_attention_args;

/* One half of a grouped dynamic causal convolution over the rows of one block. */
typedef struct df_conv_args {
    const float *x;    /* [rows, hidden] */
    const float *base; /* [kernel, hidden] */
    const float *dyn;  /* row p's kernels, [kernel, hidden / group], start at dyn + p * dyn_stride */
    size_t dyn_stride;
    int rows, hidden, kernel, group; /* group divides hidden */
    float *y;                        /* [rows, hidden] */
} df_conv_args;

typedef struct df_ops {
    const char *name;

    /* y[rows, out] = x[rows, in] W^T + bias; bias [out] or NULL. Sums over `in` in canonical order (canon.h), the bias
     * added last. */
    df_status (*matmul)(df_engine *engine, const df_matrix *w, const float *bias, const float *x, int rows, float *y,
                        df_error *err);

    /* y = weight * (x * (1 / sqrt(mean(x^2) + eps))) over each of `rows` rows of n values; the sum of squares in
     * canonical order. */
    df_status (*rmsnorm)(df_engine *engine, const float *x, const float *weight, int rows, int n, float eps, float *y,
                         df_error *err);

    /* Rotates the first rotary_dim values of every head, half-split: (a, b) -> (a c - b s, b c + a s), each as
     * fma(second product, product rounded first). cos, sin [rows, rotary_dim / 2]; x, y [rows, heads, head_dim]. */
    df_status (*rope)(df_engine *engine, const float *x, const float *cos_table, const float *sin_table, int rows,
                      int heads, int head_dim, int rotary_dim, float *y, df_error *err);

    /* softmax(q k^T / sqrt(hd)) v over the visible keys. Scores and weighted sums in canonical order, the latter cut by
     * absolute position; a key that is not visible takes no part, whatever it holds. */
    df_status (*attention)(df_engine *engine, const df_attention_args *args, df_error *err);

    /* y = silu(gate) * up; y may be gate or up. */
    df_status (*silu_mul)(df_engine *engine, const float *gate, const float *up, size_t n, float *y, df_error *err);

    /* y = a + b; y may be a or b. */
    df_status (*add)(df_engine *engine, const float *a, const float *b, size_t n, float *y, df_error *err);

    /* From y[p][c] = +0, for o = 0 .. min(kernel - 1, p) in this order: y = fma(base[o][c], x[p - o][c], y), then
     * y = fma(dyn[p][o][c / group], x[p - o][c], y). Taps that would reach before row 0 take no part. */
    df_status (*conv)(df_engine *engine, const df_conv_args *args, df_error *err);

    /* y = x * scale, then, when cap > 0, y = cap tanh(y / cap), every step rounded; y may be x. */
    df_status (*scale_cap)(df_engine *engine, const float *x, size_t n, float scale, float cap, float *y,
                           df_error *err);

    /* For df_engine_probe: multiply-adds done by `tasks` tasks with operands in registers, and bytes read once from
     * memory[n]. Both return how many, and leave something in sink[max(tasks, 64)]. */
    double (*probe_fma)(df_engine *engine, int tasks, float *sink);
    double (*probe_read)(df_engine *engine, const float *memory, size_t n, float *sink);
} df_ops;

#endif
