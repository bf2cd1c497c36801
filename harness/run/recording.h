/*
 * recording.h - the stages of one run of the drafter, kept in memory.
 *
 * dp_recording_observe is the observer to give to dflash_draft_observe. Running out of memory inside it is remembered
 * and reported by dp_recording_status, since an observer cannot fail.
 */
#ifndef DP_RECORDING_H
#define DP_RECORDING_H

#include "dflash.h"

typedef struct dp_recorded {
    dflash_stage stage;
    int layer;
    int rank;
    int64_t dim[4];
    float *value;     /* owned; NULL for an integer stage */
    int32_t *integer; /* owned; NULL otherwise */
} dp_recorded;

typedef struct dp_recording {
    dp_recorded *stage; /* owned, in the order observed */
    int count, capacity;
    bool out_of_memory;
} dp_recording;

void dp_recording_observe(void *recording, const dflash_stage_view *view);

/* Appends a copy of a stage; for those that no observer shows (the cache's content, the verify window) call it with a
 * view of one's own. */
void dp_recording_add(dp_recording *recording, const dflash_stage_view *view);

dflash_status dp_recording_status(const dp_recording *recording, dflash_error *err);
const dp_recorded *dp_recording_find(const dp_recording *recording, dflash_stage stage, int layer);
void dp_recording_release(dp_recording *recording);

#endif
