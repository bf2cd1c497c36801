/* test_embedding.c - the stage `input`: what a check refuses of an oracle that claims one, and what fails there. */
#include "support/check_case.h"

#include "suites.h"

#include "bisect/file_pair.h"
#include "support/scratch.h"

#include <stdlib.h>
#include <string.h>

static void setup(void) {
    scratch_open();
    scratch_copy_case("tiny-embed");
}

START_TEST(a_right_case_passes_and_shows_the_stage) {
    static const char *const names[] = {"tiny-embed", "tiny-embed-dspark", "tiny-embed-dflash2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        dp_result result;
        scratch_copy_case(names[i]);
        scratch_check(NULL, &result);
        ck_assert_msg(result.verdict == DP_PASS, "%s: %s %s", names[i], result.error.code, result.error.message);
        const dp_stage_result *input = dp_stage_named(&result, "input");
        ck_assert_ptr_nonnull(input);
        ck_assert(input->isolated.judged && input->isolated.pass && input->pass);
        /* without a scale the rows are copies: nothing is rounded and nothing may differ */
        if (i == 1) ck_assert(!(input->isolated.share > 0.0) && !(input->difference.max_abs > 0.0));
        dp_result_release(&result);
    }
}
END_TEST

START_TEST(an_oracle_without_a_table_has_no_such_stage) {
    dp_result result;
    scratch_copy_case("tiny-plain");
    scratch_check(NULL, &result);
    ck_assert(result.verdict == DP_PASS && dp_stage_named(&result, "input") == NULL);
    dp_result_release(&result);
}
END_TEST

START_TEST(ids_that_are_not_the_anchor_and_the_mask_are_refused) {
    int64_t count;
    double *ids = scratch_values("/inputs/block_ids", &count);
    ck_assert_int_eq(count, 5);
    ids[3] = 158;
    scratch_set_values("/inputs/block_ids", ids);
    free(ids);
    scratch_expect_stop(DP_REFUSED, "oracle.block_ids", "token 158 in row 3", "expected 159", "mask token");
    scratch_copy_case("tiny-embed-dspark");
    ids = scratch_values("/inputs/block_ids", &count);
    ids[0] = 17;
    scratch_set_values("/inputs/block_ids", ids);
    free(ids);
    scratch_expect_stop(DP_REFUSED, "oracle.block_ids", "token 17 in row 0", "expected 159", "input anchor");
}
END_TEST

START_TEST(ids_of_another_number_are_refused) {
    const hsize_t dim[] = {4};
    scratch_reshape("/inputs/block_ids", DP_LOGICAL_I32, 1, dim);
    scratch_expect_stop(DP_REFUSED, "oracle.shape", "block_ids", "5 rows", "4 values");
}
END_TEST

START_TEST(ids_and_the_record_of_the_table_come_together) {
    scratch_edit_record("provenance", "embedding", NULL);
    scratch_expect_stop(DP_REFUSED, "provenance.embedding.missing", "block_ids and no embedding record", NULL, NULL);
    scratch_edit_record("provenance", "embedding", "{\"dtype\":\"BF16\",\"shape\":[160,48]}");
    scratch_expect_stop(DP_REFUSED, "provenance.embedding.missing", "has no embedding", "block_ids", NULL);
}
END_TEST

START_TEST(noise_that_is_not_what_the_reference_embedded_is_refused) {
    scratch_change_value("/inputs/noise_embedding", 50, 1.0 + 0x1p-20, 0.0);
    scratch_expect_stop(DP_REFUSED, "oracle.input.embedding", "element 50", NULL, NULL);
}
END_TEST

START_TEST(a_stage_left_out_is_refused) {
    sf_remove_link("/stages/float32/input");
    sf_remove_link("/stages/float64/input");
    sf_remove_link("/stages/bfloat16/input");
    scratch_expect_stop(DP_REFUSED, "oracle.stage.missing", "input", NULL, NULL);
}
END_TEST

START_TEST(another_table_is_refused_by_its_digest_and_none_by_name) {
    scratch_flip_weight("embed_tokens.weight", 48 * 100, 3, false);
    scratch_expect_stop(DP_REFUSED, "provenance.embedding.differs", "SHA-256", "embedding table", NULL);
    scratch_copy_case("tiny-embed");
    tf_file *tensors = scratch_tensors();
    tf_remove(tensors, "embed_tokens.weight");
    scratch_put_tensors(tensors);
    scratch_expect_stop(DP_REFUSED, "table.tensor.missing", "embed_tokens.weight", NULL, NULL);
}
END_TEST

/* The drafter multiplies by what its config says, the reference has multiplied by something else. */
START_TEST(another_scale_fails_at_the_embedding) {
    scratch_edit_config("dflash_config/input_embedding_scale", "7");
    scratch_edit_record("geometry", "input_embedding_scale", "7");
    scratch_expect_failure("input");
}
END_TEST

/* One value off by far less than a float32 rounding, and by more than float64 may err: the reference contradicts
 * itself.
 */
START_TEST(a_reference_that_is_off_by_little_fails_alone) {
    dp_result result;
    scratch_change_value("/stages/float64/input", 7, 1.0 + 0x1p-40, 0.0);
    scratch_check(NULL, &result);
    ck_assert_int_eq(result.verdict, DP_FAIL);
    const dp_stage_result *input = dp_stage_named(&result, "input");
    ck_assert(input->pass && !input->isolated.pass);
    ck_assert(input->isolated.share <= 1.0 && input->isolated.oracle_share > 1.0);
    dp_result_release(&result);
}
END_TEST

Suite *suite_embedding(void) {
    Suite *suite = suite_create("embedding");
    TCase *tests = tcase_create("the stage input");
    tcase_add_checked_fixture(tests, setup, scratch_close);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_right_case_passes_and_shows_the_stage);
    tcase_add_test(tests, an_oracle_without_a_table_has_no_such_stage);
    tcase_add_test(tests, ids_that_are_not_the_anchor_and_the_mask_are_refused);
    tcase_add_test(tests, ids_of_another_number_are_refused);
    tcase_add_test(tests, ids_and_the_record_of_the_table_come_together);
    tcase_add_test(tests, noise_that_is_not_what_the_reference_embedded_is_refused);
    tcase_add_test(tests, a_stage_left_out_is_refused);
    tcase_add_test(tests, another_table_is_refused_by_its_digest_and_none_by_name);
    tcase_add_test(tests, another_scale_fails_at_the_embedding);
    tcase_add_test(tests, a_reference_that_is_off_by_little_fails_alone);
    suite_add_tcase(suite, tests);
    return suite;
}
