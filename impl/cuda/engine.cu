/*
 * engine.cu - opening and closing a device: its stream, its memory behind memory.h, its cuBLAS handle, its description.
 */
#include "cuda/common/device_scope.h"
#include "cuda/persistent/persistent.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

enum { CUBLAS_WORKSPACE = 32 << 20 }; /* bytes: what cuBLAS recommends for Hopper, enough for every earlier one */

df_cuda *state_of(void *owner) { return static_cast<df_cuda *>(owner); }

/* ---- Memory ---- */

dflash_status device_alloc(void *owner, const char *what, size_t bytes, void **out, dflash_error *err) {
    *out = nullptr;
    const cudaError_t result = cudaMalloc(out, bytes > 0 ? bytes : 1);
    if (result == cudaErrorMemoryAllocation) {
        cudaGetLastError(); /* it is reported here and is not the next launch's */
        size_t left = 0, all = 0;
        cudaMemGetInfo(&left, &all);
        return df_fail(
            err, DFLASH_ERR_MEMORY, "memory.device",
            "The device has no room for %s: %zu bytes were asked for, %zu of its %zu are free. Use a smaller "
            "context or capacity, a narrower precision, or a device with more memory.",
            what, bytes, left, all);
    }
    if (result == cudaSuccess && !dc_persistent_allocated(state_of(owner)->persistent, *out, bytes)) {
        cudaFree(*out);
        *out = nullptr;
        return df_fail_memory(err, "the account of device memory", sizeof(void *));
    }
    return df_cuda_check(result, what, err);
}

void device_release(void *owner, void *memory) {
    const df_cuda_scope scope(state_of(owner)->device);
    dc_persistent_released(state_of(owner)->persistent, memory);
    if (memory != nullptr) cudaFree(memory);
}

dflash_status device_finish(void *owner, dflash_error *err) {
    return df_cuda_check(cudaStreamSynchronize(state_of(owner)->stream), "the work queued before", err);
}

/* Page-locked memory of the caller's would still be read after an asynchronous copy returned, so both ways wait. */
dflash_status device_upload(void *owner, void *to, const void *from, size_t bytes, dflash_error *err) {
    const cudaError_t result = cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, state_of(owner)->stream);
    return result == cudaSuccess ? device_finish(owner, err) : df_cuda_check(result, "a copy to the device", err);
}

dflash_status device_download(void *owner, void *to, const void *from, size_t bytes, dflash_error *err) {
    const cudaError_t result = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, state_of(owner)->stream);
    return result == cudaSuccess ? device_finish(owner, err) : df_cuda_check(result, "a copy from the device", err);
}

/* A device copies only between ranges that do not overlap: ranges that do are moved in steps of their distance, from
 * the end that the move leaves. */
dflash_status device_copy(void *owner, void *to, const void *from, size_t bytes, dflash_error *err) {
    char *const target = static_cast<char *>(to);
    const char *const source = static_cast<const char *>(from);
    const bool down = target < source;
    const size_t distance = static_cast<size_t>(down ? source - target : target - source);
    if (distance == 0 || bytes == 0) return DFLASH_OK;
    for (size_t done = 0; done < bytes; done += distance) {
        const size_t part = bytes - done < distance ? bytes - done : distance;
        const size_t at = down ? done : bytes - done - part;
        const cudaError_t result =
            cudaMemcpyAsync(target + at, source + at, part, cudaMemcpyDeviceToDevice, state_of(owner)->stream);
        if (result != cudaSuccess) return df_cuda_check(result, "a copy on the device", err);
    }
    return DFLASH_OK;
}

dflash_status device_fill(void *owner, void *to, int byte, size_t bytes, dflash_error *err) {
    if (bytes == 0) return DFLASH_OK;
    return df_cuda_check(cudaMemsetAsync(to, byte, bytes, state_of(owner)->stream), "filling memory", err);
}

dflash_status device_map(void *owner, void *to, size_t bytes, void **host, dflash_error *err) {
    df_cuda *cuda = state_of(owner);
    (void)to;
    TRY(df_cuda_check(cudaEventSynchronize(cuda->sent), "the tables sent before", err));
    if (bytes > cuda->staging_bytes) {
        cudaFreeHost(cuda->staging);
        cuda->staging = nullptr;
        cuda->staging_bytes = 0;
        TRY(df_cuda_check(cudaMallocHost(&cuda->staging, 2 * bytes), "page-locked memory for tables", err));
        cuda->staging_bytes = 2 * bytes;
    }
    *host = cuda->staging;
    return DFLASH_OK;
}

