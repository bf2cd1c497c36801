/* summary.c - see summary.h. */
#include "report/summary.h"

#include "base/coordinates.h"
#include "check/divergence.h"
#include "report/stage_words.h"

#include <math.h>
#include <string.h>

/* A name from outside the program in `ticks`, which nothing in it can end. */
static void ticked(FILE *to, const char *name) {
    fputc('`', to);
    for (; *name != '\0'; name++) fputc(*name == '`' ? '\'' : (unsigned char)*name < 0x20 ? ' ' : *name, to);
    fputc('`', to);
}

/* The first round that is not identical; NULL when all are. */
static const dp_variant_result *failed_round(const dp_result *r) {
    for (int i = 0; i < r->variant_count; i++)
        if (!r->variant[i].identical || r->variant[i].nonfinite) return &r->variant[i];
    return NULL;
}

const char *dp_summary_stage(const dp_result_case *item) {
    dp_divergence_by by;
    const dp_stage_result *first = dp_first_divergence(&item->result, &by);
    const dp_variant_result *variant = failed_round(&item->result);
    return first != NULL ? first->name : variant != NULL ? variant->stage : "";
}

void dp_summary_headline(FILE *to, const dp_result_case *item) {
    const char *stage = dp_summary_stage(item);
    switch (item->result.verdict) {
    case DP_PASS:
        fputs("passes", to);
        break;
    case DP_FAIL:
        if (stage[0] != '\0')
            fprintf(to, "fails, first at `%s`", stage);
        else
            fputs("fails", to);
        if (dp_stopped(&item->result)) {
            fputs(" before a value was compared (", to);
            ticked(to, item->result.error.code);
            fputc(')', to);
        }
        break;
    case DP_REFUSED:
    case DP_ERROR:
        fputs(item->result.verdict == DP_REFUSED ? "was refused before a value was compared (" : "could not be run (",
              to);
        ticked(to, item->result.error.code);
        fputc(')', to);
        break;
    case DP_NOTHING:
        fputs("compared nothing", to);
    }
}

/* ---- Where it began ---- */

static void least_headroom(FILE *to, const dp_result *r) {
    const dp_stage_result *least = dp_worst_stage(r);
    if (least != NULL && isfinite(least->headroom))
        fprintf(to, " The stage nearest to its limit is `%s`, with %.0f %% of it left.", least->name,
                100 * least->headroom);
}

/* Ids differ or do not, and so do values that are not finite: of such the first is kept. */
static void worst_element(FILE *to, const dp_stage_result *stage, int64_t index, double got, double want) {
    char at[DP_DIMS_TEXT];
    if (index < 0) return;
    fprintf(to, " %s, %s, is ", !stage->exact && isfinite(got) ? "The worst element" : "The first of them",
            dp_coordinates_text(stage->rank, stage->dim, index, at));
    if (isnan(got))
        fputs("NaN", to);
    else
        fprintf(to, "%.9g", got);
    fprintf(to, " instead of %.9g.", want);
}

/* "1 of 59 run alone is outside its bound", "27 of 59 compared stages are outside their limits". */
static void outside(FILE *to, int failed, int count, const char *stages, const char *limit) {
    fprintf(to, "%d of %d %s %s %s%s", failed, count, stages, failed == 1 ? "is outside its" : "are outside their",
            limit, failed == 1 ? "" : "s");
}

/* Which rows (tokens) of the stage are off by far more than rounding explains: what a mask, a position or a padded row
 * did is told by them. Says nothing where rows are no tokens or none stands out. */
static void rows_off(FILE *to, const dp_stage_result *stage, const dp_stage_plot *plot) {
    enum { MOST_SPANS = 3, FAR = 10 };
    const double limit = FAR * stage->limit.l2_rel;
    int from[MOST_SPANS], last[MOST_SPANS], spans = 0, off = 0;
    const int count = plot->rows;
    if (stage->exact || plot->row_group != 1 || count < 2) return;
    if (strncmp(stage->name, "kv.", 3) == 0 || strcmp(stage->name, "rope.inv_freq") == 0) return;
    for (int i = 0; i < count; i++) {
        if (plot->row[i] < 0 || plot->row[i] <= limit) continue;
        off++;
        if (spans == 0 || last[spans - 1] != i - 1) {
            if (spans == MOST_SPANS) return; /* too scattered for a sentence: the heat map shows it */
            from[spans++] = i;
        }
        last[spans - 1] = i;
    }
    if (off == 0) return;
    if (off == count) {
        fprintf(to, " All of its %d rows are off.", count);
        return;
    }
    fputs(off == 1 ? " Only row " : " Rows ", to);
    for (int i = 0; i < spans; i++) {
        fputs(i == 0 ? "" : i == spans - 1 ? " and " : ", ", to);
        fprintf(to, from[i] == last[i] ? "%d" : "%d to %d", from[i], last[i]);
    }
    fprintf(to, " of its %d %s off.", count, off == 1 ? "is" : "are");
}

