/*
 * test_safetensors_header.c - the header's text: what is not JSON, what is JSON but not an entry, and every number that
 * an entry can get wrong on its own. Part of suite_safetensors.
 */
#include "support/safetensors_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The header's JSON ---- */

#define ENTRY(name, fields) "{\"" name "\":{" fields "}}"
#define GOOD "\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"

START_TEST(a_header_that_is_not_json_is_refused) {
    const char *headers[] = {
        "  {}",                                /* must start with the brace */
        "\xef\xbb\xbf{}",                      /* byte order mark */
        "[]",                                  /* not an object */
        "null",                                /**/
        "{",                                   /**/
        "{}}",                                 /* something after the end */
        "{} {}",                               /**/
        "{\"a\":{" GOOD "},}",                 /* comma at the end */
        "{\"a\":{" GOOD "} \"b\":{" GOOD "}}", /* comma missing */
        "{a:{" GOOD "}}",                      /* bare name */
        "{\"a\":{" GOOD "}",                   /* brace missing */
        "{\"a",                                /* string without end */
        "{\"a\\",                              /* escape without end */
        "{\"\\q\":{" GOOD "}}",                /* unknown escape */
        "{\"\\ud800\":{" GOOD "}}",            /* half a surrogate pair */
        "{\"a\":NaN}",                         /**/
        "{\"a\":Infinity}",                    /**/
        "{\"a\":+1}",                          /**/
        "{\"a\":.5}",                          /**/
        "{\"a\":0x10}",                        /**/
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        st_refuse_header(headers[i], 4, "safetensors.header.json", "at byte");
}
END_TEST

START_TEST(control_characters_are_refused_where_a_lenient_parser_takes_them) {
    st_refuse_header("{\"a\nb\":{" GOOD "}}", 4, "safetensors.header.json", "control character in a string");
    st_refuse_header("{\"a\":\x01{" GOOD "}}", 4, "safetensors.header.json", "control character between");
    st_refuse_header("{}\x0b", 0, "safetensors.header.json", "control character between");
}
END_TEST

START_TEST(a_zero_character_cannot_end_a_name_early) {
    st_refuse_header(ENTRY("a\\u0000b", GOOD), 4, "safetensors.header.json", "zero character");
    const char raw[] = "\50\0\0\0\0\0\0\0{\"a\0b\":1}                               ";
    st_write_bytes(raw, sizeof raw - 1);
    st_expect(DFLASH_ERR_REFUSED, "safetensors.header.json", "control character in a string");
}
END_TEST

START_TEST(numbers_that_are_not_plain_integers_are_refused) {
    const char *numbers[] = {"1.0", "1.5", "1e0", "1E0", "01", "00", "-", "1-", "1+1", "4.00000000000000000001"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char header[128];
        snprintf(header, sizeof header, "{\"a\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[0,4]}}",
                 numbers[i]);
        st_refuse_header(header, 4, "safetensors.header.json", "plain decimal integer");
    }
}
END_TEST

START_TEST(json_nested_without_end_is_refused) {
    enum { DEPTH = 100000 };
    char *header = malloc(DEPTH + 8);
    ck_assert_ptr_nonnull(header);
    memcpy(header, "{\"a\":", 5);
    memset(header + 5, '[', DEPTH);
    header[DEPTH + 5] = '\0';
    st_refuse_header(header, 0, "safetensors.header.json", NULL);
    free(header);
}
END_TEST

/* ---- Entries ---- */

START_TEST(a_malformed_entry_is_refused_by_name) {
    const char *code = "safetensors.header.entry";
    st_refuse_header("{\"t.x\":[]}", 0, code, "\"t.x\" is malformed: its value is not an object");
    st_refuse_header("{\"t.x\":null}", 0, code, "not an object");
    st_refuse_header("{\"t.x\":7}", 0, code, "not an object");
    st_refuse_header(ENTRY("t.x", "\"shape\":[1],\"data_offsets\":[0,4]"), 4, code, "\"dtype\" is missing");
    st_refuse_header(ENTRY("t.x", "\"dtype\":\"F32\",\"data_offsets\":[0,4]"), 4, code, "\"shape\" is missing");
    st_refuse_header(ENTRY("t.x", "\"dtype\":\"F32\",\"shape\":[1]"), 4, code, "\"data_offsets\" is missing");
    st_refuse_header(ENTRY("t.x", GOOD ",\"strides\":[1]"), 4, code, "a key of another name");
    st_refuse_header(ENTRY("t.x", GOOD ",\"dtype\":\"F32\""), 4, code, "the same key twice");
    st_refuse_header(ENTRY("t.x", GOOD ",\"data_offsets\":[0,4]"), 4, code, "the same key twice");
    st_refuse_header(ENTRY("t.x", "\"dtype\":32,\"shape\":[1],\"data_offsets\":[0,4]"), 4, code, "not a string");
    st_refuse_header(ENTRY("t.x", "\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]"), 4, code, "not an array");
    st_refuse_header(ENTRY("t.x", "\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":{}"), 4, code, "not an array");
}
END_TEST

START_TEST(a_name_that_cannot_be_a_tensors_is_refused) {
    char header[512], name[300];
    st_refuse_header(ENTRY("", GOOD), 4, "safetensors.header.entry", "its name");
    st_refuse_header(ENTRY("a\\nb", GOOD), 4, "safetensors.header.entry", "\"a?b\"");
    st_refuse_header(ENTRY("a\\u001b[2J", GOOD), 4, "safetensors.header.entry", "\"a?[2J\"");
    st_refuse_header(ENTRY("\xc3\xa9", GOOD), 4, "safetensors.header.entry", "\"??\"");
    memset(name, 'n', sizeof name);
    name[256] = '\0';
    snprintf(header, sizeof header, "{\"%s\":{%s}}", name, GOOD);
    st_refuse_header(header, 4, "safetensors.header.entry", "nnn...");
}
END_TEST

START_TEST(metadata_that_is_not_strings_is_refused) {
    st_refuse_header("{\"__metadata__\":[]}", 0, "safetensors.header.entry", "__metadata__");
    st_refuse_header("{\"__metadata__\":\"pt\"}", 0, "safetensors.header.entry", "__metadata__");
    st_refuse_header("{\"__metadata__\":{\"a\":\"b\",\"step\":3}}", 0, "safetensors.header.entry", "__metadata__");
}
END_TEST

START_TEST(a_name_twice_is_refused) {
    tf_add(st_file, "a.weight", "F32", 1, (const int64_t[]){2}, NULL);
    st_refuse("safetensors.name.twice", "\"a.weight\"");
    st_refuse_header("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "safetensors.name.twice", "__metadata__");
    /* the same name by way of an escape */
    st_refuse_header("{\"ab\":{" GOOD "},\"a\\u0062\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8,
                     "safetensors.name.twice", "\"ab\"");
}
END_TEST

START_TEST(a_dtype_that_the_format_does_not_have_is_refused_by_tensor_and_dtype) {
    const char *dtypes[] = {"bf16", "F322", "F8", "I128", ""};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        char word[64];
        snprintf(word, sizeof word, "\"b.weight\" has dtype \"%s\"", dtypes[i]);
        tf_reshape(st_file, "b.weight", dtypes[i], 1, (const int64_t[]){8});
        st_refuse("safetensors.dtype", word);
    }
}
END_TEST

/* A header of one tensor "t" and that many zero bytes of data. */
static void write_one(const char *dtype, const char *shape, int bytes) {
    char header[200];
    snprintf(header, sizeof header, "{\"t\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[0,%d]}}", dtype, shape,
             bytes);
    tf_file *raw = tf_new();
    raw->header = header;
    raw->tail = bytes;
    tf_write(raw, st_path);
    tf_free(raw);
}

START_TEST(every_dtype_of_the_format_is_sized_and_only_ours_can_be_used) {
    static const struct {
        const char *name;
        int bits;
        bool ours;
    } dtypes[] = {{"F32", 32, true},     {"F16", 16, true},         {"BF16", 16, true},        {"F64", 64, false},
                  {"C64", 64, false},    {"I64", 64, false},        {"U64", 64, false},        {"I32", 32, false},
                  {"U32", 32, false},    {"I16", 16, false},        {"U16", 16, false},        {"I8", 8, false},
                  {"U8", 8, false},      {"BOOL", 8, false},        {"F8_E4M3", 8, false},     {"F8_E5M2", 8, false},
                  {"F8_E8M0", 8, false}, {"F8_E4M3FNUZ", 8, false}, {"F8_E5M2FNUZ", 8, false}, {"F6_E2M3", 6, false},
                  {"F6_E3M2", 6, false}, {"F4", 4, false}};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        dflash_error err = {.status = DFLASH_OK};
        const int bytes = 8 * dtypes[i].bits / 8; /* of 2 x 4 elements */
        write_one(dtypes[i].name, "2,4", bytes);
        df_safetensors *opened = st_open();
        const df_tensor *tensor = df_safetensors_find(opened, "t");
        ck_assert_str_eq(tensor->type->name, dtypes[i].name);
        ck_assert_uint_eq(tensor->bytes, (size_t)bytes);
        ck_assert_int_eq(tensor->count, 8);
        ck_assert_int_eq(df_safetensors_usable(opened, tensor, &err), dtypes[i].ours ? DFLASH_OK : DFLASH_ERR_REFUSED);
        if (!dtypes[i].ours) ck_assert_str_eq(err.code, "safetensors.dtype");
        df_safetensors_close(opened);
        write_one(dtypes[i].name, "2,4", bytes - 1);
        st_expect(DFLASH_ERR_REFUSED, "safetensors.offsets", "needs");
    }
}
END_TEST

START_TEST(elements_that_do_not_fill_their_last_byte_are_refused) {
    write_one("F4", "3", 2);
    st_expect(DFLASH_ERR_REFUSED, "safetensors.shape", "takes 12 bits; expected whole bytes");
    write_one("F6_E2M3", "2,3", 5);
    st_expect(DFLASH_ERR_REFUSED, "safetensors.shape", "takes 36 bits");
}
END_TEST

START_TEST(a_rank_outside_1_to_4_may_be_there_and_cannot_be_used) {
    tf_reshape(st_file, "b.weight", "BF16", 0, NULL);
    st_refuse_use("b.weight", "safetensors.shape", "\"b.weight\" has 0 dimensions");
    tf_reshape(st_file, "b.weight", "BF16", 5, (const int64_t[]){1, 1, 2, 1, 2});
    st_refuse_use("b.weight", "safetensors.shape", "\"b.weight\" has 5 dimensions");
    tf_reshape(st_file, "b.weight", "BF16", 8, (const int64_t[]){1, 1, 2, 1, 2, 1, 1, 3});
    st_refuse_use("b.weight", "safetensors.shape", "\"b.weight\" has 8 dimensions");
    tf_reshape(st_file, "b.weight", "BF16", 9, (const int64_t[]){1, 1, 2, 1, 2, 1, 1, 3, 1});
    st_refuse("safetensors.shape", "\"b.weight\" has 9 dimensions");
}
END_TEST

START_TEST(a_dimension_that_is_not_an_exact_positive_integer_is_refused) {
    const char *dims[] = {"-1",
                          "-4",
                          "\"4\"",
                          "null",
                          "true",
                          "[4]",
                          "9007199254740992",
                          "9007199254740993",
                          "99999999999999999999999999"};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        char header[160];
        snprintf(header, sizeof header, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,%s],\"data_offsets\":[0,4]}}", dims[i]);
        st_refuse_header(header, 4, "safetensors.shape", "dimension 1 of tensor \"a\" is not an integer");
    }
}
END_TEST

