/*
 * matmul.c - y = x W^T + bias in the canonical order.
 *
 * Rows of x are packed sixteen to a tile, channel by channel, so that a lane is a row: a row's arithmetic is the same
 * alone or among many, and absent rows are zeros that nobody reads. Weights stay in their own width and are widened a
 * segment at a time (exactly) into a small buffer that serves every row tile.
 *
 * Simulated narrow products (dflash_products) round both operands where they are laid out, the rows once packed and the
 * weights once widened; what multiplies them is the same, so products and sums stay float32 in the canonical order.
 */
#include "cpu/cpu_ops.h"

#include "cpu/tile_dot.h"
#include "weights/quant.h"

enum {
    OUTPUTS_PER_TASK =
        32,     /* weight rows a task owns: enough to amortise a task, few enough to balance small products */
    CHUNK = 32, /* channels widened between two stretches of products: one block of the block formats */
    PREFETCH_BYTES = 4096, /* how far ahead of the widening each row is asked for */
    WIDENED_ROW =
        DF_SEGMENT + 16, /* a cache line apart from a power of two, so that eight rows meet in no cache bank */
    TILES_PER_PASS = 8   /* row tiles that share one widened segment; bounds the unfinished sums kept in cache */
};

typedef struct pack_job {
    const float *x; /* [rows, in] */
    int64_t in;
    int rows;
    dflash_products products;
    float *packed; /* [tiles, in, DF_LANES] */
} pack_job;

typedef struct matmul_job {
    const df_matrix *w;
    size_t stride;      /* bytes of a row of w */
    size_t chunk_bytes; /* bytes of CHUNK channels of it */
    const float *bias;
    const float *packed; /* [tiles, in, DF_LANES] */
    int rows, tiles;
    dflash_products products; /* as far as it changes the weights */
    int output_tasks;         /* tasks that one pass over the outputs is cut into */
    float *y;
} matmul_job;

static void round_operands(dflash_products products, float *value, int64_t n) {
    if (products == DFLASH_PRODUCTS_TF32)
        for (int64_t i = 0; i < n; i++) value[i] = df_round_to_tf32(value[i]);
    if (products == DFLASH_PRODUCTS_BF16)
        for (int64_t i = 0; i < n; i++) value[i] = df_round_to_bf16(value[i]);
}

/* Tile `task` of the rows, transposed: channel by channel, a lane a row, absent rows as zeros. */
static void pack_task(void *context, int task, int worker) {
    (void)worker;
    const pack_job *job = context;
    const int first = task * DF_LANES, lanes = job->rows - first < DF_LANES ? job->rows - first : DF_LANES;
    const float *x = job->x + first * job->in;
    float *packed = job->packed + first * job->in;
    for (int64_t k = 0; k < job->in; k += DF_LANES) { /* square by square, which the nearest cache holds */
        const int64_t end = k + DF_LANES < job->in ? k + DF_LANES : job->in;
        for (int lane = 0; lane < DF_LANES; lane++)
            for (int64_t i = k; i < end; i++) packed[i * DF_LANES + lane] = lane < lanes ? x[lane * job->in + i] : 0.0f;
    }
    if (job->products != DFLASH_PRODUCTS_F32) round_operands(job->products, packed, job->in * DF_LANES);
}

/* Widens a whole chunk of one row, which starts at `from`; exact in every width. bf16 comes out split (tile_dot.h). */
static inline void widen_chunk(df_dtype dtype, const unsigned char *from, float out[CHUNK]) {
    const uint16_t *half = (const uint16_t *)(const void *)from;
    switch (dtype) {
    case DF_BF16: {
        v16 even, odd;
        v16_split_bf16(half, &even, &odd);
        v16_store(out, even);
        v16_store(out + DF_LANES, odd);
        break;
    }
    case DF_F16:
        for (int i = 0; i < CHUNK; i += DF_LANES) v16_store(out + i, v16_load_f16(half + i));
        break;
    case DF_F32:
        memcpy(out, from, CHUNK * sizeof(float));
        break;
    case DF_Q8_0:
        df_q8_0_decode(from, out);
        break;
    case DF_Q4_0:
        df_q4_0_decode(from, out);
        break;
    }
}

