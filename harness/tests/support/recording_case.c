/* recording_case.c - see recording_case.h. A helper that fails ends the test. */
#include "support/recording_case.h"

#include "base/sha256.h"
#include "store/store_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char rc_a[SCRATCH_PATH];
static char case_oracle[SCRATCH_PATH];

static void record_to(const char *path) {
    dp_run_record run;
    dflash_error err = {0};
    const dp_run_setup setup = {.checkpoint = sf_folder, .oracle = case_oracle, .engine = {.threads = 1}};
    ck_assert_msg(dp_record_to_file(&setup, "record", path, &run, &err) == DFLASH_OK, "%s", err.message);
    dp_run_record_release(&run);
}

void rc_open(const char *name) {
    scratch_copy_case(name);
    scratch_path("case.h5", case_oracle);
    scratch_path("a.h5", rc_a);
    ck_assert_int_eq(rename(sf_path, case_oracle), 0);
    record_to(rc_a);
    scratch_copy(rc_a, "oracle.h5");
}

void rc_record(void) { record_to(sf_path); }

void rc_adopt_records(void) {
    static const char *const names[] = {"geometry", "provenance"};
    for (int i = 0; i < 2; i++) {
        char path[32];
        dflash_error err = {0};
        cJSON *record = NULL;
        snprintf(path, sizeof path, "/%s", names[i]);
        const hid_t file = H5Fopen(rc_a, H5F_ACC_RDONLY, H5P_DEFAULT);
        ck_assert_int_ge(file, 0);
        ck_assert_int_eq(dp_record_read(file, rc_a, path, &record, &err), DFLASH_OK);
        ck_assert_int_ge(H5Fclose(file), 0);
        char *text = cJSON_PrintUnformatted(record);
        scratch_put_record(names[i], text);
        free(text);
        cJSON_Delete(record);
    }
}

void rc_record_fault(void) {
    rc_record();
    rc_adopt_records();
}

/* The dataset of a stage of B, and its number of elements; close both. */
static hid_t open_stage(hid_t file, const char *stage, int64_t *count) {
    char object[SCRATCH_NAME];
    snprintf(object, sizeof object, RC_STAGE "%s", stage);
    const hid_t dataset = H5Dopen2(file, object, H5P_DEFAULT);
    ck_assert_msg(dataset >= 0, "B has no %s", object);
    const hid_t space = H5Dget_space(dataset);
    *count = (int64_t)H5Sget_simple_extent_npoints(space);
    H5Sclose(space);
    return dataset;
}

float *rc_values(const char *stage, int64_t *count) {
    const hid_t file = sf_edit(), dataset = open_stage(file, stage, count);
    float *values = malloc((size_t)*count * sizeof *values);
    ck_assert_ptr_nonnull(values);
    ck_assert_int_ge(H5Dread(dataset, H5T_IEEE_F32LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), 0);
    H5Dclose(dataset);
    ck_assert_int_ge(H5Fclose(file), 0);
    return values;
}

void rc_put_values(const char *stage, const float *values) {
    char digest[65], object[SCRATCH_NAME];
    int64_t count;
    const hid_t file = sf_edit(), dataset = open_stage(file, stage, &count);
    ck_assert_int_ge(H5Dwrite(dataset, H5T_IEEE_F32LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), 0);
    H5Dclose(dataset);
    ck_assert_int_ge(H5Fclose(file), 0);
    dp_sha256_of(values, (size_t)count * sizeof *values, digest);
    snprintf(object, sizeof object, RC_STAGE "%s", stage);
    sf_set_text(object, "sha256", digest);
}

void rc_change(const char *stage, bool (*chosen)(int64_t index), float factor, float term) {
    int64_t count, changed = 0;
    float *values = rc_values(stage, &count);
    for (int64_t i = 0; i < count; i++) {
        if (!chosen(i)) continue;
        values[i] = values[i] * factor + term;
        changed++;
    }
    ck_assert_int_gt(changed, 0);
    rc_put_values(stage, values);
    free(values);
}

void rc_compare(const dp_compare_options *how, dp_file_comparison *out) {
    static dp_compare_options options;
    options = *how;
    options.files.a = rc_a;
    options.files.b = sf_path;
    dp_compare_files(&options, out);
}

void rc_expect_refusal(const char *code, const char *mention) {
    dp_file_comparison result;
    rc_compare(&(dp_compare_options){.filter = NULL}, &result);
    ck_assert_int_eq(result.verdict, DP_REFUSED);
    ck_assert_str_eq(result.error.code, code);
    ck_assert_msg(strstr(result.error.message, mention) != NULL, "%s", result.error.message);
    ck_assert_int_eq(result.count, 0);
    dp_file_comparison_release(&result);
}

void rc_bisect(dp_bisection *out) {
    static dp_compare_options options;
    options = (dp_compare_options){.files = {.a = rc_a, .b = sf_path}};
    dp_bisect_files(&options, NULL, sf_folder, out);
    ck_assert_msg(out->comparison.verdict == DP_FAIL, "verdict %d: %s", (int)out->comparison.verdict,
                  out->comparison.error.message);
    ck_assert_ptr_nonnull(out->first);
}
