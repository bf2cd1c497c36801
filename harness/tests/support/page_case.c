/* page_case.c - see page_case.h. */
#include "support/page_case.h"
#include "support/scratch.h"
#include "report/render_html.h"

#include "report/report.h"

#include <check.h>
#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int rows;
} list[] = {{"ctx.features", 6}, {"layers.0.attn.context", 4},
            {"layers.0.out", 4}, {"layers.1.attn.context", 4},
            {"layers.1.out", 4}, {"final", 4},
            {"logits", 3}};
enum { STAGES = sizeof list / sizeof *list };

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

static void make_stage(int i, dp_stage_result *stage, dp_stage_plot *plot) {
    *stage = (dp_stage_result){.rank = 2,
                               .dim = {list[i].rows, 8},
                               .difference = {.count = list[i].rows * 8,
                                              .l2_rel = 1e-7,
                                              .max_rel = 1e-7,
                                              .max_abs = 1e-7,
                                              .cosine = 1,
                                              .ulp_median = 1e-7,
                                              .ulp_p99 = 1e-7,
                                              .ulp_max = 1e-7,
                                              .worst = 19,
                                              .worst_got = 1.5,
                                              .worst_want = 1.25},
                               .limit = {.l2_rel = 1e-6, .max_rel = 1e-6, .origin = "10 times 1e-7"},
                               .headroom = 0.9,
                               .pass = true};
    snprintf(stage->name, sizeof stage->name, "%s", list[i].name);
    *plot = (dp_stage_plot){.rows = list[i].rows, .row_group = 1, .ulp = {[0] = 4, [9] = list[i].rows * 8 - 4}};
    plot->row = calloc((size_t)plot->rows, sizeof *plot->row);
    ck_assert_ptr_nonnull(plot->row);
    for (int row = 0; row < plot->rows; row++) plot->row[row] = i == 0 && row % 2 == 0 ? 0 : 1e-7;
}

cJSON *page_document(const char *name) {
    static int64_t index[] = {0, 19, 25};
    static double got[] = {1, 2, 3}, want[] = {1, 2.25, 3}, error[] = {0, -0.25, 0}, off[] = {1e-7, 1, 0};
    static double margin[] = {0.5, 0.25, 0}, frequency[] = {1, 0.5}, relative[] = {0, 1e-8};
    static int32_t drafted[] = {7, 8, 9}, expected[] = {7, 5, 9};
    const dp_check_options options = {.checkpoint = "c", .oracle = "o"};
    dp_stage_result stage[STAGES];
    dp_stage_plot rows[STAGES];
    dp_result result = {
        .options = &options,
        .family = DFLASH_FAMILY_DFLASH,
        .context = 6,
        .block = 4,
        .threads = 1,
        .isa = "plain",
        .device = {.backend = "cpu", .numeric_class = "exact", .products = "f32"},
        .stages_known = STAGES,
        .stage = stage,
        .stage_count = STAGES,
        .variant = {{.name = "round.all", .compared = 100, .identical = true}},
        .variant_count = 1,
        .facts = {.tensors_sha256 = "t0",
                  .geometry = cJSON_CreateObject(),
                  .provenance = cJSON_Parse("{\"packages\":{\"torch\":\"2.9.0\"}}")},
        .plot = {.stage = rows,
                 .stage_count = STAGES,
                 .scatter = {"layers.1.attn.context", 32, 3, index, got, want, error},
                 .rope = {2, frequency, frequency, relative},
                 .margins = {{"logits", true, 3, margin, off, drafted, expected}},
                 .margins_count = 1,
                 .tokens = {"logits", 3, drafted, expected}},
    };
    for (int i = 0; i < STAGES; i++) make_stage(i, &stage[i], &rows[i]);
    cJSON *document = dp_document_begin("check", "dflash-parity check --checkpoint 'a b'", NULL);
    ck_assert_ptr_nonnull(document);
    dp_document_add(document, name, &result);
    dp_document_end(document, DP_PASS);
    for (int i = 0; i < STAGES; i++) free(rows[i].row);
    cJSON_Delete(result.facts.geometry);
    cJSON_Delete(result.facts.provenance);
    return document;
}

/* ---- What follows from the arrays ---- */

static bool is_true(const cJSON *object, const char *key) { return cJSON_IsTrue(cJSON_GetObjectItem(object, key)); }

static bool fails_alone(const cJSON *stage) {
    const cJSON *isolated = cJSON_GetObjectItem(stage, "isolated");
    return cJSON_IsObject(isolated) && !is_true(isolated, "pass");
}

static void settle_verdict(cJSON *object) {
    const char *name = get(object, "verdict")->valuestring;
    for (int v = DP_PASS; v <= DP_NOTHING; v++)
        if (strcmp(name, dp_verdict_name((dp_verdict)v)) == 0)
            set_number(object, "exit_code", dp_verdict_exit_code((dp_verdict)v));
}

