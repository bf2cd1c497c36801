/*
 * draft_reference.c - the drafter in double, written from the specification line by line and sharing nothing with the
 * operations under test but the float32 frequency table (which test_rope.c pins). Slow and plain on purpose.
 */
#include "support/draft_case.h"
#include "model/rope.h"

#include <math.h>
#include <stdlib.h>
#include <stdio.h>

typedef struct reference {
    const draft_case *c;
    const dflash_config *g;
    int keys;     /* context + B */
    double *ctx;  /* [context, H] */
    double *x;    /* [B, H], the residual stream */
    double score; /* the largest magnitude so far */
} reference;

static double *doubles(int rows, int columns) { return op_alloc((size_t)(rows * columns) * sizeof(double)); }

static double widen(const dflash_tensor_view *tensor, int64_t at) {
    if (strcmp(tensor->dtype, "F32") == 0) return ((const float *)tensor->data)[at];
    const uint16_t half = ((const uint16_t *)tensor->data)[at];
    return strcmp(tensor->dtype, "F16") == 0 ? df_f16_to_f32(half) : df_bf16_to_f32(half);
}

/* The tensor of that name; `layer` is put before it unless it is -1. Optional ones may be missing: name is then NULL.
 */
static dflash_tensor_view tensor(const reference *r, int layer, const char *name, bool optional) {
    char full[128];
    if (layer < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "layers.%d.%s", layer, name);
    for (int i = 0; i < dflash_draft_tensor_count(r->c->draft); i++) {
        const dflash_tensor_view view = dflash_draft_tensor(r->c->draft, i);
        if (strcmp(view.name, full) == 0) return view;
    }
    ck_assert_msg(optional, "the checkpoint has no %s", full);
    return (dflash_tensor_view){.name = NULL};
}

/* y = x W^T (+ b), x [rows, in]. */
static double *linear(const reference *r, int layer, const char *name, const double *x, int rows) {
    char weight[100], bias[100];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    const dflash_tensor_view w = tensor(r, layer, weight, false), b = tensor(r, layer, bias, true);
    const int out = (int)w.dim[0], in = (int)w.dim[1];
    double *y = doubles(rows, out);
    for (int row = 0; row < rows; row++)
        for (int o = 0; o < out; o++) {
            double sum = b.name != NULL ? widen(&b, o) : 0.0;
            for (int k = 0; k < in; k++) sum += widen(&w, (int64_t)o * in + k) * x[row * in + k];
            y[row * out + o] = sum;
        }
    return y;
}

/* RMSNorm of `rows` rows of n, in place. */
static void norm(const reference *r, int layer, const char *name, double *x, int rows, int n) {
    const dflash_tensor_view w = tensor(r, layer, name, false);
    ck_assert_int_eq((int)w.dim[0], n);
    for (int row = 0; row < rows; row++, x += n) {
        double squares = 0;
        for (int i = 0; i < n; i++) squares += x[i] * x[i];
        const double scale = 1.0 / sqrt(squares / n + r->g->rms_eps);
        for (int i = 0; i < n; i++) x[i] *= scale * widen(&w, i);
    }
}

static double *copy_of(const double *x, int rows, int columns) {
    double *y = doubles(rows, columns);
    memcpy(y, x, (size_t)(rows * columns) * sizeof *y);
    return y;
}

/* out = x cos + rot(x) sin with rot(x) = [-x2, x1], on the first rotary_dim channels of each head. */
static void rotate(const reference *r, double *x, const int32_t *pos, int rows, int heads) {
    const dflash_rope_config *rope = &r->g->rope;
    const int dim = rope->rotary_dim;
    const double factor = df_rope_attention_scaling(rope);
    float inv_freq[128];
    ck_assert_int_le(dim, 256);
    df_rope_inv_freq(rope, inv_freq);
    for (int row = 0; row < rows; row++)
        for (int head = 0; head < heads; head++, x += r->g->head_dim) {
            double turned[256];
            for (int d = 0; d < dim; d++) {
                const double angle = (float)pos[row] * inv_freq[d % (dim / 2)];
                const double partner = d < dim / 2 ? -x[d + dim / 2] : x[d - dim / 2];
                turned[d] = (x[d] * cos(angle) + partner * sin(angle)) * factor;
            }
            memcpy(x, turned, (size_t)dim * sizeof *x);
        }
}

static bool sees(const dflash_layer_config *layer, int32_t query, int32_t key) {
    const int32_t behind = query - key;
    if (layer->causal && behind < 0) return false;
    return layer->window == 0 || (behind < layer->window && -behind < layer->window);
}

static double *attend(reference *r, int layer, const double *q, const double *k, const double *v) {
    const dflash_config *g = r->g;
    const int hd = g->head_dim;
    double *out = doubles(g->block, g->n_heads * hd), *p = doubles(1, r->keys);
    for (int row = 0; row < g->block; row++)
        for (int head = 0; head < g->n_heads; head++) {
            const double *qh = q + (row * g->n_heads + head) * hd;
            double *oh = out + (row * g->n_heads + head) * hd;
            const int kv_head = head / (g->n_heads / g->n_kv_heads);
            double max = -INFINITY, total = 0;
            for (int j = 0; j < r->keys; j++) {
                const double *kh = k + (j * g->n_kv_heads + kv_head) * hd;
                p[j] = -INFINITY;
                if (!sees(&g->layer[layer], r->c->pos[r->c->context + row], r->c->pos[j])) continue;
                p[j] = 0;
                for (int d = 0; d < hd; d++) p[j] += qh[d] * kh[d];
                p[j] /= sqrt(hd);
                max = fmax(max, p[j]);
                r->score = fmax(r->score, fabs(p[j]));
            }
            for (int d = 0; d < hd; d++) oh[d] = 0;
            for (int j = 0; j < r->keys; j++) {
                const double weight = exp(p[j] - max);
                total += weight;
                for (int d = 0; d < hd; d++) oh[d] += weight * v[(j * g->n_kv_heads + kv_head) * hd + d];
            }
            for (int d = 0; d < hd; d++) oh[d] /= total;
        }
    free(p);
    return out;
}

