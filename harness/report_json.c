/* report_json.c - a result as JSON, the file that machines read. */
#include "report.h"

#include "environment.h"
#include "error.h"
#include "text_file.h"

#include <math.h>
#include <stdlib.h>

/* JSON has no infinity and no NaN: null stands for both, and the counts beside it say which. */
static void add_number(cJSON *object, const char *key, double value) {
    if (isfinite(value))
        cJSON_AddNumberToObject(object, key, value);
    else
        cJSON_AddNullToObject(object, key);
}

static cJSON *stage_json(const dp_stage_result *stage) {
    const dp_difference *d = &stage->difference;
    cJSON *object = cJSON_CreateObject();
    cJSON *shape = cJSON_AddArrayToObject(object, "shape");
    for (int i = 0; i < stage->rank; i++) cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)stage->dim[i]));
    cJSON_AddStringToObject(object, "name", stage->name);
    cJSON_AddBoolToObject(object, "pass", stage->pass);
    cJSON_AddBoolToObject(object, "warn", stage->pass && stage->headroom < DP_WARN_HEADROOM);
    cJSON_AddNumberToObject(object, "compared", (double)d->count);
    cJSON_AddBoolToObject(object, "exact", stage->exact);
    if (stage->exact) cJSON_AddNumberToObject(object, "mismatches", (double)d->mismatches);
    add_number(object, "rel_l2", d->l2_rel);
    add_number(object, "max_rel_rms", d->max_rel);
    add_number(object, "max_abs", d->max_abs);
    add_number(object, "cosine", d->cosine);
    add_number(object, "ulp_median", d->ulp_median);
    add_number(object, "ulp_p99", d->ulp_p99);
    add_number(object, "ulp_max", d->ulp_max);
    cJSON_AddNumberToObject(object, "nonfinite", (double)d->nonfinite);
    cJSON_AddNumberToObject(object, "sign_flips", (double)d->sign_flips);
    cJSON_AddNumberToObject(object, "worst_index", (double)d->worst);
    add_number(object, "worst_got", d->worst_got);
    add_number(object, "worst_want", d->worst_want);
    add_number(object, "bar_rel_l2", stage->bar.l2_rel);
    add_number(object, "bar_max_rel_rms", stage->bar.max_rel);
    add_number(object, "bracket_rel_l2", stage->bar.bracket_l2_rel);
    add_number(object, "bracket_max_rel_rms", stage->bar.bracket_max_rel);
    cJSON_AddStringToObject(object, "bar_origin", stage->bar.origin);
    add_number(object, "headroom", stage->headroom);
    return object;
}

static cJSON *arm_json(const dp_arm_result *arm) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", arm->name);
    cJSON_AddNumberToObject(object, "rows_per_ingest", arm->chunk);
    cJSON_AddBoolToObject(object, "identical", arm->identical);
    cJSON_AddNumberToObject(object, "compared", (double)arm->compared);
    if (arm->nonfinite) cJSON_AddBoolToObject(object, "nonfinite", true);
    if (!arm->identical) {
        cJSON *first = cJSON_AddObjectToObject(object, "first_difference");
        char bits[16];
        cJSON_AddStringToObject(first, "stage", arm->stage);
        cJSON_AddNumberToObject(first, "index", (double)arm->index);
        snprintf(bits, sizeof bits, "0x%08x", arm->block_bits);
        cJSON_AddStringToObject(first, "block", bits);
        snprintf(bits, sizeof bits, "0x%08x", arm->round_bits);
        cJSON_AddStringToObject(first, "round", bits);
    }
    return object;
}

cJSON *dp_report_json(const dp_result *result, const char *command) {
    cJSON *object = cJSON_CreateObject();
    if (object == NULL) return NULL;
    cJSON_AddStringToObject(object, "schema", "dflash-parity-result");
    cJSON_AddNumberToObject(object, "schema_version", DP_RESULT_VERSION);
    cJSON_AddStringToObject(object, "verdict", dp_verdict_name(result->verdict));
    cJSON_AddNumberToObject(object, "exit_code", dp_verdict_exit_code(result->verdict));
    if (result->verdict == DP_REFUSED || result->verdict == DP_ERROR) {
        cJSON *error = cJSON_AddObjectToObject(object, "error");
        cJSON_AddStringToObject(error, "code", result->error.code);
        cJSON_AddStringToObject(error, "message", result->error.message);
    }
    cJSON_AddStringToObject(object, "command", command);
    cJSON_AddStringToObject(object, "checkpoint", result->options->checkpoint);
    cJSON_AddStringToObject(object, "oracle", result->options->oracle);
    cJSON_AddStringToObject(object, "precision", df_precision_name(result->options->precision));
    if (result->options->filter != NULL) cJSON_AddStringToObject(object, "filter", result->options->filter);
    cJSON_AddStringToObject(object, "family", df_family_name(result->family));
    dp_add_device(object, &result->device);
    cJSON_AddStringToObject(object, "isa", result->isa);
    cJSON_AddNumberToObject(object, "threads", result->threads);
    cJSON_AddNumberToObject(object, "context_rows", result->context);
    cJSON_AddNumberToObject(object, "block_rows", result->block);
    cJSON_AddNumberToObject(object, "stages_known", result->stages_known);
    cJSON_AddNumberToObject(object, "stages_compared", result->stage_count);
    cJSON_AddNumberToObject(object, "stages_failed", result->failed_stages);
    cJSON_AddNumberToObject(object, "arms_compared", result->arm_count);
    cJSON_AddNumberToObject(object, "arms_failed", result->failed_arms);
    cJSON_AddNumberToObject(object, "warnings", result->warnings);
    cJSON *stages = cJSON_AddArrayToObject(object, "stages");
    for (int i = 0; i < result->stage_count; i++) cJSON_AddItemToArray(stages, stage_json(&result->stage[i]));
    cJSON *arms = cJSON_AddArrayToObject(object, "rounds");
    for (int i = 0; i < result->arm_count; i++) cJSON_AddItemToArray(arms, arm_json(&result->arm[i]));
    cJSON *seconds = cJSON_AddObjectToObject(object, "seconds");
    add_number(seconds, "load", result->load_seconds);
    add_number(seconds, "provenance", result->provenance_seconds);
    add_number(seconds, "forward", result->forward_seconds);
    add_number(seconds, "total", result->total_seconds);
    cJSON_AddItemToObject(object, "environment", dp_environment());
    return object;
}

df_status dp_write_json(const char *path, const cJSON *json, df_error *err) {
    char *text = cJSON_Print(json);
    if (text == NULL) return df_fail_memory(err, "the JSON result", 0);
    const df_status status = dp_text_file_write(path, text, err);
    free(text);
    return status;
}
