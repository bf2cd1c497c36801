/*
 * test_cuda_heads.c - from rows to tokens on a device: the same candidates, tokens, shares, distributions and refusals
 * as on the CPU, bit for bit and code for code.
 */
#include "support/cuda_case.h"
#include "run/hosted.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static dflash_error err;
#define WORKS(call) ck_assert_msg((call) == DFLASH_OK, "%s", err.message)

enum { N = 5, WIDE = 3001, TOP = 7 };

/* Values with many ties, both zeros, and -inf; every row its own. */
static void fill_rows(float *rows, int width) {
    op_random random = {500};
    for (int i = 0; i < N * width; i++) {
        const int kind = op_below(&random, 12);
        rows[i] = kind == 0 ? -INFINITY : kind < 5 ? (float)op_below(&random, 4) : op_unit(&random) * 3.5f;
        if (rows[i] == 0.0f && kind % 2 == 0) rows[i] = -0.0f;
    }
}

typedef struct found {
    float *value;
    int32_t *id;
    df_choice *choice;
} found;

static found top(dflash_engine *engine, const float *rows, int width, int k, const int32_t *ids) {
    float *x = cuda_put(engine, rows, (size_t)(N * width) * sizeof *x),
          *value = cuda_room(engine, (size_t)(N * k) * sizeof *value);
    int32_t *id = cuda_room(engine, (size_t)(N * k) * sizeof *id),
            *map = ids != NULL ? cuda_put(engine, ids, (size_t)width * sizeof *map) : NULL;
    df_choice *choice = cuda_room(engine, N * sizeof *choice);
    const df_topk_args args = {.rows = x,
                               .ids = map,
                               .n = N,
                               .width = width,
                               .k = k,
                               .what = "rows",
                               .value = value,
                               .id = id,
                               .choice = choice};
    WORKS(engine->ops->topk(engine, &args, &err));
    const found result = {cuda_get(engine, value, (size_t)(N * k) * sizeof *value),
                          cuda_get(engine, id, (size_t)(N * k) * sizeof *id),
                          cuda_get(engine, choice, N * sizeof *choice)};
    void *const held[] = {x, value, id, map, choice};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) cuda_drop(engine, held[i]);
    return result;
}

static void release(found *f) {
    free(f->value);
    free(f->id);
    free(f->choice);
}

START_TEST(the_best_values_of_a_row_are_the_cpus_with_ties_and_both_zeros) {
    static const int widths[] = {TOP, 33, 1024, WIDE};
    cuda_pair pair = cuda_pair_open();
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        const int width = widths[w];
        float *rows = op_floats((size_t)(N * width));
        int32_t *ids = op_alloc((size_t)width * sizeof *ids);
        fill_rows(rows, width);
        for (int i = 0; i < width; i++) ids[i] = 2 * i + 5;
        for (int i = 0; i < N && width == TOP; i++) /* every column is needed */
            for (int j = 0; j < width; j++)
                if (isinf(rows[i * width + j])) rows[i * width + j] = 9.0f;
        found cpu = top(pair.cpu, rows, width, TOP, ids), device = top(pair.device, rows, width, TOP, ids);
        op_expect_bits(cpu.value, device.value, (size_t)(N * TOP), "top values");
        ck_assert_mem_eq(cpu.id, device.id, (size_t)(N * TOP) * sizeof *cpu.id);
        release(&cpu);
        release(&device);
        free(rows);
        free(ids);
    }
    cuda_pair_close(&pair);
}
END_TEST

START_TEST(a_bad_row_is_recorded_with_its_first_bad_column) {
    dflash_engine *engine = cuda_engine(DFLASH_CLASS_EXACT, DFLASH_PRODUCTS_F32);
    float *rows = op_floats(N * WIDE);
    op_random random = {501};
    op_fill(&random, rows, N * WIDE);
    rows[0 * WIDE + 2999] = NAN;
    rows[1 * WIDE + 1500] = INFINITY;
    rows[1 * WIDE + 1501] = NAN;
    for (int i = 0; i < WIDE; i++) rows[2 * WIDE + i] = i % 1000 == 7 ? 1.0f : -INFINITY;
    for (int i = 0; i < WIDE; i++) rows[3 * WIDE + i] = -INFINITY;
    found f = top(engine, rows, WIDE, TOP, NULL);
    ck_assert_int_eq(f.choice[0].fault, DF_FAULT_NAN);
    ck_assert_int_eq(f.choice[0].at, 2999);
    ck_assert_int_eq(f.choice[1].fault, DF_FAULT_INFINITE);
    ck_assert_int_eq(f.choice[1].at, 1500);
    ck_assert_int_eq(f.choice[2].fault, DF_FAULT_FEW);
    ck_assert_int_eq(f.choice[2].at, 3);
    ck_assert_int_eq(f.choice[3].fault, DF_FAULT_FEW);
    ck_assert_int_eq(f.choice[3].at, 0);
    ck_assert_int_eq(f.choice[4].fault, DF_FAULT_NONE);
    for (int i = 0; i < N * TOP; i++) ck_assert(f.id[i] >= 0 && f.id[i] < WIDE);
    release(&f);
    free(rows);
    dflash_engine_destroy(engine);
}
END_TEST

