/*
 * test_bounds.c - the table of constants behind the bounds, the limits that follow from it, and sums whose errors are
 * known.
 */
#include "support/bounds_case.h"
#include "suites.h"

#include "limits/chain.h"
#include "common/dtype.h"
#include "judge/isolated.h"
#include "support/op_case.h"
#include "base/text_file.h"

#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The table ---- */

static bool in_identifier(char c) { return isalnum((unsigned char)c) || c == '_' || c == '.'; }

/* A number in C text outside of strings and comments: its start, or NULL. 0, 1, 2 and 3, halves included, are counts
 * and signs, not tolerances. */
static const char *unexplained_number(const char *line) {
    static const char *const plain[] = {"0", "1", "2", "3", "0.0", "1.0", "2.0", "3.0", "0.5", "-1"};
    bool text = false;
    for (const char *at = line; *at != '\0' && strncmp(at, "/*", 2) != 0 && strncmp(at, " *", 2) != 0; at++) {
        if (*at == '"') text = !text;
        if (text || !isdigit((unsigned char)*at) || (at > line && in_identifier(at[-1]))) continue;
        size_t length = 0;
        while (in_identifier(at[length]) ||
               ((at[length] == '-' || at[length] == '+') && strchr("eEpP", at[length - 1])))
            length++;
        bool known = false;
        for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
            known = known || (strlen(plain[i]) == length && strncmp(at, plain[i], length) == 0);
        if (!known) return at;
        at += length - 1;
    }
    return NULL;
}

static char offender[400]; /* the last line that bare_numbers counted */

/* Lines that hold a number and neither a comment nor a reason in quotes. */
static int bare_numbers(const char *text) {
    int bare = 0;
    const char *at = text, *end = text + strlen(text);
    bool explained_above = false;
    while (at < end) {
        char line[400];
        const size_t length = strcspn(at, "\n");
        snprintf(line, sizeof line, "%.*s", (int)length, at);
        const bool comment = strstr(line, "/*") != NULL || strstr(line, " *") == line;
        if (unexplained_number(line) != NULL && !comment && !explained_above && strstr(line, "\", ") == NULL &&
            strncmp(line, "#include", 8) != 0) {
            snprintf(offender, sizeof offender, "%s", line);
            bare++;
        }
        explained_above = comment && strstr(line, "*/") != NULL;
        at += length + (at[length] == '\n');
    }
    return bare;
}

START_TEST(no_file_that_bounds_are_made_in_has_a_number_without_a_reason) {
    static const char *const files[] = {"harness/limits/bounds.c",
                                        "harness/limits/approx.h",
                                        "harness/limits/chain.c",
                                        "harness/formulas/evaluate.c",
                                        "harness/formulas/evaluate_rope.c",
                                        "harness/formulas/evaluate_attention.c",
                                        "harness/formulas/evaluate_heads.c",
                                        "harness/judge/isolated_judge.c",
                                        "harness/limits/envelope.c",
                                        "harness/check/growth.c",
                                        "harness/preflight/reference_spread.c",
                                        "harness/preflight/spread.c",
                                        "harness/judge/float32_run.c",
                                        "harness/formulas/evaluate_rows.c"};
    dflash_error err;
    char *text = NULL;
    ck_assert_msg(dp_text_file_read(files[_i], 1 << 20, &text, &err) == DFLASH_OK, "%s", err.message);
    ck_assert_msg(bare_numbers(text) == 0, "%s: %s", files[_i], offender);
    free(text);
}
END_TEST

START_TEST(a_number_without_a_reason_would_be_found) {
    ck_assert_int_eq(bare_numbers("double limit = 2e-3;\n"), 1);
    ck_assert_int_eq(bare_numbers("x = 7.5 * u;\ny = 1.0;\n"), 1);
    ck_assert_int_eq(bare_numbers("double limit = 2e-3; /* measured */\n"), 0);
}
END_TEST

START_TEST(every_constant_has_a_name_and_a_reason) {
    int n = 0;
    for (const dp_bound_constant *c; (c = dp_bound_constant_at(n)) != NULL; n++) {
        ck_assert(c->name != NULL && c->value > 0.0);
        ck_assert_msg(c->reason != NULL && strlen(c->reason) > 20, "%s has no reason", c->name);
    }
    ck_assert_int_gt(n, 10);
}
END_TEST

/* ---- The limits ---- */

