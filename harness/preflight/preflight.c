/* preflight.c - see preflight.h. */
#include "preflight/preflight.h"

#include "preflight/reference_spread.h"
#include "config/config_limits.h"
#include "preflight/embedding.h"
#include "limits/envelope.h"
#include "common/error.h"
#include "preflight/geometry.h"
#include "preflight/ids.h"
#include "store/request.h"
#include "preflight/resolve.h"
#include "base/sha256.h"
#include "base/shortest.h"
#include "preflight/sketch_check.h"
#include "preflight/spread.h"
#include "store/store_dataset.h"
#include "base/text_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_SIZE = 4096 };

static dflash_status check_shape(const dp_preflight *a, const char *what, int found_rank, const int64_t *found_dim,
                                 int rank, const int64_t *dim, dflash_error *err) {
    char found[DP_DIMS_TEXT], expected[DP_DIMS_TEXT];
    if (dp_dims_equal(found_rank, found_dim, rank, dim)) return DFLASH_OK;
    return df_fail(
        err, DFLASH_ERR_REFUSED, "oracle.shape",
        "%s of %s has another shape than the checkpoint's config demands: expected %s, found %s. Use the oracle "
        "that was generated from this checkpoint.",
        what, dp_oracle_path(a->oracle), dp_dims_text(rank, dim, expected), dp_dims_text(found_rank, found_dim, found));
}

static dflash_status read_input(const dp_preflight *a, const char *name, int64_t rows, int64_t columns, float **out,
                                dflash_error *err) {
    dp_array array = {.value = NULL};
    char what[64], value[DP_SHORTEST_TEXT];
    snprintf(what, sizeof what, "Input %s", name);
    dflash_status status = dp_oracle_input(a->oracle, name, &array, err);
    if (status == DFLASH_OK)
        status = check_shape(a, what, array.rank, array.dim, 2, (const int64_t[]){rows, columns}, err);
    if (status == DFLASH_OK) {
        *out = malloc((size_t)(array.count + 1) * sizeof **out);
        if (*out == NULL) status = df_fail_memory(err, what, (size_t)array.count * sizeof **out);
    }
    for (int64_t i = 0; status == DFLASH_OK && i < array.count; i++) {
        (*out)[i] = (float)array.value[i];
        if ((double)(*out)[i] != array.value[i])
            status = df_fail(err, DFLASH_ERR_REFUSED, "oracle.input.precision",
                             "%s of %s holds %s at element %lld, which float32 cannot hold: expected inputs that every "
                             "engine can be given exactly. Generate the oracle from inputs in float32 or bfloat16.",
                             what, dp_oracle_path(a->oracle), dp_shortest(array.value[i], value, sizeof value),
                             (long long)i);
    }
    dp_array_release(&array);
    return status;
}

static dflash_status read_positions(dp_preflight *a, dflash_error *err) {
    dp_array array = {.value = NULL};
    dflash_status status = dp_oracle_input(a->oracle, "positions", &array, err);
    if (status == DFLASH_OK && (array.rank != 1 || array.count <= a->config.block))
        status = df_fail(err, DFLASH_ERR_REFUSED, "oracle.shape",
                         "Input positions of %s must hold the context's positions and the %d of the block: found %lld "
                         "values in rank %d. Regenerate the oracle.",
                         dp_oracle_path(a->oracle), a->config.block, (long long)array.count, array.rank);
    if (status == DFLASH_OK) {
        a->context = (int)array.count - a->config.block;
        a->pos = malloc((size_t)array.count * sizeof *a->pos);
        if (a->pos == NULL) status = df_fail_memory(err, "the positions", (size_t)array.count * sizeof *a->pos);
    }
    for (int64_t i = 0; status == DFLASH_OK && i < array.count; i++) a->pos[i] = (int32_t)array.value[i];
    dp_array_release(&array);
    return status;
}

