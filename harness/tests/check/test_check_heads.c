/*
 * test_check_heads.c - the gate on what comes after the backbone: the output head and its record, precision, the
 * tensors of the other two families, and that the case list leaves no stage of the vocabulary out. Ids are
 * test_check_ids.c's.
 */
#include "store/cases.h"
#include "support/check_case.h"
#include "base/sha256.h"
#include "store/stage_set.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Precision ---- */

static void copy_as(const char *checkpoint, const char *oracle) {
    char path[SCRATCH_PATH];
    scratch_copy_case(checkpoint);
    snprintf(path, sizeof path, "oracles/%s.h5", oracle);
    scratch_copy(path, "oracle.h5");
}

/* A stored oracle of each precision mode. */
static const struct {
    const char *checkpoint, *oracle;
    dflash_precision precision;
} modes[] = {
    {"tiny-plain", "tiny-plain-q8_0", DFLASH_PRECISION_Q8_0},
    {"tiny-plain", "tiny-plain-q4_0", DFLASH_PRECISION_Q4_0},
    {"tiny-plain", "tiny-plain-mixed", DFLASH_PRECISION_MIXED},
    {"tiny-plain", "tiny-plain-fc", DFLASH_PRECISION_FC},
    {"tiny-hot", "tiny-hot-bf16", DFLASH_PRECISION_BF16},
    {"tiny-dflash2", "tiny-dflash2-q8_0", DFLASH_PRECISION_Q8_0},
    {"tiny-dspark-gated", "tiny-dspark-gated-q4_0", DFLASH_PRECISION_Q4_0},
};
enum { MODES = sizeof modes / sizeof *modes };

START_TEST(an_oracle_of_a_precision_mode_passes_in_that_mode_alone) {
    copy_as(modes[_i].checkpoint, modes[_i].oracle);
    for (dflash_precision other = DFLASH_PRECISION_STORED; other <= DFLASH_PRECISION_FC; other++) {
        char ours[32], theirs[32];
        scratch_options.precision = other;
        snprintf(ours, sizeof ours, "precision %s,", dflash_precision_name(other));
        snprintf(theirs, sizeof theirs, "--precision %s,", dflash_precision_name(modes[_i].precision));
        if (other != modes[_i].precision)
            scratch_expect_stop(DP_REFUSED, "provenance.precision", ours, theirs, NULL);
        else
            scratch_expect_pass();
    }
}
END_TEST

START_TEST(an_oracle_of_the_stored_weights_refuses_every_mode) {
    scratch_copy_case("tiny-dflash2");
    scratch_options.precision = DFLASH_PRECISION_BF16; /* the weights are bf16 already, and still it is another claim */
    scratch_expect_stop(DP_REFUSED, "provenance.precision", "in precision bf16", "--precision stored", NULL);
    scratch_options.precision = DFLASH_PRECISION_STORED;
    scratch_edit_record("provenance", "precision", "\"stored\"");
    scratch_expect_pass();
    scratch_edit_record("provenance", "precision", "\"q8_0\"");
    scratch_expect_stop(DP_REFUSED, "provenance.precision", "in precision stored", "--precision q8_0", NULL);
    scratch_edit_record("provenance", "precision", "8");
    scratch_expect_stop(DP_REFUSED, "oracle.provenance", "\"precision\"", "expected a string", NULL);
}
END_TEST

START_TEST(the_claim_of_another_mode_fails_where_the_weights_differ) {
    copy_as("tiny-plain", "tiny-plain-q8_0");
    scratch_edit_record("provenance", "precision", "\"q4_0\"");
    scratch_options.precision = DFLASH_PRECISION_Q4_0;
    scratch_expect_failure("ctx.fc");
    scratch_edit_record("provenance", "precision", "\"fc\""); /* whose fc is bf16 */
    scratch_options.precision = DFLASH_PRECISION_FC;
    scratch_expect_failure("ctx.fc");
    copy_as("tiny-plain", "tiny-plain-mixed");
    scratch_edit_record("provenance", "precision", "\"stored\""); /* of which only the MLP differs */
    scratch_options.precision = DFLASH_PRECISION_STORED;
    scratch_expect_failure("layers.0.mlp.gate");
}
END_TEST

