/*
 * cmd_gate.c - `dflash-parity gate`: every case of a list, a line each, one verdict.
 *
 * The verdict is PASS only when at least one case ran and every case that ran passed; the exit code is that of the
 * worst case. A case that cannot be prepared counts as what stopped it.
 */
#include "cli/commands.h"

#include "store/cases.h"
#include "base/cli.h"
#include "base/clock.h"
#include "base/colour.h"
#include "common/error.h"
#include "preflight/manifest.h"
#include "base/output.h"
#include "report/render.h"
#include "report/report.h"
#include "cli/result_output.h"
#include "cli/run_options.h"
#include "check/seen.h"
#include "vectors/vectors.h"

#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: dflash-parity gate [--cases FILE] [options]\n"
    "\n"
    "Checks every case of FILE (default fixtures/cases.json). Checkpoints that are not stored are written from their\n"
    "seed the first time. Here -k selects cases by name.\n"
    "\n"
    "  --cases FILE      the list of cases\n"
    "  --prepare         write the checkpoints that are missing, and compare nothing\n" DP_RUN_OPTIONS_HELP "\n"
    "Exit codes: 0 pass, 1 numeric failure, 2 usage, 3 refused, 4 runtime, 5 nothing compared.\n";

typedef struct gate {
    const dp_run_options *run;
    const char *list;     /* its path */
    dp_manifest manifest; /* of its oracles */
    cJSON *json;          /* the document of the run; NULL when nobody asked */
    FILE *to;             /* where the table goes */
    int cases, passed, stages, rounds;
    dp_verdict worst; /* of all cases */
    dp_seen seen;
    double seconds;
    dp_progress progress; /* in bytes (cases.h) */
    double done;
} gate;

static const char vectors_case[] = "tiny-vectors";

static void print_case(gate *g, const char *name, const dp_result *result) {
    dp_coloured out;
    dp_progress_clear(&g->progress);
    dp_coloured_open(g->to, &out);
    dp_render_case(out.table, name, result);
    dp_coloured_close(&out);
    fflush(g->to);
}

static void finish_case(gate *g, const char *name, dp_result *result) {
    print_case(g, name, result);
    g->cases++;
    g->passed += result->verdict == DP_PASS;
    g->stages += result->stage_count;
    g->rounds += result->variant_count;
    g->seconds += result->total_seconds;
    g->worst = dp_worse_verdict(g->worst, result->verdict);
    dp_seen_add(&g->seen, result);
    dp_document_add(g->json, name, result);
    dp_result_release(result);
}

static void run_case(gate *g, const dp_case *item) {
    const double size = dp_case_work(item), moment = dp_seconds();
    const dp_check_options options = {.checkpoint = item->checkpoint,
                                      .entry = item->entry,
                                      .signature = dp_manifest_signature(&g->manifest, item->oracle_entry),
                                      .oracle = item->oracle,
                                      .head = item->head,
                                      .precision = item->precision,
                                      .threads = (int)g->run->threads,
                                      .isa = g->run->isa,
                                      .backend = g->run->backend,
                                      .numeric_class = g->run->numeric_class,
                                      .products = g->run->products,
                                      .device = (int)g->run->device,
                                      .progress = {&g->progress, g->done, size, item->name},
                                      .report = g->json != NULL};
    dp_result result = {.options = &options,
                        .isa = "",
                        .device = {.backend = dflash_backend_name(options.backend),
                                   .numeric_class = dflash_class_name(options.numeric_class),
                                   .products = dflash_products_name(options.products)}};
    dflash_status prepared = dp_manifest_check_file(&g->manifest, item->oracle_entry, item->oracle, &result.error);
    if (prepared == DFLASH_OK) prepared = dp_case_prepare(item, &result.error);
    dp_progress_skip(&g->progress, moment);
    if (prepared == DFLASH_OK)
        dp_check(&options, &result);
    else
        result.verdict = result.error.status == DFLASH_ERR_REFUSED ? DP_REFUSED : DP_ERROR;
    g->done += size;
    finish_case(g, item->name, &result);
}