START_TEST(the_noise_bar_solves_its_equation_and_falls_towards_one) {
    double before = INFINITY;
    for (int64_t groups = 1; groups <= 1 << 20; groups *= 4) {
        const double limit = dp_noise_limit(groups), t = limit * limit - 1.0;
        const double chance = exp(-0.5 * (double)groups * (t - log1p(t)));
        ck_assert(fabs(chance / dp_false_alarm() - 1.0) < 1e-6);
        ck_assert(limit < before && limit > 1.0);
        before = limit;
    }
    ck_assert(dp_noise_limit(0) == 0.0);
    ck_assert(dp_peak_limit(0) == 0.0);
    ck_assert(dp_peak_limit(1000) > dp_peak_limit(10));
}
END_TEST

/* ---- Sums ---- */

/* The canonical order for up to four segments of 64, written out. */
static float canonical(const float *a, const float *b, int n) {
    float segment[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int k = 0; k < n; k++) segment[k / 64] = fmaf(a[k], b[k], segment[k / 64]);
    if (n <= 64) return segment[0];
    if (n <= 128) return segment[0] + segment[1];
    return segment[0] + segment[1] + (n <= 192 ? segment[2] : segment[2] + segment[3]);
}

START_TEST(a_sum_lies_within_its_bound_and_about_its_expected_noise) {
    enum { N = 250, TRIALS = 4000 };
    const dp_class_model exact = dp_class_model_of(DFLASH_BACKEND_CPU, DFLASH_CLASS_EXACT, DFLASH_PRODUCTS_F32);
    const dp_class_model any = dp_class_model_of(DFLASH_BACKEND_CPU, DFLASH_CLASS_CUBLAS, DFLASH_PRODUCTS_F32);
    op_random random = {77};
    double square = 0.0;
    for (int trial = 0; trial < TRIALS; trial++) {
        float a[N], b[N];
        double wide_a[N], wide_b[N];
        op_fill(&random, a, N);
        op_fill(&random, b, N);
        for (int k = 0; k < N; k++) {
            wide_a[k] = (double)a[k];
            wide_b[k] = (double)b[k];
        }
        const dp_terms terms = {.a = wide_a, .b = wide_b, .n = N};
        const dp_approx sum = dp_sum_products(&exact, &terms), loose = dp_sum_products(&any, &terms);
        const double error = fabs((double)canonical(a, b, N) - sum.value);
        ck_assert(error <= sum.error);
        ck_assert(sum.error < loose.error);
        square += error * error / sum.variance;
    }
    const double noise = sqrt(square / TRIALS);
    ck_assert_msg(noise > 0.8 && noise < dp_noise_limit(TRIALS), "noise %g", noise);
}
END_TEST

/* Sum number `order` of the same terms: from left to right, from right to left, in 8 chains that take turns. */
enum { ORDERS = 3 };
static float in_order(int order, const float *a, const float *b, int n) {
    enum { CHAINS = 8 };
    const int chains = order == 2 ? CHAINS : 1;
    float chain[CHAINS] = {0.0f}, sum = 0.0f;
    for (int i = 0; i < n; i++) {
        const int k = order == 1 ? n - 1 - i : i;
        chain[i % chains] = fmaf(a[k], b[k], chain[i % chains]);
    }
    for (int c = 0; c < chains; c++) sum += chain[c];
    return sum;
}

/*
 * What an unknown order may round, and no more: a correct sum in any of the three stays below it, and operands that
 * were rounded to tf32 stand out at every length. With a large last term every partial sum from right to left carries
 * it: the noise of one order is then no measure of another's.
 */
static const struct {
    int n, trials;
    float last;
} unknown_orders[] = {{512, 400, 4000.0f}, {512, 400, 0.0f}, {25600, 30, 0.0f}};

