/*
 * bounds.h - the numeric classes as error analysis sees them, and the limits that follow from a stage's own numbers.
 *
 * Every constant that a bound or a limit rests on is a row of the table in bounds.c, with its reason. What an operation
 * does to an error is approx.h's business, what a sum does chain.h's; reports/BOUNDS.md tells the whole in prose.
 */
#ifndef DP_BOUNDS_H
#define DP_BOUNDS_H

#include "dflash.h"

/* What is lost of the two operands of a product before they are multiplied: at most a share of each, or `least` where
 * that is more, and a share of the product that is left out. All zero: nothing. */
typedef struct dp_operands {
    double first, second, least, left_out;
} dp_operands;

/* The rounding behaviour of one numeric class. Relative errors are of the exact result of an operation. */
typedef struct dp_class_model {
    const char *name;
    double unit;    /* unit roundoff of one operation */
    double least;   /* most that an operation whose result is subnormal can be off */
    double largest; /* results from here on are infinite */
    int segment;  /* terms of a sum that are added from left to right before segments are joined in a tree; 0: the order
                     is not known */
    double chain; /* roundings that a term may pass through, as a multiple of the terms; for unknown orders */
    double attention_chain;       /* the same in the sums of attention */
    dp_operands product;          /* weight, activation */
    dp_operands attention;        /* key, query; share of a key, value */
    double exp_error, tanh_error; /* of the class's functions, in units in the last place */
    double cos_error;             /* the same of cosine and sine; 0: they are rounded to nearest */
    bool even;    /* roundings are to nearest, so that errors are even and independent; false: nothing but the bound is
                     known */
    bool fused;   /* a product that is added to something is not rounded before */
    bool float32; /* constants and results are held in float32 */
} dp_class_model;

/* The class of an engine. Both backends promise the same of a class. */
dp_class_model dp_class_model_of(dflash_backend backend, dflash_class numeric_class, dflash_products products);

/* How many float32 roundings the coarsest rounding of the class is worth: 1 for exact and cublas. Chained errors are
 * made of roundings, so this is by how much a class's chained limits are wider than those of float32. Narrower products
 * are a departure that an engine is asked for, and widen nothing. */
double dp_class_coarseness(dflash_class numeric_class);

/* The reference's float64 run: sums in an order that is not known. */
dp_class_model dp_class_model_reference(void);

/* A correct float32 program of which nothing else is known: sums in any order, products rounded before they are added
 * or not, kernels of a convolution added up first, functions of any library, softmax's weights normalized before the
 * weighted sum or after it. The reference's float32 run is one. */
dp_class_model dp_class_model_any_order(void);

/*
 * The largest root mean square of error / expected rounding noise over `groups` groups of elements whose roundings are
 * independent of one another, and the largest single one over `elements`, that a correct run exceeds with a
 * probability of dp_false_alarm.
 *
 * A rounding error that is even over +-u has the moment generating function of a sub-Gaussian variable whose proxy is
 * its variance, and sums of independent ones inherit that. So z = error / sigma has P(|z| > t) <= 2 exp(-t^2 / 2),
 * which gives the second limit, and E exp(l z^2) <= (1 - 2 l)^(-1/2), which by Chernoff's method gives the first: for G
 * groups P(mean z^2 > 1 + t) <= exp(-G/2 (t - ln(1 + t))).
 */
double dp_noise_limit(int64_t groups);
double dp_peak_limit(int64_t elements);
double dp_false_alarm(void);

/* The bound of a stage in words, for a report. */
const char *dp_bound_text(dflash_stage stage, const dp_class_model *model);

/* The constants, for the page that prints them. NULL past the last. */
typedef struct dp_bound_constant {
    const char *name;
    double value;
    const char *reason;
} dp_bound_constant;
const dp_bound_constant *dp_bound_constant_at(int index);

#endif
