/* postmortem_page.c - the story of a postmortem as a page: runs, drift, and each case that does not pass. */
#include "history/postmortem.h"

#include "report/buffered_text.h"
#include "common/error.h"
#include "report/html.h"
#include "report/plot_files.h"
#include "report/render_html_parts.h"
#include "report/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CURVES = 8, SUBJECT = 48 };

/* The run whose story is told: the first bad one, where the cause is nearest. */
static const dp_result_case *told(const dp_past_case *item) { return item->in_run[item->first_bad]; }

/* ---- Paragraphs: words are buffered and then set, `ticked` ones as code ---- */

static void set(FILE *to, dp_buffered_text *words, const char *class) {
    if (dp_buffered_text_end(words)) {
        fprintf(to, "<p class=\"%s\">", class);
        dp_html_marked(to, words->text);
        fputs("</p>\n", to);
    }
    free(words->text);
}

static void about_case(FILE *to, const dp_postmortem *summary, const dp_past_case *item,
                       void (*words)(FILE *, const dp_postmortem *, const dp_past_case *), const char *class) {
    dp_buffered_text buffered_text;
    if (!dp_buffered_text_begin(&buffered_text)) return;
    words(buffered_text.to, summary, item);
    set(to, &buffered_text, class);
}

/* ---- Runs ---- */

static void case_cell(FILE *to, const dp_result_case *item) {
    fputs("<td>", to);
    if (item == NULL)
        fputs("<span class=\"soft\">not run</span>", to);
    else
        dp_html_verdict(to, dp_verdict_name(item->result.verdict));
    if (item != NULL && dp_summary_stage(item)[0] != '\0') {
        fputs(" <code>", to);
        dp_html_text(to, dp_summary_stage(item));
        fputs("</code>", to);
    }
    fputs("</td>", to);
}

/* A subject that leaves the table its other columns; cut between characters of UTF-8. */
static const char *shortened(const char *subject, char out[SUBJECT + 4]) {
    size_t length = strlen(subject);
    if (length <= SUBJECT) return subject;
    for (length = SUBJECT; length > 0 && ((unsigned char)subject[length] & 0xc0) == 0x80;) length--;
    snprintf(out, SUBJECT + 4, "%.*s...", (int)length, subject);
    return out;
}

static void run_row(FILE *to, const dp_postmortem *summary, const dp_past_run *run, int shown) {
    fputs("<tr><td>", to);
    dp_html_text(to, run->when);
    fputs(run->is_recording ? " <span class=\"soft\">(file)</span></td><td><code>" : "</td><td><code>", to);
    dp_html_text(to, dp_past_commit_name(run));
    fputs(dp_past_dirty(run) ? "</code> dirty" : "</code>", to);
    if (run->commit.subject[0] != '\0') {
        char subject[SUBJECT + 4];
        fputs(" <span class=\"soft\">", to);
        dp_html_text(to, shortened(run->commit.subject, subject));
        fputs("</span>", to);
    }
    fputs("</td><td>", to);
    dp_html_verdict(to, dp_verdict_name(run->file.verdict));
    fputs("</td>", to);
    for (int i = 0; i < shown; i++) case_cell(to, summary->item[i].in_run[run - summary->run]);
    fprintf(to, "<td>%s</td><td class=\"v\">", run->is_recording ? "recording" : "result");
    dp_html_text(to, run->path);
    fputs("</td></tr>\n", to);
}

static void table_of_runs(FILE *to, const dp_postmortem *summary) {
    const int bad = dp_postmortem_bad_cases(summary), some = bad > 0 ? bad : summary->item_count;
    const int shown = some < MOST_CURVES ? some : MOST_CURVES;
    dp_buffered_text notes;
    fprintf(to, "<h2 id=\"runs\">Runs, %s</h2>\n", dp_order_text(summary->options.order));
    fputs("<div class=\"wide\"><table>\n<thead><tr><th>time</th><th>commit</th><th>verdict</th>", to);
    for (int i = 0; i < shown; i++) {
        fputs("<th>", to);
        dp_html_text(to, summary->item[i].name);
        fputs("</th>", to);
    }
    fputs("<th>kind</th><th>file</th></tr></thead>\n<tbody>\n", to);
    for (int r = 0; r < summary->run_count; r++) run_row(to, summary, &summary->run[r], shown);
    fputs("</tbody></table></div>\n", to);
    if (!dp_buffered_text_begin(&notes)) return;
    dp_postmortem_notes(notes.to, summary);
    set(to, &notes, "");
}

/* ---- What changed ---- */

