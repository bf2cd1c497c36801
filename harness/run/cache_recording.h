/*
 * cache_recording.h - the content of a draft cache as the stages kv.k and kv.v of a recording.
 */
#ifndef DP_CACHE_RECORDING_H
#define DP_CACHE_RECORDING_H

#include "run/recording.h"

/* Values of a key, or of a value, of one row and layer: nkv * hd. */
size_t dp_key_width(const df_config *c);

/* Two buffers of [L, rows, nkv * hd], which the caller frees whatever the outcome. Codes: "memory". */
df_status dp_take_cache(const df_config *c, int rows, float **k, float **v, df_error *err);

/* Adds copies of k and v as kv.k and kv.v, [L, rows, nkv, hd]. */
df_status dp_recording_add_cache(const df_config *c, int rows, const float *k, const float *v, dp_recording *out,
                                 df_error *err);

/* Appends the committed rows of a cache to a recording, as kv.k and kv.v. */
df_status dp_record_cache(const df_draft *draft, const df_kv *kv, dp_recording *out, df_error *err);

#endif
