/* bisect_sides.h - "isa=generic,threads=1": how one side of a bisection is run, in words. */
#ifndef DP_BISECT_SIDES_H
#define DP_BISECT_SIDES_H

#include "judge/record_run.h"

/* Applies the settings in text[length] to *setup. Code: "bisect.side" (DFLASH_ERR_ARGUMENT). Whether the engine exists
 * is decided when it is created. */
dflash_status dp_side_parse(const char *text, size_t length, dp_run_setup *setup, dflash_error *err);

/* "S,S": one setting for each of the two. */
dflash_status dp_sides_split(const char *text, dp_run_setup setup[2], dflash_error *err);

#endif