/* "41.3", "584,000", "4.3e9": three digits and no exponent where one can do without. */
static void factor(FILE *to, double value) {
    if (value < 999.5) {
        fprintf(to, "%.3g", value);
    } else if (value < 999500) {
        const double unit = value < 9995 ? 10 : value < 99950 ? 100 : 1000;
        const long rounded = lround(value / unit) * (long)unit;
        fprintf(to, "%ld,%03ld", rounded / 1000, rounded % 1000);
    } else {
        char text[32];
        snprintf(text, sizeof text, "%.1e", value);
        const char *digits = strchr(text, '+');
        if (digits == NULL) { /* infinite */
            fputs(text, to);
            return;
        }
        fprintf(to, "%.*s%s", (int)(digits - text), text, digits + 1 + strspn(digits + 1, "0"));
    }
}

static void chained_fault(FILE *to, const dp_stage_result *stage, const dp_stage_plot *plot) {
    const dp_difference *d = &stage->difference;
    if (d->count == 0) {
        fputs(" The implementation did not show this stage, or showed another shape.", to);
    } else if (d->nonfinite > 0) {
        fprintf(to, " NaN or infinite: %lld of its %lld compared values.", (long long)d->nonfinite,
                (long long)d->count);
        worst_element(to, stage, d->worst, d->worst_got, d->worst_want);
    } else if (stage->exact) {
        fprintf(to, " %lld of its %lld ids %s.", (long long)d->mismatches, (long long)d->count,
                d->mismatches == 1 ? "differs" : "differ");
        worst_element(to, stage, d->worst, d->worst_got, d->worst_want);
    } else {
        fputs(" Its error is ", to);
        factor(to, dp_times_limit(stage));
        fputs(" times the limit.", to);
        if (stage->sketch.judged && !stage->sketch.pass) {
            char text[DP_SKETCH_TEXT];
            fprintf(to, " By the %s.", dp_sketch_text(&stage->sketch, text));
        }
        worst_element(to, stage, d->worst, d->worst_got, d->worst_want);
        rows_off(to, stage, plot);
    }
}

static void isolated_fault(FILE *to, const dp_stage_result *stage, const dp_stage_plot *plot) {
    const dp_isolated *alone = &stage->isolated;
    const double share = alone->share, oracle = alone->oracle_share;
    const double noise = alone->noise / alone->noise_limit, peak = alone->peak / alone->peak_limit;
    if (share <= 1 && !(noise > 1) && !(peak > 1) && oracle > 1) {
        fputs(" Run alone it is inside its bound, but the oracle's values of it are off by ", to);
        factor(to, oracle);
        fputs(" times what rounding can change of what follows from the oracle's own inputs: the fault is in the "
              "oracle, or in what the run and this program's own float64 check of it have in common, such as how "
              "weights are decoded and what the config is taken to mean.",
              to);
        return;
    }
    fprintf(to, " Run alone, on %s, ", alone->fed ? "the reference's own inputs" : "inputs that are known exactly");
    if (stage->exact) {
        fputs("it gives other ids than follow from them", to);
    } else if (!isfinite(share)) {
        fputs("it gives values that are not finite", to);
    } else if (share <= 1 && (noise > 1 || peak > 1)) {
        fputs("each element is inside the bound of its own arithmetic, but ", to);
        fputs(noise > 1 ? "together their errors are " : "the largest error is ", to);
        factor(to, noise > 1 ? noise : peak);
        fputs(" times the rounding noise that they may have", to);
    } else {
        fputs("its error is ", to);
        factor(to, share);
        fputs(" times the bound of its own arithmetic", to);
    }
    fputs(": the fault is in this stage.", to);
    worst_element(to, stage, alone->worst, alone->worst_got, alone->worst_want);
    rows_off(to, stage, plot);
}

