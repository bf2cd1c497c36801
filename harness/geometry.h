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

/* Compares the records of two files, `first` (named where_first) and `second`, in the same way and with the same codes.
 */
df_status dp_geometry_compare(const cJSON *first, const cJSON *second, const char *where_first,
                              const char *where_second, df_error *err);

/* The config that a geometry record describes, as far as arithmetic and shapes go (a record has no
 * max_position_embeddings, for one). `where` names the record's file. What dp_geometry_of makes of it is the record
 * again; otherwise the record is refused with the codes above or "geometry.field.malformed". */
df_status dp_geometry_config(const cJSON *record, const char *where, df_config *out, df_error *err);

/* Compares the SHA-256 of every tensor in use with the provenance record's, on `threads` threads. Codes:
 * "provenance.tensor.missing", "provenance.tensor.extra", "provenance.tensor.differs". */
df_status dp_provenance_check(const df_draft *draft, const cJSON *provenance, const char *where, int threads,
                              df_error *err);

/* The record of every tensor in use, name to {dtype, shape, sha256}, digests taken on `threads` threads; the caller
 * deletes it. */
df_status dp_provenance_of(const df_draft *draft, int threads, cJSON **out, df_error *err);

/* {dtype, shape, sha256} of one tensor; NULL when out of memory. */
cJSON *dp_tensor_record(const df_tensor_view *view, const char *sha256);

#endif
