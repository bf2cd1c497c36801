/* spread.c - see spread.h. Every number is a row of the table in envelope.c. */
#include "preflight/spread.h"

#include "limits/envelope.h"
#include "common/error.h"
#include "formulas/evaluate.h"

#include <math.h>
#include <stdlib.h>

/* One stage's claim and what is around it. `luck` is the claim over the own run's distance, both raised to one
 * rounding: how lucky that run was, or how large the claim is. */
typedef struct course {
    double luck, around;     /* relative L2; around: the largest luck of the stages next to it, 1 without any */
    double inherited;        /* the largest claim of the stages that it is computed from, relative L2 */
    double inherited_peak;   /* the same, largest error */
    double inherited_own;    /* the same of the float32 run's distances, relative L2 */
    double inherited_coarse; /* and of the bfloat16 run's */
    double amplification;    /* the most that the growth of one of the two runs excuses */
} course;

typedef struct subject {
    const char *path;
    const dp_stage_set *stages;
    const dp_spread *spread;
    const dflash_config *config;
    course *course;
    dflash_error *err;
} subject;

static double largest(double a, double b) { return a > b ? a : b; }

static bool is_table(dflash_stage stage) {
    return stage == DFLASH_STAGE_ROPE_INV_FREQ || stage == DFLASH_STAGE_ROPE_COS || stage == DFLASH_STAGE_ROPE_SIN;
}

static double over(double claimed, double own) {
    const double least = dp_rule_value(DP_RULE_ROUNDING);
    return largest(claimed, least) / largest(own, least);
}

/* ---- The course ---- */

/* Stage `to` is computed from the stage `from`, of this layer, where the set has it. */
static void join(const subject *s, int to, dflash_stage from, int layer) {
    char name[DFLASH_STAGE_NAME_MAX];
    if ((int)from >= DFLASH_STAGE_COUNT) return; /* an input of the run, exact */
    const dp_stage_spec *spec = dp_stage_set_find(s->stages, dflash_stage_name(from, layer, name));
    if (spec == NULL || is_table(from)) return;
    const ptrdiff_t at = spec - s->stages->spec;
    if (!s->spread[at].measured) return;
    course *a = &s->course[at], *b = &s->course[to];
    a->around = largest(a->around, b->luck);
    b->around = largest(b->around, a->luck);
    b->inherited = largest(b->inherited, s->spread[at].claimed.l2);
    b->inherited_peak = largest(b->inherited_peak, s->spread[at].claimed.max);
    b->inherited_own = largest(b->inherited_own, s->spread[at].own.l2);
    b->inherited_coarse = largest(b->inherited_coarse, s->spread[at].coarse.l2);
}

/* Rms of the largest row of a layer's stage. */
static double row_of(const subject *s, dflash_stage stage, int layer) {
    char name[DFLASH_STAGE_NAME_MAX];
    const dp_stage_spec *spec = dp_stage_set_find(s->stages, dflash_stage_name(stage, layer, name));
    return spec != NULL ? s->spread[spec - s->stages->spec].row : 0.0;
}

/* By how much a stage can amplify. Softmax makes an error in a score a relative error of its weight; relative errors of
 * a query and its key, of length |q| and |k|, move their score by up to them times |q| |k| / sqrt(hd) (Cauchy-Schwarz),
 * where |q| = sqrt(hd) rms(q). The float64 run gives the sizes. */
static double amplification(const subject *s, const dp_stage_spec *spec) {
    const double any = dp_rule_value(DP_RULE_AMPLIFICATION);
    if (spec->stage != DFLASH_STAGE_ATTN_CONTEXT) return any;
    const double q = row_of(s, DFLASH_STAGE_ATTN_Q_ROPE, spec->layer),
                 k = row_of(s, DFLASH_STAGE_ATTN_K_ROPE, spec->layer);
    return largest(any, q * k * sqrt((double)s->config->head_dim));
}

