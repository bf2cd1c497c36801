/*
 * topk_row.h - one pass over a row of values by a block: the best key below a given one, and the first bad value.
 *
 * Shared by the top-k and the choice of a token, so that ties, NaN and infinities mean the same in both.
 */
#ifndef DF_CUDA_TOPK_ROW_H
#define DF_CUDA_TOPK_ROW_H

#include "cuda/common/cuda_ops.h"

#include <climits>
#include <cmath>

enum { DF_TOPK_THREADS = 1024 };

/* key 0: there is none. bad: the lowest column of a NaN or +infinity, INT_MAX when there is none. */
struct df_topk_found {
    uint64_t key;
    int bad;
};

/* Greater for greater values, and for lower columns among equals; 0 for what is never chosen. Both zeros are equal. */
__device__ static inline uint64_t df_topk_key(float x, int column) {
    if (!(x > -INFINITY && x < INFINITY)) return 0;
    const uint32_t bits = __float_as_uint(x + 0.0f);
    const uint32_t order = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
    return static_cast<uint64_t>(order) << 32 | (0xffffffffu - static_cast<uint32_t>(column));
}

/* The column of a key; 0 for key 0. */
__device__ static inline int32_t df_topk_column(uint64_t key) {
    return key != 0 ? static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(key)) : 0;
}

/* Called by all DF_TOPK_THREADS threads of a block, and every one of them gets the result. */
__device__ static inline df_topk_found df_topk_below(const float *row, int width, uint64_t below) {
    __shared__ df_topk_found warps[DF_TOPK_THREADS / 32];
    df_topk_found best = {0, INT_MAX};
    for (int i = static_cast<int>(threadIdx.x); i < width; i += DF_TOPK_THREADS) {
        const float x = row[i];
        const uint64_t key = df_topk_key(x, i);
        if (key < below && key > best.key) best.key = key;
        if (!(x < INFINITY) && i < best.bad) best.bad = i;
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        const uint64_t key = __shfl_xor_sync(~0u, best.key, offset);
        const int bad = __shfl_xor_sync(~0u, best.bad, offset);
        if (key > best.key) best.key = key;
        if (bad < best.bad) best.bad = bad;
    }
    __syncthreads(); /* the pass before has been read */
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = best;
    __syncthreads();
    for (int i = 0; i < DF_TOPK_THREADS / 32; i++) {
        if (warps[i].key > best.key) best.key = warps[i].key;
        if (warps[i].bad < best.bad) best.bad = warps[i].bad;
    }
    return best;
}

__device__ static inline df_choice df_topk_fault(const float *row, int bad) {
    df_choice choice = {};
    choice.fault = isnan(row[bad]) ? DF_FAULT_NAN : DF_FAULT_INFINITE;
    choice.at = bad;
    choice.value = row[bad];
    return choice;
}

#endif
