/*
 * test_safetensors.c - what the container reader accepts, and which refusal each kind of broken file gets: files, the
 * header's length, ranges, damage at every byte.
 *
 * The header's text is test_safetensors_header.c's business, and which tensors a model needs is test_weights.c's.
 */
#include "support/safetensors_case.h"
#include "suites.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static unsigned char *read_bytes(size_t *bytes) {
    FILE *from = fopen(st_path, "rb");
    ck_assert_ptr_nonnull(from);
    ck_assert_int_eq(fseek(from, 0, SEEK_END), 0);
    *bytes = (size_t)ftell(from);
    rewind(from);
    unsigned char *data = malloc(*bytes + 1);
    ck_assert_ptr_nonnull(data);
    ck_assert_uint_eq(fread(data, 1, *bytes, from), *bytes);
    fclose(from);
    return data;
}

/* ---- Valid files ---- */

START_TEST(a_valid_file_gives_every_tensor_with_its_bytes) {
    tf_write(st_file, st_path);
    df_safetensors *opened = st_open();
    ck_assert_str_eq(df_safetensors_path(opened), st_path);
    ck_assert_int_eq(df_safetensors_count(opened), 3);
    const df_dtype dtypes[] = {DF_F32, DF_BF16, DF_F16};
    for (int i = 0; i < 3; i++) {
        const tf_entry *wrote = &st_file->entry[i];
        const df_tensor *tensor = df_safetensors_at(opened, i);
        ck_assert_str_eq(tensor->name, wrote->name);
        ck_assert_int_eq(tensor->dtype, dtypes[i]);
        ck_assert_int_eq(tensor->rank, wrote->rank);
        for (int d = 0; d < wrote->rank; d++) ck_assert_int_eq(tensor->dim[d], wrote->dim[d]);
        ck_assert_uint_eq(tensor->bytes, wrote->bytes);
        ck_assert_mem_eq(tensor->data, wrote->data, wrote->bytes);
        ck_assert_ptr_eq(df_safetensors_find(opened, wrote->name), tensor);
    }
    df_safetensors_close(opened);
}
END_TEST

START_TEST(a_name_that_is_not_there_is_not_found) {
    tf_write(st_file, st_path);
    df_safetensors *opened = st_open();
    ck_assert_ptr_null(df_safetensors_find(opened, "a.weigh"));
    ck_assert_ptr_null(df_safetensors_find(opened, "a.weight2"));
    ck_assert_ptr_null(df_safetensors_find(opened, ""));
    ck_assert_ptr_null(df_safetensors_find(opened, "__metadata__"));
    df_safetensors_close(opened);
}
END_TEST

START_TEST(tensors_come_in_the_order_of_their_data_whatever_the_header_says) {
    tf_file *raw = tf_new();
    raw->header = "{\"z\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[4,8]},"
                  "\"y\":{\"data_offsets\":[0,4],\"shape\":[1],\"dtype\":\"F32\"}}";
    raw->tail = 8;
    tf_write(raw, st_path);
    tf_free(raw);
    df_safetensors *opened = st_open();
    ck_assert_str_eq(df_safetensors_at(opened, 0)->name, "y");
    ck_assert_str_eq(df_safetensors_at(opened, 1)->name, "z");
    ck_assert_ptr_eq(df_safetensors_find(opened, "z"), df_safetensors_at(opened, 1));
    df_safetensors_close(opened);
}
END_TEST

START_TEST(a_file_without_tensors_opens_empty) {
    tf_file *raw = tf_new();
    raw->header = "{}";
    tf_write(raw, st_path);
    tf_free(raw);
    df_safetensors *opened = st_open();
    ck_assert_int_eq(df_safetensors_count(opened), 0);
    ck_assert_ptr_null(df_safetensors_find(opened, "a"));
    df_safetensors_close(opened);
}
END_TEST

START_TEST(an_escaped_name_is_unescaped) {
    tf_file *raw = tf_new();
    raw->header = "{\"a\\u002eb\\/c\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}\n\t ";
    raw->tail = 4;
    tf_write(raw, st_path);
    tf_free(raw);
    df_safetensors *opened = st_open();
    ck_assert_str_eq(df_safetensors_at(opened, 0)->name, "a.b/c");
    df_safetensors_close(opened);
}
END_TEST

START_TEST(closing_nothing_is_allowed) { df_safetensors_close(NULL); }
END_TEST

START_TEST(an_error_record_is_optional) {
    df_safetensors *opened = NULL;
    ck_assert_int_eq(df_safetensors_open(st_path, &opened, NULL), DFLASH_ERR_IO);
    st_refuse_header("{]", 0, "safetensors.header.json", NULL);
    ck_assert_int_eq(df_safetensors_open(st_path, &opened, NULL), DFLASH_ERR_REFUSED);
    ck_assert_ptr_null(opened);
}
END_TEST

