/*
 * envelope.h - the limit that a stage's error must stay under, where it comes from, and the one table of every number
 * that a chained verdict hangs on.
 *
 * Chained runs: the reference's float32 runs (several orders of summation, reference_spread.h) are measured against its
 * float64 run; the largest distance, the reference spread, is what rounding in float32 costs at this stage, inherited
 * error included. Another correct float32 program makes other roundings of the same size, so the limit is the reference
 * spread times a factor, one for each measure. Where the reference happens to round less than the stage's own
 * operations are expected to, the reference spread is raised to that: what one rounding of the result is worth, and
 * more where a stage has few independent errors, so that the eight runs can all be lucky together (dp_own_floor).
 */
#ifndef DP_ENVELOPE_H
#define DP_ENVELOPE_H

#include "limits/compare.h"
#include "store/stage_set.h"

/* The numbers. Every one has its reason and its source in the table of envelope.c, and none stands anywhere else. */
typedef enum dp_rule_id {
    DP_RULE_L2_FACTOR = 0, /* reference spread to limit, relative L2 */
    DP_RULE_MAX_FACTOR,    /* reference spread to limit, largest error relative to the row's rms */
    DP_RULE_ROUNDING,      /* one float32 rounding, relative to the value */
    DP_RULE_FAIL,          /* headroom under which a stage fails */
    DP_RULE_WARN,          /* headroom under which a passing stage is a warning */
    DP_RULE_CHAIN,         /* terms of a sum that are added one after another */
    DP_RULE_SPREAD_SHARE,  /* of the bfloat16 run's relative L2, what the float32 run's may be */
    DP_RULE_PEAK_SHARE,    /* the same of the largest error */
    DP_RULE_BF16_CEILING,  /* the bfloat16 run's error counts up to this (relative to the value) */
    DP_RULE_BF16_LIMIT,    /* relative L2 beyond which a bfloat16 run is wrong */
    DP_RULE_BF16_ROUNDING, /* one bfloat16 rounding, relative to the value */
    DP_RULE_RECORD_DIGITS, /* what the digits of the recorded spread leave out */
    DP_RULE_SAMPLED_OWN,   /* a sampled stage's own distance over its recorded spread */
    DP_RULE_PEAK,          /* largest error of a row over the root mean square of its errors */
    DP_RULE_FEW_ROWS,      /* logarithm of what a ratio of spreads seldom reaches, of one row */
    DP_RULE_GROWTH,        /* a stage's spread over what it inherits and what its operations cost */
    DP_RULE_AMPLIFICATION, /* up to this the growth of one of the two runs excuses that of the spread */
    DP_RULE_LINE,          /* luck over that of the stages around, times growth */
    DP_RULE_UNEVEN,        /* largest error over relative L2, against what the runs show */
    DP_RULE_ALL_OVER,      /* luck that three of four stages exceed, in either measure */
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

enum { DP_ORIGIN_TEXT = 128 };

typedef struct dp_limit {
    double l2_rel, max_rel;                                   /* not to be exceeded */
    double reference_spread_l2_rel, reference_spread_max_rel; /* the reference's float32 against its float64 */
    double floor_l2_rel, floor_max_rel; /* dp_own_floor, to which the reference spread is raised */
    char origin[DP_ORIGIN_TEXT];        /* in words, for the report */
} dp_limit;

/*
 * What the operations of a stage alone are expected to be off by, relative to its values (root mean square; `max`:
 * relative to the row's rms, for a largest value of one rms), from their number:
 * - a norm: the mean of squares, its quotient, the sum with eps, root and inverse, which a row shares, and two
 * products,
 * - a sum: the partial sums of chains of DP_RULE_CHAIN terms whose signs have no order.
 * Raised where the stage has so few independent errors that the factor of its limit does not reach the largest of them
 * that a correct run meets (dp_noise_limit, dp_peak_limit). Every stage with neither counts as a sum.
 */
typedef struct dp_cost {
    double l2, max;
} dp_cost;
dp_cost dp_own_cost(const dp_stage_spec *spec);
bool dp_is_norm(dflash_stage stage);

/* Rows of a stage that can have errors of their own. A block is its first token and equal mask tokens, so that the
 * first norm of its rows has two; a stage of one value for each slot has the slots. */
int64_t dp_distinct_rows(const dp_stage_spec *spec);

/* To what the reference spread of a stage is raised: its own cost where few errors decide (a norm, a score or a
 * confidence for each slot), one rounding elsewhere, where the eight runs are many draws. `largest_in_row` as in
 * dp_difference. */
dp_cost dp_own_floor(const dp_stage_spec *spec, double largest_in_row);

/* `coarseness`: of the class that computed what is judged (dp_class_coarseness). */
dp_limit dp_limit_chained(const dp_stage_spec *spec, const dp_difference *reference_spread, double coarseness);

/* Share of the limit that is left: 1 = no error, 0 = at the limit, negative = beyond it. The smaller of the two
 * measures.
 */
double dp_headroom(const dp_limit *limit, const dp_difference *difference);

/* Whether that headroom passes (DP_RULE_FAIL). */
bool dp_headroom_passes(double headroom);

/* Below this headroom a passing stage is a warning. */
#define DP_WARN_HEADROOM (dp_rule_value(DP_RULE_WARN))

/*
 * Whether the reference's own runs of a stage may make a limit: false, or what contradicts what. `fine` is the float32
 * run, `coarse` the bfloat16 run, both against float64. The float32 run must lie within one rounding of the truth or
 * a share of the bfloat16 run's distance (DP_RULE_SPREAD_SHARE, DP_RULE_PEAK_SHARE); that distance counts up to
 * `ceiling` (dp_spread_ceiling), so that a bfloat16 run that is wrong widens little. The table of frequencies has a
 * check of its own (reference_spread.h), and what the claims are held against beside the bfloat16 run is spread.h.
 */
typedef struct dp_contradiction {
    const char *measure; /* "relative L2" or "largest error relative to the row's rms" */
    double found, allowed;
    double share; /* of the bfloat16 run's distance, where that is what allows */
} dp_contradiction;
bool dp_runs_contradict(const dp_difference *fine, const dp_difference *coarse, double ceiling, dp_contradiction *out);

#endif
