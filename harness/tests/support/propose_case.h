/* propose_case.h - what the tests of convolutions, logits and proposals share. */
#ifndef DP_TESTS_PROPOSE_CASE_H
#define DP_TESTS_PROPOSE_CASE_H

#include "dflash.h"

#include <check.h>

/* Fails the test when the checkpoint cannot be loaded. */
dflash_draft *pc_load(dflash_engine *engine, const char *dir);

/* Fails the test unless the call was refused with this status and code. */
void pc_refused(dflash_status status, dflash_status expected, const dflash_error *err, const char *code);

/* The first index whose running sum, in double precision, exceeds u times the total. */
int pc_draw(const float *probability, int n, float u);

/* The part of suite_propose that has a file of its own. */
TCase *tcase_selector(void);

#endif
