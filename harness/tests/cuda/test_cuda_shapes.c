/*
 * test_cuda_shapes.c - rounds and ingestions of the persistent kernels at the edges of what they cover: heads, groups,
 * blocks and widths that fill no tile, as many segments of keys as there may be and one more, caches that drop rows,
 * and a draft model in the place of another.
 */
#include "support/cuda_case.h"
#include "run/hosted.h"
#include "store/synth.h"
#include "support/tensor_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static dflash_error err;
#define WORKS(call) ck_assert_msg((call) == DFLASH_OK, "%s", err.message)

/* Two layers; window 0: both see everything, otherwise the first slides, and the second as `both` says. */
typedef struct shape {
    int hidden, heads, kv_heads, head_dim, intermediate, block, window;
    bool both;
    int conv_group; /* 0: dflash */
} shape;

static const shape shapes[] = {
    {200, 6, 2, 72, 300, 9, 0, false, 0},    /* 48 queries of 64; two parts of a head, one short */
    {256, 10, 2, 128, 544, 16, 0, false, 0}, /* 80 queries: two chunks */
    {130, 3, 1, 124, 100, 16, 40, true, 0},  /* inputs that are no multiple of 8; segments that no row sees */
    {64, 9, 1, 20, 96, 8, 0, false, 0},      /* 72 queries of 8 rows each */
    {64, 2, 2, 8, 65, 2, 3, false, 0},
    {132, 4, 4, 100, 260, 16, 70, false, 12}, /* dflash2, 16 rows */
    {96, 4, 2, 64, 96, 1, 1, true, 0},        /* a block of one row that sees itself alone */
    {64, 2, 2, 64, 17000, 8, 0, false, 0},
    {64, 2, 2, 64, 17000, 16, 0, false, 0}, /* more of the gate than the blocks take at once */
};
enum { SHAPES = sizeof shapes / sizeof *shapes, CONTEXT = 150, FIRST = 37 };
static const int contexts[] = {0, 1, 27 /* the block starts a segment */, CONTEXT};

static void write_checkpoint(const shape *s, uint64_t seed, const char *dir) {
    char given[TF_PATH_MAX + 32];
    snprintf(given, sizeof given, "%s/given.json", dir);
    FILE *file = fopen(given, "wb");
    ck_assert_ptr_nonnull(file);
    fprintf(file,
            "{\"architectures\": [\"%s\"], \"attention_bias\": false, \"block_size\": %d, "
            "\"dflash_config\": {\"mask_token_id\": 100, \"target_layer_ids\": [1, 3]",
            s->conv_group > 0 ? "DFlash2DraftModel" : "DFlashDraftModel", s->block);
    if (s->conv_group > 0)
        fprintf(file,
                ", \"conv_kernel_size\": 3, \"conv_group_size\": %d, \"selector_rank\": 8, \"selector_top_k\": 4, "
                "\"selector_vocab_size\": 128",
                s->conv_group);
    fprintf(file,
            "}, \"head_dim\": %d, \"hidden_act\": \"silu\", \"hidden_size\": %d, \"intermediate_size\": %d, "
            "\"layer_types\": [\"%s\", \"%s\"], \"max_position_embeddings\": 40960, \"num_attention_heads\": %d, "
            "\"num_hidden_layers\": 2, \"num_key_value_heads\": %d, \"num_target_layers\": 6, \"rms_norm_eps\": 1e-6, "
            "\"rope_theta\": 100000, \"vocab_size\": 128, \"use_sliding_window\": %s, \"sliding_window\": ",
            s->head_dim, s->hidden, s->intermediate, s->window > 0 ? "sliding_attention" : "full_attention",
            s->window > 0 && s->both ? "sliding_attention" : "full_attention", s->heads, s->kv_heads,
            s->window > 0 ? "true" : "false");
    fprintf(file, s->window > 0 ? "%d}" : "null}", s->window);
    ck_assert_int_eq(fclose(file), 0);
    const dp_synth_options options = {.seed = seed, .dtype = DF_BF16, .profile = DP_SYNTH_UNIT, .threads = 1};
    WORKS(dp_synth_write(given, dir, &options, NULL, &err));
}

/* ---- One model on one engine, and the calls that its programs run ---- */

typedef struct model {
    dflash_engine *engine;
    dflash_draft *draft;
    const dflash_config *c;
    const df_ops *own;
    df_ops counting;
    size_t values; /* of a block */
} model;

