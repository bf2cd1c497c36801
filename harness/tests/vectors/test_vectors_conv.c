/*
 * test_vectors_conv.c - dflash_conv_prepare and dflash_conv_finish on stored rows against the reference's float64.
 *
 * The limits are forward error bounds from the operands: gamma_n sum |w||x| with n = 64 + log2(segments) + 1 for the
 * projection, and n = 2 min(k, p + 1), the fused steps of row p, for a convolution, to which prepare adds what its own
 * kernels inherit.
 */
#include "support/vectors_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_CASES = 12, MOST_ROWS = 16 };

typedef struct conv_case {
    vc_model model;
    const df_conv_weights *weights;
    int layer, rows, hidden, taps, group, groups, values, width; /* values = rows H, width = 2 k G */
    dflash_sublayer sublayer;
    float *prepare_x, *finish_x, *finish_dyn;
    double *prepare_dyn, *prepare_y, *finish_y;
} conv_case;

static void open_case(const vf_file *file, const char *name, conv_case *c) {
    vf_group group;
    vf_group_open(file, "conv", name, &group);
    *c = (conv_case){.layer = vf_param_int(&group, "layer")};
    vc_load(&group, &c->model);
    const dflash_config *config = dflash_draft_config(c->model.draft);
    const char *sublayer = vf_param_text(&group, "sublayer");
    ck_assert(strcmp(sublayer, "attention") == 0 || strcmp(sublayer, "mlp") == 0);
    c->sublayer = sublayer[0] == 'a' ? DFLASH_SUBLAYER_ATTENTION : DFLASH_SUBLAYER_MLP;
    const df_layer_weights *layer = &c->model.draft->weights.layer[c->layer];
    c->weights = c->sublayer == DFLASH_SUBLAYER_ATTENTION ? &layer->attn_conv : &layer->mlp_conv;
    c->hidden = config->hidden;
    c->taps = config->conv_kernel;
    c->group = config->conv_group;
    c->groups = c->hidden / c->group;
    ck_assert_int_eq(vf_param_int(&group, "kernel_size"), c->taps);
    ck_assert_int_eq(vf_param_int(&group, "group_size"), c->group);
    vf_param_int(&group, "seed");
    c->rows = vf_rows(&group, "prepare_x");
    ck_assert_int_le(c->rows, MOST_ROWS);
    c->values = c->rows * c->hidden;
    c->width = 2 * c->taps * c->groups;
    const int64_t plain[4] = {c->rows, c->hidden}, kernels[4] = {c->rows, 2, c->taps, c->groups};
    c->prepare_x = vf_floats(&group, "prepare_x", plain);
    c->finish_x = vf_floats(&group, "finish_x", plain);
    c->finish_dyn = vf_floats(&group, "finish_dyn", kernels);
    c->prepare_dyn = vf_doubles(&group, "prepare_dyn", kernels);
    c->prepare_y = vf_doubles(&group, "prepare_y", plain);
    c->finish_y = vf_doubles(&group, "finish_y", plain);
    vf_group_close(&group);
}

static void close_case(conv_case *c) {
    free(c->prepare_x);
    free(c->finish_x);
    free(c->finish_dyn);
    free(c->prepare_dyn);
    free(c->prepare_y);
    free(c->finish_y);
    vc_release(&c->model);
}

/* ---- Bounds ---- */

static void *make(size_t count, size_t size) {
    void *memory = calloc(count, size);
    ck_assert_ptr_nonnull(memory);
    return memory;
}

/* dyn[rows, 2, k, G] of x. */
static dp_real *projected(const conv_case *c, const float *x) {
    dp_real *dyn = make((size_t)(c->rows * c->width), sizeof *dyn), *row = make((size_t)c->hidden, sizeof *row);
    for (int p = 0; p < c->rows; p++) {
        ds_exact(x + p * c->hidden, c->hidden, row);
        ds_product(&c->weights->projection, NULL, row, dyn + p * c->width);
    }
    free(row);
    return dyn;
}

static dp_real *exact(const float *x, int n) {
    dp_real *value = make((size_t)n, sizeof *value);
    ds_exact(x, n, value);
    return value;
}

