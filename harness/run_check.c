/* run_check.c - see run_check.h. */
#include "run_check.h"

#include "cli.h"
#include "clock.h"
#include "error.h"
#include "geometry.h"
#include "output.h"
#include "stage_set.h"
#include "store_dataset.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int arm_chunks[] = {0, 1, 7}; /* rows per ingest call; 0 = the whole context */
enum { ARMS = sizeof arm_chunks / sizeof *arm_chunks, PATH_SIZE = 4096 };

/* Everything a check holds while it runs. */
typedef struct check {
    const dp_check_options *options;
    dp_oracle *oracle;
    df_config config;
    df_engine *engine;
    df_draft *draft;
    dp_stage_set stages;
    float *taps, *noise, *features, *result; /* inputs and outputs of the block run */
    int32_t *pos;
    int context;
    dp_recording block;
    df_error *err;
} check;

const char *dp_verdict_name(dp_verdict verdict) {
    static const char *const names[] = {"PASS", "FAIL", "REFUSED", "ERROR", "NOTHING COMPARED"};
    return names[verdict];
}

int dp_verdict_exit_code(dp_verdict verdict) {
    static const int codes[] = {DP_EXIT_PASS, DP_EXIT_FAIL, DP_EXIT_REFUSED, DP_EXIT_RUNTIME, DP_EXIT_NOTHING};
    return codes[verdict];
}

static bool selected(const check *c, const char *name) {
    return c->options->filter == NULL || dp_glob(c->options->filter, name);
}

/* ---- Before a value is compared -------------------------------------------------------------------------------- */

static df_status check_shape(const check *c, const char *what, int found_rank, const int64_t *found_dim, int rank,
                             const int64_t *dim) {
    char found[DP_DIMS_TEXT], expected[DP_DIMS_TEXT];
    if (dp_dims_equal(found_rank, found_dim, rank, dim)) return DF_OK;
    return df_fail(
        c->err, DF_ERR_REFUSED, "oracle.shape",
        "%s of %s has another shape than the checkpoint's config demands: expected %s, found %s. Use the oracle "
        "that was generated from this checkpoint.",
        what, c->options->oracle, dp_dims_text(rank, dim, expected), dp_dims_text(found_rank, found_dim, found));
}

static df_status read_input(const check *c, const char *name, int64_t rows, int64_t columns, float **out) {
    dp_array array = {.value = NULL};
    char what[64];
    snprintf(what, sizeof what, "Input %s", name);
    df_status status = dp_oracle_input(c->oracle, name, &array, c->err);
    if (status == DF_OK) status = check_shape(c, what, array.rank, array.dim, 2, (const int64_t[]){rows, columns});
    if (status == DF_OK) {
        *out = malloc((size_t)(array.count + 1) * sizeof **out);
        if (*out == NULL) status = df_fail_memory(c->err, what, (size_t)array.count * sizeof **out);
    }
    for (int64_t i = 0; status == DF_OK && i < array.count; i++) {
        (*out)[i] = (float)array.value[i];
        if ((double)(*out)[i] != array.value[i])
            status =
                df_fail(c->err, DF_ERR_REFUSED, "oracle.input.precision",
                        "%s of %s holds %.17g at element %lld, which float32 cannot hold: expected inputs that every "
                        "engine can be given exactly. Generate the oracle from inputs in float32 or bfloat16.",
                        what, c->options->oracle, array.value[i], (long long)i);
    }
    dp_array_release(&array);
    return status;
}

