/*
 * compare_files.h - two files, stage by stage: the class of agreement, the measures, the limit where an oracle lends
 * one, and a verdict against what was expected.
 *
 * Every stage that the geometry demands is compared or is a failure: lacking, extra and differently shaped stages fail,
 * and so does a NaN or an infinity on either side, whatever else agrees.
 */
#ifndef DP_COMPARE_FILES_H
#define DP_COMPARE_FILES_H

#include "limits/envelope.h"
#include "bisect/file_stage.h"
#include "judge/identity_pair.h"
#include "check/run_check.h"

/* What a stage must reach to pass. */
typedef enum dp_expectation {
    DP_EXPECT_DEFAULT = 0, /* envelope when a file or the third one is an oracle, identical otherwise */
    DP_EXPECT_IDENTICAL,
    DP_EXPECT_EQUAL,
    DP_EXPECT_ULP,     /* no element further apart than `ulp` */
    DP_EXPECT_ENVELOPE /* under the limit of the oracle; integers the same */
} dp_expectation;

typedef struct dp_compare_options {
    dp_file_pair_options files;
    const char *filter; /* pattern over stage names; NULL: all */
    dp_expectation expect;
    uint32_t ulp;
} dp_compare_options;

typedef struct dp_file_stage {
    dp_stage_spec spec;
    dp_stage_fault fault;
    dp_pair_stage pair; /* class, differing elements, first difference (a flat index of the whole tensor) */
    bool rounded;       /* the class is that of the values rounded to float32 */
    bool measured;      /* difference is set: float stage, and A is finite */
    dp_difference difference;
    bool barred; /* limit and headroom are set */
    dp_limit limit;
    dp_sketch_result
        sketch; /* a recording against the sketch of an oracle that holds samples; then L2 is the sketch's */
    double headroom;
    bool pass;
} dp_file_stage;

typedef struct dp_file_comparison {
    const dp_compare_options *options;
    dp_verdict verdict;
    dflash_error error; /* for DP_REFUSED and DP_ERROR */
    dp_file_pair files;
    dp_expectation expect; /* resolved */
    dp_file_stage *stage;  /* owned, those selected: demanded stages in forward order, then extra ones */
    int count, failed, warnings, extra;
} dp_file_comparison;

/* Never fails: what goes wrong is in the result. Code beside those of dp_file_pair_open: "compare.expect". */
void dp_compare_files(const dp_compare_options *options, dp_file_comparison *out);
void dp_file_comparison_release(dp_file_comparison *comparison);

/* The first stage that does not pass; NULL when all do. */
const dp_file_stage *dp_first_divergent_file_stage(const dp_file_comparison *comparison);

/* "identical", "equal", "ulp:N", "envelope". False: no such word. */
bool dp_expectation_parse(const char *word, dp_compare_options *options);
const char *dp_expectation_text(const dp_file_comparison *comparison, char text[32]);

#endif