START_TEST(an_order_that_is_not_known_may_round_as_any_of_them_and_no_more) {
    enum { MOST = 25600 };
    static float a[MOST], b[MOST], narrow_a[MOST], narrow_b[MOST];
    static double wide_a[MOST], wide_b[MOST];
    const int n = unknown_orders[_i].n, trials = unknown_orders[_i].trials;
    const float last = unknown_orders[_i].last;
    const dp_class_model any = dp_class_model_of(DFLASH_BACKEND_CUDA, DFLASH_CLASS_CUBLAS, DFLASH_PRODUCTS_F32);
    dp_class_model left_to_right = dp_class_model_of(DFLASH_BACKEND_CPU, DFLASH_CLASS_EXACT, DFLASH_PRODUCTS_F32);
    left_to_right.segment = n;
    op_random random = {55};
    double square[ORDERS] = {0.0}, other = 0.0, narrow = 0.0;
    for (int trial = 0; trial < trials; trial++) {
        op_fill(&random, a, (size_t)n);
        op_fill(&random, b, (size_t)n);
        if (last > 0.0f) a[n - 1] = last + b[n - 1], b[n - 1] = 1.0f;
        for (int k = 0; k < n; k++) {
            wide_a[k] = (double)a[k];
            wide_b[k] = (double)b[k];
            narrow_a[k] = df_round_to_tf32(a[k]);
            narrow_b[k] = df_round_to_tf32(b[k]);
        }
        const dp_terms terms = {.a = wide_a, .b = wide_b, .n = n};
        const dp_approx sum = dp_sum_products(&any, &terms), one_order = dp_sum_products(&left_to_right, &terms);
        for (int order = 0; order < ORDERS; order++) {
            const double error = (double)in_order(order, a, b, n) - sum.value;
            square[order] += error * error / sum.variance;
            if (order == 1) other += error * error / one_order.variance;
        }
        const double error = (double)in_order(0, narrow_a, narrow_b, n) - sum.value;
        narrow += error * error / sum.variance;
    }
    const double limit = dp_noise_limit(trials);
    for (int order = 0; order < ORDERS; order++) {
        const double noise = sqrt(square[order] / trials);
        ck_assert_msg(noise < 1.0 && noise > 0.01, "order %d: noise %g", order, noise);
    }
    if (last > 0.0f)
        ck_assert_msg(sqrt(other / trials) > limit, "held to another order: %g of %g", sqrt(other / trials), limit);
    ck_assert_msg(sqrt(narrow / trials) > 4.0 * limit, "tf32: %g of %g", sqrt(narrow / trials), limit);
}
END_TEST

/* Every 61st float from the least subnormal to 4. */
enum { STEP = 61 };
static const uint32_t last_bits = 0x40800000;

START_TEST(what_rounding_an_operand_loses_is_what_the_table_says_and_no_less) {
    const bool tf32 = _i == 0;
    const dp_operands o =
        dp_class_model_of(DFLASH_BACKEND_CPU, DFLASH_CLASS_EXACT, tf32 ? DFLASH_PRODUCTS_TF32 : DFLASH_PRODUCTS_BF16)
            .product;
    double worst = 0.0, worst_least = 0.0;
    for (uint32_t bits = 1; bits < last_bits; bits += STEP) {
        const float x = df_bits_to_f32(bits);
        const double error = fabs((double)(tf32 ? df_round_to_tf32(x) : df_round_to_bf16(x)) - (double)x);
        if (x >= FLT_MIN)
            worst = fmax(worst, error / (double)x);
        else
            worst_least = fmax(worst_least, error);
    }
    ck_assert(worst <= o.second && worst > 0.98 * o.second);
    ck_assert(worst_least <= o.least && worst_least > 0.98 * o.least);
    ck_assert(o.first == o.second);
}
END_TEST

START_TEST(what_a_pair_of_bf16_loses_is_what_the_table_says_and_no_less) {
    const dp_class_model fast = dp_class_model_of(DFLASH_BACKEND_CUDA, DFLASH_CLASS_FAST, DFLASH_PRODUCTS_F32);
    const dp_operands o = fast.attention;
    double worst = 0.0, worst_second = 0.0, worst_least = 0.0;
    for (uint32_t bits = 1; bits < last_bits; bits += STEP) {
        const float x = df_bits_to_f32(bits), rest = x - df_round_to_bf16(x), second = df_round_to_bf16(rest);
        const double error = fabs((double)rest - (double)second);
        if (error > o.second * (double)x)
            worst_least = fmax(worst_least, error);
        else
            worst = fmax(worst, error / (double)x);
        if (x >= FLT_MIN) worst_second = fmax(worst_second, fabs((double)second) / (double)x);
    }
    ck_assert(worst > 0.98 * o.second);
    ck_assert(worst_least <= o.least && worst_least > 0.98 * o.least);
    ck_assert(worst_second * worst_second <= o.left_out && worst_second * worst_second > 0.96 * o.left_out);
    ck_assert(fast.product.first == 0.0 && fast.product.second == o.second);
}
END_TEST

