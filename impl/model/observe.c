/* observe.c - see observe.h. A stage in a device's memory is copied to the host, and back when it was rewritten. */
#include "model/observe.h"

#include "common/error.h"

#include <stdlib.h>

static size_t bytes_of(const df_stage_view *view) {
    size_t bytes = sizeof(float);
    for (int i = 0; i < view->rank; i++) bytes *= (size_t)view->dim[i];
    return bytes;
}

df_status df_show_copied(const df_draft *draft, df_stage_view view, float *data, df_error *err) {
    const df_memory *memory = &draft->engine->memory;
    const size_t bytes = bytes_of(&view);
    float *host = memory->host ? data : malloc(bytes + 1);
    if (host == NULL) return df_fail_memory(err, "a stage to show", bytes);
    df_status status = memory->host ? DF_OK : memory->download(memory->owner, host, data, bytes, err);
    if (status == DF_OK) {
        view.f32 = host;
        if (draft->observe != NULL) draft->observe(draft->observe_user, &view);
        const bool wrote = draft->replace != NULL && draft->replace(draft->replace_user, &view, host);
        if (wrote && !memory->host) status = memory->upload(memory->owner, data, host, bytes, err);
    }
    if (!memory->host) free(host);
    return status;
}

df_status df_observe_engine_rows(const df_draft *draft, df_stage stage, int rows, int columns, const float *f32,
                                 const int32_t *i32, df_error *err) {
    const df_memory *memory = &draft->engine->memory;
    const size_t bytes = (size_t)rows * (size_t)(columns > 0 ? columns : 1) * sizeof(float);
    if (draft->observe == NULL) return DF_OK;
    if (memory->host) {
        df_observe_rows(draft, stage, rows, columns, f32, i32);
        return DF_OK;
    }
    void *host = malloc(bytes + 1);
    if (host == NULL) return df_fail_memory(err, "a stage to show", bytes);
    const df_status status =
        memory->download(memory->owner, host, f32 != NULL ? (const void *)f32 : (const void *)i32, bytes, err);
    if (status == DF_OK)
        df_observe_rows(draft, stage, rows, columns, f32 != NULL ? host : NULL, f32 != NULL ? NULL : host);
    free(host);
    return status;
}
