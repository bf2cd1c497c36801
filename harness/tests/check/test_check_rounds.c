/*
 * test_check_rounds.c - a recording of forward_block that is wrong in one place, and what a variant reports of it.
 *
 * The round itself is right here; whether it equals the block on every input is the draft suite's.
 */
#include "support/check_case.h"

#include "common/dtype.h"
#include "judge/round_variants.h"
#include "store/stage_set.h"

#include <stdlib.h>
#include <string.h>

static dflash_engine *engine;
static dflash_draft *draft;
static dp_recording block;
static dp_round_input input;
static float *features, *noise;
static int32_t pos[64];

enum { CONTEXT = 24, ROW_KV = 32 };

static void record_block(void) {
    const dflash_config *c = dflash_draft_config(draft);
    dflash_error err;
    float *out = malloc((size_t)c->block * (size_t)c->hidden * sizeof *out);
    ck_assert_ptr_nonnull(out);
    dflash_draft_observe(draft, dp_recording_observe, &block);
    ck_assert_int_eq(dflash_forward_block(draft, features, noise, pos, CONTEXT, out, &err), DFLASH_OK);
    dflash_draft_observe(draft, NULL, NULL);
    ck_assert_int_eq(dp_recording_status(&block, &err), DFLASH_OK);
    free(out);
}

/* tiny-plain over inputs that are nothing special, and its block run on record. */
static void record(void) {
    const dflash_engine_options options = {.threads = 1, .poison_scratch = true};
    dflash_error err;
    ck_assert_int_eq(dflash_engine_create(&options, &engine, &err), DFLASH_OK);
    ck_assert_int_eq(dflash_draft_load(engine, "fixtures/small/tiny-plain", &draft, &err), DFLASH_OK);
    const dflash_config *c = dflash_draft_config(draft);
    const size_t values = (size_t)(CONTEXT + c->block) * (size_t)c->hidden;
    features = malloc(values * sizeof *features);
    ck_assert_ptr_nonnull(features);
    for (size_t i = 0; i < values; i++) features[i] = tf_value("features", (int64_t)i);
    noise = features + (size_t)CONTEXT * (size_t)c->hidden;
    for (int i = 0; i < CONTEXT + c->block; i++) pos[i] = 100 + i;
    input = (dp_round_input){.features = features, .noise = noise, .pos = pos, .context = CONTEXT};
    record_block();
}

static void forget(void) {
    dp_recording_release(&block);
    free(features);
    dflash_draft_destroy(draft);
    dflash_engine_destroy(engine);
}

static dp_recorded *recorded(const char *name) {
    dflash_stage stage;
    int layer;
    ck_assert(dflash_stage_parse(name, &stage, &layer));
    for (int i = 0; i < block.count; i++)
        if (block.stage[i].stage == stage && block.stage[i].layer == layer) return &block.stage[i];
    ck_abort_msg("the recording has no %s", name);
}

/* A cache filled with `chunk` rows to a call, and a round over it, held against `of`. */
static dflash_status run_against(const dp_recording *of, int chunk, dp_variant_result *variant) {
    dflash_error err;
    dflash_kv *kv = NULL;
    const size_t hidden = (size_t)dflash_draft_config(draft)->hidden;
    dp_variant_begin(variant, "round.test", chunk);
    ck_assert_int_eq(dflash_kv_create(draft, CONTEXT + dflash_draft_config(draft)->block, &kv, &err), DFLASH_OK);
    for (int row = 0; row < CONTEXT; row += chunk)
        ck_assert_int_eq(dflash_ingest_ctx(draft, kv, features + (size_t)row * hidden, pos + row,
                                           CONTEXT - row < chunk ? CONTEXT - row : chunk, &err),
                         DFLASH_OK);
    const dflash_status status = dp_compare_round(draft, kv, &input, of, CONTEXT, true, variant, &err);
    dflash_kv_destroy(kv);
    return status;
}

static dp_variant_result run(int chunk) {
    dp_variant_result variant;
    ck_assert_int_eq(run_against(&block, chunk, &variant), DFLASH_OK);
    return variant;
}

START_TEST(an_untouched_recording_is_identical_under_every_schedule) {
    static const int chunks[] = {1, 2, 7, 23, 24, 1000};
    const int64_t compared = run(CONTEXT).compared;
    ck_assert_int_gt(compared, 0);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        const dp_variant_result variant = run(chunks[i]);
        ck_assert(variant.identical);
        ck_assert_str_eq(variant.stage, "");
        ck_assert_str_eq(variant.name, "round.test");
        ck_assert_int_eq(variant.chunk, chunks[i]);
        ck_assert_int_eq(variant.compared, compared);
    }
}
END_TEST

