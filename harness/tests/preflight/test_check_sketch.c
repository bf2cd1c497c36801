/*
 * test_check_sketch.c - sampled oracles: what stands for the values that are not stored sees every row and column, and
 * a file whose samples, whole rows and sketches contradict each other stops the gate.
 */
#include "support/check_case.h"

#include "check/seen.h"
#include "run/proposal.h"
#include "preflight/sketch_check.h"
#include "store/store_h5.h"
#include "store/store_sketch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* [5, 80] in tiny-windowed24, of which every third value is stored, and row 4 whole. */
static const char stage[] = "layers.0.mlp.norm";
enum { STAGE_ROWS = 5, STAGE_WIDTH = 80, EACH = DP_SKETCH_PROJECTIONS + 1 };

static const char *object_of(const char *group, char out[96]) {
    snprintf(out, 96, "/%s/%s", group, stage);
    return out;
}

static void copy_sampled(void) {
    scratch_copy_case("tiny-windowed");
    scratch_copy("oracles/tiny-windowed24.h5", "oracle.h5");
}

START_TEST(both_languages_make_the_same_signs) {
    /* printed by oracles/sketch.py for seed 1, stage final, i % 11 in [2, 70] */
    static const double expected[2][EACH - 1] = {{0, 10, 22, -16}, {-18, -46, 2, 80}};
    const dp_sketch form = {
        .rows = 2, .width = 70, .projections = EACH - 1, .key = dp_sketch_key(1, "final"), .value = NULL};
    ck_assert_uint_eq(form.key, 0x273159110238fec5u);
    for (int row = 0; row < 2; row++) {
        double value[70], out[EACH];
        for (int i = 0; i < 70; i++) value[i] = (row * 70 + i) % 11;
        dp_sketch_row(&form, row, value, out);
        for (int k = 0; k < EACH - 1; k++) ck_assert(out[k] == expected[row][k]);
    }
}
END_TEST

/* ---- Contradictions ---- */

