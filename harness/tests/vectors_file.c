/* vectors_file.c - see vectors_file.h. A helper that fails ends the test. */
#include "vectors_file.h"

#include "store_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char file_name[] = "oracles/vectors.h5";

static void must(df_status status, const df_error *err) {
    ck_assert_msg(status == DF_OK, "%s: %s", err->code, err->message);
}

void vf_open(vf_file *file) {
    char kind[32], schema[32];
    int64_t version = 0;
    cJSON *provenance = NULL;
    df_error err = {0};
    dp_h5_quiet_begin(&file->quiet);
    file->file = H5Fopen(file_name, H5F_ACC_RDONLY, H5P_DEFAULT);
    ck_assert_msg(file->file >= 0, "cannot open %s", file_name);
    must(dp_h5_text_attribute(file->file, file_name, "schema", schema, sizeof schema, &err), &err);
    must(dp_h5_text_attribute(file->file, file_name, "kind", kind, sizeof kind, &err), &err);
    must(dp_h5_int_attribute(file->file, file_name, "schema_version", &version, 1, NULL, &err), &err);
    ck_assert_str_eq(schema, "dflash-parity");
    ck_assert_str_eq(kind, "vectors");
    ck_assert_int_eq(version, 1); /* of vectors */
    must(dp_record_read(file->file, file_name, "/provenance", &provenance, &err), &err);
    cJSON_Delete(provenance);
    must(dp_h5_list(file->file, file_name, VF_MOST, &file->parts, &err), &err);
}

void vf_close(vf_file *file) {
    dp_h5_names_release(&file->parts);
    ck_assert_int_ge(H5Fclose(file->file), 0);
    dp_h5_quiet_end(&file->quiet);
    ck_assert_int_eq(H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL), 0);
}

dp_h5_names vf_cases(const vf_file *file, const char *part, int least) {
    dp_h5_names names = {.name = NULL};
    df_error err = {0};
    hid_t group = H5I_INVALID_HID;
    must(dp_h5_open_group(file->file, file_name, part, &group, &err), &err);
    must(dp_h5_list(group, part, VF_MOST, &names, &err), &err);
    H5Gclose(group);
    ck_assert_msg(names.count >= least, "%s has %d cases of %s, expected at least %d", file_name, names.count, part,
                  least);
    return names;
}

void vf_group_open(const vf_file *file, const char *part, const char *name, vf_group *group) {
    static char text[1 << 14];
    df_error err = {0};
    *group = (vf_group){.group = H5I_INVALID_HID};
    snprintf(group->path, sizeof group->path, "%.*s/%.*s", VF_NAME - 1, part, VF_NAME - 1, name);
    must(dp_h5_open_group(file->file, file_name, group->path, &group->group, &err), &err);
    must(dp_h5_text_attribute(group->group, group->path, "params", text, sizeof text, &err), &err);
    group->params = cJSON_ParseWithOpts(text, NULL, true);
    ck_assert_msg(cJSON_IsObject(group->params), "%s: the params are no JSON object", group->path);
    must(dp_h5_list(group->group, group->path, VF_MOST, &group->names, &err), &err);
}

void vf_group_close(vf_group *group) {
    for (int i = 0; i < group->names.count; i++)
        ck_assert_msg(group->taken[i], "%s/%s was not compared", group->path, group->names.name[i]);
    dp_h5_names_release(&group->names);
    cJSON_Delete(group->params);
    H5Gclose(group->group);
}

const cJSON *vf_param(const vf_group *group, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(group->params, key);
    ck_assert_msg(item != NULL, "%s has no parameter %s", group->path, key);
    return item;
}

int vf_param_int(const vf_group *group, const char *key) {
    const cJSON *item = vf_param(group, key);
    ck_assert(cJSON_IsNumber(item) && item->valuedouble == (double)item->valueint);
    return item->valueint;
}

const char *vf_param_text(const vf_group *group, const char *key) {
    const char *text = cJSON_GetStringValue(vf_param(group, key));
    ck_assert_ptr_nonnull(text);
    return text;
}

/* Opens and describes a dataset of the group; close it. */
static hid_t describe(const vf_group *group, const char *name, dp_dataset_info *info) {
    df_error err = {0};
    char where[3 * VF_NAME];
    hid_t dataset = H5I_INVALID_HID;
    snprintf(where, sizeof where, "%s/%s", group->path, name);
    must(dp_h5_open_dataset(group->group, group->path, name, &dataset, &err), &err);
    must(dp_dataset_describe(dataset, where, info, &err), &err);
    return dataset;
}

static double *take(vf_group *group, const char *name, dp_logical dtype, const int64_t dim[4], int64_t *count) {
    df_error err = {0};
    dp_dataset_info info;
    const hid_t dataset = describe(group, name, &info);
    int rank = 0;
    while (rank < 4 && dim[rank] != 0) rank++;
    ck_assert_msg(info.dtype == dtype && !info.sampled && info.rank == rank, "%s/%s: type or rank", group->path, name);
    for (int d = 0; d < rank; d++) ck_assert_msg(info.dim[d] == dim[d], "%s/%s: dimension %d", group->path, name, d);
    double *value = malloc((size_t)info.count * sizeof *value);
    ck_assert_ptr_nonnull(value);
    must(dp_dataset_read(dataset, name, &info, value, &err), &err);
    H5Dclose(dataset);
    for (int i = 0; i < group->names.count; i++)
        if (strcmp(group->names.name[i], name) == 0) group->taken[i] = true;
    *count = info.count;
    return value;
}

double *vf_doubles(vf_group *group, const char *name, const int64_t dim[4]) {
    int64_t count;
    return take(group, name, DP_LOGICAL_F64, dim, &count);
}

float *vf_floats(vf_group *group, const char *name, const int64_t dim[4]) {
    int64_t count;
    double *value = take(group, name, DP_LOGICAL_F32, dim, &count);
    float *narrow = malloc((size_t)count * sizeof *narrow);
    ck_assert_ptr_nonnull(narrow);
    for (int64_t i = 0; i < count; i++) narrow[i] = (float)value[i];
    free(value);
    return narrow;
}

int32_t *vf_ints(vf_group *group, const char *name, const int64_t dim[4]) {
    int64_t count;
    double *value = take(group, name, DP_LOGICAL_I32, dim, &count);
    int32_t *narrow = malloc((size_t)count * sizeof *narrow);
    ck_assert_ptr_nonnull(narrow);
    for (int64_t i = 0; i < count; i++) narrow[i] = (int32_t)value[i];
    free(value);
    return narrow;
}

int vf_rows(const vf_group *group, const char *name) {
    dp_dataset_info info;
    H5Dclose(describe(group, name, &info));
    return (int)info.dim[0];
}
