/*
 * test_check_spread.c - oracles whose reference runs, or what they claim of them, were made larger to widen the limits.
 *
 * Digests are renewed with every edit, so what refuses is what the numbers say.
 */
#include "support/check_case.h"

#include "config/config.h"
#include "formulas/evaluate.h"
#include "preflight/spread.h"
#include "store/store_record.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *object_of(dp_run run, const char *stage, char out[96]) {
    snprintf(out, 96, "/stages/%s/%s", dp_run_name(run), stage);
    return out;
}

/* The provenance of the copy; free it with cJSON_Delete. */
static cJSON *provenance(void) {
    cJSON *document = NULL;
    dflash_error err;
    const hid_t file = sf_edit();
    ck_assert_int_eq(dp_record_read(file, sf_path, "/provenance", &document, &err), DFLASH_OK);
    ck_assert_int_ge(H5Fclose(file), 0);
    return document;
}

/* Multiplies what the record claims of a stage, or of every one (NULL), in the two measures. */
static void claim_more(const char *stage, double l2, double max) {
    cJSON *document = provenance();
    cJSON *largest = cJSON_GetObjectItem(cJSON_GetObjectItem(document, "float32_orders"), "largest");
    int claims = 0;
    for (cJSON *pair = largest->child; pair != NULL; pair = pair->next) {
        if (stage != NULL ? strcmp(pair->string, stage) != 0 : strncmp(pair->string, "rope.", 5) == 0) continue;
        cJSON_SetNumberValue(cJSON_GetArrayItem(pair, 0), cJSON_GetArrayItem(pair, 0)->valuedouble * l2);
        cJSON_SetNumberValue(cJSON_GetArrayItem(pair, 1), cJSON_GetArrayItem(pair, 1)->valuedouble * max);
        claims++;
    }
    ck_assert_int_gt(claims, 0);
    char *text = cJSON_PrintUnformatted(document);
    scratch_put_record("provenance", text);
    free(text);
    cJSON_Delete(document);
}

/* Sets the claim of a stage to at least these distances. */
static void claim(const char *stage, double l2, double max) {
    char key[96], pair[96];
    snprintf(key, sizeof key, "float32_orders/largest/%s", stage);
    snprintf(pair, sizeof pair, "[%.9g, %.9g]", l2, max);
    scratch_edit_record("provenance", key, pair);
}

static void scale_object(const char *object, double factor) {
    int64_t count;
    double *value = scratch_values(object, &count);
    for (int64_t i = 0; i < count; i++) value[i] *= factor;
    scratch_set_values(object, value);
    free(value);
}

static void scale_run(dp_run run, const char *stage, double factor) {
    char object[96];
    scale_object(object_of(run, stage, object), factor);
}

/* ---- Claims ---- */

static const struct {
    const char *fixture, *oracle, *stage;
} claims[] = {{"tiny-plain", "tiny-plain", "layers.1.mlp.down"},
              {"tiny-plain", "tiny-plain", "final"},
              {"tiny-hot", "tiny-hot", "layers.1.mlp.up"},
              {"tiny-dflash2", "tiny-dflash2", "logits"},
              {"tiny-dspark", "tiny-dspark", "layers.0.mlp.down"},
              {"tiny-dspark-gated", "tiny-dspark-gated", "layers.0.mlp.norm"},
              {"tiny-windowed", "tiny-windowed24", "layers.1.mlp.up"}}; /* sampled */
enum { CLAIMS = sizeof claims / sizeof *claims };

static void copy_claimed(int i) {
    char oracle[64];
    snprintf(oracle, sizeof oracle, "oracles/%s.h5", claims[i].oracle);
    scratch_copy_case(claims[i].fixture);
    scratch_copy(oracle, "oracle.h5");
}

START_TEST(a_claim_that_is_four_times_too_large_at_one_stage_is_refused) {
    copy_claimed(_i);
    claim_more(claims[_i].stage, 4.0, 4.0);
    scratch_expect_stop(DP_REFUSED, "oracle.spread", claims[_i].stage, "expected at most", "relative L2");
}
END_TEST

