/*
 * test_conv.c - the DFlash2 convolution: the operation against scalar code written from ops.h, the two public functions
 * against the checkpoint's own tensors, and their place in the layer program.
 */
#include "draft/conv.h"
#include "support/op_case.h"
#include "support/propose_case.h"
#include "run/recording.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define TWO_TAPS "fixtures/small/tiny-dflash2"
#define THREE_TAPS "fixtures/small/tiny-dflash2-k3"

static const char *const checkpoints[] = {TWO_TAPS, THREE_TAPS};
enum { CHECKPOINTS = 2 };

/* ---- The operation ---- */

/* One element by itself. */
static float scalar_conv(const df_conv_args *a, int p, int c) {
    const int groups = a->hidden / a->group;
    float y = 0.0f;
    for (int o = 0; o < a->kernel; o++) {
        if (p - o < 0) break;
        const float x = a->x[(p - o) * a->hidden + c];
        y = fmaf(a->base[o * a->hidden + c], x, y);
        y = fmaf(a->dyn[(size_t)p * a->dyn_stride + (size_t)(o * groups + c / a->group)], x, y);
    }
    return y;
}

static void check_conv(dflash_engine *engine, int rows, int hidden, int kernel, int group, op_random *random) {
    const size_t count = (size_t)(rows * hidden), groups = (size_t)(hidden / group);
    const size_t stride = 2 * (size_t)kernel * groups;
    /* The rows before and after the block are NaN: whoever reads one shows it. */
    float *x = op_floats(count + 2 * (size_t)hidden), *base = op_floats((size_t)(kernel * hidden));
    float *dyn = op_floats((size_t)rows * stride), *expected = op_floats(count), *y = op_output(count);
    dflash_error err = {0};
    char what[96];
    snprintf(what, sizeof what, "%s conv rows=%d H=%d k=%d group=%d", dflash_engine_isa(engine), rows, hidden, kernel,
             group);
    op_fill(random, x, count + 2 * (size_t)hidden);
    op_fill(random, base, (size_t)(kernel * hidden));
    op_fill(random, dyn, (size_t)rows * stride);
    for (int c = 0; c < hidden; c++) x[c] = x[(size_t)hidden + count + (size_t)c] = NAN;
    const df_conv_args args = {.x = x + hidden,
                               .base = base,
                               .dyn = dyn,
                               .dyn_stride = stride,
                               .rows = rows,
                               .hidden = hidden,
                               .kernel = kernel,
                               .group = group,
                               .y = y};
    for (int p = 0; p < rows; p++)
        for (int c = 0; c < hidden; c++) expected[p * hidden + c] = scalar_conv(&args, p, c);
    ck_assert_int_eq(engine->ops->conv(engine, &args, &err), DFLASH_OK);
    op_output_check(y, count, what);
    op_expect_bits(expected, y, count, what);
    free(x);
    free(base);
    free(dyn);
    free(expected);
    op_output_free(y);
}

START_TEST(convolutions_have_the_documented_bits_for_every_kernel_and_group) {
    static const int row_counts[] = {1, 2, 5, 16};
    static const int sizes[][2] = {{48, 1}, {48, 16}, {48, 48}, {60, 12}, {96, 3}, {7, 7}}; /* H, group */
    op_random random = {40};
    dflash_isa isa[OP_ISAS];
    const int isas = op_isas(isa);
    for (int e = 0; e < isas; e++)
        for (int threads = 1; threads <= 3; threads++) {
            dflash_engine *engine = op_engine(isa[e], threads, false);
            for (size_t r = 0; r < sizeof row_counts / sizeof *row_counts; r++)
                for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                    for (int kernel = 1; kernel <= 4; kernel++)
                        check_conv(engine, row_counts[r], sizes[s][0], kernel, sizes[s][1], &random);
            dflash_engine_destroy(engine);
        }
}
END_TEST