/* ---- Choices ---- */

typedef struct chosen {
    df_choice *choice;
    float *probability;
} chosen;

static chosen choose(dflash_engine *engine, const float *rows, int width, float temperature, const float *uniform) {
    const size_t bytes = (size_t)(N * width) * sizeof(float);
    float *x = cuda_put(engine, rows, bytes), *probability = cuda_room(engine, bytes);
    df_choice *choice = cuda_room(engine, N * sizeof *choice);
    const df_choose_args args = {.rows = x,
                                 .n = N,
                                 .width = width,
                                 .what = "rows",
                                 .temperature = temperature,
                                 .uniform = uniform,
                                 .share = true,
                                 .probability = probability,
                                 .choice = choice};
    WORKS(df_arena_reset(&engine->arena, &err));
    WORKS(engine->ops->choose(engine, &args, &err));
    const chosen result = {cuda_get(engine, choice, N * sizeof *choice), cuda_get(engine, probability, bytes)};
    cuda_drop(engine, x);
    cuda_drop(engine, probability);
    cuda_drop(engine, choice);
    return result;
}

START_TEST(tokens_shares_and_distributions_are_the_cpus) {
    static const int widths[] = {1, 9, 64, 65, 1000, WIDE};
    static const float temperatures[] = {0.0f, 0.7f, 3.0f}, uniform[N] = {0.0f, 0.3f, 0.5f, 0.999f, 0.9999999f};
    cuda_pair pair = cuda_pair_open();
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
        for (size_t t = 0; t < sizeof temperatures / sizeof *temperatures; t++) {
            float *rows = op_floats((size_t)(N * widths[w]));
            fill_rows(rows, widths[w]);
            for (int i = 0; i < N; i++) rows[i * widths[w]] = 0.25f; /* each has a finite value */
            chosen cpu = choose(pair.cpu, rows, widths[w], temperatures[t], uniform),
                   device = choose(pair.device, rows, widths[w], temperatures[t], uniform);
            for (int i = 0; i < N; i++) {
                ck_assert_int_eq(device.choice[i].fault, DF_FAULT_NONE);
                ck_assert_int_eq(cpu.choice[i].token, device.choice[i].token);
                ck_assert_uint_eq(df_f32_to_bits(cpu.choice[i].share), df_f32_to_bits(device.choice[i].share));
            }
            free(cpu.choice);
            free(device.choice);
            cuda_expect_same(cpu.probability, device.probability, (size_t)(N * widths[w]), "distribution");
            free(rows);
        }
    cuda_pair_close(&pair);
}
END_TEST

/* ---- Rows of tables ---- */

static float *gather(dflash_engine *engine, const cuda_matrix *m, const int32_t *ids, size_t stride) {
    df_matrix table = cuda_matrix_put(engine, m);
    int32_t *placed = cuda_put(engine, ids, N * sizeof *ids);
    float *out = cuda_room(engine, N * stride * sizeof *out);
    WORKS(engine->memory.fill(engine->memory.owner, out, 0, N * stride * sizeof *out, &err));
    WORKS(engine->ops->gather(engine, &table, placed, N, 1.25f, out, stride, &err));
    float *result = cuda_get(engine, out, N * stride * sizeof *out);
    cuda_drop(engine, (void *)(uintptr_t)table.data);
    cuda_drop(engine, placed);
    cuda_drop(engine, out);
    return result;
}

START_TEST(rows_are_gathered_in_any_width_and_an_id_outside_reads_the_first_row) {
    static const int32_t ids[N] = {3, 0, 40, -1, 41};
    cuda_pair pair = cuda_pair_open();
    for (df_dtype dtype = DF_F32; dtype <= DF_BF16; dtype++) {
        cuda_matrix m = cuda_matrix_make(dtype, 41, 150, 60);
        float *device = gather(pair.device, &m, ids, 170);
        op_expect_bits(device + 170, device + 3 * 170, 150, "the row of id -1");
        op_expect_bits(device + 170, device + 4 * 170, 150, "the row of an id past the end");
        cuda_expect_same(gather(pair.cpu, &m, ids, 170), device, N * 170, "gathered rows");
        cuda_matrix_release(&m);
    }
    cuda_pair_close(&pair);
}
END_TEST

