/*
 * test_config.c - what a config.json resolves to.
 *
 * Each stored real config is loaded and compared with its published facts; small edited configs show one rule each. The
 * verdicts are in test_config_rules.c.
 */
#include "suites.h"

#include "support/config_cases.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void must_load_edited(edit change, dflash_config *config) {
    dflash_error err = {0};
    ck_assert_msg(config_parse_edited(&change, config, &err) == DFLASH_OK, "%s: %s", err.code, err.message);
}

/* ---- Stored real configs ---- */

typedef struct facts {
    const char *name;
    dflash_family family;
    int32_t hidden, n_heads, n_kv_heads, head_dim, intermediate, n_layers, block;
    int64_t mask;
    int32_t n_taps, taps[8];
    int32_t n_sliding, window; /* the first n_sliding layers slide */
    bool causal_when_sliding;
    double theta, eps;
    int32_t vocab, n_target_layers;
} facts;

/* clang-format off */
static const facts published[] = {
    {"qwen3-4b-dflash", DFLASH_FAMILY_DFLASH,
     2560, 32, 8, 128, 9728, 5, 16, 151669, 5, {1, 9, 17, 25, 33}, 0, 0, false, 1e6, 1e-6, 151936, 36},
    {"gemma4-31b-dflash", DFLASH_FAMILY_DFLASH,
     5376, 64, 8, 128, 10752, 5, 16, 4, 6, {1, 12, 23, 35, 46, 57}, 4, 2048, true, 1e6, 1e-6, 262144, 60},
    {"qwen36-27b-dflash", DFLASH_FAMILY_DFLASH,
     5120, 32, 8, 128, 17408, 5, 16, 248070, 5, {1, 16, 31, 46, 61}, 4, 2048, true, 1e7, 1e-6, 248320, 64},
    {"qwen36-35b-a3b-dflash", DFLASH_FAMILY_DFLASH,
     2048, 32, 8, 128, 6144, 6, 16, 248077, 8, {1, 6, 11, 16, 22, 27, 32, 37}, 5, 4096, true, 1e7, 1e-6, 248320, 40},
    {"alpamayo-dflash", DFLASH_FAMILY_DFLASH,
     4096, 32, 8, 128, 12288, 2, 8, 155697, 5, {24, 30, 31, 32, 34}, 0, 0, false, 5e6, 1e-6, 155776, 36},
    {"qwen38-27b-dflash2", DFLASH_FAMILY_DFLASH2,
     5120, 32, 8, 128, 17408, 5, 8, 248070, 5, {5, 19, 33, 47, 61}, 5, 2048, false, 1e7, 1e-6, 248320, 64},
    {"qwen36-35b-a3b-dflash2", DFLASH_FAMILY_DFLASH2,
     2048, 32, 8, 128, 6144, 6, 8, 248077, 8, {1, 6, 11, 16, 22, 27, 32, 37}, 6, 2048, true, 1e7, 1e-6, 248320, 40},
    {"muse-glimmer-30b-dflash2", DFLASH_FAMILY_DFLASH2,
     6656, 32, 8, 128, 19968, 5, 16, 201818, 5, {1, 13, 25, 37, 49}, 5, 2048, false, 5e5, 1e-5, 202048, 52},
    {"glm53-flash-dflash2", DFLASH_FAMILY_DFLASH2,
     4096, 32, 8, 128, 12288, 5, 8, 154856, 5, {5, 14, 24, 33, 42}, 5, 2048, true, 1e6, 1e-5, 154880, 0},
    {"atlas-flash-next-dflash2", DFLASH_FAMILY_DFLASH2,
     2560, 20, 4, 128, 8704, 6, 16, 248077, 8, {1, 7, 13, 20, 26, 33, 39, 46}, 5, 4096, true, 1e7, 1e-6, 248320, 48},
    {"qwen3-4b-dspark", DFLASH_FAMILY_DSPARK,
     2560, 32, 8, 128, 9728, 5, 7, 151669, 5, {1, 9, 17, 25, 33}, 0, 0, false, 1e6, 1e-6, 151936, 36},
    {"qwen3-8b-dspark", DFLASH_FAMILY_DSPARK,
     4096, 32, 8, 128, 12288, 5, 7, 151669, 5, {1, 9, 17, 25, 33}, 0, 0, false, 1e6, 1e-6, 151936, 36},
    {"qwen38-27b-dspark-yarn", DFLASH_FAMILY_DSPARK,
     5120, 40, 8, 128, 10240, 5, 7, 248077, 5, {4, 16, 28, 40, 52}, 0, 0, false, 1e7, 1e-6, 248320, 64},
    {"kimi-k3-dspark", DFLASH_FAMILY_DSPARK,
     7168, 64, 16, 64, 14336, 5, 7, 163824, 5, {7, 23, 51, 67, 83}, 0, 0, false, 1e4, 1e-5, 163840, 0},
    {"glm52-dspark", DFLASH_FAMILY_DSPARK,
     6144, 64, 16, 64, 12288, 5, 7, 154856, 5, {1, 19, 38, 57, 76}, 0, 0, false, 8e6, 1e-5, 154880, 0},
};
/* clang-format on */

