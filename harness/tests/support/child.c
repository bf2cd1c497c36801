/* child.c - see child.h. */
#include "support/child.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <regex.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_WORDS = 24, CANNOT_RUN = 127 };

child_limits child_next;

/* In the child, between fork and exec: only what is safe there. */
static void become(char *const *argv, const child_limits *limits, int out, int err) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that is out of time takes its program along */
    if (limits->file_size > 0) {
        const struct rlimit limit = {.rlim_cur = limits->file_size, .rlim_max = limits->file_size};
        signal(SIGXFSZ, SIG_IGN); /* the write then fails, as it does on a full disk */
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(CANNOT_RUN);
    }
    if (dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0) _exit(CANNOT_RUN);
    execv(argv[0], argv);
    _exit(CANNOT_RUN);
}

/* A terminal's two ends. */
static void open_terminal(int *ours, int *theirs) {
    const struct winsize size = {.ws_row = 24, .ws_col = 100};
    ck_assert_msg(openpty(ours, theirs, NULL, NULL, &size) == 0,
                  "no pseudo terminal can be opened (%s): what is shown on a terminal needs /dev/pts", strerror(errno));
    ck_assert(fcntl(*ours, F_SETFD, FD_CLOEXEC) == 0 && fcntl(*theirs, F_SETFD, FD_CLOEXEC) == 0);
}

/* What the terminal is sent, until the program that has its other end is gone. */
static void drain(int terminal, FILE *to) {
    char text[4096];
    for (ssize_t n; (n = read(terminal, text, sizeof text)) > 0;) fwrite(text, 1, (size_t)n, to);
    close(terminal);
}

static char *contents(FILE *file) {
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    const size_t length = (size_t)ftell(file);
    char *text = malloc(length + 1);
    ck_assert_ptr_nonnull(text);
    rewind(file);
    ck_assert_uint_eq(fread(text, 1, length, file), length);
    text[length] = '\0';
    fclose(file);
    return text;
}

/* Takes lines of progress out of a log: a machine under load gets some from jobs that are quick on others. */
static void without_progress(char *text) {
    regex_t progress;
    ck_assert_int_eq(regcomp(&progress, "^[a-z ]+: [0-9]+ (%|[a-z]+)(, .* left)?(: .*)?$", REG_EXTENDED | REG_NOSUB),
                     0);
    char *to = text;
    for (char *line = text; *line != '\0';) {
        const size_t length = strcspn(line, "\n"), step = length + (line[length] == '\n');
        const char end = line[length];
        line[length] = '\0';
        const bool shown = regexec(&progress, line, 0, NULL, 0) == 0;
        line[length] = end;
        if (!shown) {
            memmove(to, line, step);
            to += step;
        }
        line += step;
    }
    *to = '\0';
    regfree(&progress);
}

child child_words(const char *const *words, int count) {
    char *argv[MOST_WORDS + 2] = {strdup(DP_BUILD_DIR "/dflash-parity")};
    child run = {.code = -1};
    int status = 0;
    const child_limits limits = child_next;
    child_next = (child_limits){.out = NULL};
    ck_assert_int_le(count, MOST_WORDS);
    for (int i = 0; i < count; i++) argv[i + 1] = strdup(words[i]);
    FILE *out = tmpfile(), *err = tmpfile();
    ck_assert(out != NULL && err != NULL);
    const int elsewhere = limits.out != NULL ? open(limits.out, O_WRONLY | O_CLOEXEC) : -1;
    ck_assert(limits.out == NULL || elsewhere >= 0);
    int ours = -1, theirs = -1;
    if (limits.terminal) open_terminal(&ours, &theirs);
    fflush(NULL);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        become(argv, &limits, elsewhere >= 0 ? elsewhere : fileno(out), limits.terminal ? theirs : fileno(err));
    if (limits.terminal) {
        close(theirs);
        drain(ours, err);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    run.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (elsewhere >= 0) close(elsewhere);
    for (int i = 0; i <= count; i++) free(argv[i]);
    run.out = contents(out);
    run.err = contents(err);
    if (!limits.terminal) without_progress(run.err);
    ck_assert_msg(run.code != CANNOT_RUN, "%s could not be run", DP_BUILD_DIR "/dflash-parity");
    /* Streams that are no terminal hold no escape sequences. */
    ck_assert_ptr_null(strchr(run.out, '\x1b'));
    ck_assert(limits.terminal || strchr(run.err, '\x1b') == NULL);
    return run;
}

void child_release(child *run) {
    free(run->out);
    free(run->err);
    *run = (child){.out = NULL};
}

static void holds(const child *run, const char *text, const char *word) {
    if (word == NULL) return;
    ck_assert_msg(word[0] == '\0' ? text[0] == '\0' : strstr(text, word) != NULL,
                  "\"%s\" was expected; code %d, output: %s, errors: %s", word, run->code, run->out, run->err);
}

void child_expect(child run, int code, const char *out, const char *err) {
    ck_assert_msg(run.code == code, "code %d is not %d; output: %s, errors: %s", run.code, code, run.out, run.err);
    holds(&run, run.out, out);
    holds(&run, run.err, err);
    child_release(&run);
}

cJSON *child_json(child run, int code) {
    ck_assert_msg(run.code == code, "code %d is not %d; output: %s, errors: %s", run.code, code, run.out, run.err);
    cJSON *document = cJSON_ParseWithOpts(run.out, NULL, true);
    ck_assert_msg(document != NULL, "not JSON: %s", run.out);
    child_release(&run);
    return document;
}

cJSON *child_case(child run, int code) {
    cJSON *document = child_json(run, code);
    cJSON *cases = cJSON_GetObjectItemCaseSensitive(document, "cases");
    ck_assert_int_eq(cJSON_GetArraySize(cases), 1);
    cJSON *one = cJSON_DetachItemFromArray(cases, 0);
    ck_assert_str_eq(child_text(document, "schema"), "dflash-parity-result");
    ck_assert_str_eq(child_text(document, "verdict"), child_text(one, "verdict"));
    cJSON_Delete(document);
    return one;
}

const char *child_text(const cJSON *object, const char *key) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    ck_assert_msg(text != NULL, "there is no string %s", key);
    return text;
}
