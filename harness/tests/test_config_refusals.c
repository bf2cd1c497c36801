/*
 * test_config_refusals.c - every refusal of a config.json, and of a file that cannot be read as one.
 *
 * A case takes a small valid config, makes one edit (two where one alone would say nothing) and asks for the exact code
 * and for a word of the message. The unedited config is loaded first, so the edit alone decides.
 */
#include "config_cases.h"
#include "config_limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void must_refuse(const char *text, size_t length, const char *code) {
    df_config config;
    df_error err = {0};
    ck_assert_int_eq(df_config_parse(text, length, "test config", &config, &err), DF_ERR_REFUSED);
    ck_assert_int_eq(err.status, DF_ERR_REFUSED);
    ck_assert_str_eq(err.code, code);
    ck_assert_msg(strstr(err.message, "test config") != NULL, "%s", err.message);
}

typedef struct refusal {
    edit change;
    const char *code, *word; /* word must stand in the message */
} refusal;

static void must_refuse_all(const refusal *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        df_config config;
        df_error err = {0};
        config_must_load(cases[i].change.base, &config);
        const df_status status = config_parse_edited(&cases[i].change, &config, &err);
        ck_assert_msg(status == DF_ERR_REFUSED && err.status == DF_ERR_REFUSED && strcmp(err.code, cases[i].code) == 0,
                      "case %zu (%s): expected %s, found status %d, %s: %s", i, cases[i].change.path, cases[i].code,
                      (int)status, err.code, err.message);
        ck_assert_msg(strstr(err.message, cases[i].word) != NULL, "case %zu: no \"%s\" in: %s", i, cases[i].word,
                      err.message);
        ck_assert_msg(strlen(err.message) < sizeof err.message - 1, "case %zu: message cut off", i);
    }
}
#define ONE(base, path, json, code, word)                                                                              \
    { {base, path, json, NULL, NULL}, code, word }
#define TWO(base, path, json, path2, json2, code, word)                                                                \
    { {base, path, json, path2, json2}, code, word }
#define MUST_REFUSE_ALL(cases) must_refuse_all(cases, sizeof(cases) / sizeof((cases)[0]))

START_TEST(text_that_is_not_one_clean_json_object_is_refused) {
    must_refuse("", 0, "config.json.syntax");
    must_refuse(config_plain, strlen(config_plain) - 1, "config.json.syntax");
    must_refuse("{\"a\":NaN}", 9, "config.json.syntax");
    must_refuse("[1]", 3, "config.json.shape");
    must_refuse("{} {}", 5, "config.json.trailing");
    must_refuse("{\"a\":\"\xff\"}", 9, "config.json.encoding");
    must_refuse("{\"a\":\"\xed\xa0\x80\"}", 11, "config.json.encoding"); /* a surrogate */
    must_refuse("{\"a\":\"\xc0\xaf\"}", 10, "config.json.encoding");     /* an overlong form */
    must_refuse("{\"a\":\"\xe2\x82", 8, "config.json.encoding");         /* cut inside a character */
    must_refuse("{\"a\":\0 1}", 9, "config.json.nul");
    must_refuse("{\"a\\u0000b\":1}", 13, "config.json.nul");
    must_refuse("{\"a\":1,\"b\":2,\"a\":1}", 19, "config.json.duplicate");
    must_refuse("{\"c\":[{\"x\":1,\"x\":2}]}", 21, "config.json.duplicate");
}
END_TEST

START_TEST(a_config_over_the_size_ceiling_is_refused) {
    const size_t size = (size_t)DF_LIMIT_CONFIG_BYTES + 1;
    char *text = malloc(size);
    ck_assert_ptr_nonnull(text);
    memset(text, ' ', size);
    must_refuse(text, size, "config.file.size");
    free(text);
}
END_TEST

