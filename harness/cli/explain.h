/* explain.h - the tables of numbers that verdicts hang on, printed with their reasons and sources. */
#ifndef DP_EXPLAIN_H
#define DP_EXPLAIN_H

#include <stdbool.h>
#include <stdio.h>

/* How chained limits are made, the table of envelope.c and that of bounds.c. */
void dp_explain_rules(FILE *to);

/* The bound of the stages whose name matches the pattern, for the exact class. Returns how many there are. */
int dp_explain_stages(FILE *to, const char *pattern);

#endif
