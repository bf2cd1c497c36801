/* synth_files.c - see synth_files.h. */
#include "support/synth_files.h"

#include "base/sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char synth_folder[TF_PATH_MAX], synth_out[SYNTH_DIR], synth_given[SYNTH_DIR];
char synth_out_config[SYNTH_PATH], synth_out_model[SYNTH_PATH];

void synth_setup(void) {
    tf_make_dir(synth_folder);
    snprintf(synth_out, sizeof synth_out, "%s/out", synth_folder);
    snprintf(synth_given, sizeof synth_given, "%s/given.json", synth_folder);
    snprintf(synth_out_config, sizeof synth_out_config, "%s/config.json", synth_out);
    snprintf(synth_out_model, sizeof synth_out_model, "%s/model.safetensors", synth_out);
}

void synth_teardown(void) {
    if (access(synth_out, F_OK) == 0) tf_remove_dir(synth_out);
    tf_remove_dir(synth_folder);
}

void synth_put(const char *path, const char *text) {
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text, 1, strlen(text), file), strlen(text));
    ck_assert_int_eq(fclose(file), 0);
}

char *synth_slurp(const char *path, size_t *length) {
    struct stat info;
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "cannot open %s", path);
    ck_assert_int_eq(fstat(fileno(file), &info), 0);
    *length = (size_t)info.st_size;
    char *data = malloc(*length + 1);
    ck_assert_ptr_nonnull(data);
    ck_assert_uint_eq(fread(data, 1, *length, file), *length);
    fclose(file);
    data[*length] = '\0';
    return data;
}

void synth_assert_same_file(const char *a, const char *b) {
    size_t a_length, b_length;
    char *a_data = synth_slurp(a, &a_length), *b_data = synth_slurp(b, &b_length);
    ck_assert_msg(a_length == b_length && memcmp(a_data, b_data, a_length) == 0, "%s differs from %s", a, b);
    free(a_data);
    free(b_data);
}

static void write_out(const char *config, const dp_synth_options *options) {
    dflash_error err = {0};
    const dflash_status status = dp_synth_write(config, synth_out, options, NULL, &err);
    ck_assert_msg(status == DFLASH_OK, "%s: %s", err.code, err.message);
}

void synth_run(const char *config, uint64_t seed, df_dtype dtype, dp_synth_profile profile, int threads) {
    write_out(config, &(dp_synth_options){.seed = seed, .dtype = dtype, .profile = profile, .threads = threads});
}

void synth_run_with(const char *config, uint64_t seed, df_dtype dtype, dp_synth_profile profile, unsigned extras) {
    write_out(config,
              &(dp_synth_options){.seed = seed, .dtype = dtype, .profile = profile, .extras = extras, .threads = 2});
}

void synth_digest(char hex[65]) {
    size_t length;
    char *data = synth_slurp(synth_out_model, &length);
    dp_sha256_of(data, length, hex);
    free(data);
}

df_safetensors *synth_open(void) {
    dflash_error err = {0};
    df_safetensors *file = NULL;
    ck_assert_msg(df_safetensors_open(synth_out_model, &file, &err) == DFLASH_OK, "%s", err.message);
    return file;
}
