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
    dp_distance luck, around; /* around: the largest luck of the stages next to it; 1 where there is none */
    double inherited;         /* the largest claim of the stages that it is computed from, relative L2 */
    double inherited_peak;    /* the same, largest error */
    double inherited_coarse;  /* the same of the bfloat16 run's distances, relative L2 */
    double amplification;     /* the most that the bfloat16 run's growth excuses */
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

/* ---- The course ----------------------------------------------------------------------------------------------------
 */

/* Stage `to` is computed from the stage `from`, of this layer, where the set has it. */
static void join(const subject *s, int to, dflash_stage from, int layer) {
    char name[DFLASH_STAGE_NAME_MAX];
    if ((int)from >= DFLASH_STAGE_COUNT) return; /* an input of the run, exact */
    const dp_stage_spec *spec = dp_stage_set_find(s->stages, dflash_stage_name(from, layer, name));
    if (spec == NULL || is_table(from)) return;
    const ptrdiff_t at = spec - s->stages->spec;
    if (!s->spread[at].measured) return;
    course *a = &s->course[at], *b = &s->course[to];
    a->around = (dp_distance){largest(a->around.l2, b->luck.l2), largest(a->around.max, b->luck.max)};
    b->around = (dp_distance){largest(b->around.l2, a->luck.l2), largest(b->around.max, a->luck.max)};
    b->inherited = largest(b->inherited, s->spread[at].claimed.l2);
    b->inherited_peak = largest(b->inherited_peak, s->spread[at].claimed.max);
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
        s->course[i] = (course){.luck = {over(s->spread[i].claimed.l2, s->spread[i].own.l2),
                                         over(s->spread[i].claimed.max, s->spread[i].own.max)},
                                .around = {1.0, 1.0}};
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
 * How many times what it inherits and what its operations cost a stage's spread is. Where the bfloat16 run grows too,
 * the stage amplifies (a difference of large numbers, large scores), which counts up to what it can amplify by; beyond
 * DP_RULE_BF16_CEILING that run has no bits left to tell by how much. A norm
 * makes all rows equally large: where the error lies in small rows, its relative L2 grows up to the error of such a
 * row, of which the largest element is known.
 */
static double growth(const subject *s, int i) {
    const course *c = &s->course[i];
    const dp_stage_spec *spec = &s->stages->spec[i];
    const double coarse = s->spread[i].coarse.l2;
    const bool saturated = coarse > dp_rule_value(DP_RULE_BF16_CEILING);
    const double amplified =
        saturated ? c->amplification : coarse / largest(c->inherited_coarse, dp_rule_value(DP_RULE_BF16_ROUNDING));
    const double excuse = c->inherited > 0.0 ? fmin(largest(amplified, 1.0), c->amplification) : 1.0;
    const double explained = hypot(c->inherited, dp_own_cost(spec).l2) * excuse;
    const double of_a_row = dp_is_norm(spec->stage) ? c->inherited_peak / dp_rule_value(DP_RULE_PEAK) : 0.0;
    return s->spread[i].claimed.l2 / largest(explained, of_a_row);
}

/* How much further than of many rows a ratio of spreads may lie of these: its logarithm scatters as the inverse root of
 * their number, because errors that a norm hands to a whole row are one draw. `power`: of ratios in the product. */
static double few_rows(double rows, double power) { return exp(power * dp_rule_value(DP_RULE_FEW_ROWS) / sqrt(rows)); }

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

/* ---- What is refused -----------------------------------------------------------------------------------------------
 */

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

static dflash_status check_course(const subject *s, int i) {
    const dp_spread *spread = &s->spread[i];
    const course *c = &s->course[i];
    const double rows = (double)distinct_rows(s, i);
    const double grown = growth(s, i), most = dp_rule_value(DP_RULE_GROWTH) * few_rows(rows, 0.5);
    if (grown > most)
        return refuse(s, i, l2_text, spread->claimed.l2,
                      "what it is computed from and what its own operations round explain less",
                      spread->claimed.l2 / grown * most);
    const double line = c->luck.l2 / c->around.l2 * grown * grown,
                 straight = dp_rule_value(DP_RULE_LINE) * few_rows(rows, 2.0);
    /* A claim as near to its own run as most are is out of no line: a sum that cancels costs that run as much. */
    if (line > straight && c->luck.l2 > dp_rule_value(DP_RULE_MIDDLE))
        return refuse(s, i, l2_text, spread->claimed.l2, "neither the stages around it nor its own run come near",
                      spread->claimed.l2 * cbrt(straight / line));
    const double peak = c->luck.max / c->around.max, flat = dp_rule_value(DP_RULE_LINE_MAX) * few_rows(rows, 0.5);
    if (spread->whole && peak > flat)
        return refuse(s, i, max_text, spread->claimed.max, "neither the stages around it nor its own run come near",
                      spread->claimed.max * flat / peak);
    return DFLASH_OK;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double middle(double *value, int count) {
    qsort(value, (size_t)count, sizeof *value, by_value);
    return value[count / 2];
}

/* Stages with a row for each token of the context, which differ from each other as the equal masks of a block do not.
 */
static bool of_context(dflash_stage stage) {
    return stage == DFLASH_STAGE_CTX_FC || stage == DFLASH_STAGE_CTX_FEATURES || stage == DFLASH_STAGE_ATTN_K_PROJ ||
           stage == DFLASH_STAGE_ATTN_V || stage == DFLASH_STAGE_ATTN_K_NORM || stage == DFLASH_STAGE_ATTN_K_ROPE ||
           dp_is_cache(stage);
}

/* Where a model amplifies, the errors of some rows outweigh the others' in every precision. A ratio of neighbours has
 * them in both its spreads; luck has them alone, and the bfloat16 run shows how many they are. */
static double deciding_rows(const subject *s, int i) {
    return fmin((double)distinct_rows(s, i), largest(s->spread[i].rows, 1.0));
}

typedef struct half {
    double found, most;
    int count;
} half;

/* The middle of the luck of the context's stages or of the others, in the L2 measure, or of those that are stored whole
 * in the other, and what it may be for the rows that most of them have. A few stages, residuals of one run, are one
 * draw: the largest errors have a middle where more than half of the stages are stored whole. */
static half middle_of(const subject *s, bool max, bool context, double *luck, double *few) {
    int count = 0, all = 0;
    for (int i = 0; i < s->stages->count; i++) {
        const dflash_stage stage = s->stages->spec[i].stage;
        if (!s->spread[i].measured || is_table(stage) || of_context(stage) != context) continue;
        all++;
        if (max && !s->spread[i].whole) continue;
        few[count] = few_rows(deciding_rows(s, i), 1.0);
        luck[count] = max ? s->course[i].luck.max : s->course[i].luck.l2;
        count++;
    }
    if (2 * count <= all) return (half){.count = 0};
    const double rule = dp_rule_value(max ? DP_RULE_MIDDLE_MAX : DP_RULE_MIDDLE);
    return (half){middle(luck, count), rule * middle(few, count), count};
}

/* A block's rows share the luck of its two tokens, the first and the mask, through all layers; the context's rows all
 * read the same features. So one half alone is refused where two rows would be, and both together where the mean of
 * their logarithms lies beyond what their rows explain. */
static dflash_status check_middle(const subject *s, bool max, double *luck, double *few) {
    const half block = middle_of(s, max, false, luck, few), context = middle_of(s, max, true, luck, few);
    if (block.count == 0 || context.count == 0) return DFLASH_OK;
    const bool further = block.found / block.most > context.found / context.most;
    const half *worse = further ? &block : &context, *better = further ? &context : &block;
    const double two = dp_rule_value(max ? DP_RULE_MIDDLE_MAX : DP_RULE_MIDDLE) * few_rows(2.0, 1.0);
    const double most = fmin(largest(two, worse->most), worse->most * better->most / better->found);
    if (worse->found <= most) return DFLASH_OK;
    return df_fail(s->err, DFLASH_ERR_REFUSED, "oracle.spread",
                   "The record float32_orders of %s claims spreads that are %.3g times the distance of the reference's "
                   "own float32 run (%s) in the middle of the %d stages of the %s, and %.3g times in that of the other "
                   "%d: expected at most %.3g. Limits made of these claims would let errors pass that are no rounding. "
                   "Generate the oracle again.",
                   s->path, worse->found, max ? max_text : l2_text, worse->count, further ? "block" : "context",
                   better->found, better->count, most);
}

dflash_status dp_spread_check(const char *path, const dflash_config *config, const dp_stage_set *stages,
                              const dp_spread *spread, dflash_error *err) {
    const size_t count = (size_t)stages->count;
    subject s = {.path = path, .stages = stages, .spread = spread, .config = config, .err = err};
    s.course = calloc(count, sizeof *s.course);
    double *value = calloc(2 * count, sizeof *value);
    dflash_status status = s.course != NULL && value != NULL
                               ? DFLASH_OK
                               : df_fail_memory(err, "the course of the spread", count * sizeof *s.course);
    for (int i = 0; status == DFLASH_OK && i < stages->count; i++)
        if (spread[i].measured) status = check_own(&s, i);
    if (status == DFLASH_OK) follow(&s);
    for (int i = 0; status == DFLASH_OK && i < stages->count; i++)
        if (spread[i].measured && !is_table(stages->spec[i].stage)) status = check_course(&s, i);
    if (status == DFLASH_OK) status = check_middle(&s, false, value, value + count);
    if (status == DFLASH_OK) status = check_middle(&s, true, value, value + count);
    free(s.course);
    free(value);
    return status;
}
