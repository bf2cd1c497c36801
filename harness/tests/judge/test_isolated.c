/*
 * test_isolated.c - stages run alone on the stored cases: none fails when nothing is wrong, and a fault injected into
 * any one of them is found there and nowhere else.
 */
#include "support/check_case.h"
#include "suites.h"

#include "engine/engine.h"
#include "formulas/evaluate.h"
#include "check/plot_collect.h"
#include "run/proposal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const cases[] = {"tiny-plain",   "tiny-yarn",    "tiny-llama3",       "tiny-windowed",
                                    "tiny-bias",    "tiny-partial", "tiny-hot",          "tiny-edge",
                                    "tiny-dflash2", "tiny-dspark",  "tiny-dspark-gated", "tiny-dspark-rnn"};
enum { CASES = sizeof cases / sizeof *cases };

/* An opened case: what dp_check holds when it comes to the isolated run. */
typedef struct rig {
    dp_preflight in;
    dflash_engine *engine;
    dflash_draft *draft;
    dflash_table *head;
    dp_recording chained;
    dp_isolated *out;
    dflash_error err;
} rig;

static void add_cache(rig *r, const float *features) {
    const dflash_config *c = &r->in.config;
    const size_t layer = (size_t)r->in.context * (size_t)c->n_kv_heads * (size_t)c->head_dim;
    dflash_kv *kv = NULL;
    float *values[2] = {calloc(layer * (size_t)c->n_layers, sizeof(float)),
                        calloc(layer * (size_t)c->n_layers, sizeof(float))};
    ck_assert_int_eq(dflash_kv_create(r->draft, r->in.context + c->block, &kv, &r->err), DFLASH_OK);
    ck_assert_int_eq(dflash_ingest_ctx(r->draft, kv, features, r->in.pos, r->in.context, &r->err), DFLASH_OK);
    for (int i = 0; i < c->n_layers; i++)
        ck_assert_int_eq(dflash_kv_read(kv, i, values[0] + (size_t)i * layer, values[1] + (size_t)i * layer, &r->err),
                         DFLASH_OK);
    for (int i = 0; i < 2; i++) {
        dp_recording_add(&r->chained,
                         &(dflash_stage_view){.stage = i == 0 ? DFLASH_STAGE_KV_K : DFLASH_STAGE_KV_V,
                                              .layer = -1,
                                              .rank = 4,
                                              .dim = {c->n_layers, r->in.context, c->n_kv_heads, c->head_dim},
                                              .f32 = values[i]});
        free(values[i]);
    }
    dflash_kv_destroy(kv);
}

static void rig_open(rig *r, const char *name) {
    char checkpoint[96], oracle[96];
    *r = (rig){.engine = NULL};
    snprintf(checkpoint, sizeof checkpoint, "fixtures/small/%s", name);
    snprintf(oracle, sizeof oracle, "oracles/%s.h5", name);
    ck_assert_msg(dp_preflight_run(checkpoint, oracle, DFLASH_PRECISION_STORED, &r->in, &r->err) == DFLASH_OK, "%s",
                  r->err.message);
    ck_assert_int_eq(dflash_engine_create(&(dflash_engine_options){.threads = 1}, &r->engine, &r->err), DFLASH_OK);
    ck_assert_int_eq(dflash_draft_load(r->engine, checkpoint, &r->draft, &r->err), DFLASH_OK);
    if (r->in.vocab > 0)
        ck_assert_int_eq(dp_head_load(r->engine, checkpoint, NULL, r->in.oracle, &r->head, &r->err), DFLASH_OK);
    const size_t hidden = (size_t)r->in.config.hidden;
    float *features = malloc((size_t)r->in.context * hidden * sizeof *features);
    float *result = malloc((size_t)r->in.config.block * hidden * sizeof *result);
    dflash_draft_observe(r->draft, dp_recording_observe, &r->chained);
    ck_assert_int_eq(dflash_ctx_features(r->draft, r->in.taps, r->in.context, features, &r->err), DFLASH_OK);
    ck_assert_int_eq(dflash_forward_block(r->draft, features, r->in.noise, r->in.pos, r->in.context, result, &r->err),
                     DFLASH_OK);
    dflash_draft_observe(r->draft, NULL, NULL);
    add_cache(r, features);
    free(features);
    free(result);
    r->out = calloc((size_t)r->in.stages.count, sizeof *r->out);
}

