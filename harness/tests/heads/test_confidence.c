/* test_confidence.c - DSpark's confidence head against double precision, with and without embedding and bias. */
#include "suites.h"

#include "support/dspark_case.h"

#include <math.h>
#include <string.h>

static const dflash_engine_options PLAIN = {.threads = 1, .poison_scratch = true};
static const int32_t PREV[DS_N] = {5, 210, 0, 5, 99, 7};
static ds_case it;

static void teardown(void) { ds_free(&it); }

static void compute(const int32_t *prev, int n, float *raw) {
    dflash_error err = {0};
    ck_assert_msg(dflash_confidence(&it.draft, it.rows, prev, n, raw, &err) == DFLASH_OK, "%s: %s", err.code,
                  err.message);
}

static dp_real expected(int slot, int32_t prev, bool with_markov, bool bias) {
    dp_real in[DS_H + DS_R], out;
    ds_exact(it.rows + slot * DS_H, DS_H, in);
    if (with_markov) ds_row(&it.draft.weights.markov_w1, prev, in + DS_H);
    ds_product(&it.draft.weights.confidence, bias ? it.draft.weights.confidence_bias : NULL, in, &out);
    return out;
}

START_TEST(confidence_is_the_dot_product_of_the_formula) {
    for (int variant = 0; variant < 4; variant++) {
        const bool with_markov = (variant & 1) != 0, bias = (variant & 2) != 0;
        ds_make(&it, DFLASH_MARKOV_GATED, DS_V, &PLAIN);
        ds_add_confidence(&it, with_markov, bias);
        float raw[DS_N];
        compute(with_markov ? PREV : NULL, DS_N, raw);
        for (int i = 0; i < DS_N; i++) {
            const dp_real want = expected(i, PREV[i], with_markov, bias);
            ck_assert_msg(ds_close(raw[i], want), "variant %d slot %d: %.9g, not %.9g +- %.3g", variant, i,
                          (double)raw[i], want.value, want.error);
            /* a head that forgot the bias or the embedding, or read another row of W1, is far outside the bound */
            if (bias) ck_assert(!ds_close(raw[i], expected(i, PREV[i], with_markov, false)));
            if (with_markov) ck_assert(!ds_close(raw[i], expected(i, (PREV[i] + 1) % DS_W1, true, bias)));
        }
        if (variant < 3) ds_free(&it);
    }
}
END_TEST

START_TEST(a_slots_confidence_does_not_depend_on_the_others) {
    ds_make(&it, DFLASH_MARKOV_VANILLA, DS_V, &PLAIN);
    ds_add_confidence(&it, true, true);
    float all[DS_N], one;
    compute(PREV, DS_N, all);
    dflash_error err = {0};
    for (int i = 0; i < DS_N; i++) {
        ck_assert_int_eq(dflash_confidence(&it.draft, it.rows + i * DS_H, PREV + i, 1, &one, &err), DFLASH_OK);
        ck_assert_mem_eq(&one, &all[i], sizeof one);
    }
}
END_TEST

START_TEST(every_instruction_set_and_thread_count_gives_the_same_confidence) {
    float first[DS_N];
    for (int isa = DFLASH_ISA_GENERIC, runs = 0; isa <= DFLASH_ISA_REFERENCE; isa++) {
        for (int threads = 1; threads <= 3; threads += 2) {
            const dflash_engine_options options = {.isa = (dflash_isa)isa, .threads = threads};
            dflash_engine *probe = NULL;
            if (dflash_engine_create(&options, &probe, NULL) != DFLASH_OK) continue; /* this machine lacks it */
            dflash_engine_destroy(probe);
            float raw[DS_N];
            if (runs > 0) ds_free(&it);
            ds_make(&it, DFLASH_MARKOV_VANILLA, DS_V, &options);
            ds_add_confidence(&it, true, true);
            compute(PREV, DS_N, raw);
            if (runs++ == 0) memcpy(first, raw, sizeof raw);
            ck_assert_mem_eq(raw, first, sizeof raw);
        }
    }
}
END_TEST

