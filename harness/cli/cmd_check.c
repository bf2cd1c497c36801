/* cmd_check.c - `dflash-parity check`: the command line round dp_check. */
#include "cli/commands.h"

#include "store/cases.h"
#include "base/cli.h"
#include "base/colour.h"
#include "run/head_source.h"
#include "base/output.h"
#include "report/report.h"
#include "cli/result_output.h"
#include "cli/run_options.h"

#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: dflash-parity check --checkpoint DIR --oracle FILE [options]\n"
    "\n"
    "Runs the drafter of DIR (config.json, model.safetensors) on the oracle's inputs, compares every stage with the\n"
    "reference, and forward_round with forward_block bit for bit.\n"
    "\n"
    "  --checkpoint DIR  the checkpoint under test; its config is the authority\n"
    "  --oracle FILE     what the reference computed (oracles/FORMAT.md)\n" DP_HEAD_OPTION_HELP
    "  --precision MODE  hold the matrices as f32, bf16, q8_0, q4_0, mixed or fc (default: as stored); must be the\n"
    "                    mode that the oracle was computed with\n"
    "  --full            every measure of every stage, in wide lines\n"
    "  --explain         where each stage's limit and bound come from (the rules: dflash-parity "
    "explain)\n" DP_RUN_OPTIONS_HELP "\n"
    "Exit codes: 0 pass, 1 numeric failure, 2 usage, 3 refused, 4 runtime, 5 nothing compared.\n";

/* What is printed beside the default table. */
typedef struct check_views {
    bool full, explain;
} check_views;

enum { CASE_NAME = 256 };

/* `document` is the document of the run, NULL when nobody asked for it; it is deleted here. */
static int print_result(const dp_result *result, const dp_run_options *options, check_views views, cJSON *document) {
    int code = dp_verdict_exit_code(result->verdict);
    if (document != NULL) {
        char name[CASE_NAME];
        int length = 0;
        const char *base = dp_base_name(result->options->checkpoint, &length);
        snprintf(name, sizeof name, "%.*s", length, base);
        dp_document_add(document, name, result);
        dp_document_end(document, result->verdict);
    }
    if (options->json) {
        code = dp_print_json("check", document, code);
    } else {
        dp_coloured out;
        dp_coloured_open(stdout, &out);
        dp_report_text(out.table, result, false);
        if (views.full) dp_report_full(out.table, result);
        if (views.explain) dp_report_explain(out.table, result);
        dp_report_verdict(out.table, result);
        dp_coloured_close(&out);
        code = dp_finish_output("check", code);
    }
    code = dp_write_results("check", document, options, code);
    cJSON_Delete(document);
    return code;
}

int cmd_check(int argc, char **argv) {
    dp_run_options run = {.filter = NULL};
    dp_check_options options = {.checkpoint = NULL};
    const char *precision = "stored";
    check_views views = {.full = false};
    const dp_option own[] = {{"--checkpoint", &options.checkpoint},
                             {"--oracle", &options.oracle},
                             {"--lm-head", &options.head},
                             {"--precision", &precision}};
    int code = DP_EXIT_USAGE;
    for (int i = 1; i < argc; i++) {
        int taken = dp_take_run_option("check", argc, argv, &i, &run, &code);
        if (taken == 0) taken = dp_take_option("check", argc, argv, &i, own, sizeof own / sizeof *own, &code);
        if (taken < 0) return code;
        if (taken > 0) continue;
        if (strcmp(argv[i], "--full") == 0 || strcmp(argv[i], "--explain") == 0) {
            *(argv[i][2] == 'f' ? &views.full : &views.explain) = true;
            continue;
        }
        return dp_usage_error("check", "unknown word '%s'", argv[i]);
    }
    if (run.help) {
        fputs(help, stdout);
        return DP_EXIT_PASS;
    }
    if (options.checkpoint == NULL || options.oracle == NULL)
        return dp_usage_error("check", "--checkpoint and --oracle are both needed");
    if (!dflash_precision_parse(precision, &options.precision))
        return dp_usage_error("check", "--precision takes stored, f32, bf16, q8_0, q4_0, mixed or fc, found '%s'",
                              precision);
    options.filter = run.filter;
    options.threads = (int)run.threads;
    options.isa = run.isa;
    options.backend = run.backend;
    options.numeric_class = run.numeric_class;
    options.products = run.products;
    options.device = (int)run.device;
    if (run.list) return dp_check_list(&options);
    dp_destinations files = {.command = "check"};
    dp_run_destinations(&run, &files);
    dp_destination_spare(&files, options.oracle);
    dp_destination_spare_head(&files, options.head);
    dp_destination_spare_checkpoint(&files, options.checkpoint);
    if (dp_destinations_check(&files) != DP_EXIT_PASS) return files.code;
    options.report = dp_run_wants_result(&run);
    char *command = dp_command_line(argc, argv);
    cJSON *document = options.report
                          ? dp_document_begin("check", command != NULL ? command : "dflash-parity check", run.filter)
                          : NULL;
    dp_result result;
    dp_progress progress;
    const double size = dp_checkpoint_work(options.checkpoint);
    dp_progress_begin(&progress, "check", NULL, size);
    options.progress = (dp_progress_part){.progress = &progress, .size = size};
    dp_check(&options, &result);
    dp_progress_end(&progress);
    code = print_result(&result, &run, views, document);
    dp_result_release(&result);
    free(command);
    return code;
}