static void read_stored(const char *name, dflash_config *config) {
    char path[256];
    dflash_error err = {0};
    snprintf(path, sizeof path, "fixtures/configs/%s/config.json", name);
    ck_assert_msg(dflash_config_read(path, config, &err) == DFLASH_OK, "%s: %s", err.code, err.message);
}

START_TEST(every_stored_config_resolves_to_its_published_facts) {
    const facts *want = &published[_i];
    dflash_config got;
    read_stored(want->name, &got);
    ck_assert_int_eq(got.family, want->family);
    ck_assert_int_eq(got.hidden, want->hidden);
    ck_assert_int_eq(got.n_heads, want->n_heads);
    ck_assert_int_eq(got.n_kv_heads, want->n_kv_heads);
    ck_assert_int_eq(got.head_dim, want->head_dim);
    ck_assert_int_eq(got.intermediate, want->intermediate);
    ck_assert_int_eq(got.n_layers, want->n_layers);
    ck_assert_int_eq(got.block, want->block);
    ck_assert_int_eq(got.mask_token_id, want->mask);
    ck_assert_int_eq(got.n_taps, want->n_taps);
    for (int t = 0; t < want->n_taps; t++) ck_assert_int_eq(got.taps[t], want->taps[t]);
    ck_assert_int_eq(got.sliding_window, want->window);
    for (int i = 0; i < want->n_layers; i++) {
        const bool slides = i < want->n_sliding;
        ck_assert_int_eq(got.layer[i].sliding, slides);
        ck_assert_int_eq(got.layer[i].window, slides ? want->window : 0);
        ck_assert_int_eq(got.layer[i].causal, slides && want->causal_when_sliding);
    }
    ck_assert_double_eq(got.rope.theta, want->theta);
    ck_assert_int_eq(got.rope.rotary_dim, want->head_dim);
    ck_assert_double_eq(got.rms_eps, want->eps);
    ck_assert_int_eq(got.vocab, want->vocab);
    ck_assert_int_eq(got.n_target_layers, want->n_target_layers);
    ck_assert(!got.attention_bias);
    const bool is_dspark = want->family == DFLASH_FAMILY_DSPARK, is_dflash2 = want->family == DFLASH_FAMILY_DFLASH2;
    ck_assert_int_eq(got.harvest, is_dspark ? DFLASH_HARVEST_SHIFTED : DFLASH_HARVEST_MASK_FILL);
    ck_assert_int_eq(got.markov, is_dspark ? DFLASH_MARKOV_VANILLA : DFLASH_MARKOV_NONE);
    ck_assert_int_eq(got.markov_rank, is_dspark ? 256 : 0);
    ck_assert_int_eq(got.confidence, is_dspark);
    ck_assert_int_eq(got.confidence_with_markov, is_dspark);
    ck_assert_int_eq(got.conv_kernel, is_dflash2 ? 2 : 0);
    ck_assert_int_eq(got.conv_group, is_dflash2 ? 16 : 0);
    ck_assert_int_eq(got.selector_rank, is_dflash2 ? 256 : 0);
    ck_assert_int_eq(got.selector_top_k, is_dflash2 ? 16 : 0);
}
END_TEST