/* Its scores reach 170, so softmax makes 20 times the relative error of its operands of the context's. */
START_TEST(large_scores_explain_the_spread_of_attention_and_no_larger_claim) {
    scratch_copy_case("tiny-sharp");
    scratch_copy("oracles/tiny-sharp.h5", "oracle.h5");
    scratch_expect_pass();
    static const char *const more[] = {"layers.0.attn.context", "layers.0.attn.o_proj"};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        scratch_copy("oracles/tiny-sharp.h5", "oracle.h5");
        claim_more(more[i], 4.0, 4.0);
        scratch_expect_stop(DP_REFUSED, "oracle.spread", more[i], "expected at most", "relative L2");
    }
    scratch_copy_case("tiny-plain");
    claim_more("layers.1.attn.context", 5.0, 5.0);
    scratch_expect_stop(DP_REFUSED, "oracle.spread", "layers.1.attn.context", "expected at most", "relative L2");
}
END_TEST

START_TEST(claims_that_are_four_times_too_large_everywhere_are_refused_in_either_measure) {
    copy_claimed(_i);
    claim_more(NULL, 4.0, 4.0);
    scratch_expect_stop(DP_REFUSED, "oracle.spread", "oracle.h5", "expected", NULL);
    copy_claimed(_i);
    claim_more(NULL, 4.0, 1.0);
    scratch_expect_stop(DP_REFUSED, "oracle.spread", "oracle.h5", "relative L2", NULL);
    if (strcmp(claims[_i].stage, "layers.1.mlp.up") == 0) return; /* sampled: too little of the largest error is seen */
    copy_claimed(_i);
    claim_more(NULL, 1.0, 4.0);
    scratch_expect_stop(DP_REFUSED, "oracle.spread", "oracle.h5", "row's rms", NULL);
}
END_TEST

START_TEST(a_claim_below_the_run_that_it_includes_is_refused) {
    static const struct {
        double l2, max;
        const char *measure;
    } less[] = {{0.5, 1.0, "relative L2"}, {1.0, 0.3, "row's rms"}, {0.0, 0.0, "relative L2"}};
    for (size_t i = 0; i < sizeof less / sizeof *less; i++) {
        scratch_copy_case("tiny-plain");
        claim_more("layers.1.attn.context", less[i].l2, less[i].max);
        scratch_expect_stop(DP_REFUSED, "oracle.spread", "layers.1.attn.context", "expected at least", less[i].measure);
    }
}
END_TEST

START_TEST(a_table_has_no_spread_beside_its_own_roundings) {
    static const char *const tables[] = {"rope.inv_freq", "rope.cos", "rope.sin"};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        scratch_copy_case("tiny-yarn");
        claim_more(tables[i], 1.1, 1.1);
        scratch_expect_stop(DP_REFUSED, "oracle.spread", tables[i], "no order of additions", NULL);
    }
}
END_TEST

/* ---- Runs ---- */

static const char moved[] = "layers.1.mlp.down";

START_TEST(a_float32_run_that_was_moved_alone_is_refused) {
    scratch_copy_case("tiny-plain");
    scale_run(DP_RUN_F32, moved, 1.0 + 1e-6); /* the record as it was */
    scratch_expect_stop(DP_REFUSED, "oracle.spread", moved, "expected at least", NULL);
    scratch_copy_case("tiny-plain");
    scale_run(DP_RUN_F32, moved, 1.0 + 3e-5); /* with claims that fit */
    claim(moved, 3.2e-5, 2e-4);
    scratch_expect_stop(DP_REFUSED, "oracle.bracket", moved, "relative L2", NULL);
    scratch_copy_case("tiny-plain");
    scale_run(DP_RUN_F32, moved, 1.0 + 2e-6);
    claim(moved, 2.6e-6, 2e-5);
    scratch_expect_stop(DP_REFUSED, "oracle.float32", moved, "does not follow", NULL);
}
END_TEST