/* ---- Files that are not there or are no files ---- */

START_TEST(a_missing_file_is_an_io_error) { st_expect(DFLASH_ERR_IO, "safetensors.open", "No such file"); }
END_TEST

START_TEST(a_directory_is_refused) {
    snprintf(st_path, sizeof st_path, "%s", st_dir);
    st_expect(DFLASH_ERR_IO, "safetensors.open", "a directory");
}
END_TEST

START_TEST(a_path_through_a_file_is_an_io_error) {
    st_write_bytes("x", 1);
    snprintf(st_path, sizeof st_path, "%s/model.safetensors/more", st_dir);
    st_expect(DFLASH_ERR_IO, "safetensors.open", "Not a directory");
}
END_TEST

START_TEST(a_pipe_is_refused_without_waiting_for_a_writer) {
    ck_assert_int_eq(mkfifo(st_path, 0600), 0);
    st_expect(DFLASH_ERR_IO, "safetensors.open", "pipe");
}
END_TEST

START_TEST(an_unreadable_file_is_an_io_error) {
    tf_write(st_file, st_path);
    ck_assert_int_eq(chmod(st_path, 0), 0);
    ck_assert_int_eq(chmod(st_dir, 0755), 0);
    /* root may read anything, so be somebody else for a moment */
    const bool root = geteuid() == 0;
    if (root) ck_assert_int_eq(seteuid(65534), 0);
    dflash_error err = {.status = DFLASH_OK};
    df_safetensors *opened = NULL;
    const dflash_status status = df_safetensors_open(st_path, &opened, &err);
    if (root) ck_assert_int_eq(seteuid(0), 0);
    ck_assert_int_eq(status, DFLASH_ERR_IO);
    ck_assert_str_eq(err.code, "safetensors.open");
    ck_assert_ptr_nonnull(strstr(err.message, "Permission denied"));
}
END_TEST

START_TEST(files_of_0_to_7_bytes_are_refused_by_size) {
    for (size_t bytes = 0; bytes < 8; bytes++) {
        char word[32];
        snprintf(word, sizeof word, "has %zu bytes", bytes);
        st_write_bytes("\2\0\0\0\0\0\0", bytes);
        st_expect(DFLASH_ERR_REFUSED, "safetensors.size", word);
    }
}
END_TEST

/* ---- The header's length ---- */

START_TEST(a_header_length_beyond_the_file_is_refused) {
    tf_write(st_file, st_path);
    size_t bytes = 0;
    free(read_bytes(&bytes));
    const uint64_t lies[] = {bytes - 7, bytes, 99999999, UINT64_C(1) << 32, UINT64_C(1) << 63, UINT64_MAX};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        char word[32];
        snprintf(word, sizeof word, "has %" PRIu64 " bytes", lies[i]);
        st_file->lie_about_length = true;
        st_file->header_length = lies[i];
        st_refuse("safetensors.header.length", word);
    }
}
END_TEST

START_TEST(a_header_too_short_for_braces_is_refused) {
    st_file->lie_about_length = true;
    for (st_file->header_length = 0; st_file->header_length < 2; st_file->header_length++)
        st_refuse("safetensors.header.length", "expected 2 to 100000000");
}
END_TEST

START_TEST(a_header_above_100_megabytes_is_refused_even_when_the_file_is_larger) {
    st_write_bytes("\1\341\365\5\0\0\0\0{", 9); /* 100,000,001 */
    ck_assert_int_eq(truncate(st_path, 100000100), 0);
    st_expect(DFLASH_ERR_REFUSED, "safetensors.header.length", "100000001");
    st_write_bytes("\0\341\365\5\0\0\0\0{", 9); /* 100,000,000: the length is allowed, the zeros are not JSON */
    ck_assert_int_eq(truncate(st_path, 100000100), 0);
    st_expect(DFLASH_ERR_REFUSED, "safetensors.header.json", "byte 1 ");
}
END_TEST

START_TEST(a_length_that_cuts_the_header_is_refused_as_json) {
    st_file->lie_about_length = true;
    for (st_file->header_length = 2; st_file->header_length < 180; st_file->header_length++)
        st_refuse("safetensors.header.json", NULL);
}
END_TEST

START_TEST(a_length_that_reaches_into_the_data_is_refused_as_json) {
    st_file->header = "{}";
    st_file->pad_to = 2;
    st_file->lie_about_length = true;
    st_file->header_length = 6;
    st_refuse("safetensors.header.json", NULL);
}
END_TEST

