/*
 * result_view.h - short ways to read the JSON of a result file (reports/RESULT.md) that has been validated.
 *
 * They never fail: what is not there reads as nothing, which is what a page about an old or partial result should show.
 * Validation is the business of result_file.h.
 */
#ifndef DP_RESULT_VIEW_H
#define DP_RESULT_VIEW_H

#include <cjson/cJSON.h>
#include <stdbool.h>

/* The value at a key; NULL when there is none or it is null. */
const cJSON *dp_view(const cJSON *object, const char *key);

/* The number itself; "nan", "inf" and "-inf" are what they say, anything else is NaN. */
double dp_view_value(const cJSON *item);
double dp_view_number(const cJSON *object, const char *key);
long dp_view_count(const cJSON *object, const char *key); /* 0 when there is none */
bool dp_view_true(const cJSON *object, const char *key);
const char *dp_view_text(const cJSON *object, const char *key); /* "" when there is none */

/* The coordinates of an "at" array: "[3, 17]". */
enum { DP_VIEW_AT = 96 };
const char *dp_view_at(const cJSON *at, char text[DP_VIEW_AT]);

/* Of a case: the stage of that name; NULL when it was not compared. */
const cJSON *dp_view_stage(const cJSON *item, const char *name);

/* Of a stage. */
bool dp_view_diverged(const cJSON *stage);  /* outside its chained bar, or alone outside its bound */
long dp_view_nonfinite(const cJSON *stage); /* NaN and infinities of the chained run */
bool dp_view_isolated_failed(const cJSON *stage);

#endif
