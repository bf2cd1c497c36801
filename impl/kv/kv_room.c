/*
 * kv_room.c - how rows come into the draft cache, and which old ones make room for them.
 *
 * When every layer slides, a query sees no key that is a window or more before it, so all but the last rows may go.
 * What stays are the last window + B rows of the whole history, so that the caller may still cut back a block of
 * rejected tokens. Rows move to the front only when room runs out, and then everything that may go does: with capacity
 * for twice the kept rows, a row is moved about once in its life. Sums over keys are cut by absolute position
 * (canon.h), so where a row lies changes no bit.
 */
#include "kv/kv.h"

#include "common/error.h"

#include <string.h>

int32_t df_kv_window(const dflash_kv *kv) {
    const dflash_config *config = &kv->draft->config;
    int32_t largest = 0;
    for (int i = 0; i < config->n_layers; i++) {
        if (config->layer[i].window == 0) return 0;
        if (config->layer[i].window > largest) largest = config->layer[i].window;
    }
    return largest;
}

int df_kv_limit(const dflash_kv *kv) { return kv->capacity - (df_kv_window(kv) > 0 ? kv->draft->config.block : 0); }

void df_kv_poison(dflash_kv *kv) {
    const dflash_config *config = &kv->draft->config;
    const df_memory *memory = &kv->draft->engine->memory;
    if (!kv->draft->engine->options.poison_scratch) return;
    const size_t bytes = (size_t)(kv->capacity - kv->len) * (size_t)config->n_kv_heads * (size_t)config->head_dim * 4;
    for (int i = 0; i < config->n_layers; i++) { /* a device that fails here fails the next call that reports, too */
        memory->fill(memory->owner, df_kv_row(kv, kv->k, i, kv->len), 0xff, bytes, NULL);
        memory->fill(memory->owner, df_kv_row(kv, kv->v, i, kv->len), 0xff, bytes, NULL);
    }
}

dflash_status df_kv_check_next(const dflash_kv *kv, const int32_t *pos, int rows, const char *what, dflash_error *err) {
    if (rows > 0 && kv->len == 0 && pos[0] >= 0 && pos[0] < kv->floor)
        return df_fail(
            err, DFLASH_ERR_ARGUMENT, "kv.floor.position",
            "The first position of %s is %d, but the context of this cache starts at %d: what lies before it "
            "does not exist. Pass absolute positions from the floor on.",
            what, pos[0], kv->floor);
    return df_check_positions(pos, rows, kv->len > 0 ? kv->pos[kv->len - 1] : kv->floor - 1, what, err);
}

dflash_status df_kv_plan(const dflash_kv *kv, const int32_t *pos, int rows, df_kv_append_plan *plan,
                         dflash_error *err) {
    const int64_t window = df_kv_window(kv), block = kv->draft->config.block, keep = window + block;
    const int64_t total = (int64_t)kv->len + rows;
    int64_t drop = 0; /* rows of the history that make room: first those held, then those that come */
    *plan = (df_kv_append_plan){.dropped = kv->dropped};
    if (total <= df_kv_limit(kv)) return DFLASH_OK;
    if (window == 0)
        return df_fail(
            err, DFLASH_ERR_ARGUMENT, "kv.full",
            "The cache holds %d of at most %d rows, so %d more do not fit, and a layer without a window sees "
            "all of them. Create it with more capacity or truncate it first.",
            kv->len, kv->capacity, rows);
    drop = total - keep;
    if (kv->pinned >= 0 && drop > kv->pinned - keep) drop = kv->pinned - keep;
    if (drop < 0) drop = 0;
    if (total - drop > df_kv_limit(kv))
        return df_fail(
            err, DFLASH_ERR_ARGUMENT, "kv.full",
            "The cache holds %d of at most %d rows, so %d more and a block of %d do not fit: of the oldest only "
            "%lld may go%s. Without a pin, a capacity of window + 2 blocks (%lld) always suffices%s.",
            kv->len, kv->capacity, rows, (int)block, (long long)drop, kv->pinned >= 0 ? " before the pin" : "",
            (long long)(keep + block), kv->pinned >= 0 ? "; unpin the cache, or create it with more capacity" : "");
    plan->drop = drop < kv->len ? (int)drop : kv->len;
    plan->skip = (int)drop - plan->drop;
    if (plan->skip > 0)
        plan->dropped = pos[plan->skip - 1];
    else if (plan->drop > 0)
        plan->dropped = kv->pos[plan->drop - 1];
    return DFLASH_OK;
}

/* Rows [from, len) of every layer move to the front. */
static dflash_status move_to_front(dflash_kv *kv, int from, dflash_error *err) {
    const dflash_config *config = &kv->draft->config;
    const df_memory *memory = &kv->draft->engine->memory;
    const size_t rows = (size_t)(kv->len - from);
    const size_t bytes = rows * (size_t)config->n_kv_heads * (size_t)config->head_dim * sizeof(float);
    for (int i = 0; i < config->n_layers; i++) {
        TRY(memory->copy(memory->owner, df_kv_row(kv, kv->k, i, 0), df_kv_row(kv, kv->k, i, from), bytes, err));
        TRY(memory->copy(memory->owner, df_kv_row(kv, kv->v, i, 0), df_kv_row(kv, kv->v, i, from), bytes, err));
    }
    memmove(kv->pos, kv->pos + from, rows * sizeof *kv->pos);
    kv->len = (int)rows;
    if (kv->pinned >= 0) kv->pinned -= from;
    return DFLASH_OK;
}

/* Old rows make room for those in k and v. */
static dflash_status replace_old(dflash_kv *kv, int drop, int rows, const float *k, const float *v, dflash_error *err) {
    const dflash_config *config = &kv->draft->config;
    const df_memory *memory = &kv->draft->engine->memory;
    const size_t layer = (size_t)rows * (size_t)config->n_kv_heads * (size_t)config->head_dim;
    TRY(move_to_front(kv, drop, err));
    for (int i = 0; i < config->n_layers; i++) {
        const size_t at = (size_t)i * layer, bytes = layer * sizeof(float);
        TRY(memory->copy(memory->owner, df_kv_row(kv, kv->k, i, kv->len), k + at, bytes, err));
        TRY(memory->copy(memory->owner, df_kv_row(kv, kv->v, i, kv->len), v + at, bytes, err));
    }
    return DFLASH_OK;
}

dflash_status df_kv_append(dflash_kv *kv, const df_kv_append_plan *plan, const int32_t *pos, int rows, const float *k,
                           const float *v, dflash_error *err) {
    const dflash_status status = plan->drop > 0 ? replace_old(kv, plan->drop, rows, k, v, err) : DFLASH_OK;
    if (status != DFLASH_OK) {
        dflash_kv_clear(kv); /* the device failed half-way, and no half of the old rows may stay */
        return status;
    }
    for (int row = 0; row < rows; row++) kv->pos[kv->len + row] = pos[row];
    kv->len += rows;
    if (plan->dropped != kv->dropped) {
        kv->dropped = plan->dropped;
        kv->floor = plan->dropped + 1;
        df_kv_poison(kv);
    }
    return DFLASH_OK;
}
