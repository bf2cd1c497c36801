/*
 * test_synth.c - synthetic checkpoints: the same bytes always, values as promised, a census that holds.
 *
 * Failures and the command are in test_synth_failures.c. Whether activations look like a real model's is not tested
 * here; fixtures/README.md says how that was measured.
 */
#include "config/config.h"
#include "suites.h"
#include "support/synth_files.h"
#include "weights/weights.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One layer of every family; %s is more keys. */
static const char FAMILY[] =
    "{\"architectures\":[\"%s\"],\"model_type\":\"qwen3\",\"hidden_act\":\"silu\",\"hidden_size\":48,"
    "\"num_attention_heads\":6,\"num_key_value_heads\":2,\"head_dim\":8,\"intermediate_size\":40,"
    "\"num_hidden_layers\":2,\"rms_norm_eps\":1e-6,\"rope_theta\":1000000,\"block_size\":5,\"mask_token_id\":90,"
    "\"target_layer_ids\":[1,4],\"vocab_size\":96,%s}";

/* ---- The same bytes ---- */

static const char *text_of(const cJSON *object, const char *key) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(object, key));
    ck_assert_msg(text != NULL, "cases.json: no string \"%s\"", key);
    return text;
}

static df_dtype dtype_of(const cJSON *recipe) {
    const char *name = text_of(recipe, "dtype");
    if (strcmp(name, "bf16") == 0) return DF_BF16;
    if (strcmp(name, "f16") == 0) return DF_F16;
    ck_assert_str_eq(name, "f32");
    return DF_F32;
}

START_TEST(the_stored_checkpoints_are_reproduced_byte_for_byte) {
    size_t length;
    int compared = 0;
    char made[SYNTH_PATH], stored[SYNTH_PATH];
    char *text = synth_slurp("fixtures/cases.json", &length);
    cJSON *root = cJSON_Parse(text);
    ck_assert_ptr_nonnull(root);
    const cJSON *one;
    cJSON_ArrayForEach(one, cJSON_GetObjectItem(root, "cases")) {
        if (!cJSON_IsTrue(cJSON_GetObjectItem(one, "stored"))) continue;
        const cJSON *recipe = cJSON_GetObjectItem(one, "synth");
        dp_synth_profile profile;
        ck_assert(dp_synth_parse_profile(text_of(recipe, "profile"), &profile));
        const uint64_t seed = (uint64_t)cJSON_GetNumberValue(cJSON_GetObjectItem(recipe, "seed"));
        const unsigned extras =
            (cJSON_IsTrue(cJSON_GetObjectItem(recipe, "lm_head")) ? DP_SYNTH_LM_HEAD : 0u) |
            (cJSON_IsTrue(cJSON_GetObjectItem(recipe, "codebook_suffix")) ? DP_SYNTH_CODEBOOK_SUFFIX : 0u) |
            (cJSON_IsTrue(cJSON_GetObjectItem(recipe, "embed_tokens")) ? DP_SYNTH_EMBED_TOKENS : 0u);
        synth_run_with(text_of(recipe, "config"), seed, dtype_of(recipe), profile, extras);
        for (int i = 0; i < 2; i++) {
            const char *name = i == 0 ? "config.json" : "model.safetensors";
            snprintf(made, sizeof made, "%s/%s", synth_out, name);
            snprintf(stored, sizeof stored, "%s/%s", text_of(one, "checkpoint"), name);
            synth_assert_same_file(made, stored);
        }
        compared++;
    }
    ck_assert_int_eq(compared, 42);
    cJSON_Delete(root);
    free(text);
}
END_TEST

START_TEST(the_bytes_do_not_depend_on_the_number_of_threads) {
    /* 5.3 million values: more than one piece, and pieces that no number below divides */
    static const char LARGE[] = "{\"architectures\":[\"DFlashDraftModel\"],\"hidden_size\":600,"
                                "\"num_attention_heads\":6,\"num_key_value_heads\":2,\"head_dim\":100,"
                                "\"intermediate_size\":1501,\"num_hidden_layers\":1,\"rms_norm_eps\":1e-6,"
                                "\"rope_theta\":10000,\"block_size\":5,\"mask_token_id\":90,"
                                "\"target_layer_ids\":[1,4,5,7]}";
    char first[65], other[65];
    synth_put(synth_given, LARGE);
    synth_run(synth_given, 9, DF_BF16, DP_SYNTH_UNIT, 1);
    synth_digest(first);
    for (int threads = 2; threads <= 7; threads += threads == 3 ? 4 : 1) {
        synth_run(synth_given, 9, DF_BF16, DP_SYNTH_UNIT, threads);
        synth_digest(other);
        ck_assert_str_eq(first, other);
    }
}
END_TEST