static void table_of_changes(FILE *to, const dp_changes *found) {
    if (found->count == 0)
        fputs("<p>Nothing on record changed between the last good and the first bad run.</p>\n", to);
    else
        fputs("<div class=\"wide\"><table>\n<thead><tr><th>what</th><th>last good</th><th>first bad</th></tr></thead>\n"
              "<tbody>\n",
              to);
    for (int i = 0; i < found->count; i++) {
        fputs("<tr><td><code>", to);
        dp_html_text(to, found->change[i].name);
        fputs("</code></td><td class=\"v\">", to);
        dp_html_text(to, found->change[i].before);
        fputs("</td><td class=\"v\">", to);
        dp_html_text(to, found->change[i].after);
        fputs("</td></tr>\n", to);
    }
    if (found->count > 0) fputs("</tbody></table></div>\n", to);
    if (found->missing[0] == '\0') return;
    fputs("<p>Neither run has on record: <code>", to);
    dp_html_text(to, found->missing);
    fputs("</code>.</p>\n", to);
}

static dflash_status commits(FILE *to, const dp_postmortem *summary, const dp_past_case *item, dflash_error *err) {
    dp_past_commits found;
    dp_buffered_text words;
    dflash_status status = dp_postmortem_commits(summary, item->last_good, item->first_bad, &found, err);
    if (status == DFLASH_OK && found.known) {
        fputs("<h3>Commits between them</h3>\n", to);
        if (dp_buffered_text_begin(&words)) {
            dp_postmortem_history(words.to, &found);
            set(to, &words, "");
        }
        if (found.count > 0) fputs("<ul>\n", to);
        for (int i = 0; i < found.count && i < DP_MOST_COMMITS; i++) {
            fprintf(to, "<li><code>%.12s</code> ", found.commit[i].hash);
            dp_html_text(to, found.commit[i].subject);
            fputs("</li>\n", to);
        }
        if (found.count > DP_MOST_COMMITS) fprintf(to, "<li>and %d more</li>\n", found.count - DP_MOST_COMMITS);
        if (found.count > 0) fputs("</ul>\n", to);
    }
    dp_past_commits_release(&found);
    return status;
}

static dflash_status changes(FILE *to, const dp_postmortem *summary, const dp_past_case *item, dflash_error *err) {
    dp_changes found;
    fputs("<h3>What changed</h3>\n", to);
    if (item->last_good < 0) {
        fputs("<p>No run here is good, so there is nothing to compare the first bad one with.</p>\n", to);
        return DFLASH_OK;
    }
    const dflash_status status = dp_postmortem_changes(summary, item, item->last_good, item->first_bad, &found, err);
    if (status == DFLASH_OK) table_of_changes(to, &found);
    dp_changes_release(&found);
    TRY(status);
    about_case(to, summary, item, dp_postmortem_builds, "");
    return commits(to, summary, item, err);
}

/* ---- Drift ---- */

/* Of the stage where it is largest; NaN when a stage is not finite, or has no error because it was not shown. */
static double share_of_limit(const dp_result *result, bool by_bits) {
    double least = INFINITY;
    for (int i = 0; i < result->stage_count; i++) {
        const dp_stage_result *stage = &result->stage[i];
        if (stage->difference.nonfinite > 0 || stage->difference.count == 0) return NAN;
        least = fmin(least, stage->headroom);
    }
    return by_bits && !isfinite(least) ? DP_PLOT_SHARE_CEILING : isfinite(least) ? 1 - least : NAN;
}

static dflash_status drift(FILE *to, const dp_postmortem *summary, dp_html_plots *plots, dflash_error *err) {
    const int curves = summary->item_count < MOST_CURVES ? summary->item_count : MOST_CURVES;
    const size_t points = (size_t)curves * (size_t)summary->run_count;
    dp_plot_curve *curve = calloc((size_t)curves, sizeof *curve);
    const char **label = calloc(points, sizeof *label);
    int *x = calloc(points, sizeof *x), used = 0;
    double *value = calloc(points, sizeof *value);
    dflash_status status = curve != NULL && label != NULL && x != NULL && value != NULL
                               ? DFLASH_OK
                               : df_fail_memory(err, "the curves", points * sizeof *value);
    for (int i = 0; status == DFLASH_OK && i < curves; i++) {
        const size_t start = (size_t)i * (size_t)summary->run_count;
        int count = 0;
        for (int r = 0; r < summary->run_count; r++) {
            const dp_result_case *item = summary->item[i].in_run[r];
            const dp_past_run *run = &summary->run[r];
            if (item == NULL || item->result.stage_count == 0) continue;
            x[start + (size_t)count] = r;
            value[start + (size_t)count] = share_of_limit(&item->result, run->is_recording && run->recording.by_bits);
            label[start + (size_t)count++] = dp_past_commit_name(run);
        }
        if (count > 0)
            curve[used++] = (dp_plot_curve){.label = summary->item[i].name,
                                            .count = count,
                                            .point = label + start,
                                            .x = x + start,
                                            .value = value + start};
    }
    if (status == DFLASH_OK && used > 0 && plots->begun)
        status = dp_plot_write_curves(&plots->plots, "drift", curve, used, true, err);
    if (status == DFLASH_OK && used > 0)
        dp_html_figure(to, plots, "drift", "drift", "Share of the limit used, run by run",
                       "Largest error over its limit, in the stage where that is largest. Above the amber line is a "
                       "failure; a curve that climbs below it is a drift that no verdict shows yet. More than 500 "
                       "times the limit stands at 500, and so does a recording that should have the bits of another.");
    free(curve);
    free(label);
    free(x);
    free(value);
    return status;
}

