/*
 * test_precision.c - the precision modes as a user of the drafter sees them: names, which width each matrix is held in,
 * how much memory that takes, what is refused, and that the forward programs keep their promises in every mode.
 */
#include "engine/engine.h"
#include "weights/precision.h"
#include "weights/quant.h"
#include "suites.h"
#include "support/tensor_file.h"
#include "weights/weights_census.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const MODES[] = {"stored", "f32", "bf16", "q8_0", "q4_0", "mixed", "fc"};
enum { MODE_COUNT = 7, FIRST_QUANTISED = DFLASH_PRECISION_Q8_0 };

static dflash_engine *engine;
static char folder[TF_PATH_MAX], model_path[TF_PATH_MAX + 32], config_path[TF_PATH_MAX + 32];
static dflash_error err;

static void setup(void) {
    const dflash_engine_options options = {.threads = 2, .poison_scratch = true};
    ck_assert_int_eq(dflash_engine_create(&options, &engine, &err), DFLASH_OK);
    tf_make_dir(folder);
    snprintf(model_path, sizeof model_path, "%s/model.safetensors", folder);
    snprintf(config_path, sizeof config_path, "%s/config.json", folder);
}

static void teardown(void) {
    dflash_engine_destroy(engine);
    tf_remove_dir(folder);
}

/* ---- Names ---- */

START_TEST(every_mode_is_known_by_its_name) {
    for (int i = 0; i < MODE_COUNT; i++) {
        dflash_precision parsed = (dflash_precision)99;
        ck_assert_str_eq(dflash_precision_name((dflash_precision)i), MODES[i]);
        ck_assert(dflash_precision_parse(MODES[i], &parsed));
        ck_assert_int_eq((int)parsed, i);
    }
}
END_TEST

START_TEST(a_name_that_no_mode_has_is_not_parsed) {
    const char *const wrong[] = {"", "f16", "F32", "q8_0 ", "q8", "q5_0", "q8_0,fc", "store", "?"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dflash_precision parsed = DFLASH_PRECISION_FC;
        ck_assert_msg(!dflash_precision_parse(wrong[i], &parsed), "\"%s\" was taken for %s", wrong[i],
                      dflash_precision_name(parsed));
        ck_assert_int_eq(parsed, DFLASH_PRECISION_FC);
    }
}
END_TEST

START_TEST(a_mode_outside_the_enumeration_is_refused) {
    dflash_draft *draft;
    const dflash_precision wrong[] = {(dflash_precision)MODE_COUNT, (dflash_precision)-1};
    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(dflash_draft_load_as(engine, "fixtures/small/tiny-plain", wrong[i], &draft, &err),
                         DFLASH_ERR_ARGUMENT);
        ck_assert_str_eq(err.code, "precision.mode");
        ck_assert_ptr_null(draft);
        ck_assert_str_eq(dflash_precision_name(wrong[i]), "?");
    }
}
END_TEST

/* ---- Which width ---- */

/* The table, one row a kind of matrix: widths in the order of MODES for a file of F16, which no mode but "stored"
 * keeps. */
