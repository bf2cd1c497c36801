/* report_text.c - the table of a check on the terminal. */
#include "report.h"

#include "stage_set.h"

#include <math.h>
#include <string.h>

/* "[12, 40]" for the flat index 520 of a [.., 40] tensor. */
static void coordinates(const dp_stage_result *stage, int64_t flat, char text[DP_DIMS_TEXT]) {
    int64_t at[4] = {0};
    for (int i = stage->rank - 1; i >= 0; i--) {
        at[i] = flat % stage->dim[i];
        flat /= stage->dim[i];
    }
    dp_dims_text(stage->rank, at, text);
}

/* The float32 bits of a value, for a failing line. */
static uint32_t bits_of(double value) {
    const float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    return bits;
}

static void print_failure(FILE *to, const dp_stage_result *stage) {
    char where[DP_DIMS_TEXT];
    const dp_difference *d = &stage->difference;
    if (d->count == 0) {
        fprintf(to, "      the implementation did not show this stage with shape %s\n",
                dp_dims_text(stage->rank, stage->dim, where));
        return;
    }
    coordinates(stage, d->worst, where);
    if (stage->exact) {
        fprintf(to, "      first at %s: got %.0f, reference %.0f; %lld of %lld differ\n", where, d->worst_got,
                d->worst_want, (long long)d->mismatches, (long long)d->count);
        return;
    }
    fprintf(to,
            "      worst at %s: got %.9g (0x%08x), reference %.17g; %lld not finite, %lld signs flipped, ULP p50 %.3g "
            "p99 %.3g max %.3g\n",
            where, d->worst_got, bits_of(d->worst_got), d->worst_want, (long long)d->nonfinite,
            (long long)d->sign_flips, d->ulp_median, d->ulp_p99, d->ulp_max);
    if (d->nonfinite > 0) {
        fprintf(to, "      bar: %s; values that are not finite cannot be held against it\n", stage->bar.origin);
        return;
    }
    fprintf(to, "      bar: %s = L2 %.2e, max %.2e; the error is %.3g and %.3g times that\n", stage->bar.origin,
            stage->bar.l2_rel, stage->bar.max_rel, d->l2_rel / stage->bar.l2_rel, d->max_rel / stage->bar.max_rel);
}

static void print_stage(FILE *to, const dp_stage_result *stage) {
    const dp_difference *d = &stage->difference;
    if (stage->exact) {
        fprintf(to, "%-4s  %-26s %lld integers, %lld differ\n", stage->pass ? "ok" : "FAIL", stage->name,
                (long long)d->count, (long long)d->mismatches);
        if (!stage->pass) print_failure(to, stage);
        return;
    }
    fprintf(to, "%-4s  %-26s %9.2e %9.2e   %9.2e %9.2e   ", stage->pass ? "ok" : "FAIL", stage->name, d->l2_rel,
            stage->bar.l2_rel, d->max_rel, stage->bar.max_rel);
    if (isfinite(stage->headroom))
        fprintf(to, "%7.0f %%", 100.0 * stage->headroom);
    else
        fprintf(to, "%9s", "none");
    fprintf(to, "%s\n", stage->pass && stage->headroom < DP_WARN_HEADROOM ? "  warn" : "");
    if (!stage->pass) print_failure(to, stage);
}

static void print_arm(FILE *to, const dp_arm_result *arm) {
    if (arm->identical) {
        fprintf(to, "ok    %-26s identical: %lld values, every bit\n", arm->name, (long long)arm->compared);
        return;
    }
    if (arm->nonfinite) {
        fprintf(to, "FAIL  %-26s not finite, in the same bits as forward_block: first at %s value %lld: 0x%08x\n",
                arm->name, arm->stage, (long long)arm->index, arm->round_bits);
        return;
    }
    fprintf(to, "FAIL  %-26s not identical to forward_block: first at %s", arm->name,
            arm->stage[0] != '\0' ? arm->stage : "nothing compared");
    if (arm->stage[0] != '\0' && arm->index >= 0)
        fprintf(to, " value %lld: block 0x%08x, round 0x%08x", (long long)arm->index, arm->block_bits, arm->round_bits);
    else if (arm->stage[0] != '\0')
        fprintf(to, ", which one side does not show, or not with the rows expected");
    fprintf(to, "\n");
}

/* The first stage outside its bar; NULL when there is none. */
static const char *first_failure(const dp_result *result) {
    for (int i = 0; i < result->stage_count; i++)
        if (!result->stage[i].pass) return result->stage[i].name;
    return NULL;
}

void dp_report_verdict(FILE *to, const dp_result *result) {
    const dp_stage_result *worst = dp_worst_stage(result);
    if (result->verdict == DP_REFUSED || result->verdict == DP_ERROR) {
        fprintf(to, "%s: %s: %s\n", dp_verdict_name(result->verdict), result->error.code, result->error.message);
        return;
    }
    if (result->verdict == DP_NOTHING) {
        fprintf(to, "NOTHING COMPARED: the filter '%s' matches no stage and no arm; see --list for their names.\n",
                result->options->filter != NULL ? result->options->filter : "");
        return;
    }
    fprintf(to, "%s: %d of %d stages compared, %d outside their bars; %d rounds, %d not identical",
            dp_verdict_name(result->verdict), result->stage_count, result->stages_known, result->failed_stages,
            result->arm_count, result->failed_arms);
    const char *first = first_failure(result);
    if (first != NULL)
        fprintf(to, "; first off at %s", first);
    else if (worst != NULL)
        fprintf(to, "; least headroom %.0f %% at %s", 100.0 * worst->headroom, worst->name);
    if (result->warnings > 0) fprintf(to, "; %d under %.0f %%", result->warnings, 100.0 * DP_WARN_HEADROOM);
    if (result->options->filter != NULL) fprintf(to, "; filtered by '%s'", result->options->filter);
    fprintf(to, "\n");
}

void dp_report_text(FILE *to, const dp_result *result, bool failures_only) {
    const bool any = result->stage_count + result->arm_count > 0;
    if (any && !failures_only)
        fprintf(to, "%-4s  %-26s %9s %9s   %9s %9s   %9s\n", "", "stage", "rel L2", "bar", "max/rms", "bar",
                "headroom");
    for (int i = 0; i < result->stage_count; i++)
        if (!failures_only || !result->stage[i].pass) print_stage(to, &result->stage[i]);
    for (int i = 0; i < result->arm_count; i++)
        if (!failures_only || !result->arm[i].identical) print_arm(to, &result->arm[i]);
}
