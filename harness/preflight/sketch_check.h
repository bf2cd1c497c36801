/*
 * sketch_check.h - what an oracle says of a sampled stage beside its samples must agree with them, and the reference's
 * own sketches make the limit that a run's sketch is held against.
 */
#ifndef DP_SKETCH_CHECK_H
#define DP_SKETCH_CHECK_H

#include "limits/envelope.h"
#include "store/stage_set.h"

/* A run's stage held against the float64 run's sketch. */
typedef struct dp_sketch_result {
    bool judged; /* false: the oracle stores the stage whole */
    bool pass;
    int64_t rows;
    int projections;            /* of a row, beside its norm */
    double l2_rel, max_rel;     /* relative to the norms of the rows */
    double l2_limit, max_limit; /* not to be exceeded */
    double headroom;
    int64_t nonfinite, row; /* the row that is off most */
    int projection;         /* of that row; its norm when it is `projections` */
    double got, want;
} dp_sketch_result;

/* Of the float64 run: the projections and the rms of every whole row are those of the sketch, up to the roundings of
 * float64; samples inside whole rows are their values; and no sample is larger than its row. A stage that is stored
 * whole passes. Code: "oracle.sketch". */
dflash_status dp_sketch_check(const dp_oracle *oracle, const dp_stage_spec *spec, dflash_error *err);

/*
 * A stage's sketch as reference_spread.h sees values: *fine is the float32 run's against the float64 run's, raised to
 * the largest of the reference's orders (float32_orders NAME#sketch, which the run's own must not exceed), *coarse the
 * bfloat16 run's, *own the float32 run's relative L2 before it is raised. Codes: "provenance.orders" and those of the
 * store. Of a stage that is stored whole both are zero, and *own stays as it was.
 */
dflash_status dp_sketch_reference_spreads(const dp_oracle *oracle, const dp_stage_spec *spec, dp_difference *fine,
                                          dp_difference *coarse, double *own, dflash_error *err);

/* full: the complete stage of a run; `reference spread`: dp_sketch_reference_spreads' fine; `coarseness`: of the class
 * that computed it.
 */
dflash_status dp_sketch_judge(const dp_oracle *oracle, const dp_stage_spec *spec, const float *full,
                              const dp_difference *reference_spread, double coarseness, dp_sketch_result *out,
                              dflash_error *err);

/* One sentence on a sketch that fails: which row, measured and limit. */
enum { DP_SKETCH_TEXT = 256 };
const char *dp_sketch_text(const dp_sketch_result *result, char text[DP_SKETCH_TEXT]);

#endif
