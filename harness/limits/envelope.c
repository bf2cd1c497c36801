/* envelope.c - see envelope.h. A test reads this file: a number outside the table, or one in it without a reason, fails
 * it. */
#include "limits/envelope.h"

#include "limits/approx.h"

#include <math.h>
#include <stdio.h>

static const dp_rule rules[DP_RULE_COUNT] = {
    [DP_RULE_L2_FACTOR] =
        {"chained L2 factor", 4.0,
         "Another correct program makes other roundings of the same size, and may round twice where the reference "
         "rounds once (products that are not fused): a factor of 2. The reference spread is the largest of eight "
         "draws, which "
         "another draw seldom exceeds by more than 2. In 1,000 runs over all families and modes (56,040 stages) the "
         "largest ratio was 2.50; at the first norm of 3,000 other inputs it was 3.03, so that 3 would be too small.",
         "oracles/soak.py --runs 1000 --seed 20000; --only tiny-dspark-gated-q4_0 --seed 1124 --runs 1"},
    [DP_RULE_MAX_FACTOR] =
        {"chained max factor", 8.0,
         "As for relative L2, and twice the room again: one element is one draw, where a norm "
         "averages over many. In the same runs the largest ratio was 2.89; with the reference spreads of "
         "3,000 other runs, made before norms were reordered too, 6.4.",
         "oracles/soak.py --runs 1000 --seed 20000; before, seeds 1000, 5000 and 9000"},
    [DP_RULE_ROUNDING] = {"float32 rounding", 0x1p-24,
                          "Half a unit in the last place of a 24-bit significand, relative to the value: the most that "
                          "one rounding to nearest can move a result. A reference that rounds less than once (a copy, "
                          "an exact product) gives no reference spread; another program may round there once.",
                          "IEEE 754 binary32"},
    [DP_RULE_FAIL] =
        {"fail headroom", 0.0,
         "Headroom is 1 - error / limit, so 0 is the limit itself: the limit already holds all the room there "
         "is, and none is added here.",
         "definition of headroom (envelope.h)"},
    [DP_RULE_WARN] =
        {"warn headroom", 0.2,
         "At four fifths of its limit a stage is further out than all stages of 367 fresh correct oracles, "
         "where the least "
         "headroom was 39 % (52 % with more than one row in a block): worth a look, and no failure.",
         "oracles/soak.py, seeds 777024, 1124, 61000, 41000 (reports/BOUNDS.md)"},
    [DP_RULE_CHAIN] = {"terms in a chain", 64.0,
                       "A correct program adds this many terms one after another before partial sums meet: the "
                       "canonical order does, and the reference's other orders take norms so. Longer chains round "
                       "more, and a norm that added all its squares in one chain would be told by its bound.",
                       "CHAIN of oracles/orders.py, DF_SEGMENT of impl/common/canon.h"},
    [DP_RULE_SPREAD_SHARE] =
        {"float32 share of bfloat16", 0x1p-9,
         "float32 carries 24 significant bits and bfloat16 8, so a float32 run of the same model is 2^16 times closer "
         "to the truth. Products in bfloat16 add in float32 and round at the end, so the float32 run loses up to 4 of "
         "these 16 bits against it, 5 where one row decides; 2 more are room. What lies beyond is no float32 run of "
         "this model, and limits made of it would be wide.",
         "significand widths; widest of 320 correct oracles 6.9e-4 (a block of one row), 2.3e-4 of those stored"},
    [DP_RULE_PEAK_SHARE] = {"float32 share of bfloat16, largest error", 0x1p-8,
                            "As for relative L2, and 2 bits more: the recorded largest error is that of every element, "
                            "and a sampled oracle shows the bfloat16 run's at some of them.",
                            "widest of 320 correct oracles 1.8e-3 (qwen38-27b-dspark-yarn, sampled)"},
    [DP_RULE_BF16_CEILING] =
        {"bfloat16 ceiling", 0x1p-4,
         "The bfloat16 run is the yardstick of the float32 run only while it is right itself. With half of its 8 bits "
         "left it is 2^-4 away; what it is further away than that, because it chose other ids or is wrong, widens "
         "nothing. The largest error counts up to the row's largest value: errors are of the size "
         "of the terms, so that a row that is small has few bits left where the stage has most.",
         "half of bfloat16's significand; widest stored error before any choice of ids 4.3e-2"},
    [DP_RULE_BF16_LIMIT] =
        {"bfloat16 limit", 1.0,
         "A relative L2 of 1 is the error of answering zero: a stage further away than that computed something else, "
         "where what it is computed from has half of bfloat16's bits left (the ceiling). Where that is lost already "
         "the "
         "run may be anywhere, and what it is further away than the ceiling widens nothing. Scores and logits that "
         "follow the run's own choice of ids are exempt.",
         "definition of relative L2 (compare.h); a correct drafter with hot weights is 3.8 away (seed 71486)"},
    [DP_RULE_BF16_ROUNDING] =
        {"bfloat16 rounding", 0x1p-9,
         "Half a unit in the last place of 8 significant bits lies between 2^-9 and 2^-8 of the value: the least that "
         "a stage of the bfloat16 run loses when its operands are exact, and what its growth is taken from there.",
         "bfloat16: 8 significant bits"},
    [DP_RULE_RECORD_DIGITS] = {"digits of the recorded spread", 5e-6,
                               "The record holds six significant digits: it is off by half a unit of the sixth, at "
                               "most 5e-6 of the number, when its first digit is 1.",
                               "spread() of oracles/orders.py"},
    [DP_RULE_SAMPLED_OWN] =
        {"own distance of a sampled stage", 4.0,
         "The recorded distance is of all elements and the measured one of some, so either may be larger. An estimate "
         "from a few dozen samples lies within a factor of 2; beyond 4 the two are of different runs.",
         "widest stored ratio 1.485 (qwen38-27b-dspark-yarn, layers.0.attn.residual)"},
    [DP_RULE_PEAK] = {"largest error of a row", 8.0,
                      "Over the root mean square of the row's errors. Of the 64 to 10,000 elements of a row the "
                      "largest error is 3 to 5 times it when all are alike, and more where elements differ.",
                      "dp_peak_limit without the chance of a false alarm; 8 as for the chained max factor"},
    [DP_RULE_FEW_ROWS] =
        {"scatter of a ratio of spreads", 2.0,
         "With G independent errors the chance that one run is t times luckier than another falls as t^-G, so the "
         "logarithm of the largest ratio that correct oracles reach goes with 1 / G. G is not known, but grows with "
         "the "
         "rows that decide: 2 over their number follows the largest ratios from two rows to a hundred.",
         "oracles/soak_geometries.py --seed 70000 --runs 2000, which the rule was made with"},
    [DP_RULE_GROWTH] =
        {"growth of the spread", 4.5,
         "Relative errors go through a norm, a rotation or a product with about their size, and a stage adds its own. "
         "Sums that cancel and curved functions amplify; so far as the float32 run and the bfloat16 run do not show "
         "that, the largest growth of 2,000 correct oracles was 2.4, and 3.7 where one row decides. Their tail, "
         "continued, reaches the limit in less than one of 10^6 oracles.",
         "oracles/soak_geometries.py --seed 70000 --runs 2000, which the rule was made with"},
    [DP_RULE_AMPLIFICATION] =
        {"amplification shown by a run", 4.0,
         "A stage that amplifies relative errors does so in every precision, and the float32 and the bfloat16 run show "
         "by how much. Both are runs that the file brings along, so that one alone excuses no more than a factor of 4, "
         "and both together one of 16 where the stage is stored whole and its float32 run is held against its formula; "
         "attention, whose softmax amplifies by the size of its scores, "
         "up to the largest score that its operands allow.",
         "both show 13 at layers.3.attn.o_proj of seed 70910, a sum that cancels; for scores Cauchy-Schwarz "
         "(spread.c), 745 in tiny-sharp"},
    [DP_RULE_LINE] =
        {"spread out of line", 5.5,
         "The runs are followed through all stages, so what the own run was lucky by at one it is lucky by at those "
         "around it, and growth is near 1: the middle of their product is 0.7. The largest of 2,000 correct oracles "
         "was "
         "5.3 with seven rows, 0.73 of the limit there; the tail, continued, reaches it in 3 of "
         "10^5 oracles (even seeds) or 4 of 10^7 (odd). "
         "A claim at one stage that is four times too large multiplies it by 16, so that it is refused where many rows "
         "decide. "
         "Below two rows both factors scatter: there one that is 17 times too large is refused at most stages, one of "
         "4 at few.",
         "oracles/soak_geometries.py --seed 70000 --runs 2000, which the rule was made with"},
    [DP_RULE_UNEVEN] =
        {"largest error over relative L2", 6.0,
         "Errors are as uneven in one float32 run as in another, and about as uneven in bfloat16: the middle of the "
         "ratio is 1. The largest of 2,000 correct oracles was 6.1 with two rows, 0.67 of the limit there, and 3.7 "
         "with more; the tail reaches the limit in less than three of 10^6 oracles.",
         "oracles/soak_geometries.py --seed 70000 --runs 2000, which the rule was made with"},
    [DP_RULE_ALL_OVER] =
        {"spread over the own run, all over", 3.8,
         "The largest of eight draws exceeds the first by a factor of 1.1 at three of four stages in the middle of all "
         "oracles, and by 2.2 at most, for one context row of hot features. Claims contain their own run, so that four "
         "times the claims are 4 at least at every stage, whatever the luck. The tail reaches 3.8 in about one of 10^6 "
         "oracles.",
         "oracles/soak_geometries.py --seed 70000 --runs 2000, which the rule was made with"},
};

