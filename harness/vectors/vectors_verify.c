/* vectors_verify.c - see vectors.h: verify windows, residual distributions, acceptance, draws, accepted prefixes. */
#include "vectors/vectors_parts.h"

#include "common/error.h"

#include <math.h>
#include <string.h>

static dflash_status wrong_case(const dp_vectors_run *run, int index) {
    return df_fail(run->err, DFLASH_ERR_REFUSED, "vectors.params",
                   "Case %d of %s is not [row, policy, threshold, cap, accepted]. Write the vectors again.", index,
                   run->group->path);
}

static dflash_status window_options(const dp_vectors_run *run, const cJSON *entry, int index, int rows, int *row,
                                    dflash_window_options *out) {
    static const char *const policies[] = {"survival", "slot", "ladder"};
    const char *policy = cJSON_GetStringValue(cJSON_GetArrayItem(entry, 1));
    int which = 0;
    while (which < 3 && (policy == NULL || strcmp(policy, policies[which]) != 0)) which++;
    const cJSON *place = cJSON_GetArrayItem(entry, 0), *threshold = cJSON_GetArrayItem(entry, 2),
                *cap = cJSON_GetArrayItem(entry, 3), *accepted = cJSON_GetArrayItem(entry, 4);
    if (which == 3 || !cJSON_IsNumber(place) || !cJSON_IsNumber(threshold) || !cJSON_IsNumber(cap) ||
        !cJSON_IsNumber(accepted) || place->valueint < 0 || place->valueint >= rows)
        return wrong_case(run, index);
    *row = place->valueint;
    *out = (dflash_window_options){.policy = (dflash_window_policy)which,
                                   .threshold = (float)threshold->valuedouble,
                                   .cap = cap->valueint,
                                   .accepted = accepted->valueint};
    return DFLASH_OK;
}

static dflash_status judge_windows(dp_vectors_run *run) {
    const cJSON *cases = cJSON_GetObjectItemCaseSensitive(run->group->params, "cases"), *entry;
    const int64_t dim[4] = {cJSON_GetArraySize(cases)};
    int64_t shape[4];
    float *raw;
    int32_t *theirs, *ours = dp_vector_take(run, dim[0], sizeof *ours);
    int at = 0;
    if (ours == NULL) return DFLASH_ERR_MEMORY;
    TRY(dp_vector_shape(run->group, "raw", shape, run->err));
    TRY(dp_vector_read_floats(run, "raw", shape, &raw));
    TRY(dp_vector_read_ints(run, "window", dim, &theirs));
    cJSON_ArrayForEach(entry, cases) {
        dflash_window_options options;
        int row = 0, window = 0;
        TRY(window_options(run, entry, at, (int)shape[0], &row, &options));
        TRY(dflash_verify_window(&options, raw + row * shape[1], (int)shape[1], &window, run->err));
        ours[at++] = window;
    }
    return dp_vector_equal(run, "window", dim, ours, theirs);
}

/* max(p - q, 0) / sum: one rounding of the difference, its share of the sum, one of the quotient. Sums are of float64,
 * whose order is not known here. */
static dflash_status residual_formula(dp_vectors_run *run, const dp_class_model *m, const float *p, int n,
                                      const float *q, const int32_t *candidate, int k, dp_approx *out) {
    double *term = dp_vector_take(run, n, sizeof *term);
    if (term == NULL) return DFLASH_ERR_MEMORY;
    for (int i = 0; i < n; i++) out[i] = dp_exactly((double)p[i]);
    bool left = false;
    for (int i = 0; i < k; i++) {
        dp_approx *rest = &out[candidate != NULL ? candidate[i] : i];
        *rest = rest->value > (double)q[i] ? dp_add(m, *rest, dp_exactly(-(double)q[i])) : dp_exactly(0.0);
    }
    const dp_class_model wide = dp_class_model_reference();
    dp_terms terms = {.a = term, .n = n};
    for (int i = 0; i < n; i++) {
        left = left || out[i].value > 0.0;
        term[i] = out[i].value;
        terms.slack += out[i].error;
        terms.variance += out[i].variance;
    }
    const dp_approx sum = dp_sum_products(&wide, &terms);
    for (int i = 0; i < n; i++) out[i] = left ? dp_div(m, out[i], sum) : dp_exactly((double)p[i]);
    return DFLASH_OK;
}

