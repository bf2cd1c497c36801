/*
 * cuda_engine.h - the CUDA backend as the engine sees it, in C.
 *
 * Everything that the backend owns (stream, staging, cuBLAS handle and workspace) hangs on the memory's `owner`;
 * nothing is global, and two engines share nothing.
 */
#ifndef DF_CUDA_ENGINE_H
#define DF_CUDA_ENGINE_H

#include "engine/backends.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The product of class cublas in calls of `tile` rows, the last one filled up with zeros. The class uses one tile size
 * for every call; with tile = rows, cuBLAS sees the row count, which is what the class avoids and the tests show. */
dflash_status df_cuda_matmul_tiled(dflash_engine *engine, const df_matrix *w, const float *bias, const float *x,
                                   int rows, int tile, float *y, dflash_error *err);

/* Runs a program of one phase in the persistent kernel of the engine's class: for the tests, which show that a kind
 * (program.h: dc_kind) or a width (df_dtype, of a product) that the kernel does not know is a failure of the device,
 * "device.failed", and not a result. *ran false: the device does not run the persistent kernels. */
dflash_status df_cuda_run_phase(dflash_engine *engine, int kind, int dtype, bool *ran, dflash_error *err);

#ifdef __cplusplus
}
#endif

#endif
