/* engine.c - creates the backend that the options ask for; a backend or class that is not built is an error by name. */
#include "engine/backends.h"

#include "common/error.h"
#include "common/f16c.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
static bool cpu_has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && df_has_f16c();
}
static bool cpu_has_avx512(void) { return __builtin_cpu_supports("avx512f") && cpu_has_avx2(); }
#endif

/* NULL when this machine cannot run that instruction set. */
static const df_ops *cpu_ops_for(dflash_isa isa) {
#if defined(__x86_64__)
    if ((isa == DFLASH_ISA_BEST || isa == DFLASH_ISA_AVX512) && cpu_has_avx512()) return &df_cpu_ops_avx512;
    if ((isa == DFLASH_ISA_BEST || isa == DFLASH_ISA_AVX2) && cpu_has_avx2()) return &df_cpu_ops_avx2;
#endif
    if (isa == DFLASH_ISA_REFERENCE) return &df_reference_ops;
    return isa == DFLASH_ISA_BEST || isa == DFLASH_ISA_GENERIC ? &df_cpu_ops_generic : NULL;
}

static dflash_status create_cpu(dflash_engine *engine, dflash_error *err) {
    const dflash_engine_options *options = &engine->options;
    if (options->numeric_class != DFLASH_CLASS_EXACT)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "engine.class",
                       "The CPU backend computes the exact class alone: classes cublas and fast belong to the CUDA "
                       "backend. Ask for the exact class.");
    if (options->stream != NULL)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "engine.stream",
                       "The CPU backend has no streams: found one. Leave it out, or ask for the CUDA backend.");
    if (options->device != 0)
        return df_fail(
            err, DFLASH_ERR_ARGUMENT, "engine.device",
            "The CPU backend has no devices to choose from: found device %d. Leave the number out, or ask for "
            "the CUDA backend.",
            options->device);
    engine->ops = cpu_ops_for(options->isa);
    engine->memory = df_host_memory;
    if (engine->ops == NULL)
        return df_fail(err, DFLASH_ERR_DEVICE, "engine.isa",
                       "This processor lacks the requested instruction set (%s). Leave the choice to the program.",
                       options->isa == DFLASH_ISA_AVX512 ? "AVX-512" : "AVX2 with FMA");
    return DFLASH_OK;
}

static dflash_status create_cuda(dflash_engine *engine, dflash_error *err) {
#ifdef DF_WITH_CUDA
    return df_cuda_open(&engine->options, &engine->memory, &engine->ops, err);
#else
    (void)engine;
    return df_fail(err, DFLASH_ERR_DEVICE, "engine.backend",
                   "The CUDA backend is not part of this build: only the CPU backend can be created. Use the CPU "
                   "backend, or build where nvcc is on the PATH.");
#endif
}

dflash_status dflash_engine_create(const dflash_engine_options *options, dflash_engine **out, dflash_error *err) {
    *out = NULL;
    if ((unsigned)options->backend > DFLASH_BACKEND_CUDA)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "engine.backend",
                       "The backend is cpu or cuda: found the value %d. Choose one of the two.", (int)options->backend);
    if ((unsigned)options->numeric_class > DFLASH_CLASS_FAST)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "engine.class",
                       "The class is exact, cublas or fast: found the value %d. Choose one of the three.",
                       (int)options->numeric_class);
    if (options->products < DFLASH_PRODUCTS_F32 || options->products > DFLASH_PRODUCTS_BF16)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "engine.products",
                       "Products are f32, tf32 or bf16: found the value %d. Choose one of the three.",
                       (int)options->products);
    for (size_t i = 0; i < sizeof options->reserved / sizeof *options->reserved; i++)
        if (options->reserved[i] != 0)
            return df_fail(err, DFLASH_ERR_ARGUMENT, "engine.reserved",
                           "The reserved part of the engine's options is not zero: this library (%s) knows no such "
                           "option. Set all options that you do not name to zero, or use the library of your header.",
                           dflash_version());
    if (options->threads < 0)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "engine.threads",
                       "The number of threads must be 0 (all cores) or more: found %d.", options->threads);
    if (options->device < 0)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "engine.device",
                       "A device's number is 0 or more: found %d. Number 0 is the first that the process sees.",
                       options->device);
    dflash_engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL) return df_fail_memory(err, "the engine", sizeof *engine);
    engine->options = *options;
    engine->arena.poison = options->poison_scratch;
    engine->arena.memory = &engine->memory;
    dflash_status status = options->backend == DFLASH_BACKEND_CUDA ? create_cuda(engine, err) : create_cpu(engine, err);
    if (status == DFLASH_OK) status = df_pool_create(options->threads, &engine->pool, err);
    if (status != DFLASH_OK) {
        dflash_engine_destroy(engine);
        return status;
    }
    *out = engine;
    return DFLASH_OK;
}

