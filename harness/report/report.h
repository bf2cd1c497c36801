/*
 * report.h - a result in words, and the result file (reports/RESULT.md).
 */
#ifndef DP_REPORT_H
#define DP_REPORT_H

#include "check/run_check.h"

#include <cjson/cJSON.h>
#include <stdio.h>

enum { DP_RESULT_VERSION = 2 };
#define DP_RESULT_SCHEMA "dflash-parity-result"

/* The table of one check: a line a stage, a line a variant, the verdict. With `failures_only` passing lines are left
 * out.
 */
void dp_report_text(FILE *to, const dp_result *result, bool failures_only);

/* A measure of all values of a stage: NaN where some are not finite, since one of the others alone would read as the
 * stage's. */
double dp_shown(const dp_difference *difference, double measure);

/* Every measure of every stage, in lines that are as wide as it takes. */
void dp_report_full(FILE *to, const dp_result *result);

/* Where the limits of a check come from: for each stage the numbers that its limit and its bound were made of. */
void dp_report_explain(FILE *to, const dp_result *result);

/* The line that ends a table: the verdict and what it rests on; a second one with where to look, if there is more. */
void dp_report_verdict(FILE *to, const dp_result *result);

/*
 * The document of one run, in three steps: begun before the first case (its `when` is that moment), each case added in
 * order, ended with the verdict. NULL when out of memory; the other two take a NULL document and do nothing. The caller
 * deletes it. `tool` is "check" or "gate", `command` reproduces the run, `filter` may be NULL.
 */
cJSON *dp_document_begin(const char *tool, const char *command, const char *filter);
void dp_document_add(cJSON *document, const char *name, const dp_result *result);
void dp_document_end(cJSON *document, dp_verdict verdict);

/* One case as JSON (report_case.c), and its parts (report_stage.c, report_plots.c). NULL when out of memory. */
cJSON *dp_case_json(const char *name, const dp_result *result);
cJSON *dp_stage_json(const dp_stage_result *stage, const dp_stage_plot *plot); /* plot may be NULL */
cJSON *dp_variant_json(const dp_variant_result *variant);
cJSON *dp_plots_json(const dp_plot_data *data);

/* Writes JSON to `path`, whole or not at all. */
dflash_status dp_write_json(const char *path, const cJSON *json, dflash_error *err);

#endif
