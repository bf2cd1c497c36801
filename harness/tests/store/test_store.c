/*
 * test_store.c - what is written to an oracle file is what is read, no damaged value passes, and a file that cannot be
 * written whole is not there at all. Files of a wrong form are in test_store_refusals.c.
 */
#include "support/store_files.h"

#include "common/dtype.h"
#include "base/sha256.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- Round trips ---- */

START_TEST(every_logical_dtype_comes_back_as_it_went_in) {
    static const double f64[4] = {0x1.fffffffffffffp1023, -0.0, 0x1p-1074, 0.1};
    static const float f32[4] = {0x1.fffffep127f, -0.0f, 0x1p-149f, 0.1f};
    static const uint16_t bf16[4] = {0x7f7f, 0x8000, 0x0001, 0x3dcd};
    static const double wide_bf16[4] = {0x1.fep127, -0.0, 0x1p-133, 0x1.9ap-4};
    dp_store_writer *writer = sf_begin();
    sf_put_stage(writer, DP_RUN_F64, "final", sf_tensor_of(DP_LOGICAL_F64, f64, 2, 2, 2));
    sf_put_stage(writer, DP_RUN_F32, "final", sf_tensor_of(DP_LOGICAL_F32, f32, 2, 2, 2));
    sf_put_stage(writer, DP_RUN_BF16, "final", sf_tensor_of(DP_LOGICAL_BF16, bf16, 2, 2, 2));
    sf_commit(writer);
    dp_oracle *oracle = sf_open_good();
    for (int run = 0; run < DP_RUN_COUNT; run++) {
        dp_array array;
        dflash_error err = {0};
        ck_assert_int_eq(dp_oracle_stage(oracle, (dp_run)run, "final", &array, &err), DFLASH_OK);
        ck_assert(array.rank == 2 && array.dim[0] == 2 && array.dim[1] == 2 && array.total == 4 && array.count == 4);
        ck_assert(array.stride == 1 && array.offset == 0 && !array.integer);
        for (int i = 0; i < 4; i++) {
            const double wanted = run == DP_RUN_F64 ? f64[i] : run == DP_RUN_F32 ? (double)f32[i] : wide_bf16[i];
            ck_assert_msg(memcmp(&array.value[i], &wanted, 8) == 0, "run %d, %d: %a, not %a", run, i, array.value[i],
                          wanted);
        }
        dp_array_release(&array);
    }
    dp_oracle_close(oracle);
}
END_TEST

START_TEST(integer_stages_and_inputs_come_back_whole) {
    sf_write_good();
    dp_oracle *oracle = sf_open_good();
    dp_array ids, positions;
    dflash_error err = {0};
    ck_assert_int_eq(dp_oracle_stage(oracle, DP_RUN_F32, "select.topk_ids", &ids, &err), DFLASH_OK);
    ck_assert(ids.integer && ids.value[0] == 3 && ids.value[2] == 2147483647.0 && ids.value[3] == -2147483648.0);
    ck_assert_int_eq(dp_oracle_input(oracle, "positions", &positions, &err), DFLASH_OK);
    ck_assert(positions.integer && positions.rank == 1 && positions.count == ROWS + BLOCK);
    for (int i = 0; i < ROWS + BLOCK; i++) ck_assert(positions.value[i] == sf_good_positions[i]);
    dp_array_release(&ids);
    dp_array_release(&positions);
    dp_oracle_close(oracle);
}
END_TEST

START_TEST(a_sampled_stage_holds_every_third_element_of_its_full_shape) {
    sf_write_good();
    dp_oracle *oracle = sf_open_good();
    for (int run = 0; run < DP_RUN_COUNT; run++) {
        dp_array array;
        dflash_error err = {0};
        ck_assert_int_eq(dp_oracle_stage(oracle, (dp_run)run, "layers.2.attn.norm", &array, &err), DFLASH_OK);
        ck_assert(array.rank == 2 && array.dim[0] == BLOCK && array.dim[1] == WIDTH && array.total == BLOCK * WIDTH);
        ck_assert(array.stride == 3 && array.offset == 1 && array.count == 3);
        for (int64_t i = 0; i < 3; i++) ck_assert(array.value[i] == sf_value_at(1 + 3 * i));
        dp_array_release(&array);
    }
    dp_oracle_close(oracle);
}
END_TEST

