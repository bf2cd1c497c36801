/* scratch.c - see scratch.h. A helper that fails ends the test. */
#include "support/scratch.h"

#include "judge/round_variants.h"

#include "weights/safetensors.h"
#include "base/sha256.h"
#include "store/store_record.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

dp_check_options scratch_options;

void scratch_open(void) {
    sf_set_up();
    scratch_options = (dp_check_options){.threads = 2};
}
void scratch_close(void) { tf_remove_dir(sf_folder); }

const char *scratch_path(const char *name, char out[SCRATCH_PATH]) {
    ck_assert_int_lt(snprintf(out, SCRATCH_PATH, "%s/%s", sf_folder, name), SCRATCH_PATH);
    return out;
}

/* ---- Files ---- */

char *scratch_read(const char *path, size_t *length) {
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "cannot open %s", path);
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    *length = (size_t)ftell(file);
    rewind(file);
    char *data = malloc(*length + 1);
    ck_assert_ptr_nonnull(data);
    ck_assert_uint_eq(fread(data, 1, *length, file), *length);
    data[*length] = '\0';
    fclose(file);
    return data;
}

void scratch_write(const char *name, const void *data, size_t length) {
    char path[SCRATCH_PATH];
    FILE *file = fopen(scratch_path(name, path), "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(data, 1, length, file), length);
    ck_assert_int_eq(fclose(file), 0);
}

void scratch_write_text(const char *name, const char *text) { scratch_write(name, text, strlen(text)); }

void scratch_copy(const char *from, const char *name) {
    size_t length;
    char *data = scratch_read(from, &length);
    scratch_write(name, data, length);
    free(data);
}

void scratch_copy_case(const char *name) {
    char path[SCRATCH_PATH];
    snprintf(path, sizeof path, "fixtures/small/%s/config.json", name);
    scratch_copy(path, "config.json");
    snprintf(path, sizeof path, "fixtures/small/%s/model.safetensors", name);
    scratch_copy(path, "model.safetensors");
    snprintf(path, sizeof path, "oracles/%s.h5", name);
    scratch_copy(path, "oracle.h5");
}

/* ---- JSON ---- */

static void set_key(cJSON *document, const char *key, const char *json) {
    cJSON *object = document;
    for (const char *slash; (slash = strchr(key, '/')) != NULL; key = slash + 1) {
        char part[SCRATCH_NAME];
        snprintf(part, sizeof part, "%.*s", (int)(slash - key), key);
        object = cJSON_GetObjectItemCaseSensitive(object, part);
        ck_assert_msg(cJSON_IsObject(object), "there is no object %s", part);
    }
    if (json == NULL) {
        ck_assert_ptr_nonnull(cJSON_GetObjectItemCaseSensitive(object, key));
        cJSON_DeleteItemFromObjectCaseSensitive(object, key);
        return;
    }
    cJSON *value = cJSON_Parse(json);
    ck_assert_msg(value != NULL, "not JSON: %s", json);
    if (cJSON_GetObjectItemCaseSensitive(object, key) != NULL)
        ck_assert(cJSON_ReplaceItemInObjectCaseSensitive(object, key, value));
    else
        ck_assert(cJSON_AddItemToObject(object, key, value));
}

void scratch_edit_config(const char *key, const char *json) {
    char path[SCRATCH_PATH];
    size_t length;
    char *text = scratch_read(scratch_path("config.json", path), &length);
    cJSON *document = cJSON_Parse(text);
    ck_assert_ptr_nonnull(document);
    set_key(document, key, json);
    free(text);
    text = cJSON_Print(document);
    scratch_write_text("config.json", text);
    cJSON_Delete(document);
    if (access(sf_path, F_OK) == 0 && H5Fis_hdf5(sf_path) > 0) {
        char digest[65], quoted[80];
        dp_sha256_of(text, strlen(text), digest);
        snprintf(quoted, sizeof quoted, "\"%s\"", digest);
        scratch_edit_record("provenance", "config_sha256", quoted);
    }
    free(text);
}

void scratch_edit_record(const char *record, const char *key, const char *json) {
    char path[32];
    dflash_error err;
    cJSON *document = NULL;
    const hid_t file = sf_edit();
    snprintf(path, sizeof path, "/%s", record);
    ck_assert_int_eq(dp_record_read(file, sf_path, path, &document, &err), DFLASH_OK);
    ck_assert_int_ge(H5Fclose(file), 0);
    set_key(document, key, json);
    char *text = cJSON_PrintUnformatted(document);
    scratch_put_record(record, text);
    free(text);
    cJSON_Delete(document);
}

/* ---- Datasets ---- */

static void put_text_attribute(hid_t object, const char *name, const char *text) {
    const hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    ck_assert_int_ge(H5Tset_size(type, strlen(text)), 0);
    const hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert_int_ge(H5Awrite(attribute, type, text), 0);
    H5Aclose(attribute);
    H5Sclose(space);
    H5Tclose(type);
}

void scratch_put_record(const char *record, const char *text) {
    char digest[65];
    dp_sha256_of(text, strlen(text), digest);
    const hid_t file = sf_edit(), type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    ck_assert_int_ge(H5Tset_size(type, strlen(text)), 0);
    ck_assert_int_ge(H5Tset_cset(type, H5T_CSET_UTF8), 0);
    ck_assert_int_ge(H5Ldelete(file, record, H5P_DEFAULT), 0);
    const hid_t dataset = H5Dcreate2(file, record, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert_int_ge(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text), 0);
    put_text_attribute(dataset, "sha256", digest);
    H5Dclose(dataset);
    H5Sclose(space);
    H5Tclose(type);
    ck_assert_int_ge(H5Fclose(file), 0);
}

double *scratch_values(const char *object, int64_t *count) {
    const hid_t file = sf_edit(), dataset = H5Dopen2(file, object, H5P_DEFAULT);
    ck_assert_msg(dataset >= 0, "the oracle has no %s", object);
    const hid_t space = H5Dget_space(dataset);
    *count = (int64_t)H5Sget_simple_extent_npoints(space);
    double *value = malloc((size_t)*count * sizeof *value);
    ck_assert_ptr_nonnull(value);
    ck_assert_int_ge(H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, value), 0);
    H5Sclose(space);
    H5Dclose(dataset);
    ck_assert_int_ge(H5Fclose(file), 0);
    return value;
}

