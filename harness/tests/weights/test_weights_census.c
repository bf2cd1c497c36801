/*
 * test_weights_census.c - the census in both directions for each kind of drafter: missing, extra, twice, wrongly
 * shaped. Part of suite_weights.
 */
#include "support/weights_case.h"

#include <stdio.h>
#include <string.h>

START_TEST(each_missing_tensor_is_refused_by_name) {
    for (int variant = 0; variant < WS_VARIANTS; variant++) {
        ws_make_variant(variant);
        const int count = ws_file->count;
        for (int i = 0; i < count; i++) {
            ws_make_variant(variant);
            char name[128], word[256];
            snprintf(name, sizeof name, "%s", ws_file->entry[i].name);
            if (strcmp(name, "confidence_head.proj.bias") == 0) continue;
            tf_remove(ws_file, name);
            snprintf(word, sizeof word, "drafter of 2 layers needs tensors that are missing (1): %s. Export", name);
            ws_refuse("census.tensor.missing", word);
        }
    }
}
END_TEST

START_TEST(more_than_eight_missing_tensors_are_counted) {
    ws_make_variant(WS_DFLASH);
    ws_config.family = DFLASH_FAMILY_DFLASH2;
    ws_config.conv_kernel = WS_K;
    ws_config.conv_group = WS_GROUP;
    ws_config.selector_rank = WS_R;
    ws_refuse("census.tensor.missing",
              "the config's dflash2 drafter of 2 layers needs tensors that are missing (11): ");
    ws_refuse("census.tensor.missing", "layers.1.mlp_conv.kernel_projection.weight and 3 more.");
}
END_TEST

START_TEST(a_renamed_tensor_is_missing_and_its_new_name_is_told) {
    ws_make_variant(WS_DFLASH);
    tf_rename(ws_file, "layers.1.mlp.up_proj.weight", "layers.1.mlp.w3.weight");
    ws_refuse("census.tensor.missing", "missing (1): layers.1.mlp.up_proj.weight. The file also holds tensors that are "
                                       "not expected (1), the first named layers.1.mlp.w3.weight.");
}
END_TEST

START_TEST(a_common_prefix_of_all_tensors_is_named) {
    static const char *const prefixes[] = {"model.", "_orig_mod.", "module.", "draft_model.",
                                           "module._orig_mod.model."};
    for (int variant = 0; variant < WS_VARIANTS; variant++) {
        for (size_t p = 0; p < sizeof prefixes / sizeof *prefixes; p++) {
            char name[256], word[128];
            ws_make_variant(variant);
            const int count = ws_file->count;
            for (int i = 0; i < count; i++) {
                snprintf(name, sizeof name, "%s%s", prefixes[p], ws_file->entry[i].name);
                tf_rename(ws_file, ws_file->entry[i].name, name);
            }
            snprintf(word, sizeof word, "common prefix \"%s\", e.g. %sfc.weight", prefixes[p], prefixes[p]);
            ws_refuse("census.tensor.prefix", word);
            ws_refuse("census.tensor.prefix", "removeprefix(");
        }
    }
}
END_TEST

START_TEST(a_prefix_of_the_layers_alone_is_named_and_one_that_lacks_a_tensor_is_not) {
    char name[256];
    ws_make_variant(WS_DFLASH2);
    const int count = ws_file->count;
    for (int i = 0; i < count; i++) {
        if (strncmp(ws_file->entry[i].name, "layers.", 7) != 0) continue;
        snprintf(name, sizeof name, "model.%s", ws_file->entry[i].name);
        tf_rename(ws_file, ws_file->entry[i].name, name);
    }
    ws_refuse("census.tensor.prefix", "common prefix \"model.\"");
    tf_remove(ws_file, "model.layers.1.self_attn.k_norm.weight");
    ws_refuse("census.tensor.missing", "layers.0.input_layernorm.weight");
}
END_TEST

START_TEST(what_nobody_reads_may_have_any_dtype_and_rank) {
    ws_make_variant(WS_DFLASH);
    tf_add(ws_file, "embed_tokens.weight", "F8_E4M3", 2, (const int64_t[]){3, 5}, NULL);
    tf_add(ws_file, "lm_head.weight_scale", "F32", 0, NULL, NULL);
    tf_add(ws_file, "model.embed_tokens.patches", "I64", 5, (const int64_t[]){1, 2, 1, 2, 1}, NULL);
    tf_add(ws_file, "rotary_emb.nothing", "F64", 2, (const int64_t[]){0, 4}, NULL);
    df_weights weights = ws_load();
    df_weights_release(&weights);
    tf_add(ws_file, "layers.0.self_attn.k_scale", "F32", 0, NULL, NULL); /* the census itself stays closed */
    ws_refuse("census.tensor.extra", "layers.0.self_attn.k_scale");
}
END_TEST