static void rig_release(rig *r) {
    free(r->out);
    dp_recording_release(&r->chained);
    dflash_table_destroy(r->head);
    dflash_draft_destroy(r->draft);
    dflash_engine_destroy(r->engine);
    dp_preflight_release(&r->in);
}

static void rig_run(rig *r, const dp_fault_injection *injection, const char *filter) {
    const dp_isolated_options options = {.filter = filter,
                                         .engine = r->engine,
                                         .draft = r->draft,
                                         .head = r->head,
                                         .host_copy = r->draft,
                                         .host_head = r->head,
                                         .in = &r->in,
                                         .chained = &r->chained,
                                         .injection = injection};
    ck_assert_msg(dp_isolated_run(&options, r->out, &r->err) == DFLASH_OK, "%s", r->err.message);
}

/* Every judged stage passes but the one at `fault` (-1: none), which fails. */
static void expect_only(const rig *r, int fault, const char *what) {
    for (int i = 0; i < r->in.stages.count; i++) {
        const dp_isolated *d = &r->out[i];
        if (!d->judged) continue;
        ck_assert_msg(
            d->pass == (i != fault), "%s injected into %s: %s %s; share %g, noise %g of %g, peak %g of %g, oracle %g",
            what, fault >= 0 ? r->in.stages.spec[fault].name : "nothing", r->in.stages.spec[i].name,
            d->pass ? "passes" : "fails", d->share, d->noise, d->noise_limit, d->peak, d->peak_limit, d->oracle_share);
    }
}

START_TEST(every_stage_of_a_correct_run_lies_within_its_bound_and_its_noise) {
    rig r;
    int judged = 0;
    rig_open(&r, cases[_i]);
    rig_run(&r, NULL, NULL);
    expect_only(&r, -1, "nothing");
    for (int i = 0; i < r.in.stages.count; i++) {
        judged += r.out[i].judged;
        ck_assert_msg(!r.out[i].judged || r.out[i].oracle_share >= 0.0,
                      "%s: the oracle stores it whole, and was not held "
                      "against its own inputs",
                      r.in.stages.spec[i].name);
    }
    ck_assert_int_ge(judged, r.in.stages.count - 1); /* all but the verify window */
    rig_release(&r);
}
END_TEST

/* ---- Injected faults ---- */

/* Which stage, and what to do with it. */
typedef struct fault {
    dflash_stage stage;
    int layer;
    int64_t at;      /* element; -1: all */
    double factor;   /* value *= factor */
    double distance; /* value += distance */
    bool used;
} fault;

static void change(void *user, dflash_stage stage, int layer, int64_t count, float *value, int32_t *integer) {
    fault *f = user;
    if (stage != f->stage || layer != f->layer) return;
    for (int64_t i = 0; i < count; i++) {
        if (f->at >= 0 && i != f->at) continue;
        if (integer != NULL)
            integer[i] += 1;
        else
            value[i] = (float)((double)value[i] * f->factor + f->distance);
    }
    f->used = true;
}

/* Judged are the stages of the fault's layer, or all: in other layers every stage starts from the oracle too, and a
 * judgement of each of them for each fault would only take time. */
static void inject_in(rig *r, int stage, fault f, const char *what) {
    char filter[32];
    f.stage = r->in.stages.spec[stage].stage;
    f.layer = r->in.stages.spec[stage].layer;
    snprintf(filter, sizeof filter, "layers.%d.*", f.layer);
    rig_run(r, &(dp_fault_injection){change, &f}, f.layer >= 0 ? filter : NULL);
    ck_assert(f.used);
    ck_assert(r->out[stage].judged);
    expect_only(r, stage, what);
}

/* A family with each of its heads; the loops over all small cases take minutes and are not for every build. */
static const char *const faulty[] = {"tiny-edge", "tiny-dflash2", "tiny-dspark-rnn"};
enum { FAULTY = sizeof faulty / sizeof *faulty };

