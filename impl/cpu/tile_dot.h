/*
 * tile_dot.h - eight canonical dot products against sixteen lanes at once.
 *
 * The inner kernel of the matrix product and of the attention scores: lanes are rows (or queries), the eight outputs are
 * weight rows (or keys). Accumulators stay in registers for a segment; segment sums go through the tree of canon.h, one
 * vector a slot.
 */
#ifndef DF_CPU_TILE_DOT_H
#define DF_CPU_TILE_DOT_H

#include "canon.h"
#include "cpu/vec16.h"

enum { DF_TILE_OUTPUTS = 8 };

/* The unfinished sums of one tile: slot s holds DF_TILE_OUTPUTS vectors. */
typedef struct df_tile_sum {
    df_tree tree;
    float slot[DF_TREE_SLOTS][DF_TILE_OUTPUTS][DF_LANES];
} df_tile_sum;

/* Sum over one segment of w[o][k] x[k][lane], k < length <= DF_SEGMENT. Row o of w starts at w + o * stride. */
static inline void df_tile_segment(const float *w, size_t stride, const float *x, int length, v16 sum[DF_TILE_OUTPUTS]) {
    v16 s0 = v16_zero(), s1 = v16_zero(), s2 = v16_zero(), s3 = v16_zero();
    v16 s4 = v16_zero(), s5 = v16_zero(), s6 = v16_zero(), s7 = v16_zero();
    for (; length > 0; length--, w++, x += DF_LANES) {
        const v16 xk = v16_load(x);
        s0 = v16_fma(v16_set(w[0]), xk, s0);
        s1 = v16_fma(v16_set(w[stride]), xk, s1);
        s2 = v16_fma(v16_set(w[2 * stride]), xk, s2);
        s3 = v16_fma(v16_set(w[3 * stride]), xk, s3);
        s4 = v16_fma(v16_set(w[4 * stride]), xk, s4);
        s5 = v16_fma(v16_set(w[5 * stride]), xk, s5);
        s6 = v16_fma(v16_set(w[6 * stride]), xk, s6);
        s7 = v16_fma(v16_set(w[7 * stride]), xk, s7);
    }
    sum[0] = s0, sum[1] = s1, sum[2] = s2, sum[3] = s3, sum[4] = s4, sum[5] = s5, sum[6] = s6, sum[7] = s7;
}

static inline void df_tile_push(df_tile_sum *tile, unsigned segment, const v16 sum[DF_TILE_OUTPUTS]) {
    int top = tile->tree.depth - 1;
    for (int folds = df_tree_push(&tile->tree, segment); folds > 0; folds--, top--)
        for (int o = 0; o < DF_TILE_OUTPUTS; o++) {
            const v16 left = v16_load(tile->slot[top - 1][o]), right = v16_load(tile->slot[top][o]);
            v16_store(tile->slot[top - 1][o], v16_add(left, right));
        }
    for (int o = 0; o < DF_TILE_OUTPUTS; o++)
        v16_store(tile->slot[tile->tree.depth - 1][o], v16_add(sum[o], v16_zero()));
}

/* The value of output o, all lanes; +0 when nothing was pushed. */
static inline v16 df_tile_total(const df_tile_sum *tile, int o) {
    if (tile->tree.depth == 0) return v16_zero();
    v16 total = v16_load(tile->slot[tile->tree.depth - 1][o]);
    for (int i = tile->tree.depth - 2; i >= 0; i--) total = v16_add(v16_load(tile->slot[i][o]), total);
    return total;
}

#endif
