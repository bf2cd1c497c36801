/*
 * resolve.h - what a config.json says, worked out a second time.
 *
 * The drafter's own reading of its config (dflash_config_read) is part of what is judged, so it cannot be the judge.
 * Here the same text becomes the geometry record of oracles/FORMAT.md by code that shares nothing with impl/: defaults,
 * places of keys, head sizes, windows, causality and the rotary factors are derived once more. Nothing is refused that
 * the drafter accepts, and nothing beyond what a record needs is looked at: which configs are honest is the drafter's
 * business, what they mean is both's.
 */
#ifndef DP_RESOLVE_H
#define DP_RESOLVE_H

#include "dflash.h"

#include <cjson/cJSON.h>

/* The geometry record of the config in `text`, a whole JSON object; the caller deletes it. `where` names the file.
 * Code: "resolve.config" (a key that a record needs is missing or of another type). */
dflash_status dp_resolve(const char *text, const char *where, cJSON **out, dflash_error *err);

#endif
