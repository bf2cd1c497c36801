/* test_recording.c - two files held against each other: what is refused, what fails, what passes, and the command. */
#include "support/recording_case.h"
#include "support/recording_cases.h"
#include "suites.h"

#include "support/child.h"
#include "common/dtype.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Refusals ---- */

static const struct {
    const char *record, *key, *json, *code, *mention;
} records[] = {
    {"geometry", "rms_norm_eps", "0.5", "geometry.field.differs", "rms_norm_eps"},
    {"geometry", "is_causal", "[true,false,false]", "geometry.field.differs", "is_causal[0]"},
    {"geometry", "mask_token_id", NULL, "geometry.field.missing", "mask_token_id"},
    {"geometry", "favourite", "1", "geometry.field.unknown", "favourite"},
    {"provenance", "tensors/norm.weight", NULL, "compare.weights.missing", "norm.weight"},
    {"provenance", "tensors/more.weight", "{}", "compare.weights.missing", "more.weight"},
    {"provenance", "tensors/norm.weight/sha256", "\"00\"", "compare.weights.differs",
     "sha256 of the tensor norm.weight"},
    {"provenance", "tensors/norm.weight/dtype", "\"F32\"", "compare.weights.differs",
     "dtype of the tensor norm.weight"},
    {"provenance", "tensors/norm.weight/shape", "[95]", "compare.weights.differs", "shape of the tensor norm.weight"},
    {"provenance", "tensors/norm.weight/sha256", NULL, "compare.weights.differs", "norm.weight"},
    {"provenance", "tensors", "{}", "compare.weights.missing", "names no tensor"},
    {"provenance", "precision", "\"q8_0\"", "compare.precision", "stored and"},
};
enum { RECORDS = sizeof records / sizeof *records };

START_TEST(files_of_another_drafter_weights_or_precision_are_refused_by_field) {
    rc_open("tiny-plain");
    scratch_edit_record(records[_i].record, records[_i].key, records[_i].json);
    rc_expect_refusal(records[_i].code, records[_i].mention);
}
END_TEST

START_TEST(files_of_other_inputs_are_refused_by_input_and_element) {
    rc_open("tiny-dspark");
    scratch_change_value("/inputs/noise_embedding", 7, 1.0, 1.0); /* the next bfloat16 */
    rc_expect_refusal("compare.input.differs", "noise_embedding differs at element 7");
    rc_open("tiny-dspark");
    scratch_change_value("/inputs/anchor", 0, 1.0, 1.0);
    rc_expect_refusal("compare.input.differs", "anchor differs at element 0");
    rc_open("tiny-dspark");
    sf_remove_link("/inputs/anchor");
    rc_expect_refusal("compare.input.missing", "anchor");
    rc_open("tiny-dspark");
    scratch_edit_record("provenance", "head/sha256", "\"00\"");
    rc_expect_refusal("compare.head.differs", "lm_head.weight");
}
END_TEST

static const struct {
    const char *key, *json;
} malformed[] = {{"family", "\"dflash9\""},
                 {"hidden_size", "96.5"},
                 {"num_key_value_heads", "4"},
                 {"layer_types", "[1,2]"},
                 {"rope", "7"},
                 {"block_size", "-5"},
                 {"num_hidden_layers", "100000"},
                 {"target_layer_ids", "[]"}};
enum { MALFORMED = sizeof malformed / sizeof *malformed };

START_TEST(a_geometry_that_no_drafter_has_is_refused) {
    rc_open("tiny-plain");
    scratch_edit_record("geometry", malformed[_i].key, malformed[_i].json);
    ck_assert_int_eq(rename(sf_path, rc_a), 0); /* the reference is the one whose geometry is read */
    scratch_copy(rc_a, "oracle.h5");
    rc_expect_refusal("geometry.field.malformed", "geometry");
}
END_TEST

START_TEST(a_run_of_other_weights_is_recorded_and_then_refused) {
    rc_open("tiny-plain");
    scratch_flip_weight("layers.1.mlp.up_proj.weight", 5, 3, false);
    rc_record();
    rc_expect_refusal("compare.weights.differs", "layers.1.mlp.up_proj.weight");
}
END_TEST

/* ---- Stages ---- */

