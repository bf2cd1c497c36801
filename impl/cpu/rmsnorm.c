/* rmsnorm.c - RMSNorm over rows; the sum of squares of a row in the canonical order. */
#include "cpu/cpu_ops.h"

#include "common/canon.h"

#include <math.h>

enum { ROWS_PER_TASK = 8 };

typedef struct norm_job {
    const float *x, *weight;
    int rows, n;
    float eps;
    float *y;
} norm_job;

static float sum_of_squares(const float *x, int n) {
    df_sum sum;
    df_tree_reset(&sum.tree);
    int k = 0;
    unsigned segment = 0;
    /* Four segments side by side: their chains are independent, so this hides the latency of fma and changes no bit. */
    for (; k + 4 * DF_SEGMENT <= n; k += 4 * DF_SEGMENT, segment += 4) {
        float s[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        for (int i = 0; i < DF_SEGMENT; i++)
            for (int j = 0; j < 4; j++) {
                const float v = x[k + j * DF_SEGMENT + i];
                s[j] = fmaf(v, v, s[j]);
            }
        for (unsigned j = 0; j < 4; j++) df_sum_push(&sum, segment + j, s[j]);
    }
    for (; k < n; k += DF_SEGMENT, segment++) {
        float s = 0.0f;
        for (int i = k; i < n && i < k + DF_SEGMENT; i++) s = fmaf(x[i], x[i], s);
        df_sum_push(&sum, segment, s);
    }
    return df_sum_total(&sum);
}

static void norm_task(void *context, int task, int worker) {
    (void)worker;
    const norm_job *job = context;
    for (int row = task * ROWS_PER_TASK; row < job->rows && row < (task + 1) * ROWS_PER_TASK; row++) {
        const float *x = job->x + (size_t)row * (size_t)job->n;
        float *y = job->y + (size_t)row * (size_t)job->n;
        const float scale = 1.0f / sqrtf(sum_of_squares(x, job->n) / (float)job->n + job->eps);
        for (int i = 0; i < job->n; i++) y[i] = job->weight[i] * (x[i] * scale);
    }
}

dflash_status DF_CPU(rmsnorm)(dflash_engine *engine, const float *x, const float *weight, int rows, int n, float eps,
                              float *y, dflash_error *err) {
    (void)err;
    norm_job job = {.x = x, .weight = weight, .rows = rows, .n = n, .eps = eps, .y = y};
    df_pool_run(engine->pool, norm_task, &job, (rows + ROWS_PER_TASK - 1) / ROWS_PER_TASK);
    return DFLASH_OK;
}
