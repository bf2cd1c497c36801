/*
 * program.h - a forward program as a list of phases, which one persistent kernel walks through.
 *
 * All blocks of the kernel do a share of every phase and meet at a barrier of the whole grid before the next, so a
 * round of all layers is one launch. Both classes run the same list; they differ in how activations are packed and in
 * the two product kernels (product_exact.cuh, product_fast.cuh). round.cu and ingest.cu make the lists; the phases'
 * arithmetic is stated where it is written.
 *
 * Widths of rows: R is 8 or 16, the rows of a block padded with zeros.
 *   act      exact [in, R] float32, channel by channel; fast: see product_fast.cuh. Channels are padded to a multiple
 *            of 64 with zeros.
 *   partial  [tiles, groups, 256, R]: what a group of consecutive segments adds to 256 outputs. Whoever reads it adds
 *            the groups up in the binary tree of canon.h.
 */
#ifndef DF_CUDA_PROGRAM_H
#define DF_CUDA_PROGRAM_H

#include "engine/ops.h"

enum {
    DC_TILE = 256,         /* outputs of a tile of weights */
    DC_ITEM_CHANNELS = 64, /* channels that a block finishes at a time: one segment */
    DC_PARTS = 12,         /* matrices that share an input and a product phase */
    DC_QUERIES = 64,       /* queries of an attention item */
    DC_MOST_HEAD = 128,
    DC_MOST_SEGMENTS = 128,      /* of a normed row */
    DC_MOST_DYN = 32,            /* kernel taps times groups that 64 channels meet */
    DC_MOST_SHARES = 160,        /* segments of keys times heads that 64 channels meet, fast attention */
    DC_MOST_KEY_SEGMENTS = 1984, /* of keys, exact attention, from a multiple of 1024 on: see dc_context_exact */
    DC_ARRIVALS = 1024,
    DC_FAST_RUN = 8, /* segments of a group, fast class */
    DC_EXACT_RUN = 4 /* the least, exact class: one for each pair of warps */
};

typedef enum dc_kind {
    DC_LOAD = 0, /* x = noise, and the sums of squares of its segments; which keys each row sees */
    DC_SEEN,     /* which keys each row sees, alone */
    DC_NORM,     /* act = weight * (x * scale) */
    DC_CONV,     /* act = conv(weight * (x * scale)) */
    DC_COPY,     /* act = x; NULL: the frame's input */
    DC_PRODUCT,  /* partial = act W^T */
    DC_QKV,      /* q, and the block's rows of k and v */
    DC_CACHE,    /* k and v of `n` layers from `layer` on, into the cache */
    DC_SCORES,   /* q k / sqrt(hd) of a segment of keys, and their largest */
    DC_VALUES,   /* exp(score - largest) v of a segment of keys */
    DC_ATTEND,   /* fast: both at once, with the largest of the segment */
    DC_CONTEXT,  /* act, or y where the caller wants it, = what the segments of keys add up to */
    DC_SILU,     /* act = silu(gate) * up */
    DC_RESIDUAL, /* y = x + conv(o) or x + o, and the sums of squares of its segments; x NULL: 0 */
    DC_FINAL,    /* y = weight * (x * scale) */
    DC_STORE     /* y = the sums + bias */
} dc_kind;

/* A product's result: add the groups up, then the bias. */
typedef struct dc_sum {
    const float *partial;
    const float *bias; /* or NULL */
    int groups;
} dc_sum;

/* W packed for a class (pack.cu). */
typedef struct dc_part {
    const void *data;
    const void *scale; /* block formats: their scales */
    int out, tiles;
} dc_part;

typedef struct dc_product {
    dc_part part[DC_PARTS];
    int parts, tiles;    /* of all parts */
    int segments;        /* of the input channels */
    int run, groups;     /* segments of a group; groups of the input */
    int dtype;           /* df_dtype */
    int first_work_item; /* work items of the products before, so that blocks take turns */
    float *partial;
} dc_product;

typedef struct dc_phase {
    int kind, layer;
    int n; /* channels */
    dc_product product;
    dc_sum a, b, c;                /* sums that the phase reads: o or down; gate and up; q, k and v */
    const float *weight, *weight2; /* [n] of a norm; of q and k */
    const float *x;                /* [B, n] */
    float *y;                      /* [B, n] */
    dc_sum dyn;                    /* dflash2: kernels, by (half * taps + o) * G + g; partial NULL: no convolution */
    const float *base;             /* [taps, n] */
    int half;
    float *k, *v; /* the layer's first row in the cache */
    int window, causal;
} dc_phase;

typedef struct dc_visibility {
    int window, causal;
} dc_visibility;

/* What makes a layer's rows of the cache. */
typedef struct dc_cached {
    dc_sum k, v;
    const float *norm; /* [hd] */
} dc_cached;

typedef struct dc_frame {
    const dc_phase *phase; /* device memory */
    int phases;
    int rows, hidden;
    int n_heads, n_kv_heads, head_dim, rotary_half, layers;
    int taps, conv_groups, conv_group;
    float eps, score_scale;
    const float *cos, *sin; /* [rows, rotary_half] */
    const int32_t *pos, *segment_first;
    int keys, key_segments, first_key_segment; /* absolute number of the first */
    void *act;
    float *ss;                       /* [H / 64, R] */
    const dc_visibility *visibility; /* [L] */
    int32_t *seen;                   /* [L, 2, R]: first key and end of what a row sees */
    float *q;                        /* [R, nh * hd] */
    float *score, *largest;          /* [items, 64 keys, 64 queries], [items, 64] */
    float *context, *total;          /* [items, 64, hd], [items, 64] */
    const float *input;              /* [rows, n] of DC_COPY */
    const dc_cached *cached;         /* [L] */
    float *cache_k, *cache_v;        /* the first row's place in layer 0 */
    size_t layer_stride;             /* in floats */
    unsigned *arrived; /* [DC_ARRIVALS] zero at launch: the grid's barrier; blocks on each multiprocessor */
} dc_frame;

#endif