START_TEST(an_empty_tensor_may_be_there_and_cannot_be_used) {
    tf_reshape(st_file, "b.weight", "BF16", 2, (const int64_t[]){4, 0});
    st_refuse_use("b.weight", "safetensors.shape", "dimension 1 of tensor \"b.weight\" is 0");
    /* it begins where another does, before or behind that one in the header: both are found as themselves */
    df_safetensors *opened = st_open();
    const char *names[] = {"a.weight", "b.weight", "c.weight"};
    for (int i = 0; i < 3; i++) {
        const df_tensor *tensor = df_safetensors_find(opened, names[i]);
        ck_assert_str_eq(df_safetensors_at(opened, df_safetensors_index(opened, tensor))->name, names[i]);
    }
    df_safetensors_close(opened);
    st_refuse_header("{\"a\":{\"dtype\":\"F16\",\"shape\":[0],\"data_offsets\":[2,2]},"
                     "\"b\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]}}",
                     4, "safetensors.overlap", NULL);
}
END_TEST

START_TEST(a_shape_whose_product_overflows_is_refused) {
    /* the product is 2^64 elements, which wraps to 0 */
    st_refuse_header(ENTRY("a", "\"dtype\":\"F16\",\"shape\":[65536,65536,65536,65536],\"data_offsets\":[0,0]"), 0,
                     "safetensors.shape", "2^63");
    st_refuse_header(ENTRY("a", "\"dtype\":\"F32\",\"shape\":[4294967297,4294967297],\"data_offsets\":[0,4]"), 4,
                     "safetensors.shape", "2^63");
}
END_TEST

