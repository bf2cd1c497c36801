/* vectors_file.c - see vectors_file.h. */
#include "support/vectors_file.h"

static const char file_name[] = "oracles/vectors.h5";

static void must(dflash_status status, const dflash_error *err) {
    ck_assert_msg(status == DFLASH_OK, "%s: %s", err->code, err->message);
}

void vf_open(vf_file *file) {
    dflash_error err = {0};
    must(dp_vectors_open(file_name, file, &err), &err);
}

void vf_close(vf_file *file) {
    dp_vectors_close(file);
    ck_assert_int_eq(H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL), 0);
}

dp_h5_names vf_cases(const vf_file *file, const char *part, int least) {
    dp_h5_names names = {.name = NULL};
    dflash_error err = {0};
    must(dp_vectors_groups(file, part, &names, &err), &err);
    ck_assert_msg(names.count >= least, "%s has %d cases of %s, expected at least %d", file_name, names.count, part,
                  least);
    return names;
}

void vf_group_open(const vf_file *file, const char *part, const char *name, vf_group *group) {
    dflash_error err = {0};
    must(dp_vector_open(file, part, name, group, &err), &err);
}

void vf_group_close(vf_group *group) {
    const char *left = dp_vector_untaken(group);
    ck_assert_msg(left == NULL, "%s/%s was not compared", group->path, left);
    dp_vector_close(group);
}

const cJSON *vf_param(const vf_group *group, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(group->params, key);
    ck_assert_msg(item != NULL, "%s has no parameter %s", group->path, key);
    return item;
}

int vf_param_int(const vf_group *group, const char *key) {
    dflash_error err = {0};
    int value = 0;
    must(dp_vector_int(group, key, &value, &err), &err);
    return value;
}

const char *vf_param_text(const vf_group *group, const char *key) {
    dflash_error err = {0};
    const char *text = NULL;
    must(dp_vector_text(group, key, &text, &err), &err);
    return text;
}

double *vf_doubles(vf_group *group, const char *name, const int64_t dim[4]) {
    dflash_error err = {0};
    double *value = NULL;
    must(dp_vector_doubles(group, name, dim, &value, &err), &err);
    return value;
}

float *vf_floats(vf_group *group, const char *name, const int64_t dim[4]) {
    dflash_error err = {0};
    float *value = NULL;
    must(dp_vector_floats(group, name, dim, &value, &err), &err);
    return value;
}

int32_t *vf_ints(vf_group *group, const char *name, const int64_t dim[4]) {
    dflash_error err = {0};
    int32_t *value = NULL;
    must(dp_vector_ints(group, name, dim, &value, &err), &err);
    return value;
}

int vf_rows(const vf_group *group, const char *name) {
    dflash_error err = {0};
    int64_t dim[4];
    must(dp_vector_shape(group, name, dim, &err), &err);
    return (int)dim[0];
}
