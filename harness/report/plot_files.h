/*
 * plot_files.h - the data that the gnuplot scripts of reports/ draw, taken from the result of a case.
 *
 * A file is a few blocks of columns, each named by the comment before it; the scripts say which. A zero becomes the
 * labelled floor, and what is not finite leaves its curve and becomes a series of its own.
 */
#ifndef DP_PLOT_FILES_H
#define DP_PLOT_FILES_H

#include "report/plot_run.h"
#include "check/run_check.h"

/* Where a zero and a value that is not finite are drawn on a logarithmic axis of errors; the scripts label both. */
#define DP_PLOT_FLOOR 1e-12
#define DP_PLOT_CEILING 1e1
/* The same for shares of a limit. */
#define DP_PLOT_SHARE_FLOOR 1e-4
#define DP_PLOT_SHARE_CEILING 1e3

typedef enum dp_plot {
    DP_PLOT_STAGES,
    DP_PLOT_HEATMAP,
    DP_PLOT_SCATTER,
    DP_PLOT_ULP,
    DP_PLOT_ROPE,
    DP_PLOT_MARGINS,
    DP_PLOT_COUNT
} dp_plot;

const char *dp_plot_script(dp_plot plot); /* "stages": the script and the stem of the file */

/* Writes (folder)/(name).dat for a case. *any tells whether the case holds something to draw; without it no file is
 * written. Codes: "plot.data". */
dflash_status dp_plot_write(const dp_plots *plots, dp_plot plot, const dp_result *result, const char *name, bool *any,
                            dflash_error *err);

/* The stage that scatter and ulp show: the one that diverged first, or else the one with the least headroom; "". */
const char *dp_plot_focus(const dp_result *result);

/* What the margins are of: the stage that picks the tokens; NULL when there is none. */
const dp_margins *dp_plot_margins(const dp_result *result);

/* One curve of several runs: a label, and for each point its own label and value. */
typedef struct dp_plot_curve {
    const char *label;
    int count;
    const char *const *point; /* [count] */
    const int *x;             /* [count] positions on the common axis */
    const double *value;      /* [count] */
} dp_plot_curve;

/* Writes (folder)/(name).dat for ladder.gp (errors) or drift.gp (shares of the limit). */
dflash_status dp_plot_write_curves(const dp_plots *plots, const char *name, const dp_plot_curve *curve, int count,
                                   bool shares, dflash_error *err);

#endif
