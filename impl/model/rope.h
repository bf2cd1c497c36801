/*
 * rope.h - rotary position tables.
 *
 * The frequency table is part of the model's semantics in float32: the reference computes it with a fixed sequence of
 * float32 roundings and multiplies it by the position in float32, and a table that is one unit in the last place off is
 * worth 4e-3 radians at position 100,000. So the sequence is reproduced here, rounding by rounding (source: the
 * transformers rope initialisers), and only the cosine and sine of the float32 angle are taken exactly.
 */
#ifndef DF_ROPE_H
#define DF_ROPE_H

#include "dflash.h"

/* The factor on cos and sin: 1 unless yarn; then attention_factor if given, else m(f, mscale) / m(f, mscale_all_dim) if
 * both are set, else m(f, 1), with m(s, k) = 1 for s <= 1 and 0.1 k ln s + 1 above. */
double df_rope_attention_scaling(const dflash_rope_config *rope);

/* inv_freq[rotary_dim / 2]. */
void df_rope_inv_freq(const dflash_rope_config *rope, float *inv_freq);

/* cos and sin, each [rows, half], of fl32(pos * inv_freq), times the attention factor in float32. */
void df_rope_tables(const float *inv_freq, int half, float attention_scaling, const int32_t *pos, int rows,
                    float *cos_out, float *sin_out);

#endif
