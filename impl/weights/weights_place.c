/*
 * weights_place.c - the weights of a draft in a device's memory: one allocation, filled tensor by tensor at load.
 *
 * Which matrices and vectors there are is the census's list (weights_census.h); what their values are was settled by
 * weights.c.
 */
#include "common/error.h"
#include "weights/quant.h"
#include "weights/weights_census.h"

#include <stdlib.h>

enum { BOUNDARY = 256 }; /* bytes: what the widest loads and copy engines of a device like */

static size_t padded(size_t bytes) { return (bytes + BOUNDARY - 1) / BOUNDARY * BOUNDARY; }

/* Bytes of what a slot points to as it is held, 0 for an optional tensor that is absent. */
static size_t held_bytes(const df_slot *slot) {
    if (slot->matrix != NULL)
        return slot->matrix->data != NULL
                   ? df_row_bytes(slot->matrix->dtype, slot->matrix->in) * (size_t)slot->matrix->out
                   : 0;
    if (*slot->vector == NULL) return 0;
    size_t bytes = sizeof(float);
    for (int i = 0; i < slot->rank; i++) bytes *= (size_t)slot->dim[i];
    return bytes;
}

static dflash_status upload(const df_slot *slots, int count, unsigned char *to, const df_memory *memory,
                            dflash_error *err) {
    for (int i = 0; i < count; i++) {
        const df_slot *slot = &slots[i];
        const size_t bytes = held_bytes(slot);
        const void **data = slot->matrix != NULL ? &slot->matrix->data : (const void **)slot->vector;
        if (bytes == 0) continue;
        TRY(memory->upload(memory->owner, to, *data, bytes, err));
        *data = to;
        to += padded(bytes);
    }
    return DFLASH_OK;
}

dflash_status df_weights_place(df_weights *weights, const dflash_config *config, const df_memory *memory,
                               dflash_error *err) {
    df_slot *slots = NULL;
    int count = 0;
    size_t bytes = 0;
    if (memory->host) return DFLASH_OK;
    weights->memory = memory;
    dflash_status status = df_census_list(config, weights, &slots, &count, err);
    for (int i = 0; status == DFLASH_OK && i < count; i++) bytes += padded(held_bytes(&slots[i]));
    if (status == DFLASH_OK) status = memory->alloc(memory->owner, "the weights", bytes, &weights->device, err);
    if (status == DFLASH_OK) status = upload(slots, count, weights->device, memory, err);
    free(slots);
    if (status != DFLASH_OK) return status;
    free(weights->converted);
    free(weights->vectors);
    weights->converted = NULL;
    weights->vectors = NULL;
    return DFLASH_OK;
}