static const struct {
    const char *name; /* the end of the tensor's name */
    df_dtype held[MODE_COUNT];
} TABLE[] = {
    {"fc.weight", {DF_F16, DF_F32, DF_BF16, DF_Q8_0, DF_Q4_0, DF_BF16, DF_BF16}},
    {"self_attn.q_proj.weight", {DF_F16, DF_F32, DF_BF16, DF_Q8_0, DF_Q4_0, DF_BF16, DF_Q8_0}},
    {"self_attn.k_proj.weight", {DF_F16, DF_F32, DF_BF16, DF_Q8_0, DF_Q4_0, DF_BF16, DF_Q8_0}},
    {"self_attn.v_proj.weight", {DF_F16, DF_F32, DF_BF16, DF_Q8_0, DF_Q4_0, DF_BF16, DF_Q8_0}},
    {"self_attn.o_proj.weight", {DF_F16, DF_F32, DF_BF16, DF_Q8_0, DF_Q4_0, DF_BF16, DF_Q8_0}},
    {"mlp.gate_proj.weight", {DF_F16, DF_F32, DF_BF16, DF_Q8_0, DF_Q4_0, DF_Q8_0, DF_Q8_0}},
    {"mlp.up_proj.weight", {DF_F16, DF_F32, DF_BF16, DF_Q8_0, DF_Q4_0, DF_Q8_0, DF_Q8_0}},
    {"mlp.down_proj.weight", {DF_F16, DF_F32, DF_BF16, DF_Q8_0, DF_Q4_0, DF_Q8_0, DF_Q8_0}},
    {"attention_conv.kernel_projection.weight", {DF_F16, DF_F32, DF_BF16, DF_Q8_0, DF_Q4_0, DF_BF16, DF_Q8_0}},
    {"mlp_conv.kernel_projection.weight", {DF_F16, DF_F32, DF_BF16, DF_Q8_0, DF_Q4_0, DF_BF16, DF_Q8_0}},
    {"candidate_selector.hidden_projection.weight", {DF_F16, DF_F32, DF_BF16, DF_Q8_0, DF_Q4_0, DF_BF16, DF_Q8_0}},
    {"candidate_selector.predecessor_codebook", {DF_F16, DF_F16, DF_F16, DF_F16, DF_F16, DF_F16, DF_F16}},
    {"candidate_selector.successor_codebook", {DF_F16, DF_F16, DF_F16, DF_F16, DF_F16, DF_F16, DF_F16}},
    {"markov_head.markov_w1.weight", {DF_F16, DF_F32, DF_BF16, DF_BF16, DF_BF16, DF_BF16, DF_BF16}},
    {"markov_head.markov_w2.weight", {DF_F16, DF_F32, DF_BF16, DF_Q8_0, DF_Q8_0, DF_Q8_0, DF_Q8_0}},
    {"markov_head.gate_proj.weight", {DF_F16, DF_F32, DF_BF16, DF_Q8_0, DF_Q4_0, DF_BF16, DF_Q8_0}},
    {"markov_head.joint_proj.weight", {DF_F16, DF_F32, DF_BF16, DF_Q8_0, DF_Q4_0, DF_BF16, DF_Q8_0}},
    {"confidence_head.proj.weight", {DF_F16, DF_F32, DF_F32, DF_F32, DF_F32, DF_F32, DF_F32}},
};
enum { TABLE_ROWS = sizeof TABLE / sizeof *TABLE };

static int table_row(const char *name) {
    for (int i = 0; i < TABLE_ROWS; i++) {
        const size_t length = strlen(name), end = strlen(TABLE[i].name);
        if (length >= end && strcmp(name + length - end, TABLE[i].name) == 0) return i;
    }
    ck_abort_msg("the table does not list %s", name);
    return -1;
}

/* Three models whose rows are whole blocks and that have every kind of matrix between them. */
static dflash_config model_config(int variant) {
    dflash_config config = {.family = variant == 0 ? DFLASH_FAMILY_DFLASH2 : DFLASH_FAMILY_DSPARK,
                            .hidden = 64,
                            .n_heads = 6,
                            .n_kv_heads = 2,
                            .head_dim = 16,
                            .intermediate = 96,
                            .n_layers = 2,
                            .vocab = 40,
                            .n_taps = 3,
                            .attention_bias = variant == 1,
                            .conv_kernel = 2,
                            .conv_group = 16,
                            .selector_rank = 32,
                            .markov = variant == 1 ? DFLASH_MARKOV_GATED : DFLASH_MARKOV_RNN,
                            .markov_rank = 32,
                            .confidence = true,
                            .confidence_with_markov = variant == 1};
    return config;
}

