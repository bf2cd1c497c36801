/*
 * test_check_lies.c - a config and an oracle's claim that are wrong in the same way, so that the geometry agrees.
 *
 * Then the values must tell, and the first stage outside its limit must be the one where the lie acts. A lie that
 * changes a shape is told by the shapes of the stages, even where the number of elements stays the same.
 */
#include "support/check_case.h"

/* A key of the config and one or two of the geometry record, each set to a value, and the first stage that must fail.
 */
static const struct {
    const char *fixture, *key, *json, *claim, *claimed, *claim2, *claimed2, *first;
} lies[] = {
    {"tiny-plain", "rope_theta", "1000001", "rope/theta", "1000001", NULL, NULL, "rope.inv_freq"},
    {"tiny-plain", "rope_theta", "10000", "rope/theta", "10000", NULL, NULL, "rope.inv_freq"},
    {"tiny-plain", "rms_norm_eps", "1e-4", "rms_norm_eps", "1e-4", NULL, NULL, "ctx.features"},
    {"tiny-hot", "rms_norm_eps", "1e-3", "rms_norm_eps", "1e-3", NULL, NULL,
     "layers.0.attn.norm"}, /* its context is large */
    {"tiny-windowed", "sliding_window", "15", "sliding_window", "[15,15,0]", NULL, NULL, "layers.0.attn.context"},
    {"tiny-windowed", "sliding_window", "17", "sliding_window", "[17,17,0]", NULL, NULL, "layers.0.attn.context"},
    {"tiny-windowed", "is_causal", "true", "is_causal", "[true,true,true]", NULL, NULL, "layers.0.attn.context"},
    {"tiny-causal", "is_causal", "false", "is_causal", "[false,false,false]", NULL, NULL, "layers.0.attn.context"},
    {"tiny-causal", "is_causal", "true", "is_causal", "[true,true,true]", NULL, NULL, "layers.1.attn.context"},
    {"tiny-windowed", "layer_types", "[\"sliding_attention\",\"sliding_attention\",\"sliding_attention\"]",
     "layer_types", "[\"sliding_attention\",\"sliding_attention\",\"sliding_attention\"]", "sliding_window",
     "[16,16,16]", "layers.2.attn.context"},
    {"tiny-yarn", "rope_parameters", "{\"rope_type\":\"default\",\"rope_theta\":1000000}", "rope",
     "{\"type\":\"default\",\"theta\":1000000,\"rotary_dim\":16,\"attention_scaling\":1}", NULL, NULL, "rope.inv_freq"},
    {"tiny-linear", "rope_scaling", "null", "rope",
     "{\"type\":\"default\",\"theta\":500000,\"rotary_dim\":16,\"attention_scaling\":1}", NULL, NULL, "rope.inv_freq"},
    {"tiny-linear", "rope_scaling/factor", "4.0001", "rope/factor", "4.0001", NULL, NULL, "rope.inv_freq"},
    {"tiny-llama3", "rope_scaling/low_freq_factor", "2", "rope/low_freq_factor", "2", NULL, NULL, "rope.inv_freq"},
    {"tiny-yarn-explicit", "rope_parameters/truncate", "true", "rope/truncate", "true", NULL, NULL, "rope.inv_freq"},
    {"tiny-yarn-explicit", "rope_parameters/beta_fast", "32", "rope/beta_fast", "32", NULL, NULL, "rope.inv_freq"},
    {"tiny-yarn-explicit", "rope_parameters/attention_factor", "0.901", "rope/attention_scaling", "0.901", NULL, NULL,
     "rope.cos"},
    {"tiny-yarn-explicit", "rope_parameters/attention_factor", "1.0", "rope/attention_scaling", "1", NULL, NULL,
     "rope.cos"},
    {"tiny-dflash2", "dflash_config/output_multiplier", NULL, "output_multiplier", "1", NULL, NULL, "logits"},
    {"tiny-dflash2", "dflash_config/output_multiplier", "0.1962", "output_multiplier", "0.1962", NULL, NULL, "logits"},
    {"tiny-dflash2", "dflash_config/final_logit_softcapping", NULL, "final_logit_softcapping", "0", NULL, NULL,
     "logits"},
    {"tiny-dflash2", "dflash_config/final_logit_softcapping", "21", "final_logit_softcapping", "21", NULL, NULL,
     "logits"},
    {"tiny-dflash2", "is_causal", "true", "is_causal", "[true,true]", NULL, NULL, "layers.0.attn.context"},
    {"tiny-dflash2", "sliding_window", "17", "sliding_window", "[17,17]", NULL, NULL, "layers.0.attn.context"},
    {"tiny-dspark-gated", "sliding_window", "17", "sliding_window", "[17,17,0]", NULL, NULL, "layers.0.attn.context"},
    {"tiny-dspark-rnn", "rope_scaling/mscale_all_dim", "1.0", "rope/attention_scaling", "1", NULL, NULL, "rope.cos"},
};
enum { LIES = sizeof lies / sizeof *lies };

