/* gpu_record.c - see gpu_record.h. */
#include "bench/gpu_record.h"

#include "base/clock.h"
#include "base/environment.h"
#include "common/error.h"
#include "bench/source_digests.h"
#include "base/text_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SIZE = 4096, MOST_BYTES = 256 << 20 };

static const char schema[] = "dflash-parity-gpu-record";

/* Steps without which a record proves too little, and whether each leaves a result. */
static const struct {
    const char *step;
    bool result;
} needed[] = {
    {"gate-exact", true},
    {"gate-cublas", true},
    {"gate-fast", true},
    {"identity-exact", true},
    {"identity-cublas", true},
    {"identity-fast", true},
    {"digests-exact", true},
    {"bench-table", true},
    {"suite", false},
    {"memcheck-exact", false},
    {"memcheck-exact-unobserved", false},
    {"memcheck-cublas", false},
    {"memcheck-fast", false},
    {"memcheck-fast-unobserved", false},
    {"racecheck-exact", false},
    {"racecheck-exact-unobserved", false},
    {"racecheck-fast", false},
    {"racecheck-fast-unobserved", false},
    {"initcheck-exact", false},
    {"initcheck-exact-unobserved", false},
    {"initcheck-cublas", false},
    {"initcheck-fast", false},
    {"initcheck-fast-unobserved", false},
};

/* Of a result, what stays with the step alone: per-stage numbers are for the one who looks at the run itself. */
static const char *const dropped[] = {"stages", "rounds", "arms", "layers", "plots", "provenance", "geometry"};

static void trim(cJSON *item) {
    for (size_t i = 0; i < sizeof dropped / sizeof *dropped; i++) {
        const cJSON *found = cJSON_GetObjectItemCaseSensitive(item, dropped[i]);
        if (cJSON_IsArray(found) || cJSON_IsObject(found)) cJSON_DeleteItemFromObjectCaseSensitive(item, dropped[i]);
    }
    for (cJSON *child = item->child; child != NULL; child = child->next) trim(child);
}

/* The step's own result, when it wrote one. */
static dflash_status add_result(const char *folder, const char *step, cJSON *object, dflash_error *err) {
    char path[PATH_SIZE];
    char *text = NULL;
    snprintf(path, sizeof path, "%s/%s.json", folder, step);
    if (access(path, R_OK) != 0) return DFLASH_OK; /* not every step has one */
    const dflash_status status = dp_text_file_read(path, MOST_BYTES, &text, err);
    if (status != DFLASH_OK) return status;
    cJSON *result = cJSON_Parse(text);
    free(text);
    if (result == NULL)
        return df_fail(err, DFLASH_ERR_REFUSED, "gpu.result",
                       "%s is no JSON document: expected the result of the step %s. Run reports/gpu/record.sh again.",
                       path, step);
    trim(result);
    cJSON_AddItemToObject(object, "result", result);
    return DFLASH_OK;
}

/* One line of steps.tsv: name, exit code, seconds, command. */
static dflash_status add_step(const char *folder, char *line, cJSON *steps, dflash_error *err) {
    char *field[4], *rest = line, *end = NULL;
    int fields = 0;
    for (char *token; fields < 4 && (token = strsep(&rest, "\t")) != NULL;) field[fields++] = token;
    const long code = fields == 4 ? strtol(field[1], &end, 10) : 0;
    if (fields != 4 || rest != NULL || end == field[1] || *end != '\0' || field[0][0] == '\0')
        return df_fail(err, DFLASH_ERR_REFUSED, "gpu.steps",
                       "A line of %s/steps.tsv is no step: expected name, exit code, seconds and command between tabs, "
                       "found it to begin with '%.60s'. Run reports/gpu/record.sh again.",
                       folder, line);
    cJSON *step = cJSON_CreateObject();
    cJSON_AddItemToArray(steps, step);
    cJSON_AddStringToObject(step, "name", field[0]);
    cJSON_AddNumberToObject(step, "exit_code", (double)code);
    cJSON_AddNumberToObject(step, "seconds", strtod(field[2], NULL));
    cJSON_AddStringToObject(step, "command", field[3]);
    return add_result(folder, field[0], step, err);
}

static dflash_status add_steps(const char *folder, cJSON *steps, dflash_error *err) {
    char path[PATH_SIZE];
    char *text = NULL;
    snprintf(path, sizeof path, "%s/steps.tsv", folder);
    dflash_status status = dp_text_file_read(path, MOST_BYTES, &text, err);
    if (status != DFLASH_OK) return status;
    char *rest = text;
    for (char *line; status == DFLASH_OK && (line = strsep(&rest, "\n")) != NULL;)
        if (line[0] != '\0') status = add_step(folder, line, steps, err);
    if (status == DFLASH_OK && cJSON_GetArraySize(steps) == 0)
        status = df_fail(err, DFLASH_ERR_REFUSED, "gpu.steps",
                         "%s lists no step. Run reports/gpu/record.sh on a machine with a GPU.", path);
    free(text);
    return status;
}

