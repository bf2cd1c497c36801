/*
 * test_precision_forward.c - the forward programs in every precision mode, over the stored small checkpoints: the same
 * bits from forward_block and forward_round, from every instruction set and any number of threads, and drift from
 * float32 that grows with the coarseness of the mode.
 */
#include "dflash.h"
#include "suites.h"
#include "support/synth_files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 21, SPLIT = 8, START = 900, MODE_COUNT = 7, FIRST_QUANTISED = DFLASH_PRECISION_Q8_0 };

static dflash_error err;

/* One model with the input and output of a forward over it. */
typedef struct run {
    dflash_engine *engine;
    dflash_draft *draft;
    const dflash_config *config;
    float *features, *noise, *out; /* [CONTEXT, H], [B, H] twice */
    int32_t *pos;                  /* [CONTEXT + B] */
    size_t floats;                 /* of out */
} run;

static void fill(float *x, size_t n, uint32_t state) {
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)((int32_t)state >> 8) * 0x1p-22f;
    }
}

/* False when this processor lacks the instruction set. */
static bool run_open(run *r, const char *dir, dflash_precision mode, dflash_isa isa, int threads) {
    const dflash_engine_options options = {.isa = isa, .threads = threads, .poison_scratch = true};
    if (dflash_engine_create(&options, &r->engine, &err) != DFLASH_OK) {
        ck_assert_str_eq(err.code, "engine.isa");
        return false;
    }
    ck_assert_msg(dflash_draft_load_as(r->engine, dir, mode, &r->draft, &err) == DFLASH_OK, "%s", err.message);
    ck_assert_int_eq(dflash_draft_precision(r->draft), mode);
    r->config = dflash_draft_config(r->draft);
    const size_t hidden = (size_t)r->config->hidden, block = (size_t)r->config->block;
    r->floats = block * hidden;
    r->features = malloc(CONTEXT * hidden * sizeof(float));
    r->noise = malloc(r->floats * sizeof(float));
    r->out = malloc(r->floats * sizeof(float));
    r->pos = malloc((CONTEXT + block) * sizeof(int32_t));
    float *taps = malloc(CONTEXT * hidden * (size_t)r->config->n_taps * sizeof(float));
    fill(taps, CONTEXT * hidden * (size_t)r->config->n_taps, 1);
    fill(r->noise, r->floats, 2);
    for (int i = 0; i < CONTEXT + r->config->block; i++) r->pos[i] = START + i;
    ck_assert_msg(dflash_ctx_features(r->draft, taps, CONTEXT, r->features, &err) == DFLASH_OK, "%s", err.message);
    free(taps);
    return true;
}

static void run_close(run *r) {
    free(r->features);
    free(r->noise);
    free(r->out);
    free(r->pos);
    dflash_draft_destroy(r->draft);
    dflash_engine_destroy(r->engine);
}

static void run_block(run *r) {
    const dflash_status status = dflash_forward_block(r->draft, r->features, r->noise, r->pos, CONTEXT, r->out, &err);
    ck_assert_msg(status == DFLASH_OK, "%s", err.message);
    for (size_t i = 0; i < r->floats; i++) ck_assert(isfinite(r->out[i]));
}

static void run_round(run *r) {
    dflash_kv *kv;
    ck_assert_int_eq(dflash_kv_create(r->draft, CONTEXT + r->config->block, &kv, &err), DFLASH_OK);
    ck_assert_int_eq(dflash_ingest_ctx(r->draft, kv, r->features, r->pos, SPLIT, &err), DFLASH_OK);
    ck_assert_int_eq(dflash_ingest_ctx(r->draft, kv, r->features + (size_t)SPLIT * (size_t)r->config->hidden,
                                       r->pos + SPLIT, CONTEXT - SPLIT, &err),
                     DFLASH_OK);
    const dflash_status status = dflash_forward_round(r->draft, kv, r->noise, r->pos + CONTEXT, r->out, &err);
    ck_assert_msg(status == DFLASH_OK, "%s", err.message);
    dflash_kv_destroy(kv);
}