/* ---- Cases ---- */

static dflash_status one_case(FILE *to, const dp_postmortem *summary, dp_html_plots *plots, int index,
                              dflash_error *err) {
    const dp_past_case *item = &summary->item[index];
    const dp_result_case *bad = told(item);
    dp_buffered_text bits;
    fprintf(to, "<section id=\"case-%d\">\n<h2>", index + 1);
    dp_html_text(to, item->name);
    fputs("</h2>\n", to);
    if (index > 0) about_case(to, summary, item, dp_postmortem_outcome, "");
    dp_html_look(to, bad);
    about_case(to, summary, item, dp_postmortem_begin, "");
    if (dp_buffered_text_begin(&bits)) {
        dp_postmortem_bits(bits.to, &summary->run[item->first_bad]);
        set(to, &bits, "");
    }
    dp_html_summary(to, bad, dp_summary_growth, "");
    dp_html_summary(to, bad, dp_summary_tokens, "");
    TRY(changes(to, summary, item, err));
    fputs("<p>To see it again:</p>\n", to);
    dp_html_command(to, bad->command);
    dp_html_case_plots(to, plots, bad, index + 1);
    dp_html_growth(to, &bad->result);
    dp_html_tokens(to, &bad->result);
    if (bad->result.stage_count > 0) {
        fputs("<h3>Stages of the first bad run</h3>\n", to);
        dp_html_stages(to, &bad->result);
    }
    fputs("</section>\n", to);
    return DFLASH_OK;
}

static void head(FILE *to, const dp_postmortem *summary) {
    const int bad = dp_postmortem_bad_cases(summary);
    fputs("<h1>Postmortem: ", to);
    if (bad == 0)
        fputs("every case passes in these runs", to);
    else
        dp_html_text(to, summary->item[0].name);
    if (bad > 1) fprintf(to, " and %d more", bad - 1);
    fputs("</h1>\n", to);
    if (bad > 0) about_case(to, summary, &summary->item[0], dp_postmortem_outcome, "lede");
    fputs("<nav aria-label=\"Contents\"><b>Contents</b>\n<ul>\n<li><a href=\"#runs\">Runs</a></li>\n", to);
    for (int i = 0; i < bad && i < DP_MOST_TOLD; i++) {
        fprintf(to, "<li><a href=\"#case-%d\">", i + 1);
        dp_html_text(to, summary->item[i].name);
        fputs("</a></li>\n", to);
    }
    if (bad > DP_MOST_TOLD) fputs("<li><a href=\"#also\">Other cases that do not pass</a></li>\n", to);
    fputs("<li><a href=\"#paste\">Text to paste</a></li>\n</ul></nav>\n", to);
}

dflash_status dp_postmortem_html(const dp_postmortem *summary, const char *keep, char **out, dflash_error *err) {
    const int bad = dp_postmortem_bad_cases(summary);
    char *markdown = NULL;
    dp_html_plots plots;
    size_t length = 0;
    *out = NULL;
    TRY(dp_postmortem_markdown(summary, &markdown, err));
    FILE *to = open_memstream(out, &length);
    if (to == NULL) {
        free(markdown);
        return df_fail_memory(err, "the page", 1 << 16);
    }
    dp_html_plots_begin(&plots, keep);
    dp_html_begin(to, "Postmortem - dflash-parity");
    head(to, summary);
    table_of_runs(to, summary);
    dflash_status status = drift(to, summary, &plots, err);
    for (int i = 0; status == DFLASH_OK && i < bad && i < DP_MOST_TOLD; i++)
        status = one_case(to, summary, &plots, i, err);
    if (bad > DP_MOST_TOLD) fputs("<h2 id=\"also\">Other cases that do not pass</h2>\n", to);
    for (int i = DP_MOST_TOLD; i < bad; i++) about_case(to, summary, &summary->item[i], dp_postmortem_outcome, "");
    dp_html_no_plots(to, &plots);
    fputs("<h2 id=\"paste\">Text to paste</h2>\n", to);
    dp_html_command(to, markdown);
    dp_html_end(to);
    dflash_error lost;
    const dflash_status kept = dp_html_plots_end(&plots, &lost);
    if (status == DFLASH_OK && kept != DFLASH_OK) {
        status = kept;
        *err = lost;
    }
    free(markdown);
    const bool failed = ferror(to) != 0;
    if ((fclose(to) != 0 || failed) && status == DFLASH_OK) status = df_fail_memory(err, "the page", length);
    if (status == DFLASH_OK) return DFLASH_OK;
    free(*out);
    *out = NULL;
    return status;
}
