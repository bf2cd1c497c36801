/*
 * probe.c - what the machine itself can do, measured with the instructions that the kernels use: multiply-adds a second
 * with every operand in a register, and bytes a second read once from memory. Figures beside a kernel's own, from the
 * same run, say how near it is to the limit; nothing else uses them.
 */
#include "cpu/cpu_ops.h"

#include "cpu/vec16.h"

enum { FMA_ROUNDS = 1 << 18, READ_TASKS = 64 };

typedef struct probe_job {
    const float *memory; /* [tasks, n] */
    size_t n;            /* floats a task reads; a multiple of READ_VECTORS vectors */
    float *sink;         /* [tasks]: makes the result used */
} probe_job;

static void fma_task(void *context, int task, int worker) {
    (void)worker;
    const probe_job *job = context;
    v16 chain[V16_OUTPUTS]; /* independent, so that the unit and not its latency is measured */
    for (int i = 0; i < V16_OUTPUTS; i++) chain[i] = v16_set((float)i);
    const v16 factor = v16_set(0.999f), term = v16_set(0.1f);
    for (int round = 0; round < FMA_ROUNDS; round++) {
#pragma GCC unroll 8
        for (int i = 0; i < V16_OUTPUTS; i++) chain[i] = v16_fma(chain[i], factor, term);
    }
    v16 sum = v16_zero();
    for (int i = 0; i < V16_OUTPUTS; i++) sum = v16_add(sum, chain[i]);
    float lane[DF_LANES];
    v16_store(lane, sum);
    job->sink[task] = lane[0];
}

static void read_task(void *context, int task, int worker) {
    (void)worker;
    const probe_job *job = context;
    const float *p = job->memory + (size_t)task * job->n;
    v16 sum[4] = {v16_zero(), v16_zero(), v16_zero(), v16_zero()};
    for (size_t i = 0; i + 4 * DF_LANES <= job->n; i += 4 * DF_LANES) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) sum[j] = v16_add(sum[j], v16_load(p + i + (size_t)j * DF_LANES));
    }
    float lane[DF_LANES];
    v16_store(lane, v16_add(v16_add(sum[0], sum[1]), v16_add(sum[2], sum[3])));
    job->sink[task] = lane[0];
}

double DF_CPU(probe_fma)(dflash_engine *engine, int tasks, float *sink) {
    probe_job job = {.sink = sink};
    df_pool_run(engine->pool, fma_task, &job, tasks);
    return (double)tasks * FMA_ROUNDS * V16_OUTPUTS * DF_LANES;
}

double DF_CPU(probe_read)(dflash_engine *engine, const float *memory, size_t n, float *sink) {
    probe_job job = {.memory = memory, .n = n / READ_TASKS, .sink = sink};
    df_pool_run(engine->pool, read_task, &job, READ_TASKS);
    return (double)READ_TASKS * (double)job.n * sizeof(float);
}