START_TEST(a_sketch_that_contradicts_its_oracle_is_refused) {
    static const struct {
        const char *group;
        int64_t index; /* of the sketch: row * EACH + projection */
        double factor, term;
        const char *code, *mention;
    } wrong[] = {
        {"sketch/float64", 4 * EACH + EACH - 1, 1.01, 0.0, "oracle.sketch", "the rms of the row stored whole"},
        {"sketch/float64", 4 * EACH + 1, 1.0, 1e-3, "oracle.sketch", "a projection of it"},
        {"rows/float64", 17, 1.0, 1e-3, "oracle.sketch", "row 4"},
        {"sketch/float64", EACH - 1, 0.1, 0.0, "oracle.sketch", "the norm of its samples"},
        {"sketch/float64", EACH - 1, 1.01, 0.0, "provenance.orders", "layers.0.mlp.norm#sketch"},
        {"sketch/float64", 2 * EACH, 1.0, 1.0, "provenance.orders", "layers.0.mlp.norm#sketch"},
        {"sketch/float32", 2 * EACH + 3, 1.0, 1.0, "provenance.orders", "layers.0.mlp.norm#sketch"},
        {"sketch/bfloat16", 0, 1.0, 1e4, "oracle.bfloat16", "bfloat16 run"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char object[96];
        copy_sampled();
        scratch_change_value(object_of(wrong[i].group, object), wrong[i].index, wrong[i].factor, wrong[i].term);
        scratch_expect_stop(DP_REFUSED, wrong[i].code, stage, wrong[i].mention, NULL);
    }
}
END_TEST

START_TEST(a_sample_that_is_not_its_rows_value_is_refused) {
    char object[96];
    int64_t count;
    copy_sampled();
    double *samples = scratch_values(object_of("stages/float64", object), &count);
    samples[count - 1] *= 0.5;
    scratch_set_values(object, samples);
    free(samples);
    scratch_expect_stop(DP_REFUSED, "oracle.sketch", stage, "row 4", "a sample");
}
END_TEST

START_TEST(a_record_that_widens_a_sketch_is_a_contradiction) {
    char object[96];
    copy_sampled();
    scratch_change_value(object_of("sketch/float32", object), 2 * EACH, 1.0, 1.0);
    scratch_edit_record("provenance", "float32_orders/largest/layers.0.mlp.norm#sketch", "[1,1]");
    scratch_expect_stop(DP_REFUSED, "oracle.bracket", stage, "float32 and float64", NULL);
    copy_sampled();
    scratch_edit_record("provenance", "float32_orders/largest/layers.0.mlp.norm#sketch", NULL);
    scratch_expect_stop(DP_REFUSED, "provenance.orders", "layers.0.mlp.norm#sketch", NULL, NULL);
}
END_TEST

START_TEST(a_sampled_stage_without_its_companions_is_refused) {
    static const hsize_t narrow[] = {STAGE_ROWS, EACH - 1};
    static const int64_t far[] = {5}, two[] = {3, 4};
    char object[96];
    for (int run = 0; run < DP_RUN_COUNT; run++) {
        char group[32];
        snprintf(group, sizeof group, "sketch/%s", dp_run_name((dp_run)run));
        copy_sampled();
        sf_remove_link(object_of(group, object));
        scratch_expect_stop(DP_REFUSED, "oracle.sketch.missing", stage, "every row", NULL);
    }
    copy_sampled();
    sf_remove_link("/sketch");
    scratch_expect_stop(DP_REFUSED, "oracle.sketch.missing", "/sketch/float64", NULL, NULL);
    copy_sampled();
    scratch_reshape(object_of("sketch/float32", object), DP_LOGICAL_F64, 2, narrow);
    scratch_expect_stop(DP_REFUSED, "oracle.sketch", stage, "5 rows of 4 values", NULL);
    copy_sampled();
    sf_set_ints(object_of("rows/float64", object), "rows", H5T_STD_I64LE, far, 1);
    scratch_expect_stop(DP_REFUSED, "oracle.rows", stage, "below 5", NULL);
    copy_sampled();
    sf_set_ints(object, "rows", H5T_STD_I64LE, two, 2);
    scratch_expect_stop(DP_REFUSED, "oracle.rows", stage, NULL, NULL);
    copy_sampled();
    sf_move_link(object, "/rows/float64/final");
    scratch_expect_stop(DP_REFUSED, "oracle.object.unknown", "\"final\"", "no sampled stage", NULL);
    copy_sampled();
    sf_set_int("/sketch", "seed", 7);
    scratch_expect_stop(DP_REFUSED, "oracle.sketch", "a projection of it", NULL, NULL);
}
END_TEST

/* Writes a dataset of float64 again in chunks of that shape, everything else as it was. */
static void cut(const char *object, const hsize_t chunk[2]) {
    const hid_t file = sf_edit(), old = H5Dopen2(file, object, H5P_DEFAULT), space = H5Dget_space(old);
    const hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    int64_t count;
    H5Pset_chunk(list, 2, chunk);
    H5Pset_fletcher32(list);
    char digest[65];
    dflash_error err;
    ck_assert_int_eq(dp_h5_text_attribute(old, object, "sha256", digest, sizeof digest, &err), DFLASH_OK);
    H5Dclose(old);
    ck_assert_int_ge(H5Fclose(file), 0);
    double *value = scratch_values(object, &count);
    const hid_t again = sf_edit();
    ck_assert_int_ge(H5Ldelete(again, object, H5P_DEFAULT), 0);
    const hid_t dataset = H5Dcreate2(again, object, H5T_IEEE_F64LE, space, H5P_DEFAULT, list, H5P_DEFAULT);
    ck_assert_int_ge(H5Dwrite(dataset, H5T_IEEE_F64LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, value), 0);
    const char *const text[2][2] = {{"logical_dtype", "float64"}, {"sha256", digest}};
    for (int i = 0; i < 2; i++) {
        const hid_t type = H5Tcopy(H5T_C_S1), scalar = H5Screate(H5S_SCALAR);
        H5Tset_size(type, strlen(text[i][1]));
        const hid_t at = H5Acreate2(dataset, text[i][0], type, scalar, H5P_DEFAULT, H5P_DEFAULT);
        ck_assert_int_ge(H5Awrite(at, type, text[i][1]), 0);
        H5Aclose(at);
        H5Sclose(scalar);
        H5Tclose(type);
    }
    H5Dclose(dataset);
    H5Pclose(list);
    H5Sclose(space);
    ck_assert_int_ge(H5Fclose(again), 0);
    free(value);
}

START_TEST(a_dataset_may_be_cut_into_blocks_of_whole_rows_alone) {
    static const hsize_t rows[] = {1, 2, 3}; /* of 5, so that the last block of two is not full */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        copy_sampled();
        cut("/stages/float64/final", (const hsize_t[]){rows[i], STAGE_WIDTH});
        scratch_expect_pass();
    }
    copy_sampled();
    cut("/stages/float64/final", (const hsize_t[]){5, STAGE_WIDTH / 2});
    scratch_expect_stop(DP_REFUSED, "oracle.dataset.layout", "final", "chunks of whole rows", NULL);
}
END_TEST

