/* growth.c - see growth.h. */
#include "check/growth.h"

#include "common/error.h"
#include "check/run_check.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Relative L2 counts only the values that are finite: where others are not, there is no distance, least of all 0. */
static double error_of(const dp_difference *d) { return d->nonfinite > 0 ? NAN : d->l2_rel; }

dp_share dp_share_of(const dp_stage_result *stage) {
    if (!stage->isolated.judged || stage->exact) return (dp_share){.known = false};
    const double added = error_of(&stage->isolated.difference), chained = error_of(&stage->difference);
    dp_share share = {.known = true, .added = added, .inherited = NAN};
    if (chained <= added)
        share.inherited = 0.0;
    else if (chained > added)
        share.inherited = sqrt(chained * chained - added * added);
    return share;
}

/* A measure over its limit; a limit of zero admits nothing. */
static double over(double measure, double limit) {
    if (measure == 0.0) return 0.0;
    return isfinite(measure) && limit > 0.0 ? measure / limit : INFINITY;
}

/* A bound of half a unit in the last place is reached in full by many a correct stage, so what is within its bound is
 * measured by its noise. */
double dp_added_share(const dp_stage_result *stage) {
    const dp_isolated *alone = &stage->isolated;
    if (!alone->judged) return 0.0;
    if (alone->difference.nonfinite > 0 || !isfinite(alone->share)) return INFINITY;
    if (alone->share > 1.0 || !isfinite(alone->noise_limit)) return alone->share;
    return fmax(over(alone->noise, alone->noise_limit), over(alone->peak, alone->peak_limit));
}

static const dp_stage_result *layer_output(const dp_result *result, int layer) {
    char name[DFLASH_STAGE_NAME_MAX];
    return dp_stage_named(result, dflash_stage_name(DFLASH_STAGE_LAYER_OUT, layer, name));
}

static void find_source(const dp_result *result, dp_layer_growth *growth) {
    for (int i = 0; i < result->stage_count; i++) {
        const dp_stage_result *stage = &result->stage[i];
        if (dp_stage_layer(stage) != growth->layer || !stage->isolated.judged) continue;
        const double share = dp_added_share(stage);
        if (growth->source[0] != '\0' && !(share > growth->source_share)) continue;
        memcpy(growth->source, stage->name, sizeof growth->source);
        growth->source_share = share;
    }
}

dflash_status dp_growth(dp_result *result, dflash_error *err) {
    int layers = 0;
    for (int i = 0; i < result->stage_count; i++) {
        const int layer = dp_stage_layer(&result->stage[i]);
        result->stage[i].share = dp_share_of(&result->stage[i]);
        if (layer >= layers) layers = layer + 1;
    }
    result->layer_count = 0;
    if (layers == 0) return DFLASH_OK;
    result->layer = calloc((size_t)layers, sizeof *result->layer);
    if (result->layer == NULL)
        return df_fail_memory(err, "the growth of the layers", (size_t)layers * sizeof *result->layer);
    for (int layer = 0; layer < layers; layer++) {
        const dp_stage_result *out = layer_output(result, layer);
        const dp_stage_result *before = layer > 0 ? layer_output(result, layer - 1) : NULL;
        if (out == NULL || (layer > 0 && before == NULL)) continue; /* filtered away */
        dp_layer_growth *growth = &result->layer[result->layer_count++];
        *growth = (dp_layer_growth){.layer = layer, .out = error_of(&out->difference)};
        if (before != NULL) growth->in = error_of(&before->difference);
        if (growth->in != 0.0) growth->factor = growth->out / growth->in;
        find_source(result, growth);
    }
    return DFLASH_OK;
}

double dp_mean_growth(const dp_result *result) {
    double sum = 0.0;
    int count = 0;
    for (int i = 0; i < result->layer_count; i++) {
        if (!(result->layer[i].factor > 0.0)) continue;
        sum += log(result->layer[i].factor);
        count++;
    }
    return count > 0 ? exp(sum / count) : 0.0;
}

