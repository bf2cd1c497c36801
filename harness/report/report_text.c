/* report_text.c - the table of a check on the terminal: a line a stage, more where something is wrong. Every measure of
 * every stage is report_full.c's, where limits come from explain.c's. */
#include "report/report.h"

#include "base/coordinates.h"
#include "check/seen.h"
#include "check/divergence.h"
#include "base/shortest.h"

#include <math.h>
#include <string.h>

/* The float32 bits of a value, for a failing line. */
static uint32_t bits_of(double value) {
    const float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    return bits;
}

static void print_failure(FILE *to, const dp_stage_result *stage) {
    char where[DP_DIMS_TEXT], want[DP_SHORTEST_TEXT];
    const dp_difference *d = &stage->difference;
    if (d->count == 0) {
        fprintf(to, "      the implementation did not show this stage with shape %s\n",
                dp_dims_text(stage->rank, stage->dim, where));
        return;
    }
    dp_coordinates_text(stage->rank, stage->dim, d->worst, where);
    if (stage->exact) {
        fprintf(to, "      first at %s: got %.0f, reference %.0f; %lld of %lld differ\n", where, d->worst_got,
                d->worst_want, (long long)d->mismatches, (long long)d->count);
        return;
    }
    fprintf(to,
            "      worst at %s: got %.9g (0x%08x), reference %s; %lld NaN, %lld infinite, %lld signs flipped, ULP p50 "
            "%.3g p99 %.3g max %.3g\n",
            where, d->worst_got, bits_of(d->worst_got), dp_shortest(d->worst_want, want, sizeof want),
            (long long)d->nan, (long long)d->inf, (long long)d->sign_flips, dp_shown(d, d->ulp_median),
            dp_shown(d, d->ulp_p99), dp_shown(d, d->ulp_max));
    if (d->nonfinite > 0) {
        fprintf(to, "      limit: %s; values that are not finite cannot be held against it\n", stage->limit.origin);
        return;
    }
    if (stage->sketch.judged && !stage->sketch.pass) {
        char text[DP_SKETCH_TEXT];
        fprintf(to, "      %s\n", dp_sketch_text(&stage->sketch, text));
    }
    fprintf(to, "      limit: %s = L2 %.2e, max %.2e; the error is %.3g and %.3g times that\n", stage->limit.origin,
            stage->limit.l2_rel, stage->limit.max_rel, d->l2_rel / stage->limit.l2_rel,
            d->max_rel / stage->limit.max_rel);
}

/* What is wrong with the stage run alone. */
static void print_addition(FILE *to, const dp_stage_result *stage) {
    const dp_isolated *alone = &stage->isolated;
    char where[DP_DIMS_TEXT], want[DP_SHORTEST_TEXT];
    fprintf(to,
            "      alone, worst at %s: got %.9g (0x%08x), expected %s within %.3g (%s): %.3g times that; noise %.3g of "
            "at most %.3g, peak %.3g of at most %.3g\n",
            dp_coordinates_text(stage->rank, stage->dim, alone->worst, where), alone->worst_got,
            bits_of(alone->worst_got), dp_shortest(alone->worst_want, want, sizeof want), alone->worst_bound,
            alone->bound, alone->share, alone->noise, alone->noise_limit, alone->peak, alone->peak_limit);
}

double dp_shown(const dp_difference *difference, double measure) { return difference->nonfinite > 0 ? NAN : measure; }

static void print_percent(FILE *to, double share) {
    if (isfinite(share))
        fprintf(to, " %7.0f %%", 100.0 * share);
    else
        fprintf(to, " %9s", "none");
}

static void print_stage(FILE *to, const dp_stage_result *stage) {
    const dp_difference *d = &stage->difference;
    const bool failed = dp_stage_failed(stage);
    if (stage->exact) {
        fprintf(to, "%-4s  %-26s %lld integers, %lld differ\n", failed ? "FAIL" : "ok", stage->name,
                (long long)d->count, (long long)d->mismatches);
        if (!stage->pass) print_failure(to, stage);
        return;
    }
    fprintf(to, "%-4s  %-26s %9.2e %9.2e  %9.2e %9.2e ", failed ? "FAIL" : "ok", stage->name, dp_shown(d, d->l2_rel),
            stage->limit.l2_rel, dp_shown(d, d->max_rel), stage->limit.max_rel);
    print_percent(to, stage->headroom);
    if (stage->share.known)
        fprintf(to, "  %9.2e %9.2e", stage->share.added, stage->share.inherited);
    else
        fprintf(to, "  %9s %9s", "-", "-");
    if (stage->isolated.judged)
        fprintf(to, " %8.3g", stage->isolated.share);
    else
        fprintf(to, " %8s", "-");
    fprintf(to, "%s\n", !failed && stage->warn ? "  warn" : "");
    if (!stage->pass) print_failure(to, stage);
    if (dp_alone_failed(stage)) print_addition(to, stage);
}

