/*
 * test_logits.c - the target's vocabulary tables: logits, embeddings and reduced vocabularies, against scalar code
 * written from dflash.h, and every refusal.
 */
#include "model/model.h"
#include "common/mathfn.h"
#include "support/op_case.h"
#include "support/propose_case.h"

#include <math.h>
#include <stdlib.h>

#define CAPPED "fixtures/small/tiny-dflash2" /* output_multiplier 0.196..., softcap 20 */
#define PLAIN "fixtures/small/tiny-plain"    /* neither */

static const char *const dtypes[] = {"BF16", "F16", "F32"};

/* Seeded values that every dtype holds exactly, as float32 and in the dtype. */
typedef struct values {
    float *wide;
    void *stored;
} values;

static values make_values(const char *dtype, size_t n, uint64_t seed) {
    values v = {op_floats(n), op_alloc(n * sizeof(float))};
    op_random random = {seed};
    for (size_t i = 0; i < n; i++) {
        v.wide[i] = (float)(op_below(&random, 255) - 127) * 0x1p-6f;
        const uint16_t narrow = strcmp(dtype, "BF16") == 0 ? df_f32_to_bf16(v.wide[i]) : df_f32_to_f16(v.wide[i]);
        if (strcmp(dtype, "F32") == 0)
            memcpy((float *)v.stored + i, &v.wide[i], sizeof(float));
        else
            memcpy((uint16_t *)v.stored + i, &narrow, sizeof narrow);
    }
    return v;
}

static void free_values(values *v) {
    free(v->wide);
    free(v->stored);
}

static dflash_table *make_table(dflash_engine *engine, const char *dtype, int vocab, int hidden, const void *stored) {
    dflash_table *table = NULL;
    dflash_error err = {0};
    ck_assert_msg(dflash_table_create(engine, dtype, vocab, hidden, stored, &table, &err) == DFLASH_OK, "%s",
                  err.message);
    ck_assert_int_eq(dflash_table_vocab(table), vocab);
    return table;
}

/* ---- Scale and cap ---- */

static float scaled(float x, float scale, float cap) {
    const float y = x * scale;
    if (!(cap > 0.0f)) return y;
    const float ratio = y / cap;
    return cap * df_tanh(ratio);
}

START_TEST(scale_and_cap_reach_every_tail_and_work_in_place) {
    static const size_t counts[] = {0, 1, 7, 8, 17, 100, 16383, 16384, 16385, 40000};
    static const float caps[] = {0.0f, 20.0f, 0.75f};
    op_random random = {50};
    dflash_isa isa[OP_ISAS];
    const int isas = op_isas(isa);
    for (int e = 0; e < isas; e++)
        for (int threads = 1; threads <= 3; threads++) {
            dflash_engine *engine = op_engine(isa[e], threads, false);
            for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
                const float cap = caps[n % 3], scale = n % 2 == 0 ? 1.0f : 0.196116135f;
                float *x = op_floats(counts[n]), *expected = op_floats(counts[n]), *y = op_output(counts[n]);
                dflash_error err = {0};
                op_fill(&random, x, counts[n]);
                for (size_t i = 0; i < counts[n]; i++) {
                    x[i] *= i % 2 == 0 ? 300.0f : 3.0f;
                    expected[i] = scaled(x[i], scale, cap);
                }
                ck_assert_int_eq(engine->ops->scale_cap(engine, x, counts[n], scale, cap, y, &err), DFLASH_OK);
                op_output_check(y, counts[n], "scale_cap");
                op_expect_bits(expected, y, counts[n], dflash_engine_isa(engine));
                memcpy(y, x, counts[n] * sizeof *x);
                ck_assert_int_eq(engine->ops->scale_cap(engine, y, counts[n], scale, cap, y, &err), DFLASH_OK);
                op_output_check(y, counts[n], "scale_cap in place");
                op_expect_bits(expected, y, counts[n], "in place");
                free(x);
                free(expected);
                op_output_free(y);
            }
            dflash_engine_destroy(engine);
        }
}
END_TEST

