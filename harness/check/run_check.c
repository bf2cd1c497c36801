/* run_check.c - see run_check.h. */
#include "check/run_check.h"

#include "limits/bounds.h"
#include "preflight/preflight.h"
#include "base/cli.h"
#include "base/clock.h"
#include "model/model.h"
#include "preflight/embedding.h"
#include "common/error.h"
#include "engine/engine.h"
#include "judge/float32_run.h"
#include "preflight/geometry.h"
#include "run/hosted.h"
#include "preflight/manifest.h"
#include "base/output.h"
#include "check/plot_collect.h"
#include "run/proposal.h"
#include "store/request.h"
#include "judge/round_variants.h"
#include "store/store_sketch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where each part of a check begins, as a share of its time. Measured on a full-size drafter; only the time left that
 * is shown hangs on it. */
static const double PROVENANCE = 0.06, FORWARD = 0.40, ALONE = 0.45, ROUNDS = 0.92;

enum { PATH_SIZE = 4096 };

/* Everything a check holds while it runs. */
typedef struct check {
    const dp_check_options *options;
    dp_preflight in; /* the oracle, the config, the stages, the inputs */
    dflash_engine *engine;
    dflash_draft *draft;
    dflash_table *head, *embedding; /* NULL when the oracle ran none */
    dflash_engine *host_engine;     /* with the next two: NULL where the run's own will do */
    dflash_draft *host_copy;
    dflash_table *host_head, *host_embedding;
    float *features, *noise, *result; /* [context, H], [B, H], [B, H] of the block run */
    dp_recording block;
    dflash_error *err;
} check;

const char *dp_verdict_name(dp_verdict verdict) {
    static const char *const names[] = {"PASS", "FAIL", "REFUSED", "ERROR", "NOTHING COMPARED"};
    return names[verdict];
}

int dp_verdict_exit_code(dp_verdict verdict) {
    static const int codes[] = {DP_EXIT_PASS, DP_EXIT_FAIL, DP_EXIT_REFUSED, DP_EXIT_RUNTIME, DP_EXIT_NOTHING};
    return codes[verdict];
}

dp_verdict dp_worse_verdict(dp_verdict a, dp_verdict b) {
    static const int severity[] = {[DP_PASS] = 0, [DP_NOTHING] = 1, [DP_FAIL] = 2, [DP_REFUSED] = 3, [DP_ERROR] = 4};
    return severity[b] > severity[a] ? b : a;
}

static bool selected(const check *c, const char *name) {
    return c->options->filter == NULL || dp_glob(c->options->filter, name);
}

static dflash_status preflight(check *c, dp_result *out) {
    const dp_check_options *o = c->options;
    dflash_status status = dp_preflight_files(o->checkpoint, o->oracle, o->precision, &c->in, c->err);
    if (status == DFLASH_OK && o->signature != NULL)
        status = dp_manifest_check_provenance(o->signature, dp_oracle_provenance(c->in.oracle), o->oracle, c->err);
    if (status == DFLASH_OK && o->entry != NULL) status = dp_request_check_case(o->entry, c->in.oracle, c->err);
    if (status == DFLASH_OK && o->fault != NULL) o->fault(&c->in.config);
    if (status == DFLASH_OK) status = dp_preflight_content(o->checkpoint, &c->in, c->err);
    out->family = c->in.config.family;
    out->context = c->in.context;
    out->block = c->in.config.block;
    out->stages_known = c->in.stages.count;
    return status == DFLASH_OK && o->report ? dp_facts_of_preflight(&c->in, &out->facts, c->err) : status;
}

/* ---- Loading ---- */

/* A device's weights cannot be read from here, and an altered drafter is no authority: the formulas of isolated.h are
 * evaluated from a copy on the CPU. */
