/* history_read.c - the lines of a history file. */
#include "history/history.h"

#include "common/error.h"
#include "base/json_number.h"
#include "base/json_text.h"
#include "base/text_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const size_t MOST_BYTES = (size_t)256 << 20;

static const char *text_of(const cJSON *object, const char *key) {
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
}

/* NaN for null, which is no value. */
static bool share_of(const cJSON *object, const char *key, double *out) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    *out = NAN;
    return cJSON_IsNull(item) || dp_json_read_number(item, out);
}

static bool case_fits(const cJSON *item) {
    double used, final;
    const char *series = text_of(item, "series");
    return text_of(item, "case") != NULL && text_of(item, "verdict") != NULL && series != NULL &&
           strlen(series) == DP_SERIES_TEXT - 1 && share_of(item, "used", &used) && share_of(item, "final", &final);
}

static bool line_fits(const cJSON *line) {
    const cJSON *version = cJSON_GetObjectItemCaseSensitive(line, "history"), *item,
                *cases = cJSON_GetObjectItemCaseSensitive(line, "cases");
    if (!cJSON_IsNumber(version) || version->valuedouble != DP_HISTORY_VERSION || !cJSON_IsArray(cases)) return false;
    if (text_of(line, "when") == NULL || text_of(line, "commit") == NULL || text_of(line, "verdict") == NULL)
        return false;
    cJSON_ArrayForEach(item, cases) if (!case_fits(item)) return false;
    return true;
}

/* Room for one more; NULL when out of memory. */
static dp_history_entry *append(dp_history *history) {
    if (history->count == history->capacity) {
        const int capacity = history->capacity > 0 ? 2 * history->capacity : 64;
        dp_history_entry *grown = realloc(history->entry, (size_t)capacity * sizeof *grown);
        if (grown == NULL) return NULL;
        history->entry = grown;
        history->capacity = capacity;
    }
    history->entry[history->count] = (dp_history_entry){.used = NAN};
    return &history->entry[history->count++];
}

static bool add_case(const cJSON *line, const cJSON *item, int number, dp_history *out) {
    dp_history_entry *entry = append(out);
    const char *stage = text_of(item, "stage");
    if (entry == NULL) return false;
    entry->when = strdup(text_of(line, "when"));
    entry->commit = strdup(text_of(line, "commit"));
    entry->dirty = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(line, "dirty"));
    entry->name = strdup(text_of(item, "case"));
    entry->verdict = strdup(text_of(item, "verdict"));
    entry->stage = strdup(stage != NULL ? stage : "");
    memcpy(entry->series, text_of(item, "series"), DP_SERIES_TEXT);
    share_of(item, "used", &entry->used);
    share_of(item, "final", &entry->final);
    entry->line = number;
    return entry->when != NULL && entry->commit != NULL && entry->name != NULL && entry->verdict != NULL &&
           entry->stage != NULL;
}

/* One line, terminated. False: out of memory. */
static bool add_line(const char *text, int number, dp_history *out) {
    cJSON *line = cJSON_ParseWithOpts(text, NULL, true);
    const cJSON *item;
    bool good = true;
    if (line == NULL || !line_fits(line)) {
        int *grown = realloc(out->torn, (size_t)(out->torn_count + 1) * sizeof *grown);
        if (grown != NULL) out->torn = grown;
        if (grown != NULL) out->torn[out->torn_count++] = number;
        good = grown != NULL;
    } else if (dp_json_make_printable(line, NULL) != DFLASH_OK) {
        good = false;
    } else {
        out->lines++;
        cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(line, "cases")) good =
            good && add_case(line, item, number, out);
    }
    cJSON_Delete(line);
    return good;
}

dflash_status dp_history_read(const char *path, dp_history *out, dflash_error *err) {
    char *text = NULL;
    bool good = true;
    int number = 0;
    *out = (dp_history){.entry = NULL};
    TRY(dp_text_file_read(path, MOST_BYTES, &text, err));
    for (char *line = text; good && *line != '\0';) {
        char *end = strchr(line, '\n');
        char *next = end != NULL ? end + 1 : line + strlen(line);
        if (end != NULL) *end = '\0';
        number++;
        good = add_line(line, number, out);
        line = next;
    }
    free(text);
    return good ? DFLASH_OK : df_fail_memory(err, path, 0);
}

void dp_history_release(dp_history *history) {
    for (int i = 0; i < history->count; i++) {
        dp_history_entry *e = &history->entry[i];
        free(e->when);
        free(e->commit);
        free(e->name);
        free(e->verdict);
        free(e->stage);
    }
    free(history->entry);
    free(history->torn);
    *history = (dp_history){.entry = NULL};
}
