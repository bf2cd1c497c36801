/* test_window.c - the verify window: the published examples, every edge of the three policies, and every refusal. */
#include "suites.h"

#include "dflash.h"
#include "common/mathfn.h"

#include <limits.h>
#include <string.h>

static const float NO_RAW[] = {0.0f};

static dflash_window_options confident(dflash_window_policy policy, float threshold, int cap) {
    return (dflash_window_options){.policy = policy, .threshold = threshold, .cap = cap, .accepted = -1};
}

static int window_of(dflash_window_options options, const float *raw, int n) {
    dflash_error err = {0};
    int window = -1;
    const dflash_status status = dflash_verify_window(&options, raw, n, &window, &err);
    ck_assert_msg(status == DFLASH_OK, "%s: %s", err.code, err.message);
    return window;
}

static void refuse(dflash_window_options options, const float *raw, int n, const char *code) {
    dflash_error err = {0};
    int window = -1;
    const dflash_status status = dflash_verify_window(&options, raw, n, &window, &err);
    ck_assert_msg(status == DFLASH_ERR_ARGUMENT && strcmp(err.code, code) == 0, "expected %s, got %d %s: %s", code,
                  (int)status, err.code, err.message);
    ck_assert_int_eq(window, -1);
}

/* The raw value whose sigmoid is `sigma`, to float32. */
static float logit(double sigma) { return (float)log(sigma / (1.0 - sigma)); }

START_TEST(the_published_examples_give_the_published_windows) {
    float raw[7];
    for (int i = 0; i < 7; i++) raw[i] = logit(i == 1 ? 0.8 : 0.9);
    ck_assert_int_eq(window_of(confident(DFLASH_WINDOW_SURVIVAL, 0.5f, 8), raw, 7), 6);
    ck_assert_int_eq(window_of(confident(DFLASH_WINDOW_SURVIVAL, 0.7f, 8), raw, 7), 3);
    ck_assert_int_eq(window_of(confident(DFLASH_WINDOW_SURVIVAL, 0.05f, 8), raw, 7), 8);
    ck_assert_int_eq(window_of(confident(DFLASH_WINDOW_SLOT, 0.5f, 8), raw, 7), 8);
}
END_TEST

START_TEST(a_slot_at_the_threshold_is_kept) {
    const float raw[] = {0.0f, 0.0f, 0.0f}; /* sigma = 0.5 exactly */
    ck_assert_int_eq(window_of(confident(DFLASH_WINDOW_SLOT, 0.5f, 9), raw, 3), 4);
    ck_assert_int_eq(window_of(confident(DFLASH_WINDOW_SURVIVAL, 0.25f, 9), raw, 3), 3);
    ck_assert_int_eq(window_of(confident(DFLASH_WINDOW_SLOT, nextafterf(0.5f, 1.0f), 9), raw, 3), 2);
    ck_assert_int_eq(window_of(confident(DFLASH_WINDOW_SURVIVAL, nextafterf(0.25f, 1.0f), 9), raw, 3), 2);
}
END_TEST

/* Whatever order or width another implementation multiplies in, it disagrees on some of these. */
START_TEST(survival_is_the_float32_product_from_left_to_right) {
    int other_order = 0;
    uint32_t x = 1;
    for (int i = 0; i < 1000; i++) {
        float raw[3], s[3];
        for (int j = 0; j < 3; j++) {
            x = x * 1664525u + 1013904223u;
            raw[j] = (float)(x >> 8) * 0x1p-22f - 1.0f;
            s[j] = df_sigmoid(raw[j]);
        }
        const float product = s[0] * s[1] * s[2];
        other_order += product != s[0] * (s[1] * s[2]);
        ck_assert_int_eq(window_of(confident(DFLASH_WINDOW_SURVIVAL, product, 9), raw, 3), 4);
        ck_assert_int_eq(window_of(confident(DFLASH_WINDOW_SURVIVAL, nextafterf(product, 1.0f), 9), raw, 3), 3);
    }
    ck_assert_int_gt(other_order, 100);
}
END_TEST

