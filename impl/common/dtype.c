/* dtype.c - see dtype.h. */
#include "common/dtype.h"

uint16_t df_f32_to_f16(float value) {
    const uint32_t bits = df_f32_to_bits(value);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds past 65504 */
    if (magnitude < 0x38800000u) {                                   /* below 2^-14: subnormal or zero */
        /* Adding 0.5 leaves the value in units of 2^-24 in the low bits, rounded to nearest even by the addition. */
        const float shifted = df_bits_to_f32(magnitude) + 0.5f;
        return (uint16_t)(sign | (uint16_t)(df_f32_to_bits(shifted) - 0x3f000000u));
    }
    const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return (uint16_t)(sign | (uint16_t)((rounded - 0x38000000u) >> 13));
}
