/* bounds_case.h - the parts of suite_bounds that live in files of their own. */
#ifndef DP_TESTS_BOUNDS_CASE_H
#define DP_TESTS_BOUNDS_CASE_H

#include <check.h>

void bounds_add_any_order(Suite *suite); /* test_any_order.c */

#endif