/* SHA-256 of the bytes that a dataset stores. */
static void digest_of(hid_t dataset, char digest[65]) {
    const hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
    const size_t bytes = (size_t)H5Sget_simple_extent_npoints(space) * H5Tget_size(type);
    void *raw = malloc(bytes);
    ck_assert_ptr_nonnull(raw);
    ck_assert_int_ge(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, raw), 0);
    dp_sha256_of(raw, bytes, digest);
    free(raw);
    H5Sclose(space);
    H5Tclose(type);
}

void scratch_set_values(const char *object, const double *value) {
    char digest[65];
    const hid_t file = sf_edit(), dataset = H5Dopen2(file, object, H5P_DEFAULT);
    ck_assert_int_ge(H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, value), 0);
    digest_of(dataset, digest);
    H5Dclose(dataset);
    ck_assert_int_ge(H5Fclose(file), 0);
    sf_set_text(object, "sha256", digest);
}

void scratch_change_value(const char *object, int64_t index, double factor, double term) {
    int64_t count;
    double *value = scratch_values(object, &count);
    ck_assert_int_lt(index, count);
    value[index] = value[index] * factor + term;
    scratch_set_values(object, value);
    free(value);
}

void scratch_reshape(const char *object, dp_logical dtype, int rank, const hsize_t *dim) {
    int64_t count, wanted = 1;
    char digest[65];
    double *value = scratch_values(object, &count);
    for (int i = 0; i < rank; i++) wanted *= (int64_t)dim[i];
    ck_assert_int_le(wanted, count);
    const hid_t file = sf_edit(), space = H5Screate_simple(rank, dim, NULL), list = H5Pcreate(H5P_DATASET_CREATE);
    ck_assert_int_ge(H5Pset_chunk(list, rank, dim), 0);
    ck_assert_int_ge(H5Pset_fletcher32(list), 0);
    ck_assert_int_ge(H5Ldelete(file, object, H5P_DEFAULT), 0);
    const hid_t dataset = H5Dcreate2(file, object, dp_logical_h5(dtype), space, H5P_DEFAULT, list, H5P_DEFAULT);
    ck_assert_int_ge(H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, value), 0);
    digest_of(dataset, digest);
    put_text_attribute(dataset, "logical_dtype", dp_logical_name(dtype));
    put_text_attribute(dataset, "sha256", digest);
    H5Dclose(dataset);
    H5Pclose(list);
    H5Sclose(space);
    ck_assert_int_ge(H5Fclose(file), 0);
    free(value);
}

