/*
 * test_cases.c - the list of cases: what each key becomes, what is refused, and when a checkpoint is written again.
 *
 * Running the cases is the gate's business; that the stored checkpoints follow their recipes is test_synth.c's.
 */
#include "store/cases.h"
#include "suites.h"
#include "support/synth_files.h"

#include <stdio.h>
#include <string.h>

/* A case over tiny-edge; the first %s is more keys of the case, the second more keys of its recipe. */
static const char ENTRY[] =
    "{\"name\":\"one\",\"checkpoint\":\"%s\",\"oracle\":\"o.h5\",%s\"stored\":false,"
    "\"synth\":{\"config\":\"" SYNTH_EDGE "\",\"seed\":7,\"dtype\":\"bf16\",\"profile\":\"unit\"%s}}";

static void put_list(const char *keys, const char *recipe_keys) {
    char entry[2048], text[2304];
    snprintf(entry, sizeof entry, ENTRY, synth_out, keys, recipe_keys);
    snprintf(text, sizeof text, "{\"schema\":1,\"cases\":[%s]}", entry);
    synth_put(synth_given, text);
}

static void read_list(dp_case_list *list) {
    dflash_error err = {0};
    ck_assert_msg(dp_cases_read(synth_given, list, &err) == DFLASH_OK, "%s: %s", err.code, err.message);
    ck_assert_int_eq(list->count, 1);
}

static void assert_refused(const char *code, const char *said) {
    dflash_error err = {0};
    dp_case_list list;
    ck_assert_int_eq(dp_cases_read(synth_given, &list, &err), DFLASH_ERR_REFUSED);
    ck_assert_int_eq(err.status, DFLASH_ERR_REFUSED);
    ck_assert_str_eq(err.code, code);
    ck_assert_msg(strstr(err.message, said) != NULL, "\"%s\" does not name %s", err.message, said);
    ck_assert_ptr_null(list.item);
    ck_assert_int_eq(list.count, 0);
}

/* What becomes of the paths of a list at PATH with this root; the list's own folder is taken away and put back. */
START_TEST(paths_start_from_the_root_of_the_list) {
    static const struct {
        const char *root, *oracle; /* the second from the list's folder, or from the working directory */
        bool own;
    } roots[] = {{"", "o.h5", false},
                 {"\"root\":\".\",", "./o.h5", true},
                 {"\"root\":\"down/deep\",", "down/deep/o.h5", true},
                 {"\"root\":\"down/..\",", "o.h5", true},
                 {"\"root\":\"/else/where\",", "/else/where/o.h5", false}};
    char text[2304], entry[2048], expected[2304];
    dp_case_list list;
    snprintf(entry, sizeof entry, ENTRY, "/c", "", "");
    snprintf(text, sizeof text, "{\"schema\":1,%s\"cases\":[%s]}", roots[_i].root, entry);
    synth_put(synth_given, text);
    read_list(&list);
    const int own = roots[_i].own ? (int)(strrchr(synth_given, '/') + 1 - synth_given) : 0;
    snprintf(expected, sizeof expected, "%.*s%s", own, synth_given, roots[_i].oracle);
    ck_assert_str_eq(list.item[0].oracle, expected);
    ck_assert_str_eq(list.item[0].oracle_entry, "o.h5");
    ck_assert_str_eq(list.item[0].checkpoint, "/c"); /* absolute */
    dp_cases_release(&list);
}
END_TEST

START_TEST(a_root_that_is_no_path_is_refused) {
    synth_put(synth_given, "{\"root\":3,\"cases\":[{}]}");
    assert_refused("cases.root", "expected a string");
}
END_TEST

