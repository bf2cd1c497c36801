/*
 * sha256.c - see sha256.h.
 *
 * Plain portable C, unrolled by sixteen rounds with the message schedule kept in sixteen words, so that hashing a
 * checkpoint of a gigabyte stays a matter of seconds; the processor's own instructions where it has them
 * (sha256_native.c). Hashing several buffers at once is the caller's business.
 */
#include "base/sha256.h"

#include "base/sha256_compress.h"

#include "common/regular_file.h"

#include <string.h>
#include <unistd.h>

const uint32_t dp_sha256_constant[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

#define ROTATE(x, n) ((x) >> (n) | (x) << (32 - (n)))
#define BIG_0(x) (ROTATE(x, 2) ^ ROTATE(x, 13) ^ ROTATE(x, 22))
#define BIG_1(x) (ROTATE(x, 6) ^ ROTATE(x, 11) ^ ROTATE(x, 25))
#define SMALL_0(x) (ROTATE(x, 7) ^ ROTATE(x, 18) ^ (x) >> 3)
#define SMALL_1(x) (ROTATE(x, 17) ^ ROTATE(x, 19) ^ (x) >> 10)

/* One round. The eight working variables are renamed by the caller instead of moved. */
#define ROUND(a, b, c, d, e, f, g, h, i)                                                                               \
    do {                                                                                                               \
        const uint32_t sum = h + BIG_1(e) + (g ^ (e & (f ^ g))) + k[i] + w[i];                                         \
        d += sum;                                                                                                      \
        h = sum + BIG_0(a) + ((a & b) | (c & (a | b)));                                                                \
    } while (0)

#define SIXTEEN_ROUNDS()                                                                                               \
    do {                                                                                                               \
        ROUND(a, b, c, d, e, f, g, h, 0);                                                                              \
        ROUND(h, a, b, c, d, e, f, g, 1);                                                                              \
        ROUND(g, h, a, b, c, d, e, f, 2);                                                                              \
        ROUND(f, g, h, a, b, c, d, e, 3);                                                                              \
        ROUND(e, f, g, h, a, b, c, d, 4);                                                                              \
        ROUND(d, e, f, g, h, a, b, c, 5);                                                                              \
        ROUND(c, d, e, f, g, h, a, b, 6);                                                                              \
        ROUND(b, c, d, e, f, g, h, a, 7);                                                                              \
        ROUND(a, b, c, d, e, f, g, h, 8);                                                                              \
        ROUND(h, a, b, c, d, e, f, g, 9);                                                                              \
        ROUND(g, h, a, b, c, d, e, f, 10);                                                                             \
        ROUND(f, g, h, a, b, c, d, e, 11);                                                                             \
        ROUND(e, f, g, h, a, b, c, d, 12);                                                                             \
        ROUND(d, e, f, g, h, a, b, c, 13);                                                                             \
        ROUND(c, d, e, f, g, h, a, b, 14);                                                                             \
        ROUND(b, c, d, e, f, g, h, a, 15);                                                                             \
    } while (0)

/* Replaces schedule word i by the one sixteen places later; ascending order makes the neighbours current. */
#define EXTEND(i) w[i] += SMALL_1(w[((i) + 14) & 15]) + w[((i) + 9) & 15] + SMALL_0(w[((i) + 1) & 15])

static uint32_t big_endian_word(const unsigned char *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3];
}

void dp_sha256_compress_plain(uint32_t state[8], const unsigned char *data, size_t blocks) {
    for (; blocks > 0; blocks--, data += 64) {
        uint32_t w[16];
        for (int i = 0; i < 16; i++) w[i] = big_endian_word(data + 4 * i);
        uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
        uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
        const uint32_t *k = dp_sha256_constant;
        SIXTEEN_ROUNDS();
        for (int pass = 1; pass < 4; pass++) {
            k += 16;
            EXTEND(0);
            EXTEND(1);
            EXTEND(2);
            EXTEND(3);
            EXTEND(4);
            EXTEND(5);
            EXTEND(6);
            EXTEND(7);
            EXTEND(8);
            EXTEND(9);
            EXTEND(10);
            EXTEND(11);
            EXTEND(12);
            EXTEND(13);
            EXTEND(14);
            EXTEND(15);
            SIXTEEN_ROUNDS();
        }
        state[0] += a;
        state[1] += b;
        state[2] += c;
        state[3] += d;
        state[4] += e;
        state[5] += f;
        state[6] += g;
        state[7] += h;
    }
}

static void compress(uint32_t state[8], const unsigned char *data, size_t blocks) {
    const dp_sha256_compress_fn native = dp_sha256_compress_native();
    (native != NULL ? native : dp_sha256_compress_plain)(state, data, blocks);
}

void dp_sha256_init(dp_sha256 *hash) {
    static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(hash->state, initial, sizeof initial);
    hash->length = 0;
}

void dp_sha256_update(dp_sha256 *hash, const void *data, size_t bytes) {
    if (bytes == 0) return;
    const unsigned char *p = data;
    const size_t held = (size_t)(hash->length & 63);
    hash->length += bytes;
    if (held != 0) {
        const size_t room = 64 - held, part = bytes < room ? bytes : room;
        memcpy(hash->block + held, p, part);
        if (part < room) return;
        compress(hash->state, hash->block, 1);
        p += part;
        bytes -= part;
    }
    compress(hash->state, p, bytes / 64);
    memcpy(hash->block, p + bytes / 64 * 64, bytes & 63);
}

void dp_sha256_hex(dp_sha256 *hash, char hex[65]) {
    const uint64_t bits = hash->length * 8;
    unsigned char tail[72] = {0x80};
    const size_t held = (size_t)(hash->length & 63);
    const size_t padding = (held < 56 ? 56 : 120) - held;
    for (int i = 0; i < 8; i++) tail[padding + (size_t)i] = (unsigned char)(bits >> (56 - 8 * i));
    dp_sha256_update(hash, tail, padding + 8);
    static const char digit[] = "0123456789abcdef";
    for (int i = 0; i < 64; i++) hex[i] = digit[hash->state[i / 8] >> (28 - 4 * (i % 8)) & 15];
    hex[64] = '\0';
}

void dp_sha256_of(const void *data, size_t bytes, char hex[65]) {
    dp_sha256 hash;
    dp_sha256_init(&hash);
    dp_sha256_update(&hash, data, bytes);
    dp_sha256_hex(&hash, hex);
}

void dp_file_digest(const char *path, char out[DP_DIGEST_TEXT]) {
    enum { CHUNK = 1 << 16 };
    static const char none[] = "";
    dp_sha256 hash;
    unsigned char buffer[CHUNK];
    ssize_t length;
    struct stat info;
    const char *kind;
    memcpy(out, none, sizeof none);
    const int fd = df_open_regular(path, &info, &kind);
    if (fd < 0) return;
    dp_sha256_init(&hash);
    while ((length = read(fd, buffer, sizeof buffer)) > 0) dp_sha256_update(&hash, buffer, (size_t)length);
    if (length == 0) dp_sha256_hex(&hash, out);
    close(fd);
}