START_TEST(stages_are_listed_in_forward_order_with_layers_by_number) {
    static const char *const order[] = {"ctx.fc", "layers.2.attn.norm", "layers.2.out", "layers.10.out",
                                        "final",  "select.topk_ids"};
    sf_write_good();
    dp_oracle *oracle = sf_open_good();
    ck_assert_int_eq(dp_oracle_stage_count(oracle), 6);
    for (int i = 0; i < 6; i++) {
        ck_assert_str_eq(dp_oracle_stage_name(oracle, i), order[i]);
        ck_assert(dp_oracle_has_stage(oracle, DP_RUN_BF16, order[i]));
    }
    ck_assert(!dp_oracle_has_stage(oracle, DP_RUN_F64, "layers.3.out"));
    ck_assert_str_eq(cJSON_GetObjectItem(dp_oracle_geometry(oracle), "family")->valuestring, "dflash");
    ck_assert_str_eq(cJSON_GetObjectItem(dp_oracle_provenance(oracle), "command")->valuestring, "make test");
    ck_assert_str_eq(dp_oracle_path(oracle), sf_path);
    dp_oracle_close(oracle);
}
END_TEST

START_TEST(equal_content_gives_equal_files) {
    size_t first_bytes = 0, second_bytes = 0;
    sf_write_good();
    unsigned char *first = sf_slurp(&first_bytes);
    sleep(1); /* past the resolution of a time stamp */
    sf_write_good();
    unsigned char *second = sf_slurp(&second_bytes);
    ck_assert_uint_eq(first_bytes, second_bytes);
    ck_assert_mem_eq(first, second, first_bytes);
    free(first);
    free(second);
}
END_TEST

START_TEST(asking_for_what_is_not_there_is_refused_by_name) {
    sf_write_good();
    dp_oracle *oracle = sf_open_good();
    dp_array array;
    dflash_error err = {0};
    ck_assert_int_eq(dp_oracle_stage(oracle, DP_RUN_F32, "layers.7.out", &array, &err), DFLASH_ERR_REFUSED);
    ck_assert_str_eq(err.code, "oracle.stage.missing");
    ck_assert_ptr_null(array.value);
    ck_assert_int_eq(dp_oracle_input(oracle, "tokens", &array, &err), DFLASH_ERR_REFUSED);
    ck_assert_str_eq(err.code, "oracle.input.missing");
    dp_oracle_close(oracle);
}
END_TEST

/* ---- Values ---- */

