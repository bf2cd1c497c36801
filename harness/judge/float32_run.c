/* float32_run.c - see float32_run.h. */
#include "judge/float32_run.h"

#include "base/cli.h"
#include "common/error.h"
#include "formulas/evaluate.h"
#include "judge/isolated.h"

#include <stdlib.h>
#include <string.h>

typedef struct subject {
    const dp_preflight *in;
    dp_evaluation evaluation;
    dp_stage_values values; /* the run's, of the stages that are stored whole */
    double *taps, *noise;
    df_pool *pool;
    dflash_error *err;
} subject;

static dflash_status read_values(subject *s) {
    for (int i = 0; i < s->in->stages.count; i++) {
        const dp_stage_spec *spec = &s->in->stages.spec[i];
        dp_array array = {.value = NULL};
        TRY(dp_oracle_stage(s->in->oracle, DP_RUN_F32, spec->name, &array, s->err));
        dflash_status status = DFLASH_OK;
        if (array.count == array.total) {
            status = dp_stage_values_take(&s->values, spec->stage, spec->layer, array.count, array.value, true, s->err);
            array.value = NULL;
        }
        dp_array_release(&array);
        TRY(status);
    }
    return DFLASH_OK;
}

static dflash_status judge(const subject *s, const dp_stage_spec *spec, const dp_stage_value *run) {
    const dp_class_model *model = &s->evaluation.model;
    const dp_selection all = {.stride = 1, .count = run->count};
    dp_array array = {.rank = spec->rank, .total = run->count, .stride = 1, .count = run->count};
    memcpy(array.dim, spec->dim, sizeof array.dim);
    dp_isolated alone = {.judged = false};
    dp_approx *want = malloc((size_t)(run->count > 0 ? run->count : 1) * sizeof *want);
    if (want == NULL) return df_fail_memory(s->err, "the evaluation of a stage", (size_t)run->count * sizeof *want);
    dflash_status status = dp_evaluate(&s->evaluation, spec, &all, s->pool, want, s->err);
    if (status == DFLASH_OK)
        status = dp_isolated_judge(model, run->value, want, &array, dp_row_length(spec->stage, spec->rank, spec->dim),
                                   dp_evaluate_group(model, &s->in->config, spec), &alone, s->err);
    free(want);
    if (status != DFLASH_OK || alone.pass) return status;
    return df_fail(
        s->err, DFLASH_ERR_REFUSED, "oracle.float32",
        "Stage %s of %s: the reference's float32 run does not follow from the stages before it: element %lld "
        "is %.9g where the formula gives %.9g: expected at most %.3g apart, and errors of all elements within "
        "%.3g times their expected rounding, found %.3g. The run is not what it says, and a limit made of it "
        "would let errors pass that are no rounding. Generate the oracle again.",
        spec->name, dp_oracle_path(s->in->oracle), (long long)alone.worst, alone.worst_got, alone.worst_want,
        alone.worst_bound, alone.noise_limit, alone.noise);
}

dflash_status dp_float32_run_check(const dp_preflight *in, dflash_draft *draft, const dflash_table *head,
                                   const dflash_table *embedding, df_pool *pool, const char *filter,
                                   dflash_error *err) {
    const dflash_config *c = &in->config;
    subject s = {.in = in, .pool = pool, .err = err};
    dflash_status status = read_values(&s);
    if (status == DFLASH_OK)
        status = dp_widen(in->taps, (size_t)in->context * (size_t)c->n_taps * (size_t)c->hidden, &s.taps, err);
    if (status == DFLASH_OK) status = dp_widen(in->noise, (size_t)c->block * (size_t)c->hidden, &s.noise, err);
    s.evaluation = (dp_evaluation){.model = dp_class_model_any_order(),
                                   .draft = draft,
                                   .head = head,
                                   .embedding = embedding,
                                   .ids = in->ids,
                                   .taps = s.taps,
                                   .noise = s.noise,
                                   .pos = in->pos,
                                   .context = in->context,
                                   .anchor = in->anchor,
                                   .values = &s.values};
    for (int i = 0; status == DFLASH_OK && i < in->stages.count; i++) {
        const dp_stage_spec *spec = &in->stages.spec[i];
        const dp_stage_value *run = dp_stage_values_find(&s.values, spec->stage, spec->layer);
        if (run == NULL || spec->exact || !dp_evaluable(spec->stage)) continue;
        if (filter != NULL && !dp_glob(filter, spec->name)) continue;
        if (dp_evaluate_inputs(&s.evaluation, spec)) status = judge(&s, spec, run);
    }
    dp_stage_values_release(&s.values);
    free(s.taps);
    free(s.noise);
    return status;
}