START_TEST(an_arm_in_which_both_sides_are_nan_does_not_pass) {
    dp_recording_release(&block);
    noise[3] = df_bits_to_f32(0x7fc00000u);
    record_block();
    const dp_variant_result variant = run(7);
    ck_assert(!variant.identical && variant.nonfinite);
    ck_assert_str_eq(variant.stage, "layers.0.attn.norm");
    ck_assert_uint_eq(variant.round_bits & 0x7f800000u, 0x7f800000u);
    ck_assert_uint_eq(variant.block_bits, variant.round_bits);
}
END_TEST

START_TEST(an_arm_compares_every_value_of_the_block_and_of_the_cache) {
    /* A layer's block rows: 5 stages of H (norm, o_proj, residual, norm, down), out: 6 of H; q_proj, q_norm, q_rope and
     * context 96 each; k_proj, v, k_norm and k_rope 32 each; gate, up and act 160 each. Then final three times (as
     * observed, as returned, as returned with nobody looking on), the rotary rows and table, and the cache. */
    const int64_t layer = 5 * (6 * 96 + 4 * 96 + 4 * 32 + 3 * 160);
    ck_assert_int_eq(run(7).compared, 3 * layer + 3 * 5 * 96 + 2 * 5 * 8 + 8 + 3 * 2 * CONTEXT * ROW_KV);
}
END_TEST

/* A stage, an element of the recording, and where the variant must say that it is. */
static const struct {
    const char *stage;
    int64_t element;
    const char *reported;
    int64_t index;
} spoilt[] = {
    {"rope.inv_freq", 7, "rope.inv_freq", 7},
    {"rope.cos", CONTEXT * 8 + 5, "rope.cos", 5},
    {"rope.sin", (CONTEXT + 5) * 8 - 1, "rope.sin", 39},
    {"layers.0.attn.norm", 0, "layers.0.attn.norm", 0},
    {"layers.1.attn.q_rope", 333, "layers.1.attn.q_rope", 333},
    {"layers.2.attn.k_proj", CONTEXT *ROW_KV + 3, "layers.2.attn.k_proj", 3},
    {"layers.2.attn.k_norm", CONTEXT *ROW_KV + 40, "layers.2.attn.k_norm", 40},
    {"layers.0.attn.v", CONTEXT *ROW_KV, "layers.0.attn.v", 0},
    {"layers.0.attn.k_rope", 0, "kv.k", 0}, /* a context row: the cache's */
    {"layers.2.attn.k_rope", CONTEXT *ROW_KV - 1, "kv.k", CONTEXT *ROW_KV - 1},
    {"layers.1.attn.v", 100, "kv.v", 100},
    {"layers.1.mlp.act", 799, "layers.1.mlp.act", 799},
    {"layers.2.out", 479, "layers.2.out", 479},
    {"final", 479, "final", 479},
};
enum { SPOILT = sizeof spoilt / sizeof *spoilt };

START_TEST(one_bit_of_one_value_is_found_where_it_is) {
    dp_recorded *stage = recorded(spoilt[_i].stage);
    ck_assert_int_lt(spoilt[_i].element, dp_dims_product(stage->rank, stage->dim));
    float *value = &stage->value[spoilt[_i].element];
    const uint32_t before = df_f32_to_bits(*value);
    *value = df_bits_to_f32(before ^ 1u);
    const dp_variant_result variant = run(7);
    ck_assert(!variant.identical);
    ck_assert_str_eq(variant.stage, spoilt[_i].reported);
    ck_assert_int_eq(variant.index, spoilt[_i].index);
    ck_assert_uint_eq(variant.block_bits, before ^ 1u);
    ck_assert_uint_eq(variant.round_bits, before);
}
END_TEST

START_TEST(the_first_of_several_differences_is_the_one_reported) {
    recorded("layers.1.out")->value[5] += 1.0f;
    recorded("layers.0.attn.q_proj")->value[9] += 1.0f;
    recorded("final")->value[0] += 1.0f;
    const dp_variant_result variant = run(CONTEXT);
    ck_assert_str_eq(variant.stage, "layers.0.attn.q_proj");
    ck_assert_int_eq(variant.index, 9);
}
END_TEST

