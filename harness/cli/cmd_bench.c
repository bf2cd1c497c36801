/*
 * cmd_bench.c - `dflash-parity bench`: the command line round bench.h, a table and JSON.
 */
#include "cli/commands.h"

#include "bench/bench.h"
#include "bench/bench_table.h"
#include "store/cases.h"
#include "base/cli.h"
#include "cli/destinations.h"
#include "base/environment.h"
#include "common/error.h"
#include "base/output.h"
#include "report/report.h"
#include "cli/run_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: dflash-parity bench [--case NAME | --checkpoint DIR] [--context C] [--repeat N] [options]\n"
    "       dflash-parity bench --table ...    every geometry, class and precision (bench --table --help)\n"
    "\n"
    "Times load, ingest_ctx, forward_round and forward_block, each beside the machine's limit for it, and for a case "
    "its\n"
    "whole check.\n"
    "\n"
    "  --case NAME       a case of the list (default qwen3-4b-dflash); its checkpoint is written when it is missing\n"
    "  --cases FILE      the list of cases (default fixtures/cases.json)\n"
    "  --checkpoint DIR  a checkpoint that is no case; no check is run\n"
    "  --context C       context rows (default 512)\n"
    "  --repeat N        repetitions, of which the median counts (default 5)\n"
    "  --torch PYTHON    also time the reference with this interpreter, same checkpoint, threads and rows\n"
    "  --sweep FILE      also write forward_round against context and rounds, for reports/cost.gp\n"
    "  --threads N       threads to use (default: all cores)\n"
    "  --isa NAME        generic, avx2 or avx512 (default: the best here)\n" DP_BACKEND_OPTIONS_HELP
    "  --json            print the result as JSON instead of a table\n"
    "  --out FILE        also write the JSON result to FILE, whole or not at all\n"
    "  --help            this text\n"
    "\n"
    "Exit codes: 0 measured, 2 usage, 3 refused (the check did not pass), 4 runtime.\n";

typedef struct words {
    const char *name, *cases, *checkpoint, *context, *repeat, *python, *sweep;
} words;

enum { MOST_FIGURES = 20 };

typedef struct figure {
    const char *name, *unit;
    double value;
} figure;

static int list_figures(const dp_bench *b, figure out[MOST_FIGURES]) {
    int n = 0;
    if (b->oracle != NULL) {
        out[n++] = (figure){"check, end to end", "s", b->check};
        out[n++] = (figure){"peak memory of the check, of the weights", "x", b->peak_bytes / (double)b->weight_bytes};
    }
    out[n++] = (figure){"load from page cache", "s", b->load};
    out[n++] = (figure){"machine, multiply-adds in registers", "G/s", 1e-9 * b->machine.macs_per_second};
    out[n++] = (figure){"machine, bytes read", "GB/s", 1e-9 * b->machine.bytes_per_second};
    const struct {
        const char *name, *share;
        double seconds;
        const dp_work *work;
    } forwards[] = {{"ingest_ctx of the context", "ingest_ctx, of the limit", b->ingest, &b->ingest_work},
                    {"forward_round", "forward_round, of the limit", b->round, &b->round_work},
                    {"forward_block", "forward_block, of the limit", b->block, &b->block_work}};
    for (size_t i = 0; i < sizeof forwards / sizeof *forwards; i++) {
        const double limit = dp_bench_limit(forwards[i].work, &b->machine);
        out[n++] = (figure){forwards[i].name, "ms", 1e3 * forwards[i].seconds};
        out[n++] = (figure){forwards[i].share, "%", 100.0 * limit / forwards[i].seconds};
    }
    if (b->torch_f32 > 0.0) {
        out[n++] = (figure){"PyTorch float32, the same block", "ms", 1e3 * b->torch_f32};
        out[n++] = (figure){"PyTorch float32, of forward_round", "x", b->torch_f32 / b->round};
        out[n++] = (figure){"PyTorch bfloat16, the same block", "ms", 1e3 * b->torch_bf16};
        out[n++] = (figure){"PyTorch bfloat16, of forward_round", "x", b->torch_bf16 / b->round};
    }
    return n;
}

static cJSON *bench_json(const dp_bench *b, const figure *figures, int count, const char *command) {
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "schema", "dflash-parity-bench");
    cJSON_AddStringToObject(json, "command", command);
    cJSON_AddStringToObject(json, "case", b->name);
    cJSON_AddStringToObject(json, "precision", dflash_precision_name(b->precision));
    cJSON_AddNumberToObject(json, "context_rows", (double)b->context);
    cJSON_AddNumberToObject(json, "threads", b->threads);
    cJSON_AddStringToObject(json, "isa", b->isa);
    dp_add_device(json, &b->device);
    cJSON_AddNumberToObject(json, "weight_bytes", (double)b->weight_bytes);
    if (b->torch_version[0] != '\0') cJSON_AddStringToObject(json, "torch", b->torch_version);
    cJSON *list = cJSON_AddArrayToObject(json, "figures");
    for (int i = 0; i < count; i++) {
        cJSON *entry = cJSON_CreateObject();
        cJSON_AddStringToObject(entry, "name", figures[i].name);
        cJSON_AddNumberToObject(entry, "value", figures[i].value);
        cJSON_AddStringToObject(entry, "unit", figures[i].unit);
        cJSON_AddItemToArray(list, entry);
    }
    cJSON_AddItemToObject(json, "environment", dp_environment());
    return json;
}

