/* run_facts.c - see run_facts.h. */
#include "check/run_facts.h"

#include "common/error.h"
#include "preflight/geometry.h"
#include "base/sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_SIZE = 4096 };

void dp_facts_of_files(const char *checkpoint, const char *oracle, dp_run_facts *facts) {
    char path[PATH_SIZE];
    if (snprintf(path, sizeof path, "%s/config.json", checkpoint) < PATH_SIZE)
        dp_file_digest(path, facts->config_sha256);
    dp_file_digest(oracle, facts->oracle_sha256);
}

static bool copy_key(cJSON *to, const cJSON *from, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(from, key);
    cJSON *copy = item != NULL ? cJSON_Duplicate(item, true) : cJSON_CreateNull();
    return cJSON_AddItemToObject(to, key, copy);
}

dflash_status dp_facts_of_preflight(const dp_preflight *in, dp_run_facts *facts, dflash_error *err) {
    static const char *const keys[] = {"generator", "command", "seed", "precision", "reference", "packages"};
    const cJSON *record = dp_oracle_provenance(in->oracle);
    bool complete = true;
    facts->geometry = dp_geometry_of(&in->config);
    facts->provenance = cJSON_CreateObject();
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        complete = copy_key(facts->provenance, record, keys[i]) && complete;
    if (facts->geometry == NULL || !complete) return df_fail_memory(err, "the facts of the run", 0);
    return DFLASH_OK;
}

static int by_name(const void *a, const void *b) {
    const cJSON *const *x = a, *const *y = b;
    return strcmp((*x)->string, (*y)->string);
}

dflash_status dp_facts_of_tensors(const cJSON *provenance, dp_run_facts *facts, dflash_error *err) {
    const cJSON *records = cJSON_GetObjectItemCaseSensitive(provenance, "tensors"), *item;
    const int count = cJSON_GetArraySize(records);
    const cJSON **sorted = malloc((size_t)(count > 0 ? count : 1) * sizeof *sorted);
    int at = 0;
    if (sorted == NULL) return df_fail_memory(err, "the list of tensors", (size_t)count * sizeof *sorted);
    cJSON_ArrayForEach(item, records) sorted[at++] = item;
    qsort(sorted, (size_t)count, sizeof *sorted, by_name);
    dp_sha256 hash;
    dp_sha256_init(&hash);
    for (int i = 0; i < count; i++) {
        const char *const part[] = {sorted[i]->string,
                                    " ",
                                    cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(sorted[i], "dtype")),
                                    " ",
                                    cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(sorted[i], "sha256")),
                                    "\n"};
        for (size_t p = 0; p < sizeof part / sizeof *part; p++)
            if (part[p] != NULL) dp_sha256_update(&hash, part[p], strlen(part[p]));
    }
    dp_sha256_hex(&hash, facts->tensors_sha256);
    free(sorted);
    return DFLASH_OK;
}

void dp_facts_release(dp_run_facts *facts) {
    cJSON_Delete(facts->geometry);
    cJSON_Delete(facts->provenance);
    *facts = (dp_run_facts){.geometry = NULL};
}
