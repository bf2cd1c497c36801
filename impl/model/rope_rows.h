/*
 * rope_rows.h - rows of the rotary tables, as the calls of a draft ask for them.
 *
 * A round drafts mostly at the positions of the round before, and what is accepted of it is ingested at positions that
 * it has just used; so the rows made last are kept. A long context is made by all threads. Either way a row has the
 * bits of df_rope_tables, which depend on its position alone.
 */
#ifndef DF_ROPE_ROWS_H
#define DF_ROPE_ROWS_H

#include "common/pool.h"

enum { DF_ROPE_KEPT = 256 }; /* rows, one for each position modulo this */

typedef struct df_rope_rows {
    int half;              /* rotary_dim / 2 */
    const float *inv_freq; /* [half], the owner's */
    float scaling;
    int32_t pos[DF_ROPE_KEPT]; /* -1: none is kept there */
    float *row;                /* [DF_ROPE_KEPT, 2, half]: cos, sin */
} df_rope_rows;

/* inv_freq is used as long as the rows are. */
dflash_status df_rope_rows_open(df_rope_rows *rows, const float *inv_freq, int half, float scaling, dflash_error *err);
/* A zeroed struct may be closed too. */
void df_rope_rows_close(df_rope_rows *rows);

/* cos and sin, each [n, half], at positions pos[n] >= 0. One call at a time. */
void df_rope_rows_get(df_rope_rows *rows, df_pool *pool, const int32_t *pos, int n, float *cos_out, float *sin_out);

#endif
