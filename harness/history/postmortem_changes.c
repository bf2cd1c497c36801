/*
 * postmortem_changes.c - what differs between two runs of a case: facts of the environment, of the checkpoint, of the
 * oracle and of how it ran, compared by their dotted names in both directions.
 *
 * A fact that a run does not have on record is neither equal nor different: where one run has it, that is a row of its
 * own, and where neither has, its name is listed.
 */
#include "history/postmortem.h"

#include "common/error.h"

#include <stdlib.h>
#include <string.h>

typedef struct list {
    dp_changes *to;
    FILE *missing;
    bool any_missing;
    dflash_error *err;
} list;

void dp_changes_release(dp_changes *changes) {
    for (int i = 0; i < changes->count; i++) {
        free(changes->change[i].name);
        free(changes->change[i].before);
        free(changes->change[i].after);
    }
    free(changes->change);
    free(changes->missing);
    *changes = (dp_changes){.change = NULL};
}

/* A null of the environment and of the device says that there was none; elsewhere it says that it is not known. */
static bool known(const cJSON *value, bool null_is_none) {
    if (value == NULL || (cJSON_IsNull(value) && !null_is_none)) return false;
    return !cJSON_IsString(value) ||
           (value->valuestring[0] != '\0' && strcmp(value->valuestring, DP_NOT_ON_RECORD) != 0);
}

/* The value as text that the caller frees; NULL when out of memory. */
static char *text_of(const cJSON *value, bool is_known, bool other_is_known) {
    if (!is_known) return strdup(DP_NOT_ON_RECORD);
    if (cJSON_IsNull(value)) return strdup("none");
    if (cJSON_IsObject(value) && !other_is_known) return strdup("on record");
    return cJSON_IsString(value) ? strdup(value->valuestring) : cJSON_PrintUnformatted(value);
}

static dflash_status add(list *l, const char *name, const cJSON *before, const cJSON *after, bool null_is_none) {
    const bool has_before = known(before, null_is_none), has_after = known(after, null_is_none);
    dp_change *grown = realloc(l->to->change, (size_t)(l->to->count + 1) * sizeof *grown);
    if (grown == NULL) return df_fail_memory(l->err, "the list of changes", sizeof *grown);
    l->to->change = grown;
    dp_change *change = &grown[l->to->count++];
    *change = (dp_change){.name = strdup(name),
                          .before = text_of(before, has_before, has_after),
                          .after = text_of(after, has_after, has_before)};
    if (change->name != NULL && change->before != NULL && change->after != NULL) return DFLASH_OK;
    return df_fail_memory(l->err, "a change", strlen(name));
}

static dflash_status compare_objects(list *l, const char *name, const cJSON *before, const cJSON *after,
                                     bool null_is_none);

static dflash_status compare(list *l, const char *name, const cJSON *before, const cJSON *after, bool null_is_none) {
    const bool has_before = known(before, null_is_none), has_after = known(after, null_is_none);
    if (!has_before && !has_after) return DFLASH_OK;
    if (cJSON_IsObject(before) && cJSON_IsObject(after)) return compare_objects(l, name, before, after, null_is_none);
    if (has_before && has_after && cJSON_Compare(before, after, true)) return DFLASH_OK;
    return add(l, name, before, after, null_is_none);
}

static dflash_status compare_objects(list *l, const char *name, const cJSON *before, const cJSON *after,
                                     bool null_is_none) {
    char inner[256];
    const cJSON *child;
    cJSON_ArrayForEach(child, before) {
        snprintf(inner, sizeof inner, "%s.%s", name, child->string);
        TRY(compare(l, inner, child, cJSON_GetObjectItemCaseSensitive(after, child->string), null_is_none));
    }
    cJSON_ArrayForEach(child, after) {
        if (cJSON_GetObjectItemCaseSensitive(before, child->string) != NULL) continue;
        snprintf(inner, sizeof inner, "%s.%s", name, child->string);
        TRY(compare(l, inner, NULL, child, null_is_none));
    }
    return DFLASH_OK;
}

/* Lists what neither run has of the facts that every run is asked for. */
static void list_missing(list *l, const char *group, const cJSON *before, const cJSON *after,
                         const char *const *demanded, bool null_is_none) {
    for (; *demanded != NULL; demanded++) {
        if (known(cJSON_GetObjectItemCaseSensitive(before, *demanded), null_is_none) ||
            known(cJSON_GetObjectItemCaseSensitive(after, *demanded), null_is_none))
            continue;
        fprintf(l->missing, "%s%s%s", l->any_missing ? ", " : "", group, *demanded);
        l->any_missing = true;
    }
}

static dflash_status compare_runs(list *l, const dp_postmortem *summary, const dp_past_case *item, int before,
                                  int after) {
    static const char *const of_environment[] = {"version", "commit",       "dirty", "compiler", "flags", "cuda",
                                                 "driver",  "cublas",       "gpu",   "tf32",     "hdf5",  "cjson",
                                                 "cpu",     "cpu_features", "os",    NULL};
    static const char *const of_checkpoint[] = {"config_sha256", "tensors_sha256", "geometry", NULL};
    static const char *const of_oracle[] = {"sha256", NULL};
    static const char *const of_case[] = {"family",   "precision", "backend", "class",
                                          "products", "isa",       "threads", NULL};
    const cJSON *from = summary->run[before].environment, *to = summary->run[after].environment;
    TRY(compare_objects(l, "environment", from, to, true));
    list_missing(l, "environment.", from, to, of_environment, true);
    const dp_result_case *good = item->in_run[before], *bad = item->in_run[after];
    TRY(compare_objects(l, "checkpoint", good->checkpoint, bad->checkpoint, false));
    list_missing(l, "checkpoint.", good->checkpoint, bad->checkpoint, of_checkpoint, false);
    TRY(compare_objects(l, "oracle", good->oracle, bad->oracle, false));
    list_missing(l, "oracle.", good->oracle, bad->oracle, of_oracle, false);
    from = good->object;
    to = bad->object;
    for (size_t i = 0; of_case[i] != NULL; i++)
        TRY(compare(l, of_case[i], cJSON_GetObjectItemCaseSensitive(from, of_case[i]),
                    cJSON_GetObjectItemCaseSensitive(to, of_case[i]), false));
    list_missing(l, "", from, to, of_case, false);
    return compare(l, "device", cJSON_GetObjectItemCaseSensitive(from, "device"),
                   cJSON_GetObjectItemCaseSensitive(to, "device"), true);
}

dflash_status dp_postmortem_changes(const dp_postmortem *summary, const dp_past_case *item, int before, int after,
                                    dp_changes *out, dflash_error *err) {
    size_t length = 0;
    *out = (dp_changes){.change = NULL};
    list found = {.to = out, .missing = open_memstream(&out->missing, &length), .err = err};
    if (found.missing == NULL) return df_fail_memory(err, "the list of changes", 4096);
    dflash_status status = compare_runs(&found, summary, item, before, after);
    const bool failed = ferror(found.missing) != 0;
    if ((fclose(found.missing) != 0 || failed) && status == DFLASH_OK)
        status = df_fail_memory(err, "the list of changes", length);
    return status;
}