/* The last channels of a row that is no whole number of chunks; only the unblocked widths have such rows. */
static void widen_rest(df_dtype dtype, const unsigned char *from, int length, float *out) {
    const uint16_t *half = (const uint16_t *)(const void *)from;
    const float *whole = (const float *)(const void *)from;
    for (int i = 0; i < length; i++)
        out[i] = dtype == DF_F32 ? whole[i] : dtype == DF_F16 ? df_f16_to_f32(half[i]) : df_bf16_to_f32(half[i]);
}

/* Widens channels [k, k + CHUNK), as far as there are any, of rows [first, last) of the eight, and asks for what comes
 * later. */
static inline __attribute__((always_inline)) void widen_rows(const matmul_job *job,
                                                             const unsigned char *const row[DF_TILE_OUTPUTS], int64_t k,
                                                             int first, int last,
                                                             float out[DF_TILE_OUTPUTS][WIDENED_ROW]) {
    const df_dtype dtype = job->w->dtype;
    const int64_t left = job->w->in - k;
    const size_t at = (size_t)(k / CHUNK) * job->chunk_bytes;
    /* Past a row's end the next one that is wanted lies eight rows further down, not one. */
    size_t ahead = at + PREFETCH_BYTES;
    if (ahead >= job->stride) ahead += (DF_TILE_OUTPUTS - 1) * job->stride;
    if (left >= CHUNK) {
        for (int o = first; o < last; o++) {
            __builtin_prefetch(row[o] + ahead);
            widen_chunk(dtype, row[o] + at, &out[o][k % DF_SEGMENT]);
        }
    } else if (left > 0) {
        for (int o = first; o < last; o++) widen_rest(dtype, row[o] + at, (int)left, &out[o][k % DF_SEGMENT]);
    }
}

/* The chunk that widen_rows made of all eight rows, rounded for simulated products. */
static void round_widened(const matmul_job *job, int64_t k, float out[DF_TILE_OUTPUTS][WIDENED_ROW]) {
    const int64_t left = job->w->in - k;
    if (left <= 0) return;
    for (int o = 0; o < DF_TILE_OUTPUTS; o++)
        round_operands(job->products, &out[o][k % DF_SEGMENT], left < CHUNK ? left : CHUNK);
}

/* One whole chunk of products of bf16 weights; between every few channels the same share of the next segment's chunk is
 * widened. */