START_TEST(stored_configs_keep_their_extras) {
    dflash_config c;
    read_stored("gemma4-31b-dflash", &c);
    ck_assert_double_eq(c.input_embedding_scale, sqrt(5376.0));
    ck_assert_double_eq(c.logit_softcap, 30);
    ck_assert_double_eq(c.output_multiplier, 1);
    read_stored("muse-glimmer-30b-dflash2", &c);
    ck_assert_double_eq(c.output_multiplier, 0.19611613513818404);
    ck_assert_double_eq(c.logit_softcap, 20);
    read_stored("atlas-flash-next-dflash2", &c);
    ck_assert_int_eq(c.selector_vocab, 248077);
    ck_assert_int_eq(c.rope.type, DFLASH_ROPE_DEFAULT);
    read_stored("qwen38-27b-dspark-yarn", &c);
    ck_assert_int_eq(c.rope.type, DFLASH_ROPE_YARN);
    ck_assert_double_eq(c.rope.factor, 32);
    ck_assert_int_eq(c.rope.original_max_position, 8192);
    ck_assert_double_eq(c.rope.beta_fast, 32);
    ck_assert_double_eq(c.rope.beta_slow, 1);
    ck_assert(c.rope.truncate && !c.rope.has_attention_factor);
    read_stored("kimi-k3-dspark", &c);
    ck_assert_int_eq(c.rope.type, DFLASH_ROPE_YARN);
    ck_assert_double_eq(c.rope.factor, 16);
    ck_assert_int_eq(c.rope.original_max_position, 4096);
    read_stored("qwen3-4b-dflash", &c);
    ck_assert_int_eq(c.max_position, 40960);
    ck_assert_double_eq(c.input_embedding_scale, 1);
    ck_assert_double_eq(c.logit_softcap, 0);
    ck_assert_int_eq(c.selector_vocab, 0);
}
END_TEST

/* ---- What loads ---- */

START_TEST(enumerations_have_their_public_names) {
    ck_assert_str_eq(dflash_family_name(DFLASH_FAMILY_DFLASH), "dflash");
    ck_assert_str_eq(dflash_family_name(DFLASH_FAMILY_DSPARK), "dspark");
    ck_assert_str_eq(dflash_family_name(DFLASH_FAMILY_DFLASH2), "dflash2");
    ck_assert_str_eq(dflash_rope_type_name(DFLASH_ROPE_DEFAULT), "default");
    ck_assert_str_eq(dflash_rope_type_name(DFLASH_ROPE_LINEAR), "linear");
    ck_assert_str_eq(dflash_rope_type_name(DFLASH_ROPE_YARN), "yarn");
    ck_assert_str_eq(dflash_rope_type_name(DFLASH_ROPE_LLAMA3), "llama3");
    ck_assert_str_eq(dflash_harvest_name(DFLASH_HARVEST_MASK_FILL), "mask_fill");
    ck_assert_str_eq(dflash_harvest_name(DFLASH_HARVEST_SHIFTED), "shifted");
    ck_assert_str_eq(dflash_markov_kind_name(DFLASH_MARKOV_NONE), "none");
    ck_assert_str_eq(dflash_markov_kind_name(DFLASH_MARKOV_VANILLA), "vanilla");
    ck_assert_str_eq(dflash_markov_kind_name(DFLASH_MARKOV_GATED), "gated");
    ck_assert_str_eq(dflash_markov_kind_name(DFLASH_MARKOV_RNN), "rnn");
}
END_TEST

START_TEST(the_family_comes_from_architectures_and_projector_type) {
    dflash_config c;
    config_must_load(config_base("plain"), &c);
    ck_assert_int_eq(c.family, DFLASH_FAMILY_DFLASH);
    must_load_edited((edit){"plain", "dflash_config.projector_type", "\"dspark\"", NULL, NULL}, &c);
    ck_assert_int_eq(c.family, DFLASH_FAMILY_DSPARK);
    ck_assert_int_eq(c.harvest, DFLASH_HARVEST_SHIFTED);
    must_load_edited((edit){"plain", "dflash_config.projector_type", "\"dflash\"", "markov_rank", "0"}, &c);
    ck_assert_int_eq(c.family, DFLASH_FAMILY_DFLASH);
    must_load_edited((edit){"dspark", "architectures", "[\"KimiK3DSparkModel\"]", NULL, NULL}, &c);
    ck_assert_int_eq(c.family, DFLASH_FAMILY_DSPARK);
}
END_TEST

