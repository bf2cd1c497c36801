/* safetensors_case.c - see safetensors_case.h. */
#include "support/safetensors_case.h"

#include <stdio.h>
#include <string.h>

char st_dir[TF_PATH_MAX], st_path[TF_PATH_MAX + 32];
tf_file *st_file;

static void setup(void) {
    tf_make_dir(st_dir);
    snprintf(st_path, sizeof st_path, "%s/model.safetensors", st_dir);
    st_file = tf_new();
    tf_add(st_file, "a.weight", "F32", 2, (const int64_t[]){2, 3}, NULL);
    tf_add(st_file, "b.weight", "BF16", 1, (const int64_t[]){4}, NULL);
    tf_add(st_file, "c.weight", "F16", 4, (const int64_t[]){1, 2, 1, 3}, NULL);
}

static void teardown(void) {
    tf_free(st_file);
    st_file = NULL;
    tf_remove_dir(st_dir);
}

void st_expect(dflash_status status, const char *code, const char *word) {
    dflash_error err = {.status = DFLASH_OK};
    df_safetensors *opened = NULL;
    const dflash_status got = df_safetensors_open(st_path, &opened, &err);
    ck_assert_ptr_null(opened);
    ck_assert_msg(got == status && err.status == status && strcmp(err.code, code) == 0, "expected %d %s, got %d %s: %s",
                  (int)status, code, (int)got, err.code, err.message);
    ck_assert_msg(strstr(err.message, st_path) != NULL, "the message does not name the file: %s", err.message);
    ck_assert_msg(word == NULL || strstr(err.message, word) != NULL, "no \"%s\" in: %s", word, err.message);
}

void st_refuse(const char *code, const char *word) {
    tf_write(st_file, st_path);
    st_expect(DFLASH_ERR_REFUSED, code, word);
}

df_safetensors *st_open(void) {
    dflash_error err = {.status = DFLASH_OK};
    df_safetensors *opened = NULL;
    ck_assert_msg(df_safetensors_open(st_path, &opened, &err) == DFLASH_OK, "%s: %s", err.code, err.message);
    return opened;
}

void st_refuse_use(const char *name, const char *code, const char *word) {
    dflash_error err = {.status = DFLASH_OK};
    tf_write(st_file, st_path);
    df_safetensors *opened = st_open();
    const df_tensor *tensor = df_safetensors_find(opened, name);
    ck_assert_ptr_nonnull(tensor);
    ck_assert_int_eq(df_safetensors_usable(opened, tensor, &err), DFLASH_ERR_REFUSED);
    ck_assert_msg(strcmp(err.code, code) == 0 && strstr(err.message, word) != NULL, "expected %s, \"%s\"; got %s: %s",
                  code, word, err.code, err.message);
    df_safetensors_close(opened);
}

void st_refuse_header(const char *header, int64_t data, const char *code, const char *word) {
    tf_file *raw = tf_new();
    raw->header = header;
    raw->tail = data;
    tf_write(raw, st_path);
    tf_free(raw);
    st_expect(DFLASH_ERR_REFUSED, code, word);
}

void st_write_bytes(const void *data, size_t bytes) {
    FILE *to = fopen(st_path, "wb");
    ck_assert_ptr_nonnull(to);
    ck_assert_uint_eq(fwrite(data, 1, bytes, to), bytes);
    ck_assert_int_eq(fclose(to), 0);
}

void st_add_case(Suite *suite, const char *name, void (*add)(TCase *tests)) {
    TCase *tests = tcase_create(name);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    add(tests);
    suite_add_tcase(suite, tests);
}