/* The block's result in a mode; the caller frees it. */
static float *final_of(const char *dir, dflash_precision mode, size_t *floats) {
    run r;
    ck_assert(run_open(&r, dir, mode, DFLASH_ISA_BEST, 2));
    run_block(&r);
    float *copy = malloc(r.floats * sizeof(float));
    memcpy(copy, r.out, r.floats * sizeof(float));
    *floats = r.floats;
    run_close(&r);
    return copy;
}

/* Relative L2 distance. */
static double distance(const float *a, const float *b, size_t n) {
    double difference = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)a[i] - (double)b[i];
        difference += d * d;
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(difference / size);
}

/* Every stored checkpoint, and whether the rows of all its matrices are whole blocks. */
static const struct {
    const char *name;
    bool whole;
} CHECKPOINTS[] = {
    {"tiny-plain", true},          {"tiny-llama3", true},       {"tiny-dflash2", true},    {"tiny-dflash2-k3", true},
    {"tiny-dspark", true},         {"tiny-dspark-gated", true}, {"tiny-dspark-rnn", true}, {"tiny-yarn", false},
    {"tiny-yarn-explicit", false}, {"tiny-linear", false},      {"tiny-windowed", false},  {"tiny-causal", false},
    {"tiny-bias", false},          {"tiny-partial", false},     {"tiny-hot", false},       {"tiny-edge", false}};
enum { CHECKPOINT_COUNT = sizeof CHECKPOINTS / sizeof *CHECKPOINTS };

static bool can_run(int checkpoint, int mode) { return CHECKPOINTS[checkpoint].whole || mode < FIRST_QUANTISED; }

static const char *fixture(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "fixtures/small/%s", name);
    return path;
}

START_TEST(forward_round_gives_the_bits_of_forward_block_in_every_mode) {
    for (int i = 0; i < CHECKPOINT_COUNT; i++)
        for (int mode = 0; mode < MODE_COUNT; mode++) {
            if (!can_run(i, mode)) continue;
            run r;
            ck_assert(run_open(&r, fixture(CHECKPOINTS[i].name), (dflash_precision)mode, DFLASH_ISA_BEST, 2));
            run_block(&r);
            float *block = malloc(r.floats * sizeof(float));
            memcpy(block, r.out, r.floats * sizeof(float));
            run_round(&r);
            ck_assert_msg(memcmp(block, r.out, r.floats * sizeof(float)) == 0, "%s differs in mode %s",
                          CHECKPOINTS[i].name, dflash_precision_name((dflash_precision)mode));
            free(block);
            run_close(&r);
        }
}
END_TEST

START_TEST(every_instruction_set_and_thread_count_gives_the_same_bits_in_every_mode) {
    int compared = 0;
    for (int mode = 0; mode < MODE_COUNT; mode++) {
        run first, other;
        ck_assert(run_open(&first, fixture("tiny-llama3"), (dflash_precision)mode, DFLASH_ISA_GENERIC, 1));
        run_block(&first);
        for (dflash_isa isa = DFLASH_ISA_GENERIC; isa <= DFLASH_ISA_AVX512; isa++) {
            if (!run_open(&other, fixture("tiny-llama3"), (dflash_precision)mode, isa, 3)) continue;
            run_block(&other);
            ck_assert_mem_eq(first.out, other.out, first.floats * sizeof(float));
            run_close(&other);
            compared++;
        }
        run_close(&first);
    }
    ck_assert_int_ge(compared, MODE_COUNT);
}
END_TEST

START_TEST(a_checkpoint_whose_rows_are_not_whole_blocks_refuses_every_quantised_mode) {
    const dflash_engine_options options = {.threads = 1};
    dflash_engine *engine;
    int refused = 0;
    ck_assert_int_eq(dflash_engine_create(&options, &engine, &err), DFLASH_OK);
    for (int i = 0; i < CHECKPOINT_COUNT; i++)
        for (int mode = 0; mode < MODE_COUNT; mode++) {
            dflash_draft *draft;
            if (can_run(i, mode)) continue;
            ck_assert_int_eq(
                dflash_draft_load_as(engine, fixture(CHECKPOINTS[i].name), (dflash_precision)mode, &draft, &err),
                DFLASH_ERR_REFUSED);
            ck_assert_str_eq(err.code, "precision.block");
            ck_assert_ptr_null(draft);
            refused++;
        }
    ck_assert_int_eq(refused, 9 * (MODE_COUNT - FIRST_QUANTISED));
    dflash_engine_destroy(engine);
}
END_TEST