static dflash_status load_host_copy(check *c) {
    const dflash_engine_options cpu = {.threads = c->options->threads};
    dflash_status status = dflash_engine_create(&cpu, &c->host_engine, c->err);
    if (status == DFLASH_OK)
        status =
            dflash_draft_load_as(c->host_engine, c->options->checkpoint, c->options->precision, &c->host_copy, c->err);
    if (status == DFLASH_OK && c->in.vocab > 0)
        status =
            dp_head_load(c->host_engine, c->options->checkpoint, c->options->head, c->in.oracle, &c->host_head, c->err);
    return status == DFLASH_OK
               ? dp_embedding_load(c->host_engine, c->options->checkpoint, &c->in, &c->host_embedding, c->err)
               : status;
}

static dflash_status load(check *c, dp_result *out) {
    const dflash_engine_options engine = {.backend = c->options->backend,
                                          .numeric_class = c->options->numeric_class,
                                          .products = c->options->products,
                                          .device = c->options->device,
                                          .threads = c->options->threads,
                                          .isa = c->options->isa,
                                          .poison_scratch = true};
    double start = dp_seconds();
    dp_progress_share(&c->options->progress, 0.0, "loading weights");
    dflash_status status = dflash_engine_create(&engine, &c->engine, c->err);
    if (status != DFLASH_OK) return status;
    out->threads = dflash_engine_threads(c->engine);
    out->isa = dflash_engine_isa(c->engine);
    dflash_engine_describe(c->engine, &out->device);
    const dp_check_options *o = c->options;
    status = o->altered != NULL
                 ? df_draft_load_config(c->engine, o->checkpoint, o->precision, o->altered, &c->draft, c->err)
                 : dflash_draft_load_as(c->engine, o->checkpoint, o->precision, &c->draft, c->err);
    out->load_seconds = dp_seconds() - start;
    if (status != DFLASH_OK) return status;
    start = dp_seconds();
    dp_progress_share(&c->options->progress, PROVENANCE, "hashing weights");
    dp_head_loading head;
    if (c->in.vocab > 0) dp_head_begin(c->engine, o->checkpoint, o->head, c->in.oracle, &head);
    status = dp_provenance_check(c->draft, dp_oracle_provenance(c->in.oracle), o->oracle, out->threads, c->err);
    if (status == DFLASH_OK && o->report)
        status = dp_facts_of_tensors(dp_oracle_provenance(c->in.oracle), &out->facts, c->err);
    if (c->in.vocab > 0) {
        const dflash_status loaded = dp_head_end(&head, &c->head, status == DFLASH_OK ? c->err : NULL);
        if (status == DFLASH_OK) status = loaded;
    }
    if (c->head != NULL) snprintf(out->head, sizeof out->head, "%s", dflash_table_view(c->head).name);
    if (status == DFLASH_OK)
        status = dp_embedding_load(c->engine, c->options->checkpoint, &c->in, &c->embedding, c->err);
    if (status == DFLASH_OK && (o->altered != NULL || !dflash_engine_on_host(c->engine))) status = load_host_copy(c);
    if (status == DFLASH_OK && c->in.vocab == 0 && c->options->head != NULL)
        status =
            df_fail(c->err, DFLASH_ERR_REFUSED, "oracle.head.unused",
                    "An output head was given (%s), but the reference of %s ran none, so nothing would be compared "
                    "with it. Leave --lm-head out, or give the oracle of a run with a head.",
                    c->options->head, c->options->oracle);
    out->provenance_seconds = dp_seconds() - start;
    return status;
}

/* ---- The block run ---- */