START_TEST(each_required_key_is_missed_by_name) {
    static const refusal cases[] = {
        ONE(config_plain, "architectures", NULL, "config.key.missing", "\"architectures\""),
        ONE(config_plain, "hidden_size", NULL, "config.key.missing", "\"hidden_size\""),
        ONE(config_plain, "hidden_size", "null", "config.key.missing", "\"hidden_size\""),
        ONE(config_plain, "num_attention_heads", NULL, "config.key.missing", "\"num_attention_heads\""),
        ONE(config_plain, "num_key_value_heads", NULL, "config.key.missing", "\"num_key_value_heads\""),
        ONE(config_plain, "intermediate_size", NULL, "config.key.missing", "\"intermediate_size\""),
        ONE(config_plain, "num_hidden_layers", NULL, "config.key.missing", "\"num_hidden_layers\""),
        ONE(config_plain, "rms_norm_eps", NULL, "config.key.missing", "\"rms_norm_eps\""),
        ONE(config_plain, "rope_theta", NULL, "config.key.missing", "\"rope_theta\""),
        ONE(config_plain, "block_size", NULL, "config.key.missing", "\"block_size\""),
        ONE(config_plain, "mask_token_id", NULL, "config.key.missing", "\"mask_token_id\""),
        ONE(config_plain, "dflash_config.target_layer_ids", NULL, "config.key.missing", "\"target_layer_ids\""),
        ONE(config_dflash2, "vocab_size", NULL, "config.key.missing", "\"vocab_size\""),
        ONE(config_dspark, "vocab_size", NULL, "config.key.missing", "\"vocab_size\""),
        ONE(config_dflash2, "dflash_config.conv_kernel_size", NULL, "config.key.missing", "\"conv_kernel_size\""),
        ONE(config_dflash2, "dflash_config.conv_group_size", NULL, "config.key.missing", "\"conv_group_size\""),
        ONE(config_dflash2, "dflash_config.selector_rank", NULL, "config.key.missing", "\"selector_rank\""),
        ONE(config_dflash2, "dflash_config.selector_top_k", NULL, "config.key.missing", "\"selector_top_k\""),
    };
    MUST_REFUSE_ALL(cases);
}
END_TEST

START_TEST(a_value_of_the_wrong_type_is_refused) {
    static const refusal cases[] = {
        ONE(config_plain, "hidden_size", "\"64\"", "config.key.type", "\"hidden_size\" in the top level"),
        ONE(config_plain, "hidden_size", "64.5", "config.key.type", "64.5"),
        ONE(config_plain, "hidden_size", "1e999", "config.key.type", "an integer"),
        ONE(config_plain, "hidden_size", "true", "config.key.type", "it is true"),
        ONE(config_plain, "dflash_config", "[1]", "config.key.type", "\"dflash_config\""),
        ONE(config_plain, "dflash_config.target_layer_ids", "3", "config.key.type", "in dflash_config"),
        ONE(config_plain, "dflash_config.target_layer_ids", "[1,\"4\"]", "config.key.type", "\"4\""),
        ONE(config_plain, "architectures", "\"DFlashDraftModel\"", "config.key.type", "exactly one"),
        ONE(config_plain, "architectures", "[\"DFlashDraftModel\",\"DSparkDraftModel\"]", "config.key.type",
            "exactly one"),
        ONE(config_plain, "architectures", "[]", "config.key.type", "exactly one"),
        ONE(config_plain, "layer_types", "\"full_attention\"", "config.key.type", "\"layer_types\""),
        ONE(config_plain, "layer_types", "[1,2]", "config.key.type", "strings"),
        ONE(config_plain, "is_causal", "1", "config.key.type", "\"is_causal\""),
        ONE(config_plain, "attention_bias", "\"no\"", "config.key.type", "\"attention_bias\""),
        ONE(config_plain, "rms_norm_eps", "\"1e-6\"", "config.key.type", "\"rms_norm_eps\""),
        ONE(config_plain, "rope_parameters", "[]", "config.key.type", "\"rope_parameters\""),
        ONE(config_plain, "rope_scaling", "4", "config.key.type", "\"rope_scaling\""),
        ONE(config_plain, "hidden_act", "1", "config.key.type", "\"hidden_act\""),
        ONE(config_yarn, "rope_scaling.type", "4", "config.key.type", "in rope_scaling"),
        ONE(config_yarn, "rope_scaling.truncate", "0", "config.key.type", "\"truncate\""),
        ONE(config_nested, "rope_parameters.full_attention", "1", "config.key.type", "\"full_attention\""),
        ONE(config_dspark, "markov_head_type", "1", "config.key.type", "\"markov_head_type\""),
    };
    MUST_REFUSE_ALL(cases);
}
END_TEST

