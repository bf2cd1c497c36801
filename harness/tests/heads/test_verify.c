/*
 * test_verify.c - accepted prefix, rejection rule, residual and draw, each against exact arithmetic, and the whole walk
 * against the target's distribution.
 */
#include "suites.h"

#include "dflash.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Accepted prefix and rejection rule ---- */

START_TEST(the_accepted_prefix_ends_at_the_first_difference) {
    const int32_t target[] = {7, 8, 9, 9, 10};
    for (int at = 0; at < 5; at++) {
        int32_t draft[] = {7, 8, 9, 9, 10};
        draft[at] = 1;
        ck_assert_int_eq(dflash_accepted_prefix(draft, target, 5), at);
    }
    ck_assert_int_eq(dflash_accepted_prefix(target, target, 5), 5);
    ck_assert_int_eq(dflash_accepted_prefix(target, target, 3), 3);
    ck_assert_int_eq(dflash_accepted_prefix(target, target, 0), 0);
    /* a match behind a mismatch does not count */
    const int32_t late[] = {7, 1, 9, 9, 10};
    ck_assert_int_eq(dflash_accepted_prefix(late, target, 5), 1);
}
END_TEST

START_TEST(a_token_is_accepted_while_u_q_is_below_p) {
    ck_assert(dflash_accept_token(0.5f, 0.26f, 0.5f));
    ck_assert(!dflash_accept_token(0.5f, 0.25f, 0.5f)); /* equal is not below */
    ck_assert(dflash_accept_token(0.0f, 0.1f, 0.9f));
    ck_assert(!dflash_accept_token(0.0f, 0.0f, 0.9f));
    ck_assert(dflash_accept_token(0x1.fffffep-1f, 0.3f, 0.3f));
    /* the product is not rounded: it lies below p, and rounds to p */
    const float u = 0x1.000004p-1f, q = 0x1.fffffcp-1f, p = 0x1.000002p-1f;
    ck_assert(u * q == p);
    ck_assert(dflash_accept_token(u, p, q));
    ck_assert(!dflash_accept_token(NAN, 0.5f, 0.5f) && !dflash_accept_token(0.1f, NAN, 0.5f) &&
              !dflash_accept_token(0.1f, 0.5f, NAN));
}
END_TEST

/* ---- Draw ---- */

/* Multiples of 2^-10 leave no rounding, so the search can be done in whole numbers. */
START_TEST(a_draw_is_the_first_index_whose_sum_exceeds_u) {
    enum { N = 200, UNITS = 1024 };
    int units[N] = {0};
    for (int i = 0, left = UNITS; i < N; i++) {
        /* zeros at the start, at the end and on both sides of the segment borders at 64 and 128 */
        const bool none = i < 3 || i > 195 || i == 63 || i == 64 || i == 128 || i % 7 == 0;
        units[i] = none ? 0 : i == 195 ? left : 1 + i % 9;
        left -= units[i];
        ck_assert_int_ge(left, 0);
    }
    float probability[N];
    for (int i = 0; i < N; i++) probability[i] = (float)units[i] / UNITS;
    for (int u = 0; u < UNITS; u++) {
        int want = 0;
        for (int sum = units[0]; sum <= u; sum += units[want]) want++;
        ck_assert_int_eq(dflash_draw(probability, N, (float)u / UNITS), want);
        ck_assert_int_eq(dflash_draw(probability, N, (float)u / UNITS + 0x1p-11f), want);
    }
}
END_TEST

START_TEST(a_draw_does_not_need_the_values_to_sum_to_one) {
    const float twice[] = {0.5f, 1.0f, 0.5f}, tiny[] = {0x1p-140f, 0x1p-140f};
    ck_assert_int_eq(dflash_draw(twice, 3, 0.25f), 1);
    ck_assert_int_eq(dflash_draw(twice, 3, 0.75f), 2);
    ck_assert_int_eq(dflash_draw(tiny, 2, 0.49f), 0);
    ck_assert_int_eq(dflash_draw(tiny, 2, 0.5f), 1);
}
END_TEST

/* A float32 running sum would lose every one of the small terms behind the large one. */
START_TEST(small_probabilities_of_a_large_vocabulary_are_drawn) {
    enum { N = 1 + (1 << 18) };
    float *probability = malloc(N * sizeof *probability);
    ck_assert_ptr_nonnull(probability);
    probability[0] = 1.0f - 0x1p-9f;
    for (int i = 1; i < N; i++) probability[i] = 0x1p-27f;
    float lost = probability[0];
    for (int i = 1; i < N; i++) lost += probability[i];
    ck_assert(lost == probability[0]);
    for (int i = 0; i < 1 << 15; i += 97) {
        const float u = probability[0] + (float)i * 0x1p-24f; /* i units of 2^-24 are 8 i terms */
        ck_assert_int_eq(dflash_draw(probability, N, u), 1 + 8 * i);
    }
    ck_assert_int_eq(dflash_draw(probability, N, nextafterf(probability[0], 0.0f)), 0);
    free(probability);
}
END_TEST

