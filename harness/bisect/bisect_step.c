/* bisect_step.c - see bisect_step.h. */
#include "bisect/bisect_step.h"

#include "base/cli.h"
#include "common/error.h"
#include "bisect/git_history.h"
#include "base/process.h"
#include "base/text_file.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SIZE = 600, LARGEST_LOG = 64 << 20, SHOWN = 240, WORD = 4200, ENVIRONMENT = 16 };

static const char default_build[] = "make -j\"$(nproc)\" BUILD=build-bisect build-bisect/dflash-parity";

/* ---- Commands ---- */

/* The last lines of a log, on one line. */
static void tail_of(const char *path, char note[DP_GIT_NOTE], const char *what, int code) {
    char *text = NULL;
    const bool read = dp_text_file_read(path, LARGEST_LOG, &text, NULL) == DFLASH_OK;
    const size_t length = read ? strlen(text) : 0;
    snprintf(note, DP_GIT_NOTE, "%s ended with code %d: %s", what, code,
             read ? text + (length > SHOWN ? length - SHOWN : 0) : "");
    for (char *p = note; *p != '\0'; p++)
        if (*p == '\n') *p = ' ';
    free(text);
}

/* What both commands find in their environment. */
typedef struct surroundings {
    char recording[PATH_SIZE + 16], checkpoint[WORD], oracle[WORD];
    const char *entry[ENVIRONMENT];
} surroundings;

static void surround(const dp_git_options *o, const char *recording, surroundings *s) {
    int count = 0;
    for (; dp_git_clean[count] != NULL; count++) s->entry[count] = dp_git_clean[count];
    snprintf(s->recording, sizeof s->recording, "DP_RECORDING=%s", recording);
    s->entry[count++] = s->recording;
    if (o->subject.checkpoint != NULL) {
        snprintf(s->checkpoint, sizeof s->checkpoint, "DP_CHECKPOINT=%s", o->subject.checkpoint);
        snprintf(s->oracle, sizeof s->oracle, "DP_ORACLE=%s", o->subject.oracle);
        s->entry[count++] = s->checkpoint;
        s->entry[count++] = s->oracle;
    }
    s->entry[count] = NULL;
}

static dflash_status shell(const char *scratch, const char *command, const surroundings *s, const char *log, int *code,
                           dflash_error *err) {
    char tree[PATH_SIZE];
    const char *const argv[] = {"sh", "-c", command, NULL};
    snprintf(tree, sizeof tree, "%s/tree", scratch);
    unlink(log);
    const dp_process process = {.argv = argv, .folder = tree, .environment = s->entry, .out = log, .err = log};
    return dp_process_run(&process, code, err);
}

/* The program of the revision; its words after the name. */
static dflash_status own(const dp_git_options *o, const char *scratch, bool record, const char *recording,
                         const surroundings *s, const char *log, int *code, dflash_error *err) {
    enum { MOST = 20 };
    char tree[PATH_SIZE];
    const char *argv[MOST] = {"build-bisect/dflash-parity",
                              record ? "record" : "check",
                              "--checkpoint",
                              o->subject.checkpoint,
                              "--oracle",
                              o->subject.oracle,
                              "--out",
                              recording};
    int count = 8;
    if (o->subject.has_precision) {
        argv[count++] = "--precision";
        argv[count++] = dflash_precision_name(o->subject.precision);
    }
    if (o->subject.head != NULL) {
        argv[count++] = "--lm-head";
        argv[count++] = o->subject.head;
    }
    argv[count] = NULL;
    snprintf(tree, sizeof tree, "%s/tree", scratch);
    unlink(log);
    const dp_process process = {.argv = argv, .folder = tree, .environment = s->entry, .out = log, .err = log};
    return dp_process_run(&process, code, err);
}

/* Whether a run failed because the revision is older than the command. */
static bool lacks_record(const char *log) {
    char *text = NULL;
    const bool lacks = dp_text_file_read(log, LARGEST_LOG, &text, NULL) == DFLASH_OK &&
                       strstr(text, "there is no command 'record'") != NULL;
    free(text);
    return lacks;
}

/* ---- A revision ---- */

