/* page_case.c - see page_case.h. */
#include "page_case.h"

#include <check.h>
#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int layer, rows;
} list[] = {{"ctx.features", -1, 6}, {"layers.0.attn.context", 0, 4},
            {"layers.0.out", 0, 4},  {"layers.1.attn.context", 1, 4},
            {"layers.1.out", 1, 4},  {"final", -1, 4},
            {"logits", -1, 3}};
enum { STAGES = sizeof list / sizeof *list, ULP_BINS = 36 };

void page_set(cJSON *object, const char *key, const char *text) {
    cJSON_DeleteItemFromObjectCaseSensitive(object, key);
    cJSON_AddStringToObject(object, key, text);
}

static void set_number(cJSON *object, const char *key, double value) {
    cJSON_DeleteItemFromObjectCaseSensitive(object, key);
    if (isfinite(value))
        cJSON_AddNumberToObject(object, key, value);
    else
        cJSON_AddStringToObject(object, key, isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

static void set_bool(cJSON *object, const char *key, bool value) {
    cJSON_DeleteItemFromObjectCaseSensitive(object, key);
    cJSON_AddBoolToObject(object, key, value);
}

static cJSON *get(cJSON *object, const char *key) {
    cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    ck_assert_msg(item != NULL, "there is no %s", key);
    return item;
}

static cJSON *stage_of(int i) {
    cJSON *stage = cJSON_CreateObject();
    cJSON_AddStringToObject(stage, "name", list[i].name);
    if (list[i].layer >= 0)
        cJSON_AddNumberToObject(stage, "layer", list[i].layer);
    else
        cJSON_AddNullToObject(stage, "layer");
    cJSON_AddItemToObject(stage, "shape", cJSON_CreateIntArray((const int[]){list[i].rows, 8}, 2));
    cJSON_AddBoolToObject(stage, "exact", false);
    cJSON_AddBoolToObject(stage, "pass", true);
    cJSON_AddBoolToObject(stage, "warn", false);
    cJSON *chained = cJSON_AddObjectToObject(stage, "chained");
    static const char *const counts[] = {"mismatches", "nan", "inf", "sign_flips"};
    static const char *const numbers[] = {"rel_l2", "max_rel_rms", "max_abs", "ulp_median", "ulp_p99", "ulp_max"};
    cJSON_AddNumberToObject(chained, "compared", list[i].rows * 8);
    for (size_t k = 0; k < 4; k++) cJSON_AddNumberToObject(chained, counts[k], 0);
    for (size_t k = 0; k < 6; k++) cJSON_AddNumberToObject(chained, numbers[k], 1e-7);
    cJSON *worst = cJSON_AddObjectToObject(chained, "worst");
    cJSON_AddNumberToObject(worst, "index", 19);
    cJSON_AddItemToObject(worst, "at", cJSON_CreateIntArray((const int[]){2, 3}, 2));
    cJSON_AddNumberToObject(worst, "got", 1.5);
    cJSON_AddNumberToObject(worst, "want", 1.25);
    cJSON *bar = cJSON_AddObjectToObject(stage, "bar");
    cJSON_AddNumberToObject(bar, "rel_l2", 1e-6);
    cJSON_AddNumberToObject(bar, "max_rel_rms", 1e-6);
    cJSON_AddNumberToObject(stage, "headroom", 0.9);
    cJSON_AddNullToObject(stage, "isolated");
    cJSON_AddNullToObject(stage, "share");
    cJSON *rows = cJSON_AddArrayToObject(stage, "rows");
    for (int row = 0; row < list[i].rows; row++)
        cJSON_AddItemToArray(rows, cJSON_CreateNumber(i == 0 && row % 2 == 0 ? 0 : 1e-7));
    cJSON_AddNumberToObject(stage, "row_group", 1);
    int ulp[ULP_BINS] = {[0] = 4, [9] = list[i].rows * 8 - 4};
    cJSON_AddItemToObject(stage, "ulp", cJSON_CreateIntArray(ulp, ULP_BINS));
    return stage;
}

static cJSON *plots_of(void) {
    cJSON *plots = cJSON_CreateObject(), *scatter = cJSON_AddObjectToObject(plots, "scatter");
    const double got[] = {1, 2, 3}, want[] = {1, 2.25, 3}, none[] = {0, 1e-8}, margin[] = {0.5, 0.25, 0};
    const double error[] = {1e-7, 1, 0};
    cJSON_AddStringToObject(scatter, "stage", "layers.1.attn.context");
    cJSON_AddItemToObject(scatter, "got", cJSON_CreateDoubleArray(got, 3));
    cJSON_AddItemToObject(scatter, "want", cJSON_CreateDoubleArray(want, 3));
    cJSON_AddItemToObject(cJSON_AddObjectToObject(plots, "rope"), "relative", cJSON_CreateDoubleArray(none, 2));
    cJSON *margins = cJSON_CreateObject();
    cJSON_AddItemToArray(cJSON_AddArrayToObject(plots, "margins"), margins);
    cJSON_AddItemToObject(margins, "margin", cJSON_CreateDoubleArray(margin, 3));
    cJSON_AddItemToObject(margins, "error", cJSON_CreateDoubleArray(error, 3));
    cJSON_AddItemToObject(margins, "got", cJSON_CreateIntArray((const int[]){7, 8, 9}, 3));
    cJSON_AddItemToObject(margins, "want", cJSON_CreateIntArray((const int[]){7, 5, 9}, 3));
    cJSON *tokens = cJSON_AddObjectToObject(plots, "tokens");
    cJSON_AddItemToObject(tokens, "got", cJSON_CreateIntArray((const int[]){7, 8, 9}, 3));
    cJSON_AddItemToObject(tokens, "want", cJSON_CreateIntArray((const int[]){7, 5, 9}, 3));
    return plots;
}

cJSON *page_document(const char *name) {
    cJSON *document = cJSON_CreateObject(), *item = cJSON_CreateObject();
    cJSON_AddStringToObject(document, "schema", "dflash-parity-result");
    cJSON_AddNumberToObject(document, "schema_version", 2);
    cJSON_AddStringToObject(document, "tool", "check");
    cJSON_AddStringToObject(document, "verdict", "PASS");
    cJSON_AddStringToObject(document, "command", "dflash-parity check --checkpoint 'a b'");
    cJSON_AddStringToObject(document, "when", "2026-01-02T03:04:05Z");
    cJSON_AddNullToObject(document, "filter");
    cJSON_AddNumberToObject(document, "seconds", 1.5);
    cJSON *environment = cJSON_AddObjectToObject(document, "environment");
    cJSON_AddStringToObject(environment, "version", "0.1.0");
    cJSON_AddStringToObject(environment, "commit", "0123456789ab");
    cJSON_AddBoolToObject(environment, "dirty", false);
    cJSON_AddStringToObject(environment, "compiler", "gcc 12.2.0");
    cJSON_AddItemToArray(cJSON_AddArrayToObject(document, "cases"), item);
    cJSON_AddStringToObject(item, "case", name);
    cJSON_AddStringToObject(item, "verdict", "PASS");
    cJSON_AddNullToObject(item, "error");
    cJSON_AddStringToObject(item, "command", "dflash-parity check --checkpoint c");
    cJSON_AddStringToObject(cJSON_AddObjectToObject(item, "checkpoint"), "tensors_sha256", "t0");
    cJSON *packages = cJSON_AddObjectToObject(
        cJSON_AddObjectToObject(cJSON_AddObjectToObject(item, "oracle"), "provenance"), "packages");
    cJSON_AddStringToObject(packages, "torch", "2.9.0");
    cJSON_AddStringToObject(item, "precision", "stored");
    cJSON_AddNumberToObject(item, "context_rows", 6);
    cJSON_AddNumberToObject(item, "block_rows", 4);
    cJSON_AddNumberToObject(item, "stages_compared", STAGES);
    cJSON_AddNumberToObject(item, "stages_failed", 0);
    cJSON_AddNumberToObject(item, "stages_isolated", 0);
    cJSON_AddNumberToObject(item, "isolated_failed", 0);
    cJSON_AddNumberToObject(item, "rounds_compared", 1);
    cJSON_AddNullToObject(item, "first_divergence");
    cJSON *stages = cJSON_AddArrayToObject(item, "stages");
    for (int i = 0; i < STAGES; i++) cJSON_AddItemToArray(stages, stage_of(i));
    cJSON *arm = cJSON_CreateObject();
    cJSON_AddStringToObject(arm, "name", "round.all");
    cJSON_AddNumberToObject(arm, "compared", 100);
    cJSON_AddBoolToObject(arm, "identical", true);
    cJSON_AddBoolToObject(arm, "nonfinite", false);
    cJSON_AddNullToObject(arm, "first_difference");
    cJSON_AddItemToArray(cJSON_AddArrayToObject(item, "rounds"), arm);
    cJSON_AddArrayToObject(item, "growth");
    cJSON_AddItemToObject(item, "plots", plots_of());
    return document;
}

cJSON *page_only_case(cJSON *document) { return get(document, "cases")->child; }

cJSON *page_stage(cJSON *document, const char *name) {
    cJSON *stage;
    cJSON_ArrayForEach(stage, get(page_only_case(document), "stages")) if (strcmp(get(stage, "name")->valuestring,
                                                                                  name) == 0) return stage;
    ck_abort_msg("there is no stage %s", name);
}

void page_break(cJSON *document, const char *name, double error) {
    cJSON *item = page_only_case(document);
    int failed = 0;
    for (cJSON *stage = page_stage(document, name); stage != NULL; stage = stage->next, failed++) {
        cJSON *chained = get(stage, "chained"), *rows = get(stage, "rows");
        set_bool(stage, "pass", false);
        set_number(chained, "rel_l2", error);
        set_number(chained, "max_rel_rms", error);
        set_number(stage, "headroom", isfinite(error) ? 1 - error / 1e-6 : -INFINITY);
        if (!isfinite(error)) set_number(chained, "nan", 2);
        cJSON_ReplaceItemInArray(rows, 2, isfinite(error) ? cJSON_CreateNumber(error) : cJSON_CreateString("nan"));
    }
    cJSON_DeleteItemFromObjectCaseSensitive(item, "first_divergence");
    cJSON *first = cJSON_AddObjectToObject(item, "first_divergence");
    page_set(first, "stage", name);
    page_set(first, "by", "chained");
    set_number(item, "stages_failed", failed);
    page_set(item, "verdict", "FAIL");
    page_set(document, "verdict", "FAIL");
}

void page_isolate(cJSON *document, const char *name) {
    cJSON *item = page_only_case(document), *stage;
    cJSON_ArrayForEach(stage, get(item, "stages")) {
        const bool bad = strcmp(get(stage, "name")->valuestring, name) == 0;
        cJSON *isolated = cJSON_CreateObject();
        cJSON_AddBoolToObject(isolated, "pass", !bad);
        cJSON_AddBoolToObject(isolated, "fed", true);
        cJSON_AddNumberToObject(isolated, "share", bad ? 41.5 : 0.25);
        cJSON_AddNumberToObject(cJSON_AddObjectToObject(isolated, "difference"), "rel_l2", bad ? 1e-3 : 0);
        cJSON_ReplaceItemInObjectCaseSensitive(stage, "isolated", isolated);
    }
    set_number(item, "stages_isolated", STAGES);
    set_number(item, "isolated_failed", 1);
    page_set(get(item, "first_divergence"), "by", "isolated");
}

void page_refuse(cJSON *document, const char *code, const char *message) {
    cJSON *item = page_only_case(document), *error = cJSON_CreateObject();
    cJSON_AddStringToObject(error, "code", code);
    cJSON_AddStringToObject(error, "message", message);
    cJSON_ReplaceItemInObjectCaseSensitive(item, "error", error);
    cJSON_ReplaceItemInObjectCaseSensitive(item, "stages", cJSON_CreateArray());
    cJSON_ReplaceItemInObjectCaseSensitive(item, "rounds", cJSON_CreateArray());
    cJSON_ReplaceItemInObjectCaseSensitive(item, "plots", cJSON_CreateObject());
    page_set(item, "verdict", "REFUSED");
    page_set(document, "verdict", "REFUSED");
}

/* ---- The form of a page
 * ---------------------------------------------------------------------------------------------- */

enum { DEEPEST = 64, LONGEST = 24 };

static bool has_no_end(const char *name) { return strcmp(name, "meta") == 0; }

/* Walks over the tags outside <style>; what it finds in order must be a tree. */
void page_tags_are_balanced(const char *page) {
    char open[DEEPEST][LONGEST];
    int depth = 0;
    for (const char *at = strchr(page, '<'); at != NULL; at = strchr(at + 1, '<')) {
        char name[LONGEST] = "";
        const bool closes = at[1] == '/';
        const char *end = strchr(at, '>');
        ck_assert_msg(end != NULL, "a tag has no end: %.40s", at);
        if (at[1] == '!') continue;
        size_t n = 0;
        for (const char *s = at + 1 + closes; n + 1 < LONGEST && isalnum((unsigned char)*s); s++) name[n++] = *s;
        name[n] = '\0';
        ck_assert_msg(n > 0, "an angle bracket is not escaped: %.60s", at);
        if (closes) {
            ck_assert_msg(depth > 0 && strcmp(open[depth - 1], name) == 0, "</%s> closes <%s>", name,
                          depth > 0 ? open[depth - 1] : "nothing");
            depth--;
        } else if (end[-1] != '/' && !has_no_end(name)) {
            ck_assert_int_lt(depth, DEEPEST);
            strcpy(open[depth++], name);
        }
    }
    ck_assert_msg(depth == 0, "<%s> is not closed", depth > 0 ? open[depth - 1] : "");
}

static int times(const char *text, const char *word) {
    int n = 0;
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) n++;
    return n;
}

static void links_lead_somewhere(const char *page) {
    for (const char *at = strstr(page, " id="); at != NULL; at = strstr(at + 1, " id=")) {
        char name[128], word[140];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at + 5, "\"'"), at + 5);
        snprintf(word, sizeof word, " id=%c%s%c", at[4], name, at[4]);
        ck_assert_msg(times(page, word) == 1, "the id %s is there %d times", name, times(page, word));
    }
    for (const char *at = strstr(page, "href="); at != NULL; at = strstr(at + 1, "href=")) {
        char name[128], word[2][140];
        if (strncmp(at + 6, "data:image/png;base64,", 22) == 0) continue;
        ck_assert_msg(at[6] == '#', "a link leaves the page: %.60s", at);
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at + 7, "\"'"), at + 7);
        snprintf(word[0], sizeof word[0], " id=\"%s\"", name);
        snprintf(word[1], sizeof word[1], " id='%s'", name);
        ck_assert_msg(strstr(page, word[0]) != NULL || strstr(page, word[1]) != NULL, "#%s leads nowhere", name);
    }
}

/* A column of numbers stays as wide as a number: what needs more digits is written shorter. */
static void numbers_are_narrow(const char *page) {
    static const char cell[] = "<td class=\"n\">";
    for (const char *at = strstr(page, cell); at != NULL; at = strstr(at + 1, cell)) {
        const size_t width = strcspn(at + sizeof cell - 1, "<");
        ck_assert_msg(width <= 9, "a number takes %zu characters: %.40s", width, at + sizeof cell - 1);
    }
}

void page_is_sound(const char *page) {
    static const char *const foreign[] = {"<script", " src=",    "<link",     "<iframe", "@import",   "url(http",
                                          "url(//",  " onload=", " onclick=", "<base",   "http-equiv"};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        ck_assert_msg(strstr(page, foreign[i]) == NULL, "the page holds %s", foreign[i]);
    ck_assert_uint_lt(strlen(page), 1500000);
    page_tags_are_balanced(page);
    links_lead_somewhere(page);
    numbers_are_narrow(page);
}