/* ---- Faults ---- */

/* A run of tiny-dflash2 on the oracle of 200 context rows, head included. */
typedef struct rig {
    dp_preflight in;
    dflash_engine *engine;
    dflash_draft *draft;
    dflash_table *head;
    dp_recording run;
} rig;

static void rig_open(rig *r) {
    static const char checkpoint[] = "fixtures/small/tiny-dflash2";
    dflash_error err;
    *r = (rig){.engine = NULL};
    ck_assert_msg(dp_preflight_run(checkpoint, "oracles/tiny-dflash2-far.h5", DFLASH_PRECISION_STORED, &r->in, &err) ==
                      DFLASH_OK,
                  "%s", err.message);
    ck_assert_int_eq(dflash_engine_create(&(dflash_engine_options){.threads = 1}, &r->engine, &err), DFLASH_OK);
    ck_assert_int_eq(dflash_draft_load(r->engine, checkpoint, &r->draft, &err), DFLASH_OK);
    ck_assert_int_eq(dp_head_load(r->engine, "fixtures/small/tiny-dflash2", NULL, r->in.oracle, &r->head, &err),
                     DFLASH_OK);
    const size_t hidden = (size_t)r->in.config.hidden;
    float *features = malloc((size_t)r->in.context * hidden * sizeof *features);
    float *result = malloc((size_t)r->in.config.block * hidden * sizeof *result);
    dflash_draft_observe(r->draft, dp_recording_observe, &r->run);
    ck_assert_int_eq(dflash_ctx_features(r->draft, r->in.taps, r->in.context, features, &err), DFLASH_OK);
    ck_assert_int_eq(dflash_forward_block(r->draft, features, r->in.noise, r->in.pos, r->in.context, result, &err),
                     DFLASH_OK);
    ck_assert_int_eq(dp_run_judged_proposal(r->draft, r->head, result, r->in.anchor, &r->run, &err), DFLASH_OK);
    dflash_draft_observe(r->draft, NULL, NULL);
    free(features);
    free(result);
}

static void rig_release(rig *r) {
    dp_recording_release(&r->run);
    dflash_table_destroy(r->head);
    dflash_draft_destroy(r->draft);
    dflash_engine_destroy(r->engine);
    dp_preflight_release(&r->in);
}

/* The stage of the run, with which a test does as it likes, and the judgement of its sketch. */
static float *values_of(const rig *r, const char *name, int64_t *width) {
    const dp_stage_spec *spec = dp_stage_set_find(&r->in.stages, name);
    ck_assert_ptr_nonnull(spec);
    *width = dp_row_length(spec->stage, spec->rank, spec->dim);
    for (int i = 0; i < r->run.count; i++)
        if (r->run.stage[i].stage == spec->stage && r->run.stage[i].layer == spec->layer) return r->run.stage[i].value;
    return NULL;
}

static dp_sketch_result judge(const rig *r, const char *name) {
    const dp_stage_spec *spec = dp_stage_set_find(&r->in.stages, name);
    const dp_difference *reference_spread = &r->in.sketch[spec - r->in.stages.spec];
    int64_t width;
    dp_sketch_result result;
    dflash_error err;
    ck_assert_int_eq(
        dp_sketch_judge(r->in.oracle, spec, values_of(r, name, &width), reference_spread, 1.0, &result, &err),
        DFLASH_OK);
    ck_assert(result.judged);
    return result;
}

START_TEST(a_correct_run_agrees_with_every_sketch) {
    rig r;
    int judged = 0;
    rig_open(&r);
    for (int i = 0; i < r.in.stages.count; i++) {
        const dp_stage_spec *spec = &r.in.stages.spec[i];
        const dp_recorded *recorded = dp_recording_find(&r.run, spec->stage, spec->layer);
        if (!dp_oracle_stage_info(r.in.oracle, DP_RUN_F64, spec->name)->sampled || recorded == NULL) continue;
        const dp_sketch_result result = judge(&r, spec->name);
        ck_assert_msg(result.pass && result.headroom > 0.2, "%s: headroom %g", spec->name, result.headroom);
        judged++;
    }
    ck_assert_int_gt(judged, 40);
    rig_release(&r);
}
END_TEST

