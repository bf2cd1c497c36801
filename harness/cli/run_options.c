/* run_options.c - see run_options.h. */
#include "cli/run_options.h"

#include "base/atomic_file.h"
#include "base/cli.h"
#include "report/render.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_THREADS = 1024, MOST_DEVICES = 1024 };

bool dp_parse_device(const char *value, long *out) { return dp_parse_int(value, 0, MOST_DEVICES - 1, out); }

/* FORMAT=FILE */
static bool take_report(const char *command, const char *value, dp_run_options *options, int *code) {
    const char *equals = strchr(value, '=');
    dp_report_format format;
    if (equals == NULL || equals[1] == '\0' || !dp_report_format_parse(value, (size_t)(equals - value), &format))
        *code = dp_usage_error(command,
                               "--report takes FORMAT=FILE with the format text, markdown, junit, github or "
                               "html, found '%s'",
                               value);
    else if (options->report_count == DP_MOST_REPORTS)
        *code = dp_usage_error(command, "--report may be given %d times", DP_MOST_REPORTS);
    else {
        options->report[options->report_count++] = value;
        return true;
    }
    return false;
}

bool dp_run_wants_result(const dp_run_options *options) {
    return options->json || options->out != NULL || options->history != NULL || options->report_count > 0;
}

/* The options that say what computes. 1: taken, 0: another word, -1: a usage error in *code. */
static int take_engine_option(const char *command, const char *word, const char *value, dp_run_options *options,
                              int *code) {
    bool good = false;
    const char *takes = "";
    if (strcmp(word, "--isa") == 0) {
        good = dflash_isa_parse(value, &options->isa);
        takes = "generic, avx2 or avx512";
    } else if (strcmp(word, "--backend") == 0) {
        good = dflash_backend_parse(value, &options->backend);
        takes = "cpu or cuda";
    } else if (strcmp(word, "--device") == 0) {
        good = dp_parse_device(value, &options->device);
        takes = "the number of a CUDA device, from 0 on";
    } else if (strcmp(word, "--class") == 0) {
        good = dflash_class_parse(value, &options->numeric_class);
        takes = "exact, cublas or fast";
    } else if (strcmp(word, "--products") == 0) {
        good = dflash_products_parse(value, &options->products);
        takes = "f32, tf32 or bf16";
    } else {
        return 0;
    }
    if (good) return 1;
    *code = dp_usage_error(command, "%s takes %s, found '%s'", word, takes, value);
    return -1;
}

static bool takes_value(const char *word) {
    static const char *const words[] = {"-k",       "--out",   "--threads",  "--isa",     "--backend",
                                        "--device", "--class", "--products", "--history", "--report"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i]) == 0) return true;
    return false;
}

/* What cannot be written is said before the work, not after it. */
static int check_out(const char *command, const char *path, int *code) {
    dflash_error err;
    if (dp_atomic_check(path, &err) == DFLASH_OK) return 1;
    *code = dp_report_error(command, &err);
    return -1;
}

int dp_take_run_option(const char *command, int argc, char **argv, int *index, dp_run_options *options, int *code) {
    const char *word = argv[*index];
    if (strcmp(word, "--report") != 0 && dp_given_before(argv, *index)) {
        *code = dp_usage_error(command, "%s is given twice", word);
        return -1;
    }
    bool *const flag = strcmp(word, "--json") == 0   ? &options->json
                       : strcmp(word, "--list") == 0 ? &options->list
                       : dp_help_word(word)          ? &options->help
                                                     : NULL;
    if (flag != NULL) {
        *flag = true;
        return 1;
    }
    if (!takes_value(word)) return 0;
    const bool of_results = strcmp(word, "--report") == 0 || strcmp(word, "--history") == 0;
    if (of_results && strcmp(command, "check") != 0 && strcmp(command, "gate") != 0) {
        *code = dp_usage_error(command, "%s belongs to check and gate", word);
        return -1;
    }
    if (*index + 1 >= argc) {
        *code = dp_usage_error(command, "%s needs a value", word);
        return -1;
    }
    const char *value = argv[++*index];
    if (strcmp(word, "-k") == 0)
        options->filter = value;
    else if (strcmp(word, "--out") == 0) {
        options->out = value;
        return check_out(command, value, code);
    } else if (strcmp(word, "--history") == 0)
        options->history = value;
    else if (strcmp(word, "--report") == 0 && !take_report(command, value, options, code))
        return -1;
    else if (strcmp(word, "--threads") == 0 && !dp_parse_int(value, 1, MOST_THREADS, &options->threads)) {
        *code = dp_usage_error(command, "--threads takes a whole number from 1 to %d, found '%s'", MOST_THREADS, value);
        return -1;
    }
    return take_engine_option(command, word, value, options, code) < 0 ? -1 : 1;
}
