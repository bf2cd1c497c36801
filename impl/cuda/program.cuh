/*
 * program.cuh - the two resident kernels and how they are launched.
 */
#ifndef DF_CUDA_PROGRAM_CUH
#define DF_CUDA_PROGRAM_CUH

#include "cuda/program.h"

#include <cuda_runtime.h>

/* Blocks that a device keeps resident: the grid of every launch. 0: the kernel does
 * not fit this device. */
cudaError_t dc_exact_blocks(int *blocks);
cudaError_t dc_fast_blocks(int *blocks);

/* Runs a program. `frame->arrived` is zeroed first. rows <= 16. */
cudaError_t dc_launch_exact(const dc_frame *frame, int blocks, cudaStream_t stream);
cudaError_t dc_launch_fast(const dc_frame *frame, int blocks, cudaStream_t stream);

/* Rows that a block of `rows` is padded to. */
static inline int dc_padded_rows(int rows) { return rows <= 8 ? 8 : 16; }

#endif
