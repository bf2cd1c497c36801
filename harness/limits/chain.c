/* chain.c - see chain.h. */
#include "limits/chain.h"

/* A sum over some of the terms. */
typedef struct part {
    double value;
    double error;     /* of its roundings alone */
    double variance;  /* of its roundings */
    double magnitude; /* sum |a b| */
} part;

static size_t stride_of(const dp_terms *t) { return t->stride_b > 0 ? t->stride_b : 1; }

static double term_at(const dp_terms *t, int k) {
    return t->b != NULL ? t->a[k] * t->b[(size_t)k * stride_of(t)] : t->a[k];
}

/*
 * A chain from left to right, one rounding a term.
 *
 * With equal terms in a row each addition rounds alike as long as the sum stays in one binade, so their errors add up
 * instead of wandering: a run of them enters the variance as the square of its sum, not as the sum of squares.
 */
typedef struct chain {
    part sum;
    double before, together; /* the last term, and the roundings of the run of its equals */
    bool exact;              /* nothing was rounded so far */
} chain;

static inline void add_term(chain *c, const dp_class_model *m, const dp_terms *t, double square, double term) {
    if (term == 0.0 && t->slack == 0.0) return;
    part *p = &c->sum;
    p->value += term;
    p->magnitude += fabs(term);
    const double typical = dp_half_ulp(m, fabs(p->value));
    c->exact = c->exact && m->float32 && (double)(float)p->value == p->value;
    if (!c->exact) p->error += dp_half_ulp(m, fabs(p->value) + p->error + t->slack);
    c->together = term == c->before ? c->together : 0.0;
    p->variance += square * (typical * typical + 2.0 * typical * c->together);
    c->together += typical;
    c->before = term;
}

/* The next segments of the sum, in order. A chain waits for its own last addition, so several of them are added up side
 * by side; what comes of each is the same. */
enum { SIDE_BY_SIDE = 4 };
typedef struct segments {
    const dp_class_model *m;
    const dp_terms *t;
    chain chain[SIDE_BY_SIDE];
    int next, count;
} segments;

static int32_t segment_of(const dp_class_model *m, const dp_terms *t, int k) {
    return (t->place != NULL ? t->place[k] : k) / m->segment;
}

static void run_segments(segments *s, int first) {
    const dp_terms *t = s->t;
    const double square = t->b != NULL ? DP_ROUNDING_SQUARE : DP_ADDITION_SQUARE;
    int begin[SIDE_BY_SIDE] = {0}, length[SIDE_BY_SIDE] = {0}, shortest = t->n;
    s->next = s->count = 0;
    for (int k = first; k < t->n && s->count < SIDE_BY_SIDE; k += length[s->count++]) {
        const int32_t segment = segment_of(s->m, t, k);
        int end = k + 1;
        while (end < t->n && segment_of(s->m, t, end) == segment) end++;
        begin[s->count] = k;
        length[s->count] = end - k;
        shortest = end - k < shortest ? end - k : shortest;
        s->chain[s->count] = (chain){.exact = t->slack == 0.0};
    }
    if (s->count < SIDE_BY_SIDE) shortest = 0;
    for (int k = 0; k < shortest; k++) {
#pragma GCC unroll SIDE_BY_SIDE
        for (int i = 0; i < SIDE_BY_SIDE; i++) add_term(&s->chain[i], s->m, t, square, term_at(t, begin[i] + k));
    }
    for (int i = 0; i < s->count; i++)
        for (int k = shortest; k < length[i]; k++) add_term(&s->chain[i], s->m, t, square, term_at(t, begin[i] + k));
}

/*
 * In an order that is not known: contiguous blocks in any nesting, or an order that has nothing to do with the values
 * of the terms. The bound is gamma_n, of any order at all. For the noise: there are at most n multiply-adds and as many
 * additions of what chains have added up. A block is the difference of two sums from the left, so no larger than their
 * spread; some of the terms, in an order drawn at random, are a share of the whole sum and sqrt(sum of squares) off it
 * at most in the mean square. Equal neighbours count as in run_chain; equal terms that lie apart are not foreseen.
 */
