/*
 * test_cuda_draft.c - whole drafters on a device: stages rewritten on the way, caches that move between backends,
 * embeddings, and faults that the comparison with the CPU must find.
 */
#include "support/cuda_case.h"
#include "run/hosted.h"
#include "identity/identity_case.h"
#include "judge/record_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static dflash_error err;
#define WORKS(call) ck_assert_msg((call) == DFLASH_OK, "%s", err.message)

/* One of the stored checkpoints with a seeded input, in host memory. */
typedef struct drafter {
    dflash_draft *draft;
    const dflash_config *c;
    float *features, *noise;
    int32_t *pos;
} drafter;

enum { CONTEXT = 70 };

static drafter open_drafter(dflash_engine *engine, const char *name) {
    char path[96];
    drafter d = {.draft = NULL};
    op_random random = {700};
    snprintf(path, sizeof path, "fixtures/small/%s", name);
    WORKS(dflash_draft_load(engine, path, &d.draft, &err));
    d.c = dflash_draft_config(d.draft);
    const size_t hidden = (size_t)d.c->hidden, block = (size_t)d.c->block;
    d.features = op_floats(CONTEXT * hidden);
    d.noise = op_floats(block * hidden);
    d.pos = op_alloc((CONTEXT + block) * sizeof *d.pos);
    op_fill(&random, d.features, CONTEXT * hidden);
    op_fill(&random, d.noise, block * hidden);
    for (size_t i = 0; i < CONTEXT + block; i++) d.pos[i] = 1000 + (int32_t)i;
    return d;
}

static void close_drafter(drafter *d) {
    dflash_draft_destroy(d->draft);
    free(d->features);
    free(d->noise);
    free(d->pos);
}

static float *run_block(const drafter *d) {
    float *out = op_floats((size_t)(d->c->block * d->c->hidden));
    WORKS(dp_forward_block(d->draft, d->features, d->noise, d->pos, CONTEXT, out, &err));
    return out;
}

/* ---- Recordings ---- */

START_TEST(a_device_records_what_the_processor_records) {
    static const char *const names[] = {"tiny-plain", "tiny-dflash2", "tiny-dspark"};
    char checkpoint[96], oracle[96];
    snprintf(checkpoint, sizeof checkpoint, "fixtures/small/%s", names[_i]);
    snprintf(oracle, sizeof oracle, "oracles/%s.h5", names[_i]);
    dp_run_setup setup = {.checkpoint = checkpoint, .oracle = oracle};
    dp_run_record cpu, device;
    WORKS(dp_run_and_record(&setup, &cpu, &err));
    setup.engine.backend = DFLASH_BACKEND_CUDA;
    WORKS(dp_run_and_record(&setup, &device, &err));
    ck_assert_int_eq(device.stages.count, cpu.stages.count);
    ck_assert_int_eq(device.stages.count, device.in.stages.count);
    for (int i = 0; i < cpu.stages.count; i++) {
        const dp_recorded *ours = &device.stages.stage[i], *theirs = &cpu.stages.stage[i];
        ck_assert(ours->stage == theirs->stage && ours->layer == theirs->layer);
        ck_assert(dp_dims_equal(ours->rank, ours->dim, theirs->rank, theirs->dim));
        ck_assert_mem_eq(ours->integer != NULL ? (const void *)ours->integer : ours->value,
                         theirs->integer != NULL ? (const void *)theirs->integer : theirs->value,
                         (size_t)dp_dims_product(ours->rank, ours->dim) * 4);
    }
    dp_run_record_release(&cpu);
    dp_run_record_release(&device);
}
END_TEST

/* ---- Stages rewritten ---- */

static bool double_gate(void *user, const dflash_stage_view *view, float *value) {
    (void)user;
    if (view->stage != DFLASH_STAGE_MLP_GATE || view->layer != 0) return false;
    for (int64_t i = 0; i < view->dim[0] * view->dim[1]; i++) value[i] *= 2.0f;
    return true;
}

START_TEST(a_stage_rewritten_on_the_host_is_what_the_device_goes_on_with) {
    cuda_pair pair = cuda_pair_open();
    drafter cpu = open_drafter(pair.cpu, "tiny-plain"), device = open_drafter(pair.device, "tiny-plain");
    const size_t n = (size_t)(cpu.c->block * cpu.c->hidden);
    float *plain = run_block(&device);
    dflash_draft_replace(cpu.draft, double_gate, NULL);
    dflash_draft_replace(device.draft, double_gate, NULL);
    float *changed = run_block(&device);
    ck_assert(!op_same_bits(plain, changed, n));
    cuda_expect_same(run_block(&cpu), changed, n, "a block with a stage rewritten");
    free(plain);
    close_drafter(&cpu);
    close_drafter(&device);
    cuda_pair_close(&pair);
}
END_TEST

/* ---- Caches ---- */

