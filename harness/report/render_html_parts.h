/* render_html_parts.h - the parts of a page about a case, shared by render_html.c and the postmortem's page. */
#ifndef DP_RENDER_HTML_PARTS_H
#define DP_RENDER_HTML_PARTS_H

#include "report/plot_run.h"
#include "report/result_file.h"

#include <stdio.h>

/* Writes with `story` (one of summary.h) into a paragraph; nothing when the story has nothing to say. */
void dp_html_summary(FILE *to, const dp_result_case *item, void (*summary)(FILE *, const dp_result_case *),
                     const char *class);

/* The box that says which stage to look at. */
void dp_html_look(FILE *to, const dp_result_case *item);

/* Tables of every stage, layer by layer, folded unless a stage of theirs fails; of the growth, the rounds, the tokens.
 */
void dp_html_stages(FILE *to, const dp_result *result);
void dp_html_growth(FILE *to, const dp_result *result);
void dp_html_rounds(FILE *to, const dp_result *result);
void dp_html_tokens(FILE *to, const dp_result *result);

/* A cell with a ratio: two places where they say something, no exponent where one can do without. */
void dp_html_ratio(FILE *to, double value);

/* Names and values of an object, objects inside it as dotted names; a row a value. */
void dp_html_fields(FILE *to, const cJSON *object);

/* Plots of one page. `why` holds what the page says in their place when they cannot be drawn; it is empty otherwise.
 * A picture that is missing is no error; with `keep` a file that could not be written to that folder is one, and the
 * first of them is what dp_html_plots_end returns. */
typedef struct dp_html_plots {
    dp_plots plots;
    bool begun, keep;
    char why[1024];
    dflash_status status; /* of the kept files */
    dflash_error err;
} dp_html_plots;
void dp_html_plots_begin(dp_html_plots *p, const char *keep);
dflash_status dp_html_plots_end(dp_html_plots *p, dflash_error *err);

/* Draws every plot that a case has data for; `index` keeps the names of several cases apart. Returns how many. */
int dp_html_case_plots(FILE *to, dp_html_plots *p, const dp_result_case *item, int index);

/* Draws the data file (name) with (script) and writes it as a figure; what goes wrong is kept in `why`. */
bool dp_html_figure(FILE *to, dp_html_plots *p, const char *script, const char *name, const char *title,
                    const char *caption);

/* Error after each layer, one curve for each precision in which a checkpoint was run: a figure for each of the first
 * checkpoints that were run in several. Returns how many. */
int dp_html_ladders(FILE *to, dp_html_plots *p, const dp_result_file *file);

/* One line where the plots would be, when they could not be drawn. */
void dp_html_no_plots(FILE *to, const dp_html_plots *p);

#endif
