/*
 * run_facts.h - what a check was about, for its result file: digests of the files, the geometry, the oracle's record.
 *
 * Nothing is judged here. A fact that cannot be had (a file that is not there, an oracle that was refused) is absent,
 * and why is the check's own error to tell.
 */
#ifndef DP_RUN_FACTS_H
#define DP_RUN_FACTS_H

#include "base/sha256.h"
#include "preflight/preflight.h"

typedef struct dp_run_facts {
    char config_sha256[DP_DIGEST_TEXT];  /* of config.json; "" when it cannot be read */
    char oracle_sha256[DP_DIGEST_TEXT];  /* of the file; "" likewise */
    char tensors_sha256[DP_DIGEST_TEXT]; /* of the tensors' records; "" until the weights were held against them */
    cJSON *geometry;                     /* owned; NULL until admitted */
    cJSON *provenance;                   /* owned, the summary of reports/RESULT.md; NULL until admitted */
} dp_run_facts;

/* The SHA-256 of a file's bytes; "" when it cannot be read. */
void dp_file_digest(const char *path, char out[DP_DIGEST_TEXT]);
/* Digests both files. */
void dp_facts_of_files(const char *checkpoint, const char *oracle, dp_run_facts *facts);
/* Geometry and provenance, once the oracle is admitted. Codes: "memory". */
dflash_status dp_facts_of_preflight(const dp_preflight *in, dp_run_facts *facts, dflash_error *err);
/* The digest of the tensors, once the weights were found to be those of the oracle's record. */
dflash_status dp_facts_of_tensors(const cJSON *provenance, dp_run_facts *facts, dflash_error *err);
void dp_facts_release(dp_run_facts *facts);

#endif
