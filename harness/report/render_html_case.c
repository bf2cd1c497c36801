/* render_html_case.c - the tables of a case: stages by layer, growth, rounds, tokens, and names with values. */
#include "report/render_html_parts.h"

#include "report/buffered_text.h"
#include "base/coordinates.h"
#include "check/divergence.h"
#include "report/html.h"
#include "report/stage_words.h"
#include "report/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Words ---- */

void dp_html_summary(FILE *to, const dp_result_case *item, void (*summary)(FILE *, const dp_result_case *),
                     const char *class) {
    dp_buffered_text buffered_text;
    if (!dp_buffered_text_begin(&buffered_text)) return;
    summary(buffered_text.to, item);
    if (dp_buffered_text_end(&buffered_text)) {
        fprintf(to, "<p class=\"%s\">", class);
        dp_html_marked(to, buffered_text.text[0] == ' ' ? buffered_text.text + 1 : buffered_text.text);
        fputs("</p>\n", to);
    }
    free(buffered_text.text);
}

void dp_html_look(FILE *to, const dp_result_case *item) {
    const char *stage = dp_summary_stage(item), *code = item->result.error.code;
    const bool fail = item->result.verdict == DP_FAIL;
    dp_divergence_by by;
    if (item->result.verdict == DP_PASS) return;
    fprintf(to, "<div class=\"look%s\">", fail ? "" : " stop");
    if (fail && stage[0] != '\0') {
        fputs("Look at <b><code>", to);
        dp_html_text(to, stage);
        fputs("</code></b>", to);
        if (dp_stage_words(stage)[0] != '\0') {
            fputs(": ", to);
            dp_html_text(to, dp_stage_words(stage));
        }
        if (dp_first_divergence(&item->result, &by) == NULL)
            fputs(", where a cached round leaves the block's bits", to);
    } else if (fail && !dp_stopped(&item->result)) {
        fputs("A round does not match; see the table of rounds", to);
    } else {
        fputs("No number was judged", to);
        if (code[0] != '\0') {
            fputs(": <b><code>", to);
            dp_html_text(to, code);
            fputs("</code></b>", to);
        }
    }
    fputs("</div>\n", to);
}

/* ---- Stages ---- */

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

static const char *mark(const dp_stage_result *stage) {
    if (!stage->pass) return "outside";
    if (dp_alone_failed(stage)) return "outside, alone";
    return stage->warn ? "near" : "inside";
}

static void isolated_cells(FILE *to, const dp_stage_result *stage) {
    const dp_isolated *alone = &stage->isolated;
    if (!alone->judged || alone->difference.count == 0)
        dash(to);          /* not run, or not shown */
    else if (stage->exact) /* ids have no error size */
        fprintf(to, "<td class=\"n\">%s</td>", alone->pass ? "equal" : "differs");
    else
        dp_html_ratio(to, alone->share);
    if (stage->share.known) {
        error_size(to, stage->share.added);
        error_size(to, stage->share.inherited);
    } else {
        dash(to);
        dash(to);
    }
}

/* A count that is not zero, after what was said before. */
static void remark(FILE *to, bool *any, int64_t count, const char *what) {
    if (count == 0) return;
    fprintf(to, "%s%lld %s", *any ? "; " : "", (long long)count, what);
    *any = true;
}

static void remarks(FILE *to, const dp_stage_result *stage) {
    const dp_difference *d = &stage->difference;
    char at[DP_DIMS_TEXT], text[64];
    bool any = d->count == 0;
    if (d->count == 0) fputs("not shown", to);
    snprintf(text, sizeof text, "of %lld %s", (long long)d->count, d->mismatches == 1 ? "differs" : "differ");
    remark(to, &any, d->nan, "NaN");
    remark(to, &any, d->inf, "inf");
    remark(to, &any, d->mismatches, text);
    remark(to, &any, d->sign_flips, "signs flipped");
    if (d->worst >= 0 && dp_stage_failed(stage))
        fprintf(to, "%s%s: %.6g, reference %.6g", any ? "; " : "",
                dp_coordinates_text(stage->rank, stage->dim, d->worst, at), d->worst_got, d->worst_want);
}

static void stage_row(FILE *to, const dp_stage_result *stage, bool first, bool alone) {
    const dp_difference *d = &stage->difference;
    const bool sized = !stage->exact && d->count > 0;
    const char *class = dp_stage_failed(stage) ? "bad" : stage->warn ? "warn" : "ok";
    fprintf(to, "<tr class=\"%s%s\"><td><code>", class, first ? " first" : "");
    dp_html_text(to, stage->name);
    fprintf(to, "</code></td><td class=\"mark\">%s</td>", mark(stage));
    if (sized) {
        error_size(to, d->l2_rel);
        error_size(to, stage->limit.l2_rel);
        dp_html_ratio(to, 1 - stage->headroom);
    } else
        for (int i = 0; i < 3; i++) dash(to);
    if (alone) isolated_cells(to, stage);
    if (sized) {
        error_size(to, d->max_rel);
        dp_html_ratio(to, d->ulp_p99);
    } else
        for (int i = 0; i < 2; i++) dash(to);
    fputs("<td class=\"r\">", to);
    remarks(to, stage);
    fputs("</td></tr>\n", to);
}

