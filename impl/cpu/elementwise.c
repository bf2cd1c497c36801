/* elementwise.c - the operations that work on one element at a time. */
#include "cpu/cpu_ops.h"

#include "common/mathfn.h"

enum { ELEMENTS_PER_TASK = 16384 };

typedef struct pair_job {
    const float *a, *b;
    size_t n;
    float *y;
} pair_job;

static size_t task_end(size_t n, size_t first) { return first + ELEMENTS_PER_TASK < n ? first + ELEMENTS_PER_TASK : n; }

static void silu_mul_task(void *context, int task, int worker) {
    (void)worker;
    const pair_job *job = context;
    const size_t first = (size_t)task * ELEMENTS_PER_TASK, end = task_end(job->n, first);
    for (size_t i = first; i < end; i++) job->y[i] = df_silu(job->a[i]) * job->b[i];
}

static void add_task(void *context, int task, int worker) {
    (void)worker;
    const pair_job *job = context;
    const size_t first = (size_t)task * ELEMENTS_PER_TASK, end = task_end(job->n, first);
    for (size_t i = first; i < end; i++) job->y[i] = job->a[i] + job->b[i];
}

static void run_pairs(dflash_engine *engine, df_task_fn fn, const float *a, const float *b, size_t n, float *y) {
    pair_job job = {.a = a, .b = b, .n = n, .y = y};
    df_pool_run(engine->pool, fn, &job, (int)((n + ELEMENTS_PER_TASK - 1) / ELEMENTS_PER_TASK));
}

dflash_status DF_CPU(silu_mul)(dflash_engine *engine, const float *gate, const float *up, size_t n, float *y,
                               dflash_error *err) {
    (void)err;
    run_pairs(engine, silu_mul_task, gate, up, n, y);
    return DFLASH_OK;
}

dflash_status DF_CPU(add)(dflash_engine *engine, const float *a, const float *b, size_t n, float *y,
                          dflash_error *err) {
    (void)err;
    run_pairs(engine, add_task, a, b, n, y);
    return DFLASH_OK;
}

typedef struct scale_job {
    const float *x;
    size_t n;
    float scale, cap;
    float *y;
} scale_job;

static void scale_cap_task(void *context, int task, int worker) {
    (void)worker;
    const scale_job *job = context;
    const size_t first = (size_t)task * ELEMENTS_PER_TASK, end = task_end(job->n, first);
    if (job->cap > 0.0f)
        for (size_t i = first; i < end; i++) job->y[i] = job->cap * df_tanh(job->x[i] * job->scale / job->cap);
    else
        for (size_t i = first; i < end; i++) job->y[i] = job->x[i] * job->scale;
}

dflash_status DF_CPU(scale_cap)(dflash_engine *engine, const float *x, size_t n, float scale, float cap, float *y,
                                dflash_error *err) {
    (void)err;
    scale_job job = {.x = x, .n = n, .scale = scale, .cap = cap, .y = y};
    df_pool_run(engine->pool, scale_cap_task, &job, (int)((n + ELEMENTS_PER_TASK - 1) / ELEMENTS_PER_TASK));
    return DFLASH_OK;
}
