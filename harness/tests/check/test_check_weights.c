/* test_check_weights.c - one bit of any weight turns the verdict: refused by digest, or failed where the weight acts.
 */
#include "support/check_case.h"
#include "store/synth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two-byte weights: bit 0 is the lowest of the mantissa; 7 is bf16's lowest exponent bit, 10 f16's. */
static const struct {
    const char *fixture;
    int exponent_bit;
} fixtures[] = {{"tiny-plain", 7}, {"tiny-bias", 10}};

START_TEST(the_lowest_bit_of_any_tensor_is_refused_by_name) {
    char name[SCRATCH_TENSORS][SCRATCH_NAME];
    scratch_copy_case(fixtures[_i].fixture);
    const int count = scratch_tensor_names(name);
    ck_assert_int_gt(count, 24);
    for (int i = 0; i < count; i++) {
        char quoted[SCRATCH_NAME + 16];
        snprintf(quoted, sizeof quoted, " tensor %.90s ", name[i]);
        scratch_flip_weight(name[i], 7, 0, false);
        scratch_expect_stop(DP_REFUSED, "provenance.tensor.differs", quoted, "SHA-256", NULL);
        scratch_flip_weight(name[i], 7, 0, false);
    }
    scratch_expect_pass(); /* every bit is back */
}
END_TEST

/* The stage that shows a tensor first, "%d" standing for its layer. */
static const struct {
    const char *part, *stage;
} shown_by[] = {{"input_layernorm", "layers.%d.attn.norm"},
                {"post_attention_layernorm", "layers.%d.mlp.norm"},
                {"q_proj", "layers.%d.attn.q_proj"},
                {"k_proj", "layers.%d.attn.k_proj"},
                {"v_proj", "layers.%d.attn.v"},
                {"o_proj", "layers.%d.attn.o_proj"},
                {"q_norm", "layers.%d.attn.q_norm"},
                {"k_norm", "layers.%d.attn.k_norm"},
                {"gate_proj", "layers.%d.mlp.gate"},
                {"up_proj", "layers.%d.mlp.up"},
                {"down_proj", "layers.%d.mlp.down"}};

static void stage_of(const char *tensor, char stage[SCRATCH_NAME]) {
    int layer = -1;
    if (sscanf(tensor, "layers.%d.", &layer) != 1) {
        snprintf(stage, SCRATCH_NAME, "%s",
                 strcmp(tensor, "fc.weight") == 0            ? "ctx.fc"
                 : strcmp(tensor, "hidden_norm.weight") == 0 ? "ctx.features"
                                                             : "final");
        return;
    }
    for (size_t i = 0; i < sizeof shown_by / sizeof *shown_by; i++) {
        char part[40];
        snprintf(part, sizeof part, ".%s.", shown_by[i].part);
        const char *hole = strstr(shown_by[i].stage, "%d");
        if (strstr(tensor, part) == NULL) continue;
        snprintf(stage, SCRATCH_NAME, "%.*s%d%s", (int)(hole - shown_by[i].stage), shown_by[i].stage, layer, hole + 2);
        return;
    }
    ck_abort_msg("no stage is known for %s", tensor);
}

START_TEST(a_changed_weight_whose_digest_agrees_fails_where_it_acts) {
    char name[SCRATCH_TENSORS][SCRATCH_NAME], stage[SCRATCH_NAME];
    scratch_copy_case(fixtures[_i].fixture);
    const int count = scratch_tensor_names(name);
    for (int i = 0; i < count; i++) {
        stage_of(name[i], stage);
        scratch_flip_weight(name[i], 7, fixtures[_i].exponent_bit, true);
        scratch_expect_failure(stage);
        scratch_flip_weight(name[i], 7, fixtures[_i].exponent_bit, true);
    }
    scratch_expect_pass();
}
END_TEST

START_TEST(a_nan_or_infinite_weight_is_refused_by_tensor_and_place) {
    scratch_copy_case("tiny-plain");
    scratch_set_weight("layers.1.mlp.up_proj.weight", 97, 0x7fc0);
    scratch_expect_stop(DP_REFUSED, "weights.nonfinite", "layers.1.mlp.up_proj.weight", "97", NULL);
    scratch_copy_case("tiny-plain");
    scratch_set_weight("norm.weight", 3, 0xff80);
    scratch_expect_stop(DP_REFUSED, "weights.nonfinite", "norm.weight", "3", NULL);
}
END_TEST

START_TEST(weights_that_end_early_are_refused) {
    char path[SCRATCH_PATH];
    size_t length;
    scratch_copy_case("tiny-plain");
    char *data = scratch_read(scratch_path("model.safetensors", path), &length);
    scratch_write("model.safetensors", data, length - 1);
    scratch_expect_stop(DP_REFUSED, "safetensors.offsets", "model.safetensors", NULL, NULL);
    scratch_write("model.safetensors", data, 100);
    scratch_expect_stop(DP_REFUSED, "safetensors.header.length", "model.safetensors", NULL, NULL);
    scratch_write("model.safetensors", data, 0);
    scratch_expect_stop(DP_REFUSED, "safetensors.size", "model.safetensors", NULL, NULL);
    free(data);
}
END_TEST

START_TEST(weights_of_another_seed_are_refused_before_a_value_is_compared) {
    scratch_copy_case("tiny-plain");
    char name[SCRATCH_TENSORS][SCRATCH_NAME];
    const dp_synth_options other = {.seed = 2, .dtype = DF_BF16, .profile = DP_SYNTH_UNIT, .threads = 2};
    dflash_error err;
    ck_assert_int_eq(dp_synth_write("fixtures/small/tiny-plain/config.json", sf_folder, &other, NULL, &err), DFLASH_OK);
    scratch_tensor_names(name);
    scratch_expect_stop(DP_REFUSED, "provenance.tensor.differs", name[0], "SHA-256",
                        "use the oracle of this checkpoint");
}
END_TEST

START_TEST(weights_in_another_width_are_refused) {
    const dp_synth_options wide = {.seed = 1, .dtype = DF_F32, .profile = DP_SYNTH_UNIT, .threads = 2};
    dflash_error err;
    scratch_copy_case("tiny-plain");
    ck_assert_int_eq(dp_synth_write("fixtures/small/tiny-plain/config.json", sf_folder, &wide, NULL, &err), DFLASH_OK);
    scratch_expect_stop(DP_REFUSED, "provenance.tensor.differs", "dtype", "F32", "BF16");
}
END_TEST

void check_add_weights(Suite *suite) {
    TCase *tests = check_case("weights");
    tcase_add_loop_test(tests, the_lowest_bit_of_any_tensor_is_refused_by_name, 0, 2);
    tcase_add_loop_test(tests, a_changed_weight_whose_digest_agrees_fails_where_it_acts, 0, 2);
    tcase_add_test(tests, a_nan_or_infinite_weight_is_refused_by_tensor_and_place);
    tcase_add_test(tests, weights_that_end_early_are_refused);
    tcase_add_test(tests, weights_of_another_seed_are_refused_before_a_value_is_compared);
    tcase_add_test(tests, weights_in_another_width_are_refused);
    suite_add_tcase(suite, tests);
}