void dflash_engine_destroy(dflash_engine *engine) {
    if (engine == NULL) return;
    df_pool_destroy(engine->pool);
    if (engine->memory.alloc != NULL) df_arena_release(&engine->arena);
#ifdef DF_WITH_CUDA
    df_cuda_close(&engine->memory);
#endif
    free(engine);
}

int dflash_engine_threads(const dflash_engine *engine) { return df_pool_threads(engine->pool); }
const char *dflash_engine_isa(const dflash_engine *engine) { return engine->ops->name; }

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

dflash_status dflash_engine_probe(dflash_engine *engine, dflash_machine *out, dflash_error *err) {
    *out = (dflash_machine){.macs_per_second = 0.0};
    if (engine->ops->probe != NULL) return engine->ops->probe(engine, out, err);
    enum { TRIES = 7, SINKS = 64 };
    const size_t n = (size_t)128 << 20; /* floats: past every cache */
    const int tasks = 4 * df_pool_threads(engine->pool);
    float *sink = malloc((size_t)(tasks > SINKS ? tasks : SINKS) * sizeof *sink), *memory = malloc(n * sizeof *memory);
    dflash_status status = DFLASH_OK;
    if (sink == NULL || memory == NULL)
        status = df_fail_memory(err, "the memory probe", n * sizeof *memory);
    else
        memset(memory, 1, n * sizeof *memory); /* not zeros: untouched pages would all be one page of the cache */
    for (int i = 0; status == DFLASH_OK && i < TRIES; i++) {
        double start = seconds();
        const double macs = engine->ops->probe_fma(engine, tasks, sink) / (seconds() - start);
        start = seconds();
        const double bytes = engine->ops->probe_read(engine, memory, n, sink) / (seconds() - start);
        if (macs > out->macs_per_second) out->macs_per_second = macs;
        if (bytes > out->bytes_per_second) out->bytes_per_second = bytes;
    }
    free(sink);
    free(memory);
    return status;
}

dflash_status dflash_engine_alloc(dflash_engine *engine, size_t n, float **out, dflash_error *err) {
    void *memory = NULL;
    *out = NULL;
    if (n > SIZE_MAX / 2 / sizeof(float)) return df_fail_memory(err, "a buffer", SIZE_MAX);
    const dflash_status status =
        engine->memory.alloc(engine->memory.owner, "a buffer", n * sizeof(float), &memory, err);
    *out = memory;
    return status;
}

void dflash_engine_free(dflash_engine *engine, float *buffer) { engine->memory.release(engine->memory.owner, buffer); }

dflash_status dflash_engine_upload(dflash_engine *engine, float *to, const float *from_host, size_t n,
                                   dflash_error *err) {
    return engine->memory.upload(engine->memory.owner, to, from_host, n * sizeof(float), err);
}

dflash_status dflash_engine_download(dflash_engine *engine, float *to_host, const float *from, size_t n,
                                     dflash_error *err) {
    return engine->memory.download(engine->memory.owner, to_host, from, n * sizeof(float), err);
}

dflash_status dflash_engine_finish(dflash_engine *engine, dflash_error *err) {
    return engine->memory.finish(engine->memory.owner, err);
}

bool dflash_engine_on_host(const dflash_engine *engine) { return engine->memory.host; }

void dflash_engine_describe(const dflash_engine *engine, dflash_device_facts *out) {
    *out = (dflash_device_facts){.backend = dflash_backend_name(engine->options.backend),
                                 .numeric_class = dflash_class_name(engine->options.numeric_class),
                                 .products = dflash_products_name(engine->options.products)};
#ifdef DF_WITH_CUDA
    if (engine->options.backend == DFLASH_BACKEND_CUDA) df_cuda_describe(engine, out);
#endif
}