START_TEST(rows_that_are_not_whole_blocks_stop_the_gate) {
    scratch_copy_case("tiny-hot"); /* its hidden size is 80 */
    scratch_edit_record("provenance", "precision", "\"q8_0\"");
    scratch_options.precision = DFLASH_PRECISION_Q8_0;
    dp_result result;
    scratch_check(NULL, &result);
    ck_assert_int_eq(result.verdict, DP_REFUSED);
    ck_assert_int_eq(result.stage_count, 0);
    ck_assert_str_eq(result.error.code, "precision.block");
    dp_result_release(&result);
}
END_TEST

/* ---- The output head ---- */

static const char *const headed[] = {"tiny-dflash2", "tiny-dspark"};
enum { HEADED = sizeof headed / sizeof *headed };

START_TEST(an_anchor_and_a_head_record_come_together) {
    scratch_copy_case(headed[_i]);
    scratch_edit_record("provenance", "head", NULL);
    scratch_expect_stop(DP_REFUSED, "provenance.head.missing", "an anchor and no complete head record", NULL, NULL);
    scratch_copy_case(headed[_i]);
    scratch_edit_record("provenance", "head/shape", NULL);
    scratch_expect_stop(DP_REFUSED, "provenance.head.missing", "an anchor and no complete head record", NULL, NULL);
    scratch_copy_case(headed[_i]);
    scratch_edit_record("provenance", "head/sha256", NULL);
    scratch_expect_stop(DP_REFUSED, "provenance.head.missing", NULL, NULL, NULL);
    scratch_copy_case(headed[_i]);
    sf_remove_link("/inputs/anchor");
    scratch_expect_stop(DP_REFUSED, "provenance.head.missing", "a head record and no anchor", NULL, NULL);
    scratch_copy_case("tiny-plain");
    scratch_edit_record("provenance", "head",
                        "{\"tensor\":\"lm_head.weight\",\"dtype\":\"BF16\",\"shape\":[1024,96],"
                        "\"sha256\":\"0\"}");
    scratch_expect_stop(DP_REFUSED, "provenance.head.missing", "a head record and no anchor", NULL, NULL);
}
END_TEST

START_TEST(an_oracle_without_a_head_cannot_judge_the_families_that_need_one) {
    scratch_copy_case(headed[_i]);
    scratch_edit_record("provenance", "head", NULL);
    sf_remove_link("/inputs/anchor");
    scratch_expect_stop(DP_REFUSED, "oracle.head.missing", "ran no output head", headed[_i] + strlen("tiny-"), NULL);
}
END_TEST

START_TEST(another_head_is_refused) {
    const char *const fixture = headed[_i];
    char other[SCRATCH_PATH];
    scratch_copy_case(fixture);
    scratch_flip_weight("lm_head.weight", 777, 0, false);
    scratch_expect_stop(DP_REFUSED, "provenance.head.differs", "SHA-256", NULL, NULL);
    scratch_flip_weight("lm_head.weight", 777, 0, false);
    scratch_expect_pass();
    scratch_edit_record("provenance", "head/dtype", "\"F16\"");
    scratch_expect_stop(DP_REFUSED, "provenance.head.differs", "dtype", "BF16", "F16");
    scratch_edit_record("provenance", "head/dtype", "\"BF16\"");
    scratch_edit_record("provenance", "head/shape", "[319,64]");
    scratch_expect_stop(DP_REFUSED, "oracle.shape", "logits", "319", "320");
    scratch_copy_case(fixture);
    scratch_edit_record("provenance", "head/shape", "[320,65]"); /* as many rows, of another width */
    scratch_expect_stop(DP_REFUSED, "provenance.head.differs", "shape", "[320, ", NULL);
    /* the head of another target, given as a file */
    scratch_copy_case(fixture);
    snprintf(other, sizeof other, "fixtures/small/%s/model.safetensors", headed[(_i + 1) % HEADED]);
    scratch_options.head = other;
    scratch_expect_stop(DP_REFUSED, "provenance.head.differs", "output head differs", NULL, NULL);
    scratch_options.head = "fixtures/small/tiny-plain/model.safetensors";
    scratch_expect_stop(DP_REFUSED, "table.tensor.missing", "lm_head.weight", "tiny-plain", NULL);
    scratch_options.head = "fixtures/small/no-such-file";
    scratch_expect_stop(DP_ERROR, "safetensors.open", "no-such-file", NULL, NULL);
}
END_TEST