static void add_to_stream(reference *r, double *y) {
    for (int i = 0; i < r->g->block * r->g->hidden; i++) r->x[i] += y[i];
    free(y);
}

/* Half 0 (the sublayer's input) or half 1 (its output) of a convolution over the block's rows, in place; nothing when
 * the family has none. `dyn` is kernel_projection of the rows before the first half. */
static void convolve(const reference *r, int i, const char *name, int half, const double *dyn, double *x) {
    const dflash_config *g = r->g;
    const int hidden = g->hidden, taps = g->conv_kernel;
    if (g->family != DFLASH_FAMILY_DFLASH2) return;
    char full[64];
    snprintf(full, sizeof full, "%s.base_kernel", name);
    const dflash_tensor_view base = tensor(r, i, full, false);
    const int groups = hidden / g->conv_group;
    for (int row = g->block - 1; row >= 0;
         row--) /* from the last row up, so that the rows before are still unconvolved */
        for (int ch = 0; ch < hidden; ch++) {
            double sum = 0;
            for (int o = 0; o < taps && o <= row; o++) {
                const double fixed = widen(&base, ((int64_t)half * taps + o) * hidden + ch);
                const double dynamic = dyn[((row * 2 + half) * taps + o) * groups + ch / g->conv_group];
                sum += (fixed + dynamic) * x[(row - o) * hidden + ch];
            }
            x[row * hidden + ch] = sum;
        }
}

static double *dynamic_kernels(const reference *r, int i, const char *name, const double *x) {
    char full[64];
    if (r->g->family != DFLASH_FAMILY_DFLASH2) return NULL;
    snprintf(full, sizeof full, "%s.kernel_projection", name);
    return linear(r, i, full, x, r->g->block);
}

static void layer_attention(reference *r, int i) {
    const dflash_config *g = r->g;
    const int hidden = g->hidden, context = r->c->context;
    double *n = copy_of(r->x, g->block, hidden), *both = doubles(r->keys, hidden);
    norm(r, i, "input_layernorm.weight", n, g->block, hidden);
    double *dyn = dynamic_kernels(r, i, "attention_conv", n);
    convolve(r, i, "attention_conv", 0, dyn, n);
    memcpy(both, r->ctx, (size_t)(context * hidden) * sizeof *both); /* k and v read [ctx ; n] */
    memcpy(both + context * hidden, n, (size_t)(g->block * hidden) * sizeof *both);
    double *q = linear(r, i, "self_attn.q_proj", n, g->block);
    double *k = linear(r, i, "self_attn.k_proj", both, r->keys);
    double *v = linear(r, i, "self_attn.v_proj", both, r->keys);
    norm(r, i, "self_attn.q_norm.weight", q, g->block * g->n_heads, g->head_dim);
    norm(r, i, "self_attn.k_norm.weight", k, r->keys * g->n_kv_heads, g->head_dim);
    rotate(r, q, r->c->pos + context, g->block, g->n_heads);
    rotate(r, k, r->c->pos, r->keys, g->n_kv_heads);
    double *a = attend(r, i, q, k, v);
    double *o = linear(r, i, "self_attn.o_proj", a, g->block);
    convolve(r, i, "attention_conv", 1, dyn, o);
    add_to_stream(r, o);
    free(dyn);
    free(n);
    free(both);
    free(q);
    free(k);
    free(v);
    free(a);
}

static void layer_mlp(reference *r, int i) {
    const dflash_config *g = r->g;
    double *m = copy_of(r->x, g->block, g->hidden);
    norm(r, i, "post_attention_layernorm.weight", m, g->block, g->hidden);
    double *dyn = dynamic_kernels(r, i, "mlp_conv", m);
    convolve(r, i, "mlp_conv", 0, dyn, m);
    double *gate = linear(r, i, "mlp.gate_proj", m, g->block), *up = linear(r, i, "mlp.up_proj", m, g->block);
    for (int j = 0; j < g->block * g->intermediate; j++) gate[j] *= up[j] / (1.0 + exp(-gate[j]));
    double *down = linear(r, i, "mlp.down_proj", gate, g->block);
    convolve(r, i, "mlp_conv", 1, dyn, down);
    add_to_stream(r, down);
    free(dyn);
    free(m);
    free(gate);
    free(up);
}

double draft_reference(const draft_case *c, double *out) {
    reference r = {.c = c, .g = c->config, .keys = c->context + c->config->block};
    const int taps = r.g->n_taps * r.g->hidden;
    double *wide = doubles(c->context, taps);
    for (int i = 0; i < c->context * taps; i++) wide[i] = c->taps[i];
    r.ctx = linear(&r, -1, "fc", wide, c->context);
    norm(&r, -1, "hidden_norm.weight", r.ctx, c->context, r.g->hidden);
    r.x = doubles(r.g->block, r.g->hidden);
    for (size_t i = 0; i < c->out_size; i++) r.x[i] = c->noise[i];
    for (int i = 0; i < r.g->n_layers; i++) {
        layer_attention(&r, i);
        layer_mlp(&r, i);
    }
    norm(&r, -1, "norm.weight", r.x, r.g->block, r.g->hidden);
    memcpy(out, r.x, c->out_size * sizeof *out);
    free(wide);
    free(r.ctx);
    free(r.x);
    return r.score;
}