START_TEST(a_fault_in_any_one_stage_is_found_there_and_nowhere_else) {
    rig r;
    rig_open(&r, faulty[_i]);
    rig_run(&r, NULL, NULL);
    dp_isolated *const clean = malloc((size_t)r.in.stages.count * sizeof *clean);
    memcpy(clean, r.out, (size_t)r.in.stages.count * sizeof *clean);
    for (int s = 0; s < r.in.stages.count; s++) {
        const dp_isolated *d = &clean[s];
        if (!d->judged || r.in.stages.spec[s].exact) continue;
        /* A stage without a bound is exact: one unit in the last place. */
        const double size = d->worst_bound > 0.0 ? 4.0 * d->worst_bound : fabs(d->worst_want) * 0x1p-23;
        inject_in(&r, s, (fault){.at = d->worst, .factor = 1.0, .distance = size}, "4 x the bound");
        inject_in(&r, s, (fault){.at = -1, .factor = 1.0 + 1e-5}, "1e-5");
    }
    free(clean);
    rig_release(&r);
}
END_TEST

START_TEST(a_value_that_is_not_finite_is_no_pass) {
    rig r;
    rig_open(&r, "tiny-plain");
    for (int k = 0; k < 2; k++) {
        fault f = {
            .stage = DFLASH_STAGE_ATTN_O_PROJ, .layer = 1, .at = 7, .factor = 1.0, .distance = k == 0 ? NAN : INFINITY};
        rig_run(&r, &(dp_fault_injection){change, &f}, NULL);
        for (int i = 0; i < r.in.stages.count; i++)
            ck_assert_int_eq(r.out[i].pass, strcmp(r.in.stages.spec[i].name, "layers.1.attn.o_proj") != 0);
    }
    rig_release(&r);
}
END_TEST

START_TEST(values_that_are_not_finite_draft_nothing_and_are_judged_up_to_there) {
    rig r;
    rig_open(&r, "tiny-dspark");
    const size_t values = (size_t)r.in.config.block * (size_t)r.in.config.hidden;
    float *final = calloc(values, sizeof *final);
    dp_recording shown = {.count = 0};
    for (size_t i = 0; i < values; i++) final[i] = NAN;
    ck_assert_int_eq(dp_run_proposal(r.draft, r.head, final, r.in.anchor, &shown, &r.err), DFLASH_ERR_REFUSED);
    ck_assert_str_eq(r.err.code, "proposal.nan");
    dp_recording_release(&shown);
    shown = (dp_recording){.count = 0};
    ck_assert_int_eq(dp_run_judged_proposal(r.draft, r.head, final, r.in.anchor, &shown, &r.err), DFLASH_OK);
    ck_assert_ptr_nonnull(dp_recording_find(&shown, DFLASH_STAGE_LOGITS, -1));
    ck_assert_ptr_null(dp_recording_find(&shown, DFLASH_STAGE_MARKOV_TOKENS, -1));
    /* Any other refusal stays one. */
    ck_assert_int_eq(dp_run_judged_proposal(r.draft, r.head, final, -1, &shown, &r.err), DFLASH_ERR_REFUSED);
    ck_assert_str_eq(r.err.code, "markov.anchor");
    dp_recording_release(&shown);
    free(final);
    rig_release(&r);
}
END_TEST

/* How many ids a result file would hold of a run that shows only its logits, all of them `value`. */
static int ids_of_logits(rig *r, float value, bool chosen) {
    const dp_check_options options = {.filter = NULL};
    dp_stage_result stage[2] = {{.name = "logits", .rank = 2}, {.name = "markov.tokens", .rank = 1}};
    dp_result result = {
        .options = &options, .family = DFLASH_FAMILY_DSPARK, .stage = stage, .stage_count = chosen ? 2 : 1};
    const dp_stage_spec *spec = dp_stage_set_find(&r->in.stages, "logits");
    const int64_t values = dp_dims_product(spec->rank, spec->dim);
    float *logits = malloc((size_t)values * sizeof *logits);
    dp_recording shown = {.count = 0};
    for (int64_t i = 0; i < values; i++) logits[i] = value;
    memcpy(stage[0].dim, spec->dim, sizeof stage[0].dim);
    stage[0].difference.count = values;
    dp_recording_add(&shown, &(dflash_stage_view){.stage = DFLASH_STAGE_LOGITS,
                                                  .layer = -1,
                                                  .rank = spec->rank,
                                                  .dim = {spec->dim[0], spec->dim[1]},
                                                  .f32 = logits});
    ck_assert_msg(dp_plot_collect(r->in.oracle, &shown, &result, &r->err) == DFLASH_OK, "%s", r->err.message);
    ck_assert_int_eq(result.plot.margins_count, 1);
    const int count = result.plot.tokens.count;
    dp_plot_data_release(&result.plot);
    dp_recording_release(&shown);
    free(logits);
    return count;
}

