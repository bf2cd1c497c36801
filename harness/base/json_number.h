/*
 * json_number.h - numbers in result files: JSON has neither NaN nor infinity, so those are the strings "nan", "inf" and
 * "-inf" (reports/RESULT.md).
 */
#ifndef DP_JSON_NUMBER_H
#define DP_JSON_NUMBER_H

#include <cjson/cJSON.h>
#include <stdbool.h>

/* A new item; NULL when out of memory. */
cJSON *dp_json_number(double value);

/* Adds it to an object. */
void dp_json_add_number(cJSON *object, const char *key, double value);

/* The value rounded to five significant digits, which is what a picture can show. */
double dp_plot_digits(double value);

/* Reads either form. False: the item is no number of ours. */
bool dp_json_read_number(const cJSON *item, double *out);

#endif
