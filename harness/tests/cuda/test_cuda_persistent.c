/*
 * test_cuda_persistent.c - the persistent programs of a device: a round and an ingestion in one launch have the bits of
 * their stages, in both classes that have programs, and keep them when repeated.
 */
#include "support/cuda_case.h"

#include "engine/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static dflash_error err;

enum { CONTEXT = 150, FIRST = 37, TAPS = 48 /* rows of them */, REPEATS = 1000 };

typedef struct rounds {
    dflash_engine *engine;
    dflash_draft *draft;
    dflash_kv *kv;
    float *features, *taps, *noise, *out;
    int32_t pos[CONTEXT + 16];
    size_t values; /* of a result */
} rounds;

static void open_rounds(rounds *r, const char *dir, dflash_class numeric_class, dflash_precision precision) {
    const dflash_engine_options options = {
        .backend = DFLASH_BACKEND_CUDA, .numeric_class = numeric_class, .poison_scratch = true};
    *r = (rounds){.engine = NULL};
    ck_assert_msg(dflash_engine_create(&options, &r->engine, &err) == DFLASH_OK, "%s", err.message);
    ck_assert_msg(dflash_draft_load_as(r->engine, dir, precision, &r->draft, &err) == DFLASH_OK, "%s", err.message);
    const dflash_config *c = dflash_draft_config(r->draft);
    const size_t context = (size_t)CONTEXT * (size_t)c->hidden, taps = (size_t)TAPS * (size_t)(c->n_taps * c->hidden),
                 most = context > taps ? context : taps;
    r->values = (size_t)c->block * (size_t)c->hidden;
    for (int i = 0; i < CONTEXT + c->block; i++) r->pos[i] = FIRST + i;
    float *host = malloc(most * sizeof *host);
    ck_assert_ptr_nonnull(host);
    for (size_t i = 0; i < most; i++) host[i] = (float)((i * 7919u + 13u) % 1009u) / 504.0f - 1.0f;
    ck_assert_int_eq(dflash_engine_alloc(r->engine, context, &r->features, &err), DFLASH_OK);
    ck_assert_int_eq(dflash_engine_alloc(r->engine, taps, &r->taps, &err), DFLASH_OK);
    ck_assert_int_eq(dflash_engine_alloc(r->engine, r->values, &r->noise, &err), DFLASH_OK);
    ck_assert_int_eq(dflash_engine_alloc(r->engine, r->values, &r->out, &err), DFLASH_OK);
    ck_assert_int_eq(dflash_engine_upload(r->engine, r->features, host, context, &err), DFLASH_OK);
    ck_assert_int_eq(dflash_engine_upload(r->engine, r->taps, host, taps, &err), DFLASH_OK);
    ck_assert_int_eq(dflash_engine_upload(r->engine, r->noise, host, r->values, &err), DFLASH_OK);
    free(host);
    ck_assert_int_eq(dflash_kv_create(r->draft, CONTEXT + 2 * c->block, &r->kv, &err), DFLASH_OK);
    ck_assert_msg(dflash_ingest_ctx(r->draft, r->kv, r->features, r->pos, CONTEXT, &err) == DFLASH_OK, "%s",
                  err.message);
}

static void close_rounds(rounds *r) {
    dflash_engine_free(r->engine, r->features);
    dflash_engine_free(r->engine, r->taps);
    dflash_engine_free(r->engine, r->noise);
    dflash_engine_free(r->engine, r->out);
    dflash_kv_destroy(r->kv);
    dflash_draft_destroy(r->draft);
    dflash_engine_destroy(r->engine);
}

static float *result(rounds *r) {
    float *host = malloc(r->values * sizeof *host);
    ck_assert_ptr_nonnull(host);
    ck_assert_int_eq(dflash_engine_download(r->engine, host, r->out, r->values, &err), DFLASH_OK);
    return host;
}

static float *round_of(rounds *r) {
    ck_assert_msg(dflash_forward_round(r->draft, r->kv, r->noise, r->pos + CONTEXT, r->out, &err) == DFLASH_OK, "%s",
                  err.message);
    return result(r);
}

static void ignore(void *user, const dflash_stage_view *view) {
    (void)view;
    ++*(int *)user;
}

