/*
 * plot_heatmap.c - the data of the heat map: lines are tokens, columns are stages.
 *
 * Stages hold different rows: the context's, the block's, both, or the drafted ones. Each is put on the lines of the
 * tokens that it speaks of. A long context is folded, the largest error of the folded tokens standing for them; the
 * block's rows never are.
 */
#include "report/plot_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT_LINES = 64, MOST_MARKS = 400 };

/* Codes of a cell beside the logarithm of its error; heatmap.gp gives them colours and labels. */
#define NO_ERROR (-10.0)
#define NOT_FINITE 1.0

typedef struct layout {
    int context, block, fold, context_lines, lines;
} layout;

static layout layout_of(const dp_result *result) {
    layout l = {.context = result->context, .block = result->block};
    l.fold = l.context > CONTEXT_LINES ? (l.context + CONTEXT_LINES - 1) / CONTEXT_LINES : 1;
    l.context_lines = (l.context + l.fold - 1) / l.fold;
    l.lines = l.context_lines + l.block;
    return l;
}

static int line_of(const layout *l, int token) {
    return token < l->context ? token / l->fold : l->context_lines + token - l->context;
}

/* The token of a row of a stage with that many rows; -1 when its rows are no tokens (the frequency table). */
static int token_of(const layout *l, const char *name, int rows, int row) {
    if (strcmp(name, "rope.inv_freq") == 0 || rows < 1) return -1;
    if (strncmp(name, "kv.", 3) == 0) return l->context > 0 ? row % l->context : -1; /* [L, C, ...]: a row a layer */
    if (rows == l->context + l->block) return row;
    if (strncmp(name, "ctx.", 4) == 0) return rows == l->context ? row : -1;
    return rows <= l->block ? l->context + l->block - rows + row : -1; /* the drafted rows are the block's last */
}

static double cell(double error) {
    if (!isfinite(error)) return NOT_FINITE;
    return error == 0 ? NO_ERROR : fmin(fmax(log10(error), -9), 0);
}

/* The column of one stage: NAN where nothing was compared. */
static void column_of(const layout *l, const dp_stage_result *stage, const dp_stage_plot *plot, double *column) {
    const bool kv = strncmp(stage->name, "kv.", 3) == 0;
    const int total = (int)(kv ? plot->rows * plot->row_group : stage->dim[0]);
    for (int i = 0; i < l->lines; i++) column[i] = NAN;
    int row = 0;
    for (int entry = 0; entry < plot->rows; entry++) {
        for (int i = 0; i < plot->row_group && row < total; i++, row++) {
            const int token = token_of(l, stage->name, total, row);
            if (token < 0 || token >= l->context + l->block || plot->row[entry] < 0) continue;
            double *at = &column[line_of(l, token)];
            const double value = cell(plot->row[entry]);
            if (!(*at >= value)) *at = value;
        }
    }
}

static void write_lines(FILE *to, const layout *l) {
    fputs("# lines\n", to);
    for (int token = 0; token<l->context; token += l->context> 8 ? l->context / 4 : 4)
        fprintf(to, "%d \"context %d\"\n", line_of(l, token), token);
    /* Labels of the block are at least a sixteenth of the height apart. */
    const int apart = (l->lines + 15) / 16, step = l->block > 8 ? 4 : l->block > 4 ? 2 : 1;
    for (int row = 0; row<l->block; row += apart> step ? apart : step)
        fprintf(to, "%d \"block %d\"\n", line_of(l, l->context + row), row);
    fputs("\n\n", to);
}

bool dp_plot_write_heatmap(FILE *to, const dp_result *result, bool *failed) {
    const layout l = layout_of(result);
    const int count = result->stage_count, first = dp_plot_first(result);
    if (count < 2 || l.lines < 2) return false;
    double *cells = malloc((size_t)count * (size_t)l.lines * sizeof *cells);
    *failed = cells == NULL;
    if (cells == NULL) return false;
    int marks = 0;
    bool any = false;
    for (int x = 0; x < count; x++)
        column_of(&l, &result->stage[x], &result->plot.stage[x], cells + (size_t)x * (size_t)l.lines);
    write_lines(to, &l);
    fputs("# cells\n", to);
    for (int y = 0; y < l.lines; y++) {
        for (int x = 0; x < count; x++) {
            const double value = cells[(size_t)x * (size_t)l.lines + (size_t)y];
            any = any || !isnan(value);
            if (isnan(value))
                fprintf(to, "%d %d NaN\n", x, y);
            else
                fprintf(to, "%d %d %.3f\n", x, y, value);
        }
        fputc('\n', to);
    }
    fputc('\n', to);
    for (int x = 0; x < count; x++)
        for (int y = 0; y < l.lines; y++)
            if (cells[(size_t)x * (size_t)l.lines + (size_t)y] == NOT_FINITE && marks < MOST_MARKS) {
                dp_plot_block(to, "not-finite", &marks);
                fprintf(to, "%d %d\n", x, y);
            }
    dp_plot_block_end(to, marks);
    dp_plot_groups(to, result, -0.5, l.lines - 0.5, -0.5 - 0.035 * l.lines);
    if (first >= 0) fprintf(to, "# first\n%d -0.5\n%d %g\n\n\n", first, first, l.lines - 0.5);
    free(cells);
    return any;
}