const dp_rule *dp_rule_of(dp_rule_id id) { return &rules[id]; }
double dp_rule_value(dp_rule_id id) { return rules[id].value; }

/* ---- What a stage's own operations cost ---- */

bool dp_is_norm(dflash_stage stage) {
    return stage == DFLASH_STAGE_CTX_FEATURES || stage == DFLASH_STAGE_ATTN_NORM || stage == DFLASH_STAGE_ATTN_Q_NORM ||
           stage == DFLASH_STAGE_ATTN_K_NORM || stage == DFLASH_STAGE_MLP_NORM || stage == DFLASH_STAGE_FINAL;
}

/* Mean square, in squares of one rounding, of the relative error of the sum of n squares: partial sum k of a chain of c
 * is k/n of the whole, so a chain adds up to c^3 / 3n^2 of them and all n/c chains to c^2 / 3n; the additions of the
 * chains, in a tree of any shape, are less than 2 of the whole. */
static double squares_cost(double n) {
    const double chain = fmin(n, dp_rule_value(DP_RULE_CHAIN));
    return DP_ROUNDING_SQUARE * chain * chain / (3.0 * n) + (n > chain ? 2.0 * DP_ADDITION_SQUARE : 0.0);
}

/* w (x r), r = 1 / sqrt(sum / n + eps): the relative error of what is under the root counts half. */
static double norm_cost(double n) {
    const double under = squares_cost(n) + DP_ROUNDING_SQUARE + DP_ADDITION_SQUARE; /* the quotient, the sum with eps */
    return under / (2.0 * 2.0) + 2.0 * DP_ROUNDING_SQUARE + 2.0 * DP_ROUNDING_SQUARE; /* root, inverse; two products */
}