/* The values that no whole run shows (vectors.h). */
static void run_vectors(gate *g, const dp_case_list *list) {
    const dp_check_options options = {.checkpoint = "",
                                      .root = list->root,
                                      .oracle = list->vectors,
                                      .threads = (int)g->run->threads,
                                      .isa = g->run->isa,
                                      .backend = g->run->backend,
                                      .numeric_class = g->run->numeric_class,
                                      .products = g->run->products,
                                      .device = (int)g->run->device,
                                      .progress = {&g->progress, g->done, dp_checkpoint_work(""), vectors_case}};
    dp_result result;
    dp_vectors_check(&options, &result);
    finish_case(g, vectors_case, &result);
}

static int finish(gate *g) {
    if (g->cases == 0) g->worst = DP_NOTHING;
    int code = dp_verdict_exit_code(g->worst);
    dp_progress_end(&g->progress);
    fprintf(g->to, "%s: %d of %d cases passed, %d stages and %d rounds compared, %.1f s\n", dp_verdict_name(g->worst),
            g->passed, g->cases, g->stages, g->rounds, g->seconds);
    char text[DP_SEEN_TEXT];
    if (g->stages > 0) fprintf(g->to, "      %s\n", dp_seen_text(&g->seen, text));
    if (g->cases == 0)
        fprintf(g->to, "The filter '%s' matches no case; see --list for their names.\n",
                g->run->filter != NULL ? g->run->filter : "");
    if (g->manifest.document == NULL)
        fprintf(g->to,
                "Not pinned: %s names no manifest, so nothing says that its oracles are those that were stored.\n",
                g->list);
    dp_document_end(g->json, g->worst);
    code = g->run->json ? dp_print_json("gate", g->json, code) : dp_finish_output("gate", code);
    code = dp_write_results("gate", g->json, g->run, code);
    cJSON_Delete(g->json);
    return code;
}

/* --list and --prepare select cases by -k as the gate itself does. */
static int finish_selection(const char *filter, int selected) {
    if (selected == 0)
        fprintf(stderr, "dflash-parity gate: the filter '%s' matches no case; run --list without -k.\n",
                filter != NULL ? filter : "");
    return dp_finish_output("gate", selected > 0 ? DP_EXIT_PASS : DP_EXIT_NOTHING);
}

static int prepare_cases(const dp_case_list *list, const char *filter) {
    int prepared = 0;
    for (int i = 0; i < list->count; i++) {
        dflash_error err;
        if (filter != NULL && !dp_glob(filter, list->item[i].name)) continue;
        if (dp_case_prepare(&list->item[i], &err) != DFLASH_OK) return dp_report_error("gate", &err);
        prepared++;
    }
    return finish_selection(filter, prepared);
}

static int check_destinations(const dp_case_list *list, const char *path, const dp_run_options *run) {
    dp_destinations files = {.command = "gate"};
    dp_run_destinations(run, &files);
    dp_destination_spare(&files, path);
    if (list->manifest != NULL) dp_destination_spare(&files, list->manifest);
    dp_destination_spare(&files, list->vectors);
    for (int i = 0; i < list->count; i++) {
        dp_destination_spare(&files, list->item[i].oracle);
        dp_destination_spare(&files, list->item[i].synth_config);
        dp_destination_spare_head(&files, list->item[i].head);
        dp_destination_spare_checkpoint(&files, list->item[i].checkpoint);
    }
    return dp_destinations_check(&files);
}

