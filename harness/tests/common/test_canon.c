/*
 * test_canon.c - the streaming tree of canon.h against the recursion over segment indices that its comment describes
 * (op_case.c), bit for bit, on values whose sum depends on the order.
 */
#include "common/canon.h"
#include "support/op_case.h"

#include <stdlib.h>

enum { MOST_SEGMENTS = 400 };

/* Magnitudes over 24 binades with both signs: most additions round, so that another order shows. */
static float ragged(op_random *random) { return op_unit(random) * (float)(1 << op_below(random, 24)); }

static float streamed(const unsigned *segment, const float *sum, int n) {
    df_sum stream;
    df_tree_reset(&stream.tree);
    for (int i = 0; i < n; i++) {
        df_sum_push(&stream, segment[i], sum[i]);
        OP_REQUIRE(stream.tree.depth <= DF_TREE_SLOTS, "depth %d", stream.tree.depth);
    }
    return df_sum_total(&stream);
}

static void expect_tree(const unsigned *segment, const float *sum, int n) {
    const float expected = op_tree(segment, sum, n), actual = streamed(segment, sum, n);
    OP_REQUIRE(df_f32_to_bits(expected) == df_f32_to_bits(actual), "%d segments from %u: %a, expected %a", n,
               segment[0], (double)actual, (double)expected);
}

START_TEST(consecutive_segments_sum_as_the_recursion_does) {
    op_random random = {1};
    unsigned segment[MOST_SEGMENTS];
    float sum[MOST_SEGMENTS];
    for (int n = 1; n <= 130; n++)
        for (unsigned first = 0; first < 70; first += (unsigned)(1 + op_below(&random, 9))) {
            for (int i = 0; i < n; i++) {
                segment[i] = first + (unsigned)i;
                sum[i] = ragged(&random);
            }
            expect_tree(segment, sum, n);
        }
}
END_TEST

START_TEST(a_single_segment_is_its_own_sum_whatever_its_index) {
    static const unsigned index[] = {0, 1, 2, 63, 64, 0x1ffffffu, 0x7fffffffu, 0xffffffffu};
    for (size_t i = 0; i < sizeof index / sizeof *index; i++) {
        const float value = 1.5f;
        expect_tree(&index[i], &value, 1);
        ck_assert(streamed(&index[i], &value, 1) == 1.5f);
    }
}
END_TEST

/* Largest gap 2^bits - 1, starting so high that the last index stays below `limit`. */
static void gapped(op_random *random, int bits, uint64_t limit) {
    unsigned segment[MOST_SEGMENTS];
    float sum[MOST_SEGMENTS];
    const int n = 1 + op_below(random, 60);
    uint64_t at = op_next(random) % (limit - ((uint64_t)n << bits));
    for (int i = 0; i < n; i++) {
        segment[i] = (unsigned)at;
        sum[i] = ragged(random);
        at += 1 + op_next(random) % (((uint64_t)1 << bits) - 1);
    }
    ck_assert(segment[n - 1] < limit);
    expect_tree(segment, sum, n);
}

START_TEST(segments_with_gaps_and_offsets_sum_as_the_recursion_does) {
    op_random random = {2};
    const uint64_t last_position = (uint64_t)INT32_MAX / DF_SEGMENT + 1; /* 2^31 / 64 */
    for (int round = 0; round < 3000; round++) {
        gapped(&random, 1 + round % 19, last_position);
        gapped(&random, 1 + round % 25, (uint64_t)1 << 32);
    }
}
END_TEST

START_TEST(segments_at_the_end_of_the_index_range_sum_as_the_recursion_does) {
    op_random random = {3};
    unsigned segment[MOST_SEGMENTS];
    float sum[MOST_SEGMENTS];
    const unsigned ends[] = {(unsigned)(INT32_MAX / DF_SEGMENT), 0x7fffffffu, 0x80000040u, 0xffffffffu};
    for (size_t e = 0; e < sizeof ends / sizeof *ends; e++)
        for (int n = 1; n <= 200; n++) {
            for (int i = 0; i < n; i++) {
                segment[i] = ends[e] - (unsigned)(n - 1 - i);
                sum[i] = ragged(&random);
            }
            expect_tree(segment, sum, n);
        }
    /* One segment for every bit: the deepest stack there is. */
    for (int i = 0; i < 33; i++) {
        segment[i] = i == 0 ? 0 : 0xffffffffu << (32 - i);
        sum[i] = ragged(&random);
    }
    expect_tree(segment, sum, 33);
}
END_TEST

