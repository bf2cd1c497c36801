/*
 * render_html.c - see render_html.h; the page's order and what it leaves out.
 *
 * The first screen names the verdict, the stage to look at and the command. A gate of many cases shows failing ones in
 * full and the rest in one table, so that a page stays small enough to mail; what is left out is said.
 */
#include "render_html.h"

#include "error.h"
#include "html.h"
#include "render_html_parts.h"
#include "result_view.h"
#include "story.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A case with plots is up to 250 kB of page, one with tables up to 60 kB; together below 1.5 MB. */
enum { MOST_PLOTTED = 4, MOST_TABLES = 8 };

typedef struct page {
    const cJSON *document, *cases;
    FILE *to;
    dp_html_plots plots;
    int failing;
} page;

static bool passes(const cJSON *item) { return strcmp(dp_view_text(item, "verdict"), "PASS") == 0; }

/* The first case that does not pass, or else the first. */
static const cJSON *leading_case(const page *p) {
    const cJSON *item;
    cJSON_ArrayForEach(item, p->cases) if (!passes(item)) return item;
    return p->cases != NULL ? p->cases->child : NULL;
}

/* ---- The first screen
 * ------------------------------------------------------------------------------------------------ */

static void headline(FILE *to, const cJSON *item) {
    fputs(" `", to);
    fputs(dp_view_text(item, "case"), to);
    fputs("` ", to);
    dp_story_headline(to, item);
}

static void title(const page *p) {
    const cJSON *lead = leading_case(p);
    char *text = NULL;
    size_t length = 0;
    FILE *aside = open_memstream(&text, &length);
    if (aside == NULL) return;
    if (lead != NULL) headline(aside, lead);
    if (lead == NULL) fputs("no case was run", aside);
    if (p->failing > 1) fprintf(aside, ", and %d more do not pass", p->failing - 1);
    if (p->failing == 0 && cJSON_GetArraySize(p->cases) > 1)
        fprintf(aside, ", and so do all %d cases", cJSON_GetArraySize(p->cases));
    if (fclose(aside) == 0) {
        fputs("<h1>", p->to);
        dp_html_verdict(p->to, dp_view_text(p->document, "verdict"));
        fputs(": ", p->to);
        dp_html_marked(p->to, text[0] == ' ' ? text + 1 : text);
        fputs("</h1>\n", p->to);
    }
    free(text);
}

static void filter_note(const page *p) {
    const char *filter = dp_view_text(p->document, "filter");
    if (filter[0] == '\0') return;
    fputs("<p>Filtered by <code>", p->to);
    dp_html_text(p->to, filter);
    fputs("</code>: a pass speaks of what the pattern matches, and is not the whole verdict.</p>\n", p->to);
}

static void contents(const page *p) {
    const cJSON *item;
    int index = 0;
    fputs("<nav aria-label=\"Contents\"><b>Contents</b>\n<ul>\n", p->to);
    if (cJSON_GetArraySize(p->cases) > 1) fputs("<li><a href=\"#cases\">All cases</a></li>\n", p->to);
    cJSON_ArrayForEach(item, p->cases) {
        index++;
        if (passes(item) && cJSON_GetArraySize(p->cases) > 1) continue;
        fprintf(p->to, "<li><a href=\"#case-%d\">", index);
        dp_html_text(p->to, dp_view_text(item, "case"));
        fputs(dp_view(item, "stages") != NULL && dp_view(item, "stages")->child != NULL
                  ? "</a>: plots, stages, rounds, inputs</li>\n"
                  : "</a>: what stopped it, inputs</li>\n",
              p->to);
    }
    fputs("<li><a href=\"#environment\">Environment</a></li>\n<li><a href=\"#reading\">How to read this page</a></li>\n"
          "</ul></nav>\n",
          p->to);
}

