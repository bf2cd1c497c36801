/* cuda_case.c - see cuda_case.h. */
#include "support/cuda_case.h"

#include "weights/quant.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_DEVICES = 64 };

/* Devices from number 0 on that an engine can be made for. */
static int count_devices(void) {
    int device = 0;
    for (bool made = true; made && device < MOST_DEVICES; device += made) {
        const dflash_engine_options options = {.backend = DFLASH_BACKEND_CUDA, .device = device};
        dflash_engine *engine = NULL;
        dflash_error err;
        made = dflash_engine_create(&options, &engine, &err) == DFLASH_OK;
        dflash_engine_destroy(engine);
    }
    return device;
}

int cuda_case_devices(void) {
    static int known = -1; /* not asked */
    if (known >= 0) return known;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) _exit(count_devices());
    int status = 1;
    known = child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    return known;
}

bool cuda_case_present(void) { return cuda_case_devices() > 0; }

dflash_engine *cuda_engine(dflash_class numeric_class, dflash_products products) {
    const dflash_engine_options options = {.backend = DFLASH_BACKEND_CUDA,
                                           .numeric_class = numeric_class,
                                           .products = products,
                                           .threads = 2,
                                           .poison_scratch = true};
    dflash_engine *engine = NULL;
    dflash_error err = {0};
    ck_assert_msg(dflash_engine_create(&options, &engine, &err) == DFLASH_OK, "%s", err.message);
    return engine;
}

bool cuda_persistent(const dflash_engine *engine) {
    dflash_device_facts facts;
    dflash_engine_describe(engine, &facts);
    return facts.capability >= 90 && facts.capability < 120;
}

cuda_pair cuda_pair_open(void) {
    return (cuda_pair){.cpu = op_engine(DFLASH_ISA_BEST, 2, false),
                       .device = cuda_engine(DFLASH_CLASS_EXACT, DFLASH_PRODUCTS_F32)};
}

void cuda_pair_close(cuda_pair *pair) {
    dflash_engine_destroy(pair->cpu);
    dflash_engine_destroy(pair->device);
}

void *cuda_room(dflash_engine *engine, size_t bytes) {
    const df_memory *memory = &engine->memory;
    dflash_error err = {0};
    void *data = NULL;
    ck_assert_msg(memory->alloc(memory->owner, "a test's buffer", bytes, &data, &err) == DFLASH_OK, "%s", err.message);
    ck_assert_msg(memory->fill(memory->owner, data, 0xff, bytes, &err) == DFLASH_OK, "%s", err.message);
    return data;
}

void *cuda_put(dflash_engine *engine, const void *values, size_t bytes) {
    dflash_error err = {0};
    void *data = cuda_room(engine, bytes);
    ck_assert_msg(engine->memory.upload(engine->memory.owner, data, values, bytes, &err) == DFLASH_OK, "%s",
                  err.message);
    return data;
}

void *cuda_get(dflash_engine *engine, const void *from, size_t bytes) {
    dflash_error err = {0};
    void *values = op_alloc(bytes);
    ck_assert_msg(engine->memory.download(engine->memory.owner, values, from, bytes, &err) == DFLASH_OK, "%s",
                  err.message);
    return values;
}

void cuda_drop(dflash_engine *engine, void *memory) { engine->memory.release(engine->memory.owner, memory); }

void cuda_expect_same(float *cpu, float *device, size_t n, const char *what) {
    for (size_t i = 0; i < n; i++)
        OP_REQUIRE(df_f32_to_bits(device[i]) != 0xffffffffu, "%s: element %zu was never written", what, i);
    op_expect_bits(cpu, device, n, what);
    free(cpu);
    free(device);
}

cuda_matrix cuda_matrix_make(df_dtype dtype, int64_t out, int64_t in, uint64_t seed) {
    const size_t row = df_row_bytes(dtype, in);
    cuda_matrix m = {.matrix = {.dtype = dtype, .out = out, .in = in}, .size = row * (size_t)out};
    op_random random = {seed};
    float *x = op_floats((size_t)in);
    m.bytes = op_alloc(m.size);
    for (int64_t o = 0; o < out; o++) {
        unsigned char *to = (unsigned char *)m.bytes + (size_t)o * row;
        op_fill(&random, x, (size_t)in);
        if (dtype == DF_F32) memcpy(to, x, row);
        if (dtype == DF_Q8_0) df_quantize_q8_0(x, in, to);
        if (dtype == DF_Q4_0) df_quantize_q4_0(x, in, to);
        for (int64_t i = 0; i < in && (dtype == DF_BF16 || dtype == DF_F16); i++) {
            const uint16_t half = dtype == DF_BF16 ? df_f32_to_bf16(x[i]) : df_f32_to_f16(x[i]);
            memcpy(to + (size_t)i * sizeof half, &half, sizeof half);
        }
    }
    free(x);
    return m;
}

df_matrix cuda_matrix_put(dflash_engine *engine, const cuda_matrix *m) {
    df_matrix placed = m->matrix;
    placed.data = cuda_put(engine, m->bytes, m->size);
    return placed;
}

void cuda_matrix_release(cuda_matrix *m) { free(m->bytes); }
