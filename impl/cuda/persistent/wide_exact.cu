/*
 * wide_exact.cu - products of many rows in the canonical order.
 *
 * A block owns 128 outputs and 64 rows, a thread 8 of each: 64 chains in registers. Sixteen channels at a time come
 * through registers into shared memory, channel by channel, while the ones before are multiplied; after each segment
 * the chains enter the tree of canon.h.
 */
#include "cuda/common/chain_sums.cuh"
#include "cuda/persistent/persistent_parts.h"

namespace {

enum {
    OUTPUTS = 128,
    ROWS = 64,
    THREADS = 128,
    STEP = 16,
    EACH = 8,
    HALF = EACH / 2,
    CHAINS = EACH * EACH,
    DEPTH = 11 /* what a product is that fits the persistent kernel: 1920 segments */
};

struct product {
    df_dtype dtype;
    const unsigned char *w;
    size_t stride; /* bytes of a row of w */
    int out, in;
    const float *bias, *x;
    int rows;
    float *y;
};

/* What a thread carries from global to shared memory: a step of one output, half a step of one row. */
struct cargo {
    float w[STEP], x[STEP / 2];
};

/* VECTORS: bf16 whose rows start on 16 bytes and hold whole steps of 8 channels. */
template <bool VECTORS> __device__ __forceinline__ void fetch(cargo &c, const product &p, int o, int row, int k) {
    const bool there = o < p.out, row_there = row < p.rows;
    const unsigned char *from = p.w + (size_t)(there ? o : 0) * p.stride;
#pragma unroll
    for (int i = 0; i < STEP; i += 8) {
        if (VECTORS) {
            uint4 v = make_uint4(0, 0, 0, 0);
            if (there && k + i < p.in) v = __ldg(reinterpret_cast<const uint4 *>(from + 2 * (size_t)(k + i)));
            const unsigned word[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                c.w[i + 2 * j] = __uint_as_float(word[j] << 16);
                c.w[i + 2 * j + 1] = __uint_as_float(word[j] & 0xffff0000u);
            }
        } else {
#pragma unroll
            for (int j = i; j < i + 8; j++)
                c.w[j] = there && k + j < p.in ? df_cuda_weight(p.dtype, from, k + j) : 0.0f;
        }
    }
    const int first = k + (int)threadIdx.x % 2 * (STEP / 2);
    const float *x = p.x + (size_t)(row_there ? row : 0) * (size_t)p.in + first;
#pragma unroll
    for (int i = 0; i < STEP / 2; i += 4) {
        if (VECTORS) {
            float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (row_there && first + i < p.in) v = __ldg(reinterpret_cast<const float4 *>(x + i));
            c.x[i] = v.x, c.x[i + 1] = v.y, c.x[i + 2] = v.z, c.x[i + 3] = v.w;
        } else {
#pragma unroll
            for (int j = i; j < i + 4; j++) c.x[j] = row_there && first + j < p.in ? x[j] : 0.0f;
        }
    }
}

struct stage {
    float w[STEP][OUTPUTS + 4], x[STEP][ROWS + 4];
};

__device__ __forceinline__ void stage_to_shared(stage &s, const cargo &c) {
    const int thread = (int)threadIdx.x, first = thread % 2 * (STEP / 2);
#pragma unroll
    for (int i = 0; i < STEP; i++) s.w[i][thread] = c.w[i];
#pragma unroll
    for (int i = 0; i < STEP / 2; i++) s.x[first + i][thread / 2] = c.x[i];
}

/* Four values from `at` on and four from the middle of the row. */
__device__ __forceinline__ void pick(float (&to)[EACH], const float *row, int at, int middle) {
    const float4 a = *reinterpret_cast<const float4 *>(row + at),
                 b = *reinterpret_cast<const float4 *>(row + middle + at);
    to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w;
    to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
}

template <bool VECTORS> __global__ void __launch_bounds__(THREADS, 2) many_exact(product p) {
    __shared__ stage stages[2];
    const int thread = (int)threadIdx.x, tx = thread % (OUTPUTS / EACH) * HALF, ty = thread / (OUTPUTS / EACH) * HALF;
    const int first_out = (int)blockIdx.x * OUTPUTS, first_row = (int)blockIdx.y * ROWS;
    const int steps = (p.in + STEP - 1) / STEP;
    dc_chain_sums<CHAINS, DEPTH> sums;
    float sum[CHAINS];
    cargo next;
    sums.depth = 0;
    fetch<VECTORS>(next, p, first_out + thread, first_row + thread / 2, 0);
    stage_to_shared(stages[0], next);
#pragma unroll
    for (int i = 0; i < CHAINS; i++) sum[i] = 0.0f;
    for (int step = 0; step < steps; step++) {
        const stage &s = stages[step % 2];
        __syncthreads(); /* this stage is there, and nobody reads the other one */
        if (step + 1 < steps) fetch<VECTORS>(next, p, first_out + thread, first_row + thread / 2, (step + 1) * STEP);
#pragma unroll
        for (int k = 0; k < STEP; k++) {
            float w[EACH], x[EACH];
            pick(w, s.w[k], tx, OUTPUTS / 2);
            pick(x, s.x[k], ty, ROWS / 2);
#pragma unroll
            for (int r = 0; r < EACH; r++)
#pragma unroll
                for (int o = 0; o < EACH; o++) sum[r * EACH + o] = fmaf(w[o], x[r], sum[r * EACH + o]);
        }
        if (step + 1 < steps) stage_to_shared(stages[(step + 1) % 2], next);
        if ((step + 1) % (DC_ITEM_CHANNELS / STEP) == 0 || step + 1 == steps) {
            sums.push((unsigned)(step / (DC_ITEM_CHANNELS / STEP)), sum);
#pragma unroll
            for (int i = 0; i < CHAINS; i++) sum[i] = 0.0f;
        }
    }
    sums.finish(sum);
#pragma unroll
    for (int r = 0; r < EACH; r++) {
        const int row = first_row + r / HALF * (ROWS / 2) + ty + r % HALF;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int o = first_out + i / HALF * (OUTPUTS / 2) + tx + i % HALF;
            if (row >= p.rows || o >= p.out) continue;
            const float total = sum[r * EACH + i];
            p.y[(size_t)row * (size_t)p.out + o] = p.bias != nullptr ? total + p.bias[o] : total;
        }
    }
}

} /* namespace */

dflash_status dc_many_exact(dflash_engine *engine, const df_matrix *w, const float *bias, const float *x, int rows,
                            float *y, dflash_error *err) {
    const product p = {w->dtype,
                       static_cast<const unsigned char *>(w->data),
                       df_row_bytes(w->dtype, w->in),
                       (int)w->out,
                       (int)w->in,
                       bias,
                       x,
                       rows,
                       y};
    const dim3 grid(df_cuda_blocks((size_t)w->out, OUTPUTS), df_cuda_blocks((size_t)rows, ROWS));
    const bool vectors = w->dtype == DF_BF16 && w->in % 8 == 0 && reinterpret_cast<uintptr_t>(w->data) % 16 == 0 &&
                         reinterpret_cast<uintptr_t>(x) % 16 == 0;
    if (vectors)
        many_exact<true><<<grid, THREADS, 0, df_cuda_stream(engine)>>>(p);
    else
        many_exact<false><<<grid, THREADS, 0, df_cuda_stream(engine)>>>(p);
    return df_cuda_launched("a product of many rows", err);
}