START_TEST(every_listed_case_is_read_with_its_precision_and_recipe) {
    static const struct {
        const char *name;
        dflash_precision precision;
        unsigned extras;
    } some[] = {
        {"tiny-plain", DFLASH_PRECISION_STORED, 0},
        {"tiny-plain-q8_0", DFLASH_PRECISION_Q8_0, 0},
        {"tiny-plain-q4_0", DFLASH_PRECISION_Q4_0, 0},
        {"tiny-plain-mixed", DFLASH_PRECISION_MIXED, 0},
        {"tiny-plain-fc", DFLASH_PRECISION_FC, 0},
        {"tiny-hot-bf16", DFLASH_PRECISION_BF16, 0},
        {"tiny-dflash2", DFLASH_PRECISION_STORED, DP_SYNTH_LM_HEAD},
        {"tiny-dflash2-k3", DFLASH_PRECISION_STORED, DP_SYNTH_LM_HEAD | DP_SYNTH_CODEBOOK_SUFFIX},
        {"qwen38-27b-dspark-yarn", DFLASH_PRECISION_STORED, DP_SYNTH_LM_HEAD},
    };
    dflash_error err = {0};
    dp_case_list list;
    ck_assert_msg(dp_cases_read("fixtures/cases.json", &list, &err) == DFLASH_OK, "%s", err.message);
    for (size_t s = 0; s < sizeof some / sizeof some[0]; s++) {
        int i = 0;
        while (i < list.count && strcmp(list.item[i].name, some[s].name) != 0) i++;
        ck_assert_msg(i < list.count, "there is no case %s", some[s].name);
        ck_assert_int_eq(list.item[i].precision, some[s].precision);
        ck_assert_uint_eq(list.item[i].synth.extras, some[s].extras);
    }
    dp_cases_release(&list);
}
END_TEST

START_TEST(a_precision_that_does_not_exist_is_refused) {
    put_list("\"precision\":\"q5_0\",", "");
    assert_refused("cases.precision", "q5_0");
    put_list("\"precision\":\"\",", "");
    assert_refused("cases.precision", "one");
    put_list("\"precision\":8,", "");
    assert_refused("cases.precision", "not a string");
    put_list("\"precision\":null,", "");
    assert_refused("cases.precision", "not a string");
}
END_TEST

START_TEST(a_recipe_key_that_does_not_exist_is_refused) {
    put_list("", ",\"lm-head\":true");
    assert_refused("cases.recipe", "\"lm-head\"");
    put_list("", ",\"threads\":2");
    assert_refused("cases.recipe", "\"threads\"");
}
END_TEST

START_TEST(a_case_key_that_does_not_exist_is_refused) {
    dp_case_list list;
    put_list("\"context\":24,\"gaps\":[[3,7]],\"sample_stride\":3,\"full_stages\":[\"final\"],", "");
    read_list(&list);
    dp_cases_release(&list);
    put_list("\"precison\":\"q8_0\",", ""); /* read as an absent precision it would be another case */
    assert_refused("cases.key", "\"precison\"");
}
END_TEST

START_TEST(a_recipe_key_of_the_wrong_type_is_refused) {
    put_list("", ",\"lm_head\":1");
    assert_refused("cases.entry", "lm_head");
    put_list("", ",\"codebook_suffix\":\"yes\"");
    assert_refused("cases.entry", "codebook_suffix");
}
END_TEST

START_TEST(the_head_of_a_case_is_a_file_or_none) {
    dp_case_list list;
    put_list("\"lm_head\":\"target.safetensors:model.embed_tokens.weight\",", "");
    read_list(&list);
    ck_assert_str_eq(list.item[0].head, "target.safetensors:model.embed_tokens.weight");
    dp_cases_release(&list);
    put_list("\"lm_head\":\"\",", "");
    assert_refused("cases.entry", "lm_head, FILE or FILE:TENSOR");
    put_list("\"lm_head\":true,", ""); /* the recipe's key, in the wrong place */
    assert_refused("cases.entry", "lm_head, FILE or FILE:TENSOR");
}
END_TEST

