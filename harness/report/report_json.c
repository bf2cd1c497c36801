/* report_json.c - the document of a run: its head, its verdict, and the file it becomes. */
#include "report/report.h"

#include "base/clock.h"
#include "base/environment.h"
#include "common/error.h"
#include "base/json_number.h"
#include "base/json_text.h"
#include "base/text_file.h"

#include <stdlib.h>

/* The environment's facts about a device, those of the first case that ran on one. */
static void add_device(cJSON *environment, const dflash_device_facts *facts) {
    static const char *const keys[] = {"gpu", "driver", "cublas"};
    const bool ran = facts != NULL && facts->device[0] != '\0';
    const char *const values[] = {ran ? facts->device : "", ran ? facts->driver : "", ran ? facts->cublas : ""};
    if (cJSON_IsString(cJSON_GetObjectItemCaseSensitive(environment, "gpu"))) return;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        cJSON_DeleteItemFromObjectCaseSensitive(environment, keys[i]);
        cJSON_AddItemToObject(environment, keys[i],
                              values[i][0] != '\0' ? cJSON_CreateString(values[i]) : cJSON_CreateNull());
    }
    cJSON_DeleteItemFromObjectCaseSensitive(environment, "tf32");
    cJSON_AddItemToObject(environment, "tf32", ran ? cJSON_CreateBool(facts->tf32) : cJSON_CreateNull());
}

cJSON *dp_document_begin(const char *tool, const char *command, const char *filter) {
    char when[DP_WHEN_TEXT];
    cJSON *document = cJSON_CreateObject();
    cJSON_AddStringToObject(document, "schema", DP_RESULT_SCHEMA);
    cJSON_AddNumberToObject(document, "schema_version", DP_RESULT_VERSION);
    cJSON_AddStringToObject(document, "tool", tool);
    cJSON_AddNullToObject(document, "verdict"); /* until the end, so that the head of the file shows it */
    cJSON_AddNullToObject(document, "exit_code");
    cJSON_AddStringToObject(document, "command", command);
    cJSON_AddStringToObject(document, "when", dp_now(when));
    if (filter != NULL)
        cJSON_AddStringToObject(document, "filter", filter);
    else
        cJSON_AddNullToObject(document, "filter");
    cJSON_AddNumberToObject(document, "seconds", 0.0);
    cJSON *environment = dp_environment();
    add_device(environment, NULL);
    cJSON_AddItemToObject(document, "environment", environment);
    cJSON_AddArrayToObject(document, "cases");
    return document;
}

void dp_document_add(cJSON *document, const char *name, const dp_result *result) {
    if (document == NULL) return; /* nobody asked: nothing is built */
    cJSON *item = dp_case_json(name, result);
    add_device(cJSON_GetObjectItemCaseSensitive(document, "environment"), &result->device);
    if (!cJSON_AddItemToArray(cJSON_GetObjectItemCaseSensitive(document, "cases"), item)) cJSON_Delete(item);
}

void dp_document_end(cJSON *document, dp_verdict verdict) {
    const cJSON *item;
    double seconds = 0.0, one;
    if (document == NULL) return;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(document, "cases")) {
        const cJSON *times = cJSON_GetObjectItemCaseSensitive(item, "seconds");
        if (dp_json_read_number(cJSON_GetObjectItemCaseSensitive(times, "total"), &one)) seconds += one;
    }
    cJSON_ReplaceItemInObjectCaseSensitive(document, "verdict", cJSON_CreateString(dp_verdict_name(verdict)));
    cJSON_ReplaceItemInObjectCaseSensitive(document, "exit_code", cJSON_CreateNumber(dp_verdict_exit_code(verdict)));
    cJSON_ReplaceItemInObjectCaseSensitive(document, "seconds", dp_json_number(seconds));
}

dflash_status dp_write_json(const char *path, const cJSON *json, dflash_error *err) {
    char *text = dp_json_print(json, true);
    if (text == NULL) return df_fail_memory(err, "the JSON result", 0);
    const dflash_status status = dp_text_file_write(path, text, err);
    free(text);
    return status;
}
