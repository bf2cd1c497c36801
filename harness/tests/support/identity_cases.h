/* identity_cases.h - the parts of suite_identity, each in a file of its own; test_identity.c puts them together. */
#ifndef DP_TESTS_IDENTITY_CASES_H
#define DP_TESTS_IDENTITY_CASES_H

#include <check.h>

void identity_add_shrink(Suite *suite);  /* test_identity_shrink.c */
void identity_add_faults(Suite *suite);  /* test_identity_faults.c */
void identity_add_command(Suite *suite); /* test_identity_command.c */

#endif
