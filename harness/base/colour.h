/* colour.h - colour for tables that were written without it. */
#ifndef DP_COLOUR_H
#define DP_COLOUR_H

#include <stdbool.h>
#include <stdio.h>

/* Whether what goes to `to` should be coloured: a terminal, TERM not "dumb", and NO_COLOR unset or empty. */
bool dp_colour_wanted(FILE *to);

/* A table on its way to `to`: write into `table`, then close it. Without colour both are the same stream. */
typedef struct dp_coloured {
    FILE *to, *table;
    char *text;
    size_t length;
} dp_coloured;
void dp_coloured_open(FILE *to, dp_coloured *out);
void dp_coloured_close(dp_coloured *table);

/* Writes text, verdict words at the beginning of a line and `warn` at its end coloured. */
void dp_colour_write(FILE *to, const char *text);

#endif