START_TEST(the_values_do_not_depend_on_how_the_data_is_cut) {
    dflash_config config;
    dflash_error err = {0};
    dp_synth_plan plan;
    ck_assert_int_eq(dflash_config_read(SYNTH_PLAIN, &config, &err), DFLASH_OK);
    ck_assert_int_eq(dp_synth_plan_make(&config, 3, DP_SYNTH_UNIT, DP_SYNTH_LM_HEAD, &plan, &err), DFLASH_OK);
    float *whole = malloc((size_t)plan.values * sizeof *whole), *cut = malloc((size_t)plan.values * sizeof *cut);
    ck_assert(whole != NULL && cut != NULL);
    dp_synth_plan_fill(&plan, 0, plan.values, DF_F32, whole);
    for (int64_t size = 97; size < plan.values; size *= 31) {
        for (int64_t at = 0; at < plan.values; at += size) {
            const int64_t n = size < plan.values - at ? size : plan.values - at;
            dp_synth_plan_fill(&plan, at, n, DF_F32, cut + at);
        }
        ck_assert_mem_eq(whole, cut, (size_t)plan.values * sizeof *whole);
        memset(cut, 0, (size_t)plan.values * sizeof *cut);
    }
    free(whole);
    free(cut);
    dp_synth_plan_release(&plan);
}
END_TEST

/* Pinned, so that a change of the generator cannot pass unseen: every stored oracle would speak of other weights. */
START_TEST(the_generator_is_the_one_that_made_the_stored_oracles) {
    static const struct {
        df_dtype dtype;
        dp_synth_profile profile;
        const char *digest;
    } pinned[] = {
        {DF_BF16, DP_SYNTH_UNIT, "1d10912b3111b691b5be2cda1ce4c9e020676cfe1583c7a527551a3248713723"},
        {DF_F16, DP_SYNTH_UNIT, "4b94600d38dfe7665080298ced0e2b17dde0c580c7382a27039695caba402d90"},
        {DF_F32, DP_SYNTH_HOT, "734bd6caf6ec84b2a7a5cffa674d1705c7557b671a22c63da35a637ad2b4ac6d"},
    };
    static const char every_extra[] = "124d76d05b10ed248084c27b8fc693112ae100543d48dadf35b757d18c1d3570";
    static const uint32_t bits[] = {0xbde64917u, 0xbb353955u, 0x3d4a0f19u, 0x3dbc838au};
    char digest[65];
    for (size_t i = 0; i < sizeof pinned / sizeof pinned[0]; i++) {
        synth_run(SYNTH_PLAIN, 42, pinned[i].dtype, pinned[i].profile, 2);
        synth_digest(digest);
        ck_assert_str_eq(digest, pinned[i].digest);
    }
    df_safetensors *file = synth_open(); /* the last one, float32 */
    const df_tensor *fc = df_safetensors_find(file, "fc.weight");
    ck_assert_ptr_nonnull(fc);
    ck_assert_mem_eq(fc->data, bits, sizeof bits);
    df_safetensors_close(file);
    synth_run_with(SYNTH_CODEBOOKS, 42, DF_BF16, DP_SYNTH_UNIT, DP_SYNTH_LM_HEAD | DP_SYNTH_CODEBOOK_SUFFIX);
    synth_digest(digest);
    ck_assert_str_eq(digest, every_extra);
}
END_TEST

START_TEST(another_seed_differs_in_every_tensor) {
    synth_run(SYNTH_PLAIN, 1, DF_BF16, DP_SYNTH_UNIT, 2);
    df_safetensors *one = synth_open(); /* its mapping outlives the rename */
    synth_run(SYNTH_PLAIN, 2, DF_BF16, DP_SYNTH_UNIT, 2);
    df_safetensors *two = synth_open();
    const int count = df_safetensors_count(one);
    ck_assert_int_eq(count, 36);
    ck_assert_int_eq(df_safetensors_count(two), count);
    for (int i = 0; i < count; i++) {
        const df_tensor *a = df_safetensors_at(one, i), *b = df_safetensors_at(two, i);
        ck_assert_str_eq(a->name, b->name);
        ck_assert_uint_eq(a->bytes, b->bytes);
        ck_assert_msg(memcmp(a->data, b->data, a->bytes) != 0, "%s is the same for two seeds", a->name);
    }
    df_safetensors_close(one);
    df_safetensors_close(two);
}
END_TEST

