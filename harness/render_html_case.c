/* render_html_case.c - the tables of a case: stages by layer, growth, rounds, tokens, and names with values. */
#include "render_html_parts.h"

#include "html.h"
#include "result_view.h"
#include "stage_words.h"
#include "story.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Words ---------------------------------------------------------------------------------------------------------
 */

void dp_html_story(FILE *to, const cJSON *item, void (*story)(FILE *, const cJSON *), const char *class) {
    char *text = NULL;
    size_t length = 0;
    FILE *aside = open_memstream(&text, &length);
    if (aside == NULL) return;
    story(aside, item);
    if (fclose(aside) == 0 && length > 0) {
        fprintf(to, "<p class=\"%s\">", class);
        dp_html_marked(to, text[0] == ' ' ? text + 1 : text);
        fputs("</p>\n", to);
    }
    free(text);
}

void dp_html_look(FILE *to, const cJSON *item) {
    const char *verdict = dp_view_text(item, "verdict"), *stage = dp_story_stage(item);
    const bool pass = strcmp(verdict, "PASS") == 0, fail = strcmp(verdict, "FAIL") == 0;
    if (pass) return;
    fprintf(to, "<div class=\"look%s\">", fail ? "" : " stop");
    if (fail && stage[0] != '\0') {
        fputs("Look at <b><code>", to);
        dp_html_text(to, stage);
        fputs("</code></b>", to);
        if (dp_stage_words(stage)[0] != '\0') {
            fputs(": ", to);
            dp_html_text(to, dp_stage_words(stage));
        }
        if (dp_view(item, "first_divergence") == NULL) fputs(", where a cached round leaves the block's bits", to);
    } else if (fail) {
        fputs("A round does not match; see the table of rounds", to);
    } else {
        const char *code = dp_view_text(dp_view(item, "error"), "code");
        fputs("No number was judged", to);
        if (code[0] != '\0') {
            fputs(": <b><code>", to);
            dp_html_text(to, code);
            fputs("</code></b>", to);
        }
    }
    fputs("</div>\n", to);
}

/* ---- Stages --------------------------------------------------------------------------------------------------------
 */

static void number(FILE *to, double value, const char *format) {
    fputs("<td class=\"n\">", to);
    if (isnan(value))
        fputs("NaN", to);
    else if (isinf(value))
        fputs(value > 0 ? "inf" : "-inf", to);
    else
        fprintf(to, format, value);
    fputs("</td>", to);
}

void dp_html_ratio(FILE *to, double value) { number(to, value, value < 10 ? "%.2f" : value < 1e6 ? "%.0f" : "%.1e"); }

static void error_size(FILE *to, double value) { number(to, value, value == 0 ? "%.0f" : "%.1e"); }

static void dash(FILE *to) { fputs("<td class=\"n soft\">–</td>", to); }

static const char *mark(const cJSON *stage) {
    if (!dp_view_true(stage, "pass")) return "outside";
    if (dp_view_isolated_failed(stage)) return "outside, alone";
    return dp_view_true(stage, "warn") ? "near" : "inside";
}

static void isolated_cells(FILE *to, const cJSON *stage) {
    const cJSON *isolated = dp_view(stage, "isolated"), *share = dp_view(stage, "share");
    if (isolated == NULL || (dp_view_number(dp_view(isolated, "difference"), "compared") == 0))
        dash(to);                          /* not run, or not shown */
    else if (dp_view_true(stage, "exact")) /* ids have no error size */
        fprintf(to, "<td class=\"n\">%s</td>", dp_view_true(isolated, "pass") ? "equal" : "differs");
    else
        dp_html_ratio(to, dp_view_number(isolated, "share"));
    if (share != NULL) {
        error_size(to, dp_view_number(share, "added"));
        error_size(to, dp_view_number(share, "inherited"));
    } else {
        dash(to);
        dash(to);
    }
}

/* A count that is not zero, after what was said before. */
static void remark(FILE *to, bool *any, long count, const char *what) {
    if (count == 0) return;
    fprintf(to, "%s%ld %s", *any ? "; " : "", count, what);
    *any = true;
}

static void remarks(FILE *to, const cJSON *stage) {
    const cJSON *chained = dp_view(stage, "chained"), *worst = dp_view(chained, "worst");
    const long compared = dp_view_count(chained, "compared"), mismatches = dp_view_count(chained, "mismatches");
    char at[DP_VIEW_AT], text[64];
    bool any = compared == 0;
    if (compared == 0) fputs("not shown", to);
    snprintf(text, sizeof text, "of %ld %s", compared, mismatches == 1 ? "differs" : "differ");
    remark(to, &any, dp_view_count(chained, "nan"), "NaN");
    remark(to, &any, dp_view_count(chained, "inf"), "inf");
    remark(to, &any, mismatches, text);
    remark(to, &any, dp_view_count(chained, "sign_flips"), "signs flipped");
    if (worst != NULL && dp_view_diverged(stage))
        fprintf(to, "%s%s: %.6g, reference %.6g", any ? "; " : "", dp_view_at(dp_view(worst, "at"), at),
                dp_view_number(worst, "got"), dp_view_number(worst, "want"));
}

