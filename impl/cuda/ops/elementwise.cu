/* elementwise.cu - the operations that work on one element at a time. */
#include "cuda/common/cuda_ops.h"

#include "common/mathfn.h"

namespace {

enum { THREADS = 256 };

__device__ size_t element() { return static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x; }

__global__ void __launch_bounds__(THREADS) silu_mul_kernel(const float *gate, const float *up, size_t n, float *y) {
    const size_t i = element();
    if (i < n) y[i] = df_silu(gate[i]) * up[i];
}

__global__ void __launch_bounds__(THREADS) add_kernel(const float *a, const float *b, size_t n, float *y) {
    const size_t i = element();
    if (i < n) y[i] = a[i] + b[i];
}

__global__ void __launch_bounds__(THREADS)
    scale_cap_kernel(const float *x, size_t n, float scale, float cap, float *y) {
    const size_t i = element();
    if (i >= n) return;
    y[i] = cap > 0.0f ? cap * df_tanh(x[i] * scale / cap) : x[i] * scale;
}

__global__ void __launch_bounds__(THREADS) markov_gate_kernel(const float *gate, int rank, float *embedding) {
    const int j = static_cast<int>(element());
    if (j < rank) embedding[j] = df_sigmoid(gate[j]) * embedding[j];
}

__global__ void __launch_bounds__(THREADS)
    markov_cell_kernel(const float *joint, int rank, float *state, float *embedding) {
    const int j = static_cast<int>(element());
    if (j >= rank) return;
    const float s = df_sigmoid(joint[j]), fresh = (1.0f - s) * df_tanh(joint[rank + j]);
    state[j] = fmaf(s, state[j], fresh);
    embedding[j] = df_tanh(joint[2 * rank + j]);
}

} /* namespace */

extern "C" dflash_status df_cuda_silu_mul(dflash_engine *engine, const float *gate, const float *up, size_t n, float *y,
                                          dflash_error *err) {
    if (n == 0) return DFLASH_OK;
    silu_mul_kernel<<<df_cuda_blocks(n, THREADS), THREADS, 0, df_cuda_stream(engine)>>>(gate, up, n, y);
    return df_cuda_launched("silu_mul", err);
}

extern "C" dflash_status df_cuda_add(dflash_engine *engine, const float *a, const float *b, size_t n, float *y,
                                     dflash_error *err) {
    if (n == 0) return DFLASH_OK;
    add_kernel<<<df_cuda_blocks(n, THREADS), THREADS, 0, df_cuda_stream(engine)>>>(a, b, n, y);
    return df_cuda_launched("add", err);
}

extern "C" dflash_status df_cuda_scale_cap(dflash_engine *engine, const float *x, size_t n, float scale, float cap,
                                           float *y, dflash_error *err) {
    if (n == 0) return DFLASH_OK;
    scale_cap_kernel<<<df_cuda_blocks(n, THREADS), THREADS, 0, df_cuda_stream(engine)>>>(x, n, scale, cap, y);
    return df_cuda_launched("scale_cap", err);
}

extern "C" dflash_status df_cuda_markov_gate(dflash_engine *engine, const float *gate, int rank, float *embedding,
                                             dflash_error *err) {
    const unsigned blocks = df_cuda_blocks(static_cast<size_t>(rank), THREADS);
    markov_gate_kernel<<<blocks, THREADS, 0, df_cuda_stream(engine)>>>(gate, rank, embedding);
    return df_cuda_launched("markov_gate", err);
}

extern "C" dflash_status df_cuda_markov_cell(dflash_engine *engine, const float *joint, int rank, float *state,
                                             float *embedding, dflash_error *err) {
    const unsigned blocks = df_cuda_blocks(static_cast<size_t>(rank), THREADS);
    markov_cell_kernel<<<blocks, THREADS, 0, df_cuda_stream(engine)>>>(joint, rank, state, embedding);
    return df_cuda_launched("markov_cell", err);
}