/* ---- Logits ---- */

typedef struct seen_logits {
    int calls;
    dflash_stage_view view;
    float *copy;
} seen_logits;

static void see(void *user, const dflash_stage_view *view) {
    seen_logits *seen = user;
    seen->calls++;
    seen->view = *view;
    const size_t n = (size_t)(view->dim[0] * view->dim[1]);
    seen->copy = op_floats(n);
    memcpy(seen->copy, view->f32, n * sizeof(float));
}

static void check_logits(dflash_draft *draft, const dflash_table *head, const values *w, int vocab, int rows,
                         op_random *random) {
    const dflash_config *c = dflash_draft_config(draft);
    const size_t width = (size_t)c->hidden, count = (size_t)rows * (size_t)vocab;
    float *x = op_floats((size_t)rows * width), *expected = op_floats(count), *y = op_output(count);
    dflash_error err = {0};
    seen_logits seen = {0};
    op_fill(random, x, (size_t)rows * width);
    for (int row = 0; row < rows; row++)
        for (int v = 0; v < vocab; v++)
            expected[row * vocab + v] = scaled(op_dot(w->wide + (size_t)v * width, x + (size_t)row * width, c->hidden),
                                               (float)c->output_multiplier, (float)c->logit_softcap);
    dflash_draft_observe(draft, see, &seen);
    ck_assert_msg(dflash_logits(draft, head, x, rows, y, &err) == DFLASH_OK, "%s", err.message);
    dflash_draft_observe(draft, NULL, NULL);
    op_output_check(y, count, "logits");
    op_expect_bits(expected, y, count, "logits");
    ck_assert(seen.calls == 1 && seen.view.stage == DFLASH_STAGE_LOGITS && seen.view.rank == 2 &&
              seen.view.layer == -1);
    ck_assert(seen.view.dim[0] == rows && seen.view.dim[1] == vocab);
    op_expect_bits(expected, seen.copy, count, "the stage");
    free(seen.copy);
    free(x);
    free(expected);
    op_output_free(y);
}

START_TEST(logits_are_the_product_then_the_multiplier_then_the_cap) {
    enum { VOCAB = 77 };
    op_random random = {51};
    dflash_isa isa[OP_ISAS];
    const int isas = op_isas(isa);
    for (int e = 0; e < isas; e++)
        for (int variant = 0; variant < 4; variant++) { /* bit 0: a multiplier, bit 1: a cap */
            dflash_engine *engine = op_engine(isa[e], 1 + variant % 3, true);
            dflash_draft *draft = pc_load(engine, CAPPED);
            draft->config.output_multiplier = variant & 1 ? 0.19611613513818404 : 1.0;
            draft->config.logit_softcap = variant & 2 ? 3.0 : 0.0;
            for (int d = 0; d < 3; d++) {
                values w = make_values(dtypes[d], (size_t)VOCAB * (size_t)draft->config.hidden, 52);
                dflash_table *head = make_table(engine, dtypes[d], VOCAB, draft->config.hidden, w.stored);
                for (int rows = 1; rows <= 17; rows += 8) check_logits(draft, head, &w, VOCAB, rows, &random);
                dflash_table_destroy(head);
                free_values(&w);
            }
            dflash_draft_destroy(draft);
            dflash_engine_destroy(engine);
        }
}
END_TEST

