/*
 * draft.h - what stands behind df_draft and df_kv, shared by the forward programs, the cache and the loader.
 */
#ifndef DF_DRAFT_H
#define DF_DRAFT_H

#include "engine.h"

struct df_draft {
    df_engine *engine;
    df_config config;
    df_weights weights;
    float *inv_freq;         /* [rotary_dim / 2], owned */
    float attention_scaling; /* factor on cos and sin */
    df_observe_fn observe;
    void *observe_user;
};

struct df_kv {
    df_draft *draft;
    int capacity, len;
    int32_t *pos; /* [capacity] */
    float *k, *v; /* [L, capacity, nkv * hd] */
};

/* First value of row `row` of `layer` in one of the two buffers of a cache. */
static inline float *df_kv_row(const df_kv *kv, float *buffer, int layer, int row) {
    const size_t width = (size_t)kv->draft->config.n_kv_heads * (size_t)kv->draft->config.head_dim;
    return buffer + ((size_t)layer * (size_t)kv->capacity + (size_t)row) * width;
}

/* Positions must be non-negative, strictly increasing and beyond `after` (-1: no lower bound). */
df_status df_check_positions(const int32_t *pos, int rows, int32_t after, const char *what, df_error *err);

#endif
