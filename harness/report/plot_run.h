/*
 * plot_run.h - runs gnuplot over the scripts of reports/.
 *
 * Plots are an extra of a report: where gnuplot is not installed the report says so and goes without. What goes wrong
 * here is therefore an error with a message for the page, never a verdict.
 */
#ifndef DP_PLOT_RUN_H
#define DP_PLOT_RUN_H

#include "dflash.h"
#include "base/progress.h"

enum { DP_PLOT_PATH = 4096 };

/* A folder for data and pictures, and the folder of the scripts. */
typedef struct dp_plots {
    char folder[DP_PLOT_PATH - 256], scripts[DP_PLOT_PATH - 256];
    bool temporary; /* the folder is ours, and goes away with dp_plots_end */
    dp_progress progress;
    int drawn;
} dp_plots;

/* With `keep` data, scripts and pictures go to that folder, which is made when it is missing, and stay there; otherwise
 * data and pictures go to a temporary one. The scripts are looked for in reports/ beside the program's build folder and
 * below the current one. Codes: "plot.scripts", "plot.folder", "scratch.folder". */
dflash_status dp_plots_begin(const char *keep, dp_plots *out, dflash_error *err);

/* Removes a temporary folder with what is in it. */
void dp_plots_end(dp_plots *plots);

/* Puts a script into a kept folder, beside the data that it draws; does nothing with a temporary one. Codes:
 * those of text_file.h. */
dflash_status dp_plots_keep_script(const dp_plots *plots, const char *script, dflash_error *err);

/* Draws (folder)/(name).dat with (scripts)/(script).gp into (folder)/(name).svg and reads the picture, which the caller
 * frees. Codes: "plot.gnuplot.missing", "plot.gnuplot" (it failed; with its first words), those of text_file.h. */
dflash_status dp_plots_draw(dp_plots *plots, const char *script, const char *name, const char *title, char **svg,
                            dflash_error *err);

#endif
