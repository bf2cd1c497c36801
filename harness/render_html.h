/*
 * render_html.h - a result file as one self-contained page: what failed and where to look, plots, tables, provenance.
 */
#ifndef DP_RENDER_HTML_H
#define DP_RENDER_HTML_H

#include "result_file.h"

typedef struct dp_html_options {
    const char *keep; /* folder for plot data and pictures; NULL: they are removed once they are in the page */
} dp_html_options;

/* Writes the page of a result file (reports/RESULT.md) into *page, which the caller frees. Missing plots are told on
 * the page and change nothing else. Codes: "memory", those of plot data. */
df_status dp_render_html(const dp_result_file *file, const dp_html_options *options, char **page, df_error *err);

#endif