START_TEST(an_extra_tensor_is_refused_by_name_in_every_family) {
    static const char *const names[] = {"fc.bias",
                                        "layers.2.input_layernorm.weight",
                                        "layers.0.self_attn.rotary_emb.inv_freq",
                                        "layers.0.mlp.gate_proj.bias",
                                        "embed_tokens",
                                        "model.norm.weight",
                                        "my_lm_head.weight",
                                        "logit_head.fc.weight",
                                        "model.model.lm_head.weight"};
    for (int variant = 0; variant < WS_VARIANTS; variant++) {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            ws_make_variant(variant);
            tf_add(ws_file, names[i], "BF16", 1, (const int64_t[]){2}, NULL);
            char word[256];
            snprintf(word, sizeof word, "holds tensors that the config's %s drafter of 2 layers does not use (1): %s.",
                     dflash_family_name(ws_config.family), names[i]);
            ws_refuse("census.tensor.extra", word);
        }
    }
}
END_TEST

START_TEST(a_dflash2_export_does_not_load_as_a_dflash_backbone) {
    ws_make_variant(WS_DFLASH2);
    ws_config.family = DFLASH_FAMILY_DFLASH;
    ws_refuse("census.tensor.extra", "does not use (11): ");
    ws_refuse("census.tensor.extra", " and 3 more.");
}
END_TEST

START_TEST(dspark_heads_that_the_config_does_not_call_for_are_refused) {
    ws_make_variant(WS_DSPARK_VANILLA);
    ws_config.family = DFLASH_FAMILY_DFLASH;
    ws_refuse("census.tensor.extra", "markov_head.markov_w1.weight, markov_head.markov_w2.weight, "
                                     "confidence_head.proj.weight, confidence_head.proj.bias.");
    ws_make_variant(WS_DSPARK_VANILLA);
    ws_config.confidence = false;
    ws_refuse("census.tensor.extra", "use (2): confidence_head.proj.weight, confidence_head.proj.bias.");
    ws_make_variant(WS_DSPARK_GATED);
    ws_config.markov = DFLASH_MARKOV_VANILLA;
    ws_refuse("census.tensor.extra", "use (2): markov_head.gate_proj.weight, markov_head.gate_proj.bias.");
    ws_make_variant(WS_DSPARK_VANILLA);
    ws_config.markov = DFLASH_MARKOV_RNN;
    ws_refuse("census.tensor.missing", "missing (2): markov_head.joint_proj.weight, markov_head.joint_proj.bias.");
}
END_TEST

START_TEST(attention_biases_are_there_exactly_when_the_config_says) {
    ws_make_variant(WS_DFLASH_BIAS);
    ws_config.attention_bias = false;
    ws_refuse("census.tensor.extra", "layers.0.self_attn.q_proj.bias");
    ws_make_variant(WS_DFLASH);
    ws_config.attention_bias = true;
    ws_refuse("census.tensor.missing", "layers.1.self_attn.o_proj.bias");
}
END_TEST

START_TEST(another_layer_count_is_refused) {
    ws_make_variant(WS_DFLASH);
    ws_config.n_layers = 1;
    ws_refuse("census.tensor.extra", "layers.1.input_layernorm.weight");
    ws_config.n_layers = 3;
    ws_refuse("census.tensor.missing", "layers.2.input_layernorm.weight");
}
END_TEST

START_TEST(both_spellings_of_one_tensor_are_refused) {
    ws_make_variant(WS_DFLASH2);
    tf_add(ws_file, "candidate_selector.successor_codebook.weight", "BF16", 2, (const int64_t[]){WS_V, WS_R}, NULL);
    ws_refuse("census.tensor.twice", "\"candidate_selector.successor_codebook.weight\"");
    ws_make_variant(WS_DSPARK_VANILLA);
    tf_add(ws_file, "logit_head.markov_head.markov_w2.weight", "BF16", 2, (const int64_t[]){WS_V, WS_R}, NULL);
    ws_refuse("census.tensor.twice", "\"markov_head.markov_w2.weight\"");
}
END_TEST

