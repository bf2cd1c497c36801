/*
 * draft.h - what stands behind df_draft and df_kv, shared by the forward programs, the cache and the loader.
 */
#ifndef DF_DRAFT_H
#define DF_DRAFT_H

#include "engine/engine.h"
#include "model/rope_rows.h"

struct df_draft {
    df_engine *engine;
    df_config config;
    df_precision precision;
    df_weights weights;
    uint64_t weights_hash; /* of the norm vectors that the cache's rows depend on */
    float *inv_freq;       /* [rotary_dim / 2], owned */
    df_rope_rows rope;     /* of inv_freq */
    df_observe_fn observe;
    void *observe_user;
    df_replace_fn replace;
    void *replace_user;
};

struct df_kv {
    df_draft *draft;
    int capacity, len;
    int32_t floor;   /* lowest position that the first row of the context may have */
    int32_t dropped; /* position of the last row that compaction dropped; -1: none was */
    int pinned;      /* length to which cutting back stays exact; -1: no pin */
    int32_t *pos;    /* [capacity] */
    float *k, *v;    /* [L, capacity, nkv * hd] */
};

/* First value of row `row` of `layer` in one of the two buffers of a cache. */
static inline float *df_kv_row(const df_kv *kv, float *buffer, int layer, int row) {
    const size_t width = (size_t)kv->draft->config.n_kv_heads * (size_t)kv->draft->config.head_dim;
    return buffer + ((size_t)layer * (size_t)kv->capacity + (size_t)row) * width;
}

/* df_draft_load_as with a config in the place of DIR/config.json, as df_config_read would have resolved it: for asking
 * what a drafter would compute that read a field otherwise. */
df_status df_draft_load_config(df_engine *engine, const char *dir, df_precision precision, const df_config *config,
                               df_draft **out, df_error *err);

/* Positions must be non-negative, strictly increasing and beyond `after` (-1: no lower bound). */
df_status df_check_positions(const int32_t *pos, int rows, int32_t after, const char *what, df_error *err);

/* ---- The cache's own parts (kv_room.c, kv_tail.c) ---- */

/* The draft's weights_hash, while its vectors are in host memory. */
uint64_t df_kv_weights_hash(const df_draft *draft);

/* The largest window; 0 when some layer has none. */
int32_t df_kv_window(const df_kv *kv);
/* Most rows that may be committed: when every layer slides, room for a block is always left. */
int df_kv_limit(const df_kv *kv);
/* Under poison_scratch, fills the rows past the committed ones with NaN. */
void df_kv_poison(df_kv *kv);
/* Positions of rows that follow the committed ones: as df_check_positions, and at or beyond the floor. */
df_status df_kv_check_next(const df_kv *kv, const int32_t *pos, int rows, const char *what, df_error *err);

/* How rows to be appended are made to fit. */
typedef struct df_kv_append_plan {
    int drop;        /* held rows that go, from the front */
    int skip;        /* rows of the append that need not come at all, from its front */
    int32_t dropped; /* the cache's `dropped` afterwards */
} df_kv_append_plan;

/* Plans for `rows` more rows at positions pos, which df_kv_check_next has yet to accept; changes nothing. A cache that
 * never drops reads no position. */
df_status df_kv_plan(const df_kv *kv, const int32_t *pos, int rows, df_kv_append_plan *plan, df_error *err);
/* Carries the plan out and commits `rows` rows (those left after the skip). Their keys and values are already at row
 * len of each layer when nothing drops; otherwise they come from k and v, [L, rows, nkv * hd], because their place is
 * still taken: a call that fails before this point leaves the cache as it was. Only a device can fail, and then the
 * cache is empty. */
df_status df_kv_append(df_kv *kv, const df_kv_append_plan *plan, const int32_t *pos, int rows, const float *k,
                       const float *v, df_error *err);

#endif
