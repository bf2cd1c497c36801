/*
 * test_check_oracle.c - oracles that are of something else, incomplete, damaged or moved, seen through the whole gate.
 *
 * What the store refuses by itself is test_store_refusals.c's; here it must also stop the gate, with nothing compared.
 */
#include "support/check_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "/stages/float64/NAME" for a run. */
static const char *object_of(dp_run run, const char *stage, char out[96]) {
    snprintf(out, 96, "/stages/%s/%s", dp_run_name(run), stage);
    return out;
}

START_TEST(an_oracle_of_another_checkpoint_is_refused) {
    scratch_copy_case("tiny-plain");
    scratch_copy("oracles/tiny-hot.h5", "oracle.h5");
    scratch_expect_stop(DP_REFUSED, "geometry.field.differs", " hidden_size ", "says 96,", "claims 80.");
}
END_TEST

START_TEST(an_oracle_of_another_schema_version_is_refused) {
    const int64_t version[] = {1, 3};
    for (int i = 0; i < 2; i++) {
        scratch_copy_case("tiny-plain");
        sf_set_ints("/", "schema_version", H5T_STD_I32LE, &version[i], 0);
        scratch_expect_stop(DP_REFUSED, "oracle.schema.version", "expected schema version 2",
                            "Generate the oracle again", i == 0 ? "found 1" : "found 3");
    }
}
END_TEST

START_TEST(a_recording_cannot_judge) {
    scratch_copy_case("tiny-plain");
    sf_set_text("/", "kind", "recording");
    scratch_expect_stop(DP_REFUSED, "oracle.kind", "expected the kind \"oracle\"", "found \"recording\"", NULL);
}
END_TEST

START_TEST(a_stage_missing_from_every_run_is_refused) {
    static const char *const stages[] = {"ctx.fc", "layers.1.mlp.act", "final", "kv.v", "rope.inv_freq"};
    char object[96];
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        scratch_copy_case("tiny-plain");
        for (int run = 0; run < DP_RUN_COUNT; run++) sf_remove_link(object_of((dp_run)run, stages[i], object));
        scratch_expect_stop(DP_REFUSED, "oracle.stage.missing", stages[i], NULL, NULL);
    }
}
END_TEST

START_TEST(a_stage_missing_from_one_run_is_refused) {
    char object[96];
    scratch_copy_case("tiny-plain");
    sf_remove_link(object_of(DP_RUN_F32, "layers.0.out", object));
    scratch_expect_stop(DP_REFUSED, "oracle.stage.missing", "layers.0.out", "float64", "float32");
}
END_TEST

START_TEST(a_stage_that_the_model_does_not_have_is_refused) {
    static const char *const extra[] = {"layers.3.out", "layers.0.attn.conv_in", "logits"};
    char from[96], to[96];
    for (size_t i = 0; i < sizeof extra / sizeof *extra; i++) {
        scratch_copy_case("tiny-plain");
        for (int run = 0; run < DP_RUN_COUNT; run++) {
            const hid_t file = sf_edit();
            ck_assert_int_ge(H5Ocopy(file, object_of((dp_run)run, "layers.2.out", from), file,
                                     object_of((dp_run)run, extra[i], to), H5P_DEFAULT, H5P_DEFAULT),
                             0);
            H5Fclose(file);
        }
        scratch_expect_stop(DP_REFUSED, "oracle.stage.unexpected", extra[i], "3 layers", NULL);
    }
}
END_TEST

START_TEST(a_shape_that_only_multiplies_out_the_same_is_refused) {
    static const dp_logical dtype[] = {DP_LOGICAL_F64, DP_LOGICAL_F32, DP_LOGICAL_BF16};
    const hsize_t turned[] = {32, 29}, flat[] = {29 * 32}, split[] = {29, 2, 16};
    const struct {
        int rank;
        const hsize_t *dim;
        const char *found;
    } shapes[] = {{2, turned, "found [32, 29]"}, {1, flat, "found [928]"}, {3, split, "found [29, 2, 16]"}};
    char object[96];
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        scratch_copy_case("tiny-plain");
        for (int run = 0; run < DP_RUN_COUNT; run++)
            scratch_reshape(object_of((dp_run)run, "layers.0.attn.v", object), dtype[run], shapes[i].rank,
                            shapes[i].dim);
        scratch_expect_stop(DP_REFUSED, "oracle.shape", "layers.0.attn.v", "expected [29, 32]", shapes[i].found);
    }
}
END_TEST

