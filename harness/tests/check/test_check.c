/*
 * test_check.c - the gate on the stored cases, on filters, and on configs that the oracle does not speak of.
 *
 * Configs that oracle and checkpoint lie about alike are test_check_lies.c's, weights test_check_weights.c's, broken
 * oracles test_check_oracle.c's, the round schedules test_check_rounds.c's.
 */
#include "support/check_case.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

TCase *check_case(const char *name) {
    TCase *tests = tcase_create(name);
    tcase_add_checked_fixture(tests, scratch_open, scratch_close);
    tcase_set_timeout(tests, 60);
    return tests;
}

static const char *const stored[] = {"tiny-plain",   "tiny-yarn",       "tiny-yarn-explicit", "tiny-linear",
                                     "tiny-llama3",  "tiny-windowed",   "tiny-causal",        "tiny-bias",
                                     "tiny-partial", "tiny-hot",        "tiny-edge",          "tiny-dflash2",
                                     "tiny-dspark",  "tiny-dflash2-k3", "tiny-dspark-gated",  "tiny-dspark-rnn"};
enum { STORED = sizeof stored / sizeof *stored };

START_TEST(a_stored_case_passes_with_every_stage_and_every_round) {
    scratch_copy_case(stored[_i]);
    scratch_expect_pass();
}
END_TEST

START_TEST(the_stages_come_in_forward_order_and_name_every_layer) {
    dp_result result;
    scratch_copy_case("tiny-plain");
    scratch_check(NULL, &result);
    ck_assert_int_eq(result.stages_known, 5 + 3 * 17 + 3);
    ck_assert_str_eq(result.stage[0].name, "ctx.fc");
    ck_assert_str_eq(result.stage[5].name, "layers.0.attn.norm");
    ck_assert_str_eq(result.stage[5 + 2 * 17].name, "layers.2.attn.norm");
    ck_assert_str_eq(result.stage[result.stage_count - 1].name, "kv.v");
    ck_assert_str_eq(result.variant[0].name, "round.all");
    ck_assert_str_eq(result.variant[1].name, "round.chunk1");
    ck_assert_str_eq(result.variant[2].name, "round.chunk7");
    ck_assert_int_eq(result.context, 24);
    ck_assert_int_eq(result.block, 5);
    dp_result_release(&result);
}
END_TEST

START_TEST(the_final_hidden_is_as_near_to_float64_as_upstreams_own_float32) {
    dp_result result;
    scratch_copy_case(stored[_i]);
    scratch_check("final", &result);
    ck_assert_int_eq(result.stage_count, 1);
    ck_assert(result.stage[0].difference.l2_rel <= 2 * result.stage[0].limit.reference_spread_l2_rel);
    dp_result_release(&result);
}
END_TEST

/* ---- Filters ---- */

START_TEST(a_filter_compares_what_it_matches_and_nothing_else) {
    static const struct {
        const char *filter;
        int stages, variants;
    } cases[] = {{"final", 1, 0}, {"layers.1.*", 17, 0}, {"round.*", 0, 8}, {"round.chunk7", 0, 1}, {"kv.?", 2, 0}};
    scratch_copy_case("tiny-plain");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dp_result result;
        scratch_check(cases[i].filter, &result);
        ck_assert_int_eq(result.verdict, DP_PASS);
        ck_assert_int_eq(result.stage_count, cases[i].stages);
        ck_assert_int_eq(result.variant_count, cases[i].variants);
        ck_assert_int_eq(result.stages_known, 59);
        ck_assert_str_eq(result.options->filter, cases[i].filter);
        dp_result_release(&result);
    }
}
END_TEST

START_TEST(a_filter_that_matches_nothing_is_not_a_pass) {
    dp_result result;
    scratch_copy_case("tiny-plain");
    scratch_check("layers.7.*", &result);
    ck_assert_int_eq(result.verdict, DP_NOTHING);
    ck_assert_int_eq(dp_verdict_exit_code(result.verdict), 5);
    ck_assert_int_eq(result.stage_count + result.variant_count, 0);
    dp_result_release(&result);
}
END_TEST