static float *score(dflash_engine *engine, const cuda_matrix *m, const float *value, const float *hidden,
                    int32_t prev) {
    static const int32_t candidates[N] = {5, 17, 0, 40, 99};
    df_matrix before = cuda_matrix_put(engine, &m[0]), after = cuda_matrix_put(engine, &m[1]);
    df_score_args args = {.predecessor = &before, .successor = &after, .k = N, .rank = (int)before.in};
    int32_t *id = cuda_put(engine, &prev, sizeof prev), *candidate = cuda_put(engine, candidates, sizeof candidates);
    float *v = cuda_put(engine, value, N * sizeof *v), *h = cuda_put(engine, hidden, (size_t)before.in * sizeof *h),
          *out = cuda_room(engine, N * sizeof *out);
    args.prev = id;
    args.candidate = candidate;
    args.value = v;
    args.hidden = h;
    args.score = out;
    WORKS(df_arena_reset(&engine->arena, &err));
    WORKS(engine->ops->score(engine, &args, &err));
    float *result = cuda_get(engine, out, N * sizeof *out);
    void *const held[] = {(void *)(uintptr_t)before.data, (void *)(uintptr_t)after.data, id, candidate, v, h, out};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) cuda_drop(engine, held[i]);
    return result;
}

START_TEST(selector_scores_have_the_cpus_bits) {
    static const int64_t ranks[] = {1, 64, 150, 256, 9000};
    cuda_pair pair = cuda_pair_open();
    op_random random = {61};
    for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++) {
        cuda_matrix m[2] = {cuda_matrix_make(DF_BF16, 41, ranks[r], 62), cuda_matrix_make(DF_F16, 41, ranks[r], 63)};
        float *hidden = op_floats((size_t)ranks[r]), value[N];
        op_fill(&random, hidden, (size_t)ranks[r]);
        op_fill(&random, value, N);
        cuda_expect_same(score(pair.cpu, m, value, hidden, 8), score(pair.device, m, value, hidden, 8), N, "scores");
        cuda_matrix_release(&m[0]);
        cuda_matrix_release(&m[1]);
        free(hidden);
    }
    cuda_pair_close(&pair);
}
END_TEST

/* ---- Whole proposals ---- */

typedef struct drafter {
    dflash_engine *engine;
    dflash_draft *draft;
    dflash_table *head;
} drafter;

static drafter open_drafter(dflash_engine *engine, const char *name) {
    char path[96];
    drafter d = {.engine = engine};
    snprintf(path, sizeof path, "fixtures/small/%s", name);
    WORKS(dflash_draft_load(engine, path, &d.draft, &err));
    const dflash_config *c = dflash_draft_config(d.draft);
    const size_t values = (size_t)c->vocab * (size_t)c->hidden;
    op_random random = {64};
    float *table = op_floats(values);
    op_fill(&random, table, values);
    WORKS(dflash_table_create(engine, "F32", c->vocab, c->hidden, table, &d.head, &err));
    free(table);
    return d;
}

static void close_drafter(drafter *d) {
    dflash_table_destroy(d->head);
    dflash_draft_destroy(d->draft);
}

/* What a proposal gave. */
typedef struct proposed {
    dflash_status status;
    dflash_error error;
    float *logits; /* [n, vocab], by dflash_logits */
    int32_t *token, *candidate;
    float *share, *probability, *raw;
    size_t n, width;
} proposed;

static proposed propose(const drafter *d, float temperature, int bad_slot, float bad) {
    const dflash_config *c = dflash_draft_config(d->draft);
    int first, n;
    dflash_harvest_rows(c, &first, &n);
    proposed p = {.n = (size_t)n, .width = (size_t)dflash_proposal_width(d->draft, c->vocab)};
    float *rows = op_floats(p.n * (size_t)c->hidden), *uniform = op_floats(p.n);
    int32_t *prev = op_alloc(p.n * sizeof *prev);
    op_random random = {65};
    op_fill(&random, rows, p.n * (size_t)c->hidden);
    for (int i = 0; i < n; i++) uniform[i] = 0.5f + 0.5f * op_unit(&random) * 0.99f;
    p.logits = op_floats(p.n * (size_t)c->vocab);
    p.token = op_alloc(p.n * sizeof *p.token);
    p.candidate = op_alloc(p.n * p.width * sizeof *p.candidate);
    p.share = op_floats(p.n);
    p.probability = op_floats(p.n * p.width);
    p.raw = op_floats(p.n);
    WORKS(dp_logits(d->draft, d->head, rows, n, p.logits, &err));
    for (int i = 0; bad_slot >= 0 && i < c->vocab; i++) /* -inf: all of the slot; else one value */
        if (isinf(bad) && bad < 0.0f)
            p.logits[bad_slot * c->vocab + i] = bad;
        else if (i == 11)
            p.logits[bad_slot * c->vocab + i] = bad;
    const dflash_proposal_options options = {.temperature = temperature, .uniform = uniform};
    const dflash_proposal out = {
        .token = p.token, .share = p.share, .candidate = p.candidate, .probability = p.probability};
    p.status = dp_propose(d->draft, d->head, p.logits, rows, n, c->vocab, 3, &options, &out, &p.error);
    for (int i = 0; p.status == DFLASH_OK && i < n; i++) prev[i] = i == 0 ? 3 : p.token[i - 1];
    if (p.status == DFLASH_OK && c->confidence) WORKS(dp_confidence(d->draft, rows, prev, n, p.raw, &err));
    free(rows);
    free(uniform);
    free(prev);
    return p;
}

