/*
 * approx.h - a number with what a class's arithmetic can make of it: how far off it can be, and how far it is likely to
 * be.
 *
 * Running error analysis (Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 3.3): each
 * operation is done in float64 on the true values and carries two companions along. `error` bounds
 * |computed - value| with no term left out, products of errors included. `variance` is the expected square of it when
 * roundings are independent and even over half a unit in the last place (section 2.8); a change in an operand counts
 * with the steepest slope inside its bound, so it is an upper estimate. The formulas of the stages (evaluate*.c) are
 * written with these operations; a sum has its own, in chain.h.
 *
 * Every operation also adds what float64 itself rounds off, so that a bound holds against the evaluated number and not
 * against an ideal one.
 */
#ifndef DP_APPROX_H
#define DP_APPROX_H

#include "limits/bounds.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef struct dp_approx {
    double value, error, variance;
} dp_approx;

#define DP_EVALUATION_UNIT 0x1p-52 /* an operation of float64, and a function of its library, is less off than this */

/* Mean square of a rounding error over the square of its largest value: even, 1/3. A sum of two numbers of the format
 * may lose a single bit, and then is off by nothing or by exactly half a unit, as often: 1/2. */
#define DP_ROUNDING_SQUARE (1.0 / 3.0)
#define DP_ADDITION_SQUARE (1.0 / 2.0)

/* Half a unit in the last place of the format at magnitude x >= 0. */
static inline double dp_half_ulp(const dp_class_model *m, double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= UINT64_C(0x7ff0000000000000); /* the power of two below x */
    memcpy(&x, &bits, sizeof x);
    x *= m->unit;
    return x > m->least ? x : m->least; /* fmax, without a call in the innermost loop */
}

static inline dp_approx dp_exactly(double value) { return (dp_approx){.value = value}; }

/* A constant of the model as the class holds it. All elements share its error, which is no sample: it enters whole. */
static inline dp_approx dp_constant(const dp_class_model *m, double value) {
    const double error = m->float32 ? fabs((double)(float)value - value) : 0.0;
    return (dp_approx){value, error, error * error};
}

static inline dp_approx dp_evaluated(dp_approx a) {
    a.error += DP_EVALUATION_UNIT * fabs(a.value);
    return a;
}

/* The result of an operation that rounds once. A value that the format holds, of operands without error, is not
 * rounded: it has no bound, but it stays in the statistics, which must not pick the results that happened to be off. */
static inline dp_approx dp_rounded_as(const dp_class_model *m, dp_approx a, double square) {
    const double typical = dp_half_ulp(m, fabs(a.value));
    a.variance += square * typical * typical;
    if (m->float32 && a.error == 0.0 && (double)(float)a.value == a.value) return a;
    a.error += dp_half_ulp(m, fabs(a.value) + a.error);
    return dp_evaluated(a);
}
static inline dp_approx dp_rounded(const dp_class_model *m, dp_approx a) {
    return dp_rounded_as(m, a, DP_ROUNDING_SQUARE);
}

/* ---- Operations without their rounding ---- */

static inline dp_approx dp_times(dp_approx a, dp_approx b) {
    return (dp_approx){a.value * b.value, fabs(a.value) * b.error + fabs(b.value) * a.error + a.error * b.error,
                       a.value * a.value * b.variance + b.value * b.value * a.variance + a.variance * b.variance};
}

static inline dp_approx dp_plus(dp_approx a, dp_approx b) {
    return (dp_approx){a.value + b.value, a.error + b.error, a.variance + b.variance};
}

/* q = a / b: |q^ - q| <= (da + |q| db) / (|b| - db). */
static inline dp_approx dp_over(dp_approx a, dp_approx b) {
    const double q = a.value / b.value, least = fabs(b.value) - b.error;
    if (!(least > 0.0)) return (dp_approx){q, INFINITY, INFINITY};
    return (dp_approx){q, (a.error + fabs(q) * b.error) / least, (a.variance + q * q * b.variance) / (least * least)};
}

/* s = sqrt(a): |s^ - s| <= da / (s + sqrt(a - da)), the slope being steepest below a. */
static inline dp_approx dp_root(dp_approx a) {
    const double s = sqrt(a.value), slope = 1.0 / (s + sqrt(fmax(a.value - a.error, 0.0)));
    return (dp_approx){s, a.error * slope, a.variance * slope * slope};
}

/* ---- Rounded operations ---- */

