/* recording.c - see recording.h. */
#include "run/recording.h"

#include "common/error.h"
#include "store/stage_set.h"

#include <stdlib.h>
#include <string.h>

void dp_recording_add(dp_recording *recording, const dflash_stage_view *view) {
    if (recording->count == recording->capacity) {
        const int capacity = recording->capacity > 0 ? 2 * recording->capacity : 64;
        dp_recorded *grown = realloc(recording->stage, (size_t)capacity * sizeof *grown);
        if (grown == NULL) {
            recording->out_of_memory = true;
            return;
        }
        recording->stage = grown;
        recording->capacity = capacity;
    }
    _Static_assert(sizeof(float) == sizeof(int32_t), "both kinds of stage have elements of four bytes");
    const size_t bytes = (size_t)dp_dims_product(view->rank, view->dim) * sizeof(float);
    void *copy = malloc(bytes > 0 ? bytes : 1);
    if (copy == NULL) {
        recording->out_of_memory = true;
        return;
    }
    dp_recorded entry = {.stage = view->stage, .layer = view->layer, .rank = view->rank};
    memcpy(entry.dim, view->dim, sizeof entry.dim);
    if (view->i32 != NULL)
        entry.integer = memcpy(copy, view->i32, bytes);
    else
        entry.value = memcpy(copy, view->f32, bytes);
    recording->stage[recording->count++] = entry;
}

void dp_recording_observe(void *recording, const dflash_stage_view *view) { dp_recording_add(recording, view); }

dflash_status dp_recording_status(const dp_recording *recording, dflash_error *err) {
    return recording->out_of_memory ? df_fail_memory(err, "the recorded stages", 0) : DFLASH_OK;
}

const dp_recorded *dp_recording_find(const dp_recording *recording, dflash_stage stage, int layer) {
    for (int i = 0; i < recording->count; i++)
        if (recording->stage[i].stage == stage && recording->stage[i].layer == layer) return &recording->stage[i];
    return NULL;
}

void dp_recording_release(dp_recording *recording) {
    for (int i = 0; i < recording->count; i++) {
        free(recording->stage[i].value);
        free(recording->stage[i].integer);
    }
    free(recording->stage);
    *recording = (dp_recording){.stage = NULL};
}