/* One value of x convolved with half `half` of the kernels. */
static dp_real convolved_at(const conv_case *c, int half, const float *x, const dp_real *dyn, int p, int channel) {
    double sum = 0, size = 0, inherited = 0;
    const int seen = p + 1 < c->taps ? p + 1 : c->taps;
    for (int o = 0; o < seen; o++) {
        const dp_real kernel = dyn[p * c->width + (half * c->taps + o) * c->groups + channel / c->group];
        const double base = (double)c->weights->base[(half * c->taps + o) * c->hidden + channel];
        const double value = (double)x[(p - o) * c->hidden + channel];
        sum += base * value + kernel.value * value;
        size += fabs(base * value) + fabs(kernel.value * value);
        inherited += kernel.error * fabs(value);
    }
    return (dp_real){sum, 1.01 * (inherited + 2 * seen * 0x1p-24 * size)};
}

static dp_real *convolved(const conv_case *c, int half, const float *x, const dp_real *dyn) {
    dp_real *y = make((size_t)c->values, sizeof *y);
    for (int p = 0; p < c->rows; p++)
        for (int channel = 0; channel < c->hidden; channel++)
            y[p * c->hidden + channel] = convolved_at(c, half, x, dyn, p, channel);
    return y;
}

/* ---- Our side ---- */

/* Values of ours outside the bounds of the stored case, for each of its results. */
typedef struct outside {
    int dyn, prepare, finish;
} outside;

/* Runs the case on the given rows and kernels, which an injected fault may have changed, on this layer and sublayer. */
static outside run(const conv_case *c, int layer, dflash_sublayer sublayer, const float *prepare_x,
                   const float *finish_x, const float *finish_dyn) {
    dflash_error err = {0};
    float *dyn = make((size_t)(c->rows * c->width), sizeof *dyn), *y = make((size_t)c->values, sizeof *y),
          *z = make((size_t)c->values, sizeof *z);
    dflash_draft *draft = c->model.draft;
    ck_assert_int_eq(dflash_conv_prepare(draft, layer, sublayer, prepare_x, c->rows, y, dyn, &err), DFLASH_OK);
    ck_assert_int_eq(dflash_conv_finish(draft, layer, sublayer, finish_x, finish_dyn, c->rows, z, &err), DFLASH_OK);
    dp_real *prepare_kernels = projected(c, c->prepare_x), *finish_kernels = exact(c->finish_dyn, c->rows * c->width);
    dp_real *prepared = convolved(c, 0, c->prepare_x, prepare_kernels),
            *finished = convolved(c, 1, c->finish_x, finish_kernels);
    const outside result = {vc_outside(dyn, c->prepare_dyn, prepare_kernels, c->rows * c->width),
                            vc_outside(y, c->prepare_y, prepared, c->values),
                            vc_outside(z, c->finish_y, finished, c->values)};
    free(dyn);
    free(y);
    free(z);
    free(prepare_kernels);
    free(finish_kernels);
    free(prepared);
    free(finished);
    return result;
}

static void for_each_case(void (*check)(const conv_case *c)) {
    vf_file file;
    int kernels[2] = {0}, sublayers[2] = {0}, short_blocks = 0;
    vf_open(&file);
    dp_h5_names names = vf_cases(&file, "conv", LEAST_CASES);
    for (int i = 0; i < names.count; i++) {
        conv_case c;
        open_case(&file, names.name[i], &c);
        check(&c);
        ck_assert(c.taps == 2 || c.taps == 3);
        kernels[c.taps - 2]++;
        sublayers[c.sublayer]++;
        short_blocks += c.rows < c.taps;
        close_case(&c);
    }
    dp_h5_names_release(&names);
    vf_close(&file);
    ck_assert_msg(kernels[0] > 0 && kernels[1] > 0 && sublayers[0] > 0 && sublayers[1] > 0 && short_blocks > 0,
                  "the stored cases lack a kernel size, a sublayer or a block shorter than the kernel");
}

static void agrees(const conv_case *c) {
    const outside all = run(c, c->layer, c->sublayer, c->prepare_x, c->finish_x, c->finish_dyn);
    ck_assert_msg(all.dyn + all.prepare + all.finish == 0,
                  "%d kernels, %d prepared and %d finished values of %d are outside their bounds (%s, %d rows)",
                  all.dyn, all.prepare, all.finish, c->values, c->model.path, c->rows);
}