START_TEST(a_filter_does_not_excuse_an_oracle_that_lacks_another_stage) {
    dp_result result;
    scratch_copy_case("tiny-plain");
    for (int run = 0; run < DP_RUN_COUNT; run++) {
        char object[80];
        snprintf(object, sizeof object, "/stages/%s/layers.1.out", dp_run_name((dp_run)run));
        sf_remove_link(object);
    }
    scratch_check("final", &result);
    ck_assert_int_eq(result.verdict, DP_REFUSED);
    ck_assert_str_eq(result.error.code, "oracle.stage.missing");
    dp_result_release(&result);
}
END_TEST

/* ---- The config against the oracle's geometry ---- */

/*
 * One key of the config changed, the oracle as it was. The order of the taps and the mask id are here and nowhere else:
 * the oracle's inputs are already concatenated and embedded, so once both sides agree on them no value can show a lie.
 * The refusal is the only sign of it.
 */
static const struct {
    const char *fixture, *key, *json, *field, *ours, *theirs;
} edits[] = {
    {"tiny-plain", "rope_theta", "10000", " rope.theta ", "says 10000,", "claims 1000000."},
    {"tiny-plain", "rms_norm_eps", "1e-5", " rms_norm_eps ", "says 1e-05,", "claims 1e-06."},
    {"tiny-plain", "dflash_config/target_layer_ids", "[1,9,4]", " target_layer_ids[1] ", "says 9,", "claims 4."},
    {"tiny-plain", "dflash_config/target_layer_ids", "[0,3,8]", " target_layer_ids[0] ", "says 0,", "claims 1."},
    {"tiny-plain", "dflash_config/mask_token_id", "999", " mask_token_id ", "says 999,", "claims 1000."},
    {"tiny-plain", "num_attention_heads", "4", " num_attention_heads ", "says 4,", "claims 6."},
    {"tiny-plain", "num_key_value_heads", "3", " num_key_value_heads ", "says 3,", "claims 2."},
    {"tiny-plain", "head_dim", "32", " head_dim ", "says 32,", "claims 16."},
    {"tiny-plain", "block_size", "4", " block_size ", "says 4,", "claims 5."},
    {"tiny-plain", "hidden_size", "192", " hidden_size ", "says 192,", "claims 96."},
    {"tiny-plain", "intermediate_size", "128", " intermediate_size ", "says 128,", "claims 160."},
    {"tiny-plain", "attention_bias", "true", " attention_bias ", "says true,", "claims false."},
    {"tiny-windowed", "sliding_window", "15", " sliding_window[0] ", "says 15,", "claims 16."},
    {"tiny-windowed", "is_causal", "true", " is_causal[0] ", "says true,", "claims false."},
    {"tiny-windowed", "is_causal", NULL, " is_causal[0] ", "says true,", "claims false."},
    {"tiny-windowed", "layer_types", "[\"sliding_attention\",\"full_attention\",\"full_attention\"]",
     " layer_types[1] ", "says \"full_attention\",", "claims \"sliding_attention\"."},
    {"tiny-causal", "is_causal", "false", " is_causal[0] ", "says false,", "claims true."},
    {"tiny-linear", "rope_scaling", NULL, " rope.type ", "says \"default\",", "claims \"linear\"."},
    {"tiny-linear", "rope_scaling/factor", "2", " rope.factor ", "says 2,", "claims 4."},
    {"tiny-yarn", "rope_parameters/factor", "8", " rope.attention_scaling ", "says 1.2079", "claims 1.2772"},
    {"tiny-yarn-explicit", "rope_parameters/factor", "16", " rope.factor ", "says 16,", "claims 8."},
    {"tiny-yarn-explicit", "rope_parameters/attention_factor", "0.95", " rope.attention_scaling ", "says 0.95",
     "claims 0.9."},
    {"tiny-yarn-explicit", "rope_parameters/beta_fast", "32", " rope.beta_fast ", "says 32,", "claims 16."},
    {"tiny-yarn-explicit", "rope_parameters/truncate", "true", " rope.truncate ", "says true,", "claims false."},
    {"tiny-yarn-explicit", "rope_parameters/original_max_position_embeddings", "2048",
     " rope.original_max_position_embeddings ", "says 2048,", "claims 1024."},
    {"tiny-llama3", "rope_scaling/high_freq_factor", "8", " rope.high_freq_factor ", "says 8,", "claims 4."},
    {"tiny-partial", "partial_rotary_factor", "1.0", " rope.rotary_dim ", "says 24,", "claims 12."},
    {"tiny-dflash2", "dflash_config/output_multiplier", "0.2", " output_multiplier ", "says 0.2", "claims 0.196"},
    {"tiny-dflash2", "dflash_config/final_logit_softcapping", NULL, " final_logit_softcapping ", "says 0,",
     "claims 20."},
    {"tiny-dflash2", "input_embedding_scale", "2.0", " input_embedding_scale ", "says 2,", "claims 1."},
    {"tiny-dflash2", "dflash_config/conv_kernel_size", "3", " conv_kernel_size ", "says 3,", "claims 2."},
    {"tiny-dflash2", "dflash_config/conv_group_size", "32", " conv_group_size ", "says 32,", "claims 16."},
    {"tiny-dflash2", "dflash_config/selector_rank", "16", " selector_rank ", "says 16,", "claims 32."},
    {"tiny-dflash2", "dflash_config/selector_top_k", "4", " selector_top_k ", "says 4,", "claims 8."},
    {"tiny-dflash2", "selector_vocab_size", "310", " selector_vocab_size ", "says 310,", "claims 320."},
    {"tiny-dspark", "markov_rank", "16", " markov_rank ", "says 16,", "claims 32."},
    {"tiny-dspark", "markov_head_type", "\"gated\"", " markov ", "says \"gated\",", "claims \"vanilla\"."},
    {"tiny-dspark", "confidence_head_with_markov", "false", " confidence_with_markov ", "says false,", "claims true."},
    {"tiny-dspark-gated", "sliding_window", "15", " sliding_window[0] ", "says 15,", "claims 16."},
};
enum { EDITS = sizeof edits / sizeof *edits };

