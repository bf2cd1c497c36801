/* sha256.h - SHA-256 (FIPS 180-4), for the digests in oracle files. */
#ifndef DP_SHA256_H
#define DP_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { DP_DIGEST_TEXT = 65 }; /* a digest in hexadecimal, with its end */

typedef struct dp_sha256 {
    uint32_t state[8];
    uint64_t length; /* bytes so far */
    unsigned char block[64];
} dp_sha256;

void dp_sha256_init(dp_sha256 *hash);
void dp_sha256_update(dp_sha256 *hash, const void *data, size_t bytes);
void dp_sha256_hex(dp_sha256 *hash, char hex[DP_DIGEST_TEXT]); /* finishes the hash */

/* All three in one. */
void dp_sha256_of(const void *data, size_t bytes, char hex[DP_DIGEST_TEXT]);

/* The digest of a regular file's bytes; "" when it cannot be read. */
void dp_file_digest(const char *path, char out[DP_DIGEST_TEXT]);

#endif
