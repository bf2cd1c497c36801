/*
 * render_html.c - see render_html.h; the page's order and what it leaves out.
 *
 * The first screen names the verdict, the stage to look at and the command. A gate of many cases shows failing ones in
 * full and the rest in one table, so that a page stays small enough to mail; what is left out is said.
 */
#include "report/render_html.h"

#include "report/buffered_text.h"
#include "common/error.h"
#include "report/html.h"
#include "report/render_html_parts.h"
#include "report/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A case with plots is up to 400 kB of page, one with tables up to 70 kB, one with neither 10 kB. A part is begun only
 * while the sections are below its limit, so that with any cases the page is below 1.5 MB. */
enum {
    MOST_PLOTTED = 4,
    MOST_TABLES = 8,
    MOST_LISTED = 8,
    PLOTS_BELOW = 850000,
    TABLES_BELOW = 1050000,
    SECTION_BELOW = 1150000
};

/* What of a case the page shows. */
enum { SECTION = 1, PLOTS = 2, TABLES = 4 };

typedef struct page {
    const dp_result_file *file;
    FILE *to;
    dp_html_plots plots;
    int failing;
    int plotted, tabled, ladders;
    unsigned char *shown; /* [number of cases] */
} page;

static bool passes(const dp_result_case *item) { return item->result.verdict == DP_PASS; }

/* The largest error of a case's stages over its limit; ids have no error size and are left out. */
static double largest_error(const dp_result_case *item) {
    double largest = -INFINITY;
    for (int i = 0; i < item->result.stage_count; i++)
        if (!item->result.stage[i].exact) largest = fmax(largest, 1 - item->result.stage[i].headroom);
    return largest;
}

/* The first case with the verdict of the whole; of a pass, the one that is nearest to a limit. */
static const dp_result_case *leading_case(const page *p) {
    const dp_result_case *lead = NULL;
    for (int i = 0; i < p->file->count; i++) {
        const dp_result_case *item = &p->file->item[i];
        if (!passes(item) && item->result.verdict == p->file->verdict) return item;
        if (lead == NULL || (passes(lead) && !passes(item)) ||
            (passes(lead) && passes(item) && largest_error(item) > largest_error(lead)))
            lead = item;
    }
    return lead;
}

/* ---- The first screen ---- */

static void headline(FILE *to, const page *p, const dp_result_case *lead) {
    const int count = p->file->count;
    if (lead == NULL) {
        fputs("no case was run", to);
        return;
    }
    if (p->failing == 0 && count > 1) {
        fprintf(to, "all %d cases pass", count);
        return;
    }
    if (count > 1)
        fprintf(to, "%d of %d cases %s; ", p->failing, count, p->failing == 1 ? "does not pass" : "do not pass");
    fprintf(to, "`%s` ", lead->name);
    dp_summary_headline(to, lead);
}

static void title(const page *p) {
    dp_buffered_text buffered_text;
    if (!dp_buffered_text_begin(&buffered_text)) return;
    headline(buffered_text.to, p, leading_case(p));
    if (dp_buffered_text_end(&buffered_text)) {
        fputs("<h1>", p->to);
        dp_html_verdict(p->to, dp_verdict_name(p->file->verdict));
        fputs(": ", p->to);
        dp_html_marked(p->to, buffered_text.text);
        fputs("</h1>\n", p->to);
    }
    free(buffered_text.text);
}

/* What a gate of several cases adds to the story of one. */
static void others(const page *p, const dp_result_case *lead) {
    const int count = p->file->count;
    long stages = 0, rounds = 0, same = 0;
    if (count < 2) return;
    for (int i = 0; i < count; i++) {
        const dp_result_case *item = &p->file->item[i];
        stages += item->result.stage_count;
        rounds += item->result.variant_count;
        same += item != lead && !passes(item) && dp_summary_stage(lead)[0] != '\0' &&
                strcmp(dp_summary_stage(item), dp_summary_stage(lead)) == 0;
    }
    fputs("<p class=\"lede\">", p->to);
    if (p->failing == 0)
        fprintf(p->to, "%ld stages and %ld rounds of %d cases were compared. The case nearest to a limit:", stages,
                rounds, count);
    else if (p->failing == 1)
        fputs("Every other case passes.", p->to);
    else if (same == p->failing - 1 && same > 1)
        fprintf(p->to, "All %ld other cases that do not pass are first outside their limits at the same stage.", same);
    else if (same > 0)
        fprintf(p->to, "Of the %d other cases that do not pass, %ld %s first outside their limits at the same stage.",
                p->failing - 1, same, same == 1 ? "is" : "are");
    else
        fprintf(p->to,
                "The other cases that do not pass (%d) first leave their limits elsewhere; the table of all cases says "
                "where.",
                p->failing - 1);
    fputs("</p>\n", p->to);
}

