/*
 * store_sketch.h - what an oracle holds of a stage beside its samples: the sketches of its three runs and whole rows of
 * the float64 run (oracles/FORMAT.md).
 */
#ifndef DP_STORE_SKETCH_H
#define DP_STORE_SKETCH_H

#include "store/sketch.h"
#include "store/store.h"

/* The sketch of a run's stage; out->value is NULL for a stage that is stored whole, and in a recording. */
dflash_status dp_oracle_sketch(const dp_oracle *oracle, dp_run run, const char *name, dp_sketch *out,
                               dflash_error *err);

/* Which rows of the float64 run are stored whole beside the samples, ascending. Borrowed; NULL when there are none. */
const int64_t *dp_oracle_row_list(const dp_oracle *oracle, const char *name, int *count);

/* What lies beside the samples of a stage; all zero for one that is stored whole. `row` is borrowed. */
typedef struct dp_stage_companions {
    int rows; /* stored whole */
    const int64_t *row;
    int64_t sketch_rows;
    int projections;
} dp_stage_companions;
dp_stage_companions dp_oracle_companions(const dp_oracle *oracle, const char *name);

/* Their elements, with their places in out->index; out->count is 0 when there are none. */
dflash_status dp_oracle_rows(const dp_oracle *oracle, const char *name, dp_array *out, dflash_error *err);

/* Every element that the file holds of a stage of the float64 run: its samples and its whole rows, each once. */
dflash_status dp_oracle_known(const dp_oracle *oracle, const char *name, dp_array *out, dflash_error *err);

#endif