START_TEST(one_column_off_in_any_stage_is_seen) {
    /* the last logit doubled; a column of q_proj times 1.001, in every layer; and one of the residual stream */
    static const struct {
        const char *name;
        int64_t column;
        float factor;
    } fault[] = {{"logits", 319, 2.0f},
                 {"layers.0.attn.q_proj", 17, 1.001f},
                 {"layers.1.attn.q_proj", 17, 1.001f},
                 {"layers.0.attn.k_rope", 3, 1.001f},
                 {"layers.1.attn.residual", 63, 1.001f}};
    rig r;
    rig_open(&r);
    for (size_t f = 0; f < sizeof fault / sizeof *fault; f++) {
        int64_t width;
        float *value = values_of(&r, fault[f].name, &width);
        const int64_t rows = dp_dims_product(2, dp_stage_set_find(&r.in.stages, fault[f].name)->dim) / width;
        const int64_t all = rows > 0 ? rows : dp_stage_set_find(&r.in.stages, fault[f].name)->dim[0];
        for (int64_t row = 0; row < all; row++) value[row * width + fault[f].column] *= fault[f].factor;
        ck_assert_msg(!judge(&r, fault[f].name).pass, "%s", fault[f].name);
    }
    rig_release(&r);
}
END_TEST

START_TEST(one_value_off_anywhere_is_seen_and_its_row_named) {
    char text[DP_SKETCH_TEXT];
    rig r;
    int64_t width;
    rig_open(&r);
    float *value = values_of(&r, "layers.1.mlp.gate", &width);
    for (int64_t i = 0; i < 5 * width; i += 37) {
        const float right = value[i];
        value[i] += 1e-3f;
        const dp_sketch_result result = judge(&r, "layers.1.mlp.gate");
        ck_assert_msg(!result.pass && result.row == i / width, "value %d, row %d", (int)i, (int)result.row);
        ck_assert_msg(strstr(dp_sketch_text(&result, text), "at row ") != NULL, "%s", text);
        value[i] = NAN;
        const dp_sketch_result lost = judge(&r, "layers.1.mlp.gate");
        ck_assert(!lost.pass && lost.nonfinite == EACH && lost.row == i / width);
        ck_assert_msg(strstr(dp_sketch_text(&lost, text), "not finite") != NULL, "%s", text);
        value[i] = right;
    }
    for (int64_t i = 0; i < width; i++) value[2 * width + i] *= -1.0f;
    ck_assert(judge(&r, "layers.1.mlp.gate").row == 2);
    rig_release(&r);
}
END_TEST

START_TEST(a_verdict_says_what_was_seen) {
    dp_result result;
    char text[DP_SEEN_TEXT];
    copy_sampled();
    scratch_check(NULL, &result);
    ck_assert_int_eq(result.verdict, DP_PASS);
    const dp_seen c = dp_seen_of(&result);
    ck_assert_int_eq(c.whole + c.sketched, result.stage_count);
    ck_assert(c.unseen == 0 && c.sketched > 40 && c.compared < c.values && c.fed > 0 && c.fed_partly > 20);
    dp_seen_text(&c, text);
    ck_assert_msg(strstr(text, "every row and column seen") != NULL && strstr(text, "partly") != NULL, "%s", text);
    dp_result_release(&result);
    scratch_copy_case("tiny-windowed");
    scratch_check("layers.0.*", &result);
    const dp_seen whole = dp_seen_of(&result);
    ck_assert(whole.sketched == 0 && whole.whole == result.stage_count && whole.fed == result.stage_count);
    dp_result_release(&result);
}
END_TEST

void check_add_sketches(Suite *suite) {
    TCase *tests = check_case("sketches");
    tcase_add_test(tests, both_languages_make_the_same_signs);
    tcase_add_test(tests, a_sketch_that_contradicts_its_oracle_is_refused);
    tcase_add_test(tests, a_sample_that_is_not_its_rows_value_is_refused);
    tcase_add_test(tests, a_record_that_widens_a_sketch_is_a_contradiction);
    tcase_add_test(tests, a_sampled_stage_without_its_companions_is_refused);
    tcase_add_test(tests, a_dataset_may_be_cut_into_blocks_of_whole_rows_alone);
    tcase_add_test(tests, a_correct_run_agrees_with_every_sketch);
    tcase_add_test(tests, one_column_off_in_any_stage_is_seen);
    tcase_add_test(tests, one_value_off_anywhere_is_seen_and_its_row_named);
    tcase_add_test(tests, a_verdict_says_what_was_seen);
    suite_add_tcase(suite, tests);
}
