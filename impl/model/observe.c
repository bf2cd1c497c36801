/* observe.c - see observe.h. A stage in a device's memory is copied to the host, and back when it was rewritten. */
#include "model/observe.h"

#include "common/error.h"

#include <stdlib.h>

static size_t bytes_of(const dflash_stage_view *view) {
    size_t bytes = sizeof(float);
    for (int i = 0; i < view->rank; i++) bytes *= (size_t)view->dim[i];
    return bytes;
}

dflash_status df_show_copied(const dflash_draft *draft, dflash_stage_view view, float *data, dflash_error *err) {
    const df_memory *memory = &draft->engine->memory;
    const size_t bytes = bytes_of(&view);
    float *host = memory->host ? data : malloc(bytes + 1);
    if (host == NULL) return df_fail_memory(err, "a stage to show", bytes);
    dflash_status status = memory->host ? DFLASH_OK : memory->download(memory->owner, host, data, bytes, err);
    if (status == DFLASH_OK) {
        view.f32 = host;
        if (draft->observe != NULL) draft->observe(draft->observe_user, &view);
        const bool wrote = draft->replace != NULL && draft->replace(draft->replace_user, &view, host);
        if (wrote && !memory->host) status = memory->upload(memory->owner, data, host, bytes, err);
    }
    if (!memory->host) free(host);
    return status;
}

dflash_status df_observe_engine_rows(const dflash_draft *draft, dflash_stage stage, int rows, int columns,
                                     const float *f32, const int32_t *i32, dflash_error *err) {
    const df_memory *memory = &draft->engine->memory;
    const size_t bytes = (size_t)rows * (size_t)(columns > 0 ? columns : 1) * sizeof(float);
    if (draft->observe == NULL) return DFLASH_OK;
    if (memory->host) {
        df_observe_rows(draft, stage, rows, columns, f32, i32);
        return DFLASH_OK;
    }
    void *host = malloc(bytes + 1);
    if (host == NULL) return df_fail_memory(err, "a stage to show", bytes);
    const dflash_status status =
        memory->download(memory->owner, host, f32 != NULL ? (const void *)f32 : (const void *)i32, bytes, err);
    if (status == DFLASH_OK)
        df_observe_rows(draft, stage, rows, columns, f32 != NULL ? host : NULL, f32 != NULL ? NULL : host);
    free(host);
    return status;
}