START_TEST(each_tensor_with_a_wrong_dimension_is_refused_by_name) {
    for (int variant = 0; variant < WS_VARIANTS; variant++) {
        ws_make_variant(variant);
        for (int i = 0; i < ws_file->count; i++) {
            const tf_entry *entry = &ws_file->entry[i];
            int64_t dim[TF_RANK_MAX];
            char name[128], word[256];
            memcpy(dim, entry->dim, sizeof dim);
            snprintf(name, sizeof name, "%s", entry->name);
            snprintf(word, sizeof word, "tensor \"%s\" has shape [", name);
            for (int d = 0; d < entry->rank; d++) {
                dim[d]++;
                tf_reshape(ws_file, name, "BF16", entry->rank, dim);
                ws_refuse("census.shape", word);
                dim[d]--;
            }
            tf_reshape(ws_file, name, "BF16", entry->rank, dim);
        }
    }
}
END_TEST

START_TEST(a_shape_that_merely_multiplies_out_the_same_is_refused) {
    ws_make_variant(WS_DFLASH);
    tf_reshape(ws_file, "layers.0.mlp.gate_proj.weight", "BF16", 2, (const int64_t[]){WS_H, WS_F});
    ws_refuse("census.shape", "\"layers.0.mlp.gate_proj.weight\" has shape [12, 21]; the config calls for [21, 12]");
    ws_make_variant(WS_DFLASH);
    tf_reshape(ws_file, "norm.weight", "BF16", 2, (const int64_t[]){1, WS_H});
    ws_refuse("census.shape", "\"norm.weight\" has shape [1, 12]; the config calls for [12]");
}
END_TEST

START_TEST(codebooks_follow_the_vocabulary_not_the_selectors_bound) {
    ws_make_variant(WS_DFLASH2);
    tf_reshape(ws_file, "candidate_selector.successor_codebook", "BF16", 2, (const int64_t[]){WS_V - 2, WS_R});
    ws_refuse("census.shape", "has shape [15, 7]; the config calls for [17, 7]");
}
END_TEST

START_TEST(a_config_without_vocabulary_cannot_size_the_tables) {
    dflash_error err = {.status = DFLASH_OK};
    df_weights weights;
    for (int variant = WS_DFLASH2; variant <= WS_DSPARK_VANILLA; variant++) {
        ws_make_variant(variant);
        tf_write(ws_file, ws_path);
        ws_config.vocab = 0;
        ck_assert_int_eq(df_weights_load(ws_path, &ws_config, &weights, &err), DFLASH_ERR_REFUSED);
        ck_assert_str_eq(err.code, "census.shape");
        ck_assert_ptr_nonnull(strstr(err.message, "vocab_size"));
    }
    /* a dflash drafter has none */
    ws_make_variant(WS_DFLASH);
    ws_config.vocab = 0;
    weights = ws_load();
    df_weights_release(&weights);
}
END_TEST

void ws_add_census_tests(TCase *tests) {
    tcase_add_test(tests, each_missing_tensor_is_refused_by_name);
    tcase_add_test(tests, more_than_eight_missing_tensors_are_counted);
    tcase_add_test(tests, a_renamed_tensor_is_missing_and_its_new_name_is_told);
    tcase_add_test(tests, a_common_prefix_of_all_tensors_is_named);
    tcase_add_test(tests, a_prefix_of_the_layers_alone_is_named_and_one_that_lacks_a_tensor_is_not);
    tcase_add_test(tests, what_nobody_reads_may_have_any_dtype_and_rank);
    tcase_add_test(tests, an_extra_tensor_is_refused_by_name_in_every_family);
    tcase_add_test(tests, a_dflash2_export_does_not_load_as_a_dflash_backbone);
    tcase_add_test(tests, dspark_heads_that_the_config_does_not_call_for_are_refused);
    tcase_add_test(tests, attention_biases_are_there_exactly_when_the_config_says);
    tcase_add_test(tests, another_layer_count_is_refused);
    tcase_add_test(tests, both_spellings_of_one_tensor_are_refused);
    tcase_add_test(tests, each_tensor_with_a_wrong_dimension_is_refused_by_name);
    tcase_add_test(tests, a_shape_that_merely_multiplies_out_the_same_is_refused);
    tcase_add_test(tests, codebooks_follow_the_vocabulary_not_the_selectors_bound);
    tcase_add_test(tests, a_config_without_vocabulary_cannot_size_the_tables);
}
