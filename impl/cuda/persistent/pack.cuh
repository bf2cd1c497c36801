/*
 * pack.cuh - weights laid out for the persistent kernels, in their own width.
 *
 * exact  [tile][segment][four channels][output of the tile]: what product_exact.cuh loads, 8 outputs 32 apart a lane;
 * the last tile and segment are filled up with zeros. q4_0 has eight channels in four bytes. Scales of the block
 *        formats [tile][segment][block][output of the tile], f16.
 * fast   [tile][segment], a stage of product_fast.cuh each; the last tile is cut to a multiple of 32 outputs. q8_0 has
 *        its scales at the end of each stage.
 */
#ifndef DF_CUDA_PACK_CUH
#define DF_CUDA_PACK_CUH

#include "cuda/persistent/program.h"

#include <cuda_runtime.h>

typedef struct dc_packing {
    int tiles, segments;
    size_t bytes, scale_bytes;
} dc_packing;

/* True when the fast class has a layout for this width. */
static inline bool dc_fast_width(int dtype) { return dtype == DF_BF16 || dtype == DF_Q8_0; }

dc_packing dc_packing_of(const df_matrix *w, bool fast);

/* Fills data (and scale, exact block formats) from the row-major matrix, both in device memory. */
cudaError_t dc_pack_matrix(const df_matrix *w, bool fast, void *data, void *scale, cudaStream_t stream);

#endif
