/* evaluate_rope.c - rotary frequencies, tables and rotation, for evaluate.h. */
#include "formulas/evaluate_parts.h"

static const double two_pi = 2.0 * 3.14159265358979323846; /* the circle in radians */

/* ---- Frequencies ---- */

/* A float32 operation on positive numbers: relative errors add, and one more rounding. */
static double step(double a, double b, double unit) { return a + b + a * b + unit * (1.0 + a + b); }

/* theta^(-2i / dim), where the table is made: the exponent is a float32 quotient, theta a float32, the power is rounded
 * and so is its inverse. d theta^e / theta^e = ln(theta) de + e dtheta / theta. *relative: of the result. */
static double plain_frequency(const dflash_rope_config *rope, int i, double unit, double *relative) {
    const double exponent = 2.0 * (double)i / (double)rope->rotary_dim;
    const double power = expm1(log(rope->theta) * exponent * unit) + exponent * unit;
    *relative = step(step(power, 0.0, unit), 0.0, unit);
    return pow(rope->theta, -exponent);
}

/* inv / factor for a float32 factor. */
static dp_approx stretched(const dflash_rope_config *rope, double inv, double relative, double unit) {
    return (dp_approx){.value = inv / rope->factor, .error = inv / rope->factor * step(relative, 2.0 * unit, unit)};
}

/* kept share + stretched (1 - share), each product and the sum rounded; `share` is off by at most `off`, and its
 * complement and the complement of that, which the two are multiplied by, by a rounding of their own size each. */
static dp_approx mixed(dp_approx kept, dp_approx slow, double share, double off, double unit) {
    const double a = kept.value * share, b = slow.value * (1.0 - share);
    const double moved = fabs(kept.value - slow.value) * off + 2.0 * unit * (a + slow.value);
    const double own = kept.error * share + slow.error * (1.0 - share) + (kept.error + slow.error) * off;
    const double sum = a + b + moved + own;
    return (dp_approx){.value = a + b, .error = moved + own + 3.0 * unit * sum};
}

static double yarn_correction(const dflash_rope_config *rope, double turns) {
    return (double)rope->rotary_dim * log((double)rope->original_max_position / (turns * two_pi)) /
           (2.0 * log(rope->theta));
}

/* x cut to 0..1, for an x that is off by at most *off: beyond the ends the error is cut off too. */
static double clamped(double x, double *off) {
    const double low = fmin(fmax(x - *off, 0.0), 1.0), high = fmin(fmax(x + *off, 0.0), 1.0);
    const double cut = fmin(fmax(x, 0.0), 1.0);
    *off = fmax(high - cut, cut - low);
    return cut;
}

/* How much of the frequency is stretched: 0 for the fast ones, 1 for the slow ones. *off: of the float32 ramp. */
static double yarn_ramp(const dflash_rope_config *rope, int i, double unit, double *off) {
    double low = yarn_correction(rope, rope->beta_fast), high = yarn_correction(rope, rope->beta_slow);
    if (rope->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0.0);
    high = fmin(high, (double)rope->rotary_dim - 1.0);
    if (low == high) high += 0.001; /* the reference's guard, part of the definition */
    const double ramp = ((double)i - low) / (high - low);
    *off = (unit * low + unit * fabs((double)i - low)) / (high - low) * (1.0 + 2.0 * unit) + 2.0 * unit * fabs(ramp);
    return clamped(ramp, off);
}

/* llama3: how much of the frequency is kept. Outside 0..1 the reference takes one of the ends, where the two agree. */
static double llama3_share(const dflash_rope_config *rope, double inv, double relative, double unit, double *off) {
    const double turns = (double)rope->original_max_position * inv / two_pi;
    const double span = rope->high_freq_factor - rope->low_freq_factor;
    const double share = (turns - rope->low_freq_factor) / span;
    const double moved = turns * (relative + 6.0 * unit) + rope->low_freq_factor * unit; /* 1/inv, 2 pi, 1/, product */
    *off = moved / span * (1.0 + 2.0 * unit) + 3.0 * unit * fabs(share);
    return clamped(share, off);
}

/* The table is float32 by definition, and the reference's table is too: its roundings are bounded in float32 whatever
 * class is judged. It is made once, so its errors are no sample: they enter the variance whole. */
