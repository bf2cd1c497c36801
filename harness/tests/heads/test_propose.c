/*
 * test_propose.c - how tokens are chosen: top-k, argmax and softmax, the plain family's proposals, and the calls that
 * are refused. The selector has a file of its own (test_selector.c).
 */
#include "common/mathfn.h"
#include "support/op_case.h"
#include "heads/pick.h"
#include "support/propose_case.h"
#include "heads/topk.h"

#include <math.h>
#include <stdlib.h>

/* ---- Top-k, argmax, softmax ---- */

typedef struct entry {
    float value;
    int index;
} entry;

static int before(const void *left, const void *right) {
    const entry *a = left, *b = right;
    if (a->value != b->value) return a->value > b->value ? -1 : 1;
    return a->index - b->index;
}

static void check_topk(const float *row, int n, int k) {
    entry *sorted = op_alloc((size_t)n * sizeof *sorted);
    float *value = op_output((size_t)k);
    int32_t *index = op_alloc((size_t)k * sizeof *index);
    int found = -1, finite = 0;
    dflash_error err = {0};
    for (int i = 0; i < n; i++) {
        sorted[i] = (entry){row[i], i};
        finite += row[i] > -INFINITY;
    }
    qsort(sorted, (size_t)n, sizeof *sorted, before);
    ck_assert_int_eq(df_topk(row, n, k, "the row", 0, value, index, &found, &err), DFLASH_OK);
    ck_assert_int_eq(found, finite < k ? finite : k);
    for (int i = 0; i < found; i++) {
        ck_assert_msg(index[i] == sorted[i].index, "n=%d k=%d: place %d is %d, expected %d", n, k, i, index[i],
                      sorted[i].index);
        ck_assert_uint_eq(df_f32_to_bits(value[i]), df_f32_to_bits(row[index[i]]));
    }
    free(sorted);
    free(index);
    op_output_free(value);
}

START_TEST(top_k_is_the_head_of_a_stable_descending_sort) {
    op_random random = {60};
    for (int n = 1; n <= 400; n += n < 20 ? 1 : 37)
        for (int k = 1; k <= n + 2; k += 1 + k / 3)
            for (int kind = 0; kind < 4; kind++) {
                float *row = op_floats((size_t)n);
                for (int i = 0; i < n; i++) {
                    row[i] = op_unit(&random);
                    if (kind == 1)
                        row[i] = df_bf16_to_f32(df_f32_to_bf16(3.0f + row[i] * 0.05f)); /* neighbours collapse */
                    if (kind == 2) row[i] = i % 3 == 0 ? -INFINITY : (float)op_below(&random, 4);
                    if (kind == 3) row[i] = op_below(&random, 2) ? 0.0f : -0.0f; /* both zeros tie */
                }
                check_topk(row, n, k);
                free(row);
            }
}
END_TEST

START_TEST(top_k_meets_rising_falling_and_level_rows) {
    enum { N = 1000 };
    float row[N];
    for (int kind = 0; kind < 3; kind++) {
        for (int i = 0; i < N; i++) row[i] = kind == 0 ? (float)i : kind == 1 ? (float)-i : 7.0f;
        check_topk(row, N, 16);
        check_topk(row, N, N);
    }
}
END_TEST

START_TEST(a_nan_or_an_overflow_anywhere_in_a_row_is_refused) {
    enum { N = 200 };
    float row[N], value[3];
    int32_t index[3];
    int found;
    dflash_error err = {0};
    for (int at = 0; at < N; at++)
        for (int kind = 0; kind < 2; kind++) {
            for (int i = 0; i < N; i++) row[i] = (float)(N - i);
            row[at] = kind == 0 ? df_bits_to_f32(at % 2 == 0 ? 0x7fc00001u : 0xffc00001u) : INFINITY;
            ck_assert_int_eq(df_topk(row, N, 3, "the row", 5, value, index, &found, &err), DFLASH_ERR_REFUSED);
            ck_assert_str_eq(err.code, kind == 0 ? "proposal.nan" : "proposal.infinite");
            ck_assert_ptr_nonnull(strstr(err.message, "Slot 5"));
        }
}
END_TEST

START_TEST(argmax_takes_the_first_of_equals_and_no_row_without_a_finite_value) {
    float row[130];
    int32_t index = -1;
    dflash_error err = {0};
    for (int at = 0; at < 130; at++) {
        for (int i = 0; i < 130; i++) row[i] = i >= at && (i - at) % 7 == 0 ? 1.5f : i % 2 == 0 ? -INFINITY : -2.0f;
        ck_assert_int_eq(df_pick_argmax(row, 130, "the row", 0, &index, &err), DFLASH_OK);
        ck_assert_int_eq(index, at);
    }
    for (int i = 0; i < 130; i++) row[i] = -INFINITY;
    for (int n = 1; n <= 130; n += 43) {
        ck_assert_int_eq(df_pick_argmax(row, n, "the row", 9, &index, &err), DFLASH_ERR_REFUSED);
        ck_assert_str_eq(err.code, "proposal.nofinite");
    }
    row[129] = NAN;
    ck_assert_int_eq(df_pick_argmax(row, 130, "the row", 9, &index, &err), DFLASH_ERR_REFUSED);
    ck_assert_str_eq(err.code, "proposal.nan");
}
END_TEST