static const struct {
    const char *dir;
    dflash_class numeric_class;
    dflash_precision precision;
} cases[] = {
    {"fixtures/small/tiny-plain", DFLASH_CLASS_EXACT, DFLASH_PRECISION_STORED},
    {"fixtures/small/tiny-plain", DFLASH_CLASS_EXACT, DFLASH_PRECISION_Q4_0},
    {"fixtures/small/tiny-plain", DFLASH_CLASS_FAST, DFLASH_PRECISION_BF16},
    {"fixtures/small/tiny-plain", DFLASH_CLASS_FAST, DFLASH_PRECISION_Q8_0},
    {"fixtures/small/tiny-plain", DFLASH_CLASS_FAST, DFLASH_PRECISION_MIXED},
    {"fixtures/small/tiny-plain", DFLASH_CLASS_FAST, DFLASH_PRECISION_F32}, /* no fast products: no program */
    {"fixtures/small/tiny-causal", DFLASH_CLASS_EXACT, DFLASH_PRECISION_STORED},
    {"fixtures/small/tiny-causal", DFLASH_CLASS_FAST, DFLASH_PRECISION_BF16},
    {"fixtures/small/tiny-dflash2-k3", DFLASH_CLASS_EXACT, DFLASH_PRECISION_STORED},
    {"fixtures/small/tiny-dflash2-k3", DFLASH_CLASS_FAST, DFLASH_PRECISION_BF16},
    {"fixtures/small/tiny-windowed", DFLASH_CLASS_FAST, DFLASH_PRECISION_BF16},
    {"fixtures/small/tiny-bias", DFLASH_CLASS_FAST, DFLASH_PRECISION_BF16},
    {"fixtures/small/tiny-edge", DFLASH_CLASS_FAST, DFLASH_PRECISION_BF16},
};

static int rounds_done;
static const df_ops *own;
static dflash_status counted_round(dflash_engine *engine, const df_round_args *args, bool *done, dflash_error *e) {
    const dflash_status status = own->round(engine, args, done, e);
    rounds_done += *done;
    return status;
}

/* Watched, a round goes stage by stage; unwatched it is one program; the block computes the context's keys again. */
START_TEST(a_round_in_one_launch_has_the_bits_of_its_stages) {
    rounds r;
    int seen = 0;
    open_rounds(&r, cases[_i].dir, cases[_i].numeric_class, cases[_i].precision);
    own = r.engine->ops;
    df_ops counting = *own;
    counting.round = counted_round;
    r.engine->ops = &counting;
    rounds_done = 0;
    float *at_once = round_of(&r);
    const bool none = cases[_i].numeric_class == DFLASH_CLASS_FAST && cases[_i].precision == DFLASH_PRECISION_F32;
    ck_assert_int_eq(rounds_done, cuda_persistent(r.engine) && !none);
    dflash_draft_observe(r.draft, ignore, &seen);
    float *watched = round_of(&r);
    dflash_draft_observe(r.draft, NULL, NULL);
    ck_assert_int_gt(seen, 20);
    ck_assert_int_eq(dflash_forward_block(r.draft, r.features, r.noise, r.pos, CONTEXT, r.out, &err), DFLASH_OK);
    float *block = result(&r);
    ck_assert_mem_eq(at_once, watched, r.values * sizeof *at_once);
    ck_assert_mem_eq(at_once, block, r.values * sizeof *at_once);
    free(at_once);
    free(watched);
    free(block);
    close_rounds(&r);
}
END_TEST

static int ingestions_done;
static dflash_status counted_ingestion(dflash_engine *engine, const df_ingest_args *args, bool *done, dflash_error *e) {
    const dflash_status status = own->ingest(engine, args, done, e);
    ingestions_done += *done;
    return status;
}