/* A sum of terms without an order in their signs: its partial sums grow as the root of their number, so a chain of c
 * out of n rounds c^2 / 2n of the whole, and all n/c chains c/2; and one sum with a bias or a logit. */
static double sum_cost(void) { return DP_ROUNDING_SQUARE * dp_rule_value(DP_RULE_CHAIN) / 2.0 + DP_ADDITION_SQUARE; }

int64_t dp_distinct_rows(const dp_stage_spec *spec) {
    const int64_t row = spec->rank > 1 ? dp_row_length(spec->stage, spec->rank, spec->dim) : 1;
    const int64_t rows = dp_dims_product(spec->rank, spec->dim) / row;
    return spec->stage == DFLASH_STAGE_ATTN_NORM && spec->layer == 0 && rows > 2 ? 2 : rows;
}

dp_cost dp_own_cost(const dp_stage_spec *spec) {
    const int64_t all = dp_dims_product(spec->rank, spec->dim), last = spec->dim[spec->rank - 1];
    const bool norm = dp_is_norm(spec->stage), heads = norm && spec->rank > 2;
    const bool rows = (norm && !heads) || spec->stage == DFLASH_STAGE_SELECT_SCORES; /* a slot's scores share a state */
    const int64_t groups = rows ? dp_distinct_rows(spec) : heads ? all / last : all;
    const double cost = dp_rule_value(DP_RULE_ROUNDING) * sqrt(norm ? norm_cost((double)last) : sum_cost());
    return (dp_cost){cost * fmax(1.0, dp_noise_limit(groups) / dp_rule_value(DP_RULE_L2_FACTOR)),
                     cost * fmax(1.0, dp_peak_limit(groups) / dp_rule_value(DP_RULE_MAX_FACTOR))};
}

