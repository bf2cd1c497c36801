/*
 * ops.h - the table of operations that a backend fills.
 *
 * The forward programs (draft.c) are written against this table alone. An operation's arithmetic for a row never
 * depends on how many rows share the call. Buffers are in the engine's memory; outputs never alias inputs unless said
 * so. An operation may use the engine's arena; the caller resets it once per forward.
 */
#ifndef DF_OPS_H
#define DF_OPS_H

#include "weights/weights.h"

/* The keys of one call, in the engine's memory: what a device needs of their positions. */
typedef struct df_key_map {
    const int32_t *pos;           /* [keys] */
    const int32_t *segment_first; /* [segments + 1] key rows at which the segments of canon.h start, then keys */
    int segments;                 /* that hold a key */
} df_key_map;

/* Which keys each query may see and where sums over keys are cut: absolute positions decide both. */
typedef struct df_attention_args {
    const float *q;               /* [rows, nh, hd], rotated */
    const float *k, *v;           /* [keys, nkv, hd], k rotated */
    const int32_t *q_pos, *k_pos; /* host memory; k_pos strictly increasing; every query sees at least one key */
    df_key_map map;               /* the queries are the last `rows` keys; only a device reads it */
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

/*
 * What came of one slot. An operation that meets a bad row may refuse it at once, or record the fault here and go on
 * with any token: the caller reads the choices of a call together and reports the first fault (choice.h).
 */
typedef enum df_fault {
    DF_FAULT_NONE = 0,
    DF_FAULT_NAN,      /* at `at` */
    DF_FAULT_INFINITE, /* at `at` */
    DF_FAULT_FEW,      /* only `at` finite values for k candidates, or for one choice */
    DF_FAULT_DRAW      /* nothing can be drawn with the uniform number in `value` */
} df_fault;

typedef struct df_choice {
    int32_t fault, at;
    int32_t index, token; /* column of the row, and its id */
    float share;          /* its softmax share, where asked for */
    float value;          /* as it is found: a NaN or +infinity of a fault */
} df_choice;

typedef struct df_topk_args {
    const float *rows; /* [n, width] */
    const int32_t *ids;
    int n, width, k;
    const char *what;  /* names the rows in messages */
    float *value;      /* [n, k] */
    int32_t *id;       /* [n, k] */
    df_choice *choice; /* [n]; fault and at */
} df_topk_args;

typedef struct df_choose_args {
    const float *rows; /* [n, width] */
    const int32_t *ids;
    int n, width;
    const char *what;
    int first_slot;       /* of row 0: its number in messages, and its place in uniform */
    float temperature;    /* 0: greedy */
    const float *uniform; /* host memory, by slot; sampled only */
    bool share;           /* the choices' shares are wanted */
    float *probability;   /* [n, width] the distribution, when sampled or share; may be NULL when neither */
    df_choice *choice;    /* [n] */
} df_choose_args;

typedef struct df_score_args {
    const df_matrix *predecessor, *successor; /* [V, r] */
    const int32_t *prev;                      /* one id, the engine's memory like all below */
    const int32_t *candidate;                 /* [k]; ids outside the tables as for gather */
    const float *value, *hidden;              /* [k], [r] */
    int k, rank;
    float *score; /* [k] */
} df_score_args;

/* One block over a cache: what run_layer does for every layer of draft.c, and the last norm. */
typedef struct df_round_args {
    const dflash_config *config;
    const df_weights *weights;
    const float *noise;     /* [B, H] */
    const float *cos, *sin; /* [B, rotary_dim / 2] */
    const int32_t *key_pos; /* host memory, [keys]: the context's, then the block's */
    df_key_map map;
    int keys;
    float *k, *v;        /* layer i's rows start at i * layer_stride; the block's are the last */
    size_t layer_stride; /* in floats */
    float *out;          /* [B, H] */
} df_round_args;

/* Context rows into a cache: what dflash_ingest_taps or dflash_ingest_ctx of draft.c do. */
typedef struct df_ingest_args {
    const dflash_config *config;
    const df_weights *weights;
    const float *taps;      /* [rows, T H]; NULL: the features are given */
    const float *features;  /* [rows, H] */
    const float *cos, *sin; /* [rows, rotary_dim / 2] */
    int rows;
    float *k, *v;        /* the rows' places in layer 0; layer i's are i * layer_stride behind */
    size_t layer_stride; /* in floats */
} df_ingest_args;

typedef struct df_ops {
    const char *name;

    /* y[rows, out] = x[rows, in] W^T + bias; bias [out] or NULL. Sums over `in` in canonical order (canon.h), the bias
     * added last. */
    dflash_status (*matmul)(dflash_engine *engine, const df_matrix *w, const float *bias, const float *x, int rows,
                            float *y, dflash_error *err);

    /* y = weight * (x * (1 / sqrt(mean(x^2) + eps))) over each of `rows` rows of n values; the sum of squares in
     * canonical order. */
    dflash_status (*rmsnorm)(dflash_engine *engine, const float *x, const float *weight, int rows, int n, float eps,
                             float *y, dflash_error *err);

    /* Rotates the first rotary_dim values of every head, half-split: (a, b) -> (a c - b s, b c + a s), each as
     * fma(second product, product rounded first). cos, sin [rows, rotary_dim / 2]; x, y [rows, heads, head_dim]. */
    dflash_status (*rope)(dflash_engine *engine, const float *x, const float *cos_table, const float *sin_table,
                          int rows, int heads, int head_dim, int rotary_dim, float *y, dflash_error *err);

    /* softmax(q k^T / sqrt(hd)) v over the visible keys. Scores and weighted sums in canonical order, the latter cut by
     * absolute position; a key that is not visible takes no part, whatever it holds. */
    dflash_status (*attention)(dflash_engine *engine, const df_attention_args *args, dflash_error *err);

    /* y = silu(gate) * up; y may be gate or up. */
    dflash_status (*silu_mul)(dflash_engine *engine, const float *gate, const float *up, size_t n, float *y,
                              dflash_error *err);

    /* y = a + b; y may be a or b. */
    dflash_status (*add)(dflash_engine *engine, const float *a, const float *b, size_t n, float *y, dflash_error *err);

    /* From y[p][c] = +0, for o = 0 .. min(kernel - 1, p) in this order: y = fma(base[o][c], x[p - o][c], y), then
     * y = fma(dyn[p][o][c / group], x[p - o][c], y). Taps that would reach before row 0 take no part. */
    dflash_status (*conv)(dflash_engine *engine, const df_conv_args *args, dflash_error *err);

    /* y = x * scale, then, when cap > 0, y = cap tanh(y / cap), every step rounded; y may be x. */
    dflash_status (*scale_cap)(dflash_engine *engine, const float *x, size_t n, float scale, float cap, float *y,
                               dflash_error *err);

    /* out row i = row ids[i] of the table, widened, times scale; rows of `out` are `stride` floats apart. `ids` is in
     * the engine's memory; an id outside the table stands for row 0, so that a choice that is refused later reads
     * nothing else. */
    dflash_status (*gather)(dflash_engine *engine, const df_matrix *table, const int32_t *ids, int n, float scale,
                            float *out, size_t stride, dflash_error *err);

    /* The k best values of each of n rows (topk.h), then their columns by way of `ids` (NULL: as they are). A row that
     * has none is refused here or in its choice: see df_choice. */
    dflash_status (*topk)(dflash_engine *engine, const df_topk_args *args, dflash_error *err);

    /* One token from each of n rows (slot.h). */
    dflash_status (*choose)(dflash_engine *engine, const df_choose_args *args, dflash_error *err);

    /* The selector's scores of one slot (selector.h). */
    dflash_status (*score)(dflash_engine *engine, const df_score_args *args, dflash_error *err);

    /* The Markov head's own steps (markov.h): embedding[r] becomes sigmoid(gate) * embedding; or, from joint[3r],
     * state[r] becomes the new state and embedding[r] tanh of the last third. */
    dflash_status (*markov_gate)(dflash_engine *engine, const float *gate, int rank, float *embedding,
                                 dflash_error *err);
    dflash_status (*markov_cell)(dflash_engine *engine, const float *joint, int rank, float *state, float *embedding,
                                 dflash_error *err);

    /* A whole round, for a device that has a program for it: the bits are those of the operations above, in the order
     * of draft.c. *done false: nothing was done, this round is not covered. NULL: none is. */
    dflash_status (*round)(dflash_engine *engine, const df_round_args *args, bool *done, dflash_error *err);
    /* Likewise for rows of the context. */
    dflash_status (*ingest)(dflash_engine *engine, const df_ingest_args *args, bool *done, dflash_error *err);

    /* A device's own dflash_engine_probe; NULL where the two functions below serve. */
    dflash_status (*probe)(dflash_engine *engine, dflash_machine *out, dflash_error *err);

    /* For dflash_engine_probe: multiply-adds done by `tasks` tasks with operands in registers, and bytes read once from
     * memory[n]. Both return how many, and leave something in sink[max(tasks, 64)]. */
    double (*probe_fma)(dflash_engine *engine, int tasks, float *sink);
    double (*probe_read)(dflash_engine *engine, const float *memory, size_t n, float *sink);
} df_ops;

#endif
