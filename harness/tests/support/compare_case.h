/* compare_case.h - what the files of suite_compare share: arrays over literal values, and a comparison that must run.
 */
#ifndef DP_TESTS_COMPARE_CASE_H
#define DP_TESTS_COMPARE_CASE_H

#include "limits/compare.h"
#include "suites.h"

/* A complete [rows, columns] reference over `value`, which stays the caller's. */
dp_array compare_array(double *value, int64_t rows, int64_t columns);
/* The difference with rows of `row_length`. */
dp_difference compare_run(const double *got, const dp_array *want, int64_t row_length);

/* The cases of test_envelope.c. */
void compare_add_envelope(Suite *suite);

#endif
