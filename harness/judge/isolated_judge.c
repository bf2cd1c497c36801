/* isolated_judge.c - one stage's errors against its bounds and its expected noise; see isolated.h. */
#include "judge/isolated.h"

#include "limits/approx.h"
#include "common/error.h"

#include <math.h>
#include <stdlib.h>

/* The mean of (error / noise)^2 over the elements of one group, and what tells it from a repetition of another. */
typedef struct group_noise {
    double mean, got, want;
    int64_t count;
} group_noise;

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int by_noise(const void *a, const void *b) {
    const group_noise *x = a, *y = b;
    if (x->mean != y->mean) return x->mean < y->mean ? -1 : 1;
    if (x->want != y->want) return x->want < y->want ? -1 : 1;
    return x->got < y->got ? -1 : x->got > y->got;
}

static double error_of(const double *got, const dp_approx *want, int64_t i) { return fabs(got[i] - want[i].value); }

/* Elements with no expected noise are exact: an error of theirs is outside every limit. */
static double noise_of(const double *got, const dp_approx *want, int64_t i) {
    const double error = error_of(got, want, i);
    if (error == 0.0) return 0.0;
    return want[i].variance > 0.0 ? error / sqrt(want[i].variance) : INFINITY;
}

static void judge_bounds(const double *got, const dp_approx *want, const dp_array *array, double *ratio,
                         dp_isolated *out) {
    int64_t with_error = 0;
    out->share = 0.0;
    out->worst = array->offset;
    for (int64_t i = 0; i < array->count; i++) {
        const double error = error_of(got, want, i), bound = want[i].error;
        const double share = !isfinite(bound) ? INFINITY : error == 0.0 ? 0.0 : error / bound;
        if (error > 0.0) ratio[with_error++] = bound / error;
        if (i > 0 && share <= out->share) continue;
        out->share = isnan(share) ? INFINITY : share;
        out->worst = dp_array_at(array, i);
        out->worst_got = got[i];
        out->worst_want = want[i].value;
        out->worst_bound = bound;
        if (out->share == INFINITY) break; /* nothing is worse */
    }
    qsort(ratio, (size_t)with_error, sizeof *ratio, by_value);
    out->tightness = with_error > 0 ? ratio[with_error / 2] : 0.0;
}

/* Groups that repeat another's computation bit for bit (rows of equal input) count once. */
static void judge_noise(const double *got, const dp_approx *want, const dp_array *array, int64_t group,
                        group_noise *groups, dp_isolated *out) {
    int64_t found = 0, noisy = 0, last = -1;
    out->peak = 0.0;
    for (int64_t i = 0; i < array->count; i++) {
        if (want[i].variance == 0.0 && error_of(got, want, i) == 0.0) continue;
        const double z = noise_of(got, want, i);
        const int64_t number = (dp_array_at(array, i)) / group;
        noisy++;
        out->peak = isnan(z) || z > out->peak ? z : out->peak;
        if (number != last) groups[found++] = (group_noise){.got = got[i], .want = want[i].value};
        groups[found - 1].mean += z * z;
        groups[found - 1].count++;
        last = number;
    }
    for (int64_t g = 0; g < found; g++) groups[g].mean /= (double)groups[g].count;
    qsort(groups, (size_t)found, sizeof *groups, by_noise);
    double sum = 0.0;
    int64_t distinct = 0;
    for (int64_t g = 0; g < found; g++) {
        if (g > 0 && by_noise(&groups[g - 1], &groups[g]) == 0) continue;
        sum += groups[g].mean;
        distinct++;
    }
    out->noise = distinct > 0 ? sqrt(sum / (double)distinct) : 0.0;
    out->noise_limit = dp_noise_limit(distinct);
    out->peak_limit = dp_peak_limit(noisy);
}

dflash_status dp_isolated_judge(const dp_class_model *model, const double *got, const dp_approx *want,
                                const dp_array *array, int64_t row, int64_t group, dp_isolated *out,
                                dflash_error *err) {
    const size_t count = (size_t)(array->count > 0 ? array->count : 1);
    double *value = malloc(count * sizeof *value), *ratio = malloc(count * sizeof *ratio);
    group_noise *groups = malloc(count * sizeof *groups);
    dflash_status status = DFLASH_OK;
    if (value == NULL || ratio == NULL || groups == NULL)
        status = df_fail_memory(err, "the judgement of a stage", count * sizeof *groups);
    if (status == DFLASH_OK) {
        for (int64_t i = 0; i < array->count; i++) value[i] = want[i].value;
        dp_array truth = *array;
        truth.value = value;
        status = dp_compare(got, &truth, row, &out->difference, err);
    }
    if (status == DFLASH_OK) {
        judge_bounds(got, want, array, ratio, out);
        judge_noise(got, want, array, group, groups, out);
        if (!model->even) out->noise_limit = out->peak_limit = INFINITY; /* they rest on even roundings */
        out->judged = true;
        out->pass = array->count > 0 && out->difference.nonfinite == 0 && out->share <= 1.0 &&
                    out->noise <= out->noise_limit && out->peak <= out->peak_limit;
    }
    free(value);
    free(ratio);
    free(groups);
    return status;
}
