/*
 * mathfn.h - the transcendental functions of the exact class, one text for C and CUDA.
 *
 * Libraries differ in the last bit of exp; these do not, because they use only IEEE additions, multiplications, fused
 * multiply-adds and divisions in a fixed order, with no branch that depends on the compiler. Compile without fast-math
 * and without contraction.
 */
#ifndef DF_MATHFN_H
#define DF_MATHFN_H

#include "common/dtype.h"

#include <math.h>

#ifdef __CUDA_ARCH__
DF_FN int32_t df_float_as_int(float x) { return __float_as_int(x); }
DF_FN float df_int_as_float(int32_t x) { return __int_as_float(x); }
#else
DF_FN int32_t df_float_as_int(float x) { return (int32_t)df_f32_to_bits(x); }
DF_FN float df_int_as_float(int32_t x) { return df_bits_to_f32((uint32_t)x); }
#endif

/*
 * e^x, at most 1.05 ulp off over the whole range (the tests measure it); subnormal results are rounded once more.
 *
 * x = n ln2 + r with |r| <= ln2 / 2: ln2 is split in a part of 9 bits, whose product with n is exact, and a remainder.
 * e^r = 1 + (r + r^2 q(r)), q the degree-4 polynomial fitted to the relative error (6.5e-9 at most).
 * 2^n is applied as two factors so that neither overflows nor underflows on its own.
 */
DF_FN float df_exp(float x) {
    const float magic = 0x1.8p23f; /* adding it rounds to an integer held in the low bits */
    const float shifted = fmaf(x, 0x1.715476p+0f, magic);
    const float n = shifted - magic;
    float r = fmaf(n, -0x1.63p-1f, x);
    r = fmaf(n, 0x1.bd0106p-13f, r);
    float q = 0x1.6c82eap-10f;
    q = fmaf(q, r, 0x1.122532p-7f);
    q = fmaf(q, r, 0x1.5555bep-5f);
    q = fmaf(q, r, 0x1.5554b2p-3f);
    q = fmaf(q, r, 0.5f);
    const float y = 1.0f + fmaf(r * r, q, r);
    const int32_t e = (int32_t)((uint32_t)df_float_as_int(shifted) - 0x4b400000u); /* n, when x is in the range below */
    const int32_t half = e >> 1;
    const float scaled = y * df_int_as_float((int32_t)((uint32_t)(half + 127) << 23)) *
                         df_int_as_float((int32_t)((uint32_t)(e - half + 127) << 23));
    const float low = x < -104.0f ? 0.0f : scaled;          /* e^-104 is below half the least subnormal */
    const float high = x > 0x1.62e430p+6f ? INFINITY : low; /* past ln(FLT_MAX) */
    return x != x ? x : high;
}

/* 1 / (1 + e^-x). */
DF_FN float df_sigmoid(float x) { return 1.0f / (1.0f + df_exp(-x)); }

/* x sigmoid(x), as one division. */
DF_FN float df_silu(float x) { return x / (1.0f + df_exp(-x)); }

/*
 * tanh x, error below 1 ulp (measured by the tests over every magnitude).
 *
 * a = |x| < 0.5625: a + a z q(z), z = a^2, q the degree-5 polynomial fitted to the relative error (2.1e-10 at most).
 * Above: 1 - 2 / (e^2a + 1), where what the sum and the division round off is worked out and taken away again, so that
 * df_exp's error and one last rounding are all that is left. From a = 10 on the result is 1, and e^2a is not asked for.
 */
DF_FN float df_tanh(float x) {
    const float a = fabsf(x), z = a * a;
    float q = 0x1.1b0c0ap-9f;
    q = fmaf(q, z, -0x1.0ce95ep-7f);
    q = fmaf(q, z, 0x1.63c86cp-6f);
    q = fmaf(q, z, -0x1.b9f496p-5f);
    q = fmaf(q, z, 0x1.111084p-3f);
    q = fmaf(q, z, -0x1.555554p-2f);
    const float small = fmaf(a * z, q, a);
    const float e = df_exp(2.0f * (a < 10.0f ? a : 10.0f));
    const float d = e + 1.0f;
    const float v = 2.0f / d;
    const float rest = fmaf(-v, d, 2.0f) - v * (1.0f - (d - e)); /* 2 - v (e + 1), the first part exact */
    const float one_less = 1.0f - v;
    const float large = one_less + (((1.0f - one_less) - v) - rest * (0.5f * v));
    const float y = copysignf(a < 0.5625f ? small : large, x);
    return x != x ? x : y;
}

#endif
