/* conv.cu - one half of the grouped dynamic causal convolution; a thread is one channel of one row. */
#include "cuda/common/cuda_ops.h"

namespace {

enum { THREADS = 128 };

__global__ void __launch_bounds__(THREADS) conv_kernel(df_conv_args a) {
    const int c = static_cast<int>(blockIdx.x) * THREADS + static_cast<int>(threadIdx.x);
    const int row = static_cast<int>(blockIdx.y);
    if (c >= a.hidden) return;
    const size_t width = static_cast<size_t>(a.hidden), groups = width / static_cast<size_t>(a.group);
    const float *dyn = a.dyn + static_cast<size_t>(row) * a.dyn_stride + static_cast<size_t>(c / a.group);
    float y = 0.0f;
    for (int o = 0; o < a.kernel && o <= row; o++) {
        const float x = a.x[static_cast<size_t>(row - o) * width + static_cast<size_t>(c)];
        y = fmaf(a.base[static_cast<size_t>(o) * width + static_cast<size_t>(c)], x, y);
        y = fmaf(dyn[static_cast<size_t>(o) * groups], x, y);
    }
    a.y[static_cast<size_t>(row) * width + static_cast<size_t>(c)] = y;
}

} /* namespace */

extern "C" dflash_status df_cuda_conv(dflash_engine *engine, const df_conv_args *args, dflash_error *err) {
    if (args->rows == 0) return DFLASH_OK;
    const dim3 grid(df_cuda_blocks(static_cast<size_t>(args->hidden), THREADS), static_cast<unsigned>(args->rows));
    conv_kernel<<<grid, THREADS, 0, df_cuda_stream(engine)>>>(*args);
    return df_cuda_launched("conv", err);
}