START_TEST(offsets_that_are_not_two_exact_integers_are_refused) {
    const char *offsets[] = {"[]",     "[0]",       "[0,4,4]",  "[-4,0]",
                             "[0,-1]", "[\"0\",4]", "[0,null]", "[0,9007199254740992]"};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        char header[160];
        snprintf(header, sizeof header, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":%s}}", offsets[i]);
        st_refuse_header(header, 4, "safetensors.offsets", "data_offsets of tensor \"a\" must be two integers");
    }
}
END_TEST

void st_add_header_tests(TCase *tests) {
    tcase_add_test(tests, a_header_that_is_not_json_is_refused);
    tcase_add_test(tests, control_characters_are_refused_where_a_lenient_parser_takes_them);
    tcase_add_test(tests, a_zero_character_cannot_end_a_name_early);
    tcase_add_test(tests, numbers_that_are_not_plain_integers_are_refused);
    tcase_add_test(tests, json_nested_without_end_is_refused);
    tcase_add_test(tests, a_malformed_entry_is_refused_by_name);
    tcase_add_test(tests, a_name_that_cannot_be_a_tensors_is_refused);
    tcase_add_test(tests, metadata_that_is_not_strings_is_refused);
    tcase_add_test(tests, a_name_twice_is_refused);
    tcase_add_test(tests, a_dtype_that_the_format_does_not_have_is_refused_by_tensor_and_dtype);
    tcase_add_test(tests, every_dtype_of_the_format_is_sized_and_only_ours_can_be_used);
    tcase_add_test(tests, elements_that_do_not_fill_their_last_byte_are_refused);
    tcase_add_test(tests, a_rank_outside_1_to_4_may_be_there_and_cannot_be_used);
    tcase_add_test(tests, a_dimension_that_is_not_an_exact_positive_integer_is_refused);
    tcase_add_test(tests, an_empty_tensor_may_be_there_and_cannot_be_used);
    tcase_add_test(tests, a_shape_whose_product_overflows_is_refused);
    tcase_add_test(tests, offsets_that_are_not_two_exact_integers_are_refused);
}
