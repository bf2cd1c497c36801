/*
 * file_pair.h - may these two files be held against each other? Everything that is settled before a value is compared.
 *
 * Either file is an oracle or a recording. They must be of one drafter (geometry), fed the same inputs, run with the
 * same weights and, unless another mode is what is being compared, in the same precision; a third file, an oracle that
 * lends its limits, must be of the same run. Which stages there must be follows from the geometry, so that a stage that
 * both files lack is noticed too. No checkpoint is read.
 */
#ifndef DP_FILE_PAIR_H
#define DP_FILE_PAIR_H

#include "preflight/preflight.h"

typedef struct dp_file_pair_options {
    const char *a, *b;      /* the reference and what is held against it */
    const char *limits;     /* an oracle; NULL: A or B, if one is an oracle */
    bool across_precisions; /* the precision may differ, and with it the weights' dtype and bytes */
} dp_file_pair_options;

typedef struct dp_file_pair {
    dp_oracle *file[2]; /* owned */
    dp_oracle *lent;    /* owned; NULL without a third file */
    dp_oracle *limits;  /* borrowed: the third file, A or B; NULL: there are no limits */
    dflash_config config;
    int context, vocab;              /* rows; rows of the output head, 0 = none */
    dp_stage_set stages;             /* owned */
    dp_difference *reference_spread; /* owned, [stages.count]; NULL without limits */
    dp_difference *sketch;           /* likewise, of the sketches of sampled stages */
    const char *precision[2];        /* borrowed from the files */
    int other_tensors;               /* tensors of other bytes, which across_precisions let pass */
} dp_file_pair;

/*
 * Release *out whatever the outcome. Codes: those of dp_store_open, dp_geometry_config and dp_geometry_compare,
 * "compare.input.missing", "compare.input.shape", "compare.input.differs", "compare.weights.missing",
 * "compare.weights.differs", "compare.head.differs", "compare.precision", "compare.limits", and those of
 * dp_preflight_spreads.
 */
dflash_status dp_file_pair_open(const dp_file_pair_options *options, dp_file_pair *out, dflash_error *err);
void dp_file_pair_release(dp_file_pair *pair);

/* "stored" where the file does not say. */
const char *dp_file_precision(const dp_oracle *file);

/* "oracle, float64 run", "recording of dflash-parity, cpu exact avx512"; returns text. */
enum { DP_FILE_TEXT = 160 };
const char *dp_file_describe(const dp_oracle *file, char text[DP_FILE_TEXT]);

#endif
