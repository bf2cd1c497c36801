/*
 * inspect_checkpoint.c - the resolved config and the tensors of a checkpoint.
 *
 * The config passes every rule of config.json and the file every rule of safetensors; whether the tensors are the ones
 * that the config needs is the census of loading, and is not asked here, so that a checkpoint that fails it can be
 * looked at.
 */
#include "cli/inspect.h"

#include "common/error.h"
#include "preflight/geometry.h"
#include "weights/safetensors_header.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The geometry record, and the two facts of the config that it leaves out. */
static cJSON *config_record(const dflash_config *config) {
    cJSON *record = dp_geometry_of(config);
    if (record == NULL) return NULL;
    if (cJSON_AddNumberToObject(record, "max_position_embeddings", (double)config->max_position) != NULL &&
        cJSON_AddNumberToObject(record, "num_target_layers", config->n_target_layers) != NULL)
        return record;
    cJSON_Delete(record);
    return NULL;
}

typedef struct totals {
    int tensors;
    int64_t parameters;
    uint64_t bytes;
} totals;

static totals count_tensors(const dp_inspect_options *options, const df_safetensors *file) {
    totals sum = {0};
    for (int i = 0; i < df_safetensors_count(file); i++) {
        const df_tensor *tensor = df_safetensors_at(file, i);
        if (!dp_inspect_wants(options, tensor->name)) continue;
        sum.tensors++;
        sum.parameters += tensor->count;
        sum.bytes += tensor->bytes;
    }
    return sum;
}

static void print_tensors(const dp_inspect_options *options, const df_safetensors *file, const totals *sum) {
    char shape[DF_SHAPE_TEXT_MAX];
    printf("tensors\n");
    for (int i = 0; i < df_safetensors_count(file); i++) {
        const df_tensor *tensor = df_safetensors_at(file, i);
        if (dp_inspect_wants(options, tensor->name))
            printf("  %-52s %-5s %-20s %12zu bytes\n", tensor->name, tensor->type->name,
                   df_shape_text(tensor->rank, tensor->dim, shape), tensor->bytes);
    }
    printf("total: %d tensors, %lld parameters, %llu bytes\n", sum->tensors, (long long)sum->parameters,
           (unsigned long long)sum->bytes);
}

static cJSON *tensors_json(const dp_inspect_options *options, const df_safetensors *file) {
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; list != NULL && i < df_safetensors_count(file); i++) {
        const df_tensor *tensor = df_safetensors_at(file, i);
        if (!dp_inspect_wants(options, tensor->name)) continue;
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "name", tensor->name);
        cJSON_AddStringToObject(item, "dtype", tensor->type->name);
        cJSON_AddItemToObject(item, "shape", dp_inspect_shape_json(tensor->rank, tensor->dim));
        cJSON_AddNumberToObject(item, "bytes", (double)tensor->bytes);
        cJSON_AddItemToArray(list, item);
    }
    return list;
}

static dflash_status show(const dp_inspect_options *options, cJSON *record, const df_safetensors *file, int *shown,
                          dflash_error *err) {
    /* With weights the pattern selects tensors, without them config fields. */
    const dp_inspect_options *field_options = file != NULL ? NULL : options;
    const totals sum = file != NULL ? count_tensors(options, file) : (totals){0};
    *shown = file != NULL ? sum.tensors : dp_inspect_fields(options, record, false);
    if (*shown == 0) return DFLASH_OK;
    if (!options->json) {
        printf("config of %s\n", options->path);
        dp_inspect_fields(field_options, record, true);
        if (file != NULL) print_tensors(options, file, &sum);
        return DFLASH_OK;
    }
    cJSON *document = cJSON_CreateObject();
    cJSON_AddStringToObject(document, "path", options->path);
    cJSON_AddItemReferenceToObject(document, "config", record);
    if (file != NULL) {
        cJSON_AddItemToObject(document, "tensors", tensors_json(options, file));
        cJSON *total = cJSON_AddObjectToObject(document, "total");
        cJSON_AddNumberToObject(total, "tensors", sum.tensors);
        cJSON_AddNumberToObject(total, "parameters", (double)sum.parameters);
        cJSON_AddNumberToObject(total, "bytes", (double)sum.bytes);
    }
    return dp_inspect_json(document, err);
}

static dflash_status join(const char *folder, const char *name, char **out, dflash_error *err) {
    const size_t size = strlen(folder) + strlen(name) + 2;
    *out = malloc(size);
    if (*out == NULL) return df_fail_memory(err, "a path", size);
    snprintf(*out, size, "%s/%s", folder, name);
    return DFLASH_OK;
}

dflash_status dp_inspect_checkpoint(const dp_inspect_options *options, int *shown, dflash_error *err) {
    struct stat info;
    dflash_config config;
    char *config_path = NULL, *weights_path = NULL;
    df_safetensors *file = NULL;
    cJSON *record = NULL;
    const bool folder = stat(options->path, &info) == 0 && S_ISDIR(info.st_mode);
    dflash_status status = DFLASH_OK;
    if (folder) status = join(options->path, "config.json", &config_path, err);
    if (folder && status == DFLASH_OK) status = join(options->path, "model.safetensors", &weights_path, err);
    if (status == DFLASH_OK) status = dflash_config_read(folder ? config_path : options->path, &config, err);
    /* A folder without weights is a config alone; weights that are there and cannot be read are an error. */
    if (status == DFLASH_OK && folder && lstat(weights_path, &info) == 0)
        status = df_safetensors_open(weights_path, &file, err);
    if (status != DFLASH_OK) goto cleanup;
    record = config_record(&config);
    if (record == NULL)
        status = df_fail_memory(err, "the config's record", 4096);
    else
        status = show(options, record, file, shown, err);
cleanup:
    cJSON_Delete(record);
    df_safetensors_close(file);
    free(weights_path);
    free(config_path);
    return status;
}