static void filter_note(const page *p) {
    const char *filter = p->file->filter;
    if (filter == NULL || filter[0] == '\0') return;
    fputs("<p>Only what <code>", p->to);
    dp_html_text(p->to, filter);
    fputs("</code> matches was compared, so this is not the whole verdict.</p>\n", p->to);
}

static void part_link(FILE *to, int index, const char *part, const char *before) {
    fprintf(to, "%s<a href=\"#case-%d-%s\">%s</a>", before, index, part, part);
}

static void contents(const page *p) {
    int listed = 0, unlisted = 0;
    fputs("<nav aria-label=\"Contents\"><b>Contents</b>\n<ul>\n", p->to);
    if (p->file->count > 1) fputs("<li><a href=\"#cases\">All cases</a></li>\n", p->to);
    for (int i = 0; i < p->file->count; i++) {
        const dp_result_case *item = &p->file->item[i];
        const unsigned shown = p->shown[i];
        const bool rounds = item->result.variant_count > 0;
        if (!(shown & SECTION) || listed == MOST_LISTED) {
            unlisted += !passes(item); /* the table of all cases has them */
            continue;
        }
        listed++;
        fprintf(p->to, "<li><a href=\"#case-%d\">", i + 1);
        dp_html_text(p->to, item->name);
        fputs("</a>: ", p->to);
        if (shown & PLOTS) part_link(p->to, i + 1, "plots", "");
        if (shown & TABLES) part_link(p->to, i + 1, "stages", shown & PLOTS ? ", " : "");
        if (rounds) part_link(p->to, i + 1, "rounds", shown & TABLES ? ", " : "");
        part_link(p->to, i + 1, "inputs", rounds || shown & TABLES ? ", " : "");
        fputs("</li>\n", p->to);
    }
    if (unlisted > 0)
        fprintf(p->to, "<li><a href=\"#cases\">%d more that %s not pass</a></li>\n", unlisted,
                unlisted == 1 ? "does" : "do");
    if (p->ladders > 0) fputs("<li><a href=\"#precisions\">Precisions</a></li>\n", p->to);
    fputs("<li><a href=\"#environment\">Environment</a></li>\n<li><a href=\"#reading\">How to read this page</a></li>\n"
          "</ul></nav>\n",
          p->to);
}

static void first_screen(const page *p) {
    const dp_result_case *lead = leading_case(p);
    title(p);
    if (lead != NULL) {
        dp_html_look(p->to, lead);
        if (p->failing == 0) others(p, lead);
        dp_html_summary(p->to, lead, dp_summary_begin, "lede");
        dp_html_summary(p->to, lead, dp_summary_growth, "lede");
        dp_html_summary(p->to, lead, dp_summary_tokens, "lede");
        if (p->failing > 0) others(p, lead);
    } else {
        fputs("<p class=\"lede\">The filter matched no case, so nothing was compared. That is no pass.</p>\n", p->to);
    }
    filter_note(p);
    if (lead != NULL && lead->result.stage_count > 0)
        fputs("<p class=\"soft\">A stage is one step of the forward pass, its limit the error that rounding explains "
              "there; "
              "<a href=\"#reading\">how to read this page</a>.</p>\n",
              p->to);
    fputs("<p>This run again:</p>\n", p->to);
    dp_html_command(p->to, p->file->command);
    contents(p);
}

/* ---- Cases ---- */

