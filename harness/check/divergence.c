/* divergence.c - see divergence.h. */
#include "check/divergence.h"

#include <math.h>
#include <stdio.h>

const char *dp_divergence_name(dp_divergence_by by) { return by == DP_BY_ISOLATED ? "isolated" : "chained"; }

const dp_stage_result *dp_first_divergence(const dp_result *result, dp_divergence_by *by) {
    *by = DP_BY_ISOLATED;
    for (int i = 0; i < result->stage_count; i++)
        if (dp_alone_failed(&result->stage[i])) return &result->stage[i];
    *by = DP_BY_CHAINED;
    for (int i = 0; i < result->stage_count; i++)
        if (!result->stage[i].pass) return &result->stage[i];
    return NULL;
}

/* Which of the limits of a stage run alone it exceeds: its elements can all be inside their bounds and it still fails.
 */
static void addition(const dp_isolated *alone, char *text, size_t size) {
    const char *inputs = alone->fed ? "run alone, on the oracle's own inputs, " : "run alone, ";
    if (alone->difference.nonfinite > 0)
        snprintf(text, size, "%s%lld of its values are NaN or infinite", inputs,
                 (long long)alone->difference.nonfinite);
    else if (!(alone->share <= 1.0))
        snprintf(text, size, "%sits worst element is off by %.3g times its bound", inputs, alone->share);
    else if (!(alone->noise <= alone->noise_limit))
        snprintf(text, size,
                 "%seach element is inside its bound, but together they are off by %.3g times their "
                 "rounding noise, where %.3g is the most",
                 inputs, alone->noise, alone->noise_limit);
    else if (!(alone->peak <= alone->peak_limit))
        snprintf(text, size,
                 "%seach element is inside its bound, but the largest error is %.3g times its rounding "
                 "noise, where %.3g is the most",
                 inputs, alone->peak, alone->peak_limit);
    else
        snprintf(text, size,
                 "the oracle's own values do not follow from its inputs: they are off by %.3g times what "
                 "rounding can change",
                 alone->oracle_share);
}

/* How far off the diverging stage is, in words. */
static void extent(const dp_stage_result *stage, dp_divergence_by by, char *text, size_t size) {
    const dp_difference *d = &stage->difference;
    if (by == DP_BY_ISOLATED)
        addition(&stage->isolated, text, size);
    else if (d->count == 0)
        snprintf(text, size, "the implementation did not show it with the shape expected");
    else if (stage->exact)
        snprintf(text, size, "%lld of %lld integers differ", (long long)d->mismatches, (long long)d->count);
    else if (d->nonfinite == 0 && stage->sketch.nonfinite > 0)
        snprintf(text, size, "row %lld holds values that are NaN or infinite", (long long)stage->sketch.row);
    else if (d->nonfinite > 0)
        snprintf(text, size, "%lld of %lld values are NaN or infinite", (long long)d->nonfinite, (long long)d->count);
    else
        snprintf(text, size, "its error is %.3g times its limit", dp_times_limit(stage));
}

const char *dp_result_sentence(const dp_result *result, char text[DP_SENTENCE]) {
    char how[256];
    dp_divergence_by by;
    const dp_stage_result *first = dp_first_divergence(result, &by), *least = dp_worst_stage(result);
    if (dp_stopped(result))
        snprintf(text, DP_SENTENCE, "%s with %s, so no verdict on the values exists.",
                 result->verdict == DP_REFUSED ? "Refused"
                 : result->verdict == DP_FAIL  ? "Failed"
                                               : "Stopped by an error",
                 result->error.code);
    else if (result->verdict == DP_NOTHING)
        snprintf(text, DP_SENTENCE, "Nothing was compared: the filter matches no stage and no round.");
    else if (first != NULL) {
        extent(first, by, how, sizeof how);
        snprintf(text, DP_SENTENCE,
                 "It first goes off at %s: %s. %d of %d stages are outside their limits, and %d of %d rounds are not "
                 "identical to the block run.",
                 first->name, how, result->failed_stages, result->stage_count, result->failed_variants,
                 result->variant_count);
    } else if (result->failed_variants > 0)
        snprintf(text, DP_SENTENCE,
                 "Every stage is inside its limit, but %d of %d rounds are not identical to the block run.",
                 result->failed_variants, result->variant_count);
    else if (least != NULL)
        snprintf(
            text, DP_SENTENCE,
            "All %d stages are inside their limits and %d rounds are identical to the block run; the least headroom "
            "is %.0f %%, at %s.",
            result->stage_count, result->variant_count, 100.0 * least->headroom, least->name);
    else
        snprintf(text, DP_SENTENCE, "All %d rounds are identical to the block run; no stage was compared.",
                 result->variant_count);
    return text;
}
