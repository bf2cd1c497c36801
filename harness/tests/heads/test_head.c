/*
 * test_head.c - the output head of a target's file: which tensor is taken by rule, what is refused with its candidates
 * named, and --lm-head FILE[:TENSOR].
 */
#include "run/head_source.h"
#include "support/op_case.h"
#include "suites.h"
#include "support/tensor_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { V = 6, H = 4, MOST = 5 };
static char folder[TF_PATH_MAX], path[TF_PATH_MAX + 64];

static void setup(void) {
    tf_make_dir(folder);
    snprintf(path, sizeof path, "%s/target.safetensors", folder);
}

static void teardown(void) { tf_remove_dir(folder); }

/* Matrices [V, H] of these names, at `path`. */
static void write_names(const char *const *names) {
    tf_file *file = tf_new();
    for (int i = 0; i < MOST && names[i] != NULL; i++) tf_add(file, names[i], "BF16", 2, (const int64_t[]){V, H}, NULL);
    tf_write(file, path);
    tf_free(file);
}

static dflash_status load(const char *tensor, char name[256], dflash_error *err) {
    dflash_engine *engine = op_engine(DFLASH_ISA_BEST, 1, false);
    dflash_table *table = NULL;
    const dflash_status status = dflash_table_load(engine, path, tensor, &table, err);
    if (status == DFLASH_OK) {
        const dflash_tensor_view view = dflash_table_view(table);
        snprintf(name, 256, "%s", view.name);
        ck_assert_int_eq(view.dim[0], V);
        float value;
        const uint32_t bits = (uint32_t)((const uint16_t *)view.data)[5] << 16;
        memcpy(&value, &bits, sizeof value);
        ck_assert_float_eq(value, tf_value(name, 5)); /* the bytes of that tensor, not of a neighbour */
    }
    dflash_table_destroy(table);
    dflash_engine_destroy(engine);
    return status;
}

static void expect_taken(const char *const *names, const char *expected) {
    char name[256] = "";
    dflash_error err = {.status = DFLASH_OK};
    write_names(names);
    ck_assert_msg(load(NULL, name, &err) == DFLASH_OK, "%s: %s", err.code, err.message);
    ck_assert_str_eq(name, expected);
}

static void expect_refused(const char *tensor, const char *code, const char *word) {
    char name[256];
    dflash_error err = {.status = DFLASH_OK};
    ck_assert_int_eq(load(tensor, name, &err), DFLASH_ERR_REFUSED);
    ck_assert_msg(strcmp(err.code, code) == 0 && strstr(err.message, word) != NULL, "expected %s, \"%s\"; got %s: %s",
                  code, word, err.code, err.message);
}