START_TEST(a_flipped_byte_is_refused) {
    char object[96];
    int64_t count;
    size_t bytes;
    scratch_copy_case("tiny-plain");
    object_of(DP_RUN_F64, "layers.2.out", object);
    double *value = scratch_values(object, &count);
    unsigned char *file = sf_slurp(&bytes), *at = memmem(file, bytes, value, (size_t)count * sizeof *value);
    ck_assert_ptr_nonnull(at);
    at[101] ^= 1;
    sf_spill(file, bytes);
    scratch_expect_stop(DP_REFUSED, "oracle.read", object, NULL, NULL);
    free(file);
    free(value);
}
END_TEST

START_TEST(a_value_altered_with_its_checksum_but_not_its_digest_is_refused) {
    char object[96], digest[65];
    scratch_copy_case("tiny-plain");
    object_of(DP_RUN_BF16, "final", object);
    memset(digest, '0', 64);
    digest[64] = '\0';
    sf_set_text(object, "sha256", digest);
    scratch_expect_stop(DP_REFUSED, "oracle.digest", object, digest, NULL);
}
END_TEST

START_TEST(a_truncated_oracle_is_refused) {
    scratch_copy_case("tiny-plain");
    ck_assert_int_eq(truncate(sf_path, 300000), 0);
    scratch_expect_stop(DP_REFUSED, "oracle.damaged", sf_path, NULL, NULL);
    ck_assert_int_eq(truncate(sf_path, 4), 0);
    scratch_expect_stop(DP_REFUSED, "oracle.format", sf_path, NULL, NULL);
}
END_TEST

/* ---- Inputs ---- */

START_TEST(inputs_of_another_context_are_refused) {
    const hsize_t fewer[] = {23, 288}, positions[] = {28};
    scratch_copy_case("tiny-plain");
    scratch_reshape("/inputs/positions", DP_LOGICAL_I32, 1, positions);
    scratch_expect_stop(DP_REFUSED, "oracle.positions", "28 entries", "24 rows", "5 rows");
    /* Agreeing among themselves, but not with the stages. */
    scratch_reshape("/inputs/target_hidden", DP_LOGICAL_BF16, 2, fewer);
    scratch_expect_stop(DP_REFUSED, "oracle.shape", "ctx.fc", "expected [23, 96]", "found [24, 96]");
}
END_TEST

START_TEST(inputs_of_another_width_are_refused) {
    const hsize_t taps[] = {24, 192}, noise[] = {5, 48};
    scratch_copy_case("tiny-plain");
    scratch_reshape("/inputs/target_hidden", DP_LOGICAL_BF16, 2, taps);
    scratch_expect_stop(DP_REFUSED, "oracle.shape", "target_hidden", "expected [24, 288]", "found [24, 192]");
    scratch_copy_case("tiny-plain");
    scratch_reshape("/inputs/noise_embedding", DP_LOGICAL_BF16, 2, noise);
    scratch_expect_stop(DP_REFUSED, "oracle.shape", "noise_embedding", "expected [5, 96]", "found [5, 48]");
}
END_TEST

START_TEST(an_input_that_float32_cannot_hold_is_refused_and_not_rounded) {
    const hsize_t shape[] = {5, 96};
    scratch_copy_case("tiny-plain");
    scratch_reshape("/inputs/noise_embedding", DP_LOGICAL_F64, 2, shape);
    scratch_change_value("/inputs/noise_embedding", 17, 0.0, 0.1);
    scratch_expect_stop(DP_REFUSED, "oracle.input.precision", "noise_embedding", "0.1", "element 17");
}
END_TEST

START_TEST(a_changed_input_fails_where_it_enters) {
    scratch_copy_case("tiny-plain");
    scratch_change_value("/inputs/target_hidden", 1000, 1.0, 1.0); /* the next bf16 value */
    scratch_expect_failure("ctx.fc");
    scratch_copy_case("tiny-plain");
    scratch_change_value("/inputs/noise_embedding", 100, 1.0, 1.0);
    scratch_expect_failure("layers.0.attn.norm");
    scratch_copy_case("tiny-plain");
    scratch_change_value("/inputs/positions", 28, 1.0, 1.0); /* the block's last row, one further */
    scratch_expect_failure("rope.cos");
}
END_TEST