START_TEST(a_convolution_worked_by_hand) {
    /* H = 4, two groups, two taps. Row 0 has nothing to its left; row 1 takes both taps. */
    const float x[] = {1, 2, 3, 4, 10, 20, 30, 40};
    const float base[] = {1, 1, 2, 2, 0.5f, -0.5f, 0, 1};
    const float dyn[] = {/* row 0: */ 1, 0, 100, 100, /* row 1: */ 0, 1, 2, -1};
    const float expected[] = {2, 4, 6, 8, 10 + 2.5f, 20 + 3, 90 - 3, 120};
    dflash_engine *engine = op_engine(DFLASH_ISA_BEST, 1, false);
    float *y = op_output(8);
    dflash_error err = {0};
    const df_conv_args args = {
        .x = x, .base = base, .dyn = dyn, .dyn_stride = 4, .rows = 2, .hidden = 4, .kernel = 2, .group = 2, .y = y};
    ck_assert_int_eq(engine->ops->conv(engine, &args, &err), DFLASH_OK);
    op_output_check(y, 8, "conv");
    op_expect_bits(expected, y, 8, "conv");
    op_output_free(y);
    dflash_engine_destroy(engine);
}
END_TEST

/* ---- The public functions ---- */

/* The whole tensor, widened. */
static float *tensor(const dflash_draft *draft, const char *name) {
    for (int i = 0; i < dflash_draft_tensor_count(draft); i++) {
        const dflash_tensor_view view = dflash_draft_tensor(draft, i);
        if (strcmp(view.name, name) != 0) continue;
        ck_assert_str_eq(view.dtype, "BF16");
        float *values = op_floats(view.bytes / 2);
        for (size_t j = 0; j < view.bytes / 2; j++) {
            uint16_t narrow;
            memcpy(&narrow, (const char *)view.data + 2 * j, sizeof narrow);
            values[j] = df_bf16_to_f32(narrow);
        }
        return values;
    }
    ck_abort_msg("no tensor %s", name);
    return NULL;
}

/* One convolution of a checkpoint, from its tensors by name. */
typedef struct by_hand {
    float *base, *projection; /* [2, k, H], [2 k G, H] */
    const dflash_config *c;
    int groups, width;
} by_hand;

static by_hand by_hand_of(const dflash_draft *draft, int layer, dflash_sublayer sublayer) {
    char name[96];
    const char *part = sublayer == DFLASH_SUBLAYER_ATTENTION ? "attention_conv" : "mlp_conv";
    by_hand h = {.c = dflash_draft_config(draft)};
    h.groups = h.c->hidden / h.c->conv_group;
    h.width = 2 * h.c->conv_kernel * h.groups;
    snprintf(name, sizeof name, "layers.%d.%s.base_kernel", layer, part);
    h.base = tensor(draft, name);
    snprintf(name, sizeof name, "layers.%d.%s.kernel_projection.weight", layer, part);
    h.projection = tensor(draft, name);
    return h;
}

static void by_hand_free(by_hand *h) {
    free(h->base);
    free(h->projection);
}

static void by_hand_apply(const by_hand *h, int half, const float *x, const float *dyn, int rows, float *y) {
    const dflash_config *c = h->c;
    for (int p = 0; p < rows; p++)
        for (int ch = 0; ch < c->hidden; ch++) {
            float sum = 0.0f;
            for (int o = 0; o < c->conv_kernel && o <= p; o++) {
                const float value = x[(p - o) * c->hidden + ch];
                sum = fmaf(h->base[(half * c->conv_kernel + o) * c->hidden + ch], value, sum);
                sum =
                    fmaf(dyn[p * h->width + (half * c->conv_kernel + o) * h->groups + ch / c->conv_group], value, sum);
            }
            y[p * c->hidden + ch] = sum;
        }
}

static void check_public(dflash_draft *draft, int layer, dflash_sublayer sublayer, int rows, op_random *random) {
    by_hand h = by_hand_of(draft, layer, sublayer);
    const size_t count = (size_t)(rows * h.c->hidden), kernels = (size_t)(rows * h.width);
    float *x = op_floats(count), *z = op_floats(count), *expected = op_floats(count),
          *expected_dyn = op_floats(kernels);
    float *y = op_output(count), *dyn = op_output(kernels);
    dflash_error err = {0};
    op_fill(random, x, count);
    op_fill(random, z, count);
    for (int p = 0; p < rows; p++)
        for (int i = 0; i < h.width; i++)
            expected_dyn[p * h.width + i] = op_dot(h.projection + i * h.c->hidden, x + p * h.c->hidden, h.c->hidden);
    ck_assert_int_eq(dflash_conv_prepare(draft, layer, sublayer, x, rows, y, dyn, &err), DFLASH_OK);
    op_output_check(dyn, kernels, "dyn");
    op_output_check(y, count, "prepare");
    op_expect_bits(expected_dyn, dyn, kernels, "dyn");
    by_hand_apply(&h, 0, x, expected_dyn, rows, expected);
    op_expect_bits(expected, y, count, "prepare");
    by_hand_apply(&h, 1, x, expected_dyn, rows, expected);
    ck_assert_msg(!op_same_bits(expected, y, count), "both halves give the same: the test cannot tell them apart");
    ck_assert_int_eq(dflash_conv_finish(draft, layer, sublayer, z, dyn, rows, y, &err), DFLASH_OK);
    op_output_check(y, count, "finish");
    by_hand_apply(&h, 1, z, expected_dyn, rows, expected);
    op_expect_bits(expected, y, count, "finish");
    by_hand_free(&h);
    free(x);
    free(z);
    free(expected);
    free(expected_dyn);
    op_output_free(y);
    op_output_free(dyn);
}