static model *counted; /* whose calls are counted */
static int rounds_done, ingestions_done;

static dflash_status counted_round(dflash_engine *engine, const df_round_args *args, bool *done, dflash_error *e) {
    const dflash_status status = counted->own->round(engine, args, done, e);
    rounds_done += *done;
    return status;
}

static dflash_status counted_ingestion(dflash_engine *engine, const df_ingest_args *args, bool *done, dflash_error *e) {
    const dflash_status status = counted->own->ingest(engine, args, done, e);
    ingestions_done += *done;
    return status;
}

static void load(model *m, dflash_engine *engine, const char *dir, dflash_precision precision) {
    *m = (model){.engine = engine, .own = engine->ops};
    WORKS(dflash_draft_load_as(engine, dir, precision, &m->draft, &err));
    m->c = dflash_draft_config(m->draft);
    m->values = (size_t)m->c->block * (size_t)m->c->hidden;
}

static void count_calls(model *m) {
    counted = m;
    m->counting = *m->own;
    m->counting.round = counted_round;
    m->counting.ingest = counted_ingestion;
    m->engine->ops = &m->counting;
    rounds_done = ingestions_done = 0;
}

/* The calls that are not counted any more come from the engine's own table. */
static void unload(model *m) {
    m->engine->ops = m->own;
    dflash_draft_destroy(m->draft);
}

static void ignore(void *user, const dflash_stage_view *view) {
    (void)user;
    (void)view;
}

static float *random_rows(uint64_t seed, size_t n) {
    op_random random = {seed};
    float *x = op_floats(n);
    op_fill(&random, x, n);
    return x;
}

/* Positions of `context` rows from `first` on, `stride` apart, and of the block behind them. */
static int32_t *positions(int context, int block, int32_t first, int32_t stride) {
    int32_t *pos = op_alloc((size_t)(context + block) * sizeof *pos);
    for (int i = 0; i < context; i++) pos[i] = first + stride * i;
    for (int i = 0; i < block; i++) pos[context + i] = (context > 0 ? first + stride * (context - 1) + 1 : first) + i;
    return pos;
}

static float *block_of(const model *m, const float *features, const float *noise, const int32_t *pos, int context) {
    float *out = op_floats(m->values);
    WORKS(dp_forward_block(m->draft, features, noise, pos, context, out, &err));
    return out;
}

static float *round_of(const model *m, const float *features, const float *noise, const int32_t *pos, int context,
                       bool watched) {
    float *out = op_floats(m->values);
    dflash_kv *kv = NULL;
    WORKS(dflash_kv_create(m->draft, context + m->c->block, &kv, &err));
    dflash_draft_observe(m->draft, watched ? ignore : NULL, NULL);
    for (int row = 0; row < context;) { /* a window keeps room for a block: what does not fit pushes old rows out */
        const int rows = context - row < 7 ? context - row : 7;
        WORKS(dp_ingest_ctx(m->draft, kv, features + (size_t)row * (size_t)m->c->hidden, pos + row, rows, &err));
        row += rows;
    }
    WORKS(dp_forward_round(m->draft, kv, noise, pos + context, out, &err));
    dflash_draft_observe(m->draft, NULL, NULL);
    dflash_kv_destroy(kv);
    return out;
}

/* A round at once and stage by stage, and the block, all of one model: the same bits, and in class exact the CPU's; in
 * class fast close to them. `covered`: by a program, where the device runs them. */