START_TEST(a_window_stops_at_the_first_slot_that_fails) {
    const float raw[] = {3.0f, -3.0f, 3.0f, 3.0f};
    ck_assert_int_eq(window_of(confident(DFLASH_WINDOW_SLOT, 0.5f, 9), raw, 4), 2);
    ck_assert_int_eq(window_of(confident(DFLASH_WINDOW_SURVIVAL, 0.5f, 9), raw, 4), 2);
    /* nothing kept, and one kept, both verify one drafted token */
    ck_assert_int_eq(window_of(confident(DFLASH_WINDOW_SLOT, 0.5f, 9), raw + 1, 3), 2);
}
END_TEST

START_TEST(the_cap_bounds_a_window_and_the_slots_do_too) {
    const float raw[] = {9.0f, 9.0f, 9.0f, 9.0f, 9.0f};
    for (int cap = 2; cap <= 8; cap++)
        for (int n = 1; n <= 5; n++) {
            const int want = n + 1 < cap ? n + 1 : cap;
            ck_assert_int_eq(window_of(confident(DFLASH_WINDOW_SLOT, 0.5f, cap), raw, n), want);
            ck_assert_int_eq(window_of(confident(DFLASH_WINDOW_SURVIVAL, 0.5f, cap), raw, n), want);
        }
    ck_assert_int_eq(window_of(confident(DFLASH_WINDOW_SLOT, 0.5f, INT_MAX), raw, 5), 6);
}
END_TEST

START_TEST(the_ladder_follows_its_table) {
    static const struct {
        int accepted, cap, window;
    } table[] = {{0, 8, 3},   {1, 8, 3}, {2, 8, 4}, {3, 8, 5}, {4, 8, 6},       {5, 8, 7},
                 {6, 8, 8},   {7, 8, 8}, {8, 8, 8}, {0, 3, 3}, {5, 3, 3},       {2, 4, 4},
                 {3, 4, 4},   {2, 3, 3}, {1, 4, 3}, {6, 9, 8}, {INT_MAX, 8, 8}, {INT_MAX, INT_MAX, INT_MAX},
                 {14, 16, 16}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const dflash_window_options options = {
            .policy = DFLASH_WINDOW_LADDER, .cap = table[i].cap, .accepted = table[i].accepted};
        ck_assert_msg(window_of(options, NULL, 0) == table[i].window, "row %zu", i);
    }
}
END_TEST

START_TEST(contradictory_flags_are_refused) {
    for (dflash_window_policy policy = DFLASH_WINDOW_SURVIVAL; policy <= DFLASH_WINDOW_SLOT; policy++) {
        for (int accepted = 0; accepted < 2; accepted++) {
            dflash_window_options options = confident(policy, 0.5f, 8);
            options.accepted = accepted;
            refuse(options, NO_RAW, 1, "window.contradiction");
        }
        dflash_window_options options = confident(policy, 0.5f, 8);
        options.accepted = -2;
        refuse(options, NO_RAW, 1, "window.contradiction");
    }
    const float thresholds[] = {0.5f, 1.0f, -0.5f, NAN, INFINITY};
    for (size_t i = 0; i < sizeof thresholds / sizeof *thresholds; i++)
        refuse((dflash_window_options){DFLASH_WINDOW_LADDER, thresholds[i], 8, 3}, NULL, 0, "window.contradiction");
}
END_TEST

START_TEST(a_threshold_outside_the_open_unit_interval_is_refused) {
    const float thresholds[] = {0.0f, -0.0f, 1.0f, -0.1f, 1.5f, NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof thresholds / sizeof *thresholds; i++) {
        refuse(confident(DFLASH_WINDOW_SURVIVAL, thresholds[i], 8), NO_RAW, 1, "window.threshold");
        refuse(confident(DFLASH_WINDOW_SLOT, thresholds[i], 8), NO_RAW, 1, "window.threshold");
    }
}
END_TEST