START_TEST(a_digest_that_does_not_hold_is_refused_naming_the_dataset) {
    sf_write_good();
    sf_set_text("/stages/float32/layers.10.out", "sha256",
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    sf_expect_refusal("oracle.digest", "/stages/float32/layers.10.out");
    sf_set_text("/stages/float32/layers.10.out", "sha256", "E3B0");
    sf_expect_refusal("oracle.attribute.type", "hexadecimal");
}
END_TEST

/* A value of the file is found by its bytes, once, and one bit of it is turned. */
START_TEST(a_flipped_bit_in_a_value_is_refused_naming_the_dataset) {
    static const double marked[4] = {1.25, 0x1.23456789abcdep7, 2.5, 3.5};
    size_t bytes = 0, found = 0, at = 0;
    dp_store_writer *writer = sf_begin();
    for (int run = 0; run < DP_RUN_COUNT; run++)
        sf_put_runs(writer, run == 0 ? "final" : run == 1 ? "ctx.fc" : "ctx.features", BLOCK, WIDTH, 1, 0);
    for (int run = 0; run < DP_RUN_COUNT; run++)
        sf_put_stage(writer, (dp_run)run, "logits",
                     sf_tensor_of(DP_LOGICAL_F64, run == 0 ? marked : (const double[4]){1, 2, 3, 4}, 2, 2, 2));
    sf_commit(writer);
    unsigned char *data = sf_slurp(&bytes);
    for (size_t i = 0; i + 8 <= bytes; i++)
        if (memcmp(data + i, &marked[1], 8) == 0) {
            found++;
            at = i;
        }
    ck_assert_uint_eq(found, 1);
    data[at] ^= 1;
    sf_spill(data, bytes);
    free(data);
    sf_expect_refusal("oracle.read", "/stages/float64/logits");
}
END_TEST

START_TEST(a_nan_or_an_infinity_in_any_run_or_input_is_refused) {
    const double f64[2][2] = {{1, (double)NAN}, {-(double)INFINITY, 1}};
    const float f32[2][2] = {{1, NAN}, {-INFINITY, 1}};
    const uint16_t bf16[2][2] = {{0, 0x7fc0}, {0xff80, 0}}, plain[2] = {0, 0};
    const void *const data[DP_RUN_COUNT][2] = {{f64[0], f64[1]}, {f32[0], f32[1]}, {bf16[0], bf16[1]}};
    const dp_logical dtype[DP_RUN_COUNT] = {DP_LOGICAL_F64, DP_LOGICAL_F32, DP_LOGICAL_BF16};
    for (int bad = 0; bad < DP_RUN_COUNT; bad++) {
        for (int kind = 0; kind < 2; kind++) {
            char object[64];
            dp_store_writer *writer = sf_begin();
            for (int run = 0; run < DP_RUN_COUNT; run++)
                sf_put_stage(writer, (dp_run)run, "final",
                             run == bad ? sf_tensor_of(dtype[run], data[run][kind], 1, 2, 0)
                                        : sf_tensor_of(DP_LOGICAL_BF16, plain, 1, 2, 0));
            sf_commit(writer);
            snprintf(object, sizeof object, "/stages/%s/final", dp_run_name((dp_run)bad));
            sf_expect_refusal("oracle.nonfinite", object);
        }
    }
    dp_store_writer *writer = sf_begin_with_texts("oracle", sf_geometry_text, sf_provenance_text);
    sf_put_input(writer, "target_hidden", sf_tensor_of(DP_LOGICAL_F32, f32[0], 2, 1, 2));
    sf_put_input(writer, "noise_embedding", sf_tensor_of(DP_LOGICAL_F32, f32[0], 2, 1, 2));
    sf_put_input(writer, "positions", sf_tensor_of(DP_LOGICAL_I32, sf_good_positions, 1, 2, 0));
    sf_put_runs(writer, "final", BLOCK, WIDTH, 1, 0);
    sf_commit(writer);
    sf_expect_refusal("oracle.nonfinite", "/inputs/target_hidden: stored element 1 of 2 is NaN");
}
END_TEST

/* Digest of every value that the file yields, or "" when something is refused. */
static void fingerprint(char hex[65]) {
    dp_oracle *oracle = NULL;
    dflash_error err = {0};
    dp_sha256 hash;
    hex[0] = '\0';
    if (dp_oracle_open(sf_path, &oracle, &err) != DFLASH_OK) {
        ck_assert(err.code[0] != '\0' && err.message[0] != '\0');
        return;
    }
    dp_sha256_init(&hash);
    for (int i = 0; i < dp_oracle_stage_count(oracle) * DP_RUN_COUNT + DP_REQUIRED_INPUTS; i++) {
        dp_array array;
        const int stage = i / DP_RUN_COUNT;
        const dflash_status status =
            stage < dp_oracle_stage_count(oracle)
                ? dp_oracle_stage(oracle, (dp_run)(i % DP_RUN_COUNT), dp_oracle_stage_name(oracle, stage), &array, &err)
                : dp_oracle_input(oracle, dp_input_name(i % DP_RUN_COUNT), &array, &err);
        ck_assert_msg(status == DFLASH_OK, "verified at opening, refused later: %s", err.message);
        dp_sha256_update(&hash, array.dim, sizeof array.dim);
        dp_sha256_update(&hash, array.value, (size_t)array.count * sizeof *array.value);
        dp_array_release(&array);
    }
    dp_oracle_close(oracle);
    dp_sha256_hex(&hash, hex);
}

START_TEST(no_flipped_byte_changes_a_value_unnoticed) {
    size_t bytes = 0;
    int refused = 0;
    char good[65], now[65];
    sf_write_good();
    fingerprint(good);
    ck_assert_str_ne(good, "");
    unsigned char *data = sf_slurp(&bytes);
    for (size_t at = 0; at < bytes; at += 97) {
        data[at] ^= 0xff;
        sf_spill(data, bytes);
        data[at] ^= 0xff;
        fingerprint(now);
        refused += now[0] == '\0';
        ck_assert_msg(now[0] == '\0' || strcmp(now, good) == 0, "the byte at %zu changed a value", at);
        ck_assert_int_eq(H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL), 0);
    }
    free(data);
    ck_assert_int_gt(refused, 0);
}
END_TEST

