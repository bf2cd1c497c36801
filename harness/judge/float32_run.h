/*
 * float32_run.h - whether the reference's float32 run is a float32 run.
 *
 * Limits are multiples of what rounding costs that run, so a run that was moved away from the float64 run widens them.
 * Where the oracle stores a stage and all that it is computed from whole, the run's values must follow from each other
 * as float32 lets them: each stage is evaluated on the run's own inputs, and may differ by what a correct float32
 * program in any order can and is expected to round (dp_class_model_any_order). No other run of the file is asked.
 */
#ifndef DP_FLOAT32_RUN_H
#define DP_FLOAT32_RUN_H

#include "preflight/preflight.h"
#include "common/pool.h"
#include "model/model.h"

/* Refused ("oracle.float32"): a stage of the run that does not follow, of those that `filter` matches (NULL: all).
 * `draft`, `head` and `embedding` (NULL: none) are on the CPU. */
dflash_status dp_float32_run_check(const dp_preflight *in, dflash_draft *draft, const dflash_table *head,
                                   const dflash_table *embedding, df_pool *pool, const char *filter, dflash_error *err);

#endif