/* The number of rows of the head that the reference ran, 0 when it ran none. */
static dflash_status head_rows(const dp_preflight *a, int *rows, dflash_error *err) {
    const cJSON *head = cJSON_GetObjectItemCaseSensitive(dp_oracle_provenance(a->oracle), "head");
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(head, "shape");
    const double vocab = cJSON_GetNumberValue(cJSON_GetArrayItem(shape, 0));
    const bool anchored = dp_oracle_input_info(a->oracle, "anchor") != NULL;
    *rows = 0;
    if (anchored && cJSON_GetArraySize(shape) == 2 && vocab >= 1 && vocab <= INT32_MAX) {
        *rows = (int)vocab;
        return DFLASH_OK;
    }
    if (anchored || head != NULL)
        return df_fail(
            err, DFLASH_ERR_REFUSED, "provenance.head.missing",
            "%s holds %s: expected the input anchor and a provenance record head {tensor, dtype, shape, sha256} "
            "together, or neither. Write the oracle again as oracles/FORMAT.md says.",
            dp_oracle_path(a->oracle),
            anchored ? "an anchor and no complete head record" : "a head record and no anchor");
    if (a->config.family == DFLASH_FAMILY_DFLASH) return DFLASH_OK;
    return df_fail(
        err, DFLASH_ERR_REFUSED, "oracle.head.missing",
        "%s ran no output head, so the stages that make a %s drafter what it is are not in it. Generate it from "
        "a checkpoint with a head.",
        dp_oracle_path(a->oracle), dflash_family_name(a->config.family));
}

static dflash_status read_anchor(dp_preflight *a, dflash_error *err) {
    dp_array array = {.value = NULL};
    dflash_status status = dp_oracle_input(a->oracle, "anchor", &array, err);
    if (status == DFLASH_OK && array.rank == 1 && array.count == 1)
        a->anchor = (int32_t)array.value[0];
    else if (status == DFLASH_OK)
        status =
            df_fail(err, DFLASH_ERR_REFUSED, "oracle.shape",
                    "Input anchor of %s must be one token id: found %lld values in rank %d. Generate the oracle again.",
                    dp_oracle_path(a->oracle), (long long)array.count, array.rank);
    dp_array_release(&array);
    return status;
}

static dflash_status check_precision(const dp_preflight *a, dflash_precision precision, dflash_error *err) {
    const cJSON *record = cJSON_GetObjectItemCaseSensitive(dp_oracle_provenance(a->oracle), "precision");
    const char *found = record == NULL ? "stored" : record->valuestring;
    const char *expected = dflash_precision_name(precision);
    if (strcmp(found, expected) == 0) return DFLASH_OK;
    return df_fail(
        err, DFLASH_ERR_REFUSED, "provenance.precision",
        "The check runs the weights in precision %s, but %s was computed with %s. Give --precision %s, or the "
        "oracle of that mode.",
        expected, dp_oracle_path(a->oracle), found, found);
}

/* Both ways: every stage that the config demands is in every run with the right shape, and there is no other. */
static dflash_status check_stage_list(const dp_preflight *a, dflash_error *err) {
    for (int i = 0; i < a->stages.count; i++) {
        const dp_stage_spec *spec = &a->stages.spec[i];
        for (int run = 0; run < DP_RUN_COUNT; run++) {
            const dp_dataset_info *info = dp_oracle_stage_info(a->oracle, (dp_run)run, spec->name);
            if (info == NULL)
                return df_fail(
                    err, DFLASH_ERR_REFUSED, "oracle.stage.missing",
                    "%s lacks stage %s of the %s run, which the checkpoint's config demands. A gate that skips "
                    "a stage cannot pass; regenerate the oracle.",
                    dp_oracle_path(a->oracle), spec->name, dp_run_name((dp_run)run));
            const dflash_status status = check_shape(a, spec->name, info->rank, info->dim, spec->rank, spec->dim, err);
            if (status != DFLASH_OK) return status;
        }
    }
    for (int i = 0; i < dp_oracle_stage_count(a->oracle); i++) {
        const char *name = dp_oracle_stage_name(a->oracle, i);
        if (dp_stage_set_find(&a->stages, name) == NULL)
            return df_fail(err, DFLASH_ERR_REFUSED, "oracle.stage.unexpected",
                           "%s holds stage %s, which a %s model of %d layers does not have. The oracle is of another "
                           "model; use the one generated from this checkpoint.",
                           dp_oracle_path(a->oracle), name, dflash_family_name(a->config.family), a->config.n_layers);
    }
    return DFLASH_OK;
}