static inline __attribute__((always_inline)) void
run_and_widen(const matmul_job *job, const unsigned char *const row[DF_TILE_OUTPUTS], int64_t next,
              float out[DF_TILE_OUTPUTS][WIDENED_ROW], const float *w, const float *x, v16 partial[DF_TILE_OUTPUTS]) {
    enum { STEPS = 4, CHANNELS = CHUNK / STEPS, ROWS = DF_TILE_OUTPUTS / STEPS };
#pragma GCC unroll 4
    for (int s = 0; s < STEPS; s++) {
        widen_rows(job, row, next, s * ROWS, (s + 1) * ROWS, out);
        const float *ws = w + s * CHANNELS / 2;
        for (int o = 0; o < DF_TILE_OUTPUTS; o += V16_OUTPUTS)
            df_tile_run(ws + o * WIDENED_ROW, WIDENED_ROW, x + s * CHANNELS * DF_LANES, CHANNELS, DF_TILE_SPLIT,
                        partial + o);
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

/*
 * Eight outputs of up to TILES_PER_PASS row tiles. While one segment is multiplied the next is widened, chunk by chunk,
 * so that the conversions fill the slots that the chains of fma leave open.
 */
static void matmul_outputs(const matmul_job *job, int first_tile, int64_t first_out) {
    const int64_t in = job->w->in;
    const df_tile_order order = job->w->dtype == DF_BF16 ? DF_TILE_SPLIT : DF_TILE_IN_ORDER;
    const int tiles = job->tiles - first_tile < TILES_PER_PASS ? job->tiles - first_tile : TILES_PER_PASS;
    _Alignas(64) float widened[2][DF_TILE_OUTPUTS][WIDENED_ROW];
    const unsigned char *row[DF_TILE_OUTPUTS];
    df_tile_sum sum[TILES_PER_PASS];
    /* A row past the end repeats the last one; its sums are not stored. */
    for (int o = 0; o < DF_TILE_OUTPUTS; o++) {
        const int64_t index = first_out + o < job->w->out ? first_out + o : job->w->out - 1;
        row[o] = (const unsigned char *)job->w->data + (size_t)index * job->stride;
    }
    for (int t = 0; t < tiles; t++) df_tree_reset(&sum[t].tree);
    for (int64_t k = 0; k < DF_SEGMENT; k += CHUNK) {
        widen_rows(job, row, k, 0, DF_TILE_OUTPUTS, widened[0]);
        if (job->products != DFLASH_PRODUCTS_F32) round_widened(job, k, widened[0]);
    }
    for (int64_t k = 0; k < in; k += DF_SEGMENT) {
        const int length = in - k < DF_SEGMENT ? (int)(in - k) : DF_SEGMENT;
        const int now = (int)(k / DF_SEGMENT) & 1;
        for (int t = 0; t < tiles; t++) {
            v16 partial[DF_TILE_OUTPUTS];
            df_tile_zero(partial);
            for (int c = 0; c < length; c += CHUNK) {
                const float *w = &widened[now][0][c], *x = job->packed + ((first_tile + t) * in + k + c) * DF_LANES;
                const int64_t next = k + DF_SEGMENT + c;
                if (t == 0 && length - c >= CHUNK && order == DF_TILE_SPLIT) {
                    run_and_widen(job, row, next, widened[1 - now], w, x, partial);
                    continue;
                }
                if (t == 0) widen_rows(job, row, next, 0, DF_TILE_OUTPUTS, widened[1 - now]);
                if (t == 0 && job->products != DFLASH_PRODUCTS_F32) round_widened(job, next, widened[1 - now]);
                df_tile_accumulate(w, WIDENED_ROW, x, length - c < CHUNK ? length - c : CHUNK, order, partial);
            }
            df_tile_push_next(&sum[t], (unsigned)(k / DF_SEGMENT), partial);
        }
    }
    for (int t = 0; t < tiles; t++) store_tile(job, &sum[t], (first_tile + t) * DF_LANES, first_out);
}

/* Tasks run through all outputs for one pass of rows before the next, so that a pass's rows stay in the cache. */
static void matmul_task(void *context, int task, int worker) {
    (void)worker;
    const matmul_job *job = context;
    const int first_tile = task / job->output_tasks * TILES_PER_PASS;
    const int64_t first = (int64_t)(task % job->output_tasks) * OUTPUTS_PER_TASK;
    for (int64_t o = first; o < first + OUTPUTS_PER_TASK && o < job->w->out; o += DF_TILE_OUTPUTS)
        matmul_outputs(job, first_tile, o);
}

dflash_status DF_CPU(matmul)(dflash_engine *engine, const df_matrix *w, const float *bias, const float *x, int rows,
                             float *y, dflash_error *err) {
    if (rows == 0) return DFLASH_OK;
    const int tiles = (rows - 1) / DF_LANES + 1, passes = (tiles - 1) / TILES_PER_PASS + 1;
    const df_arena_mark mark = df_arena_get_mark(&engine->arena);
    const dflash_products products = engine->options.products;
    pack_job pack = {.x = x, .in = w->in, .rows = rows, .products = products};
    pack.packed = df_arena_floats(&engine->arena, (size_t)tiles * (size_t)w->in * DF_LANES, err);
    if (pack.packed == NULL) return DFLASH_ERR_MEMORY;
    df_pool_run(engine->pool, pack_task, &pack, tiles);
    matmul_job job = {.w = w,
                      .stride = df_row_bytes(w->dtype, w->in),
                      .chunk_bytes = df_row_bytes(w->dtype, CHUNK),
                      .bias = bias,
                      .packed = pack.packed,
                      .rows = rows,
                      .tiles = tiles,
                      /* bf16 weights are exact in either width: their fast path needs no rounding */
                      .products = w->dtype == DF_BF16 ? DFLASH_PRODUCTS_F32 : products,
                      .output_tasks = (int)((w->out - 1) / OUTPUTS_PER_TASK + 1),
                      .y = y};
    df_pool_run(engine->pool, matmul_task, &job, passes * job.output_tasks);
    df_arena_rewind(&engine->arena, mark);
    return DFLASH_OK;
}
