/*
 * inspect_oracle.c - opens an oracle or a recording; the content of an oracle: records, inputs, and a table of stages
 * with the size of their values and the distance of the lower precisions from float64.
 *
 * The distances are the reference's own, in the relative L2 norm; judging an engine by them is the check's business.
 */
#include "cli/inspect.h"

#include "common/error.h"
#include "store/store_dataset.h"
#include "store/store_sketch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct stage_figures {
    bool integer;
    double rms, largest;           /* of the float64 run's stored elements */
    double distance[DP_RUN_COUNT]; /* relative L2 from the float64 run; infinite when only that one is zero */
} stage_figures;

static double distance(const dp_array *from, const dp_array *run) {
    double difference = 0, size = 0;
    for (int64_t i = 0; i < from->count; i++) {
        const double d = run->value[i] - from->value[i];
        difference += d * d;
        size += from->value[i] * from->value[i];
    }
    if (difference == 0) return 0;
    return sqrt(difference) / sqrt(size);
}

static dflash_status measure(const dp_oracle *oracle, const char *name, stage_figures *out, dflash_error *err) {
    dp_array truth = {0}, run = {0};
    *out = (stage_figures){0};
    dflash_status status = dp_oracle_stage(oracle, DP_RUN_F64, name, &truth, err);
    if (status != DFLASH_OK) return status;
    double squares = 0;
    for (int64_t i = 0; i < truth.count; i++) {
        squares += truth.value[i] * truth.value[i];
        out->largest = fmax(out->largest, fabs(truth.value[i]));
    }
    out->integer = truth.integer;
    out->rms = sqrt(squares / (double)truth.count);
    for (int r = DP_RUN_F32; r < DP_RUN_COUNT && status == DFLASH_OK; r++) {
        status = dp_oracle_stage(oracle, (dp_run)r, name, &run, err);
        if (status == DFLASH_OK) out->distance[r] = distance(&truth, &run);
        dp_array_release(&run);
    }
    dp_array_release(&truth);
    return status;
}

/* ---- Text ---- */

static const char *text_of(const cJSON *record, const char *key) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(record, key));
    return text != NULL ? text : "?";
}

static void print_provenance(const cJSON *record) {
    const cJSON *reference = cJSON_GetObjectItemCaseSensitive(record, "reference"), *item;
    printf("provenance\n");
    printf("  %-40s %s\n", "generator", text_of(record, "generator"));
    printf("  %-40s %s\n", "command", text_of(record, "command"));
    printf("  %-40s %s (sha256 %s)\n", "reference", text_of(reference, "module"), text_of(reference, "sha256"));
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(record, "packages")) {
        char name[128];
        snprintf(name, sizeof name, "package %s", item->string);
        printf("  %-40s %s\n", name, item->valuestring);
    }
    printf("  %-40s %s\n", "config_sha256", text_of(record, "config_sha256"));
    printf("  %-40s %d\n", "tensors", cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(record, "tensors")));
    printf("  %-40s %.0f\n", "seed", cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(record, "seed")));
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(record, "adapters"))
        printf("  %-40s %s\n", "adapter", item->valuestring);
}

void dp_inspect_inputs(const dp_oracle *file) {
    char shape[96];
    printf("inputs\n");
    for (int i = 0; i < DP_INPUT_COUNT; i++) {
        const dp_dataset_info *info = dp_oracle_input_info(file, dp_input_name(i));
        if (info == NULL) continue;
        printf("  %-40s %-18s %s\n", dp_input_name(i), dp_inspect_shape(info->rank, info->dim, shape),
               dp_logical_name(info->dtype));
    }
}

static void sampling_text(const dp_oracle *oracle, const char *name, const dp_dataset_info *info, char out[64]) {
    if (info->sampled)
        snprintf(out, 64, "1/%lld + %d rows", (long long)info->stride, dp_oracle_companions(oracle, name).rows);
    else
        snprintf(out, 64, "all");
}