/* ---- Writing ---- */

static dflash_status write_limited(rlim_t limit, dflash_error *err) {
    struct rlimit before, tight;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    dp_store_writer *writer = sf_begin();
    sf_put_runs(writer, "final", BLOCK, WIDTH, 1, 0);
    tight = before;
    tight.rlim_cur = limit;
    void (*const handler)(int) = signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &tight), 0);
    const dflash_status status = dp_store_commit(writer, err);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    return status;
}

START_TEST(a_full_disk_is_reported_and_leaves_nothing_behind) {
    for (rlim_t limit = 0; limit < 4096; limit += 1000) {
        dflash_error err = {0};
        sf_expect(write_limited(limit, &err), &err, DFLASH_ERR_IO, "atomic.write", sf_path);
        ck_assert_int_eq(sf_files_in_folder(), 0);
    }
}
END_TEST

START_TEST(a_full_disk_leaves_the_earlier_file_as_it_was) {
    char before[65], after[65];
    dflash_error err = {0};
    sf_write_good();
    fingerprint(before);
    sf_expect(write_limited(1000, &err), &err, DFLASH_ERR_IO, "atomic.write", sf_path);
    ck_assert_int_eq(sf_files_in_folder(), 1);
    fingerprint(after);
    ck_assert_str_eq(after, before);
}
END_TEST

START_TEST(a_folder_that_does_not_exist_is_reported) {
    dflash_error err = {0};
    char kept[sizeof sf_path];
    memcpy(kept, sf_path, sizeof sf_path);
    snprintf(sf_path, sizeof sf_path, "%s/nowhere/oracle.h5", sf_folder);
    const dflash_status status = dp_store_commit(sf_begin(), &err);
    memcpy(sf_path, kept, sizeof sf_path);
    sf_expect(status, &err, DFLASH_ERR_IO, "atomic.open", "nowhere");
}
END_TEST

START_TEST(a_discarded_writer_leaves_nothing_behind) {
    dp_store_discard(sf_begin());
    ck_assert_int_eq(sf_files_in_folder(), 0);
}
END_TEST

START_TEST(a_file_without_its_records_is_not_written) {
    dp_store_writer *writer = NULL;
    dflash_error err = {0};
    ck_assert_int_eq(dp_store_create(sf_path, "oracle", &writer, &err), DFLASH_OK);
    ck_assert_int_eq(dp_store_write_text(writer, "geometry", sf_geometry_text, &err), DFLASH_OK);
    sf_expect(dp_store_commit(writer, &err), &err, DFLASH_ERR_ARGUMENT, "store.incomplete", "provenance");
    ck_assert_int_eq(sf_files_in_folder(), 0);
}
END_TEST

