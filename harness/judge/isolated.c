/* isolated.c - see isolated.h. */
#include "judge/isolated.h"

#include "base/cli.h"
#include "preflight/embedding.h"
#include "engine/engine.h"
#include "common/error.h"
#include "formulas/evaluate.h"
#include "run/hosted.h"
#include "run/proposal.h"
#include "store/store_sketch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One run in progress. */
typedef struct run {
    const dp_isolated_options *o;
    const dp_preflight *in;
    dp_recording computed;  /* every stage as it was computed */
    dp_stage_values given;  /* every stage as the next ones saw it */
    dp_stage_values oracle; /* the oracle's own: whole stages, and whole rows of sampled ones */
    dp_stage_values cached; /* the chained run's keys and values */
    int taken;              /* recorded stages that were taken in */
    dflash_status status;   /* of taking them in */
    double *taps, *noise;   /* the inputs, widened */
    dflash_error *err;
} run;

/* ---- The forward ---- */

/* Shown to a replacement: what follows is computed from what then stands there. The others are only observed: what
 * follows was computed from the values as they were, whatever was injected into the record of them. */
static bool is_replaceable(const dp_recorded *stage) {
    return stage->integer == NULL && stage->stage != DFLASH_STAGE_ROPE_INV_FREQ && stage->stage <= DFLASH_STAGE_LOGITS;
}

/* Takes in what was recorded since the last call, and applies the test's fault injection. */
static void take_recorded(run *r) {
    const dp_fault_injection *p = r->o->injection;
    for (; r->taken < r->computed.count; r->taken++) {
        const dp_recorded *stage = &r->computed.stage[r->taken];
        if (!is_replaceable(stage) && r->status == DFLASH_OK)
            r->status = dp_stage_values_record(&r->given, stage, r->err);
        if (p != NULL)
            p->change(p->user, stage->stage, stage->layer, dp_dims_product(stage->rank, stage->dim), stage->value,
                      stage->integer);
    }
}

/* The observer has just recorded the stage. The next ones start from the oracle where it has the values, from what was
 * computed otherwise, faults included. */
static bool replace(void *user, const dflash_stage_view *view, float *value) {
    run *r = user;
    take_recorded(r);
    const int64_t count = dp_dims_product(view->rank, view->dim);
    const dp_stage_value *oracle = dp_stage_values_find(&r->oracle, view->stage, view->layer);
    const dp_recorded *computed = dp_recording_find(&r->computed, view->stage, view->layer);
    const bool known = oracle != NULL && oracle->count == count, whole = known && oracle->row_fed == NULL;
    if (!whole && (computed == NULL || (!known && r->o->injection == NULL))) return false;
    if (!whole) memcpy(value, computed->value, (size_t)count * sizeof *value);
    for (int64_t i = 0; known && i < count; i++)
        if (dp_stage_value_fed(oracle, i)) value[i] = (float)oracle->value[i];
    return true;
}

static dflash_status run_forward(run *r) {
    const dp_preflight *in = r->in;
    dflash_draft *draft = r->o->draft;
    const size_t hidden = (size_t)in->config.hidden;
    float *features = malloc((size_t)in->context * hidden * sizeof *features);
    float *result = malloc((size_t)in->config.block * hidden * sizeof *result);
    float *noise = malloc((size_t)in->config.block * hidden * sizeof *noise);
    dflash_status status = features != NULL && result != NULL && noise != NULL
                               ? DFLASH_OK
                               : df_fail_memory(r->err, "the isolated run's outputs", hidden * sizeof(float));
    dflash_draft_replace(draft, replace, r);
    dflash_draft_observe(draft, dp_recording_observe, &r->computed);
    if (status == DFLASH_OK) status = dp_ctx_features(draft, in->taps, in->context, features, r->err);
    if (status == DFLASH_OK) status = dp_embedding_run(draft, r->o->embedding, in, noise, r->err);
    if (status == DFLASH_OK) status = dp_forward_block(draft, features, noise, in->pos, in->context, result, r->err);
    if (status == DFLASH_OK && r->o->head != NULL)
        status = dp_run_judged_proposal(draft, r->o->head, result, in->anchor, &r->computed, r->err);
    dflash_draft_observe(draft, NULL, NULL);
    dflash_draft_replace(draft, NULL, NULL);
    free(features);
    free(result);
    free(noise);
    return status == DFLASH_OK ? dp_recording_status(&r->computed, r->err) : status;
}

