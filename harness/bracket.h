/*
 * bracket.h - what rounding in float32 costs the reference at one stage: the distance that bars are made of.
 *
 * One float32 run is one draw, and a lucky one now and then. So an oracle also says how far the reference came from its
 * float64 run with the terms of its sums in other orders (provenance.float32_orders, FORMAT.md); the bracket is the
 * largest of all of these, for each measure.
 */
#ifndef DP_BRACKET_H
#define DP_BRACKET_H

#include "compare.h"
#include "stage_set.h"

/* What the record says of a stage, or of its sketch (NAME#sketch): relative L2 and the largest error relative to the
 * row's rms. Code: "provenance.orders". */
df_status dp_bracket_recorded(const dp_oracle *oracle, const char *label, double out[2], df_error *err);

/* The reference's float32 run against `truth`, its float64 run of the same stage, raised to the largest of its orders.
 * Codes: "provenance.orders" and those of dp_oracle_stage. */
df_status dp_bracket_measure(const dp_oracle *oracle, const dp_stage_spec *spec, const dp_array *truth,
                             dp_difference *out, df_error *err);

#endif
