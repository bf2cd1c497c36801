/*
 * quant.h - the block formats q8_0 and q4_0: encoders exact to the byte, and exact decoding.
 *
 * A block holds 32 values of one row; every operation below is one float32 operation.
 *   q8_0 (34 bytes): scale f16, then 32 int8. d = amax / 127, q = round half away from zero of x * (1 / d).
 *   q4_0 (18 bytes): scale f16, then 16 bytes, low nibbles values 0..15 and high nibbles 16..31. d = v / -8 with v the
 * first value of largest magnitude, q = min(trunc(x * (1 / d) + 8.5), 15). The quotients are products with the inverse,
 * which is taken before d is rounded to f16 (nearest even). Where d is 0 the inverse counts as 0, so q is 0 (q8_0) or 8
 * (q4_0). Where d is so small that its inverse overflows, q is 0 in both, which is what the reference encoders'
 * conversion of infinities and NaNs to integers comes to; the f16 scale of such a block is zero. Inputs are finite (the
 * census of weights.h sees to that). A d of 65520 or more becomes an infinite scale: the block is not usable, and
 * df_scale_is_finite says so. Scales under 2^-25 become zero and those under 2^-14 lose bits, as the format has it.
 *
 * A decoded value, d q or d (q - 8), is exact in float32: 11 significant bits times 8.
 */
#ifndef DF_QUANT_H
#define DF_QUANT_H

#include "common/dtype.h"

enum { DF_QUANT_BLOCK = 32, DF_Q8_0_BYTES = 34, DF_Q4_0_BYTES = 18, DF_SCALE_BYTES = 2 };

static inline bool df_dtype_is_block(df_dtype dtype) { return dtype == DF_Q8_0 || dtype == DF_Q4_0; }

/* Bytes of a row of n values held as dtype (any df_dtype); n a multiple of 32 for the block formats. */
size_t df_row_bytes(df_dtype dtype, int64_t n);

/* n values (a multiple of 32) to n / 32 blocks. */
void df_quantize_q8_0(const float *x, int64_t n, void *blocks);
void df_quantize_q4_0(const float *x, int64_t n, void *blocks);

/* Values [first, first + count) of a row of blocks, widened to float32; first and count multiples of 32. */
void df_dequantize_q8_0(const void *row, int64_t first, int64_t count, float *out);
void df_dequantize_q4_0(const void *row, int64_t first, int64_t count, float *out);

/* The bits of a block's f16 scale. */
static inline uint16_t df_block_scale(const unsigned char *block) {
    uint16_t bits;
    memcpy(&bits, block, sizeof bits);
    return bits;
}

static inline bool df_scale_is_finite(uint16_t bits) { return (bits & 0x7c00u) != 0x7c00u; }

/* One block of 32 values. Inline so that the matrix product decodes with its own instruction set. */
static inline void df_q8_0_decode(const unsigned char *block, float out[DF_QUANT_BLOCK]) {
    const float d = df_f16_to_f32(df_block_scale(block));
    int8_t q[DF_QUANT_BLOCK];
    memcpy(q, block + DF_SCALE_BYTES, sizeof q);
    for (int i = 0; i < DF_QUANT_BLOCK; i++) out[i] = d * (float)q[i];
}

static inline void df_q4_0_decode(const unsigned char *block, float out[DF_QUANT_BLOCK]) {
    const float d = df_f16_to_f32(df_block_scale(block));
    const unsigned char *q = block + DF_SCALE_BYTES;
    for (int i = 0; i < DF_QUANT_BLOCK / 2; i++) out[i] = d * (float)((q[i] & 15) - 8);
    for (int i = 0; i < DF_QUANT_BLOCK / 2; i++) out[i + DF_QUANT_BLOCK / 2] = d * (float)((q[i] >> 4) - 8);
}

#endif