static void case_list(const page *p) {
    if (p->file->count < 2) return;
    fputs("<h2 id=\"cases\">All cases</h2>\n<div class=\"wide\"><table>\n<thead><tr><th>case</th><th>verdict</th>"
          "<th class=\"n\">stages</th><th class=\"n\">rounds</th><th class=\"n\">largest error, × limit</th><th>first "
          "off</th>"
          "</tr></thead>\n<tbody>\n",
          p->to);
    for (int i = 0; i < p->file->count; i++) {
        const dp_result_case *item = &p->file->item[i];
        const double largest = largest_error(item);
        fprintf(p->to, "<tr class=\"%s\"><td>", passes(item) ? "ok" : "bad");
        const bool linked = p->shown[i] & SECTION;
        if (linked) fprintf(p->to, "<a href=\"#case-%d\">", i + 1);
        dp_html_text(p->to, item->name);
        fputs(linked ? "</a></td><td>" : "</td><td>", p->to);
        dp_html_verdict(p->to, dp_verdict_name(item->result.verdict));
        fprintf(p->to, "</td><td class=\"n\">%d</td><td class=\"n\">%d</td>", item->result.stage_count,
                item->result.variant_count);
        if (isfinite(largest))
            dp_html_ratio(p->to, largest);
        else
            fprintf(p->to, "<td class=\"n soft\">%s</td>", largest > 0 ? "not comparable" : "–");
        fputs("<td><code>", p->to);
        dp_html_text(p->to, dp_summary_stage(item)[0] != '\0' ? dp_summary_stage(item) : item->result.error.code);
        fputs("</code></td></tr>\n", p->to);
    }
    fputs("</tbody></table></div>\n", p->to);
}

/* How it ran, by the names that a result file gives these facts. */
static cJSON *run_facts(const dp_result_case *item) {
    static const char *const keys[] = {"family",  "precision",    "backend",    "class",  "isa",
                                       "threads", "context_rows", "block_rows", "seconds"};
    cJSON *facts = cJSON_CreateObject();
    for (size_t i = 0; facts != NULL && i < sizeof keys / sizeof *keys; i++)
        cJSON_AddItemToObject(facts, keys[i],
                              cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(item->object, keys[i]), true));
    return facts;
}

static void inputs(const page *p, const dp_result_case *item, int index) {
    cJSON *facts = run_facts(item);
    fprintf(p->to, "<details id=\"case-%d-inputs\"><summary>Inputs and provenance</summary>\n<h3>Run</h3>\n", index);
    dp_html_fields(p->to, facts);
    fputs("<h3>Checkpoint</h3>\n", p->to);
    dp_html_fields(p->to, item->checkpoint);
    fputs("<h3>Oracle</h3>\n", p->to);
    dp_html_fields(p->to, item->oracle);
    fputs("</details>\n", p->to);
    cJSON_Delete(facts);
}

static void one_case(page *p, const dp_result_case *item, int index) {
    const bool alone = p->file->count == 1, lead = item == leading_case(p);
    const long size = ftell(p->to);
    if (size > SECTION_BELOW) return;
    p->shown[index - 1] = SECTION;
    fprintf(p->to, "<section id=\"case-%d\">\n<h2>", index);
    dp_html_text(p->to, item->name);
    fputs("</h2>\n", p->to);
    if (!lead) {
        dp_html_look(p->to, item);
        dp_html_summary(p->to, item, dp_summary_begin, "");
        dp_html_summary(p->to, item, dp_summary_growth, "");
        dp_html_summary(p->to, item, dp_summary_tokens, "");
    }
    if (!alone) {
        fputs("<p>This case alone:</p>\n", p->to);
        dp_html_command(p->to, item->command);
    }
    if (item->result.stage_count > 0) {
        if (p->plotted < MOST_PLOTTED && size <= PLOTS_BELOW) {
            p->plotted++;
            p->shown[index - 1] |= PLOTS;
            fprintf(p->to, "<div id=\"case-%d-plots\">\n", index);
            dp_html_case_plots(p->to, &p->plots, item, index);
            dp_html_no_plots(p->to, &p->plots);
            fputs("</div>\n", p->to);
        } else {
            fprintf(p->to, "<p class=\"soft\">Plots are drawn for the first %d cases that do not pass.</p>\n",
                    p->plotted);
        }
        if (p->tabled < MOST_TABLES && size <= TABLES_BELOW) {
            p->tabled++;
            p->shown[index - 1] |= TABLES;
            fprintf(p->to, "<h3 id=\"case-%d-stages\">Stages</h3>\n", index);
            dp_html_stages(p->to, &item->result);
        } else {
            fprintf(p->to,
                    "<p class=\"soft\">Stages are listed for the first %d cases that do not pass; the result file "
                    "holds all of them.</p>\n",
                    p->tabled);
        }
    }
    dp_html_growth(p->to, &item->result);
    dp_html_tokens(p->to, &item->result);
    fprintf(p->to, "<div id=\"case-%d-rounds\">\n", index);
    dp_html_rounds(p->to, &item->result);
    fputs("</div>\n", p->to);
    inputs(p, item, index);
    fputs("</section>\n", p->to);
}