START_TEST(a_cache_exported_on_one_backend_is_the_same_bytes_and_goes_on_on_the_other) {
    cuda_pair pair = cuda_pair_open();
    drafter d[2] = {open_drafter(pair.cpu, "tiny-plain"), open_drafter(pair.device, "tiny-plain")};
    dflash_kv_blob blob[2];
    float *round[2];
    for (int i = 0; i < 2; i++) {
        dflash_kv *kv = NULL;
        WORKS(dflash_kv_create(d[i].draft, CONTEXT + 2 * d[i].c->block, &kv, &err));
        WORKS(dp_ingest_ctx(d[i].draft, kv, d[i].features, d[i].pos, CONTEXT, &err));
        WORKS(dflash_kv_export_tail(kv, CONTEXT, &blob[i], &err));
        dflash_kv_destroy(kv);
    }
    ck_assert_uint_eq(blob[0].bytes, blob[1].bytes);
    ck_assert_mem_eq(blob[0].data, blob[1].data, blob[0].bytes);
    for (int i = 0; i < 2; i++) {
        dflash_kv *kv = NULL;
        round[i] = op_floats((size_t)(d[i].c->block * d[i].c->hidden));
        WORKS(dflash_kv_create(d[i].draft, CONTEXT + 2 * d[i].c->block, &kv, &err));
        WORKS(dflash_kv_import_tail(kv, &blob[1 - i], &err));
        WORKS(dp_forward_round(d[i].draft, kv, d[i].noise, d[i].pos + CONTEXT, round[i], &err));
        dflash_kv_destroy(kv);
    }
    cuda_expect_same(round[0], round[1], (size_t)(d[0].c->block * d[0].c->hidden), "rounds over the other's cache");
    for (int i = 0; i < 2; i++) {
        dflash_kv_blob_free(&blob[i]);
        close_drafter(&d[i]);
    }
    cuda_pair_close(&pair);
}
END_TEST

START_TEST(a_cache_is_not_taken_over_between_products_that_round_otherwise) {
    dflash_engine *narrow = cuda_engine(DFLASH_CLASS_CUBLAS, DFLASH_PRODUCTS_TF32),
                  *wide = cuda_engine(DFLASH_CLASS_CUBLAS, DFLASH_PRODUCTS_F32);
    drafter from = open_drafter(narrow, "tiny-plain"), to = open_drafter(wide, "tiny-plain");
    dflash_kv *a = NULL, *b = NULL;
    dflash_kv_blob blob;
    WORKS(dflash_kv_create(from.draft, CONTEXT + from.c->block, &a, &err));
    WORKS(dflash_kv_create(to.draft, CONTEXT + to.c->block, &b, &err));
    WORKS(dp_ingest_ctx(from.draft, a, from.features, from.pos, 10, &err));
    WORKS(dflash_kv_export_tail(a, 10, &blob, &err));
    ck_assert_int_eq(dflash_kv_import_tail(b, &blob, &err), DFLASH_ERR_REFUSED);
    ck_assert_str_eq(err.code, "kv.import.class");
    dflash_kv_blob_free(&blob);
    dflash_kv_destroy(a);
    dflash_kv_destroy(b);
    close_drafter(&from);
    close_drafter(&to);
    dflash_engine_destroy(narrow);
    dflash_engine_destroy(wide);
}
END_TEST

/* ---- Embeddings ---- */

static float *embed(dflash_engine *engine, const drafter *d, const cuda_matrix *table) {
    dflash_table *embedding = NULL;
    const size_t values = (size_t)(d->c->block * d->c->hidden);
    float *noise = cuda_room(engine, values * sizeof *noise);
    WORKS(dflash_table_create(engine, "BF16", (int)table->matrix.out, (int)table->matrix.in, table->bytes, &embedding,
                              &err));
    WORKS(dflash_embed_block(d->draft, embedding, 7, noise, &err));
    float *result = cuda_get(engine, noise, values * sizeof *noise);
    cuda_drop(engine, noise);
    dflash_table_destroy(embedding);
    return result;
}

START_TEST(a_block_is_embedded_as_on_the_cpu) {
    cuda_pair pair = cuda_pair_open();
    drafter cpu = open_drafter(pair.cpu, "tiny-dflash2"), device = open_drafter(pair.device, "tiny-dflash2");
    cuda_matrix table = cuda_matrix_make(DF_BF16, cpu.c->mask_token_id + 2, cpu.c->hidden, 71);
    cuda_expect_same(embed(pair.cpu, &cpu, &table), embed(pair.device, &device, &table),
                     (size_t)(cpu.c->block * cpu.c->hidden), "embeddings");
    cuda_matrix_release(&table);
    close_drafter(&cpu);
    close_drafter(&device);
    cuda_pair_close(&pair);
}
END_TEST

/* ---- Injected faults ---- */

typedef enum fault { ONE_CHAIN, SHORT_ADD, EMPTY_ROUND } fault;

static struct {
    fault fault;
    const df_ops *own;
    df_ops spoilt;
} injection;