/* The tensors that the config calls for, with default values. */
static tf_file *model_file(const dflash_config *config, const char *dtype) {
    df_weights weights = {.layer = calloc((size_t)config->n_layers, sizeof(df_layer_weights))};
    df_slot *slots;
    int count;
    ck_assert_msg(df_census_list(config, &weights, &slots, &count, &err) == DFLASH_OK, "%s", err.message);
    tf_file *file = tf_new();
    for (int i = 0; i < count; i++) tf_add(file, slots[i].name, dtype, slots[i].rank, slots[i].dim, NULL);
    free(slots);
    free(weights.layer);
    return file;
}

/* One row of a matrix as it is held, encoded here from the values that the file was given. */
static void expect_row(const df_matrix *matrix, const char *name, int64_t row) {
    float x[256];
    unsigned char expected[1024];
    ck_assert_int_le(matrix->in, 256);
    for (int64_t i = 0; i < matrix->in; i++) x[i] = tf_value(name, row * matrix->in + i);
    const size_t bytes = df_row_bytes(matrix->dtype, matrix->in);
    for (int64_t i = 0; i < matrix->in; i++) {
        const uint16_t half = matrix->dtype == DF_F16 ? df_f32_to_f16(x[i]) : df_f32_to_bf16(x[i]);
        if (matrix->dtype == DF_F16 || matrix->dtype == DF_BF16) memcpy(expected + 2 * i, &half, sizeof half);
    }
    if (matrix->dtype == DF_F32) memcpy(expected, x, bytes);
    if (matrix->dtype == DF_Q8_0) df_quantize_q8_0(x, matrix->in, expected);
    if (matrix->dtype == DF_Q4_0) df_quantize_q4_0(x, matrix->in, expected);
    ck_assert_mem_eq((const unsigned char *)matrix->data + (size_t)row * bytes, expected, bytes);
}

START_TEST(each_mode_holds_each_matrix_in_the_width_of_the_table) {
    df_pool *pool;
    bool seen[TABLE_ROWS] = {false};
    ck_assert_int_eq(df_pool_create(3, &pool, &err), DFLASH_OK);
    for (int variant = 0; variant < 3; variant++) {
        const dflash_config config = model_config(variant);
        tf_file *file = model_file(&config, "F16");
        tf_write(file, model_path);
        for (int mode = 0; mode < MODE_COUNT; mode++) {
            df_weights weights;
            df_slot *slots;
            int count;
            ck_assert_msg(df_weights_load_as(model_path, &config, (dflash_precision)mode, pool, &weights, &err) ==
                              DFLASH_OK,
                          "%s", err.message);
            ck_assert_int_eq(df_census_list(&config, &weights, &slots, &count, &err), DFLASH_OK);
            size_t bytes = 0;
            for (int i = 0; i < count; i++) {
                const df_matrix *matrix = slots[i].matrix;
                if (matrix == NULL) {
                    bytes += tf_get(file, slots[i].name)->bytes * 2; /* widened */
                    continue;
                }
                const int row = table_row(slots[i].name);
                seen[row] = true;
                ck_assert_msg(matrix->dtype == TABLE[row].held[mode], "%s in mode %s is held as %s", slots[i].name,
                              MODES[mode], df_dtype_name(matrix->dtype));
                ck_assert(matrix->out == slots[i].dim[0] && matrix->in == slots[i].dim[1]);
                for (int64_t r = 0; r < matrix->out; r++) expect_row(matrix, slots[i].name, r);
                bytes += (size_t)matrix->out * df_row_bytes(matrix->dtype, matrix->in);
            }
            ck_assert_uint_eq(weights.bytes, bytes);
            ck_assert((weights.converted == NULL) == (mode == DFLASH_PRECISION_STORED));
            free(slots);
            df_weights_release(&weights);
        }
        tf_free(file);
    }
    for (int i = 0; i < TABLE_ROWS; i++) ck_assert_msg(seen[i], "no model has %s", TABLE[i].name);
    df_pool_destroy(pool);
}
END_TEST

