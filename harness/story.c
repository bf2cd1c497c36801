/* story.c - see story.h. */
#include "story.h"

#include "result_view.h"
#include "stage_words.h"

#include <math.h>
#include <string.h>

static bool is(const cJSON *item, const char *verdict) { return strcmp(dp_view_text(item, "verdict"), verdict) == 0; }

/* A name from outside the program in `ticks`, which nothing in it can end. */
static void ticked(FILE *to, const char *name) {
    fputc('`', to);
    for (; *name != '\0'; name++) fputc(*name == '`' ? '\'' : (unsigned char)*name < 0x20 ? ' ' : *name, to);
    fputc('`', to);
}

/* The first round that is not identical; NULL when all are. */
static const cJSON *failed_round(const cJSON *item) {
    const cJSON *arm;
    cJSON_ArrayForEach(arm, dp_view(item, "rounds")) if (!dp_view_true(arm, "identical") ||
                                                         dp_view_true(arm, "nonfinite")) return arm;
    return NULL;
}

const char *dp_story_stage(const cJSON *item) {
    const cJSON *first = dp_view(item, "first_divergence");
    if (first != NULL) return dp_view_text(first, "stage");
    return dp_view_text(dp_view(failed_round(item), "first_difference"), "stage");
}

void dp_story_headline(FILE *to, const cJSON *item) {
    const char *stage = dp_story_stage(item);
    if (is(item, "PASS"))
        fputs("passes", to);
    else if (is(item, "FAIL") && stage[0] != '\0')
        fprintf(to, "fails, first at `%s`", stage);
    else if (is(item, "FAIL"))
        fputs("fails", to);
    else if (is(item, "REFUSED") || is(item, "ERROR")) {
        fputs(is(item, "REFUSED") ? "was refused before a value was compared (" : "could not be run (", to);
        ticked(to, dp_view_text(dp_view(item, "error"), "code"));
        fputc(')', to);
    } else
        fputs("compared nothing", to);
}

/* ---- Where it began ---------------------------------------------------------------------------------------------- */

static void least_headroom(FILE *to, const cJSON *item) {
    const cJSON *stage, *least = NULL;
    cJSON_ArrayForEach(stage, dp_view(item, "stages")) if (least == NULL || dp_view_number(stage, "headroom") <
                                                                                dp_view_number(least, "headroom"))
        least = stage;
    if (least != NULL && isfinite(dp_view_number(least, "headroom")))
        fprintf(to, " The stage nearest to its bar is `%s`, with %.0f %% of it left.", dp_view_text(least, "name"),
                100 * dp_view_number(least, "headroom"));
}

/* Ids differ or do not, and so do values that are not finite: of such the first is kept. */
static void worst_element(FILE *to, const cJSON *worst, bool exact) {
    char at[DP_VIEW_AT];
    if (worst == NULL) return;
    const double got = dp_view_number(worst, "got"), want = dp_view_number(worst, "want");
    fprintf(to, " %s, %s, is ", !exact && isfinite(got) ? "The worst element" : "The first of them",
            dp_view_at(dp_view(worst, "at"), at));
    if (isnan(got))
        fputs("NaN", to);
    else
        fprintf(to, "%.9g", got);
    fprintf(to, " instead of %.9g.", want);
}

/* "1 of 59 run alone is outside its bound", "27 of 59 compared stages are outside their bars". */
static void outside(FILE *to, long failed, long count, const char *stages, const char *limit) {
    fprintf(to, "%ld of %ld %s %s %s%s", failed, count, stages, failed == 1 ? "is outside its" : "are outside their",
            limit, failed == 1 ? "" : "s");
}

/* Which rows (tokens) of the stage are off by far more than rounding explains: what a mask, a position or a padded row
 * did is told by them. Says nothing where rows are no tokens or none stands out. */
