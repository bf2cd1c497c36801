/* compare.c - see compare.h. Compiled without fast-math, so that NaN and signed zero keep their meaning. */
#include "limits/compare.h"

#include "common/error.h"
#include "store/stage_set.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_finite(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bits >> 52 & 0x7ff) != 0x7ff;
}

static bool is_nan(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bits & 0x7fffffffffffffff) > 0x7ff0000000000000;
}

double dp_float32_ulp(double want) {
    int exponent = 0;
    frexp(want, &exponent); /* |want| in [2^(e-1), 2^e) */
    const int lowest = -125;
    return ldexp(1.0, (want == 0.0 || exponent < lowest ? lowest : exponent) - 24);
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

dflash_status dp_gather(const float *full, const dp_array *want, double **out, dflash_error *err) {
    *out = malloc((size_t)(want->count > 0 ? want->count : 1) * sizeof **out);
    if (*out == NULL) return df_fail_memory(err, "a stage's values", (size_t)want->count * sizeof **out);
    for (int64_t i = 0; i < want->count; i++) (*out)[i] = (double)full[dp_array_at(want, i)];
    return DFLASH_OK;
}

/* Root mean square of a row: as the array knows it, otherwise of its elements [first, end), which are all of it. */
static double row_rms(const dp_array *want, int64_t first, int64_t end, int64_t row_length) {
    double sum = 0.0;
    if (want->rms != NULL) return want->rms[dp_array_at(want, first) / row_length];
    for (int64_t i = first; i < end; i++) sum += want->value[i] * want->value[i];
    return sqrt(sum / (double)(end - first));
}

static int64_t row_end(const dp_array *want, int64_t first, int64_t row_length) {
    const int64_t row = dp_array_at(want, first) / row_length;
    int64_t end = first + 1;
    while (end < want->count && dp_array_at(want, end) / row_length == row) end++;
    return end;
}

double dp_largest_row(const dp_array *want, int64_t row_length) {
    double largest = 0.0;
    for (int64_t first = 0, end; first < want->count; first = end) {
        end = row_end(want, first, row_length);
        largest = fmax(largest, row_rms(want, first, end, row_length));
    }
    return largest;
}

/* Relative to the row's rms; a zero row admits no error at all. */
static double relative(double error, double rms) { return error == 0.0 ? 0.0 : rms > 0.0 ? error / rms : INFINITY; }

double dp_deciding(double square, double fourth) { return fourth > 0.0 ? square * square / fourth : 0.0; }

dflash_status dp_compare(const double *got, const dp_array *want, int64_t row_length, dp_difference *out,
                         dflash_error *err) {
    /* the largest of a few samples is not the row's, but no row's largest is below its rms */
    *out = (dp_difference){.count = want->count, .worst = -1, .largest_in_row = want->rms != NULL ? 1.0 : 0.0};
    double *ulps = malloc((size_t)(want->count > 0 ? want->count : 1) * sizeof *ulps);
    if (ulps == NULL) return df_fail_memory(err, "a stage's errors", (size_t)want->count * sizeof *ulps);
    double error_square = 0.0, error_fourth = 0.0, norm_square = 0.0, want_square = 0.0, got_square = 0.0, dot = 0.0;
    int64_t measured = 0;
    for (int64_t first = 0, end; first < want->count; first = end) {
        end = row_end(want, first, row_length);
        const double rms = row_rms(want, first, end, row_length);
        const double before = error_square;
        norm_square += rms * rms * (double)(end - first);
        for (int64_t i = first; i < end; i++) {
            const double g = got[i], w = want->value[i];
            const int64_t at = dp_array_at(want, i);
            if (!is_finite(g)) {
                if (is_nan(g))
                    out->nan++;
                else
                    out->inf++;
                if (out->nonfinite++ == 0) out->worst = at, out->worst_got = g, out->worst_want = w;
                continue;
            }
            const double error = fabs(g - w), rel = relative(error, rms);
            if (error > out->max_abs) out->max_abs = error;
            if (out->nonfinite == 0 && (rel > out->max_rel || out->worst < 0))
                out->worst = at, out->worst_got = g, out->worst_want = w;
            if (rel > out->max_rel) out->max_rel = rel;
            if (relative(fabs(w), rms) > out->largest_in_row) out->largest_in_row = relative(fabs(w), rms);
            if (g != 0.0 && w != 0.0 && signbit(g) != signbit(w)) out->sign_flips++;
            ulps[measured++] = error / dp_float32_ulp(w);
            error_square += error * error;
            want_square += w * w;
            got_square += g * g;
            dot += g * w;
        }
        error_fourth += (error_square - before) * (error_square - before);
    }
    out->rows = dp_deciding(error_square, error_fourth);
    out->l2_rel = relative(sqrt(error_square), sqrt(want->rms != NULL ? norm_square : want_square));
    if (want_square == 0.0 || got_square == 0.0)
        out->cosine = want_square == got_square ? 1.0 : 0.0; /* a zero vector points nowhere */
    else
        out->cosine = dot / sqrt(want_square) / sqrt(got_square);
    if (measured > 0) {
        qsort(ulps, (size_t)measured, sizeof *ulps, by_value);
        out->ulp_median = ulps[measured / 2];
        out->ulp_p99 = ulps[(int64_t)((double)(measured - 1) * 0.99)];
        out->ulp_max = ulps[measured - 1];
    }
    free(ulps);
    return DFLASH_OK;
}

void dp_sketch_compare(const dp_sketch *got, const dp_sketch *want, dp_difference *out) {
    const int64_t each = want->projections + 1;
    const double root = sqrt((double)want->width);
    double error_square = 0.0, error_fourth = 0.0, norm_square = 0.0, before = 0.0;
    *out = (dp_difference){.count = want->rows * each, .worst = -1, .largest_in_row = 1.0};
    for (int64_t i = 0; i < out->count; i++) {
        const bool is_rms = i % each == want->projections;
        const double norm = want->value[i - i % each + want->projections] * root;
        const double g = got->value[i], w = want->value[i], error = fabs(g - w) * (is_rms ? root : 1.0);
        if (!isfinite(g)) {
            if (isnan(g))
                out->nan++;
            else
                out->inf++;
            if (out->nonfinite++ == 0) out->worst = i, out->worst_got = g, out->worst_want = w;
            continue;
        }
        const double relative = error == 0.0 ? 0.0 : norm > 0.0 ? error / norm : INFINITY;
        if (out->nonfinite == 0 && (relative > out->max_rel || out->worst < 0))
            out->worst = i, out->worst_got = g, out->worst_want = w;
        out->max_rel = fmax(out->max_rel, relative);
        error_square += error * error;
        norm_square += norm * norm;
        if (!is_rms) continue;
        error_fourth += (error_square - before) * (error_square - before);
        before = error_square;
    }
    out->rows = dp_deciding(error_square, error_fourth);
    out->l2_rel = error_square == 0.0 ? 0.0 : norm_square > 0.0 ? sqrt(error_square / norm_square) : INFINITY;
}