START_TEST(prepare_and_finish_take_the_halves_and_kernels_of_their_own_layer_and_sublayer) {
    op_random random = {41};
    for (int i = 0; i < CHECKPOINTS; i++) {
        dflash_engine *engine = op_engine(DFLASH_ISA_BEST, 2, true);
        dflash_draft *draft = pc_load(engine, checkpoints[i]);
        for (int layer = 0; layer < dflash_draft_config(draft)->n_layers; layer++)
            for (int rows = 1; rows <= 16; rows = 3 * rows + 1) {
                check_public(draft, layer, DFLASH_SUBLAYER_ATTENTION, rows, &random);
                check_public(draft, layer, DFLASH_SUBLAYER_MLP, rows, &random);
            }
        dflash_draft_destroy(draft);
        dflash_engine_destroy(engine);
    }
}
END_TEST

START_TEST(a_row_depends_on_the_rows_to_its_left_alone) {
    dflash_engine *engine = op_engine(DFLASH_ISA_BEST, 1, false);
    dflash_draft *draft = pc_load(engine, THREE_TAPS);
    const dflash_config *c = dflash_draft_config(draft);
    const size_t width = (size_t)c->hidden, kernels = (size_t)df_conv_width(c);
    enum { ROWS = 6, CHANGED = 2 };
    float *x = op_floats(ROWS * width), *dyn = op_floats(ROWS * kernels), *other_dyn = op_floats(ROWS * kernels);
    float *y = op_floats(ROWS * width), *other = op_floats(ROWS * width);
    op_random random = {42};
    dflash_error err = {0};
    op_fill(&random, x, ROWS * width);
    ck_assert_int_eq(dflash_conv_prepare(draft, 1, DFLASH_SUBLAYER_MLP, x, ROWS, y, dyn, &err), DFLASH_OK);
    ck_assert_int_eq(dflash_conv_prepare(draft, 1, DFLASH_SUBLAYER_MLP, x, CHANGED + 1, other, other_dyn, &err),
                     DFLASH_OK);
    op_expect_bits(y, other, (CHANGED + 1) * width, "fewer rows");
    for (size_t i = 0; i < width; i++) x[CHANGED * width + i] += 1.0f;
    ck_assert_int_eq(dflash_conv_prepare(draft, 1, DFLASH_SUBLAYER_MLP, x, ROWS, other, other_dyn, &err), DFLASH_OK);
    op_expect_bits(y, other, CHANGED * width, "rows before the changed one");
    for (int p = CHANGED; p < CHANGED + 3; p++) /* itself and the two that reach back to it */
        ck_assert(!op_same_bits(y + (size_t)p * width, other + (size_t)p * width, width));
    op_expect_bits(y + (CHANGED + 3) * width, other + (CHANGED + 3) * width, (ROWS - CHANGED - 3) * width,
                   "rows beyond");
    free(x);
    free(dyn);
    free(other_dyn);
    free(y);
    free(other);
    dflash_draft_destroy(draft);
    dflash_engine_destroy(engine);
}
END_TEST