START_TEST(leaving_zero_segments_out_changes_no_bit) {
    op_random random = {4};
    unsigned all[MOST_SEGMENTS], kept[MOST_SEGMENTS];
    float with_zeros[MOST_SEGMENTS], without[MOST_SEGMENTS];
    for (int round = 0; round < 500; round++) {
        int n = 0;
        for (int i = 0; i < 90; i++) {
            all[i] = (unsigned)(1000 + i);
            const bool zero = op_below(&random, 3) == 0;
            with_zeros[i] = zero ? (op_below(&random, 2) == 0 ? 0.0f : -0.0f) : ragged(&random);
            if (zero) continue;
            kept[n] = all[i];
            without[n++] = with_zeros[i];
        }
        const float a = streamed(all, with_zeros, 90), b = streamed(kept, without, n);
        ck_assert_uint_eq(df_f32_to_bits(a), df_f32_to_bits(b));
    }
}
END_TEST

START_TEST(negative_zero_becomes_positive_zero_and_an_empty_sum_is_positive_zero) {
    const unsigned segment[] = {0, 1, 5};
    const float zeros[] = {-0.0f, -0.0f, -0.0f};
    df_sum empty;
    df_tree_reset(&empty.tree);
    ck_assert_uint_eq(df_f32_to_bits(df_sum_total(&empty)), 0);
    for (int n = 1; n <= 3; n++) ck_assert_uint_eq(df_f32_to_bits(streamed(segment, zeros, n)), 0);
}
END_TEST

START_TEST(a_total_may_be_taken_at_any_time_and_a_reset_starts_afresh) {
    op_random random = {5};
    unsigned segment[40];
    float sum[40];
    df_sum stream;
    for (int round = 0; round < 2; round++) {
        df_tree_reset(&stream.tree);
        for (int i = 0; i < 40; i++) {
            segment[i] = (unsigned)(3 + 2 * i);
            sum[i] = ragged(&random);
            df_sum_push(&stream, segment[i], sum[i]);
            ck_assert_uint_eq(df_f32_to_bits(df_sum_total(&stream)), df_f32_to_bits(op_tree(segment, sum, i + 1)));
        }
    }
}
END_TEST

/* The comparisons above could not fail if the order did not matter. */
START_TEST(a_sum_from_left_to_right_differs) {
    const unsigned segment[] = {0, 1, 2, 3};
    const float sum[] = {1.0f, 0x1p-24f, 0x1p-24f, 0x1p-24f};
    float running = 0.0f;
    for (int i = 0; i < 4; i++) running += sum[i];
    ck_assert(running == 1.0f);                              /* each small term alone is half a unit: lost */
    ck_assert(streamed(segment, sum, 4) == 1.0f + 0x1p-23f); /* (1 + u/2) + (u/2 + u/2) */
    op_random random = {6};
    int differ = 0;
    for (int round = 0; round < 1000; round++) {
        unsigned index[16];
        float value[16], chain = 0.0f;
        for (int i = 0; i < 16; i++) {
            index[i] = (unsigned)i;
            value[i] = ragged(&random);
            chain += value[i];
        }
        differ += chain != streamed(index, value, 16);
    }
    ck_assert_int_gt(differ, 500);
}
END_TEST

START_TEST(the_index_of_a_segment_decides_how_it_is_paired) {
    /* Segments 1,2,3 pair as 1 + (2 + 3), segments 0,1,2 as (0 + 1) + 2. */
    const unsigned from_one[] = {1, 2, 3}, from_zero[] = {0, 1, 2};
    const float sum[] = {1.0f, 0x1p-24f, 0x1p-24f};
    ck_assert(streamed(from_one, sum, 3) == 1.0f + 0x1p-23f);
    ck_assert(streamed(from_zero, sum, 3) == 1.0f);
}
END_TEST

Suite *suite_canon(void) {
    Suite *suite = suite_create("canon");
    TCase *tcase = tcase_create("tree");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, consecutive_segments_sum_as_the_recursion_does);
    tcase_add_test(tcase, a_single_segment_is_its_own_sum_whatever_its_index);
    tcase_add_test(tcase, segments_with_gaps_and_offsets_sum_as_the_recursion_does);
    tcase_add_test(tcase, segments_at_the_end_of_the_index_range_sum_as_the_recursion_does);
    tcase_add_test(tcase, leaving_zero_segments_out_changes_no_bit);
    tcase_add_test(tcase, negative_zero_becomes_positive_zero_and_an_empty_sum_is_positive_zero);
    tcase_add_test(tcase, a_total_may_be_taken_at_any_time_and_a_reset_starts_afresh);
    tcase_add_test(tcase, a_sum_from_left_to_right_differs);
    tcase_add_test(tcase, the_index_of_a_segment_decides_how_it_is_paired);
    suite_add_tcase(suite, tcase);
    return suite;
}