static void rows_off(FILE *to, const cJSON *stage) {
    enum { MOST_SPANS = 3, FAR = 10 };
    const char *name = dp_view_text(stage, "name");
    const cJSON *rows = dp_view(stage, "rows"), *row;
    const double limit = FAR * dp_view_number(dp_view(stage, "bar"), "rel_l2");
    const long group = dp_view_count(stage, "row_group");
    long from[MOST_SPANS], last[MOST_SPANS], index = 0, spans = 0, off = 0;
    const long count = cJSON_GetArraySize(rows);
    if (group != 1 || count < 2 || strncmp(name, "kv.", 3) == 0 || strcmp(name, "rope.inv_freq") == 0) return;
    cJSON_ArrayForEach(row, rows) {
        if (!cJSON_IsNull(row) && !(dp_view_value(row) <= limit)) {
            off++;
            if (spans == 0 || (spans <= MOST_SPANS && last[spans - 1] != index - 1)) {
                if (spans == MOST_SPANS) return; /* too scattered for a sentence: the heat map shows it */
                from[spans++] = index;
            }
            last[spans - 1] = index;
        }
        index++;
    }
    if (off == 0) return;
    if (off == count) {
        fprintf(to, " All of its %ld rows are off.", count);
        return;
    }
    fputs(off == 1 ? " Only row " : " Rows ", to);
    for (long i = 0; i < spans; i++) {
        fputs(i == 0 ? "" : i == spans - 1 ? " and " : ", ", to);
        fprintf(to, from[i] == last[i] ? "%ld" : "%ld to %ld", from[i], last[i]);
    }
    fprintf(to, " of its %ld %s off.", count, off == 1 ? "is" : "are");
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

static void chained_fault(FILE *to, const cJSON *stage) {
    const cJSON *chained = dp_view(stage, "chained"), *bar = dp_view(stage, "bar");
    const long nonfinite = dp_view_nonfinite(stage), compared = dp_view_count(chained, "compared");
    if (compared == 0) {
        fputs(" The implementation did not show this stage, or showed another shape.", to);
    } else if (nonfinite > 0) {
        fprintf(to, " NaN or infinite: %ld of its %ld compared values.", nonfinite, compared);
        worst_element(to, dp_view(chained, "worst"), dp_view_true(stage, "exact"));
    } else if (dp_view_true(stage, "exact")) {
        fprintf(to, " %ld of its %ld ids %s.", dp_view_count(chained, "mismatches"), compared,
                dp_view_count(chained, "mismatches") == 1 ? "differs" : "differ");
        worst_element(to, dp_view(chained, "worst"), dp_view_true(stage, "exact"));
    } else {
        const double l2 = dp_view_number(chained, "rel_l2") / dp_view_number(bar, "rel_l2");
        const double peak = dp_view_number(chained, "max_rel_rms") / dp_view_number(bar, "max_rel_rms");
        fputs(" Its error is ", to);
        factor(to, fmax(l2, peak));
        fputs(" times the bar.", to);
        worst_element(to, dp_view(chained, "worst"), dp_view_true(stage, "exact"));
        rows_off(to, stage);
    }
}

static void isolated_fault(FILE *to, const cJSON *stage) {
    const cJSON *isolated = dp_view(stage, "isolated");
    const double share = dp_view_number(isolated, "share"), oracle = dp_view_number(isolated, "oracle_share");
    const double noise = dp_view_number(isolated, "noise") / dp_view_number(isolated, "noise_bar");
    const double peak = dp_view_number(isolated, "peak") / dp_view_number(isolated, "peak_bar");
    if (share <= 1 && !(noise > 1) && !(peak > 1) && oracle > 1) {
        fputs(" Run alone it is inside its bound, but the oracle's values of it are off by ", to);
        factor(to, oracle);
        fputs(" times what rounding can change of what follows from the oracle's own inputs: the fault is in the "
              "oracle, or in what the run and this program's own float64 check of it have in common, such as how "
              "weights are decoded and what the config is taken to mean.",
              to);
        return;
    }
    fprintf(to, " Run alone, on %s, ",
            dp_view_true(isolated, "fed") ? "the reference's own inputs" : "inputs that are known exactly");
    if (dp_view_true(stage, "exact")) {
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
    worst_element(to, dp_view(isolated, "worst"), dp_view_true(stage, "exact"));
    rows_off(to, stage);
}

static void diverged(FILE *to, const cJSON *item, const cJSON *first) {
    const char *name = dp_view_text(first, "stage"), *words = dp_stage_words(name);
    const cJSON *stage = dp_view_stage(item, name);
    const bool alone = strcmp(dp_view_text(first, "by"), "isolated") == 0;
    fprintf(to, " It began at `%s`%s%s.", name, words[0] != '\0' ? ", " : "", words);
    if (stage == NULL) return;
    if (alone) {
        isolated_fault(to, stage);
        return;
    }
    chained_fault(to, stage);
    const cJSON *isolated = dp_view(stage, "isolated");
    if (isolated != NULL)
        fputs(" Run alone it stays within the bound of its own arithmetic, so it received the error from its inputs.",
              to);
    else
        fputs(" Every stage before it is inside its bar. No stage was run alone, so the fault is in this stage or in "
              "inputs whose own error still passed.",
              to);
}

static void round_fault(FILE *to, const cJSON *arm) {
    const cJSON *first = dp_view(arm, "first_difference");
    const char *stage = dp_view_text(first, "stage");
    if (dp_view_true(arm, "nonfinite")) {
        fprintf(to, " `forward_round` with a cache (`%s`) holds the same values that are not finite.",
                dp_view_text(arm, "name"));
        return;
    }
    fprintf(to, " `forward_round` with a cache (`%s`) does not give the bits of `forward_block`",
            dp_view_text(arm, "name"));
    if (stage[0] != '\0' && dp_view_count(first, "index") < 0)
        fprintf(to, ": one side does not show `%s` with the rows expected", stage);
    else if (stage[0] != '\0')
        fprintf(to, ": they differ first in `%s`, value %ld, %s instead of %s", stage, dp_view_count(first, "index"),
                dp_view_text(first, "round"), dp_view_text(first, "block"));
    fputs(".", to);
}

void dp_story_begin(FILE *to, const cJSON *item) {
    const char *name = dp_view_text(item, "case");
    const cJSON *error = dp_view(item, "error"), *first = dp_view(item, "first_divergence"), *arm = failed_round(item);
    ticked(to, name);
    if (is(item, "PASS")) {
        fprintf(to, " passes: all %ld compared stages are inside their bars and all %ld rounds give the same bits.",
                dp_view_count(item, "stages_compared"), dp_view_count(item, "rounds_compared"));
        least_headroom(to, item);
    } else if (is(item, "REFUSED") || is(item, "ERROR")) {
        fprintf(to, " %s. %s",
                is(item, "REFUSED") ? "was refused, so there is no verdict about its numbers"
                                    : "could not be run to its end, so there is no verdict",
                dp_view_text(error, "message"));
    } else if (is(item, "FAIL")) {
        fputs(" fails: ", to);
        outside(to, dp_view_count(item, "stages_failed"), dp_view_count(item, "stages_compared"), "compared stages",
                "bar");
        if (dp_view_count(item, "stages_isolated") > 0) {
            fputs(", ", to);
            outside(to, dp_view_count(item, "isolated_failed"), dp_view_count(item, "stages_isolated"), "run alone",
                    "bound");
        }
        fputs(".", to);
        if (first != NULL) diverged(to, item, first);
        if (arm != NULL) round_fault(to, arm);
    } else {
        fputs(": nothing was compared, which is no pass.", to);
    }
}

/* ---- What carried it on -------------------------------------------------------------------------------------------
 */

/* A stage that was fed the run's own values, for want of the oracle's, hands on what is not finite in them. */
static bool handed_on(const cJSON *stage) {
    const cJSON *isolated = dp_view(stage, "isolated");
    return dp_view_isolated_failed(stage) && !dp_view_true(isolated, "fed") &&
           !isfinite(dp_view_number(isolated, "share")) && !dp_view_true(stage, "exact");
}

/* Stages after the first that fail alone too: they add errors of their own. */
static void other_faults(FILE *to, const cJSON *first, bool carried) {
    enum { MOST_NAMED = 4 };
    const bool spoilt = dp_view_nonfinite(first) > 0;
    const cJSON *stage;
    int others = 0, handed = 0, named = 0;
    for (stage = first->next; stage != NULL; stage = stage->next) {
        if (spoilt && handed_on(stage))
            handed++;
        else
            others += dp_view_isolated_failed(stage);
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
    for (stage = first->next; stage != NULL && named < MOST_NAMED; stage = stage->next)
        if (dp_view_isolated_failed(stage) && !(spoilt && handed_on(stage)))
            fprintf(to, "%s `%s`", named++ == 0 ? "" : ",", dp_view_text(stage, "name"));
    if (others > MOST_NAMED) fprintf(to, " and %d more", others - MOST_NAMED);
    fputs(".", to);
}

/* The layers from the first bad one on that at least double the error of the residual stream, and by how much. */
static void per_layer(FILE *to, const cJSON *item, long from) {
    const cJSON *layer;
    int told = 0, quiet = 0; /* quiet: after the last that is told */
    cJSON_ArrayForEach(layer, dp_view(item, "growth")) {
        const double by = dp_view_number(layer, "factor");
        if (dp_view_count(layer, "layer") < from || !(by > 0)) continue;
        if (by < 2) {
            quiet++;
            continue;
        }
        quiet = 0;
        if (told == 0)
            fprintf(to, " Layer %ld multiplies the error of the residual stream by ", dp_view_count(layer, "layer"));
        else
            fprintf(to, ", layer %ld by ", dp_view_count(layer, "layer"));
        factor(to, by);
        told++;
    }
    if (told > 0) fprintf(to, "%s.", quiet > 0 ? "; no later one doubles it" : "");
}

void dp_story_growth(FILE *to, const cJSON *item) {
    const char *first = dp_view_text(dp_view(item, "first_divergence"), "stage");
    const cJSON *stage = dp_view_stage(item, first), *final = dp_view_stage(item, "final");
    long after = 0, failed = 0;
    bool layers_after = false;
    if (stage == NULL) return;
    layers_after = dp_view(stage, "layer") != NULL;
    for (const cJSON *s = stage->next; s != NULL; s = s->next) {
        after++;
        failed += !dp_view_true(s, "pass");
        layers_after = layers_after || dp_view(s, "layer") != NULL;
    }
    if (after > 0) {
        fprintf(to, failed > 0 ? "Of the %ld stages after it, " : "None of the %ld stages after it", after);
        if (failed > 0)
            fprintf(to, failed == 1 ? "%ld is outside its bar." : "%ld are outside their bars.", failed);
        else
            fputs(" is outside its bar.", to);
        if (dp_view_count(item, "stages_isolated") > 0) other_faults(to, stage, failed > 0);
    }
    if (layers_after) per_layer(to, item, dp_view(stage, "layer") != NULL ? dp_view_count(stage, "layer") : 0);
    if (final == NULL || final == stage) return;
    if (dp_view_nonfinite(final) > 0)
        fprintf(to, " The output (`final`) holds %ld values that are not finite.", dp_view_nonfinite(final));
    else
        fprintf(to, " At the output (`final`) the relative L2 error is %.2g, %s its bar.",
                dp_view_number(dp_view(final, "chained"), "rel_l2"),
                dp_view_true(final, "pass") ? "inside" : "outside");
}

/* ---- Tokens ------------------------------------------------------------------------------------------------------ */

void dp_story_tokens(FILE *to, const cJSON *item) {
    const cJSON *tokens = dp_view(dp_view(item, "plots"), "tokens"), *got = dp_view(tokens, "got");
    const cJSON *want = dp_view(tokens, "want"), *g = got != NULL ? got->child : NULL;
    const int count = cJSON_GetArraySize(got);
    int different = 0, first = -1, row = 0;
    const cJSON *choice = dp_view_stage(item, "select.path");
    if (choice == NULL) choice = dp_view_stage(item, "markov.tokens");
    if (choice != NULL && dp_view_count(dp_view(choice, "chained"), "compared") == 0)
        fputs("No token was drafted.", to);
    if (count == 0 || want == NULL) return;
    for (const cJSON *w = want->child; w != NULL && g != NULL; w = w->next, g = g->next, row++)
        if (dp_view_value(w) != dp_view_value(g) && different++ == 0) first = row;
    if (different == 0)
        fprintf(to, "The drafted tokens are the reference's, all %d of them.", count);
    else
        fprintf(to, "%d of %d drafted tokens %s from the reference's, first at position %d: %.0f instead of %.0f.",
                different, count, different == 1 ? "differs" : "differ", first,
                dp_view_value(cJSON_GetArrayItem(got, first)), dp_view_value(cJSON_GetArrayItem(want, first)));
}