dp_cost dp_own_floor(const dp_stage_spec *spec, double largest_in_row) {
    const bool few = dp_is_norm(spec->stage) || spec->stage == DFLASH_STAGE_SELECT_SCORES ||
                     spec->stage == DFLASH_STAGE_CONFIDENCE_RAW;
    const double rounding = dp_rule_value(DP_RULE_ROUNDING);
    const dp_cost cost = few ? dp_own_cost(spec) : (dp_cost){rounding, rounding};
    return (dp_cost){cost.l2, cost.max * largest_in_row};
}

/* ---- Limits ---- */

/* What a measure's limit is a multiple of. */
static const char *basis(double reference_spread, double floor, bool rounding) {
    if (reference_spread >= floor) return "the reference's float32 spread";
    return rounding ? "one float32 rounding of the result" : "what its own operations round";
}

dp_limit dp_limit_chained(const dp_stage_spec *spec, const dp_difference *reference_spread, double coarseness) {
    const double l2 = dp_rule_value(DP_RULE_L2_FACTOR), max = dp_rule_value(DP_RULE_MAX_FACTOR);
    const dp_cost floor = dp_own_floor(spec, reference_spread->largest_in_row);
    const bool rounding = floor.l2 == dp_rule_value(DP_RULE_ROUNDING);
    dp_limit limit = {.reference_spread_l2_rel = reference_spread->l2_rel,
                      .reference_spread_max_rel = reference_spread->max_rel,
                      .floor_l2_rel = floor.l2,
                      .floor_max_rel = floor.max};
    char wider[DP_ORIGIN_TEXT] = "";
    limit.l2_rel = coarseness * l2 * fmax(limit.reference_spread_l2_rel, limit.floor_l2_rel);
    limit.max_rel = coarseness * max * fmax(limit.reference_spread_max_rel, limit.floor_max_rel);
    if (coarseness > 1.0) snprintf(wider, sizeof wider, "%g (class) x ", coarseness);
    snprintf(limit.origin, sizeof limit.origin, "%g x %s%s (L2), %g x %s%s (max)", l2, wider,
             basis(limit.reference_spread_l2_rel, limit.floor_l2_rel, rounding), max, wider,
             basis(limit.reference_spread_max_rel, limit.floor_max_rel, rounding));
    return limit;
}

/* A measure that is not finite, or is held against a limit that is none, leaves nothing. */
static double share_left(double error, double limit) {
    if (error == 0.0) return 1.0;
    return isfinite(error) && isfinite(limit) && limit > 0.0 ? 1.0 - error / limit : -INFINITY;
}

double dp_headroom(const dp_limit *limit, const dp_difference *difference) {
    if (difference->nonfinite > 0) return -INFINITY;
    const double l2 = share_left(difference->l2_rel, limit->l2_rel),
                 max = share_left(difference->max_rel, limit->max_rel);
    return l2 < max ? l2 : max;
}

bool dp_headroom_passes(double headroom) { return headroom >= dp_rule_value(DP_RULE_FAIL); }

bool dp_runs_contradict(const dp_difference *fine, const dp_difference *coarse, double ceiling, dp_contradiction *out) {
    const double share = dp_rule_value(DP_RULE_SPREAD_SHARE), peak = dp_rule_value(DP_RULE_PEAK_SHARE),
                 rounding = dp_rule_value(DP_RULE_ROUNDING), largest = fine->largest_in_row;
    *out = (dp_contradiction){.measure = "relative L2",
                              .found = fine->l2_rel,
                              .allowed = fmax(rounding, share * fmin(coarse->l2_rel, ceiling)),
                              .share = share};
    if (!(out->found <= out->allowed)) return true;
    *out = (dp_contradiction){.measure = "largest error relative to the row's rms",
                              .found = fine->max_rel,
                              .allowed = fmax(rounding * largest, peak * fmin(coarse->max_rel, largest)),
                              .share = peak};
    return !(out->found <= out->allowed);
}
