/*
 * cmd_bench.c - `dflash-parity bench`: what the machine takes for a checkpoint, as a table and as JSON.
 *
 * Times are medians over repetitions in one process and are for people to compare within one run; nothing passes or
 * fails by them. Beside every forward stands the least work it must do: bytes of weights read once, and multiply-adds.
 */
#include "commands.h"

#include "cases.h"
#include "cli.h"
#include "clock.h"
#include "environment.h"
#include "error.h"
#include "output.h"
#include "report.h"
#include "run_options.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static const char help[] =
    "usage: dflash-parity bench [--case NAME] [--cases FILE] [--context C] [--repeat N] [options]\n"
    "\n"
    "Times load, forward_block and forward_round of one case's checkpoint (default qwen3-4b-dflash), then its whole "
    "check.\n"
    "\n"
    "  --case NAME       a case of the list; its checkpoint is written when it is missing\n"
    "  --cases FILE      the list of cases (default fixtures/cases.json)\n"
    "  --context C       context rows (default 512)\n"
    "  --repeat N        repetitions, of which the median counts (default 5)\n"
    "  --threads N       threads to use (default: all cores)\n"
    "  --isa NAME        generic, avx2 or avx512 (default: the best here)\n"
    "  --json            print the figures as JSON instead of a table\n"
    "  --out FILE        also write the JSON to FILE, whole or not at all\n"
    "  --help            this text\n"
    "\n"
    "Exit codes: 0 measured, 2 usage, 3 refused, or the check did not pass, 4 runtime.\n";

enum { MOST_REPEATS = 1000, MOST_CONTEXT = 1 << 20 };

/* The least that a program must do: multiply-adds, and bytes read once. */
typedef struct work {
    double macs, bytes;
} work;

typedef struct bench {
    const dp_case *item;
    dp_run_options run;
    long context, repeat;
    df_engine *engine;
    df_draft *draft;
    df_kv *kv;
    float *features, *noise, *out;
    int32_t *pos;
    double load, ingest, block, round, check;
    work ingest_work, round_work, block_work;
    df_machine machine;
    char isa[16];
    int threads;
    size_t weight_bytes;
} bench;

static double median(double *value, long n) {
    for (long i = 1; i < n; i++) /* insertion sort: a handful of values */
        for (long j = i; j > 0 && value[j] < value[j - 1]; j--) {
            const double swap = value[j];
            value[j] = value[j - 1];
            value[j - 1] = swap;
        }
    return value[n / 2];
}

/* Values in [-1, 1) from a linear congruential generator: what they are does not matter, that they are not zero does.
 */
static void fill(float *to, size_t n) {
    uint32_t state = 12345;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        to[i] = (float)(state >> 8) * 0x1p-23f - 1.0f;
    }
}

/* Multiply-adds of one layer: q and o, gate, up and down on the block's rows, k and v on `key_rows`, and every query with
 * every key for the scores and again for the weighted sum. */
static double layer_macs(const df_config *c, double block_rows, double key_rows, double keys) {
    const double h = c->hidden, q = (double)c->n_heads * c->head_dim, k = (double)c->n_kv_heads * c->head_dim;
    const double conv = c->family == DF_FAMILY_DFLASH2 ? 4.0 * c->conv_kernel * h / c->conv_group : 0.0;
    return block_rows * h * (2.0 * q + 3.0 * c->intermediate + conv) + key_rows * h * 2.0 * k + 2.0 * block_rows * q * keys;
}

/* Bytes of the layers' matrices as they are held: what a forward reads beside rows and the cache. */
static double layer_bytes(const df_draft *draft) {
    double bytes = 0.0;
    for (int i = 0; i < df_draft_tensor_count(draft); i++) {
        const df_tensor_view tensor = df_draft_tensor(draft, i);
        if (tensor.used && strncmp(tensor.name, "layers.", 7) == 0) bytes += (double)tensor.bytes;
    }
    return bytes;
}

static double limit_seconds(const work *least, const df_machine *machine) {
    const double compute = least->macs / machine->macs_per_second;
    const double memory = least->bytes / machine->bytes_per_second;
    return compute > memory ? compute : memory;
}

static df_status measure_load(bench *b, df_error *err) {
    double times[MOST_REPEATS];
    df_status status = DF_OK;
    for (long i = 0; status == DF_OK && i < b->repeat; i++) {
        df_draft_destroy(b->draft);
        b->draft = NULL;
        const double start = dp_seconds();
        status = df_draft_load_as(b->engine, b->item->checkpoint, b->item->precision, &b->draft, err);
        times[i] = dp_seconds() - start;
    }
    if (status == DF_OK) b->load = median(times, b->repeat);
    return status;
}