dp_approx dp_frequency(const dflash_rope_config *rope, int index) {
    const double unit = dp_class_model_of(DFLASH_BACKEND_CPU, DFLASH_CLASS_EXACT, DFLASH_PRODUCTS_F32).unit;
    double relative, off;
    const double inv = plain_frequency(rope, index, unit, &relative);
    dp_approx f = {.value = inv, .error = inv * relative};
    if (rope->type == DFLASH_ROPE_LINEAR) f = stretched(rope, inv, relative, unit);
    if (rope->type == DFLASH_ROPE_YARN) {
        const double ramp = yarn_ramp(rope, index, unit, &off);
        f = mixed(f, stretched(rope, inv, relative, unit), 1.0 - ramp, off, unit);
    }
    if (rope->type == DFLASH_ROPE_LLAMA3) {
        const double share = llama3_share(rope, inv, relative, unit, &off);
        f = mixed(f, stretched(rope, inv, relative, unit), share, off, unit);
    }
    f = dp_evaluated(f);
    f.variance = f.error * f.error;
    return f;
}

dp_approx dp_inv_freq_element(const dp_job *job, int64_t index, dp_scratch *scratch) {
    (void)scratch;
    return dp_frequency(&job->c->rope, (int)index);
}

/* ---- Tables ---- */

static double yarn_magnitude(double scale, double mscale) {
    return scale <= 1.0 ? 1.0 : 0.1 * mscale * log(scale) + 1.0; /* 0.1: YaRN's definition */
}

static double attention_factor(const dflash_rope_config *rope) {
    if (rope->type != DFLASH_ROPE_YARN) return 1.0;
    if (rope->has_attention_factor) return rope->attention_factor;
    if (rope->mscale != 0.0 && rope->mscale_all_dim != 0.0)
        return yarn_magnitude(rope->factor, rope->mscale) / yarn_magnitude(rope->factor, rope->mscale_all_dim);
    return yarn_magnitude(rope->factor, 1.0);
}

/* cos or sin of the float32 angle, which is the definition, times the factor. Its roundings are no samples: at a low
 * frequency the angle hardly changes from row to row, so that many elements are the same number, or one a few units
 * away, and round alike. They enter with their largest value, as those of the frequencies do. */
dp_approx dp_rope_table_element(const dp_job *job, int64_t index, dp_scratch *scratch) {
    (void)scratch;
    const int half = job->c->rope.rotary_dim / 2;
    const int64_t row = index / half;
    const float angle = (float)job->e->pos[row] * (float)job->in[0][index % half];
    const double value = job->spec->stage == DFLASH_STAGE_ROPE_COS ? cos((double)angle) : sin((double)angle);
    const dp_approx exact = dp_evaluated(dp_exactly(value));
    const dp_approx table =
        job->m->cos_error > 0.0 ? dp_function(job->m, exact, job->m->cos_error) : dp_rounded(job->m, exact);
    const double factor = attention_factor(&job->c->rope);
    dp_approx scaled = factor == 1.0 ? table : dp_mul(job->m, table, dp_constant(job->m, factor));
    scaled.variance = scaled.error * scaled.error;
    return scaled;
}

/* ---- Rotation ---- */

/* (a, b) -> (a c - b s, b c + a s): the second product is rounded, the first goes into the sum unrounded. */
dp_approx dp_rotated_element(const dp_job *job, int64_t index, dp_scratch *scratch) {
    (void)scratch;
    const dflash_config *c = job->c;
    const bool query = job->spec->stage == DFLASH_STAGE_ATTN_Q_ROPE;
    const int half = c->rope.rotary_dim / 2, heads = query ? c->n_heads : c->n_kv_heads;
    const int64_t d = index % c->head_dim, row = index / c->head_dim / heads + (query ? job->e->context : 0);
    const double *x = job->in[0] + (index - d);
    if (d >= c->rope.rotary_dim) return dp_exactly(x[d]);
    const int64_t i = d % half;
    const dp_approx cosine = dp_exactly(job->in[1][row * half + i]), sine = dp_exactly(job->in[2][row * half + i]);
    const dp_approx own = dp_exactly(x[d]), other = dp_exactly(d < half ? -x[i + half] : x[i]);
    return dp_fma(job->m, own, cosine, dp_mul(job->m, other, sine));
}
