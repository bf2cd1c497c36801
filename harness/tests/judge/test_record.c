/* test_record.c - recordings: every bit of a run survives, and a file that is no whole recording is refused. */
#include "support/recording_case.h"
#include "support/recording_cases.h"

#include "support/child.h"
#include "common/dtype.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static dp_oracle *open_b(void) {
    dp_oracle *file = NULL;
    dflash_error err = {0};
    ck_assert_msg(dp_store_open(sf_path, &file, &err) == DFLASH_OK, "%s", err.message);
    return file;
}

static void expect_closed(const char *code, const char *mention) {
    dp_oracle *file = NULL;
    dflash_error err = {0};
    sf_expect(dp_store_open(sf_path, &file, &err), &err, DFLASH_ERR_REFUSED, code, mention);
}

START_TEST(a_recording_holds_every_stage_of_the_run_bit_by_bit) {
    static const char *const names[] = {"tiny-plain", "tiny-dflash2", "tiny-dspark"};
    rc_open(names[_i]);
    char oracle[SCRATCH_PATH];
    dp_run_record run;
    dflash_error err = {0};
    const dp_run_setup setup = {.checkpoint = sf_folder, .oracle = scratch_path("case.h5", oracle)};
    ck_assert_int_eq(dp_run_and_record(&setup, &run, &err), DFLASH_OK);
    dp_oracle *file = open_b();
    ck_assert_int_eq(dp_oracle_kind(file), DP_KIND_RECORDING);
    ck_assert_int_eq(dp_oracle_stage_count(file), run.stages.count);
    ck_assert_int_eq(run.in.stages.count, run.stages.count);
    for (int i = 0; i < run.stages.count; i++) {
        const dp_recorded *stage = &run.stages.stage[i];
        char name[DFLASH_STAGE_NAME_MAX];
        void *bytes = NULL;
        dflash_stage_name(stage->stage, stage->layer, name);
        const dp_dataset_info *info = dp_oracle_stage_info(file, DP_RUN_OWN, name);
        ck_assert_ptr_nonnull(info);
        ck_assert(dp_dims_equal(info->rank, info->dim, stage->rank, stage->dim));
        ck_assert_int_eq(dp_oracle_stage_bytes(file, DP_RUN_OWN, name, &bytes, &err), DFLASH_OK);
        const void *held = stage->integer != NULL ? (const void *)stage->integer : stage->value;
        ck_assert_mem_eq(bytes, held, (size_t)info->total * 4);
        free(bytes);
    }
    dp_oracle_close(file);
    dp_run_record_release(&run);
}
END_TEST

START_TEST(nan_payloads_infinities_and_minus_zero_survive) {
    static const uint32_t bits[] = {0x7fc12345u, 0x7f800001u, 0xffffffffu, 0x80000000u,
                                    0x7f800000u, 0xff800000u, 0x00000001u, 0x3f800001u};
    int64_t count;
    rc_open("tiny-plain");
    float *values = rc_values("final", &count);
    memcpy(values, bits, sizeof bits);
    rc_put_values("final", values);
    dp_oracle *file = open_b();
    void *bytes = NULL;
    dflash_error err = {0};
    ck_assert_int_eq(dp_oracle_stage_bytes(file, DP_RUN_OWN, "final", &bytes, &err), DFLASH_OK);
    ck_assert_mem_eq(bytes, values, (size_t)count * sizeof *values);
    ck_assert_mem_eq(bytes, bits, sizeof bits);
    free(bytes);
    free(values);
    dp_oracle_close(file);
}
END_TEST

START_TEST(the_same_run_gives_the_same_bytes) {
    size_t left = 0, right = 0;
    rc_open("tiny-dspark");
    rc_record();
    char *a = scratch_read(rc_a, &left), *b = scratch_read(sf_path, &right);
    ck_assert_uint_eq(left, right);
    ck_assert_mem_eq(a, b, left);
    free(a);
    free(b);
}
END_TEST

START_TEST(a_recording_says_what_ran_it) {
    static const char *const facts[] = {"name", "backend", "class", "products", "isa", "version", "commit", "compiler"};
    rc_open("tiny-dspark");
    dp_oracle *file = open_b();
    const cJSON *provenance = dp_oracle_provenance(file);
    const cJSON *engine = cJSON_GetObjectItemCaseSensitive(provenance, "engine");
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) child_text(engine, facts[i]);
    ck_assert_str_eq(child_text(engine, "backend"), "cpu");
    ck_assert_str_eq(child_text(engine, "class"), "exact");
    ck_assert(cJSON_GetObjectItemCaseSensitive(engine, "threads")->valueint == 1);
    ck_assert(cJSON_IsBool(cJSON_GetObjectItemCaseSensitive(engine, "dirty")));
    ck_assert_str_eq(child_text(provenance, "precision"), "stored");
    ck_assert_str_eq(child_text(cJSON_GetObjectItemCaseSensitive(provenance, "head"), "tensor"), "lm_head.weight");
    ck_assert_int_gt(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(provenance, "tensors")), 10);
    dp_oracle_close(file);
}
END_TEST

START_TEST(a_provenance_record_without_the_engine_or_the_precision_is_refused) {
    static const char *const keys[] = {"engine", "precision", "tensors", "command"};
    rc_open("tiny-plain");
    scratch_edit_record("provenance", keys[_i], NULL);
    expect_closed("oracle.provenance", keys[_i]);
}
END_TEST