START_TEST(a_number_outside_its_range_is_refused) {
    static const refusal cases[] = {
        ONE(config_plain, "hidden_size", "0", "config.key.range", "it is 0"),
        ONE(config_plain, "hidden_size", "-64", "config.key.range", "it is -64"),
        ONE(config_plain, "hidden_size", "1048577", "config.key.range", "1048577"),
        ONE(config_plain, "hidden_size", "1e300", "config.key.range", "\"hidden_size\""),
        ONE(config_plain, "num_attention_heads", "4097", "config.key.range", "\"num_attention_heads\""),
        ONE(config_plain, "num_key_value_heads", "0", "config.key.range", "\"num_key_value_heads\""),
        ONE(config_plain, "head_dim", "4098", "config.key.range", "\"head_dim\""),
        ONE(config_plain, "intermediate_size", "4194305", "config.key.range", "\"intermediate_size\""),
        ONE(config_plain, "num_hidden_layers", "129", "config.key.range", "\"num_hidden_layers\""),
        ONE(config_plain, "block_size", "4097", "config.key.range", "\"block_size\""),
        ONE(config_plain, "vocab_size", "16777217", "config.key.range", "\"vocab_size\""),
        ONE(config_plain, "num_target_layers", "4097", "config.key.range", "\"num_target_layers\""),
        ONE(config_plain, "max_position_embeddings", "2147483648", "config.key.range", "\"max_position_embeddings\""),
        ONE(config_plain, "mask_token_id", "-1", "config.key.range", "\"mask_token_id\""),
        ONE(config_plain, "rms_norm_eps", "0", "config.key.range", "\"rms_norm_eps\""),
        ONE(config_plain, "rms_norm_eps", "-1e-6", "config.key.range", "\"rms_norm_eps\""),
        ONE(config_plain, "rms_norm_eps", "1e999", "config.key.range", "finite"),
        ONE(config_plain, "rope_theta", "1", "config.key.range", "\"rope_theta\""),
        ONE(config_plain, "rope_theta", "1e13", "config.key.range", "\"rope_theta\""),
        ONE(config_plain, "input_embedding_scale", "0", "config.key.range", "\"input_embedding_scale\""),
        ONE(config_plain, "output_multiplier", "0.0", "config.key.range", "\"output_multiplier\""),
        ONE(config_plain, "output_multiplier", "1e999", "config.key.range", "\"output_multiplier\""),
        ONE(config_plain, "final_logit_softcapping", "-1", "config.key.range", "\"final_logit_softcapping\""),
        ONE(config_sliding, "sliding_window", "0", "config.key.range", "\"sliding_window\""),
        ONE(config_sliding, "sliding_window", "1073741825", "config.key.range", "\"sliding_window\""),
        ONE(config_dflash2, "dflash_config.conv_kernel_size", "65", "config.key.range", "\"conv_kernel_size\""),
        ONE(config_dflash2, "dflash_config.conv_group_size", "0", "config.key.range", "\"conv_group_size\""),
        ONE(config_dflash2, "dflash_config.selector_rank", "0", "config.key.range", "\"selector_rank\""),
        ONE(config_dflash2, "dflash_config.selector_top_k", "0", "config.key.range", "\"selector_top_k\""),
        ONE(config_dspark, "markov_rank", "-1", "config.key.range", "\"markov_rank\""),
        TWO(config_dspark, "enable_confidence_head", NULL, "confidence_head_alpha", "-1", "config.key.range",
            "\"confidence_head_alpha\""),
    };
    MUST_REFUSE_ALL(cases);
}
END_TEST

START_TEST(two_values_for_one_fact_are_refused_with_both) {
    static const refusal cases[] = {
        ONE(config_plain, "dflash_config.block_size", "6", "config.key.conflict",
            "\"block_size\" in the top level is 5, but \"block_size\" in dflash_config is 6"),
        ONE(config_plain, "target_layer_ids", "[1,4,8]", "config.key.conflict", "\"target_layer_ids\""),
        ONE(config_plain, "rope_parameters.rope_theta", "10000", "config.key.conflict", "in rope_parameters is 10000"),
        ONE(config_plain, "dflash_config.rms_norm_eps", "1.0000000000000002e-6", "config.key.conflict",
            "\"rms_norm_eps\""),
        ONE(config_yarn, "rope_scaling.rope_type", "\"linear\"", "config.key.conflict", "\"linear\""),
        ONE(config_yarn, "rope_parameters.factor", "8", "config.key.conflict", "in rope_scaling is 4"),
        ONE(config_yarn, "original_max_position_embeddings", "2048", "config.key.conflict", "2048"),
        ONE(config_sliding, "swa_window_size", "32", "config.key.conflict", "\"swa_window_size\""),
        TWO(config_sliding, "is_causal", "true", "causal", "false", "config.key.conflict", "\"causal\""),
        ONE(config_dspark, "use_confidence_head", "false", "config.key.conflict", "\"use_confidence_head\""),
    };
    MUST_REFUSE_ALL(cases);
}
END_TEST

