/*
 * geometry.h - does the oracle speak of the checkpoint under test?
 *
 * The checkpoint's config.json is the authority, as resolve.h reads it. The oracle is one claimant: every field of the
 * geometry record (oracles/FORMAT.md) is compared before any value is read, and one that is missing, unknown, of
 * another type or different is a refusal naming the field and both values. The drafter is the other: where its own
 * reading (dflash_config) is another than the config's, the drafter is wrong.
 */
#ifndef DP_GEOMETRY_H
#define DP_GEOMETRY_H

#include "dflash.h"
#include "store/store.h"

/* The geometry record of what the drafter resolved; the caller deletes it. NULL when out of memory. */
cJSON *dp_geometry_of(const dflash_config *config);

/* Compares a claimed record with the one that the config gives rise to (dp_resolve). `where` names the claimant. Codes:
 * "geometry.field.missing", "geometry.field.unknown", "geometry.field.differs". */
dflash_status dp_geometry_check(const cJSON *resolved, const cJSON *claim, const char *where, dflash_error *err);

/* Compares what the drafter resolved with what its config, named by `where`, says. DFLASH_ERR_REFUSED with the code
 * DP_MISREAD: the drafter runs another model than the config's, which is a failure and not a refusal. */
#define DP_MISREAD "geometry.misread"
dflash_status dp_geometry_check_reading(const cJSON *resolved, const dflash_config *config, const char *where,
                                        dflash_error *err);

/* Compares the records of two files, `first` (named where_first) and `second`, in the same way and with the same codes.
 */
dflash_status dp_geometry_compare(const cJSON *first, const cJSON *second, const char *where_first,
                                  const char *where_second, dflash_error *err);

/* The config that a geometry record describes, as far as arithmetic and shapes go (a record has no
 * max_position_embeddings, for one). `where` names the record's file. What dp_geometry_of makes of it is the record
 * again; otherwise the record is refused with the codes above or "geometry.field.malformed". */
dflash_status dp_geometry_config(const cJSON *record, const char *where, dflash_config *out, dflash_error *err);

/* Compares the SHA-256 of every tensor in use with the provenance record's, on `threads` threads. Codes:
 * "provenance.tensor.missing", "provenance.tensor.extra", "provenance.tensor.differs". */
dflash_status dp_provenance_check(const dflash_draft *draft, const cJSON *provenance, const char *where, int threads,
                                  dflash_error *err);

/* The record of every tensor in use, name to {dtype, shape, sha256}, digests taken on `threads` threads; the caller
 * deletes it. */
dflash_status dp_provenance_of(const dflash_draft *draft, int threads, cJSON **out, dflash_error *err);

/* {dtype, shape, sha256} of one tensor; NULL when out of memory. */
cJSON *dp_tensor_record(const dflash_tensor_view *view, const char *sha256);

#endif