static int gate_cases(gate *g, const dp_case_list *list, const char *command) {
    const dp_run_options *run = g->run;
    int listed = 0;
    if (dp_run_wants_result(run) && !run->list) {
        g->json = dp_document_begin("gate", command, run->filter);
        if (g->json == NULL) {
            dflash_error err;
            df_fail_memory(&err, "the JSON result", 0);
            return dp_report_error("gate", &err);
        }
        cJSON *environment = cJSON_GetObjectItemCaseSensitive(g->json, "environment");
        cJSON_AddItemToObject(environment, "manifest",
                              list->manifest != NULL ? cJSON_CreateString(list->manifest) : cJSON_CreateNull());
    }
    double total = 0.0;
    for (int i = 0; i < list->count; i++)
        if (run->filter == NULL || dp_glob(run->filter, list->item[i].name)) total += dp_case_work(&list->item[i]);
    dp_progress_begin(&g->progress, "gate", NULL, total);
    for (int i = 0; i < list->count; i++) {
        if (run->filter != NULL && !dp_glob(run->filter, list->item[i].name)) continue;
        if (run->list)
            listed += printf("%s\n", list->item[i].name) > 0;
        else
            run_case(g, &list->item[i]);
    }
    if (list->vectors != NULL && (run->filter == NULL || dp_glob(run->filter, vectors_case))) {
        if (run->list)
            listed += printf("%s\n", vectors_case) > 0;
        else
            run_vectors(g, list);
    }
    if (run->list) return finish_selection(run->filter, listed);
    return finish(g);
}

/* An oracle that no case names is checked by nobody. */
static dflash_status check_census(const dp_manifest *manifest, const dp_case_list *list, dflash_error *err) {
    const cJSON *entry;
    cJSON_ArrayForEach(entry, manifest->oracles) {
        bool named = false;
        for (int i = 0; i < list->count; i++) named = named || strcmp(list->item[i].oracle_entry, entry->string) == 0;
        if (!named)
            return df_fail(
                err, DFLASH_ERR_REFUSED, "manifest.extra",
                "%s has an entry for %s, and no case of its list names that oracle: expected one case or more "
                "for every entry. Add the case, or take the entry out.",
                manifest->path, entry->string);
    }
    return DFLASH_OK;
}

static int run_cases(const dp_case_list *list, const char *path, const dp_run_options *run, const char *command) {
    gate g = {.run = run, .list = path, .to = run->json ? stderr : stdout};
    dflash_error refusal;
    dflash_status pinned = run->list ? DFLASH_OK : dp_manifest_read(list->manifest, &g.manifest, &refusal);
    if (pinned == DFLASH_OK) pinned = check_census(&g.manifest, list, &refusal);
    const int code = pinned == DFLASH_OK ? gate_cases(&g, list, command) : dp_report_error("gate", &refusal);
    dp_manifest_release(&g.manifest);
    return code;
}

int cmd_gate(int argc, char **argv) {
    dp_run_options run = {.filter = NULL};
    const char *path = "fixtures/cases.json";
    const dp_option own[] = {{"--cases", &path}};
    bool prepare = false;
    int code = DP_EXIT_USAGE;
    for (int i = 1; i < argc; i++) {
        int taken = dp_take_run_option("gate", argc, argv, &i, &run, &code);
        if (taken == 0) taken = dp_take_option("gate", argc, argv, &i, own, 1, &code);
        if (taken < 0) return code;
        if (taken > 0) continue;
        if (strcmp(argv[i], "--prepare") == 0) {
            prepare = true;
            continue;
        }
        return dp_usage_error("gate", "unknown word '%s'", argv[i]);
    }
    if (run.help) {
        fputs(help, stdout);
        return DP_EXIT_PASS;
    }
    dp_case_list list;
    dflash_error err;
    if (dp_cases_read(path, &list, &err) != DFLASH_OK) return dp_report_error("gate", &err);
    char *command = dp_command_line(argc, argv);
    code = prepare || run.list ? DP_EXIT_PASS : check_destinations(&list, path, &run);
    if (code == DP_EXIT_PASS)
        code = prepare ? prepare_cases(&list, run.filter)
                       : run_cases(&list, path, &run, command != NULL ? command : "dflash-parity gate");
    free(command);
    dp_cases_release(&list);
    return code;
}
