/* engine.c - creates the backend that the options ask for; a backend or class that is not built is an error by name. */
#include "engine.h"

#include "cpu/cpu_ops.h"
#include "error.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
static bool cpu_has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
static bool cpu_has_avx512(void) { return __builtin_cpu_supports("avx512f") && cpu_has_avx2(); }
#endif

/* NULL when this machine cannot run that instruction set. */
static const df_ops *cpu_ops_for(df_isa isa) {
#if defined(__x86_64__)
    if ((isa == DF_ISA_BEST || isa == DF_ISA_AVX512) && cpu_has_avx512()) return &df_cpu_ops_avx512;
    if ((isa == DF_ISA_BEST || isa == DF_ISA_AVX2) && cpu_has_avx2()) return &df_cpu_ops_avx2;
#endif
    return isa == DF_ISA_BEST || isa == DF_ISA_GENERIC ? &df_cpu_ops_generic : NULL;
}

df_status df_engine_create(const df_engine_options *options, df_engine **out, df_error *err) {
    *out = NULL;
    if (options->backend != DF_BACKEND_CPU)
        return df_fail(err, DF_ERR_DEVICE, "engine.backend",
                       "The CUDA backend is not part of this build: only the CPU backend can be created. Use the CPU "
                       "backend.");
    if (options->numeric_class != DF_CLASS_EXACT)
        return df_fail(err, DF_ERR_ARGUMENT, "engine.class",
                       "The CPU backend computes the exact class alone: classes cublas and fast belong to the CUDA "
                       "backend. Ask for the exact class.");
    if (options->products < DF_PRODUCTS_F32 || options->products > DF_PRODUCTS_BF16)
        return df_fail(err, DF_ERR_ARGUMENT, "engine.products",
                       "Products are f32, tf32 or bf16: found the value %d. Choose one of the three.",
                       (int)options->products);
    if (options->threads < 0)
        return df_fail(err, DF_ERR_ARGUMENT, "engine.threads",
                       "The number of threads must be 0 (all cores) or more: found %d.", options->threads);
    const df_ops *ops = cpu_ops_for(options->isa);
    if (ops == NULL)
        return df_fail(err, DF_ERR_DEVICE, "engine.isa",
                       "This processor lacks the requested instruction set (%s). Leave the choice to the program.",
                       options->isa == DF_ISA_AVX512 ? "AVX-512" : "AVX2 with FMA");
    df_engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL) return df_fail_memory(err, "the engine", sizeof *engine);
    engine->options = *options;
    engine->ops = ops;
    engine->arena.poison = options->poison_scratch;
    const df_status status = df_pool_create(options->threads, &engine->pool, err);
    if (status != DF_OK) {
        free(engine);
        return status;
    }
    *out = engine;
    return DF_OK;
}

void df_engine_destroy(df_engine *engine) {
    if (engine == NULL) return;
    df_pool_destroy(engine->pool);
    df_arena_release(&engine->arena);
    free(engine);
}

static const char *const products_names[] = {
    [DF_PRODUCTS_F32] = "f32", [DF_PRODUCTS_TF32] = "tf32", [DF_PRODUCTS_BF16] = "bf16"};

const char *df_products_name(df_products products) { return products_names[products]; }

bool df_products_parse(const char *name, df_products *out) {
    for (int i = DF_PRODUCTS_F32; i <= DF_PRODUCTS_BF16; i++)
        if (strcmp(name, products_names[i]) == 0) {
            *out = (df_products)i;
            return true;
        }
    return false;
}

int df_engine_threads(const df_engine *engine) { return df_pool_threads(engine->pool); }
const char *df_engine_isa(const df_engine *engine) { return engine->ops->name; }

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

df_status df_engine_probe(df_engine *engine, df_machine *out, df_error *err) {
    enum { TRIES = 7, SINKS = 64 };
    const size_t n = (size_t)128 << 20; /* floats: past every cache */
    const int tasks = 4 * df_pool_threads(engine->pool);
    float *sink = malloc((size_t)(tasks > SINKS ? tasks : SINKS) * sizeof *sink), *memory = malloc(n * sizeof *memory);
    df_status status = DF_OK;
    *out = (df_machine){.macs_per_second = 0.0};
    if (sink == NULL || memory == NULL)
        status = df_fail_memory(err, "the memory probe", n * sizeof *memory);
    else
        memset(memory, 1, n * sizeof *memory); /* not zeros: untouched pages would all be one page of the cache */
    for (int i = 0; status == DF_OK && i < TRIES; i++) {
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

df_status df_engine_alloc(df_engine *engine, size_t n, float **out, df_error *err) {
    (void)engine;
    *out = n <= SIZE_MAX / sizeof(float) ? malloc(n > 0 ? n * sizeof(float) : 1) : NULL;
    return *out != NULL ? DF_OK : df_fail_memory(err, "a buffer", n * sizeof(float));
}

void df_engine_free(df_engine *engine, float *buffer) {
    (void)engine;
    free(buffer);
}

df_status df_engine_upload(df_engine *engine, float *to, const float *from_host, size_t n, df_error *err) {
    (void)engine;
    (void)err;
    memcpy(to, from_host, n * sizeof(float));
    return DF_OK;
}

df_status df_engine_download(df_engine *engine, float *to_host, const float *from, size_t n, df_error *err) {
    return df_engine_upload(engine, to_host, from, n, err);
}
