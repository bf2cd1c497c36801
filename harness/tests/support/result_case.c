/* result_case.c - see result_case.h. */
#include "support/result_case.h"

#include "report/report.h"

#include <stdlib.h>
#include <string.h>

static const char gate[] = "layers.0.mlp.gate_proj.weight", up[] = "layers.0.mlp.up_proj.weight";
static const char norm[] = "layers.1.input_layernorm.weight";
enum { ELEMENT = 3, LOW_EXPONENT = 7, HIGH_EXPONENT = 14 }; /* bits of a bfloat16 */

static void misread(dflash_config *reading) { reading->rope.theta += 1; }

static void add_case(cJSON *document, const char *name, result_kind kind) {
    dp_result result;
    scratch_copy_case("tiny-plain");
    if (kind == RESULT_FAIL) scratch_flip_weight(norm, ELEMENT, LOW_EXPONENT, true);
    if (kind == RESULT_NAN) scratch_flip_weight(gate, ELEMENT, HIGH_EXPONENT, true);
    if (kind == RESULT_NAN) scratch_flip_weight(up, ELEMENT, HIGH_EXPONENT, true);
    if (kind == RESULT_REFUSED) scratch_flip_weight(norm, ELEMENT, LOW_EXPONENT, false);
    scratch_options.report = true;
    scratch_options.fault = kind == RESULT_MISREAD ? misread : NULL;
    scratch_check(kind == RESULT_NOTHING ? "no such stage" : NULL, &result);
    static const dp_verdict expected[] = {
        [RESULT_PASS] = DP_PASS,    [RESULT_FAIL] = DP_FAIL,       [RESULT_NAN] = DP_FAIL,
        [RESULT_MISREAD] = DP_FAIL, [RESULT_REFUSED] = DP_REFUSED, [RESULT_NOTHING] = DP_NOTHING};
    ck_assert_msg(result.verdict == expected[kind], "kind %d gave %s: %s", kind, dp_verdict_name(result.verdict),
                  result.error.message);
    dp_document_add(document, name, &result);
    dp_result_release(&result);
}

static dp_verdict verdict_of(const cJSON *item) {
    dp_verdict verdict = DP_PASS;
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "verdict"));
    while (strcmp(dp_verdict_name(verdict), name) != 0) verdict++;
    return verdict;
}

static cJSON *end(cJSON *document) {
    const cJSON *item;
    dp_verdict worst = cJSON_GetArraySize(cJSON_GetObjectItem(document, "cases")) > 0 ? DP_PASS : DP_NOTHING;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(document, "cases")) worst = dp_worse_verdict(worst, verdict_of(item));
    dp_document_end(document, worst);
    return document;
}

cJSON *result_check(result_kind kind) {
    cJSON *document = dp_document_begin("check", "dflash-parity check --checkpoint c --oracle o",
                                        kind == RESULT_NOTHING ? "no such stage" : NULL);
    ck_assert_ptr_nonnull(document);
    add_case(document, "tiny-plain", kind);
    return end(document);
}

cJSON *result_gate(const result_kind *kind, int count) {
    cJSON *document = dp_document_begin("gate", "dflash-parity gate", NULL);
    ck_assert_ptr_nonnull(document);
    for (int i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "case%d", i);
        add_case(document, name, kind[i]);
    }
    return end(document);
}

cJSON *result_at(cJSON *document, const char *path) {
    char key[64];
    cJSON *item = document;
    for (const char *at = path; *at != '\0' && item != NULL;) {
        const size_t length = strcspn(at, "/");
        snprintf(key, sizeof key, "%.*s", (int)length, at);
        item = cJSON_IsArray(item) ? cJSON_GetArrayItem(item, atoi(key)) : cJSON_GetObjectItemCaseSensitive(item, key);
        at += length + (at[length] == '/');
    }
    ck_assert_msg(item != NULL, "there is no %s", path);
    return item;
}

void result_put(cJSON *document, const char *path, const char *json) {
    char parent[160];
    const char *slash = strrchr(path, '/');
    snprintf(parent, sizeof parent, "%.*s", slash != NULL ? (int)(slash - path) : 0, path);
    cJSON *value = cJSON_Parse(json);
    ck_assert_msg(value != NULL, "no JSON: %s", json);
    ck_assert(cJSON_ReplaceItemViaPointer(result_at(document, parent), result_at(document, path), value));
    if (value->string != NULL) return; /* an element of an array has no key to give back */
    cJSON *holder = result_at(document, parent);
    if (cJSON_IsObject(holder)) value->string = strdup(slash != NULL ? slash + 1 : path);
}

void result_refused(cJSON *document, const char *code, const char *word) {
    dp_result_file file;
    dflash_error err = {.message = ""};
    const dflash_status status = dp_result_parse(document, "a.json", &file, &err);
    ck_assert_msg(status == DFLASH_ERR_REFUSED, "status %d, not refused with %s", status, code);
    ck_assert_msg(strcmp(err.code, code) == 0, "code %s: %s", err.code, err.message);
    ck_assert_msg(strstr(err.message, word) != NULL, "\"%s\" is not in: %s", word, err.message);
    dp_result_file_release(&file);
}

void result_write(const cJSON *document, const char *name, char path[SCRATCH_PATH]) {
    char *text = cJSON_PrintUnformatted(document);
    ck_assert_ptr_nonnull(text);
    scratch_write_text(name, text);
    scratch_path(name, path);
    cJSON_free(text);
}

char *result_render(cJSON *document, dp_report_format format) {
    dp_result_file file;
    dflash_error err = {.message = ""};
    char *text = NULL;
    ck_assert_msg(dp_result_parse(document, "a.json", &file, &err) == DFLASH_OK, "%s", err.message);
    ck_assert_msg(dp_render(&file, format, NULL, &text, &err) == DFLASH_OK, "%s", err.message);
    dp_result_file_release(&file);
    return text;
}