/* ---- What the values are ---- */

START_TEST(no_two_tensors_of_a_checkpoint_are_equal) {
    synth_run(SYNTH_PLAIN, 1, DF_BF16, DP_SYNTH_UNIT, 2);
    df_safetensors *file = synth_open();
    for (int i = 0; i < df_safetensors_count(file); i++) {
        for (int j = i + 1; j < df_safetensors_count(file); j++) {
            const df_tensor *a = df_safetensors_at(file, i), *b = df_safetensors_at(file, j);
            ck_assert_msg(a->bytes != b->bytes || memcmp(a->data, b->data, a->bytes) != 0, "%s equals %s", a->name,
                          b->name);
        }
    }
    df_safetensors_close(file);
}
END_TEST

START_TEST(norm_weights_lie_in_their_range_and_vary) {
    synth_run(SYNTH_PLAIN, 1, DF_F32, DP_SYNTH_UNIT, 2);
    df_safetensors *file = synth_open();
    int norms = 0;
    for (int i = 0; i < df_safetensors_count(file); i++) {
        const df_tensor *tensor = df_safetensors_at(file, i);
        if (strstr(tensor->name, "norm") == NULL) continue;
        const bool head = strstr(tensor->name, "q_norm") != NULL || strstr(tensor->name, "k_norm") != NULL;
        const float low = head ? 0.79f : 0.29f, high = head ? 1.6f : 2.0f, *w = tensor->data;
        float least = w[0], most = w[0];
        for (int64_t c = 0; c < tensor->dim[0]; c++) {
            ck_assert_msg(w[c] >= low && w[c] < high, "%s[%d] = %g", tensor->name, (int)c, (double)w[c]);
            least = fminf(least, w[c]);
            most = fmaxf(most, w[c]);
        }
        ck_assert_msg(most - least > 0.4f * (high - low), "%s hardly varies", tensor->name);
        norms++;
    }
    ck_assert_int_eq(norms, 2 + 3 * 4);
    df_safetensors_close(file);
}
END_TEST

START_TEST(matrix_values_have_the_mean_and_deviation_they_should) {
    synth_run(SYNTH_PLAIN, 1, DF_F32, DP_SYNTH_UNIT, 2);
    df_safetensors *file = synth_open();
    const df_tensor *fc = df_safetensors_find(file, "fc.weight");
    ck_assert_ptr_nonnull(fc);
    const float *w = fc->data;
    const int64_t out_rows = fc->dim[0], in = fc->dim[1];
    double total = 0;
    for (int64_t r = 0; r < out_rows; r++) {
        double sum = 0, squares = 0;
        for (int64_t c = 0; c < in; c++) {
            sum += (double)w[r * in + c];
            squares += (double)w[r * in + c] * (double)w[r * in + c];
        }
        /* gain 1: the row's squares add up to its factor squared, 0.5 to 2, or four times that in an outlier row */
        const double factor = sqrt(squares);
        ck_assert_msg(factor > 0.4 && factor < 9.0, "row %d has size %g", (int)r, factor);
        total += sum / factor;
    }
    /* sums of unit rows are standard normal: the mean of 96 stays within 4 deviations */
    ck_assert_double_lt(fabs(total / (double)out_rows), 4.0 / sqrt((double)out_rows));
    df_safetensors_close(file);
}
END_TEST

START_TEST(convolution_kernels_are_not_the_identity) {
    char text[1024];
    snprintf(text, sizeof text, FAMILY, "DFlash2DraftModel",
             "\"conv_kernel_size\":3,\"conv_group_size\":16,\"selector_rank\":8,\"selector_top_k\":4");
    synth_put(synth_given, text);
    synth_run(synth_given, 1, DF_F32, DP_SYNTH_UNIT, 2);
    df_safetensors *file = synth_open();
    const df_tensor *base = df_safetensors_find(file, "layers.1.mlp_conv.base_kernel");
    ck_assert_ptr_nonnull(base);
    const float *w = base->data;
    for (int64_t i = 0; i < 2 * 3 * 48; i++) {
        const bool here = i / 48 % 3 == 0;
        const float size = fabsf(w[i]);
        ck_assert_msg(here ? w[i] > 0.59f && w[i] < 1.2f : size > 0.09f && size < 0.4f, "[%d] = %g", (int)i,
                      (double)w[i]);
    }
    df_safetensors_close(file);
}
END_TEST

/* ---- The output head ---- */