/* ---- Values ---- */

/* Root mean square of the row of `width` values that holds `index`. */
static double row_rms(const char *object, int64_t index, int64_t width) {
    int64_t count;
    double *value = scratch_values(object, &count), sum = 0.0;
    for (int64_t i = index / width * width; i < (index / width + 1) * width; i++) sum += value[i] * value[i];
    free(value);
    return sqrt(sum / (double)width);
}

static dp_stage_result stage_result(const char *stage) {
    dp_result result;
    scratch_check(stage, &result);
    ck_assert_int_eq(result.stage_count, 1);
    const dp_stage_result found = result.stage[0];
    dp_result_release(&result);
    return found;
}

/* The float64 run and, by as much, the float32 run: the reference computed something else there. */
static void move_reference(const char *stage, int64_t index, double term) {
    char object[96];
    scratch_change_value(object_of(DP_RUN_F64, stage, object), index, 1.0, term);
    scratch_change_value(object_of(DP_RUN_F32, stage, object), index, 1.0, term);
}

START_TEST(a_reference_value_moved_by_ten_bars_fails_that_stage_alone) {
    static const struct {
        const char *stage;
        int64_t width, index;
    } cases[] = {
        {"layers.1.mlp.up", 160, 333}, {"ctx.features", 96, 700}, {"layers.2.attn.k_norm", 32, 33}, {"kv.v", 32, 999}};
    char object[96];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dp_result result;
        const char *stage = cases[i].stage;
        scratch_copy_case("tiny-plain");
        const double limit = stage_result(stage).limit.max_rel;
        move_reference(stage, cases[i].index,
                       10 * limit * row_rms(object_of(DP_RUN_F64, stage, object), cases[i].index, cases[i].width));
        scratch_check(NULL, &result);
        ck_assert_msg(result.verdict == DP_FAIL, "%s", result.error.message);
        ck_assert_int_eq(result.failed_stages, 1);
        ck_assert_int_eq(result.failed_variants, 0);
        ck_assert_str_eq(dp_worst_stage(&result)->name, stage);
        ck_assert_int_eq(dp_worst_stage(&result)->difference.worst, cases[i].index);
        ck_assert(dp_worst_stage(&result)->headroom < -7.0 && dp_worst_stage(&result)->headroom > -11.0);
        dp_result_release(&result);
    }
}
END_TEST

START_TEST(a_reference_value_moved_by_a_part_in_a_billion_is_no_error_of_ours_but_a_lie_of_the_oracles) {
    char object[96];
    dp_result result;
    scratch_copy_case("tiny-plain");
    scratch_change_value(object_of(DP_RUN_F64, "layers.1.mlp.up", object), 333, 1 + 1e-9, 0.0);
    scratch_change_value(object_of(DP_RUN_F64, "final", object), 20, 1 - 1e-9, 0.0);
    scratch_check(NULL, &result);
    ck_assert_int_eq(result.failed_stages, 0);
    ck_assert_int_eq(result.verdict, DP_FAIL);
    for (int i = 0; i < result.stage_count; i++) {
        const dp_isolated *alone = &result.stage[i].isolated;
        const char *name = result.stage[i].name;
        /* Where it was moved, and where the moved value is what the next stage comes from. */
        const bool moved =
            strcmp(name, "layers.1.mlp.up") == 0 || strcmp(name, "layers.1.mlp.act") == 0 || strcmp(name, "final") == 0;
        ck_assert_msg(alone->pass != moved && alone->share <= 1.0, "%s", name);
    }
    dp_result_release(&result);
}
END_TEST

/* The reference is moved to make the headroom little, which its own inputs then contradict: the verdict is not a pass,
 * and the chained comparison alone is looked at. */