static void stage_row(FILE *to, const cJSON *stage, const char *first, bool alone) {
    const cJSON *chained = dp_view(stage, "chained"), *bar = dp_view(stage, "bar");
    const char *name = dp_view_text(stage, "name");
    const bool bad = dp_view_diverged(stage);
    fprintf(to, "<tr class=\"%s%s\"><td><code>",
            bad                           ? "bad"
            : dp_view_true(stage, "warn") ? "warn"
                                          : "ok",
            strcmp(name, first) == 0 ? " first" : "");
    dp_html_text(to, name);
    fprintf(to, "</code></td><td class=\"mark\">%s</td>", mark(stage));
    if (dp_view_true(stage, "exact") || dp_view_count(chained, "compared") == 0) {
        for (int i = 0; i < 3; i++) dash(to);
    } else {
        error_size(to, dp_view_number(chained, "rel_l2"));
        error_size(to, dp_view_number(bar, "rel_l2"));
        dp_html_ratio(to, 1 - dp_view_number(stage, "headroom"));
    }
    if (alone) isolated_cells(to, stage);
    if (dp_view_true(stage, "exact") || dp_view_count(chained, "compared") == 0) {
        for (int i = 0; i < 2; i++) dash(to);
    } else {
        error_size(to, dp_view_number(chained, "max_rel_rms"));
        dp_html_ratio(to, dp_view_number(chained, "ulp_p99"));
    }
    fputs("<td class=\"r\">", to);
    remarks(to, stage);
    fputs("</td></tr>\n", to);
}

static long layer_of(const cJSON *stage) {
    return dp_view(stage, "layer") != NULL ? dp_view_count(stage, "layer") : -1;
}

/* Stages of one layer in a row, or of none; returns the one after them. */
static const cJSON *group(FILE *to, const cJSON *from, const char *first, bool layers_before, bool alone) {
    int count = 0, bad = 0;
    const cJSON *end = from;
    for (; end != NULL && layer_of(end) == layer_of(from); end = end->next) {
        count++;
        bad += dp_view_diverged(end);
    }
    fprintf(to, "<details%s><summary>", bad > 0 ? " open" : "");
    if (layer_of(from) >= 0)
        fprintf(to, "Layer %ld", layer_of(from));
    else
        fputs(layers_before ? "After the layers" : "Before the layers", to);
    fprintf(to, ": %d %s, ", count, count == 1 ? "stage" : "stages");
    if (bad > 0)
        fprintf(to, "<span class=\"verdict fail\">%d outside</span>", bad);
    else
        fputs("all inside", to);
    fputs("</summary>\n<div class=\"wide\"><table>\n<thead><tr><th>stage</th><th>verdict</th>"
          "<th class=\"n\">rel. L2</th><th class=\"n\">bar</th><th class=\"n\">error, × bar</th>",
          to);
    if (alone) fputs("<th class=\"n\">alone, × bound</th><th class=\"n\">added</th><th class=\"n\">inherited</th>", to);
    fputs("<th class=\"n\">max / rms</th><th class=\"n\">ULP p99</th><th>remarks</th></tr></thead>\n<tbody>\n", to);
    for (const cJSON *stage = from; stage != end; stage = stage->next) stage_row(to, stage, first, alone);
    fputs("</tbody></table></div></details>\n", to);
    return end;
}

void dp_html_stages(FILE *to, const cJSON *item) {
    const cJSON *stages = dp_view(item, "stages"), *stage = stages != NULL ? stages->child : NULL;
    const char *first = dp_view_text(dp_view(item, "first_divergence"), "stage");
    const bool alone = dp_view_count(item, "stages_isolated") > 0;
    bool layers = false;
    while (stage != NULL) {
        const bool layer = layer_of(stage) >= 0;
        stage = group(to, stage, first, layers, alone);
        layers = layers || layer;
    }
}

/* ---- Growth, rounds, tokens
 * ------------------------------------------------------------------------------------------ */