START_TEST(logits_agree_with_double_precision) {
    enum { VOCAB = 300 };
    dflash_engine *engine = op_engine(DFLASH_ISA_BEST, 2, true);
    dflash_draft *draft = pc_load(engine, CAPPED);
    const dflash_config *c = dflash_draft_config(draft);
    const size_t width = (size_t)c->hidden;
    values w = make_values("BF16", VOCAB * width, 53);
    dflash_table *head = make_table(engine, "BF16", VOCAB, c->hidden, w.stored);
    float *x = op_floats(width), *y = op_output(VOCAB);
    double *exact = op_alloc(VOCAB * sizeof *exact), largest = 0;
    op_random random = {54};
    dflash_error err = {0};
    ck_assert(c->logit_softcap == 20.0 && c->output_multiplier == 0.19611613513818404);
    op_fill(&random, x, width);
    for (size_t i = 0; i < width; i++) x[i] *= 10.0f;
    for (size_t v = 0; v < VOCAB; v++) {
        double dot = 0;
        for (size_t i = 0; i < width; i++) dot += (double)w.wide[v * width + i] * x[i];
        exact[v] = 20.0 * tanh(dot * 0.19611613513818404 / 20.0);
        if (fabs(exact[v]) > largest) largest = fabs(exact[v]);
    }
    ck_assert_double_gt(largest, 15.0); /* the cap bends these values */
    ck_assert_int_eq(dflash_logits(draft, head, x, 1, y, &err), DFLASH_OK);
    ck_assert_double_lt(op_relative_l2(y, exact, VOCAB), 3e-7);
    dflash_table_destroy(head);
    free_values(&w);
    free(x);
    free(exact);
    op_output_free(y);
    dflash_draft_destroy(draft);
    dflash_engine_destroy(engine);
}
END_TEST

START_TEST(a_loaded_table_has_the_bits_of_a_created_one) {
    dflash_engine *engine = op_engine(DFLASH_ISA_BEST, 1, true);
    dflash_draft *draft = pc_load(engine, CAPPED);
    const dflash_config *c = dflash_draft_config(draft);
    dflash_table *loaded = NULL, *made = NULL;
    dflash_error err = {0};
    ck_assert_msg(dflash_table_load(engine, CAPPED "/model.safetensors", "lm_head.weight", &loaded, &err) == DFLASH_OK,
                  "%s", err.message);
    for (int i = 0; i < dflash_draft_tensor_count(draft); i++) {
        const dflash_tensor_view view = dflash_draft_tensor(draft, i);
        if (strcmp(view.name, "lm_head.weight") == 0) made = make_table(engine, view.dtype, 320, c->hidden, view.data);
    }
    ck_assert_ptr_nonnull(made);
    ck_assert_int_eq(dflash_table_vocab(loaded), 320);
    float *x = op_floats(3 * (size_t)c->hidden), *y = op_output(3 * 320), *other = op_output(3 * 320);
    op_random random = {55};
    op_fill(&random, x, 3 * (size_t)c->hidden);
    ck_assert_int_eq(dflash_logits(draft, loaded, x, 3, y, &err), DFLASH_OK);
    ck_assert_int_eq(dflash_logits(draft, made, x, 3, other, &err), DFLASH_OK);
    op_output_check(y, 3 * 320, "logits");
    op_expect_bits(y, other, 3 * 320, "created");
    free(x);
    op_output_free(y);
    op_output_free(other);
    dflash_table_destroy(loaded);
    dflash_table_destroy(made);
    dflash_draft_destroy(draft);
    dflash_engine_destroy(engine);
}
END_TEST

/* ---- Embedding ---- */

