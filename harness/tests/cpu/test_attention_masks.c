/*
 * test_attention_masks.c - which keys a query sees: windows, causality, their exact edges, and that a key which is not
 * seen leaves no trace whatever it holds.
 */
#include "support/attention_case.h"

#include <math.h>
#include <stdlib.h>

enum { HD = 8 };

/* One query at `p` over keys that all score alike, so the answer is the mean of the values seen. */
static float mean_seen(dflash_engine *engine, int32_t p, int window, bool causal, const int32_t *k_pos,
                       const float *value, int keys) {
    enum { MOST = 8 };
    float q[HD] = {0}, k[MOST * HD] = {0}, v[MOST * HD];
    ck_assert_int_le(keys, MOST);
    for (int j = 0; j < keys; j++)
        for (int d = 0; d < HD; d++) v[j * HD + d] = value[j];
    const df_attention_args args = {.q = q,
                                    .k = k,
                                    .v = v,
                                    .q_pos = &p,
                                    .k_pos = k_pos,
                                    .rows = 1,
                                    .keys = keys,
                                    .n_heads = 1,
                                    .n_kv_heads = 1,
                                    .head_dim = HD,
                                    .window = window,
                                    .causal = causal};
    float *y = attention_run(engine, &args, "one query");
    const float mean = y[0];
    for (int d = 1; d < HD; d++) ck_assert(y[d] == mean);
    op_output_free(y);
    return mean;
}

/* _i is the instruction set, here and below; those that the machine lacks are outside the loop's range. */
static dflash_engine *engine_of_loop(int i) {
    dflash_isa isa[OP_ISAS];
    ck_assert_int_lt(i, op_isas(isa));
    return op_engine(isa[i], 2, true);
}

START_TEST(the_edge_of_a_window_is_exact) {
    enum { W = 16, P = 1000 };
    dflash_engine *engine = engine_of_loop(_i);
    const int32_t back[] = {P - W, P - W + 1, P};
    const float value[] = {64.0f, 2.0f, 6.0f};
    ck_assert(mean_seen(engine, P, W, true, back, value, 3) == 4.0f); /* p - j = W is out, W - 1 is in */
    ck_assert(mean_seen(engine, P, W, false, back, value, 3) == 4.0f);
    ck_assert(mean_seen(engine, P, W + 1, true, back, value, 3) == 24.0f); /* one wider: all three */
    const int32_t ahead[] = {P, P + W - 1, P + W};
    const float values_ahead[] = {2.0f, 6.0f, 64.0f};
    ck_assert(mean_seen(engine, P, W, false, ahead, values_ahead, 3) == 4.0f); /* j - p = W is out */
    ck_assert(mean_seen(engine, P, W + 1, false, ahead, values_ahead, 3) == 24.0f);
    ck_assert(mean_seen(engine, P, W, true, ahead, values_ahead, 3) == 2.0f);  /* causal: nothing ahead */
    ck_assert(mean_seen(engine, P, 1, false, ahead, values_ahead, 3) == 2.0f); /* a window of one is the query itself */
    dflash_engine_destroy(engine);
}
END_TEST

START_TEST(causality_without_a_window_cuts_after_the_query) {
    dflash_engine *engine = engine_of_loop(_i);
    const int32_t pos[] = {0, 5, 100000, 100001};
    const float value[] = {3.0f, 6.0f, 9.0f, 82.0f};
    ck_assert(mean_seen(engine, 100000, 0, true, pos, value, 4) == 6.0f);
    ck_assert(mean_seen(engine, 100000, 0, false, pos, value, 4) == 25.0f);
    ck_assert(mean_seen(engine, 0, 0, true, pos, value, 4) == 3.0f);
    dflash_engine_destroy(engine);
}
END_TEST

START_TEST(the_window_is_per_query_and_not_per_block) {
    dflash_engine *engine = engine_of_loop(_i);
    const int32_t pos[] = {10, 11, 12, 13};
    const float value[] = {1.0f, 2.0f, 4.0f, 8.0f};
    const float seen_by[] = {1.0f, 1.5f, 3.0f, 6.0f}; /* causal, window 2 */
    for (int i = 0; i < 4; i++) ck_assert(mean_seen(engine, pos[i], 2, true, pos, value, 4) == seen_by[i]);
    float q[4 * HD] = {0}, k[4 * HD] = {0}, v[4 * HD];
    for (int i = 0; i < 4 * HD; i++) v[i] = value[i / HD];
    const df_attention_args args = {.q = q,
                                    .k = k,
                                    .v = v,
                                    .q_pos = pos,
                                    .k_pos = pos,
                                    .rows = 4,
                                    .keys = 4,
                                    .n_heads = 1,
                                    .n_kv_heads = 1,
                                    .head_dim = HD,
                                    .window = 2,
                                    .causal = true};
    float *y = attention_run(engine, &args, "four queries");
    for (int i = 0; i < 4 * HD; i++) ck_assert(y[i] == seen_by[i / HD]);
    op_output_free(y);
    dflash_engine_destroy(engine);
}
END_TEST