START_TEST(a_recording_with_another_group_of_stages_is_refused) {
    rc_open("tiny-plain");
    sf_move_link("/stages/run", "/stages/float32");
    expect_closed("oracle.object.unknown", "float32");
}
END_TEST

START_TEST(a_recording_with_samples_is_refused) {
    const int64_t shape = 8;
    rc_open("tiny-plain");
    sf_set_ints(RC_STAGE "rope.inv_freq", "full_shape", H5T_STD_I64LE, &shape, 1);
    sf_set_int(RC_STAGE "rope.inv_freq", "sample_stride", 1);
    sf_set_int(RC_STAGE "rope.inv_freq", "sample_offset", 0);
    expect_closed("recording.sampled", "rope.inv_freq");
}
END_TEST

START_TEST(the_writer_takes_no_samples_and_no_run_of_a_reference_for_a_recording) {
    const float values[4] = {1, 2, 3, 4};
    dflash_error err = {0};
    dp_store_writer *writer = sf_begin_with_texts("recording", sf_geometry_text, sf_provenance_text);
    dp_store_tensor tensor = sf_tensor_of(DP_LOGICAL_F32, values, 2, 2, 2);
    ck_assert_int_eq(dp_store_write_stage(writer, DP_RUN_F32, "final", &tensor, &err), DFLASH_ERR_ARGUMENT);
    ck_assert_str_eq(err.code, "store.argument");
    tensor.stride = 2;
    ck_assert_int_eq(dp_store_write_stage(writer, DP_RUN_OWN, "final", &tensor, &err), DFLASH_ERR_ARGUMENT);
    dp_store_discard(writer);
}
END_TEST

START_TEST(the_command_writes_a_case_and_says_so) {
    char path[SCRATCH_PATH];
    scratch_path("run.h5", path);
    child_expect(CHILD("record", "--case", "tiny-plain", "--out", path), 0, "59 stages, 42904 values, precision stored",
                 "");
    cJSON *json = child_json(CHILD("record", "--case", "tiny-plain-q8_0", "--out", path, "--json"), 0);
    ck_assert_str_eq(child_text(json, "precision"), "q8_0");
    cJSON_Delete(json);
    child_expect(CHILD("compare", "oracles/tiny-plain-q8_0.h5", path), 0, "PASS: 59 of 59 stages compared", "");
}
END_TEST

START_TEST(a_wrong_word_of_record_is_a_usage_error) {
    static const struct {
        const char *word[6], *complaint;
    } usage[] = {
        {{"--case", "tiny-plain"}, "--out FILE is needed"},
        {{"--out", "x.h5"}, "either --checkpoint and --oracle, or --case, is needed"},
        {{"--out", "x.h5", "--case", "tiny-plain", "--checkpoint", "x"}, "is needed"},
        {{"--out", "x.h5", "--case", "no-such-case"}, "cases.name"},
        {{"--out", "x.h5", "--case", "tiny-plain", "-k", "final"}, "-k and --list do not apply"},
        {{"--out", "x.h5", "--case", "tiny-plain", "--precision", "q9"}, "found 'q9'"},
        {{"--case"}, "--case needs a value"},
        {{"--fast"}, "unknown word"},
    };
    for (size_t i = 0; i < sizeof usage / sizeof *usage; i++) {
        const char *words[8] = {"record"};
        int count = 1;
        while (count < 7 && usage[i].word[count - 1] != NULL) words[count] = usage[i].word[count - 1], count++;
        child_expect(child_words(words, count), 2, "", usage[i].complaint);
    }
}
END_TEST

START_TEST(a_full_disk_leaves_no_recording) {
    char path[SCRATCH_PATH];
    struct stat info;
    scratch_path("run.h5", path);
    child_next.file_size = 4096;
    child_expect(CHILD("record", "--case", "tiny-plain", "--out", path), 4, "", "atomic.");
    ck_assert_int_ne(stat(path, &info), 0);
    ck_assert_int_eq(sf_files_in_folder(), 0);
}
END_TEST

void recording_add_record(Suite *suite) {
    TCase *tests = tcase_create("record");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, scratch_open, scratch_close);
    tcase_add_loop_test(tests, a_recording_holds_every_stage_of_the_run_bit_by_bit, 0, 3);
    tcase_add_test(tests, nan_payloads_infinities_and_minus_zero_survive);
    tcase_add_test(tests, the_same_run_gives_the_same_bytes);
    tcase_add_test(tests, a_recording_says_what_ran_it);
    tcase_add_loop_test(tests, a_provenance_record_without_the_engine_or_the_precision_is_refused, 0, 4);
    tcase_add_test(tests, a_recording_with_another_group_of_stages_is_refused);
    tcase_add_test(tests, a_recording_with_samples_is_refused);
    tcase_add_test(tests, the_writer_takes_no_samples_and_no_run_of_a_reference_for_a_recording);
    tcase_add_test(tests, the_command_writes_a_case_and_says_so);
    tcase_add_test(tests, a_wrong_word_of_record_is_a_usage_error);
    tcase_add_test(tests, a_full_disk_leaves_no_recording);
    suite_add_tcase(suite, tests);
}
