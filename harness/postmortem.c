/* postmortem.c - see postmortem.h; reading, ordering, and the outcome of each case. */
#include "postmortem.h"

#include "error.h"
#include "result_view.h"
#include "story.h"
#include "text_file.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 256 << 20 };

/* ---- Reading -------------------------------------------------------------------------------------------------------
 */

static df_status read_run(dp_past_run *run, df_error *err) {
    const size_t length = strlen(run->path);
    char *text = NULL;
    if (length > 3 && strcmp(run->path + length - 3, ".h5") == 0)
        return df_fail(err, DF_ERR_REFUSED, "postmortem.recording",
                       "%s is a recording or an oracle, which holds values and no verdict: expected a result file, as "
                       "`check --out` writes it. Check it first and give the result.",
                       run->path);
    TRY(dp_text_file_read(run->path, MOST_BYTES, &text, err));
    run->document = cJSON_Parse(text);
    free(text);
    if (strcmp(dp_view_text(run->document, "schema"), "dflash-parity-result") == 0 &&
        dp_view_count(run->document, "schema_version") == 2 && cJSON_IsArray(dp_view(run->document, "cases")))
        return DF_OK;
    return df_fail(err, DF_ERR_REFUSED, "postmortem.result",
                   "%s is no result file of version 2: expected the schema dflash-parity-result, schema_version 2 and "
                   "cases. Write it again with `check --out` or `gate --out` of this version.",
                   run->path);
}

/* Insertion keeps equal times in the order given. ISO times in UTC order as text. */
static void sort_by_time(dp_postmortem *story) {
    for (int i = 1; i < story->run_count; i++) {
        const dp_past_run run = story->run[i];
        int at = i;
        while (at > 0 &&
               strcmp(dp_view_text(story->run[at - 1].document, "when"), dp_view_text(run.document, "when")) > 0) {
            story->run[at] = story->run[at - 1];
            at--;
        }
        story->run[at] = run;
    }
}

static bool passes(const cJSON *item) { return strcmp(dp_view_text(item, "verdict"), "PASS") == 0; }

static dp_past_case *find(dp_postmortem *story, const char *name) {
    for (int i = 0; i < story->item_count; i++)
        if (strcmp(story->item[i].name, name) == 0) return &story->item[i];
    return NULL;
}

static df_status collect(dp_postmortem *story, df_error *err) {
    for (int r = 0; r < story->run_count; r++) {
        const cJSON *item;
        cJSON_ArrayForEach(item, dp_view(story->run[r].document, "cases")) {
            dp_past_case *past = find(story, dp_view_text(item, "case"));
            if (past == NULL) {
                dp_past_case *grown = realloc(story->item, (size_t)(story->item_count + 1) * sizeof *grown);
                if (grown == NULL) return df_fail_memory(err, "the list of cases", sizeof *grown);
                story->item = grown;
                past = &story->item[story->item_count];
                *past = (dp_past_case){.name = dp_view_text(item, "case")};
                past->in_run = calloc((size_t)story->run_count, sizeof *past->in_run);
                if (past->in_run == NULL) return df_fail_memory(err, "a case's runs", sizeof *past->in_run);
                story->item_count++;
            }
            past->in_run[r] = item;
        }
    }
    if (story->item_count > 0) return DF_OK;
    return df_fail(err, DF_ERR_REFUSED, "postmortem.empty",
                   "The %d result files hold no case, so there is no story to tell. Give results of runs that compared "
                   "something.",
                   story->run_count);
}

/* ---- The outcome ---------------------------------------------------------------------------------------------------
 */

/* A pass says nothing about a stage that it did not compare. */
static bool good(const cJSON *item, const char *stage) {
    return item != NULL && passes(item) && (stage[0] == '\0' || dp_view_stage(item, stage) != NULL);
}