/* ---- Weights ---- */

/* The header of a safetensors file in memory, and where its data starts. */
static cJSON *header_of(const char *data, size_t *start) {
    uint64_t length;
    memcpy(&length, data, sizeof length);
    cJSON *header = cJSON_ParseWithLength(data + 8, (size_t)length);
    ck_assert_ptr_nonnull(header);
    cJSON_DeleteItemFromObjectCaseSensitive(header, "__metadata__");
    *start = 8 + (size_t)length;
    return header;
}

tf_file *scratch_tensors(void) {
    char path[SCRATCH_PATH];
    dflash_error err = {0};
    df_safetensors *file = NULL;
    ck_assert_int_eq(df_safetensors_open(scratch_path("model.safetensors", path), &file, &err), DFLASH_OK);
    tf_file *copy = tf_new();
    for (int i = 0; i < df_safetensors_count(file); i++) {
        const df_tensor *tensor = df_safetensors_at(file, i);
        tf_add(copy, tensor->name, df_dtype_name(tensor->dtype), tensor->rank, tensor->dim, tensor->data);
    }
    df_safetensors_close(file);
    return copy;
}

void scratch_put_tensors(tf_file *file) {
    char path[SCRATCH_PATH];
    tf_write(file, scratch_path("model.safetensors", path));
    tf_free(file);
}

int scratch_tensor_names(char name[SCRATCH_TENSORS][SCRATCH_NAME]) {
    char path[SCRATCH_PATH];
    size_t length, start;
    char *data = scratch_read(scratch_path("model.safetensors", path), &length);
    cJSON *header = header_of(data, &start);
    int count = 0;
    for (const cJSON *tensor = header->child; tensor != NULL; tensor = tensor->next) {
        ck_assert_int_lt(count, SCRATCH_TENSORS);
        snprintf(name[count++], SCRATCH_NAME, "%s", tensor->string);
    }
    cJSON_Delete(header);
    free(data);
    return count;
}

/* Reads the file, shows the bytes of one tensor of two-byte elements, and the writing back. */
static char *open_tensor(const char *tensor, size_t *length, unsigned char **at, size_t *bytes) {
    char path[SCRATCH_PATH];
    size_t start;
    char *data = scratch_read(scratch_path("model.safetensors", path), length);
    cJSON *header = header_of(data, &start);
    const cJSON *entry = cJSON_GetObjectItemCaseSensitive(header, tensor);
    ck_assert_msg(entry != NULL, "there is no tensor %s", tensor);
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");
    const char *dtype = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "dtype"));
    ck_assert(strcmp(dtype, "BF16") == 0 || strcmp(dtype, "F16") == 0);
    const size_t begin = (size_t)cJSON_GetArrayItem(offsets, 0)->valuedouble;
    *bytes = (size_t)cJSON_GetArrayItem(offsets, 1)->valuedouble - begin;
    *at = (unsigned char *)data + start + begin;
    cJSON_Delete(header);
    return data;
}