START_TEST(the_embedding_scale_applies_to_the_anchor_and_to_every_mask) {
    enum { VOCAB = 310, ANCHOR = 17 };
    dflash_engine *engine = op_engine(DFLASH_ISA_BEST, 1, true);
    dflash_draft *draft = pc_load(engine, CAPPED);
    const dflash_config *c = dflash_draft_config(draft);
    const size_t width = (size_t)c->hidden, block = (size_t)c->block;
    dflash_error err = {0};
    for (int d = 0; d < 3; d++)
        for (int variant = 0; variant < 2; variant++) {
            const float scale = variant == 0 ? 1.0f : 8.48528137423857f;
            draft->config.input_embedding_scale = variant == 0 ? 1.0 : 8.48528137423857;
            values w = make_values(dtypes[d], VOCAB * width, 56);
            dflash_table *table = make_table(engine, dtypes[d], VOCAB, c->hidden, w.stored);
            float *noise = op_output(block * width), *expected = op_floats(block * width);
            for (size_t i = 0; i < block * width; i++)
                expected[i] = w.wide[(i < width ? ANCHOR : (size_t)c->mask_token_id) * width + i % width] * scale;
            ck_assert_int_eq(dflash_embed_block(draft, table, ANCHOR, noise, &err), DFLASH_OK);
            op_output_check(noise, block * width, "noise");
            op_expect_bits(expected, noise, block * width, "noise");
            op_output_free(noise);
            free(expected);
            free_values(&w);
            dflash_table_destroy(table);
        }
    dflash_draft_destroy(draft);
    dflash_engine_destroy(engine);
}
END_TEST

/* ---- Refusals ---- */

START_TEST(tables_that_are_none_are_refused) {
    dflash_engine *engine = op_engine(DFLASH_ISA_BEST, 1, false);
    dflash_table *table = NULL;
    dflash_error err = {0};
    const float w[4] = {0};
    pc_refused(dflash_table_create(engine, "q8_0", 2, 2, w, &table, &err), DFLASH_ERR_ARGUMENT, &err, "table.dtype");
    pc_refused(dflash_table_create(engine, "bf16", 2, 2, w, &table, &err), DFLASH_ERR_ARGUMENT, &err, "table.dtype");
    pc_refused(dflash_table_create(engine, "F32", 0, 2, w, &table, &err), DFLASH_ERR_ARGUMENT, &err, "table.shape");
    pc_refused(dflash_table_create(engine, "F32", 2, -2, w, &table, &err), DFLASH_ERR_ARGUMENT, &err, "table.shape");
    const char *path = CAPPED "/model.safetensors";
    pc_refused(dflash_table_load(engine, path, "lm_head", &table, &err), DFLASH_ERR_REFUSED, &err,
               "table.tensor.missing");
    pc_refused(dflash_table_load(engine, path, "norm.weight", &table, &err), DFLASH_ERR_REFUSED, &err,
               "table.tensor.shape");
    ck_assert_int_eq(dflash_table_load(engine, CAPPED "/nothing", "lm_head.weight", &table, &err), DFLASH_ERR_IO);
    ck_assert_ptr_null(table);
    dflash_table_destroy(NULL);
    dflash_engine_destroy(engine);
}
END_TEST

START_TEST(tables_of_another_target_and_ids_outside_are_refused) {
    dflash_engine *engine = op_engine(DFLASH_ISA_BEST, 1, false);
    dflash_draft *draft = pc_load(engine, CAPPED); /* H = 64, mask 300 */
    dflash_error err = {0};
    values w = make_values("F32", 310 * 65, 57);
    dflash_table *wide = make_table(engine, "F32", 310, 65, w.stored),
                 *fits = make_table(engine, "F32", 301, 64, w.stored);
    dflash_table *no_mask = make_table(engine, "F32", 300, 64, w.stored);
    float *out = op_floats(2 * 310 + 5 * 65), *rows = op_floats(2 * 65);
    op_random random = {58};
    op_fill(&random, rows, 2 * 65);
    pc_refused(dflash_logits(draft, wide, rows, 1, out, &err), DFLASH_ERR_REFUSED, &err, "table.hidden");
    pc_refused(dflash_logits(draft, fits, rows, 0, out, &err), DFLASH_ERR_ARGUMENT, &err, "logits.rows");
    pc_refused(dflash_embed_block(draft, wide, 0, out, &err), DFLASH_ERR_REFUSED, &err, "table.hidden");
    pc_refused(dflash_embed_block(draft, fits, -1, out, &err), DFLASH_ERR_REFUSED, &err, "table.id");
    pc_refused(dflash_embed_block(draft, fits, 301, out, &err), DFLASH_ERR_REFUSED, &err, "table.id");
    pc_refused(dflash_embed_block(draft, no_mask, 0, out, &err), DFLASH_ERR_REFUSED, &err, "table.id");
    ck_assert_ptr_nonnull(strstr(err.message, "mask"));
    ck_assert_int_eq(dflash_embed_block(draft, fits, 300, out, &err), DFLASH_OK);
    const int32_t same[301] = {0};
    ck_assert_int_eq(dflash_table_set_offsets(fits, same, 400, &err), DFLASH_OK);
    pc_refused(dflash_embed_block(draft, fits, 0, out, &err), DFLASH_ERR_REFUSED, &err, "table.embedding.reduced");
    dflash_table_destroy(wide);
    dflash_table_destroy(fits);
    dflash_table_destroy(no_mask);
    free_values(&w);
    free(out);
    free(rows);
    dflash_draft_destroy(draft);
    dflash_engine_destroy(engine);
}
END_TEST

