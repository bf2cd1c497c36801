/* dspark_case.c - see dspark_case.h. */
#include "dspark_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double UNIT = 0x1p-24; /* half an ulp of float32, relative */

/* ---- Weights ----------------------------------------------------------------------------------------------------- */

static uint32_t state;

/* Uniform in [-1, 1). */
static float next(void) {
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) * 0x1p-23f - 1.0f;
}

static void *own(ds_case *c, size_t bytes) {
    void *memory = malloc(bytes);
    ck_assert_ptr_nonnull(memory);
    ck_assert_int_lt(c->owned_count, 16);
    return c->owned[c->owned_count++] = memory;
}

/* The first `quiet` columns are an eighth as large. */
static df_matrix matrix(ds_case *c, df_dtype dtype, int out, int in, float scale, int quiet) {
    const size_t n = (size_t)out * (size_t)in;
    void *data = own(c, n * df_dtype_size(dtype));
    for (size_t i = 0; i < n; i++) {
        const float value = scale * next() * (i % (size_t)in < (size_t)quiet ? 0.125f : 1.0f);
        if (dtype == DF_F32) ((float *)data)[i] = value;
        if (dtype == DF_F16) ((uint16_t *)data)[i] = df_f32_to_f16(value);
        if (dtype == DF_BF16) ((uint16_t *)data)[i] = df_f32_to_bf16(value);
    }
    return (df_matrix){.dtype = dtype, .out = out, .in = in, .data = data};
}

static const float *vector(ds_case *c, int n, float scale) {
    float *data = own(c, (size_t)n * sizeof *data);
    for (int i = 0; i < n; i++) data[i] = scale * next();
    return data;
}

void ds_make(ds_case *c, df_markov_kind kind, int w2_rows, const df_engine_options *options) {
    memset(c, 0, sizeof *c);
    state = 77u + (uint32_t)kind;
    df_error err = {0};
    ck_assert_msg(df_engine_create(options, &c->draft.engine, &err) == DF_OK, "%s", err.message);
    df_config *config = &c->draft.config;
    *config = (df_config){.family = DF_FAMILY_DSPARK,
                          .hidden = DS_H,
                          .block = DS_N,
                          .vocab = DS_W1,
                          .harvest = DF_HARVEST_SHIFTED,
                          .markov = kind,
                          .markov_rank = DS_R};
    df_weights *w = &c->draft.weights;
    const df_dtype w1 = kind == DF_MARKOV_VANILLA ? DF_BF16 : kind == DF_MARKOV_GATED ? DF_F16 : DF_F32;
    const df_dtype w2 = kind == DF_MARKOV_VANILLA ? DF_F32 : DF_BF16;
    w->markov_w1 = matrix(c, w1, DS_W1, DS_R, 1.0f, 0);
    w->markov_w2 = matrix(c, w2, w2_rows, DS_R, 0.5f, 0);
    if (kind == DF_MARKOV_GATED) {
        w->markov_gate = matrix(c, DF_F32, DS_R, DS_H + DS_R, 0.3f, 0);
        w->markov_gate_bias = vector(c, DS_R, 0.5f);
    }
    if (kind == DF_MARKOV_RNN) {
        /* the state's own columns are quiet: errors then shrink through the recurrence, and so does their bound */
        w->markov_joint = matrix(c, DF_F16, 3 * DS_R, 2 * DS_R + DS_H, 0.2f, DS_R);
        w->markov_joint_bias = vector(c, 3 * DS_R, 0.5f);
    }
    for (int i = 0; i < DS_N * DS_H; i++) c->rows[i] = next();
    for (int i = 0; i < DS_N * w2_rows; i++) c->logits[i] = 1.5f * next();
}

void ds_add_confidence(ds_case *c, bool with_markov, bool bias) {
    c->draft.config.confidence = true;
    c->draft.config.confidence_with_markov = with_markov;
    c->draft.weights.confidence = matrix(c, DF_BF16, 1, with_markov ? DS_H + DS_R : DS_H, 0.3f, 0);
    c->draft.weights.confidence_bias = bias ? vector(c, 1, 2.0f) : NULL;
}

void ds_free(ds_case *c) {
    df_engine_destroy(c->draft.engine);
    for (int i = 0; i < c->owned_count; i++) free(c->owned[i]);
}

/* ---- The reference ----------------------------------------------------------------------------------------------- */

static double weight(const df_matrix *w, int64_t row, int64_t column) {
    const int64_t at = row * w->in + column;
    if (w->dtype == DF_F32) return (double)((const float *)w->data)[at];
    const uint16_t bits = ((const uint16_t *)w->data)[at];
    return (double)(w->dtype == DF_BF16 ? df_bf16_to_f32(bits) : df_f16_to_f32(bits));
}

static dp_real rounded(double value, double error) { return (dp_real){value, 1.01 * error + UNIT * fabs(value)}; }

void ds_product(const df_matrix *w, const float *bias, const dp_real *x, dp_real *out) {
    const double terms = 64 + ceil(log2(ceil((double)w->in / 64))) + 1;
    for (int64_t o = 0; o < w->out; o++) {
        double sum = 0, size = 0, inherited = 0;
        for (int64_t k = 0; k < w->in; k++) {
            const double v = weight(w, o, k);
            sum += v * x[k].value;
            size += fabs(v * x[k].value);
            inherited += fabs(v) * x[k].error;
        }
        const double own_error = terms * UNIT * size;
        out[o] = bias == NULL ? (dp_real){sum, 1.01 * (inherited + own_error)}
                              : rounded(sum + (double)bias[o], inherited + own_error);
    }
}

void ds_row(const df_matrix *w, int row, dp_real *out) {
    for (int64_t k = 0; k < w->in; k++) out[k] = (dp_real){weight(w, row, k), 0};
}

void ds_exact(const float *x, int n, dp_real *out) {
    for (int i = 0; i < n; i++) out[i] = (dp_real){(double)x[i], 0};
}

/* The function itself is off by less than 3 ulp: exp by 1, the sum and the division by half of one each. */
dp_real ds_sigmoid(dp_real x) {
    const double y = 1 / (1 + exp(-x.value));
    return rounded(y, x.error / 4 + 6 * UNIT * y);
}

dp_real ds_tanh(dp_real x) {
    const double y = tanh(x.value);
    return rounded(y, x.error + 2 * UNIT * fabs(y));
}

dp_real ds_add(dp_real a, dp_real b) { return rounded(a.value + b.value, a.error + b.error); }

dp_real ds_multiply(dp_real a, dp_real b) {
    return rounded(a.value * b.value, fabs(a.value) * b.error + fabs(b.value) * a.error);
}

bool ds_close(float got, dp_real want) { return fabs((double)got - want.value) <= want.error; }
