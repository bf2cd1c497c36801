/*
 * postmortem_changes.c - what differs between two runs of a case: facts of the environment, of the checkpoint, of the
 * oracle and of how it ran, compared by their dotted names in both directions.
 */
#include "postmortem.h"

#include "error.h"
#include "result_view.h"

#include <stdlib.h>
#include <string.h>

typedef struct list {
    dp_change *change;
    int count;
    df_error *err;
} list;

void dp_changes_release(dp_change *change, int count) {
    for (int i = 0; i < count; i++) {
        free(change[i].name);
        free(change[i].before);
        free(change[i].after);
    }
    free(change);
}

/* The value as text that the caller frees; NULL when out of memory. */
static char *text_of(const cJSON *value) {
    if (value == NULL || cJSON_IsNull(value)) return strdup("-");
    return cJSON_IsString(value) ? strdup(value->valuestring) : cJSON_PrintUnformatted(value);
}

static df_status add(list *to, const char *name, const cJSON *before, const cJSON *after) {
    dp_change *grown = realloc(to->change, (size_t)(to->count + 1) * sizeof *grown);
    if (grown == NULL) return df_fail_memory(to->err, "the list of changes", sizeof *grown);
    to->change = grown;
    dp_change *change = &grown[to->count++];
    *change = (dp_change){.name = strdup(name), .before = text_of(before), .after = text_of(after)};
    if (change->name != NULL && change->before != NULL && change->after != NULL) return DF_OK;
    return df_fail_memory(to->err, "a change", strlen(name));
}

static df_status compare(list *to, const char *name, const cJSON *before, const cJSON *after) {
    const bool objects = cJSON_IsObject(before) || cJSON_IsObject(after);
    if (!objects) return cJSON_Compare(before, after, true) ? DF_OK : add(to, name, before, after);
    char inner[256];
    const cJSON *child;
    if (cJSON_IsObject(before)) cJSON_ArrayForEach(child, before) {
            snprintf(inner, sizeof inner, "%s.%s", name, child->string);
            TRY(compare(to, inner, child, cJSON_GetObjectItemCaseSensitive(after, child->string)));
        }
    if (cJSON_IsObject(after)) cJSON_ArrayForEach(child, after) {
            if (cJSON_IsObject(before) && cJSON_GetObjectItemCaseSensitive(before, child->string) != NULL) continue;
            snprintf(inner, sizeof inner, "%s.%s", name, child->string);
            TRY(compare(to, inner, NULL, child));
        }
    return DF_OK;
}

/* Two absent facts are equal; cJSON_Compare calls NULL unequal to itself. */
static df_status compare_key(list *to, const char *name, const cJSON *before, const cJSON *after, const char *key) {
    const cJSON *a = dp_view(before, key), *b = dp_view(after, key);
    return a == NULL && b == NULL ? DF_OK : compare(to, name, a, b);
}

df_status dp_postmortem_changes(const dp_postmortem *story, const dp_past_case *item, int before, int after,
                                dp_change **out, int *count, df_error *err) {
    static const char *const of_case[] = {"checkpoint", "oracle", "family", "precision",
                                          "backend",    "class",  "isa",    "threads"};
    list found = {.err = err};
    df_status status =
        compare_key(&found, "environment", story->run[before].document, story->run[after].document, "environment");
    for (size_t i = 0; status == DF_OK && i < sizeof of_case / sizeof *of_case; i++)
        status = compare_key(&found, of_case[i], item->in_run[before], item->in_run[after], of_case[i]);
    if (status != DF_OK) {
        dp_changes_release(found.change, found.count);
        found = (list){.change = NULL};
    }
    *out = found.change;
    *count = found.count;
    return status;
}
