/*
 * cmd_synth.c - the command line of `dflash-parity synth`: options in, one line about the result out.
 *
 * The work is synth.c's.
 */
#include "cli/cmd_synth.h"

#include "base/cli.h"
#include "base/clock.h"
#include "common/processors.h"
#include "base/output.h"
#include "store/synth.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char COMMAND[] = "synth";

static const char HELP[] =
    "usage: dflash-parity synth --config FILE --seed N --out DIR [options]\n"
    "\n"
    "Writes DIR/config.json (a copy of FILE) and DIR/model.safetensors with every tensor that the config asks for,\n"
    "filled from the seed. The same options give the same bytes on every machine.\n"
    "\n"
    "  --config FILE     the config.json of a drafter of any family\n"
    "  --seed N          an unsigned 64-bit number\n"
    "  --out DIR         made when missing; files of the same names are replaced\n"
    "  --dtype TYPE      bf16 (default), f16 or f32\n"
    "  --profile NAME    unit (default): activations of ordinary size; hot: late residual streams of 1e3 to 1e4;\n"
    "                    sharp: attention scores beyond the range of exp (the config needs attention_bias)\n"
    "  --lm-head         adds lm_head.weight [V, H], an output head of the target; needs vocab_size\n"
    "  --embed-tokens    adds embed_tokens.weight [V, H], the embedding table of the target; needs vocab_size\n"
    "  --codebook-suffix  names dflash2's codebooks with \".weight\" at the end\n"
    "  --threads N       default: all cores; the bytes do not depend on it\n"
    "  --help            this text\n"
    "\n"
    "Exit codes: 0 written, 2 usage, 3 config refused, 4 a file, memory or thread failed.\n";

typedef struct arguments {
    const char *config, *seed, *out, *dtype, *profile, *threads;
    unsigned extras;
    bool help;
} arguments;

/* Fills the arguments; false after printing a usage error. */
static bool read_arguments(int argc, char **argv, arguments *a) {
    const dp_option options[] = {{"--config", &a->config}, {"--seed", &a->seed},       {"--out", &a->out},
                                 {"--dtype", &a->dtype},   {"--profile", &a->profile}, {"--threads", &a->threads}};
    const struct {
        const char *name;
        dp_synth_extra flag;
    } extras[] = {{"--lm-head", DP_SYNTH_LM_HEAD},
                  {"--codebook-suffix", DP_SYNTH_CODEBOOK_SUFFIX},
                  {"--embed-tokens", DP_SYNTH_EMBED_TOKENS}};
    enum { EXTRAS = sizeof extras / sizeof *extras };
    for (int i = 1; i < argc; i++) {
        int code;
        if (dp_help_word(argv[i])) {
            a->help = true;
            return true;
        }
        size_t e = 0;
        while (e < EXTRAS && strcmp(argv[i], extras[e].name) != 0) e++;
        if (e < EXTRAS) {
            if ((a->extras & extras[e].flag) != 0) {
                dp_usage_error(COMMAND, "%s is given twice", argv[i]);
                return false;
            }
            a->extras |= extras[e].flag;
            continue;
        }
        const int taken = dp_take_option(COMMAND, argc, argv, &i, options, sizeof options / sizeof *options, &code);
        if (taken == 0) dp_usage_error(COMMAND, "unknown word '%s'", argv[i]);
        if (taken <= 0) return false;
    }
    return true;
}

static bool parse_seed(const char *value, uint64_t *out) {
    char *end = NULL;
    if (value[0] < '0' || value[0] > '9') return false; /* strtoull would take signs and spaces */
    errno = 0;
    *out = strtoull(value, &end, 10);
    return errno == 0 && *end == '\0';
}

static int all_cores(void) {
    const int cores = df_usable_processors();
    return cores > DP_SYNTH_MAX_THREADS ? DP_SYNTH_MAX_THREADS : cores;
}

int cmd_synth(int argc, char **argv) {
    arguments a = {0};
    dp_synth_options options = {.dtype = DF_BF16, .profile = DP_SYNTH_UNIT, .threads = all_cores()};
    if (!read_arguments(argc, argv, &a)) return DP_EXIT_USAGE;
    if (a.help) {
        fputs(HELP, stdout);
        return DP_EXIT_PASS;
    }
    if (a.config == NULL || a.seed == NULL || a.out == NULL) {
        return dp_usage_error(COMMAND, "--config, --seed and --out are all needed");
    }
    long threads = options.threads;
    if (!parse_seed(a.seed, &options.seed)) {
        return dp_usage_error(COMMAND, "--seed takes a number from 0 to 2^64 - 1, found '%s'", a.seed);
    }
    if (a.dtype != NULL && !dp_synth_parse_dtype(a.dtype, &options.dtype)) {
        return dp_usage_error(COMMAND, "--dtype takes bf16, f16 or f32, found '%s'", a.dtype);
    }
    if (a.profile != NULL && !dp_synth_parse_profile(a.profile, &options.profile)) {
        return dp_usage_error(COMMAND, "--profile takes unit, hot or sharp, found '%s'", a.profile);
    }
    if (a.threads != NULL && !dp_parse_int(a.threads, 1, DP_SYNTH_MAX_THREADS, &threads)) {
        return dp_usage_error(COMMAND, "--threads takes a number from 1 to %d, found '%s'", DP_SYNTH_MAX_THREADS,
                              a.threads);
    }
    options.threads = (int)threads;
    options.extras = a.extras;

    dflash_error err;
    dp_synth_result result;
    const double started = dp_seconds();
    if (dp_synth_write(a.config, a.out, &options, &result, &err) != DFLASH_OK) return dp_report_error(COMMAND, &err);
    const double seconds = dp_seconds() - started;
    printf("%s/model.safetensors: %d tensors, %" PRId64 " parameters, %" PRIu64 " bytes in %.2f s (%.0f MB/s)\n", a.out,
           result.tensors, result.parameters, result.bytes, seconds, (double)result.bytes / 1e6 / seconds);
    return dp_finish_output(COMMAND, DP_EXIT_PASS);
}