START_TEST(a_matrix_already_in_the_modes_width_stays_in_the_file) {
    const dflash_config config = model_config(0);
    tf_file *file = model_file(&config, "BF16");
    tf_write(file, model_path);
    df_weights weights;
    ck_assert_int_eq(df_weights_load_as(model_path, &config, DFLASH_PRECISION_BF16, NULL, &weights, &err), DFLASH_OK);
    ck_assert_ptr_null(weights.converted);
    ck_assert_ptr_eq(weights.fc.data, df_safetensors_find(weights.file, "fc.weight")->data);
    df_weights_release(&weights);
    tf_free(file);
}
END_TEST

START_TEST(the_bytes_held_do_not_depend_on_the_number_of_threads) {
    const dflash_config config = model_config(2);
    tf_file *file = model_file(&config, "F32");
    tf_write(file, model_path);
    df_weights weights[2];
    for (int i = 0; i < 2; i++) {
        df_pool *pool;
        ck_assert_int_eq(df_pool_create(1 + 4 * i, &pool, &err), DFLASH_OK);
        ck_assert_int_eq(df_weights_load_as(model_path, &config, DFLASH_PRECISION_Q4_0, pool, &weights[i], &err),
                         DFLASH_OK);
        df_pool_destroy(pool);
    }
    for (int i = 0; i < 2; i++) {
        const df_matrix *a = i == 0 ? &weights[0].fc : &weights[0].layer[1].down;
        const df_matrix *b = i == 0 ? &weights[1].fc : &weights[1].layer[1].down;
        ck_assert_mem_eq(a->data, b->data, (size_t)a->out * df_row_bytes(a->dtype, a->in));
    }
    df_weights_release(&weights[0]);
    df_weights_release(&weights[1]);
    tf_free(file);
}
END_TEST

/* ---- Memory ---- */

/* Bytes of a published geometry in a mode, stored as bf16; vectors as float32. */
static double geometry_bytes(const char *name, dflash_precision mode) {
    char path[256];
    dflash_config config;
    df_slot *slots;
    int count;
    snprintf(path, sizeof path, "fixtures/configs/%s/config.json", name);
    ck_assert_msg(dflash_config_read(path, &config, &err) == DFLASH_OK, "%s", err.message);
    df_weights weights = {.layer = calloc((size_t)config.n_layers, sizeof(df_layer_weights))};
    ck_assert_int_eq(df_census_list(&config, &weights, &slots, &count, &err), DFLASH_OK);
    double bytes = 0;
    for (int i = 0; i < count; i++) {
        int64_t rows = 1;
        for (int d = 0; d + 1 < slots[i].rank; d++) rows *= slots[i].dim[d];
        const int64_t in = slots[i].dim[slots[i].rank - 1];
        const df_dtype held = slots[i].matrix == NULL ? DF_F32 : df_precision_dtype(mode, slots[i].name, DF_BF16);
        ck_assert_int_eq(df_precision_check_rows(mode, path, slots[i].name, held, in, &err), DFLASH_OK);
        bytes += (double)rows * (double)df_row_bytes(held, in);
    }
    free(slots);
    free(weights.layer);
    return bytes;
}