static dflash_status record_cache(check *c) {
    const dflash_config *config = &c->in.config;
    const size_t width = (size_t)config->n_kv_heads * (size_t)config->head_dim, layer = (size_t)c->in.context * width;
    const int64_t dim[4] = {config->n_layers, c->in.context, config->n_kv_heads, config->head_dim};
    dflash_kv *kv = NULL;
    float *k = malloc(layer * (size_t)config->n_layers * sizeof *k),
          *v = malloc(layer * (size_t)config->n_layers * sizeof *v);
    dflash_status status =
        k != NULL && v != NULL ? DFLASH_OK : df_fail_memory(c->err, "the cache's content", layer * 8);
    if (status == DFLASH_OK) status = dflash_kv_create(c->draft, c->in.context + config->block, &kv, c->err);
    if (status == DFLASH_OK) status = dp_ingest_ctx(c->draft, kv, c->features, c->in.pos, c->in.context, c->err);
    for (int i = 0; status == DFLASH_OK && i < config->n_layers; i++)
        status = dflash_kv_read(kv, i, k + (size_t)i * layer, v + (size_t)i * layer, c->err);
    if (status == DFLASH_OK) {
        dflash_stage_view view = {.stage = DFLASH_STAGE_KV_K, .layer = -1, .rank = 4, .f32 = k};
        memcpy(view.dim, dim, sizeof dim);
        dp_recording_add(&c->block, &view);
        view.stage = DFLASH_STAGE_KV_V;
        view.f32 = v;
        dp_recording_add(&c->block, &view);
        status = dp_recording_status(&c->block, c->err);
    }
    dflash_kv_destroy(kv);
    free(k);
    free(v);
    return status;
}

static dflash_status run_block(check *c) {
    const dflash_config *config = &c->in.config;
    const size_t hidden = (size_t)config->hidden;
    c->features = malloc((size_t)c->in.context * hidden * sizeof(float));
    c->result = malloc((size_t)config->block * hidden * sizeof(float));
    c->noise = malloc((size_t)config->block * hidden * sizeof(float));
    if (c->features == NULL || c->result == NULL || c->noise == NULL)
        return df_fail_memory(c->err, "the run's outputs", hidden);
    dflash_draft_observe(c->draft, dp_recording_observe, &c->block);
    dflash_status status = dp_ctx_features(c->draft, c->in.taps, c->in.context, c->features, c->err);
    if (status == DFLASH_OK) status = dp_embedding_run(c->draft, c->embedding, &c->in, c->noise, c->err);
    if (status == DFLASH_OK)
        status = dp_forward_block(c->draft, c->features, c->noise, c->in.pos, c->in.context, c->result, c->err);
    dflash_draft_observe(c->draft, NULL, NULL);
    if (status == DFLASH_OK && c->head != NULL)
        status = dp_run_judged_proposal(c->draft, c->head, c->result, c->in.anchor, &c->block, c->err);
    if (status == DFLASH_OK) status = record_cache(c);
    return status;
}

/* ---- Comparison ---- */

/* Ids and counts: equal or not. The first that differs is named as the worst. */
static dflash_status compare_exact(const check *c, const dp_stage_spec *spec, const dp_recorded *run,
                                   dp_stage_result *out) {
    dp_array truth = {.value = NULL};
    dp_difference *d = &out->difference;
    const dflash_status status = dp_oracle_stage(c->in.oracle, DP_RUN_F64, spec->name, &truth, c->err);
    d->count = truth.count;
    for (int64_t i = 0; status == DFLASH_OK && i < truth.count; i++) {
        const int64_t at = truth.offset + i * truth.stride;
        const double got = run->integer[at], want = truth.value[i];
        if (got == want) continue;
        if (d->mismatches++ > 0) continue;
        d->worst = at;
        d->worst_got = got;
        d->worst_want = want;
    }
    out->pass = status == DFLASH_OK && truth.count > 0 && d->mismatches == 0;
    out->headroom = out->pass ? 1.0 : -INFINITY;
    dp_array_release(&truth);
    return status;
}

