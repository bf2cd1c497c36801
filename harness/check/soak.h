/*
 * soak.h - isolated runs on made inputs: does a correct drafter ever leave its bounds?
 *
 * A run takes one checkpoint in one precision mode and replaces every stage, as it is shown, by random values of one
 * profile (ordinary, large, tiny, cancelling, subnormal, signed zeros, or a mixture), so that every stage meets values
 * that no forward would hand it; contexts are of 1 to 400 rows, positions have gaps and reach 2^24. Each is then held
 * against its float64 evaluation. No oracle is needed: an alarm is a bound that is wrong, or a drafter that is.
 */
#ifndef DP_SOAK_H
#define DP_SOAK_H

#include "judge/isolated.h"

typedef struct dp_soak {
    int runs;
    int64_t stages, elements, alarms;
    double tightness[DFLASH_STAGE_COUNT]; /* sum of the medians of bound / |error|, ordinary values, float32 products */
    int64_t judged[DFLASH_STAGE_COUNT];   /* stages that it is the sum over */
    char first[256];                      /* the first alarm in words; empty: none */
} dp_soak;

const char *dp_soak_profile(int index); /* NULL past the last */

/* Run `number` of `seed` on the checkpoint in `dir`: adds to *total. Profile and products go with the number. */
dflash_status dp_soak_run(const char *dir, dflash_precision precision, uint64_t seed, int number, dp_soak *total,
                          dflash_error *err);

#endif