static df_status read_positions(check *c) {
    dp_array array = {.value = NULL};
    df_status status = dp_oracle_input(c->oracle, "positions", &array, c->err);
    if (status == DF_OK && (array.rank != 1 || array.count <= c->config.block))
        status = df_fail(c->err, DF_ERR_REFUSED, "oracle.shape",
                         "Input positions of %s must hold the context's positions and the %d of the block: found %lld "
                         "values in rank %d. Regenerate the oracle.",
                         c->options->oracle, c->config.block, (long long)array.count, array.rank);
    if (status == DF_OK) {
        c->context = (int)array.count - c->config.block;
        c->pos = malloc((size_t)array.count * sizeof *c->pos);
        if (c->pos == NULL) status = df_fail_memory(c->err, "the positions", (size_t)array.count * sizeof *c->pos);
    }
    for (int64_t i = 0; status == DF_OK && i < array.count; i++) c->pos[i] = (int32_t)array.value[i];
    dp_array_release(&array);
    return status;
}

/* Both ways: every stage that the config demands is in every run with the right shape, and there is no other. */
static df_status check_stage_list(const check *c) {
    for (int i = 0; i < c->stages.count; i++) {
        const dp_stage_spec *spec = &c->stages.spec[i];
        for (int run = 0; run < DP_RUN_COUNT; run++) {
            const dp_dataset_info *info = dp_oracle_stage_info(c->oracle, (dp_run)run, spec->name);
            if (info == NULL)
                return df_fail(
                    c->err, DF_ERR_REFUSED, "oracle.stage.missing",
                    "%s lacks stage %s of the %s run, which the checkpoint's config demands. A gate that skips "
                    "a stage cannot pass; regenerate the oracle.",
                    c->options->oracle, spec->name, dp_run_name((dp_run)run));
            const df_status status = check_shape(c, spec->name, info->rank, info->dim, spec->rank, spec->dim);
            if (status != DF_OK) return status;
        }
    }
    for (int i = 0; i < dp_oracle_stage_count(c->oracle); i++) {
        const char *name = dp_oracle_stage_name(c->oracle, i);
        if (dp_stage_set_find(&c->stages, name) == NULL)
            return df_fail(c->err, DF_ERR_REFUSED, "oracle.stage.unexpected",
                           "%s holds stage %s, which a %s model of %d layers does not have. The oracle is of another "
                           "model; use the one generated from this checkpoint.",
                           c->options->oracle, name, df_family_name(c->config.family), c->config.n_layers);
    }
    return DF_OK;
}

/*
 * A bar is a multiple of the distance between the reference's float32 and float64 runs, so an oracle in which one of
 * the two is wrong would widen its own bars until anything passes. The bfloat16 run is the yardstick: float32 rounds
 * 2^16 times finer, and a float32 run that is not at least 2^8 times closer to the truth (half of that, in bits), nor
 * within one rounding of it, is no float32 run of the same model.
 */
static df_status check_bracket(const check *c, const dp_stage_spec *spec) {
    static const double share = 0x1p-8, rounding = 0x1p-24;
    dp_array truth = {.value = NULL}, f32 = {.value = NULL}, bf16 = {.value = NULL};
    dp_difference fine, coarse;
    const int64_t row = dp_row_length(spec->stage, spec->rank, spec->dim);
    df_status status = dp_oracle_stage(c->oracle, DP_RUN_F64, spec->name, &truth, c->err);
    if (status == DF_OK) status = dp_oracle_stage(c->oracle, DP_RUN_F32, spec->name, &f32, c->err);
    if (status == DF_OK) status = dp_oracle_stage(c->oracle, DP_RUN_BF16, spec->name, &bf16, c->err);
    if (status == DF_OK) status = dp_compare(f32.value, &truth, row, &fine, c->err);
    if (status == DF_OK) status = dp_compare(bf16.value, &truth, row, &coarse, c->err);
    if (status == DF_OK && !(fine.l2_rel <= rounding || fine.l2_rel <= share * coarse.l2_rel))
        status =
            df_fail(c->err, DF_ERR_REFUSED, "oracle.bracket",
                    "Stage %s of %s: the reference's float32 run is %.3g (relative L2) from its float64 run, and its "
                    "bfloat16 run %.3g: expected the float32 run to be at least 256 times closer. One of the runs is "
                    "wrong, and a bar made of them would let anything pass. Generate the oracle again.",
                    spec->name, c->options->oracle, fine.l2_rel, coarse.l2_rel);
    dp_array_release(&truth);
    dp_array_release(&f32);
    dp_array_release(&bf16);
    return status;
}

