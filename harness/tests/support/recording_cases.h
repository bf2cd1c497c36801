/* recording_cases.h - the parts of suite_recording and suite_bisect, each in a file of its own. */
#ifndef DP_TESTS_RECORDING_CASES_H
#define DP_TESTS_RECORDING_CASES_H

#include <check.h>

void recording_add_record(Suite *suite); /* test_record.c */
void bisect_add_narrow(Suite *suite);    /* test_narrow.c */
void bisect_add_cause(Suite *suite);     /* test_narrow_cause.c */
void bisect_add_git(Suite *suite);       /* test_bisect_git.c */

#endif