/* A sampled stage is judged by its sketch too, whose L2 is that of the whole stage, where the samples are a few of it.
 */
static dflash_status check_sketch(const dp_preflight *a, const dp_stage_spec *spec, dp_difference *fine,
                                  dp_difference *coarse, dp_difference *sketch, dp_spread *spread, double *most_in_row,
                                  double ceiling, dflash_error *err) {
    dp_difference half;
    dp_contradiction wrong;
    TRY(dp_sketch_check(a->oracle, spec, err));
    TRY(dp_sketch_reference_spreads(a->oracle, spec, sketch, &half, &spread->own.l2, err));
    fine->l2_rel = sketch->l2_rel;
    coarse->l2_rel = half.l2_rel;
    coarse->rows = half.rows;
    spread->own_rows = sketch->rows;
    fine->largest_in_row = fmax(fine->largest_in_row, 1.0); /* its row's largest element has its rms at least, */
    *most_in_row = sqrt((double)dp_row_length(spec->stage, spec->rank, spec->dim)); /* and its norm at most */
    /* The largest of a few samples is not the stage's, which `fine` counts: that follows from the row's own error. */
    coarse->max_rel = fmax(coarse->max_rel, fmin(dp_rule_value(DP_RULE_PEAK), *most_in_row) * half.max_rel);
    if (!dp_runs_contradict(sketch, &half, ceiling, &wrong)) return DFLASH_OK;
    return df_fail(
        err, DFLASH_ERR_REFUSED, "oracle.bracket",
        "Stage %s of %s: the sketches of the reference's float32 and float64 runs are %.3g (%s) apart: expected at "
        "most %.3g. One of them is not of its run. Generate the oracle again.",
        spec->name, dp_oracle_path(a->oracle), wrong.found, wrong.measure, wrong.allowed);
}

/*
 * A limit is a multiple of the distance between the reference's float32 runs and its float64 run, so an oracle in which
 * one of the runs is wrong would widen its own limits until anything passes (envelope.h says what contradicts what).
 * The distance is kept: the limits are made of it.
 */
static dflash_status check_reference_spread(const dp_preflight *a, const dp_stage_spec *spec, dp_difference *fine,
                                            dp_difference *sketch, dp_spread *spread, double ceiling,
                                            dflash_error *err) {
    dp_array truth = {.value = NULL}, bf16 = {.value = NULL};
    dp_difference coarse, judged;
    dp_contradiction wrong;
    const int64_t row = dp_row_length(spec->stage, spec->rank, spec->dim);
    dflash_status status = dp_oracle_stage(a->oracle, DP_RUN_F64, spec->name, &truth, err);
    if (status == DFLASH_OK) status = dp_oracle_stage(a->oracle, DP_RUN_BF16, spec->name, &bf16, err);
    if (status == DFLASH_OK) status = dp_reference_spread_measure(a->oracle, spec, &truth, fine, spread, err);
    if (status == DFLASH_OK) status = dp_compare(bf16.value, &truth, row, &coarse, err);
    double most_in_row = status == DFLASH_OK ? fine->largest_in_row : 0.0;
    /* one number that happened to round well is no yardstick: a run in bfloat16 loses a rounding (tables are float32)
     */
    const bool table = spec->stage == DFLASH_STAGE_ROPE_COS || spec->stage == DFLASH_STAGE_ROPE_SIN;
    const double least = table ? 0.0 : dp_rule_value(DP_RULE_BF16_ROUNDING);
    if (status == DFLASH_OK && truth.rms != NULL)
        status = check_sketch(a, spec, fine, &coarse, sketch, spread, &most_in_row, ceiling, err);
    judged = *fine; /* what is claimed of the elements that are not seen may lie at their largest */
    judged.largest_in_row = most_in_row;
    if (status == DFLASH_OK) spread->coarse = (dp_distance){coarse.l2_rel, coarse.max_rel};
    if (status == DFLASH_OK) spread->rows = coarse.rows;
    if (status == DFLASH_OK && spec->stage == DFLASH_STAGE_ROPE_INV_FREQ)
        status = dp_reference_spread_frequencies(a->oracle, &a->config.rope, spec, &truth, err);
    else if (status == DFLASH_OK && dp_runs_contradict(&judged,
                                                       &(dp_difference){.l2_rel = fmax(coarse.l2_rel, least),
                                                                        .max_rel = fmax(coarse.max_rel, least)},
                                                       ceiling, &wrong)) {
        status = df_fail(err, DFLASH_ERR_REFUSED, "oracle.bracket",
                         "Stage %s of %s: the reference's float32 runs are %.3g (%s) from its float64 run: expected "
                         "at most %.3g, one float32 rounding or %g of the bfloat16 run's distance (%.3g L2, %.3g "
                         "largest). One of the runs is wrong, and a limit made of them would let anything pass. "
                         "Generate the oracle again.",
                         spec->name, dp_oracle_path(a->oracle), wrong.found, wrong.measure, wrong.allowed, wrong.share,
                         coarse.l2_rel, coarse.max_rel);
    }
    dp_array_release(&truth);
    dp_array_release(&bf16);
    return status;
}