START_TEST(another_program_is_refused_by_name) {
    static const refusal cases[] = {
        ONE(config_plain, "architectures", "[\"Qwen3ForCausalLM\"]", "config.family.unknown", "Qwen3ForCausalLM"),
        ONE(config_plain, "architectures", "[\"DominoDraftModel\"]", "config.family.unknown", "DominoDraftModel"),
        TWO(config_plain, "architectures", "[\"Qwen3ForCausalLM\"]", "projector_type", "\"dspark\"",
            "config.family.unknown", "Qwen3ForCausalLM"),
        ONE(config_plain, "dflash_config.projector_type", "\"domino\"", "config.projector.unsupported", "domino"),
        ONE(config_plain, "projector_type", "\"eagle\"", "config.projector.unsupported", "eagle"),
        ONE(config_dflash2, "projector_type", "\"dspark\"", "config.family.ambiguous", "dspark"),
        ONE(config_dspark, "projector_type", "\"dflash\"", "config.family.ambiguous", "dflash"),
        ONE(config_plain, "markov_rank", "8", "config.family.ambiguous", "\"markov_rank\""),
        ONE(config_plain, "dflash_config.enable_confidence_head", "true", "config.family.ambiguous",
            "\"enable_confidence_head\""),
        ONE(config_plain, "dflash_config.conv_kernel_size", "2", "config.family.ambiguous", "\"conv_kernel_size\""),
        ONE(config_plain, "dflash_config.confidence_head_alpha", "1.0", "config.family.ambiguous",
            "\"confidence_head_alpha\""),
        ONE(config_plain, "confidence_head_with_markov", "true", "config.family.ambiguous",
            "\"confidence_head_with_markov\""),
        ONE(config_dspark, "selector_rank", "8", "config.family.ambiguous", "\"selector_rank\""),
        ONE(config_dflash2, "use_confidence_head", "true", "config.family.ambiguous", "\"use_confidence_head\""),
        ONE(config_plain, "hidden_act", "\"gelu\"", "config.activation.unsupported", "gelu"),
        ONE(config_plain, "model_type", "\"qwen3_5\"", "config.model_type.unsupported", "qwen3_5"),
        ONE(config_dspark, "model_type", "\"gemma4_text\"", "config.model_type.unsupported", "gemma4_text"),
        ONE(config_dspark, "transformer_layer_config", "{}", "config.packaging.unsupported",
            "transformer_layer_config"),
        ONE(config_dspark, "dspark_config", "{}", "config.packaging.unsupported", "dspark_config"),
        ONE(config_plain, "target_hidden_size", "128", "config.feature.unsupported", "\"target_hidden_size\" is 128"),
        ONE(config_plain, "draft_vocab_size", "256", "config.feature.unsupported", "\"draft_vocab_size\" is 256"),
        ONE(config_dflash2, "conv_kernel_conditioning", "\"target\"", "config.feature.unsupported", "target"),
    };
    MUST_REFUSE_ALL(cases);
}
END_TEST

