/* shortest.h - a double in as few digits as give it back. */
#ifndef DP_SHORTEST_H
#define DP_SHORTEST_H

#include <stdio.h>
#include <stdlib.h>

enum { DP_SHORTEST_TEXT = 32 };

/* 15 digits are always kept by a double and 17 always tell two apart (IEEE 754 binary64). Returns text. */
static inline const char *dp_shortest(double value, char *text, size_t size) {
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    return text;
}

#endif
