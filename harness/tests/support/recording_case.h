/*
 * recording_case.h - two recordings of a stored case that a test may spoil: the reference A, and B, which the tools of
 * scratch.h change (sf_path). B starts as a copy of A.
 */
#ifndef DP_TESTS_RECORDING_CASE_H
#define DP_TESTS_RECORDING_CASE_H

#include "bisect/bisect_files.h"
#include "judge/record_file.h"
#include "support/scratch.h"

#define RC_STAGE "/stages/run/"

extern char rc_a[SCRATCH_PATH]; /* path of A */

/* Copies the case's checkpoint and oracle (beside B, as case.h5) and records A from it, of which B is a copy. */
void rc_open(const char *name);
/* Records the checkpoint in the folder again, as it now is, as B. */
void rc_record(void);
/* The same, and B is given the records of A: a run of a drafter with
 * a fault, which claims to be a run of the right one. */
void rc_record_fault(void);
/* Geometry and provenance of B become A's. */
void rc_adopt_records(void);
/* float32 values of a stage of B, to be changed and put back with every bit; free them. */
float *rc_values(const char *stage, int64_t *count);
void rc_put_values(const char *stage, const float *values);
/* Elements of B's stage chosen by a test are multiplied and added to. */
void rc_change(const char *stage, bool (*chosen)(int64_t index), float factor, float term);

/* Compares A with B. */
void rc_compare(const dp_compare_options *how, dp_file_comparison *out);
/* The comparison is refused with this code, and the message mentions this. */
void rc_expect_refusal(const char *code, const char *mention);
/* A and B are bisected with the checkpoint in the folder. Release the result. */
void rc_bisect(dp_bisection *out);

#endif
