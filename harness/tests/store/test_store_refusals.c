/*
 * test_store_refusals.c - every way in which the form of an oracle file can be wrong is refused by its own name.
 *
 * Damaged values, and writing, are in test_store.c.
 */
#include "support/store_files.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- The file and its header ---- */

START_TEST(a_file_that_does_not_exist_is_an_io_error) {
    dp_oracle *oracle = NULL;
    dflash_error err = {0};
    sf_expect(dp_oracle_open(sf_path, &oracle, &err), &err, DFLASH_ERR_IO, "oracle.open", "No such file");
}
END_TEST

START_TEST(a_folder_is_an_io_error) {
    dp_oracle *oracle = NULL;
    dflash_error err = {0};
    sf_expect(dp_oracle_open(sf_folder, &oracle, &err), &err, DFLASH_ERR_IO, "oracle.open", "directory");
}
END_TEST

START_TEST(a_file_that_is_not_hdf5_is_refused) {
    sf_spill((const unsigned char *)"{\"not\": \"an oracle\"}", 20);
    sf_expect_refusal("oracle.format", sf_path);
    sf_spill((const unsigned char *)"", 0);
    sf_expect_refusal("oracle.format", sf_path);
}
END_TEST

START_TEST(a_truncated_file_is_refused_wherever_it_ends) {
    size_t bytes = 0;
    sf_write_good();
    unsigned char *data = sf_slurp(&bytes);
    for (size_t keep = 8; keep < bytes; keep += 397) {
        sf_spill(data, keep);
        sf_expect_refusal("oracle.damaged", sf_path);
    }
    sf_spill(data, bytes - 1);
    sf_expect_refusal("oracle.damaged", sf_path);
    free(data);
}
END_TEST

START_TEST(another_schema_is_refused) {
    sf_write_good();
    sf_set_text("/", "schema", "someone-else");
    sf_expect_refusal("oracle.schema", "someone-else");
}
END_TEST

START_TEST(another_schema_version_is_refused_with_both_numbers) {
    sf_write_good();
    sf_set_int("/", "schema_version", 3);
    sf_expect_refusal("oracle.schema.version", "expected schema version 2, found 3");
}
END_TEST

START_TEST(a_recording_is_not_an_oracle) {
    dp_store_writer *writer = sf_begin_with_texts("recording", sf_geometry_text, sf_provenance_text);
    const float values[BLOCK * WIDTH] = {0.0f};
    sf_put_inputs(writer, sf_good_positions, ROWS + BLOCK);
    sf_put_stage(writer, DP_RUN_OWN, "final", sf_tensor_of(DP_LOGICAL_F32, values, 2, BLOCK, WIDTH));
    sf_commit(writer);
    sf_expect_refusal("oracle.kind", "recording");
}
END_TEST

START_TEST(every_root_attribute_is_required) {
    static const char *const name[] = {"schema", "schema_version", "kind"};
    for (int i = 0; i < 3; i++) {
        sf_write_good();
        sf_remove_attribute("/", name[i]);
        sf_expect_refusal("oracle.attribute.missing", name[i]);
    }
}
END_TEST

START_TEST(a_version_that_is_not_one_signed_integer_is_refused) {
    const int64_t pair[2] = {1, 1};
    sf_write_good();
    sf_set_ints("/", "schema_version", H5T_STD_I32LE, pair, 2);
    sf_expect_refusal("oracle.attribute.type", "schema_version");
    sf_set_ints("/", "schema_version", H5T_IEEE_F64LE, pair, 0);
    sf_expect_refusal("oracle.attribute.type", "schema_version");
}
END_TEST

START_TEST(every_object_of_the_format_is_required) {
    static const char *const object[] = {"/geometry", "/provenance", "/inputs", "/stages", "/stages/float32"};
    for (int i = 0; i < 5; i++) {
        sf_write_good();
        sf_remove_link(object[i]);
        sf_expect_refusal("oracle.object.missing", object[i]);
    }
}
END_TEST

START_TEST(an_object_that_the_format_does_not_know_is_refused) {
    static const char *const object[] = {"/extra", "/inputs/extra", "/stages/extra"};
    for (int i = 0; i < 3; i++) {
        sf_write_good();
        sf_move_link("/stages/float32/final", object[i]);
        sf_expect_refusal("oracle.object.unknown", "extra");
    }
}
END_TEST

