/*
 * rmsnorm.cu - RMSNorm over rows; the sum of squares of a row in the canonical order.
 *
 * A group of threads owns a row: the whole block for hidden-sized rows, a warp for heads. A thread runs the chains of
 * every so many segments; then the group folds the segment sums level by level, which is the tree of canon.h because
 * segments start at 0 and none is absent.
 */
#include "cuda/common/cuda_ops.h"

#include "common/canon.h"

namespace {

enum { THREADS = 128, SMALL_ROW = 512 /* at most this long: a warp a row */ };

/* sums[segments] of one row becomes its tree, in sums[0]; called by every thread of the block. */
__device__ void fold(float *sums, int segments, int thread, int threads) {
    for (int step = 1; step < segments; step *= 2) {
        __syncthreads();
        for (int i = 2 * step * thread; i + step < segments; i += 2 * step * threads) sums[i] += sums[i + step];
    }
    __syncthreads();
}

__global__ void __launch_bounds__(THREADS)
    rmsnorm_kernel(const float *x, const float *weight, int rows, int n, float eps, float *y) {
    extern __shared__ float all_sums[];
    const int segments = (n + DF_SEGMENT - 1) / DF_SEGMENT;
    const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
    const int row = static_cast<int>(blockIdx.x * blockDim.y + threadIdx.y);
    float *sums = all_sums + static_cast<int>(threadIdx.y) * segments;
    const bool there = row < rows;
    const float *from = x + static_cast<size_t>(there ? row : 0) * static_cast<size_t>(n);
    for (int s = thread; s < segments; s += threads) {
        const int end = n - s * DF_SEGMENT < DF_SEGMENT ? n : (s + 1) * DF_SEGMENT;
        float sum = 0.0f;
        for (int i = s * DF_SEGMENT; i < end; i++) sum = fmaf(from[i], from[i], sum);
        sums[s] = sum + 0.0f;
    }
    fold(sums, segments, thread, threads);
    if (!there) return;
    const float scale = 1.0f / sqrtf(sums[0] / static_cast<float>(n) + eps);
    float *to = y + static_cast<size_t>(row) * static_cast<size_t>(n);
    for (int i = thread; i < n; i += threads) to[i] = weight[i] * (from[i] * scale);
}

} /* namespace */

extern "C" dflash_status df_cuda_rmsnorm(dflash_engine *engine, const float *x, const float *weight, int rows, int n,
                                         float eps, float *y, dflash_error *err) {
    if (rows == 0) return DFLASH_OK;
    const bool small = n <= SMALL_ROW;
    const dim3 block(small ? 32 : THREADS, small ? THREADS / 32 : 1);
    const size_t segments = static_cast<size_t>((n + DF_SEGMENT - 1) / DF_SEGMENT);
    rmsnorm_kernel<<<df_cuda_blocks(static_cast<size_t>(rows), block.y), block, segments * block.y * sizeof(float),
                     df_cuda_stream(engine)>>>(x, weight, rows, n, eps, y);
    return df_cuda_launched("rmsnorm", err);
}