/* The keys and values of all layers after TAPS rows were ingested, so many to a call. */
static float *ingested(rounds *r, bool from_taps, int chunk, size_t *values) {
    const dflash_config *c = dflash_draft_config(r->draft);
    const size_t layer = (size_t)TAPS * (size_t)(c->n_kv_heads * c->head_dim);
    float *features, *out = malloc(2 * layer * (size_t)c->n_layers * sizeof *out);
    ck_assert_ptr_nonnull(out);
    *values = 2 * layer * (size_t)c->n_layers;
    ck_assert_int_eq(dflash_engine_alloc(r->engine, (size_t)(TAPS * c->hidden), &features, &err), DFLASH_OK);
    ck_assert_int_eq(dflash_ctx_features(r->draft, r->taps, TAPS, features, &err), DFLASH_OK);
    dflash_kv_clear(r->kv);
    for (int row = 0; row < TAPS; row += chunk) {
        const int rows = TAPS - row < chunk ? TAPS - row : chunk;
        const size_t width = (size_t)(from_taps ? c->n_taps * c->hidden : c->hidden);
        const float *from = (from_taps ? r->taps : features) + (size_t)row * width;
        const dflash_status status = from_taps ? dflash_ingest_taps(r->draft, r->kv, from, r->pos + row, rows, &err)
                                               : dflash_ingest_ctx(r->draft, r->kv, from, r->pos + row, rows, &err);
        ck_assert_msg(status == DFLASH_OK, "%s", err.message);
    }
    for (int i = 0; i < c->n_layers; i++)
        ck_assert_int_eq(
            dflash_kv_read(r->kv, i, out + (size_t)(2 * i) * layer, out + (size_t)(2 * i + 1) * layer, &err),
            DFLASH_OK);
    dflash_engine_free(r->engine, features);
    return out;
}

/* Watched, an ingestion goes operation by operation. Calls of more than 16 rows always do. */
START_TEST(an_ingestion_in_one_launch_has_the_bits_of_its_stages) {
    static const int chunks[] = {1, 4, 8, 11, 16, TAPS};
    rounds r;
    int seen = 0;
    size_t values;
    open_rounds(&r, cases[_i].dir, cases[_i].numeric_class, cases[_i].precision);
    own = r.engine->ops;
    df_ops counting = *own;
    counting.ingest = counted_ingestion;
    r.engine->ops = &counting;
    const bool none = cases[_i].numeric_class == DFLASH_CLASS_FAST && cases[_i].precision == DFLASH_PRECISION_F32;
    dflash_draft_observe(r.draft, ignore, &seen);
    ingestions_done = 0;
    float *watched = ingested(&r, true, 16, &values);
    ck_assert_int_eq(ingestions_done, 0);
    ck_assert_int_gt(seen, 2);
    dflash_draft_observe(r.draft, NULL, NULL);
    for (size_t i = 0; i < 2 * sizeof chunks / sizeof *chunks; i++) {
        const int chunk = chunks[i / 2];
        ingestions_done = 0;
        float *at_once = ingested(&r, i % 2 == 0, chunk, &values);
        ck_assert_int_eq(ingestions_done,
                         cuda_persistent(r.engine) && !none && chunk <= 16 ? (TAPS - 1) / chunk + 1 : 0);
        ck_assert_msg(memcmp(watched, at_once, values * sizeof *watched) == 0, "%d rows to a call, from %s", chunk,
                      i % 2 == 0 ? "taps" : "features");
        free(at_once);
    }
    free(watched);
    close_rounds(&r);
}
END_TEST

/* Kernels whose blocks wait for each other: a missing barrier shows in repetition. */
START_TEST(a_round_keeps_its_bits_over_a_thousand_repetitions) {
    rounds r;
    open_rounds(&r, cases[_i].dir, cases[_i].numeric_class, cases[_i].precision);
    float *first = round_of(&r);
    for (int i = 1; i < REPEATS; i++) {
        float *again = round_of(&r);
        ck_assert_mem_eq(first, again, r.values * sizeof *first);
        free(again);
    }
    free(first);
    close_rounds(&r);
}
END_TEST

