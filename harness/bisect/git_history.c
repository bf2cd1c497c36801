/* git_history.c - see git_history.h. Every answer of git goes through a file in the scratch folder. */
#include "bisect/git_history.h"

#include "common/error.h"
#include "base/process.h"
#include "base/text_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LARGEST_ANSWER = 64 << 20, SHOWN = 300 };

const char *const dp_git_clean[] = {"GIT_DIR",   "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX",
                                    "MAKEFLAGS", "MAKELEVEL",     "MFLAGS",         NULL};

/* Runs argv, which begins with git, in a folder; *answer, unless NULL, is what it printed, and the caller frees it. */
static dflash_status run(const char *folder, const char *scratch, const char *const *argv, char **answer, int *code,
                         dflash_error *err) {
    char out[DP_FOLDER_PATH + 16], complaint[DP_FOLDER_PATH + 16], *text = NULL;
    snprintf(out, sizeof out, "%s/git.out", scratch);
    snprintf(complaint, sizeof complaint, "%s/git.err", scratch);
    unlink(out);
    unlink(complaint);
    const dp_process process = {
        .argv = argv, .folder = folder, .environment = dp_git_clean, .out = out, .err = complaint};
    TRY(dp_process_run(&process, code, err));
    if (*code == 0) return answer != NULL ? dp_text_file_read(out, LARGEST_ANSWER, answer, err) : DFLASH_OK;
    const dflash_status status = dp_text_file_read(complaint, LARGEST_ANSWER, &text, err);
    if (status != DFLASH_OK) return status;
    df_fail(err, DFLASH_ERR_REFUSED, "bisect.git", "git %s in %s ended with code %d: %.*s", argv[1], folder, *code,
            SHOWN, text);
    free(text);
    return DFLASH_ERR_REFUSED;
}
#define GIT(folder, scratch, answer, code, err, ...)                                                                   \
    run(folder, scratch, (const char *const[]){"git", __VA_ARGS__, NULL}, answer, code, err)

/* One line a commit, fields divided by a character that no field holds. */
static const char format[] = "--format=%H%x1f%aI%x1f%P%x1f%s";
enum { DIVIDER = 0x1f };

/* Copies the next field; returns what follows it. */
static const char *take(const char *from, char *to, size_t size) {
    const char ends[] = {DIVIDER, '\n', '\0'};
    const size_t length = strcspn(from, ends);
    snprintf(to, size, "%.*s", (int)length, from);
    return from[length] == DIVIDER ? from + length + 1 : from + length;
}

static const char *read_commit(const char *text, dp_commit *out) {
    char parents[16 * DP_GIT_HASH];
    text = take(text, out->hash, sizeof out->hash);
    text = take(text, out->date, sizeof out->date);
    text = take(text, parents, sizeof parents);
    text = take(text, out->subject, sizeof out->subject);
    out->parents = parents[0] != '\0';
    for (const char *p = parents; *p != '\0'; p++) out->parents += *p == ' ';
    return *text == '\n' ? text + 1 : text;
}

static dflash_status read_commits(const char *text, dp_commit **out, int *count, dflash_error *err) {
    int lines = 0;
    for (const char *p = text; *p != '\0'; p++) lines += *p == '\n';
    *count = 0;
    *out = calloc((size_t)lines + 1, sizeof **out);
    if (*out == NULL) return df_fail_memory(err, "the commits", (size_t)lines * sizeof **out);
    for (const char *p = text; *p != '\0' && *count < lines; ++*count) p = read_commit(p, &(*out)[*count]);
    return DFLASH_OK;
}

dflash_status dp_git_commit(const char *repository, const char *revision, const char *scratch, dp_commit *out,
                            dflash_error *err) {
    char name[DP_GIT_NOTE], *answer = NULL;
    int code = 0;
    dflash_error why;
    snprintf(name, sizeof name, "%s^{commit}", revision);
    const dflash_status status =
        GIT(repository, scratch, &answer, &code, &why, "log", "-1", format, "--end-of-options", name, "--");
    if (status == DFLASH_ERR_REFUSED)
        return df_fail(err, DFLASH_ERR_REFUSED, "bisect.revision",
                       "The revision %.60s names no commit of %s: %.300s Give a commit, a tag or a branch.", revision,
                       repository, why.message);
    if (status != DFLASH_OK) {
        *err = why;
        return status;
    }
    read_commit(answer, out);
    free(answer);
    return DFLASH_OK;
}

