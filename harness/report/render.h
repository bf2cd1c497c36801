/*
 * render.h - a result file for its readers: people at a terminal, a job summary, a test dashboard, a pull request.
 *
 * Every renderer reads only the result file (reports/RESULT.md), so a live run and an old file are shown alike. What a
 * renderer writes is complete in itself; the page with pictures is render_html.h's.
 */
#ifndef DP_RENDER_H
#define DP_RENDER_H

#include "report/result_file.h"

#include <stdio.h>

typedef enum dp_report_format {
    DP_REPORT_TEXT = 0,
    DP_REPORT_MARKDOWN,
    DP_REPORT_JUNIT,
    DP_REPORT_GITHUB,
    DP_REPORT_HTML
} dp_report_format;

/* The format that `length` bytes of `name` spell. False: there is none. */
bool dp_report_format_parse(const char *name, size_t length, dp_report_format *out);

/* Renders into a string that the caller frees. `keep`: a folder for the plots of a page and what they are drawn from;
 * NULL: none. Codes: "memory" and those of the format. */
dflash_status dp_render(const dp_result_file *file, dp_report_format format, const char *keep, char **out,
                        dflash_error *err);

/* One case of a gate: its line, what failed in it, why it was refused. */
void dp_render_case(FILE *to, const char *name, const dp_result *result);

/* The renderers; what they write to is memory. */
void dp_render_text(FILE *to, const dp_result_file *file);
void dp_render_markdown(FILE *to, const dp_result_file *file);
void dp_render_junit(FILE *to, const dp_result_file *file);
void dp_render_github(FILE *to, const dp_result_file *file);

/* Most bytes of the Markdown, under the 64 KiB that a comment may have. */
enum { DP_MARKDOWN_MOST = 60000 };

#endif
