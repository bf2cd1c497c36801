/*
 * isolated.h - what one stage adds on its own: computed from given inputs and held, element by element, against a bound
 * that is derived from those inputs.
 *
 * One forward is run whose every stage is rewritten, once computed, with the oracle's float64 values rounded to float32
 * (dflash_draft_replace), so that the next stage starts from the oracle and not from what this program made of it.
 * Where the oracle stores samples of a stage only the rows that it stores whole are rewritten; in the others the run's
 * own values stand, and the inputs are those. Either way the inputs of every stage are known exactly: the truth is the
 * stage's formula evaluated on them in float64 (evaluate.h), which yields the bound and the expected rounding noise
 * beside the value.
 */
#ifndef DP_ISOLATED_H
#define DP_ISOLATED_H

#include "preflight/preflight.h"
#include "limits/approx.h"
#include "limits/compare.h"
#include "base/progress.h"
#include "run/recording.h"

enum { DP_BOUND_TEXT = 96 };

typedef struct dp_isolated {
    bool judged; /* false: the stage was not run alone (a filter, or it is a decision and no formula) */
    bool fed;    /* every input was the oracle's own; false: some were the run's, because the oracle stores samples */
    int64_t fed_count; /* elements judged whose inputs were all the oracle's own */
    bool pass;
    dp_difference difference; /* against the float64 evaluation on the same inputs */
    double share;             /* largest |error| / bound of any element; above 1 the stage fails */
    int64_t worst;            /* flat index of that element in the full tensor */
    double worst_got, worst_want, worst_bound;
    double tightness; /* median of bound / |error| over the elements that have an error; 0 when none has */
    double noise; /* root mean square over the elements of error / expected rounding noise: about 1 in a correct run */
    double noise_limit; /* not to be exceeded by it (bounds.h) */
    double peak;        /* largest |error| / expected rounding noise of any element */
    double peak_limit;  /* not to be exceeded by it (bounds.h) */
    /* Whether the oracle's own stages follow from each other: largest |oracle - float64 evaluation on the oracle's own
     * inputs| over the bound of a float64 run, of those elements whose inputs it stores; above 1 the stage fails.
     * Negative: there are none. */
    double oracle_share;
    char bound[DP_BOUND_TEXT]; /* the bound in words, e.g. "sum of ulp/2 of the partial sums" */
} dp_isolated;

/* Injects a fault in a stage as it was computed, before it is recorded or replaced. For tests; no command sets it. */
typedef struct dp_fault_injection {
    void (*change)(void *user, dflash_stage stage, int layer, int64_t count, float *value, int32_t *integer);
    void *user;
} dp_fault_injection;

typedef struct dp_isolated_options {
    dflash_engine *engine;
    dflash_draft *draft;
    const dflash_table *head;      /* NULL when the oracle's reference ran none */
    const dflash_table *embedding; /* likewise */
    /* The same weights in host memory, which the formulas are evaluated from: `draft` and `head` on the CPU. */
    dflash_draft *host_copy;
    const dflash_table *host_head, *host_embedding;
    const dp_preflight *in;
    const dp_recording *chained;         /* the run's own block and cache: what the cache is held against */
    const char *filter;                  /* only stages that it matches are judged; NULL: all */
    const dp_fault_injection *injection; /* NULL: none */
    dp_progress_part progress;           /* all zero: nobody watches */
} dp_isolated_options;

/* Runs the block alone, stage by stage, and fills out[in->stages.count], in the order of the stages. */
dflash_status dp_isolated_run(const dp_isolated_options *options, dp_isolated *out, dflash_error *err);

/* Judges one stage: got[array->count] against want[array->count], both the elements that `array` describes (its values
 * are not read), as computed in the class of `model`; where its roundings are not even the limits of noise and peak are
 * infinite. `group` elements share their roundings. Sets difference, share, tightness, noise, peak, their limits and
 * pass; the rest is left alone. */
dflash_status dp_isolated_judge(const dp_class_model *model, const double *got, const dp_approx *want,
                                const dp_array *array, int64_t row, int64_t group, dp_isolated *out, dflash_error *err);

#endif
