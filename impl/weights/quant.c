/* quant.c - see quant.h. */
#include "weights/quant.h"

#include <math.h>

size_t df_row_bytes(df_dtype dtype, int64_t n) {
    const size_t blocks = (size_t)n / DF_QUANT_BLOCK;
    switch (dtype) {
    case DF_Q8_0:
        return blocks * DF_Q8_0_BYTES;
    case DF_Q4_0:
        return blocks * DF_Q4_0_BYTES;
    case DF_F32:
    case DF_F16:
    case DF_BF16:
        break;
    }
    return (size_t)n * df_dtype_size(dtype);
}

/* What a block does with the inverse of its scale. */
typedef struct inverse {
    float value; /* 1 / d, or 0 where d is 0 */
    bool usable; /* false: 1 / d overflows */
} inverse;

static inverse invert(float d) {
    if (d == 0.0f) return (inverse){.value = 0.0f, .usable = true};
    const float value = 1.0f / d;
    return (inverse){.value = value, .usable = isfinite(value)};
}

static void put_scale(unsigned char *block, float d) {
    const uint16_t bits = df_f32_to_f16(d);
    memcpy(block, &bits, sizeof bits);
}

/* Half away from zero, for magnitudes below 2^23: the truncation and the remainder are exact, so no value just under a
 * half is rounded up as it would be by adding a half first. */
static inline int8_t round_away(float value) {
    const float magnitude = fabsf(value);
    const int whole = (int)magnitude;
    const int rounded = whole + (magnitude - (float)whole >= 0.5f);
    return (int8_t)(value < 0.0f ? -rounded : rounded);
}

void df_quantize_q8_0(const float *x, int64_t n, void *blocks) {
    unsigned char *block = blocks;
    for (; n > 0; n -= DF_QUANT_BLOCK, x += DF_QUANT_BLOCK, block += DF_Q8_0_BYTES) {
        float largest = 0.0f;
        for (int i = 0; i < DF_QUANT_BLOCK; i++) largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
        const float d = largest / 127.0f;
        const inverse id = invert(d);
        int8_t q[DF_QUANT_BLOCK] = {0};
        if (id.usable)
            for (int i = 0; i < DF_QUANT_BLOCK; i++) q[i] = round_away(x[i] * id.value);
        put_scale(block, d);
        memcpy(block + DF_SCALE_BYTES, q, sizeof q);
    }
}

/* x times the inverse is within a rounding or two of [-8, 8], so the sum is positive and only 16 is out of range. */
static inline unsigned char nibble(float x, float inverse_scale) {
    const int q = (int)(x * inverse_scale + 8.5f);
    return (unsigned char)(q < 15 ? q : 15);
}

void df_quantize_q4_0(const float *x, int64_t n, void *blocks) {
    enum { HALF = DF_QUANT_BLOCK / 2 };
    unsigned char *block = blocks;
    for (; n > 0; n -= DF_QUANT_BLOCK, x += DF_QUANT_BLOCK, block += DF_Q4_0_BYTES) {
        float extreme = x[0]; /* not 0: the sign of a block of zeros is that of its first value */
        for (int i = 1; i < DF_QUANT_BLOCK; i++) extreme = fabsf(x[i]) > fabsf(extreme) ? x[i] : extreme;
        const float d = extreme / -8.0f;
        const inverse id = invert(d);
        unsigned char q[HALF] = {0};
        if (id.usable)
            for (int i = 0; i < HALF; i++)
                q[i] = (unsigned char)(nibble(x[i], id.value) | nibble(x[i + HALF], id.value) << 4);
        put_scale(block, d);
        memcpy(block + DF_SCALE_BYTES, q, sizeof q);
    }
}

void df_dequantize_q8_0(const void *row, int64_t first, int64_t count, float *out) {
    const unsigned char *block = (const unsigned char *)row + df_row_bytes(DF_Q8_0, first);
    for (; count > 0; count -= DF_QUANT_BLOCK, block += DF_Q8_0_BYTES, out += DF_QUANT_BLOCK)
        df_q8_0_decode(block, out);
}

void df_dequantize_q4_0(const void *row, int64_t first, int64_t count, float *out) {
    const unsigned char *block = (const unsigned char *)row + df_row_bytes(DF_Q4_0, first);
    for (; count > 0; count -= DF_QUANT_BLOCK, block += DF_Q4_0_BYTES, out += DF_QUANT_BLOCK)
        df_q4_0_decode(block, out);
}
