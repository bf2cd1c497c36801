/*
 * test_ladder.c - the precision ladder: what each mode does to error and tokens, modes that a checkpoint refuses,
 * oracles that cannot serve, and the command's words and JSON.
 */
#include "support/child.h"
#include "check/ladder.h"
#include "support/scratch.h"

#include <math.h>
#include <string.h>

static dp_run_setup setup_of(const char *checkpoint, const char *oracle) {
    return (dp_run_setup){.checkpoint = checkpoint, .oracle = oracle, .engine = {.threads = 2}};
}

static dp_ladder ladder_of(const char *checkpoint, const char *oracle, const char *const *name, int count) {
    const dp_run_setup setup = setup_of(checkpoint, oracle);
    dp_mode mode[DP_LADDER_MOST];
    dp_ladder ladder;
    dflash_error err = {.status = DFLASH_OK};
    if (name == NULL) count = dp_ladder_default(mode);
    for (int i = 0; name != NULL && i < count; i++) ck_assert(dp_mode_parse(name[i], &mode[i]));
    ck_assert_msg(dp_ladder_run(&setup, mode, count, &ladder, &err) == DFLASH_OK, "%s", err.message);
    return ladder;
}

START_TEST(a_mode_has_a_name_that_is_parsed_back) {
    static const char *const good[] = {"stored", "f32", "q4_0", "mixed", "stored+tf32", "q8_0+bf16"};
    static const char *const bad[] = {"",        "q5_0",          "+tf32", "f32+",
                                      "f32+f16", "f32+tf32+bf16", "TF32",  "a_name_that_is_longer_than_any_mode"};
    dp_mode mode;
    char name[DP_MODE_NAME];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ck_assert(dp_mode_parse(good[i], &mode));
        ck_assert_str_eq(dp_mode_name(mode, name), good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) ck_assert_msg(!dp_mode_parse(bad[i], &mode), "%s", bad[i]);
}
END_TEST

START_TEST(drift_follows_the_width_of_what_is_multiplied) {
    static const char *const names[] = {"stored", "stored+tf32", "stored+bf16", "q8_0", "q4_0"};
    dp_ladder ladder = ladder_of("fixtures/small/tiny-dflash2", "oracles/tiny-dflash2.h5", names, 5);
    ck_assert_int_eq(ladder.ran, 5);
    ck_assert_int_eq(ladder.layers, 2);
    /* float32 keeps 24 bits, TF32 11, bf16 8: each step is some powers of two, and every layer shows it. */
    for (int i = 1; i < 5; i++) {
        for (int layer = 0; layer < ladder.layers; layer++)
            ck_assert(ladder.rung[i].layer[layer] > 2 * ladder.rung[i - 1].layer[layer]);
        ck_assert(ladder.rung[i].final > 2 * ladder.rung[i - 1].final);
        ck_assert(ladder.rung[i].logit_error > 2 * ladder.rung[i - 1].logit_error);
        ck_assert_int_ge(ladder.rung[i].endangered, ladder.rung[i - 1].endangered);
    }
    const dp_rung *stored = &ladder.rung[0], *coarse = &ladder.rung[4];
    ck_assert(stored->final < 1e-5 && stored->argmax.known && stored->argmax.changed == 0 &&
              stored->argmax.first == -1);
    ck_assert(stored->token.known && stored->token.changed == 0 && stored->endangered == 0);
    ck_assert(coarse->token.changed > 0 && coarse->token.first >= 0 && coarse->token.count == ladder.slots);
    /* A choice can only change where its margin is within the error. */
    for (int i = 0; i < 5; i++) ck_assert_int_le(ladder.rung[i].argmax.changed, ladder.rung[i].endangered);
    dp_ladder_release(&ladder);
}
END_TEST

START_TEST(a_model_without_a_head_has_no_tokens_to_change) {
    dp_ladder ladder = ladder_of("fixtures/small/tiny-plain", "oracles/tiny-plain.h5", NULL, 0);
    ck_assert_int_eq(ladder.count, 8);
    ck_assert_int_eq(ladder.slots, 0);
    for (int i = 0; i < 8; i++) ck_assert(!ladder.rung[i].head && !ladder.rung[i].token.known);
    dp_ladder_release(&ladder);
}
END_TEST

START_TEST(a_row_with_a_value_that_is_not_finite_chooses_nothing_and_is_in_danger) {
    static const double truth[] = {3.0, 1.0, 2.0};
    static const float near[] = {3.25F, 1.0F, 2.0F}, first[] = {NAN, 1.0F, 2.0F}, last[] = {3.0F, 1.0F, NAN},
                       huge[] = {INFINITY, 1.0F, 2.0F};
    ck_assert_int_eq(dp_ladder_argmax(near, 3), 0);
    ck_assert_int_eq(dp_ladder_argmax(first, 3), -1); /* and not slot 0, which is right by accident */
    ck_assert_int_eq(dp_ladder_argmax(last, 3), -1);
    ck_assert(!dp_ladder_endangered(near, truth, 3, 1.0));
    ck_assert(dp_ladder_endangered(near, truth, 3, 0.5)); /* exactly twice the error: a tie may fall either way */
    ck_assert(dp_ladder_endangered(first, truth, 3, 1.0));
    ck_assert(dp_ladder_endangered(last, truth, 3, 1.0));
    ck_assert(dp_ladder_endangered(huge, truth, 3, 1.0));
}
END_TEST

