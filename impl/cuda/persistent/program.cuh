/*
 * program.cuh - the two persistent kernels and how they are launched.
 */
#ifndef DF_CUDA_PROGRAM_CUH
#define DF_CUDA_PROGRAM_CUH

#include "cuda/persistent/program.h"

#include <cuda_runtime.h>

/* Blocks that fit on a device at once: the grid of every launch. 0: the kernel does
 * not fit this device. */
cudaError_t dc_exact_blocks(int *blocks);
cudaError_t dc_fast_blocks(int *blocks);

/* Runs a program. `frame->arrived` is zeroed first. rows <= 16. */
cudaError_t dc_launch_exact(const dc_frame *frame, int blocks, cudaStream_t stream);
cudaError_t dc_launch_fast(const dc_frame *frame, int blocks, cudaStream_t stream);

/* Rows that a block of `rows` is padded to. */
static inline int dc_padded_rows(int rows) { return rows <= 8 ? 8 : 16; }

/* How a persistent kernel is launched: two instances, for blocks of at most 8 rows and of at most 16. */
typedef struct dc_persistent_kernel {
    const void *narrow, *wide;
    size_t narrow_shared, wide_shared; /* bytes of dynamic shared memory */
    int threads;
    int most; /* blocks on one multiprocessor */
} dc_persistent_kernel;

/* The grid of every launch; 0: it does not fit this device. `built`: the device's image holds the kernel. */
static inline cudaError_t dc_persistent_blocks(const dc_persistent_kernel *kernel, int built, int *blocks) {
    int device = 0, shared = 0, processors = 0, each = 0;
    *blocks = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess)
        status = cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (status != cudaSuccess || built == 0 || (size_t)shared < kernel->wide_shared) return status;
    status = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (status == cudaSuccess)
        status = cudaFuncSetAttribute(kernel->narrow, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      (int)kernel->narrow_shared);
    if (status == cudaSuccess)
        status =
            cudaFuncSetAttribute(kernel->wide, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)kernel->wide_shared);
    if (status == cudaSuccess)
        status =
            cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel->wide, kernel->threads, kernel->wide_shared);
    if (status == cudaSuccess) *blocks = (each > kernel->most ? kernel->most : each) * processors;
    return status;
}

/* Zeroes `arrivals` counters and runs the instance for the frame's rows. */
static inline cudaError_t dc_persistent_launch(const dc_persistent_kernel *kernel, const dc_frame *frame, int arrivals,
                                               int blocks, cudaStream_t stream) {
    const bool narrow = dc_padded_rows(frame->rows) == 8;
    void *arguments[] = {const_cast<dc_frame *>(frame)};
    const cudaError_t status = cudaMemsetAsync(frame->arrived, 0, arrivals * sizeof *frame->arrived, stream);
    if (status != cudaSuccess) return status;
    return cudaLaunchCooperativeKernel(narrow ? kernel->narrow : kernel->wide, blocks, kernel->threads, arguments,
                                       narrow ? kernel->narrow_shared : kernel->wide_shared, stream);
}

#endif
