/* postmortem_case.c - see postmortem_case.h. */
#include "support/postmortem_case.h"

#include <stdlib.h>
#include <string.h>

char pm_path[PM_MOST][SCRATCH_PATH];
int pm_count;
dp_postmortem_options pm_options;

void pm_open(void) {
    scratch_open();
    pm_count = 0;
    pm_options = (dp_postmortem_options){.order = DP_ORDER_TIME};
}

void pm_set_verdict(cJSON *document, const char *verdict, int code) {
    char text[8];
    snprintf(text, sizeof text, "%d", code);
    page_set(document, "verdict", verdict);
    page_set(page_only_case(document), "verdict", verdict);
    result_put(document, "exit_code", text);
    result_put(document, "cases/0/exit_code", text);
}

cJSON *pm_good(void) { return result_check(RESULT_PASS); }

cJSON *pm_bad(const char *stage) {
    cJSON *document = pm_good();
    page_break(document, stage, 1e-3);
    pm_set_verdict(document, "FAIL", 1);
    return document;
}

void pm_set_fact(cJSON *document, const char *key, const char *value) {
    page_set(result_at(document, "environment"), key, value);
}

void pm_add_file(const char *path) {
    ck_assert_int_lt(pm_count, PM_MOST);
    snprintf(pm_path[pm_count++], SCRATCH_PATH, "%s", path);
}

void pm_add(cJSON *document, const char *when, const char *commit) {
    char name[32], path[SCRATCH_PATH];
    snprintf(name, sizeof name, "run%d.json", pm_count);
    page_set(document, "when", when);
    pm_set_fact(document, "commit", commit);
    result_put(document, "environment/dirty", "false");
    result_write(document, name, path);
    pm_add_file(path);
    cJSON_Delete(document);
}

static dflash_status read_all(dp_postmortem *summary, dflash_error *err) {
    static const char *list[PM_MOST]; /* the story keeps it */
    for (int i = 0; i < pm_count; i++) list[i] = pm_path[i];
    pm_options.paths = list;
    pm_options.count = pm_count;
    return dp_postmortem_read(&pm_options, summary, err);
}

void pm_read(dp_postmortem *summary) {
    dflash_error err = {.message = ""};
    ck_assert_msg(read_all(summary, &err) == DFLASH_OK, "%s: %s", err.code, err.message);
}

void pm_refused(const char *code, const char *a, const char *b) {
    dp_postmortem summary;
    dflash_error err = {.message = ""};
    const dflash_status status = read_all(&summary, &err);
    ck_assert_msg(status == DFLASH_ERR_REFUSED, "status %d instead of a refusal with %s: %s", status, code,
                  err.message);
    ck_assert_msg(strcmp(err.code, code) == 0, "code %s instead of %s: %s", err.code, code, err.message);
    ck_assert_msg(strstr(err.message, a) != NULL && strstr(err.message, b) != NULL, "\"%s\" or \"%s\" is not in: %s", a,
                  b, err.message);
    ck_assert_ptr_null(summary.run);
}

const char *pm_commit(const dp_postmortem *summary, int run) {
    ck_assert_int_ge(run, 0);
    ck_assert_int_lt(run, summary->run_count);
    return dp_past_commit_name(&summary->run[run]);
}

const char *pm_change(const dp_changes *changes, const char *name) {
    static char text[256];
    for (int i = 0; i < changes->count; i++)
        if (strcmp(changes->change[i].name, name) == 0) {
            snprintf(text, sizeof text, "%s -> %s", changes->change[i].before, changes->change[i].after);
            return text;
        }
    return "none";
}

void pm_holds(const char *text, const char *const *words) {
    for (; *words != NULL; words++) ck_assert_msg(strstr(text, *words) != NULL, "the text lacks: %s\n%s", *words, text);
}