/* Every value that the oracle holds, and what it says of the others. */
static dflash_status compare_stage(const check *c, int number, dp_stage_result *out) {
    const dp_stage_spec *spec = &c->in.stages.spec[number];
    const dp_difference *reference_spread = &c->in.reference_spread[number];
    dp_array truth = {.value = NULL};
    double *got = NULL;
    const int64_t row = dp_row_length(spec->stage, spec->rank, spec->dim);
    const dp_recorded *run = dp_recording_find(&c->block, spec->stage, spec->layer);
    *out = (dp_stage_result){.rank = spec->rank, .exact = spec->exact};
    memcpy(out->name, spec->name, sizeof spec->name);
    memcpy(out->dim, spec->dim, sizeof out->dim);
    out->difference.worst = -1;
    if (run == NULL || !dp_dims_equal(run->rank, run->dim, spec->rank, spec->dim) ||
        spec->exact != (run->integer != NULL)) {
        out->headroom = -INFINITY; /* the implementation did not show this stage, or showed something else */
        return DFLASH_OK;
    }
    if (spec->exact) return compare_exact(c, spec, run, out);
    const double coarseness = dp_class_coarseness(c->options->numeric_class);
    dflash_status status = dp_oracle_known(c->in.oracle, spec->name, &truth, c->err);
    if (status == DFLASH_OK) status = dp_gather(run->value, &truth, &got, c->err);
    if (status == DFLASH_OK) status = dp_compare(got, &truth, row, &out->difference, c->err);
    if (status == DFLASH_OK)
        status =
            dp_sketch_judge(c->in.oracle, spec, run->value, &c->in.sketch[number], coarseness, &out->sketch, c->err);
    if (status == DFLASH_OK) {
        out->limit = dp_limit_chained(spec, reference_spread, coarseness);
        if (out->sketch.judged) out->difference.l2_rel = out->sketch.l2_rel;
        out->headroom = dp_headroom(&out->limit, &out->difference);
        if (out->sketch.judged) out->headroom = fmin(out->headroom, out->sketch.headroom);
        out->pass = truth.count > 0 && dp_headroom_passes(out->headroom);
    }
    free(got);
    dp_array_release(&truth);
    return status;
}

static dflash_status compare_stages(const check *c, dp_result *out) {
    out->stage = calloc((size_t)c->in.stages.count, sizeof *out->stage);
    if (out->stage == NULL)
        return df_fail_memory(c->err, "the results", (size_t)c->in.stages.count * sizeof *out->stage);
    for (int i = 0; i < c->in.stages.count; i++) {
        if (!selected(c, c->in.stages.spec[i].name)) continue;
        dp_stage_result *stage = &out->stage[out->stage_count];
        const dflash_status status = compare_stage(c, i, stage);
        if (status != DFLASH_OK) return status;
        out->stage_count++;
        if (!stage->pass) out->failed_stages++;
        stage->warn = stage->pass && stage->headroom < DP_WARN_HEADROOM;
        out->warnings += stage->warn;
    }
    return DFLASH_OK;
}

/* Each stage alone. A run of the whole that only compares rounds has none. */
static dflash_status run_isolated(const check *c, dp_result *out) {
    if (out->stage_count == 0) return DFLASH_OK;
    const size_t count = (size_t)c->in.stages.count;
    dp_isolated *isolated = calloc(count, sizeof *isolated);
    if (isolated == NULL) return df_fail_memory(c->err, "the results of the stages alone", count * sizeof *isolated);
    const dp_isolated_options options = {.engine = c->engine,
                                         .draft = c->draft,
                                         .head = c->head,
                                         .embedding = c->embedding,
                                         .host_copy = c->host_copy != NULL ? c->host_copy : c->draft,
                                         .host_head = c->host_copy != NULL ? c->host_head : c->head,
                                         .host_embedding = c->host_copy != NULL ? c->host_embedding : c->embedding,
                                         .in = &c->in,
                                         .chained = &c->block,
                                         .filter = c->options->filter,
                                         .progress = dp_progress_stretch(&c->options->progress, ALONE, ROUNDS)};
    const dflash_status status = dp_isolated_run(&options, isolated, c->err);
    int next = 0;
    for (int i = 0; status == DFLASH_OK && i < c->in.stages.count; i++) {
        if (!selected(c, c->in.stages.spec[i].name)) continue;
        out->stage[next++].isolated = isolated[i];
        if (!isolated[i].judged) continue;
        out->isolated_count++;
        if (!isolated[i].pass) out->failed_isolated++;
    }
    free(isolated);
    return status;
}

