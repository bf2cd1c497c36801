/* sha256_compress.h - the compression function of SHA-256: 64-byte blocks into a state. For sha256.c and its tests. */
#ifndef DP_SHA256_COMPRESS_H
#define DP_SHA256_COMPRESS_H

#include <stddef.h>
#include <stdint.h>

typedef void (*dp_sha256_compress_fn)(uint32_t state[8], const unsigned char *data, size_t blocks);

extern const uint32_t dp_sha256_constant[64];

/* Portable C: what the others are held against. */
void dp_sha256_compress_plain(uint32_t state[8], const unsigned char *data, size_t blocks);

/* With the processor's own instructions; NULL where it has none. */
dp_sha256_compress_fn dp_sha256_compress_native(void);

#endif