static void diverged(FILE *to, const dp_result *r, const dp_stage_result *stage, dp_divergence_by by) {
    const char *words = dp_stage_words(stage->name);
    const dp_stage_plot *plot = &r->plot.stage[stage - r->stage];
    fprintf(to, " It began at `%s`%s%s.", stage->name, words[0] != '\0' ? ", " : "", words);
    if (by == DP_BY_ISOLATED) {
        isolated_fault(to, stage, plot);
        return;
    }
    chained_fault(to, stage, plot);
    if (stage->isolated.judged && dp_headroom(&stage->limit, &stage->isolated.difference) < 0.0)
        fputs(
            " Run alone, on the reference's own inputs, it leaves that limit as well, though not the bound of its own "
            "arithmetic: what computes here rounds more coarsely than the limit allows.",
            to);
    else if (stage->isolated.judged)
        fputs(" Run alone it stays within the bound of its own arithmetic, so it received the error from its inputs.",
              to);
    else
        fputs(" Every stage before it is inside its limit. No stage was run alone, so the fault is in this stage or in "
              "inputs whose own error still passed.",
              to);
}

static void round_fault(FILE *to, const dp_variant_result *variant) {
    if (variant->nonfinite) {
        fprintf(to, " `forward_round` with a cache (`%s`) holds the same values that are not finite.", variant->name);
        return;
    }
    fprintf(to, " `forward_round` with a cache (`%s`) does not give the bits of `forward_block`", variant->name);
    if (variant->stage[0] != '\0' && variant->index < 0)
        fprintf(to, ": one side does not show `%s` with the rows expected", variant->stage);
    else if (variant->stage[0] != '\0')
        fprintf(to, ": they differ first in `%s`, value %lld, 0x%08x instead of 0x%08x", variant->stage,
                (long long)variant->index, (unsigned)variant->round_bits, (unsigned)variant->block_bits);
    fputs(".", to);
}

static void failure(FILE *to, const dp_result *r) {
    dp_divergence_by by;
    const dp_stage_result *first = dp_first_divergence(r, &by);
    const dp_variant_result *variant = failed_round(r);
    fputs(" fails: ", to);
    outside(to, r->failed_stages, r->stage_count, "compared stages", "limit");
    if (r->isolated_count > 0) {
        fputs(", ", to);
        outside(to, r->failed_isolated, r->isolated_count, "run alone", "bound");
    }
    fputs(".", to);
    if (first != NULL) diverged(to, r, first, by);
    if (variant != NULL) round_fault(to, variant);
}

void dp_summary_begin(FILE *to, const dp_result_case *item) {
    const dp_result *r = &item->result;
    ticked(to, item->name);
    switch (r->verdict) {
    case DP_PASS:
        fprintf(to, " passes: all %d compared stages are inside their limits and all %d rounds give the same bits.",
                r->stage_count, r->variant_count);
        least_headroom(to, r);
        break;
    case DP_FAIL:
        if (dp_stopped(r))
            fprintf(to, " fails before a value was compared. %s", r->error.message);
        else
            failure(to, r);
        break;
    case DP_REFUSED:
    case DP_ERROR:
        fprintf(to, " %s. %s",
                r->verdict == DP_REFUSED ? "was refused, so there is no verdict about its numbers"
                                         : "could not be run to its end, so there is no verdict",
                r->error.message);
        break;
    case DP_NOTHING:
        fputs(": nothing was compared, which is no pass.", to);
    }
}

/* ---- What carried it on ---- */

/* A stage that was fed the run's own values, for want of the oracle's, hands on what is not finite in them. */
static bool handed_on(const dp_stage_result *stage) {
    const dp_isolated *alone = &stage->isolated;
    return dp_alone_failed(stage) && !alone->fed && !isfinite(alone->share) && !stage->exact;
}