START_TEST(a_bfloat16_run_that_was_moved_too_excuses_no_float32_run) {
    char object[96];
    int64_t count;
    scratch_copy_case("tiny-plain");
    object_of(DP_RUN_BF16, moved, object);
    double *bits = scratch_values(object, &count);
    for (int64_t i = 0; i < count; i++) bits[i] -= (int)bits[i] % 32768 >= 128 ? 128 : 0; /* halved: 0.5 away */
    scratch_set_values(object, bits);
    free(bits);
    scale_run(DP_RUN_F32, moved, 1.0 + 3e-5);
    claim(moved, 3.2e-5, 2e-4);
    scratch_expect_stop(DP_REFUSED, "oracle.float32", moved, "does not follow", NULL);
}
END_TEST

/* Limits this wide would let a norm's weights be off by 3e-5. */
START_TEST(a_bfloat16_run_that_is_wrong_everywhere_lets_no_claim_grow) {
    char object[96];
    scratch_copy_case("tiny-plain");
    cJSON *document = provenance();
    const cJSON *largest = cJSON_GetObjectItem(cJSON_GetObjectItem(document, "float32_orders"), "largest");
    for (const cJSON *pair = largest->child; pair != NULL; pair = pair->next) {
        if (strncmp(pair->string, "rope.", 5) == 0) continue;
        int64_t count;
        double *bits = scratch_values(object_of(DP_RUN_BF16, pair->string, object), &count);
        for (int64_t i = 0; i < count; i++) bits[i] -= (int)bits[i] % 32768 >= 128 ? 128 : 0;
        scratch_set_values(object, bits);
        free(bits);
        claim(pair->string, 3e-5, 2e-4);
    }
    cJSON_Delete(document);
    scratch_expect_stop(DP_REFUSED, "oracle.spread", "ctx.fc", "explain less", NULL);
}
END_TEST

START_TEST(a_sampled_float64_stage_cannot_widen_its_bar_by_being_wrong) {
    scratch_copy_case("tiny-windowed");
    scratch_copy("oracles/tiny-windowed24.h5", "oracle.h5");
    scale_run(DP_RUN_F64, "layers.1.mlp.up", 1.0 + 3e-6);
    scratch_expect_stop(DP_REFUSED, "oracle.sketch", "layers.1.mlp.up", "are not of one run", NULL);
    static const char *const parts[] = {"stages", "rows", "sketch"};
    static const double factors[] = {1.0 + 1e-4, 1.0 + 8e-6, 1.0 + 3e-6};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        scratch_copy("oracles/tiny-windowed24.h5", "oracle.h5");
        for (size_t part = 0; part < sizeof parts / sizeof *parts; part++) {
            char object[96];
            snprintf(object, sizeof object, "/%s/float64/layers.1.mlp.up", parts[part]);
            scale_object(object, factors[i]);
        }
        scratch_expect_stop(DP_REFUSED, "provenance.orders", "layers.1.mlp.up#sketch", "counts that run too", NULL);
    }
}
END_TEST

/* ---- Frequencies ---- */

START_TEST(a_frequency_that_is_off_by_a_few_times_its_bound_is_refused) {
    static const struct {
        const char *fixture;
        int index;
    } tables[] = {{"tiny-plain", 5}, {"tiny-yarn", 3}, {"tiny-llama3", 4}, {"tiny-linear", 7}};
    char object[96], path[SCRATCH_PATH];
    dflash_config config;
    dflash_error err;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (int run = DP_RUN_F32; run <= DP_RUN_BF16; run++) {
            scratch_copy_case(tables[i].fixture);
            ck_assert_int_eq(dflash_config_read(scratch_path("config.json", path), &config, &err), DFLASH_OK);
            const dp_approx frequency = dp_frequency(&config.rope, tables[i].index);
            scratch_change_value(object_of((dp_run)run, "rope.inv_freq", object), tables[i].index, 1.0,
                                 3.0 * frequency.error);
            scratch_expect_stop(DP_REFUSED, "oracle.frequencies", "rope.inv_freq", dp_run_name((dp_run)run),
                                "expected at most");
        }
}
END_TEST

/* ---- Numbers of correct oracles that were refused, and what is refused of the same form --------------------------
 */

enum { BLOCK_LUCK, CHAOS, UNEVEN, FORMS };

