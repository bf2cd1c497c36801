/* coordinates.c - see coordinates.h. */
#include "base/coordinates.h"

#include <stdio.h>

const char *dp_dims_text(int rank, const int64_t *dim, char text[DP_DIMS_TEXT]) {
    size_t at = (size_t)snprintf(text, DP_DIMS_TEXT, "[");
    for (int i = 0; i < rank; i++)
        at += (size_t)snprintf(text + at, DP_DIMS_TEXT - at, "%s%lld", i > 0 ? ", " : "", (long long)dim[i]);
    snprintf(text + at, DP_DIMS_TEXT - at, "]");
    return text;
}

void dp_coordinates(int rank, const int64_t *dim, int64_t flat, int64_t at[4]) {
    for (int i = 0; i < 4; i++) at[i] = 0;
    for (int i = rank - 1; i >= 0; i--) {
        at[i] = flat % dim[i];
        flat /= dim[i];
    }
}

const char *dp_coordinates_text(int rank, const int64_t *dim, int64_t flat, char text[DP_DIMS_TEXT]) {
    int64_t at[4];
    dp_coordinates(rank, dim, flat, at);
    return dp_dims_text(rank, at, text);
}