static void follow(const subject *s) {
    for (int i = 0; i < s->stages->count; i++)
        s->course[i] = (course){.luck = over(s->spread[i].claimed.l2, s->spread[i].own.l2), .around = 1.0};
    for (int i = 0; i < s->stages->count; i++) {
        const dp_stage_spec *spec = &s->stages->spec[i];
        if (!s->spread[i].measured || is_table(spec->stage)) continue;
        s->course[i].amplification = amplification(s, spec);
        const bool keys = spec->stage == DFLASH_STAGE_KV_K;
        for (int layer = 0; (keys || spec->stage == DFLASH_STAGE_KV_V) && layer < s->config->n_layers; layer++)
            join(s, i, keys ? DFLASH_STAGE_ATTN_K_ROPE : DFLASH_STAGE_ATTN_V, layer);
        const dp_references from = dp_stage_inputs(s->config, true, spec->stage, spec->layer);
        for (int r = 0; r < from.count; r++) join(s, i, from.item[r].stage, from.item[r].layer);
    }
}

/*
 * What excuses growth: a stage that amplifies (a difference of large numbers, large scores) does so in every run, and
 * the growth of the float32 and of the bfloat16 run shows it. One of them alone counts up to what the stage can amplify
 * by, both together up to that once more where the stage is stored whole, so that its float32 run is held against its
 * formula (float32_run.h). Beyond DP_RULE_BF16_CEILING the bfloat16 run has no bits left to tell by how much.
 */
static double excuse(const subject *s, int i) {
    const course *c = &s->course[i];
    const dp_distance *coarse = &s->spread[i].coarse;
    const double any = dp_rule_value(DP_RULE_AMPLIFICATION);
    if (!(c->inherited > 0.0)) return 1.0;
    const double fine = s->spread[i].own.l2 / hypot(c->inherited_own, dp_own_cost(&s->stages->spec[i]).l2);
    const double half = coarse->l2 > dp_rule_value(DP_RULE_BF16_CEILING)
                            ? INFINITY
                            : coarse->l2 / largest(c->inherited_coarse, dp_rule_value(DP_RULE_BF16_ROUNDING));
    const double alone = fmin(largest(fine, half), c->amplification);
    const double both = s->spread[i].whole ? fmin(fmin(fine, half), any * any) : 1.0;
    return largest(1.0, largest(alone, both));
}

/* How many times what it inherits and what its operations cost a stage's spread is. A norm makes all rows equally
 * large: where the error lies in small rows, its relative L2 grows up to the error of such a row, of which the largest
 * element is known. */
static double growth(const subject *s, int i) {
    const course *c = &s->course[i];
    const dp_stage_spec *spec = &s->stages->spec[i];
    const double explained = hypot(c->inherited, dp_own_cost(spec).l2) * excuse(s, i);
    const double of_a_row = dp_is_norm(spec->stage) ? c->inherited_peak / dp_rule_value(DP_RULE_PEAK) : 0.0;
    return s->spread[i].claimed.l2 / largest(explained, of_a_row);
}

/* Largest error over relative L2: how uneven errors are. The bfloat16 run, whose errors are as uneven, excuses as much
 * as its growth does. */
static double unevenness(const subject *s, int i) {
    const dp_spread *spread = &s->spread[i];
    const double least = dp_rule_value(DP_RULE_ROUNDING);
    const double own = largest(spread->own.max, least) / largest(spread->own.l2, least);
    const double half = spread->coarse.l2 > 0.0 ? spread->coarse.max / spread->coarse.l2 : 0.0;
    const double expected = largest(own, fmin(half, own * dp_rule_value(DP_RULE_AMPLIFICATION)));
    return largest(spread->claimed.max, least) / largest(spread->claimed.l2, least) / expected;
}

/* How much further than of many rows a ratio of spreads may lie where few rows decide. With G independent errors the
 * first of eight runs is t times luckier than another with a chance that falls as t^-G, so the logarithm of what a
 * correct oracle seldom reaches goes with 1 / G. `power`: of such ratios in the product. */
static double few_rows(double rows, double power) { return exp(power * dp_rule_value(DP_RULE_FEW_ROWS) / rows); }

/* Rows that can have errors of their own. Until attention, a row of the first layer is that of its token, the first or
 * a mask; a convolution of k rows also sees how far the first is, up to k. */
static int64_t distinct_rows(const subject *s, int i) {
    const dp_stage_spec *spec = &s->stages->spec[i];
    const int64_t rows = dp_distinct_rows(spec), kernel = s->config->conv_kernel;
    const bool norm = spec->stage == DFLASH_STAGE_ATTN_NORM || spec->stage == DFLASH_STAGE_ATTN_CONV_DYN;
    const bool query = spec->stage == DFLASH_STAGE_ATTN_CONV_IN || spec->stage == DFLASH_STAGE_ATTN_Q_PROJ ||
                       spec->stage == DFLASH_STAGE_ATTN_Q_NORM;
    if (spec->layer != 0 || !(norm || query)) return rows;
    const int64_t tokens = query && kernel > 1 ? kernel + 1 : 2;
    return rows < tokens ? rows : tokens;
}

