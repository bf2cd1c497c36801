/*
 * cmd_identity.c - `dflash-parity identity`: the same bits however the work is cut, case by case, one verdict.
 *
 * By default the stored cases; full-size ones when --case names them. The verdict is PASS only when something was
 * compared, every case that ran passed, and the digests, if asked for, agree.
 */
#include "cli/commands.h"

#include "store/cases.h"
#include "base/cli.h"
#include "base/clock.h"
#include "cli/destinations.h"
#include "base/environment.h"
#include "common/error.h"
#include "run/head_source.h"
#include "identity/identity_report.h"
#include "base/output.h"
#include "report/report.h"
#include "cli/run_options.h"

#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: dflash-parity identity [--case GLOB | --checkpoint DIR] [options]\n"
    "\n"
    "Does the same work in many ways (variants) and compares each with one reference run, stage by stage and bit by "
    "bit:\n"
    "block against round, ingestion schedules, acceptance histories, threads, instruction sets, observer, memory, "
    "order\n"
    "of rows, neighbours full of NaN, the cache moved. A history that fails is made small and printed as a command.\n"
    "\n"
    "  --case GLOB       cases of FILE to run (default: those whose checkpoint is stored)\n"
    "  --cases FILE      the list of cases (default fixtures/cases.json)\n"
    "  --checkpoint DIR  this checkpoint instead, with inputs made from the seed\n" DP_HEAD_OPTION_HELP
    "  --precision MODE  of --checkpoint: f32, bf16, q8_0, q4_0, mixed or fc (default: as stored)\n"
    "  --schedules N     random histories in all (default: 1000 over the stored cases, 1 for each full-size one)\n"
    "  --seed S          of histories and made inputs (default 1)\n"
    "  --replay TEXT     run this one history, every stage compared: iN ingest N rows, tN roll N back, d draft, x "
    "export\n"
    "                    and import, first of all cN: a cache of N rows\n"
    "  --digests FILE    write the digest of every stage of the reference run\n"
    "  --against FILE    compare digests with FILE, and run no variant\n" DP_COMPARE_OPTIONS_HELP DP_HELP_HELP "\n"
    "Here -k selects variants, and --list prints the cases and variants that would be run.\n"
    "Exit codes: 0 pass, 1 not identical, 2 usage, 3 refused, 4 runtime, 5 nothing compared.\n";

enum { DEFAULT_SCHEDULES = 1000, MOST_SCHEDULES = 10000000, ORIGIN_TEXT = 4096 };

typedef struct identity {
    dp_run_options run;
    const char *pattern, *cases, *checkpoint, *head, *precision, *replay, *digests, *against;
    long schedules; /* -1: not given */
    long seed;
    const char *command;
    FILE *to;                  /* where the table goes */
    cJSON *json;               /* array of case results; NULL when nobody asked */
    dp_digest_list list, file; /* of this run; of --against */
    bool many;                 /* more than one case: identical variants have no line of their own */
    int run_cases, passed, variants, not_run, histories;
    dp_verdict worst;
    double seconds;
    dp_progress progress; /* in bytes (cases.h) */
    double done;
} identity;

static void worsen(identity *d, dp_verdict verdict) { d->worst = dp_worse_verdict(d->worst, verdict); }

/* ---- Cases ---- */

static void account(identity *d, dp_identity_result *result, const char *origin) {
    dp_progress_clear(&d->progress);
    if (d->against != NULL && result->verdict == DP_PASS) /* nothing is compared yet, so nothing has passed */
        fprintf(d->to, "run      %-22s %s, %s: digests taken, compared below\n", result->name,
                dflash_family_name(result->family), dflash_precision_name(result->precision));
    else
        dp_identity_text(d->to, result, origin, d->many);
    fflush(d->to);
    d->run_cases++;
    d->passed += result->verdict == DP_PASS;
    d->variants += result->compared;
    d->not_run += result->not_run;
    for (int i = 0; i < result->variant_count; i++) d->histories += result->variant[i].histories;
    d->seconds += result->seconds;
    worsen(d, result->verdict);
    if (d->json != NULL) cJSON_AddItemToArray(d->json, dp_identity_json(result, origin));
    dp_identity_release(result);
}

static dp_identity_options options_for(identity *d, const char *head, int schedules, bool brief, double size,
                                       const char *label) {
    return (dp_identity_options){.filter = d->run.filter,
                                 .head = head,
                                 .replay = d->replay,
                                 .seed = (uint64_t)d->seed,
                                 .schedules = schedules,
                                 .brief = brief,
                                 .digests_alone = d->against != NULL,
                                 .threads = (int)d->run.threads,
                                 .isa = d->run.isa,
                                 .backend = d->run.backend,
                                 .numeric_class = d->run.numeric_class,
                                 .products = d->run.products,
                                 .device = (int)d->run.device,
                                 .progress = {&d->progress, d->done, size, label}};
}

