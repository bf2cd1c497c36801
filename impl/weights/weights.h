/*
 * weights.h - the tensors of a checkpoint bound to their roles.
 *
 * The census is closed both ways: every tensor that the family needs is present with an allowed dtype and the right
 * shape, every tensor present is consumed (or ignored by rule: embed_tokens., lm_head., rotary_emb.), and every value
 * is finite. Matrices stay in the file's own width, in the mapping, unless a precision mode holds them in another (see
 * precision.h): those are converted into memory of their own. Vectors (norms, biases, base kernels) are widened to
 * float32, which is exact.
 */
#ifndef DF_WEIGHTS_H
#define DF_WEIGHTS_H

#include "common/pool.h"
#include "common/memory.h"
#include "weights/safetensors.h"

/* W[out, in] of y = x W^T, row-major in the width it is held in; a row has df_row_bytes(dtype, in) bytes. */
typedef struct df_matrix {
    df_dtype dtype;
    int64_t out, in;
    const void *data;
} df_matrix;

/* dflash2 grouped dynamic causal convolution. G = H / group. */
typedef struct df_conv_weights {
    const float *base;    /* [2, k, H] */
    df_matrix projection; /* [2 k G, H] */
} df_conv_weights;

typedef struct df_layer_weights {
    const float *input_norm, *post_norm;            /* [H] */
    df_matrix q, k, v, o;                           /* [nh hd, H], [nkv hd, H] twice, [H, nh hd] */
    const float *q_bias, *k_bias, *v_bias, *o_bias; /* NULL unless attention_bias */
    const float *q_norm, *k_norm;                   /* [hd] */
    df_matrix gate, up, down;                       /* [F, H] twice, [H, F] */
    df_conv_weights attn_conv, mlp_conv;            /* dflash2 only */
} df_layer_weights;

typedef struct df_weights {
    df_safetensors *file;            /* owned; matrices in the file's width point into it */
    void *converted;                 /* owned; matrices in another width point into it */
    size_t bytes;                    /* of all matrices and vectors as they are held */
    float *vectors;                  /* owned; every const float * points into it */
    bool *used;                      /* owned; by tensor index of file */
    void *device;                    /* owned, in *memory; NULL when the engine's memory is the host's */
    const df_memory *memory;         /* of the engine, which outlives the weights */
    df_matrix fc;                    /* [H, T H] */
    const float *hidden_norm, *norm; /* [H] */
    df_layer_weights *layer;         /* owned, [L] */
    /* dflash2 selector */
    df_matrix selector_projection;    /* [r, H] */
    df_matrix predecessor, successor; /* [V, r] */
    /* dspark heads */
    df_matrix markov_w1, markov_w2;                    /* [V, r] */
    df_matrix markov_gate, markov_joint;               /* [r, H + r], [3r, 2r + H] */
    const float *markov_gate_bias, *markov_joint_bias; /* [r], [3r] */
    df_matrix confidence;                              /* [1, H] or [1, H + r] */
    const float *confidence_bias;                      /* [1] or NULL */
} df_weights;

/* Opens and binds DIR/model.safetensors for `config`. On failure *out is empty. */
dflash_status df_weights_load(const char *path, const dflash_config *config, df_weights *out, dflash_error *err);
/* The same in a precision mode. `pool` shares the work of converting; DFLASH_PRECISION_STORED needs none (NULL). */
dflash_status df_weights_load_as(const char *path, const dflash_config *config, dflash_precision precision,
                                 df_pool *pool, df_weights *out, dflash_error *err);
/*
 * Copies everything that is multiplied, added or gathered to an engine's memory, each matrix in its own width, and lets
 * go of the host's converted copies; the mapping stays, because the tensors' bytes are still asked for. Every matrix
 * and vector then points there. Does nothing when `memory` is the host's.
 */
dflash_status df_weights_place(df_weights *weights, const dflash_config *config, const df_memory *memory,
                               dflash_error *err);
void df_weights_release(df_weights *weights);

#endif