static void judge(const dp_postmortem *story, dp_past_case *item) {
    const char *stage = "";
    item->last_good = item->first_bad = item->last_bad = item->good_again = -1;
    for (int r = 0; r < story->run_count; r++)
        if (item->in_run[r] != NULL && !passes(item->in_run[r])) item->last_bad = r;
    if (item->last_bad >= 0) stage = dp_view_text(dp_view(item->in_run[item->last_bad], "first_divergence"), "stage");
    for (int r = 0; r < story->run_count; r++) {
        if (!good(item->in_run[r], stage)) continue;
        if (item->last_bad < 0 || r < item->last_bad)
            item->last_good = r;
        else if (item->good_again < 0)
            item->good_again = r;
    }
    for (int r = item->last_good + 1; r < story->run_count && item->last_bad >= 0 && item->first_bad < 0; r++)
        if (item->in_run[r] != NULL && !passes(item->in_run[r])) item->first_bad = r;
}

static void bad_first(dp_postmortem *story) {
    for (int i = 1; i < story->item_count; i++) {
        const dp_past_case item = story->item[i];
        int at = i;
        for (; at > 0 && item.last_bad >= 0 && story->item[at - 1].last_bad < 0; at--)
            story->item[at] = story->item[at - 1];
        story->item[at] = item;
    }
}

df_status dp_postmortem_read(const char *const *paths, int count, dp_order order, dp_postmortem *out, df_error *err) {
    *out = (dp_postmortem){.run = NULL};
    df_status status = DF_OK;
    out->run = calloc((size_t)count + 1, sizeof *out->run);
    if (out->run == NULL) return df_fail_memory(err, "the list of runs", (size_t)count * sizeof *out->run);
    for (int i = 0; status == DF_OK && i < count; i++) {
        out->run[i].path = paths[i];
        out->run_count++;
        status = read_run(&out->run[i], err);
    }
    if (status == DF_OK && order == DP_ORDER_TIME) sort_by_time(out);
    if (status == DF_OK) status = collect(out, err);
    for (int i = 0; status == DF_OK && i < out->item_count; i++) judge(out, &out->item[i]);
    if (status == DF_OK) bad_first(out);
    if (status != DF_OK) dp_postmortem_release(out);
    return status;
}

void dp_postmortem_release(dp_postmortem *story) {
    for (int i = 0; i < story->run_count; i++) cJSON_Delete(story->run[i].document);
    for (int i = 0; i < story->item_count; i++) free(story->item[i].in_run);
    free(story->run);
    free(story->item);
    *story = (dp_postmortem){.run = NULL};
}

const char *dp_past_run_name(const dp_past_run *run, char name[DP_RUN_NAME]) {
    const cJSON *environment = dp_view(run->document, "environment");
    snprintf(name, DP_RUN_NAME, "%.40s%s of %.40s", dp_view_text(environment, "commit"),
             dp_view_true(environment, "dirty") ? "+" : "", dp_view_text(run->document, "when"));
    return name;
}

static void run_name(FILE *to, const dp_postmortem *story, int run) {
    char name[DP_RUN_NAME];
    fprintf(to, "`%s`", dp_past_run_name(&story->run[run], name));
}

void dp_postmortem_outcome(FILE *to, const dp_postmortem *story, const dp_past_case *item) {
    fprintf(to, "`%s` ", item->name);
    if (item->last_bad < 0 && item->last_good < 0) {
        fputs("was not judged in any of these runs.", to);
        return;
    }
    if (item->last_bad < 0) {
        fputs("passes in every run that has it.", to);
        return;
    }
    if (item->last_good >= 0) {
        fputs("last passed in ", to);
        run_name(to, story, item->last_good);
        fputs("; first bad is ", to);
        run_name(to, story, item->first_bad);
    } else {
        fputs("has no good run here; the first bad one is ", to);
        run_name(to, story, item->first_bad);
    }
    fputs(", where it ", to);
    dp_story_headline(to, item->in_run[item->first_bad]);
    fputs(".", to);
    if (item->good_again >= 0) {
        fputs(" It passes again in ", to);
        run_name(to, story, item->good_again);
        fputs(".", to);
    }
}