dflash_status device_unmap(void *owner, void *to, size_t bytes, dflash_error *err) {
    df_cuda *cuda = state_of(owner);
    TRY(df_cuda_check(cudaMemcpyAsync(to, cuda->staging, bytes, cudaMemcpyHostToDevice, cuda->stream),
                      "a copy of tables to the device", err));
    return df_cuda_check(cudaEventRecord(cuda->sent, cuda->stream), "marking the copy of tables", err);
}

/* ---- Opening ---- */

/* A workspace of its own keeps cuBLAS from allocating, and two engines from sharing one. */
dflash_status open_cublas(df_cuda *cuda, dflash_error *err) {
    df_cublas_library *l = &cuda->library;
    TRY(df_cublas_open(l, err));
    TRY(df_cublas_check(l, l->create(&cuda->cublas), "creating a handle", err));
    TRY(df_cuda_check(cudaMalloc(&cuda->cublas_workspace, CUBLAS_WORKSPACE), "the workspace of cuBLAS", err));
    TRY(df_cublas_check(l, l->set_stream(cuda->cublas, cuda->stream), "setting its stream", err));
    TRY(df_cublas_check(l, l->set_workspace(cuda->cublas, cuda->cublas_workspace, CUBLAS_WORKSPACE),
                        "setting its workspace", err));
    return df_cublas_check(l, l->set_atomics_mode(cuda->cublas, CUBLAS_ATOMICS_NOT_ALLOWED), "forbidding atomics", err);
}

/* Says which device the engine computes on; asking makes none current. */
dflash_status find_device(df_cuda *cuda, int number, dflash_error *err) {
    int count = 0;
    const cudaError_t result = cudaGetDeviceCount(&count);
    if (result != cudaSuccess || count == 0)
        return df_fail(err, DFLASH_ERR_DEVICE, "engine.device",
                       "There is no CUDA device to compute on: %s. Run on a machine with an NVIDIA GPU and its driver, "
                       "or use the CPU backend.",
                       result != cudaSuccess ? cudaGetErrorString(result) : "the driver counts none");
    if (number >= count)
        return df_fail(err, DFLASH_ERR_DEVICE, "engine.device",
                       "There is no CUDA device %d: this process sees %d, and their numbers start at 0. Ask for one of "
                       "them (--device), or let CUDA_VISIBLE_DEVICES show more.",
                       number, count);
    cuda->device = number;
    return df_cuda_check(cudaGetDeviceProperties(&cuda->properties, cuda->device), "asking for its properties", err);
}

/* The first kernel of a build without code for this device would fail; so one is asked about here. */
__global__ void any_kernel() {}

dflash_status check_code(const df_cuda *cuda, dflash_error *err) {
    cudaFuncAttributes attributes;
    if (cudaFuncGetAttributes(&attributes, any_kernel) == cudaSuccess) return DFLASH_OK;
    cudaGetLastError();
    return df_fail(err, DFLASH_ERR_DEVICE, "engine.device",
                   "This build has no code for the device %s of compute capability %d.%d. Build with CUDA_ARCHS naming "
                   "it (`make CUDA_ARCHS=%d%d`).",
                   cuda->properties.name, cuda->properties.major, cuda->properties.minor, cuda->properties.major,
                   cuda->properties.minor);
}

dflash_status start(df_cuda *cuda, const dflash_engine_options *options, dflash_error *err) {
    const df_cuda_scope scope(cuda->device);
    TRY(scope.check(err));
    TRY(check_code(cuda, err));
    cuda->stream = static_cast<cudaStream_t>(options->stream);
    if (cuda->stream == nullptr) {
        TRY(df_cuda_check(cudaStreamCreateWithFlags(&cuda->own_stream, cudaStreamNonBlocking), "creating a stream",
                          err));
        cuda->stream = cuda->own_stream;
    }
    TRY(df_cuda_check(cudaEventCreateWithFlags(&cuda->sent, cudaEventDisableTiming), "creating an event", err));
    if (options->numeric_class == DFLASH_CLASS_CUBLAS) return open_cublas(cuda, err);
    cuda->persistent = dc_persistent_create(options->numeric_class == DFLASH_CLASS_FAST);
    return cuda->persistent != nullptr ? DFLASH_OK : df_fail_memory(err, "the device's programs", 1);
}

void stop(df_cuda *cuda) {
    const df_cuda_scope scope(cuda->device);
    if (cuda->stream != nullptr) cudaStreamSynchronize(cuda->stream);
    dc_persistent_destroy(cuda->persistent);
    if (cuda->cublas != nullptr) cuda->library.destroy(cuda->cublas);
    df_cublas_close(&cuda->library);
    cudaFree(cuda->cublas_workspace);
    cudaFreeHost(cuda->staging);
    if (cuda->sent != nullptr) cudaEventDestroy(cuda->sent);
    if (cuda->own_stream != nullptr) cudaStreamDestroy(cuda->own_stream);
    delete cuda;
}

