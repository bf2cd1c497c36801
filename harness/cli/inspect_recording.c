/*
 * inspect_recording.c - the content of a recording: records, inputs, and a table of stages with the size of their
 * values and the digest of their bytes, by which two recordings can be told apart without reading either again.
 */
#include "cli/inspect.h"

#include "store/store_dataset.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Of the finite values; a recording may hold others. */
typedef struct figures {
    double rms, largest;
    int64_t nonfinite;
} figures;

static dflash_status measure(const dp_oracle *file, const char *name, figures *out, dflash_error *err) {
    dp_array values;
    double squares = 0;
    *out = (figures){.nonfinite = 0};
    const dflash_status status = dp_oracle_stage(file, DP_RUN_OWN, name, &values, err);
    if (status != DFLASH_OK) return status;
    for (int64_t i = 0; i < values.count; i++) {
        out->nonfinite += !isfinite(values.value[i]);
        if (!isfinite(values.value[i])) continue;
        squares += values.value[i] * values.value[i];
        out->largest = fmax(out->largest, fabs(values.value[i]));
    }
    const int64_t finite = values.count - out->nonfinite;
    out->rms = finite > 0 ? sqrt(squares / (double)finite) : 0;
    dp_array_release(&values);
    return DFLASH_OK;
}

/* ---- Text ---- */

/* Every fact but the weights, of which the number is shown: --json has their digests. */
static void print_provenance(const cJSON *record) {
    cJSON *rest = cJSON_Duplicate(record, true);
    cJSON_DeleteItemFromObjectCaseSensitive(rest, "tensors");
    printf("provenance\n");
    dp_inspect_fields(NULL, rest, true);
    printf("  %-40s %d\n", "tensors", cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(record, "tensors")));
    cJSON_Delete(rest);
}

static void print_stage(const dp_oracle *file, const char *name, const figures *f) {
    char shape[96];
    const dp_dataset_info *info = dp_oracle_stage_info(file, DP_RUN_OWN, name);
    printf("  %-26s %-18s %-9s", name, dp_inspect_shape(info->rank, info->dim, shape), dp_logical_name(info->dtype));
    if (info->dtype == DP_LOGICAL_I32)
        printf(" %9s %9.0f %9s", "-", f->largest, "-");
    else
        printf(" %9.3g %9.3g %9lld", f->rms, f->largest, (long long)f->nonfinite);
    printf("  %s\n", info->sha256);
}

static dflash_status show_text(const dp_inspect_options *options, const dp_oracle *file, dflash_error *err) {
    printf("recording %s\n", options->path);
    printf("schema dflash-parity, version %d, kind recording\n", DP_SCHEMA_VERSION);
    printf("geometry\n");
    dp_inspect_fields(NULL, dp_oracle_geometry(file), true);
    print_provenance(dp_oracle_provenance(file));
    dp_inspect_inputs(file);
    printf("stages\n  %-26s %-18s %-9s %9s %9s %9s  %s\n", "name", "shape", "dtype", "rms", "max|x|", "nonfinite",
           "sha256");
    for (int i = 0; i < dp_oracle_stage_count(file); i++) {
        const char *name = dp_oracle_stage_name(file, i);
        figures f;
        if (!dp_inspect_wants(options, name)) continue;
        const dflash_status status = measure(file, name, &f, err);
        if (status != DFLASH_OK) return status;
        print_stage(file, name, &f);
    }
    return DFLASH_OK;
}

/* ---- JSON ---- */

static cJSON *stage_json(const dp_oracle *file, const char *name, const figures *f) {
    const dp_dataset_info *info = dp_oracle_stage_info(file, DP_RUN_OWN, name);
    cJSON *item = cJSON_CreateObject();
    cJSON_AddStringToObject(item, "name", name);
    cJSON_AddItemToObject(item, "shape", dp_inspect_shape_json(info->rank, info->dim));
    cJSON_AddStringToObject(item, "dtype", dp_logical_name(info->dtype));
    cJSON_AddNumberToObject(item, "count", (double)info->count);
    if (info->dtype == DP_LOGICAL_I32)
        cJSON_AddNullToObject(item, "rms");
    else
        cJSON_AddNumberToObject(item, "rms", f->rms);
    cJSON_AddNumberToObject(item, "max_abs", f->largest);
    cJSON_AddNumberToObject(item, "nonfinite", (double)f->nonfinite);
    cJSON_AddStringToObject(item, "sha256", info->sha256);
    return item;
}

static dflash_status show_json(const dp_inspect_options *options, const dp_oracle *file, dflash_error *err) {
    cJSON *document = cJSON_CreateObject();
    cJSON_AddStringToObject(document, "path", options->path);
    cJSON_AddStringToObject(document, "schema", "dflash-parity");
    cJSON_AddNumberToObject(document, "schema_version", DP_SCHEMA_VERSION);
    cJSON_AddStringToObject(document, "kind", "recording");
    cJSON_AddItemToObject(document, "geometry", cJSON_Duplicate(dp_oracle_geometry(file), true));
    cJSON_AddItemToObject(document, "provenance", cJSON_Duplicate(dp_oracle_provenance(file), true));
    cJSON_AddItemToObject(document, "inputs", dp_inspect_inputs_json(file));
    cJSON *stages = cJSON_AddArrayToObject(document, "stages");
    for (int i = 0; i < dp_oracle_stage_count(file); i++) {
        const char *name = dp_oracle_stage_name(file, i);
        figures f;
        if (!dp_inspect_wants(options, name)) continue;
        const dflash_status status = measure(file, name, &f, err);
        if (status != DFLASH_OK) {
            cJSON_Delete(document);
            return status;
        }
        cJSON_AddItemToArray(stages, stage_json(file, name, &f));
    }
    return dp_inspect_json(document, err);
}

dflash_status dp_inspect_recording(const dp_inspect_options *options, const dp_oracle *file, dflash_error *err) {
    return options->json ? show_json(options, file, err) : show_text(options, file, err);
}
