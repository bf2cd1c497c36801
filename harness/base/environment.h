/*
 * environment.h - the facts that a report needs to be reproduced: what was built, how, and where it ran.
 */
#ifndef DP_ENVIRONMENT_H
#define DP_ENVIRONMENT_H

#include "dflash.h"

#include <cjson/cJSON.h>

/* {"version", "commit", "dirty", "compiler", "flags", "cuda", "hdf5", "cjson", "cpu", "os"}; the caller deletes it.
 * NULL when out of memory. */
cJSON *dp_environment(void);

/* Adds "backend", "class", "products" and, of a device, "device": {"name", "capability", "multiprocessors",
 * "memory_bytes", "driver", "runtime", "cublas", "tf32"}. */
void dp_add_device(cJSON *object, const dflash_device_facts *facts);

/* One line: "dflash-parity 0.1.0 (commit abc, clean)". */
void dp_print_version(void);

#endif
