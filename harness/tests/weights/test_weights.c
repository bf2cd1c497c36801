/*
 * test_weights.c - the values that are bound for each family, the scan for values that are not finite, and files that
 * cannot be loaded at all. The census is test_weights_census.c's business.
 */
#include "suites.h"
#include "support/weights_case.h"

#include <stdio.h>
#include <string.h>

/* The matrix is the file's tensor of that name: shape, dtype, and the very bytes of the mapping. */
static void expect_matrix(const df_weights *weights, const df_matrix *matrix, const char *name) {
    const tf_entry *wrote = tf_get(ws_file, name);
    const df_tensor *mapped = df_safetensors_find(weights->file, name);
    ck_assert_str_eq(df_dtype_name(matrix->dtype), wrote->dtype);
    ck_assert_int_eq(matrix->out, wrote->dim[0]);
    ck_assert_int_eq(matrix->in, wrote->dim[1]);
    ck_assert_ptr_eq(matrix->data, mapped->data);
    ck_assert_mem_eq(matrix->data, wrote->data, wrote->bytes);
}

static void expect_vector(const float *vector, const char *name) {
    const tf_entry *wrote = tf_get(ws_file, name);
    int64_t count = 1;
    for (int i = 0; i < wrote->rank; i++) count *= wrote->dim[i];
    ck_assert_msg(vector != NULL, "%s is not bound", name);
    ck_assert_uint_eq((uintptr_t)vector % 64, 0);
    for (int64_t i = 0; i < count; i++)
        ck_assert_msg(vector[i] == tf_value(name, i), "%s[%d] is %a", name, (int)i, (double)vector[i]);
}

static const char *in_layer(int layer, const char *name) {
    static char full[128];
    snprintf(full, sizeof full, "layers.%d.%s", layer, name);
    return full;
}

/* Everything that all families share. */
static void expect_backbone(const df_weights *weights) {
    expect_matrix(weights, &weights->fc, "fc.weight");
    expect_vector(weights->hidden_norm, "hidden_norm.weight");
    expect_vector(weights->norm, "norm.weight");
    for (int i = 0; i < WS_L; i++) {
        const df_layer_weights *layer = &weights->layer[i];
        expect_vector(layer->input_norm, in_layer(i, "input_layernorm.weight"));
        expect_vector(layer->post_norm, in_layer(i, "post_attention_layernorm.weight"));
        expect_matrix(weights, &layer->q, in_layer(i, "self_attn.q_proj.weight"));
        expect_matrix(weights, &layer->k, in_layer(i, "self_attn.k_proj.weight"));
        expect_matrix(weights, &layer->v, in_layer(i, "self_attn.v_proj.weight"));
        expect_matrix(weights, &layer->o, in_layer(i, "self_attn.o_proj.weight"));
        expect_vector(layer->q_norm, in_layer(i, "self_attn.q_norm.weight"));
        expect_vector(layer->k_norm, in_layer(i, "self_attn.k_norm.weight"));
        expect_matrix(weights, &layer->gate, in_layer(i, "mlp.gate_proj.weight"));
        expect_matrix(weights, &layer->up, in_layer(i, "mlp.up_proj.weight"));
        expect_matrix(weights, &layer->down, in_layer(i, "mlp.down_proj.weight"));
        if (ws_config.attention_bias) {
            expect_vector(layer->q_bias, in_layer(i, "self_attn.q_proj.bias"));
            expect_vector(layer->k_bias, in_layer(i, "self_attn.k_proj.bias"));
            expect_vector(layer->v_bias, in_layer(i, "self_attn.v_proj.bias"));
            expect_vector(layer->o_bias, in_layer(i, "self_attn.o_proj.bias"));
        } else {
            ck_assert(layer->q_bias == NULL && layer->k_bias == NULL && layer->v_bias == NULL && layer->o_bias == NULL);
        }
    }
    for (int i = 0; i < df_safetensors_count(weights->file); i++) ck_assert(weights->used[i]);
}

/* ---- Loading ---- */

START_TEST(a_dflash_checkpoint_binds_every_tensor) {
    for (int variant = WS_DFLASH; variant <= WS_DFLASH_BIAS; variant++) {
        ws_make_variant(variant);
        df_weights weights = ws_load();
        expect_backbone(&weights);
        ck_assert_ptr_null(weights.layer[0].attn_conv.base);
        ck_assert_ptr_null(weights.predecessor.data);
        ck_assert_ptr_null(weights.markov_w1.data);
        ck_assert_ptr_null(weights.confidence.data);
        df_weights_release(&weights);
    }
}
END_TEST

