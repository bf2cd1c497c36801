/*
 * identity_random.h - the random numbers of `identity`: what they make is the same on every machine.
 *
 * Integers and exact conversions only, so that two machines that compare digests feed the same bits.
 */
#ifndef DP_IDENTITY_RANDOM_H
#define DP_IDENTITY_RANDOM_H

#include <stdint.h>

/* splitmix64, by Sebastiano Vigna, in the public domain. */
static inline uint64_t dp_random_next(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* 0..n-1. */
static inline int dp_random_below(uint64_t *state, int n) { return (int)(dp_random_next(state) % (uint64_t)n); }

/* A state of its own for item `index` of stream `stream` under one seed. */
static inline uint64_t dp_random_state(uint64_t seed, uint64_t stream, uint64_t index) {
    uint64_t state = seed ^ stream << 56;
    state = dp_random_next(&state) + index;
    return dp_random_next(&state);
}

/* n values evenly spread over [-scale, scale). */
static inline void dp_random_values(uint64_t state, float scale, float *out, int n) {
    for (int i = 0; i < n; i++) out[i] = scale * ((float)(dp_random_next(&state) >> 40) * 0x1p-23f - 1.0f);
}

#endif
