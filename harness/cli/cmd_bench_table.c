/* cmd_bench_table.c - `dflash-parity bench --table`: the command line round bench_table.h. */
#include "bench/bench_table.h"

#include "base/cli.h"
#include "common/error.h"
#include "base/output.h"
#include "report/report.h"
#include "cli/run_options.h"

#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: dflash-parity bench --table [--geometry NAME]... [--torch PYTHON] [options]\n"
    "\n"
    "One table of times: forward_round over a context and the ingestion of 4 rows with fc, for each geometry in every\n"
    "class and precision, beside the time that their bytes take at the read bandwidth probed in the same run, and "
    "beside\n"
    "PyTorch's time of the same block (eager, as a CUDA graph, compiled as a CUDA graph).\n"
    "\n"
    "  --geometry NAME   a folder of the configs, may be repeated (default: muse-glimmer-30b-dflash2,\n"
    "                    gemma4-31b-dflash, qwen3-4b-dflash); its checkpoint is written when it is missing\n"
    "  --configs DIR     the folder of NAME/config.json (default fixtures/configs)\n"
    "  --checkpoints DIR the folder of the checkpoints (default build/checkpoints)\n"
    "  --context C       context rows (default 2048)\n"
    "  --repeat N        turns, of which the median counts (default 100)\n"
    "  --torch PYTHON    also time PyTorch with this interpreter; one that cannot is said, and exit code 4\n"
    "  -k GLOB           only the rows that GLOB matches (NAME/fast/bf16, NAME/pytorch); none is exit code 5\n"
    "  --list            print the names of the rows and measure nothing\n"
    "  --as FORMAT       text (the default) or markdown\n"
    "  --threads N       threads of the CPU backend and of the preparations (default: all cores)\n"
    "  --isa NAME        of the CPU backend: generic, avx2 or avx512 (default: the best here)\n"
    "  --backend NAME    cpu (the default; the exact class alone) or cuda\n"
    "  --device N        number of the CUDA device (default: 0)\n"
    "  --json            print the result as JSON instead of a table\n"
    "  --out FILE        also write the JSON result to FILE, whole or not at all\n"
    "  --help            this text\n"
    "\n"
    "Exit codes: 0 measured, 2 usage, 3 refused, 4 runtime (no device; PyTorch could not be timed), 5 nothing "
    "matched.\n";

static const char *const usual[] = {"muse-glimmer-30b-dflash2", "gemma4-31b-dflash", "qwen3-4b-dflash"};

typedef struct words {
    const char *context, *repeat, *format;
    const char *geometry[DP_TABLE_GEOMETRIES + 1]; /* one more than there may be: the table refuses it */
    int geometries;
} words;

bool dp_bench_wants_table(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--table") == 0 || strcmp(argv[i], "--geometry") == 0) return true;
    return false;
}

/* -1: go on; otherwise the exit code. --geometry may be repeated, which the shared options do not know. */
static int read_words(int argc, char **argv, words *w, dp_table *t, dp_run_options *run) {
    const dp_option own[] = {{"--context", &w->context}, {"--repeat", &w->repeat},           {"--as", &w->format},
                             {"--configs", &t->configs}, {"--checkpoints", &t->checkpoints}, {"--torch", &t->python},
                             {"--cases", &t->cases}};
    int code = DP_EXIT_USAGE;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--geometry") == 0) {
            if (i + 1 >= argc) return dp_usage_error("bench", "%s needs a value", argv[i]);
            w->geometry[w->geometries < DP_TABLE_GEOMETRIES ? w->geometries++ : DP_TABLE_GEOMETRIES] = argv[++i];
            continue;
        }
        int taken = dp_take_run_option("bench", argc, argv, &i, run, &code);
        if (taken == 0) taken = dp_take_option("bench", argc, argv, &i, own, sizeof own / sizeof *own, &code);
        if (taken < 0) return code;
        if (taken == 0 && strcmp(argv[i], "--table") != 0)
            return dp_usage_error("bench", "unknown word '%s' beside --table", argv[i]);
    }
    return -1;
}