static inline dp_approx dp_mul(const dp_class_model *m, dp_approx a, dp_approx b) {
    return dp_rounded(m, dp_times(a, b));
}
/* The largest mean square that rounding a product with `factor` can have. A factor of b significant bits makes products
 * of up to b bits more than the format has, and of b - 1 more at least; where few bits are lost, errors are not even
 * over half a unit but lie on 2^lost points of it, ties included: (1 + 2 / 4^lost) / 3. One bit lost is a sum's case.
 * The float32 nearest to the factor is what is multiplied; a power of two loses nothing. */
static inline double dp_factor_square(double factor) {
    const float held = (float)factor;
    uint32_t bits;
    memcpy(&bits, &held, sizeof bits);
    const uint32_t fraction = bits & UINT32_C(0x7fffff); /* of the format */
    if (fraction == 0) return DP_ROUNDING_SQUARE;
    int lost = 23; /* table: explicit bits of a float32 significand */
    for (uint32_t rest = fraction; (rest & 1) == 0; rest >>= 1) lost--;
    return DP_ROUNDING_SQUARE * (1.0 + 2.0 * ldexp(1.0, -2 * lost));
}
/* A value times a constant of the model. */
static inline dp_approx dp_scale(const dp_class_model *m, dp_approx a, double factor) {
    return dp_rounded_as(m, dp_times(a, dp_constant(m, factor)), dp_factor_square(factor));
}
static inline dp_approx dp_add(const dp_class_model *m, dp_approx a, dp_approx b) {
    return dp_rounded_as(m, dp_plus(a, b), DP_ADDITION_SQUARE);
}
static inline dp_approx dp_div(const dp_class_model *m, dp_approx a, dp_approx b) {
    return dp_rounded(m, dp_over(a, b));
}
static inline dp_approx dp_sqrt(const dp_class_model *m, dp_approx a) { return dp_rounded(m, dp_root(a)); }

/* a b + c. */
static inline dp_approx dp_fma(const dp_class_model *m, dp_approx a, dp_approx b, dp_approx c) {
    return m->fused ? dp_rounded(m, dp_plus(dp_times(a, b), c)) : dp_add(m, dp_mul(m, a, b), c);
}

/* Where a formula can be written with one operation more, a program of which that is not known may round once more. */
static inline dp_approx dp_perhaps_rounded(const dp_class_model *m, dp_approx a) {
    return m->fused ? a : dp_rounded(m, a);
}

/* A function's own error of `ulps` units in the last place. It is not even and not independent of the argument, so it
 * enters the variance with its largest value; a subnormal result is rounded once more. */
static inline dp_approx dp_function(const dp_class_model *m, dp_approx a, double ulps) {
    const double typical = 2.0 * ulps * dp_half_ulp(m, fabs(a.value));
    a.error += 2.0 * ulps * dp_half_ulp(m, fabs(a.value) + a.error) + m->least;
    a.variance += typical * typical;
    return dp_evaluated(a);
}

/* e^x: |e^(x + d) - e^x| <= e^x |d| expm1(dx) / dx for |d| <= dx, e^x being convex. */
static inline dp_approx dp_exp(const dp_class_model *m, dp_approx x) {
    const double y = exp(x.value), slope = x.error > 0.0 ? y * (expm1(x.error) / x.error) : y;
    const dp_approx moved = {y, slope * x.error, slope * slope * x.variance};
    return dp_function(m, moved, m->exp_error);
}

/* tanh x: its slope 1 - tanh^2 is largest at the end of the interval that is nearest to 0. */
static inline dp_approx dp_tanh(const dp_class_model *m, dp_approx x) {
    const double near = tanh(fmax(fabs(x.value) - x.error, 0.0)), slope = 1.0 - near * near, y = tanh(x.value);
    const dp_approx moved = {y, fmin(slope * x.error, 1.0 + fabs(y)), slope * slope * x.variance}; /* in [-1, 1] */
    return dp_function(m, moved, m->tanh_error);
}

/* a / (1 + e^-x) for an `a` whose sign is sure. Where e^-x is, or may be, past the largest number of the format, the
 * quotient may come out as 0: it is then off by no more than its own size. Whatever x is off by, computed and true
 * quotient lie between 0 and a. */
static inline dp_approx dp_logistic(const dp_class_model *m, dp_approx a, dp_approx x) {
    const dp_approx e = dp_exp(m, (dp_approx){-x.value, x.error, x.variance});
    const double most = fabs(a.value) + a.error;
    dp_approx y;
    if (e.value + e.error < m->largest) {
        y = dp_div(m, a, dp_add(m, dp_exactly(1.0), e));
    } else {
        const double whole = most * exp(x.value + x.error) + m->least;
        y = (dp_approx){a.value / (1.0 + exp(-x.value)), whole, whole * whole};
    }
    if (!(y.error <= most)) y.error = most;
    y.variance = fmin(y.variance, most * most);
    return y;
}

#endif
