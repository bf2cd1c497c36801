/*
 * chain.h - sums of products with their running error: the bulk of every stage.
 *
 * Where the class fixes the order (the exact class: segments from left to right, joined in a binary tree over the
 * segment's index) the partial sums are known, and the error is bounded by the sum of half a unit in the last place of
 * each (Higham, section 3.3). Where it does not, by gamma_K sum |a||b| (sections 3.1 and 4.2), and the expected noise
 * is that of partial sums as large as blocks of neighbours, or terms in an order drawn at random, can make them. The
 * canonical order is written here a second time, by recursion, and shares no code with impl/common/canon.h.
 */
#ifndef DP_CHAIN_H
#define DP_CHAIN_H

#include "limits/approx.h"

typedef struct dp_terms {
    const double *a, *b;  /* [n]; b NULL: ones, and nothing is multiplied */
    size_t stride_b;      /* from one element of b to the next; 0 counts as 1 */
    const int32_t *place; /* [n], increasing: the place of a term in the canonical order; NULL: its index */
    int n;
    const dp_operands *operands; /* what the class loses of a and b first; NULL: nothing */
    double slack, variance;      /* what the terms' own errors can change of the sum, and its mean square */
} dp_terms;

/* The sum of a[k] b[k]. `error` holds slack and roundings, `variance` both. */
dp_approx dp_sum_products(const dp_class_model *model, const dp_terms *terms);

/* gamma_n = n u / (1 - n u), Higham, lemma 3.1. */
double dp_gamma(double n, double unit);

#endif
