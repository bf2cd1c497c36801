/* observe.h - hands one stage to the observer of a draft, if there is one. Data is in host memory. */
#ifndef DF_OBSERVE_H
#define DF_OBSERVE_H

#include "draft.h"

/* A stage of [rows, columns]; columns 0: [rows]. One of f32 and i32 is NULL. */
static inline void df_observe_rows(const df_draft *draft, df_stage stage, int rows, int columns, const float *f32,
                                   const int32_t *i32) {
    if (draft->observe == NULL) return;
    const df_stage_view view = {
        .stage = stage, .layer = -1, .rank = columns > 0 ? 2 : 1, .dim = {rows, columns}, .f32 = f32, .i32 = i32};
    draft->observe(draft->observe_user, &view);
}

#endif
