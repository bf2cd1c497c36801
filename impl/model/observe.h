/*
 * observe.h - shows one stage of a draft: first to its observer, as it was computed, then to its replacement, which may
 * rewrite it. With neither it costs two comparisons.
 */
#ifndef DF_OBSERVE_H
#define DF_OBSERVE_H

#include "model/model.h"

/* data: the stage's values, as many as view->dim says, in the engine's memory. view->f32 is filled in here. */
dflash_status df_show_copied(const dflash_draft *draft, dflash_stage_view view, float *data, dflash_error *err);
static inline dflash_status df_show(const dflash_draft *draft, dflash_stage_view view, float *data, dflash_error *err) {
    return draft->observe != NULL || draft->replace != NULL ? df_show_copied(draft, view, data, err) : DFLASH_OK;
}

/* A stage of [rows, columns] in the engine's memory that nothing replaces; columns 0: [rows]. One of f32 and i32 is
 * NULL. */
dflash_status df_observe_engine_rows(const dflash_draft *draft, dflash_stage stage, int rows, int columns,
                                     const float *f32, const int32_t *i32, dflash_error *err);

/* A stage of [rows, columns] in host memory that nothing replaces; columns 0: [rows]. One of f32 and i32 is NULL. */
static inline void df_observe_rows(const dflash_draft *draft, dflash_stage stage, int rows, int columns,
                                   const float *f32, const int32_t *i32) {
    if (draft->observe == NULL) return;
    const dflash_stage_view view = {
        .stage = stage, .layer = -1, .rank = columns > 0 ? 2 : 1, .dim = {rows, columns}, .f32 = f32, .i32 = i32};
    draft->observe(draft->observe_user, &view);
}

#endif