static void expect_argument(dp_store_writer *writer, const char *name, dp_store_tensor tensor) {
    dflash_error err = {0};
    ck_assert_int_eq(dp_store_write_stage(writer, DP_RUN_F64, name, &tensor, &err), DFLASH_ERR_ARGUMENT);
    ck_assert_str_eq(err.code, "store.argument");
}

START_TEST(the_writer_refuses_what_the_format_cannot_hold) {
    static const double data[4];
    dflash_error err = {0};
    dp_store_writer *writer = NULL;
    ck_assert_int_eq(dp_store_create(sf_path, "notes", &writer, &err), DFLASH_ERR_ARGUMENT);
    ck_assert_str_eq(err.code, "store.argument");
    writer = sf_begin();
    dp_store_tensor tensor = sf_tensor_of(DP_LOGICAL_F64, data, 2, 2, 2);
    expect_argument(writer, "layers.0.magic", tensor);
    ck_assert_int_eq(dp_store_write_input(writer, "tokens", &tensor, &err), DFLASH_ERR_ARGUMENT);
    ck_assert_int_eq(dp_store_write_text(writer, "geometry", "{}", &err), DFLASH_ERR_ARGUMENT);
    tensor.stride = 0;
    expect_argument(writer, "final", tensor);
    tensor.stride = 1;
    tensor.offset = 4;
    expect_argument(writer, "final", tensor);
    expect_argument(writer, "final", sf_tensor_of(DP_LOGICAL_F64, data, 5, 1, 1));
    expect_argument(writer, "final", sf_tensor_of(DP_LOGICAL_F64, data, 2, 4, 0));
    expect_argument(writer, "final", sf_tensor_of(DP_LOGICAL_F64, data, 2, 1 << 30, 1 << 30));
    sf_put_stage(writer, DP_RUN_F64, "final", sf_tensor_of(DP_LOGICAL_F64, data, 2, 2, 2));
    expect_argument(writer, "final", sf_tensor_of(DP_LOGICAL_F64, data, 2, 2, 2));
    dp_store_discard(writer);
}
END_TEST

Suite *suite_store(void) {
    Suite *suite = suite_create("store");
    TCase *tcase = tcase_create("files");
    tcase_add_checked_fixture(tcase, sf_set_up, sf_tear_down);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, every_logical_dtype_comes_back_as_it_went_in);
    tcase_add_test(tcase, integer_stages_and_inputs_come_back_whole);
    tcase_add_test(tcase, a_sampled_stage_holds_every_third_element_of_its_full_shape);
    tcase_add_test(tcase, stages_are_listed_in_forward_order_with_layers_by_number);
    tcase_add_test(tcase, equal_content_gives_equal_files);
    tcase_add_test(tcase, asking_for_what_is_not_there_is_refused_by_name);
    sf_add_refusals(tcase);
    sf_add_formats(tcase);
    sf_add_trials(tcase);
    tcase_add_test(tcase, a_digest_that_does_not_hold_is_refused_naming_the_dataset);
    tcase_add_test(tcase, a_flipped_bit_in_a_value_is_refused_naming_the_dataset);
    tcase_add_test(tcase, a_nan_or_an_infinity_in_any_run_or_input_is_refused);
    tcase_add_test(tcase, no_flipped_byte_changes_a_value_unnoticed);
    tcase_add_test(tcase, a_full_disk_is_reported_and_leaves_nothing_behind);
    tcase_add_test(tcase, a_full_disk_leaves_the_earlier_file_as_it_was);
    tcase_add_test(tcase, a_folder_that_does_not_exist_is_reported);
    tcase_add_test(tcase, a_discarded_writer_leaves_nothing_behind);
    tcase_add_test(tcase, a_file_without_its_records_is_not_written);
    tcase_add_test(tcase, the_writer_refuses_what_the_format_cannot_hold);
    suite_add_tcase(suite, tcase);
    return suite;
}