void dp_html_growth(FILE *to, const cJSON *item) {
    const cJSON *growth = dp_view(item, "growth"), *layer;
    if (cJSON_GetArraySize(growth) == 0) return;
    fputs("<h3>Growth, layer by layer</h3>\n<div class=\"wide\"><table>\n<thead><tr><th class=\"n\">layer</th>"
          "<th class=\"n\">error in</th><th class=\"n\">error out</th><th class=\"n\">factor</th>"
          "<th>adds most</th><th class=\"n\">× its bound</th></tr></thead>\n<tbody>\n",
          to);
    cJSON_ArrayForEach(layer, growth) {
        fprintf(to, "<tr><td class=\"n\">%ld</td>", dp_view_count(layer, "layer"));
        error_size(to, dp_view_number(layer, "in"));
        error_size(to, dp_view_number(layer, "out"));
        if (dp_view_number(layer, "factor") == 0)
            dash(to);
        else
            dp_html_ratio(to, dp_view_number(layer, "factor"));
        fputs("<td><code>", to);
        dp_html_text(to, dp_view_text(layer, "source"));
        fputs("</code></td>", to);
        dp_html_ratio(to, dp_view_number(layer, "source_share"));
        fputs("</tr>\n", to);
    }
    fputs("</tbody></table></div>\n", to);
}

void dp_html_rounds(FILE *to, const cJSON *item) {
    const cJSON *rounds = dp_view(item, "rounds"), *arm;
    if (cJSON_GetArraySize(rounds) == 0) return;
    fputs("<h3>Rounds against the block, bit for bit</h3>\n<div class=\"wide\"><table>\n<thead><tr><th>round</th>"
          "<th class=\"n\">values</th><th>result</th></tr></thead>\n<tbody>\n",
          to);
    cJSON_ArrayForEach(arm, rounds) {
        const cJSON *first = dp_view(arm, "first_difference");
        const bool good = dp_view_true(arm, "identical") && !dp_view_true(arm, "nonfinite");
        fprintf(to, "<tr class=\"%s\"><td><code>", good ? "ok" : "bad");
        dp_html_text(to, dp_view_text(arm, "name"));
        fprintf(to, "</code></td><td class=\"n\">%ld</td><td class=\"mark\">", dp_view_count(arm, "compared"));
        if (good) {
            fputs("identical", to);
        } else {
            fputs(dp_view_true(arm, "nonfinite") ? "not finite on both sides, first at " : "differs, first at ", to);
            dp_html_text(to, dp_view_text(first, "stage"));
            fprintf(to, " value %ld: ", dp_view_count(first, "index"));
            dp_html_text(to, dp_view_text(first, "round"));
            fputs(", block ", to);
            dp_html_text(to, dp_view_text(first, "block"));
        }
        fputs("</td></tr>\n", to);
    }
    fputs("</tbody></table></div>\n", to);
}

void dp_html_tokens(FILE *to, const cJSON *item) {
    const cJSON *tokens = dp_view(dp_view(item, "plots"), "tokens"), *got = dp_view(tokens, "got");
    const cJSON *want = dp_view(tokens, "want");
    const int count = cJSON_GetArraySize(got);
    if (count == 0) return;
    fputs("<h3>Drafted tokens</h3>\n<div class=\"wide\"><table>\n<tbody>\n<tr><th>position</th>", to);
    for (int i = 0; i < count; i++) fprintf(to, "<th class=\"n\">%d</th>", i);
    fputs("</tr>\n<tr><th>got</th>", to);
    for (int i = 0; i < count; i++) {
        const double g = dp_view_value(cJSON_GetArrayItem(got, i));
        const bool other = want != NULL && g != dp_view_value(cJSON_GetArrayItem(want, i));
        fprintf(to,
                other ? "<td class=\"n\"><span class=\"verdict fail\">%.0f</span></td>" : "<td class=\"n\">%.0f</td>",
                g);
    }
    fputs("</tr>\n", to);
    if (want != NULL) {
        fputs("<tr><th>reference</th>", to);
        for (int i = 0; i < count; i++)
            fprintf(to, "<td class=\"n\">%.0f</td>", dp_view_value(cJSON_GetArrayItem(want, i)));
        fputs("</tr>\n", to);
    }
    fputs("</tbody></table></div>\n", to);
}

/* ---- Names and values
 * ------------------------------------------------------------------------------------------------- */

static void fields(FILE *to, const cJSON *object, const char *prefix) {
    const cJSON *child;
    cJSON_ArrayForEach(child, object) {
        char name[256];
        snprintf(name, sizeof name, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "",
                 child->string != NULL ? child->string : "");
        if (cJSON_IsObject(child)) {
            fields(to, child, name);
            continue;
        }
        char *text = cJSON_IsString(child) ? NULL : cJSON_PrintUnformatted(child);
        fputs("<tr><td>", to);
        dp_html_text(to, name);
        fputs("</td><td class=\"v\"><code>", to);
        dp_html_text(to, cJSON_IsString(child) ? child->valuestring : cJSON_IsNull(child) ? "–" : text);
        fputs("</code></td></tr>\n", to);
        cJSON_free(text);
    }
}

void dp_html_fields(FILE *to, const cJSON *object) {
    fputs("<div class=\"wide\"><table><tbody>\n", to);
    fields(to, object, "");
    fputs("</tbody></table></div>\n", to);
}