START_TEST(sampled_logits_leave_margins_unknown_and_nothing_made_up) {
    static const char *const names[] = {"stored", "q4_0"};
    dp_ladder ladder = ladder_of("fixtures/small/tiny-dflash2", "oracles/tiny-dflash2-far.h5", names, 2);
    ck_assert(ladder.least_margin < 0.0);
    ck_assert_int_eq(ladder.rung[1].endangered, -1);
    ck_assert(ladder.rung[0].argmax.known &&
              ladder.rung[0].argmax.changed == 0); /* against the run of stored weights */
    ck_assert(ladder.rung[1].token.known);
    dp_ladder_release(&ladder);
}
END_TEST

START_TEST(a_mode_that_the_checkpoint_refuses_is_a_rung_that_says_so) {
    static const char *const names[] = {"f32", "q8_0"};
    dp_ladder ladder = ladder_of("fixtures/small/tiny-edge", "oracles/tiny-edge.h5", names, 2);
    ck_assert_int_eq(ladder.ran, 1);
    ck_assert_int_eq(ladder.count, 2);
    ck_assert_int_eq(ladder.rung[1].error.status, DFLASH_ERR_REFUSED);
    ck_assert(ladder.rung[1].error.code[0] != '\0' && ladder.rung[1].layer == NULL);
    dp_ladder_release(&ladder);
    child run = CHILD("ladder", "--case", "tiny-edge", "--modes", "q8_0");
    child_expect(run, 5, "q8_0: refused: ", "");
}
END_TEST

START_TEST(an_oracle_that_cannot_serve_is_refused) {
    const dp_run_setup other = setup_of("fixtures/small/tiny-plain", "oracles/tiny-plain-q8_0.h5");
    const dp_mode mode = {.precision = DFLASH_PRECISION_F32};
    dp_ladder ladder;
    dflash_error err;
    ck_assert_int_eq(dp_ladder_run(&other, &mode, 1, &ladder, &err), DFLASH_ERR_REFUSED);
    ck_assert_str_eq(err.code, "ladder.precision");
    dp_ladder_release(&ladder);
    scratch_open();
    scratch_copy_case("tiny-plain"); /* weights that are not the oracle's would be taken for drift */
    scratch_flip_weight("layers.1.mlp.up_proj.weight", 5, 3, false);
    const dp_run_setup flipped = setup_of(sf_folder, sf_path);
    ck_assert_int_eq(dp_ladder_run(&flipped, &mode, 1, &ladder, &err), DFLASH_ERR_REFUSED);
    ck_assert_str_eq(err.code, "provenance.tensor.differs");
    dp_ladder_release(&ladder);
    scratch_close();
}
END_TEST

START_TEST(the_command_prints_a_table_and_json_and_is_no_gate) {
    child_expect(CHILD("ladder", "--case", "tiny-dflash2"), 0, "path (tokens) changed", "");
    cJSON *json =
        child_json(CHILD("ladder", "--case", "tiny-dspark-gated", "--modes", "q4_0,stored+bf16", "--json"), 0);
    ck_assert_str_eq(child_text(json, "schema"), "dflash-parity-ladder");
    const cJSON *modes = cJSON_GetObjectItemCaseSensitive(json, "modes");
    ck_assert_int_eq(cJSON_GetArraySize(modes), 2);
    ck_assert_str_eq(child_text(cJSON_GetArrayItem(modes, 1), "products"), "bf16");
    const cJSON *tokens = cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(modes, 0), "tokens");
    ck_assert(cJSON_GetObjectItemCaseSensitive(tokens, "changed")->valuedouble > 0); /* and still exit code 0 */
    cJSON_Delete(json);
    child_expect(CHILD("ladder", "--case", "tiny-plain", "--modes", "f32,q5_0"), 2, "", "found 'q5_0'");
    child_expect(CHILD("ladder", "--case", "tiny-plain", "--modes", ""), 2, "", "found ''");
    child_expect(CHILD("ladder", "--case", "tiny-plain", "-k", "x"), 2, "", "-k and --list do not apply");
    child_expect(CHILD("ladder"), 2, "", "either --checkpoint and --oracle, or --case");
    child_expect(CHILD("ladder", "--case", "tiny-plain-q4_0"), 3, "", "ladder.precision");
}
END_TEST

Suite *suite_ladder(void) {
    Suite *suite = suite_create("ladder");
    TCase *tests = tcase_create("ladder");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_mode_has_a_name_that_is_parsed_back);
    tcase_add_test(tests, drift_follows_the_width_of_what_is_multiplied);
    tcase_add_test(tests, a_model_without_a_head_has_no_tokens_to_change);
    tcase_add_test(tests, a_row_with_a_value_that_is_not_finite_chooses_nothing_and_is_in_danger);
    tcase_add_test(tests, sampled_logits_leave_margins_unknown_and_nothing_made_up);
    tcase_add_test(tests, a_mode_that_the_checkpoint_refuses_is_a_rung_that_says_so);
    tcase_add_test(tests, an_oracle_that_cannot_serve_is_refused);
    tcase_add_test(tests, the_command_prints_a_table_and_json_and_is_no_gate);
    suite_add_tcase(suite, tests);
    return suite;
}
