/* render_html_plots.c - plots as figures of a page, with captions that say how to read them. */
#include "report/render_html_parts.h"

#include "report/buffered_text.h"
#include "report/html.h"
#include "report/plot_files.h"
#include "report/report.h"
#include "report/svg_inline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *title, *caption;
} figures[DP_PLOT_COUNT] = {
    {"Error of each stage, in the order of the forward pass",
     "From left to right the stages, upwards the error. Blue: the run's own values all the way (chained). Green "
     "triangles: what a stage adds when it is run alone on known inputs. Amber: the limit. Rings are outside it, "
     "crosses "
     "are NaN, infinite or not shown; the dashed line is the first divergence. Equal values stand on the lowest line, "
     "since zero has no logarithm."},
    {"Where the error lies: rows against stages",
     "A column is a stage, a line a row: a token of the context above, of the drafted block below. A fault of one row "
     "is "
     "a stripe, one of a layer a block, one that starts everywhere a wall. The colours mean the same errors in every "
     "report. Empty: the stage has no such row, or the oracle stores no value of it."},
    {"Got against reference", "Each point is an element of the stage. On the grey line both agree; a tilt is a wrong "
                              "scale, a shifted line a wrong offset, "
                              "scatter a lost precision, single points wrong elements."},
    {"Distance in units of the last place", "How many of the stage's elements are off by how much. A correct stage is "
                                            "a hill near 1; everything far to the right "
                                            "is wrong, and a second hill is a part of the elements that is. Each limit "
                                            "counts the errors up to its label and above that of the limit before."},
    {"Rotary frequencies: difference from the reference",
     "Points on the lowest line are equal, those near the amber line "
     "differ by a rounding. Far above it from some index on, "
     "the scaling rule differs; at every index but 0, theta."},
    {"Whether the error can change a token",
     "A point is a drafted row. Above the amber line the lead of its first choice is "
     "more than twice the error: the token "
     "cannot change. Below it the token can."},
};

/* A data file or a script is not there: for a page a plot that is missing, for a kept folder an error. */
static void not_written(dp_html_plots *p, dflash_status status, const dflash_error *err) {
    snprintf(p->why, sizeof p->why, "%.1000s", err->message);
    if (!p->keep || p->status != DFLASH_OK) return;
    p->status = status;
    p->err = *err;
}

void dp_html_plots_begin(dp_html_plots *p, const char *keep) {
    dflash_error err = {.message = ""};
    *p = (dp_html_plots){.keep = keep != NULL};
    const dflash_status status = dp_plots_begin(keep, &p->plots, &err);
    p->begun = status == DFLASH_OK;
    if (!p->begun) not_written(p, status, &err);
}

dflash_status dp_html_plots_end(dp_html_plots *p, dflash_error *err) {
    if (p->begun) dp_plots_end(&p->plots);
    p->begun = false;
    if (p->status != DFLASH_OK) *err = p->err;
    return p->status;
}

bool dp_html_figure(FILE *to, dp_html_plots *p, const char *script, const char *name, const char *title,
                    const char *caption) {
    dflash_error err = {.message = ""};
    char *svg = NULL;
    dp_buffered_text buffered_text = {.to = NULL};
    if (!p->begun) return false;
    dflash_status status = dp_plots_keep_script(&p->plots, script, &err);
    if (status != DFLASH_OK) {
        not_written(p, status, &err);
        return false;
    }
    status = dp_plots_draw(&p->plots, script, name, title, &svg, &err);
    /* Buffered first, so that a picture that is refused half-way leaves nothing on the page. */
    const bool begun = status == DFLASH_OK && dp_buffered_text_begin(&buffered_text);
    if (begun) status = dp_svg_inline(buffered_text.to, svg, name, title, &err);
    const bool written = begun && dp_buffered_text_end(&buffered_text) && status == DFLASH_OK;
    if (written) {
        fprintf(to, "<figure><div class=\"wide\">%s</div>\n<figcaption>", buffered_text.text);
        dp_html_marked(to, caption);
        fputs("</figcaption></figure>\n", to);
    } else if (p->why[0] == '\0') {
        snprintf(p->why, sizeof p->why, "%.1000s",
                 err.message[0] != '\0' ? err.message : "Memory did not suffice for a plot.");
    }
    free(buffered_text.text);
    free(svg);
    return written;
}

/* What a plot is about: the stage, or all of the case. */
static const char *about(const dp_result_case *item, dp_plot plot) {
    const dp_margins *margins = dp_plot_margins(&item->result);
    if (plot == DP_PLOT_SCATTER || plot == DP_PLOT_ULP) return dp_plot_focus(&item->result);
    return plot == DP_PLOT_MARGINS && margins != NULL ? margins->stage : item->name;
}

