/* colour.h - colour for tables that were written without it. */
#ifndef DP_COLOUR_H
#define DP_COLOUR_H

#include <stdbool.h>
#include <stdio.h>

/* Whether what goes to `to` should be coloured: a terminal, TERM not "dumb", and NO_COLOR unset or empty. */
bool dp_colour_wanted(FILE *to);

/* Writes text, verdict words at the beginning of a line and `warn` at its end coloured. */
void dp_colour_write(FILE *to, const char *text);

#endif