START_TEST(the_head_adds_one_tensor_and_changes_no_other) {
    synth_run(SYNTH_PLAIN, 1, DF_BF16, DP_SYNTH_UNIT, 2);
    df_safetensors *without = synth_open(); /* its mapping outlives the rename */
    synth_run_with(SYNTH_PLAIN, 1, DF_BF16, DP_SYNTH_UNIT, DP_SYNTH_LM_HEAD);
    df_safetensors *with = synth_open();
    const int count = df_safetensors_count(without);
    ck_assert_int_eq(df_safetensors_count(with), count + 1);
    for (int i = 0; i < count; i++) {
        const df_tensor *a = df_safetensors_at(without, i), *b = df_safetensors_at(with, i);
        ck_assert_str_eq(a->name, b->name);
        ck_assert_uint_eq(a->bytes, b->bytes);
        ck_assert_mem_eq(a->data, b->data, a->bytes);
    }
    const df_tensor *head = df_safetensors_at(with, count);
    ck_assert_str_eq(head->name, "lm_head.weight");
    ck_assert_int_eq(head->rank, 2);
    ck_assert_int_eq(head->dim[0], 1024);
    ck_assert_int_eq(head->dim[1], 96);
    df_safetensors_close(without);
    df_safetensors_close(with);
}
END_TEST

