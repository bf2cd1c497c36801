/*
 * cublas_library.h - the functions of cuBLAS that the class cublas calls, found when an engine of that class opens.
 *
 * The library is not linked: loading it costs every start of the program 0.08 s and 220 MB on a machine that may have
 * no device, and a machine without it can still run the other classes.
 */
#ifndef DF_CUDA_CUBLAS_LIBRARY_H
#define DF_CUDA_CUBLAS_LIBRARY_H

extern "C" {
#include "common/error.h"
}

#include <cublas_v2.h>

struct df_cublas_library {
    void *handle; /* of the dynamic loader; NULL: not open */
    decltype(&cublasCreate) create;
    decltype(&cublasDestroy) destroy;
    decltype(&cublasSetStream) set_stream;
    decltype(&cublasSetWorkspace) set_workspace;
    decltype(&cublasSetAtomicsMode) set_atomics_mode;
    decltype(&cublasGetVersion) get_version;
    decltype(&cublasGetStatusString) get_status_string;
    cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void *,
                           const void *, cudaDataType_t, int, const void *, cudaDataType_t, int, const void *, void *,
                           cudaDataType_t, int, cublasComputeType_t, cublasGemmAlgo_t);
};

/* Codes: "engine.cublas" (no such library, or one that lacks a function). */
dflash_status df_cublas_open(df_cublas_library *out, dflash_error *err);
void df_cublas_close(df_cublas_library *library);

/* DFLASH_OK, or a failure that names what was attempted: "device.cublas". */
dflash_status df_cublas_check(const df_cublas_library *library, cublasStatus_t result, const char *what,
                              dflash_error *err);

#endif