START_TEST(offsets_that_are_no_map_are_refused_and_leave_the_last_map) {
    dflash_engine *engine = op_engine(DFLASH_ISA_BEST, 1, false);
    dflash_draft *draft = pc_load(engine, PLAIN);
    const float w[4] = {0}, logits[4] = {0, 5, 1, 2};
    dflash_table *table = make_table(engine, "F32", 4, 1, w);
    dflash_error err = {0};
    const int32_t good[] = {3, 3, 5, 6}, negative[] = {-1, 0, 0, 0}, beyond[] = {0, 0, 0, 7}, twice[] = {2, 0, 0, 0};
    const int32_t far[] = {INT32_MAX, INT32_MAX, 0, 0};
    ck_assert_int_eq(dflash_table_set_offsets(table, good, 10, &err), DFLASH_OK);
    pc_refused(dflash_table_set_offsets(table, negative, 10, &err), DFLASH_ERR_REFUSED, &err, "table.offset.range");
    pc_refused(dflash_table_set_offsets(table, beyond, 10, &err), DFLASH_ERR_REFUSED, &err, "table.offset.range");
    pc_refused(dflash_table_set_offsets(table, far, INT32_MAX, &err), DFLASH_ERR_REFUSED, &err, "table.offset.range");
    pc_refused(dflash_table_set_offsets(table, twice, 10, &err), DFLASH_ERR_REFUSED, &err, "table.offset.twice");
    pc_refused(dflash_table_set_offsets(table, good, 3, &err), DFLASH_ERR_REFUSED, &err, "table.offset.vocab");
    const dflash_proposal_options greedy = {.temperature = 0};
    int32_t token = -1;
    const dflash_proposal out = {.token = &token};
    ck_assert_int_eq(dflash_propose(draft, table, logits, NULL, 1, 4, 0, &greedy, &out, &err), DFLASH_OK);
    ck_assert_int_eq(token, 4); /* row 1, offset 3 */
    dflash_table_destroy(table);
    dflash_draft_destroy(draft);
    dflash_engine_destroy(engine);
}
END_TEST

Suite *suite_logits(void) {
    Suite *suite = suite_create("logits");
    TCase *tcase = tcase_create("logits");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, scale_and_cap_reach_every_tail_and_work_in_place);
    tcase_add_test(tcase, logits_are_the_product_then_the_multiplier_then_the_cap);
    tcase_add_test(tcase, logits_agree_with_double_precision);
    tcase_add_test(tcase, a_loaded_table_has_the_bits_of_a_created_one);
    tcase_add_test(tcase, the_embedding_scale_applies_to_the_anchor_and_to_every_mask);
    tcase_add_test(tcase, tables_that_are_none_are_refused);
    tcase_add_test(tcase, tables_of_another_target_and_ids_outside_are_refused);
    tcase_add_test(tcase, offsets_that_are_no_map_are_refused_and_leave_the_last_map);
    suite_add_tcase(suite, tcase);
    return suite;
}
