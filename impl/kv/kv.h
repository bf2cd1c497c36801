/*
 * kv.h - what stands behind dflash_kv, and the parts of the draft cache that its own files and the forward programs
 * share.
 */
#ifndef DF_KV_H
#define DF_KV_H

#include "model/model.h"

struct dflash_kv {
    dflash_draft *draft;
    int capacity, len;
    int32_t floor;   /* lowest position that the first row of the context may have */
    int32_t dropped; /* position of the last row that compaction dropped; -1: none was */
    int pinned;      /* length to which cutting back stays exact; -1: no pin */
    int32_t *pos;    /* [capacity] */
    float *k, *v;    /* [L, capacity, nkv * hd] */
};

/* First value of row `row` of `layer` in one of the two buffers of a cache. */
static inline float *df_kv_row(const dflash_kv *kv, float *buffer, int layer, int row) {
    const size_t width = (size_t)kv->draft->config.n_kv_heads * (size_t)kv->draft->config.head_dim;
    return buffer + ((size_t)layer * (size_t)kv->capacity + (size_t)row) * width;
}

/* Positions must be non-negative, strictly increasing and beyond `after` (-1: no lower bound). */
dflash_status df_check_positions(const int32_t *pos, int rows, int32_t after, const char *what, dflash_error *err);

/* The largest window; 0 when some layer has none. */
int32_t df_kv_window(const dflash_kv *kv);
/* Most rows that may be committed: when every layer slides, room for a block is always left. */
int df_kv_limit(const dflash_kv *kv);
/* Under poison_scratch, fills the rows past the committed ones with NaN. */
void df_kv_poison(dflash_kv *kv);
/* Positions of rows that follow the committed ones: as df_check_positions, and at or beyond the floor. */
dflash_status df_kv_check_next(const dflash_kv *kv, const int32_t *pos, int rows, const char *what, dflash_error *err);

/* How rows to be appended are made to fit. */
typedef struct df_kv_append_plan {
    int drop;        /* held rows that go, from the front */
    int skip;        /* rows of the append that need not come at all, from its front */
    int32_t dropped; /* the cache's `dropped` afterwards */
} df_kv_append_plan;

/* Plans for `rows` more rows at positions pos, which df_kv_check_next has yet to accept; changes nothing. A cache that
 * never drops reads no position. */
dflash_status df_kv_plan(const dflash_kv *kv, const int32_t *pos, int rows, df_kv_append_plan *plan, dflash_error *err);
/* Carries the plan out and commits `rows` rows (those left after the skip). Their keys and values are already at row
 * len of each layer when nothing drops; otherwise they come from k and v, [L, rows, nkv * hd], because their place is
 * still taken: a call that fails before this point leaves the cache as it was. Only a device can fail, and then the
 * cache is empty. */
dflash_status df_kv_append(dflash_kv *kv, const df_kv_append_plan *plan, const int32_t *pos, int rows, const float *k,
                           const float *v, dflash_error *err);

#endif