/* Stages of one layer in a row, or of none; returns the index after them. */
static int group(FILE *to, const dp_result *r, int from, const dp_stage_result *first, bool layers_before) {
    const int layer = dp_stage_layer(&r->stage[from]);
    const bool alone = r->isolated_count > 0;
    int end = from, bad = 0;
    for (; end < r->stage_count && dp_stage_layer(&r->stage[end]) == layer; end++)
        bad += dp_stage_failed(&r->stage[end]);
    const int count = end - from;
    fprintf(to, "<details%s><summary>", bad > 0 ? " open" : "");
    if (layer >= 0)
        fprintf(to, "Layer %d", layer);
    else
        fputs(layers_before ? "After the layers" : "Before the layers", to);
    fprintf(to, ": %d %s, ", count, count == 1 ? "stage" : "stages");
    if (bad > 0)
        fprintf(to, "<span class=\"verdict fail\">%d outside</span>", bad);
    else
        fputs("all inside", to);
    fputs("</summary>\n<div class=\"wide\"><table>\n<thead><tr><th>stage</th><th>verdict</th>"
          "<th class=\"n\">rel. L2</th><th class=\"n\">limit</th><th class=\"n\">error, × limit</th>",
          to);
    if (alone) fputs("<th class=\"n\">alone, × bound</th><th class=\"n\">added</th><th class=\"n\">inherited</th>", to);
    fputs("<th class=\"n\">max / rms</th><th class=\"n\">ULP p99</th><th>remarks</th></tr></thead>\n<tbody>\n", to);
    for (int i = from; i < end; i++) stage_row(to, &r->stage[i], &r->stage[i] == first, alone);
    fputs("</tbody></table></div></details>\n", to);
    return end;
}

void dp_html_stages(FILE *to, const dp_result *r) {
    dp_divergence_by by;
    const dp_stage_result *first = dp_first_divergence(r, &by);
    bool layers = false;
    for (int i = 0; i < r->stage_count;) {
        const bool layer = dp_stage_layer(&r->stage[i]) >= 0;
        i = group(to, r, i, first, layers);
        layers = layers || layer;
    }
}

/* ---- Growth, rounds, tokens ---- */

void dp_html_growth(FILE *to, const dp_result *r) {
    if (r->layer_count == 0) return;
    fputs("<h3>Growth, layer by layer</h3>\n<div class=\"wide\"><table>\n<thead><tr><th class=\"n\">layer</th>"
          "<th class=\"n\">error in</th><th class=\"n\">error out</th><th class=\"n\">factor</th>"
          "<th>adds most</th><th class=\"n\">× its bound</th></tr></thead>\n<tbody>\n",
          to);
    for (int i = 0; i < r->layer_count; i++) {
        const dp_layer_growth *layer = &r->layer[i];
        fprintf(to, "<tr><td class=\"n\">%d</td>", layer->layer);
        error_size(to, layer->in);
        error_size(to, layer->out);
        if (layer->factor == 0)
            dash(to);
        else
            dp_html_ratio(to, layer->factor);
        fputs("<td><code>", to);
        dp_html_text(to, layer->source);
        fputs("</code></td>", to);
        dp_html_ratio(to, layer->source_share);
        fputs("</tr>\n", to);
    }
    fputs("</tbody></table></div>\n", to);
}

void dp_html_rounds(FILE *to, const dp_result *r) {
    if (r->variant_count == 0) return;
    fputs("<h3>Rounds against the block, bit for bit</h3>\n<div class=\"wide\"><table>\n<thead><tr><th>round</th>"
          "<th class=\"n\">values</th><th>result</th></tr></thead>\n<tbody>\n",
          to);
    for (int i = 0; i < r->variant_count; i++) {
        const dp_variant_result *variant = &r->variant[i];
        const bool good = variant->identical && !variant->nonfinite;
        fprintf(to, "<tr class=\"%s\"><td><code>", good ? "ok" : "bad");
        dp_html_text(to, variant->name);
        fprintf(to, "</code></td><td class=\"n\">%lld</td><td class=\"mark\">", (long long)variant->compared);
        if (good) {
            fputs("identical", to);
        } else {
            fputs(variant->nonfinite ? "not finite on both sides, first at " : "differs, first at ", to);
            dp_html_text(to, variant->stage);
            fprintf(to, " value %lld: 0x%08x, block 0x%08x", (long long)variant->index, (unsigned)variant->round_bits,
                    (unsigned)variant->block_bits);
        }
        fputs("</td></tr>\n", to);
    }
    fputs("</tbody></table></div>\n", to);
}

void dp_html_tokens(FILE *to, const dp_result *r) {
    const dp_tokens *tokens = &r->plot.tokens;
    const int count = tokens->count;
    if (count == 0) return;
    fputs("<h3>Drafted tokens</h3>\n<div class=\"wide\"><table>\n<tbody>\n<tr><th>position</th>", to);
    for (int i = 0; i < count; i++) fprintf(to, "<th class=\"n\">%d</th>", i);
    fputs("</tr>\n<tr><th>got</th>", to);
    for (int i = 0; i < count; i++) {
        const bool other = tokens->want != NULL && tokens->got[i] != tokens->want[i];
        fprintf(to, other ? "<td class=\"n\"><span class=\"verdict fail\">%d</span></td>" : "<td class=\"n\">%d</td>",
                (int)tokens->got[i]);
    }
    fputs("</tr>\n", to);
    if (tokens->want != NULL) {
        fputs("<tr><th>reference</th>", to);
        for (int i = 0; i < count; i++) fprintf(to, "<td class=\"n\">%d</td>", (int)tokens->want[i]);
        fputs("</tr>\n", to);
    }
    fputs("</tbody></table></div>\n", to);
}

/* ---- Names and values ---- */

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