START_TEST(a_head_for_an_oracle_that_ran_none_is_refused) {
    scratch_copy_case("tiny-plain");
    scratch_options.head = "fixtures/small/tiny-dflash2/model.safetensors";
    scratch_expect_stop(DP_REFUSED, "oracle.head.unused", "tiny-dflash2", NULL, NULL);
}
END_TEST

START_TEST(a_head_in_a_file_of_its_own_does_as_well) {
    char path[SCRATCH_PATH], stored[SCRATCH_PATH];
    scratch_copy_case(headed[_i]);
    tf_file *tensors = scratch_tensors();
    tf_remove(tensors, "lm_head.weight");
    scratch_put_tensors(tensors);
    scratch_expect_stop(DP_REFUSED, "table.tensor.missing", "lm_head.weight", NULL, NULL);
    snprintf(stored, sizeof stored, "fixtures/small/%s/model.safetensors", headed[_i]);
    scratch_copy(stored, "head.safetensors");
    scratch_options.head = scratch_path("head.safetensors", path);
    scratch_expect_pass();
}
END_TEST

START_TEST(another_anchor_fails_where_the_predecessor_enters) {
    static const char *const first[] = {"select.scores", "markov.logits"};
    scratch_copy_case(headed[_i]);
    scratch_change_value("/inputs/anchor", 0, 1.0, 1.0);
    scratch_expect_failure(first[_i]);
}
END_TEST

/* ---- Harvest ---- */