/* Ids on which the reference's own precisions disagree are near ties, and judge nobody. */
static dflash_status check_integers(const dp_preflight *a, const dp_stage_spec *spec, dflash_error *err) {
    dp_array truth = {.value = NULL}, f32 = {.value = NULL};
    dflash_status status = dp_oracle_stage(a->oracle, DP_RUN_F64, spec->name, &truth, err);
    if (status == DFLASH_OK) status = dp_oracle_stage(a->oracle, DP_RUN_F32, spec->name, &f32, err);
    for (int64_t i = 0; status == DFLASH_OK && i < truth.count; i++)
        if (truth.value[i] != f32.value[i])
            status =
                df_fail(err, DFLASH_ERR_REFUSED, "oracle.integers",
                        "Stage %s of %s: element %lld is %.0f in the reference's float64 run and %.0f in its float32 "
                        "run: expected the same integers. The input is a near tie; generate the oracle with another "
                        "seed.",
                        spec->name, dp_oracle_path(a->oracle), (long long)i, truth.value[i], f32.value[i]);
    dp_array_release(&truth);
    dp_array_release(&f32);
    return status;
}

dflash_status dp_preflight_spreads(dp_preflight *a, dflash_error *err) {
    dflash_status status = DFLASH_OK;
    dp_spread *spread = calloc((size_t)a->stages.count, sizeof *spread);
    a->reference_spread = calloc((size_t)a->stages.count, sizeof *a->reference_spread);
    a->sketch = calloc((size_t)a->stages.count, sizeof *a->sketch);
    if (a->reference_spread == NULL || a->sketch == NULL || spread == NULL)
        status = df_fail_memory(err, "the reference's reference spreads",
                                (size_t)a->stages.count * sizeof *a->reference_spread);
    for (int i = 0; status == DFLASH_OK && i < a->stages.count; i++) {
        const dp_stage_spec *spec = &a->stages.spec[i];
        status = spec->exact ? check_integers(a, spec, err)
                             : check_reference_spread(a, spec, &a->reference_spread[i], &a->sketch[i], &spread[i],
                                                      dp_spread_ceiling(&a->config, &a->stages, spread, i), err);
    }
    if (status == DFLASH_OK) status = dp_spread_check(dp_oracle_path(a->oracle), &a->config, &a->stages, spread, err);
    free(spread);
    return status;
}

/* Reads the config twice, as the drafter does and for the harness, and opens the oracle. */
static dflash_status open_both(dp_preflight *a, const char *checkpoint, const char *oracle, dflash_error *err) {
    char path[PATH_SIZE], *text = NULL;
    if (snprintf(path, sizeof path, "%s/config.json", checkpoint) >= PATH_SIZE)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "path.long", "The checkpoint path is longer than %d characters.",
                       PATH_SIZE);
    dflash_status status = dflash_config_read(path, &a->config, err);
    if (status == DFLASH_OK) status = dp_text_file_read(path, DF_LIMIT_CONFIG_BYTES, &text, err);
    if (status == DFLASH_OK) status = dp_resolve(text, path, &a->resolved, err);
    if (status == DFLASH_OK) {
        dp_sha256_of(text, strlen(text), a->config_sha256);
        status = dp_oracle_open(oracle, &a->oracle, err);
    }
    free(text);
    return status;
}