static void print_variant(FILE *to, const dp_variant_result *variant) {
    if (variant->identical) {
        fprintf(to, "ok    %-26s identical: %lld values, every bit\n", variant->name, (long long)variant->compared);
        return;
    }
    if (variant->nonfinite) {
        fprintf(to, "FAIL  %-26s not finite, in the same bits as forward_block: first at %s value %lld: 0x%08x\n",
                variant->name, variant->stage, (long long)variant->index, variant->round_bits);
        return;
    }
    fprintf(to, "FAIL  %-26s not identical to forward_block: first at %s", variant->name,
            variant->stage[0] != '\0' ? variant->stage : "nothing compared");
    if (variant->stage[0] != '\0' && variant->index >= 0)
        fprintf(to, " value %lld: block 0x%08x, round 0x%08x", (long long)variant->index, variant->block_bits,
                variant->round_bits);
    else if (variant->stage[0] != '\0')
        fprintf(to, ", which one side does not show, or not with the rows expected");
    fprintf(to, "\n");
}

static void print_layers(FILE *to, const dp_result *result) {
    for (int i = 0; i < result->layer_count; i++) {
        const dp_layer_growth *layer = &result->layer[i];
        fprintf(to, "layer %-3d residual error %9.2e -> %9.2e", layer->layer, layer->in, layer->out);
        if (isnan(layer->factor))
            fprintf(to, ", %7s", "-");
        else if (layer->factor > 0.0)
            fprintf(to, ", %5.2f x", layer->factor);
        else
            fprintf(to, ", %7s", "");
        if (layer->source[0] != '\0')
            fprintf(to, "   adds most: %s, %.3g x what it may", layer->source, layer->source_share);
        fprintf(to, "\n");
    }
}

/* The second line of a verdict: 100 columns hold it unless there is a filter too; and what it rests on. */
static void print_rest(FILE *to, const dp_result *result) {
    dp_divergence_by by;
    const dp_stage_result *first = dp_first_divergence(result, &by), *worst = dp_worst_stage(result);
    const char *before = "      ";
    if (result->isolated_count > 0) {
        fprintf(to, "%s%d alone, %d outside their bounds", before, result->isolated_count, result->failed_isolated);
        before = "; ";
    }
    if (first != NULL || worst != NULL) {
        if (first != NULL)
            fprintf(to, "%sfirst failing stage %s", before, first->name);
        else
            fprintf(to, "%sleast headroom %.0f %% at %s", before, 100.0 * worst->headroom, worst->name);
        before = "; ";
    }
    if (result->warnings > 0) {
        fprintf(to, "%s%d under %.0f %%", before, result->warnings, 100.0 * DP_WARN_HEADROOM);
        before = "; ";
    }
    if (result->options->filter != NULL) {
        fprintf(to, "%sfiltered by '%s'", before, result->options->filter);
        before = "; ";
    }
    if (before[0] == ';') fprintf(to, "\n");
    if (result->stage_count > 0) {
        const dp_seen coverage = dp_seen_of(result);
        char text[DP_SEEN_TEXT];
        fprintf(to, "      %s\n", dp_seen_text(&coverage, text));
    }
}

void dp_report_verdict(FILE *to, const dp_result *result) {
    if (dp_stopped(result)) {
        fprintf(to, "%s: %s: %s\n", dp_verdict_name(result->verdict), result->error.code, result->error.message);
        return;
    }
    if (result->verdict == DP_NOTHING) {
        fprintf(to, "NOTHING COMPARED: the filter '%s' matches no stage and no round; see --list.\n",
                result->options->filter != NULL ? result->options->filter : "");
        return;
    }
    fprintf(to, "%s: %d of %d stages compared, %d outside their limits; %d rounds, %d not identical\n",
            dp_verdict_name(result->verdict), result->stage_count, result->stages_known, result->failed_stages,
            result->variant_count, result->failed_variants);
    print_rest(to, result);
}

void dp_report_text(FILE *to, const dp_result *result, bool failures_only) {
    const bool any = result->stage_count + result->variant_count > 0;
    char text[DP_GROWTH_TEXT];
    if (any && !failures_only)
        fprintf(to, "%-4s  %-26s %9s %9s  %9s %9s  %9s  %9s %9s %8s\n", "", "stage", "rel L2", "limit", "max/rms",
                "limit", "headroom", "added", "inherited", "of bound");
    for (int i = 0; i < result->stage_count; i++)
        if (!failures_only || dp_stage_failed(&result->stage[i])) print_stage(to, &result->stage[i]);
    for (int i = 0; i < result->variant_count; i++)
        if (!failures_only || !result->variant[i].identical) print_variant(to, &result->variant[i]);
    if (!failures_only) print_layers(to, result);
    if (any && result->options->head != NULL)
        fprintf(to, "%soutput head: %s of %s\n", failures_only ? "      " : "", result->head, result->options->head);
    if (dp_growth_text(result, text)[0] != '\0' && (!failures_only || result->failed_isolated > 0))
        fprintf(to, "%s%s.\n", failures_only ? "      " : "", text);
}
