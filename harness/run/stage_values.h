/*
 * stage_values.h - the values of stages in float64, from whichever side: a run's, a file's, or replacements of either.
 */
#ifndef DP_STAGE_VALUES_H
#define DP_STAGE_VALUES_H

#include "run/recording.h"

typedef struct dp_stage_value {
    dflash_stage stage;
    int layer;
    int64_t count;
    double *value; /* owned, [count] */
    bool fed;      /* given from outside, not computed by the run */
    int64_t rows;  /* with row_fed */
    bool *row_fed; /* owned, [rows]: which rows were given; NULL: all of them or none, as `fed` says */
} dp_stage_value;

typedef struct dp_stage_values {
    dp_stage_value *item; /* owned */
    int count, capacity;
} dp_stage_values;

/* Sets a stage, over what was there before. `value` becomes the list's own, also when there is no memory (then it is
 * freed). */
dflash_status dp_stage_values_take(dp_stage_values *values, dflash_stage stage, int layer, int64_t count, double *value,
                                   bool fed, dflash_error *err);
/* Says of a stage in the list which of its rows were given: row_fed[rows], which becomes the list's own; NULL is no
 * memory. */
dflash_status dp_stage_values_mark(dp_stage_values *values, dflash_stage stage, int layer, int64_t rows, bool *row_fed,
                                   dflash_error *err);
/* The same stage, in the list, takes over what was given of `from`, rounded to float32 as an engine is given it. */
dflash_status dp_stage_values_feed(dp_stage_values *values, const dp_stage_value *from, dflash_error *err);
/* Whether an element was given. */
bool dp_stage_value_fed(const dp_stage_value *value, int64_t index);
/* A copy of a recorded stage, integers included. */
dflash_status dp_stage_values_record(dp_stage_values *values, const dp_recorded *recorded, dflash_error *err);
const dp_stage_value *dp_stage_values_find(const dp_stage_values *values, dflash_stage stage, int layer);
void dp_stage_values_release(dp_stage_values *values);

/* Inputs of a run as formulas take them: *out is a copy of from[n] in double, the caller's to free. */
dflash_status dp_widen(const float *from, size_t n, double **out, dflash_error *err);

#endif