static void release_proposed(proposed *p) {
    void *const held[] = {p->logits, p->token, p->candidate, p->share, p->probability, p->raw};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) free(held[i]);
}

static const char *const drafters[] = {"tiny-plain", "tiny-dflash2-k3", "tiny-dspark", "tiny-dspark-gated",
                                       "tiny-dspark-rnn"};
enum { DRAFTERS = sizeof drafters / sizeof *drafters };

START_TEST(proposals_of_every_family_greedy_and_sampled_are_the_cpus) {
    cuda_pair pair = cuda_pair_open();
    drafter cpu = open_drafter(pair.cpu, drafters[_i]), device = open_drafter(pair.device, drafters[_i]);
    for (int sampled = 0; sampled < 2; sampled++) {
        proposed a = propose(&cpu, sampled ? 0.8f : 0.0f, -1, 0.0f),
                 b = propose(&device, sampled ? 0.8f : 0.0f, -1, 0.0f);
        ck_assert_msg(a.status == DFLASH_OK, "%s", a.error.message);
        ck_assert_msg(b.status == DFLASH_OK, "%s", b.error.message);
        op_expect_bits(a.logits, b.logits, a.n * (size_t)dflash_draft_config(cpu.draft)->vocab, "logits");
        ck_assert_mem_eq(a.token, b.token, a.n * sizeof *a.token);
        ck_assert_mem_eq(a.candidate, b.candidate, a.n * a.width * sizeof *a.candidate);
        op_expect_bits(a.share, b.share, a.n, "shares");
        op_expect_bits(a.probability, b.probability, a.n * a.width, "distributions");
        if (dflash_draft_config(cpu.draft)->confidence) op_expect_bits(a.raw, b.raw, a.n, "confidence");
        release_proposed(&a);
        release_proposed(&b);
    }
    close_drafter(&cpu);
    close_drafter(&device);
    cuda_pair_close(&pair);
}
END_TEST

START_TEST(a_slot_at_fault_is_refused_in_the_cpus_words) {
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    cuda_pair pair = cuda_pair_open();
    drafter cpu = open_drafter(pair.cpu, drafters[_i]), device = open_drafter(pair.device, drafters[_i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (int slot = 0; slot < 3; slot += 2) {
            proposed a = propose(&cpu, 0.0f, slot, bad[i]), b = propose(&device, 0.0f, slot, bad[i]);
            ck_assert_int_eq(a.status, DFLASH_ERR_REFUSED);
            ck_assert_int_eq(b.status, a.status);
            ck_assert_str_eq(b.error.code, a.error.code);
            ck_assert_str_eq(b.error.message, a.error.message);
            release_proposed(&a);
            release_proposed(&b);
        }
    close_drafter(&cpu);
    close_drafter(&device);
    cuda_pair_close(&pair);
}
END_TEST

TCase *tcase_cuda_heads(void) {
    TCase *tests = tcase_create("heads");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, the_best_values_of_a_row_are_the_cpus_with_ties_and_both_zeros);
    tcase_add_test(tests, a_bad_row_is_recorded_with_its_first_bad_column);
    tcase_add_test(tests, tokens_shares_and_distributions_are_the_cpus);
    tcase_add_test(tests, rows_are_gathered_in_any_width_and_an_id_outside_reads_the_first_row);
    tcase_add_test(tests, selector_scores_have_the_cpus_bits);
    tcase_add_loop_test(tests, proposals_of_every_family_greedy_and_sampled_are_the_cpus, 0, DRAFTERS);
    tcase_add_loop_test(tests, a_slot_at_fault_is_refused_in_the_cpus_words, 0, DRAFTERS);
    return tests;
}