START_TEST(an_extra_that_is_false_is_the_same_as_none) {
    dp_case_list list;
    put_list("\"precision\":\"stored\",", ",\"lm_head\":false,\"codebook_suffix\":false");
    read_list(&list);
    ck_assert_uint_eq(list.item[0].synth.extras, 0);
    ck_assert_int_eq(list.item[0].precision, DFLASH_PRECISION_STORED);
    dp_cases_release(&list);
}
END_TEST

static void prepare(const char *recipe_keys, char digest[65]) {
    dflash_error err = {0};
    dp_case_list list;
    put_list("", recipe_keys);
    read_list(&list);
    ck_assert_msg(dp_case_prepare(&list.item[0], &err) == DFLASH_OK, "%s: %s", err.code, err.message);
    synth_digest(digest);
    dp_cases_release(&list);
}

START_TEST(a_checkpoint_whose_recipe_gained_a_head_is_written_again) {
    char plain[65], with_head[65], again[65];
    dflash_error err = {0};
    prepare("", plain);
    prepare(",\"lm_head\":true", with_head);
    ck_assert_str_ne(plain, with_head);
    synth_run_with(SYNTH_EDGE, 7, DF_BF16, DP_SYNTH_UNIT, DP_SYNTH_LM_HEAD);
    synth_digest(again);
    ck_assert_str_eq(with_head, again);
    prepare("", again);
    ck_assert_str_eq(plain, again);
    /* unchanged, it is left alone: a file that is not the recipe's stays */
    synth_put(synth_out_model, "mine");
    prepare("", again);
    ck_assert_str_ne(plain, again);
    df_safetensors *file = NULL;
    ck_assert_int_ne(df_safetensors_open(synth_out_model, &file, &err), DFLASH_OK);
}
END_TEST

START_TEST(vectors_are_a_path_or_absent) {
    static const struct {
        const char *text, *expected; /* NULL: refused */
    } lists[] = {{"", ""}, {"\"vectors\":\"v.h5\",", "v.h5"}, {"\"vectors\":5,", NULL}, {"\"vectors\":\"\",", NULL}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        char entry[2048], text[2304];
        dp_case_list list;
        snprintf(entry, sizeof entry, ENTRY, synth_out, "", "");
        snprintf(text, sizeof text, "{\"schema\":1,%s\"cases\":[%s]}", lists[i].text, entry);
        synth_put(synth_given, text);
        if (lists[i].expected == NULL) {
            assert_refused("cases.vectors", "vectors");
            continue;
        }
        read_list(&list);
        ck_assert_str_eq(list.vectors != NULL ? list.vectors : "", lists[i].expected);
        dp_cases_release(&list);
    }
}
END_TEST

Suite *suite_cases(void) {
    Suite *suite = suite_create("cases");
    TCase *tcase = tcase_create("list");
    tcase_add_checked_fixture(tcase, synth_setup, synth_teardown);
    tcase_add_test(tcase, every_listed_case_is_read_with_its_precision_and_recipe);
    tcase_add_loop_test(tcase, paths_start_from_the_root_of_the_list, 0, 5);
    tcase_add_test(tcase, a_root_that_is_no_path_is_refused);
    tcase_add_test(tcase, a_precision_that_does_not_exist_is_refused);
    tcase_add_test(tcase, a_recipe_key_that_does_not_exist_is_refused);
    tcase_add_test(tcase, a_case_key_that_does_not_exist_is_refused);
    tcase_add_test(tcase, a_recipe_key_of_the_wrong_type_is_refused);
    tcase_add_test(tcase, the_head_of_a_case_is_a_file_or_none);
    tcase_add_test(tcase, an_extra_that_is_false_is_the_same_as_none);
    tcase_add_test(tcase, a_checkpoint_whose_recipe_gained_a_head_is_written_again);
    tcase_add_test(tcase, vectors_are_a_path_or_absent);
    suite_add_tcase(suite, tcase);
    return suite;
}