START_TEST(little_headroom_is_a_warning_and_no_failure_of_the_chained_stage) {
    char object[96];
    dp_result result;
    scratch_copy_case("tiny-plain");
    const dp_stage_result before = stage_result("layers.1.mlp.up");
    const int64_t at = before.difference.worst;
    move_reference("layers.1.mlp.up", at,
                   before.difference.worst_got - before.difference.worst_want +
                       0.9 * before.limit.max_rel * row_rms(object_of(DP_RUN_F64, "layers.1.mlp.up", object), at, 160));
    scratch_check(NULL, &result);
    ck_assert_int_eq(result.failed_stages, 0);
    ck_assert_int_eq(result.warnings, 1);
    ck_assert_str_eq(dp_worst_stage(&result)->name, "layers.1.mlp.up");
    ck_assert(dp_worst_stage(&result)->headroom < DP_WARN_HEADROOM && dp_worst_stage(&result)->headroom >= 0.0);
    dp_result_release(&result);
}
END_TEST

START_TEST(an_oracle_cannot_widen_its_own_bars) {
    /* A run that is wrong alone makes the reference spread, and with it the limit, as large as its error. */
    char object[96];
    int64_t count;
    for (int run = DP_RUN_F64; run <= DP_RUN_F32; run++) {
        scratch_copy_case("tiny-plain");
        object_of((dp_run)run, "layers.2.out", object);
        double *value = scratch_values(object, &count);
        for (int64_t i = 0; i < count; i++) value[i] *= 2.0;
        scratch_set_values(object, value);
        free(value);
        scratch_expect_stop(DP_REFUSED, "oracle.bracket", "layers.2.out", "float32 run", "relative L2");
    }
    scratch_copy_case("tiny-plain");
    scratch_change_value(object_of(DP_RUN_F64, "final", object), 20, 1.01, 0.0);
    scratch_expect_stop(DP_REFUSED, "oracle.bracket", " final ", NULL, NULL);
}
END_TEST

START_TEST(one_wrong_element_cannot_hide_behind_the_norm_of_its_stage) {
    /* 1.8e-4 of the row's rms in one of 480 values: 8.2e-6 in relative L2, which the bfloat16 run's distance allows. */
    char object[96];
    scratch_copy_case("tiny-plain");
    object_of(DP_RUN_F32, "final", object);
    scratch_change_value(object, 20, 1.0, 1.8e-4 * row_rms(object, 20, 96));
    scratch_expect_stop(DP_REFUSED, "oracle.bracket", " final ", "largest error relative", NULL);
}
END_TEST

START_TEST(the_spread_of_float32_is_claimed_for_every_stage_and_cannot_widen_a_bar) {
    static const char *const broken[] = {NULL, "[1e-7]", "[-1e-7, 1e-7]", "[1e-7, \"wide\"]"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        scratch_copy_case("tiny-plain");
        scratch_edit_record("provenance", "float32_orders/largest/layers.1.mlp.up", broken[i]);
        scratch_expect_stop(DP_REFUSED, "provenance.orders", "layers.1.mlp.up", "Generate the oracle again", NULL);
    }
    scratch_copy_case("tiny-plain");
    scratch_edit_record("provenance", "float32_orders/orders", "1");
    scratch_expect_stop(DP_REFUSED, "provenance.orders", "ctx.fc", NULL, NULL);
    scratch_copy_case("tiny-plain");
    scratch_edit_record("provenance", "float32_orders/largest/final", "[1e-3, 1e-7]");
    scratch_expect_stop(DP_REFUSED, "oracle.bracket", " final ", "relative L2", NULL);
    scratch_copy_case("tiny-plain");
    scratch_edit_record("provenance", "float32_orders/largest/final", "[1e-7, 1e-2]");
    scratch_expect_stop(DP_REFUSED, "oracle.bracket", " final ", "largest error relative", NULL);
}
END_TEST

START_TEST(a_bar_rests_on_the_largest_of_the_reference_s_orders) {
    scratch_copy_case("tiny-plain");
    const dp_stage_result before = stage_result("final");
    scratch_edit_record("provenance", "float32_orders/largest/final", "[9e-7, 5e-6]");
    const dp_stage_result after = stage_result("final");
    ck_assert_double_eq(after.limit.reference_spread_l2_rel, 9e-7);
    ck_assert_double_eq(after.limit.reference_spread_max_rel, 5e-6);
    ck_assert(before.limit.reference_spread_l2_rel < 9e-7 && before.limit.reference_spread_max_rel < 5e-6);
}
END_TEST