static void expect_one_result(const char *dir, dflash_class numeric_class, dflash_precision precision, int context,
                              int32_t first, int32_t stride, bool covered, const char *what) {
    dflash_engine *engine = cuda_engine(numeric_class, DFLASH_PRODUCTS_F32),
                  *cpu = op_engine(DFLASH_ISA_BEST, 1, false);
    model m, truth;
    load(&m, engine, dir, precision);
    load(&truth, cpu, dir, precision);
    float *features = random_rows(5, (size_t)context * (size_t)m.c->hidden), *noise = random_rows(6, m.values);
    int32_t *pos = positions(context, m.c->block, first, stride);
    count_calls(&m);
    float *at_once = round_of(&m, features, noise, pos, context, false);
    ck_assert_msg(rounds_done == (covered && cuda_persistent(engine)), "%s: %d rounds in one launch", what,
                  rounds_done);
    float *watched = round_of(&m, features, noise, pos, context, true),
          *block = block_of(&m, features, noise, pos, context), *cpus = block_of(&truth, features, noise, pos, context);
    double *exact = op_alloc(m.values * sizeof *exact);
    for (size_t i = 0; i < m.values; i++) exact[i] = (double)cpus[i];
    op_expect_bits(watched, at_once, m.values, what);
    op_expect_bits(block, at_once, m.values, what);
    if (numeric_class == DFLASH_CLASS_EXACT) op_expect_bits(cpus, at_once, m.values, what);
    const double distance = op_relative_l2(at_once, exact, m.values);
    ck_assert_msg(distance < 1e-3, "%s: %g from the exact class", what, distance); /* NaN is not */
    free(features);
    free(noise);
    free(pos);
    free(at_once);
    free(watched);
    free(block);
    free(cpus);
    free(exact);
    unload(&m);
    unload(&truth);
    dflash_engine_destroy(engine);
    dflash_engine_destroy(cpu);
}

START_TEST(a_round_of_any_shape_in_one_launch_has_the_bits_of_its_stages) {
    static const struct {
        dflash_class numeric_class;
        dflash_precision precision;
    } ways[] = {{DFLASH_CLASS_EXACT, DFLASH_PRECISION_STORED},
                {DFLASH_CLASS_FAST, DFLASH_PRECISION_STORED},
                {DFLASH_CLASS_EXACT, DFLASH_PRECISION_Q4_0},
                {DFLASH_CLASS_FAST, DFLASH_PRECISION_Q8_0}};
    const shape *s = &shapes[_i];
    const bool blocks = s->hidden % 32 == 0 && s->intermediate % 32 == 0 && s->heads * s->head_dim % 32 == 0;
    char dir[TF_PATH_MAX], what[64];
    tf_make_dir(dir);
    write_checkpoint(s, 11 + (uint64_t)_i, dir);
    for (int way = 0; way < (blocks ? 4 : 2); way++)
        for (size_t i = 0; i < sizeof contexts / sizeof *contexts; i++) {
            snprintf(what, sizeof what, "shape %d, way %d, %d rows of context", _i, way, contexts[i]);
            expect_one_result(dir, ways[way].numeric_class, ways[way].precision, contexts[i], FIRST, 1, true, what);
        }
    tf_remove_dir(dir);
}
END_TEST

/* One key in each segment. The exact kernel's tree over segments holds 1984 behind a multiple of 1024, the fast one's
 * block 160 by heads; the first numbers past them must go another way. */
START_TEST(as_many_segments_as_there_may_be_and_one_more_have_the_same_bits) {
    static const struct {
        dflash_class numeric_class;
        int first, segments;
        bool covered;
    } cases[] = {{DFLASH_CLASS_EXACT, 1023, 961, true},   {DFLASH_CLASS_EXACT, 1023, 962, false},
                 {DFLASH_CLASS_EXACT, 1023, 1016, false}, {DFLASH_CLASS_EXACT, 3, 1100, true},
                 {DFLASH_CLASS_FAST, 7, 40, true},        {DFLASH_CLASS_FAST, 7, 41, false}};
    char what[64];
    snprintf(what, sizeof what, "%d segments from %d on", cases[_i].segments, cases[_i].first);
    expect_one_result("fixtures/small/tiny-plain", cases[_i].numeric_class, DFLASH_PRECISION_STORED, cases[_i].segments,
                      cases[_i].first * 64, 64, cases[_i].covered, what);
}
END_TEST