START_TEST(calls_that_name_no_convolution_are_refused) {
    dflash_engine *engine = op_engine(DFLASH_ISA_BEST, 1, false);
    dflash_draft *draft = pc_load(engine, TWO_TAPS), *plain = pc_load(engine, "fixtures/small/tiny-plain");
    float x[256] = {0}, y[256], dyn[256];
    dflash_error err = {0};
    const dflash_sublayer mlp = DFLASH_SUBLAYER_MLP;
    pc_refused(dflash_conv_prepare(plain, 0, mlp, x, 1, y, dyn, &err), DFLASH_ERR_REFUSED, &err, "conv.family");
    pc_refused(dflash_conv_finish(plain, 0, mlp, x, dyn, 1, y, &err), DFLASH_ERR_REFUSED, &err, "conv.family");
    pc_refused(dflash_conv_prepare(draft, 2, mlp, x, 1, y, dyn, &err), DFLASH_ERR_ARGUMENT, &err, "conv.layer");
    pc_refused(dflash_conv_finish(draft, -1, mlp, x, dyn, 1, y, &err), DFLASH_ERR_ARGUMENT, &err, "conv.layer");
    pc_refused(dflash_conv_prepare(draft, 0, (dflash_sublayer)2, x, 1, y, dyn, &err), DFLASH_ERR_ARGUMENT, &err,
               "conv.sublayer");
    pc_refused(dflash_conv_prepare(draft, 0, mlp, x, 0, y, dyn, &err), DFLASH_ERR_ARGUMENT, &err, "conv.rows");
    pc_refused(dflash_conv_finish(draft, 0, mlp, x, dyn, -1, y, &err), DFLASH_ERR_ARGUMENT, &err, "conv.rows");
    dflash_draft_destroy(draft);
    dflash_draft_destroy(plain);
    dflash_engine_destroy(engine);
}
END_TEST

/* ---- In the layers ---- */

enum { CONTEXT = 37, START = 900 };

/* A block over a seeded context, with every stage recorded. */
typedef struct forward {
    dflash_engine *engine;
    dflash_draft *draft;
    const dflash_config *c;
    float *features, *noise, *out;
    int32_t pos[CONTEXT + 16];
    dp_recording stages;
} forward;

static forward forward_new(const char *dir, dflash_isa isa, int threads) {
    forward f = {.engine = op_engine(isa, threads, true)};
    f.draft = pc_load(f.engine, dir);
    f.c = dflash_draft_config(f.draft);
    const size_t width = (size_t)f.c->hidden, block = (size_t)f.c->block;
    ck_assert_int_le(f.c->block, 16);
    f.features = op_floats(CONTEXT * width);
    f.noise = op_floats(block * width);
    f.out = op_output(block * width);
    op_random random = {43};
    op_fill(&random, f.features, CONTEXT * width);
    op_fill(&random, f.noise, block * width);
    for (int i = 0; i < CONTEXT + f.c->block; i++) f.pos[i] = START + i;
    return f;
}

static void forward_block(forward *f) {
    dflash_error err = {0};
    dflash_draft_observe(f->draft, dp_recording_observe, &f->stages);
    ck_assert_msg(dflash_forward_block(f->draft, f->features, f->noise, f->pos, CONTEXT, f->out, &err) == DFLASH_OK,
                  "%s", err.message);
    dflash_draft_observe(f->draft, NULL, NULL);
    op_output_check(f->out, (size_t)(f->c->block * f->c->hidden), "forward_block");
}

static void forward_free(forward *f) {
    dp_recording_release(&f->stages);
    free(f->features);
    free(f->noise);
    op_output_free(f->out);
    dflash_draft_destroy(f->draft);
    dflash_engine_destroy(f->engine);
}

static const dp_recorded *stage(const forward *f, dflash_stage which, int layer, int rank) {
    const dp_recorded *found = dp_recording_find(&f->stages, which, layer);
    char name[DFLASH_STAGE_NAME_MAX];
    ck_assert_msg(found != NULL, "%s was not observed", dflash_stage_name(which, layer, name));
    ck_assert_int_eq(found->rank, rank);
    return found;
}

/* The last rows of a stage are the product of the block's `rows` with `w`. */
static void check_reads(forward *f, dflash_stage which, int layer, const df_matrix *w, const float *rows) {
    const size_t count = (size_t)f->c->block * (size_t)w->out;
    const dp_recorded *found = stage(f, which, layer, 2);
    float *expected = op_output(count);
    dflash_error err = {0};
    char name[DFLASH_STAGE_NAME_MAX];
    ck_assert_int_eq(f->engine->ops->matmul(f->engine, w, NULL, rows, f->c->block, expected, &err), DFLASH_OK);
    op_expect_bits(expected, found->value + (size_t)(found->dim[0] - f->c->block) * (size_t)w->out, count,
                   dflash_stage_name(which, layer, name));
    op_output_free(expected);
}

