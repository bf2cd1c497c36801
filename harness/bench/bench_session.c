/* bench_session.c - see bench_session.h. */
#include "bench/bench_session.h"

#include "common/error.h"
#include "weights/precision.h"
#include "weights/quant.h"

#include <stdlib.h>
#include <string.h>

double dp_bench_median(double *value, long n) {
    for (long i = 1; i < n; i++) /* insertion sort: a thousand values at most */
        for (long j = i; j > 0 && value[j] < value[j - 1]; j--) {
            const double swap = value[j];
            value[j] = value[j - 1];
            value[j - 1] = swap;
        }
    return value[n / 2];
}

/* From a linear congruential generator. */
static void fill(float *to, size_t n) {
    uint32_t state = 12345;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        to[i] = (float)(state >> 8) * 0x1p-23f - 1.0f;
    }
}

dflash_status dp_bench_values(dflash_engine *engine, size_t n, float **out, dflash_error *err) {
    float *host = malloc((n + 1) * sizeof *host);
    if (host == NULL) return df_fail_memory(err, "the inputs", n * sizeof *host);
    fill(host, n);
    dflash_status status = dflash_engine_alloc(engine, n, out, err);
    if (status == DFLASH_OK) status = dflash_engine_upload(engine, *out, host, n, err);
    free(host);
    return status;
}

dflash_status dp_bench_inputs(dp_bench_session *s, long context, int spare, dflash_error *err) {
    const dflash_config *c = dflash_draft_config(s->draft);
    const size_t rows = (size_t)(context + spare + c->block), hidden = (size_t)c->hidden;
    s->pos = malloc(rows * sizeof *s->pos);
    if (s->pos == NULL) return df_fail_memory(err, "the inputs", rows * sizeof *s->pos);
    TRY(dp_bench_values(s->engine, (size_t)context * hidden, &s->features, err));
    TRY(dp_bench_values(s->engine, (size_t)c->block * hidden, &s->noise, err));
    TRY(dflash_engine_alloc(s->engine, (size_t)c->block * hidden, &s->out, err));
    for (size_t i = 0; i < rows; i++) s->pos[i] = (int32_t)i;
    return dflash_kv_create(s->draft, (int)rows + c->block, &s->kv, err);
}

void dp_bench_close(dp_bench_session *s) {
    if (s->engine == NULL) return;
    dflash_engine_free(s->engine, s->features);
    dflash_engine_free(s->engine, s->noise);
    dflash_engine_free(s->engine, s->out);
    free(s->pos);
    dflash_kv_destroy(s->kv);
    dflash_draft_destroy(s->draft);
    dflash_engine_destroy(s->engine);
    *s = (dp_bench_session){.engine = NULL};
}

bool dp_bench_in_layers(const char *tensor) { return strncmp(tensor, "layers.", 7) == 0; }

/* Matrices (rank 2) are held in the precision mode's width, everything else counts as it is in the file. */
static double held_bytes(const dflash_tensor_view *tensor, dflash_precision precision) {
    if (tensor->rank != 2) return (double)tensor->bytes;
    df_dtype stored = DF_F32;
    for (df_dtype dtype = DF_F32; dtype <= DF_BF16; dtype++)
        if (strcmp(tensor->dtype, df_dtype_name(dtype)) == 0) stored = dtype;
    const df_dtype held = df_precision_dtype(precision, tensor->name, stored);
    return (double)df_row_bytes(held, tensor->dim[1]) * (double)tensor->dim[0];
}

double dp_bench_bytes(const dflash_draft *draft, bool (*counts)(const char *tensor)) {
    double bytes = 0.0;
    for (int i = 0; i < dflash_draft_tensor_count(draft); i++) {
        const dflash_tensor_view tensor = dflash_draft_tensor(draft, i);
        if (tensor.used && counts(tensor.name)) bytes += held_bytes(&tensor, dflash_draft_precision(draft));
    }
    return bytes;
}
