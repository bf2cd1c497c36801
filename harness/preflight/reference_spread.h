/*
 * reference_spread.h - what rounding in float32 costs the reference at one stage: the distance that limits are made of.
 *
 * One float32 run is one draw, and a lucky one now and then. So an oracle also says how far the reference came from its
 * float64 run with the terms of its sums in other orders (provenance.float32_orders, FORMAT.md); the reference spread
 * is the largest of all of these, for each measure.
 */
#ifndef DP_REFERENCE_SPREAD_H
#define DP_REFERENCE_SPREAD_H

#include "limits/compare.h"
#include "store/stage_set.h"

/* How far the reference's runs of one stage are from its float64 run: relative L2, and the largest error relative to
 * the row's rms. */
typedef struct dp_distance {
    double l2, max;
} dp_distance;

typedef struct dp_spread {
    dp_distance own;     /* its float32 run, as measured */
    dp_distance claimed; /* the largest of its float32 orders, that run included, as the oracle records it */
    dp_distance coarse;  /* its bfloat16 run */
    double own_rows;     /* how many rows decide the distance of its float32 run (compare.h) */
    double rows;         /* the same of its bfloat16 run */
    double row;          /* rms of the largest row of its float64 run */
    bool whole;          /* every element of the stage is stored: measured and recorded are of the same elements */
    bool measured;       /* false: integers, which have no spread */
} dp_spread;

/* What the record says of a stage, or of its sketch (NAME#sketch): relative L2 and the largest error relative to the
 * row's rms. Code: "provenance.orders". */
dflash_status dp_reference_spread_recorded(const dp_oracle *oracle, const char *label, double out[2],
                                           dflash_error *err);

/* The reference's float32 run against `truth`, its float64 run of the same stage, raised to the largest of its orders;
 * sets own, claimed, row, whole and measured of *spread.
 * Codes: "provenance.orders" and those of dp_oracle_stage. */
dflash_status dp_reference_spread_measure(const dp_oracle *oracle, const dp_stage_spec *spec, const dp_array *truth,
                                          dp_difference *out, dp_spread *spread, dflash_error *err);

/* The table of rotary frequencies, frequency by frequency: float32 by definition in every run of the reference, so the
 * bfloat16 run is no yardstick for it. Its float32 and bfloat16 runs must lie within what the formula's float32
 * operations can be off by (dp_frequency) from `truth`. Code "oracle.frequencies". */
dflash_status dp_reference_spread_frequencies(const dp_oracle *oracle, const dflash_rope_config *rope,
                                              const dp_stage_spec *spec, const dp_array *truth, dflash_error *err);

#endif