START_TEST(a_sum_of_rounded_operands_lies_within_its_bound_whatever_their_size) {
    enum { N = 60, TRIALS = 3000 };
    static const double sizes[] = {1.0, 1e4, 1e-18, 0x1p-70, 0x1p-130};
    const bool tf32 = _i == 0;
    const dp_class_model m =
        dp_class_model_of(DFLASH_BACKEND_CPU, DFLASH_CLASS_EXACT, tf32 ? DFLASH_PRODUCTS_TF32 : DFLASH_PRODUCTS_BF16);
    op_random random = {91};
    double most = 0.0;
    for (int trial = 0; trial < TRIALS; trial++) {
        float a[N], b[N], sum = 0.0f;
        double wide_a[N], wide_b[N];
        op_fill(&random, a, N);
        op_fill(&random, b, N);
        const int n = 1 + trial % N;
        for (int k = 0; k < n; k++) {
            a[k] *= (float)sizes[trial % 5];
            b[k] *= (float)sizes[trial / 5 % 5];
            wide_a[k] = (double)a[k];
            wide_b[k] = (double)b[k];
            sum = tf32 ? fmaf(df_round_to_tf32(a[k]), df_round_to_tf32(b[k]), sum)
                       : fmaf(df_round_to_bf16(a[k]), df_round_to_bf16(b[k]), sum);
        }
        const dp_approx want =
            dp_sum_products(&m, &(dp_terms){.a = wide_a, .b = wide_b, .n = n, .operands = &m.product});
        const double share = fabs((double)sum - want.value) / want.error;
        ck_assert_msg(share <= 1.0, "%d terms of %g x %g: %g of the bound", n, sizes[trial % 5], sizes[trial / 5 % 5],
                      share);
        most = fmax(most, share);
    }
    ck_assert(most > 0.8); /* one term alone comes near it */
}
END_TEST

START_TEST(narrow_operands_and_unknown_orders_widen_a_bound) {
    double a[100], b[100];
    for (int k = 0; k < 100; k++) {
        a[k] = 1.0 + k * 0x1p-20;
        b[k] = (k % 2 == 0 ? 1.0 : -1.0) * (1.0 - k * 0x1p-22);
    }
    double before = 0.0;
    for (int p = DFLASH_PRODUCTS_F32; p <= DFLASH_PRODUCTS_BF16; p++) {
        const dp_class_model m = dp_class_model_of(DFLASH_BACKEND_CPU, DFLASH_CLASS_EXACT, (dflash_products)p);
        const dp_terms terms = {.a = a, .b = b, .n = 100, .operands = &m.product};
        const double error = dp_sum_products(&m, &terms).error;
        ck_assert(error > before);
        before = error;
    }
}
END_TEST

START_TEST(a_product_that_underflows_is_covered) {
    const dp_class_model m = dp_class_model_of(DFLASH_BACKEND_CPU, DFLASH_CLASS_EXACT, DFLASH_PRODUCTS_F32);
    const double tiny[2] = {0x1p-100, 0x1p-100};
    const dp_approx sum = dp_sum_products(&m, &(dp_terms){.a = tiny, .b = tiny, .n = 2});
    ck_assert(sum.value > 0.0 && sum.error >= sum.value); /* float32 gives 0 */
    const dp_approx silu = dp_logistic(&m, dp_exactly(-88.75), dp_exactly(-88.75));
    ck_assert(silu.error >= fabs(silu.value)); /* e^88.75 is infinite in float32 */
    ck_assert(dp_logistic(&m, dp_exactly(-80.0), dp_exactly(-80.0)).error < 1e-5 * 80.0 * exp(-80.0));
}
END_TEST

START_TEST(a_gate_that_nothing_is_known_of_still_lies_between_0_and_1) {
    const dp_class_model m = dp_class_model_of(DFLASH_BACKEND_CPU, DFLASH_CLASS_EXACT, DFLASH_PRODUCTS_BF16);
    static const double values[] = {-2.0, 3.0, -1e4, 1e4}, errors[] = {10.0, 100.0, 1e4, 2e4};
    for (int i = 0; i < 4; i++) {
        const dp_approx x = {.value = values[i], .error = errors[i], .variance = errors[i]};
        const dp_approx gate = dp_logistic(&m, dp_exactly(1.0), x);
        ck_assert(gate.error <= 1.0);
        ck_assert_double_eq_tol(gate.value, 1.0 / (1.0 + exp(-values[i])), 1e-15);
        ck_assert(dp_tanh(&m, x).error < 2.0 + 1e-6);
    }
}
END_TEST