/* Where a model amplifies, the errors of some rows outweigh the others' in every precision: how many decide is seen in
 * both runs. */
static double deciding_rows(const subject *s, int i) {
    const dp_spread *spread = &s->spread[i];
    return largest(fmin((double)distinct_rows(s, i), fmin(spread->own_rows, spread->rows)), 1.0);
}

/* ---- What is refused ---- */

static dflash_status refuse(const subject *s, int i, const char *measure, double found, const char *what,
                            double allowed) {
    return df_fail(s->err, DFLASH_ERR_REFUSED, "oracle.spread",
                   "Stage %s of %s: the record float32_orders claims %.3g (%s) for the reference's float32 runs, where "
                   "%s: expected %s %.3g. A limit made of this claim would let errors pass that are no rounding. "
                   "Generate the oracle again.",
                   s->stages->spec[i].name, s->path, found, measure, what, found < allowed ? "at least" : "at most",
                   allowed);
}

static const char l2_text[] = "relative L2", max_text[] = "largest error relative to the row's rms";

/* The own run is one of those that the claim is the largest of. Of a sampled stage the claim is about all elements, the
 * measured L2 an estimate by its sketch and the measured maximum that of some elements. */
static dflash_status check_own(const subject *s, int i) {
    const dp_spread *spread = &s->spread[i];
    const double digits = 1.0 + dp_rule_value(DP_RULE_RECORD_DIGITS);
    const double own[] = {spread->own.l2, spread->own.max}, claimed[] = {spread->claimed.l2, spread->claimed.max};
    for (int k = 0; k < 2; k++) {
        const char *measure = k == 0 ? l2_text : max_text;
        const double room = spread->whole || k == 1 ? digits : dp_rule_value(DP_RULE_SAMPLED_OWN);
        if (own[k] > claimed[k] * room)
            return refuse(s, i, measure, claimed[k], "their first, stored beside it, is further away", own[k] / room);
        if (is_table(s->stages->spec[i].stage) && spread->whole && claimed[k] > own[k] * digits)
            return refuse(s, i, measure, claimed[k], "no order of additions changes this table", own[k]);
    }
    return DFLASH_OK;
}

/* Stages of the bfloat16 run that are computed from ids which that run chose by itself. */
static bool follows_choices(dflash_stage stage) {
    return stage == DFLASH_STAGE_SELECT_SCORES || stage == DFLASH_STAGE_MARKOV_LOGITS ||
           stage == DFLASH_STAGE_CONFIDENCE_RAW;
}

/* A stage of the bfloat16 run whose operands are right is far from the truth only when it computed something else.
 * Where they are lost already (hot weights, a chaotic drafter) its size may be any. */
static dflash_status check_coarse(const subject *s, int i) {
    const dp_stage_spec *spec = &s->stages->spec[i];
    const double found = s->spread[i].coarse.l2, most = dp_rule_value(DP_RULE_BF16_LIMIT);
    if (found <= most || follows_choices(spec->stage)) return DFLASH_OK;
    if (s->course[i].inherited_coarse > dp_rule_value(DP_RULE_BF16_CEILING)) return DFLASH_OK;
    return df_fail(s->err, DFLASH_ERR_REFUSED, "oracle.bfloat16",
                   "Stage %s of %s: the reference's bfloat16 run is %.3g (relative L2) from its float64 run, and what "
                   "it is computed from at most %.3g: expected at most %g, the error of answering zero. One of the two "
                   "runs is of something else. Generate the oracle again.",
                   spec->name, s->path, found, s->course[i].inherited_coarse, most);
}