START_TEST(what_cannot_be_drawn_from_gives_no_index) {
    const float good[] = {0.5f, 0.5f}, zeros[] = {0.0f, 0.0f};
    const float uniforms[] = {1.0f, -0x1p-24f, 2.0f, NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof uniforms / sizeof *uniforms; i++)
        ck_assert_int_eq(dflash_draw(good, 2, uniforms[i]), -1);
    ck_assert_int_eq(dflash_draw(zeros, 2, 0.0f), -1);
    ck_assert_int_eq(dflash_draw(good, 0, 0.0f), -1);
    const float bad[] = {NAN, INFINITY, -0.25f, -INFINITY};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const float first[] = {bad[i], 0.5f}, last[] = {0.5f, bad[i]};
        ck_assert_int_eq(dflash_draw(first, 2, 0.9f), -1);
        ck_assert_int_eq(dflash_draw(last, 2, 0.1f), -1);
    }
    ck_assert_int_eq(dflash_draw(good, 2, 0.0f), 0);
}
END_TEST

/* ---- Residual ---- */

static void residual_is(const float *p, int vocab, const float *q, const int32_t *candidate, int k, const float *want) {
    float out[8], in_place[8];
    dflash_error err = {0};
    ck_assert_msg(dflash_residual(p, vocab, q, candidate, k, out, &err) == DFLASH_OK, "%s: %s", err.code, err.message);
    memcpy(in_place, p, (size_t)vocab * sizeof *p);
    ck_assert_int_eq(dflash_residual(in_place, vocab, q, candidate, k, in_place, &err), DFLASH_OK);
    for (int i = 0; i < vocab; i++) {
        ck_assert_msg(out[i] == want[i], "value %d is %.9g, not %.9g", i, (double)out[i], (double)want[i]);
        ck_assert(in_place[i] == want[i]);
    }
}

START_TEST(a_residual_is_what_p_has_over_q_normalised) {
    const float p[] = {0.5f, 0.25f, 0.25f, 0.0f}, q[] = {0.25f, 0.5f, 0.125f, 0.125f};
    residual_is(p, 4, q, NULL, 4, (const float[]){(float)(0.25 / 0.375), 0.0f, (float)(0.125 / 0.375), 0.0f});
}
END_TEST

START_TEST(a_proposal_over_candidates_is_taken_from_their_ids) {
    const float p[] = {0.25f, 0.125f, 0.5f, 0.125f, 0.0f}, q[] = {0.25f, 0.25f, 0.5f};
    /* token 2 gives up 0.25, token 4 has nothing, token 1 is used up; 0 and 3 were not proposed */
    residual_is(p, 5, q, (const int32_t[]){2, 4, 1}, 3,
                (const float[]){(float)(0.25 / 0.625), 0.0f, (float)(0.25 / 0.625), (float)(0.125 / 0.625), 0.0f});
    /* all of the vocabulary in another order */
    residual_is(p, 3 + 2, (const float[]){0.5f, 0.0f, 0.25f, 0.125f, 0.125f}, (const int32_t[]){0, 4, 2, 1, 3}, 5,
                (const float[]){0.0f, 0.0f, 1.0f, 0.0f, 0.0f});
}
END_TEST

START_TEST(when_nothing_is_left_the_residual_is_p_itself) {
    const float p[] = {0.5f, 0.0f, 0.375f, 0.125f};
    residual_is(p, 4, p, NULL, 4, p);
    residual_is(p, 4, (const float[]){0.375f, 0.125f, 0.5f}, (const int32_t[]){2, 3, 0}, 3, p);
    /* p sums to a little less than q everywhere, as two roundings of one distribution may */
    const float less[] = {0.5f, 0.0f, 0.3749999f, 0.125f};
    residual_is(less, 4, p, NULL, 4, less);
    /* what is left may be only where nothing was proposed */
    residual_is(p, 4, (const float[]){0.5f, 0.5f}, (const int32_t[]){0, 2}, 2, (const float[]){0.0f, 0.0f, 0.0f, 1.0f});
}
END_TEST

static void refuse_residual(const float *p, int vocab, const float *q, const int32_t *candidate, int k,
                            const char *code) {
    float out[8];
    dflash_error err = {0};
    const dflash_status status = dflash_residual(p, vocab, q, candidate, k, out, &err);
    ck_assert_msg(status == DFLASH_ERR_ARGUMENT && strcmp(err.code, code) == 0, "expected %s, got %d %s: %s", code,
                  (int)status, err.code, err.message);
}

