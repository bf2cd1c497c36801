/* report_full.c - every measure of every stage on the terminal, in lines that are as wide as it takes. */
#include "report/report.h"

#include "base/coordinates.h"

#include <math.h>

/* The last columns, and the origin of the limit. */
static void print_isolated(FILE *to, const dp_stage_result *stage) {
    const dp_isolated *alone = &stage->isolated;
    char where[DP_DIMS_TEXT];
    if (!alone->judged) {
        fprintf(to, "  %9s %9s %9s %9s %8s %8s %8s %8s %-26s %s\n", "-", "-", "-", "-", "-", "-", "-", "-",
                "not run alone", stage->limit.origin);
        return;
    }
    fprintf(to, "  %9.2e %9.2e %9.2e %9.2e %8.3g %8.3g %8.3g %8.3g %-10s at %-12s %s\n",
            dp_shown(&alone->difference, alone->difference.l2_rel), stage->share.inherited, alone->share,
            alone->worst_bound, alone->tightness, alone->noise, alone->noise_limit, alone->oracle_share,
            alone->fed ? "fed" : "own inputs", dp_coordinates_text(stage->rank, stage->dim, alone->worst, where),
            stage->limit.origin);
}

static void print_stage(FILE *to, const dp_stage_result *stage) {
    const dp_difference *d = &stage->difference;
    char where[DP_DIMS_TEXT] = "none";
    fprintf(to, "%-4s  %-26s ", dp_stage_failed(stage) ? "FAIL" : "ok", stage->name);
    if (d->worst >= 0) dp_coordinates_text(stage->rank, stage->dim, d->worst, where);
    if (stage->exact) {
        fprintf(to, "%8lld integers, %lld differ, first at %s\n", (long long)d->count, (long long)d->mismatches, where);
        return;
    }
    fprintf(to, "%8lld %9.2e %9.2e %9.2e %11.4e %8.3g %8.3g %8.3g %6lld %5lld %5lld ", (long long)d->count,
            dp_shown(d, d->max_abs), dp_shown(d, d->max_rel), dp_shown(d, d->l2_rel), dp_shown(d, 1.0 - d->cosine),
            dp_shown(d, d->ulp_median), dp_shown(d, d->ulp_p99), dp_shown(d, d->ulp_max), (long long)d->sign_flips,
            (long long)d->nan, (long long)d->inf);
    fprintf(to, "%-16s %16.9g %16.9g  %9.2e %9.2e %6.1f ", where, d->worst_got, d->worst_want, stage->limit.l2_rel,
            stage->limit.max_rel, 100.0 * stage->headroom);
    print_isolated(to, stage);
}

void dp_report_full(FILE *to, const dp_result *result) {
    if (result->stage_count == 0) return;
    fprintf(to, "%-4s  %-26s %8s %9s %9s %9s %11s %8s %8s %8s %6s %5s %5s ", "", "stage", "values", "max abs",
            "max/rms", "rel L2", "1 - cosine", "ULP p50", "ULP p99", "ULP max", "signs", "NaN", "Inf");
    fprintf(to, "%-16s %16s %16s  %9s %9s %6s ", "worst at", "got", "reference", "L2 limit", "max limit", "left %");
    fprintf(to, "  %9s %9s %9s %9s %8s %8s %8s %8s %-26s %s\n", "added L2", "inherited", "of bound", "bound", "loose x",
            "noise", "noiselim", "oracle", "alone", "origin of the limit");
    for (int i = 0; i < result->stage_count; i++) print_stage(to, &result->stage[i]);
}