START_TEST(the_largest_logits_are_tokens_only_when_nothing_else_chooses_and_they_are_finite) {
    rig r;
    rig_open(&r, "tiny-dspark");
    ck_assert_int_gt(ids_of_logits(&r, 1.0f, false), 0);
    ck_assert_int_eq(ids_of_logits(&r, 1.0f, true), 0);
    ck_assert_int_eq(ids_of_logits(&r, NAN, false), 0);
    rig_release(&r);
}
END_TEST

START_TEST(a_wrong_token_is_found_among_the_choices) {
    static const struct {
        const char *name, *stage;
    } choices[] = {
        {"tiny-dflash2", "select.topk_ids"}, {"tiny-dflash2", "select.path"}, {"tiny-dspark", "markov.tokens"}};
    rig r;
    rig_open(&r, choices[_i].name);
    const dp_stage_spec *spec = dp_stage_set_find(&r.in.stages, choices[_i].stage);
    fault f = {.stage = spec->stage, .layer = -1, .at = dp_dims_product(spec->rank, spec->dim) - 1};
    rig_run(&r, &(dp_fault_injection){change, &f}, NULL);
    ck_assert(!r.out[spec - r.in.stages.spec].pass);
    rig_release(&r);
}
END_TEST

/* ---- The evaluation alone ---- */

/* The stages of a stored oracle, to be changed. */
static dp_stage_values oracle_values(rig *r) {
    dp_stage_values values = {.item = NULL};
    for (int i = 0; i < r->in.stages.count; i++) {
        const dp_stage_spec *spec = &r->in.stages.spec[i];
        dp_array array;
        ck_assert_int_eq(dp_oracle_stage(r->in.oracle, DP_RUN_F64, spec->name, &array, &r->err), DFLASH_OK);
        ck_assert_int_eq(
            dp_stage_values_take(&values, spec->stage, spec->layer, array.count, array.value, true, &r->err),
            DFLASH_OK);
    }
    return values;
}

static dflash_status evaluate_whole(rig *r, const dp_stage_values *values, const char *name, int32_t anchor,
                                    dp_approx **out) {
    const dp_stage_spec *spec = dp_stage_set_find(&r->in.stages, name);
    const dp_evaluation e = {.model = dp_class_model_reference(),
                             .draft = r->draft,
                             .head = r->head,
                             .pos = r->in.pos,
                             .context = r->in.context,
                             .anchor = anchor,
                             .values = values};
    const int64_t count = dp_dims_product(spec->rank, spec->dim);
    *out = calloc((size_t)count, sizeof **out);
    return dp_evaluate(&e, spec, &(dp_selection){.stride = 1, .count = count}, r->engine->pool, *out, &r->err);
}