int dp_html_case_plots(FILE *to, dp_html_plots *p, const dp_result_case *item, int index) {
    int drawn = 0;
    for (int i = 0; i < DP_PLOT_COUNT && p->begun; i++) {
        dflash_error err = {.message = ""};
        char name[64], title[256];
        bool any = false;
        snprintf(name, sizeof name, "case%d-%s", index, dp_plot_script((dp_plot)i));
        const dflash_status status = dp_plot_write(&p->plots, (dp_plot)i, &item->result, name, &any, &err);
        if (status != DFLASH_OK) {
            not_written(p, status, &err);
            continue;
        }
        if (!any) continue;
        snprintf(title, sizeof title, "%s: %s", figures[i].title, about(item, (dp_plot)i));
        drawn += dp_html_figure(to, p, dp_plot_script((dp_plot)i), name, title, figures[i].caption);
    }
    return drawn;
}

/* ---- Precisions ---- */

enum { MOST_LADDERS = 3, MOST_MODES = 8, MOST_STEPS = 64 };

typedef struct ladder {
    dp_plot_curve curve[MOST_MODES];
    const char *label[MOST_MODES][MOST_STEPS];
    int x[MOST_MODES][MOST_STEPS];
    double value[MOST_MODES][MOST_STEPS];
    int count;
} ladder;

/* What the layers hand on: the features, every layer's output, the final rows. */
static bool is_step(const char *name) {
    const size_t length = strlen(name);
    return strcmp(name, "ctx.features") == 0 || strcmp(name, "final") == 0 ||
           (strncmp(name, "layers.", 7) == 0 && strchr(name + 7, '.') == name + length - 4 &&
            strcmp(name + length - 4, ".out") == 0);
}

static void add_mode(ladder *l, const dp_result_case *item) {
    const char *mode = dflash_precision_name(item->options.precision);
    int steps = 0;
    for (int i = 0; i < l->count; i++)
        if (strcmp(l->curve[i].label, mode) == 0) return;
    if (l->count == MOST_MODES) return;
    const int at = l->count;
    for (int i = 0; i < item->result.stage_count && steps < MOST_STEPS; i++) {
        const dp_stage_result *stage = &item->result.stage[i];
        if (!is_step(stage->name)) continue;
        l->label[at][steps] = stage->name;
        l->x[at][steps] = steps;
        l->value[at][steps] = dp_shown(&stage->difference, stage->difference.l2_rel);
        steps++;
    }
    l->curve[at] =
        (dp_plot_curve){.label = mode, .count = steps, .point = l->label[at], .x = l->x[at], .value = l->value[at]};
    l->count += steps > 0;
}

int dp_html_ladders(FILE *to, dp_html_plots *p, const dp_result_file *file) {
    int drawn = 0;
    for (int first = 0; first < file->count; first++) {
        const char *path = file->item[first].options.checkpoint;
        dflash_status status = DFLASH_OK;
        dflash_error err = {.message = ""};
        char name[32], title[256];
        bool seen = path[0] == '\0';
        for (int i = 0; i < first && !seen; i++) seen = strcmp(file->item[i].options.checkpoint, path) == 0;
        if (seen || drawn == MOST_LADDERS || !p->begun) continue;
        ladder *l = calloc(1, sizeof *l);
        for (int i = first; l != NULL && i < file->count; i++)
            if (strcmp(file->item[i].options.checkpoint, path) == 0) add_mode(l, &file->item[i]);
        snprintf(name, sizeof name, "ladder%d", drawn);
        snprintf(title, sizeof title, "Error after each layer, by precision: %.200s", file->item[first].name);
        if (l == NULL)
            snprintf(p->why, sizeof p->why, "Memory did not suffice for a plot.");
        else if (l->count > 1)
            status = dp_plot_write_curves(&p->plots, name, l->curve, l->count, false, &err);
        if (status != DFLASH_OK)
            not_written(p, status, &err);
        else if (l != NULL && l->count > 1)
            drawn += dp_html_figure(to, p, "ladder", name, title,
                                    "Each curve is the run in one precision against the float64 reference of the same "
                                    "weights as that precision holds them: the distance is that of the arithmetic.");
        free(l);
    }
    return drawn;
}

void dp_html_no_plots(FILE *to, const dp_html_plots *p) {
    if (p->why[0] == '\0') return;
    fputs("<p class=\"soft\">Plots are missing. ", to);
    dp_html_text(to, p->why);
    fputs("</p>\n", to);
}