START_TEST(softmax_agrees_with_double_precision_and_gives_nothing_to_masked_values) {
    op_random random = {61};
    dflash_error err = {0};
    for (int n = 1; n <= 5000; n = 3 * n + 2)
        for (int t = 0; t < 3; t++) {
            const float temperature = t == 0 ? 1.0f : t == 1 ? 0.3f : 4.0f;
            float *row = op_floats((size_t)n), *p = op_output((size_t)n);
            double max = -INFINITY, total = 0, sum = 0;
            for (int i = 0; i < n; i++) {
                row[i] = i % 5 == 3 ? -INFINITY : op_unit(&random) * 12.0f;
                if (row[i] > max) max = row[i];
            }
            for (int i = 0; i < n; i++) total += exp(((double)row[i] - max) / temperature);
            ck_assert_int_eq(df_pick_softmax(row, n, temperature, p, "the row", 0, &err), DFLASH_OK);
            op_output_check(p, (size_t)n, "softmax");
            for (int i = 0; i < n; i++) {
                const double exact = exp(((double)row[i] - max) / temperature) / total;
                ck_assert_double_le(fabs(p[i] - exact), 1e-5 * exact);
                if (i % 5 == 3) ck_assert_uint_eq(df_f32_to_bits(p[i]), 0);
                sum += p[i];
            }
            ck_assert_double_lt(fabs(sum - 1.0), 2e-6);
            free(row);
            op_output_free(p);
        }
}
END_TEST

START_TEST(softmax_has_the_canonical_bits) {
    enum { N = 300 };
    float row[N], p[N], e[N], ones[N];
    op_random random = {62};
    dflash_error err = {0};
    op_fill(&random, row, N);
    row[70] = 2.0f; /* the largest */
    for (int i = 0; i < N; i++) {
        const float difference = row[i] - 2.0f;
        e[i] = df_exp(difference / 0.5f);
        ones[i] = 1.0f;
    }
    ck_assert_int_eq(df_pick_softmax(row, N, 0.5f, p, "the row", 0, &err), DFLASH_OK);
    const float total = op_dot(e, ones, N);
    for (int i = 0; i < N; i++) e[i] /= total;
    op_expect_bits(e, p, N, "softmax");
}
END_TEST

START_TEST(softmax_needs_a_positive_finite_temperature) {
    static const float bad[] = {0.0f, -1.0f, INFINITY, NAN};
    const float row[] = {1, 2};
    float p[2];
    dflash_error err = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_int_eq(df_pick_softmax(row, 2, bad[i], p, "the row", 0, &err), DFLASH_ERR_ARGUMENT);
        ck_assert_str_eq(err.code, "proposal.temperature");
    }
}
END_TEST

/* ---- The plain family ---- */

/* A plain drafter, three slots over five columns, and room for every output. */
enum { SLOTS = 3, COLUMNS = 5 };
static const float LOGITS[SLOTS * COLUMNS] = {0, 2, 1, 2, -1, /**/ -INFINITY, -3, -2, -2, -9, /**/ 1, 1, 1, 1, 1.5f};

static dflash_engine *engine;
static dflash_draft *draft;
static int32_t token[SLOTS], candidate[SLOTS * COLUMNS];
static float share[SLOTS], probability[SLOTS * COLUMNS];
static const dflash_proposal everything = {token, share, candidate, probability};

static void setup(void) {
    engine = op_engine(DFLASH_ISA_BEST, 2, true);
    draft = pc_load(engine, "fixtures/small/tiny-plain");
}

static void teardown(void) {
    dflash_draft_destroy(draft);
    dflash_engine_destroy(engine);
}

START_TEST(harvested_rows_and_widths_follow_the_family) {
    dflash_config config = {.block = 8, .harvest = DFLASH_HARVEST_MASK_FILL};
    int first = -1, count = -1;
    dflash_harvest_rows(&config, &first, &count);
    ck_assert(first == 1 && count == 7);
    config.harvest = DFLASH_HARVEST_SHIFTED;
    dflash_harvest_rows(&config, &first, &count);
    ck_assert(first == 0 && count == 8);
    dflash_draft *two = pc_load(engine, "fixtures/small/tiny-dflash2");
    ck_assert_int_eq(dflash_proposal_width(draft, 999), 999);
    ck_assert_int_eq(dflash_proposal_width(two, 999), 8);
    dflash_draft_destroy(two);
}
END_TEST