/* ---- The page ---- */

static void environment(const page *p) {
    fputs("<h2 id=\"environment\">Environment</h2>\n<p>Started ", p->to);
    dp_html_text(p->to, p->file->when);
    fprintf(p->to, ", %.1f seconds.</p>\n", p->file->seconds);
    dp_html_fields(p->to, p->file->environment);
}

static const char reading[] =
    "<h2 id=\"reading\">How to read this page</h2>\n"
    "<p>A block drafter was run beside stored values of the upstream reference (the oracle), stage by stage. A "
    "<b>stage</b> is one step of the forward pass, in order. <b>Chained</b> means that the run used its own values all "
    "the way, so a stage shows inherited and added error together; its <b>limit</b> is a multiple of the error that "
    "the "
    "reference's own float32 run has there. <b>Alone</b> means that the stage was fed known inputs and held, element "
    "by "
    "element, against a bound of its own arithmetic: above 1 the stage itself is wrong. <b>Headroom</b> is the share "
    "of "
    "the limit that is left. <b>Rounds</b> compute the same block with a cache and must give the same bits.</p>\n"
    "<p>Start with the first divergence. Later stages are usually wrong because of it.</p>\n";

/* What the precisions of one checkpoint did, when it was run in several. */
static void precisions(page *p) {
    dp_buffered_text buffered_text;
    if (!dp_buffered_text_begin(&buffered_text)) return;
    p->ladders = dp_html_ladders(buffered_text.to, &p->plots, p->file);
    if (!dp_buffered_text_end(&buffered_text)) p->ladders = 0;
    if (p->ladders > 0) fprintf(p->to, "<h2 id=\"precisions\">Precisions</h2>\n%s", buffered_text.text);
    free(buffered_text.text);
}

/* The sections of the cases, the leading one first. They are written before what links to them. */
static bool write_sections(page *p, char **text) {
    const dp_result_case *lead = leading_case(p);
    FILE *const whole = p->to;
    size_t length = 0;
    p->to = open_memstream(text, &length);
    if (p->to != NULL) {
        if (lead != NULL) one_case(p, lead, (int)(lead - p->file->item) + 1);
        for (int i = 0; i < p->file->count; i++) {
            const dp_result_case *item = &p->file->item[i];
            if (item != lead && !passes(item)) one_case(p, item, i + 1);
        }
        precisions(p);
    }
    const bool failed = p->to == NULL || ferror(p->to) != 0;
    const bool written = p->to != NULL && fclose(p->to) == 0 && !failed;
    p->to = whole;
    return written;
}

/* False when memory did not suffice. */
static bool write_page(page *p) {
    char name[256], *sections = NULL;
    const dp_result_case *lead = leading_case(p);
    const bool written = write_sections(p, &sections);
    snprintf(name, sizeof name, "%s %s - dflash-parity", dp_verdict_name(p->file->verdict),
             p->failing == 0 && p->file->count > 1 ? "all cases"
             : lead != NULL                        ? lead->name
                                                   : "no case");
    dp_html_begin(p->to, name);
    first_screen(p);
    case_list(p);
    if (written) fputs(sections, p->to);
    environment(p);
    fputs(reading, p->to);
    dp_html_end(p->to);
    free(sections);
    return written;
}

dflash_status dp_render_html(const dp_result_file *file, const dp_html_options *options, char **out,
                             dflash_error *err) {
    page p = {.file = file};
    size_t length = 0;
    *out = NULL;
    p.shown = calloc((size_t)file->count + 1, sizeof *p.shown);
    p.to = p.shown != NULL ? open_memstream(out, &length) : NULL;
    if (p.to == NULL) {
        free(p.shown);
        return df_fail_memory(err, "the page", 1 << 16);
    }
    for (int i = 0; i < file->count; i++) p.failing += !passes(&file->item[i]);
    dp_html_plots_begin(&p.plots, options->keep);
    const bool written = write_page(&p);
    dflash_status status = dp_html_plots_end(&p.plots, err);
    free(p.shown);
    const bool failed = ferror(p.to) != 0 || !written;
    if (fclose(p.to) != 0 || failed) status = df_fail_memory(err, "the page", length);
    if (status == DFLASH_OK) return DFLASH_OK;
    free(*out);
    *out = NULL;
    return status;
}
