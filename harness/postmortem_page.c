/* postmortem_page.c - the story of a postmortem as a page and as Markdown to paste. */
#include "postmortem.h"

#include "error.h"
#include "html.h"
#include "plot_files.h"
#include "render_html_parts.h"
#include "result_view.h"
#include "story.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Cases told in full; a gate that breaks everywhere has one cause, and the rest are in the table. */
enum { MOST_TOLD = 3, MOST_CURVES = 8 };

static double share_of_bar(const cJSON *item) {
    double least = INFINITY;
    const cJSON *stage;
    cJSON_ArrayForEach(stage, dp_view(item, "stages")) {
        if (dp_view_nonfinite(stage) > 0) return NAN;
        least = fmin(least, dp_view_number(stage, "headroom"));
    }
    return isfinite(least) ? 1 - least : NAN;
}

static int bad_cases(const dp_postmortem *story) {
    int bad = 0;
    while (bad < story->item_count && story->item[bad].last_bad >= 0) bad++;
    return bad;
}

/* The run whose story is told: the first bad one, where the cause is nearest. */
static const cJSON *told(const dp_past_case *item) { return item->in_run[item->first_bad]; }

/* ---- Markdown
 * -------------------------------------------------------------------------------------------------------- */

/* A cell of a table: a pipe would end it, a line break would end the row. */
static void cell(FILE *to, const char *text) {
    fputs("`", to);
    for (; *text != '\0'; text++) {
        if (*text == '|')
            fputs("\\|", to);
        else
            fputc(*text == '`' ? '\'' : (unsigned char)*text < 0x20 ? ' ' : *text, to);
    }
    fputs("`", to);
}

static df_status markdown_changes(FILE *to, const dp_postmortem *story, const dp_past_case *item, df_error *err) {
    dp_change *change = NULL;
    int count = 0;
    if (item->last_good < 0) return DF_OK;
    TRY(dp_postmortem_changes(story, item, item->last_good, item->first_bad, &change, &count, err));
    fputs(count > 0 ? "\n**Changed between them**\n\n| what | last good | first bad |\n|---|---|---|\n"
                    : "\nNothing on record changed between them.\n",
          to);
    for (int i = 0; i < count; i++) {
        fputs("| ", to);
        cell(to, change[i].name);
        fputs(" | ", to);
        cell(to, change[i].before);
        fputs(" | ", to);
        cell(to, change[i].after);
        fputs(" |\n", to);
    }
    dp_changes_release(change, count);
    return DF_OK;
}

static df_status markdown_case(FILE *to, const dp_postmortem *story, const dp_past_case *item, df_error *err) {
    const cJSON *bad = told(item);
    fprintf(to, "\n### %s\n\n", item->name);
    dp_postmortem_outcome(to, story, item);
    fputs("\n\n", to);
    dp_story_begin(to, bad);
    fputs("\n\n", to);
    dp_story_growth(to, bad);
    fputs("\n\n", to);
    dp_story_tokens(to, bad);
    fputs("\n", to);
    TRY(markdown_changes(to, story, item, err));
    fprintf(to, "\nTo see it again:\n\n    %s\n", dp_view_text(bad, "command"));
    return DF_OK;
}

df_status dp_postmortem_markdown(const dp_postmortem *story, char **out, df_error *err) {
    const int bad = bad_cases(story);
    size_t length = 0;
    *out = NULL;
    FILE *to = open_memstream(out, &length);
    if (to == NULL) return df_fail_memory(err, "the text", 4096);
    df_status status = DF_OK;
    fprintf(to, "## Postmortem: %d of %d cases did not pass, over %d runs\n", bad, story->item_count, story->run_count);
    fputs("\n| run | verdict | cases that pass |\n|---|---|---|\n", to);
    for (int r = 0; r < story->run_count; r++) {
        char name[DP_RUN_NAME];
        const cJSON *item, *cases = dp_view(story->run[r].document, "cases");
        int passed = 0;
        cJSON_ArrayForEach(item, cases) passed += strcmp(dp_view_text(item, "verdict"), "PASS") == 0;
        fputs("| ", to);
        cell(to, dp_past_run_name(&story->run[r], name));
        fprintf(to, " | %s | %d of %d |\n", dp_view_text(story->run[r].document, "verdict"), passed,
                cJSON_GetArraySize(cases));
    }
    for (int i = 0; status == DF_OK && i < bad && i < MOST_TOLD; i++)
        status = markdown_case(to, story, &story->item[i], err);
    for (int i = MOST_TOLD; i < bad; i++) {
        fputs(i == MOST_TOLD ? "\nAlso:\n\n- " : "- ", to);
        dp_postmortem_outcome(to, story, &story->item[i]);
        fputs("\n", to);
    }
    const bool failed = ferror(to) != 0;
    if (fclose(to) != 0 || failed) status = df_fail_memory(err, "the text", length);
    if (status == DF_OK) return DF_OK;
    free(*out);
    *out = NULL;
    return status;
}

/* ---- The page
 * -------------------------------------------------------------------------------------------------------- */

