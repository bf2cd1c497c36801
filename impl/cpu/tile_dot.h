/*
 * tile_dot.h - eight canonical dot products against sixteen lanes at once.
 *
 * The inner kernel of the matrix product and of the attention scores: lanes are rows (or queries), the eight outputs
 * are weight rows (or keys). Accumulators stay in registers for a segment; segment sums go through the tree of canon.h,
 * one vector a slot.
 */
#ifndef DF_CPU_TILE_DOT_H
#define DF_CPU_TILE_DOT_H

#include "common/canon.h"
#include "cpu/vec16.h"

enum { DF_TILE_OUTPUTS = 8 };

/* The unfinished sums of one tile: slot s holds DF_TILE_OUTPUTS vectors. */
typedef struct df_tile_sum {
    df_tree tree;
    _Alignas(64) float slot[DF_TREE_SLOTS][DF_TILE_OUTPUTS][DF_LANES];
} df_tile_sum;

static inline void df_tile_zero(v16 sum[DF_TILE_OUTPUTS]) {
    for (int o = 0; o < DF_TILE_OUTPUTS; o++) sum[o] = v16_zero();
}

/* How a stretch of a row of w lies in memory: channel by channel, or (32 channels only) the even ones before the odd.
 */
typedef enum df_tile_order { DF_TILE_IN_ORDER = 0, DF_TILE_SPLIT } df_tile_order;

/* sum[o] = fma(w[o][k], x[k], sum[o]) for k < length in order. Row o of w starts at w + o * stride. */
static inline __attribute__((always_inline)) void df_tile_run(const float *w, size_t stride, const float *x, int length,
                                                              df_tile_order order, v16 *sum) {
    v16 s[V16_OUTPUTS]; /* as many chains as the registers hold */
    for (int o = 0; o < V16_OUTPUTS; o++) s[o] = sum[o];
#pragma GCC unroll 4
    for (int k = 0; k < length; k++) {
        const v16 xk = v16_load(x + (size_t)k * DF_LANES);
        const float *wk = w + (order == DF_TILE_SPLIT ? k / 2 + k % 2 * 16 : k);
#pragma GCC unroll 8
        for (int o = 0; o < V16_OUTPUTS; o++) s[o] = v16_fma(v16_set(wk[(size_t)o * stride]), xk, s[o]);
    }
    for (int o = 0; o < V16_OUTPUTS; o++) sum[o] = s[o];
}

/* The same for all eight outputs; 32 channels, the usual case, get a constant trip count. */
static inline __attribute__((always_inline)) void df_tile_accumulate(const float *w, size_t stride, const float *x,
                                                                     int length, df_tile_order order,
                                                                     v16 sum[DF_TILE_OUTPUTS]) {
    for (int o = 0; o < DF_TILE_OUTPUTS; o += V16_OUTPUTS) {
        if (length == 32 && order == DF_TILE_SPLIT)
            df_tile_run(w + (size_t)o * stride, stride, x, 32, DF_TILE_SPLIT, sum + o);
        else if (length == 32)
            df_tile_run(w + (size_t)o * stride, stride, x, 32, DF_TILE_IN_ORDER, sum + o);
        else
            df_tile_run(w + (size_t)o * stride, stride, x, length, DF_TILE_IN_ORDER, sum + o);
    }
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

/*
 * The same for segments 0, 1, 2, ... without a gap. Then a node is complete as soon as its last segment comes, which
 * ends in as many ones as there are levels to climb, so the sum is folded while it is still in registers. The tree is
 * the same.
 */
static inline __attribute__((always_inline)) void df_tile_push_next(df_tile_sum *tile, unsigned segment,
                                                                    v16 sum[DF_TILE_OUTPUTS]) {
    for (int o = 0; o < DF_TILE_OUTPUTS; o++) sum[o] = v16_add(sum[o], v16_zero());
    for (; (segment & 1u) != 0; segment >>= 1) {
        tile->tree.depth--;
        for (int o = 0; o < DF_TILE_OUTPUTS; o++) sum[o] = v16_add(v16_load(tile->slot[tile->tree.depth][o]), sum[o]);
    }
    for (int o = 0; o < DF_TILE_OUTPUTS; o++) v16_store(tile->slot[tile->tree.depth][o], sum[o]);
    tile->tree.depth++;
}

/* The value of output o, all lanes; +0 when nothing was pushed. */
static inline v16 df_tile_total(const df_tile_sum *tile, int o) {
    if (tile->tree.depth == 0) return v16_zero();
    v16 total = v16_load(tile->slot[tile->tree.depth - 1][o]);
    for (int i = tile->tree.depth - 2; i >= 0; i--) total = v16_add(v16_load(tile->slot[i][o]), total);
    return total;
}

#endif
