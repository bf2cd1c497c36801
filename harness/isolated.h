/*
 * isolated.h - what one stage adds on its own: computed from given inputs and held, element by element, against a bound
 * that is derived from those inputs.
 *
 * One forward is run whose every stage is rewritten, once computed, with the oracle's float64 values rounded to float32
 * (df_draft_replace), so that the next stage starts from the oracle and not from what this program made of it. Where
 * the oracle stores samples of a stage the run's own values stand, and the inputs are those. Either way the inputs of
 * every stage are known exactly: the truth is the stage's formula evaluated on them in float64 (evaluate.h), which
 * yields the bound and the expected rounding noise beside the value.
 */
#ifndef DP_ISOLATED_H
#define DP_ISOLATED_H

#include "compare.h"

enum { DP_BOUND_TEXT = 96 };

typedef struct dp_isolated {
    bool judged; /* false: the stage was not run alone (a filter, or it has no arithmetic of its own) */
    bool fed;    /* every input was the oracle's own; false: some were the run's, because the oracle stores samples */
    bool pass;
    dp_difference difference; /* against the float64 evaluation on the same inputs */
    double share;             /* largest |error| / bound of any element; above 1 the stage fails */
    int64_t worst;            /* flat index of that element in the full tensor */
    double worst_got, worst_want, worst_bound;
    double tightness; /* median of bound / |error| over the elements that have an error; 0 when none has */
    double noise; /* root mean square over the elements of error / expected rounding noise: about 1 in a correct run */
    double noise_bar; /* not to be exceeded by it */
    /* Whether the oracle's own stages follow from each other: largest |float64 evaluation - oracle| over what rounding
     * the inputs to float32 can change; above 1 the stage fails. Negative: not known, because inputs were the run's. */
    double oracle_share;
    char bound[DP_BOUND_TEXT]; /* the bound in words, e.g. "gamma_70 sum |w||x|" */
} dp_isolated;

#endif