START_TEST(geometry_that_does_not_fit_together_is_refused) {
    static const refusal cases[] = {
        ONE(config_plain, "num_key_value_heads", "4", "config.heads.indivisible", "6"),
        ONE(config_plain, "head_dim", NULL, "config.head_dim.indivisible", "64"),
        ONE(config_plain, "dflash_config.target_layer_ids", "[]", "config.taps.count", "0 entries"),
        ONE(config_plain, "dflash_config.target_layer_ids", "[1,-1]", "config.taps.range", "is -1"),
        ONE(config_dflash2, "target_layer_ids", "[-1,1]", "config.taps.range", "is -1"),
        ONE(config_dspark, "target_layer_ids", "[-2,1]", "config.taps.range", "is -2"),
        ONE(config_plain, "dflash_config.target_layer_ids", "[1,12]", "config.taps.range", "is 12"),
        TWO(config_plain, "dflash_config.target_layer_ids", "[1,4096]", "num_target_layers", NULL, "config.taps.range",
            "is 4096"),
        ONE(config_plain, "dflash_config.target_layer_ids", "[1,4,1]", "config.taps.repeated", "[0] and [2]"),
        ONE(config_plain, "mask_token_id", "512", "config.mask_token.range", "512"),
        ONE(config_dflash2, "dflash_config.conv_group_size", "24", "config.conv.group", "24"),
        ONE(config_dflash2, "selector_vocab_size", "513", "config.selector.vocab", "513"),
        ONE(config_dflash2, "dflash_config.selector_top_k", "513", "config.selector.top_k", "513"),
        ONE(config_dflash2, "selector_vocab_size", "3", "config.selector.top_k", "3"),
        ONE(config_dspark, "markov_head_type", "\"fir\"", "config.markov.kind", "fir"),
        ONE(config_dspark, "markov_head_type", "\"none\"", "config.markov.contradiction", "8"),
        ONE(config_dspark, "markov_rank", "0", "config.confidence.markov", "markov_rank"),
        ONE(config_dspark, "shift_label", "false", "config.harvest.contradiction", "\"shift_label\""),
        ONE(config_dspark, "sample_from_anchor", "false", "config.harvest.contradiction", "\"sample_from_anchor\""),
        ONE(config_plain, "dflash_config.shift_label", "true", "config.harvest.contradiction", "\"shift_label\""),
        ONE(config_dflash2, "query_zero_predicts_next", "true", "config.harvest.contradiction",
            "\"query_zero_predicts_next\""),
    };
    MUST_REFUSE_ALL(cases);
}
END_TEST

START_TEST(more_taps_than_the_ceiling_are_refused) {
    char list[512] = "[0";
    for (int i = 1; i <= DF_MAX_TAPS; i++) {
        const size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, ",%d%s", i, i == DF_MAX_TAPS ? "]" : "");
    }
    const refusal cases[] = {{{config_plain, "dflash_config.target_layer_ids", list, "num_target_layers", "80"},
                              "config.taps.count",
                              "65 entries"}};
    MUST_REFUSE_ALL(cases);
}
END_TEST

START_TEST(windows_and_causality_open_to_two_readings_are_refused) {
    static const refusal cases[] = {
        ONE(config_sliding, "layer_types", "[\"full_attention\"]", "config.layer_types.length", "1 entries"),
        ONE(config_sliding, "layer_types", "[\"linear_attention\",\"full_attention\"]", "config.layer_types.unknown",
            "linear_attention"),
        ONE(config_sliding, "sliding_window", NULL, "config.window.missing", "\"sliding_window\""),
        TWO(config_sliding, "sliding_window", "null", "swa_window_size", "16", "config.window.missing",
            "\"sliding_window\""),
        ONE(config_sliding, "use_sliding_window", "false", "config.window.contradiction", "\"use_sliding_window\""),
        ONE(config_sliding, "use_sliding_window", NULL, "config.window.ambiguous", "\"use_sliding_window\""),
        ONE(config_sliding, "use_swa", "false", "config.window.contradiction", "\"use_swa\""),
        TWO(config_plain, "layer_types", "[\"full_attention\",\"full_attention\"]", "use_swa", "true",
            "config.window.contradiction", "\"use_swa\""),
        TWO(config_plain, "dflash_config.use_swa", "true", "sliding_window", "16", "config.causal.ambiguous",
            "\"use_swa\""),
        TWO(config_plain, "dflash_config.use_swa", "true", "is_causal", "false", "config.window.missing",
            "\"sliding_window\""),
        ONE(config_sliding, "causal", "false", "config.causal.ambiguous", "\"causal\""),
        ONE(config_sliding, "sliding_window_non_causal", "true", "config.causal.ambiguous",
            "\"sliding_window_non_causal\""),
        TWO(config_sliding, "is_causal", "false", "sliding_window_non_causal", "false", "config.causal.ambiguous",
            "\"is_causal\""),
    };
    MUST_REFUSE_ALL(cases);
}
END_TEST