START_TEST(convolutions_agree_with_the_reference_within_float32_rounding) { for_each_case(agrees); }
END_TEST

/* ---- Injected faults ---- */

static void halves_swapped(const conv_case *c) {
    float *swapped = make((size_t)(c->rows * c->width), sizeof *swapped);
    const int half = c->width / 2;
    for (int p = 0; p < c->rows; p++) {
        memcpy(swapped + p * c->width, c->finish_dyn + p * c->width + half, (size_t)half * sizeof *swapped);
        memcpy(swapped + p * c->width + half, c->finish_dyn + p * c->width, (size_t)half * sizeof *swapped);
    }
    const outside all = run(c, c->layer, c->sublayer, c->prepare_x, c->finish_x, swapped);
    ck_assert_int_gt(all.finish, c->values * 9 / 10);
    ck_assert_int_eq(all.prepare, 0);
    free(swapped);
}

static void other_sublayer(const conv_case *c) {
    const dflash_sublayer other =
        c->sublayer == DFLASH_SUBLAYER_ATTENTION ? DFLASH_SUBLAYER_MLP : DFLASH_SUBLAYER_ATTENTION;
    const outside all = run(c, c->layer, other, c->prepare_x, c->finish_x, c->finish_dyn);
    ck_assert_int_gt(all.dyn, c->rows * c->width * 9 / 10);
    ck_assert_int_gt(all.prepare, c->values * 9 / 10);
    ck_assert_int_gt(all.finish, c->values / 2); /* the base kernels may agree where they are rounded */
}

static void other_layer(const conv_case *c) {
    const outside all = run(c, c->layer + 1, c->sublayer, c->prepare_x, c->finish_x, c->finish_dyn);
    ck_assert_int_gt(all.dyn, c->rows * c->width * 9 / 10);
    ck_assert_int_gt(all.prepare, c->values * 9 / 10);
    ck_assert_int_gt(all.finish, c->values / 2);
}

/* What a convolution that keeps a row between blocks, or starts one too late, would see. */
static void rows_rotated(const conv_case *c) {
    if (c->rows == 1) return;
    float *x = make((size_t)c->values, sizeof *x), *z = make((size_t)c->values, sizeof *z);
    const size_t row = (size_t)c->hidden, rest = row * (size_t)(c->rows - 1);
    memcpy(x, c->prepare_x + row, rest * sizeof *x);
    memcpy(x + rest, c->prepare_x, row * sizeof *x);
    memcpy(z, c->finish_x + row, rest * sizeof *z);
    memcpy(z + rest, c->finish_x, row * sizeof *z);
    const outside all = run(c, c->layer, c->sublayer, x, z, c->finish_dyn);
    ck_assert_int_gt(all.dyn, c->rows * c->width * 9 / 10);
    ck_assert_int_gt(all.prepare, c->values * 9 / 10);
    ck_assert_int_gt(all.finish, c->values * 9 / 10);
    free(x);
    free(z);
}

static void one_value_wrong(const conv_case *c) {
    float *x = make((size_t)c->values, sizeof *x);
    memcpy(x, c->finish_x, (size_t)c->values * sizeof *x);
    x[c->values - 1] *= 1.0f + 0x1p-16f;
    const outside all = run(c, c->layer, c->sublayer, c->prepare_x, x, c->finish_dyn);
    ck_assert_int_eq(all.finish, 1); /* its own row alone sees the last row */
    free(x);
}

static void (*const faults[])(const conv_case *c) = {halves_swapped, other_sublayer, other_layer, rows_rotated,
                                                     one_value_wrong};
enum { FAULTS = sizeof faults / sizeof *faults };

START_TEST(a_planted_fault_is_outside_the_bounds) { for_each_case(faults[_i]); }
END_TEST

TCase *tcase_vectors_conv(void) {
    TCase *tests = tcase_create("conv");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, convolutions_agree_with_the_reference_within_float32_rounding);
    tcase_add_loop_test(tests, a_planted_fault_is_outside_the_bounds, 0, FAULTS);
    return tests;
}
