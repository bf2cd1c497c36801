/* rope.c - see rope.h. Every assignment to a float below is one rounding of the reference's sequence. */
#include "model/rope.h"

#include <math.h>

static double yarn_magnitude(double scale, double mscale) {
    return scale <= 1.0 ? 1.0 : 0.1 * mscale * log(scale) + 1.0;
}

double df_rope_attention_scaling(const dflash_rope_config *rope) {
    if (rope->type != DFLASH_ROPE_YARN) return 1.0;
    if (rope->has_attention_factor) return rope->attention_factor;
    if (rope->mscale != 0.0 && rope->mscale_all_dim != 0.0)
        return yarn_magnitude(rope->factor, rope->mscale) / yarn_magnitude(rope->factor, rope->mscale_all_dim);
    return yarn_magnitude(rope->factor, 1.0);
}

/* base^(2i / dim), the period table before any scaling. The power is taken in double and rounded once. */
static float period(const dflash_rope_config *rope, int i) {
    const float exponent = (float)(2 * i) / (float)rope->rotary_dim;
    return (float)pow((double)(float)rope->theta, (double)exponent);
}

/* The dimension that turns `rotations` times within the original context. */
static double yarn_correction(const dflash_rope_config *rope, double rotations) {
    const double two_pi = 2.0 * 3.14159265358979323846;
    const double ratio = (double)rope->original_max_position / (rotations * two_pi);
    return ((double)rope->rotary_dim * log(ratio)) / (2.0 * log(rope->theta));
}

static void yarn_table(const dflash_rope_config *rope, float *inv_freq) {
    double low = yarn_correction(rope, rope->beta_fast), high = yarn_correction(rope, rope->beta_slow);
    if (rope->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0.0);
    high = fmin(high, (double)(rope->rotary_dim - 1));
    if (low == high) high += 0.001; /* keeps the ramp finite */
    const float factor = (float)rope->factor, ramp_start = (float)low, ramp_length = (float)(high - low);
    for (int i = 0; i < rope->rotary_dim / 2; i++) {
        const float p = period(rope, i);
        const float extrapolated = 1.0f / p;
        const float stretched = factor * p;
        const float interpolated = 1.0f / stretched;
        const float offset = (float)i - ramp_start;
        const float ramp = fminf(fmaxf(offset / ramp_length, 0.0f), 1.0f);
        const float keep = 1.0f - ramp;
        const float stretch = 1.0f - keep; /* not always ramp again: both roundings are part of the sequence */
        const float stretched_part = interpolated * stretch;
        const float kept_part = extrapolated * keep;
        inv_freq[i] = stretched_part + kept_part;
    }
}

static float llama3_frequency(const dflash_rope_config *rope, float inv) {
    const double two_pi = 2.0 * 3.14159265358979323846;
    const float reciprocal = 1.0f / inv;
    const float wavelength = reciprocal * (float)two_pi;
    const float low_wavelength = (float)((double)rope->original_max_position / rope->low_freq_factor);
    const float high_wavelength = (float)((double)rope->original_max_position / rope->high_freq_factor);
    const float factor = (float)rope->factor;
    if (wavelength > low_wavelength) return inv / factor;
    if (wavelength < high_wavelength) return inv;
    const float turns = (1.0f / wavelength) * (float)rope->original_max_position;
    const float smooth =
        (turns - (float)rope->low_freq_factor) / (float)(rope->high_freq_factor - rope->low_freq_factor);
    const float scaled_part = ((1.0f - smooth) * inv) / factor;
    const float kept_part = smooth * inv;
    return scaled_part + kept_part;
}

void df_rope_inv_freq(const dflash_rope_config *rope, float *inv_freq) {
    if (rope->type == DFLASH_ROPE_YARN) {
        yarn_table(rope, inv_freq);
        return;
    }
    for (int i = 0; i < rope->rotary_dim / 2; i++) {
        const float inv = 1.0f / period(rope, i);
        if (rope->type == DFLASH_ROPE_LINEAR)
            inv_freq[i] = inv / (float)rope->factor;
        else if (rope->type == DFLASH_ROPE_LLAMA3)
            inv_freq[i] = llama3_frequency(rope, inv);
        else
            inv_freq[i] = inv;
    }
}

void df_rope_tables(const float *inv_freq, int half, float attention_scaling, const int32_t *pos, int rows,
                    float *cos_out, float *sin_out) {
    for (int row = 0; row < rows; row++)
        for (int i = 0; i < half; i++) {
            const float angle = (float)pos[row] * inv_freq[i];
            const size_t at = (size_t)row * (size_t)half + (size_t)i;
            cos_out[at] = (float)cos((double)angle) * attention_scaling;
            sin_out[at] = (float)sin((double)angle) * attention_scaling;
        }
}