START_TEST(a_dflash2_checkpoint_binds_every_tensor) {
    ws_make_variant(WS_DFLASH2);
    df_weights weights = ws_load();
    expect_backbone(&weights);
    for (int i = 0; i < WS_L; i++) {
        const df_layer_weights *layer = &weights.layer[i];
        expect_vector(layer->attn_conv.base, in_layer(i, "attention_conv.base_kernel"));
        expect_vector(layer->mlp_conv.base, in_layer(i, "mlp_conv.base_kernel"));
        expect_matrix(&weights, &layer->attn_conv.projection, in_layer(i, "attention_conv.kernel_projection.weight"));
        expect_matrix(&weights, &layer->mlp_conv.projection, in_layer(i, "mlp_conv.kernel_projection.weight"));
    }
    expect_matrix(&weights, &weights.selector_projection, "candidate_selector.hidden_projection.weight");
    expect_matrix(&weights, &weights.predecessor, "candidate_selector.predecessor_codebook");
    expect_matrix(&weights, &weights.successor, "candidate_selector.successor_codebook");
    df_weights_release(&weights);
}
END_TEST

START_TEST(a_dspark_checkpoint_binds_every_head) {
    for (int variant = WS_DSPARK_VANILLA; variant < WS_VARIANTS; variant++) {
        ws_make_variant(variant);
        df_weights weights = ws_load();
        expect_backbone(&weights);
        if (ws_config.markov != DFLASH_MARKOV_NONE) {
            expect_matrix(&weights, &weights.markov_w1, "markov_head.markov_w1.weight");
            expect_matrix(&weights, &weights.markov_w2, "markov_head.markov_w2.weight");
        }
        if (ws_config.markov == DFLASH_MARKOV_GATED) {
            expect_matrix(&weights, &weights.markov_gate, "markov_head.gate_proj.weight");
            expect_vector(weights.markov_gate_bias, "markov_head.gate_proj.bias");
        }
        if (ws_config.markov == DFLASH_MARKOV_RNN) {
            expect_matrix(&weights, &weights.markov_joint, "markov_head.joint_proj.weight");
            expect_vector(weights.markov_joint_bias, "markov_head.joint_proj.bias");
        }
        if (ws_config.confidence) {
            expect_matrix(&weights, &weights.confidence, "confidence_head.proj.weight");
            expect_vector(weights.confidence_bias, "confidence_head.proj.bias");
        }
        df_weights_release(&weights);
    }
}
END_TEST

START_TEST(a_confidence_head_may_lack_its_bias) {
    ws_make_variant(WS_DSPARK_VANILLA);
    tf_remove(ws_file, "confidence_head.proj.bias");
    df_weights weights = ws_load();
    expect_matrix(&weights, &weights.confidence, "confidence_head.proj.weight");
    ck_assert_ptr_null(weights.confidence_bias);
    df_weights_release(&weights);
}
END_TEST

START_TEST(codebooks_may_be_spelled_with_weight) {
    ws_make_variant(WS_DFLASH2);
    tf_rename(ws_file, "candidate_selector.predecessor_codebook", "candidate_selector.predecessor_codebook.weight");
    df_weights weights = ws_load();
    expect_matrix(&weights, &weights.predecessor, "candidate_selector.predecessor_codebook.weight");
    expect_matrix(&weights, &weights.successor, "candidate_selector.successor_codebook");
    df_weights_release(&weights);
}
END_TEST

START_TEST(dspark_heads_may_stand_under_logit_head) {
    ws_make_variant(WS_DSPARK_GATED);
    const char *names[] = {"markov_head.markov_w1.weight", "markov_head.markov_w2.weight",
                           "markov_head.gate_proj.weight", "markov_head.gate_proj.bias",
                           "confidence_head.proj.weight",  "confidence_head.proj.bias"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char full[128];
        snprintf(full, sizeof full, "logit_head.%s", names[i]);
        tf_rename(ws_file, names[i], full);
    }
    df_weights weights = ws_load();
    expect_matrix(&weights, &weights.markov_w1, "logit_head.markov_head.markov_w1.weight");
    expect_matrix(&weights, &weights.markov_w2, "logit_head.markov_head.markov_w2.weight");
    expect_matrix(&weights, &weights.markov_gate, "logit_head.markov_head.gate_proj.weight");
    expect_matrix(&weights, &weights.confidence, "logit_head.confidence_head.proj.weight");
    /* the values were made under the plain name */
    ck_assert(weights.markov_gate_bias[3] == tf_value("markov_head.gate_proj.bias", 3));
    ck_assert(weights.confidence_bias[0] == tf_value("confidence_head.proj.bias", 0));
    df_weights_release(&weights);
}
END_TEST