static void expect_fault(const char *stage, dp_stage_fault fault) {
    dp_file_comparison c;
    rc_compare(&(dp_compare_options){.filter = NULL}, &c);
    const dp_file_stage *first = dp_first_divergent_file_stage(&c);
    ck_assert_msg(c.verdict == DP_FAIL, "verdict %d %s", (int)c.verdict, c.error.message);
    ck_assert_int_eq(c.failed, 1);
    ck_assert_str_eq(first->spec.name, stage);
    ck_assert_int_eq(first->fault, fault);
    ck_assert(!first->pass);
    dp_file_comparison_release(&c);
}

START_TEST(a_stage_that_is_lacking_extra_or_of_another_shape_fails) {
    const hsize_t turned[] = {96, 5};
    rc_open("tiny-plain");
    sf_remove_link(RC_STAGE "layers.1.mlp.norm");
    expect_fault("layers.1.mlp.norm", DP_FAULT_LACKING_B);
    scratch_copy(sf_path, "a.h5");
    expect_fault("layers.1.mlp.norm", DP_FAULT_LACKING_BOTH);
    rc_open("tiny-plain");
    scratch_reshape(RC_STAGE "layers.2.out", DP_LOGICAL_F32, 2, turned);
    expect_fault("layers.2.out", DP_FAULT_SHAPE_B);
}
END_TEST

START_TEST(a_stage_that_the_geometry_does_not_have_fails) {
    rc_open("tiny-plain");
    const hid_t file = sf_edit();
    ck_assert_int_ge(H5Lcopy(file, RC_STAGE "layers.0.out", file, RC_STAGE "layers.3.out", H5P_DEFAULT, H5P_DEFAULT),
                     0);
    ck_assert_int_ge(H5Fclose(file), 0);
    expect_fault("layers.3.out", DP_FAULT_EXTRA_B);
}
END_TEST

static int64_t chosen_index;
static bool is_chosen(int64_t index) { return index == chosen_index; }

static dp_file_stage stage_of(const dp_compare_options *how, const char *name, dp_verdict verdict) {
    dp_file_comparison c;
    dp_file_stage found = {.pass = false};
    rc_compare(how, &c);
    ck_assert_msg(c.verdict == verdict, "verdict %d: %s", (int)c.verdict, c.error.message);
    for (int i = 0; i < c.count; i++)
        if (strcmp(c.stage[i].spec.name, name) == 0) found = c.stage[i];
    ck_assert_str_eq(found.spec.name, name);
    dp_file_comparison_release(&c);
    return found;
}

START_TEST(classes_and_expectations_go_together) {
    const dp_compare_options identical = {.filter = NULL}, equal = {.expect = DP_EXPECT_EQUAL},
                             two = {.expect = DP_EXPECT_ULP, .ulp = 2}, forty = {.expect = DP_EXPECT_ULP, .ulp = 40};
    int64_t count;
    rc_open("tiny-plain");
    ck_assert_int_eq(stage_of(&identical, "final", DP_PASS).pair.reached, DP_BITS_IDENTICAL);
    float *values = rc_values("final", &count);
    const uint32_t bits = df_f32_to_bits(values[3]);
    values[3] = df_bits_to_f32(bits + 2);
    rc_put_values("final", values);
    ck_assert_int_eq(stage_of(&identical, "final", DP_FAIL).pair.reached, DP_BITS_ULP);
    ck_assert_int_eq(stage_of(&equal, "final", DP_FAIL).pair.first, 3);
    ck_assert(stage_of(&two, "final", DP_PASS).pass);
    values[3] = df_bits_to_f32(bits + 40);
    rc_put_values("final", values);
    ck_assert_int_eq(stage_of(&two, "final", DP_FAIL).pair.reached, DP_BITS_DIVERGENT);
    ck_assert_int_eq(stage_of(&forty, "final", DP_PASS).pair.reached, DP_BITS_ULP);
    values[3] = NAN;
    rc_put_values("final", values);
    ck_assert_int_eq(stage_of(&forty, "final", DP_FAIL).pair.nonfinite, 1);
    scratch_copy(sf_path, "a.h5"); /* the same NaN on both sides is no pass either */
    ck_assert(!stage_of(&identical, "final", DP_FAIL).pass);
    free(values);
}
END_TEST

