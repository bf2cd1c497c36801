/* result_view.c - see result_view.h. */
#include "result_view.h"

#include "json_number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const cJSON *dp_view(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return item == NULL || cJSON_IsNull(item) ? NULL : item;
}

double dp_view_value(const cJSON *item) {
    double value;
    return dp_json_read_number(item, &value) ? value : NAN;
}

double dp_view_number(const cJSON *object, const char *key) { return dp_view_value(dp_view(object, key)); }

long dp_view_count(const cJSON *object, const char *key) {
    const cJSON *item = dp_view(object, key);
    return cJSON_IsNumber(item) ? (long)item->valuedouble : 0;
}

bool dp_view_true(const cJSON *object, const char *key) { return cJSON_IsTrue(dp_view(object, key)); }

const char *dp_view_text(const cJSON *object, const char *key) {
    const cJSON *item = dp_view(object, key);
    return cJSON_IsString(item) ? item->valuestring : "";
}

const char *dp_view_at(const cJSON *at, char text[DP_VIEW_AT]) {
    size_t used = (size_t)snprintf(text, DP_VIEW_AT, "[");
    const cJSON *item;
    cJSON_ArrayForEach(item, at) {
        used += (size_t)snprintf(text + used, DP_VIEW_AT - used, "%s%.0f", item == at->child ? "" : ", ",
                                 dp_view_value(item));
        if (used >= DP_VIEW_AT - 24) break;
    }
    snprintf(text + used, DP_VIEW_AT - used, "]");
    return text;
}

const cJSON *dp_view_stage(const cJSON *item, const char *name) {
    const cJSON *stage;
    cJSON_ArrayForEach(stage, dp_view(item, "stages")) if (strcmp(dp_view_text(stage, "name"), name) == 0) return stage;
    return NULL;
}

bool dp_view_isolated_failed(const cJSON *stage) {
    const cJSON *isolated = dp_view(stage, "isolated");
    return isolated != NULL && !dp_view_true(isolated, "pass");
}

bool dp_view_diverged(const cJSON *stage) { return !dp_view_true(stage, "pass") || dp_view_isolated_failed(stage); }

long dp_view_nonfinite(const cJSON *stage) {
    const cJSON *chained = dp_view(stage, "chained");
    return dp_view_count(chained, "nan") + dp_view_count(chained, "inf");
}