/* Preflight refuses such an oracle first; whoever evaluates from ids reads by none that has no row all the same. */
START_TEST(an_id_without_a_row_is_refused_and_not_read_by) {
    static const struct {
        const char *name, *ids, *evaluated;
    } from[] = {
        {"tiny-dflash2", "select.path", "select.scores"},      {"tiny-dflash2", "select.topk_ids", "select.scores"},
        {"tiny-dspark", "markov.tokens", "markov.logits"},     {"tiny-dspark-gated", "markov.tokens", "markov.logits"},
        {"tiny-dspark-rnn", "markov.tokens", "markov.logits"}, {"tiny-dspark", "markov.tokens", "confidence.raw"}};
    static const double wrong[] = {-1, 320, 384, 2e9};
    rig r;
    dp_approx *out;
    rig_open(&r, from[_i].name);
    dp_stage_values values = oracle_values(&r);
    const dp_stage_spec *spec = dp_stage_set_find(&r.in.stages, from[_i].ids);
    double *id = dp_stage_values_find(&values, spec->stage, -1)->value;
    ck_assert_int_eq(evaluate_whole(&r, &values, from[_i].evaluated, r.in.anchor, &out), DFLASH_OK);
    free(out);
    const double right = id[0];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        id[0] = wrong[i];
        ck_assert_int_eq(evaluate_whole(&r, &values, from[_i].evaluated, r.in.anchor, &out), DFLASH_ERR_REFUSED);
        ck_assert_str_eq(r.err.code, "evaluate.id");
        free(out);
        id[0] = right;
        ck_assert_int_eq(evaluate_whole(&r, &values, from[_i].evaluated, (int32_t)wrong[i], &out), DFLASH_ERR_REFUSED);
        ck_assert_str_eq(r.err.code, "evaluate.id");
        free(out);
    }
    dp_stage_values_release(&values);
    rig_release(&r);
}
END_TEST

/* A row in which nothing compares has no order: no column is found, and none is read. */
START_TEST(candidates_of_a_row_without_an_order_are_no_numbers) {
    static const char *const halves[] = {"select.topk_values", "select.topk_ids"};
    rig r;
    rig_open(&r, "tiny-dflash2");
    dp_stage_values values = oracle_values(&r);
    const int vocab = r.in.vocab, k = r.in.config.selector_top_k;
    double *logits = dp_stage_values_find(&values, DFLASH_STAGE_LOGITS, -1)->value;
    for (int i = 0; i < vocab; i++) logits[i] = NAN;
    for (size_t half = 0; half < sizeof halves / sizeof *halves; half++) {
        dp_approx *out;
        ck_assert_int_eq(evaluate_whole(&r, &values, halves[half], r.in.anchor, &out), DFLASH_OK);
        for (int i = 1; i < k; i++) ck_assert(isnan(out[i].value)); /* the first is column 0, whatever it holds */
        for (int i = k; i < 2 * k; i++) ck_assert(isfinite(out[i].value));
        free(out);
    }
    dp_stage_values_release(&values);
    rig_release(&r);
}
END_TEST

START_TEST(an_oracle_whose_stage_does_not_follow_from_its_inputs_fails_there) {
    dp_result result;
    scratch_copy_case("tiny-plain");
    scratch_change_value("/stages/float64/layers.1.mlp.up", 3, 1.0 + 1e-9, 0.0); /* far below the chained limit */
    scratch_check(NULL, &result);
    ck_assert_int_eq(result.failed_stages, 0);
    ck_assert_int_eq(result.verdict, DP_FAIL);
    for (int i = 0; i < result.stage_count; i++)
        if (!result.stage[i].isolated.pass) {
            ck_assert_str_eq(result.stage[i].name, "layers.1.mlp.up");
            ck_assert(result.stage[i].isolated.oracle_share > 1.0);
            break;
        }
    dp_result_release(&result);
}
END_TEST

Suite *suite_isolated(void) {
    Suite *suite = suite_create("isolated");
    TCase *tests = check_case("isolated");
    tcase_add_loop_test(tests, every_stage_of_a_correct_run_lies_within_its_bound_and_its_noise, 0, CASES);
    tcase_add_loop_test(tests, a_fault_in_any_one_stage_is_found_there_and_nowhere_else, 0, FAULTY);
    tcase_add_test(tests, a_value_that_is_not_finite_is_no_pass);
    tcase_add_test(tests, values_that_are_not_finite_draft_nothing_and_are_judged_up_to_there);
    tcase_add_test(tests, the_largest_logits_are_tokens_only_when_nothing_else_chooses_and_they_are_finite);
    tcase_add_loop_test(tests, a_wrong_token_is_found_among_the_choices, 0, 3);
    tcase_add_loop_test(tests, an_id_without_a_row_is_refused_and_not_read_by, 0, 6);
    tcase_add_test(tests, candidates_of_a_row_without_an_order_are_no_numbers);
    tcase_add_test(tests, an_oracle_whose_stage_does_not_follow_from_its_inputs_fails_there);
    suite_add_tcase(suite, tests);
    return suite;
}
