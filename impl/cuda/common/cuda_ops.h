/*
 * cuda_ops.h - what the CUDA operations share: the engine's device state, checked launches, and their prototypes.
 *
 * Every operation is one .cu file, like the CPU's; it queues its kernels on the engine's stream and returns. Arithmetic
 * of the exact class comes from canon.h and mathfn.h, compiled without contraction (-fmad=false), with IEEE division
 * and square root and with subnormals, so that it gives the CPU's bits.
 */
#ifndef DF_CUDA_OPS_H
#define DF_CUDA_OPS_H

extern "C" {
#include "cuda/common/cuda_engine.h"
#include "common/error.h"
#include "weights/quant.h"
}

#include "cuda/common/cublas_library.h"

#include <cuda_runtime.h>

struct dc_persistent; /* persistent.h */

/* The state of one engine. */
struct df_cuda {
    int device; /* current whenever the backend works for this engine (device_scope.h) */
    cudaDeviceProp properties;
    cudaStream_t stream;     /* all work of the engine: the caller's or */
    cudaStream_t own_stream; /* this one, which goes with the engine */
    /* the window of df_memory.map: page-locked, grown as needed; `sent` says when the last window has gone */
    void *staging;
    size_t staging_bytes;
    cudaEvent_t sent;
    dc_persistent *persistent; /* classes exact and fast */
    /* class cublas only */
    df_cublas_library library;
    cublasHandle_t cublas;
    void *cublas_workspace;
};

static inline df_cuda *df_cuda_of(const dflash_engine *engine) { return static_cast<df_cuda *>(engine->memory.owner); }
static inline cudaStream_t df_cuda_stream(const dflash_engine *engine) { return df_cuda_of(engine)->stream; }

/* DFLASH_OK, DFLASH_ERR_MEMORY ("memory.device") when the device's memory is exhausted, or DFLASH_ERR_DEVICE
 * ("device.failed"), naming what was attempted. */
dflash_status df_cuda_check(cudaError_t result, const char *what, dflash_error *err);

/* To be called after every launch of a kernel: a launch that was refused is reported under the kernel's name. */
static inline dflash_status df_cuda_launched(const char *kernel, dflash_error *err) {
    const cudaError_t result = cudaGetLastError();
    return result == cudaSuccess ? DFLASH_OK : df_cuda_check(result, kernel, err);
}

/* The number of pieces of `size` that n makes, as a dimension of a grid. */
static inline unsigned df_cuda_blocks(size_t n, size_t size) { return static_cast<unsigned>((n + size - 1) / size); }

/* Scratch of the call in progress; NULL with *err set. */
template <typename T> T *df_cuda_take(dflash_engine *engine, size_t n, dflash_error *err) {
    const size_t floats = (n * sizeof(T) + sizeof(float) - 1) / sizeof(float);
    return reinterpret_cast<T *>(df_arena_floats(&engine->arena, floats, err));
}

/* W[o][k] of a matrix in any width, widened, which is exact; `row` is where row o starts. */
__device__ static __forceinline__ float df_cuda_weight(df_dtype dtype, const unsigned char *row, int64_t k) {
    if (dtype == DF_F32) return reinterpret_cast<const float *>(row)[k];
    if (dtype == DF_BF16) return df_bf16_to_f32(reinterpret_cast<const uint16_t *>(row)[k]);
    if (dtype == DF_F16) return df_f16_to_f32(reinterpret_cast<const uint16_t *>(row)[k]);
    const int at = static_cast<int>(k % 32);
    if (dtype == DF_Q8_0) { /* quant.h: f16 scale, 32 signed bytes */
        const unsigned char *block = row + k / 32 * 34;
        return df_f16_to_f32(*reinterpret_cast<const uint16_t *>(block)) *
               static_cast<float>(static_cast<int8_t>(block[2 + at]));
    }
    const unsigned char *block = row + k / 32 * 18; /* f16 scale, 16 bytes: low nibbles 0..15, high ones 16..31 */
    const int q = at < 16 ? block[2 + at] & 15 : block[2 + at - 16] >> 4;
    return df_f16_to_f32(*reinterpret_cast<const uint16_t *>(block)) * static_cast<float>(q - 8);
}

extern "C" {

/* The tables of operations of the classes, from table.cu. */
extern const df_ops df_cuda_ops_exact, df_cuda_ops_cublas, df_cuda_ops_fast;

/* The operations, as ops.h describes them. matmul_plain is the definition of the exact product on a device. */
dflash_status df_cuda_matmul_plain(dflash_engine *engine, const df_matrix *w, const float *bias, const float *x,
                                   int rows, float *y, dflash_error *err);
dflash_status df_cuda_matmul_cublas(dflash_engine *engine, const df_matrix *w, const float *bias, const float *x,
                                    int rows, float *y, dflash_error *err);
dflash_status df_cuda_rmsnorm(dflash_engine *engine, const float *x, const float *weight, int rows, int n, float eps,
                              float *y, dflash_error *err);
dflash_status df_cuda_rope(dflash_engine *engine, const float *x, const float *cos_table, const float *sin_table,
                           int rows, int heads, int head_dim, int rotary_dim, float *y, dflash_error *err);
dflash_status df_cuda_attention(dflash_engine *engine, const df_attention_args *args, dflash_error *err);
dflash_status df_cuda_silu_mul(dflash_engine *engine, const float *gate, const float *up, size_t n, float *y,
                               dflash_error *err);
dflash_status df_cuda_add(dflash_engine *engine, const float *a, const float *b, size_t n, float *y, dflash_error *err);
dflash_status df_cuda_conv(dflash_engine *engine, const df_conv_args *args, dflash_error *err);
dflash_status df_cuda_scale_cap(dflash_engine *engine, const float *x, size_t n, float scale, float cap, float *y,
                                dflash_error *err);
dflash_status df_cuda_gather(dflash_engine *engine, const df_matrix *table, const int32_t *ids, int n, float scale,
                             float *out, size_t stride, dflash_error *err);
dflash_status df_cuda_topk(dflash_engine *engine, const df_topk_args *args, dflash_error *err);
dflash_status df_cuda_choose(dflash_engine *engine, const df_choose_args *args, dflash_error *err);
dflash_status df_cuda_score(dflash_engine *engine, const df_score_args *args, dflash_error *err);
dflash_status df_cuda_markov_gate(dflash_engine *engine, const float *gate, int rank, float *embedding,
                                  dflash_error *err);
dflash_status df_cuda_markov_cell(dflash_engine *engine, const float *joint, int rank, float *state, float *embedding,
                                  dflash_error *err);
dflash_status df_cuda_probe(dflash_engine *engine, dflash_machine *out, dflash_error *err);

} /* extern "C" */

#endif
