/* resolve_rope.h - the rotary part of a geometry record, worked out from config.json (see resolve.h). */
#ifndef DP_RESOLVE_ROPE_H
#define DP_RESOLVE_ROPE_H

#include <cjson/cJSON.h>
#include <stdbool.h>

/* The record `rope` of oracles/FORMAT.md for heads of `head_dim` channels; `any_full`: some layer attends in full,
 * which decides where parameters are given for each type of layer and only one type is used. The caller deletes it. A
 * key that it needs and `config` lacks goes to *bad, unless that names one already. NULL when out of memory. */
cJSON *dp_resolve_rope(const cJSON *config, int head_dim, bool any_full, const char **bad);

#endif
