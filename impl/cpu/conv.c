/*
 * conv.c - one half of the grouped dynamic causal convolution.
 *
 * A task is one row. Channels are independent of each other, so an instruction set may take as many at once as it
 * likes; the order of a channel's own sum is fixed by ops.h.
 */
#include "cpu/cpu_ops.h"

#include <math.h>
#include <string.h>

static void conv_task(void *context, int task, int worker) {
    (void)worker;
    const df_conv_args *a = context;
    const size_t width = (size_t)a->hidden, group = (size_t)a->group, groups = width / group;
    float *y = a->y + (size_t)task * width;
    memset(y, 0, width * sizeof *y);
    for (int o = 0; o < a->kernel && o <= task; o++) {
        const float *base = a->base + (size_t)o * width;
        const float *dyn = a->dyn + (size_t)task * a->dyn_stride + (size_t)o * groups;
        const float *x = a->x + (size_t)(task - o) * width;
        for (size_t g = 0, c = 0; g < groups; g++)
            for (const size_t end = c + group; c < end; c++) y[c] = fmaf(dyn[g], x[c], fmaf(base[c], x[c], y[c]));
    }
}

dflash_status DF_CPU(conv)(dflash_engine *engine, const df_conv_args *args, dflash_error *err) {
    (void)err;
    df_conv_args job = *args;
    df_pool_run(engine->pool, conv_task, &job, args->rows);
    return DFLASH_OK;
}