/* A config that agrees in every field of the record may still differ in a key that some reader follows. */
static dflash_status check_config_digest(const dp_preflight *a, const char *checkpoint, dflash_error *err) {
    const char *found =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(dp_oracle_provenance(a->oracle), "config_sha256"));
    if (strcmp(found, a->config_sha256) == 0) return DFLASH_OK;
    return df_fail(
        err, DFLASH_ERR_REFUSED, "provenance.config",
        "%s/config.json is not the file that %s was computed from: its SHA-256 is %s, the oracle records %s. "
        "Every field of the geometry agrees, so it differs in a key that is not one of them, or in its "
        "form. Put the old config.json back, or generate the oracle again (inspect shows its command).",
        checkpoint, dp_oracle_path(a->oracle), a->config_sha256, found);
}

static dflash_status read_inputs(dp_preflight *a, dflash_error *err) {
    const int64_t taps = (int64_t)a->config.n_taps * a->config.hidden;
    const dflash_status status = read_input(a, "target_hidden", a->context, taps, &a->taps, err);
    return status == DFLASH_OK ? read_input(a, "noise_embedding", a->config.block, a->config.hidden, &a->noise, err)
                               : status;
}

dflash_status dp_preflight_files(const char *checkpoint, const char *oracle, dflash_precision precision,
                                 dp_preflight *out, dflash_error *err) {
    *out = (dp_preflight){.oracle = NULL};
    dflash_status status = open_both(out, checkpoint, oracle, err);
    if (status == DFLASH_OK) status = dp_geometry_check(out->resolved, dp_oracle_geometry(out->oracle), oracle, err);
    if (status == DFLASH_OK) status = check_config_digest(out, checkpoint, err);
    return status == DFLASH_OK ? check_precision(out, precision, err) : status;
}

dflash_status dp_preflight_content(const char *checkpoint, dp_preflight *out, dflash_error *err) {
    dflash_status status = dp_geometry_check_reading(out->resolved, &out->config, checkpoint, err);
    if (status == DFLASH_OK) status = read_positions(out, err);
    if (status == DFLASH_OK) status = head_rows(out, &out->vocab, err);
    if (status == DFLASH_OK && out->vocab > 0) status = read_anchor(out, err);
    if (status == DFLASH_OK) status = dp_embedding_preflight(out, err);
    const dp_stage_input input = {
        .context = out->context, .vocab = out->vocab, .embedded = status == DFLASH_OK && out->ids != NULL};
    if (status == DFLASH_OK) status = dp_stage_set_create(&out->config, &input, &out->stages, err);
    if (status == DFLASH_OK) status = check_stage_list(out, err);
    const dp_ids_subject ids = {out->oracle, &out->config, &out->stages, out->vocab};
    if (status == DFLASH_OK) status = dp_ids_check(&ids, err);
    if (status == DFLASH_OK) status = read_inputs(out, err);
    if (status == DFLASH_OK) status = dp_request_check(out->oracle, out->context, out->pos, err);
    if (status == DFLASH_OK) status = dp_embedding_agrees(out, err);
    if (status == DFLASH_OK) status = dp_preflight_spreads(out, err);
    return status;
}

dflash_status dp_preflight_run(const char *checkpoint, const char *oracle, dflash_precision precision,
                               dp_preflight *out, dflash_error *err) {
    const dflash_status status = dp_preflight_files(checkpoint, oracle, precision, out, err);
    return status == DFLASH_OK ? dp_preflight_content(checkpoint, out, err) : status;
}

void dp_preflight_release(dp_preflight *preflight) {
    dp_oracle_close(preflight->oracle);
    cJSON_Delete(preflight->resolved);
    dp_stage_set_release(&preflight->stages);
    free(preflight->reference_spread);
    free(preflight->sketch);
    free(preflight->taps);
    free(preflight->noise);
    free(preflight->ids);
    free(preflight->pos);
}
