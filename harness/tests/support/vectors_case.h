/*
 * vectors_case.h - what the tests of oracles/vectors.h5 share: a group with the stored checkpoint that it speaks of,
 * and how values are held against the reference's.
 */
#ifndef DP_TESTS_VECTORS_CASE_H
#define DP_TESTS_VECTORS_CASE_H

#include "support/dspark_case.h"
#include "support/vectors_file.h"

/* The checkpoint of a group, loaded; its tensors must have the digests that the group names. */
typedef struct vc_model {
    char path[VF_NAME];
    dflash_engine *engine;
    dflash_draft *draft;
} vc_model;

void vc_load(const vf_group *group, vc_model *model);
void vc_release(vc_model *model);

/* How many of n values of ours are further from the reference's float64 than float32's rounding may take them. A bound
 * that is itself off the reference's value by more than 1e-10 of it fails the test. */
int vc_outside(const float *ours, const double *theirs, const dp_real *bound, int n);

/* The parts of suite_vectors that have files of their own. */
TCase *tcase_vectors_conv(void);
TCase *tcase_vectors_heads(void);
TCase *tcase_vectors_gate(void);

#endif