static void marked(FILE *to, const dp_postmortem *story, const dp_past_case *item, const char *class) {
    char *text = NULL;
    size_t length = 0;
    FILE *aside = open_memstream(&text, &length);
    if (aside == NULL) return;
    dp_postmortem_outcome(aside, story, item);
    if (fclose(aside) == 0) {
        fprintf(to, "<p class=\"%s\">", class);
        dp_html_marked(to, text);
        fputs("</p>\n", to);
    }
    free(text);
}

static void table_of_runs(FILE *to, const dp_postmortem *story) {
    const int shown = bad_cases(story) > 0 && bad_cases(story) < MOST_CURVES ? bad_cases(story) : MOST_CURVES;
    fputs("<h2 id=\"runs\">Runs</h2>\n<div class=\"wide\"><table>\n<thead><tr><th>started</th><th>commit</th>"
          "<th>verdict</th>",
          to);
    for (int i = 0; i < story->item_count && i < shown; i++) {
        fputs("<th>", to);
        dp_html_text(to, story->item[i].name);
        fputs("</th>", to);
    }
    fputs("<th>file</th></tr></thead>\n<tbody>\n", to);
    for (int r = 0; r < story->run_count; r++) {
        const cJSON *document = story->run[r].document, *environment = dp_view(document, "environment");
        fputs("<tr><td>", to);
        dp_html_text(to, dp_view_text(document, "when"));
        fputs("</td><td><code>", to);
        dp_html_text(to, dp_view_text(environment, "commit"));
        fputs(dp_view_true(environment, "dirty") ? "</code> dirty</td><td>" : "</code></td><td>", to);
        dp_html_verdict(to, dp_view_text(document, "verdict"));
        fputs("</td>", to);
        for (int i = 0; i < story->item_count && i < shown; i++) {
            const cJSON *item = story->item[i].in_run[r];
            fputs("<td>", to);
            if (item == NULL)
                fputs("<span class=\"soft\">not run</span>", to);
            else
                dp_html_verdict(to, dp_view_text(item, "verdict"));
            if (item != NULL && dp_story_stage(item)[0] != '\0') {
                fputs(" <code>", to);
                dp_html_text(to, dp_story_stage(item));
                fputs("</code>", to);
            }
            fputs("</td>", to);
        }
        fputs("<td class=\"v\">", to);
        dp_html_text(to, story->run[r].path);
        fputs("</td></tr>\n", to);
    }
    fputs("</tbody></table></div>\n", to);
}

static df_status changes(FILE *to, const dp_postmortem *story, const dp_past_case *item, df_error *err) {
    dp_change *change = NULL;
    int count = 0;
    fputs("<h3>What changed</h3>\n", to);
    if (item->last_good < 0) {
        fputs("<p>No run here is good, so there is nothing to compare the first bad one with.</p>\n", to);
        return DF_OK;
    }
    TRY(dp_postmortem_changes(story, item, item->last_good, item->first_bad, &change, &count, err));
    if (count == 0)
        fputs("<p>Nothing on record changed between the last good and the first bad run.</p>\n", to);
    else
        fputs("<div class=\"wide\"><table>\n<thead><tr><th>what</th><th>last good</th><th>first bad</th></tr></thead>\n"
              "<tbody>\n",
              to);
    for (int i = 0; i < count; i++) {
        fputs("<tr><td><code>", to);
        dp_html_text(to, change[i].name);
        fputs("</code></td><td class=\"v\">", to);
        dp_html_text(to, change[i].before);
        fputs("</td><td class=\"v\">", to);
        dp_html_text(to, change[i].after);
        fputs("</td></tr>\n", to);
    }
    if (count > 0) fputs("</tbody></table></div>\n", to);
    if (dp_view_true(dp_view(story->run[item->last_good].document, "environment"), "dirty") ||
        dp_view_true(dp_view(story->run[item->first_bad].document, "environment"), "dirty"))
        fputs("<p>A run was built from a tree that differed from its commit, so the commit does not say all of what "
              "was built.</p>\n",
              to);
    dp_changes_release(change, count);
    return DF_OK;
}

