/*
 * render_html.h - a result file as one self-contained page: what failed and where to look, plots, tables, provenance.
 */
#ifndef DP_RENDER_HTML_H
#define DP_RENDER_HTML_H

#include "report/result_file.h"

typedef struct dp_html_options {
    const char *keep; /* folder for plot data, their scripts and pictures; NULL: nothing is left but the page */
} dp_html_options;

/* Writes the page of a result file (reports/RESULT.md) into *page, which the caller frees. Missing plots are told on
 * the page and change nothing else. Codes: "memory"; with `keep` those of dp_plots_begin, dp_plot_write and
 * dp_plots_keep_script. */
dflash_status dp_render_html(const dp_result_file *file, const dp_html_options *options, char **page,
                             dflash_error *err);

#endif
