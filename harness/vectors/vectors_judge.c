/* vectors_judge.c - how one value of a group becomes one line of the result, and how its formula is evaluated. */
#include "vectors/vectors_parts.h"

#include "engine/engine.h"
#include "common/error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static dflash_status next_stage(dp_vectors_run *run, const char *name, const int64_t dim[4], dp_stage_result **out) {
    dp_result *result = run->out;
    if (result->stage_count == run->stage_capacity) {
        const int capacity = 2 * run->stage_capacity + 64;
        dp_stage_result *grown = realloc(result->stage, (size_t)capacity * sizeof *grown);
        if (grown == NULL) return df_fail_memory(run->err, "the results", (size_t)capacity * sizeof *grown);
        result->stage = grown;
        run->stage_capacity = capacity;
    }
    dp_stage_result *stage = *out = &result->stage[result->stage_count];
    *stage = (dp_stage_result){.headroom = -INFINITY};
    if (snprintf(stage->name, sizeof stage->name, "%s/%s", run->group->path, name) >= (int)sizeof stage->name)
        return df_fail(run->err, DFLASH_ERR_REFUSED, "vectors.name",
                       "The name %s/%s is longer than %zu characters. Write the group under a shorter one.",
                       run->group->path, name, sizeof stage->name - 1);
    for (; stage->rank < 4 && dim[stage->rank] != 0; stage->rank++) stage->dim[stage->rank] = dim[stage->rank];
    return DFLASH_OK;
}

static void count(dp_result *result, const dp_stage_result *stage) {
    result->stage_count++;
    result->failed_stages += !stage->pass;
    result->isolated_count += stage->isolated.judged;
    result->failed_isolated += dp_alone_failed(stage);
}

dflash_status dp_vector_equal(dp_vectors_run *run, const char *name, const int64_t dim[4], const int32_t *got,
                              const int32_t *want) {
    dp_stage_result *stage;
    TRY(next_stage(run, name, dim, &stage));
    dp_difference *d = &stage->difference;
    stage->exact = true;
    d->count = dp_dims_product(stage->rank, stage->dim);
    d->worst = -1;
    for (int64_t i = 0; i < d->count; i++) {
        if (got[i] == want[i] || d->mismatches++ > 0) continue;
        d->worst = i;
        d->worst_got = got[i];
        d->worst_want = want[i];
    }
    stage->pass = d->count > 0 && d->mismatches == 0;
    if (stage->pass) stage->headroom = 1.0;
    count(run->out, stage);
    return DFLASH_OK;
}

/* The limit of an element is what the class and the reference may err together; the limit of the whole follows. Returns
 * whether every element is within its own. */
static bool hold_against_reference(const dp_vector_value *v, int64_t n, int64_t row, dp_stage_result *stage) {
    double limits = 0.0, norm = 0.0;
    bool within = true;
    for (int64_t first = 0; first < n; first += row) {
        double square = 0.0, largest = 0.0;
        for (int64_t i = first; i < first + row; i++) {
            const double limit = v->want[i].error + v->their_want[i].error;
            within = within && fabs((double)v->got[i] - v->theirs[i]) <= limit;
            limits += limit * limit;
            square += v->theirs[i] * v->theirs[i];
            largest = fmax(largest, limit);
        }
        norm += square;
        if (square > 0.0) stage->limit.max_rel = fmax(stage->limit.max_rel, largest / sqrt(square / (double)row));
    }
    if (norm > 0.0) stage->limit.l2_rel = sqrt(limits / norm);
    snprintf(stage->limit.origin, sizeof stage->limit.origin, "bounds of the elements: %s", v->bound);
    return within;
}

