/*
 * test_config_refusals.c - refusals that need more than a line of fixtures/config-rules/: sizes, and files that cannot
 * be read as one.
 */
#include "support/config_cases.h"
#include "config/config_limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void must_refuse(const char *text, size_t length, const char *code) {
    dflash_config config;
    dflash_error err = {0};
    ck_assert_int_eq(df_config_parse(text, length, "test config", &config, &err), DFLASH_ERR_REFUSED);
    ck_assert_int_eq(err.status, DFLASH_ERR_REFUSED);
    ck_assert_str_eq(err.code, code);
    ck_assert_msg(strstr(err.message, "test config") != NULL, "%s", err.message);
}

START_TEST(a_config_over_the_size_ceiling_is_refused) {
    const size_t size = (size_t)DF_LIMIT_CONFIG_BYTES + 1;
    char *text = malloc(size);
    ck_assert_ptr_nonnull(text);
    memset(text, ' ', size);
    must_refuse(text, size, "config.file.size");
    free(text);
}
END_TEST

START_TEST(more_taps_than_the_ceiling_are_refused) {
    char list[512] = "[0";
    for (int i = 1; i <= DFLASH_MAX_TAPS; i++) {
        const size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, ",%d%s", i, i == DFLASH_MAX_TAPS ? "]" : "");
    }
    dflash_config config;
    dflash_error err = {0};
    const edit change = {"plain", "dflash_config.target_layer_ids", list, "num_target_layers", "80"};
    ck_assert_int_eq(config_parse_edited(&change, &config, &err), DFLASH_ERR_REFUSED);
    ck_assert_str_eq(err.code, "config.taps.count");
    ck_assert_ptr_nonnull(strstr(err.message, "65 entries"));
}
END_TEST

/* ---- Files ---- */

static char folder[256];

static void make_folder(void) {
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/test_config.XXXXXX", base != NULL && base[0] != '\0' ? base : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void) {
    char path[300];
    snprintf(path, sizeof path, "%s/config.json", folder);
    unlink(path);
    ck_assert_int_eq(rmdir(folder), 0);
}

static void must_not_read(const char *path, dflash_status status, const char *code) {
    dflash_config c;
    dflash_error err = {0};
    ck_assert_int_eq(dflash_config_read(path, &c, &err), status);
    ck_assert_int_eq(err.status, status);
    ck_assert_str_eq(err.code, code);
    ck_assert_msg(strstr(err.message, path) != NULL, "%s", err.message);
}

START_TEST(a_file_that_cannot_be_read_as_one_is_an_error) {
    char path[300];
    snprintf(path, sizeof path, "%s/config.json", folder);
    must_not_read(path, DFLASH_ERR_IO, "config.file.open");
    must_not_read(folder, DFLASH_ERR_IO, "config.file.kind");
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    must_not_read(path, DFLASH_ERR_IO, "config.file.kind");
    ck_assert_int_eq(unlink(path), 0);

    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fclose(file), 0);
    must_not_read(path, DFLASH_ERR_REFUSED, "config.json.syntax");
    ck_assert_int_eq(truncate(path, (off_t)DF_LIMIT_CONFIG_BYTES + 1), 0);
    must_not_read(path, DFLASH_ERR_REFUSED, "config.file.size");
}
END_TEST

START_TEST(null_arguments_are_an_argument_error) {
    dflash_config c;
    dflash_error err = {0};
    ck_assert_int_eq(dflash_config_read(NULL, &c, &err), DFLASH_ERR_ARGUMENT);
    ck_assert_str_eq(err.code, "config.argument");
    ck_assert_int_eq(df_config_parse(NULL, 0, "x", &c, &err), DFLASH_ERR_ARGUMENT);
    ck_assert_str_eq(err.code, "config.argument");
    ck_assert_int_eq(df_config_parse("[]", 2, "x", &c, NULL), DFLASH_ERR_REFUSED);
}
END_TEST

void config_add_refusals(Suite *suite) {
    TCase *refusals = tcase_create("refusals");
    tcase_set_timeout(refusals, 30);
    tcase_add_test(refusals, a_config_over_the_size_ceiling_is_refused);
    tcase_add_test(refusals, more_taps_than_the_ceiling_are_refused);
    suite_add_tcase(suite, refusals);

    TCase *files = tcase_create("files");
    tcase_add_checked_fixture(files, make_folder, remove_folder);
    tcase_add_test(files, null_arguments_are_an_argument_error);
    tcase_add_test(files, a_file_that_cannot_be_read_as_one_is_an_error);
    suite_add_tcase(suite, files);
}
