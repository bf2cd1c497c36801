/*
 * dtype.h - the widths in which weights are held, and exact conversions to float32.
 *
 * bf16 and f16 values are exactly representable in float32, so converting a weight never rounds.
 */
#ifndef DF_DTYPE_H
#define DF_DTYPE_H

#include "common/device_fn.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The last two exist in memory only (quant.h): rows of blocks of 32 values. */
typedef enum df_dtype { DF_F32 = 0, DF_F16, DF_BF16, DF_Q8_0, DF_Q4_0 } df_dtype;

/* Bytes of a value; not for the block formats. */
static inline size_t df_dtype_size(df_dtype dtype) { return dtype == DF_F32 ? 4 : 2; }

/* The name that safetensors uses ("F32", "F16", "BF16"), or that of the block format ("q8_0", "q4_0"). */
static inline const char *df_dtype_name(df_dtype dtype) {
    static const char *const names[] = {"F32", "F16", "BF16", "q8_0", "q4_0"}; /* in the order of the enumeration */
    return names[dtype];
}

DF_FN float df_bits_to_f32(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

DF_FN uint32_t df_f32_to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

DF_FN float df_bf16_to_f32(uint16_t h) { return df_bits_to_f32((uint32_t)h << 16); }

DF_FN float df_f16_to_f32(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t exponent = (h >> 10) & 0x1fu, fraction = h & 0x3ffu;
    if (exponent == 31) return df_bits_to_f32(sign | 0x7f800000u | fraction << 13);
    if (exponent != 0) return df_bits_to_f32(sign | (exponent + 112) << 23 | fraction << 13);
    /* subnormal: fraction * 2^-24 is exact in float32 */
    const float magnitude = (float)fraction * 0x1p-24f;
    return df_bits_to_f32(sign | df_f32_to_bits(magnitude));
}

/* Round to nearest, ties to even. NaN stays NaN. */
DF_FN uint16_t df_f32_to_bf16(float value) {
    const uint32_t bits = df_f32_to_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* The operand of a simulated narrow product: rounded to nearest, ties to even, and widened again. bf16 keeps 8
 * significant bits, TF32 11; both have float32's exponents, so subnormals lose low bits only, infinities and NaNs stay
 * what they are, and the largest finite values may become infinite. */
DF_FN float df_round_to_bf16(float value) { return df_bf16_to_f32(df_f32_to_bf16(value)); }

DF_FN float df_round_to_tf32(float value) {
    const uint32_t bits = df_f32_to_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return df_bits_to_f32((bits & 0xffffe000u) | 0x400000u);
    return df_bits_to_f32((bits + 0xfffu + (bits >> 13 & 1u)) & 0xffffe000u);
}

uint16_t df_f32_to_f16(float value); /* round to nearest even, overflow to infinity; NaN stays NaN */

#endif
