/*
 * cache_recording.h - the content of a draft cache as the stages kv.k and kv.v of a recording.
 */
#ifndef DP_CACHE_RECORDING_H
#define DP_CACHE_RECORDING_H

#include "run/recording.h"

/* Values of a key, or of a value, of one row and layer: nkv * hd. */
size_t dp_key_width(const dflash_config *c);

/* Two buffers of [L, rows, nkv * hd], which the caller frees whatever the outcome. Codes: "memory". */
dflash_status dp_take_cache(const dflash_config *c, int rows, float **k, float **v, dflash_error *err);

/* Adds copies of k and v as kv.k and kv.v, [L, rows, nkv, hd]. */
dflash_status dp_recording_add_cache(const dflash_config *c, int rows, const float *k, const float *v,
                                     dp_recording *out, dflash_error *err);

/* Appends the committed rows of a cache to a recording, as kv.k and kv.v. */
dflash_status dp_record_cache(const dflash_draft *draft, const dflash_kv *kv, dp_recording *out, dflash_error *err);

#endif