static int report(const dp_bench *b, const dp_run_options *run, const char *command) {
    figure figures[MOST_FIGURES];
    const int count = list_figures(b, figures);
    cJSON *json = bench_json(b, figures, count, command);
    if (!run->json) {
        printf("%s: %.2f GB of weights, %ld context rows, %d threads, %s, median of %ld\n", b->name,
               1e-9 * (double)b->weight_bytes, b->context, b->threads, b->isa, b->repeat);
        for (int i = 0; i < count; i++)
            printf("  %-42s %10.3f %s\n", figures[i].name, figures[i].value, figures[i].unit);
    }
    if (!run->json && b->device.device[0] != '\0')
        printf("  on %s, class %s, products %s\n", b->device.device, b->device.numeric_class, b->device.products);
    int code = run->json ? dp_print_json("bench", json, DP_EXIT_PASS) : dp_finish_output("bench", DP_EXIT_PASS);
    dflash_error err;
    if (run->out != NULL && dp_write_json(run->out, json, &err) != DFLASH_OK) code = dp_report_error("bench", &err);
    cJSON_Delete(json);
    return code;
}

static dflash_status write_sweep(const dp_bench *b, const char *path, dflash_error *err) {
    FILE *to = fopen(path, "w");
    dflash_status status = to != NULL ? dp_bench_sweep(b, to, err) : DFLASH_OK;
    const bool written = to != NULL && !ferror(to);
    if (to != NULL && fclose(to) == 0 && written) return status;
    return df_fail(err, DFLASH_ERR_IO, "file.write", "Writing %s failed: %s. Check the folder and its free space.",
                   path, strerror(errno));
}

static int run_bench(dp_bench *b, const words *w, const dp_run_options *run, const char *command) {
    dflash_error err;
    dflash_status status = dp_bench_run(b, &err);
    const int code = status == DFLASH_OK ? report(b, run, command) : DP_EXIT_PASS;
    if (status == DFLASH_OK && w->sweep != NULL) status = write_sweep(b, w->sweep, &err);
    return status == DFLASH_OK ? code : dp_report_error("bench", &err);
}

/* The named case of the list: its checkpoint is made when it is missing. */
static int bench_case(dp_bench *b, const words *w, const dp_run_options *run, const char *command) {
    dp_case_list list;
    dflash_error err;
    const dp_case *item = NULL;
    int code;
    if (dp_cases_read(w->cases, &list, &err) != DFLASH_OK) return dp_report_error("bench", &err);
    for (int i = 0; i < list.count; i++)
        if (strcmp(list.item[i].name, w->name) == 0) item = &list.item[i];
    if (item == NULL) {
        code = dp_usage_error("bench", "%s has no case '%s'", w->cases, w->name);
    } else if (dp_case_prepare(item, &err) != DFLASH_OK) {
        code = dp_report_error("bench", &err);
    } else {
        b->name = item->name;
        b->checkpoint = item->checkpoint;
        b->oracle = item->oracle;
        b->head = item->head;
        b->precision = item->precision;
        code = run_bench(b, w, run, command);
    }
    dp_cases_release(&list);
    return code;
}

int cmd_bench(int argc, char **argv) {
    if (dp_bench_wants_table(argc, argv)) return cmd_bench_table(argc, argv);
    words w = {.name = "qwen3-4b-dflash", .cases = "fixtures/cases.json", .context = "512", .repeat = "5"};
    dp_run_options run = {.filter = NULL};
    dp_bench b = {.name = NULL};
    const dp_option own[] = {{"--case", &w.name},       {"--cases", &w.cases},   {"--checkpoint", &w.checkpoint},
                             {"--context", &w.context}, {"--repeat", &w.repeat}, {"--torch", &w.python},
                             {"--sweep", &w.sweep}};
    int code = DP_EXIT_USAGE;
    for (int i = 1; i < argc; i++) {
        int taken = dp_take_run_option("bench", argc, argv, &i, &run, &code);
        if (taken == 0) taken = dp_take_option("bench", argc, argv, &i, own, sizeof own / sizeof *own, &code);
        if (taken < 0) return code;
        if (taken == 0) return dp_usage_error("bench", "unknown word '%s'", argv[i]);
    }
    if (run.help) {
        fputs(help, stdout);
        return DP_EXIT_PASS;
    }
    if (run.filter != NULL || run.list)
        return dp_usage_error("bench", "%s does not apply here; --case names the one case", run.list ? "--list" : "-k");
    if (!dp_parse_int(w.context, 1, DP_BENCH_MOST_CONTEXT, &b.context))
        return dp_usage_error("bench", "--context takes a whole number from 1 to %d, found '%s'", DP_BENCH_MOST_CONTEXT,
                              w.context);
    if (!dp_parse_int(w.repeat, 1, DP_BENCH_MOST_REPEATS, &b.repeat))
        return dp_usage_error("bench", "--repeat takes a whole number from 1 to %d, found '%s'", DP_BENCH_MOST_REPEATS,
                              w.repeat);
    b.threads_asked = (int)run.threads;
    b.isa_asked = run.isa;
    b.backend = run.backend;
    b.numeric_class = run.numeric_class;
    b.products = run.products;
    b.device_asked = (int)run.device;
    b.python = w.python;
    dp_destinations files = {.command = "bench"};
    dp_destination_add(&files, (dp_destination){"--out", run.out, false});
    dp_destination_add(&files, (dp_destination){"--sweep", w.sweep, false});
    dp_destination_spare_checkpoint(&files, w.checkpoint);
    if (dp_destinations_check(&files) != DP_EXIT_PASS) return files.code;
    char *line = dp_command_line(argc, argv);
    const char *command = line != NULL ? line : "dflash-parity bench";
    if (w.checkpoint != NULL) {
        b.name = b.checkpoint = w.checkpoint;
        code = run_bench(&b, &w, &run, command);
    } else {
        code = bench_case(&b, &w, &run, command);
    }
    free(line);
    return code;
}