void scratch_flip_weight(const char *tensor, int64_t index, int bit, bool agreed) {
    size_t length, bytes;
    unsigned char *at;
    char *data = open_tensor(tensor, &length, &at, &bytes);
    ck_assert_uint_lt((size_t)index * 2 + 1, bytes);
    at[2 * index + bit / 8] ^= (unsigned char)(1u << bit % 8);
    scratch_write("model.safetensors", data, length);
    if (agreed) {
        char key[SCRATCH_NAME + 32], json[72], digest[65];
        dp_sha256_of(at, bytes, digest);
        snprintf(key, sizeof key, "tensors/%s/sha256", tensor);
        snprintf(json, sizeof json, "\"%s\"", digest);
        scratch_edit_record("provenance", key, json);
    }
    free(data);
}

void scratch_set_weight(const char *tensor, int64_t index, uint16_t bits) {
    size_t length, bytes;
    unsigned char *at;
    char *data = open_tensor(tensor, &length, &at, &bytes);
    ck_assert_uint_lt((size_t)index * 2 + 1, bytes);
    memcpy(at + 2 * index, &bits, sizeof bits);
    scratch_write("model.safetensors", data, length);
    free(data);
}

/* ---- Checking ---- */

void scratch_check(const char *filter, dp_result *result) {
    static dp_check_options options; /* the result keeps a pointer to it */
    options = scratch_options;
    options.checkpoint = sf_folder;
    options.oracle = sf_path;
    options.filter = filter;
    dp_check(&options, result);
    ck_assert_int_eq(H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL), 0);
}

void scratch_expect_stop(dp_verdict verdict, const char *code, const char *a, const char *b, const char *c) {
    dp_result result;
    const char *const word[] = {a, b, c};
    scratch_check(NULL, &result);
    ck_assert_msg(result.verdict == verdict, "verdict %s: %s", dp_verdict_name(result.verdict), result.error.message);
    ck_assert_msg(strcmp(result.error.code, code) == 0, "code %s: %s", result.error.code, result.error.message);
    ck_assert_int_eq(result.error.status == DFLASH_ERR_IO, verdict == DP_ERROR);
    ck_assert_int_eq(result.stage_count, 0);
    ck_assert_int_eq(result.variant_count, 0);
    ck_assert_int_eq(dp_verdict_exit_code(result.verdict), verdict == DP_ERROR ? 4 : 3);
    for (int i = 0; i < 3; i++)
        ck_assert_msg(word[i] == NULL || strstr(result.error.message, word[i]) != NULL, "\"%s\" is not in: %s", word[i],
                      result.error.message);
    dp_result_release(&result);
}

void scratch_expect_failure(const char *first) {
    dp_result result;
    scratch_check(NULL, &result);
    ck_assert_msg(result.verdict == DP_FAIL, "verdict %s: %s", dp_verdict_name(result.verdict), result.error.message);
    ck_assert_int_eq(dp_verdict_exit_code(result.verdict), 1);
    ck_assert_int_eq(result.stage_count, result.stages_known);
    int at = 0;
    while (at < result.stage_count && result.stage[at].pass) at++;
    ck_assert_int_lt(at, result.stage_count);
    ck_assert_str_eq(result.stage[at].name, first);
    ck_assert(result.stage[at].headroom < 0.0);
    dp_result_release(&result);
}

void scratch_expect_pass(void) {
    dp_result result;
    scratch_check(NULL, &result);
    ck_assert_msg(result.verdict == DP_PASS, "verdict %s: %s", dp_verdict_name(result.verdict), result.error.message);
    ck_assert_int_eq(dp_verdict_exit_code(result.verdict), 0);
    ck_assert_int_gt(result.stages_known, 0);
    ck_assert_int_eq(result.stage_count, result.stages_known);
    ck_assert_int_eq(result.failed_stages, 0);
    dflash_config config;
    dflash_error err = {0};
    char path[SCRATCH_PATH];
    int variants = 0;
    ck_assert_int_eq(dflash_config_read(scratch_path("config.json", path), &config, &err), DFLASH_OK);
    for (int i = 0; dp_variant_at(i) != NULL; i++) variants += dp_variant_exists(dp_variant_at(i), &config);
    ck_assert_int_eq(result.variant_count, variants);
    for (int i = 0; i < result.variant_count; i++) {
        ck_assert(result.variant[i].identical);
        ck_assert_int_gt(result.variant[i].compared, 0);
    }
    dp_result_release(&result);
}
