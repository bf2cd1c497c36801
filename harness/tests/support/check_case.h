/* check_case.h - the parts of suite_check, each in a file of its own; test_check.c puts them together. */
#ifndef DP_TESTS_CHECK_CASE_H
#define DP_TESTS_CHECK_CASE_H

#include "support/scratch.h"

/* A test case whose tests start from an empty scratch folder. */
TCase *check_case(const char *name);

void check_add_lies(Suite *suite);     /* test_check_lies.c */
void check_add_weights(Suite *suite);  /* test_check_weights.c */
void check_add_oracles(Suite *suite);  /* test_check_oracle.c */
void check_add_spread(Suite *suite);   /* test_check_spread.c */
void check_add_rounds(Suite *suite);   /* test_check_rounds.c */
void check_add_heads(Suite *suite);    /* test_check_heads.c */
void check_add_ids(Suite *suite);      /* test_check_ids.c */
void check_add_sketches(Suite *suite); /* test_check_sketch.c */

#endif