dflash_status dp_vector_judge(dp_vectors_run *run, const dp_vector_value *v) {
    dp_stage_result *stage;
    TRY(next_stage(run, v->name, v->dim, &stage));
    const int64_t n = dp_dims_product(stage->rank, stage->dim), row = stage->rank > 1 ? n / stage->dim[0] : n;
    dp_array theirs = {.rank = stage->rank, .total = n, .count = n, .stride = 1};
    double *value = dp_vector_take(run, n, sizeof *value), *got = dp_vector_take(run, n, sizeof *got);
    if (value == NULL || got == NULL) return DFLASH_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        got[i] = (double)v->got[i];
        value[i] = v->theirs[i];
    }
    theirs.value = value;
    memcpy(theirs.dim, stage->dim, sizeof theirs.dim);
    TRY(dp_compare(got, &theirs, row, &stage->difference, run->err));
    stage->pass = hold_against_reference(v, n, row, stage) && stage->difference.nonfinite == 0 && n > 0;
    stage->headroom = dp_headroom(&stage->limit, &stage->difference);
    TRY(dp_isolated_judge(&run->model, got, v->want, &theirs, row, row, &stage->isolated, run->err));
    stage->isolated.fed = true;
    snprintf(stage->isolated.bound, sizeof stage->isolated.bound, "%s", v->bound);
    for (int64_t i = 0; i < n; i++) {
        const double error = fabs(v->theirs[i] - v->their_want[i].value);
        if (error > 0.0)
            stage->isolated.oracle_share = fmax(stage->isolated.oracle_share, error / v->their_want[i].error);
    }
    if (!(stage->isolated.oracle_share <= 1.0)) stage->isolated.pass = false;
    count(run->out, stage);
    return DFLASH_OK;
}

/* ---- Formulas ---- */

dflash_status dp_vector_evaluate(dp_vectors_run *run, const dp_vector_formula *f, dp_approx **want,
                                 dp_approx **their_want) {
    dp_stage_spec spec = {.stage = f->stage, .layer = f->layer};
    dflash_stage_name(f->stage, f->layer, spec.name);
    for (; spec.rank < 4 && f->dim[spec.rank] != 0; spec.rank++) spec.dim[spec.rank] = f->dim[spec.rank];
    const dp_selection all = {.stride = 1, .count = dp_dims_product(spec.rank, spec.dim)};
    dp_evaluation e = {
        .model = run->model, .draft = run->host_copy, .head = f->head, .anchor = f->anchor, .values = f->values};
    *want = dp_vector_take(run, all.count, sizeof **want);
    *their_want = dp_vector_take(run, all.count, sizeof **their_want);
    if (*want == NULL || *their_want == NULL) return DFLASH_ERR_MEMORY;
    TRY(dp_evaluate(&e, &spec, &all, run->engine->pool, *want, run->err));
    e.model = run->reference;
    return dp_evaluate(&e, &spec, &all, run->engine->pool, *their_want, run->err);
}

dflash_status dp_vector_give(dp_vectors_run *run, dflash_stage stage, int layer, int64_t n, const float *value,
                             dp_stage_values *values) {
    double *wide = malloc((size_t)(n + 1) * sizeof *wide);
    if (wide == NULL) return df_fail_memory(run->err, "the values of a stage", (size_t)n * sizeof *wide);
    for (int64_t i = 0; i < n; i++) wide[i] = (double)value[i];
    return dp_stage_values_take(values, stage, layer, n, wide, true, run->err);
}

dflash_status dp_vector_give_ints(dp_vectors_run *run, dflash_stage stage, int64_t n, const int32_t *value,
                                  dp_stage_values *values) {
    double *wide = malloc((size_t)(n + 1) * sizeof *wide);
    if (wide == NULL) return df_fail_memory(run->err, "the values of a stage", (size_t)n * sizeof *wide);
    for (int64_t i = 0; i < n; i++) wide[i] = (double)value[i];
    return dp_stage_values_take(values, stage, -1, n, wide, true, run->err);
}

dflash_status dp_vector_final(dp_vectors_run *run, const float *rows, int n, dp_stage_values *values) {
    const dflash_config *c = dflash_draft_config(run->draft);
    int first = 0, harvested = 0;
    dflash_harvest_rows(c, &first, &harvested);
    float *final = dp_vector_take(run, (int64_t)(first + n) * c->hidden, sizeof *final);
    if (final == NULL) return DFLASH_ERR_MEMORY;
    memcpy(final + (size_t)first * (size_t)c->hidden, rows, (size_t)n * (size_t)c->hidden * sizeof *final);
    return dp_vector_give(run, DFLASH_STAGE_FINAL, -1, (int64_t)(first + n) * c->hidden, final, values);
}
