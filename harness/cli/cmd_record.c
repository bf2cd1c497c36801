/* cmd_record.c - `dflash-parity record`: the command line round dp_record_to_file. */
#include "cli/commands.h"

#include "base/cli.h"
#include "base/output.h"
#include "judge/record_file.h"
#include "cli/run_options.h"
#include "cli/subject_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: dflash-parity record (--checkpoint DIR --oracle FILE | --case NAME) --out FILE [options]\n"
    "\n"
    "Runs the drafter on the oracle's inputs and writes every stage, bit by bit, with the inputs, the geometry, the\n"
    "digests of the weights and the facts of the engine: a recording (oracles/FORMAT.md), which compare and bisect\n"
    "read. The oracle lends its inputs alone; nothing is judged.\n"
    "\n" DP_SUBJECT_OPTIONS_HELP "  --out FILE        the recording, written whole or not at all\n"
    "  --threads N       threads to use (default: all cores)\n"
    "  --isa NAME        generic, avx2 or avx512 (default: the best here)\n" DP_BACKEND_OPTIONS_HELP
    "  --json            print a summary as JSON\n"
    "  --help            this text\n"
    "\n"
    "Exit codes: 0 written, 2 usage, 3 refused, 4 runtime.\n";

static int64_t values_in(const dp_recording *stages) {
    int64_t total = 0;
    for (int i = 0; i < stages->count; i++) total += dp_dims_product(stages->stage[i].rank, stages->stage[i].dim);
    return total;
}

static int print_result(const dp_run_record *run, const char *path, bool json, const char *command) {
    if (!json) {
        printf("%s: %d stages, %lld values, precision %s, class %s, isa %s, %d threads", path, run->stages.count,
               (long long)values_in(&run->stages), dflash_precision_name(run->precision),
               dflash_class_name(run->engine.numeric_class), dflash_engine_isa(run->handle),
               dflash_engine_threads(run->handle));
        if (run->head != NULL) printf(", output head %s", dflash_table_view(run->head).name);
        printf("\n");
        return dp_finish_output("record", DP_EXIT_PASS);
    }
    cJSON *document = cJSON_CreateObject();
    cJSON_AddStringToObject(document, "schema", "dflash-parity-record");
    cJSON_AddNumberToObject(document, "schema_version", 1);
    cJSON_AddStringToObject(document, "command", command);
    cJSON_AddStringToObject(document, "file", path);
    cJSON_AddNumberToObject(document, "stages", run->stages.count);
    cJSON_AddNumberToObject(document, "values", (double)values_in(&run->stages));
    cJSON_AddStringToObject(document, "precision", dflash_precision_name(run->precision));
    cJSON_AddItemToObject(document, "engine", dp_engine_facts(run->handle, &run->engine));
    const int code = dp_print_json("record", document, DP_EXIT_PASS);
    cJSON_Delete(document);
    return code;
}

static int run(const dp_run_setup *setup, const dp_run_options *options, const char *command) {
    dp_run_record record;
    dflash_error err;
    const dflash_status status = dp_record_to_file(setup, command, options->out, &record, &err);
    const int code = status == DFLASH_OK ? print_result(&record, options->out, options->json, command)
                                         : dp_report_error("record", &err);
    dp_run_record_release(&record);
    return code;
}

int cmd_record(int argc, char **argv) {
    dp_run_options options = {.filter = NULL};
    dp_subject_options subject = {.cases = NULL};
    int code = DP_EXIT_USAGE;
    for (int i = 1; i < argc; i++) {
        int taken = dp_take_run_option("record", argc, argv, &i, &options, &code);
        if (taken == 0) taken = dp_take_subject_option("record", argc, argv, &i, &subject, &code);
        if (taken < 0) return code;
        if (taken == 0) return dp_usage_error("record", "unknown word '%s'", argv[i]);
    }
    if (options.help) {
        fputs(help, stdout);
        return DP_EXIT_PASS;
    }
    if (options.list || options.filter != NULL)
        return dp_usage_error("record", "a recording holds every stage: -k and --list do not apply");
    if (options.out == NULL) return dp_usage_error("record", "--out FILE is needed");
    dp_run_setup setup = {.engine = {.threads = (int)options.threads,
                                     .isa = options.isa,
                                     .backend = options.backend,
                                     .numeric_class = options.numeric_class,
                                     .products = options.products,
                                     .device = (int)options.device}};
    dp_subject_source source;
    code = dp_subject_resolve("record", &subject, &source, &setup);
    if (code != DP_EXIT_PASS) return code;
    char *command = dp_command_line(argc, argv);
    code = dp_subject_spared("record", options.out, &setup);
    if (code == DP_EXIT_PASS) code = run(&setup, &options, command != NULL ? command : "dflash-parity record");
    free(command);
    dp_subject_source_release(&source);
    return code;
}
