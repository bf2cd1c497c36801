/* coordinates.h - from a flat index to a place in a tensor. */
#ifndef DP_COORDINATES_H
#define DP_COORDINATES_H

#include "store/stage_set.h"

static inline void dp_coordinates(int rank, const int64_t *dim, int64_t flat, int64_t at[4]) {
    for (int i = 0; i < 4; i++) at[i] = 0;
    for (int i = rank - 1; i >= 0; i--) {
        at[i] = flat % dim[i];
        flat /= dim[i];
    }
}

/* "[12, 40]" for the flat index 520 of a [.., 40] tensor; returns text. */
static inline const char *dp_coordinates_text(int rank, const int64_t *dim, int64_t flat, char text[DP_DIMS_TEXT]) {
    int64_t at[4];
    dp_coordinates(rank, dim, flat, at);
    return dp_dims_text(rank, at, text);
}

#endif