START_TEST(a_link_out_of_the_file_is_refused) {
    sf_write_good();
    const hid_t file = sf_edit();
    H5Ldelete(file, "/stages/float32/final", H5P_DEFAULT);
    H5Lcreate_soft("/stages/float64/final", file, "/stages/float32/final", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
    sf_expect_refusal("oracle.object.type", "/stages/float32/final");
}
END_TEST

START_TEST(a_group_in_the_place_of_a_dataset_is_refused) {
    sf_write_good();
    sf_remove_link("/inputs/positions");
    const hid_t file = sf_edit();
    H5Gclose(H5Gcreate2(file, "/inputs/positions", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Fclose(file);
    sf_expect_refusal("oracle.object.type", "/inputs/positions");
}
END_TEST

/* ---- Records ---- */

START_TEST(a_record_that_is_not_one_json_object_is_refused) {
    static const char *const text[] = {"{\"family\":", "[1]", "{} {}", "{\"a\":{\"b\":1,\"b\":2}}"};
    for (int i = 0; i < 4; i++) {
        sf_commit(sf_begin_with_texts("oracle", text[i], sf_provenance_text));
        sf_expect_refusal("oracle.json", "/geometry");
        sf_commit(sf_begin_with_texts("oracle", sf_geometry_text, text[i]));
        sf_expect_refusal("oracle.json", "/provenance");
    }
}
END_TEST

START_TEST(a_record_of_another_digest_is_refused) {
    sf_write_good();
    sf_set_text("/geometry", "sha256", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    sf_expect_refusal("oracle.digest", "/geometry");
    sf_write_good();
    sf_remove_attribute("/provenance", "sha256");
    sf_expect_refusal("oracle.attribute.missing", "/provenance");
}
END_TEST

START_TEST(every_key_of_the_provenance_record_is_required) {
    static const char *const key[] = {"generator",     "command", "packages", "reference",
                                      "config_sha256", "tensors", "seed",     "adapters"};
    for (int i = 0; i < 8; i++) {
        cJSON *record = cJSON_Parse(sf_provenance_text);
        cJSON_DeleteItemFromObjectCaseSensitive(record, key[i]);
        char *text = cJSON_PrintUnformatted(record);
        sf_commit(sf_begin_with_texts("oracle", sf_geometry_text, text));
        cJSON_free(text);
        cJSON_Delete(record);
        sf_expect_refusal("oracle.provenance", key[i]);
    }
}
END_TEST

/* ---- Inputs ---- */

START_TEST(every_input_is_required) {
    for (int i = 0; i < DP_REQUIRED_INPUTS; i++) {
        char object[64];
        snprintf(object, sizeof object, "/inputs/%s", dp_input_name(i));
        sf_write_good();
        sf_remove_link(object);
        sf_expect_refusal("oracle.input.missing", object);
    }
}
END_TEST

START_TEST(positions_that_do_not_rise_are_refused) {
    static const int32_t bad[][ROWS + BLOCK] = {{7, 8, 8, 11, 12}, {7, 8, 9, 12, 11}, {-1, 0, 1, 2, 3}};
    for (int i = 0; i < 3; i++) {
        dp_store_writer *writer = sf_begin_with_texts("oracle", sf_geometry_text, sf_provenance_text);
        sf_put_inputs(writer, bad[i], ROWS + BLOCK);
        sf_put_runs(writer, "final", BLOCK, WIDTH, 1, 0);
        sf_commit(writer);
        sf_expect_refusal("oracle.positions", i == 0   ? "[2] is 8 after 8"
                                              : i == 1 ? "[4] is 11 after 12"
                                                       : "[0] is -1");
    }
}
END_TEST

START_TEST(positions_that_do_not_count_the_rows_are_refused) {
    dp_store_writer *writer = sf_begin_with_texts("oracle", sf_geometry_text, sf_provenance_text);
    sf_put_inputs(writer, sf_good_positions, ROWS + BLOCK - 1);
    sf_put_runs(writer, "final", BLOCK, WIDTH, 1, 0);
    sf_commit(writer);
    sf_expect_refusal("oracle.positions", "4 entries");
}
END_TEST

START_TEST(an_input_of_another_rank_or_type_is_refused) {
    const hsize_t matrix[2] = {ROWS, WIDTH}, line[1] = {ROWS * WIDTH};
    sf_write_good();
    sf_replace("/inputs/target_hidden", H5T_IEEE_F32LE, 1, line, true, false, "float32");
    sf_expect_refusal("oracle.dataset.shape", "/inputs/target_hidden");
    sf_write_good();
    sf_replace("/inputs/target_hidden", H5T_STD_I32LE, 2, matrix, true, false, "int32");
    sf_expect_refusal("oracle.dataset.type", "/inputs/target_hidden");
}
END_TEST

/* ---- Stages ---- */

START_TEST(a_name_outside_the_vocabulary_is_refused) {
    static const char *const name[] = {"layers.0.attn.magic", "layers.02.out", "Final"};
    for (int i = 0; i < 3; i++) {
        char to[64];
        snprintf(to, sizeof to, "/stages/bfloat16/%s", name[i]);
        sf_write_good();
        sf_move_link("/stages/bfloat16/final", to);
        sf_expect_refusal("oracle.stage.unknown", name[i]);
    }
}
END_TEST

START_TEST(a_stage_that_one_run_lacks_is_refused) {
    for (int run = 0; run < DP_RUN_COUNT; run++) {
        char object[64];
        snprintf(object, sizeof object, "/stages/%s/layers.2.out", dp_run_name((dp_run)run));
        sf_write_good();
        sf_remove_link(object);
        sf_expect_refusal("oracle.stage.missing", "layers.2.out");
    }
}
END_TEST

START_TEST(an_oracle_without_any_stage_is_refused) {
    sf_commit(sf_begin());
    sf_expect_refusal("oracle.stage.missing", "no stage at all");
}
END_TEST

START_TEST(a_stage_whose_runs_differ_in_shape_or_sampling_is_refused) {
    const hsize_t turned[2] = {WIDTH, BLOCK};
    sf_write_good();
    sf_replace("/stages/float32/final", H5T_IEEE_F32LE, 2, turned, true, false, "float32");
    sf_expect_refusal("oracle.stage.shape", "final");
    sf_write_good();
    sf_set_int("/stages/float32/layers.2.attn.norm", "sample_offset", 0);
    sf_expect_refusal("oracle.stage.shape", "layers.2.attn.norm");
}
END_TEST

START_TEST(a_stage_of_integers_is_not_one_of_numbers) {
    const hsize_t shape[2] = {2, 2}, block[2] = {BLOCK, WIDTH};
    sf_write_good();
    sf_replace("/stages/float64/select.topk_ids", H5T_IEEE_F64LE, 2, shape, true, false, "float64");
    sf_expect_refusal("oracle.dataset.type", "select.topk_ids");
    sf_write_good();
    sf_replace("/stages/float64/final", H5T_STD_I32LE, 2, block, true, false, "int32");
    sf_expect_refusal("oracle.dataset.type", "final");
}
END_TEST

START_TEST(a_logical_dtype_that_the_storage_contradicts_is_refused) {
    sf_write_good();
    sf_set_text("/stages/float64/final", "logical_dtype", "float32");
    sf_expect_refusal("oracle.dataset.type", "/stages/float64/final");
    sf_set_text("/stages/float64/final", "logical_dtype", "float16");
    sf_expect_refusal("oracle.dataset.type", "float16");
    sf_remove_attribute("/stages/float64/final", "logical_dtype");
    sf_expect_refusal("oracle.attribute.missing", "logical_dtype");
}
END_TEST

START_TEST(a_rank_of_five_is_refused) {
    const hsize_t shape[5] = {1, 1, 2, 2, 2};
    sf_write_good();
    sf_replace("/stages/float64/final", H5T_IEEE_F64LE, 5, shape, true, false, "float64");
    sf_expect_refusal("oracle.dataset.shape", "rank 5");
}
END_TEST

START_TEST(another_layout_or_filter_is_refused) {
    const hsize_t shape[2] = {BLOCK, WIDTH};
    sf_write_good();
    sf_replace("/stages/float64/final", H5T_IEEE_F64LE, 2, shape, false, false, "float64");
    sf_expect_refusal("oracle.dataset.layout", "/stages/float64/final");
    sf_write_good();
    sf_replace("/stages/float64/final", H5T_IEEE_F64LE, 2, shape, true, true, "float64");
    sf_expect_refusal("oracle.dataset.layout", "/stages/float64/final");
}
END_TEST

START_TEST(a_sample_that_does_not_count_is_refused) {
    static const char stage[] = "/stages/float64/layers.2.attn.norm";
    static const struct {
        const char *name;
        int64_t value;
    } bad[] = {{"sample_stride", 2}, {"sample_stride", 0},  {"sample_stride", -3},
               {"sample_offset", 5}, {"sample_offset", -1}, {"sample_offset", BLOCK * WIDTH}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        sf_write_good();
        sf_set_int(stage, bad[i].name, bad[i].value);
        sf_expect_refusal("oracle.sampling", stage);
    }
    const int64_t shapes[3][2] = {{BLOCK, WIDTH + 2}, {0, WIDTH}, {INT64_MAX, WIDTH}};
    for (int i = 0; i < 3; i++) {
        sf_write_good();
        sf_set_ints(stage, "full_shape", H5T_STD_I64LE, shapes[i], 2);
        sf_expect_refusal("oracle.sampling", stage);
    }
    const int64_t five[5] = {1, 1, 1, BLOCK, WIDTH};
    sf_write_good();
    sf_set_ints(stage, "full_shape", H5T_STD_I64LE, five, 5);
    sf_expect_refusal("oracle.attribute.type", "full_shape");
    sf_write_good();
    sf_remove_attribute(stage, "sample_stride");
    sf_expect_refusal("oracle.attribute.missing", "sample_stride");
    sf_write_good();
    sf_set_int("/stages/float64/final", "sample_stride", 1);
    sf_expect_refusal("oracle.attribute.missing", "full_shape");
}
END_TEST

void sf_add_refusals(TCase *tcase) {
    tcase_add_test(tcase, a_file_that_does_not_exist_is_an_io_error);
    tcase_add_test(tcase, a_folder_is_an_io_error);
    tcase_add_test(tcase, a_file_that_is_not_hdf5_is_refused);
    tcase_add_test(tcase, a_truncated_file_is_refused_wherever_it_ends);
    tcase_add_test(tcase, another_schema_is_refused);
    tcase_add_test(tcase, another_schema_version_is_refused_with_both_numbers);
    tcase_add_test(tcase, a_recording_is_not_an_oracle);
    tcase_add_test(tcase, every_root_attribute_is_required);
    tcase_add_test(tcase, a_version_that_is_not_one_signed_integer_is_refused);
    tcase_add_test(tcase, every_object_of_the_format_is_required);
    tcase_add_test(tcase, an_object_that_the_format_does_not_know_is_refused);
    tcase_add_test(tcase, a_link_out_of_the_file_is_refused);
    tcase_add_test(tcase, a_group_in_the_place_of_a_dataset_is_refused);
    tcase_add_test(tcase, a_record_that_is_not_one_json_object_is_refused);
    tcase_add_test(tcase, a_record_of_another_digest_is_refused);
    tcase_add_test(tcase, every_key_of_the_provenance_record_is_required);
    tcase_add_test(tcase, every_input_is_required);
    tcase_add_test(tcase, positions_that_do_not_rise_are_refused);
    tcase_add_test(tcase, positions_that_do_not_count_the_rows_are_refused);
    tcase_add_test(tcase, an_input_of_another_rank_or_type_is_refused);
    tcase_add_test(tcase, a_name_outside_the_vocabulary_is_refused);
    tcase_add_test(tcase, a_stage_that_one_run_lacks_is_refused);
    tcase_add_test(tcase, an_oracle_without_any_stage_is_refused);
    tcase_add_test(tcase, a_stage_whose_runs_differ_in_shape_or_sampling_is_refused);
    tcase_add_test(tcase, a_stage_of_integers_is_not_one_of_numbers);
    tcase_add_test(tcase, a_logical_dtype_that_the_storage_contradicts_is_refused);
    tcase_add_test(tcase, a_rank_of_five_is_refused);
    tcase_add_test(tcase, another_layout_or_filter_is_refused);
    tcase_add_test(tcase, a_sample_that_does_not_count_is_refused);
}
