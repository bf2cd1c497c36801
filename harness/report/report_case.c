/* report_case.c - one case of a result file: what was checked against what, and how it ended. */
#include "report/report.h"

#include "check/seen.h"
#include "check/divergence.h"
#include "base/environment.h"
#include "base/json_number.h"
#include "base/cli.h"

#include <stdlib.h>
#include <string.h>

/* Words go into an argv, which nothing writes to; the cast is that interface's. */
static char *word(const char *text) { return (char *)(uintptr_t)text; }

/* The check of this case alone; the caller frees it. */
static char *check_command(const dp_check_options *o) {
    char *argv[18] = {word("check"), word("--checkpoint"), word(o->checkpoint), word("--oracle"), word(o->oracle)};
    char *vectors[] = {word("gate"), word("-k"), word("tiny-vectors")}; /* vectors have a checkpoint for each group */
    if (o->checkpoint[0] == '\0') memcpy(argv, vectors, sizeof vectors);
    int argc = o->checkpoint[0] == '\0' ? 3 : 5;
    if (o->precision != DFLASH_PRECISION_STORED) {
        argv[argc++] = word("--precision");
        argv[argc++] = word(dflash_precision_name(o->precision));
    }
    if (o->backend != DFLASH_BACKEND_CPU) {
        argv[argc++] = word("--backend");
        argv[argc++] = word(dflash_backend_name(o->backend));
    }
    if (o->numeric_class != DFLASH_CLASS_EXACT) {
        argv[argc++] = word("--class");
        argv[argc++] = word(dflash_class_name(o->numeric_class));
    }
    if (o->products != DFLASH_PRODUCTS_F32) {
        argv[argc++] = word("--products");
        argv[argc++] = word(dflash_products_name(o->products));
    }
    if (o->head != NULL) {
        argv[argc++] = word("--lm-head");
        argv[argc++] = word(o->head);
    }
    if (o->filter != NULL) {
        argv[argc++] = word("-k");
        argv[argc++] = word(o->filter);
    }
    return dp_command_line(argc, argv);
}

static void add_text(cJSON *object, const char *key, const char *text) {
    if (text != NULL && text[0] != '\0')
        cJSON_AddStringToObject(object, key, text);
    else
        cJSON_AddNullToObject(object, key);
}

static void add_copy(cJSON *object, const char *key, const cJSON *item) {
    cJSON_AddItemToObject(object, key, item != NULL ? cJSON_Duplicate(item, true) : cJSON_CreateNull());
}

static void add_error(cJSON *object, const dp_result *result) {
    if (!dp_stopped(result)) {
        cJSON_AddNullToObject(object, "error");
        return;
    }
    cJSON *error = cJSON_AddObjectToObject(object, "error");
    cJSON_AddStringToObject(error, "code", result->error.code);
    cJSON_AddStringToObject(error, "message", result->error.message);
}

static void add_subject(cJSON *object, const dp_result *result) {
    const bool accepted = result->facts.geometry != NULL;
    cJSON *checkpoint = cJSON_AddObjectToObject(object, "checkpoint");
    cJSON_AddStringToObject(checkpoint, "path", result->options->checkpoint);
    add_text(checkpoint, "config_sha256", result->facts.config_sha256);
    add_text(checkpoint, "tensors_sha256", result->facts.tensors_sha256);
    add_copy(checkpoint, "geometry", result->facts.geometry);
    cJSON *oracle = cJSON_AddObjectToObject(object, "oracle");
    cJSON_AddStringToObject(oracle, "path", result->options->oracle);
    add_text(oracle, "sha256", result->facts.oracle_sha256);
    add_copy(oracle, "provenance", result->facts.provenance);
    if (result->options->head != NULL) {
        cJSON *head = cJSON_AddObjectToObject(object, "head");
        cJSON_AddStringToObject(head, "source", result->options->head);
        add_text(head, "tensor", result->head);
    }
    add_text(object, "family", accepted ? dflash_family_name(result->family) : NULL);
    cJSON_AddStringToObject(object, "precision", dflash_precision_name(result->options->precision));
    dp_add_device(object, &result->device);
    if (result->device.device[0] == '\0') cJSON_AddNullToObject(object, "device");
    add_text(object, "isa", result->isa);
    cJSON_AddNumberToObject(object, "threads", result->threads);
    cJSON_AddNumberToObject(object, "context_rows", accepted ? result->context : 0);
    cJSON_AddNumberToObject(object, "block_rows", accepted ? result->block : 0);
}

