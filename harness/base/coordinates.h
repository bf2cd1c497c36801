/* coordinates.h - shapes and places in a tensor, as numbers and as text. */
#ifndef DP_COORDINATES_H
#define DP_COORDINATES_H

#include <stdint.h>

enum { DP_DIMS_TEXT = 96 };

const char *dp_dims_text(int rank, const int64_t *dim, char text[DP_DIMS_TEXT]); /* "[16, 2560]"; returns text */

/* The indices at[0..3] of the flat index `flat`; those from `rank` on are 0. */
void dp_coordinates(int rank, const int64_t *dim, int64_t flat, int64_t at[4]);

/* "[12, 40]" for the flat index 520 of a [.., 40] tensor; returns text. */
const char *dp_coordinates_text(int rank, const int64_t *dim, int64_t flat, char text[DP_DIMS_TEXT]);

#endif
