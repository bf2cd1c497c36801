/* vectors_file.c - see vectors_file.h. */
#include "vectors/vectors_file.h"

#include "common/error.h"
#include "store/stage_set.h"
#include "store/store_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARAMS_TEXT = 1 << 16, VERSION = 1 };

dflash_status dp_vectors_open(const char *path, dp_vectors_file *out, dflash_error *err) {
    char kind[32], schema[32];
    int64_t version = 0;
    cJSON *provenance = NULL;
    *out = (dp_vectors_file){.path = path, .file = H5I_INVALID_HID};
    dp_h5_quiet_begin(&out->quiet);
    TRY(dp_h5_open_file(path, &out->file, err));
    TRY(dp_h5_text_attribute(out->file, path, "schema", schema, sizeof schema, err));
    TRY(dp_h5_text_attribute(out->file, path, "kind", kind, sizeof kind, err));
    TRY(dp_h5_int_attribute(out->file, path, "schema_version", &version, 1, NULL, err));
    if (strcmp(schema, "dflash-parity") != 0 || strcmp(kind, "vectors") != 0 || version != VERSION)
        return df_fail(err, DFLASH_ERR_REFUSED, "vectors.kind",
                       "%s: expected the schema \"dflash-parity\", version %d, of kind \"vectors\"; found \"%s\", "
                       "version %lld, \"%s\". Give what oracles/vectors.py wrote.",
                       path, VERSION, schema, (long long)version, kind);
    const dflash_status status = dp_record_read(out->file, path, "/provenance", &provenance, err);
    cJSON_Delete(provenance);
    return status == DFLASH_OK ? dp_h5_list(out->file, path, DP_VECTOR_MOST, &out->parts, err) : status;
}

void dp_vectors_close(dp_vectors_file *file) {
    dp_h5_names_release(&file->parts);
    if (file->file >= 0) H5Fclose(file->file);
    dp_h5_quiet_end(&file->quiet);
    file->file = H5I_INVALID_HID;
}

dflash_status dp_vectors_groups(const dp_vectors_file *file, const char *part, dp_h5_names *out, dflash_error *err) {
    hid_t group = H5I_INVALID_HID;
    *out = (dp_h5_names){.name = NULL};
    TRY(dp_h5_open_group(file->file, file->path, part, &group, err));
    const dflash_status status = dp_h5_list(group, part, DP_VECTOR_MOST, out, err);
    H5Gclose(group);
    return status;
}

static dflash_status wrong_params(const dp_vector_group *group, const char *key, const char *expected,
                                  dflash_error *err) {
    return df_fail(err, DFLASH_ERR_REFUSED, "vectors.params",
                   "The params of %s have no \"%s\" that is %s. Write the file again with oracles/vectors.py.",
                   group->path, key, expected);
}

dflash_status dp_vector_open(const dp_vectors_file *file, const char *part, const char *name, dp_vector_group *out,
                             dflash_error *err) {
    *out = (dp_vector_group){.group = H5I_INVALID_HID};
    snprintf(out->path, sizeof out->path, "%.*s/%.*s", DP_VECTOR_NAME - 1, part, DP_VECTOR_NAME - 1, name);
    TRY(dp_h5_open_group(file->file, file->path, out->path, &out->group, err));
    char *text = malloc(PARAMS_TEXT);
    if (text == NULL) return df_fail_memory(err, "the params of a group", PARAMS_TEXT);
    const dflash_status status = dp_h5_text_attribute(out->group, out->path, "params", text, PARAMS_TEXT, err);
    if (status == DFLASH_OK) out->params = cJSON_ParseWithOpts(text, NULL, true);
    free(text);
    if (status != DFLASH_OK) return status;
    if (!cJSON_IsObject(out->params))
        return df_fail(err, DFLASH_ERR_REFUSED, "vectors.params",
                       "The params of %s are no JSON object. Write the file again with oracles/vectors.py.", out->path);
    return dp_h5_list(out->group, out->path, DP_VECTOR_MOST, &out->names, err);
}

void dp_vector_close(dp_vector_group *group) {
    dp_h5_names_release(&group->names);
    cJSON_Delete(group->params);
    if (group->group >= 0) H5Gclose(group->group);
    *group = (dp_vector_group){.group = H5I_INVALID_HID};
}

const char *dp_vector_untaken(const dp_vector_group *group) {
    for (int i = 0; i < group->names.count; i++)
        if (!group->taken[i]) return group->names.name[i];
    return NULL;
}

dflash_status dp_vector_text(const dp_vector_group *group, const char *key, const char **out, dflash_error *err) {
    *out = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(group->params, key));
    return *out != NULL ? DFLASH_OK : wrong_params(group, key, "a string", err);
}