START_TEST(greedy_tokens_are_the_first_best_of_each_row) {
    dflash_error err = {0};
    const dflash_proposal_options greedy = {.temperature = 0};
    ck_assert_int_eq(dflash_propose(draft, NULL, LOGITS, NULL, SLOTS, COLUMNS, 0, &greedy, &everything, &err),
                     DFLASH_OK);
    ck_assert(token[0] == 1 && token[1] == 2 && token[2] == 4);
    for (int slot = 0; slot < SLOTS; slot++) {
        double total = 0;
        for (int i = 0; i < COLUMNS; i++) {
            total += exp((double)LOGITS[slot * COLUMNS + i]);
            ck_assert_int_eq(candidate[slot * COLUMNS + i], i);
            ck_assert(probability[slot * COLUMNS + i] == (i == token[slot] ? 1.0f : 0.0f));
        }
        const double exact = exp((double)LOGITS[slot * COLUMNS + token[slot]]) / total;
        ck_assert_double_lt(fabs(share[slot] - exact), 1e-6);
    }
    const dflash_proposal nothing = {0};
    ck_assert_int_eq(dflash_propose(draft, NULL, LOGITS, NULL, SLOTS, COLUMNS, 0, &greedy, &nothing, &err), DFLASH_OK);
}
END_TEST

START_TEST(sampled_tokens_are_drawn_from_the_recorded_distribution) {
    dflash_error err = {0};
    for (int step = 0; step < 100; step++) {
        const float uniform[SLOTS] = {(float)step * 0.01f, 0.999999f, (float)(99 - step) * 0.01f};
        const dflash_proposal_options sampled = {.temperature = 0.7f, .uniform = uniform};
        ck_assert_int_eq(dflash_propose(draft, NULL, LOGITS, NULL, SLOTS, COLUMNS, 0, &sampled, &everything, &err),
                         DFLASH_OK);
        for (int slot = 0; slot < SLOTS; slot++) {
            float expected[COLUMNS];
            ck_assert_int_eq(df_pick_softmax(LOGITS + slot * COLUMNS, COLUMNS, 0.7f, expected, "the row", slot, &err),
                             DFLASH_OK);
            op_expect_bits(expected, probability + slot * COLUMNS, COLUMNS, "the distribution");
            ck_assert_int_eq(token[slot], pc_draw(expected, COLUMNS, uniform[slot]));
            ck_assert(share[slot] == expected[token[slot]]);
        }
    }
}
END_TEST

START_TEST(a_reduced_vocabulary_gives_target_ids) {
    const float w[COLUMNS] = {0};
    const int32_t offset[COLUMNS] = {10, 10, 20, 20, 30};
    dflash_table *table = NULL;
    dflash_error err = {0};
    ck_assert_int_eq(dflash_table_create(engine, "F32", COLUMNS, 1, w, &table, &err), DFLASH_OK);
    ck_assert_int_eq(dflash_table_set_offsets(table, offset, 40, &err), DFLASH_OK);
    const dflash_proposal_options greedy = {.temperature = 0};
    ck_assert_int_eq(dflash_propose(draft, table, LOGITS, NULL, SLOTS, COLUMNS, 39, &greedy, &everything, &err),
                     DFLASH_OK);
    ck_assert(token[0] == 11 && token[1] == 22 && token[2] == 34);
    for (int i = 0; i < SLOTS * COLUMNS; i++) ck_assert_int_eq(candidate[i], i % COLUMNS + offset[i % COLUMNS]);
    ck_assert_int_eq(dflash_propose(draft, table, LOGITS, NULL, SLOTS, COLUMNS, 40, &greedy, &everything, &err),
                     DFLASH_ERR_REFUSED);
    ck_assert_str_eq(err.code, "proposal.anchor");
    ck_assert_int_eq(dflash_propose(draft, table, LOGITS, NULL, SLOTS, 4, 0, &greedy, &everything, &err),
                     DFLASH_ERR_ARGUMENT);
    ck_assert_str_eq(err.code, "proposal.vocab");
    dflash_table_destroy(table);
}
END_TEST

static void refuse(const float *logits, int n, int columns, int32_t anchor, float temperature, const float *uniform,
                   dflash_status status, const char *code) {
    const dflash_proposal_options options = {.temperature = temperature, .uniform = uniform};
    dflash_error err = {0};
    ck_assert_int_eq(dflash_propose(draft, NULL, logits, NULL, n, columns, anchor, &options, &everything, &err),
                     status);
    ck_assert_str_eq(err.code, code);
}