START_TEST(the_head_is_found_in_the_stated_order) {
    static const struct {
        const char *names[MOST], *taken;
    } files[] = {
        {{"lm_head.weight"}, "lm_head.weight"},
        {{"model.embed_tokens.weight", "lm_head.weight"}, "lm_head.weight"},
        {{"language_model.lm_head.weight", "lm_head.weight"}, "lm_head.weight"},
        {{"language_model.lm_head.weight", "language_model.model.embed_tokens.weight"},
         "language_model.lm_head.weight"},
        {{"model.language_model.lm_head.weight", "model.visual.pos_embed.weight"},
         "model.language_model.lm_head.weight"},
        {{"model.lm_head.weight", "embed_tokens.weight"}, "model.lm_head.weight"},
        {{"thinker.lm_head.weight", "thinker.model.embed_tokens.weight"}, "thinker.lm_head.weight"},
        {{"model.norm.weight", "model.embed_tokens.weight"}, "model.embed_tokens.weight"},
        {{"embed_tokens.weight"}, "embed_tokens.weight"},
        {{"model.language_model.embed_tokens.weight"}, "model.language_model.embed_tokens.weight"},
        {{"language_model.model.embed_tokens.weight"}, "language_model.model.embed_tokens.weight"},
        /* "head" as a part of another word is none */
        {{"my_lm_head.weight", "model.embed_tokens.weight"}, "model.embed_tokens.weight"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) expect_taken(files[i].names, files[i].taken);
}
END_TEST

START_TEST(two_readings_are_refused_with_the_candidates) {
    static const struct {
        const char *names[MOST], *word;
    } files[] = {
        {{"language_model.lm_head.weight", "thinker.lm_head.weight"},
         "language_model.lm_head.weight, thinker.lm_head.weight"},
        {{"model.embed_tokens.weight", "embed_tokens.weight"}, "embed_tokens.weight, model.embed_tokens.weight"},
        /* a tie is taken only where no head is present, under whatever name */
        {{"talker.lm_head.weight", "model.embed_tokens.weight"}, "talker.lm_head.weight, model.embed_tokens.weight"},
        {{"lm_head.qweight", "lm_head.scales", "model.embed_tokens.weight"}, "lm_head.qweight, lm_head.scales, model."},
        {{"output.weight", "model.embed_tokens.weight"}, "output.weight"},
        {{"embed_out.weight", "embed_tokens.weight"}, "embed_out.weight"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        write_names(files[i].names);
        expect_refused(NULL, "table.head.ambiguous", files[i].word);
        expect_refused(NULL, "table.head.ambiguous", "--lm-head");
    }
}
END_TEST

START_TEST(a_file_without_any_is_refused_and_one_of_several_is_not_tied) {
    static const char *const none[] = {"model.norm.weight", "tok_embeddings.weight", NULL},
                             *const tied[] = {"model.embed_tokens.weight", NULL};
    write_names(none);
    expect_refused(NULL, "table.tensor.missing", "among its 2 tensors");
    char name[256];
    dflash_error err = {.status = DFLASH_OK};
    snprintf(path, sizeof path, "%s/model-00001-of-00004.safetensors", folder);
    write_names(tied);
    expect_refused(NULL, "table.head.shard", ":model.embed_tokens.weight");
    ck_assert_int_eq(load("model.embed_tokens.weight", name, &err), DFLASH_OK);
    snprintf(path, sizeof path, "%s/model-00001-of-00001.safetensors", folder);
    expect_taken(tied, "model.embed_tokens.weight");
}
END_TEST

START_TEST(a_tensor_is_taken_by_its_name_whatever_else_there_is) {
    static const char *const names[] = {"lm_head.weight", "talker.head.weight", NULL};
    char name[256];
    dflash_error err = {.status = DFLASH_OK};
    write_names(names);
    ck_assert_int_eq(load("talker.head.weight", name, &err), DFLASH_OK);
    ck_assert_str_eq(name, "talker.head.weight");
    expect_refused("talker.head", "table.tensor.missing", "\"talker.head\" among its 2");
}
END_TEST

/* A good head among tensors that nobody reads. */
static tf_file *with_neighbours(void) {
    tf_file *file = tf_new();
    tf_add(file, "lm_head.weight", "BF16", 2, (const int64_t[]){V, H}, NULL);
    tf_add(file, "model.layers.9.q.weight", "F8_E4M3", 2, (const int64_t[]){3, 5}, NULL);
    tf_add(file, "model.layers.9.q.scale", "F32", 0, NULL, NULL);
    tf_add(file, "model.visual.patch_embed.weight", "BF16", 5, (const int64_t[]){2, 3, 2, 2, 2}, NULL);
    tf_add(file, "model.steps", "I64", 1, (const int64_t[]){3}, NULL);
    tf_add(file, "model.nothing", "BOOL", 2, (const int64_t[]){0, 7}, NULL);
    return file;
}

START_TEST(tensors_that_nobody_reads_may_be_anything_and_must_fit_the_file) {
    char name[256];
    dflash_error err = {.status = DFLASH_OK};
    tf_file *file = with_neighbours();
    tf_write(file, path);
    ck_assert_msg(load(NULL, name, &err) == DFLASH_OK, "%s", err.message);
    expect_refused("model.layers.9.q.weight", "safetensors.dtype", "F8_E4M3");
    expect_refused("model.layers.9.q.scale", "safetensors.shape", "0 dimensions");
    expect_refused("model.nothing", "safetensors.dtype", "BOOL");
    tf_get(file, "model.layers.9.q.weight")->end--; /* a neighbour that lies is a damaged file */
    tf_write(file, path);
    expect_refused(NULL, "safetensors.offsets", "model.layers.9.q.weight");
    tf_free(file);
}
END_TEST

START_TEST(the_head_itself_is_held_to_our_rules) {
    tf_file *file = with_neighbours();
    tf_reshape(file, "lm_head.weight", "F8_E4M3", 2, (const int64_t[]){V, H});
    tf_add(file, "model.embed_tokens.weight", "BF16", 2, (const int64_t[]){V, H}, NULL); /* never in its place */
    tf_write(file, path);
    expect_refused(NULL, "safetensors.dtype", "\"lm_head.weight\"");
    tf_reshape(file, "lm_head.weight", "BF16", 3, (const int64_t[]){V, H, 1});
    tf_write(file, path);
    expect_refused(NULL, "table.tensor.shape", "[6, 4, 1]");
    tf_reshape(file, "lm_head.weight", "BF16", 2, (const int64_t[]){V, H});
    tf_add(file, "lm_head.bias", "BF16", 1, (const int64_t[]){V}, NULL);
    tf_write(file, path);
    expect_refused(NULL, "table.head.bias", "\"lm_head.bias\"");
    expect_refused("lm_head.weight", "table.head.bias", "\"lm_head.bias\"");
    tf_free(file);
}
END_TEST

START_TEST(the_option_is_a_file_or_a_file_and_a_name) {
    dp_head_source source;
    dp_head_source_parse("a/b.safetensors", &source);
    ck_assert_str_eq(source.file, "a/b.safetensors");
    ck_assert_ptr_null(source.tensor);
    dp_head_source_parse("a:b/c.safetensors:model.x.weight", &source);
    ck_assert_str_eq(source.file, "a:b/c.safetensors");
    ck_assert_str_eq(source.tensor, "model.x.weight");
    dp_head_source_parse("a:b/c.safetensors", &source);
    ck_assert_str_eq(source.file, "a:b/c.safetensors");
    ck_assert_ptr_null(source.tensor);
    dp_head_source_parse("a.safetensors:", &source);
    ck_assert_str_eq(source.file, "a.safetensors:");
    ck_assert_ptr_null(source.tensor);
    /* a file that is there is never taken apart */
    static const char *const names[] = {"lm_head.weight", NULL};
    snprintf(path, sizeof path, "%s/odd:name", folder);
    write_names(names);
    dp_head_source_parse(path, &source);
    ck_assert_str_eq(source.file, path);
    ck_assert_ptr_null(source.tensor);
}
END_TEST

START_TEST(a_checkpoints_own_embedding_is_not_its_head) {
    static const char *const tied[] = {"model.embed_tokens.weight", NULL}, *const own[] = {"model.lm_head.weight",
                                                                                           NULL};
    dflash_engine *engine = op_engine(DFLASH_ISA_BEST, 1, false);
    dflash_table *table = NULL;
    dflash_error err = {.status = DFLASH_OK};
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    write_names(tied);
    ck_assert_int_eq(dp_head_open(engine, folder, NULL, &table, &err), DFLASH_OK);
    ck_assert_ptr_null(table);
    write_names(own);
    ck_assert_int_eq(dp_head_open(engine, folder, NULL, &table, &err), DFLASH_OK);
    ck_assert_ptr_nonnull(table);
    dflash_table_destroy(table);
    dflash_engine_destroy(engine);
}
END_TEST

Suite *suite_head(void) {
    Suite *suite = suite_create("head");
    TCase *tests = tcase_create("output head");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, the_head_is_found_in_the_stated_order);
    tcase_add_test(tests, two_readings_are_refused_with_the_candidates);
    tcase_add_test(tests, a_file_without_any_is_refused_and_one_of_several_is_not_tied);
    tcase_add_test(tests, a_tensor_is_taken_by_its_name_whatever_else_there_is);
    tcase_add_test(tests, tensors_that_nobody_reads_may_be_anything_and_must_fit_the_file);
    tcase_add_test(tests, the_head_itself_is_held_to_our_rules);
    tcase_add_test(tests, the_option_is_a_file_or_a_file_and_a_name);
    tcase_add_test(tests, a_checkpoints_own_embedding_is_not_its_head);
    suite_add_tcase(suite, tests);
    return suite;
}