START_TEST(every_truncation_of_a_valid_file_gets_the_refusal_of_its_place) {
    tf_write(st_file, st_path);
    size_t bytes = 0;
    unsigned char *whole = read_bytes(&bytes);
    const size_t data_start = 8 + ((size_t)whole[0] | (size_t)whole[1] << 8);
    for (size_t keep = 0; keep < bytes; keep++) {
        st_write_bytes(whole, keep);
        st_expect(DFLASH_ERR_REFUSED,
                  keep < 8            ? "safetensors.size"
                  : keep < data_start ? "safetensors.header.length"
                                      : "safetensors.offsets",
                  NULL);
    }
    free(whole);
}
END_TEST

/* ---- Ranges ---- */

START_TEST(offsets_outside_the_data_or_backwards_are_refused) {
    tf_entry *last = tf_get(st_file, "c.weight");
    last->begin++;
    last->end++;
    st_refuse("safetensors.offsets", "\"c.weight\" claims the bytes [33, 45) of a data section of 44 bytes");
    last->begin = 44;
    last->end = 32;
    st_refuse("safetensors.offsets", "[44, 32)");
    last->begin = 9007199254740000;
    last->end = 9007199254740012;
    st_refuse("safetensors.offsets", "\"c.weight\"");
}
END_TEST

START_TEST(a_range_of_another_size_than_the_shape_is_refused) {
    tf_get(st_file, "a.weight")->dim[0] = 3;
    st_refuse("safetensors.offsets",
              "of shape [3, 3] and dtype F32 needs 36 bytes, but its data_offsets [0, 24) hold 24");
}
END_TEST

START_TEST(overlapping_tensors_are_refused) {
    tf_get(st_file, "b.weight")->begin -= 2;
    tf_get(st_file, "b.weight")->end -= 2;
    st_refuse("safetensors.overlap", "\"a.weight\" and \"b.weight\"");
}
END_TEST

START_TEST(two_tensors_on_the_same_bytes_are_refused) {
    st_file->entry[1].begin = st_file->entry[0].begin;
    st_file->entry[1].end = st_file->entry[0].begin + st_file->entry[1].bytes;
    st_refuse("safetensors.overlap", "\"b.weight\"");
}
END_TEST

START_TEST(a_gap_before_between_or_behind_tensors_is_refused) {
    st_file->tail = 4;
    st_refuse("safetensors.gap", "end at byte 44 of the data, but the file goes on to byte 48");
    tf_get(st_file, "c.weight")->begin += 4;
    tf_get(st_file, "c.weight")->end += 4;
    st_refuse("safetensors.gap", "[32, 36) of the data, before tensor \"c.weight\"");
    for (int i = 0; i < 2; i++) {
        st_file->entry[i].begin += 4;
        st_file->entry[i].end += 4;
    }
    st_refuse("safetensors.gap", "[0, 4) of the data, before tensor \"a.weight\"");
}
END_TEST

START_TEST(data_behind_a_header_without_tensors_is_refused) { st_refuse_header("{}", 1, "safetensors.gap", "byte 1"); }
END_TEST

START_TEST(a_tensor_off_its_alignment_is_refused_when_it_is_used) {
    st_file->header = "{\"a\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,2]},"
                      "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}";
    while (st_file->count > 0) tf_remove(st_file, st_file->entry[0].name);
    st_file->tail = 6;
    st_refuse_use("b", "safetensors.offsets", "\"b\" (F32) starts at byte");
    st_file->header =
        "{\"odd\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[0,6]}}"; /* an odd number of bytes */
    st_file->pad_to = 1;
    st_refuse_use("odd", "safetensors.offsets", "not a multiple of 2");
}
END_TEST

/* ---- Damage ---- */

/* What any accepted file guarantees: tensors in order, each as large as its shape says, one behind the other from the
 * first byte of data to the last, names unique. */
static void expect_tiling(const df_safetensors *opened, const unsigned char *bytes, size_t size) {
    size_t header = 0, reached = 0;
    for (int i = 7; i >= 0; i--) header = header << 8 | bytes[i];
    const char *start = NULL;
    for (int i = 0; i < df_safetensors_count(opened); i++) {
        const df_tensor *tensor = df_safetensors_at(opened, i);
        size_t expected = 1;
        ck_assert(tensor->rank >= 0 && tensor->rank <= DFLASH_TENSOR_RANK);
        for (int d = 0; d < tensor->rank; d++) expected *= (size_t)tensor->dim[d];
        ck_assert_int_eq(tensor->count, (int64_t)expected);
        ck_assert_uint_eq(tensor->bytes * 8, expected * (size_t)tensor->type->bits);
        if (i == 0) start = tensor->data;
        ck_assert_ptr_eq(tensor->data, start + reached);
        ck_assert_mem_eq(tensor->data, bytes + 8 + header + reached, tensor->bytes);
        reached += tensor->bytes;
        ck_assert_ptr_eq(df_safetensors_find(opened, tensor->name), tensor);
    }
    ck_assert_uint_eq(8 + header + reached, size);
}

