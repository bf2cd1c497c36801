/*
 * environment.h - the facts that a report needs to be reproduced: what was built, how, and where it ran.
 */
#ifndef DP_ENVIRONMENT_H
#define DP_ENVIRONMENT_H

#include <cjson/cJSON.h>

/* {"version", "commit", "dirty", "compiler", "flags", "cuda", "hdf5", "cjson", "cpu", "os"}; the caller deletes it.
 * NULL when out of memory. */
cJSON *dp_environment(void);

/* One line: "dflash-parity 0.1.0 (commit abc, clean)". */
void dp_print_version(void);

#endif
