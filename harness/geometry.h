/*
 * geometry.h - does the oracle speak of the checkpoint under test?
 *
 * The checkpoint's config is the authority and the oracle is the claimant: every field of the geometry record
 * (oracles/FORMAT.md) is derived from df_config and compared with the claim before any value is read. A field that is
 * missing, unknown, of another type or different is a refusal naming the field and both values.
 */
#ifndef DP_GEOMETRY_H
#define DP_GEOMETRY_H

#include "dflash.h"
#include "store.h"

/* The geometry record of a config; the caller deletes it. NULL when out of memory. */
cJSON *dp_geometry_of(const df_config *config);

/* Compares a claimed record with the config's own. `where` names the claimant. Codes: "geometry.field.missing",
 * "geometry.field.unknown", "geometry.field.differs". */
df_status dp_geometry_check(const df_config *config, const cJSON *claim, const char *where, df_error *err);

/* Compares the SHA-256 of every tensor in use with the provenance record's, on `threads` threads. Codes:
 * "provenance.tensor.missing", "provenance.tensor.extra", "provenance.tensor.differs". */
df_status dp_provenance_check(const df_draft *draft, const cJSON *provenance, const char *where, int threads,
                              df_error *err);

#endif
