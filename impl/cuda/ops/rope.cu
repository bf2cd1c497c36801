/* rope.cu - rotates the leading part of every head by tabulated angles, half-split layout; a thread is a value or pair.
 */
#include "cuda/common/cuda_ops.h"

namespace {

enum { THREADS = 128 };

__global__ void __launch_bounds__(THREADS) rope_kernel(const float *x, const float *cos_table, const float *sin_table,
                                                       int heads, int head_dim, int half, float *y) {
    const size_t row = blockIdx.x, at = (row * static_cast<size_t>(heads) + blockIdx.y) * static_cast<size_t>(head_dim);
    for (int i = static_cast<int>(threadIdx.x); i < half; i += static_cast<int>(blockDim.x)) {
        const float c = cos_table[row * static_cast<size_t>(half) + i],
                    s = sin_table[row * static_cast<size_t>(half) + i];
        const float a = x[at + i], b = x[at + i + half];
        y[at + i] = fmaf(a, c, -(b * s));
        y[at + i + half] = fmaf(b, c, a * s);
    }
    for (int i = 2 * half + static_cast<int>(threadIdx.x); i < head_dim; i += static_cast<int>(blockDim.x))
        y[at + i] = x[at + i];
}

} /* namespace */

extern "C" dflash_status df_cuda_rope(dflash_engine *engine, const float *x, const float *cos_table,
                                      const float *sin_table, int rows, int heads, int head_dim, int rotary_dim,
                                      float *y, dflash_error *err) {
    if (rows == 0) return DFLASH_OK;
    const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(heads));
    const unsigned threads = head_dim / 2 <= 64 ? 64 : THREADS;
    rope_kernel<<<grid, threads, 0, df_cuda_stream(engine)>>>(x, cos_table, sin_table, heads, head_dim, rotary_dim / 2,
                                                              y);
    return df_cuda_launched("rope", err);
}