/* Share of the bar, run by run. */
static df_status drift(FILE *to, const dp_postmortem *story, dp_html_plots *plots, df_error *err) {
    const int curves = story->item_count < MOST_CURVES ? story->item_count : MOST_CURVES;
    const size_t points = (size_t)curves * (size_t)story->run_count;
    dp_plot_curve *curve = calloc((size_t)curves, sizeof *curve);
    const char **label = calloc(points, sizeof *label);
    int *x = calloc(points, sizeof *x), used = 0;
    double *value = calloc(points, sizeof *value);
    df_status status = curve != NULL && label != NULL && x != NULL && value != NULL
                           ? DF_OK
                           : df_fail_memory(err, "the curves", points * sizeof *value);
    for (int i = 0; status == DF_OK && i < curves; i++) {
        const size_t start = (size_t)i * (size_t)story->run_count;
        int count = 0;
        for (int r = 0; r < story->run_count; r++) {
            const cJSON *item = story->item[i].in_run[r];
            if (item == NULL || dp_view(item, "stages")->child == NULL) continue;
            x[start + (size_t)count] = r;
            value[start + (size_t)count] = share_of_bar(item);
            label[start + (size_t)count++] = dp_view_text(dp_view(story->run[r].document, "environment"), "commit");
        }
        if (count > 0)
            curve[used++] = (dp_plot_curve){.label = story->item[i].name,
                                            .count = count,
                                            .point = label + start,
                                            .x = x + start,
                                            .value = value + start};
    }
    if (status == DF_OK && used > 0 && plots->begun)
        status = dp_plot_write_curves(&plots->plots, "drift", curve, used, true, err);
    if (status == DF_OK && used > 0)
        dp_html_figure(to, plots, "drift", "drift", "Share of the bar used, run by run",
                       "Largest error over its bar, in the stage where that is largest. Above the amber line is a "
                       "failure; a curve that climbs below it is a drift that no verdict shows yet. More than 500 "
                       "times the bar stands at 500.");
    free(curve);
    free(label);
    free(x);
    free(value);
    return status;
}

static df_status one_case(FILE *to, const dp_postmortem *story, dp_html_plots *plots, int index, df_error *err) {
    const dp_past_case *item = &story->item[index];
    const cJSON *bad = told(item);
    fprintf(to, "<section id=\"case-%d\">\n<h2>", index + 1);
    dp_html_text(to, item->name);
    fputs("</h2>\n", to);
    if (index > 0) marked(to, story, item, "");
    dp_html_look(to, bad);
    dp_html_story(to, bad, dp_story_begin, "");
    dp_html_story(to, bad, dp_story_growth, "");
    dp_html_story(to, bad, dp_story_tokens, "");
    TRY(changes(to, story, item, err));
    fputs("<p>To see it again:</p>\n", to);
    dp_html_command(to, dp_view_text(bad, "command"));
    dp_html_case_plots(to, plots, bad, index + 1);
    dp_html_growth(to, bad);
    dp_html_tokens(to, bad);
    if (dp_view(bad, "stages") != NULL && dp_view(bad, "stages")->child != NULL) {
        fputs("<h3>Stages of the first bad run</h3>\n", to);
        dp_html_stages(to, bad);
    }
    fputs("</section>\n", to);
    return DF_OK;
}

static void head(FILE *to, const dp_postmortem *story) {
    const int bad = bad_cases(story);
    fputs("<h1>Postmortem: ", to);
    if (bad == 0)
        fputs("every case passes in these runs", to);
    else
        dp_html_text(to, story->item[0].name);
    if (bad > 1) fprintf(to, " and %d more", bad - 1);
    fputs("</h1>\n", to);
    if (bad > 0) marked(to, story, &story->item[0], "lede");
    fputs("<nav aria-label=\"Contents\"><b>Contents</b>\n<ul>\n<li><a href=\"#runs\">Runs</a></li>\n", to);
    for (int i = 0; i < bad && i < MOST_TOLD; i++) {
        fprintf(to, "<li><a href=\"#case-%d\">", i + 1);
        dp_html_text(to, story->item[i].name);
        fputs("</a></li>\n", to);
    }
    if (bad > MOST_TOLD) fputs("<li><a href=\"#also\">Other cases that do not pass</a></li>\n", to);
    fputs("<li><a href=\"#paste\">Text to paste</a></li>\n</ul></nav>\n", to);
}

df_status dp_postmortem_html(const dp_postmortem *story, const char *keep, char **out, df_error *err) {
    const int bad = bad_cases(story);
    char *markdown = NULL;
    dp_html_plots plots;
    size_t length = 0;
    *out = NULL;
    TRY(dp_postmortem_markdown(story, &markdown, err));
    FILE *to = open_memstream(out, &length);
    if (to == NULL) {
        free(markdown);
        return df_fail_memory(err, "the page", 1 << 16);
    }
    dp_html_plots_begin(&plots, keep);
    dp_html_begin(to, "Postmortem - dflash-parity");
    head(to, story);
    table_of_runs(to, story);
    df_status status = drift(to, story, &plots, err);
    for (int i = 0; status == DF_OK && i < bad && i < MOST_TOLD; i++) status = one_case(to, story, &plots, i, err);
    if (bad > MOST_TOLD) fputs("<h2 id=\"also\">Other cases that do not pass</h2>\n", to);
    for (int i = MOST_TOLD; i < bad; i++) marked(to, story, &story->item[i], "");
    dp_html_no_plots(to, &plots);
    fputs("<h2 id=\"paste\">Text to paste</h2>\n", to);
    dp_html_command(to, markdown);
    dp_html_end(to);
    dp_html_plots_end(&plots);
    free(markdown);
    const bool failed = ferror(to) != 0;
    if ((fclose(to) != 0 || failed) && status == DF_OK) status = df_fail_memory(err, "the page", length);
    if (status == DF_OK) return DF_OK;
    free(*out);
    *out = NULL;
    return status;
}