static double row_dot(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

START_TEST(the_head_has_near_twins_and_its_padding_rows_are_small) {
    synth_run_with(SYNTH_CODEBOOKS, 1, DF_F32, DP_SYNTH_UNIT, DP_SYNTH_LM_HEAD);
    df_safetensors *file = synth_open();
    const df_tensor *head = df_safetensors_find(file, "lm_head.weight");
    ck_assert_ptr_nonnull(head);
    const int64_t rows = head->dim[0], n = head->dim[1], tokens = 371; /* selector_vocab_size */
    int twins = 0;
    for (int64_t r = 0; r < rows; r++) {
        const float *row = (const float *)head->data + r * n;
        const double size = sqrt(row_dot(row, row, n));
        /* 1.5 times 0.5 to 2; a row of 96 values is within a quarter of its deviation */
        if (r < tokens) ck_assert_msg(size > 0.5 && size < 4.0, "row %d has size %g", (int)r, size);
        if (r >= tokens) ck_assert_msg(size > 0.0 && size < 0.05, "padding row %d has size %g", (int)r, size);
        if (r == 0) continue;
        const double before = sqrt(row_dot(row - n, row - n, n)), cosine = row_dot(row, row - n, n) / size / before;
        if (cosine < 0.999) continue;
        ck_assert_int_eq(r % 2, 1);
        ck_assert_double_eq_tol(size / before, 1.0 + 0x1p-9, 1e-6);
        twins++;
    }
    ck_assert_int_gt(twins, 371 / 8 / 2); /* one odd row in four */
    ck_assert_int_lt(twins, 371 / 8 * 2);
    df_safetensors_close(file);
}
END_TEST

START_TEST(the_head_makes_up_for_the_output_multiplier) {
    char text[1024];
    snprintf(text, sizeof text, FAMILY, "DFlashDraftModel", "\"output_multiplier\":1");
    synth_put(synth_given, text);
    synth_run_with(synth_given, 1, DF_F32, DP_SYNTH_UNIT, DP_SYNTH_LM_HEAD);
    df_safetensors *one = synth_open();
    snprintf(text, sizeof text, FAMILY, "DFlashDraftModel", "\"output_multiplier\":0.25");
    synth_put(synth_given, text);
    synth_run_with(synth_given, 1, DF_F32, DP_SYNTH_UNIT, DP_SYNTH_LM_HEAD);
    df_safetensors *quarter = synth_open();
    const df_tensor *a = df_safetensors_find(one, "lm_head.weight"),
                    *b = df_safetensors_find(quarter, "lm_head.weight");
    ck_assert(a != NULL && b != NULL);
    for (int64_t i = 0; i < a->dim[0] * a->dim[1]; i++)
        ck_assert_float_eq(4.0f * ((const float *)a->data)[i], ((const float *)b->data)[i]);
    df_safetensors_close(one);
    df_safetensors_close(quarter);
}
END_TEST

/* ---- The census ---- */

static void assert_census_holds(const char *architecture, const char *keys, unsigned extras, int tensors) {
    char text[1024];
    dflash_config config;
    df_weights weights;
    dflash_error err = {0};
    snprintf(text, sizeof text, FAMILY, architecture, keys);
    synth_put(synth_given, text);
    synth_run_with(synth_given, 5, DF_BF16, DP_SYNTH_UNIT, extras);
    ck_assert_msg(dflash_config_read(synth_out_config, &config, &err) == DFLASH_OK, "%s", err.message);
    ck_assert_msg(df_weights_load(synth_out_model, &config, &weights, &err) == DFLASH_OK, "%s", err.message);
    ck_assert_int_eq(df_safetensors_count(weights.file), tensors);
    df_weights_release(&weights);
}

START_TEST(every_family_gets_exactly_its_tensors) {
    const int backbone = 3 + 2 * 11;
    static const char codebooks[] =
        "\"conv_kernel_size\":2,\"conv_group_size\":16,\"selector_rank\":8,\"selector_top_k\":4";
    assert_census_holds("DFlashDraftModel", "\"attention_bias\":false", 0, backbone);
    assert_census_holds("DFlashDraftModel", "\"attention_bias\":true", 0, backbone + 2 * 4);
    assert_census_holds("DFlashDraftModel", "\"attention_bias\":false", DP_SYNTH_LM_HEAD, backbone + 1);
    assert_census_holds("DFlash2DraftModel", codebooks, 0, backbone + 2 * 4 + 3);
    assert_census_holds("DFlash2DraftModel", codebooks, DP_SYNTH_CODEBOOK_SUFFIX, backbone + 2 * 4 + 3);
    assert_census_holds("DFlash2DraftModel", codebooks, DP_SYNTH_CODEBOOK_SUFFIX | DP_SYNTH_LM_HEAD,
                        backbone + 2 * 4 + 3 + 1);
    assert_census_holds("Qwen3DSparkModel",
                        "\"markov_rank\":8,\"markov_head_type\":\"vanilla\",\"enable_confidence_head\":true,"
                        "\"confidence_head_with_markov\":true",
                        0, backbone + 4);
    assert_census_holds("Qwen3DSparkModel",
                        "\"markov_rank\":8,\"markov_head_type\":\"gated\",\"enable_confidence_head\":true,"
                        "\"confidence_head_with_markov\":false",
                        0, backbone + 6);
    assert_census_holds("Qwen3DSparkModel",
                        "\"markov_rank\":8,\"markov_head_type\":\"rnn\",\"enable_confidence_head\":false", 0,
                        backbone + 4);
}
END_TEST

START_TEST(the_header_ends_on_a_multiple_of_eight) {
    size_t length;
    synth_run(SYNTH_EDGE, 1, DF_BF16, DP_SYNTH_UNIT, 1);
    char *data = synth_slurp(synth_out_model, &length);
    uint64_t header = 0;
    memcpy(&header, data, sizeof header); /* little-endian, as this machine is */
    ck_assert_uint_eq(header % 8, 0);
    ck_assert_uint_lt(header, length);
    ck_assert_msg(data[8 + header - 1] == '}' || data[8 + header - 1] == ' ', "the header does not end where it says");
    free(data);
}
END_TEST

Suite *suite_synth(void) {
    Suite *suite = suite_create("synth");
    TCase *bytes = tcase_create("bytes"), *census = tcase_create("census");
    tcase_add_checked_fixture(bytes, synth_setup, synth_teardown);
    tcase_add_test(bytes, the_stored_checkpoints_are_reproduced_byte_for_byte);
    tcase_add_test(bytes, the_bytes_do_not_depend_on_the_number_of_threads);
    tcase_add_test(bytes, the_values_do_not_depend_on_how_the_data_is_cut);
    tcase_add_test(bytes, the_generator_is_the_one_that_made_the_stored_oracles);
    tcase_add_test(bytes, another_seed_differs_in_every_tensor);
    tcase_add_test(bytes, no_two_tensors_of_a_checkpoint_are_equal);
    tcase_add_test(bytes, norm_weights_lie_in_their_range_and_vary);
    tcase_add_test(bytes, matrix_values_have_the_mean_and_deviation_they_should);
    tcase_add_test(bytes, convolution_kernels_are_not_the_identity);
    tcase_add_test(bytes, the_head_adds_one_tensor_and_changes_no_other);
    tcase_add_test(bytes, the_head_has_near_twins_and_its_padding_rows_are_small);
    tcase_add_test(bytes, the_head_makes_up_for_the_output_multiplier);
    tcase_set_timeout(bytes, 60);
    tcase_set_timeout(census, 60);
    suite_add_tcase(suite, bytes);
    tcase_add_checked_fixture(census, synth_setup, synth_teardown);
    tcase_add_test(census, every_family_gets_exactly_its_tensors);
    tcase_add_test(census, the_header_ends_on_a_multiple_of_eight);
    suite_add_tcase(suite, census);
    suite_add_tcase(suite, synth_failures());
    return suite;
}