/* ---- Values ---- */

/* The whole rows of a sampled stage, at their places. Pages that no row lies in are never touched. */
static dflash_status read_rows(run *r, const dp_stage_spec *spec) {
    int count = 0;
    const int64_t *row = dp_oracle_row_list(r->in->oracle, spec->name, &count);
    const int64_t total = dp_dims_product(spec->rank, spec->dim);
    const int64_t width = dp_row_length(spec->stage, spec->rank, spec->dim);
    if (count == 0) return DFLASH_OK;
    dp_array rows = {.value = NULL};
    TRY(dp_oracle_rows(r->in->oracle, spec->name, &rows, r->err));
    double *value = calloc((size_t)total, sizeof *value);
    for (int64_t i = 0; value != NULL && i < rows.count; i++) value[rows.index[i]] = rows.value[i];
    dp_array_release(&rows);
    if (value == NULL) return df_fail_memory(r->err, "the values of a stage", (size_t)total * sizeof *value);
    bool *fed = calloc((size_t)(total / width), sizeof *fed);
    for (int i = 0; fed != NULL && i < count; i++) fed[row[i]] = true;
    TRY(dp_stage_values_take(&r->oracle, spec->stage, spec->layer, total, value, false, r->err));
    return dp_stage_values_mark(&r->oracle, spec->stage, spec->layer, total / width, fed, r->err);
}

static dflash_status read_oracle(run *r) {
    for (int i = 0; i < r->in->stages.count; i++) {
        const dp_stage_spec *spec = &r->in->stages.spec[i];
        dp_array array = {.value = NULL};
        /* The frequencies that angles are made of are the float32 ones, in every run of the reference. */
        const dp_run source = spec->stage == DFLASH_STAGE_ROPE_INV_FREQ ? DP_RUN_F32 : DP_RUN_F64;
        TRY(dp_oracle_stage(r->in->oracle, source, spec->name, &array, r->err));
        const bool whole = array.count == array.total && array.stride == 1;
        if (whole) {
            double *value = array.value;
            array.value = NULL;
            TRY(dp_stage_values_take(&r->oracle, spec->stage, spec->layer, array.count, value, true, r->err));
        }
        dp_array_release(&array);
        if (!whole) TRY(read_rows(r, spec));
    }
    return DFLASH_OK;
}

/* The cache is not shown as it is filled: it is held against the keys and values of the chained run, bit for bit. */
static dflash_status read_cache(run *r) {
    for (int i = 0; i < r->o->chained->count; i++) {
        const dp_recorded *recorded = &r->o->chained->stage[i];
        if (dp_is_cache(recorded->stage))
            dp_recording_add(&r->computed, &(dflash_stage_view){.stage = recorded->stage,
                                                                .layer = -1,
                                                                .rank = recorded->rank,
                                                                .dim = {recorded->dim[0], recorded->dim[1],
                                                                        recorded->dim[2], recorded->dim[3]},
                                                                .f32 = recorded->value});
        if (recorded->stage == DFLASH_STAGE_ATTN_K_ROPE || recorded->stage == DFLASH_STAGE_ATTN_V)
            TRY(dp_stage_values_record(&r->cached, recorded, r->err));
    }
    return dp_recording_status(&r->computed, r->err);
}

/* The stages that are shown to a replacement: the oracle's values where it has them, rounded as they were, otherwise
 * what was computed. */
static dflash_status collect_given(run *r) {
    for (int i = 0; i < r->computed.count; i++) {
        const dp_recorded *recorded = &r->computed.stage[i];
        const dp_stage_value *oracle = dp_stage_values_find(&r->oracle, recorded->stage, recorded->layer);
        if (!is_replaceable(recorded)) continue;
        TRY(dp_stage_values_record(&r->given, recorded, r->err));
        if (oracle != NULL) TRY(dp_stage_values_feed(&r->given, oracle, r->err));
    }
    return DFLASH_OK;
}

