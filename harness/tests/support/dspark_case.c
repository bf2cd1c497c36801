/* dspark_case.c - see dspark_case.h. */
#include "support/dspark_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double UNIT = 0x1p-24; /* half an ulp of float32, relative */

/* ---- Weights ---- */

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

void ds_make(ds_case *c, dflash_markov_kind kind, int w2_rows, const dflash_engine_options *options) {
    memset(c, 0, sizeof *c);
    state = 77u + (uint32_t)kind;
    dflash_error err = {0};
    ck_assert_msg(dflash_engine_create(options, &c->draft.engine, &err) == DFLASH_OK, "%s", err.message);
    dflash_config *config = &c->draft.config;
    *config = (dflash_config){.family = DFLASH_FAMILY_DSPARK,
                              .hidden = DS_H,
                              .block = DS_N,
                              .vocab = DS_W1,
                              .harvest = DFLASH_HARVEST_SHIFTED,
                              .markov = kind,
                              .markov_rank = DS_R};
    df_weights *w = &c->draft.weights;
    const df_dtype w1 = kind == DFLASH_MARKOV_VANILLA ? DF_BF16 : kind == DFLASH_MARKOV_GATED ? DF_F16 : DF_F32;
    const df_dtype w2 = kind == DFLASH_MARKOV_VANILLA ? DF_F32 : DF_BF16;
    w->markov_w1 = matrix(c, w1, DS_W1, DS_R, 1.0f, 0);
    w->markov_w2 = matrix(c, w2, w2_rows, DS_R, 0.5f, 0);
    if (kind == DFLASH_MARKOV_GATED) {
        w->markov_gate = matrix(c, DF_F32, DS_R, DS_H + DS_R, 0.3f, 0);
        w->markov_gate_bias = vector(c, DS_R, 0.5f);
    }
    if (kind == DFLASH_MARKOV_RNN) {
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
    dflash_engine_destroy(c->draft.engine);
    for (int i = 0; i < c->owned_count; i++) free(c->owned[i]);
}

/* ---- The reference ---- */

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

/* ---- The Markov heads ---- */

enum { WIDEST = 1024 };

static void swap_ends(dp_real *x, int first, int second) {
    dp_real old[WIDEST];
    memcpy(old, x, (size_t)(first + second) * sizeof *x);
    memcpy(x, old + first, (size_t)second * sizeof *x);
    memcpy(x + second, old, (size_t)first * sizeof *x);
}

/* e becomes what W2 multiplies. */
static void markov_input(const dflash_draft *draft, const dp_real *h, dp_real *memory, dp_real *e, ds_fault fault) {
    const df_weights *w = &draft->weights;
    const int hidden = draft->config.hidden, r = draft->config.markov_rank;
    dp_real in[WIDEST], out[WIDEST];
    if (draft->config.markov == DFLASH_MARKOV_GATED) {
        memcpy(in, h, (size_t)hidden * sizeof *in);
        memcpy(in + hidden, e, (size_t)r * sizeof *in);
        if (fault == DS_INPUTS_SWAPPED) swap_ends(in, hidden, r);
        ds_product(&w->markov_gate, fault == DS_BIAS_DROPPED ? NULL : w->markov_gate_bias, in, out);
        for (int j = 0; j < r; j++) e[j] = ds_multiply(ds_sigmoid(out[j]), e[j]);
    }
    if (draft->config.markov == DFLASH_MARKOV_RNN) {
        memcpy(in, memory, (size_t)r * sizeof *in);
        memcpy(in + r, e, (size_t)r * sizeof *in);
        if (fault == DS_INPUTS_SWAPPED) swap_ends(in, r, r);
        memcpy(in + 2 * r, h, (size_t)hidden * sizeof *in);
        ds_product(&w->markov_joint, fault == DS_BIAS_DROPPED ? NULL : w->markov_joint_bias, in, out);
        if (fault == DS_THIRDS_ROTATED) swap_ends(out, r, 2 * r);
        for (int j = 0; j < r; j++) {
            const dp_real keep = ds_sigmoid(out[j]), less = ds_add((dp_real){1, 0}, (dp_real){-keep.value, keep.error});
            memory[j] = ds_add(ds_multiply(keep, memory[j]), ds_multiply(less, ds_tanh(out[r + j])));
            e[j] = ds_tanh(out[2 * r + j]);
        }
    }
}

void ds_markov_logits(const dflash_draft *draft, const float *rows, const float *logits, int n, int vocab,
                      int32_t anchor, const int32_t *token, ds_fault fault, dp_real *want) {
    const int hidden = draft->config.hidden, r = draft->config.markov_rank;
    dp_real memory[WIDEST] = {{0, 0}}, e[WIDEST], h[WIDEST], bias[WIDEST];
    ck_assert(2 * r + hidden <= WIDEST && 3 * r <= WIDEST && vocab <= WIDEST);
    for (int slot = 0; slot < n; slot++) {
        const int32_t prev = slot == 0 || fault == DS_PREV_STAYS_ANCHOR ? anchor : token[slot - 1];
        if (fault == DS_STATE_FORGOTTEN) memset(memory, 0, sizeof memory);
        ds_row(&draft->weights.markov_w1, prev, e);
        ds_exact(rows + (size_t)slot * (size_t)hidden, hidden, h);
        markov_input(draft, h, memory, e, fault);
        ds_product(&draft->weights.markov_w2, NULL, e, bias);
        for (int i = 0; i < vocab; i++)
            want[slot * vocab + i] = ds_add((dp_real){(double)logits[slot * vocab + i], 0}, bias[i]);
    }
}