static df_status prepare_inputs(bench *b, df_error *err) {
    const df_config *c = df_draft_config(b->draft);
    const size_t rows = (size_t)(b->context + c->block), hidden = (size_t)c->hidden;
    b->features = malloc((size_t)b->context * hidden * sizeof(float));
    b->noise = malloc((size_t)c->block * hidden * sizeof(float));
    b->out = malloc((size_t)c->block * hidden * sizeof(float));
    b->pos = malloc(rows * sizeof *b->pos);
    if (b->features == NULL || b->noise == NULL || b->out == NULL || b->pos == NULL)
        return df_fail_memory(err, "the inputs", rows * hidden * sizeof(float));
    fill(b->features, (size_t)b->context * hidden);
    fill(b->noise, (size_t)c->block * hidden);
    for (size_t i = 0; i < rows; i++) b->pos[i] = (int32_t)i;
    const double layers = c->n_layers, context = (double)b->context, all = (double)rows, block = c->block;
    const double cache = 2.0 * 4.0 * layers * context * c->n_kv_heads * c->head_dim, weights = layer_bytes(b->draft);
    b->ingest_work = (work){.macs = layers * layer_macs(c, 0.0, context, 0.0), .bytes = cache};
    b->round_work = (work){.macs = layers * layer_macs(c, block, block, all), .bytes = weights + cache};
    b->block_work = (work){.macs = layers * layer_macs(c, block, all, all), .bytes = weights};
    return df_kv_create(b->draft, (int)rows, &b->kv, err);
}

static df_status measure_forwards(bench *b, df_error *err) {
    double ingest[MOST_REPEATS], block[MOST_REPEATS], round[MOST_REPEATS];
    df_status status = DF_OK;
    for (long i = 0; status == DF_OK && i < b->repeat; i++) {
        double start = dp_seconds();
        status = df_kv_truncate(b->kv, 0, err);
        if (status == DF_OK) status = df_ingest_ctx(b->draft, b->kv, b->features, b->pos, (int)b->context, err);
        ingest[i] = dp_seconds() - start;
        start = dp_seconds();
        if (status == DF_OK) status = df_forward_round(b->draft, b->kv, b->noise, b->pos + b->context, b->out, err);
        round[i] = dp_seconds() - start;
        start = dp_seconds();
        if (status == DF_OK)
            status = df_forward_block(b->draft, b->features, b->noise, b->pos, (int)b->context, b->out, err);
        block[i] = dp_seconds() - start;
    }
    if (status != DF_OK) return status;
    b->ingest = median(ingest, b->repeat);
    b->round = median(round, b->repeat);
    b->block = median(block, b->repeat);
    return DF_OK;
}

static void release(bench *b) {
    free(b->features);
    free(b->noise);
    free(b->out);
    free(b->pos);
    df_kv_destroy(b->kv);
    df_draft_destroy(b->draft);
    df_engine_destroy(b->engine);
    b->features = b->noise = b->out = NULL;
    b->pos = NULL;
    b->kv = NULL;
    b->draft = NULL;
    b->engine = NULL;
}

/* The check runs first and the peak is read right after it, so that it is the check's own. */
static df_status measure_check(bench *b, double *peak_bytes, df_error *err) {
    struct rusage usage;
    dp_result result;
    const dp_check_options options = {.checkpoint = b->item->checkpoint,
                                      .oracle = b->item->oracle,
                                      .precision = b->item->precision,
                                      .threads = (int)b->run.threads,
                                      .isa = b->run.isa};
    dp_check(&options, &result);
    b->check = result.total_seconds;
    const dp_verdict verdict = result.verdict;
    if (verdict == DP_REFUSED || verdict == DP_ERROR) *err = result.error;
    dp_result_release(&result);
    getrusage(RUSAGE_SELF, &usage);
    *peak_bytes = (double)usage.ru_maxrss * 1024.0;
    if (verdict == DP_FAIL || verdict == DP_NOTHING)
        return df_fail(
            err, DF_ERR_REFUSED, "bench.verdict",
            "The check of %s ended with %s: times of a wrong program mean nothing. Run `dflash-parity check` on it.",
            b->item->name, dp_verdict_name(verdict));
    return verdict == DP_PASS ? DF_OK : err->status;
}