START_TEST(a_lie_that_both_sides_agree_on_fails_where_it_acts) {
    scratch_copy_case(lies[_i].fixture);
    scratch_edit_config(lies[_i].key, lies[_i].json);
    scratch_edit_record("geometry", lies[_i].claim, lies[_i].claimed);
    if (lies[_i].claim2 != NULL) scratch_edit_record("geometry", lies[_i].claim2, lies[_i].claimed2);
    scratch_expect_failure(lies[_i].first);
}
END_TEST

START_TEST(a_masking_lie_spoils_no_stage_before_the_attention) {
    dp_result result;
    scratch_copy_case("tiny-windowed");
    scratch_edit_config("sliding_window", "15");
    scratch_edit_record("geometry", "sliding_window", "[15,15,0]");
    scratch_check("layers.0.attn.[qkv]*", &result);
    ck_assert_int_eq(result.verdict, DP_PASS);
    ck_assert_int_eq(result.stage_count, 7);
    dp_result_release(&result);
    /* The rounds are the same wrong program as the block, so they agree: the two comparisons answer different
     * questions. */
    scratch_check("round.*", &result);
    ck_assert_int_eq(result.verdict, DP_PASS);
    dp_result_release(&result);
}
END_TEST

START_TEST(heads_that_multiply_out_the_same_are_refused_by_shape) {
    /* 3 heads of 32 with 1 key head make every projection of 6 heads of 16 with 2 key heads. */
    scratch_copy_case("tiny-plain");
    scratch_edit_config("num_attention_heads", "3");
    scratch_edit_config("num_key_value_heads", "1");
    scratch_edit_config("head_dim", "32");
    scratch_edit_record("geometry", "num_attention_heads", "3");
    scratch_edit_record("geometry", "num_key_value_heads", "1");
    scratch_edit_record("geometry", "head_dim", "32");
    scratch_edit_record("geometry", "rope/rotary_dim", "32");
    scratch_expect_stop(DP_REFUSED, "oracle.shape", "rope.inv_freq", "expected [16]", "found [8]");
}
END_TEST

START_TEST(head_counts_that_both_sides_lie_about_are_refused_by_shape) {
    scratch_copy_case("tiny-plain");
    scratch_edit_config("num_key_value_heads", "3");
    scratch_edit_record("geometry", "num_key_value_heads", "3");
    scratch_expect_stop(DP_REFUSED, "oracle.shape", "layers.0.attn.k_proj", "expected [29, 48]", "found [29, 32]");
    scratch_copy_case("tiny-plain");
    scratch_edit_config("num_attention_heads", "4");
    scratch_edit_record("geometry", "num_attention_heads", "4");
    scratch_expect_stop(DP_REFUSED, "oracle.shape", "layers.0.attn.q_proj", "expected [5, 64]", "found [5, 96]");
}
END_TEST

START_TEST(a_rotated_part_that_both_sides_lie_about_is_refused_by_shape) {
    scratch_copy_case("tiny-partial");
    scratch_edit_config("partial_rotary_factor", "1.0");
    scratch_edit_record("geometry", "rope/rotary_dim", "24");
    scratch_expect_stop(DP_REFUSED, "oracle.shape", "rope.inv_freq", "expected [12]", "found [6]");
}
END_TEST

START_TEST(a_block_that_both_sides_lie_about_is_refused_by_shape) {
    scratch_copy_case("tiny-plain");
    scratch_edit_config("block_size", "4");
    scratch_edit_record("geometry", "block_size", "4");
    scratch_expect_stop(DP_REFUSED, "oracle.shape", "ctx.fc", "expected [25, 96]", "found [24, 96]");
}
END_TEST

void check_add_lies(Suite *suite) {
    TCase *tests = check_case("lies");
    tcase_add_loop_test(tests, a_lie_that_both_sides_agree_on_fails_where_it_acts, 0, LIES);
    tcase_add_test(tests, a_masking_lie_spoils_no_stage_before_the_attention);
    tcase_add_test(tests, heads_that_multiply_out_the_same_are_refused_by_shape);
    tcase_add_test(tests, head_counts_that_both_sides_lie_about_are_refused_by_shape);
    tcase_add_test(tests, a_rotated_part_that_both_sides_lie_about_is_refused_by_shape);
    tcase_add_test(tests, a_block_that_both_sides_lie_about_is_refused_by_shape);
    suite_add_tcase(suite, tests);
}