/* Codebooks keep the file's width: a small drafter of a large vocabulary is the exception to the two limits. */
START_TEST(quantised_modes_take_the_share_of_memory_that_was_promised) {
    static const struct {
        const char *name;
        double q8_0, q4_0; /* limits */
    } limits[] = {{"qwen3-4b-dflash", 0.60, 0.36},         {"qwen36-27b-dflash", 0.60, 0.36},
                  {"qwen36-35b-a3b-dflash", 0.60, 0.36},   {"gemma4-31b-dflash", 0.60, 0.36},
                  {"alpamayo-dflash", 0.60, 0.36},         {"qwen3-4b-dspark", 0.60, 0.36},
                  {"qwen3-8b-dspark", 0.60, 0.36},         {"qwen38-27b-dspark-yarn", 0.60, 0.36},
                  {"kimi-k3-dspark", 0.60, 0.36},          {"glm52-dspark", 0.60, 0.36},
                  {"qwen38-27b-dflash2", 0.60, 0.36},      {"muse-glimmer-30b-dflash2", 0.60, 0.36},
                  {"glm53-flash-dflash2", 0.60, 0.36},     {"qwen36-35b-a3b-dflash2", 0.65, 0.46},
                  {"atlas-flash-next-dflash2", 0.62, 0.42}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const double whole = geometry_bytes(limits[i].name, DFLASH_PRECISION_BF16);
        const double q8_0 = geometry_bytes(limits[i].name, DFLASH_PRECISION_Q8_0) / whole;
        const double q4_0 = geometry_bytes(limits[i].name, DFLASH_PRECISION_Q4_0) / whole;
        ck_assert_msg(q8_0 < limits[i].q8_0 && q8_0 > 0.53, "%s: q8_0 takes %.4f of bf16", limits[i].name, q8_0);
        ck_assert_msg(q4_0 < limits[i].q4_0 && q4_0 > 0.28, "%s: q4_0 takes %.4f of bf16", limits[i].name, q4_0);
    }
}
END_TEST

/* ---- Refusals ---- */

static void refuse(const dflash_config *config, dflash_precision mode, const char *code, const char *word) {
    df_weights weights;
    err.message[0] = '\0';
    ck_assert_int_eq(df_weights_load_as(model_path, config, mode, engine->pool, &weights, &err), DFLASH_ERR_REFUSED);
    ck_assert_str_eq(err.code, code);
    ck_assert_msg(strstr(err.message, word) != NULL, "\"%s\" does not mention %s", err.message, word);
    ck_assert(weights.file == NULL && weights.converted == NULL && weights.layer == NULL);
}

START_TEST(rows_that_are_not_whole_blocks_refuse_the_quantised_modes_alone) {
    dflash_config config = model_config(2);
    config.intermediate = 100; /* rows of down_proj; every other row is whole */
    tf_file *file = model_file(&config, "BF16");
    tf_write(file, model_path);
    for (int mode = 0; mode < MODE_COUNT; mode++) {
        df_weights weights;
        if (mode >= FIRST_QUANTISED) {
            refuse(&config, (dflash_precision)mode, "precision.block", "layers.0.mlp.down_proj.weight");
            continue;
        }
        ck_assert_int_eq(df_weights_load_as(model_path, &config, (dflash_precision)mode, engine->pool, &weights, &err),
                         DFLASH_OK);
        df_weights_release(&weights);
    }
    tf_free(file);
}
END_TEST

START_TEST(a_markov_rank_that_is_not_whole_blocks_refuses_even_where_the_rest_is_bf16) {
    dflash_config config = model_config(1);
    config.markov_rank = 48;
    tf_file *file = model_file(&config, "BF16");
    tf_write(file, model_path);
    refuse(&config, DFLASH_PRECISION_MIXED, "precision.block", "markov_w2");
    tf_free(file);
}
END_TEST

/* A value at [1, 35] of q_proj in an F32 file. */
static void overflow_case(float value, dflash_precision mode, bool fits) {
    const dflash_config config = model_config(2);
    const char *name = "layers.1.self_attn.q_proj.weight";
    tf_file *file = model_file(&config, "F32");
    tf_set_bits(tf_get(file, name), 64 + 35, df_f32_to_bits(value));
    tf_write(file, model_path);
    if (fits) {
        df_weights weights;
        ck_assert_msg(df_weights_load_as(model_path, &config, mode, engine->pool, &weights, &err) == DFLASH_OK, "%s",
                      err.message);
        df_weights_release(&weights);
    } else {
        refuse(&config, mode, "precision.overflow", name);
        ck_assert_msg(strstr(err.message, "[1, 35]") != NULL, "%s", err.message);
    }
    tf_free(file);
}

