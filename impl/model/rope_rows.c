/* rope_rows.c - see rope_rows.h. */
#include "model/rope_rows.h"

#include "common/error.h"
#include "model/rope.h"

#include <stdlib.h>
#include <string.h>

enum {
    MANY = DF_ROPE_KEPT / 4, /* rows past which a call is a context: it would only push out what is kept */
    ROWS_PER_TASK = 32
};

dflash_status df_rope_rows_open(df_rope_rows *rows, const float *inv_freq, int half, float scaling, dflash_error *err) {
    const size_t bytes = (size_t)DF_ROPE_KEPT * 2 * (size_t)half * sizeof(float);
    *rows = (df_rope_rows){.half = half, .inv_freq = inv_freq, .scaling = scaling, .row = malloc(bytes)};
    if (rows->row == NULL) return df_fail_memory(err, "the rotary table's rows", bytes);
    for (int i = 0; i < DF_ROPE_KEPT; i++) rows->pos[i] = -1;
    return DFLASH_OK;
}

void df_rope_rows_close(df_rope_rows *rows) {
    free(rows->row);
    rows->row = NULL;
}

typedef struct table {
    const df_rope_rows *rows;
    const int32_t *pos;
    int n;
    float *cos, *sin;
} table;

static void make_rows(void *context, int task, int worker) {
    const table *t = context;
    const int first = task * ROWS_PER_TASK, left = t->n - first;
    const size_t at = (size_t)first * (size_t)t->rows->half;
    (void)worker;
    df_rope_tables(t->rows->inv_freq, t->rows->half, t->rows->scaling, t->pos + first,
                   left < ROWS_PER_TASK ? left : ROWS_PER_TASK, t->cos + at, t->sin + at);
}

void df_rope_rows_get(df_rope_rows *rows, df_pool *pool, const int32_t *pos, int n, float *cos_out, float *sin_out) {
    const size_t half = (size_t)rows->half;
    if (n > MANY) {
        table t = {rows, pos, n, cos_out, sin_out};
        df_pool_run(pool, make_rows, &t, (n + ROWS_PER_TASK - 1) / ROWS_PER_TASK);
        return;
    }
    for (int i = 0; i < n; i++) {
        const int slot = pos[i] % DF_ROPE_KEPT;
        float *kept = rows->row + (size_t)slot * 2 * half;
        if (rows->pos[slot] != pos[i]) {
            df_rope_tables(rows->inv_freq, rows->half, rows->scaling, &pos[i], 1, kept, kept + half);
            rows->pos[slot] = pos[i];
        }
        memcpy(cos_out + (size_t)i * half, kept, half * sizeof *kept);
        memcpy(sin_out + (size_t)i * half, kept + half, half * sizeof *kept);
    }
}
