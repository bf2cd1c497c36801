/* attention_case.c - see attention_case.h. */
#include "support/attention_case.h"

#include "common/canon.h"
#include "common/mathfn.h"

#include <math.h>
#include <stdlib.h>

void attention_case_init(attention_case *c, const attention_shape *shape, op_random *random) {
    const int keys = shape->context + shape->rows;
    const size_t queries = (size_t)(shape->rows * shape->heads * shape->head_dim);
    const size_t cached = (size_t)(keys * shape->kv_heads * shape->head_dim);
    *c = (attention_case){.q = op_floats(queries),
                          .k = op_floats(cached),
                          .v = op_floats(cached),
                          .q_pos = op_alloc((size_t)shape->rows * sizeof(int32_t)),
                          .k_pos = op_alloc((size_t)keys * sizeof(int32_t))};
    op_fill(random, c->q, queries);
    op_fill(random, c->k, cached);
    op_fill(random, c->v, cached);
    for (size_t i = 0; i < queries; i++) c->q[i] *= 5.0f;
    c->k_pos[0] = shape->start;
    for (int i = 1; i < keys; i++)
        c->k_pos[i] = c->k_pos[i - 1] + (i <= shape->context && shape->gap > 1 ? 1 + op_below(random, shape->gap) : 1);
    for (int i = 0; i < shape->rows; i++) c->q_pos[i] = c->k_pos[shape->context + i];
    c->args = (df_attention_args){.q = c->q,
                                  .k = c->k,
                                  .v = c->v,
                                  .q_pos = c->q_pos,
                                  .k_pos = c->k_pos,
                                  .rows = shape->rows,
                                  .keys = keys,
                                  .n_heads = shape->heads,
                                  .n_kv_heads = shape->kv_heads,
                                  .head_dim = shape->head_dim,
                                  .window = shape->window,
                                  .causal = shape->causal};
}

void attention_case_release(attention_case *c) {
    free(c->q);
    free(c->k);
    free(c->v);
    free(c->q_pos);
    free(c->k_pos);
}

size_t attention_case_size(const attention_case *c) {
    return (size_t)c->args.rows * (size_t)c->args.n_heads * (size_t)c->args.head_dim;
}

bool attention_sees(const df_attention_args *a, int row, int key) {
    const int64_t p = a->q_pos[row], j = a->k_pos[key];
    if (a->causal && j > p) return false;
    if (a->window > 0 && p - j >= a->window) return false;
    if (a->window > 0 && !a->causal && j - p >= a->window) return false;
    return true;
}

static const float *key_row(const df_attention_args *a, const float *rows, int head, int key) {
    return rows +
           ((size_t)key * (size_t)a->n_kv_heads + (size_t)(head / (a->n_heads / a->n_kv_heads))) * (size_t)a->head_dim;
}

/* Segments of absolute position with the terms of their visible keys. */
typedef struct key_sum {
    unsigned *segment;
    float *sum;
    int n;
} key_sum;

/* The open sum of the key's segment. */
static float *key_sum_at(key_sum *s, int32_t position) {
    const unsigned segment = (unsigned)position / DF_SEGMENT;
    if (s->n == 0 || s->segment[s->n - 1] != segment) {
        s->segment[s->n] = segment;
        s->sum[s->n++] = 0.0f;
    }
    return &s->sum[s->n - 1];
}

static void scalar_query(const df_attention_args *a, int row, int head, float *p, key_sum *s, float *out) {
    const float *q = a->q + ((size_t)row * (size_t)a->n_heads + (size_t)head) * (size_t)a->head_dim;
    const float scale = 1.0f / sqrtf((float)a->head_dim);
    float max = -INFINITY;
    for (int j = 0; j < a->keys; j++) {
        if (!attention_sees(a, row, j)) continue;
        p[j] = op_dot(key_row(a, a->k, head, j), q, a->head_dim) * scale;
        if (p[j] > max) max = p[j];
    }
    s->n = 0;
    for (int j = 0; j < a->keys; j++) {
        if (!attention_sees(a, row, j)) continue;
        p[j] = df_exp(p[j] - max);
        *key_sum_at(s, a->k_pos[j]) += p[j];
    }
    const float denominator = op_tree(s->segment, s->sum, s->n);
    for (int d = 0; d < a->head_dim; d++) {
        s->n = 0;
        for (int j = 0; j < a->keys; j++) {
            if (!attention_sees(a, row, j)) continue;
            float *sum = key_sum_at(s, a->k_pos[j]);
            *sum = fmaf(p[j], key_row(a, a->v, head, j)[d], *sum);
        }
        out[d] = op_tree(s->segment, s->sum, s->n) / denominator;
    }
}

void attention_scalar(const df_attention_args *a, float *out) {
    float *p = op_floats((size_t)a->keys);
    key_sum s = {.segment = op_alloc((size_t)a->keys * sizeof(unsigned)), .sum = op_floats((size_t)a->keys)};
    for (int row = 0; row < a->rows; row++)
        for (int head = 0; head < a->n_heads; head++, out += a->head_dim) scalar_query(a, row, head, p, &s, out);
    free(p);
    free(s.segment);
    free(s.sum);
}

void attention_double(const df_attention_args *a, double *out) {
    for (int row = 0; row < a->rows; row++)
        for (int head = 0; head < a->n_heads; head++, out += a->head_dim) {
            const float *q = a->q + ((size_t)row * (size_t)a->n_heads + (size_t)head) * (size_t)a->head_dim;
            double total = 0;
            for (int d = 0; d < a->head_dim; d++) out[d] = 0;
            for (int j = 0; j < a->keys; j++) { /* scores are small enough to go without their maximum */
                if (!attention_sees(a, row, j)) continue;
                double score = 0;
                for (int d = 0; d < a->head_dim; d++) score += (double)q[d] * key_row(a, a->k, head, j)[d];
                const double weight = exp(score / sqrt(a->head_dim));
                total += weight;
                for (int d = 0; d < a->head_dim; d++) out[d] += weight * key_row(a, a->v, head, j)[d];
            }
            for (int d = 0; d < a->head_dim; d++) out[d] /= total;
        }
}

float *attention_run(dflash_engine *engine, const df_attention_args *a, const char *what) {
    const size_t n = (size_t)a->rows * (size_t)a->n_heads * (size_t)a->head_dim;
    df_attention_args args = *a;
    dflash_error err = {0};
    args.out = op_output(n);
    ck_assert_msg(df_arena_reset(&engine->arena, &err) == DFLASH_OK, "%s", err.message);
    ck_assert_msg(engine->ops->attention(engine, &args, &err) == DFLASH_OK, "%s: %s", what, err.message);
    ck_assert_uint_eq(engine->arena.in_use, 0);
    op_output_check(args.out, n, what);
    return args.out;
}