static df_status check_brackets(const check *c) {
    df_status status = DF_OK;
    for (int i = 0; status == DF_OK && i < c->stages.count; i++) status = check_bracket(c, &c->stages.spec[i]);
    return status;
}

static df_status prepare(check *c, dp_result *out) {
    char path[PATH_SIZE];
    const dp_check_options *o = c->options;
    if (snprintf(path, sizeof path, "%s/config.json", o->checkpoint) >= PATH_SIZE)
        return df_fail(c->err, DF_ERR_ARGUMENT, "path.long", "The checkpoint path is longer than %d characters.",
                       PATH_SIZE);
    df_status status = df_config_read(path, &c->config, c->err);
    if (status == DF_OK) status = dp_oracle_open(o->oracle, &c->oracle, c->err);
    if (status == DF_OK) status = dp_geometry_check(&c->config, dp_oracle_geometry(c->oracle), o->oracle, c->err);
    if (status == DF_OK) status = read_positions(c);
    if (status == DF_OK) status = dp_stage_set_create(&c->config, c->context, &c->stages, c->err);
    if (status == DF_OK) status = check_stage_list(c);
    out->family = c->config.family;
    out->context = c->context;
    out->block = c->config.block;
    out->stages_known = c->stages.count;
    return status;
}

static df_status load(check *c, dp_result *out) {
    const df_engine_options engine = {.threads = c->options->threads, .isa = c->options->isa, .poison_scratch = true};
    double start = dp_seconds();
    df_status status = df_engine_create(&engine, &c->engine, c->err);
    if (status != DF_OK) return status;
    out->threads = df_engine_threads(c->engine);
    out->isa = df_engine_isa(c->engine);
    status = df_draft_load(c->engine, c->options->checkpoint, &c->draft, c->err);
    out->load_seconds = dp_seconds() - start;
    if (status != DF_OK) return status;
    start = dp_seconds();
    status = dp_provenance_check(c->draft, dp_oracle_provenance(c->oracle), c->options->oracle, out->threads, c->err);
    out->provenance_seconds = dp_seconds() - start;
    return status;
}

/* ---- The block run -------------------------------------------------------------------------------------------------
 */

static df_status record_cache(check *c) {
    const df_config *config = &c->config;
    const size_t width = (size_t)config->n_kv_heads * (size_t)config->head_dim, layer = (size_t)c->context * width;
    const int64_t dim[4] = {config->n_layers, c->context, config->n_kv_heads, config->head_dim};
    df_kv *kv = NULL;
    float *k = malloc(layer * (size_t)config->n_layers * sizeof *k),
          *v = malloc(layer * (size_t)config->n_layers * sizeof *v);
    df_status status = k != NULL && v != NULL ? DF_OK : df_fail_memory(c->err, "the cache's content", layer * 8);
    if (status == DF_OK) status = df_kv_create(c->draft, c->context + config->block, &kv, c->err);
    if (status == DF_OK) status = df_ingest_ctx(c->draft, kv, c->features, c->pos, c->context, c->err);
    for (int i = 0; status == DF_OK && i < config->n_layers; i++)
        status = df_kv_read(kv, i, k + (size_t)i * layer, v + (size_t)i * layer, c->err);
    if (status == DF_OK) {
        dp_recording_add(&c->block, DF_STAGE_KV_K, -1, 4, dim, k);
        dp_recording_add(&c->block, DF_STAGE_KV_V, -1, 4, dim, v);
        status = dp_recording_status(&c->block, c->err);
    }
    df_kv_destroy(kv);
    free(k);
    free(v);
    return status;
}

