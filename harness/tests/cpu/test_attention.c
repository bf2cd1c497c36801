/*
 * test_attention.c - attention of every instruction set against the scalar text of attention_case.c, bit for bit, and
 * against a softmax in double. Masks have a file of their own, test_attention_masks.c.
 */
#include "support/attention_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void check_case(dflash_engine *const *engine, int engines, const attention_shape *shape, op_random *random) {
    attention_case c;
    char what[160];
    attention_case_init(&c, shape, random);
    const size_t n = attention_case_size(&c);
    float *expected = op_floats(n);
    double *exact = op_alloc(n * sizeof *exact);
    attention_scalar(&c.args, expected);
    attention_double(&c.args, exact);
    for (int e = 0; e < engines; e++) {
        snprintf(what, sizeof what, "%s rows=%d ctx=%d heads=%d/%d hd=%d window=%d causal=%d start=%d gap=%d",
                 dflash_engine_isa(engine[e]), shape->rows, shape->context, shape->heads, shape->kv_heads,
                 shape->head_dim, shape->window, shape->causal, shape->start, shape->gap);
        float *y = attention_run(engine[e], &c.args, what);
        op_expect_bits(expected, y, n, what);
        /* Measured over all cases: 4.7e-7 at most. */
        ck_assert_msg(op_relative_l2(y, exact, n) < 1e-6, "%s: relative L2 %g", what, op_relative_l2(y, exact, n));
        op_output_free(y);
    }
    free(expected);
    free(exact);
    attention_case_release(&c);
}

static int engines_of_this_machine(dflash_engine *engine[OP_ISAS], int threads) {
    dflash_isa isa[OP_ISAS];
    const int n = op_isas(isa);
    for (int e = 0; e < n; e++) engine[e] = op_engine(isa[e], threads, true);
    return n;
}

static void destroy(dflash_engine *const *engine, int n) {
    for (int e = 0; e < n; e++) dflash_engine_destroy(engine[e]);
}

static const int head_dims[] = {8, 12, 16, 64, 80, 128};
enum { HEAD_DIMS = sizeof head_dims / sizeof *head_dims };

START_TEST(every_head_size_has_the_canonical_bits) {
    static const struct {
        int rows, context, heads, kv_heads;
    } shapes[] = {{1, 0, 1, 1}, {1, 5, 2, 1}, {5, 24, 6, 2}, {16, 70, 3, 1}, {17, 130, 4, 4}, {7, 63, 10, 2}};
    op_random random = {(uint64_t)(200 + _i)};
    dflash_engine *engine[OP_ISAS];
    const int engines = engines_of_this_machine(engine, 2);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int mask = 0; mask < 4; mask++) {
            const attention_shape shape = {.rows = shapes[s].rows,
                                           .context = shapes[s].context,
                                           .heads = shapes[s].heads,
                                           .kv_heads = shapes[s].kv_heads,
                                           .head_dim = head_dims[_i],
                                           .window = (mask & 1) != 0 ? 20 : 0,
                                           .causal = (mask & 2) != 0,
                                           .start = (int32_t)(1000 + 37 * s)};
            check_case(engine, engines, &shape, &random);
        }
    destroy(engine, engines);
}
END_TEST

START_TEST(random_shapes_have_the_canonical_bits) {
    op_random random = {210};
    dflash_engine *engine[OP_ISAS];
    const int engines = engines_of_this_machine(engine, 3);
    for (int round = 0; round < 150; round++) {
        const int kv_heads = 1 + op_below(&random, 3);
        const attention_shape shape = {.rows = 1 + op_below(&random, 18),
                                       .context = op_below(&random, 150),
                                       .heads = kv_heads * (1 + op_below(&random, 5)),
                                       .kv_heads = kv_heads,
                                       .head_dim = head_dims[op_below(&random, 3)],
                                       .window = op_below(&random, 2) == 0 ? 0 : 1 + op_below(&random, 100),
                                       .causal = op_below(&random, 2) == 0,
                                       .start = op_below(&random, 300000),
                                       .gap = op_below(&random, 2) == 0 ? 1 : 1 + op_below(&random, 200)};
        check_case(engine, engines, &shape, &random);
    }
    destroy(engine, engines);
}
END_TEST

START_TEST(positions_at_the_end_of_their_range_have_the_canonical_bits) {
    op_random random = {211};
    dflash_engine *engine[OP_ISAS];
    const int engines = engines_of_this_machine(engine, 1);
    for (int window = 0; window <= 1 << 30; window += 1 << 29)
        for (int causal = 0; causal < 2; causal++) {
            const attention_shape shape = {.rows = 5,
                                           .context = 90,
                                           .heads = 6,
                                           .kv_heads = 2,
                                           .head_dim = 16,
                                           .window = window,
                                           .causal = causal == 1,
                                           .start = INT32_MAX - 94};
            check_case(engine, engines, &shape, &random);
        }
    destroy(engine, engines);
}
END_TEST