static void run_checkpoint(identity *d, dflash_precision precision) {
    const double size = dp_checkpoint_work(d->checkpoint);
    const dp_identity_options options =
        options_for(d, d->head, d->schedules >= 0 ? (int)d->schedules : DEFAULT_SCHEDULES, false, size, NULL);
    char origin[ORIGIN_TEXT];
    dp_identity_result result;
    dp_progress_begin(&d->progress, "identity", NULL, size);
    snprintf(origin, sizeof origin, "--checkpoint %s%s%s --precision %s", d->checkpoint,
             d->head != NULL ? " --lm-head " : "", d->head != NULL ? d->head : "", dflash_precision_name(precision));
    dp_identity_case(d->checkpoint, d->checkpoint, NULL, precision, &options, &d->list, &result);
    account(d, &result, origin);
}

static bool chosen(const identity *d, const dp_case *item) {
    return d->pattern != NULL ? dp_glob(d->pattern, item->name) : item->stored;
}

/* Histories are dealt out evenly: to the stored cases, or, when a number was asked for, to all that run. */
static bool has_share(const identity *d, const dp_case *item) { return item->stored || d->schedules >= 0; }

static void run_case(identity *d, const dp_case *item, int schedules) {
    const double size = dp_case_work(item), moment = dp_seconds();
    const dp_identity_options options = options_for(d, item->head, schedules, !item->stored, size, item->name);
    char origin[ORIGIN_TEXT];
    dp_identity_result result = {.name = item->name,
                                 .checkpoint = item->checkpoint,
                                 .precision = item->precision,
                                 .isa = "",
                                 .device = {.backend = dflash_backend_name(options.backend),
                                            .numeric_class = dflash_class_name(options.numeric_class),
                                            .products = dflash_products_name(options.products)}};
    snprintf(origin, sizeof origin, "--cases %s --case %s", d->cases, item->name);
    const dflash_status prepared = dp_case_prepare(item, &result.error);
    dp_progress_skip(&d->progress, moment);
    if (prepared == DFLASH_OK)
        dp_identity_case(item->name, item->checkpoint, item->oracle, item->precision, &options, &d->list, &result);
    else
        result.verdict = result.error.status == DFLASH_ERR_REFUSED ? DP_REFUSED : DP_ERROR;
    d->done += size;
    account(d, &result, origin);
}

static void run_list(identity *d, const dp_case_list *list) {
    const int all = d->schedules >= 0 ? (int)d->schedules : DEFAULT_SCHEDULES;
    int sharing = 0, dealt = 0, running = 0;
    double total = 0.0;
    for (int i = 0; i < list->count; i++) {
        if (chosen(d, &list->item[i])) total += dp_case_work(&list->item[i]);
        running += chosen(d, &list->item[i]);
        sharing += chosen(d, &list->item[i]) && has_share(d, &list->item[i]);
    }
    d->many = running > 1;
    dp_progress_begin(&d->progress, "identity", NULL, total);
    for (int i = 0; i < list->count; i++) {
        const dp_case *item = &list->item[i];
        if (!chosen(d, item)) continue;
        const bool share = has_share(d, item);
        run_case(d, item, share ? all / sharing + (dealt < all % sharing) : 1);
        dealt += share;
    }
    dp_progress_end(&d->progress);
}

/* ---- Digests ---- */

static void print_digest(const dp_digest *digest, dp_digest_verdict verdict, void *user) {
    static const char *const words[] = {[DP_DIGEST_DIFFERS] = "another digest",
                                        [DP_DIGEST_MISSING] = "not in this run",
                                        [DP_DIGEST_EXTRA] = "not in the file"};
    fprintf(((identity *)user)->to, "FAIL  %-22s %-26s %s\n", digest->name, digest->stage, words[verdict]);
}

static void compare_digests(identity *d) {
    const dp_digest_comparison c = dp_digests_compare(&d->list, &d->file, print_digest, d);
    fprintf(d->to, "%d stages compared by digest with %s: %d differ, %d are not in this run, %d not in the file\n",
            c.compared, d->against, c.differing, c.missing, c.extra);
    const int wrong = c.differing + c.missing + c.extra;
    worsen(d, wrong > 0 ? DP_FAIL : c.compared == 0 ? DP_NOTHING : DP_PASS);
}

/* ---- The command ---- */