dflash_status dp_vector_int(const dp_vector_group *group, const char *key, int *out, dflash_error *err) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(group->params, key);
    if (!cJSON_IsNumber(item) || item->valuedouble != (double)item->valueint)
        return wrong_params(group, key, "an integer", err);
    *out = item->valueint;
    return DFLASH_OK;
}

bool dp_vector_has(const dp_vector_group *group, const char *name) {
    for (int i = 0; i < group->names.count; i++)
        if (strcmp(group->names.name[i], name) == 0) return true;
    return false;
}

/* Opens and describes a dataset of the group; close it. */
static dflash_status describe(const dp_vector_group *group, const char *name, hid_t *dataset, dp_dataset_info *info,
                              dflash_error *err) {
    char where[3 * DP_VECTOR_NAME];
    snprintf(where, sizeof where, "%s/%s", group->path, name);
    TRY(dp_h5_open_dataset(group->group, group->path, name, dataset, err));
    const dflash_status status = dp_dataset_describe(*dataset, where, info, err);
    if (status != DFLASH_OK) H5Dclose(*dataset);
    return status;
}

dflash_status dp_vector_shape(const dp_vector_group *group, const char *name, int64_t dim[4], dflash_error *err) {
    dp_dataset_info info;
    hid_t dataset;
    TRY(describe(group, name, &dataset, &info, err));
    H5Dclose(dataset);
    for (int i = 0; i < 4; i++) dim[i] = i < info.rank ? info.dim[i] : 0;
    return DFLASH_OK;
}

static dflash_status check_form(const dp_vector_group *group, const char *name, const dp_dataset_info *info,
                                dp_logical dtype, const int64_t dim[4], dflash_error *err) {
    char wanted[DP_DIMS_TEXT], found[DP_DIMS_TEXT];
    int rank = 0;
    while (rank < 4 && dim[rank] != 0) rank++;
    if (info->dtype == dtype && !info->sampled && dp_dims_equal(info->rank, info->dim, rank, dim)) return DFLASH_OK;
    return df_fail(err, DFLASH_ERR_REFUSED, "vectors.dataset",
                   "%s/%s is %s%s %s; expected %s %s. Write the file again with oracles/vectors.py.", group->path, name,
                   info->sampled ? "sampled " : "", dp_logical_name(info->dtype),
                   dp_dims_text(info->rank, info->dim, found), dp_logical_name(dtype), dp_dims_text(rank, dim, wanted));
}

static dflash_status take(dp_vector_group *group, const char *name, dp_logical dtype, const int64_t dim[4],
                          int64_t *count, double **out, dflash_error *err) {
    dp_dataset_info info;
    hid_t dataset;
    *out = NULL;
    TRY(describe(group, name, &dataset, &info, err));
    dflash_status status = check_form(group, name, &info, dtype, dim, err);
    if (status == DFLASH_OK) {
        *out = malloc((size_t)info.count * sizeof **out);
        if (*out == NULL) status = df_fail_memory(err, name, (size_t)info.count * sizeof **out);
    }
    if (status == DFLASH_OK) status = dp_dataset_read(dataset, name, &info, *out, err);
    H5Dclose(dataset);
    *count = info.count;
    for (int i = 0; i < group->names.count; i++)
        if (strcmp(group->names.name[i], name) == 0) group->taken[i] = true;
    if (status == DFLASH_OK) return DFLASH_OK;
    free(*out);
    *out = NULL;
    return status;
}

dflash_status dp_vector_doubles(dp_vector_group *group, const char *name, const int64_t dim[4], double **out,
                                dflash_error *err) {
    int64_t count;
    return take(group, name, DP_LOGICAL_F64, dim, &count, out, err);
}

dflash_status dp_vector_floats(dp_vector_group *group, const char *name, const int64_t dim[4], float **out,
                               dflash_error *err) {
    int64_t count;
    double *value;
    *out = NULL;
    TRY(take(group, name, DP_LOGICAL_F32, dim, &count, &value, err));
    *out = malloc((size_t)count * sizeof **out);
    for (int64_t i = 0; *out != NULL && i < count; i++) (*out)[i] = (float)value[i];
    free(value);
    return *out != NULL ? DFLASH_OK : df_fail_memory(err, name, (size_t)count * sizeof **out);
}

dflash_status dp_vector_ints(dp_vector_group *group, const char *name, const int64_t dim[4], int32_t **out,
                             dflash_error *err) {
    int64_t count;
    double *value;
    *out = NULL;
    TRY(take(group, name, DP_LOGICAL_I32, dim, &count, &value, err));
    *out = malloc((size_t)count * sizeof **out);
    for (int64_t i = 0; *out != NULL && i < count; i++) (*out)[i] = (int32_t)value[i];
    free(value);
    return *out != NULL ? DFLASH_OK : df_fail_memory(err, name, (size_t)count * sizeof **out);
}