static void print_stage(const dp_oracle *oracle, const char *name, const stage_figures *figures) {
    char shape[96], dtypes[64] = "", sampling[64];
    const dp_dataset_info *info = dp_oracle_stage_info(oracle, DP_RUN_F64, name);
    for (int run = 0; run < DP_RUN_COUNT; run++) {
        const size_t used = strlen(dtypes);
        snprintf(dtypes + used, sizeof dtypes - used, "%s%s", run > 0 ? "," : "",
                 dp_logical_name(dp_oracle_stage_info(oracle, (dp_run)run, name)->dtype));
    }
    sampling_text(oracle, name, info, sampling);
    printf("  %-26s %-18s %-26s %-16s", name, dp_inspect_shape(info->rank, info->dim, shape), dtypes, sampling);
    if (figures->integer)
        printf(" %9s %9.0f %9s %9s\n", "-", figures->largest, "-", "-");
    else
        printf(" %9.3g %9.3g %9.2e %9.2e\n", figures->rms, figures->largest, figures->distance[DP_RUN_F32],
               figures->distance[DP_RUN_BF16]);
}

/* What the file sees of its stages. */
static void print_coverage(const dp_oracle *oracle) {
    int whole = 0, sketched = 0;
    int64_t rows = 0;
    for (int i = 0; i < dp_oracle_stage_count(oracle); i++) {
        const dp_stage_companions c = dp_oracle_companions(oracle, dp_oracle_stage_name(oracle, i));
        rows += c.sketch_rows;
        *(c.sketch_rows > 0 ? &sketched : &whole) += 1;
    }
    printf("coverage\n  %d stages whole; %d by samples and sketches of all their %lld rows\n", whole, sketched,
           (long long)rows);
}

static dflash_status show_text(const dp_inspect_options *options, const dp_oracle *oracle, dflash_error *err) {
    printf("oracle %s\n", options->path);
    printf("schema dflash-parity, version %d, kind oracle\n", DP_SCHEMA_VERSION);
    printf("geometry\n");
    dp_inspect_fields(NULL, dp_oracle_geometry(oracle), true);
    print_provenance(dp_oracle_provenance(oracle));
    dp_inspect_inputs(oracle);
    print_coverage(oracle);
    printf("stages\n  %-26s %-18s %-26s %-16s %9s %9s %9s %9s\n", "name", "shape", "dtype f64,f32,bf16 run", "stored",
           "rms", "max|x|", "f32 L2", "bf16 L2");
    for (int i = 0; i < dp_oracle_stage_count(oracle); i++) {
        const char *name = dp_oracle_stage_name(oracle, i);
        stage_figures figures;
        if (!dp_inspect_wants(options, name)) continue;
        const dflash_status status = measure(oracle, name, &figures, err);
        if (status != DFLASH_OK) return status;
        print_stage(oracle, name, &figures);
    }
    return DFLASH_OK;
}

/* ---- JSON ---- */

/* JSON has no infinity; a figure that has no value is null. */
static void add_figure(cJSON *object, const char *key, double value, bool defined) {
    if (defined && isfinite(value))
        cJSON_AddNumberToObject(object, key, value);
    else
        cJSON_AddNullToObject(object, key);
}

cJSON *dp_inspect_inputs_json(const dp_oracle *file) {
    cJSON *inputs = cJSON_CreateObject();
    for (int i = 0; inputs != NULL && i < DP_INPUT_COUNT; i++) {
        const dp_dataset_info *info = dp_oracle_input_info(file, dp_input_name(i));
        if (info == NULL) continue;
        cJSON *item = cJSON_AddObjectToObject(inputs, dp_input_name(i));
        cJSON_AddItemToObject(item, "shape", dp_inspect_shape_json(info->rank, info->dim));
        cJSON_AddStringToObject(item, "dtype", dp_logical_name(info->dtype));
        cJSON_AddStringToObject(item, "sha256", info->sha256);
    }
    return inputs;
}