START_TEST(an_oracle_without_a_harvest_record_or_with_the_other_is_refused) {
    static const struct {
        const char *fixture, *ours, *theirs;
    } cases[] = {{"tiny-plain", "mask_fill", "shifted"},
                 {"tiny-dflash2", "mask_fill", "shifted"},
                 {"tiny-dspark", "shifted", "mask_fill"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[32], says[40], claims[40];
        scratch_copy_case(cases[i].fixture);
        scratch_edit_record("geometry", "harvest", NULL);
        scratch_expect_stop(DP_REFUSED, "geometry.field.missing", " harvest ", cases[i].ours, NULL);
        snprintf(json, sizeof json, "\"%s\"", cases[i].theirs);
        snprintf(says, sizeof says, "says \"%s\",", cases[i].ours);
        snprintf(claims, sizeof claims, "claims %s.", json);
        scratch_edit_record("geometry", "harvest", json);
        scratch_expect_stop(DP_REFUSED, "geometry.field.differs", " harvest ", says, claims);
    }
}
END_TEST

/* ---- Tensors ---- */

START_TEST(a_dflash2_checkpoint_without_its_own_tensors_is_refused_as_either_family) {
    scratch_copy_case("tiny-dflash2");
    tf_file *tensors = scratch_tensors();
    int removed = 0;
    for (int i = tensors->count - 1; i >= 0; i--) {
        char name[SCRATCH_NAME];
        snprintf(name, sizeof name, "%s", tensors->entry[i].name);
        if (strstr(name, "_conv.") == NULL && strncmp(name, "candidate_selector.", 19) != 0) continue;
        tf_remove(tensors, name);
        removed++;
    }
    ck_assert_int_eq(removed, 2 * 4 + 3);
    scratch_put_tensors(tensors);
    scratch_expect_stop(DP_REFUSED, "census.tensor.missing", "missing (11)", "attention_conv.base_kernel", NULL);
    /* what is left would load as a backbone, if the config did not still say what it was trained with */
    scratch_edit_config("architectures", "[\"DFlashDraftModel\"]");
    scratch_expect_stop(DP_REFUSED, "config.family.ambiguous", "conv_kernel_size", NULL, NULL);
}
END_TEST

/* One tensor with another shape; the config and the oracle as they were. */
static const struct {
    const char *fixture, *tensor;
    int64_t dim[2];
    const char *found, *expected;
} shapes[] = {
    {"tiny-dspark", "markov_head.markov_w1.weight", {320, 31}, "[320, 31]", "[320, 32]"},
    {"tiny-dspark", "markov_head.markov_w2.weight", {320, 64}, "[320, 64]", "[320, 32]"},
    {"tiny-dspark-gated", "markov_head.gate_proj.weight", {32, 95}, "[32, 95]", "[32, 96]"},
    {"tiny-dspark", "confidence_head.proj.weight", {1, 64}, "[1, 64]", "[1, 96]"},
    {"tiny-dflash2", "candidate_selector.successor_codebook", {319, 32}, "[319, 32]", "[320, 32]"},
    {"tiny-dflash2", "candidate_selector.predecessor_codebook", {321, 32}, "[321, 32]", "[320, 32]"},
    {"tiny-dflash2", "layers.1.mlp_conv.kernel_projection.weight", {8, 64}, "[8, 64]", "[16, 64]"},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

START_TEST(a_tensor_of_the_wrong_rank_or_length_is_refused_by_name_and_shapes) {
    scratch_copy_case(shapes[_i].fixture);
    tf_file *tensors = scratch_tensors();
    tf_reshape(tensors, shapes[_i].tensor, "BF16", 2, shapes[_i].dim);
    scratch_put_tensors(tensors);
    scratch_expect_stop(DP_REFUSED, "census.shape", shapes[_i].tensor, shapes[_i].found, shapes[_i].expected);
}
END_TEST

/* A weight of each part beyond the backbone, changed with its digest, and where that must show first. */
static const struct {
    const char *fixture, *tensor;
    int64_t index;
    const char *first;
} acts[] = {
    {"tiny-dflash2", "layers.0.attention_conv.base_kernel", 3, "layers.0.attn.conv_in"},
    {"tiny-dflash2", "layers.0.attention_conv.base_kernel", 2 * 64 + 3, "layers.0.attn.conv_out"},
    {"tiny-dflash2", "layers.1.mlp_conv.base_kernel", 64 + 5, "layers.1.mlp.conv_in"},
    {"tiny-dflash2", "layers.1.mlp_conv.base_kernel", 3 * 64 + 5, "layers.1.mlp.conv_out"},
    {"tiny-dflash2", "layers.0.mlp_conv.kernel_projection.weight", 100, "layers.0.mlp.conv_dyn"},
    {"tiny-dflash2", "candidate_selector.hidden_projection.weight", 7, "select.hidden"},
    {"tiny-dflash2", "candidate_selector.predecessor_codebook", 184 * 32 + 1, "select.scores"},
    {"tiny-dflash2", "candidate_selector.successor_codebook", 178 * 32 + 1, "select.scores"},
    {"tiny-dspark", "markov_head.markov_w1.weight", 257 * 32 + 1, "markov.logits"},
    {"tiny-dspark", "markov_head.markov_w2.weight", 9, "markov.logits"},
    {"tiny-dspark", "confidence_head.proj.weight", 64, "confidence.raw"},
    {"tiny-dspark", "confidence_head.proj.bias", 0, "confidence.raw"},
    {"tiny-dspark-gated", "markov_head.gate_proj.bias", 3, "markov.logits"},
    {"tiny-dspark-rnn", "markov_head.joint_proj.weight", 11, "markov.logits"},
};
enum { ACTS = sizeof acts / sizeof *acts };

START_TEST(a_changed_weight_of_a_head_or_convolution_fails_where_it_acts) {
    scratch_copy_case(acts[_i].fixture);
    scratch_flip_weight(acts[_i].tensor, acts[_i].index, 7, false);
    scratch_expect_stop(DP_REFUSED, "provenance.tensor.differs", acts[_i].tensor, NULL, NULL);
    scratch_flip_weight(acts[_i].tensor, acts[_i].index, 7, false);
    scratch_flip_weight(acts[_i].tensor, acts[_i].index, 7, true);
    scratch_expect_failure(acts[_i].first);
}
END_TEST

START_TEST(a_changed_head_whose_digest_agrees_fails_at_the_logits) {
    char digest[65], json[72];
    scratch_copy_case(headed[_i]);
    scratch_flip_weight("lm_head.weight", 99, 7, false);
    tf_file *tensors = scratch_tensors();
    const tf_entry *head = tf_get(tensors, "lm_head.weight");
    dp_sha256_of(head->data, head->bytes, digest);
    tf_free(tensors);
    snprintf(json, sizeof json, "\"%s\"", digest);
    scratch_edit_record("provenance", "head/sha256", json);
    scratch_expect_failure("logits");
}
END_TEST

/* ---- The case list ---- */

/* The first stage that no case of the list demands, leaving out cases of a family or those with a head. */
static dflash_stage first_undemanded(int without_family, bool without_head) {
    bool demanded[DFLASH_STAGE_COUNT] = {false};
    dflash_error err = {0};
    dp_case_list list;
    ck_assert_msg(dp_cases_read("fixtures/cases.json", &list, &err) == DFLASH_OK, "%s", err.message);
    ck_assert_int_gt(list.count, 0);
    for (int i = 0; i < list.count; i++) {
        const bool head = (list.item[i].synth.extras & DP_SYNTH_LM_HEAD) != 0;
        dflash_config config;
        dp_stage_set set;
        ck_assert_msg(dflash_config_read(list.item[i].synth_config, &config, &err) == DFLASH_OK, "%s", err.message);
        if ((int)config.family == without_family || (head && without_head)) continue;
        const dp_stage_input input = {.context = 1,
                                      .vocab = head ? config.vocab : 0,
                                      .embedded = (list.item[i].synth.extras & DP_SYNTH_EMBED_TOKENS) != 0};
        ck_assert_int_eq(dp_stage_set_create(&config, &input, &set, &err), DFLASH_OK);
        for (int s = 0; s < set.count; s++) demanded[set.spec[s].stage] = true;
        dp_stage_set_release(&set);
    }
    dp_cases_release(&list);
    int stage = 0;
    while (stage < DFLASH_STAGE_COUNT && demanded[stage]) stage++;
    return (dflash_stage)stage;
}

START_TEST(every_stage_of_the_vocabulary_is_demanded_by_a_case) {
    char name[DFLASH_STAGE_NAME_MAX];
    const dflash_stage missing = first_undemanded(-1, false);
    ck_assert_msg(missing == DFLASH_STAGE_COUNT, "no case demands %s", dflash_stage_name(missing, 0, name));
    ck_assert_int_eq(first_undemanded(-1, true), DFLASH_STAGE_ATTN_CONV_DYN);
    ck_assert_int_eq(first_undemanded(DFLASH_FAMILY_DFLASH2, false), DFLASH_STAGE_ATTN_CONV_DYN);
    ck_assert_int_eq(first_undemanded(DFLASH_FAMILY_DSPARK, false), DFLASH_STAGE_MARKOV_LOGITS);
}
END_TEST

void check_add_heads(Suite *suite) {
    TCase *tests = check_case("precision");
    tcase_add_loop_test(tests, an_oracle_of_a_precision_mode_passes_in_that_mode_alone, 0, MODES);
    tcase_add_test(tests, an_oracle_of_the_stored_weights_refuses_every_mode);
    tcase_add_test(tests, the_claim_of_another_mode_fails_where_the_weights_differ);
    tcase_add_test(tests, rows_that_are_not_whole_blocks_stop_the_gate);
    suite_add_tcase(suite, tests);
    tests = check_case("heads");
    tcase_add_loop_test(tests, an_anchor_and_a_head_record_come_together, 0, HEADED);
    tcase_add_loop_test(tests, an_oracle_without_a_head_cannot_judge_the_families_that_need_one, 0, HEADED);
    tcase_add_loop_test(tests, another_head_is_refused, 0, HEADED);
    tcase_add_loop_test(tests, a_head_in_a_file_of_its_own_does_as_well, 0, HEADED);
    tcase_add_test(tests, a_head_for_an_oracle_that_ran_none_is_refused);
    tcase_add_loop_test(tests, another_anchor_fails_where_the_predecessor_enters, 0, HEADED);
    tcase_add_test(tests, an_oracle_without_a_harvest_record_or_with_the_other_is_refused);
    suite_add_tcase(suite, tests);
    tests = check_case("families");
    tcase_add_test(tests, a_dflash2_checkpoint_without_its_own_tensors_is_refused_as_either_family);
    tcase_add_loop_test(tests, a_tensor_of_the_wrong_rank_or_length_is_refused_by_name_and_shapes, 0, SHAPES);
    tcase_add_loop_test(tests, a_changed_weight_of_a_head_or_convolution_fails_where_it_acts, 0, ACTS);
    tcase_add_loop_test(tests, a_changed_head_whose_digest_agrees_fails_at_the_logits, 0, HEADED);
    tcase_add_test(tests, every_stage_of_the_vocabulary_is_demanded_by_a_case);
    suite_add_tcase(suite, tests);
}