static void settle_divergence(cJSON *item) {
    const cJSON *stage, *first = NULL;
    const char *by = "isolated";
    cJSON_ArrayForEach(stage, get(item, "stages")) if (first == NULL && fails_alone(stage)) first = stage;
    if (first == NULL) by = "chained";
    cJSON_ArrayForEach(stage, get(item, "stages")) if (first == NULL && !is_true(stage, "pass")) first = stage;
    cJSON_DeleteItemFromObject(item, "first_divergence");
    if (first == NULL) {
        cJSON_AddNullToObject(item, "first_divergence");
        return;
    }
    cJSON *divergence = cJSON_AddObjectToObject(item, "first_divergence");
    page_set(divergence, "stage", cJSON_GetObjectItem(first, "name")->valuestring);
    page_set(divergence, "by", by);
}

static void settle_case(cJSON *item) {
    const cJSON *stage, *variant;
    int failed = 0, isolated = 0, alone = 0, warnings = 0, rounds = 0;
    cJSON_ArrayForEach(stage, get(item, "stages")) {
        failed += !is_true(stage, "pass");
        isolated += cJSON_IsObject(cJSON_GetObjectItem(stage, "isolated"));
        alone += fails_alone(stage);
        warnings += is_true(stage, "warn");
    }
    cJSON_ArrayForEach(variant, get(item, "rounds")) rounds += !is_true(variant, "identical");
    set_number(item, "stages_compared", cJSON_GetArraySize(get(item, "stages")));
    set_number(item, "stages_failed", failed);
    set_number(item, "stages_isolated", isolated);
    set_number(item, "isolated_failed", alone);
    set_number(item, "rounds_compared", cJSON_GetArraySize(get(item, "rounds")));
    set_number(item, "rounds_failed", rounds);
    set_number(item, "warnings", warnings);
    settle_verdict(item);
    settle_divergence(item);
}

void page_read(cJSON *document, dp_result_file *file) {
    dflash_error err = {.message = ""};
    cJSON *item;
    cJSON_ArrayForEach(item, get(document, "cases")) {
        cJSON_DeleteItemFromObjectCaseSensitive(item, "coverage"); /* of stages that are made up there is none */
        settle_case(item);
    }
    page_set(document, "tool", cJSON_GetArraySize(get(document, "cases")) == 1 ? "check" : "gate");
    settle_verdict(document);
    ck_assert_msg(dp_result_parse(document, "a.json", file, &err) == DFLASH_OK, "%s", err.message);
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
        cJSON *isolated = cJSON_Parse("{\"worst\":null,\"tightness\":1,\"noise\":0.5,\"noise_bar\":1,\"peak\":0.5,"
                                      "\"peak_bar\":1,\"oracle_share\":null,\"bound\":\"as far as rounding goes\"}");
        ck_assert_ptr_nonnull(isolated);
        cJSON_AddBoolToObject(isolated, "pass", !bad);
        cJSON_AddBoolToObject(isolated, "fed", true);
        cJSON_AddNumberToObject(isolated, "share", bad ? 41.5 : 0.25);
        cJSON *difference = cJSON_Duplicate(get(stage, "chained"), true);
        set_number(difference, "nan", 0);
        set_number(difference, "rel_l2", bad ? 1e-3 : 0);
        cJSON_AddItemToObject(isolated, "difference", difference);
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
    cJSON_ReplaceItemInObjectCaseSensitive(
        item, "plots", cJSON_Parse("{\"scatter\":null,\"rope\":null,\"margins\":null,\"tokens\":null}"));
    page_set(item, "verdict", "REFUSED");
    page_set(document, "verdict", "REFUSED");
}

/* ---- The form of a page ---- */

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
        ck_assert_msg(n > 0, "an angle reference spread is not escaped: %.60s", at);
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

/* Another case, under the document's own. */
void page_add_case(cJSON *document, cJSON *other) {
    cJSON_AddItemToArray(cJSON_GetObjectItem(document, "cases"),
                         cJSON_DetachItemFromArray(cJSON_GetObjectItem(other, "cases"), 0));
    cJSON_Delete(other);
}

/* ---- Pages ---- */

char *page_render(cJSON *document) {
    const dp_html_options options = {.keep = NULL};
    dp_result_file file;
    char *page = NULL;
    dflash_error err = {.message = ""};
    page_read(document, &file);
    ck_assert_msg(dp_render_html(&file, &options, &page, &err) == DFLASH_OK, "%s", err.message);
    dp_result_file_release(&file);
    cJSON_Delete(document);
    page_is_sound(page);
    return page;
}

/* Words in this order, all before the first table or picture: what is seen without scrolling. */
void page_first_screen_holds(const char *page, const char *const *words, int count) {
    const char *at = strstr(page, "<h1>"), *end = strstr(page, "<nav");
    ck_assert(at != NULL && end != NULL);
    for (int i = 0; i < count; i++) {
        const char *found = strstr(at, words[i]);
        ck_assert_msg(found != NULL && found < end, "the first screen lacks: %s", words[i]);
        at = found;
    }
}

/* What PATH was: a test that runs in the suite's own process gives it back. */
static char *path_before;

void page_set_up(void) {
    path_before = strdup(getenv("PATH"));
    scratch_open();
}

void page_tear_down(void) {
    scratch_close();
    ck_assert_int_eq(setenv("PATH", path_before, 1), 0);
    free(path_before);
}

/* As on a machine without gnuplot. */
void page_without_gnuplot(void) { ck_assert_int_eq(setenv("PATH", sf_folder, 1), 0); }