static bool selected_variant(const check *c, const dp_variant *variant) {
    return dp_variant_exists(variant, &c->in.config) && selected(c, dp_variant_name(variant));
}

static dflash_status compare_variants(const check *c, dp_result *out) {
    const dp_round_input input = {
        .taps = c->in.taps, .features = c->features, .noise = c->noise, .pos = c->in.pos, .context = c->in.context};
    for (int i = 0; dp_variant_at(i) != NULL; i++) {
        const dp_variant *variant = dp_variant_at(i);
        if (!selected_variant(c, variant)) continue;
        dp_progress_share(&c->options->progress, ROUNDS + (1.0 - ROUNDS) * i / DP_MOST_VARIANTS,
                          dp_variant_name(variant));
        dp_variant_result *result = &out->variant[out->variant_count];
        TRY(dp_variant_run(variant, c->draft, &input, &c->block, result, c->err));
        out->variant_count++;
        if (!result->identical) out->failed_variants++;
    }
    return DFLASH_OK;
}

/* ---- The whole ---- */

/* What passed did so under limits that are multiples of the float32 run's distance: they mean something only if that
 * run is one. Asked last, because a program that reads its weights wrongly does not find it right either, and is at
 * fault itself then. Without it nothing was compared. */
static dflash_status check_float32_run(const check *c, dp_result *out) {
    const bool apart = c->host_copy != NULL;
    const dflash_status status =
        dp_float32_run_check(&c->in, apart ? c->host_copy : c->draft, apart ? c->host_head : c->head,
                             apart ? c->host_embedding : c->embedding, c->engine->pool, c->options->filter, c->err);
    if (status == DFLASH_OK) return DFLASH_OK;
    out->stage_count = out->variant_count = out->isolated_count = out->layer_count = out->warnings = 0;
    dp_plot_data_release(&out->plot);
    return status;
}

static void check_release(check *c) {
    dp_recording_release(&c->block);
    free(c->features);
    free(c->noise);
    free(c->result);
    dflash_table_destroy(c->host_embedding);
    dflash_table_destroy(c->host_head);
    dflash_draft_destroy(c->host_copy);
    dflash_engine_destroy(c->host_engine);
    dflash_table_destroy(c->head);
    dflash_table_destroy(c->embedding);
    dflash_draft_destroy(c->draft);
    dflash_engine_destroy(c->engine);
    dp_preflight_release(&c->in);
}

dp_verdict dp_verdict_of(dflash_status status, const dp_result *result) {
    if (status == DFLASH_ERR_REFUSED && strcmp(result->error.code, DP_MISREAD) == 0) return DP_FAIL;
    if (status == DFLASH_ERR_REFUSED || status == DFLASH_ERR_ARGUMENT) return DP_REFUSED;
    if (status != DFLASH_OK) return DP_ERROR;
    if (result->stage_count + result->variant_count == 0) return DP_NOTHING;
    return result->failed_stages + result->failed_isolated + result->failed_variants > 0 ? DP_FAIL : DP_PASS;
}