static const cJSON *step_of(const cJSON *steps, const char *name) {
    const cJSON *step;
    cJSON_ArrayForEach(step, steps) {
        const char *found = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(step, "name"));
        if (found != NULL && strcmp(found, name) == 0) return step;
    }
    return NULL;
}

static void add_fault(cJSON *faults, const char *step, const char *what) {
    char text[PATH_SIZE];
    snprintf(text, sizeof text, "%s %s", step, what);
    cJSON_AddItemToArray(faults, cJSON_CreateString(text));
}

/* What keeps the steps from being a pass: one that failed, one that is not there, a result that is not there. */
static cJSON *faults_of(const cJSON *steps) {
    cJSON *faults = cJSON_CreateArray();
    const cJSON *step;
    cJSON_ArrayForEach(step, steps) {
        char what[64];
        const int code = (int)cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(step, "exit_code"));
        snprintf(what, sizeof what, "ended with exit code %d", code);
        if (code != 0) add_fault(faults, cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(step, "name")), what);
    }
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        const cJSON *found = step_of(steps, needed[i].step);
        if (found == NULL)
            add_fault(faults, needed[i].step, "did not run");
        else if (needed[i].result && !cJSON_HasObjectItem(found, "result"))
            add_fault(faults, needed[i].step, "left no result");
    }
    return faults;
}

static void add_sources(cJSON *record) {
    cJSON *sources = cJSON_AddObjectToObject(record, "sources");
    for (int i = 0; i < dp_source_count(); i++)
        cJSON_AddStringToObject(sources, dp_source_at(i)->path, dp_source_at(i)->sha256);
}

dflash_status dp_gpu_record_collect(const char *folder, const char *name, cJSON **out, dflash_error *err) {
    char when[DP_WHEN_TEXT];
    cJSON *record = cJSON_CreateObject(), *steps = cJSON_CreateArray();
    *out = NULL;
    dflash_status status =
        record != NULL && steps != NULL ? DFLASH_OK : df_fail_memory(err, "the record", sizeof(cJSON));
    if (status == DFLASH_OK) status = add_steps(folder, steps, err);
    if (status != DFLASH_OK) {
        cJSON_Delete(record);
        cJSON_Delete(steps);
        return status;
    }
    cJSON_AddStringToObject(record, "schema", schema);
    cJSON_AddNumberToObject(record, "schema_version", DP_GPU_RECORD_VERSION);
    cJSON_AddStringToObject(record, "name", name);
    cJSON_AddStringToObject(record, "when", dp_now(when));
    cJSON *faults = faults_of(steps);
    cJSON_AddStringToObject(record, "verdict", cJSON_GetArraySize(faults) == 0 ? "PASS" : "FAIL");
    cJSON_AddItemToObject(record, "faults", faults);
    cJSON_AddItemToObject(record, "environment", dp_environment());
    cJSON_AddItemToObject(record, "steps", steps);
    add_sources(record);
    *out = record;
    return DFLASH_OK;
}

dflash_status dp_gpu_record_read(const char *path, cJSON **out, dflash_error *err) {
    char *text = NULL;
    *out = NULL;
    const dflash_status status = dp_text_file_read(path, MOST_BYTES, &text, err);
    if (status != DFLASH_OK) return status;
    cJSON *record = cJSON_Parse(text);
    free(text);
    const char *found = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(record, "schema"));
    const double version = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(record, "schema_version"));
    const char *verdict = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(record, "verdict"));
    const cJSON *sources = cJSON_GetObjectItemCaseSensitive(record, "sources");
    if (found == NULL || strcmp(found, schema) != 0 || version != DP_GPU_RECORD_VERSION || verdict == NULL ||
        !cJSON_IsObject(sources) || sources->child == NULL) {
        cJSON_Delete(record);
        return df_fail(err, DFLASH_ERR_REFUSED, "gpu.record",
                       "%s is no record of a GPU: expected schema %s, version %d, a verdict and the digests of the "
                       "sources. Make it with `make gpu-record`.",
                       path, schema, DP_GPU_RECORD_VERSION);
    }
    *out = record;
    return DFLASH_OK;
}

int dp_gpu_record_stale(const cJSON *record, dp_source_report report, void *user) {
    const cJSON *sources = cJSON_GetObjectItemCaseSensitive(record, "sources"), *entry;
    int stale = 0;
    for (int i = 0; i < dp_source_count(); i++) {
        const dp_source *source = dp_source_at(i);
        const char *then = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(sources, source->path));
        if (then != NULL && strcmp(then, source->sha256) == 0) continue;
        stale++;
        report(source->path, then == NULL ? DP_SOURCE_ADDED : DP_SOURCE_CHANGED, user);
    }
    cJSON_ArrayForEach(entry, sources) {
        bool known = false;
        for (int i = 0; !known && i < dp_source_count(); i++) known = strcmp(entry->string, dp_source_at(i)->path) == 0;
        if (known) continue;
        stale++;
        report(entry->string, DP_SOURCE_REMOVED, user);
    }
    return stale;
}

bool dp_gpu_record_passed(const cJSON *record) {
    const char *verdict = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(record, "verdict"));
    return verdict != NULL && strcmp(verdict, "PASS") == 0;
}