/* Mean square of the rounding of x times `factor`, in half units, over float32 numbers x in [1, end). */
static double product_square(float factor, double end) {
    double sum = 0.0;
    int count = 0;
    for (uint32_t bits = 0x3f800000; (double)df_bits_to_f32(bits) < end; bits += 37, count++) {
        const double exact = (double)df_bits_to_f32(bits) * (double)factor, half = ldexp(1.0, ilogb(exact) - 24);
        const double error = ((double)(float)exact - exact) / half;
        sum += error * error;
    }
    return sum / count;
}

START_TEST(a_factor_of_few_bits_rounds_less_evenly_and_is_allowed_that) {
    static const struct {
        float factor;
        double end; /* of the numbers that lose one bit less */
    } cases[] = {{0.75f, 4.0 / 3.0}, {1.5f, 4.0 / 3.0}, {1.25f, 1.6}, {0.875f, 8.0 / 7.0}, {1.1875f, 1.6}, {0.1f, 2.0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double most = dp_factor_square((double)cases[i].factor);
        const double all = product_square(cases[i].factor, 2.0), few = product_square(cases[i].factor, cases[i].end);
        ck_assert_msg(all <= 1.01 * most && few <= 1.01 * most && few >= 0.97 * most, "%g: %g and %g of %g",
                      (double)cases[i].factor, all, few, most);
    }
    ck_assert(dp_factor_square(0.75) == DP_ADDITION_SQUARE);
    ck_assert(dp_factor_square(0.5) == DP_ROUNDING_SQUARE);
    const dp_class_model exact = dp_class_model_of(DFLASH_BACKEND_CPU, DFLASH_CLASS_EXACT, DFLASH_PRODUCTS_F32);
    const dp_approx x = dp_exactly(1.1);
    ck_assert(dp_scale(&exact, x, 0.75).variance > dp_mul(&exact, x, dp_constant(&exact, 0.75)).variance);
    ck_assert(dp_scale(&exact, x, 0.75).error == dp_mul(&exact, x, dp_constant(&exact, 0.75)).error);
}
END_TEST

START_TEST(a_bound_that_is_not_finite_is_no_pass) {
    const dp_array array = {.rank = 1, .dim = {2}, .total = 2, .stride = 1, .count = 2};
    const dp_class_model exact = dp_class_model_of(DFLASH_BACKEND_CPU, DFLASH_CLASS_EXACT, DFLASH_PRODUCTS_F32);
    const double got[2] = {1.0, 2.0};
    dflash_error err;
    for (int k = 0; k < 2; k++) {
        const double bound = k == 0 ? INFINITY : NAN;
        const dp_approx want[2] = {{1.0, 0x1p-24, 0x1p-50}, {2.0 + 0x1p-30, bound, bound}};
        dp_isolated out = {.judged = false};
        ck_assert_int_eq(dp_isolated_judge(&exact, got, want, &array, 2, 1, &out, &err), DFLASH_OK);
        ck_assert(!out.pass && out.share == INFINITY && out.worst == 1);
    }
}
END_TEST

Suite *suite_bounds(void) {
    Suite *suite = suite_create("bounds");
    TCase *tests = tcase_create("bounds");
    tcase_add_loop_test(tests, no_file_that_bounds_are_made_in_has_a_number_without_a_reason, 0, 14);
    tcase_add_test(tests, a_number_without_a_reason_would_be_found);
    tcase_add_test(tests, every_constant_has_a_name_and_a_reason);
    tcase_add_test(tests, the_noise_bar_solves_its_equation_and_falls_towards_one);
    tcase_add_test(tests, a_sum_lies_within_its_bound_and_about_its_expected_noise);
    tcase_add_loop_test(tests, an_order_that_is_not_known_may_round_as_any_of_them_and_no_more, 0, 3);
    tcase_add_loop_test(tests, what_rounding_an_operand_loses_is_what_the_table_says_and_no_less, 0, 2);
    tcase_add_test(tests, what_a_pair_of_bf16_loses_is_what_the_table_says_and_no_less);
    tcase_add_loop_test(tests, a_sum_of_rounded_operands_lies_within_its_bound_whatever_their_size, 0, 2);
    tcase_add_test(tests, narrow_operands_and_unknown_orders_widen_a_bound);
    tcase_add_test(tests, a_gate_that_nothing_is_known_of_still_lies_between_0_and_1);
    tcase_add_test(tests, a_factor_of_few_bits_rounds_less_evenly_and_is_allowed_that);
    tcase_add_test(tests, a_bound_that_is_not_finite_is_no_pass);
    tcase_add_test(tests, a_product_that_underflows_is_covered);
    suite_add_tcase(suite, tests);
    bounds_add_any_order(suite);
    return suite;
}