static void scale_run(dp_run run, const char *stage, double factor) {
    char object[96];
    int64_t count;
    double *value = scratch_values(object_of(run, stage, object), &count);
    for (int64_t i = 0; i < count; i++) value[i] *= factor;
    scratch_set_values(object, value);
    free(value);
}

START_TEST(a_wrong_bfloat16_run_widens_nothing) {
    /* As bits of bfloat16: 128 is the lowest bit of the exponent, a factor of 2. */
    char object[96];
    int64_t count;
    scratch_copy_case("tiny-plain");
    object_of(DP_RUN_BF16, "layers.1.mlp.down", object);
    double *bits = scratch_values(object, &count);
    for (int64_t i = 0; i < count; i++) bits[i] -= (int)bits[i] % 32768 >= 128 ? 128 : 0; /* halved: 0.5 away */
    scratch_set_values(object, bits);
    scratch_expect_pass(); /* as a yardstick it counts for 2^-4 only, and the float32 run is right */
    scale_run(DP_RUN_F32, "layers.1.mlp.down", 1.0 + 1e-3);
    scratch_expect_stop(DP_REFUSED, "oracle.bracket", "layers.1.mlp.down", "expected at most 0.000122", NULL);
    scratch_copy_case("tiny-plain");
    for (int64_t i = 0; i < count; i++) bits[i] += (int)bits[i] % 32768 >= 128 ? 384 : 0; /* four times, in all */
    scratch_set_values(object, bits);
    scratch_expect_stop(DP_REFUSED, "oracle.bfloat16", "layers.1.mlp.down", "answering zero", NULL);
    free(bits);
}
END_TEST

START_TEST(a_nan_in_the_reference_is_refused) {
    char object[96];
    scratch_copy_case("tiny-plain");
    scratch_change_value(object_of(DP_RUN_F64, "final", object), 20, 1.0, NAN);
    scratch_expect_stop(DP_REFUSED, "oracle.nonfinite", object, "element 20", "NaN");
}
END_TEST

void check_add_oracles(Suite *suite) {
    TCase *tests = check_case("oracles");
    tcase_add_test(tests, an_oracle_of_another_checkpoint_is_refused);
    tcase_add_test(tests, an_oracle_of_another_schema_version_is_refused);
    tcase_add_test(tests, a_recording_cannot_judge);
    tcase_add_test(tests, a_stage_missing_from_every_run_is_refused);
    tcase_add_test(tests, a_stage_missing_from_one_run_is_refused);
    tcase_add_test(tests, a_stage_that_the_model_does_not_have_is_refused);
    tcase_add_test(tests, a_shape_that_only_multiplies_out_the_same_is_refused);
    tcase_add_test(tests, a_flipped_byte_is_refused);
    tcase_add_test(tests, a_value_altered_with_its_checksum_but_not_its_digest_is_refused);
    tcase_add_test(tests, a_truncated_oracle_is_refused);
    tcase_add_test(tests, inputs_of_another_context_are_refused);
    tcase_add_test(tests, inputs_of_another_width_are_refused);
    tcase_add_test(tests, an_input_that_float32_cannot_hold_is_refused_and_not_rounded);
    tcase_add_test(tests, a_changed_input_fails_where_it_enters);
    tcase_add_test(tests, a_reference_value_moved_by_ten_bars_fails_that_stage_alone);
    tcase_add_test(tests, a_reference_value_moved_by_a_part_in_a_billion_is_no_error_of_ours_but_a_lie_of_the_oracles);
    tcase_add_test(tests, little_headroom_is_a_warning_and_no_failure_of_the_chained_stage);
    tcase_add_test(tests, an_oracle_cannot_widen_its_own_bars);
    tcase_add_test(tests, one_wrong_element_cannot_hide_behind_the_norm_of_its_stage);
    tcase_add_test(tests, the_spread_of_float32_is_claimed_for_every_stage_and_cannot_widen_a_bar);
    tcase_add_test(tests, a_bar_rests_on_the_largest_of_the_reference_s_orders);
    tcase_add_test(tests, a_wrong_bfloat16_run_widens_nothing);
    tcase_add_test(tests, a_nan_in_the_reference_is_refused);
    suite_add_tcase(suite, tests);
}