START_TEST(a_cap_below_the_smallest_window_is_refused) {
    const int caps[] = {1, 0, -1, INT_MIN};
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++) {
        refuse(confident(DFLASH_WINDOW_SURVIVAL, 0.5f, caps[i]), NO_RAW, 1, "window.cap");
        refuse(confident(DFLASH_WINDOW_SLOT, 0.5f, caps[i]), NO_RAW, 1, "window.cap");
        refuse((dflash_window_options){DFLASH_WINDOW_LADDER, 0.0f, caps[i], 3}, NULL, 0, "window.cap");
    }
    refuse((dflash_window_options){DFLASH_WINDOW_LADDER, 0.0f, 2, 0}, NULL, 0,
           "window.cap"); /* clamp(., 3, 2) has no value */
}
END_TEST

START_TEST(a_ladder_without_a_count_is_refused) {
    refuse((dflash_window_options){DFLASH_WINDOW_LADDER, 0.0f, 8, -1}, NULL, 0, "window.accepted");
    refuse((dflash_window_options){DFLASH_WINDOW_LADDER, 0.0f, 8, INT_MIN}, NULL, 0, "window.accepted");
}
END_TEST

START_TEST(a_confidence_that_is_not_finite_is_refused_wherever_it_stands) {
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (int at = 0; at < 4; at++) {
            float raw[4] = {2.0f, -9.0f, 2.0f, 2.0f}; /* the walk stops at slot 1 */
            raw[at] = bad[i];
            refuse(confident(DFLASH_WINDOW_SURVIVAL, 0.5f, 8), raw, 4, "window.nonfinite");
            refuse(confident(DFLASH_WINDOW_SLOT, 0.5f, 2), raw, 4, "window.nonfinite");
        }
}
END_TEST

START_TEST(no_slots_an_unknown_policy_and_null_are_refused) {
    refuse(confident(DFLASH_WINDOW_SURVIVAL, 0.5f, 8), NULL, 3, "window.slots");
    refuse(confident(DFLASH_WINDOW_SLOT, 0.5f, 8), NO_RAW, 0, "window.slots");
    refuse(confident(DFLASH_WINDOW_SLOT, 0.5f, 8), NO_RAW, -1, "window.slots");
    refuse(confident((dflash_window_policy)3, 0.5f, 8), NO_RAW, 1, "window.policy");
    dflash_error err = {0};
    int window = 0;
    const dflash_window_options good = confident(DFLASH_WINDOW_SLOT, 0.5f, 8);
    ck_assert_int_eq(dflash_verify_window(NULL, NO_RAW, 1, &window, &err), DFLASH_ERR_ARGUMENT);
    ck_assert_str_eq(err.code, "window.argument");
    err = (dflash_error){0};
    ck_assert_int_eq(dflash_verify_window(&good, NO_RAW, 1, NULL, &err), DFLASH_ERR_ARGUMENT);
    ck_assert_str_eq(err.code, "window.argument");
}
END_TEST

Suite *suite_window(void) {
    Suite *suite = suite_create("window");
    TCase *values = tcase_create("values"), *refusals = tcase_create("refusals");
    tcase_add_test(values, the_published_examples_give_the_published_windows);
    tcase_add_test(values, a_slot_at_the_threshold_is_kept);
    tcase_add_test(values, survival_is_the_float32_product_from_left_to_right);
    tcase_add_test(values, a_window_stops_at_the_first_slot_that_fails);
    tcase_add_test(values, the_cap_bounds_a_window_and_the_slots_do_too);
    tcase_add_test(values, the_ladder_follows_its_table);
    tcase_add_test(refusals, contradictory_flags_are_refused);
    tcase_add_test(refusals, a_threshold_outside_the_open_unit_interval_is_refused);
    tcase_add_test(refusals, a_cap_below_the_smallest_window_is_refused);
    tcase_add_test(refusals, a_ladder_without_a_count_is_refused);
    tcase_add_test(refusals, a_confidence_that_is_not_finite_is_refused_wherever_it_stands);
    tcase_add_test(refusals, no_slots_an_unknown_policy_and_null_are_refused);
    suite_add_tcase(suite, values);
    suite_add_tcase(suite, refusals);
    return suite;
}