START_TEST(dtypes_may_be_mixed_and_matrices_keep_their_own) {
    static const char *const dtypes[] = {"F32", "F16", "BF16"};
    for (int shift = 0; shift < 3; shift++) {
        ws_make_variant(WS_DSPARK_VANILLA - shift);
        /* widest first, so that every tensor stands at a multiple of its element size */
        tf_file *sorted = tf_new();
        for (int d = 0; d < 3; d++)
            for (int i = 0; i < ws_file->count; i++)
                if ((i + shift) % 3 == d)
                    tf_add(sorted, ws_file->entry[i].name, dtypes[d], ws_file->entry[i].rank, ws_file->entry[i].dim,
                           NULL);
        tf_free(ws_file);
        ws_file = sorted;
        df_weights weights = ws_load();
        expect_backbone(&weights);
        df_weights_release(&weights);
    }
}
END_TEST

START_TEST(tensors_of_the_target_are_ignored_and_marked_unused) {
    ws_make_variant(WS_DFLASH);
    const char *names[] = {"embed_tokens.weight",       "lm_head.weight",       "rotary_emb.inv_freq",
                           "model.embed_tokens.weight", "model.lm_head.weight", "model.rotary_emb.inv_freq"};
    const int own = ws_file->count;
    for (int i = 0; i < 6; i++) {
        tf_entry *entry = tf_add(ws_file, names[i], "BF16", 2, (const int64_t[]){WS_V, WS_H}, NULL);
        tf_set_bits(entry, 1, 0x7fc0); /* nobody reads it, so nobody minds */
    }
    df_weights weights = ws_load();
    for (int i = 0; i < own + 6; i++) ck_assert_int_eq(weights.used[i], i < own);
    df_weights_release(&weights);
}
END_TEST

START_TEST(releasing_twice_or_nothing_is_allowed) {
    ws_make_variant(WS_DFLASH);
    df_weights weights = ws_load();
    df_weights_release(&weights);
    ck_assert_ptr_null(weights.file);
    df_weights_release(&weights);
    df_weights_release(NULL);
}
END_TEST

/* ---- Values ---- */

START_TEST(each_tensor_is_scanned_for_values_that_are_not_finite) {
    for (int variant = 0; variant < WS_VARIANTS; variant++) {
        ws_make_variant(variant);
        const int count = ws_file->count;
        for (int i = 0; i < count; i++) {
            tf_entry *entry = &ws_file->entry[i];
            unsigned char kept[2];
            const int64_t last = (int64_t)entry->bytes / 2 - 1;
            memcpy(kept, entry->data + 2 * last, 2);
            tf_set_bits(entry, last, 0xffc1);
            char word[256];
            snprintf(word, sizeof word, "element %d (row-major) of tensor \"%s\" is NaN (BF16 bits 0xffc1)", (int)last,
                     entry->name);
            ws_refuse("weights.nonfinite", word);
            memcpy(entry->data + 2 * last, kept, 2);
        }
        df_weights weights = ws_load(); /* restored: nothing else was wrong */
        df_weights_release(&weights);
    }
}
END_TEST

/* A matrix of more than two blocks of the scan, with a remainder: [2100, 12], in each dtype. */
START_TEST(a_single_bad_value_is_found_wherever_it_stands) {
    static const struct {
        const char *dtype;
        uint32_t infinite, negative_infinite, quiet_nan, least_nan, largest, most_negative;
    } cases[] = {{"F32", 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0x7f7fffff, 0xff7fffff},
                 {"F16", 0x7c00, 0xfc00, 0x7e00, 0x7c01, 0x7bff, 0xfbff},
                 {"BF16", 0x7f80, 0xff80, 0x7fc0, 0x7f81, 0x7f7f, 0xff7f}};
    const int64_t places[] = {0, 1, 2, 3, 2047, 2048, 4095, 4096, 4097, 8191, 8192, 12287, 25198, 25199};
    const char *name = "layers.1.mlp.up_proj.weight";
    ws_make_variant(WS_DFLASH);
    ws_config.intermediate = 2100;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        for (int i = 0; i < WS_L; i++) {
            tf_reshape(ws_file, in_layer(i, "mlp.gate_proj.weight"), "F32", 2, (const int64_t[]){2100, WS_H});
            tf_reshape(ws_file, in_layer(i, "mlp.up_proj.weight"), "F32", 2, (const int64_t[]){2100, WS_H});
            tf_reshape(ws_file, in_layer(i, "mlp.down_proj.weight"), "F32", 2, (const int64_t[]){WS_H, 2100});
        }
        tf_reshape(ws_file, name, cases[c].dtype, 2, (const int64_t[]){2100, WS_H});
        tf_entry *entry = tf_get(ws_file, name);
        const uint32_t bad[] = {cases[c].infinite, cases[c].negative_infinite, cases[c].quiet_nan, cases[c].least_nan};
        for (int64_t i = 0; i < 25200; i++)
            tf_set_bits(entry, i, i % 2 == 0 ? cases[c].largest : cases[c].most_negative);
        df_weights weights = ws_load(); /* the largest finite values on both sides are no fault */
        df_weights_release(&weights);
        for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
            char word[160];
            tf_set_bits(entry, places[p], bad[p % 4]);
            snprintf(word, sizeof word, "element %d (row-major) of tensor \"%s\" is %s (%s bits 0x", (int)places[p],
                     name, p % 4 < 2 ? "infinite" : "NaN", cases[c].dtype);
            ws_refuse("weights.nonfinite", word);
            tf_set_bits(entry, places[p], cases[c].largest);
        }
    }
}
END_TEST

