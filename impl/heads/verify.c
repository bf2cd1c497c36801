/*
 * verify.c - what becomes of drafted tokens once the target has spoken: the accepted prefix, the rejection rule, the
 * distribution to draw from after a rejection, and the draw itself.
 *
 * Pure functions over host memory. A committed token has the target's distribution only if these sums keep small
 * probabilities: a float32 running sum over a vocabulary of 250,000 drops every term below 2^-25 of what went before.
 * So masses are summed in double, in a fixed order: terms of a segment (canon.h) from left to right, segments from left
 * to right. How many tokens to verify next is window.c's business.
 */
#include "common/canon.h"
#include "common/error.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Distributions must sum to 1 within this. A float32 softmax in canonical order is off by less than 1e-5 (each term by
 * a few ulp, the sum by gamma_64+12); anything near the limit is not a distribution but logits, counts or half of one.
 */
#define MASS_SLACK 1e-3

int dflash_accepted_prefix(const int32_t *draft, const int32_t *target, int n) {
    int length = 0;
    while (length < n && draft[length] == target[length]) length++;
    return length;
}

/* u q is exact in double (48 bits), so no rounding moves the edge; a NaN accepts nothing. */
bool dflash_accept_token(float u, float p, float q) { return (double)u * (double)q < (double)p; }

/* The sum of segment `segment` of the n terms. */
static double segment_mass(const float *probability, int n, int segment) {
    const int first = segment * DF_SEGMENT, end = n - first > DF_SEGMENT ? first + DF_SEGMENT : n;
    double sum = 0;
    for (int i = first; i < end; i++) sum += (double)probability[i];
    return sum;
}

static int segments_of(int n) { return n / DF_SEGMENT + (n % DF_SEGMENT != 0); }

static double mass_of(const float *probability, int n) {
    double total = 0;
    for (int segment = 0; segment < segments_of(n); segment++) total += segment_mass(probability, n, segment);
    return total;
}

/* The index of the first value that is no probability: NaN, infinite or negative; n when all are. */
static int first_invalid(const float *probability, int n) {
    int i = 0;
    while (i < n && probability[i] >= 0.0f && probability[i] <= FLT_MAX) i++;
    return i;
}

int dflash_draw(const float *probability, int n, float u) {
    if (!(u >= 0.0f && u < 1.0f) || first_invalid(probability, n) < n) return -1;
    const double goal = (double)u * mass_of(probability, n);
    double before = 0;
    for (int segment = 0; segment < segments_of(n); segment++) {
        const double mass = segment_mass(probability, n, segment);
        if (before + mass > goal) {
            /* The last sum below is before + mass, so the loop ends inside the segment; a term of 0 leaves the sum
             * where it was and is never the first to exceed. */
            double inside = 0;
            int i = segment * DF_SEGMENT;
            for (;; i++) {
                inside += (double)probability[i];
                if (before + inside > goal) return i;
            }
        }
        before += mass;
    }
    return -1;
}

static dflash_status check_distribution(const float *probability, int n, const char *what, dflash_error *err) {
    const int bad = first_invalid(probability, n);
    if (bad < n)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "residual.value",
                       "Value %d of the %s distribution is %g: a probability is finite and not negative. Pass the "
                       "distribution that the token was drawn from, after the softmax.",
                       bad, what, (double)probability[bad]);
    const double total = mass_of(probability, n);
    if (fabs(total - 1.0) <= MASS_SLACK) return DFLASH_OK;
    return df_fail(
        err, DFLASH_ERR_ARGUMENT, "residual.mass",
        "The %s distribution sums to %.9g over its %d values; expected 1 within %g. A residual of unnormalised "
        "values would commit tokens with another distribution than the target's; normalise it first.",
        what, total, n, MASS_SLACK);
}

/* Every candidate is a token of the vocabulary and none comes twice. */
static dflash_status check_candidates(const int32_t *candidate, int k, int vocab, dflash_error *err) {
    unsigned char *seen = calloc((size_t)vocab / 8 + 1, 1);
    if (seen == NULL) return df_fail_memory(err, "the candidates seen", (size_t)vocab / 8 + 1);
    dflash_status status = DFLASH_OK;
    for (int i = 0; i < k && status == DFLASH_OK; i++) {
        const int32_t id = candidate[i];
        if (id < 0 || id >= vocab) {
            status = df_fail(err, DFLASH_ERR_ARGUMENT, "residual.candidate",
                             "Candidate %d is token %d, outside the vocabulary of %d. Pass the ids that the proposal's "
                             "distribution is over.",
                             i, id, vocab);
        } else if ((seen[id / 8] >> (id % 8) & 1) != 0) {
            status =
                df_fail(err, DFLASH_ERR_ARGUMENT, "residual.duplicate",
                        "Candidate %d is token %d, which the list already holds. Its probability would count twice; "
                        "pass every id once.",
                        i, id);
        } else {
            seen[id / 8] = (unsigned char)(seen[id / 8] | 1u << (id % 8));
        }
    }
    free(seen);
    return status;
}

static dflash_status check_residual(const float *p, int vocab, const float *q, const int32_t *candidate, int k,
                                    const float *residual, dflash_error *err) {
    if (p == NULL || q == NULL || residual == NULL || vocab < 1 || k < 1)
        return df_fail(
            err, DFLASH_ERR_ARGUMENT, "residual.argument",
            "A residual needs both distributions and a place for the result, and at least one value in each: "
            "found %s, %d target and %d proposal values. Pass all of them.",
            p == NULL || q == NULL || residual == NULL ? "a null pointer" : "no null pointer", vocab, k);
    if (candidate == NULL && k != vocab)
        return df_fail(
            err, DFLASH_ERR_ARGUMENT, "residual.candidate",
            "Without candidate ids the proposal's values belong to the ids 0..%d in order, but there are %d of "
            "them. Pass the ids, or one value for each token.",
            vocab - 1, k);
    dflash_status status = candidate != NULL ? check_candidates(candidate, k, vocab, err) : DFLASH_OK;
    if (status == DFLASH_OK) status = check_distribution(p, vocab, "target's", err);
    if (status == DFLASH_OK) status = check_distribution(q, k, "proposal's", err);
    return status;
}

/* Whether some token has more probability under p than under q. */
static bool anything_left(const float *p, int vocab, const float *q, const int32_t *candidate, int k) {
    int wanted = 0, wanted_candidates = 0; /* tokens that p can give */
    for (int i = 0; i < vocab; i++) wanted += p[i] > 0.0f;
    for (int i = 0; i < k; i++) {
        const float target = p[candidate != NULL ? candidate[i] : i];
        if (target > q[i]) return true;
        wanted_candidates += target > 0.0f;
    }
    return wanted > wanted_candidates;
}

dflash_status dflash_residual(const float *p, int vocab, const float *q, const int32_t *candidate, int k,
                              float *residual, dflash_error *err) {
    const dflash_status status = check_residual(p, vocab, q, candidate, k, residual, err);
    if (status != DFLASH_OK) return status;
    const bool left = anything_left(p, vocab, q, candidate, k);
    if (residual != p) memcpy(residual, p, (size_t)vocab * sizeof *p);
    if (!left) return DFLASH_OK;
    for (int i = 0; i < k; i++) {
        float *rest = &residual[candidate != NULL ? candidate[i] : i];
        *rest = *rest > q[i] ? *rest - q[i] : 0.0f;
    }
    const double total = mass_of(residual, vocab);
    for (int i = 0; i < vocab; i++) residual[i] = (float)((double)residual[i] / total);
    return DFLASH_OK;
}
