/* cache_recording.c - see cache_recording.h. */
#include "run/cache_recording.h"

#include "common/error.h"

#include <stdlib.h>

size_t dp_key_width(const dflash_config *c) { return (size_t)c->n_kv_heads * (size_t)c->head_dim; }

dflash_status dp_recording_add_cache(const dflash_config *c, int rows, const float *k, const float *v,
                                     dp_recording *out, dflash_error *err) {
    dflash_stage_view view = {.stage = DFLASH_STAGE_KV_K,
                              .layer = -1,
                              .rank = 4,
                              .dim = {c->n_layers, rows, c->n_kv_heads, c->head_dim},
                              .f32 = k};
    dp_recording_add(out, &view);
    view.stage = DFLASH_STAGE_KV_V;
    view.f32 = v;
    dp_recording_add(out, &view);
    return dp_recording_status(out, err);
}

dflash_status dp_take_cache(const dflash_config *c, int rows, float **k, float **v, dflash_error *err) {
    const size_t n = (size_t)c->n_layers * (size_t)rows * dp_key_width(c) + 1;
    *k = malloc(n * sizeof **k);
    *v = malloc(n * sizeof **v);
    return *k != NULL && *v != NULL ? DFLASH_OK : df_fail_memory(err, "the cache's content", 2 * n * sizeof **k);
}

dflash_status dp_record_cache(const dflash_draft *draft, const dflash_kv *kv, dp_recording *out, dflash_error *err) {
    const dflash_config *c = dflash_draft_config(draft);
    const int rows = dflash_kv_len(kv);
    const size_t layer = (size_t)rows * dp_key_width(c);
    float *k = NULL, *v = NULL;
    dflash_status status = dp_take_cache(c, rows, &k, &v, err);
    for (int i = 0; status == DFLASH_OK && i < c->n_layers; i++)
        status = dflash_kv_read(kv, i, k + (size_t)i * layer, v + (size_t)i * layer, err);
    if (status == DFLASH_OK) status = dp_recording_add_cache(c, rows, k, v, out, err);
    free(k);
    free(v);
    return status;
}