/* The bits of a row do not depend on how many rows come with it, whatever the tile that they share. */
START_TEST(a_row_of_a_product_does_not_depend_on_its_companions) {
    static const struct {
        dflash_class numeric_class;
        int in, rows;
    } shapes[] = {{DFLASH_CLASS_FAST, 1216, 37},   {DFLASH_CLASS_FAST, 1216, 200},  {DFLASH_CLASS_FAST, 1218, 70},
                  {DFLASH_CLASS_EXACT, 1216, 200}, {DFLASH_CLASS_EXACT, 1218, 200}, {DFLASH_CLASS_EXACT, 36, 65}};
    enum { OUT = 416 };
    const int in = shapes[_i].in, rows = shapes[_i].rows;
    const dflash_engine_options options = {.backend = DFLASH_BACKEND_CUDA, .numeric_class = shapes[_i].numeric_class};
    dflash_engine *engine;
    ck_assert_msg(dflash_engine_create(&options, &engine, &err) == DFLASH_OK, "%s", err.message);
    uint16_t *weights = malloc((size_t)OUT * (size_t)in * sizeof *weights);
    float *host = malloc((size_t)(rows * in) * sizeof *host), *alone = malloc(OUT * sizeof *alone),
          *all = malloc((size_t)(rows * OUT) * sizeof *all), *x, *y, *w;
    ck_assert(weights != NULL && host != NULL && alone != NULL && all != NULL);
    for (size_t i = 0; i < (size_t)OUT * (size_t)in; i++)
        weights[i] = df_f32_to_bf16((float)((i * 2654435761u >> 7) % 2003u) / 1001.0f - 1.0f);
    for (size_t i = 0; i < (size_t)(rows * in); i++) host[i] = (float)((i * 40503u >> 3) % 3001u) / 1500.0f - 1.0f;
    ck_assert_int_eq(dflash_engine_alloc(engine, (size_t)OUT * (size_t)in / 2, &w, &err), DFLASH_OK);
    ck_assert_int_eq(dflash_engine_alloc(engine, (size_t)(rows * in), &x, &err), DFLASH_OK);
    ck_assert_int_eq(dflash_engine_alloc(engine, (size_t)(rows * OUT), &y, &err), DFLASH_OK);
    ck_assert_int_eq(
        engine->memory.upload(engine->memory.owner, w, weights, (size_t)OUT * (size_t)in * sizeof *weights, &err),
        DFLASH_OK);
    ck_assert_int_eq(dflash_engine_upload(engine, x, host, (size_t)(rows * in), &err), DFLASH_OK);
    const df_matrix matrix = {.dtype = DF_BF16, .out = OUT, .in = in, .data = w};
    ck_assert_int_eq(df_arena_reset(&engine->arena, &err), DFLASH_OK);
    ck_assert_int_eq(engine->ops->matmul(engine, &matrix, NULL, x, rows, y, &err), DFLASH_OK);
    ck_assert_int_eq(dflash_engine_download(engine, all, y, (size_t)(rows * OUT), &err), DFLASH_OK);
    for (int row = 0; row < rows; row++) {
        ck_assert_int_eq(engine->ops->matmul(engine, &matrix, NULL, x + (size_t)(row * in), 1, y, &err), DFLASH_OK);
        ck_assert_int_eq(dflash_engine_download(engine, alone, y, OUT, &err), DFLASH_OK);
        ck_assert_mem_eq(alone, all + (size_t)row * OUT, OUT * sizeof *alone);
    }
    for (int o = 0; o < OUT; o += 37) { /* and it is the product */
        double sum = 0.0, size = 0.0;
        for (int k = 0; k < in; k++) {
            const double term = (double)df_bf16_to_f32(weights[(size_t)(o * in) + (size_t)k]) * (double)host[k];
            sum += term;
            size += fabs(term);
        }
        ck_assert_double_le(fabs((double)all[o] - sum), size * (0x1p-17 + 600 * 0x1p-22));
    }
    dflash_engine_free(engine, w);
    dflash_engine_free(engine, x);
    dflash_engine_free(engine, y);
    free(weights);
    free(host);
    free(alone);
    free(all);
    dflash_engine_destroy(engine);
}
END_TEST

TCase *tcase_cuda_persistent(void) {
    enum { CASES = sizeof cases / sizeof *cases, SHAPES = 6 };
    TCase *tests = tcase_create("resident");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, a_round_in_one_launch_has_the_bits_of_its_stages, 0, CASES);
    tcase_add_loop_test(tests, an_ingestion_in_one_launch_has_the_bits_of_its_stages, 0, CASES);
    tcase_add_loop_test(tests, a_round_keeps_its_bits_over_a_thousand_repetitions, 0, CASES);
    tcase_add_loop_test(tests, a_row_of_a_product_does_not_depend_on_its_companions, 0, SHAPES);
    return tests;
}
