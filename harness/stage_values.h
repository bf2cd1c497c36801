/*
 * stage_values.h - the values of stages in float64, from whichever side: a run's, a file's, or replacements of either.
 */
#ifndef DP_STAGE_VALUES_H
#define DP_STAGE_VALUES_H

#include "recording.h"

typedef struct dp_stage_value {
    df_stage stage;
    int layer;
    int64_t count;
    double *value; /* owned, [count] */
    bool fed;      /* given from outside, not computed by the run */
} dp_stage_value;

typedef struct dp_stage_values {
    dp_stage_value *item; /* owned */
    int count, capacity;
} dp_stage_values;

/* Sets a stage, over what was there before. `value` becomes the list's own, also when there is no memory (then it is
 * freed). */
df_status dp_stage_values_take(dp_stage_values *values, df_stage stage, int layer, int64_t count, double *value,
                               bool fed, df_error *err);
/* A copy of a recorded stage, integers included. */
df_status dp_stage_values_record(dp_stage_values *values, const dp_recorded *recorded, df_error *err);
const dp_stage_value *dp_stage_values_find(const dp_stage_values *values, df_stage stage, int layer);
void dp_stage_values_release(dp_stage_values *values);

#endif
