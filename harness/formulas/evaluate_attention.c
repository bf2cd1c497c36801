/*
 * evaluate_attention.c - softmax attention, for evaluate.h.
 *
 * With p = exp(s - max s) and y = sum p v / sum p, a computed run has p^ = c (p + dp), one factor c for a query, and
 * sums with roundings e_n and e_d of their own: y^ - y = (sum dp (v - y) + e_n - y e_d) / (sum p + sum dp + e_d),
 * because sum p (v - y) is zero: an error of the weights counts only as far as values differ. The factor c = exp(-d),
 * where d is the error of the largest score, cancels, except that partial sums may lie in another binade.
 *
 * Scores can be so large that their own rounding moves the weights freely. Then the bound is what is left to any
 * weights that are not negative: y^ lies among the values that the query sees, up to the roundings of the two sums.
 */
#include "formulas/evaluate_parts.h"

/* One query: the keys that it sees and its weights. */
typedef struct query {
    int low, high;        /* visible keys are [low, high) */
    const double *values; /* of channel 0 of its head, at key 0 */
    size_t stride;        /* from key to key */
} query;

static bool visible(const dflash_layer_config *layer, int64_t p, int64_t j) {
    if (layer->causal && j > p) return false;
    if (layer->window == 0) return true;
    return p - j < layer->window && (layer->causal || j - p < layer->window);
}

static query query_of(const dp_job *job, int64_t row, int64_t head) {
    const dflash_config *c = job->c;
    const dflash_layer_config *layer = &c->layer[job->spec->layer];
    const int keys = job->e->context + c->block;
    const int32_t *pos = job->e->pos, p = pos[job->e->context + row];
    query q = {.low = 0, .high = keys, .stride = (size_t)c->n_kv_heads * (size_t)c->head_dim};
    while (q.low < keys && !visible(layer, p, pos[q.low])) q.low++;
    while (q.high > q.low && !visible(layer, p, pos[q.high - 1])) q.high--;
    q.values = job->in[2] + (size_t)(head / (c->n_heads / c->n_kv_heads)) * (size_t)c->head_dim;
    return q;
}

/* The class as the sums of attention see it. */
static dp_class_model in_attention(const dp_class_model *m) {
    dp_class_model sums = *m;
    sums.chain = m->attention_chain;
    return sums;
}

/* scratch->key[j], share[j]: the weights p of the visible keys. shared[0]: their sum with its roundings alone;
 * shared[1]: what the errors of the weights add to it; shared[2].value: the factor between binades (see above). */
static void weigh(const dp_job *job, const query *q, int64_t row, int64_t head, dp_scratch *scratch) {
    const dflash_config *c = job->c;
    const dp_class_model *m = job->m, sums = in_attention(m);
    const double *x = job->in[0] + (row * c->n_heads + head) * c->head_dim;
    const double *keys = job->in[1] + (head / (c->n_heads / c->n_kv_heads)) * c->head_dim;
    const dp_approx scale = dp_div(m, dp_exactly(1.0), dp_sqrt(m, dp_exactly(c->head_dim)));
    const dp_approx common = {scale.value, scale.error, scale.error * scale.error}; /* the same for every score */
    double most = -INFINITY, off = 0.0;
    for (int j = q->low; j < q->high; j++) {
        const dp_terms terms = {.a = keys + (size_t)j * q->stride, .b = x, .n = c->head_dim, .operands = &m->attention};
        const dp_approx score = dp_mul(m, dp_sum_products(&sums, &terms), common);
        scratch->key[j] = score;
        most = fmax(most, score.value);
        off = fmax(off, score.error);
    }
    const double divided = m->fused ? 0.0 : 1.0; /* a weight may be divided by the sum before it is used */
    const double binade = 2.0 * exp(off);
    double error = 0.0, variance = 0.0;
    for (int j = q->low; j < q->high; j++) {
        dp_approx *key = &scratch->key[j];
        const double distance = most - key->value, typical = dp_half_ulp(m, distance);
        key->error += dp_half_ulp(m, distance + key->error + off);
        key->variance += DP_ADDITION_SQUARE * typical * typical;
        const double p = exp(-distance), moved = p * expm1(key->error),
                     own = (2.0 * m->exp_error + divided) * m->unit * p;
        const double slope = key->error > 0.0 ? moved / key->error : p;
        const double least =
            (2.0 * m->exp_error + 1.0) * m->least; /* the function's, and the rounding of a subnormal */
        *key =
            (dp_approx){p, moved + own * exp(key->error) + least * binade + DP_EVALUATION_UNIT * p * (1.0 + distance),
                        slope * slope * key->variance + (own + least) * (own + least)};
        scratch->share[j] = p;
        error += key->error;
        variance += key->variance;
    }
    const dp_terms sum = {.a = scratch->share + q->low, .place = job->e->pos + q->low, .n = q->high - q->low};
    scratch->shared[0] = dp_sum_products(&sums, &sum);
    scratch->shared[1] = (dp_approx){0.0, error, variance};
    scratch->shared[2] = dp_exactly(binade);
}