START_TEST(the_same_value_in_two_places_is_accepted) {
    dflash_config c;
    must_load_edited((edit){"plain", "dflash_config.block_size", "5", "target_layer_ids", "[1,4,9]"}, &c);
    ck_assert_int_eq(c.block, 5);
    ck_assert_int_eq(c.n_taps, 3);
    must_load_edited((edit){"plain", "rope_parameters.rope_theta", "1000000.0", "dflash_config.mask_token_id", "null"},
                     &c);
    ck_assert_double_eq(c.rope.theta, 1e6);
    ck_assert_int_eq(c.mask_token_id, 500);
}
END_TEST

START_TEST(head_dim_defaults_to_hidden_over_heads) {
    dflash_config c;
    must_load_edited((edit){"plain", "head_dim", NULL, "num_attention_heads", "4"}, &c);
    ck_assert_int_eq(c.head_dim, 16);
    must_load_edited((edit){"plain", "head_dim", "null", "num_attention_heads", "2"}, &c);
    ck_assert_int_eq(c.head_dim, 32);
}
END_TEST

START_TEST(causality_follows_the_layer_type_unless_it_is_explicit) {
    dflash_config c;
    config_must_load(config_base("sliding"), &c);
    ck_assert(c.layer[0].sliding && c.layer[0].causal && c.layer[0].window == 16);
    ck_assert(!c.layer[1].sliding && !c.layer[1].causal && c.layer[1].window == 0);
    must_load_edited((edit){"sliding", "is_causal", "false", NULL, NULL}, &c);
    ck_assert(!c.layer[0].causal && !c.layer[1].causal);
    must_load_edited((edit){"sliding", "dflash_config.is_causal", "true", NULL, NULL}, &c);
    ck_assert(c.layer[0].causal && c.layer[1].causal);
    must_load_edited((edit){"sliding", "is_causal", "null", "sliding_window_non_causal", "false"}, &c);
    ck_assert(c.layer[0].causal && !c.layer[1].causal);
}
END_TEST

START_TEST(use_swa_with_explicit_causality_makes_every_layer_slide) {
    dflash_config c;
    must_load_edited((edit){"plain", "is_causal", "false", "dflash_config",
                            "{\"target_layer_ids\":[1],\"use_swa\":true,\"swa_window_size\":24}"},
                     &c);
    for (int i = 0; i < 2; i++) ck_assert(c.layer[i].sliding && !c.layer[i].causal && c.layer[i].window == 24);
    ck_assert_int_eq(c.sliding_window, 24);
}
END_TEST

START_TEST(an_unused_window_leaves_no_trace) {
    dflash_config c;
    must_load_edited((edit){"plain", "sliding_window", "4096", "use_sliding_window", "false"}, &c);
    ck_assert_int_eq(c.sliding_window, 0);
    ck_assert(!c.layer[0].sliding && c.layer[0].window == 0);
    must_load_edited((edit){"plain", "sliding_window", "4096", "use_sliding_window", "true"}, &c);
    ck_assert_int_eq(c.sliding_window, 0);
}
END_TEST

START_TEST(both_config_generations_give_the_same_rope) {
    dflash_config old, young;
    config_must_load(config_base("yarn"), &old);
    must_load_edited((edit){"yarn", "rope_scaling", "null", "rope_parameters",
                            "{\"rope_type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":1024}"},
                     &young);
    ck_assert_mem_eq(&old.rope, &young.rope, sizeof old.rope);
    ck_assert_int_eq(old.rope.type, DFLASH_ROPE_YARN);
    ck_assert_double_eq(old.rope.beta_fast, 32);
    ck_assert_double_eq(old.rope.beta_slow, 1);
    ck_assert(old.rope.truncate);
    must_load_edited((edit){"plain", "rope_scaling", "null", "rope_parameters", "{}"}, &young);
    ck_assert_int_eq(young.rope.type, DFLASH_ROPE_DEFAULT);
    config_must_load(config_base("nested"), &young);
    ck_assert_int_eq(young.rope.type, DFLASH_ROPE_LINEAR);
    ck_assert_double_eq(young.rope.factor, 2);
    ck_assert_double_eq(young.rope.theta, 1e6);
}
END_TEST