START_TEST(a_window_that_starts_at_a_late_layer_is_refused) {
    df_config c;
    df_error err = {0};
    char text[2048];
    snprintf(text, sizeof text, "%.*s,\"use_sliding_window\":true,\"sliding_window\":16,\"max_window_layers\":1}",
             (int)strlen(config_plain) - 1, config_plain);
    ck_assert_int_eq(config_parse(text, &c, &err), DF_ERR_REFUSED);
    ck_assert_str_eq(err.code, "config.window.ambiguous");
    ck_assert_ptr_nonnull(strstr(err.message, "\"max_window_layers\" is 1"));
}
END_TEST

START_TEST(rope_that_is_not_computed_here_is_refused_by_name) {
    static const refusal cases[] = {
        ONE(config_yarn, "rope_scaling.type", "\"dynamic\"", "config.rope.type", "dynamic"),
        ONE(config_yarn, "rope_scaling.type", "\"longrope\"", "config.rope.type", "longrope"),
        ONE(config_yarn, "rope_scaling.type", "\"mystery\"", "config.rope.type", "mystery"),
        ONE(config_yarn, "rope_scaling.type", NULL, "config.key.missing", "\"rope_type\""),
        ONE(config_plain, "rope_interleaved", "true", "config.rope.interleaved", "\"rope_interleaved\""),
        ONE(config_plain, "rope_parameters.rope_interleave", "true", "config.rope.interleaved", "\"rope_interleave\""),
        ONE(config_plain, "dflash_config.is_neox_style", "false", "config.rope.interleaved", "\"is_neox_style\""),
        ONE(config_plain, "model_type", "\"lfm2\"", "config.rope.interleaved", "\"model_type\""),
        ONE(config_plain, "dflash_config.rope_scaling", "{\"type\":\"linear\",\"factor\":2}", "config.rope.misplaced",
            "\"rope_scaling\""),
        ONE(config_nested, "rope_parameters.rope_theta", "1000000", "config.rope.mixed", "rope_parameters"),
        ONE(config_nested, "rope_parameters.sliding_attention", NULL, "config.key.missing", "\"sliding_attention\""),
        ONE(config_nested, "rope_parameters.full_attention",
            "{\"rope_type\":\"linear\",\"factor\":4,\"rope_theta\":1000000}", "config.rope.per_layer",
            "full_attention"),
        ONE(config_plain, "partial_rotary_factor", "0", "config.key.range", "\"partial_rotary_factor\""),
        ONE(config_plain, "partial_rotary_factor", "1.5", "config.key.range", "\"partial_rotary_factor\""),
        ONE(config_plain, "partial_rotary_factor", "0.2", "config.rope.rotary_dim", "rotates 3"),
        ONE(config_plain, "partial_rotary_factor", "0.05", "config.rope.rotary_dim", "rotates 0"),
        ONE(config_plain, "head_dim", "15", "config.rope.rotary_dim", "rotates 15"),
        ONE(config_nested, "rope_parameters", "{\"rope_type\":\"linear\",\"rope_theta\":1000000}", "config.key.missing",
            "\"factor\""),
        ONE(config_yarn, "rope_scaling.factor", NULL, "config.key.missing", "\"factor\""),
        ONE(config_yarn, "rope_scaling.factor", "0.5", "config.key.range", "\"factor\""),
        TWO(config_yarn, "rope_scaling.factor", "null", "max_position_embeddings", NULL, "config.rope.factor",
            "factor"),
        TWO(config_yarn, "rope_scaling.factor", "null", "rope_scaling.original_max_position_embeddings", NULL,
            "config.rope.factor", "factor"),
        TWO(config_yarn, "rope_scaling.factor", "null", "max_position_embeddings", "512", "config.rope.factor", "512"),
        TWO(config_yarn, "rope_scaling.original_max_position_embeddings", NULL, "max_position_embeddings", NULL,
            "config.rope.original_max", "\"max_position_embeddings\""),
        ONE(config_yarn, "rope_scaling.original_max_position_embeddings", "0", "config.key.range",
            "\"original_max_position_embeddings\""),
        ONE(config_yarn, "rope_scaling.attention_factor", "0", "config.key.range", "\"attention_factor\""),
        ONE(config_yarn, "rope_scaling.beta_fast", "-1", "config.key.range", "\"beta_fast\""),
        ONE(config_yarn, "rope_scaling.mscale", "-1", "config.key.range", "\"mscale\""),
        ONE(config_yarn, "rope_scaling.beta_slow", "33", "config.rope.range", "beta_slow 33"),
        ONE(config_llama3, "rope_parameters.factor", NULL, "config.key.missing", "\"factor\""),
        ONE(config_llama3, "rope_parameters.low_freq_factor", NULL, "config.key.missing", "\"low_freq_factor\""),
        ONE(config_llama3, "rope_parameters.high_freq_factor", NULL, "config.key.missing", "\"high_freq_factor\""),
        ONE(config_llama3, "rope_parameters.original_max_position_embeddings", NULL, "config.key.missing",
            "\"original_max_position_embeddings\""),
        ONE(config_llama3, "rope_parameters.low_freq_factor", "0", "config.key.range", "\"low_freq_factor\""),
        ONE(config_llama3, "rope_parameters.high_freq_factor", "1", "config.rope.range", "high_freq_factor"),
    };
    MUST_REFUSE_ALL(cases);
}
END_TEST

