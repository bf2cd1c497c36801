/* json_number.c - see json_number.h. */
#include "base/json_number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

cJSON *dp_json_number(double value) {
    if (isfinite(value)) return cJSON_CreateNumber(value);
    return cJSON_CreateString(isnan(value) ? "nan" : value > 0.0 ? "inf" : "-inf");
}

void dp_json_add_number(cJSON *object, const char *key, double value) {
    cJSON_AddItemToObject(object, key, dp_json_number(value));
}

double dp_plot_digits(double value) {
    char text[32];
    if (!isfinite(value)) return value;
    snprintf(text, sizeof text, "%.4e", value);
    return strtod(text, NULL);
}

bool dp_json_read_number(const cJSON *item, double *out) {
    if (cJSON_IsNumber(item)) {
        *out = item->valuedouble;
        return isfinite(*out); /* 1e999 is not how an infinity is written */
    }
    if (!cJSON_IsString(item)) return false;
    if (strcmp(item->valuestring, "nan") == 0)
        *out = NAN;
    else if (strcmp(item->valuestring, "inf") == 0)
        *out = INFINITY;
    else if (strcmp(item->valuestring, "-inf") == 0)
        *out = -INFINITY;
    else
        return false;
    return true;
}