/* Where fewer than two rows decide, growth scatters too. */
static dflash_status check_course(const subject *s, int i) {
    const dp_spread *spread = &s->spread[i];
    const course *c = &s->course[i];
    const double rows = deciding_rows(s, i);
    const double grown = growth(s, i), most = dp_rule_value(DP_RULE_GROWTH) * few_rows(rows, 0.5);
    if (grown > most)
        return refuse(s, i, l2_text, spread->claimed.l2,
                      "what it is computed from and what its own operations round explain less",
                      spread->claimed.l2 / grown * most);
    const double line = c->luck / c->around * grown,
                 straight = dp_rule_value(DP_RULE_LINE) * few_rows(rows, rows < 2.0 ? 1.5 : 1.0 /* powers */);
    if (line > straight)
        return refuse(s, i, l2_text, spread->claimed.l2, "neither the stages around it nor its own run come near",
                      spread->claimed.l2 * sqrt(straight / line));
    const double uneven = unevenness(s, i), most_uneven = dp_rule_value(DP_RULE_UNEVEN) * few_rows(rows, 0.5);
    if (spread->whole && uneven > most_uneven)
        return refuse(s, i, max_text, spread->claimed.max, "errors of this relative L2 are not as uneven in any run",
                      spread->claimed.max / uneven * most_uneven);
    return DFLASH_OK;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Three of four stages have at least this luck; 0 where less than half of all stages have one that is known. The
 * largest errors of a sampled stage are not seen. A claim contains its own run, so that claims of four times are four
 * times that run at least, however lucky it was. */
static double lower_quarter(const subject *s, bool max, double *luck) {
    int count = 0, all = 0;
    for (int i = 0; i < s->stages->count; i++) {
        const dp_spread *spread = &s->spread[i];
        if (!spread->measured || is_table(s->stages->spec[i].stage)) continue;
        all++;
        if (max && !spread->whole) continue;
        luck[count++] = max ? over(spread->claimed.max, spread->own.max) : s->course[i].luck;
    }
    if (2 * count <= all) return 0.0;
    qsort(luck, (size_t)count, sizeof *luck, by_value);
    return luck[count / 4]; /* a quarter */
}

static dflash_status check_all(const subject *s, bool max, double *luck) {
    const double found = lower_quarter(s, max, luck), most = dp_rule_value(DP_RULE_ALL_OVER);
    if (found <= most) return DFLASH_OK;
    return df_fail(s->err, DFLASH_ERR_REFUSED, "oracle.spread",
                   "The record float32_orders of %s claims spreads that are at least %.3g times the distance of the "
                   "reference's own float32 run (%s) at three of four stages: expected at most %.3g. Limits made of "
                   "these claims would let errors pass that are no rounding. Generate the oracle again.",
                   s->path, found, max ? max_text : l2_text, most);
}

double dp_spread_ceiling(const dflash_config *config, const dp_stage_set *stages, const dp_spread *spread, int at) {
    const double ceiling = dp_rule_value(DP_RULE_BF16_CEILING);
    const dp_references from = dp_stage_inputs(config, true, stages->spec[at].stage, stages->spec[at].layer);
    for (int r = 0; r < from.count; r++) {
        char name[DFLASH_STAGE_NAME_MAX];
        if ((int)from.item[r].stage >= DFLASH_STAGE_COUNT || is_table(from.item[r].stage)) continue;
        dflash_stage_name(from.item[r].stage, from.item[r].layer, name);
        const dp_stage_spec *spec = dp_stage_set_find(stages, name);
        if (spec != NULL && spread[spec - stages->spec].coarse.l2 > ceiling) return dp_rule_value(DP_RULE_BF16_LIMIT);
    }
    return ceiling;
}

dflash_status dp_spread_check(const char *path, const dflash_config *config, const dp_stage_set *stages,
                              const dp_spread *spread, dflash_error *err) {
    const size_t count = (size_t)stages->count;
    subject s = {.path = path, .stages = stages, .spread = spread, .config = config, .err = err};
    s.course = calloc(count, sizeof *s.course);
    double *luck = calloc(count, sizeof *luck);
    dflash_status status = s.course != NULL && luck != NULL
                               ? DFLASH_OK
                               : df_fail_memory(err, "the course of the spread", count * sizeof *s.course);
    for (int i = 0; status == DFLASH_OK && i < stages->count; i++)
        if (spread[i].measured) status = check_own(&s, i);
    if (status == DFLASH_OK) follow(&s);
    for (int i = 0; status == DFLASH_OK && i < stages->count; i++)
        if (spread[i].measured) status = check_coarse(&s, i);
    for (int i = 0; status == DFLASH_OK && i < stages->count; i++)
        if (spread[i].measured && !is_table(stages->spec[i].stage)) status = check_course(&s, i);
    if (status == DFLASH_OK) status = check_all(&s, false, luck);
    if (status == DFLASH_OK) status = check_all(&s, true, luck);
    free(s.course);
    free(luck);
    return status;
}