/* Packed matrices and programs are known by addresses, which the next draft model may get. */
START_TEST(a_draft_in_the_place_of_another_computes_with_its_own_weights) {
    const dflash_class numeric_class = _i == 0 ? DFLASH_CLASS_EXACT : DFLASH_CLASS_FAST;
    const shape *s = &shapes[0];
    char dir[2][TF_PATH_MAX];
    float *result[3];
    dflash_engine *used = cuda_engine(numeric_class, DFLASH_PRODUCTS_F32),
                  *fresh = cuda_engine(numeric_class, DFLASH_PRODUCTS_F32);
    float *features = random_rows(5, (size_t)(CONTEXT * s->hidden)),
          *noise = random_rows(6, (size_t)(s->block * s->hidden));
    int32_t *pos = positions(CONTEXT, s->block, FIRST, 1);
    for (int i = 0; i < 3; i++) {
        model m;
        if (i < 2) {
            tf_make_dir(dir[i]);
            write_checkpoint(s, 50 + (uint64_t)i, dir[i]);
        }
        load(&m, i < 2 ? used : fresh, dir[i < 2 ? i : 1], DFLASH_PRECISION_STORED);
        result[i] = round_of(&m, features, noise, pos, CONTEXT, false);
        unload(&m);
    }
    const size_t values = (size_t)(s->block * s->hidden);
    ck_assert(!op_same_bits(result[0], result[1], values));
    op_expect_bits(result[2], result[1], values, "the second draft of an engine");
    for (int i = 0; i < 3; i++) free(result[i]);
    free(features);
    free(noise);
    free(pos);
    tf_remove_dir(dir[0]);
    tf_remove_dir(dir[1]);
    dflash_engine_destroy(used);
    dflash_engine_destroy(fresh);
}
END_TEST

/* A cache of 14 rows whose window of 4 lets old ones go, fed 60 rows from their taps: on a device in one launch, where
 * at most 9 of a call are left after what need not come at all. */
static float *fed(model *m, const float *taps, const int32_t *pos, int chunk, int *len, size_t *values) {
    enum { ROWS = 60, CAPACITY = 14 };
    const size_t width = (size_t)(m->c->n_taps * m->c->hidden), row = (size_t)(m->c->n_kv_heads * m->c->head_dim);
    float *placed = cuda_put(m->engine, taps, ROWS * width * sizeof *taps);
    dflash_kv *kv = NULL;
    WORKS(dflash_kv_create(m->draft, CAPACITY, &kv, &err));
    for (int at = 0; at < ROWS; at += chunk) {
        const int rows = ROWS - at < chunk ? ROWS - at : chunk;
        WORKS(dflash_ingest_taps(m->draft, kv, placed + (size_t)at * width, pos + at, rows, &err));
    }
    *len = dflash_kv_len(kv);
    *values = 4 * (size_t)*len * row;
    float *out = op_floats(*values);
    for (int i = 0; i < 2; i++)
        WORKS(
            dflash_kv_read(kv, i, out + (size_t)(2 * i * *len) * row, out + (size_t)((2 * i + 1) * *len) * row, &err));
    dflash_kv_destroy(kv);
    cuda_drop(m->engine, placed);
    return out;
}

START_TEST(rows_that_push_others_out_of_a_cache_have_the_cpus_bits) {
    static const int chunks[] = {1, 3, 9, 20, 60};
    const shape s = {64, 6, 2, 20, 96, 5, 4, true, 0};
    char dir[TF_PATH_MAX];
    cuda_pair pair = cuda_pair_open();
    model cpu, device;
    tf_make_dir(dir);
    write_checkpoint(&s, 3, dir);
    load(&cpu, pair.cpu, dir, DFLASH_PRECISION_STORED);
    load(&device, pair.device, dir, DFLASH_PRECISION_STORED);
    float *taps = random_rows(8, (size_t)(60 * 2 * s.hidden));
    int32_t *pos = positions(60, 1, FIRST, 1);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        int lens[2];
        size_t values[2];
        float *held = fed(&cpu, taps, pos, chunks[i], &lens[0], &values[0]);
        count_calls(&device);
        float *there = fed(&device, taps, pos, chunks[i], &lens[1], &values[1]);
        ck_assert_int_eq(lens[0], lens[1]);
        ck_assert_int_eq(ingestions_done, cuda_persistent(pair.device) ? (60 - 1) / chunks[i] + 1 : 0);
        cuda_expect_same(held, there, values[0], "a cache that drops rows");
    }
    free(taps);
    free(pos);
    unload(&cpu);
    unload(&device);
    tf_remove_dir(dir);
    cuda_pair_close(&pair);
}
END_TEST

TCase *tcase_cuda_shapes(void) {
    TCase *tests = tcase_create("shapes");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, a_round_of_any_shape_in_one_launch_has_the_bits_of_its_stages, 0, SHAPES);
    tcase_add_loop_test(tests, as_many_segments_as_there_may_be_and_one_more_have_the_same_bits, 0, 6);
    tcase_add_loop_test(tests, a_draft_in_the_place_of_another_computes_with_its_own_weights, 0, 2);
    tcase_add_test(tests, rows_that_push_others_out_of_a_cache_have_the_cpus_bits);
    return tests;
}