START_TEST(proposals_that_contradict_the_interface_are_refused) {
    const float good[SLOTS] = {0, 0.5f, 0.99f}, one[SLOTS] = {0, 0.5f, 1.0f}, below[SLOTS] = {0, -0.001f, 0};
    const float nan[SLOTS] = {NAN, 0, 0};
    refuse(LOGITS, 0, COLUMNS, 0, 0, NULL, DFLASH_ERR_ARGUMENT, "proposal.shape");
    refuse(LOGITS, SLOTS, 0, 0, 0, NULL, DFLASH_ERR_ARGUMENT, "proposal.shape");
    refuse(LOGITS, SLOTS, COLUMNS, -1, 0, NULL, DFLASH_ERR_REFUSED, "proposal.anchor");
    refuse(LOGITS, SLOTS, COLUMNS, COLUMNS, 0, NULL, DFLASH_ERR_REFUSED, "proposal.anchor");
    refuse(LOGITS, SLOTS, COLUMNS, 0, -0.5f, good, DFLASH_ERR_ARGUMENT, "proposal.temperature");
    refuse(LOGITS, SLOTS, COLUMNS, 0, NAN, good, DFLASH_ERR_ARGUMENT, "proposal.temperature");
    refuse(LOGITS, SLOTS, COLUMNS, 0, INFINITY, good, DFLASH_ERR_ARGUMENT, "proposal.temperature");
    refuse(LOGITS, SLOTS, COLUMNS, 0, 1, NULL, DFLASH_ERR_ARGUMENT, "proposal.uniform");
    refuse(LOGITS, SLOTS, COLUMNS, 0, 1, one, DFLASH_ERR_ARGUMENT, "proposal.uniform");
    refuse(LOGITS, SLOTS, COLUMNS, 0, 1, below, DFLASH_ERR_ARGUMENT, "proposal.uniform");
    refuse(LOGITS, SLOTS, COLUMNS, 0, 1, nan, DFLASH_ERR_ARGUMENT, "proposal.uniform");
}
END_TEST

START_TEST(rows_without_a_best_value_are_refused_greedy_or_sampled) {
    const float uniform[SLOTS] = {0, 0.5f, 0.99f};
    float logits[SLOTS * COLUMNS];
    for (int sampled = 0; sampled < 2; sampled++) {
        memcpy(logits, LOGITS, sizeof logits);
        logits[2 * COLUMNS + 3] = NAN;
        refuse(logits, SLOTS, COLUMNS, 0, (float)sampled, uniform, DFLASH_ERR_REFUSED, "proposal.nan");
        logits[2 * COLUMNS + 3] = INFINITY;
        refuse(logits, SLOTS, COLUMNS, 0, (float)sampled, uniform, DFLASH_ERR_REFUSED, "proposal.infinite");
        for (int i = 0; i < COLUMNS; i++) logits[COLUMNS + i] = -INFINITY;
        refuse(logits, SLOTS, COLUMNS, 0, (float)sampled, uniform, DFLASH_ERR_REFUSED, "proposal.nofinite");
    }
}
END_TEST

Suite *suite_propose(void) {
    Suite *suite = suite_create("propose");
    TCase *pick = tcase_create("pick");
    tcase_set_timeout(pick, 300);
    tcase_add_test(pick, top_k_is_the_head_of_a_stable_descending_sort);
    tcase_add_test(pick, top_k_meets_rising_falling_and_level_rows);
    tcase_add_test(pick, a_nan_or_an_overflow_anywhere_in_a_row_is_refused);
    tcase_add_test(pick, argmax_takes_the_first_of_equals_and_no_row_without_a_finite_value);
    tcase_add_test(pick, softmax_agrees_with_double_precision_and_gives_nothing_to_masked_values);
    tcase_add_test(pick, softmax_has_the_canonical_bits);
    tcase_add_test(pick, softmax_needs_a_positive_finite_temperature);
    suite_add_tcase(suite, pick);
    TCase *plain = tcase_create("plain");
    tcase_add_checked_fixture(plain, setup, teardown);
    tcase_add_test(plain, harvested_rows_and_widths_follow_the_family);
    tcase_add_test(plain, greedy_tokens_are_the_first_best_of_each_row);
    tcase_add_test(plain, sampled_tokens_are_drawn_from_the_recorded_distribution);
    tcase_add_test(plain, a_reduced_vocabulary_gives_target_ids);
    tcase_add_test(plain, proposals_that_contradict_the_interface_are_refused);
    tcase_add_test(plain, rows_without_a_best_value_are_refused_greedy_or_sampled);
    suite_add_tcase(suite, plain);
    suite_add_tcase(suite, tcase_selector());
    return suite;
}
