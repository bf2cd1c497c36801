/*
 * test_draft.c - the forward programs on every stored checkpoint: against a forward in double, against each other, and
 * under everything that must not change a bit (observer, poisoned scratch, threads, instruction set, reuse). Rounds
 * over the cache and error paths have files of their own.
 */
#include "support/draft_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void init(draft_case *c, int index) { draft_case_init(c, index, op_engine(DFLASH_ISA_BEST, 2, true)); }

/* Every value to one of its two neighbours. */
static void disturb(op_random *random, float *x, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = nextafterf(x[i], op_below(random, 2) == 0 ? -INFINITY : INFINITY);
}

/* A checkpoint that amplifies may be farther off: the limit is eight times what moving every input to a neighbour does
 * to the result in double (measured: errors of 2.1 to 5.2 times that), and one rounding of the largest score, which
 * moves a softmax however large its inputs are (tiny-sharp, whose scores reach hundreds, is 30 times off by the first
 * alone).
 */
START_TEST(the_final_hidden_agrees_with_a_forward_in_double) {
    draft_case c;
    op_random random = {(uint64_t)(900 + _i)};
    init(&c, _i);
    double *exact = op_alloc(c.out_size * sizeof *exact), *moved = op_alloc(c.out_size * sizeof *moved);
    const double score = draft_reference(&c, exact), error = op_relative_l2(c.out, exact, c.out_size);
    disturb(&random, c.taps, (size_t)(c.context * c.config->n_taps * c.config->hidden));
    disturb(&random, c.noise, c.out_size);
    draft_reference(&c, moved);
    double apart = 0, size = 0;
    for (size_t i = 0; i < c.out_size; i++) {
        apart += (moved[i] - exact[i]) * (moved[i] - exact[i]);
        size += exact[i] * exact[i];
    }
    const double limit = 8 * sqrt(apart / size) + score * 0x1p-24;
    ck_assert_msg(error > 0 && error < limit, "%s: relative L2 %.3g, limit %.3g", draft_fixture_dir(_i), error, limit);
    free(exact);
    free(moved);
    draft_case_release(&c);
}
END_TEST

START_TEST(forward_is_ctx_features_and_then_forward_block) {
    draft_case c;
    dflash_error err = {0};
    init(&c, _i);
    float *out = op_output(c.out_size);
    ck_assert_msg(dflash_forward(c.draft, c.taps, c.noise, c.pos, c.context, out, &err) == DFLASH_OK, "%s",
                  err.message);
    op_output_check(out, c.out_size, "forward");
    op_expect_bits(c.out, out, c.out_size, draft_fixture_dir(_i));
    op_output_free(out);
    draft_case_release(&c);
}
END_TEST

START_TEST(features_of_a_row_do_not_depend_on_its_companions) {
    draft_case c;
    dflash_error err = {0};
    init(&c, _i);
    const size_t hidden = (size_t)c.config->hidden, taps = hidden * (size_t)c.config->n_taps;
    for (int row = 0; row < c.context; row += 7) {
        float *alone = op_output(hidden);
        ck_assert_int_eq(dflash_ctx_features(c.draft, c.taps + (size_t)row * taps, 1, alone, &err), DFLASH_OK);
        op_expect_bits(c.features + (size_t)row * hidden, alone, hidden, "a context row alone");
        op_output_free(alone);
    }
    draft_case_release(&c);
}
END_TEST

/* The dimensions of a stage by the interface's comment. */
static int stage_shape(const draft_case *c, dflash_stage stage, int64_t dim[4]) {
    const dflash_config *g = c->config;
    const int64_t block = g->block, keys = c->context + g->block, half = g->rope.rotary_dim / 2;
    const int64_t hidden = g->hidden, queries = (int64_t)g->n_heads * g->head_dim;
    const int64_t cached = (int64_t)g->n_kv_heads * g->head_dim;
    dim[0] = block, dim[1] = hidden;
    switch (stage) {
    case DFLASH_STAGE_ROPE_INV_FREQ:
        dim[0] = half;
        return 1;
    case DFLASH_STAGE_ROPE_COS:
    case DFLASH_STAGE_ROPE_SIN:
        dim[0] = keys, dim[1] = half;
        return 2;
    case DFLASH_STAGE_CTX_FC:
    case DFLASH_STAGE_CTX_FEATURES:
        dim[0] = c->context;
        return 2;
    case DFLASH_STAGE_ATTN_Q_PROJ:
    case DFLASH_STAGE_ATTN_CONTEXT:
        dim[1] = queries;
        return 2;
    case DFLASH_STAGE_ATTN_K_PROJ:
    case DFLASH_STAGE_ATTN_V:
        dim[0] = keys, dim[1] = cached;
        return 2;
    case DFLASH_STAGE_ATTN_Q_NORM:
    case DFLASH_STAGE_ATTN_Q_ROPE:
        dim[1] = g->n_heads, dim[2] = g->head_dim;
        return 3;
    case DFLASH_STAGE_ATTN_K_NORM:
    case DFLASH_STAGE_ATTN_K_ROPE:
        dim[0] = keys, dim[1] = g->n_kv_heads, dim[2] = g->head_dim;
        return 3;
    case DFLASH_STAGE_ATTN_CONV_DYN:
    case DFLASH_STAGE_MLP_CONV_DYN:
        dim[1] = 2, dim[2] = g->conv_kernel, dim[3] = g->hidden / g->conv_group;
        return 4;
    case DFLASH_STAGE_MLP_GATE:
    case DFLASH_STAGE_MLP_UP:
    case DFLASH_STAGE_MLP_ACT:
        dim[1] = g->intermediate;
        return 2;
    default:
        return 2;
    }
}