/* What any non-negative weights leave: see above. gamma_n of the longest order bounds the roundings of either sum. */
static double spread_bound(const dp_job *job, const query *q, int64_t d, double y) {
    double least = y, most = y;
    for (int j = q->low; j < q->high; j++) {
        const double v = q->values[(size_t)j * q->stride + (size_t)d];
        least = fmin(least, v);
        most = fmax(most, v);
    }
    const double n = job->m->attention_chain * (double)(q->high - q->low), gamma = dp_gamma(n + 1.0, job->m->unit);
    const double size = fmax(fabs(least), fabs(most));
    return most - least + 2.0 * gamma / (1.0 - gamma) * size + (n + 1.0) * job->m->least * (1.0 + size);
}

dp_approx dp_attention_element(const dp_job *job, int64_t index, dp_scratch *scratch) {
    const dflash_config *c = job->c;
    const dp_class_model *m = job->m, sums = in_attention(m);
    const int64_t d = index % c->head_dim, query_index = index / c->head_dim;
    const int64_t row = query_index / c->n_heads, head = query_index % c->n_heads;
    const query q = query_of(job, row, head);
    if (scratch->row != query_index) {
        weigh(job, &q, row, head, scratch);
        scratch->row = query_index;
    }
    const dp_approx *sum = &scratch->shared[0];
    const double spread = scratch->shared[1].error, binade = scratch->shared[2].value;
    dp_terms terms = {.a = scratch->share + q.low,
                      .b = q.values + (size_t)q.low * q.stride + (size_t)d,
                      .stride_b = q.stride,
                      .place = job->e->pos + q.low,
                      .n = q.high - q.low,
                      .operands = &m->attention};
    for (int j = q.low; j < q.high; j++)
        terms.slack += scratch->key[j].error * fabs(q.values[(size_t)j * q.stride + (size_t)d]);
    dp_approx numerator = dp_sum_products(&sums, &terms);
    const double y = numerator.value / sum->value;
    double joint = 0.0, joint_variance = 0.0;
    for (int j = q.low; j < q.high; j++) {
        const double away = q.values[(size_t)j * q.stride + (size_t)d] - y;
        joint += scratch->key[j].error * fabs(away);
        joint_variance += scratch->key[j].variance * away * away;
    }
    const double e_n = binade * (numerator.error - terms.slack), e_d = binade * (sum->error + m->unit * spread);
    const double least_sum = sum->value - spread - e_d;
    dp_approx out = {y, (joint + e_n + fabs(y) * e_d) / least_sum,
                     (joint_variance + numerator.variance + y * y * sum->variance) / (least_sum * least_sum)};
    const double bound = spread_bound(job, &q, d, y);
    if (!(least_sum > 0.0 && out.error <= bound)) out = (dp_approx){y, bound, bound * bound};
    return dp_rounded(m, out);
}
