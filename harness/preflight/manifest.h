/*
 * manifest.h - are the oracles of a case list the ones that were stored, and by what were they written?
 *
 * A list may name a manifest, which the generator writes (oracles/manifest.py): of every oracle its size and SHA-256
 * and the signature of what wrote it. An oracle's own digests say that it is whole; only the manifest says that nobody
 * put another one in its place. Signatures are compared with what an oracle says of itself; that the generator has
 * changed since is news and no fault.
 */
#ifndef DP_MANIFEST_H
#define DP_MANIFEST_H

#include "dflash.h"

#include <cjson/cJSON.h>
#include <stdio.h>

typedef struct dp_manifest {
    const char *path;     /* borrowed from the list */
    cJSON *document;      /* owned; NULL: the list names none */
    const cJSON *oracles; /* inside it */
    const cJSON *signatures;
} dp_manifest;

/* Reads the manifest at `path`; NULL gives one that pins nothing. Codes: "manifest.json", "manifest.entry" (an entry or
 * a signature that is not complete) and those of dp_text_file_read. */
dflash_status dp_manifest_read(const char *path, dp_manifest *out, dflash_error *err);
void dp_manifest_release(dp_manifest *manifest);

/* The oracle's file is the one that the manifest describes under `entry`, its path in the list. Codes: "manifest.case"
 * (no entry), "manifest.file", "manifest.digest". With nothing pinned: DFLASH_OK. */
dflash_status dp_manifest_check_file(const dp_manifest *manifest, const char *entry, const char *oracle,
                                     dflash_error *err);

/* The signature of an oracle's entry; NULL when nothing is pinned. */
const cJSON *dp_manifest_signature(const dp_manifest *manifest, const char *entry);

/* What a provenance record says of its reference, of the second one and of packages is what the signature says. `where`
 * names the oracle. Code: "manifest.signature". */
dflash_status dp_manifest_check_provenance(const cJSON *signature, const cJSON *provenance, const char *where,
                                           dflash_error *err);

/* One line: how many of the oracles were written by the generator as it is in `folder`, and which of its sources are
 * others now. */
void dp_manifest_print_age(const dp_manifest *manifest, const char *folder, FILE *to);

#endif