/* Stages after the first that fail alone too: they add errors of their own. */
static void other_faults(FILE *to, const dp_result *r, const dp_stage_result *first, bool carried) {
    enum { MOST_NAMED = 4 };
    const bool spoilt = first->difference.nonfinite > 0;
    const dp_stage_result *const end = r->stage + r->stage_count;
    int others = 0, handed = 0, named = 0;
    for (const dp_stage_result *stage = first + 1; stage < end; stage++) {
        if (spoilt && handed_on(stage))
            handed++;
        else
            others += dp_alone_failed(stage);
    }
    if (handed > 0)
        fprintf(to,
                " Run alone, %d of them %s not finite either, but had to be fed the run's own values, since the "
                "oracle stores samples.",
                handed, handed == 1 ? "is" : "are");
    if (others == 0 && handed == 0)
        fprintf(to, " Every later stage, run alone, stays within its bound%s.",
                carried ? ": they only carry the error on" : " too");
    if (others == 0) return;
    fputs(others == 1 ? " Another stage fails alone too:" : " Other stages fail alone too:", to);
    for (const dp_stage_result *stage = first + 1; stage < end && named < MOST_NAMED; stage++)
        if (dp_alone_failed(stage) && !(spoilt && handed_on(stage)))
            fprintf(to, "%s `%s`", named++ == 0 ? "" : ",", stage->name);
    if (others > MOST_NAMED) fprintf(to, " and %d more", others - MOST_NAMED);
    fputs(".", to);
}

/* The layers from the first bad one on that at least double the error of the residual stream, and by how much. */
static void per_layer(FILE *to, const dp_result *r, int from) {
    int told = 0, quiet = 0; /* quiet: after the last that is told */
    for (int i = 0; i < r->layer_count; i++) {
        const double by = r->layer[i].factor;
        if (r->layer[i].layer < from || !(by > 0)) continue;
        if (by < 2) {
            quiet++;
            continue;
        }
        quiet = 0;
        if (told == 0)
            fprintf(to, " Layer %d multiplies the error of the residual stream by ", r->layer[i].layer);
        else
            fprintf(to, ", layer %d by ", r->layer[i].layer);
        factor(to, by);
        told++;
    }
    if (told > 0) fprintf(to, "%s.", quiet > 0 ? "; no later one doubles it" : "");
}

void dp_summary_growth(FILE *to, const dp_result_case *item) {
    const dp_result *r = &item->result;
    dp_divergence_by by;
    const dp_stage_result *stage = dp_first_divergence(r, &by), *final = dp_stage_named(r, "final");
    if (stage == NULL) return;
    const int at = (int)(stage - r->stage), after = r->stage_count - at - 1, layer = dp_stage_layer(stage);
    int failed = 0;
    bool layers_after = layer >= 0;
    for (int i = at + 1; i < r->stage_count; i++) {
        failed += !r->stage[i].pass;
        layers_after = layers_after || dp_stage_layer(&r->stage[i]) >= 0;
    }
    if (after > 0) {
        fprintf(to, failed > 0 ? "Of the %d stages after it, " : "None of the %d stages after it", after);
        if (failed > 0)
            fprintf(to, failed == 1 ? "%d is outside its limit." : "%d are outside their limits.", failed);
        else
            fputs(" is outside its limit.", to);
        if (r->isolated_count > 0) other_faults(to, r, stage, failed > 0);
    }
    if (layers_after) per_layer(to, r, layer >= 0 ? layer : 0);
    if (final == NULL || final == stage) return;
    if (final->difference.nonfinite > 0)
        fprintf(to, " The output (`final`) holds %lld values that are not finite.",
                (long long) final->difference.nonfinite);
    else
        fprintf(to, " At the output (`final`) the relative L2 error is %.2g, %s its limit.", final->difference.l2_rel,
                final->pass ? "inside" : "outside");
}

/* ---- Tokens ---- */

void dp_summary_tokens(FILE *to, const dp_result_case *item) {
    const dp_tokens *tokens = &item->result.plot.tokens;
    const dp_stage_result *choice = dp_stage_named(&item->result, "select.path");
    int different = 0, first = 0;
    if (choice == NULL) choice = dp_stage_named(&item->result, "markov.tokens");
    if (choice != NULL && choice->difference.count == 0) fputs("No token was drafted.", to);
    if (tokens->count == 0 || tokens->want == NULL) return;
    for (int i = 0; i < tokens->count; i++)
        if (tokens->want[i] != tokens->got[i] && different++ == 0) first = i;
    if (different == 0)
        fprintf(to, "The drafted tokens are the reference's, all %d of them.", tokens->count);
    else
        fprintf(to, "%d of %d drafted tokens %s from the reference's, first at position %d: %d instead of %d.",
                different, tokens->count, different == 1 ? "differs" : "differ", first, (int)tokens->got[first],
                (int)tokens->want[first]);
}