static void first_screen(const page *p) {
    const cJSON *lead = leading_case(p);
    title(p);
    if (lead != NULL) {
        dp_html_look(p->to, lead);
        dp_html_story(p->to, lead, dp_story_begin, "lede");
        dp_html_story(p->to, lead, dp_story_growth, "lede");
        dp_html_story(p->to, lead, dp_story_tokens, "lede");
    } else {
        fputs("<p class=\"lede\">The filter matched no case, so nothing was compared. That is no pass.</p>\n", p->to);
    }
    filter_note(p);
    fputs("<p>This run again:</p>\n", p->to);
    dp_html_command(p->to, dp_view_text(p->document, "command"));
    contents(p);
}

/* ---- Cases
 * ----------------------------------------------------------------------------------------------------------- */

static double least_headroom(const cJSON *item) {
    double least = INFINITY;
    const cJSON *stage;
    cJSON_ArrayForEach(stage, dp_view(item, "stages")) least = fmin(least, dp_view_number(stage, "headroom"));
    return least;
}

static void case_list(const page *p) {
    const cJSON *item;
    int index = 0;
    if (cJSON_GetArraySize(p->cases) < 2) return;
    fputs("<h2 id=\"cases\">All cases</h2>\n<div class=\"wide\"><table>\n<thead><tr><th>case</th><th>verdict</th>"
          "<th class=\"n\">stages</th><th class=\"n\">rounds</th><th class=\"n\">least headroom</th><th>first off</th>"
          "</tr></thead>\n<tbody>\n",
          p->to);
    cJSON_ArrayForEach(item, p->cases) {
        const double least = least_headroom(item);
        index++;
        fprintf(p->to, "<tr class=\"%s\"><td>", passes(item) ? "ok" : "bad");
        if (!passes(item)) fprintf(p->to, "<a href=\"#case-%d\">", index);
        dp_html_text(p->to, dp_view_text(item, "case"));
        fputs(passes(item) ? "</td><td>" : "</a></td><td>", p->to);
        dp_html_verdict(p->to, dp_view_text(item, "verdict"));
        fprintf(p->to, "</td><td class=\"n\">%ld</td><td class=\"n\">%ld</td><td class=\"n\">",
                dp_view_count(item, "stages_compared"), dp_view_count(item, "rounds_compared"));
        if (isfinite(least)) fprintf(p->to, "%.0f %%", 100 * least);
        fputs("</td><td><code>", p->to);
        dp_html_text(p->to, dp_story_stage(item)[0] != '\0' ? dp_story_stage(item)
                                                            : dp_view_text(dp_view(item, "error"), "code"));
        fputs("</code></td></tr>\n", p->to);
    }
    fputs("</tbody></table></div>\n", p->to);
}

static void inputs(const page *p, const cJSON *item) {
    static const char *const keys[] = {"family",  "precision",    "backend",    "class",  "isa",
                                       "threads", "context_rows", "block_rows", "seconds"};
    cJSON *facts = cJSON_CreateObject();
    for (size_t i = 0; facts != NULL && i < sizeof keys / sizeof *keys; i++) {
        cJSON *value = cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(item, keys[i]), true);
        if (value != NULL) cJSON_AddItemToObject(facts, keys[i], value);
    }
    fputs("<details><summary>Inputs and provenance</summary>\n<h3>Run</h3>\n", p->to);
    dp_html_fields(p->to, facts);
    fputs("<h3>Checkpoint</h3>\n", p->to);
    dp_html_fields(p->to, dp_view(item, "checkpoint"));
    fputs("<h3>Oracle</h3>\n", p->to);
    dp_html_fields(p->to, dp_view(item, "oracle"));
    fputs("</details>\n", p->to);
    cJSON_Delete(facts);
}