START_TEST(what_is_no_proposal_is_refused_by_name) {
    const float p[] = {0.5f, 0.25f, 0.25f}, q[] = {0.5f, 0.5f};
    refuse_residual(NULL, 3, q, (const int32_t[]){0, 1}, 2, "residual.argument");
    refuse_residual(p, 3, NULL, (const int32_t[]){0, 1}, 2, "residual.argument");
    refuse_residual(p, 0, q, (const int32_t[]){0, 1}, 2, "residual.argument");
    refuse_residual(p, 3, q, (const int32_t[]){0, 1}, 0, "residual.argument");
    refuse_residual(p, 3, q, NULL, 2, "residual.candidate");
    refuse_residual(p, 3, q, (const int32_t[]){0, 3}, 2, "residual.candidate");
    refuse_residual(p, 3, q, (const int32_t[]){-1, 0}, 2, "residual.candidate");
    refuse_residual(p, 3, q, (const int32_t[]){1, 1}, 2, "residual.duplicate");
    dflash_error err = {0};
    ck_assert_int_eq(dflash_residual(p, 3, p, NULL, 3, NULL, &err), DFLASH_ERR_ARGUMENT);
    ck_assert_str_eq(err.code, "residual.argument");
}
END_TEST

START_TEST(what_is_no_distribution_is_refused_by_name) {
    const float good[] = {0.5f, 0.25f, 0.25f};
    const float bad[] = {NAN, INFINITY, -0.25f};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (int at = 0; at < 3; at++) {
            float broken[] = {0.5f, 0.25f, 0.25f};
            broken[at] = bad[i];
            refuse_residual(broken, 3, good, NULL, 3, "residual.value");
            refuse_residual(good, 3, broken, NULL, 3, "residual.value");
        }
    const float logits[] = {2.0f, 1.0f, 0.5f}, half[] = {0.25f, 0.125f, 0.125f}, none[] = {0.0f, 0.0f, 0.0f};
    refuse_residual(logits, 3, good, NULL, 3, "residual.mass");
    refuse_residual(good, 3, logits, NULL, 3, "residual.mass");
    refuse_residual(half, 3, good, NULL, 3, "residual.mass");
    refuse_residual(good, 3, none, NULL, 3, "residual.mass");
}
END_TEST

/* ---- The walk commits the target's distribution ---- */

/*
 * A target and a drafter over V tokens whose distributions depend on the token before. Rounds of one or two drafted
 * tokens run until two tokens are committed; the pair's distribution must be p(a) p(b | a), whatever the drafter
 * proposes.
 *
 * With N pairs the statistic X = sum (count - N p)^2 / (N p) over the D + 1 pairs that can come is close to chi-square
 * with D degrees of freedom (N p > 200 for each). P(X >= D + 2 sqrt(D x) + 2 x) <= e^-x (Laurent and Massart 2000,
 * lemma 1), so with x = 20.7 a right walk exceeds the limit once in 10^9 seeds; the seed is fixed, so it does so always
 * or never.
 */
enum { V = 6, K = 4, PAIRS = 400000 };

typedef enum walk_rule { RIGHT = 0, NO_RESIDUAL, ALWAYS_ACCEPT, RATIO_UPSIDE_DOWN, RESIDUAL_OF_ANOTHER_ID } walk_rule;

/* [token before + 1]: row 0 is the start. Sums are exact: sixty-fourths. */
static const int P64[V + 1][V] = {{8, 16, 4, 20, 16, 0},   {20, 8, 8, 8, 16, 4}, {4, 30, 6, 10, 6, 8},
                                  {16, 16, 0, 16, 8, 8},   {6, 6, 40, 4, 4, 4},  {9, 11, 13, 7, 5, 19},
                                  {10, 10, 10, 10, 10, 14}};
static const int Q64[V + 1][K] = {{32, 16, 8, 8}, {8, 8, 40, 8},    {16, 16, 16, 16}, {60, 2, 2, 0},
                                  {1, 1, 30, 32}, {20, 20, 12, 12}, {5, 25, 30, 4}};
/* The drafter's candidates: token 5 comes up though the target gives it nothing at first, and token 4 often does not.
 */
static const int32_t CANDIDATE[V + 1][K] = {{1, 5, 0, 3}, {5, 0, 2, 1}, {3, 2, 0, 1}, {2, 0, 5, 3},
                                            {0, 1, 2, 4}, {5, 4, 3, 2}, {1, 3, 0, 5}};

static uint64_t seed;

static float uniform(void) {
    seed += 0x9e3779b97f4a7c15u;
    uint64_t z = seed;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (float)((z ^ z >> 31) >> 40) * 0x1p-24f;
}

