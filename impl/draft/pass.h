/*
 * pass.h - one call over the model's layers: what the entry points (draft.c) and the ingestion (ingest.c) share.
 *
 * A step of a pass computes with the table of operations (ops.h) and shows the stage that it made to the draft's
 * observer. Statuses are those of the operations.
 */
#ifndef DF_PASS_H
#define DF_PASS_H

#include "kv/kv.h"

/* One call in progress: the model, its operations and the rotary tables of the rows it computes. */
typedef struct df_pass {
    dflash_draft *draft;
    dflash_engine *engine;
    const df_ops *ops;
    const dflash_config *c;
    dflash_error *err;
    float eps;
    float *cos, *sin; /* [rows, rotary_dim / 2], row 0 = the first row of `pos` given to pass_begin */
    df_key_map keys;  /* the positions of the keys, for the attention */
} df_pass;

/* Keys and values of one layer as the layer program sees them. Rows 0..context are the context, then B rows of the
 * block. This call computes the rows from `first` on: all of them from the features, or the block's alone when the
 * context's are cached. raw and normed are the steps before the rotation, of the computed rows. */
typedef struct df_layer_keys {
    const float *features; /* [context, H]; NULL when the context's rows are cached */
    float *raw, *normed;   /* [context + B - first, nkv * hd] */
    float *k, *v;          /* [context + B, nkv * hd] */
    int first, context;
} df_layer_keys;

/* Scratch of the block's rows, reused by every layer. */
typedef struct df_block_rows {
    float *n;                          /* [B, H] normed rows */
    float *dyn, *conv;                 /* dflash2: [B, 2, k, G] a sublayer's dynamic kernels, [B, H] convolved rows */
    float *q, *q_normed, *q_roped, *a; /* [B, nh * hd] */
    float *o, *x_mid;                  /* [B, H] */
    float *gate, *up, *act;            /* [B, F] */
    float *down;                       /* [B, H] */
} df_block_rows;

int df_query_width(const dflash_config *c); /* nh * hd */
int df_key_width(const dflash_config *c);   /* nkv * hd */

/* ---- Before a pass ---- */

/* Codes: "context.rows"; "kv.foreign". */
dflash_status df_check_context(int ctx, dflash_error *err);
dflash_status df_check_cache(const dflash_draft *draft, const dflash_kv *kv, dflash_error *err);
/* Where nobody looks at the stages, a device may run all of them as one program. */
bool df_unwatched(const dflash_draft *draft);

/* Starts a call over `rows` rows at positions `pos`. keys > 0: its attention sees that many, at positions key_pos. The
 * tables are made on the host and go to the engine's memory together. */
dflash_status df_pass_begin(df_pass *p, dflash_draft *draft, const int32_t *pos, int rows, const int32_t *key_pos,
                            int keys, dflash_error *err);
/* Scratch [rows, columns] of the call. */
dflash_status df_pass_take(const df_pass *p, int rows, int columns, float **out);
dflash_status df_take_block_rows(const df_pass *p, df_block_rows *b);

/* ---- The pass, in its order ---- */

/* Shows the rotary tables of `rows` rows. */
dflash_status df_pass_show_rope(const df_pass *p, int rows);
/* features[rows, H] = hidden_norm(fc(taps)) */
dflash_status df_make_features(const df_pass *p, const float *taps, int rows, float *features);
/* x[B, H] starts as the block's embeddings. */
dflash_status df_start_stream(const df_pass *p, const float *noise, float **x);
/* Layer `i` on the block's rows x[B, H], in place. `pos` counts the context's rows first, the block's after them. */
dflash_status df_run_layer(const df_pass *p, int i, const df_block_rows *b, const df_layer_keys *keys,
                           const int32_t *pos, float *x);
/* out[B, H] = norm(x) */
dflash_status df_final_norm(const df_pass *p, const float *x, float *out);

#endif