static dflash_status judge_residual(dp_vectors_run *run) {
    int64_t target[4], proposal[4];
    float *p, *q;
    int32_t *candidate = NULL;
    double *theirs;
    TRY(dp_vector_shape(run->group, "p", target, run->err));
    TRY(dp_vector_shape(run->group, "q", proposal, run->err));
    TRY(dp_vector_read_floats(run, "p", target, &p));
    TRY(dp_vector_read_floats(run, "q", proposal, &q));
    TRY(dp_vector_read_doubles(run, "residual", target, &theirs));
    if (dp_vector_has(run->group, "candidate")) TRY(dp_vector_read_ints(run, "candidate", proposal, &candidate));
    const int n = (int)target[0], k = (int)proposal[0];
    float *ours = dp_vector_take(run, n, sizeof *ours);
    dp_approx *want = dp_vector_take(run, n, sizeof *want), *their_want = dp_vector_take(run, n, sizeof *want);
    if (ours == NULL || want == NULL || their_want == NULL) return DFLASH_ERR_MEMORY;
    /* host memory and float32, whatever the class */
    const dp_class_model exact = dp_class_model_of(DFLASH_BACKEND_CPU, DFLASH_CLASS_EXACT, DFLASH_PRODUCTS_F32);
    TRY(dflash_residual(p, n, q, candidate, k, ours, run->err));
    TRY(residual_formula(run, &exact, p, n, q, candidate, k, want));
    TRY(residual_formula(run, &run->reference, p, n, q, candidate, k, their_want));
    return dp_vector_judge(run, &(dp_vector_value){"residual",
                                                   "ulp/2 of p - q, of the quotient, and their share of the sum",
                                                   {n},
                                                   ours,
                                                   want,
                                                   their_want,
                                                   theirs});
}

static dflash_status judge_draws(dp_vectors_run *run) {
    int64_t dim[4];
    float *probability, *u;
    int32_t *theirs;
    TRY(dp_vector_shape(run->group, "probability", dim, run->err));
    const int64_t rows[4] = {dim[0]};
    TRY(dp_vector_read_floats(run, "probability", dim, &probability));
    TRY(dp_vector_read_floats(run, "u", rows, &u));
    TRY(dp_vector_read_ints(run, "index", rows, &theirs));
    int32_t *ours = dp_vector_take(run, rows[0], sizeof *ours);
    if (ours == NULL) return DFLASH_ERR_MEMORY;
    for (int64_t i = 0; i < rows[0]; i++) ours[i] = dflash_draw(probability + i * dim[1], (int)dim[1], u[i]);
    return dp_vector_equal(run, "index", rows, ours, theirs);
}

static dflash_status judge_acceptance(dp_vectors_run *run) {
    int64_t dim[4];
    float *u, *p, *q;
    int32_t *theirs;
    TRY(dp_vector_shape(run->group, "u", dim, run->err));
    TRY(dp_vector_read_floats(run, "u", dim, &u));
    TRY(dp_vector_read_floats(run, "p", dim, &p));
    TRY(dp_vector_read_floats(run, "q", dim, &q));
    TRY(dp_vector_read_ints(run, "accepted", dim, &theirs));
    int32_t *ours = dp_vector_take(run, dim[0], sizeof *ours);
    if (ours == NULL) return DFLASH_ERR_MEMORY;
    for (int64_t i = 0; i < dim[0]; i++) ours[i] = dflash_accept_token(u[i], p[i], q[i]);
    return dp_vector_equal(run, "accepted", dim, ours, theirs);
}

static dflash_status judge_prefixes(dp_vectors_run *run) {
    int64_t dim[4];
    int32_t *draft, *target, *theirs;
    TRY(dp_vector_shape(run->group, "draft", dim, run->err));
    const int64_t rows[4] = {dim[0]};
    TRY(dp_vector_read_ints(run, "draft", dim, &draft));
    TRY(dp_vector_read_ints(run, "target", dim, &target));
    TRY(dp_vector_read_ints(run, "length", rows, &theirs));
    int32_t *ours = dp_vector_take(run, rows[0], sizeof *ours);
    if (ours == NULL) return DFLASH_ERR_MEMORY;
    for (int64_t i = 0; i < rows[0]; i++)
        ours[i] = dflash_accepted_prefix(draft + i * dim[1], target + i * dim[1], (int)dim[1]);
    return dp_vector_equal(run, "length", rows, ours, theirs);
}

dflash_status dp_vectors_verify(dp_vectors_run *run) {
    static const struct {
        const char *name;
        dflash_status (*judge)(dp_vectors_run *run);
    } kinds[] = {{"windows", judge_windows},
                 {"residual", judge_residual},
                 {"draw", judge_draws},
                 {"accept", judge_acceptance},
                 {"prefix", judge_prefixes}};
    const char *name = run->group->path + strlen("verify/");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strncmp(name, kinds[i].name, strlen(kinds[i].name)) == 0) return kinds[i].judge(run);
    return df_fail(run->err, DFLASH_ERR_REFUSED, "vectors.part",
                   "%s is a group that nothing here judges. Use the version of dflash-parity that it was written for.",
                   run->group->path);
}
