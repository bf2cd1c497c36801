/*
 * cli.h - what all commands of dflash-parity share: exit codes, error lines, name patterns, option values.
 */
#ifndef DP_CLI_H
#define DP_CLI_H

#include "dflash.h"

/* Exit codes of every command. */
enum {
    DP_EXIT_PASS = 0,
    DP_EXIT_FAIL = 1, /* a numeric failure */
    DP_EXIT_USAGE = 2,
    DP_EXIT_REFUSED = 3, /* geometry, provenance, census, malformed files */
    DP_EXIT_RUNTIME = 4, /* I/O, memory, device */
    DP_EXIT_NOTHING = 5  /* nothing was compared */
};

/* The exit code for a status: 0, 2, 3 or 4. */
int dp_exit_code(dflash_status status);

/* Prints "dflash-parity COMMAND: CODE: message" to stderr and returns the exit code. */
int dp_report_error(const char *command, const dflash_error *err);

/* Prints "dflash-parity COMMAND: text (see dflash-parity COMMAND --help)" to stderr and returns DP_EXIT_USAGE. */
int dp_usage_error(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A command's own option that takes a value; *value stays as it is until the option is given. */
typedef struct dp_option {
    const char *word;
    const char **value;
} dp_option;

/* Tries to take argv[*index] and its value as one of `known`. 1: taken, *index is at the value; 0: another word; -1: it
 * was given before, of which two values one would be left out without a word, or has no value: a usage error, reported,
 * DP_EXIT_USAGE in *code. */
int dp_take_option(const char *command, int argc, char **argv, int *index, const dp_option *known, size_t count,
                   int *code);

/* Whether argv[index] is an option that stands before it too. */
bool dp_given_before(char **argv, int index);

/* --help or -h. */
bool dp_help_word(const char *word);

/* "" for one thing, "s" for any other number of them. */
const char *dp_plural(long long count);

/* Shell-style pattern (* ? [..]) over a whole name; dots and slashes are ordinary characters. */
bool dp_glob(const char *pattern, const char *text);

/* Parses the whole of `text` as a decimal integer within [low, high]. */
bool dp_parse_int(const char *text, long low, long high, long *out);

/* Of the last part of a path: where it begins, and its length without the slashes at its end. */
const char *dp_base_name(const char *path, int *length);

/* "dflash-parity check --checkpoint X ..." from the words given; the caller frees it. NULL when out of memory. */
char *dp_command_line(int argc, char **argv);

#endif
