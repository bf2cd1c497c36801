/* probe.cu - what this device can do: multiply-adds with operands in registers, and bytes read once from its memory. */
#include "cuda/common/cuda_ops.h"

namespace {

enum { THREADS = 256, TRIES = 7, CHAINS = 8, STEPS = 4096, BLOCKS_EACH = 16 /* blocks a multiprocessor */ };

__global__ void __launch_bounds__(THREADS) fma_kernel(float a, float b, float *sink) {
    float x[CHAINS];
    for (int i = 0; i < CHAINS; i++) x[i] = static_cast<float>(threadIdx.x + i);
    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < CHAINS; i++) x[i] = fmaf(x[i], a, b);
    float sum = 0.0f;
    for (int i = 0; i < CHAINS; i++) sum += x[i];
    if (sum == 12345.678f) *sink = sum; /* never, which the compiler cannot know */
}

/* Four independent loads of 16 bytes a thread are in flight at a time. */
__global__ void __launch_bounds__(THREADS) read_kernel(const uint4 *memory, size_t n, float *sink) {
    const size_t threads = static_cast<size_t>(gridDim.x) * THREADS;
    uint32_t seen = 0;
    for (size_t i = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x; i + 3 * threads < n; i += 4 * threads) {
        const uint4 a = memory[i], b = memory[i + threads], c = memory[i + 2 * threads], d = memory[i + 3 * threads];
        seen |= a.x | a.y | a.z | a.w | b.x | b.y | b.z | b.w | c.x | c.y | c.z | c.w | d.x | d.y | d.z | d.w;
    }
    if (seen == 0x12345678u) *sink = 1.0f;
}

struct stopwatch {
    cudaEvent_t start, end;
};

dflash_status elapsed(const stopwatch &watch, double *seconds, dflash_error *err) {
    float milliseconds = 0.0f;
    TRY(df_cuda_check(cudaEventSynchronize(watch.end), "a probe", err));
    TRY(df_cuda_check(cudaEventElapsedTime(&milliseconds, watch.start, watch.end), "timing a probe", err));
    *seconds = 1e-3 * static_cast<double>(milliseconds);
    return DFLASH_OK;
}

dflash_status run(dflash_engine *engine, const stopwatch &watch, void *memory, size_t bytes, dflash_machine *out,
                  dflash_error *err) {
    const df_cuda *cuda = df_cuda_of(engine);
    const unsigned blocks = static_cast<unsigned>(cuda->properties.multiProcessorCount) * BLOCKS_EACH;
    float *sink = static_cast<float *>(memory);
    TRY(df_cuda_check(cudaMemsetAsync(memory, 1, bytes, cuda->stream), "filling the probe's memory", err));
    for (int i = 0; i < TRIES; i++) {
        double seconds = 0.0;
        TRY(df_cuda_check(cudaEventRecord(watch.start, cuda->stream), "timing a probe", err));
        fma_kernel<<<blocks, THREADS, 0, cuda->stream>>>(0.999f, 0.5f, sink);
        TRY(df_cuda_launched("the multiply-add probe", err));
        TRY(df_cuda_check(cudaEventRecord(watch.end, cuda->stream), "timing a probe", err));
        TRY(elapsed(watch, &seconds, err));
        const double macs = static_cast<double>(blocks) * THREADS * CHAINS * STEPS / seconds;
        TRY(df_cuda_check(cudaEventRecord(watch.start, cuda->stream), "timing a probe", err));
        read_kernel<<<blocks, THREADS, 0, cuda->stream>>>(static_cast<const uint4 *>(memory), bytes / sizeof(uint4),
                                                          sink);
        TRY(df_cuda_launched("the read probe", err));
        TRY(df_cuda_check(cudaEventRecord(watch.end, cuda->stream), "timing a probe", err));
        TRY(elapsed(watch, &seconds, err));
        const size_t pass = 4 * static_cast<size_t>(blocks) * THREADS * sizeof(uint4);
        const double read = static_cast<double>(bytes / pass * pass) / seconds;
        if (macs > out->macs_per_second) out->macs_per_second = macs;
        if (read > out->bytes_per_second) out->bytes_per_second = read;
    }
    return DFLASH_OK;
}

} /* namespace */

extern "C" dflash_status df_cuda_probe(dflash_engine *engine, dflash_machine *out, dflash_error *err) {
    const size_t bytes = static_cast<size_t>(2) << 30; /* many times any cache */
    const df_memory *memory = &engine->memory;
    stopwatch watch = {};
    void *data = nullptr;
    dflash_status status = memory->alloc(memory->owner, "the memory probe", bytes, &data, err);
    if (status == DFLASH_OK) status = df_cuda_check(cudaEventCreate(&watch.start), "creating an event", err);
    if (status == DFLASH_OK) status = df_cuda_check(cudaEventCreate(&watch.end), "creating an event", err);
    if (status == DFLASH_OK) status = run(engine, watch, data, bytes, out, err);
    if (watch.start != nullptr) cudaEventDestroy(watch.start);
    if (watch.end != nullptr) cudaEventDestroy(watch.end);
    memory->release(memory->owner, data);
    return status;
}