/* Which rows are stored whole beside the samples, and what stands for the others; null for a stage stored whole. */
static void add_companions(cJSON *item, const dp_oracle *oracle, const char *name, const dp_dataset_info *info) {
    const dp_stage_companions c = dp_oracle_companions(oracle, name);
    if (!info->sampled) {
        cJSON_AddNullToObject(item, "rows");
        cJSON_AddNullToObject(item, "sketch");
        return;
    }
    cJSON *rows = cJSON_AddArrayToObject(item, "rows");
    for (int i = 0; i < c.rows; i++) cJSON_AddItemToArray(rows, cJSON_CreateNumber((double)c.row[i]));
    cJSON *sketch = cJSON_AddObjectToObject(item, "sketch");
    cJSON_AddNumberToObject(sketch, "rows", (double)c.sketch_rows);
    cJSON_AddNumberToObject(sketch, "projections", (double)c.projections);
}

static cJSON *stage_json(const dp_oracle *oracle, const char *name, const stage_figures *figures) {
    const dp_dataset_info *info = dp_oracle_stage_info(oracle, DP_RUN_F64, name);
    cJSON *item = cJSON_CreateObject();
    cJSON_AddStringToObject(item, "name", name);
    cJSON_AddItemToObject(item, "shape", dp_inspect_shape_json(info->rank, info->dim));
    cJSON *dtypes = cJSON_AddObjectToObject(item, "dtype");
    for (int run = 0; run < DP_RUN_COUNT; run++)
        cJSON_AddStringToObject(dtypes, dp_run_name((dp_run)run),
                                dp_logical_name(dp_oracle_stage_info(oracle, (dp_run)run, name)->dtype));
    cJSON_AddBoolToObject(item, "sampled", info->sampled);
    cJSON_AddNumberToObject(item, "stride", (double)info->stride);
    cJSON_AddNumberToObject(item, "offset", (double)info->offset);
    cJSON_AddNumberToObject(item, "count", (double)info->count);
    add_companions(item, oracle, name, info);
    add_figure(item, "rms", figures->rms, !figures->integer);
    add_figure(item, "max_abs", figures->largest, true);
    add_figure(item, "float32_rel_l2", figures->distance[DP_RUN_F32], !figures->integer);
    add_figure(item, "bfloat16_rel_l2", figures->distance[DP_RUN_BF16], !figures->integer);
    return item;
}

static dflash_status show_json(const dp_inspect_options *options, const dp_oracle *oracle, dflash_error *err) {
    cJSON *document = cJSON_CreateObject();
    cJSON_AddStringToObject(document, "path", options->path);
    cJSON_AddStringToObject(document, "schema", "dflash-parity");
    cJSON_AddNumberToObject(document, "schema_version", DP_SCHEMA_VERSION);
    cJSON_AddStringToObject(document, "kind", "oracle");
    cJSON_AddItemToObject(document, "geometry", cJSON_Duplicate(dp_oracle_geometry(oracle), true));
    cJSON_AddItemToObject(document, "provenance", cJSON_Duplicate(dp_oracle_provenance(oracle), true));
    cJSON_AddItemToObject(document, "inputs", dp_inspect_inputs_json(oracle));
    cJSON *stages = cJSON_AddArrayToObject(document, "stages");
    for (int i = 0; i < dp_oracle_stage_count(oracle); i++) {
        const char *name = dp_oracle_stage_name(oracle, i);
        stage_figures figures;
        if (!dp_inspect_wants(options, name)) continue;
        const dflash_status status = measure(oracle, name, &figures, err);
        if (status != DFLASH_OK) {
            cJSON_Delete(document);
            return status;
        }
        cJSON_AddItemToArray(stages, stage_json(oracle, name, &figures));
    }
    return dp_inspect_json(document, err);
}

dflash_status dp_inspect_store(const dp_inspect_options *options, int *shown, dflash_error *err) {
    dp_oracle *file = NULL;
    dflash_status status = dp_store_open(options->path, &file, err);
    if (status != DFLASH_OK) return status;
    for (int i = 0; i < dp_oracle_stage_count(file); i++)
        *shown += dp_inspect_wants(options, dp_oracle_stage_name(file, i));
    if (*shown > 0 && dp_oracle_kind(file) == DP_KIND_RECORDING)
        status = dp_inspect_recording(options, file, err);
    else if (*shown > 0)
        status = options->json ? show_json(options, file, err) : show_text(options, file, err);
    dp_oracle_close(file);
    return status;
}