START_TEST(a_bf16_checkpoint_gives_the_same_bits_stored_and_as_bf16_and_as_f32) {
    size_t floats;
    float *stored = final_of(fixture("tiny-plain"), DFLASH_PRECISION_STORED, &floats);
    float *bf16 = final_of(fixture("tiny-plain"), DFLASH_PRECISION_BF16, &floats);
    float *f32 = final_of(fixture("tiny-plain"), DFLASH_PRECISION_F32, &floats);
    float *q8_0 = final_of(fixture("tiny-plain"), DFLASH_PRECISION_Q8_0, &floats);
    ck_assert_mem_eq(stored, bf16, floats * sizeof(float));
    ck_assert_mem_eq(stored, f32, floats * sizeof(float));
    ck_assert(memcmp(stored, q8_0, floats * sizeof(float)) != 0);
    free(stored);
    free(bf16);
    free(f32);
    free(q8_0);
}
END_TEST

/* Measured from float32 weights: bf16 8.5e-3, mixed 1.6e-2, q8_0 2.1e-2, fc 2.1e-2, q4_0 3.0e-1. Weights are off by
 * 8e-4 of their size in bf16, by 6e-3 of their deviation in q8_0 and by 16 times that in q4_0; some twenty products add
 * up. */
START_TEST(drift_of_the_result_grows_with_the_coarseness_of_the_mode) {
    synth_run(SYNTH_PLAIN, 1, DF_F32, DP_SYNTH_UNIT, 2);
    double drift[MODE_COUNT];
    size_t floats;
    float *reference = final_of(synth_out, DFLASH_PRECISION_F32, &floats);
    for (int mode = 0; mode < MODE_COUNT; mode++) {
        float *result = final_of(synth_out, (dflash_precision)mode, &floats);
        drift[mode] = distance(result, reference, floats);
        free(result);
    }
    free(reference);
    const double bf16 = drift[DFLASH_PRECISION_BF16], q8_0 = drift[DFLASH_PRECISION_Q8_0],
                 q4_0 = drift[DFLASH_PRECISION_Q4_0];
    const double mixed = drift[DFLASH_PRECISION_MIXED], fc = drift[DFLASH_PRECISION_FC];
    ck_assert(drift[DFLASH_PRECISION_STORED] == 0 && drift[DFLASH_PRECISION_F32] == 0);
    ck_assert_msg(2e-3 < bf16 && bf16 < 2e-2, "bf16: %g", bf16);
    ck_assert_msg(1.5 * bf16 < q8_0 && q8_0 < 5e-2, "q8_0: %g", q8_0);
    ck_assert_msg(8 * q8_0 < q4_0 && q4_0 < 30 * q8_0, "q4_0: %g", q4_0);
    ck_assert_msg(1.2 * bf16 < mixed && mixed < q8_0, "mixed: %g", mixed);
    ck_assert_msg(1.2 * bf16 < fc && fc < q4_0 / 8, "fc: %g", fc);
}
END_TEST

Suite *suite_precision_forward(void) {
    Suite *suite = suite_create("precision_forward");
    TCase *tests = tcase_create("modes");
    tcase_add_checked_fixture(tests, synth_setup, synth_teardown);
    tcase_add_test(tests, forward_round_gives_the_bits_of_forward_block_in_every_mode);
    tcase_add_test(tests, every_instruction_set_and_thread_count_gives_the_same_bits_in_every_mode);
    tcase_add_test(tests, a_checkpoint_whose_rows_are_not_whole_blocks_refuses_every_quantised_mode);
    tcase_add_test(tests, a_bf16_checkpoint_gives_the_same_bits_stored_and_as_bf16_and_as_f32);
    tcase_add_test(tests, drift_of_the_result_grows_with_the_coarseness_of_the_mode);
    tcase_set_timeout(tests, 300);
    suite_add_tcase(suite, tests);
    return suite;
}
