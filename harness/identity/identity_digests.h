/*
 * identity_digests.h - a run's stages as digests: what two machines compare instead of data.
 *
 * A digest is the SHA-256 of a stage's kind, shape and bits, little-endian. Two lists agree when they name the same
 * stages of the same cases with the same digests: one that is missing or extra is a disagreement like any other.
 */
#ifndef DP_IDENTITY_DIGESTS_H
#define DP_IDENTITY_DIGESTS_H

#include "run/recording.h"

enum { DP_DIGEST_NAME = 128 };

typedef struct dp_digest {
    char name[DP_DIGEST_NAME]; /* of the case */
    char stage[DFLASH_STAGE_NAME_MAX];
    char hex[65];
} dp_digest;

typedef struct dp_digest_list {
    dp_digest *item; /* owned */
    int count, capacity;
} dp_digest_list;

void dp_digest_list_release(dp_digest_list *list);

/* Appends the digest of every stage of a recording. Codes: "digests.name" (a case name that is too long). */
dflash_status dp_digests_add(dp_digest_list *list, const char *name, const dp_recording *run, dflash_error *err);

/* {"schema": "dflash-parity-digests", "schema_version": 1, "digests": [{"case", "stage", "digest"}, ...]}. Codes of
 * reading: "digests.json" (no such document), "digests.entry" (an entry that is malformed or there twice), and those of
 * text_file.h. */
dflash_status dp_digests_write(const char *path, const dp_digest_list *list, dflash_error *err);
dflash_status dp_digests_read(const char *path, dp_digest_list *out, dflash_error *err);

typedef enum dp_digest_verdict {
    DP_DIGEST_SAME = 0,
    DP_DIGEST_DIFFERS,
    DP_DIGEST_MISSING,
    DP_DIGEST_EXTRA
} dp_digest_verdict;

/* Called for each pair that does not agree: missing, the file has it and the run has not; extra, the other way round.
 */
typedef void (*dp_digest_report)(const dp_digest *digest, dp_digest_verdict verdict, void *user);

typedef struct dp_digest_comparison {
    int compared; /* stages that both have */
    int differing, missing, extra;
} dp_digest_comparison;

dp_digest_comparison dp_digests_compare(const dp_digest_list *run, const dp_digest_list *file, dp_digest_report report,
                                        void *user);

#endif