START_TEST(every_changed_byte_of_a_header_is_refused_or_leaves_a_sound_file) {
    tf_remove(st_file, "c.weight");
    tf_write(st_file, st_path);
    size_t size = 0;
    unsigned char *bytes = read_bytes(&size);
    const size_t end = 8 + ((size_t)bytes[0] | (size_t)bytes[1] << 8);
    int accepted = 0, refused = 0;
    for (size_t at = 0; at < end; at++) {
        const unsigned char kept = bytes[at];
        for (int change = 0; change < 9; change++) {
            bytes[at] = (unsigned char)(kept ^ (change == 8 ? 0xff : 1 << change));
            st_write_bytes(bytes, size);
            df_safetensors *opened = NULL;
            dflash_error err = {.status = DFLASH_OK};
            const dflash_status status = df_safetensors_open(st_path, &opened, &err);
            if (status == DFLASH_OK) {
                expect_tiling(opened, bytes, size);
                df_safetensors_close(opened);
                accepted++;
            } else {
                ck_assert_int_eq(status, DFLASH_ERR_REFUSED);
                ck_assert_int_eq(strncmp(err.code, "safetensors.", 12), 0);
                ck_assert_ptr_null(opened);
                refused++;
            }
        }
        bytes[at] = kept;
    }
    /* A changed letter of a name is no damage that this reader could see; most of the rest is. */
    ck_assert_int_gt(accepted, 0);
    ck_assert_int_gt(refused, accepted);
    free(bytes);
}
END_TEST

static void add_valid(TCase *tests) {
    tcase_add_test(tests, a_valid_file_gives_every_tensor_with_its_bytes);
    tcase_add_test(tests, a_name_that_is_not_there_is_not_found);
    tcase_add_test(tests, tensors_come_in_the_order_of_their_data_whatever_the_header_says);
    tcase_add_test(tests, a_file_without_tensors_opens_empty);
    tcase_add_test(tests, an_escaped_name_is_unescaped);
    tcase_add_test(tests, closing_nothing_is_allowed);
    tcase_add_test(tests, an_error_record_is_optional);
}

static void add_files(TCase *tests) {
    tcase_add_test(tests, a_missing_file_is_an_io_error);
    tcase_add_test(tests, a_directory_is_refused);
    tcase_add_test(tests, a_path_through_a_file_is_an_io_error);
    tcase_add_test(tests, a_pipe_is_refused_without_waiting_for_a_writer);
    tcase_add_test(tests, an_unreadable_file_is_an_io_error);
    tcase_add_test(tests, files_of_0_to_7_bytes_are_refused_by_size);
}

static void add_lengths(TCase *tests) {
    tcase_add_test(tests, a_header_length_beyond_the_file_is_refused);
    tcase_add_test(tests, a_header_too_short_for_braces_is_refused);
    tcase_add_test(tests, a_header_above_100_megabytes_is_refused_even_when_the_file_is_larger);
    tcase_add_test(tests, a_length_that_cuts_the_header_is_refused_as_json);
    tcase_add_test(tests, a_length_that_reaches_into_the_data_is_refused_as_json);
    tcase_add_test(tests, every_truncation_of_a_valid_file_gets_the_refusal_of_its_place);
}

static void add_ranges(TCase *tests) {
    tcase_add_test(tests, offsets_outside_the_data_or_backwards_are_refused);
    tcase_add_test(tests, a_range_of_another_size_than_the_shape_is_refused);
    tcase_add_test(tests, overlapping_tensors_are_refused);
    tcase_add_test(tests, two_tensors_on_the_same_bytes_are_refused);
    tcase_add_test(tests, a_gap_before_between_or_behind_tensors_is_refused);
    tcase_add_test(tests, data_behind_a_header_without_tensors_is_refused);
    tcase_add_test(tests, a_tensor_off_its_alignment_is_refused_when_it_is_used);
    tcase_add_test(tests, every_changed_byte_of_a_header_is_refused_or_leaves_a_sound_file);
}

Suite *suite_safetensors(void) {
    Suite *suite = suite_create("safetensors");
    st_add_case(suite, "valid files", add_valid);
    st_add_case(suite, "files", add_files);
    st_add_case(suite, "header length", add_lengths);
    st_add_case(suite, "header text", st_add_header_tests);
    st_add_case(suite, "ranges and damage", add_ranges);
    return suite;
}