static void expect_stage(const draft_case *c, const dp_recording *seen, int *at, dflash_stage stage, int layer) {
    int64_t dim[4];
    char name[DFLASH_STAGE_NAME_MAX];
    dflash_stage_name(stage, layer, name);
    ck_assert_msg(*at < seen->count, "%s was not observed", name);
    const dp_recorded *r = &seen->stage[(*at)++];
    ck_assert_msg(r->stage == stage && r->layer == layer, "expected %s at place %d", name, *at - 1);
    const int rank = stage_shape(c, stage, dim);
    ck_assert_int_eq(r->rank, rank);
    int64_t n = 1;
    for (int i = 0; i < rank; n *= dim[i++])
        ck_assert_msg(r->dim[i] == dim[i], "%s: dimension %d is %d, expected %d", name, i, (int)r->dim[i], (int)dim[i]);
    for (int64_t i = 0; i < n; i++) OP_REQUIRE(isfinite(r->value[i]), "%s: element %d is not finite", name, (int)i);
}

static bool is_convolution(dflash_stage stage) {
    return stage == DFLASH_STAGE_ATTN_CONV_DYN || stage == DFLASH_STAGE_ATTN_CONV_IN ||
           stage == DFLASH_STAGE_ATTN_CONV_OUT || stage == DFLASH_STAGE_MLP_CONV_DYN ||
           stage == DFLASH_STAGE_MLP_CONV_IN || stage == DFLASH_STAGE_MLP_CONV_OUT;
}

START_TEST(every_stage_is_observed_once_in_order_and_observing_changes_no_bit) {
    static const dflash_stage per_layer[] = {
        DFLASH_STAGE_ATTN_NORM,     DFLASH_STAGE_ATTN_CONV_DYN, DFLASH_STAGE_ATTN_CONV_IN, DFLASH_STAGE_ATTN_Q_PROJ,
        DFLASH_STAGE_ATTN_K_PROJ,   DFLASH_STAGE_ATTN_V,        DFLASH_STAGE_ATTN_Q_NORM,  DFLASH_STAGE_ATTN_K_NORM,
        DFLASH_STAGE_ATTN_Q_ROPE,   DFLASH_STAGE_ATTN_K_ROPE,   DFLASH_STAGE_ATTN_CONTEXT, DFLASH_STAGE_ATTN_O_PROJ,
        DFLASH_STAGE_ATTN_CONV_OUT, DFLASH_STAGE_ATTN_RESIDUAL, DFLASH_STAGE_MLP_NORM,     DFLASH_STAGE_MLP_CONV_DYN,
        DFLASH_STAGE_MLP_CONV_IN,   DFLASH_STAGE_MLP_GATE,      DFLASH_STAGE_MLP_UP,       DFLASH_STAGE_MLP_ACT,
        DFLASH_STAGE_MLP_DOWN,      DFLASH_STAGE_MLP_CONV_OUT,  DFLASH_STAGE_LAYER_OUT};
    draft_case c;
    dflash_error err = {0};
    dp_recording seen = {0};
    init(&c, _i);
    float *out = op_output(c.out_size);
    dflash_draft_observe(c.draft, dp_recording_observe, &seen);
    ck_assert_int_eq(dflash_forward(c.draft, c.taps, c.noise, c.pos, c.context, out, &err), DFLASH_OK);
    dflash_draft_observe(c.draft, NULL, NULL);
    ck_assert_int_eq(dp_recording_status(&seen, &err), DFLASH_OK);
    op_expect_bits(c.out, out, c.out_size, "observed");
    int at = 0;
    for (dflash_stage s = DFLASH_STAGE_CTX_FC; s <= DFLASH_STAGE_ROPE_SIN; s++) expect_stage(&c, &seen, &at, s, -1);
    for (int layer = 0; layer < c.config->n_layers; layer++)
        for (size_t s = 0; s < sizeof per_layer / sizeof *per_layer; s++)
            if (c.config->family == DFLASH_FAMILY_DFLASH2 || !is_convolution(per_layer[s]))
                expect_stage(&c, &seen, &at, per_layer[s], layer);
    expect_stage(&c, &seen, &at, DFLASH_STAGE_FINAL, -1);
    ck_assert_int_eq(at, seen.count);
    op_expect_bits(c.out, seen.stage[at - 1].value, c.out_size, "the stage `final`");
    op_expect_bits(c.features, dp_recording_find(&seen, DFLASH_STAGE_CTX_FEATURES, -1)->value, c.features_size,
                   "features");
    const int count = seen.count;
    op_output_free(out);
    out = draft_case_block(&c); /* after the observer is gone nothing reaches it */
    ck_assert_int_eq(seen.count, count);
    dp_recording_release(&seen);
    op_output_free(out);
    draft_case_release(&c);
}
END_TEST