START_TEST(the_sign_of_zero_and_the_payload_of_a_nan_are_differences) {
    float *value = &recorded("layers.1.mlp.gate")->value[2];
    *value = -*value;
    dp_variant_result variant = run(1);
    ck_assert_str_eq(variant.stage, "layers.1.mlp.gate");
    ck_assert_uint_eq(variant.block_bits ^ variant.round_bits, 0x80000000u);
    *value = df_bits_to_f32(0x7fc00123u);
    variant = run(1);
    ck_assert(!variant.identical);
    ck_assert_uint_eq(variant.block_bits, 0x7fc00123u);
}
END_TEST

/* ---- Stages that one side lacks ---- */

static const struct {
    const char *stage, *reported;
} lacking[] = {{"layers.1.attn.q_proj", "layers.1.attn.q_proj"},
               {"rope.cos", "rope.cos"},
               {"layers.2.out", "layers.2.out"},
               {"layers.0.attn.k_rope", "kv.k"},
               {"layers.1.attn.v", "kv.v"},
               {"final", "final"}};
enum { LACKING = sizeof lacking / sizeof *lacking };

START_TEST(a_stage_that_the_block_does_not_show_is_a_difference) {
    dp_recorded *stage = recorded(lacking[_i].stage);
    free(stage->value);
    block.count--;
    memmove(stage, stage + 1, (size_t)(&block.stage[block.count] - stage) * sizeof *stage);
    const dp_variant_result variant = run(7);
    ck_assert(!variant.identical);
    ck_assert_str_eq(variant.stage, lacking[_i].reported);
    ck_assert_int_eq(variant.index, -1);
}
END_TEST

START_TEST(a_stage_that_the_round_does_not_show_is_a_difference) {
    const float values[2 * 16] = {0};
    const dflash_stage_view view = {
        .stage = DFLASH_STAGE_ATTN_CONV_IN, .layer = 0, .rank = 2, .dim = {2, 16}, .f32 = values};
    dp_recording_add(&block, &view);
    const dp_variant_result variant = run(7);
    ck_assert(!variant.identical);
    ck_assert_str_eq(variant.stage, "layers.0.attn.conv_in");
    ck_assert_int_eq(variant.index, -1);
}
END_TEST

START_TEST(a_stage_of_other_rows_or_columns_is_a_difference) {
    static const struct {
        const char *stage;
        int rank;
        int64_t dim[4];
    } shapes[] = {{"layers.1.mlp.norm", 2, {4, 96}},       {"layers.1.mlp.norm", 2, {6, 80}},
                  {"layers.1.mlp.norm", 2, {10, 48}},      {"layers.1.mlp.norm", 1, {480}},
                  {"layers.1.attn.q_norm", 3, {5, 3, 32}}, {"layers.1.attn.k_proj", 2, {4, 32}}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        dp_recorded *stage = recorded(shapes[i].stage);
        const dp_recorded before = *stage;
        stage->rank = shapes[i].rank;
        memcpy(stage->dim, shapes[i].dim, sizeof stage->dim);
        const dp_variant_result variant = run(7);
        ck_assert(!variant.identical);
        ck_assert_str_eq(variant.stage, shapes[i].stage);
        ck_assert_int_eq(variant.index, -1);
        *stage = before;
    }
    ck_assert(run(7).identical);
}
END_TEST

START_TEST(keys_of_fewer_rows_than_the_cache_are_a_difference) {
    recorded("layers.0.attn.k_rope")->dim[0] = CONTEXT - 1;
    dp_variant_result variant = run(7);
    ck_assert_str_eq(variant.stage, "kv.k");
    ck_assert_int_eq(variant.index, -1);
    recorded("layers.0.attn.k_rope")->dim[0] = CONTEXT + 5;
    recorded("layers.0.attn.v")->dim[0] = CONTEXT - 1;
    variant = run(7);
    ck_assert_str_eq(variant.stage, "kv.v");
}
END_TEST

START_TEST(an_empty_recording_is_not_identical) {
    dp_recording nothing = {.stage = NULL};
    dp_variant_result variant;
    ck_assert_int_eq(run_against(&nothing, 7, &variant), DFLASH_OK);
    ck_assert(!variant.identical);
    ck_assert_int_eq(variant.compared, 0);
}
END_TEST

