/*
 * matmul_plain.cu - y = x W^T + bias in the canonical order, written to be read: the definition on a device.
 *
 * A block owns 32 outputs and 16 rows. Segment after segment it widens its weights into shared memory; each thread runs
 * four chains, one output for four rows, and keeps the tree of canon.h for them. Nothing depends on how many rows there
 * are but the number of blocks.
 */
#include "cuda/common/chain_sums.cuh"
#include "cuda/common/cuda_ops.h"

#include "common/canon.h"

namespace {

enum { OUTPUTS = 32, ROWS = 16, THREADS = 128, CHAINS = ROWS * OUTPUTS / THREADS };

struct product {
    df_dtype dtype;
    const unsigned char *w;
    size_t stride; /* bytes of a row of w */
    int64_t out, in;
    const float *bias, *x;
    int rows;
    float *y;
};

__global__ void __launch_bounds__(THREADS) matmul_kernel(product p) {
    __shared__ float weights[OUTPUTS][DF_SEGMENT + 1], values[ROWS][DF_SEGMENT];
    const int lane = static_cast<int>(threadIdx.x) % OUTPUTS, first = static_cast<int>(threadIdx.x) / OUTPUTS * CHAINS;
    const int64_t first_out = static_cast<int64_t>(blockIdx.x) * OUTPUTS;
    const int first_row = static_cast<int>(blockIdx.y) * ROWS;
    dc_chain_sums<CHAINS, DF_TREE_SLOTS> sums;
    sums.depth = 0;
    for (int64_t k = 0; k < p.in; k += DF_SEGMENT) {
        const int length = p.in - k < DF_SEGMENT ? static_cast<int>(p.in - k) : DF_SEGMENT;
        for (int i = static_cast<int>(threadIdx.x); i < OUTPUTS * DF_SEGMENT; i += THREADS) {
            const int o = i / DF_SEGMENT, c = i % DF_SEGMENT;
            const bool there = c < length && first_out + o < p.out;
            weights[o][c] =
                there ? df_cuda_weight(p.dtype, p.w + static_cast<size_t>(first_out + o) * p.stride, k + c) : 0.0f;
        }
        for (int i = static_cast<int>(threadIdx.x); i < ROWS * DF_SEGMENT; i += THREADS) {
            const int r = i / DF_SEGMENT, c = i % DF_SEGMENT;
            const bool there = c < length && first_row + r < p.rows;
            values[r][c] = there ? p.x[static_cast<int64_t>(first_row + r) * p.in + k + c] : 0.0f;
        }
        __syncthreads();
        float sum[CHAINS] = {};
        for (int c = 0; c < length; c++)
            for (int r = 0; r < CHAINS; r++) sum[r] = fmaf(weights[lane][c], values[first + r][c], sum[r]);
        sums.push(static_cast<unsigned>(k / DF_SEGMENT), sum);
        __syncthreads();
    }
    const int64_t o = first_out + lane;
    if (o >= p.out) return;
    float total[CHAINS];
    sums.finish(total);
    for (int r = 0; r < CHAINS && first_row + first + r < p.rows; r++)
        p.y[static_cast<int64_t>(first_row + first + r) * p.out + o] =
            p.bias != nullptr ? total[r] + p.bias[o] : total[r];
}

} /* namespace */

extern "C" dflash_status df_cuda_matmul_plain(dflash_engine *engine, const df_matrix *w, const float *bias,
                                              const float *x, int rows, float *y, dflash_error *err) {
    if (rows == 0) return DFLASH_OK;
    const product p = {w->dtype,
                       static_cast<const unsigned char *>(w->data),
                       df_row_bytes(w->dtype, w->in),
                       w->out,
                       w->in,
                       bias,
                       x,
                       rows,
                       y};
    const dim3 grid(df_cuda_blocks(static_cast<size_t>(w->out), OUTPUTS),
                    df_cuda_blocks(static_cast<size_t>(rows), ROWS));
    matmul_kernel<<<grid, THREADS, 0, df_cuda_stream(engine)>>>(p);
    return df_cuda_launched("matmul", err);
}