START_TEST(a_value_that_the_mode_cannot_hold_is_refused_by_name) {
    const float most = df_bits_to_f32(0x7f7f7fffu); /* the last that rounds to a finite bf16 */
    overflow_case(most, DFLASH_PRECISION_BF16, true);
    overflow_case(nextafterf(most, INFINITY), DFLASH_PRECISION_BF16, false);
    overflow_case(-FLT_MAX, DFLASH_PRECISION_MIXED, false);
    overflow_case(-FLT_MAX, DFLASH_PRECISION_F32, true);
    overflow_case(nextafterf(65520.0f * 127, 0), DFLASH_PRECISION_Q8_0, true);
    overflow_case(-65520.0f * 127, DFLASH_PRECISION_Q8_0, false);
    overflow_case(-65520.0f * 127, DFLASH_PRECISION_FC, false);
    overflow_case(65520.0f * 127, DFLASH_PRECISION_BF16, true);
    overflow_case(nextafterf(65520.0f * 8, 0), DFLASH_PRECISION_Q4_0, true);
    overflow_case(65520.0f * 8, DFLASH_PRECISION_Q4_0, false);
    overflow_case(65520.0f * 8, DFLASH_PRECISION_Q8_0, true);
}
END_TEST

START_TEST(of_two_values_that_do_not_fit_the_first_is_named) {
    const dflash_config config = model_config(0);
    tf_file *file = model_file(&config, "F32");
    tf_set_bits(tf_get(file, "fc.weight"), 63 * 192 + 7, df_f32_to_bits(FLT_MAX));
    tf_set_bits(tf_get(file, "fc.weight"), 5 * 192 + 191, df_f32_to_bits(FLT_MAX));
    tf_write(file, model_path);
    refuse(&config, DFLASH_PRECISION_BF16, "precision.overflow", "[5, 191]");
    tf_free(file);
}
END_TEST

START_TEST(a_weight_that_is_not_finite_is_refused_before_it_is_converted) {
    const dflash_config config = model_config(0);
    tf_file *file = model_file(&config, "F32");
    tf_set_bits(tf_get(file, "layers.0.mlp.up_proj.weight"), 11, 0x7fc00000u);
    tf_write(file, model_path);
    refuse(&config, DFLASH_PRECISION_Q8_0, "weights.nonfinite", "layers.0.mlp.up_proj.weight");
    tf_free(file);
}
END_TEST

Suite *suite_precision(void) {
    Suite *suite = suite_create("precision");
    TCase *tests = tcase_create("modes");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, every_mode_is_known_by_its_name);
    tcase_add_test(tests, a_name_that_no_mode_has_is_not_parsed);
    tcase_add_test(tests, a_mode_outside_the_enumeration_is_refused);
    tcase_add_test(tests, each_mode_holds_each_matrix_in_the_width_of_the_table);
    tcase_add_test(tests, a_matrix_already_in_the_modes_width_stays_in_the_file);
    tcase_add_test(tests, the_bytes_held_do_not_depend_on_the_number_of_threads);
    tcase_add_test(tests, quantised_modes_take_the_share_of_memory_that_was_promised);
    tcase_add_test(tests, rows_that_are_not_whole_blocks_refuse_the_quantised_modes_alone);
    tcase_add_test(tests, a_markov_rank_that_is_not_whole_blocks_refuses_even_where_the_rest_is_bf16);
    tcase_add_test(tests, a_value_that_the_mode_cannot_hold_is_refused_by_name);
    tcase_add_test(tests, of_two_values_that_do_not_fit_the_first_is_named);
    tcase_add_test(tests, a_weight_that_is_not_finite_is_refused_before_it_is_converted);
    tcase_set_timeout(tests, 120);
    suite_add_tcase(suite, tests);
    return suite;
}
