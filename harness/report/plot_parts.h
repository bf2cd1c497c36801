/* plot_parts.h - what the writers of plot data share; private to plot_files.c and plot_heatmap.c. */
#ifndef DP_PLOT_PARTS_H
#define DP_PLOT_PARTS_H

#include "check/run_check.h"

#include <stdio.h>

/* Where an error is drawn on a logarithmic axis: zero on the floor, everything else above it. */
double dp_plot_height(double error);

/* A label in double quotes; what gnuplot would not read as part of it becomes an underscore. */
void dp_plot_label(FILE *to, const char *text);

/* A block is named before its first row and ended when it has any: gnuplot counts an empty block as the next one. */
void dp_plot_block(FILE *to, const char *name, int *rows);
void dp_plot_block_end(FILE *to, int rows);

/* The blocks "borders" (upright lines from low to high between the layers) and "groups" (their names at height label).
 */
void dp_plot_groups(FILE *to, const dp_result *result, double low, double high, double label);

/* Position of the stage that diverged first; -1 when none did. */
int dp_plot_first(const dp_result *result);

/* False without data; *failed is set when memory did not suffice. */
bool dp_plot_write_heatmap(FILE *to, const dp_result *result, bool *failed);

#endif