void dp_check(const dp_check_options *options, dp_result *out) {
    *out = (dp_result){.options = options,
                       .isa = "",
                       .device = {.backend = dflash_backend_name(options->backend),
                                  .numeric_class = dflash_class_name(options->numeric_class),
                                  .products = dflash_products_name(options->products)}};
    check c = {.options = options, .err = &out->error};
    const double start = dp_seconds();
    if (options->report) dp_facts_of_files(options->checkpoint, options->oracle, &out->facts);
    dflash_status status = preflight(&c, out);
    if (status == DFLASH_OK) status = load(&c, out);
    const double forward = dp_seconds();
    if (status == DFLASH_OK) dp_progress_share(&options->progress, FORWARD, "forward_block");
    if (status == DFLASH_OK) status = run_block(&c);
    out->forward_seconds = dp_seconds() - forward;
    if (status == DFLASH_OK) status = compare_stages(&c, out);
    const bool other = options->altered != NULL && out->failed_stages > 0; /* see run_check.h */
    if (status == DFLASH_OK && !other) status = run_isolated(&c, out);
    if (status == DFLASH_OK) status = dp_growth(out, c.err);
    if (status == DFLASH_OK && options->report) status = dp_plot_collect(c.in.oracle, &c.block, out, &out->error);
    if (status == DFLASH_OK && !other) status = compare_variants(&c, out);
    if (!other && dp_verdict_of(status, out) == DP_PASS) status = check_float32_run(&c, out);
    out->verdict = dp_verdict_of(status, out);
    check_release(&c);
    out->total_seconds = dp_seconds() - start;
}

void dp_result_release(dp_result *result) {
    free(result->stage);
    free(result->layer);
    result->stage = NULL;
    result->layer = NULL;
    result->stage_count = result->layer_count = 0;
    dp_facts_release(&result->facts);
    dp_plot_data_release(&result->plot);
}

bool dp_stopped(const dp_result *result) {
    return result->verdict == DP_REFUSED || result->verdict == DP_ERROR ||
           (result->verdict == DP_FAIL && result->stage_count + result->variant_count == 0);
}

const dp_stage_result *dp_worst_stage(const dp_result *result) {
    const dp_stage_result *worst = NULL;
    for (int i = 0; i < result->stage_count; i++)
        if (worst == NULL || result->stage[i].headroom < worst->headroom) worst = &result->stage[i];
    return worst;
}

const dp_stage_result *dp_stage_named(const dp_result *result, const char *name) {
    for (int i = 0; i < result->stage_count; i++)
        if (strcmp(result->stage[i].name, name) == 0) return &result->stage[i];
    return NULL;
}

double dp_times_limit(const dp_stage_result *stage) {
    const dp_difference *d = &stage->difference;
    const double values = fmax(d->l2_rel / stage->limit.l2_rel, d->max_rel / stage->limit.max_rel);
    return stage->sketch.judged ? fmax(values, stage->sketch.max_rel / stage->sketch.max_limit) : values;
}

int dp_stage_layer(const dp_stage_result *stage) {
    dflash_stage which;
    int layer = -1;
    return dflash_stage_parse(stage->name, &which, &layer) ? layer : -1;
}

bool dp_alone_failed(const dp_stage_result *stage) { return stage->isolated.judged && !stage->isolated.pass; }

bool dp_stage_failed(const dp_stage_result *stage) { return !stage->pass || dp_alone_failed(stage); }

int dp_check_list(const dp_check_options *options) {
    dflash_error err = {.status = DFLASH_OK};
    dp_result result = {.options = options};
    check c = {.options = options, .err = &err};
    int listed = 0;
    const dflash_status status = preflight(&c, &result);
    for (int i = 0; status == DFLASH_OK && i < c.in.stages.count; i++)
        if (selected(&c, c.in.stages.spec[i].name)) listed += printf("%s\n", c.in.stages.spec[i].name) > 0;
    for (int i = 0; status == DFLASH_OK && dp_variant_at(i) != NULL; i++)
        if (selected_variant(&c, dp_variant_at(i))) listed += printf("%s\n", dp_variant_name(dp_variant_at(i))) > 0;
    check_release(&c);
    if (status != DFLASH_OK) return dp_report_error("check", &err);
    if (listed == 0)
        fprintf(stderr, "dflash-parity check: the filter '%s' matches no stage and no round; run --list without -k.\n",
                options->filter != NULL ? options->filter : "");
    return dp_finish_output("check", listed > 0 ? DP_EXIT_PASS : DP_EXIT_NOTHING);
}
