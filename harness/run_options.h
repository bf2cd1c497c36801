/*
 * run_options.h - the options that check and gate share: what to compare, how, and where the result goes.
 */
#ifndef DP_RUN_OPTIONS_H
#define DP_RUN_OPTIONS_H

#include "dflash.h"

enum { DP_MOST_REPORTS = 8 };

typedef struct dp_run_options {
    const char *filter; /* -k */
    const char *out;    /* --out FILE */
    const char *history;               /* --history FILE */
    const char *report[DP_MOST_REPORTS]; /* --report FORMAT=FILE, checked for form */
    int report_count;
    bool json, list, help;
    long threads;
    df_isa isa;
} dp_run_options;

#define DP_RUN_OPTIONS_HELP                                                                                            \
    "  -k GLOB           compare only what GLOB matches; matching nothing is exit code 5\n"                            \
    "  --list            print the names that would be compared, and compare nothing\n"                                \
    "  --threads N       threads to use (default: all cores); the result does not depend on it\n"                      \
    "  --isa NAME        generic, avx2 or avx512 (default: the best here); nor on this\n"                              \
    "  --json            print the result as JSON instead of a table\n"                                                \
    "  --out FILE        also write the JSON result to FILE, whole or not at all\n"                                    \
    "  --report F=FILE   also render the result to FILE as F: text, markdown, junit, github or html; may be repeated\n"   \
    "  --history FILE    also append one line about this run to FILE (see dflash-parity history)\n"                      \
    "  --help            this text\n"

/* Tries to take argv[*index] (and its value) as a shared option. 1: taken, *index is at its last word; 0: not a shared
 * option; -1: a usage error, reported, the exit code is in *code. */
int dp_take_run_option(const char *command, int argc, char **argv, int *index, dp_run_options *options, int *code);

/* Whether the whole result is wanted, and not only its table. */
bool dp_run_wants_result(const dp_run_options *options);

/* The last part of a path, without slashes at its end: "a/b/" gives "b/", which names a folder as well. */
const char *dp_base_name(const char *path);

/* "dflash-parity check --checkpoint X ..." from the words given; the caller frees it. NULL when out of memory. */
char *dp_command_line(int argc, char **argv);

#endif
