/* record_file.c - see record_file.h. */
#include "judge/record_file.h"

#include "common/dtype.h"
#include "base/environment.h"
#include "common/error.h"
#include "preflight/geometry.h"
#include "base/sha256.h"
#include "store/store_write.h"
#include "base/text_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_SIZE = 4096, LARGEST_CONFIG = 1 << 24 };

/* ---- Provenance ---- */

cJSON *dp_engine_facts(const dflash_engine *engine, const dflash_engine_options *options) {
    cJSON *facts = dp_environment();
    const bool good = cJSON_AddStringToObject(facts, "name", "dflash-parity") != NULL &&
                      cJSON_AddStringToObject(facts, "backend", dflash_backend_name(options->backend)) != NULL &&
                      cJSON_AddStringToObject(facts, "class", dflash_class_name(options->numeric_class)) != NULL &&
                      cJSON_AddStringToObject(facts, "products", dflash_products_name(options->products)) != NULL &&
                      cJSON_AddStringToObject(facts, "isa", dflash_engine_isa(engine)) != NULL &&
                      cJSON_AddNumberToObject(facts, "threads", dflash_engine_threads(engine)) != NULL;
    if (good) return facts;
    cJSON_Delete(facts);
    return NULL;
}

static dflash_status config_digest(const char *checkpoint, char hex[65], dflash_error *err) {
    char path[PATH_SIZE], *text = NULL;
    if (snprintf(path, sizeof path, "%s/config.json", checkpoint) >= PATH_SIZE)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "path.long", "The checkpoint path is longer than %d characters.",
                       PATH_SIZE);
    TRY(dp_text_file_read(path, LARGEST_CONFIG, &text, err));
    dp_sha256_of(text, strlen(text), hex);
    free(text);
    return DFLASH_OK;
}

static bool add(cJSON *object, const char *key, cJSON *item) {
    if (item != NULL && cJSON_AddItemToObject(object, key, item)) return true;
    cJSON_Delete(item);
    return false;
}

/* The output head, the embedding table. */
static bool add_table(cJSON *record, const char *key, const dflash_table *table) {
    if (table == NULL) return true;
    const dflash_tensor_view view = dflash_table_view(table);
    char hex[65];
    dp_sha256_of(view.data, view.bytes, hex);
    cJSON *object = dp_tensor_record(&view, hex);
    return add(record, key, object) && cJSON_AddStringToObject(object, "tensor", view.name) != NULL;
}

static dflash_status provenance_text(const dp_run_record *run, const char *checkpoint_digest, const char *command,
                                     char **out, dflash_error *err) {
    cJSON *tensors = NULL, *record = cJSON_CreateObject();
    dflash_status status = dp_provenance_of(run->draft, dflash_engine_threads(run->handle), &tensors, err);
    if (status == DFLASH_OK && cJSON_AddStringToObject(record, "generator", "dflash-parity record") != NULL &&
        cJSON_AddStringToObject(record, "command", command) != NULL &&
        cJSON_AddStringToObject(record, "config_sha256", checkpoint_digest) != NULL &&
        cJSON_AddStringToObject(record, "precision", dflash_precision_name(run->precision)) != NULL &&
        add(record, "engine", dp_engine_facts(run->handle, &run->engine)) && add_table(record, "head", run->head) &&
        add_table(record, "embedding", run->embedding) && cJSON_AddItemToObject(record, "tensors", tensors)) {
        tensors = NULL;
        *out = cJSON_PrintUnformatted(record);
    }
    if (status == DFLASH_OK && *out == NULL) status = df_fail_memory(err, "the provenance record", 0);
    cJSON_Delete(tensors);
    cJSON_Delete(record);
    return status;
}

/* ---- The file ---- */

static dflash_status write_geometry(const dp_run_record *run, dp_store_writer *writer, dflash_error *err) {
    cJSON *geometry = dp_geometry_of(&run->in.config);
    char *text = geometry != NULL ? cJSON_PrintUnformatted(geometry) : NULL;
    const dflash_status status = text != NULL ? dp_store_write_text(writer, "geometry", text, err)
                                              : df_fail_memory(err, "the geometry record", 0);
    cJSON_free(text);
    cJSON_Delete(geometry);
    return status;
}