START_TEST(the_first_of_two_bad_values_is_named) {
    ws_make_variant(WS_DFLASH);
    tf_set_bits(tf_get(ws_file, "fc.weight"), 300, 0x7f80);
    tf_set_bits(tf_get(ws_file, "fc.weight"), 41, 0xff80);
    ws_refuse("weights.nonfinite", "element 41 (row-major) of tensor \"fc.weight\" is infinite (BF16 bits 0xff80)");
}
END_TEST

/* ---- The file ---- */

START_TEST(a_missing_file_is_an_io_error) {
    ws_make_variant(WS_DFLASH);
    dflash_error err = {.status = DFLASH_OK};
    df_weights weights;
    ck_assert_int_eq(df_weights_load(ws_path, &ws_config, &weights, &err), DFLASH_ERR_IO);
    ck_assert_str_eq(err.code, "safetensors.open");
    ck_assert_ptr_null(weights.file);
}
END_TEST

START_TEST(a_sharded_checkpoint_is_refused_by_the_name_of_its_index) {
    ws_make_variant(WS_DFLASH);
    char index[TF_PATH_MAX + 64];
    snprintf(index, sizeof index, "%s.index.json", ws_path);
    FILE *to = fopen(index, "w");
    ck_assert_ptr_nonnull(to);
    fclose(to);
    dflash_error err = {.status = DFLASH_OK};
    df_weights weights;
    ck_assert_int_eq(df_weights_load(ws_path, &ws_config, &weights, &err), DFLASH_ERR_REFUSED);
    ck_assert_str_eq(err.code, "weights.sharded");
    ck_assert_ptr_nonnull(strstr(err.message, "model.safetensors.index.json"));
    /* an index left beside a whole file does no harm */
    weights = ws_load();
    df_weights_release(&weights);
}
END_TEST

START_TEST(a_broken_container_is_refused_with_its_own_code) {
    ws_make_variant(WS_DFLASH);
    ws_file->tail = -2;
    ws_refuse("safetensors.offsets", "layers.1.mlp.down_proj.weight");
    ws_file->tail = 0;
    tf_reshape(ws_file, "norm.weight", "F64", 1, (const int64_t[]){WS_H});
    ws_refuse("safetensors.dtype", "\"norm.weight\" has dtype \"F64\"");
}
END_TEST

static void add_loading(TCase *tests) {
    tcase_add_test(tests, a_dflash_checkpoint_binds_every_tensor);
    tcase_add_test(tests, a_dflash2_checkpoint_binds_every_tensor);
    tcase_add_test(tests, a_dspark_checkpoint_binds_every_head);
    tcase_add_test(tests, a_confidence_head_may_lack_its_bias);
    tcase_add_test(tests, codebooks_may_be_spelled_with_weight);
    tcase_add_test(tests, dspark_heads_may_stand_under_logit_head);
    tcase_add_test(tests, dtypes_may_be_mixed_and_matrices_keep_their_own);
    tcase_add_test(tests, tensors_of_the_target_are_ignored_and_marked_unused);
    tcase_add_test(tests, releasing_twice_or_nothing_is_allowed);
}

static void add_values(TCase *tests) {
    tcase_add_test(tests, each_tensor_is_scanned_for_values_that_are_not_finite);
    tcase_add_test(tests, a_single_bad_value_is_found_wherever_it_stands);
    tcase_add_test(tests, the_first_of_two_bad_values_is_named);
    tcase_add_test(tests, a_missing_file_is_an_io_error);
    tcase_add_test(tests, a_sharded_checkpoint_is_refused_by_the_name_of_its_index);
    tcase_add_test(tests, a_broken_container_is_refused_with_its_own_code);
}

Suite *suite_weights(void) {
    Suite *suite = suite_create("weights");
    ws_add_case(suite, "loading", add_loading);
    ws_add_case(suite, "census", ws_add_census_tests);
    ws_add_case(suite, "values and files", add_values);
    return suite;
}
