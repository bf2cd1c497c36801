/*
 * matmul.c - y = x W^T + bias in the canonical order.
 *
 * Rows of x are packed sixteen to a tile, channel by channel, so that a lane is a row: a row's arithmetic is the same
 * alone or among many, and absent rows are zeros that nobody reads. Weights stay in their own width and are widened a
 * segment at a time (exactly) into a small buffer that serves every row tile.
 */
#include "cpu/cpu_ops.h"

#include "cpu/tile_dot.h"
#include "quant.h"

enum {
    OUTPUTS_PER_TASK = 32, /* weight rows a task owns: enough to amortise a task, few enough to balance small products */
    TILES_PER_PASS = 8     /* row tiles that share one widened segment; bounds the unfinished sums kept in cache */
};

typedef struct matmul_job {
    const df_matrix *w;
    size_t stride; /* bytes of a row of w */
    const float *bias;
    const float *packed; /* [tiles, in, DF_LANES] */
    int rows;
    float *y;
} matmul_job;

static void pack_rows(const float *x, int rows, int64_t in, float *packed) {
    for (int first = 0; first < rows; first += DF_LANES) {
        const int lanes = rows - first < DF_LANES ? rows - first : DF_LANES;
        for (int64_t k = 0; k < in; k++)
            for (int lane = 0; lane < DF_LANES; lane++)
                *packed++ = lane < lanes ? x[(first + lane) * in + k] : 0.0f;
    }
}

/* Widens weights [k, k + length) of one row; exact in every width. */
static void widen_row(df_dtype dtype, const unsigned char *row, int64_t k, int length, float out[DF_SEGMENT]) {
    switch (dtype) {
    case DF_BF16: {
        const uint16_t *from = (const uint16_t *)(const void *)row + k;
        for (int i = 0; i < length; i++) out[i] = df_bf16_to_f32(from[i]);
        break;
    }
    case DF_F16: {
        const uint16_t *from = (const uint16_t *)(const void *)row + k;
        for (int i = 0; i < length; i++) out[i] = df_f16_to_f32(from[i]);
        break;
    }
    case DF_F32: memcpy(out, (const float *)(const void *)row + k, (size_t)length * sizeof(float)); break;
    case DF_Q8_0:
        row += k / DF_QUANT_BLOCK * DF_Q8_0_BYTES;
        for (int i = 0; i < length; i += DF_QUANT_BLOCK, row += DF_Q8_0_BYTES) df_q8_0_decode(row, out + i);
        break;
    case DF_Q4_0:
        row += k / DF_QUANT_BLOCK * DF_Q4_0_BYTES;
        for (int i = 0; i < length; i += DF_QUANT_BLOCK, row += DF_Q4_0_BYTES) df_q4_0_decode(row, out + i);
        break;
    }
}

/* Widens `length` weights of each of the eight rows. A row past the end repeats the last one; its sums are not stored. A
 * segment of a block format is one or two blocks. */
static void widen_segment(const matmul_job *job, int64_t first_row, int64_t k, int length, float out[][DF_SEGMENT]) {
    _Static_assert(DF_SEGMENT % DF_QUANT_BLOCK == 0, "a segment is whole blocks");
    const df_matrix *w = job->w;
    for (int o = 0; o < DF_TILE_OUTPUTS; o++) {
        const int64_t row = first_row + o < w->out ? first_row + o : w->out - 1;
        widen_row(w->dtype, (const unsigned char *)w->data + (size_t)row * job->stride, k, length, out[o]);
    }
}

static void store_tile(const matmul_job *job, const df_tile_sum *sum, int first_row, int64_t first_out) {
    float value[DF_TILE_OUTPUTS][DF_LANES];
    for (int o = 0; o < DF_TILE_OUTPUTS; o++) v16_store(value[o], df_tile_total(sum, o));
    for (int lane = 0; lane < DF_LANES && first_row + lane < job->rows; lane++)
        for (int o = 0; o < DF_TILE_OUTPUTS && first_out + o < job->w->out; o++) {
            float *y = &job->y[(first_row + lane) * job->w->out + first_out + o];
            *y = job->bias != NULL ? value[o][lane] + job->bias[first_out + o] : value[o][lane];
        }
}

static void matmul_outputs(const matmul_job *job, int64_t first_out) {
    const int64_t in = job->w->in;
    const int tiles = (job->rows + DF_LANES - 1) / DF_LANES;
    float widened[DF_TILE_OUTPUTS][DF_SEGMENT];
    df_tile_sum sum[TILES_PER_PASS];
    for (int first_tile = 0; first_tile < tiles; first_tile += TILES_PER_PASS) {
        const int pass = tiles - first_tile < TILES_PER_PASS ? tiles - first_tile : TILES_PER_PASS;
        for (int t = 0; t < pass; t++) df_tree_reset(&sum[t].tree);
        for (int64_t k = 0; k < in; k += DF_SEGMENT) {
            const int length = in - k < DF_SEGMENT ? (int)(in - k) : DF_SEGMENT;
            widen_segment(job, first_out, k, length, widened);
            for (int t = 0; t < pass; t++) {
                v16 partial[DF_TILE_OUTPUTS];
                df_tile_segment(widened[0], DF_SEGMENT, job->packed + ((first_tile + t) * in + k) * DF_LANES, length,
                                partial);
                df_tile_push(&sum[t], (unsigned)(k / DF_SEGMENT), partial);
            }
        }
        for (int t = 0; t < pass; t++) store_tile(job, &sum[t], (first_tile + t) * DF_LANES, first_out);
    }
}

static void matmul_task(void *context, int task, int worker) {
    (void)worker;
    const matmul_job *job = context;
    const int64_t end = (int64_t)(task + 1) * OUTPUTS_PER_TASK;
    for (int64_t o = (int64_t)task * OUTPUTS_PER_TASK; o < end && o < job->w->out; o += DF_TILE_OUTPUTS)
        matmul_outputs(job, o);
}

df_status DF_CPU(matmul)(df_engine *engine, const df_matrix *w, const float *bias, const float *x, int rows, float *y,
                         df_error *err) {
    if (rows == 0) return DF_OK;
    const size_t tiles = ((size_t)rows + DF_LANES - 1) / DF_LANES;
    const df_arena_mark mark = df_arena_get_mark(&engine->arena);
    float *packed = df_arena_floats(&engine->arena, tiles * (size_t)w->in * DF_LANES, err);
    if (packed == NULL) return DF_ERR_MEMORY;
    pack_rows(x, rows, w->in, packed);
    matmul_job job = {.w = w, .stride = df_row_bytes(w->dtype, w->in), .bias = bias, .packed = packed, .rows = rows, .y = y};
    df_pool_run(engine->pool, matmul_task, &job, (int)((w->out + OUTPUTS_PER_TASK - 1) / OUTPUTS_PER_TASK));
    df_arena_rewind(&engine->arena, mark);
    return DF_OK;
}
