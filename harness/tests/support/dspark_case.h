/*
 * dspark_case.h - a drafter that has nothing but DSpark heads, made in memory from a seed, and their arithmetic in
 * double with a bound on what float32 may add. For test_markov.c,
 * test_confidence.c and, on stored weights, test_vectors_heads.c.
 *
 * The reference is written from the formulas alone and shares no code with the heads. A dp_real is a value and a bound
 * on the absolute error of its float32 counterpart, carried through each step to first order (a hundredth is added for
 * the rest): products by gamma_n sum |w||x| with n = 64 + log2(segments) + 1, sigmoid by its slope of at most 1/4, tanh
 * by 1.
 */
#ifndef DP_TESTS_DSPARK_CASE_H
#define DP_TESTS_DSPARK_CASE_H

#include "model/model.h"
#include "heads/table.h"

#include <check.h>

/* Sizes that no two agree in and no segment divides. DS_W1: rows of Markov W1, the target's vocabulary. */
enum { DS_H = 150, DS_R = 70, DS_V = 211, DS_W1 = 211, DS_N = 6 };

typedef struct dp_real {
    double value, error;
} dp_real;

typedef struct ds_case {
    dflash_draft draft;
    void *owned[16]; /* weights */
    int owned_count;
    float rows[DS_N * DS_H], logits[DS_N * DS_V];
} ds_case;

/* A case of one kind of head; weights BF16, F16 and F32 in turn, so that each is gathered from and multiplied by.
 * `w2_rows` is the logits' vocabulary (at most DS_V). The engine is created too. */
void ds_make(ds_case *c, dflash_markov_kind kind, int w2_rows, const dflash_engine_options *options);
void ds_free(ds_case *c);

/* Gives the case a confidence head of which the Markov embedding and the bias are optional. */
void ds_add_confidence(ds_case *c, bool with_markov, bool bias);

/* out[w->out] = w x + bias (NULL: none). */
void ds_product(const df_matrix *w, const float *bias, const dp_real *x, dp_real *out);
/* Row `row` of w, exact. */
void ds_row(const df_matrix *w, int row, dp_real *out);
void ds_exact(const float *x, int n, dp_real *out);
dp_real ds_sigmoid(dp_real x);
dp_real ds_tanh(dp_real x);
dp_real ds_add(dp_real a, dp_real b);
dp_real ds_multiply(dp_real a, dp_real b);

/* What a wrong Markov head does. */
typedef enum ds_fault {
    DS_RIGHT = 0,
    DS_PREV_STAYS_ANCHOR,
    DS_STATE_FORGOTTEN,
    DS_INPUTS_SWAPPED,
    DS_THIRDS_ROTATED,
    DS_BIAS_DROPPED
} ds_fault;

/* want[n, vocab] of any drafter's Markov head: logits[n, vocab] of rows[n, H] corrected, when the slots' tokens are
 * token[n], as a head with this fault would. */
void ds_markov_logits(const dflash_draft *draft, const float *rows, const float *logits, int n, int vocab,
                      int32_t anchor, const int32_t *token, ds_fault fault, dp_real *want);

/* True when `got` is within the bound of `want`. */
bool ds_close(float got, dp_real want);

#endif
