/*
 * sketch.h - what stands for the values of a stage that an oracle does not store: of every row a few random sign
 * projections and the root mean square, in float64.
 *
 * A projection is the sum of a row's values, each with a sign, so that one wrong value shifts every projection of its
 * row (Freivalds). Signs follow from a seed by integer arithmetic alone: bit column mod 64 of a word, set for a minus;
 * words are the outputs of splitmix64 that starts from the first eight bytes, most significant first, of the SHA-256 of
 * "sketch:SEED:NAME"; a projection takes ceil(width / 64) words, a row its projections one after another.
 * oracles/sketch.py is the other half.
 */
#ifndef DP_SKETCH_H
#define DP_SKETCH_H

#include "dflash.h"

enum { DP_SKETCH_PROJECTIONS = 4, DP_SKETCH_PROJECTIONS_MOST = 16 };

typedef struct dp_sketch {
    int64_t rows, width; /* width: values of a row */
    int projections;
    uint64_t key;  /* what the signs start from */
    double *value; /* owned, [rows, projections + 1]: the projections, then the rms; NULL: there is no sketch */
} dp_sketch;
void dp_sketch_release(dp_sketch *sketch);

uint64_t dp_sketch_key(int64_t seed, const char *stage);

/* The sketch of row `row`: value[width] to out[projections + 1]. */
void dp_sketch_row(const dp_sketch *form, int64_t row, const double *value, double *out);

/* The sketch, in the form of another one, of a complete float32 tensor of form->rows * form->width values. */
dflash_status dp_sketch_of(const float *full, const dp_sketch *form, dp_sketch *out, dflash_error *err);

#endif