static void check_sublayer(forward *f, int layer, dflash_sublayer sublayer) {
    const bool attention = sublayer == DFLASH_SUBLAYER_ATTENTION;
    const df_layer_weights *w = &f->draft->weights.layer[layer];
    const int rows = f->c->block, kernels = df_conv_width(f->c);
    const size_t count = (size_t)(rows * f->c->hidden);
    float *y = op_output(count), *dyn = op_output((size_t)(rows * kernels));
    dflash_error err = {0};
    const dp_recorded *in = stage(f, attention ? DFLASH_STAGE_ATTN_NORM : DFLASH_STAGE_MLP_NORM, layer, 2);
    const dp_recorded *seen = stage(f, attention ? DFLASH_STAGE_ATTN_CONV_DYN : DFLASH_STAGE_MLP_CONV_DYN, layer, 4);
    ck_assert(seen->dim[0] == rows && seen->dim[1] == 2 && seen->dim[2] == f->c->conv_kernel &&
              seen->dim[3] == f->c->hidden / f->c->conv_group);
    ck_assert_int_eq(dflash_conv_prepare(f->draft, layer, sublayer, in->value, rows, y, dyn, &err), DFLASH_OK);
    op_expect_bits(dyn, seen->value, (size_t)(rows * kernels), "conv_dyn");
    const dp_recorded *mixed = stage(f, attention ? DFLASH_STAGE_ATTN_CONV_IN : DFLASH_STAGE_MLP_CONV_IN, layer, 2);
    ck_assert(mixed->dim[0] == rows && mixed->dim[1] == f->c->hidden);
    op_expect_bits(y, mixed->value, count, "conv_in");
    /* Everything that the sublayer reads is the convolved rows, not the normed ones. */
    if (attention) {
        check_reads(f, DFLASH_STAGE_ATTN_Q_PROJ, layer, &w->q, mixed->value);
        check_reads(f, DFLASH_STAGE_ATTN_K_PROJ, layer, &w->k, mixed->value);
        check_reads(f, DFLASH_STAGE_ATTN_V, layer, &w->v, mixed->value);
    } else {
        check_reads(f, DFLASH_STAGE_MLP_GATE, layer, &w->gate, mixed->value);
        check_reads(f, DFLASH_STAGE_MLP_UP, layer, &w->up, mixed->value);
    }
    const dp_recorded *result = stage(f, attention ? DFLASH_STAGE_ATTN_O_PROJ : DFLASH_STAGE_MLP_DOWN, layer, 2);
    const dp_recorded *after = stage(f, attention ? DFLASH_STAGE_ATTN_CONV_OUT : DFLASH_STAGE_MLP_CONV_OUT, layer, 2);
    ck_assert_int_eq(dflash_conv_finish(f->draft, layer, sublayer, result->value, dyn, rows, y, &err), DFLASH_OK);
    op_expect_bits(y, after->value, count, "conv_out");
    /* And what joins the residual stream is the convolved output. */
    const float *before = !attention  ? stage(f, DFLASH_STAGE_ATTN_RESIDUAL, layer, 2)->value
                          : layer > 0 ? stage(f, DFLASH_STAGE_LAYER_OUT, layer - 1, 2)->value
                                      : f->noise;
    for (size_t i = 0; i < count; i++) y[i] = before[i] + after->value[i];
    op_expect_bits(y, stage(f, attention ? DFLASH_STAGE_ATTN_RESIDUAL : DFLASH_STAGE_LAYER_OUT, layer, 2)->value, count,
                   "stream");
    op_output_free(y);
    op_output_free(dyn);
}

START_TEST(every_sublayer_reads_and_writes_through_its_convolution) {
    for (int i = 0; i < CHECKPOINTS; i++) {
        forward f = forward_new(checkpoints[i], DFLASH_ISA_BEST, 2);
        forward_block(&f);
        for (int layer = 0; layer < f.c->n_layers; layer++) {
            check_sublayer(&f, layer, DFLASH_SUBLAYER_ATTENTION);
            check_sublayer(&f, layer, DFLASH_SUBLAYER_MLP);
        }
        forward_free(&f);
    }
}
END_TEST