static int print_json(const identity *d, int code) {
    cJSON *document = cJSON_CreateObject();
    dflash_error err;
    cJSON_AddStringToObject(document, "schema", "dflash-parity-identity");
    cJSON_AddNumberToObject(document, "schema_version", DP_RESULT_VERSION);
    cJSON_AddStringToObject(document, "verdict", dp_verdict_name(d->worst));
    cJSON_AddNumberToObject(document, "exit_code", code);
    cJSON_AddStringToObject(document, "command", d->command);
    cJSON_AddNumberToObject(document, "cases_run", d->run_cases);
    cJSON_AddNumberToObject(document, "cases_passed", d->passed);
    cJSON_AddNumberToObject(document, "arms_compared", d->variants);
    cJSON_AddNumberToObject(document, "arms_not_run", d->not_run);
    cJSON_AddNumberToObject(document, "histories", d->histories);
    cJSON_AddItemToObject(document, "environment", dp_environment());
    cJSON_AddItemToObject(document, "cases", d->json);
    code = d->run.json ? dp_print_json("identity", document, code) : dp_finish_output("identity", code);
    if (d->run.out != NULL && dp_write_json(d->run.out, document, &err) != DFLASH_OK)
        code = dp_report_error("identity", &err);
    cJSON_Delete(document);
    return code;
}

static int finish(identity *d) {
    dflash_error err;
    dflash_status status = DFLASH_OK;
    if (d->run_cases == 0) worsen(d, DP_NOTHING);
    /* Only a run that passed, and agreed with what it was held against, leaves digests for others to agree with. */
    if (d->run_cases > 0 && d->against != NULL) compare_digests(d);
    if (status == DFLASH_OK && d->run_cases > 0 && d->digests != NULL && d->worst == DP_PASS)
        status = dp_digests_write(d->digests, &d->list, &err);
    else if (status == DFLASH_OK && d->digests != NULL)
        fprintf(stderr, "dflash-parity identity: %s was not written, since the verdict is no pass\n", d->digests);
    if (status != DFLASH_OK) {
        cJSON_Delete(d->json);
        return dp_report_error("identity", &err);
    }
    if (d->run_cases == 0)
        fprintf(stderr, "dflash-parity identity: no case is chosen; see --list for their names.\n");
    else if (d->variants == 0 && d->run.filter != NULL)
        fprintf(stderr, "dflash-parity identity: -k '%s' matches no variant; see --list for their names.\n",
                d->run.filter);
    fprintf(d->to, "%s: %d of %d cases %s, %d variant%s and %d histor%s compared, %.1f s", dp_verdict_name(d->worst),
            d->passed, d->run_cases, d->against != NULL ? "ran" : "passed", d->variants, dp_plural(d->variants),
            d->histories, d->histories == 1 ? "y" : "ies", d->seconds);
    if (d->not_run > 0)
        fprintf(d->to, "; %d variant%s could not run on this machine", d->not_run, dp_plural(d->not_run));
    fprintf(d->to, "\n");
    const int code = dp_verdict_exit_code(d->worst);
    return d->json != NULL ? print_json(d, code) : dp_finish_output("identity", code);
}

static int list_variants(const identity *d, const char *name) {
    int listed = 0;
    for (int i = 0; dp_identity_variant_name(i) != NULL; i++)
        if (d->run.filter == NULL || dp_glob(d->run.filter, dp_identity_variant_name(i)))
            listed += printf("%s %s\n", name, dp_identity_variant_name(i)) > 0;
    return listed;
}

static int finish_list(int listed) {
    if (listed == 0) fprintf(stderr, "dflash-parity identity: no case and no variant is chosen; run --list alone.\n");
    return dp_finish_output("identity", listed > 0 ? DP_EXIT_PASS : DP_EXIT_NOTHING);
}

/* The options that are numbers. 1: taken, 0: another word, -1: a usage error in *code. */
static int take_number(identity *d, int argc, char **argv, int *index, int *code) {
    const char *word = argv[*index];
    const bool schedules = strcmp(word, "--schedules") == 0;
    if (!schedules && strcmp(word, "--seed") != 0) return 0;
    const char *value = *index + 1 < argc ? argv[++*index] : "";
    const long most = schedules ? MOST_SCHEDULES : INT32_MAX;
    if (dp_parse_int(value, 0, most, schedules ? &d->schedules : &d->seed)) return 1;
    *code = dp_usage_error("identity", "%s takes a whole number from 0 to %ld, found '%s'", word, most, value);
    return -1;
}