START_TEST(instruction_set_threads_and_poisoned_scratch_change_no_bit) {
    draft_case first;
    dflash_isa isa[OP_ISAS];
    const int isas = op_isas(isa);
    draft_case_init(&first, _i, op_engine(DFLASH_ISA_GENERIC, 1, false));
    for (int e = 0; e < isas; e++)
        for (int threads = 1; threads <= 3; threads++)
            for (int poison = 0; poison < 2; poison++) {
                draft_case other;
                draft_case_init(&other, _i, op_engine(isa[e], threads, poison == 1));
                op_expect_bits(first.features, other.features, first.features_size, dflash_engine_isa(other.engine));
                op_expect_bits(first.out, other.out, first.out_size, dflash_engine_isa(other.engine));
                draft_case_release(&other);
            }
    for (size_t i = 0; i < first.out_size; i++) OP_REQUIRE(isfinite(first.out[i]), "element %zu", i);
    draft_case_release(&first);
}
END_TEST

/* Longer and shorter contexts in between leave nothing behind, and a fresh handle agrees. */
START_TEST(a_reused_handle_gives_the_bits_of_a_fresh_one) {
    draft_case c;
    dflash_error err = {0};
    init(&c, _i);
    const int shorter[] = {3, 0, 69, 1};
    for (size_t s = 0; s < sizeof shorter / sizeof *shorter; s++) {
        const int ctx = shorter[s], skip = c.context - ctx;
        draft_case fresh;
        init(&fresh, _i);
        const float *features = c.features + (size_t)skip * (size_t)c.config->hidden;
        float *a = op_output(c.out_size), *b = op_output(c.out_size);
        ck_assert_int_eq(dflash_forward_block(c.draft, features, c.noise, c.pos + skip, ctx, a, &err), DFLASH_OK);
        ck_assert_int_eq(dflash_forward_block(fresh.draft, features, c.noise, c.pos + skip, ctx, b, &err), DFLASH_OK);
        op_expect_bits(b, a, c.out_size, "a reused handle");
        op_output_free(a);
        op_output_free(b);
        a = draft_case_block(&c);
        op_expect_bits(c.out, a, c.out_size, "the first input again");
        op_output_free(a);
        draft_case_release(&fresh);
    }
    draft_case_release(&c);
}
END_TEST

/* The comparisons above can fail: any input that is a little different gives other bits. */
START_TEST(every_input_matters) {
    draft_case c;
    init(&c, _i);
    float *const places[] = {&c.noise[3], &c.features[c.features_size - 1]};
    for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
        const float before = *places[p];
        *places[p] = before + 0.5f;
        float *out = draft_case_block(&c);
        ck_assert(!op_same_bits(c.out, out, c.out_size));
        op_output_free(out);
        *places[p] = before;
    }
    for (int i = c.context; i < c.context + c.config->block; i++) c.pos[i] += 1;
    float *out = draft_case_block(&c);
    ck_assert(!op_same_bits(c.out, out, c.out_size));
    op_output_free(out);
    draft_case_release(&c);
}
END_TEST

Suite *suite_draft(void) {
    Suite *suite = suite_create("draft");
    TCase *tcase = tcase_create("programs");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, the_final_hidden_agrees_with_a_forward_in_double, 0, DRAFT_FIXTURES);
    tcase_add_loop_test(tcase, forward_is_ctx_features_and_then_forward_block, 0, DRAFT_FIXTURES);
    tcase_add_loop_test(tcase, features_of_a_row_do_not_depend_on_its_companions, 0, DRAFT_FIXTURES);
    tcase_add_loop_test(tcase, every_stage_is_observed_once_in_order_and_observing_changes_no_bit, 0, DRAFT_FIXTURES);
    tcase_add_loop_test(tcase, instruction_set_threads_and_poisoned_scratch_change_no_bit, 0, DRAFT_FIXTURES);
    tcase_add_loop_test(tcase, a_reused_handle_gives_the_bits_of_a_fresh_one, 0, DRAFT_FIXTURES);
    tcase_add_loop_test(tcase, every_input_matters, 0, DRAFT_FIXTURES);
    suite_add_tcase(suite, tcase);
    suite_add_tcase(suite, tcase_draft_rounds());
    suite_add_tcase(suite, tcase_draft_errors());
    suite_add_tcase(suite, tcase_arena());
    suite_add_tcase(suite, tcase_stage_names());
    return suite;
}