START_TEST(only_layer_types_that_occur_matter_in_nested_rope) {
    dflash_config c;
    must_load_edited((edit){"nested", "rope_parameters.sliding_attention", "{\"rope_type\":\"dynamic\"}", "layer_types",
                            "[\"full_attention\",\"full_attention\"]"},
                     &c);
    ck_assert_int_eq(c.rope.type, DFLASH_ROPE_LINEAR);
}
END_TEST

START_TEST(yarn_defaults_and_explicit_values_are_told_apart) {
    dflash_config c;
    must_load_edited((edit){"yarn", "rope_scaling.attention_factor", "1.5", "rope_scaling.truncate", "false"}, &c);
    ck_assert(c.rope.has_attention_factor && !c.rope.truncate);
    ck_assert_double_eq(c.rope.attention_factor, 1.5);
    must_load_edited((edit){"yarn", "rope_scaling.beta_fast", "0", "rope_scaling.beta_slow", "null"}, &c);
    ck_assert_double_eq(c.rope.beta_fast, 32);
    ck_assert_double_eq(c.rope.beta_slow, 1);
    must_load_edited((edit){"yarn", "rope_scaling.mscale", "1", "rope_scaling.mscale_all_dim", "0.5"}, &c);
    ck_assert_double_eq(c.rope.mscale, 1);
    ck_assert_double_eq(c.rope.mscale_all_dim, 0.5);
    must_load_edited((edit){"yarn", "rope_scaling.original_max_position_embeddings", NULL, NULL, NULL}, &c);
    ck_assert_int_eq(c.rope.original_max_position, 4096);
    must_load_edited((edit){"yarn", "rope_scaling.factor", "null", NULL, NULL}, &c);
    ck_assert_double_eq(c.rope.factor, 4);
}
END_TEST

START_TEST(llama3_and_partial_rotary_load) {
    dflash_config c;
    config_must_load(config_base("llama3"), &c);
    ck_assert_int_eq(c.rope.type, DFLASH_ROPE_LLAMA3);
    ck_assert_double_eq(c.rope.factor, 8);
    ck_assert_double_eq(c.rope.low_freq_factor, 1);
    ck_assert_double_eq(c.rope.high_freq_factor, 4);
    ck_assert_int_eq(c.rope.original_max_position, 1024);
    must_load_edited((edit){"yarn", "partial_rotary_factor", "0.25", NULL, NULL}, &c);
    ck_assert_int_eq(c.rope.rotary_dim, 4);
    must_load_edited((edit){"llama3", "rope_parameters.partial_rotary_factor", "0.5", NULL, NULL}, &c);
    ck_assert_int_eq(c.rope.rotary_dim, 8);
}
END_TEST

START_TEST(dspark_heads_load_in_both_config_styles) {
    dflash_config c;
    config_must_load(config_base("dspark"), &c);
    ck_assert_int_eq(c.markov, DFLASH_MARKOV_VANILLA);
    ck_assert_int_eq(c.markov_rank, 8);
    ck_assert(c.confidence && c.confidence_with_markov);
    ck_assert_int_eq(c.taps[0], -1);
    must_load_edited((edit){"plain", "architectures", "[\"DSparkDraftModel\"]", "dflash_config",
                            "{\"target_layer_ids\":[1],\"projector_type\":\"dspark\",\"markov_rank\":4,"
                            "\"markov_head_type\":\"rnn\",\"confidence_head_alpha\":1.0}"},
                     &c);
    ck_assert_int_eq(c.markov, DFLASH_MARKOV_RNN);
    ck_assert_int_eq(c.markov_rank, 4);
    ck_assert(c.confidence && !c.confidence_with_markov);
    must_load_edited((edit){"dspark", "markov_head_type", "\"gated\"", "enable_confidence_head", "false"}, &c);
    ck_assert_int_eq(c.markov, DFLASH_MARKOV_GATED);
    ck_assert(!c.confidence && !c.confidence_with_markov);
    must_load_edited((edit){"dspark", "markov_head_type", "\"Gated\"", NULL, NULL}, &c);
    ck_assert_int_eq(c.markov, DFLASH_MARKOV_GATED);
    must_load_edited((edit){"plain", "confidence_head_alpha", "0", "confidence_head_with_markov", "false"}, &c);
    ck_assert_int_eq(c.family, DFLASH_FAMILY_DFLASH);
    must_load_edited((edit){"dspark", "markov_rank", "0", "confidence_head_with_markov", NULL}, &c);
    ck_assert_int_eq(c.markov, DFLASH_MARKOV_NONE);
    ck_assert(c.confidence && !c.confidence_with_markov);
}
END_TEST