static void one_case(page *p, const cJSON *item, int index, int *plotted, int *tabled) {
    const bool alone = cJSON_GetArraySize(p->cases) == 1, lead = item == leading_case(p);
    if (passes(item) && !alone && !lead) return;
    fprintf(p->to, "<section id=\"case-%d\">\n<h2>", index);
    dp_html_text(p->to, dp_view_text(item, "case"));
    fputs("</h2>\n", p->to);
    if (!lead) {
        dp_html_look(p->to, item);
        dp_html_story(p->to, item, dp_story_begin, "");
        dp_html_story(p->to, item, dp_story_growth, "");
        dp_html_story(p->to, item, dp_story_tokens, "");
    }
    if (!alone) {
        fputs("<p>This case alone:</p>\n", p->to);
        dp_html_command(p->to, dp_view_text(item, "command"));
    }
    if (cJSON_GetArraySize(dp_view(item, "stages")) > 0) {
        if ((*plotted)++ < MOST_PLOTTED) {
            dp_html_case_plots(p->to, &p->plots, item, index);
            dp_html_no_plots(p->to, &p->plots);
        } else {
            fprintf(p->to, "<p class=\"soft\">Plots are drawn for the first %d cases that do not pass.</p>\n",
                    MOST_PLOTTED);
        }
        if ((*tabled)++ < MOST_TABLES) {
            fputs("<h3>Stages</h3>\n", p->to);
            dp_html_stages(p->to, item);
        } else {
            fprintf(p->to,
                    "<p class=\"soft\">Stages are listed for the first %d cases that do not pass; the result file "
                    "holds all of them.</p>\n",
                    MOST_TABLES);
        }
    }
    dp_html_growth(p->to, item);
    dp_html_tokens(p->to, item);
    dp_html_rounds(p->to, item);
    inputs(p, item);
    fputs("</section>\n", p->to);
}

/* ---- The page
 * -------------------------------------------------------------------------------------------------------- */

static void environment(const page *p) {
    fputs("<h2 id=\"environment\">Environment</h2>\n<p>Started ", p->to);
    dp_html_text(p->to, dp_view_text(p->document, "when"));
    fprintf(p->to, ", %.1f seconds.</p>\n", dp_view_number(p->document, "seconds"));
    dp_html_fields(p->to, dp_view(p->document, "environment"));
}

static const char reading[] =
    "<h2 id=\"reading\">How to read this page</h2>\n"
    "<p>A block drafter was run beside stored values of the upstream reference (the oracle), stage by stage. A "
    "<b>stage</b> is one step of the forward pass, in order. <b>Chained</b> means that the run used its own values all "
    "the way, so a stage shows inherited and added error together; its <b>bar</b> is a multiple of the error that the "
    "reference's own float32 run has there. <b>Alone</b> means that the stage was fed known inputs and held, element "
    "by "
    "element, against a bound of its own arithmetic: above 1 the stage itself is wrong. <b>Headroom</b> is the share "
    "of "
    "the bar that is left. <b>Rounds</b> compute the same block with a cache and must give the same bits.</p>\n"
    "<p>Start with the first divergence. Later stages are usually wrong because of it.</p>\n";

static void write_page(page *p) {
    char name[256];
    const cJSON *item, *lead = leading_case(p);
    int index = 0, plotted = 0, tabled = 0;
    snprintf(name, sizeof name, "%s %s - dflash-parity", dp_view_text(p->document, "verdict"),
             lead != NULL ? dp_view_text(lead, "case") : "");
    dp_html_begin(p->to, name);
    first_screen(p);
    case_list(p);
    cJSON_ArrayForEach(item, p->cases) one_case(p, item, ++index, &plotted, &tabled);
    dp_html_ladders(p->to, &p->plots, p->cases);
    environment(p);
    fputs(reading, p->to);
    dp_html_end(p->to);
}

df_status dp_render_html(const cJSON *document, const dp_html_options *options, char **out, df_error *err) {
    page p = {.document = document, .cases = dp_view(document, "cases")};
    const cJSON *item;
    size_t length = 0;
    *out = NULL;
    p.to = open_memstream(out, &length);
    if (p.to == NULL) return df_fail_memory(err, "the page", 1 << 16);
    cJSON_ArrayForEach(item, p.cases) p.failing += !passes(item);
    dp_html_plots_begin(&p.plots, options->keep);
    write_page(&p);
    dp_html_plots_end(&p.plots);
    const bool failed = ferror(p.to) != 0;
    if (fclose(p.to) == 0 && !failed) return DF_OK;
    free(*out);
    *out = NULL;
    return df_fail_memory(err, "the page", length);
}