START_TEST(the_number_of_threads_changes_no_bit_of_attention) {
    const attention_shape shape = {
        .rows = 16, .context = 100, .heads = 12, .kv_heads = 4, .head_dim = 64, .window = 50, .start = 777};
    op_random random = {212};
    attention_case c;
    attention_case_init(&c, &shape, &random);
    const size_t n = attention_case_size(&c);
    dflash_engine *first = op_engine(DFLASH_ISA_GENERIC, 1, false);
    float *expected = attention_run(first, &c.args, "one thread");
    dflash_isa isa[OP_ISAS];
    const int isas = op_isas(isa);
    for (int e = 0; e < isas; e++)
        for (int threads = 1; threads <= 3; threads++) {
            dflash_engine *engine = op_engine(isa[e], threads, true);
            for (int again = 0; again < 3; again++) {
                float *y = attention_run(engine, &c.args, "threads");
                op_expect_bits(expected, y, n, dflash_engine_isa(engine));
                op_output_free(y);
            }
            dflash_engine_destroy(engine);
        }
    op_output_free(expected);
    dflash_engine_destroy(first);
    attention_case_release(&c);
}
END_TEST

/* Query head h reads key/value head h / (nh / nkv); a mapping that tiles (h mod nkv) would give other values. */
START_TEST(query_heads_are_grouped_and_not_tiled) {
    enum { HEADS = 6, KV_HEADS = 2, HD = 8 };
    const attention_shape shape = {.rows = 2, .context = 3, .heads = HEADS, .kv_heads = KV_HEADS, .head_dim = HD};
    op_random random = {213};
    attention_case c;
    attention_case_init(&c, &shape, &random);
    for (int key = 0; key < c.args.keys; key++)
        for (int d = 0; d < KV_HEADS * HD; d++) c.v[key * KV_HEADS * HD + d] = d < HD ? 1.0f : 2.0f;
    dflash_engine *engine[OP_ISAS];
    const int engines = engines_of_this_machine(engine, 1);
    for (int e = 0; e < engines; e++) {
        float *y = attention_run(engine[e], &c.args, "grouping");
        for (int row = 0; row < shape.rows; row++)
            for (int head = 0; head < HEADS; head++)
                for (int d = 0; d < HD; d++)
                    ck_assert(fabsf(y[(row * HEADS + head) * HD + d] - (head < 3 ? 1.0f : 2.0f)) < 1e-6f);
        op_output_free(y);
    }
    destroy(engine, engines);
    attention_case_release(&c);
}
END_TEST

/* Does moving every position by `shift` keep the bits, on every instruction set? */
static bool survives(const attention_shape *shape, int32_t shift) {
    op_random random = {214};
    attention_case c;
    attention_case_init(&c, shape, &random);
    dflash_engine *engine[OP_ISAS];
    const int engines = engines_of_this_machine(engine, 2);
    int same = 0;
    for (int e = 0; e < engines; e++) {
        float *before = attention_run(engine[e], &c.args, "unmoved");
        for (int i = 0; i < c.args.keys; i++) c.k_pos[i] += shift;
        for (int i = 0; i < c.args.rows; i++) c.q_pos[i] += shift;
        float *after = attention_run(engine[e], &c.args, "moved");
        same += op_same_bits(before, after, attention_case_size(&c));
        for (int i = 0; i < c.args.keys; i++) c.k_pos[i] -= shift;
        for (int i = 0; i < c.args.rows; i++) c.q_pos[i] -= shift;
        op_output_free(before);
        op_output_free(after);
    }
    destroy(engine, engines);
    attention_case_release(&c);
    ck_assert(same == 0 || same == engines);
    return same == engines;
}

START_TEST(positions_decide_where_sums_are_cut_and_how_they_are_paired) {
    /* Keys 640 to 764 lie in segments 10 and 11. Two segments are one addition wherever they are. */
    attention_shape shape = {.rows = 5, .context = 120, .heads = 6, .kv_heads = 2, .head_dim = 16, .start = 640};
    ck_assert(survives(&shape, 64));
    ck_assert(survives(&shape, 128));
    ck_assert(survives(&shape, 64 * 7777));
    ck_assert(!survives(&shape, 1));
    ck_assert(!survives(&shape, 63));
    /* Keys 640 to 944 lie in segments 10 to 14, inside the node of segments 8 to 15: whole nodes may be moved by,
     * single segments may not. */
    shape.context = 300;
    ck_assert(survives(&shape, 8 * 64));
    ck_assert(survives(&shape, 8 * 64 * 333));
    ck_assert(!survives(&shape, 64));
}
END_TEST

TCase *tcase_attention(void) {
    TCase *tcase = tcase_create("attention");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, every_head_size_has_the_canonical_bits, 0, HEAD_DIMS);
    tcase_add_test(tcase, random_shapes_have_the_canonical_bits);
    tcase_add_test(tcase, positions_at_the_end_of_their_range_have_the_canonical_bits);
    tcase_add_test(tcase, the_number_of_threads_changes_no_bit_of_attention);
    tcase_add_test(tcase, query_heads_are_grouped_and_not_tiled);
    tcase_add_test(tcase, positions_decide_where_sums_are_cut_and_how_they_are_paired);
    return tcase;
}
