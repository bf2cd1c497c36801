/*
 * vec16.h - sixteen float32 lanes, with the operations the CPU kernels need, for each instruction set.
 *
 * A lane is one row (matmul) or one query (attention), so lanes never meet and every instruction set gives the same
 * bits: each operation is the IEEE one, and fma rounds once.
 */
#ifndef DF_CPU_VEC16_H
#define DF_CPU_VEC16_H

#include "common/mathfn.h"

enum { DF_LANES = 16 };

#if defined(__AVX512F__)

#include <immintrin.h>

enum { V16_OUTPUTS = 8 }; /* accumulators that fit the registers beside their operands */
typedef __m512 v16;
typedef __mmask16 v16_mask;

static inline v16 v16_zero(void) { return _mm512_setzero_ps(); }
static inline v16 v16_load(const float *p) { return _mm512_loadu_ps(p); }
/* The even and the odd ones of 32 bf16 values: a shift and a mask, where values in order would need shuffles too. */
static inline void v16_split_bf16(const uint16_t *p, v16 *even, v16 *odd) {
    const __m512i pairs = _mm512_loadu_si512(p);
    *even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    *odd = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000u)));
}
static inline v16 v16_load_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
static inline void v16_store(float *p, v16 a) { _mm512_storeu_ps(p, a); }
static inline v16 v16_set(float x) { return _mm512_set1_ps(x); }
static inline v16 v16_add(v16 a, v16 b) { return _mm512_add_ps(a, b); }
static inline v16 v16_mul(v16 a, v16 b) { return _mm512_mul_ps(a, b); }
static inline v16 v16_div(v16 a, v16 b) { return _mm512_div_ps(a, b); }
static inline v16 v16_fma(v16 a, v16 b, v16 c) { return _mm512_fmadd_ps(a, b, c); }
static inline v16 v16_max(v16 a, v16 b) { return _mm512_max_ps(a, b); }
static inline v16 v16_select(v16_mask m, v16 a, v16 b) { return _mm512_mask_blend_ps(m, b, a); }
/* Lanes in which low <= x < high. */
static inline v16_mask v16_within(int x, const int32_t *low, const int32_t *high) {
    const __m512i at = _mm512_set1_epi32(x);
    return _mm512_cmple_epi32_mask(_mm512_loadu_si512(low), at) & _mm512_cmpgt_epi32_mask(_mm512_loadu_si512(high), at);
}

#elif defined(__AVX2__) && defined(__FMA__)

#include <immintrin.h>

enum { V16_OUTPUTS = 4 };
typedef struct v16 {
    __m256 lo, hi;
} v16;
typedef v16 v16_mask;

static inline v16 v16_zero(void) { return (v16){_mm256_setzero_ps(), _mm256_setzero_ps()}; }
static inline v16 v16_load(const float *p) { return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
static inline void v16_split_bf16(const uint16_t *p, v16 *even, v16 *odd) {
    const __m256i mask = _mm256_set1_epi32((int)0xffff0000u);
    const __m256i lo = _mm256_loadu_si256((const __m256i *)(const void *)p);
    const __m256i hi = _mm256_loadu_si256((const __m256i *)(const void *)(p + 16));
    *even = (v16){_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16))};
    *odd = (v16){_mm256_castsi256_ps(_mm256_and_si256(lo, mask)), _mm256_castsi256_ps(_mm256_and_si256(hi, mask))};
}
static inline v16 v16_load_f16(const uint16_t *p) {
    return (v16){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)),
                 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + 8)))};
}
static inline void v16_store(float *p, v16 a) {
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}
static inline v16 v16_set(float x) { return (v16){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static inline v16 v16_add(v16 a, v16 b) { return (v16){_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
static inline v16 v16_mul(v16 a, v16 b) { return (v16){_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
static inline v16 v16_div(v16 a, v16 b) { return (v16){_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
static inline v16 v16_fma(v16 a, v16 b, v16 c) {
    return (v16){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
static inline v16 v16_max(v16 a, v16 b) { return (v16){_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
static inline v16 v16_select(v16_mask m, v16 a, v16 b) {
    return (v16){_mm256_blendv_ps(b.lo, a.lo, m.lo), _mm256_blendv_ps(b.hi, a.hi, m.hi)};
}
static inline __m256 v16_within_half(__m256i at, const int32_t *low, const int32_t *high) {
    const __m256i below = _mm256_cmpgt_epi32(_mm256_loadu_si256((const __m256i *)low), at);
    const __m256i under = _mm256_cmpgt_epi32(_mm256_loadu_si256((const __m256i *)high), at);
    return _mm256_castsi256_ps(_mm256_andnot_si256(below, under));
}
static inline v16_mask v16_within(int x, const int32_t *low, const int32_t *high) {
    const __m256i at = _mm256_set1_epi32(x);
    return (v16_mask){v16_within_half(at, low, high), v16_within_half(at, low + 8, high + 8)};
}

#else

enum { V16_OUTPUTS = 1 };
typedef struct v16 {
    float lane[DF_LANES];
} v16;
typedef struct v16_mask {
    bool lane[DF_LANES];
} v16_mask;

#define V16_MAP(expression)                                                                                            \
    v16 r;                                                                                                             \
    for (int i = 0; i < DF_LANES; i++) r.lane[i] = (expression);                                                       \
    return r

static inline v16 v16_set(float x) { V16_MAP(x); }
static inline v16 v16_zero(void) { return v16_set(0.0f); }
static inline v16 v16_load(const float *p) { V16_MAP(p[i]); }
static inline void v16_split_bf16(const uint16_t *p, v16 *even, v16 *odd) {
    for (int i = 0; i < DF_LANES; i++) {
        even->lane[i] = df_bf16_to_f32(p[2 * i]);
        odd->lane[i] = df_bf16_to_f32(p[2 * i + 1]);
    }
}
static inline v16 v16_load_f16(const uint16_t *p) { V16_MAP(df_f16_to_f32(p[i])); }
static inline void v16_store(float *p, v16 a) { memcpy(p, a.lane, sizeof a.lane); }
static inline v16 v16_add(v16 a, v16 b) { V16_MAP(a.lane[i] + b.lane[i]); }
static inline v16 v16_mul(v16 a, v16 b) { V16_MAP(a.lane[i] * b.lane[i]); }
static inline v16 v16_div(v16 a, v16 b) { V16_MAP(a.lane[i] / b.lane[i]); }
static inline v16 v16_fma(v16 a, v16 b, v16 c) { V16_MAP(fmaf(a.lane[i], b.lane[i], c.lane[i])); }
static inline v16 v16_max(v16 a, v16 b) { V16_MAP(a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]); }
static inline v16 v16_select(v16_mask m, v16 a, v16 b) { V16_MAP(m.lane[i] ? a.lane[i] : b.lane[i]); }
static inline v16_mask v16_within(int x, const int32_t *low, const int32_t *high) {
    v16_mask m;
    for (int i = 0; i < DF_LANES; i++) m.lane[i] = low[i] <= x && x < high[i];
    return m;
}

#endif
#endif
