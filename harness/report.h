/*
 * report.h - a result in words and in JSON.
 */
#ifndef DP_REPORT_H
#define DP_REPORT_H

#include "run_check.h"

#include <cjson/cJSON.h>
#include <stdio.h>

enum { DP_RESULT_VERSION = 1 };

/* The table of one check: a line a stage, a line an arm, the verdict. With `failures_only` passing lines are left out.
 */
void dp_report_text(FILE *to, const dp_result *result, bool failures_only);

/* Whether a stage fails: chained, alone, or both. */
bool dp_stage_failed(const dp_stage_result *stage);

/* Every measure of every stage, in lines that are as wide as it takes. */
void dp_report_full(FILE *to, const dp_result *result);

/* Where the bars of a check come from: for each stage the numbers that its bar and its bound were made of. */
void dp_report_explain(FILE *to, const dp_result *result);

/* One line that ends a table: the verdict and what it rests on. */
void dp_report_verdict(FILE *to, const dp_result *result);

/* The result object; the caller deletes it. NULL when out of memory. `command` reproduces the run. */
cJSON *dp_report_json(const dp_result *result, const char *command);

/* Writes JSON to `path`, whole or not at all. */
df_status dp_write_json(const char *path, const cJSON *json, df_error *err);

#endif
