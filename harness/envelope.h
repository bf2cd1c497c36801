/*
 * envelope.h - the bar that a stage's error must stay under, where it comes from, and the one table of every number
 * that a chained verdict hangs on.
 *
 * Chained runs: the reference's float32 runs (several orders of summation, bracket.h) are measured against its float64
 * run; the largest distance, the bracket, is what rounding in float32 costs at this stage, inherited error included.
 * Another correct float32 program makes other
 * roundings of the same size, so the bar is the bracket times a factor, one for each measure. Where the reference
 * happens to round less than once (a stage it computes exactly), the bracket is raised to what a single float32
 * rounding of the result is worth.
 */
#ifndef DP_ENVELOPE_H
#define DP_ENVELOPE_H

#include "compare.h"

/* The numbers. Every one has its reason and its source in the table of envelope.c, and none stands anywhere else. */
typedef enum dp_rule_id {
    DP_RULE_L2_FACTOR = 0,   /* bracket to bar, relative L2 */
    DP_RULE_MAX_FACTOR,      /* bracket to bar, largest error relative to the row's rms */
    DP_RULE_ROUNDING,        /* one float32 rounding, relative to the value */
    DP_RULE_FAIL,            /* headroom under which a stage fails */
    DP_RULE_WARN,            /* headroom under which a passing stage is a warning */
    DP_RULE_BRACKET_SHARE,   /* of the bfloat16 run's error, what the float32 run's may be */
    DP_RULE_BF16_CEILING,    /* the bfloat16 run's error counts up to this (relative to the value) */
    DP_RULE_BF16_LIMIT,      /* relative L2 beyond which a bfloat16 run is wrong */
    DP_RULE_TABLE_ROUNDINGS, /* roundings in the formula of the frequency table */
    DP_RULE_COUNT
} dp_rule_id;

typedef struct dp_rule {
    const char *name;   /* "chained L2 factor" */
    double value;       /* no unit: every measure is relative */
    const char *why;    /* the derivation, in sentences */
    const char *source; /* what it was measured with or where it is derived */
} dp_rule;

const dp_rule *dp_rule_of(dp_rule_id id);
double dp_rule_value(dp_rule_id id);

enum { DP_ORIGIN_TEXT = 96 };

typedef struct dp_bar {
    double l2_rel, max_rel;                 /* not to be exceeded */
    double bracket_l2_rel, bracket_max_rel; /* the reference's float32 against its float64 */
    double floor_l2_rel, floor_max_rel;     /* one rounding of the result, to which the bracket is raised */
    char origin[DP_ORIGIN_TEXT];            /* in words, for the report */
} dp_bar;

dp_bar dp_bar_chained(const dp_difference *bracket);

/* Share of the bar that is left: 1 = no error, 0 = at the bar, negative = beyond it. The smaller of the two measures.
 */
double dp_headroom(const dp_bar *bar, const dp_difference *difference);

/* Whether that headroom passes (DP_RULE_FAIL). */
bool dp_headroom_passes(double headroom);

/* Below this headroom a passing stage is a warning. */
#define DP_WARN_HEADROOM (dp_rule_value(DP_RULE_WARN))

/*
 * Whether the reference's own runs of a stage may make a bar: NULL, or what contradicts what. `fine` is the float32
 * run, `coarse` the bfloat16 run, both against float64. The float32 run must lie within one rounding of the truth or
 * DP_RULE_BRACKET_SHARE of the bfloat16 run's distance, in both measures; that distance counts up to
 * DP_RULE_BF16_CEILING, so that a bfloat16 run that is wrong widens nothing.
 */
typedef struct dp_contradiction {
    const char *measure; /* "relative L2" or "largest error relative to the row's rms" */
    double found, allowed;
    bool coarse; /* it is the bfloat16 run that is wrong */
} dp_contradiction;
bool dp_runs_contradict(df_stage stage, const dp_difference *fine, const dp_difference *coarse, dp_contradiction *out);

#endif
