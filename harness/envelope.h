/*
 * envelope.h - the bar that a stage's error must stay under, and where it comes from.
 *
 * Chained runs: the reference's own float32 run is measured against its float64 run; that distance, the bracket, is
 * what rounding in float32 costs at this stage, inherited error included. Another correct float32 program makes other
 * roundings of the same size, so the bar is the bracket times a factor, one for each measure, kept in one table with
 * its reason. Where the reference happens to round less than once (a stage it computes exactly), the bracket is raised
 * to what a single float32 rounding of the result is worth.
 */
#ifndef DP_ENVELOPE_H
#define DP_ENVELOPE_H

#include "compare.h"

enum { DP_ORIGIN_TEXT = 96 };

typedef struct dp_bar {
    double l2_rel, max_rel;                 /* not to be exceeded */
    double bracket_l2_rel, bracket_max_rel; /* the reference's float32 against its float64 */
    char origin[DP_ORIGIN_TEXT];            /* in words, for the report */
} dp_bar;

dp_bar dp_bar_chained(const dp_difference *bracket);

/* Share of the bar that is left: 1 = no error, 0 = at the bar, negative = beyond it. The smaller of the two measures.
 */
double dp_headroom(const dp_bar *bar, const dp_difference *difference);

/* Below this headroom a passing stage is a warning. */
#define DP_WARN_HEADROOM 0.2

#endif