static df_status run_block(check *c) {
    const df_config *config = &c->config;
    const size_t hidden = (size_t)config->hidden;
    df_status status = read_input(c, "target_hidden", c->context, (int64_t)config->n_taps * config->hidden, &c->taps);
    if (status == DF_OK) status = read_input(c, "noise_embedding", config->block, config->hidden, &c->noise);
    if (status != DF_OK) return status;
    c->features = malloc((size_t)c->context * hidden * sizeof(float));
    c->result = malloc((size_t)config->block * hidden * sizeof(float));
    if (c->features == NULL || c->result == NULL) return df_fail_memory(c->err, "the run's outputs", hidden);
    df_draft_observe(c->draft, dp_recording_observe, &c->block);
    status = df_ctx_features(c->draft, c->taps, c->context, c->features, c->err);
    if (status == DF_OK)
        status = df_forward_block(c->draft, c->features, c->noise, c->pos, c->context, c->result, c->err);
    df_draft_observe(c->draft, NULL, NULL);
    if (status == DF_OK) status = record_cache(c);
    return status;
}

/* ---- Comparison ----------------------------------------------------------------------------------------------------
 */

static df_status compare_stage(const check *c, const dp_stage_spec *spec, dp_stage_result *out) {
    dp_array truth = {.value = NULL}, reference = {.value = NULL};
    double *got = NULL;
    dp_difference bracket;
    const int64_t row = dp_row_length(spec->stage, spec->rank, spec->dim);
    const dp_recorded *run = dp_recording_find(&c->block, spec->stage, spec->layer);
    *out = (dp_stage_result){.rank = spec->rank};
    memcpy(out->name, spec->name, sizeof out->name);
    memcpy(out->dim, spec->dim, sizeof out->dim);
    if (run == NULL || !dp_dims_equal(run->rank, run->dim, spec->rank, spec->dim)) {
        out->headroom = -INFINITY; /* the implementation did not show this stage, or showed another shape */
        out->difference.worst = -1;
        return DF_OK;
    }
    df_status status = dp_oracle_stage(c->oracle, DP_RUN_F64, spec->name, &truth, c->err);
    if (status == DF_OK) status = dp_oracle_stage(c->oracle, DP_RUN_F32, spec->name, &reference, c->err);
    if (status == DF_OK) status = dp_compare(reference.value, &truth, row, &bracket, c->err);
    if (status == DF_OK) status = dp_gather(run->value, &truth, &got, c->err);
    if (status == DF_OK) status = dp_compare(got, &truth, row, &out->difference, c->err);
    if (status == DF_OK) {
        out->bar = dp_bar_chained(&bracket);
        out->headroom = dp_headroom(&out->bar, &out->difference);
        out->pass = truth.count > 0 && out->headroom >= 0.0;
    }
    free(got);
    dp_array_release(&truth);
    dp_array_release(&reference);
    return status;
}

static df_status compare_stages(const check *c, dp_result *out) {
    out->stage = calloc((size_t)c->stages.count, sizeof *out->stage);
    if (out->stage == NULL) return df_fail_memory(c->err, "the results", (size_t)c->stages.count * sizeof *out->stage);
    for (int i = 0; i < c->stages.count; i++) {
        if (!selected(c, c->stages.spec[i].name)) continue;
        dp_stage_result *stage = &out->stage[out->stage_count];
        const df_status status = compare_stage(c, &c->stages.spec[i], stage);
        if (status != DF_OK) return status;
        out->stage_count++;
        if (!stage->pass) out->failed_stages++;
        if (stage->pass && stage->headroom < DP_WARN_HEADROOM) out->warnings++;
    }
    return DF_OK;
}

static void arm_name(int chunk, char name[DP_ARM_NAME]) {
    if (chunk == 0)
        snprintf(name, DP_ARM_NAME, "round.all");
    else
        snprintf(name, DP_ARM_NAME, "round.chunk%d", chunk);
}