const df_ops *ops_of(dflash_class numeric_class) {
    if (numeric_class == DFLASH_CLASS_EXACT) return &df_cuda_ops_exact;
    return numeric_class == DFLASH_CLASS_CUBLAS ? &df_cuda_ops_cublas : &df_cuda_ops_fast;
}

void version_text(int version, char *text, size_t size) {
    std::snprintf(text, size, "%d.%d", version / 1000, version % 1000 / 10);
}

} /* namespace */

dflash_status df_cuda_check(cudaError_t result, const char *what, dflash_error *err) {
    if (result == cudaSuccess) return DFLASH_OK;
    cudaGetLastError(); /* one that does not stick is reported once */
    if (result == cudaErrorMemoryAllocation)
        return df_fail(err, DFLASH_ERR_MEMORY, "memory.device",
                       "The device or its driver has no memory for %s. Use a smaller context or capacity, or a device "
                       "with more memory.",
                       what);
    return df_fail(err, DFLASH_ERR_DEVICE, "device.failed",
                   "The CUDA device failed at %s: %s (%s). If it is an illegal access or a launch failure, the engine "
                   "cannot be used again; run under compute-sanitizer to find the kernel.",
                   what, cudaGetErrorString(result), cudaGetErrorName(result));
}

extern "C" dflash_status df_cuda_open(const dflash_engine_options *options, df_memory *memory, const df_ops **ops,
                                      dflash_error *err) {
    *ops = ops_of(options->numeric_class);
    if (options->products != DFLASH_PRODUCTS_F32 && options->numeric_class != DFLASH_CLASS_CUBLAS)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "engine.products",
                       "Products rounded to %s belong to the class cublas on this backend; the class %s has its own. "
                       "Ask for f32 products.",
                       dflash_products_name(options->products), dflash_class_name(options->numeric_class));
    df_cuda *cuda = new (std::nothrow) df_cuda();
    if (cuda == nullptr) return df_fail_memory(err, "the device's state", sizeof *cuda);
    dflash_status status = find_device(cuda, options->device, err);
    if (status != DFLASH_OK) {
        delete cuda; /* nothing of a device was asked for yet */
        return status;
    }
    status = start(cuda, options, err);
    if (status != DFLASH_OK) {
        stop(cuda);
        return status;
    }
    memory->owner = cuda;
    memory->host = false;
    memory->alloc = df_cuda_guarded<device_alloc>::call;
    memory->release = device_release;
    memory->upload = df_cuda_guarded<device_upload>::call;
    memory->download = df_cuda_guarded<device_download>::call;
    memory->copy = df_cuda_guarded<device_copy>::call;
    memory->fill = df_cuda_guarded<device_fill>::call;
    memory->map = df_cuda_guarded<device_map>::call;
    memory->unmap = df_cuda_guarded<device_unmap>::call;
    memory->finish = df_cuda_guarded<device_finish>::call;
    return DFLASH_OK;
}

extern "C" void df_cuda_close(df_memory *memory) {
    if (memory->owner != nullptr) stop(state_of(memory->owner));
    memory->owner = nullptr;
}

extern "C" void df_cuda_describe(const dflash_engine *engine, dflash_device_facts *out) {
    const df_cuda *cuda = df_cuda_of(engine);
    const df_cuda_scope scope(cuda->device);
    int driver = 0, runtime = 0, cublas = 0;
    std::snprintf(out->device, sizeof out->device, "%s", cuda->properties.name);
    if (cudaDriverGetVersion(&driver) == cudaSuccess) version_text(driver, out->driver, sizeof out->driver);
    if (cudaRuntimeGetVersion(&runtime) == cudaSuccess) version_text(runtime, out->runtime, sizeof out->runtime);
    if (cuda->cublas != nullptr && cuda->library.get_version(cuda->cublas, &cublas) == CUBLAS_STATUS_SUCCESS)
        std::snprintf(out->cublas, sizeof out->cublas, "%d.%d.%d", cublas / 10000, cublas / 100 % 100, cublas % 100);
    out->capability = 10 * cuda->properties.major + cuda->properties.minor;
    out->multiprocessors = cuda->properties.multiProcessorCount;
    out->memory_bytes = cuda->properties.totalGlobalMem;
    out->tf32 = engine->options.products == DFLASH_PRODUCTS_TF32;
}