static const attention_shape windowed = {
    .rows = 6, .context = 90, .heads = 6, .kv_heads = 2, .head_dim = 16, .window = 40, .start = 5000};

static void spoil_key(attention_case *c, int key, float with) {
    const int width = c->args.n_kv_heads * c->args.head_dim;
    for (int i = key * width; i < (key + 1) * width; i++) c->k[i] = c->v[i] = with;
}

/* Keys that no query sees hold NaN, then infinity: no bit moves. */
START_TEST(whatever_an_unseen_key_holds_leaves_no_trace) {
    dflash_engine *engine = engine_of_loop(_i);
    const float poison[] = {NAN, INFINITY};
    for (int causal = 0; causal < 2; causal++)
        for (int p = 0; p < 2; p++) {
            op_random random = {220};
            attention_case c;
            attention_case_init(&c, &windowed, &random);
            c.args.causal = causal == 1;
            float *clean = attention_run(engine, &c.args, "clean");
            int spoiled = 0;
            for (int key = 0; key < c.args.keys; key++) {
                bool seen = false;
                for (int row = 0; row < c.args.rows; row++) seen = seen || attention_sees(&c.args, row, key);
                if (seen) continue;
                spoil_key(&c, key, poison[p]);
                spoiled++;
            }
            ck_assert_int_eq(spoiled, 51); /* 90 context rows less the 39 that the first query sees */
            float *y = attention_run(engine, &c.args, "poisoned");
            op_expect_bits(clean, y, attention_case_size(&c), "unseen keys hold poison");
            op_output_free(clean);
            op_output_free(y);
            attention_case_release(&c);
        }
    dflash_engine_destroy(engine);
}
END_TEST

/* One spoiled key reaches exactly the queries that see it, though they share a tile with those that do not. */
START_TEST(a_spoiled_key_reaches_only_the_queries_that_see_it) {
    dflash_engine *engine = engine_of_loop(_i);
    int reached = 0, spared = 0;
    for (int key = 48; key < 96; key++)
        for (int causal = 0; causal < 2; causal++) {
            op_random random = {221};
            attention_case c;
            attention_case_init(&c, &windowed, &random);
            c.args.causal = causal == 1;
            const int width = c.args.n_heads * c.args.head_dim;
            float *clean = attention_run(engine, &c.args, "clean");
            spoil_key(&c, key, NAN);
            float *y = attention_run(engine, &c.args, "poisoned");
            for (int row = 0; row < c.args.rows; row++) {
                const bool seen = attention_sees(&c.args, row, key);
                for (int i = row * width; seen && i < (row + 1) * width; i++) ck_assert(isnan(y[i]));
                if (!seen)
                    op_expect_bits(clean + row * width, y + row * width, (size_t)width, "a row that does not see it");
                reached += seen;
                spared += !seen;
            }
            op_output_free(clean);
            op_output_free(y);
            attention_case_release(&c);
        }
    ck_assert_int_gt(reached, 100);
    ck_assert_int_gt(spared, 20);
    dflash_engine_destroy(engine);
}
END_TEST

START_TEST(a_spoiled_query_spares_the_queries_of_its_tile) {
    dflash_engine *engine = engine_of_loop(_i);
    op_random random = {222};
    attention_case c;
    attention_case_init(&c, &windowed, &random);
    const int width = c.args.n_heads * c.args.head_dim;
    float *clean = attention_run(engine, &c.args, "clean");
    for (int i = 2 * width; i < 3 * width; i++) c.q[i] = NAN;
    float *y = attention_run(engine, &c.args, "poisoned");
    op_expect_bits(clean, y, 2 * (size_t)width, "rows before the spoiled one");
    for (int i = 2 * width; i < 3 * width; i++) ck_assert(isnan(y[i]));
    op_expect_bits(clean + 3 * width, y + 3 * width, 3 * (size_t)width, "rows after the spoiled one");
    op_output_free(clean);
    op_output_free(y);
    attention_case_release(&c);
    dflash_engine_destroy(engine);
}
END_TEST