/* ---- Judging ---- */

static dp_evaluation evaluation_of(const run *r, dp_class_model model, const dp_stage_values *values) {
    return (dp_evaluation){.model = model,
                           .draft = r->o->host_copy,
                           .head = r->o->host_head,
                           .embedding = r->o->host_embedding,
                           .ids = r->in->ids,
                           .taps = r->taps,
                           .noise = r->noise,
                           .pos = r->in->pos,
                           .context = r->in->context,
                           .anchor = r->in->anchor,
                           .values = values};
}

/* The elements of a recorded stage that `array` describes. */
static void pick(const dp_recorded *recorded, const dp_array *array, double *out) {
    for (int64_t i = 0; i < array->count; i++) {
        const int64_t at = dp_array_at(array, i);
        out[i] = recorded->integer != NULL ? (double)recorded->integer[at] : (double)recorded->value[at];
    }
}

/* The elements of `array` whose inputs were all given, one after another in `index` [array->count]; returns how many.
 */
static int64_t fed_elements(const dp_evaluation *e, const dp_stage_spec *spec, const dp_array *array, int64_t *index) {
    const int64_t width = dp_row_length(spec->stage, spec->rank, spec->dim);
    int64_t count = 0, row = -1;
    bool fed = false;
    for (int64_t i = 0; i < array->count; i++) {
        const int64_t at = dp_array_at(array, i);
        if (at / width != row) fed = dp_evaluate_fed(e, spec, at / width);
        row = at / width;
        if (fed) index[count++] = at;
    }
    return count;
}

/* Whether the oracle's values of a stage follow from the oracle's values before it, as a float64 run rounds. */
static dflash_status judge_oracle(const run *r, const dp_stage_spec *spec, const dp_array *array, int64_t *index,
                                  dp_approx *want, dp_isolated *out) {
    const dp_evaluation e = evaluation_of(r, dp_class_model_reference(), &r->oracle);
    out->oracle_share = -1.0;
    if (!dp_evaluate_inputs(&e, spec)) return DFLASH_OK;
    const dp_selection selection = {.count = fed_elements(&e, spec, array, index), .index = index};
    if (selection.count == 0) return DFLASH_OK;
    TRY(dp_evaluate(&e, spec, &selection, r->o->engine->pool, want, r->err));
    out->oracle_share = 0.0;
    for (int64_t i = 0, k = 0; k < selection.count; i++) {
        if (dp_array_at(array, i) != index[k]) continue;
        const double error = fabs(array->value[i] - want[k].value);
        const double share = !isfinite(want[k].error) ? INFINITY : error == 0.0 ? 0.0 : error / want[k].error;
        if (isnan(share) || share > out->oracle_share) out->oracle_share = isnan(share) ? INFINITY : share;
        k++;
    }
    if (out->oracle_share > 1.0) out->pass = false;
    return DFLASH_OK;
}

/* Room for the elements of a stage. */
typedef struct elements {
    double *got;
    dp_approx *want;
    int64_t *index;
} elements;

static dflash_status judge_array(const run *r, const dp_stage_spec *spec, const dp_recorded *recorded,
                                 const dp_array *array, const elements *room, dp_isolated *out) {
    const dflash_engine_options *engine = &r->o->engine->options;
    const dp_class_model model = dp_class_model_of(engine->backend, engine->numeric_class, engine->products);
    const dp_evaluation e = evaluation_of(r, model, dp_is_cache(spec->stage) ? &r->cached : &r->given);
    const dp_selection selection = {array->offset, array->stride, array->count, array->index};
    out->fed_count = fed_elements(&e, spec, array, room->index);
    out->fed = out->fed_count == array->count;
    TRY(dp_evaluate(&e, spec, &selection, r->o->engine->pool, room->want, r->err));
    pick(recorded, array, room->got);
    TRY(dp_isolated_judge(&model, room->got, room->want, array, dp_row_length(spec->stage, spec->rank, spec->dim),
                          dp_evaluate_group(&model, &r->in->config, spec), out, r->err));
    snprintf(out->bound, sizeof out->bound, "%s", dp_bound_text(spec->stage, &model));
    return judge_oracle(r, spec, array, room->index, room->want, out);
}

