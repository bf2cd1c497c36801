/* envelope.c - see envelope.h. A test reads this file: a number outside the table, or one in it without a reason, fails
 * it. */
#include "envelope.h"

#include <math.h>
#include <stdio.h>

static const dp_rule rules[DP_RULE_COUNT] = {
    [DP_RULE_L2_FACTOR] =
        {"chained L2 factor", 4.0,
         "Another correct program makes other roundings of the same size, and may round twice where "
         "the reference rounds once (products that are not fused): a factor of 2. The bracket is "
         "the largest of eight draws, which another draw seldom exceeds by more than 2. In 1,000 "
         "runs over all families and modes (56,040 stages) the largest ratio was 2.50; at the "
         "first norm of 3,000 other inputs it was 3.03, so that 3 would be too small.",
         "oracles/soak.py --runs 1000 --seed 20000; --only tiny-dspark-gated-q4_0 --seed 1124 --runs 1"},
    [DP_RULE_MAX_FACTOR] = {"chained max factor", 8.0,
                            "As for relative L2, and twice the room again: one element is one draw, where a norm "
                            "averages over many. In the same runs the largest ratio was 2.89; with "
                            "the brackets of 3,000 other runs, made before norms were reordered too, 6.4.",
                            "oracles/soak.py --runs 1000 --seed 20000; before, seeds 1000, 5000 and 9000"},
    [DP_RULE_ROUNDING] = {"float32 rounding", 0x1p-24,
                          "Half a unit in the last place of a 24-bit significand, relative to the value: the most that "
                          "one rounding to nearest can move a result. A reference that rounds less than once (a copy, "
                          "an exact product) gives no bracket; another program may round there once.",
                          "IEEE 754 binary32"},
    [DP_RULE_FAIL] = {"fail headroom", 0.0,
                      "Headroom is 1 - error / bar, so 0 is the bar itself: the bar already holds all the room there "
                      "is, and none is added here.",
                      "definition of headroom (envelope.h)"},
    [DP_RULE_WARN] =
        {"warn headroom", 0.2,
         "At four fifths of its bar a stage is further out than all of the 56,040 stages of the soak, where the least "
         "headroom was 37 % (24 % in the worst inputs known): worth a look, and no failure.",
         "oracles/soak.py --runs 1000 --seed 20000"},
    [DP_RULE_BRACKET_SHARE] = {"float32 share of bfloat16", 0x1p-8,
                               "float32 carries 24 significant bits and bfloat16 8, so a float32 run of the same model "
                               "is 2^16 times closer to the truth. Half of these 16 bits, 2^8, is demanded: what "
                               "lies beyond is no float32 run of this model, and bars made of it would be wide. The "
                               "stored oracles keep a factor of 17 from this limit.",
                               "significand widths; widest stored ratio 2.2e-4 (tiny-windowed24)"},
    [DP_RULE_BF16_CEILING] =
        {"bfloat16 ceiling", 0x1p-4,
         "The bfloat16 run is the yardstick of the float32 run only while it is right itself. "
         "With half of its 8 bits left it is 2^-4 away; what it is further away than that, because "
         "it chose other ids or is wrong, widens nothing. For the largest error the same share of "
         "the row's largest value.",
         "half of bfloat16's significand; widest stored error before any choice of ids 4.3e-2"},
    [DP_RULE_BF16_LIMIT] = {"bfloat16 limit", 1.0,
                            "A relative L2 of 1 is the error of answering zero: a run further away than that computed "
                            "something else. Scores and logits that follow the run's own choice of ids are exempt.",
                            "definition of relative L2 (compare.h)"},
    [DP_RULE_TABLE_ROUNDINGS] = {"roundings of the frequency table", 8.0,
                                 "rope.inv_freq is float32 by definition, in the bfloat16 run too, which is therefore "
                                 "no yardstick. Its longest formula rounds eight times: exponent, power, reciprocal, "
                                 "scaling, ramp (difference, quotient) and mix (product, sum).",
                                 "the scalings of impl/rope.c; widest stored error 5.5 roundings (tiny-partial)"},
};