static int parse(identity *d, int argc, char **argv) {
    const dp_option own[] = {{"--case", &d->pattern},          {"--cases", &d->cases},
                             {"--checkpoint", &d->checkpoint}, {"--precision", &d->precision},
                             {"--lm-head", &d->head},          {"--replay", &d->replay},
                             {"--digests", &d->digests},       {"--against", &d->against}};
    int code = DP_EXIT_USAGE;
    for (int i = 1; i < argc; i++) {
        int taken = dp_take_run_option("identity", argc, argv, &i, &d->run, &code);
        if (taken == 0) taken = take_number(d, argc, argv, &i, &code);
        if (taken == 0) taken = dp_take_option("identity", argc, argv, &i, own, sizeof own / sizeof *own, &code);
        if (taken < 0) return code;
        if (taken == 0) return dp_usage_error("identity", "unknown word '%s'", argv[i]);
    }
    if (d->run.help) return DP_EXIT_PASS;
    if (d->checkpoint != NULL && d->pattern != NULL)
        return dp_usage_error("identity", "--case and --checkpoint exclude each other");
    if (d->precision != NULL && d->checkpoint == NULL)
        return dp_usage_error("identity", "--precision belongs to --checkpoint; a case has its own");
    if (d->head != NULL && d->checkpoint == NULL)
        return dp_usage_error("identity", "--lm-head belongs to --checkpoint; a case has its own");
    if (d->replay != NULL && d->pattern == NULL && d->checkpoint == NULL)
        return dp_usage_error("identity", "--replay needs --case or --checkpoint");
    if (d->replay != NULL && (d->against != NULL || d->run.filter != NULL))
        return dp_usage_error("identity", "--replay runs one history: -k and --against do not apply");
    if (d->against != NULL && d->run.filter != NULL)
        return dp_usage_error("identity", "--against runs no variant: -k does not apply");
    dp_schedule schedule;
    dflash_error err;
    if (d->replay == NULL) return DP_EXIT_PASS;
    if (dp_schedule_parse(d->replay, &schedule, &err) != DFLASH_OK) return dp_report_error("identity", &err);
    dp_schedule_release(&schedule);
    return DP_EXIT_PASS;
}

static int run_chosen(identity *d, dflash_precision precision) {
    dp_case_list list;
    dflash_error err;
    if (d->checkpoint != NULL) {
        if (d->run.list) return finish_list(list_variants(d, d->checkpoint));
        run_checkpoint(d, precision);
        return finish(d);
    }
    if (dp_cases_read(d->cases, &list, &err) != DFLASH_OK) return dp_report_error("identity", &err);
    int code, listed = 0;
    if (d->run.list) {
        for (int i = 0; i < list.count; i++)
            if (chosen(d, &list.item[i])) listed += list_variants(d, list.item[i].name);
        code = finish_list(listed);
    } else {
        run_list(d, &list);
        code = finish(d);
    }
    dp_cases_release(&list);
    return code;
}

int cmd_identity(int argc, char **argv) {
    identity d = {.cases = "fixtures/cases.json", .schedules = -1, .seed = 1};
    dflash_precision precision = DFLASH_PRECISION_STORED;
    int code = parse(&d, argc, argv);
    if (code != DP_EXIT_PASS) return code;
    if (d.run.help) {
        fputs(help, stdout);
        return DP_EXIT_PASS;
    }
    if (d.precision != NULL && !dflash_precision_parse(d.precision, &precision))
        return dp_usage_error("identity", "--precision takes stored, f32, bf16, q8_0, q4_0, mixed or fc, found '%s'",
                              d.precision);
    d.to = d.run.json ? stderr : stdout;
    dp_destinations files = {.command = "identity"};
    dp_destination_add(&files, (dp_destination){"--out", d.run.out, false});
    dp_destination_add(&files, (dp_destination){"--digests", d.digests, false});
    dp_destination_spare(&files, d.against);
    dp_destination_spare(&files, d.cases);
    dp_destination_spare_head(&files, d.head);
    dp_destination_spare_checkpoint(&files, d.checkpoint);
    if (dp_destinations_check(&files) != DP_EXIT_PASS) return files.code;
    char *command = dp_command_line(argc, argv);
    d.command = command != NULL ? command : "dflash-parity identity";
    if (!d.run.list && (d.run.json || d.run.out != NULL)) {
        dflash_error err;
        d.json = cJSON_CreateArray();
        if (d.json == NULL) {
            df_fail_memory(&err, "the JSON result", 0);
            code = dp_report_error("identity", &err);
        }
    }
    dflash_error unread;
    if (code == DP_EXIT_PASS && d.against != NULL && dp_digests_read(d.against, &d.file, &unread) != DFLASH_OK)
        code = dp_report_error("identity", &unread);
    if (code == DP_EXIT_PASS)
        code = run_chosen(&d, precision);
    else
        cJSON_Delete(d.json);
    dp_digest_list_release(&d.file);
    dp_digest_list_release(&d.list);
    free(command);
    return code;
}