START_TEST(an_integer_that_differs_fails_whatever_is_expected) {
    rc_open("tiny-dspark");
    scratch_change_value(RC_STAGE "markov.tokens", 2, 1.0, 1.0);
    const dp_compare_options loose = {.expect = DP_EXPECT_ULP, .ulp = 1000};
    const dp_file_stage stage = stage_of(&loose, "markov.tokens", DP_FAIL);
    ck_assert_int_eq(stage.pair.first, 2);
    ck_assert_int_eq(stage.pair.differing, 1);
}
END_TEST

START_TEST(zeros_of_other_signs_are_equal_and_not_identical) {
    int64_t count;
    rc_open("tiny-plain");
    float *values = rc_values("final", &count);
    values[0] = 0.0f;
    rc_put_values("final", values);
    scratch_copy(sf_path, "a.h5");
    values[0] = -0.0f;
    rc_put_values("final", values);
    free(values);
    ck_assert_int_eq(stage_of(&(dp_compare_options){.filter = NULL}, "final", DP_FAIL).pair.reached, DP_BITS_EQUAL);
    ck_assert(stage_of(&(dp_compare_options){.expect = DP_EXPECT_EQUAL}, "final", DP_PASS).pass);
}
END_TEST

START_TEST(a_lent_oracle_judges_two_recordings_by_its_bars) {
    char oracle[SCRATCH_PATH];
    rc_open("tiny-plain");
    dp_compare_options how = {.files = {.limits = scratch_path("case.h5", oracle)}};
    ck_assert(stage_of(&how, "layers.1.out", DP_PASS).barred);
    chosen_index = 77;
    rc_change("layers.1.out", is_chosen, 1.0000002f, 0.0f);
    const dp_file_stage near = stage_of(&how, "layers.1.out", DP_PASS);
    ck_assert(near.pair.differing == 1 && near.headroom > 0.0 && near.headroom < 1.0);
    rc_change("layers.1.out", is_chosen, 1.0f, 0.01f);
    const dp_file_stage far = stage_of(&how, "layers.1.out", DP_FAIL);
    ck_assert_int_eq(far.pair.reached, DP_BITS_DIVERGENT);
    ck_assert(far.headroom < 0.0);
    how.files.limits = "oracles/tiny-hot.h5";
    dp_file_comparison c;
    rc_compare(&how, &c);
    ck_assert_str_eq(c.error.code, "geometry.field.differs");
    dp_file_comparison_release(&c);
    how = (dp_compare_options){.expect = DP_EXPECT_ENVELOPE};
    rc_compare(&how, &c);
    ck_assert_str_eq(c.error.code, "compare.expect");
    dp_file_comparison_release(&c);
}
END_TEST

/* A relative error of 1e-5 of one element, at every float stage in turn. */
START_TEST(an_error_of_1e_5_in_any_stage_is_the_first_that_is_named) {
    rc_open("tiny-dflash2");
    dp_file_comparison c;
    rc_compare(&(dp_compare_options){.filter = NULL}, &c);
    const int stages = c.count;
    char names[128][DFLASH_STAGE_NAME_MAX];
    ck_assert_int_le(stages, 128);
    bool exact[128];
    for (int i = 0; i < stages; i++) {
        snprintf(names[i], sizeof names[i], "%s", c.stage[i].spec.name);
        exact[i] = c.stage[i].spec.exact;
    }
    dp_file_comparison_release(&c);
    int injected = 0;
    for (int i = 0; i < stages; i++) {
        int64_t count;
        if (exact[i]) continue;
        float *values = rc_values(names[i], &count), *kept = malloc((size_t)count * sizeof *kept);
        ck_assert_ptr_nonnull(kept);
        memcpy(kept, values, (size_t)count * sizeof *kept);
        values[count / 2] *= 1.00001f;
        if (values[count / 2] == kept[count / 2]) values[count / 2] += 1e-5f; /* it was zero */
        rc_put_values(names[i], values);
        rc_compare(&(dp_compare_options){.filter = NULL}, &c);
        const dp_file_stage *first = dp_first_divergent_file_stage(&c);
        ck_assert_ptr_nonnull(first);
        ck_assert_str_eq(first->spec.name, names[i]);
        ck_assert_int_eq(first->pair.first, count / 2);
        ck_assert_int_eq(c.failed, 1);
        dp_file_comparison_release(&c);
        rc_put_values(names[i], kept);
        free(values);
        free(kept);
        injected++;
    }
    ck_assert_int_ge(injected, 50);
}
END_TEST

/* ---- The command ---- */