static void add_counts(cJSON *object, const dp_result *result) {
    cJSON_AddNumberToObject(object, "stages_known", result->stages_known);
    cJSON_AddNumberToObject(object, "stages_compared", result->stage_count);
    cJSON_AddNumberToObject(object, "stages_failed", result->failed_stages);
    cJSON_AddNumberToObject(object, "stages_isolated", result->isolated_count);
    cJSON_AddNumberToObject(object, "isolated_failed", result->failed_isolated);
    cJSON_AddNumberToObject(object, "rounds_compared", result->variant_count);
    cJSON_AddNumberToObject(object, "rounds_failed", result->failed_variants);
    cJSON_AddNumberToObject(object, "warnings", result->warnings);
}

static void add_coverage(cJSON *object, const dp_result *result) {
    const dp_seen c = dp_seen_of(result);
    cJSON *coverage = cJSON_AddObjectToObject(object, "coverage");
    cJSON_AddNumberToObject(coverage, "stages_whole", c.whole);
    cJSON_AddNumberToObject(coverage, "stages_sketched", c.sketched);
    cJSON_AddNumberToObject(coverage, "stages_not_shown", c.unseen);
    cJSON_AddNumberToObject(coverage, "sketched_values", (double)c.values);
    cJSON_AddNumberToObject(coverage, "sketched_values_compared", (double)c.compared);
    cJSON_AddNumberToObject(coverage, "sketched_rows", (double)c.rows);
    cJSON_AddNumberToObject(coverage, "alone_fed", c.fed);
    cJSON_AddNumberToObject(coverage, "alone_fed_partly", c.fed_partly);
    cJSON_AddNumberToObject(coverage, "alone_not_fed", c.unfed);
}

static void add_divergence(cJSON *object, const dp_result *result) {
    dp_divergence_by by;
    const dp_stage_result *first = dp_first_divergence(result, &by);
    if (first == NULL) {
        cJSON_AddNullToObject(object, "first_divergence");
        return;
    }
    cJSON *divergence = cJSON_AddObjectToObject(object, "first_divergence");
    cJSON_AddStringToObject(divergence, "stage", first->name);
    cJSON_AddStringToObject(divergence, "by", dp_divergence_name(by));
}

static cJSON *growth_json(const dp_layer_growth *layer) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "layer", layer->layer);
    dp_json_add_number(object, "in", layer->in);
    dp_json_add_number(object, "out", layer->out);
    dp_json_add_number(object, "factor", layer->factor);
    cJSON_AddStringToObject(object, "source", layer->source);
    dp_json_add_number(object, "source_share", layer->source_share);
    return object;
}

cJSON *dp_case_json(const char *name, const dp_result *result) {
    char *command = check_command(result->options);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "case", name);
    cJSON_AddStringToObject(object, "verdict", dp_verdict_name(result->verdict));
    cJSON_AddNumberToObject(object, "exit_code", dp_verdict_exit_code(result->verdict));
    add_error(object, result);
    if (command != NULL) cJSON_AddStringToObject(object, "command", command);
    free(command);
    add_subject(object, result);
    add_counts(object, result);
    add_coverage(object, result);
    add_divergence(object, result);
    cJSON *stages = cJSON_AddArrayToObject(object, "stages");
    for (int i = 0; i < result->stage_count; i++)
        cJSON_AddItemToArray(
            stages, dp_stage_json(&result->stage[i], i < result->plot.stage_count ? &result->plot.stage[i] : NULL));
    cJSON *variants = cJSON_AddArrayToObject(object, "rounds");
    for (int i = 0; i < result->variant_count; i++)
        cJSON_AddItemToArray(variants, dp_variant_json(&result->variant[i]));
    cJSON *growth = cJSON_AddArrayToObject(object, "growth");
    for (int i = 0; i < result->layer_count; i++) cJSON_AddItemToArray(growth, growth_json(&result->layer[i]));
    cJSON_AddItemToObject(object, "plots", dp_plots_json(&result->plot));
    cJSON *seconds = cJSON_AddObjectToObject(object, "seconds");
    dp_json_add_number(seconds, "load", result->load_seconds);
    dp_json_add_number(seconds, "provenance", result->provenance_seconds);
    dp_json_add_number(seconds, "forward", result->forward_seconds);
    dp_json_add_number(seconds, "total", result->total_seconds);
    return object;
}
