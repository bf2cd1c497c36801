/*
 * compare.h - how far a tensor is from the reference's, in every measure a report needs.
 *
 * NaN and infinity are classified from the bits. A row is the first dimension (a token), except that every value of the
 * frequency table is its own row: its values span ten orders of magnitude, and a small one matters as much as a large.
 */
#ifndef DP_COMPARE_H
#define DP_COMPARE_H

#include "store/sketch.h"
#include "store/store.h"

typedef struct dp_difference {
    int64_t count;                       /* elements compared */
    int64_t mismatches;                  /* integers that differ; integer stages only */
    int64_t nan, inf;                    /* in what was measured */
    int64_t nonfinite;                   /* their sum */
    int64_t sign_flips;                  /* both nonzero, signs differ */
    double max_abs;                      /* max |got - want| */
    double max_rel;                      /* max |got - want| / rms of the reference's row */
    double l2_rel;                       /* |got - want|_2 / |want|_2 */
    double cosine;                       /* of got and want as vectors; 1 when both are zero, 0 when one is */
    double ulp_median, ulp_p99, ulp_max; /* |got - want| in units of the last place of float32 at want */
    double largest_in_row; /* largest |want| / rms of its row, at least 1 where samples stand for it: how much one
                              rounding of the result can be worth */
    double rows; /* how many rows decide l2_rel: (sum of e^2)^2 / sum of e^4 of the rows' errors e; 0 without errors */
    int64_t worst; /* flat index, in the full tensor, of the element with the largest max_rel (or the first NaN or
                      infinity) */
    double worst_got, worst_want;
} dp_difference;

/* The distance between neighbouring float32 values at |want|, the subnormal spacing below the normal range. */
double dp_float32_ulp(double want);

/* got[want->count] holds the elements that `want` holds, in its order. Where `want` knows the rms of its rows, errors
 * are relative to that, l2_rel too; otherwise its elements must be whole rows. */
dflash_status dp_compare(const double *got, const dp_array *want, int64_t row_length, dp_difference *out,
                         dflash_error *err);

/* dp_difference.rows, from the sums of the squares and of the fourth powers of the rows' errors. */
double dp_deciding(double square, double fourth);

/* Root mean square of the largest row of those that `want` has elements of; its elements as in dp_compare. */
double dp_largest_row(const dp_array *want, int64_t row_length);

/* The elements of a complete float32 tensor that `want` (possibly sampled) holds, widened; the caller frees them. */
dflash_status dp_gather(const float *full, const dp_array *want, double **out, dflash_error *err);

/* How far two sketches of one form are apart: l2_rel and max_rel are relative to the norms of the rows of `want`, to
 * which a row's own norm counts as one more projection. An expected l2_rel is the relative L2 of the whole tensors.
 * `worst` is row * (projections + 1) + projection; what no sketch tells is zero. */
void dp_sketch_compare(const dp_sketch *got, const dp_sketch *want, dp_difference *out);

#endif