START_TEST(a_config_that_the_oracle_does_not_speak_of_is_refused_by_field_and_both_values) {
    scratch_copy_case(edits[_i].fixture);
    scratch_edit_config(edits[_i].key, edits[_i].json);
    scratch_expect_stop(DP_REFUSED, "geometry.field.differs", edits[_i].field, edits[_i].ours, edits[_i].theirs);
}
END_TEST

START_TEST(an_oracle_that_claims_another_geometry_is_refused) {
    scratch_copy_case("tiny-plain");
    scratch_edit_record("geometry", "rope/theta", "10000");
    scratch_expect_stop(DP_REFUSED, "geometry.field.differs", " rope.theta ", "says 1000000,", "claims 10000.");
    scratch_copy_case("tiny-plain");
    scratch_edit_record("geometry", "is_causal", NULL);
    scratch_expect_stop(DP_REFUSED, "geometry.field.missing", " is_causal ", "[false,false,false]", NULL);
}
END_TEST

/* ---- Files that are not there, or are something else ---- */

static void expect_error(const char *checkpoint, const char *oracle, const char *code, const char *word) {
    const dp_check_options options = {.checkpoint = checkpoint, .oracle = oracle, .threads = 1};
    dp_result result;
    dp_check(&options, &result);
    ck_assert_msg(result.verdict == DP_ERROR && strcmp(result.error.code, code) == 0, "%s: %s", result.error.code,
                  result.error.message);
    ck_assert_int_eq(dp_verdict_exit_code(result.verdict), 4);
    ck_assert_ptr_nonnull(strstr(result.error.message, word));
    ck_assert_int_eq(result.stage_count, 0);
    dp_result_release(&result);
}