/* tiny-plain's stages with made-up numbers: `wrong` takes the form out of what a correct oracle can be. */
static dflash_status check_form(int form, bool wrong, dflash_error *err) {
    char path[SCRATCH_PATH];
    dflash_config config;
    dp_stage_set stages;
    scratch_copy_case("tiny-plain");
    ck_assert_int_eq(dflash_config_read(scratch_path("config.json", path), &config, err), DFLASH_OK);
    ck_assert_int_eq(dp_stage_set_create(&config, &(dp_stage_input){.context = 4}, &stages, err), DFLASH_OK);
    dp_spread *spread = calloc((size_t)stages.count, sizeof *spread);
    for (int i = 0; i < stages.count; i++) {
        const dp_stage_spec *spec = &stages.spec[i];
        dp_spread *at = &spread[i];
        const bool table = strncmp(spec->name, "rope.", 5) == 0, down = strcmp(spec->name, "layers.1.mlp.down") == 0;
        const bool before = spec->layer <= 0 && strncmp(spec->name, "kv.", 3) != 0;
        *at = (dp_spread){{3e-7, 1.5e-6}, {3e-7, 1.5e-6}, {6e-3, 3e-2}, 8.0, 8.0, 1.0, !table, !table};
        if (form == BLOCK_LUCK && (wrong || !before)) { /* the own run lucky by 4 in most stages, or in all of them */
            at->own = (dp_distance){7.5e-8, 3.75e-7};
            at->own_rows = at->rows = 1.0;
        }
        if (form == CHAOS && (down || (!wrong && spec->stage == DFLASH_STAGE_MLP_ACT)))
            at->coarse.l2 = down ? 3.8 : 0.9;
        if (form == UNEVEN && down) at->claimed.max *= wrong ? 8.0 : 4.0;
    }
    const dflash_status status = dp_spread_check("oracle.h5", &config, &stages, spread, err);
    dp_stage_set_release(&stages);
    free(spread);
    return status;
}

START_TEST(numbers_of_a_correct_oracle_are_admitted_and_those_of_no_oracle_are_not) {
    static const struct {
        const char *code, *words;
    } refusals[FORMS] = {
        {"oracle.spread", "three of four"}, {"oracle.bfloat16", "layers.1.mlp.down"}, {"oracle.spread", "uneven"}};
    dflash_error err;
    ck_assert_msg(check_form(_i, false, &err) == DFLASH_OK, "%s", err.message);
    ck_assert_int_eq(check_form(_i, true, &err), DFLASH_ERR_REFUSED);
    ck_assert_str_eq(err.code, refusals[_i].code);
    ck_assert_ptr_nonnull(strstr(err.message, refusals[_i].words));
}
END_TEST

void check_add_spread(Suite *suite) {
    TCase *tests = check_case("spread");
    tcase_add_loop_test(tests, a_claim_that_is_four_times_too_large_at_one_stage_is_refused, 0, CLAIMS);
    tcase_add_test(tests, large_scores_explain_the_spread_of_attention_and_no_larger_claim);
    tcase_add_loop_test(tests, claims_that_are_four_times_too_large_everywhere_are_refused_in_either_measure, 0,
                        CLAIMS);
    tcase_add_test(tests, a_claim_below_the_run_that_it_includes_is_refused);
    tcase_add_test(tests, a_table_has_no_spread_beside_its_own_roundings);
    tcase_add_test(tests, a_float32_run_that_was_moved_alone_is_refused);
    tcase_add_test(tests, a_bfloat16_run_that_was_moved_too_excuses_no_float32_run);
    tcase_add_test(tests, a_bfloat16_run_that_is_wrong_everywhere_lets_no_claim_grow);
    tcase_add_test(tests, a_sampled_float64_stage_cannot_widen_its_bar_by_being_wrong);
    tcase_add_test(tests, a_frequency_that_is_off_by_a_few_times_its_bound_is_refused);
    tcase_add_loop_test(tests, numbers_of_a_correct_oracle_are_admitted_and_those_of_no_oracle_are_not, 0, FORMS);
    suite_add_tcase(suite, tests);
}
