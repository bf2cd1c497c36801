/*
 * sha256_native.c - SHA-256 with the instructions that x86 processors have for it: four rounds take five instructions,
 * so a checkpoint is hashed several times faster than sha256.c does.
 */
#include "base/sha256_compress.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>
#include <stdbool.h>

/* The instructions keep the eight working variables as two vectors, the first named in the highest lane. A call does
 * two rounds: it turns the older pair of vectors' second into the newer one's first. */
__attribute__((target("sha,sse4.1"))) static void compress(uint32_t state[8], const unsigned char *data,
                                                           size_t blocks) {
    const __m128i big_endian = _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
    __m128i abef = _mm_set_epi32((int)state[0], (int)state[1], (int)state[4], (int)state[5]);
    __m128i cdgh = _mm_set_epi32((int)state[2], (int)state[3], (int)state[6], (int)state[7]);
    for (; blocks > 0; blocks--, data += 64) {
        const __m128i abef_before = abef, cdgh_before = cdgh;
        __m128i w[4]; /* the last sixteen words of the schedule */
        for (int i = 0; i < 4; i++)
            w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(data + 16 * i)), big_endian);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            const __m128i k = _mm_loadu_si128((const __m128i *)(const void *)(dp_sha256_constant + 4 * i));
            const __m128i sum = _mm_add_epi32(w[i % 4], k);
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
            if (i < 12) {
                const __m128i w_7 = _mm_alignr_epi8(w[(i + 3) % 4], w[(i + 2) % 4], 4);
                const __m128i part = _mm_add_epi32(_mm_sha256msg1_epu32(w[i % 4], w[(i + 1) % 4]), w_7);
                w[i % 4] = _mm_sha256msg2_epu32(part, w[(i + 3) % 4]);
            }
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    state[0] = (uint32_t)_mm_extract_epi32(abef, 3);
    state[1] = (uint32_t)_mm_extract_epi32(abef, 2);
    state[2] = (uint32_t)_mm_extract_epi32(cdgh, 3);
    state[3] = (uint32_t)_mm_extract_epi32(cdgh, 2);
    state[4] = (uint32_t)_mm_extract_epi32(abef, 1);
    state[5] = (uint32_t)_mm_extract_epi32(abef, 0);
    state[6] = (uint32_t)_mm_extract_epi32(cdgh, 1);
    state[7] = (uint32_t)_mm_extract_epi32(cdgh, 0);
}

static bool processor_has_it(void) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_1) != 0 && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
           (b & bit_SHA) != 0;
}

/* The processor is asked once: under a hypervisor the question costs as much as a kilobyte of hashing. */
dp_sha256_compress_fn dp_sha256_compress_native(void) {
    enum { UNKNOWN, ABSENT, PRESENT };
    static atomic_int known = UNKNOWN;
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == UNKNOWN) {
        answer = processor_has_it() ? PRESENT : ABSENT;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == PRESENT ? compress : NULL;
}

#else

dp_sha256_compress_fn dp_sha256_compress_native(void) { return NULL; }

#endif