static df_status compare_arms(const check *c, dp_result *out) {
    const dp_round_input input = {.features = c->features, .noise = c->noise, .pos = c->pos, .context = c->context};
    for (int i = 0; i < ARMS; i++) {
        dp_arm_result *arm = &out->arm[out->arm_count];
        char name[DP_ARM_NAME];
        arm_name(arm_chunks[i], name);
        if (!selected(c, name)) continue;
        const df_status status =
            dp_run_arm(c->draft, &input, &c->block, name, arm_chunks[i] > 0 ? arm_chunks[i] : c->context, arm, c->err);
        if (status != DF_OK) return status;
        out->arm_count++;
        if (!arm->identical) out->failed_arms++;
    }
    return DF_OK;
}

/* ---- The whole -----------------------------------------------------------------------------------------------------
 */

static void check_release(check *c) {
    dp_recording_release(&c->block);
    dp_stage_set_release(&c->stages);
    free(c->taps);
    free(c->noise);
    free(c->features);
    free(c->result);
    free(c->pos);
    df_draft_destroy(c->draft);
    df_engine_destroy(c->engine);
    dp_oracle_close(c->oracle);
}

static dp_verdict verdict_of(df_status status, const dp_result *result) {
    if (status == DF_ERR_REFUSED || status == DF_ERR_ARGUMENT) return DP_REFUSED;
    if (status != DF_OK) return DP_ERROR;
    if (result->stage_count + result->arm_count == 0) return DP_NOTHING;
    return result->failed_stages + result->failed_arms > 0 ? DP_FAIL : DP_PASS;
}

void dp_check(const dp_check_options *options, dp_result *out) {
    *out = (dp_result){.options = options, .isa = ""};
    check c = {.options = options, .err = &out->error};
    const double start = dp_seconds();
    df_status status = prepare(&c, out);
    if (status == DF_OK) status = check_brackets(&c);
    if (status == DF_OK) status = load(&c, out);
    const double forward = dp_seconds();
    if (status == DF_OK) status = run_block(&c);
    out->forward_seconds = dp_seconds() - forward;
    if (status == DF_OK) status = compare_stages(&c, out);
    if (status == DF_OK) status = compare_arms(&c, out);
    out->verdict = verdict_of(status, out);
    check_release(&c);
    out->total_seconds = dp_seconds() - start;
}

void dp_result_release(dp_result *result) {
    free(result->stage);
    result->stage = NULL;
    result->stage_count = 0;
}

const dp_stage_result *dp_worst_stage(const dp_result *result) {
    const dp_stage_result *worst = NULL;
    for (int i = 0; i < result->stage_count; i++)
        if (worst == NULL || result->stage[i].headroom < worst->headroom) worst = &result->stage[i];
    return worst;
}

int dp_check_list(const dp_check_options *options) {
    df_error err = {.status = DF_OK};
    dp_result result = {.options = options};
    check c = {.options = options, .err = &err};
    int listed = 0;
    const df_status status = prepare(&c, &result);
    for (int i = 0; status == DF_OK && i < c.stages.count; i++)
        if (selected(&c, c.stages.spec[i].name)) listed += printf("%s\n", c.stages.spec[i].name) > 0;
    for (int i = 0; status == DF_OK && i < ARMS; i++) {
        char name[DP_ARM_NAME];
        arm_name(arm_chunks[i], name);
        if (selected(&c, name)) listed += printf("%s\n", name) > 0;
    }
    check_release(&c);
    if (status != DF_OK) return dp_report_error("check", &err);
    if (listed == 0)
        fprintf(stderr, "dflash-parity check: the filter '%s' matches no stage and no round; run --list without -k.\n",
                options->filter != NULL ? options->filter : "");
    return dp_finish_output("check", listed > 0 ? DP_EXIT_PASS : DP_EXIT_NOTHING);
}
