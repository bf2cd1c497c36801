/* cli.c - see cli.h. */
#include "base/cli.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int dp_exit_code(dflash_status status) {
    switch (status) {
    case DFLASH_OK:
        return DP_EXIT_PASS;
    case DFLASH_ERR_ARGUMENT:
        return DP_EXIT_USAGE;
    case DFLASH_ERR_REFUSED:
        return DP_EXIT_REFUSED;
    case DFLASH_ERR_IO:
    case DFLASH_ERR_MEMORY:
    case DFLASH_ERR_DEVICE:
        break;
    }
    return DP_EXIT_RUNTIME;
}

int dp_report_error(const char *command, const dflash_error *err) {
    fprintf(stderr, "dflash-parity %s: %s: %s\n", command, err->code, err->message);
    return dp_exit_code(err->status);
}

int dp_usage_error(const char *command, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "dflash-parity %s: ", command);
    vfprintf(stderr, format, args);
    fprintf(stderr, " (see dflash-parity %s --help)\n", command);
    va_end(args);
    return DP_EXIT_USAGE;
}

bool dp_given_before(char **argv, int index) {
    for (int i = 1; argv[index][0] == '-' && i < index; i++)
        if (strcmp(argv[i], argv[index]) == 0) return true;
    return false;
}

int dp_take_option(const char *command, int argc, char **argv, int *index, const dp_option *known, size_t count,
                   int *code) {
    const char *word = argv[*index];
    size_t o = 0;
    while (o < count && strcmp(word, known[o].word) != 0) o++;
    if (o == count) return 0;
    if (dp_given_before(argv, *index) || *index + 1 >= argc) {
        *code = dp_usage_error(command, *index + 1 >= argc ? "%s needs a value" : "%s is given twice", word);
        return -1;
    }
    *known[o].value = argv[++*index];
    return 1;
}

bool dp_help_word(const char *word) { return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0; }

const char *dp_plural(long long count) { return count == 1 ? "" : "s"; }

bool dp_glob(const char *pattern, const char *text) { return fnmatch(pattern, text, 0) == 0; }

bool dp_parse_int(const char *text, long low, long high, long *out) {
    char *end = NULL;
    errno = 0;
    if (text[0] != '-' && (text[0] < '0' || text[0] > '9')) return false; /* strtol would take spaces and '+' */
    const long value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < low || value > high) return false;
    *out = value;
    return true;
}

const char *dp_base_name(const char *path, int *length) {
    const char *name = path;
    for (const char *at = path; *at != '\0'; at++)
        if (*at == '/' && at[1] != '\0' && at[1] != '/') name = at + 1;
    *length = (int)strcspn(name, "/");
    return name;
}

/* Whether a shell takes the word as it stands. */
static bool plain_word(const char *word) {
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
    return word[0] != '\0' && word[strspn(word, safe)] == '\0';
}

/* Appends the word in single quotes; a quote inside becomes four characters: end, escaped quote, begin again. */
static char *append_quoted(char *at, const char *word) {
    *at++ = '\'';
    for (; *word != '\0'; word++) {
        if (*word == '\'') at = stpcpy(at, "'\\'");
        *at++ = *word;
    }
    *at++ = '\'';
    return at;
}

char *dp_command_line(int argc, char **argv) {
    size_t length = sizeof "dflash-parity";
    for (int i = 0; i < argc; i++) length += 4 * strlen(argv[i]) + 3;
    char *line = malloc(length);
    if (line == NULL) return NULL;
    char *at = stpcpy(line, "dflash-parity");
    for (int i = 0; i < argc; i++) {
        *at++ = ' ';
        at = plain_word(argv[i]) ? stpcpy(at, argv[i]) : append_quoted(at, argv[i]);
    }
    *at = '\0';
    return line;
}