START_TEST(dropping_keys_that_nobody_sees_changes_no_bit) {
    dflash_engine *engine = engine_of_loop(_i);
    op_random random = {223};
    attention_case c;
    attention_case_init(&c, &windowed, &random);
    const int width = c.args.n_kv_heads * c.args.head_dim;
    float *all = attention_run(engine, &c.args, "all keys");
    for (int dropped = 1; dropped <= 51; dropped++) {
        df_attention_args args = c.args;
        args.k += dropped * width;
        args.v += dropped * width;
        args.k_pos += dropped;
        args.keys -= dropped;
        float *y = attention_run(engine, &args, "fewer keys");
        op_expect_bits(all, y, attention_case_size(&c), "unseen keys dropped in front");
        op_output_free(y);
    }
    df_attention_args args = c.args; /* one more, which the first query sees: now it must differ */
    args.k += 52 * width, args.v += 52 * width, args.k_pos += 52, args.keys -= 52;
    float *y = attention_run(engine, &args, "one too few");
    ck_assert(!op_same_bits(all, y, attention_case_size(&c)));
    op_output_free(y);
    op_output_free(all);
    attention_case_release(&c);
    dflash_engine_destroy(engine);
}
END_TEST

/* Rows of one call and rows of calls of one query each. */
START_TEST(a_query_has_the_same_bits_alone_and_in_company) {
    dflash_engine *engine = engine_of_loop(_i);
    op_random random = {224};
    attention_case c;
    attention_case_init(&c, &windowed, &random);
    const int width = c.args.n_heads * c.args.head_dim;
    float *together = attention_run(engine, &c.args, "together");
    for (int row = 0; row < c.args.rows; row++) {
        df_attention_args args = c.args;
        args.q += row * width;
        args.q_pos += row;
        args.rows = 1;
        float *y = attention_run(engine, &args, "alone");
        op_expect_bits(together + row * width, y, (size_t)width, "a query alone");
        op_output_free(y);
    }
    op_output_free(together);
    attention_case_release(&c);
    dflash_engine_destroy(engine);
}
END_TEST

/* Scores around 1e4 would overflow exp without the maximum; an all-equal row is the mean. */
START_TEST(large_scores_neither_overflow_nor_lose_the_largest) {
    dflash_engine *engine = engine_of_loop(_i);
    op_random random = {225};
    attention_case c;
    attention_case_init(&c, &windowed, &random);
    for (size_t i = 0; i < attention_case_size(&c); i++) c.q[i] *= 1e4f;
    float *expected = op_floats(attention_case_size(&c));
    attention_scalar(&c.args, expected);
    float *y = attention_run(engine, &c.args, "large scores");
    op_expect_bits(expected, y, attention_case_size(&c), "large scores");
    for (size_t i = 0; i < attention_case_size(&c); i++) ck_assert(fabsf(y[i]) <= 1.0f);
    op_output_free(y);
    free(expected);
    attention_case_release(&c);
    dflash_engine_destroy(engine);
}
END_TEST

TCase *tcase_attention_masks(void) {
    TCase *tcase = tcase_create("attention masks");
    dflash_isa isa[OP_ISAS];
    const int isas = op_isas(isa);
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, the_edge_of_a_window_is_exact, 0, isas);
    tcase_add_loop_test(tcase, causality_without_a_window_cuts_after_the_query, 0, isas);
    tcase_add_loop_test(tcase, the_window_is_per_query_and_not_per_block, 0, isas);
    tcase_add_loop_test(tcase, whatever_an_unseen_key_holds_leaves_no_trace, 0, isas);
    tcase_add_loop_test(tcase, a_spoiled_key_reaches_only_the_queries_that_see_it, 0, isas);
    tcase_add_loop_test(tcase, a_spoiled_query_spares_the_queries_of_its_tile, 0, isas);
    tcase_add_loop_test(tcase, dropping_keys_that_nobody_sees_changes_no_bit, 0, isas);
    tcase_add_loop_test(tcase, a_query_has_the_same_bits_alone_and_in_company, 0, isas);
    tcase_add_loop_test(tcase, large_scores_neither_overflow_nor_lose_the_largest, 0, isas);
    return tcase;
}