static int check_words(const words *w, dp_table *t, const dp_run_options *run) {
    if (!dp_parse_int(w->context, 1, DP_BENCH_MOST_CONTEXT, &t->context))
        return dp_usage_error("bench", "--context takes a whole number from 1 to %d, found '%s'", DP_BENCH_MOST_CONTEXT,
                              w->context);
    if (!dp_parse_int(w->repeat, 1, DP_BENCH_MOST_REPEATS, &t->repeat))
        return dp_usage_error("bench", "--repeat takes a whole number from 1 to %d, found '%s'", DP_BENCH_MOST_REPEATS,
                              w->repeat);
    if (strcmp(w->format, "text") != 0 && strcmp(w->format, "markdown") != 0)
        return dp_usage_error("bench", "--as takes text or markdown, found '%s'", w->format);
    if (run->numeric_class != DFLASH_CLASS_EXACT || run->products != DFLASH_PRODUCTS_F32)
        return dp_usage_error("bench", "--class and --products do not apply to --table, which has a row for each class;"
                                       " -k chooses rows");
    if (t->python != NULL && run->device != 0)
        return dp_usage_error("bench",
                              "--torch times PyTorch on the first device that it sees: --device does not apply;"
                              " choose it by CUDA_VISIBLE_DEVICES");
    t->threads = (int)run->threads;
    t->isa = run->isa;
    t->backend = run->backend;
    t->device_asked = (int)run->device;
    return -1;
}

/* The geometries asked for, filtered. -1: go on. */
static int choose_rows(const words *w, dp_table *t, const char *filter) {
    dflash_error err;
    const char *const *name = w->geometries > 0 ? w->geometry : usual;
    const int count = w->geometries > 0 ? w->geometries + (w->geometry[DP_TABLE_GEOMETRIES] != NULL)
                                        : (int)(sizeof usual / sizeof *usual);
    for (int i = 0; i < count; i++)
        if (dp_table_add(t, name[i], &err) != DFLASH_OK) return dp_report_error("bench", &err);
    if (filter == NULL || dp_table_filter(t, filter) > 0) return -1;
    fprintf(stderr, "dflash-parity bench: -k %s matches no row; --list prints their names\n", filter);
    return DP_EXIT_NOTHING;
}

static int list_rows(const dp_table *t) {
    char name[DP_TABLE_NAME];
    for (int i = 0; i < t->count; i++) {
        for (int r = 0; r < t->geometry[i].rows; r++) puts(dp_table_row_name(&t->geometry[i], r, name));
        if (t->geometry[i].with_torch) puts(dp_table_row_name(&t->geometry[i], -1, name));
    }
    return dp_finish_output("bench", DP_EXIT_PASS);
}

/* The table is printed whether PyTorch could be timed or not. */
static int measure(dp_table *t, const words *w, const dp_run_options *run, const char *command) {
    dflash_error err, torch = {.status = DFLASH_OK};
    if (dp_table_measure(t, &err) != DFLASH_OK) return dp_report_error("bench", &err);
    for (int i = 0; t->python != NULL && i < t->count; i++)
        if (t->geometry[i].with_torch && dp_table_time_torch(t, &t->geometry[i], &err) != DFLASH_OK) torch = err;
    cJSON *json = dp_table_json(t, command);
    if (!run->json) dp_table_print(t, strcmp(w->format, "markdown") == 0, stdout);
    int code = run->json ? dp_print_json("bench", json, DP_EXIT_PASS) : dp_finish_output("bench", DP_EXIT_PASS);
    if (run->out != NULL && dp_write_json(run->out, json, &err) != DFLASH_OK) code = dp_report_error("bench", &err);
    cJSON_Delete(json);
    return code == DP_EXIT_PASS && torch.status != DFLASH_OK ? dp_report_error("bench", &torch) : code;
}

int cmd_bench_table(int argc, char **argv) {
    words w = {.context = "2048", .repeat = "100", .format = "text"};
    dp_run_options run = {.filter = NULL};
    dp_table *t = calloc(1, sizeof *t);
    char *line = dp_command_line(argc, argv);
    dflash_error err;
    int code;
    if (t == NULL) {
        free(line);
        df_fail_memory(&err, "the table", sizeof *t);
        return dp_report_error("bench", &err);
    }
    t->configs = "fixtures/configs";
    t->checkpoints = "build/checkpoints";
    t->cases = "fixtures/cases.json";
    code = read_words(argc, argv, &w, t, &run);
    if (code < 0 && run.help) {
        fputs(help, stdout);
        code = dp_finish_output("bench", DP_EXIT_PASS);
    }
    if (code < 0) code = check_words(&w, t, &run);
    if (code < 0) code = choose_rows(&w, t, run.filter);
    if (code < 0) code = run.list ? list_rows(t) : measure(t, &w, &run, line != NULL ? line : "dflash-parity bench");
    free(line);
    free(t);
    return code;
}
