/* cmd_compare.c - `dflash-parity compare`: the command line round dp_compare_files. */
#include "cli/commands.h"

#include "base/cli.h"
#include "bisect/compare_report.h"
#include "cli/destinations.h"
#include "base/output.h"
#include "report/report.h"
#include "cli/run_options.h"

#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: dflash-parity compare A.h5 B.h5 [options]\n"
    "\n"
    "Holds B against A, stage by stage. Either is a recording, by this program or any other engine, or an oracle, "
    "which\n"
    "stands for its float64 run (oracles/FORMAT.md). No checkpoint is needed. Files of other geometry, inputs, weights "
    "or\n"
    "precision are refused; stages that are lacking, extra or of another shape fail.\n"
    "\n"
    "  --oracle FILE        an oracle of the same run that lends its limits (default: A or B, if one is an oracle)\n"
    "  --expect WHAT        identical, equal, ulp:N or envelope (default: envelope where there are limits, otherwise\n"
    "                       identical)\n"
    "  --across-precisions  let precisions differ, and with them dtype and bytes of the weights; the report says so\n"
    "  -k GLOB              compare only the stages that GLOB matches; matching nothing is exit code 5\n"
    "  --list               print the names of the stages that would be compared, and compare nothing\n"
    "  --json               print the result as JSON instead of a table\n"
    "  --out FILE           also write the JSON result to FILE, whole or not at all\n"
    "  --help               this text\n"
    "\n"
    "Exit codes: 0 pass, 1 some stage is not what was expected, 2 usage, 3 refused, 4 runtime, 5 nothing compared.\n";

static int print_result(const dp_file_comparison *result, const dp_run_options *options, const char *command) {
    int code = dp_verdict_exit_code(result->verdict);
    cJSON *json = options->json || options->out != NULL ? dp_comparison_json(result, command) : NULL;
    if (options->json) {
        code = dp_print_json("compare", json, code);
    } else {
        dp_comparison_text(stdout, result);
        code = dp_finish_output("compare", code);
    }
    dflash_error err;
    if (options->out != NULL && dp_write_json(options->out, json, &err) != DFLASH_OK)
        code = dp_report_error("compare", &err);
    cJSON_Delete(json);
    return code;
}

/* The names that the geometry of the two files demands. */
static int list(const dp_compare_options *options) {
    dp_file_pair pair;
    dflash_error err;
    int listed = 0;
    const dflash_status status = dp_file_pair_open(&options->files, &pair, &err);
    for (int i = 0; status == DFLASH_OK && i < pair.stages.count; i++)
        if (options->filter == NULL || dp_glob(options->filter, pair.stages.spec[i].name))
            listed += printf("%s\n", pair.stages.spec[i].name) > 0;
    dp_file_pair_release(&pair);
    if (status != DFLASH_OK) return dp_report_error("compare", &err);
    if (listed == 0) fprintf(stderr, "dflash-parity compare: the filter matches no stage; run --list without -k.\n");
    return dp_finish_output("compare", listed > 0 ? DP_EXIT_PASS : DP_EXIT_NOTHING);
}

/* Takes one of compare's own words. 1: taken, 0: another word, -1: a usage error in *code. */
static int take(dp_compare_options *options, int argc, char **argv, int *index, int *code) {
    const char *word = argv[*index];
    if (strcmp(word, "--across-precisions") == 0) {
        options->files.across_precisions = true;
        return 1;
    }
    const char *expect = NULL;
    const dp_option own[] = {{"--expect", &expect}, {"--oracle", &options->files.limits}};
    const int taken = dp_take_option("compare", argc, argv, index, own, 2, code);
    if (expect != NULL && !dp_expectation_parse(expect, options)) {
        *code = dp_usage_error("compare", "--expect takes identical, equal, ulp:N or envelope, found '%s'", expect);
        return -1;
    }
    if (taken != 0) return taken;
    if (word[0] == '-') return 0;
    const char **file = options->files.a == NULL ? &options->files.a : &options->files.b;
    if (*file != NULL) return 0;
    *file = word;
    return 1;
}

int cmd_compare(int argc, char **argv) {
    dp_run_options run = {.filter = NULL};
    dp_compare_options options = {.filter = NULL};
    int code = DP_EXIT_USAGE;
    for (int i = 1; i < argc; i++) {
        int taken = dp_take_run_option("compare", argc, argv, &i, &run, &code);
        if (taken == 0) taken = take(&options, argc, argv, &i, &code);
        if (taken < 0) return code;
        if (taken == 0) return dp_usage_error("compare", "unknown word '%s'", argv[i]);
    }
    if (run.help) {
        fputs(help, stdout);
        return DP_EXIT_PASS;
    }
    if (options.files.b == NULL) return dp_usage_error("compare", "two files are needed");
    if (run.threads != 0 || run.isa != DFLASH_ISA_BEST)
        return dp_usage_error("compare", "nothing is run: --threads and --isa do not apply");
    if (run.device != 0) return dp_usage_error("compare", "nothing is run: --device does not apply");
    options.filter = run.filter;
    if (run.list) return list(&options);
    dp_destinations files = {.command = "compare"};
    dp_destination_add(&files, (dp_destination){"--out", run.out, false});
    dp_destination_spare(&files, options.files.a);
    dp_destination_spare(&files, options.files.b);
    dp_destination_spare(&files, options.files.limits);
    if (dp_destinations_check(&files) != DP_EXIT_PASS) return files.code;
    char *command = dp_command_line(argc, argv);
    dp_file_comparison result;
    dp_compare_files(&options, &result);
    code = print_result(&result, &run, command != NULL ? command : "dflash-parity compare");
    dp_file_comparison_release(&result);
    free(command);
    return code;
}
