/* json_text.c - see json_text.h. */
#include "base/json_text.h"

#include "common/error.h"
#include "common/printable.h"
#include "base/shortest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Numbers ---- */

/* Whole numbers below this are printed whole by cJSON already. */
static const double PLAIN_WHOLE = 1e9;

/* Turns the numbers of a document into their shortest texts, which cJSON then prints as they stand. */
static bool spell_numbers(cJSON *json) {
    for (cJSON *item = json; item != NULL; item = item->next) {
        if (item->child != NULL && !spell_numbers(item->child)) return false;
        const double value = item->valuedouble;
        const bool whole = value == trunc(value) && fabs(value) < PLAIN_WHOLE && !(value == 0.0 && signbit(value));
        if (!cJSON_IsNumber(item) || whole || !isfinite(value)) continue;
        char *text = cJSON_malloc(DP_SHORTEST_TEXT);
        if (text == NULL) return false;
        item->valuestring = (char *)(uintptr_t)dp_shortest(value, text, DP_SHORTEST_TEXT);
        item->type = cJSON_Raw;
    }
    return true;
}

char *dp_json_print(const cJSON *json, bool indented) {
    char *text = NULL;
    cJSON *copy = cJSON_Duplicate(json, true);
    if (copy != NULL && spell_numbers(copy)) text = indented ? cJSON_Print(copy) : cJSON_PrintUnformatted(copy);
    cJSON_Delete(copy);
    return text;
}

/* ---- Strings ---- */

static bool plain(const char *text) { return text == NULL || df_printable(text, NULL, 0) == strlen(text); }

bool dp_json_is_printable(const cJSON *json) {
    for (const cJSON *item = json; item != NULL; item = item->next)
        if (!plain(item->string) || !plain(item->valuestring) || !dp_json_is_printable(item->child)) return false;
    return true;
}

static dflash_status make_plain(char **text, dflash_error *err) {
    if (plain(*text)) return DFLASH_OK;
    const size_t size = df_printable(*text, NULL, 0) + 1;
    char *shown = cJSON_malloc(size);
    if (shown == NULL) return df_fail_memory(err, "a string of a document", size);
    df_printable(*text, shown, size);
    cJSON_free(*text);
    *text = shown;
    return DFLASH_OK;
}

dflash_status dp_json_make_printable(cJSON *json, dflash_error *err) {
    for (cJSON *item = json; item != NULL; item = item->next) {
        TRY(make_plain(&item->string, err));
        TRY(make_plain(&item->valuestring, err));
        TRY(dp_json_make_printable(item->child, err));
    }
    return DFLASH_OK;
}