static int report(const bench *b, double peak_bytes, const char *command) {
    const struct {
        const char *name, *unit;
        double value;
    } rows[] = {{"check, end to end", "s", b->check},
                {"peak memory of the check, of the weights", "x", peak_bytes / (double)b->weight_bytes},
                {"load from page cache", "s", b->load},
                {"machine, multiply-adds in registers", "G/s", 1e-9 * b->machine.macs_per_second},
                {"machine, bytes read", "GB/s", 1e-9 * b->machine.bytes_per_second},
                {"ingest_ctx of the context", "ms", 1e3 * b->ingest},
                {"ingest_ctx, of the limit", "%", 100.0 * limit_seconds(&b->ingest_work, &b->machine) / b->ingest},
                {"forward_round", "ms", 1e3 * b->round},
                {"forward_round, of the limit", "%", 100.0 * limit_seconds(&b->round_work, &b->machine) / b->round},
                {"forward_block", "ms", 1e3 * b->block},
                {"forward_block, of the limit", "%", 100.0 * limit_seconds(&b->block_work, &b->machine) / b->block}};
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "schema", "dflash-parity-bench");
    cJSON_AddStringToObject(json, "command", command);
    cJSON_AddStringToObject(json, "case", b->item->name);
    cJSON_AddNumberToObject(json, "context_rows", (double)b->context);
    cJSON_AddNumberToObject(json, "threads", b->threads);
    cJSON_AddStringToObject(json, "isa", b->isa);
    cJSON_AddNumberToObject(json, "weight_bytes", (double)b->weight_bytes);
    cJSON *figures = cJSON_AddArrayToObject(json, "figures");
    if (!b->run.json)
        printf("%s: %.2f GB of weights, %ld context rows, %d threads, %s, median of %ld\n", b->item->name,
               1e-9 * (double)b->weight_bytes, b->context, b->threads, b->isa, b->repeat);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cJSON *figure = cJSON_CreateObject();
        cJSON_AddStringToObject(figure, "name", rows[i].name);
        cJSON_AddNumberToObject(figure, "value", rows[i].value);
        cJSON_AddStringToObject(figure, "unit", rows[i].unit);
        cJSON_AddItemToArray(figures, figure);
        if (!b->run.json) printf("  %-42s %10.3f %s\n", rows[i].name, rows[i].value, rows[i].unit);
    }
    cJSON_AddItemToObject(json, "environment", dp_environment());
    int code = b->run.json ? dp_print_json("bench", json, DP_EXIT_PASS) : dp_finish_output("bench", DP_EXIT_PASS);
    df_error err;
    if (b->run.out != NULL && dp_write_json(b->run.out, json, &err) != DF_OK) code = dp_report_error("bench", &err);
    cJSON_Delete(json);
    return code;
}

/* Returns the exit code. */
static int run_bench(bench *b, const char *command) {
    df_error failure, *const err = &failure;
    int code = DP_EXIT_PASS;
    double peak_bytes = 0.0;
    const df_engine_options options = {.threads = (int)b->run.threads, .isa = b->run.isa};
    df_status status = dp_case_prepare(b->item, err);
    if (status == DF_OK) status = measure_check(b, &peak_bytes, err);
    if (status == DF_OK) status = df_engine_create(&options, &b->engine, err);
    if (status == DF_OK) status = df_engine_probe(b->engine, &b->machine, err);
    if (status == DF_OK) status = measure_load(b, err);
    if (status == DF_OK) status = prepare_inputs(b, err);
    if (status == DF_OK) status = measure_forwards(b, err);
    if (status == DF_OK) {
        b->threads = df_engine_threads(b->engine);
        snprintf(b->isa, sizeof b->isa, "%s", df_engine_isa(b->engine));
        b->weight_bytes = df_draft_weight_bytes(b->draft);
        code = report(b, peak_bytes, command);
    } else {
        code = dp_report_error("bench", err);
    }
    release(b);
    return code;
}

int cmd_bench(int argc, char **argv) {
    const char *path = "fixtures/cases.json", *name = "qwen3-4b-dflash";
    bench b = {.context = 512, .repeat = 5};
    int code = DP_EXIT_USAGE;
    for (int i = 1; i < argc; i++) {
        const int taken = dp_take_run_option("bench", argc, argv, &i, &b.run, &code);
        if (taken < 0) return code;
        if (taken > 0) continue;
        const char *word = argv[i];
        const bool known = strcmp(word, "--case") == 0 || strcmp(word, "--cases") == 0 ||
                           strcmp(word, "--context") == 0 || strcmp(word, "--repeat") == 0;
        if (!known) return dp_usage_error("bench", "unknown word '%s'", word);
        if (i + 1 >= argc) return dp_usage_error("bench", "%s needs a value", word);
        const char *value = argv[++i];
        if (strcmp(word, "--case") == 0) name = value;
        if (strcmp(word, "--cases") == 0) path = value;
        if (strcmp(word, "--context") == 0 && !dp_parse_int(value, 1, MOST_CONTEXT, &b.context))
            return dp_usage_error("bench", "--context takes a whole number from 1 to %d, found '%s'", MOST_CONTEXT,
                                  value);
        if (strcmp(word, "--repeat") == 0 && !dp_parse_int(value, 1, MOST_REPEATS, &b.repeat))
            return dp_usage_error("bench", "--repeat takes a whole number from 1 to %d, found '%s'", MOST_REPEATS,
                                  value);
    }
    if (b.run.help) {
        fputs(help, stdout);
        return DP_EXIT_PASS;
    }
    if (b.run.filter != NULL || b.run.list)
        return dp_usage_error("bench", "%s does not apply here; --case names the one case",
                              b.run.list ? "--list" : "-k");
    dp_case_list list;
    df_error err;
    if (dp_cases_read(path, &list, &err) != DF_OK) return dp_report_error("bench", &err);
    for (int i = 0; i < list.count; i++)
        if (strcmp(list.item[i].name, name) == 0) b.item = &list.item[i];
    char *command = dp_command_line(argc, argv);
    if (b.item == NULL)
        code = dp_usage_error("bench", "%s has no case '%s'", path, name);
    else
        code = run_bench(&b, command != NULL ? command : "dflash-parity bench");
    free(command);
    dp_cases_release(&list);
    return code;
}