/* ---- Files
 * ----------------------------------------------------------------------------------------------------------- */

static char folder[256];

static void make_folder(void) {
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/test_config.XXXXXX", base != NULL && base[0] != '\0' ? base : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void) {
    char path[300];
    snprintf(path, sizeof path, "%s/config.json", folder);
    unlink(path);
    ck_assert_int_eq(rmdir(folder), 0);
}

static void must_not_read(const char *path, df_status status, const char *code) {
    df_config c;
    df_error err = {0};
    ck_assert_int_eq(df_config_read(path, &c, &err), status);
    ck_assert_int_eq(err.status, status);
    ck_assert_str_eq(err.code, code);
    ck_assert_msg(strstr(err.message, path) != NULL, "%s", err.message);
}

START_TEST(a_file_that_cannot_be_read_as_one_is_an_error) {
    char path[300];
    snprintf(path, sizeof path, "%s/config.json", folder);
    must_not_read(path, DF_ERR_IO, "config.file.open");
    must_not_read(folder, DF_ERR_IO, "config.file.kind");
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    must_not_read(path, DF_ERR_IO, "config.file.kind");
    ck_assert_int_eq(unlink(path), 0);

    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fclose(file), 0);
    must_not_read(path, DF_ERR_REFUSED, "config.json.syntax");
    ck_assert_int_eq(truncate(path, (off_t)DF_LIMIT_CONFIG_BYTES + 1), 0);
    must_not_read(path, DF_ERR_REFUSED, "config.file.size");
}
END_TEST

START_TEST(null_arguments_are_an_argument_error) {
    df_config c;
    df_error err = {0};
    ck_assert_int_eq(df_config_read(NULL, &c, &err), DF_ERR_ARGUMENT);
    ck_assert_str_eq(err.code, "config.argument");
    ck_assert_int_eq(df_config_parse(NULL, 0, "x", &c, &err), DF_ERR_ARGUMENT);
    ck_assert_str_eq(err.code, "config.argument");
    ck_assert_int_eq(df_config_parse("[]", 2, "x", &c, NULL), DF_ERR_REFUSED);
}
END_TEST

void config_add_refusals(Suite *suite) {
    TCase *refusals = tcase_create("refusals");
    tcase_set_timeout(refusals, 30);
    tcase_add_test(refusals, text_that_is_not_one_clean_json_object_is_refused);
    tcase_add_test(refusals, a_config_over_the_size_ceiling_is_refused);
    tcase_add_test(refusals, each_required_key_is_missed_by_name);
    tcase_add_test(refusals, a_value_of_the_wrong_type_is_refused);
    tcase_add_test(refusals, a_number_outside_its_range_is_refused);
    tcase_add_test(refusals, two_values_for_one_fact_are_refused_with_both);
    tcase_add_test(refusals, another_program_is_refused_by_name);
    tcase_add_test(refusals, geometry_that_does_not_fit_together_is_refused);
    tcase_add_test(refusals, more_taps_than_the_ceiling_are_refused);
    tcase_add_test(refusals, windows_and_causality_open_to_two_readings_are_refused);
    tcase_add_test(refusals, a_window_that_starts_at_a_late_layer_is_refused);
    tcase_add_test(refusals, rope_that_is_not_computed_here_is_refused_by_name);
    suite_add_tcase(suite, refusals);

    TCase *files = tcase_create("files");
    tcase_add_checked_fixture(files, make_folder, remove_folder);
    tcase_add_test(files, null_arguments_are_an_argument_error);
    tcase_add_test(files, a_file_that_cannot_be_read_as_one_is_an_error);
    suite_add_tcase(suite, files);
}