START_TEST(context_rows_are_projected_without_a_convolution) {
    for (int i = 0; i < CHECKPOINTS; i++) {
        forward f = forward_new(checkpoints[i], DFLASH_ISA_BEST, 1);
        forward_block(&f);
        for (int layer = 0; layer < f.c->n_layers; layer++) {
            const df_matrix *k = &f.draft->weights.layer[layer].k;
            const size_t count = CONTEXT * (size_t)k->out;
            float *expected = op_output(count);
            dflash_error err = {0};
            ck_assert_int_eq(f.engine->ops->matmul(f.engine, k, NULL, f.features, CONTEXT, expected, &err), DFLASH_OK);
            op_expect_bits(expected, stage(&f, DFLASH_STAGE_ATTN_K_PROJ, layer, 2)->value, count, "context keys");
            op_output_free(expected);
        }
        forward_free(&f);
    }
}
END_TEST

START_TEST(a_plain_drafter_has_no_convolution_stages) {
    forward f = forward_new("fixtures/small/tiny-plain", DFLASH_ISA_BEST, 1);
    forward_block(&f);
    ck_assert_ptr_nonnull(dp_recording_find(&f.stages, DFLASH_STAGE_ATTN_NORM, 0));
    ck_assert_ptr_null(dp_recording_find(&f.stages, DFLASH_STAGE_ATTN_CONV_IN, 0));
    ck_assert_ptr_null(dp_recording_find(&f.stages, DFLASH_STAGE_MLP_CONV_OUT, 0));
    forward_free(&f);
}
END_TEST

START_TEST(a_round_has_the_bits_of_a_block_on_every_instruction_set_and_thread_count) {
    dflash_isa isa[OP_ISAS];
    const int isas = op_isas(isa);
    for (int i = 0; i < CHECKPOINTS; i++) {
        forward first = forward_new(checkpoints[i], DFLASH_ISA_GENERIC, 1);
        forward_block(&first);
        const size_t count = (size_t)(first.c->block * first.c->hidden), width = (size_t)first.c->hidden;
        for (int e = 0; e < isas; e++)
            for (int threads = 1; threads <= 3; threads++) {
                forward f = forward_new(checkpoints[i], isa[e], threads);
                dflash_kv *kv = NULL;
                dflash_error err = {0};
                forward_block(&f);
                op_expect_bits(first.out, f.out, count, dflash_engine_isa(f.engine));
                ck_assert_int_eq(dflash_kv_create(f.draft, CONTEXT + 2 * f.c->block, &kv, &err), DFLASH_OK);
                for (int row = 0, rows; row < CONTEXT; row += rows) {
                    rows = row + threads * 4 < CONTEXT ? threads * 4 : CONTEXT - row;
                    ck_assert_int_eq(
                        dflash_ingest_ctx(f.draft, kv, f.features + (size_t)row * width, f.pos + row, rows, &err),
                        DFLASH_OK);
                }
                float *round = op_output(count);
                for (int again = 0; again < 2; again++) /* nothing is kept between rounds */
                    ck_assert_int_eq(dflash_forward_round(f.draft, kv, f.noise, f.pos + CONTEXT, round, &err),
                                     DFLASH_OK);
                op_expect_bits(f.out, round, count, "forward_round");
                op_output_free(round);
                dflash_kv_destroy(kv);
                forward_free(&f);
            }
        forward_free(&first);
    }
}
END_TEST

Suite *suite_conv(void) {
    Suite *suite = suite_create("conv");
    TCase *tcase = tcase_create("conv");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, convolutions_have_the_documented_bits_for_every_kernel_and_group);
    tcase_add_test(tcase, a_convolution_worked_by_hand);
    tcase_add_test(tcase, prepare_and_finish_take_the_halves_and_kernels_of_their_own_layer_and_sublayer);
    tcase_add_test(tcase, a_row_depends_on_the_rows_to_its_left_alone);
    tcase_add_test(tcase, calls_that_name_no_convolution_are_refused);
    tcase_add_test(tcase, every_sublayer_reads_and_writes_through_its_convolution);
    tcase_add_test(tcase, context_rows_are_projected_without_a_convolution);
    tcase_add_test(tcase, a_plain_drafter_has_no_convolution_stages);
    tcase_add_test(tcase, a_round_has_the_bits_of_a_block_on_every_instruction_set_and_thread_count);
    suite_add_tcase(suite, tcase);
    return suite;
}