/* Drafts a token after `before`, then accepts or replaces it. */
static int commit(walk_rule rule, int before) {
    float p[V], q[K], residual[V];
    for (int i = 0; i < V; i++) p[i] = (float)P64[before + 1][i] / 64;
    for (int i = 0; i < K; i++) q[i] = (float)Q64[before + 1][i] / 64;
    const int32_t *candidate = CANDIDATE[before + 1];
    const int drawn = dflash_draw(q, K, uniform());
    ck_assert_int_ge(drawn, 0);
    const int token = candidate[drawn];
    const float u = uniform();
    const bool accepted = rule == ALWAYS_ACCEPT       ? true
                          : rule == RATIO_UPSIDE_DOWN ? dflash_accept_token(u, q[drawn], p[token])
                                                      : dflash_accept_token(u, p[token], q[drawn]);
    if (accepted) return token;
    int32_t other[K];
    for (int i = 0; i < K; i++) other[i] = rule == RESIDUAL_OF_ANOTHER_ID ? i : candidate[i];
    dflash_error err = {0};
    ck_assert_msg(dflash_residual(p, V, q, other, K, residual, &err) == DFLASH_OK, "%s", err.message);
    return dflash_draw(rule == NO_RESIDUAL ? p : residual, V, uniform());
}

/* The statistic of PAIRS committed pairs; infinite when a pair comes that cannot. */
static double chi_square(walk_rule rule, int *degrees) {
    static int count[V][V];
    memset(count, 0, sizeof count);
    seed = 20240229;
    for (int i = 0; i < PAIRS; i++) {
        const int a = commit(rule, -1), b = commit(rule, a);
        count[a][b]++;
    }
    double x = 0;
    *degrees = -1;
    for (int a = 0; a < V; a++)
        for (int b = 0; b < V; b++) {
            const double expected = (double)PAIRS * P64[0][a] * P64[a + 1][b] / 4096;
            if (expected == 0) {
                if (count[a][b] > 0) x = INFINITY;
                continue;
            }
            ck_assert(expected > 200);
            x += (count[a][b] - expected) * (count[a][b] - expected) / expected;
            ++*degrees;
        }
    return x;
}

static double limit(int degrees) {
    const double x = 20.7;
    return degrees + 2 * sqrt(degrees * x) + 2 * x;
}

START_TEST(committed_tokens_have_the_targets_distribution) {
    for (int before = 0; before <= V; before++) {
        int p = 0, q = 0;
        for (int i = 0; i < V; i++) p += P64[before][i];
        for (int i = 0; i < K; i++) q += Q64[before][i];
        ck_assert_int_eq(p, 64);
        ck_assert_int_eq(q, 64);
    }
    int degrees = 0;
    const double x = chi_square(RIGHT, &degrees);
    ck_assert_int_eq(degrees, 28);
    ck_assert_msg(x < limit(degrees), "chi-square %.1f with %d degrees of freedom, limit %.1f", x, degrees,
                  limit(degrees));
}
END_TEST

START_TEST(a_wrong_walk_is_caught_by_the_same_bar) {
    for (walk_rule rule = NO_RESIDUAL; rule <= RESIDUAL_OF_ANOTHER_ID; rule++) {
        int degrees = 0;
        const double x = chi_square(rule, &degrees);
        ck_assert_msg(x > 10 * limit(degrees), "rule %d: chi-square %.1f is not far above %.1f", (int)rule, x,
                      limit(degrees));
    }
}
END_TEST

Suite *suite_verify(void) {
    Suite *suite = suite_create("verify");
    TCase *rules = tcase_create("rules"), *walk = tcase_create("walk");
    tcase_add_test(rules, the_accepted_prefix_ends_at_the_first_difference);
    tcase_add_test(rules, a_token_is_accepted_while_u_q_is_below_p);
    tcase_add_test(rules, a_draw_is_the_first_index_whose_sum_exceeds_u);
    tcase_add_test(rules, a_draw_does_not_need_the_values_to_sum_to_one);
    tcase_add_test(rules, small_probabilities_of_a_large_vocabulary_are_drawn);
    tcase_add_test(rules, what_cannot_be_drawn_from_gives_no_index);
    tcase_add_test(rules, a_residual_is_what_p_has_over_q_normalised);
    tcase_add_test(rules, a_proposal_over_candidates_is_taken_from_their_ids);
    tcase_add_test(rules, when_nothing_is_left_the_residual_is_p_itself);
    tcase_add_test(rules, what_is_no_proposal_is_refused_by_name);
    tcase_add_test(rules, what_is_no_distribution_is_refused_by_name);
    tcase_add_test(walk, committed_tokens_have_the_targets_distribution);
    tcase_add_test(walk, a_wrong_walk_is_caught_by_the_same_bar);
    tcase_set_timeout(walk, 120);
    suite_add_tcase(suite, rules);
    suite_add_tcase(suite, walk);
    return suite;
}