static part run_any_order(const dp_class_model *m, const dp_terms *t) {
    part p = {.value = 0.0};
    double least = 0.0, most = 0.0, scatter = 0.0, before = 0.0, run = 0.0, squares = 0.0;
    for (int k = 0; k < t->n; k++) {
        const double term = term_at(t, k);
        if (term == 0.0 && t->slack == 0.0) continue;
        p.value += term;
        p.magnitude += fabs(term);
        least = p.value < least ? p.value : least;
        most = p.value > most ? p.value : most;
        scatter += term * term;
        run = term == before ? run + 1.0 : 1.0;
        squares += 2.0 * run - 1.0; /* together the square of the run's length */
        before = term;
    }
    const double typical = dp_half_ulp(m, sqrt((most - least) * (most - least) + scatter) + t->slack);
    const double square = DP_ADDITION_SQUARE + (t->b != NULL ? DP_ROUNDING_SQUARE : 0.0);
    p.error = dp_gamma(m->chain * (double)t->n, m->unit) * (p.magnitude + t->slack);
    p.variance = square * squares * typical * typical;
    return p;
}

static part join(const dp_class_model *m, const dp_terms *t, part left, part right) {
    part p = {.value = left.value + right.value,
              .error = left.error + right.error,
              .variance = left.variance + right.variance,
              .magnitude = left.magnitude + right.magnitude};
    if (t->slack == 0.0 && (left.magnitude == 0.0 || right.magnitude == 0.0)) return p; /* adding 0 rounds nothing */
    const double typical = dp_half_ulp(m, fabs(p.value));
    p.error += dp_half_ulp(m, fabs(p.value) + p.error + t->slack);
    p.variance += DP_ADDITION_SQUARE * typical * typical;
    return p;
}

/* The node of the tree that covers exactly terms [first, last): its halves part at the highest bit in which the first
 * and the last segment differ. A half without terms adds nothing and rounds nothing. Segments are met in order. */
static part tree(segments *s, int first, int last) {
    const int32_t low = segment_of(s->m, s->t, first), high = segment_of(s->m, s->t, last - 1);
    if (low == high) {
        if (s->next == s->count) run_segments(s, first);
        return s->chain[s->next++].sum;
    }
    int32_t bit = 1;
    while ((low ^ high) / 2 >= bit) bit *= 2;
    const int32_t boundary = high - high % bit; /* the first segment of the right half */
    int below = first, above = last - 1;        /* below: in the left half; above: in the right one */
    while (above - below > 1) {
        const int middle = below + (above - below) / 2;
        if (segment_of(s->m, s->t, middle) < boundary)
            below = middle;
        else
            above = middle;
    }
    const part left = tree(s, first, above);
    return join(s->m, s->t, left, tree(s, above, last));
}

/* What rounding the operands first changes is like an error of the terms: |a^ b^ - a b| <= |da| |b| + |a| |db| +
 * |da| |db|. The mean square takes the largest value of what is left out, which is no rounding. */
static void add_operands(dp_terms *t) {
    const dp_operands o = *t->operands;
    const size_t stride = stride_of(t);
    double error = (o.first + o.second + o.first * o.second + o.left_out) * t->slack;
    for (int k = 0; k < t->n; k++) {
        const double a = fabs(t->a[k]), b = fabs(t->b[(size_t)k * stride]), left_out = o.left_out * a * b;
        const double da = o.first > 0.0 ? fmax(o.first * a, o.least) : 0.0;
        const double db = o.second > 0.0 ? fmax(o.second * b, o.least) : 0.0;
        error += da * b + a * db + da * db + left_out;
        t->variance += DP_ROUNDING_SQUARE * (da * da * b * b + a * a * db * db) + left_out * left_out;
    }
    t->slack += error;
}

double dp_gamma(double n, double unit) { return n * unit / (1.0 - n * unit); }

dp_approx dp_sum_products(const dp_class_model *m, const dp_terms *terms) {
    dp_terms t = *terms;
    if (t.n == 0) return dp_exactly(0.0);
    if (t.operands != NULL && (t.operands->first > 0.0 || t.operands->second > 0.0)) add_operands(&t);
    segments s = {.m = m, .t = &t};
    const part p = m->segment > 0 ? tree(&s, 0, t.n) : run_any_order(m, &t);
    const double underflow = (double)t.n * m->least; /* each product may end below the normal numbers */
    const double evaluation = dp_gamma((double)t.n, DP_EVALUATION_UNIT) * p.magnitude;
    return (dp_approx){p.value, p.error + t.slack + underflow + evaluation, p.variance + t.variance};
}
