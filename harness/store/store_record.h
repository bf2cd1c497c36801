/*
 * store_record.h - the two JSON records of an oracle file, read, digested, parsed and checked for form.
 *
 * What the geometry record claims is geometry.h's business, and whether the tensor digests hold provenance.c's.
 */
#ifndef DP_STORE_RECORD_H
#define DP_STORE_RECORD_H

#include "store/store.h"

#include <hdf5.h>

/* Reads the record at `path` ("/geometry"); the caller deletes it. Codes: "oracle.object.missing", "oracle.digest",
 * "oracle.json" (not one JSON object, or a key twice), "oracle.read". */
dflash_status dp_record_read(hid_t file, const char *file_name, const char *path, cJSON **out, dflash_error *err);

/* Every key that the provenance record of this kind of file must have is there, every key has its type, and there is no
 * other. Codes: "oracle.provenance", "oracle.provenance.unknown". */
dflash_status dp_record_check_provenance(const cJSON *provenance, dp_kind kind, const char *file_name,
                                         dflash_error *err);

#endif