/* The product in one chain from left to right: right to every tolerance, and another order than the canonical one. */
static dflash_status one_chain(dflash_engine *engine, const df_matrix *w, const float *bias, const float *x, int rows,
                               float *y, dflash_error *e) {
    dflash_status status = injection.own->matmul(engine, w, bias, x, rows, y, e);
    if (rows == 0 || w->dtype != DF_BF16 || bias != NULL) return status;
    const size_t in = (size_t)w->in, out = (size_t)w->out;
    uint16_t *weights = cuda_get(engine, w->data, in * out * sizeof *weights);
    float *values = cuda_get(engine, x, (size_t)rows * in * sizeof *values), *result = op_floats((size_t)rows * out);
    for (size_t r = 0; r < (size_t)rows; r++)
        for (size_t o = 0; o < out; o++) {
            float sum = 0.0f;
            for (size_t k = 0; k < in; k++) sum = fmaf(df_bf16_to_f32(weights[o * in + k]), values[r * in + k], sum);
            result[r * out + o] = sum;
        }
    status = dflash_engine_upload(engine, y, result, (size_t)rows * out, e);
    free(weights);
    free(values);
    free(result);
    return status;
}

/* Eight values of every row are left as they were: the kernel of a tail that stops early. */
static dflash_status short_add(dflash_engine *engine, const float *a, const float *b, size_t n, float *y,
                               dflash_error *e) {
    return injection.own->add(engine, a, b, n - 8, y, e);
}

/* On the device alone. */
static void opened(dflash_draft *draft, void *user) {
    (void)user;
    if (dflash_engine_on_host(draft->engine)) return;
    injection.own = draft->engine->ops;
    injection.spoilt = *injection.own;
    if (injection.fault == ONE_CHAIN) injection.spoilt.matmul = one_chain;
    if (injection.fault == SHORT_ADD) injection.spoilt.add = short_add;
    if (injection.fault == EMPTY_ROUND) injection.spoilt.round = op_empty_round;
    draft->engine->ops = &injection.spoilt;
}

static dp_identity_result identity(const dp_identity_hooks *hooks, const char *variant) {
    dp_identity_result result;
    const dp_identity_options options = {
        .filter = variant, .seed = 1, .threads = 2, .backend = DFLASH_BACKEND_CUDA, .hooks = hooks};
    dp_identity_case("tiny-plain", "fixtures/small/tiny-plain", "oracles/tiny-plain.h5", DFLASH_PRECISION_STORED,
                     &options, NULL, &result);
    ck_assert_msg(result.verdict != DP_REFUSED && result.verdict != DP_ERROR, "%s", result.error.message);
    ck_assert_int_eq(result.variant_count, 1);
    return result;
}

/* The variant finds the injected fault, first at this stage. */
static void expect_found(fault injected, const char *variant, const char *stage) {
    const dp_identity_hooks hooks = {.opened = opened};
    injection.fault = injected;
    dp_identity_result result = identity(&hooks, variant);
    ck_assert_int_eq(result.verdict, DP_FAIL);
    ck_assert_str_eq(dp_pair_first(&result.variant[0].pair)->name, stage);
    dp_identity_release(&result);
}

START_TEST(another_order_of_sums_on_the_device_is_found_against_the_cpu) {
    expect_found(ONE_CHAIN, "backend.cpu", "ctx.fc");
}
END_TEST

START_TEST(a_value_that_a_kernel_leaves_out_is_found_because_scratch_is_poisoned) {
    expect_found(SHORT_ADD, "scratch.poisoned", "layers.0.attn.residual");
}
END_TEST

/* Device memory that is given back comes again with what was in it: here with the round before, which was right. */
START_TEST(a_round_that_writes_nothing_is_not_taken_for_the_one_before) {
    expect_found(EMPTY_ROUND, "observer.off", "final");
}
END_TEST

START_TEST(without_a_fault_the_device_and_the_cpu_are_identical) {
    dp_identity_result result = identity(NULL, "backend.cpu");
    ck_assert_int_eq(result.verdict, DP_PASS);
    ck_assert_int_gt(dp_pair_compared(&result.variant[0].pair), 10000);
    ck_assert_str_eq(result.device.backend, "cuda");
    ck_assert_str_ne(result.device.device, "");
    dp_identity_release(&result);
}
END_TEST

TCase *tcase_cuda_draft(void) {
    TCase *tests = tcase_create("drafters");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, a_device_records_what_the_processor_records, 0, 3);
    tcase_add_test(tests, a_stage_rewritten_on_the_host_is_what_the_device_goes_on_with);
    tcase_add_test(tests, a_cache_exported_on_one_backend_is_the_same_bytes_and_goes_on_on_the_other);
    tcase_add_test(tests, a_cache_is_not_taken_over_between_products_that_round_otherwise);
    tcase_add_test(tests, a_block_is_embedded_as_on_the_cpu);
    return tests;
}

/* A case of its own: one of its faults reads memory that nothing wrote, which a sanitizer rightly reports. */
TCase *tcase_cuda_faults(void) {
    TCase *tests = tcase_create("faults");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, another_order_of_sums_on_the_device_is_found_against_the_cpu);
    tcase_add_test(tests, a_value_that_a_kernel_leaves_out_is_found_because_scratch_is_poisoned);
    tcase_add_test(tests, a_round_that_writes_nothing_is_not_taken_for_the_one_before);
    tcase_add_test(tests, without_a_fault_the_device_and_the_cpu_are_identical);
    return tests;
}