const dp_rule *dp_rule_of(dp_rule_id id) { return &rules[id]; }
double dp_rule_value(dp_rule_id id) { return rules[id].value; }

/* What a measure's bar is a multiple of. */
static const char *basis(double bracket, double floor) {
    return bracket < floor ? "one float32 rounding of the result" : "the reference's float32 spread";
}

dp_bar dp_bar_chained(const dp_difference *bracket, double coarseness) {
    const double l2 = dp_rule_value(DP_RULE_L2_FACTOR), max = dp_rule_value(DP_RULE_MAX_FACTOR);
    const double rounding = dp_rule_value(DP_RULE_ROUNDING);
    dp_bar bar = {.bracket_l2_rel = bracket->l2_rel,
                  .bracket_max_rel = bracket->max_rel,
                  .floor_l2_rel = rounding,
                  .floor_max_rel = rounding * bracket->largest_in_row};
    char wider[DP_ORIGIN_TEXT] = "";
    bar.l2_rel = coarseness * l2 * fmax(bar.bracket_l2_rel, bar.floor_l2_rel);
    bar.max_rel = coarseness * max * fmax(bar.bracket_max_rel, bar.floor_max_rel);
    if (coarseness > 1.0) snprintf(wider, sizeof wider, "%g (class) x ", coarseness);
    snprintf(bar.origin, sizeof bar.origin, "%g x %s%s (L2), %g x %s%s (max)", l2, wider,
             basis(bar.bracket_l2_rel, bar.floor_l2_rel), max, wider, basis(bar.bracket_max_rel, bar.floor_max_rel));
    return bar;
}

/* A measure that is not finite, or is held against a bar that is none, leaves nothing. */
static double share_left(double error, double bar) {
    if (error == 0.0) return 1.0;
    return isfinite(error) && isfinite(bar) && bar > 0.0 ? 1.0 - error / bar : -INFINITY;
}

double dp_headroom(const dp_bar *bar, const dp_difference *difference) {
    if (difference->nonfinite > 0) return -INFINITY;
    const double l2 = share_left(difference->l2_rel, bar->l2_rel), max = share_left(difference->max_rel, bar->max_rel);
    return l2 < max ? l2 : max;
}

bool dp_headroom_passes(double headroom) { return headroom >= dp_rule_value(DP_RULE_FAIL); }

/* Stages of the bfloat16 run that are computed from ids which that run chose by itself. */
static bool follows_choices(df_stage stage) {
    return stage == DF_STAGE_SELECT_SCORES || stage == DF_STAGE_MARKOV_LOGITS || stage == DF_STAGE_CONFIDENCE_RAW;
}

bool dp_runs_contradict(df_stage stage, const dp_difference *fine, const dp_difference *coarse, dp_contradiction *out) {
    const double share = dp_rule_value(DP_RULE_BRACKET_SHARE), ceiling = dp_rule_value(DP_RULE_BF16_CEILING),
                 limit = dp_rule_value(DP_RULE_BF16_LIMIT), largest = fine->largest_in_row;
    const double rounding = dp_rule_value(DP_RULE_ROUNDING) *
                            (stage == DF_STAGE_ROPE_INV_FREQ ? dp_rule_value(DP_RULE_TABLE_ROUNDINGS) : 1.0);
    *out = (dp_contradiction){.measure = "relative L2", .found = coarse->l2_rel, .allowed = limit, .coarse = true};
    if (!follows_choices(stage) && !(coarse->l2_rel <= limit)) return true;
    *out = (dp_contradiction){.measure = "relative L2",
                              .found = fine->l2_rel,
                              .allowed = fmax(rounding, share * fmin(coarse->l2_rel, ceiling))};
    if (!(out->found <= out->allowed)) return true;
    *out = (dp_contradiction){.measure = "largest error relative to the row's rms",
                              .found = fine->max_rel,
                              .allowed = fmax(rounding * largest, share * fmin(coarse->max_rel, ceiling * largest))};
    return !(out->found <= out->allowed);
}
