/*
 * run_options.h - the options that check and gate share: what to compare, how, and where the result goes.
 */
#ifndef DP_RUN_OPTIONS_H
#define DP_RUN_OPTIONS_H

#include "dflash.h"

enum { DP_MOST_REPORTS = 8 };

typedef struct dp_run_options {
    const char *filter;                  /* -k */
    const char *out;                     /* --out FILE */
    const char *history;                 /* --history FILE */
    const char *report[DP_MOST_REPORTS]; /* --report FORMAT=FILE, checked for form */
    int report_count;
    bool json, list, help;
    long threads, device;
    dflash_isa isa;
    dflash_backend backend;
    dflash_class numeric_class;
    dflash_products products;
} dp_run_options;

#define DP_BACKEND_OPTIONS_HELP                                                                                        \
    "  --backend NAME    cpu (the default) or cuda\n"                                                                  \
    "  --device N        number of the CUDA device, as this process sees them (default: 0)\n"                          \
    "  --class NAME      exact (the default); with cuda also cublas and fast\n"                                        \
    "  --products NAME   how operands of products are rounded: f32 (the default), tf32 or bf16\n"

/* Of every command that compares; DP_RUN_OPTIONS_HELP adds what leaves a result file's reports. */
#define DP_COMPARE_OPTIONS_HELP                                                                                        \
    "  -k GLOB           compare only what GLOB matches; matching nothing is exit code 5\n"                            \
    "  --list            print the names that would be compared, and compare nothing\n"                                \
    "  --threads N       threads to use (default: all that this process may); the result does not depend on it\n"      \
    "  --isa NAME        reference, generic, avx2 or avx512 (default: the best here); nor on "                         \
    "this\n" DP_BACKEND_OPTIONS_HELP "  --json            print the result as JSON instead of a table\n"               \
    "  --out FILE        also write the JSON result to FILE, whole or not at all\n"

#define DP_HELP_HELP "  --help            this text\n"

#define DP_RUN_OPTIONS_HELP                                                                                            \
    DP_COMPARE_OPTIONS_HELP                                                                                            \
    "  --report F=FILE   also render the result to FILE as F: text, markdown, junit, github or html; may be "          \
    "repeated\n"                                                                                                       \
    "  --history FILE    also append one line about this run to FILE (see dflash-parity history)\n" DP_HELP_HELP

/* Tries to take argv[*index] (and its value) as a shared option. 1: taken, *index is at its last word; 0: not a shared
 * option; -1: an error, reported, the exit code is in *code. To be asked first about every word: an option that was
 * given before, shared or not, is a usage error, and so are --report and
 * --history of a command that leaves no result file; a file of --out that cannot be written is an error at once. */
int dp_take_run_option(const char *command, int argc, char **argv, int *index, dp_run_options *options, int *code);

/* Whether the whole result is wanted, and not only its table. */
bool dp_run_wants_result(const dp_run_options *options);

/* A device's number, 0 or more. */
bool dp_parse_device(const char *value, long *out);

#endif