/* The variants that a check of a stored case runs. */
static void variants_of(const char *name, const char *stage, int expected) {
    char checkpoint[96], oracle[96];
    dp_result result;
    snprintf(checkpoint, sizeof checkpoint, "fixtures/small/%s", name);
    snprintf(oracle, sizeof oracle, "oracles/%s.h5", name);
    const dp_check_options options = {
        .checkpoint = checkpoint, .oracle = oracle, .filter = stage, .threads = 1, .backend = DFLASH_BACKEND_CPU};
    dp_check(&options, &result);
    ck_assert_msg(result.verdict == DP_PASS, "%s: %s", result.error.code, result.error.message);
    ck_assert_int_eq(result.variant_count, expected);
    for (int i = 0; i < result.variant_count; i++) {
        ck_assert(result.variant[i].identical && result.variant[i].compared > 0);
        for (int j = 0; j < i; j++) ck_assert_str_ne(result.variant[i].name, result.variant[j].name);
    }
    dp_result_release(&result);
}

START_TEST(a_ring_is_an_arm_only_where_every_layer_slides) {
    variants_of("tiny-plain", "round.*", 8);
    variants_of("tiny-causal", "round.*", 8);
    variants_of("tiny-dflash2", "round.*", 11);
    variants_of("tiny-dflash2", "round.ring", 1);
    variants_of("tiny-dflash2", "forward", 1);
}
END_TEST

START_TEST(every_variant_finds_one_wrong_bit) {
    static float taps[CONTEXT * 3 * 96];
    dflash_error err;
    for (size_t i = 0; i < sizeof taps / sizeof *taps; i++) taps[i] = tf_value("taps", (int64_t)i);
    input.taps = taps;
    ck_assert_int_eq(dflash_ctx_features(draft, taps, CONTEXT, features, &err), DFLASH_OK);
    dp_recording_release(&block);
    record_block();
    int variants = 0;
    for (int i = 0; dp_variant_at(i) != NULL; i++) {
        const dp_variant *variant = dp_variant_at(i);
        dp_variant_result result;
        if (!dp_variant_exists(variant, dflash_draft_config(draft))) continue;
        ck_assert_int_eq(dp_variant_run(variant, draft, &input, &block, &result, &err), DFLASH_OK);
        ck_assert_msg(result.identical, "%s: first at %s", dp_variant_name(variant), result.stage);
        /* a floor has a block run of its own, over fewer rows */
        if (strcmp(dp_variant_name(variant), "round.floor") == 0) continue;
        dp_recorded *stage = recorded("layers.2.mlp.up");
        stage->value[17] = -stage->value[17];
        ck_assert_int_eq(dp_variant_run(variant, draft, &input, &block, &result, &err), DFLASH_OK);
        stage->value[17] = -stage->value[17];
        ck_assert_str_eq(result.stage, "layers.2.mlp.up");
        ck_assert_int_eq(result.index, 17);
        variants++;
    }
    ck_assert_int_eq(variants, 8);
}
END_TEST

START_TEST(positions_out_of_order_are_an_error_and_no_comparison) {
    dp_variant_result variant;
    pos[CONTEXT] = pos[CONTEXT - 1];
    ck_assert_int_eq(run_against(&block, 7, &variant), DFLASH_ERR_ARGUMENT);
    ck_assert_int_eq(variant.compared, 0);
}
END_TEST

void check_add_rounds(Suite *suite) {
    TCase *tests = tcase_create("rounds");
    tcase_add_checked_fixture(tests, record, forget);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, an_untouched_recording_is_identical_under_every_schedule);
    tcase_add_test(tests, an_arm_in_which_both_sides_are_nan_does_not_pass);
    tcase_add_test(tests, an_arm_compares_every_value_of_the_block_and_of_the_cache);
    tcase_add_loop_test(tests, one_bit_of_one_value_is_found_where_it_is, 0, SPOILT);
    tcase_add_test(tests, the_first_of_several_differences_is_the_one_reported);
    tcase_add_test(tests, the_sign_of_zero_and_the_payload_of_a_nan_are_differences);
    tcase_add_loop_test(tests, a_stage_that_the_block_does_not_show_is_a_difference, 0, LACKING);
    tcase_add_test(tests, a_stage_that_the_round_does_not_show_is_a_difference);
    tcase_add_test(tests, a_stage_of_other_rows_or_columns_is_a_difference);
    tcase_add_test(tests, keys_of_fewer_rows_than_the_cache_are_a_difference);
    tcase_add_test(tests, an_empty_recording_is_not_identical);
    tcase_add_test(tests, a_ring_is_an_arm_only_where_every_layer_slides);
    tcase_add_test(tests, every_variant_finds_one_wrong_bit);
    tcase_add_test(tests, positions_out_of_order_are_an_error_and_no_comparison);
    suite_add_tcase(suite, tests);
}