START_TEST(the_command_has_an_exit_code_for_every_outcome) {
    char oracle[SCRATCH_PATH];
    rc_open("tiny-plain");
    scratch_path("case.h5", oracle);
    child_expect(CHILD("compare", rc_a, sf_path), 0, "PASS: 59 of 59 stages compared", "");
    child_expect(CHILD("compare", oracle, sf_path), 0, "expected: inside envelope", "");
    child_expect(CHILD("compare", sf_path, oracle), 0, "PASS", "");
    child_expect(CHILD("compare", rc_a, sf_path, "-k", "layers.1.*"), 0, "not the whole comparison", "");
    child_expect(CHILD("compare", rc_a, sf_path, "-k", "no.stage"), 5, "NOTHING COMPARED", "");
    child_expect(CHILD("compare", rc_a, sf_path, "--list", "-k", "rope.*"), 0, "rope.inv_freq\nrope.cos\nrope.sin\n",
                 "");
    child_expect(CHILD("compare", rc_a, "oracles/tiny-hot.h5"), 3, "REFUSED: geometry.field.differs", "");
    child_expect(CHILD("compare", rc_a, "oracles/README.md"), 3, "oracle.format", "");
    child_expect(CHILD("compare", rc_a, "no-such-file"), 4, "oracle.open", "");
    child_expect(CHILD("compare", rc_a), 2, "", "two files are needed");
    child_expect(CHILD("compare", rc_a, sf_path, "--expect", "ulp:0"), 2, "", "found 'ulp:0'");
    child_expect(CHILD("compare", rc_a, sf_path, "third"), 2, "", "unknown word 'third'");
    chosen_index = 12;
    rc_change("layers.0.attn.v", is_chosen, 1.0f, 1.0f);
    cJSON *json = child_json(CHILD("compare", rc_a, sf_path, "--json"), 1);
    ck_assert_str_eq(child_text(json, "verdict"), "FAIL");
    ck_assert_str_eq(child_text(json, "first_divergent"), "layers.0.attn.v");
    cJSON_Delete(json);
}
END_TEST

START_TEST(modes_are_compared_only_on_request_and_the_report_says_so) {
    char other[SCRATCH_PATH];
    rc_open("tiny-plain");
    scratch_path("q8.h5", other);
    child_expect(CHILD("record", "--case", "tiny-plain", "--precision", "q8_0", "--out", other), 0, "q8_0", "");
    child_expect(CHILD("compare", rc_a, other), 3, "REFUSED: compare.precision", "");
    child_expect(CHILD("compare", rc_a, other, "--across-precisions"), 1, "across precisions: stored against q8_0", "");
    cJSON *json = child_json(CHILD("compare", rc_a, other, "--across-precisions", "--json"), 1);
    ck_assert(cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "across_precisions")));
    cJSON_Delete(json);
}
END_TEST

Suite *suite_recording(void) {
    Suite *suite = suite_create("recording");
    TCase *tests = tcase_create("compare");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, scratch_open, scratch_close);
    tcase_add_loop_test(tests, files_of_another_drafter_weights_or_precision_are_refused_by_field, 0, RECORDS);
    tcase_add_test(tests, files_of_other_inputs_are_refused_by_input_and_element);
    tcase_add_loop_test(tests, a_geometry_that_no_drafter_has_is_refused, 0, MALFORMED);
    tcase_add_test(tests, a_run_of_other_weights_is_recorded_and_then_refused);
    tcase_add_test(tests, a_stage_that_is_lacking_extra_or_of_another_shape_fails);
    tcase_add_test(tests, a_stage_that_the_geometry_does_not_have_fails);
    tcase_add_test(tests, classes_and_expectations_go_together);
    tcase_add_test(tests, an_integer_that_differs_fails_whatever_is_expected);
    tcase_add_test(tests, zeros_of_other_signs_are_equal_and_not_identical);
    tcase_add_test(tests, a_lent_oracle_judges_two_recordings_by_its_bars);
    tcase_add_test(tests, an_error_of_1e_5_in_any_stage_is_the_first_that_is_named);
    tcase_add_test(tests, the_command_has_an_exit_code_for_every_outcome);
    tcase_add_test(tests, modes_are_compared_only_on_request_and_the_report_says_so);
    suite_add_tcase(suite, tests);
    recording_add_record(suite);
    return suite;
}
