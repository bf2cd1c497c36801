/*
 * identity_pair.h - two recordings held against each other, stage by stage, each stage with the class of agreement that
 * it reached.
 *
 * Classes, best first: identical (every bit, the sign of zero and the payload of a NaN included), equal (the values
 * are), ulp (no element further apart than DP_ULP_MOST units in the last place; the largest distance is in the result),
 * inside the envelope (the distance is under the limit of the case's oracle; only with an oracle), divergent. A stage
 * that one side lacks or shows in another shape is divergent. What was run is identity_run.h's business, what a class
 * is worth the caller's.
 */
#ifndef DP_IDENTITY_PAIR_H
#define DP_IDENTITY_PAIR_H

#include "preflight/preflight.h"
#include "run/recording.h"

typedef enum dp_bit_class {
    DP_BITS_IDENTICAL = 0,
    DP_BITS_EQUAL,
    DP_BITS_ULP,
    DP_BITS_ENVELOPE,
    DP_BITS_DIVERGENT
} dp_bit_class;
enum { DP_ULP_MOST = 16, DP_BIT_CLASSES = DP_BITS_DIVERGENT + 1 };
const char *dp_bit_class_name(dp_bit_class reached); /* "identical", "equal", "ulp", "inside envelope", "divergent" */

typedef struct dp_pair_stage {
    char name[DFLASH_STAGE_NAME_MAX];
    dp_bit_class reached;
    int rank;
    int64_t dim[4];                         /* of what was compared first */
    int64_t compared, differing, nonfinite; /* elements; nonfinite: NaN or infinite on either side */
    int64_t first;                          /* flat index in `dim` of the first that differs; -1: none */
    uint32_t bits[2];                       /* its bits on both sides */
    uint32_t ulp;                           /* largest distance of finite values; UINT32_MAX where one is a NaN */
    bool lacking;                           /* one side lacks the stage, or shows other rows or columns */
} dp_pair_stage;

typedef struct dp_pair {
    dp_pair_stage *stage; /* owned, in the order compared */
    int count, capacity;
} dp_pair;

/* What the second recording owes the first. */
typedef enum dp_pair_rule {
    DP_PAIR_WHOLE, /* the same stages, in the same shapes, both ways */
    DP_PAIR_ROUND, /* a round: no ctx.*, and the block's rows alone of stages that cover the context; kv.* comes first,
                      since those rows were computed before the block */
    DP_PAIR_SHOWN  /* what it shows, and nothing that the first lacks */
} dp_pair_rule;

/* Compares every stage that the rule asks for and adds the results to *pair, where several results of one stage become
 * one: the worst class, the first difference, sums. `limits` has the oracle whose envelope counts, or is NULL. */
dflash_status dp_pair_compare(const dp_recording *a, const dp_recording *b, dp_pair_rule rule,
                              const dp_preflight *limits, dp_pair *pair, dflash_error *err);

/* The same for one stage whose values the caller holds: a and b of shape dim. */
dflash_status dp_pair_floats(dflash_stage stage, int layer, int rank, const int64_t *dim, const float *a,
                             const float *b, const dp_preflight *limits, dp_pair *pair, dflash_error *err);
dflash_status dp_pair_integers(dflash_stage stage, int layer, int rank, const int64_t *dim, const int32_t *a,
                               const int32_t *b, dp_pair *pair, dflash_error *err);
/* Notes that one side lacks a stage. */
dflash_status dp_pair_lacking(dflash_stage stage, int layer, dp_pair *pair, dflash_error *err);

void dp_pair_release(dp_pair *pair);

/* Every stage identical and finite, and at least one element compared. */
bool dp_pair_passes(const dp_pair *pair);
/* The first stage, in the order compared, that does not pass; NULL when all do. */
const dp_pair_stage *dp_pair_first(const dp_pair *pair);
dp_bit_class dp_pair_class(const dp_pair *pair); /* the worst of all stages */
int64_t dp_pair_compared(const dp_pair *pair);   /* elements */

#endif
