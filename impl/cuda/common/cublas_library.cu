/* cublas_library.cu - see cublas_library.h. */
#include "cuda/common/cublas_library.h"

#include <dlfcn.h>

#define TEXT2(text) #text
#define TEXT(text) TEXT2(text)
#define LIBRARY "libcublas.so." TEXT(CUBLAS_VER_MAJOR)

namespace {

template <typename F> bool find(void *handle, const char *name, F *out) {
    *out = reinterpret_cast<F>(dlsym(handle, name));
    return *out != nullptr;
}

/* The names are those that cublas_v2.h gives to the functions of today. */
bool find_all(df_cublas_library *l) {
    return find(l->handle, "cublasCreate_v2", &l->create) && find(l->handle, "cublasDestroy_v2", &l->destroy) &&
           find(l->handle, "cublasSetStream_v2", &l->set_stream) &&
           find(l->handle, "cublasSetWorkspace_v2", &l->set_workspace) &&
           find(l->handle, "cublasSetAtomicsMode", &l->set_atomics_mode) &&
           find(l->handle, "cublasGetVersion_v2", &l->get_version) &&
           find(l->handle, "cublasGetStatusString", &l->get_status_string) && find(l->handle, "cublasGemmEx", &l->gemm);
}

} /* namespace */

/* Once loaded it stays: the driver may still call into it when the process ends. */
dflash_status df_cublas_open(df_cublas_library *out, dflash_error *err) {
    out->handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (out->handle != nullptr && find_all(out)) return DFLASH_OK;
    const char *why = dlerror();
    const dflash_status status =
        df_fail(err, DFLASH_ERR_DEVICE, "engine.cublas",
                "The class cublas needs the library " LIBRARY ", which cannot be used: %s. Install "
                "the CUDA toolkit that this program was built with, or name the library's folder in "
                "LD_LIBRARY_PATH; the other classes do without it.",
                why != nullptr ? why : "it lacks a function");
    df_cublas_close(out);
    return status;
}

void df_cublas_close(df_cublas_library *library) {
    if (library->handle != nullptr) dlclose(library->handle);
    library->handle = nullptr;
}

dflash_status df_cublas_check(const df_cublas_library *library, cublasStatus_t result, const char *what,
                              dflash_error *err) {
    if (result == CUBLAS_STATUS_SUCCESS) return DFLASH_OK;
    return df_fail(err, result == CUBLAS_STATUS_ALLOC_FAILED ? DFLASH_ERR_MEMORY : DFLASH_ERR_DEVICE, "device.cublas",
                   "cuBLAS failed at %s: %s.", what, library->get_status_string(result));
}