START_TEST(keys_that_agree_with_the_family_load) {
    dflash_config c;
    must_load_edited((edit){"dspark", "shift_label", "true", "sample_from_anchor", "true"}, &c);
    ck_assert_int_eq(c.harvest, DFLASH_HARVEST_SHIFTED);
    must_load_edited((edit){"plain", "shift_label", "false", "is_neox_style", "true"}, &c);
    ck_assert_int_eq(c.harvest, DFLASH_HARVEST_MASK_FILL);
    must_load_edited((edit){"plain", "attention_bias", "true", NULL, NULL}, &c);
    ck_assert_int_eq(c.hidden, 64);
    ck_assert(c.attention_bias);
}
END_TEST

START_TEST(an_absent_vocabulary_is_zero_for_dflash) {
    dflash_config c;
    must_load_edited((edit){"plain", "vocab_size", NULL, "num_target_layers", NULL}, &c);
    ck_assert_int_eq(c.vocab, 0);
    ck_assert_int_eq(c.n_target_layers, 0);
}
END_TEST

START_TEST(white_space_and_an_escaped_backslash_do_not_disturb) {
    dflash_config c;
    char text[2048];
    snprintf(text, sizeof text, "%.*s,\"_name_or_path\":\"\\\\u0000 \xe2\x82\xac\"} \r\n\t ",
             (int)strlen(config_base("plain")) - 1, config_base("plain"));
    config_must_load(text, &c);
    ck_assert_int_eq(c.hidden, 64);
}
END_TEST

Suite *suite_config(void) {
    Suite *suite = suite_create("config");
    TCase *loads = tcase_create("loads");
    tcase_add_loop_test(loads, every_stored_config_resolves_to_its_published_facts, 0,
                        (int)(sizeof published / sizeof published[0]));
    tcase_add_test(loads, stored_configs_keep_their_extras);
    tcase_add_test(loads, enumerations_have_their_public_names);
    tcase_add_test(loads, the_family_comes_from_architectures_and_projector_type);
    tcase_add_test(loads, the_same_value_in_two_places_is_accepted);
    tcase_add_test(loads, head_dim_defaults_to_hidden_over_heads);
    tcase_add_test(loads, causality_follows_the_layer_type_unless_it_is_explicit);
    tcase_add_test(loads, use_swa_with_explicit_causality_makes_every_layer_slide);
    tcase_add_test(loads, an_unused_window_leaves_no_trace);
    tcase_add_test(loads, both_config_generations_give_the_same_rope);
    tcase_add_test(loads, only_layer_types_that_occur_matter_in_nested_rope);
    tcase_add_test(loads, yarn_defaults_and_explicit_values_are_told_apart);
    tcase_add_test(loads, llama3_and_partial_rotary_load);
    tcase_add_test(loads, dspark_heads_load_in_both_config_styles);
    tcase_add_test(loads, keys_that_agree_with_the_family_load);
    tcase_add_test(loads, an_absent_vocabulary_is_zero_for_dflash);
    tcase_add_test(loads, white_space_and_an_escaped_backslash_do_not_disturb);
    suite_add_tcase(suite, loads);

    config_add_rules(suite);
    config_add_refusals(suite);
    return suite;
}