static dp_store_tensor whole(dp_logical dtype, int rank, int64_t d0, int64_t d1, const void *data) {
    return (dp_store_tensor){.dtype = dtype, .rank = rank, .dim = {d0, d1}, .stride = 1, .data = data};
}

/* Floats as what they are: bfloat16 where that holds every one of them. */
static dflash_status write_floats(dp_store_writer *writer, const char *name, int64_t rows, int64_t columns,
                                  const float *value, dflash_error *err) {
    const int64_t count = rows * columns;
    uint16_t *half = malloc((size_t)count * sizeof *half);
    if (half == NULL) return df_fail_memory(err, name, (size_t)count * sizeof *half);
    int64_t exact = 0;
    while (exact < count && df_bf16_to_f32(half[exact] = df_f32_to_bf16(value[exact])) == value[exact]) exact++;
    const dp_store_tensor tensor = exact == count ? whole(DP_LOGICAL_BF16, 2, rows, columns, half)
                                                  : whole(DP_LOGICAL_F32, 2, rows, columns, value);
    const dflash_status status = dp_store_write_input(writer, name, &tensor, err);
    free(half);
    return status;
}

static dflash_status write_inputs(const dp_preflight *in, dp_store_writer *writer, dflash_error *err) {
    const int64_t hidden = in->config.hidden, rows = (int64_t)in->context + in->config.block;
    const dp_store_tensor positions = whole(DP_LOGICAL_I32, 1, rows, 0, in->pos),
                          anchor = whole(DP_LOGICAL_I32, 1, 1, 0, &in->anchor),
                          ids = whole(DP_LOGICAL_I32, 1, in->config.block, 0, in->ids);
    TRY(write_floats(writer, "target_hidden", in->context, in->config.n_taps * hidden, in->taps, err));
    TRY(write_floats(writer, "noise_embedding", in->config.block, hidden, in->noise, err));
    TRY(dp_store_write_input(writer, "positions", &positions, err));
    if (in->vocab > 0) TRY(dp_store_write_input(writer, "anchor", &anchor, err));
    return in->ids != NULL ? dp_store_write_input(writer, "block_ids", &ids, err) : DFLASH_OK;
}

static dflash_status write_stages(const dp_recording *stages, dp_store_writer *writer, dflash_error *err) {
    for (int i = 0; i < stages->count; i++) {
        const dp_recorded *stage = &stages->stage[i];
        char name[DFLASH_STAGE_NAME_MAX];
        dp_store_tensor tensor = {.dtype = stage->integer != NULL ? DP_LOGICAL_I32 : DP_LOGICAL_F32,
                                  .rank = stage->rank,
                                  .stride = 1,
                                  .data = stage->integer != NULL ? (const void *)stage->integer : stage->value};
        memcpy(tensor.dim, stage->dim, sizeof tensor.dim);
        TRY(dp_store_write_stage(writer, DP_RUN_OWN, dflash_stage_name(stage->stage, stage->layer, name), &tensor,
                                 err));
    }
    return DFLASH_OK;
}

static dflash_status write_content(const dp_run_record *run, const char *provenance, dp_store_writer *writer,
                                   dflash_error *err) {
    TRY(write_geometry(run, writer, err));
    TRY(dp_store_write_text(writer, "provenance", provenance, err));
    TRY(write_inputs(&run->in, writer, err));
    return write_stages(&run->stages, writer, err);
}

static dflash_status write_run(const dp_run_record *run, const char *checkpoint, const char *command, const char *path,
                               dflash_error *err) {
    char digest[65], *provenance = NULL;
    dp_store_writer *writer = NULL;
    TRY(config_digest(checkpoint, digest, err));
    dflash_status status = provenance_text(run, digest, command, &provenance, err);
    if (status == DFLASH_OK) status = dp_store_create(path, dp_kind_name(DP_KIND_RECORDING), &writer, err);
    if (status == DFLASH_OK) status = write_content(run, provenance, writer, err);
    if (status == DFLASH_OK)
        status = dp_store_commit(writer, err);
    else
        dp_store_discard(writer);
    cJSON_free(provenance);
    return status;
}

dflash_status dp_record_to_file(const dp_run_setup *setup, const char *command, const char *path, dp_run_record *run,
                                dflash_error *err) {
    dflash_status status = dp_run_and_record(setup, run, err);
    if (status == DFLASH_OK) status = write_run(run, setup->checkpoint, command, path, err);
    return status;
}
