/*
 * kv.c - the draft cache as its caller sees it: making it, its length and floor, cutting it back, the pin, reading it.
 * How rows come in and old ones make room is kv_room.c; the tail as bytes is kv_tail.c.
 */
#include "kv/kv.h"

#include "common/error.h"

#include <stdlib.h>
#include <string.h>

dflash_status df_check_positions(const int32_t *pos, int rows, int32_t after, const char *what, dflash_error *err) {
    for (int i = 0; i < rows; i++) {
        const int32_t before = i > 0 ? pos[i - 1] : after;
        if (pos[i] > before) continue;
        return df_fail(
            err, DFLASH_ERR_ARGUMENT, "positions.order",
            "The positions of %s must be non-negative and strictly increasing: position %d of row %d does not "
            "come after %d. Pass absolute positions in committed order.",
            what, pos[i], i, before);
    }
    return DFLASH_OK;
}

dflash_status dflash_kv_create(dflash_draft *draft, int capacity, dflash_kv **out, dflash_error *err) {
    const dflash_config *config = &draft->config;
    *out = NULL;
    if (capacity < config->block)
        return df_fail(
            err, DFLASH_ERR_ARGUMENT, "kv.capacity",
            "A cache of %d rows cannot hold one block of %d: the capacity counts committed rows plus one block.",
            capacity, config->block);
    dflash_kv *kv = calloc(1, sizeof *kv);
    if (kv == NULL) return df_fail_memory(err, "the draft cache", sizeof *kv);
    const size_t values =
        (size_t)config->n_layers * (size_t)capacity * (size_t)config->n_kv_heads * (size_t)config->head_dim;
    *kv = (dflash_kv){.draft = draft, .capacity = capacity};
    kv->pos = malloc((size_t)capacity * sizeof *kv->pos);
    dflash_status status = kv->pos != NULL ? DFLASH_OK : df_fail_memory(err, "the draft cache", (size_t)capacity * 4);
    if (status == DFLASH_OK) status = dflash_engine_alloc(draft->engine, values, &kv->k, err);
    if (status == DFLASH_OK) status = dflash_engine_alloc(draft->engine, values, &kv->v, err);
    if (status != DFLASH_OK) {
        dflash_kv_destroy(kv);
        return status;
    }
    dflash_kv_clear(kv);
    *out = kv;
    return DFLASH_OK;
}

void dflash_kv_destroy(dflash_kv *kv) {
    if (kv == NULL) return;
    dflash_engine_free(kv->draft->engine, kv->k);
    dflash_engine_free(kv->draft->engine, kv->v);
    free(kv->pos);
    free(kv);
}

void dflash_kv_clear(dflash_kv *kv) {
    kv->len = 0;
    kv->floor = 0;
    kv->dropped = -1;
    kv->pinned = -1;
    df_kv_poison(kv);
}

int dflash_kv_len(const dflash_kv *kv) { return kv->len; }
int dflash_kv_capacity(const dflash_kv *kv) { return kv->capacity; }
int32_t dflash_kv_floor(const dflash_kv *kv) { return kv->len > 0 ? kv->pos[0] : kv->floor; }

dflash_status dflash_kv_set_floor(dflash_kv *kv, int32_t floor, dflash_error *err) {
    if (kv->len > 0 || kv->dropped >= 0)
        return df_fail(
            err, DFLASH_ERR_ARGUMENT, "kv.floor.rows",
            "The floor can be set only while the cache is empty and nothing was dropped from it: it holds %d "
            "rows from position %d on. Clear it first, then set the floor and ingest again.",
            kv->len, dflash_kv_floor(kv));
    if (floor < 0)
        return df_fail(
            err, DFLASH_ERR_ARGUMENT, "kv.floor.negative",
            "The floor is the absolute position of the first context row and must not be negative: found %d.", floor);
    kv->floor = floor;
    return DFLASH_OK;
}

/* ---- Cutting back ---- */

/* True when no query behind the first `len` rows can see a row that compaction dropped. */
static bool backed(const dflash_kv *kv, int len) {
    if (kv->dropped < 0 || len == kv->len) return true;
    const int64_t next = (int64_t)(len > 0 ? kv->pos[len - 1] : kv->dropped) + 1;
    return next - kv->dropped >= df_kv_window(kv);
}

dflash_status dflash_kv_truncate(dflash_kv *kv, int len, dflash_error *err) {
    if (len < 0 || len > kv->len)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "kv.truncate",
                       "The cache holds %d rows and can only be cut to 0..%d of them: asked for %d.", kv->len, kv->len,
                       len);
    if (!backed(kv, len))
        return df_fail(
            err, DFLASH_ERR_ARGUMENT, "kv.truncate.compacted",
            "Cut to %d of %d rows, the cache would lack rows that the next query can see: compaction dropped "
            "those up to position %d, the window is %d, and the last row kept would be at position %d. Pin the "
            "length to come back to before ingesting, or clear the cache and ingest again.",
            len, kv->len, kv->dropped, df_kv_window(kv), len > 0 ? kv->pos[len - 1] : kv->dropped);
    kv->len = len;
    if (kv->pinned > len) kv->pinned = len;
    df_kv_poison(kv);
    return DFLASH_OK;
}

dflash_status dflash_kv_truncate_at(dflash_kv *kv, int32_t position, dflash_error *err) {
    int len = kv->len;
    while (len > 0 && kv->pos[len - 1] >= position) len--;
    return dflash_kv_truncate(kv, len, err);
}

dflash_status dflash_kv_pin(dflash_kv *kv, dflash_error *err) {
    if (kv->pinned >= 0)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "kv.pinned",
                       "The cache is pinned already, at %d of %d rows, and keeps one pin. Unpin it first.", kv->pinned,
                       kv->len);
    kv->pinned = kv->len;
    return DFLASH_OK;
}

void dflash_kv_unpin(dflash_kv *kv) { kv->pinned = -1; }

/* ---- Reading ---- */

dflash_status dflash_kv_read(const dflash_kv *kv, int layer, float *keys, float *values, dflash_error *err) {
    const dflash_config *config = &kv->draft->config;
    if (layer < 0 || layer >= config->n_layers)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "kv.layer", "Layer %d does not exist: the model has layers 0..%d.",
                       layer, config->n_layers - 1);
    const size_t n = (size_t)kv->len * (size_t)config->n_kv_heads * (size_t)config->head_dim;
    dflash_status status = DFLASH_OK;
    if (keys != NULL) status = dflash_engine_download(kv->draft->engine, keys, df_kv_row(kv, kv->k, layer, 0), n, err);
    if (status == DFLASH_OK && values != NULL)
        status = dflash_engine_download(kv->draft->engine, values, df_kv_row(kv, kv->v, layer, 0), n, err);
    return status;
}