dflash_status dp_git_between(const char *repository, const dp_commit *good, const dp_commit *bad, const char *scratch,
                             dp_commit **out, int *count, dflash_error *err) {
    char range[2 * DP_GIT_HASH + 4], *answer = NULL;
    int code = 0;
    *out = NULL;
    *count = 0;
    const dflash_status status =
        GIT(repository, scratch, NULL, &code, err, "merge-base", "--is-ancestor", good->hash, bad->hash);
    if (code == 1 || strcmp(good->hash, bad->hash) == 0)
        return df_fail(
            err, DFLASH_ERR_REFUSED, "bisect.ancestry",
            "The good revision %.12s is %s the bad one, %.12s: expected one of its ancestors, so that a commit "
            "between them can be the culprit. Give an earlier good revision.",
            good->hash, code == 1 ? "no ancestor of" : "the same commit as", bad->hash);
    TRY(status);
    snprintf(range, sizeof range, "%s..%s", good->hash, bad->hash);
    TRY(GIT(repository, scratch, &answer, &code, err, "log", "--reverse", "--first-parent", "--ancestry-path", format,
            range, "--"));
    const dflash_status read = read_commits(answer, out, count, err);
    free(answer);
    TRY(read);
    if (*count > 0 && strcmp((*out)[*count - 1].hash, bad->hash) == 0) return DFLASH_OK;
    return df_fail(
        err, DFLASH_ERR_REFUSED, "bisect.ancestry",
        "No chain of first parents leads from %.12s back to %.12s: the good revision lies on a branch that was "
        "merged. Give a good revision on the line of first parents, or bisect the branch itself.",
        bad->hash, good->hash);
}

dflash_status dp_git_only_in(const char *repository, const dp_commit *with, const dp_commit *without,
                             const char *scratch, dp_commit **out, int *count, dflash_error *err) {
    char range[2 * DP_GIT_HASH + 4], *answer = NULL;
    int code = 0;
    *out = NULL;
    *count = 0;
    snprintf(range, sizeof range, "%s..%s", without->hash, with->hash);
    TRY(GIT(repository, scratch, &answer, &code, err, "log", "--reverse", "--topo-order", format, range, "--"));
    const dflash_status status = read_commits(answer, out, count, err);
    free(answer);
    return status;
}

dflash_status dp_git_positions(const char *repository, const dp_commit *const *commit, int count, const char *scratch,
                               int *position, dflash_error *err) {
    static const char *const before[] = {"git", "rev-list", "--topo-order", "--reverse"};
    enum { BEFORE = sizeof before / sizeof *before };
    char *answer = NULL;
    int code = 0, at = 0;
    const char **argv = calloc(BEFORE + (size_t)count + 2, sizeof *argv);
    if (argv == NULL) return df_fail_memory(err, "the commits", (size_t)count * sizeof *argv);
    memcpy(argv, before, sizeof before);
    for (int i = 0; i < count; i++) argv[BEFORE + i] = commit[i]->hash;
    argv[BEFORE + count] = "--";
    dflash_status status = run(repository, scratch, argv, &answer, &code, err);
    free(argv);
    if (status != DFLASH_OK) return status;
    for (const char *line = answer; *line != '\0'; at++) {
        const size_t length = strcspn(line, "\n");
        for (int i = 0; i < count; i++)
            if (strlen(commit[i]->hash) == length && strncmp(commit[i]->hash, line, length) == 0) position[i] = at;
        line += length + (line[length] == '\n');
    }
    free(answer);
    return DFLASH_OK;
}

dflash_status dp_git_brought_in(const char *repository, const dp_commit *commit, const char *scratch, int *count,
                                dflash_error *err) {
    char range[2 * DP_GIT_HASH + 8], *answer = NULL;
    int code = 0;
    snprintf(range, sizeof range, "%s^1..%s", commit->hash, commit->hash);
    TRY(GIT(repository, scratch, &answer, &code, err, "rev-list", "--count", range, "--"));
    *count = atoi(answer) - 1;
    free(answer);
    return DFLASH_OK;
}

dflash_status dp_git_clone(const char *repository, const char *scratch, dflash_error *err) {
    char tree[DP_FOLDER_PATH + 16], *common = NULL;
    int code = 0;
    snprintf(tree, sizeof tree, "%s/tree", scratch);
    /* The common folder, because git shares no objects with a linked work tree. */
    TRY(GIT(repository, scratch, &common, &code, err, "rev-parse", "--path-format=absolute", "--git-common-dir"));
    common[strcspn(common, "\n")] = '\0';
    const dflash_status status = GIT(repository, scratch, NULL, &code, err, "clone", "--quiet", "--shared",
                                     "--no-checkout", "--no-tags", "--", common, tree);
    free(common);
    return status;
}

dflash_status dp_git_checkout(const char *scratch, const dp_commit *commit, dflash_error *err) {
    char tree[DP_FOLDER_PATH + 16];
    int code = 0;
    snprintf(tree, sizeof tree, "%s/tree", scratch);
    return GIT(tree, scratch, NULL, &code, err, "checkout", "--quiet", "--force", "--detach", commit->hash);
}