static dflash_status run_it(const dp_git_options *o, const char *scratch, const surroundings *s, const char *log,
                            bool by_figures, dp_step_run *out, dflash_error *err) {
    int code = 0;
    if (o->run != NULL) {
        TRY(shell(scratch, o->run, s, log, &code, err));
    } else {
        if (!by_figures) TRY(own(o, scratch, true, out->path, s, log, &code, err));
        out->figures = by_figures || (code == DP_EXIT_USAGE && lacks_record(log));
        if (out->figures) {
            TRY(own(o, scratch, false, out->path, s, log, &code, err));
            if (code == DP_EXIT_FAIL) code = 0; /* a check that fails has figures all the same */
        }
    }
    out->done = code == 0 && access(out->path, R_OK) == 0;
    if (!out->done) tail_of(log, out->note, code == 0 ? "the run left no recording and" : "the run", code);
    return DFLASH_OK;
}

dflash_status dp_step_run_revision(const dp_git_options *options, const char *scratch, const dp_commit *commit,
                                   const char *name, bool by_figures, dp_step_run *out, dflash_error *err) {
    char log[PATH_SIZE];
    surroundings s;
    int code = 0;
    *out = (dp_step_run){.done = false};
    snprintf(out->path, sizeof out->path, "%s/%s.run", scratch, name);
    snprintf(log, sizeof log, "%s/step.log", scratch);
    surround(options, out->path, &s);
    TRY(dp_git_checkout(scratch, commit, err));
    out->built = true;
    TRY(shell(scratch, options->build != NULL ? options->build : default_build, &s, log, &code, err));
    if (code == 0) return run_it(options, scratch, &s, log, by_figures, out, err);
    tail_of(log, out->note, "the build", code);
    return DFLASH_OK;
}

/* ---- Figures ---- */

/* Revisions before version 2 of result files had the keys of the one case at the top. */
static const cJSON *stages_of(const cJSON *document) {
    const cJSON *cases = cJSON_GetObjectItemCaseSensitive(document, "cases");
    return cJSON_GetObjectItemCaseSensitive(cases != NULL ? cJSON_GetArrayItem(cases, 0) : document, "stages");
}

static cJSON *read_result(const char *path) {
    char *text = NULL;
    if (dp_text_file_read(path, LARGEST_LOG, &text, NULL) != DFLASH_OK) return NULL;
    cJSON *document = cJSON_Parse(text);
    free(text);
    if (cJSON_GetArraySize(stages_of(document)) > 0) return document;
    cJSON_Delete(document);
    return NULL;
}

static const char *name_of(const cJSON *stage) {
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(stage, "name"));
    return name != NULL ? name : "";
}

static bool same_figures(const cJSON *a, const cJSON *b) {
    static const char *const figures[] = {"compared", "rel_l2",      "max_rel_rms", "max_abs",    "ulp_median",
                                          "ulp_max",  "worst_index", "worst_got",   "mismatches", "chained"};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        const cJSON *x = cJSON_GetObjectItemCaseSensitive(a, figures[i]),
                    *y = cJSON_GetObjectItemCaseSensitive(b, figures[i]);
        if ((x == NULL) != (y == NULL) || (x != NULL && !cJSON_Compare(x, y, true))) return false;
    }
    return true;
}

bool dp_figures_compare(const char *good, const char *path, const dp_compare_options *judge,
                        char stage[DFLASH_STAGE_NAME_MAX], char note[DP_GIT_NOTE]) {
    cJSON *a = read_result(good), *b = read_result(path);
    const cJSON *left = stages_of(a), *right = stages_of(b);
    bool comparable = a != NULL && b != NULL && cJSON_GetArraySize(left) == cJSON_GetArraySize(right);
    int compared = 0;
    stage[0] = '\0';
    const cJSON *x = left != NULL ? left->child : NULL, *y = right != NULL ? right->child : NULL;
    for (; comparable && x != NULL && y != NULL; x = x->next, y = y->next) {
        comparable = strcmp(name_of(x), name_of(y)) == 0;
        if (!comparable || (judge->filter != NULL && !dp_glob(judge->filter, name_of(x)))) continue;
        compared++;
        const bool good_enough = judge->expect == DP_EXPECT_ENVELOPE
                                     ? cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(y, "pass"))
                                     : same_figures(x, y);
        if (!good_enough && stage[0] == '\0') snprintf(stage, DFLASH_STAGE_NAME_MAX, "%s", name_of(x));
    }
    comparable = comparable && compared > 0;
    if (!comparable) snprintf(note, DP_GIT_NOTE, "its check shows no stages, or others than the good revision's");
    cJSON_Delete(a);
    cJSON_Delete(b);
    return comparable;
}