/* Evaluating an element of a product costs its whole sum. Of the rows that an oracle stores beside samples this many
 * elements a stage, evenly spread, say whether the operation is right; that no column escapes is the sketch's part. */
enum { MOST_ELEMENTS = 1024 };

static void thin_out(dp_array *array) {
    const int64_t step = array->index != NULL ? (array->count + MOST_ELEMENTS - 1) / MOST_ELEMENTS : 1;
    int64_t kept = 0;
    for (int64_t i = 0; step > 1 && i < array->count; i += step, kept++) {
        array->value[kept] = array->value[i];
        array->index[kept] = array->index[i];
    }
    if (step > 1) array->count = kept;
}

static dflash_status judge_stage(const run *r, const dp_stage_spec *spec, dp_isolated *out) {
    *out = (dp_isolated){.oracle_share = -1.0};
    if (r->o->filter != NULL && !dp_glob(r->o->filter, spec->name)) return DFLASH_OK;
    if (!dp_evaluable(spec->stage)) return DFLASH_OK;
    const dp_recorded *recorded = dp_recording_find(&r->computed, spec->stage, spec->layer);
    out->judged = true;
    if (recorded == NULL || !dp_dims_equal(recorded->rank, recorded->dim, spec->rank, spec->dim) ||
        spec->exact != (recorded->integer != NULL))
        return DFLASH_OK; /* not shown, or something else was: not a pass */
    dp_array array = {.value = NULL};
    dflash_status status = dp_oracle_known(r->in->oracle, spec->name, &array, r->err);
    if (status == DFLASH_OK) thin_out(&array);
    const size_t count = (size_t)(array.count > 0 ? array.count : 1);
    const elements room = {malloc(count * sizeof *room.got), malloc(count * sizeof *room.want),
                           malloc(count * sizeof *room.index)};
    if (status == DFLASH_OK && (room.got == NULL || room.want == NULL || room.index == NULL))
        status = df_fail_memory(r->err, "the evaluation of a stage", count * sizeof *room.want);
    if (status == DFLASH_OK) status = judge_array(r, spec, recorded, &array, &room, out);
    free(room.got);
    free(room.want);
    free(room.index);
    dp_array_release(&array);
    return status;
}

/* ---- The whole ---- */

dflash_status dp_isolated_run(const dp_isolated_options *options, dp_isolated *out, dflash_error *err) {
    run r = {.o = options, .in = options->in, .err = err};
    const dflash_config *c = &r.in->config;
    const size_t hidden = (size_t)c->hidden;
    dflash_status status = read_oracle(&r);
    if (status == DFLASH_OK)
        status = dp_widen(r.in->taps, (size_t)r.in->context * (size_t)c->n_taps * hidden, &r.taps, err);
    if (status == DFLASH_OK) status = dp_widen(r.in->noise, (size_t)c->block * hidden, &r.noise, err);
    if (status == DFLASH_OK) status = run_forward(&r);
    if (status == DFLASH_OK) status = read_cache(&r);
    take_recorded(&r);
    if (status == DFLASH_OK) status = r.status;
    if (status == DFLASH_OK) status = collect_given(&r);
    for (int i = 0; status == DFLASH_OK && i < r.in->stages.count; i++) {
        dp_progress_share(&options->progress, (double)i / r.in->stages.count, r.in->stages.spec[i].name);
        status = judge_stage(&r, &r.in->stages.spec[i], &out[i]);
    }
    dp_recording_release(&r.computed);
    dp_stage_values_release(&r.given);
    dp_stage_values_release(&r.oracle);
    dp_stage_values_release(&r.cached);
    free(r.taps);
    free(r.noise);
    return status;
}