START_TEST(a_file_that_cannot_be_read_is_an_error_that_names_it) {
    char model[SCRATCH_PATH], config[SCRATCH_PATH], inside[SCRATCH_PATH];
    scratch_copy_case("tiny-plain");
    scratch_path("model.safetensors", model);
    scratch_path("config.json", config);
    /* Permissions do not stop root, but nobody can open a path below a file. */
    expect_error(model, sf_path, "config.file.open", "model.safetensors/config.json");
    expect_error(sf_folder, scratch_path("config.json/oracle.h5", inside), "oracle.open", "config.json/oracle.h5");
    expect_error(sf_folder, sf_folder, "oracle.open", sf_folder);
    expect_error("/nowhere", sf_path, "config.file.open", "/nowhere/config.json");
    ck_assert_int_eq(remove(model), 0);
    expect_error(sf_folder, sf_path, "safetensors.open", "model.safetensors");
    ck_assert_int_eq(remove(config), 0);
    expect_error(sf_folder, sf_path, "config.file.open", "config.json");
}
END_TEST

START_TEST(a_config_that_is_not_one_is_refused_before_the_oracle_is_read) {
    scratch_copy_case("tiny-plain");
    scratch_write_text("oracle.h5", "not an oracle either");
    scratch_write_text("config.json", "{\"hidden_size\": 96,");
    scratch_expect_stop(DP_REFUSED, "config.json.syntax", "config.json", NULL, NULL);
    scratch_copy("fixtures/small/tiny-plain/config.json", "config.json");
    scratch_edit_config("rms_norm_eps", NULL);
    scratch_expect_stop(DP_REFUSED, "config.key.missing", "rms_norm_eps", NULL, NULL);
    scratch_copy("fixtures/small/tiny-plain/config.json", "config.json");
    scratch_expect_stop(DP_REFUSED, "oracle.format", "oracle.h5", NULL, NULL);
}
END_TEST

Suite *suite_check(void) {
    Suite *suite = suite_create("check");
    TCase *tests = check_case("stored");
    tcase_add_loop_test(tests, a_stored_case_passes_with_every_stage_and_every_round, 0, STORED);
    tcase_add_test(tests, the_stages_come_in_forward_order_and_name_every_layer);
    tcase_add_loop_test(tests, the_final_hidden_is_as_near_to_float64_as_upstreams_own_float32, 0, STORED);
    suite_add_tcase(suite, tests);
    tests = check_case("filters");
    tcase_add_test(tests, a_filter_compares_what_it_matches_and_nothing_else);
    tcase_add_test(tests, a_filter_that_matches_nothing_is_not_a_pass);
    tcase_add_test(tests, a_filter_does_not_excuse_an_oracle_that_lacks_another_stage);
    suite_add_tcase(suite, tests);
    tests = check_case("geometry");
    tcase_add_loop_test(tests, a_config_that_the_oracle_does_not_speak_of_is_refused_by_field_and_both_values, 0,
                        EDITS);
    tcase_add_test(tests, an_oracle_that_claims_another_geometry_is_refused);
    suite_add_tcase(suite, tests);
    tests = check_case("files");
    tcase_add_test(tests, a_file_that_cannot_be_read_is_an_error_that_names_it);
    tcase_add_test(tests, a_config_that_is_not_one_is_refused_before_the_oracle_is_read);
    suite_add_tcase(suite, tests);
    check_add_lies(suite);
    check_add_weights(suite);
    check_add_oracles(suite);
    check_add_spread(suite);
    check_add_rounds(suite);
    check_add_heads(suite);
    check_add_ids(suite);
    check_add_sketches(suite);
    return suite;
}