/* ---- The sentence ---- */

typedef struct writer {
    char *text;
    size_t at;
} writer;

__attribute__((format(printf, 2, 3))) static void say(writer *w, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(w->text + w->at, DP_GROWTH_TEXT - w->at, format, args);
    va_end(args);
    if (length > 0) w->at += (size_t)length < DP_GROWTH_TEXT - w->at ? (size_t)length : DP_GROWTH_TEXT - 1 - w->at;
}

/* "layer 2 attn.context" for layers.2.attn.context, "stage final" for final. */
static void say_stage(writer *w, const char *name) {
    int layer, used = 0;
    if (sscanf(name, "layers.%d.%n", &layer, &used) == 1 && used > 0)
        say(w, "layer %d %s", layer, name + used);
    else
        say(w, "stage %s", name);
}

static void say_growth(writer *w, const dp_result *result) {
    const double mean = dp_mean_growth(result);
    const double least = 1.05; /* less would be printed as 1 x */
    for (int i = 0; i < result->layer_count; i++) {
        if (isfinite(result->layer[i].out)) continue;
        say(w, "the output of layer %d is not finite", result->layer[i].layer);
        return;
    }
    if (mean > least)
        say(w, "the chained error grows by %.2g x a layer", mean);
    else if (mean > 0.0)
        say(w, "the chained error does not grow from layer to layer");
    else if (result->layer_count > 0)
        say(w, "the chained error after layer %d is %.2g", result->layer[result->layer_count - 1].layer,
            result->layer[result->layer_count - 1].out);
}

/* What is wrong with a stage that fails alone. */
static void say_addition(writer *w, const dp_stage_result *stage) {
    const dp_isolated *alone = &stage->isolated;
    say_stage(w, stage->name);
    if (alone->difference.nonfinite > 0)
        say(w, " makes %lld values that are not finite from finite inputs", (long long)alone->difference.nonfinite);
    else if (alone->share > 1.0)
        say(w, " adds %.3g x its bound", alone->share);
    else if (dp_added_share(stage) > 1.0)
        say(w, " adds %.3g x the rounding noise that it may", dp_added_share(stage));
    else if (alone->oracle_share > 1.0)
        say(w, " is not what follows from the oracle's own inputs (%.3g x what rounding them can change)",
            alone->oracle_share);
    else
        say(w, " adds an error of its own");
}

const char *dp_growth_text(const dp_result *result, char text[DP_GROWTH_TEXT]) {
    writer w = {.text = text};
    const dp_stage_result *first = NULL, *chained = NULL;
    int judged = 0, adding = 0;
    text[0] = '\0';
    for (int i = 0; i < result->stage_count; i++) {
        const dp_stage_result *stage = &result->stage[i];
        judged += stage->isolated.judged;
        if (!stage->pass && chained == NULL) chained = stage;
        if (!dp_alone_failed(stage)) continue;
        if (adding++ == 0) first = stage;
    }
    if (result->stage_count == 0) return text;
    if (first != NULL) {
        say_addition(&w, first);
        if (adding == 1)
            say(&w, "; everything after only carries it");
        else
            say(&w, ", and %d later %s more than %s too", adding - 1, adding == 2 ? "stage adds" : "stages add",
                adding == 2 ? "its bound" : "their bounds");
    } else if (judged == 0) {
        say(&w, "No stage was run alone, so added and inherited error cannot be told apart");
        if (chained != NULL) {
            say(&w, "; first outside its limit is ");
            say_stage(&w, chained->name);
        }
    } else if (chained != NULL) {
        say(&w, "no stage adds more than its bound, yet the chained run leaves its limits at ");
        say_stage(&w, chained->name);
    } else {
        say(&w, "no stage adds more than its bound");
    }
    if (result->layer_count > 0 && first == NULL) {
        say(&w, "; ");
        say_growth(&w, result);
    }
    text[0] = (char)toupper((unsigned char)text[0]);
    return text;
}