static void observe(void *user, const dflash_stage_view *view) {
    ck_assert_int_eq(view->stage, DFLASH_STAGE_CONFIDENCE_RAW);
    ck_assert(view->rank == 1 && view->dim[0] == DS_N && view->i32 == NULL);
    memcpy(user, view->f32, DS_N * sizeof(float));
}

START_TEST(the_stage_shows_what_the_caller_gets) {
    ds_make(&it, DFLASH_MARKOV_VANILLA, DS_V, &PLAIN);
    ds_add_confidence(&it, true, true);
    float quiet[DS_N], raw[DS_N], seen[DS_N] = {0};
    compute(PREV, DS_N, quiet);
    dflash_draft_observe(&it.draft, observe, seen);
    compute(PREV, DS_N, raw);
    ck_assert_mem_eq(seen, raw, sizeof raw);
    ck_assert_mem_eq(quiet, raw, sizeof raw);
}
END_TEST

static void refuse(const float *rows, const int32_t *prev, int n, dflash_status want, const char *code) {
    dflash_error err = {0};
    float raw[DS_N];
    const dflash_status status = dflash_confidence(&it.draft, rows, prev, n, raw, &err);
    ck_assert_msg(status == want && strcmp(err.code, code) == 0, "expected %s, got %d %s: %s", code, (int)status,
                  err.code, err.message);
}

START_TEST(what_has_no_confidence_is_refused_by_name) {
    ds_make(&it, DFLASH_MARKOV_VANILLA, DS_V, &PLAIN);
    refuse(it.rows, PREV, DS_N, DFLASH_ERR_REFUSED, "confidence.absent");
    ds_add_confidence(&it, true, false);
    refuse(it.rows, NULL, DS_N, DFLASH_ERR_ARGUMENT, "confidence.prev");
    refuse(it.rows, PREV, 0, DFLASH_ERR_ARGUMENT, "confidence.argument");
    refuse(NULL, PREV, 1, DFLASH_ERR_ARGUMENT, "confidence.argument");
    dflash_error err = {0};
    ck_assert_int_eq(dflash_confidence(&it.draft, it.rows, PREV, 1, NULL, &err), DFLASH_ERR_ARGUMENT);
    ck_assert_str_eq(err.code, "confidence.argument");
    for (int at = 0; at < DS_N; at++) {
        int32_t prev[DS_N];
        memcpy(prev, PREV, sizeof prev);
        prev[at] = -1;
        refuse(it.rows, prev, DS_N, DFLASH_ERR_REFUSED, "confidence.prev.range");
        prev[at] = DS_W1;
        refuse(it.rows, prev, DS_N, DFLASH_ERR_REFUSED, "confidence.prev.range");
    }
    const float bad[] = {NAN, INFINITY};
    for (int i = 0; i < 2; i++) {
        it.rows[3 * DS_H + 17] = bad[i];
        refuse(it.rows, PREV, DS_N, DFLASH_ERR_REFUSED, "confidence.nonfinite");
        refuse(it.rows + 3 * DS_H, PREV, 1, DFLASH_ERR_REFUSED, "confidence.nonfinite");
    }
}
END_TEST

Suite *suite_confidence(void) {
    Suite *suite = suite_create("confidence");
    TCase *tests = tcase_create("confidence");
    tcase_add_checked_fixture(tests, NULL, teardown);
    tcase_add_test(tests, confidence_is_the_dot_product_of_the_formula);
    tcase_add_test(tests, a_slots_confidence_does_not_depend_on_the_others);
    tcase_add_test(tests, every_instruction_set_and_thread_count_gives_the_same_confidence);
    tcase_add_test(tests, the_stage_shows_what_the_caller_gets);
    tcase_add_test(tests, what_has_no_confidence_is_refused_by_name);
    suite_add_tcase(suite, tests);
    return suite;
}
