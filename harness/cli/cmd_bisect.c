/*
 * cmd_bisect.c - `dflash-parity bisect`: where two runs part, in one of four ways: an oracle and a run, two files, two
 * ways of running one checkpoint, two revisions of the program.
 */
#include "cli/commands.h"

#include "bisect/bisect_git.h"
#include "cli/bisect_sides.h"
#include "base/cli.h"
#include "bisect/compare_report.h"
#include "cli/destinations.h"
#include "check/divergence.h"
#include "base/environment.h"
#include "common/error.h"
#include "base/output.h"
#include "base/process.h"
#include "judge/record_file.h"
#include "report/report.h"
#include "cli/run_options.h"
#include "cli/subject_options.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: dflash-parity bisect (--checkpoint DIR --oracle FILE | --case NAME) [options]\n"
    "       dflash-parity bisect A.h5 B.h5 [--checkpoint DIR] [options]\n"
    "       dflash-parity bisect (--between S,S | --a S --b S) (--checkpoint DIR --oracle FILE | --case NAME) "
    "[options]\n"
    "       dflash-parity bisect --good REV --bad REV (--checkpoint DIR --oracle FILE | --case NAME) [options]\n"
    "\n"
    "Names the first stage at which a run parts from an oracle, from another run, from the same checkpoint run "
    "another\n"
    "way or from what an earlier revision of this program computed; then the layer, rows, heads and columns that "
    "differ,\n"
    "what the differing values have in common, and, where the recorded inputs tell, what made them: a segment of the "
    "sum,\n"
    "a channel, a key, the mask.\n"
    "\n" DP_SUBJECT_OPTIONS_HELP "  --between S,S     two ways of running: settings like isa=generic\n"
    "  --a S --b S       the same, with several settings each, divided by commas: backend (cpu, cuda), device, class\n"
    "                    (exact, cublas, fast), products (f32, tf32, bf16), isa, threads, precision; --a is the "
    "reference\n"
    "  --good REV        a revision whose run is right, and an ancestor of\n"
    "  --bad REV         a revision whose run is not; first parents between the two are searched, each step a clone "
    "in\n"
    "                    a scratch folder, built there; a step that cannot be built or run is skipped\n"
    "  --repo DIR        the repository (default: here)\n"
    "  --build CMD       shell command that builds a step (default: make, into a folder of its own)\n"
    "  --run CMD         shell command that runs a step and writes a recording to $DP_RECORDING (default: "
    "dflash-parity\n"
    "                    record, or check --json where the revision has no record)\n"
    "  --expect WHAT     identical, equal, ulp:N or envelope (default: envelope against an oracle, otherwise "
    "identical)\n"
    "  -k GLOB           look only at the stages that GLOB matches\n"
    "  --threads N       threads to use (default: all cores)\n"
    "  --isa NAME        generic, avx2 or avx512 (default: the best here)\n" DP_BACKEND_OPTIONS_HELP
    "  --json            print the result as JSON\n"
    "  --out FILE        also write the JSON result to FILE, whole or not at all\n"
    "  --help            this text\n"
    "\n"
    "Exit codes: 0 no divergence, 1 a divergence was found, 2 usage, 3 refused, 4 runtime, 5 nothing compared.\n";

typedef struct bisect {
    dp_run_options run;
    dp_subject_options subject;
    dp_compare_options compare;
    const char *between, *side[2], *good, *bad, *repository, *build, *step_run, *expect;
    dp_run_setup setup;
    const char *command;
} bisect;

/* ---- Results ---- */

static int code_of(const dp_bisection *b) {
    const dp_verdict verdict = b->comparison.verdict;
    return b->first != NULL && verdict == DP_PASS ? DP_EXIT_FAIL : dp_verdict_exit_code(verdict);
}

static int print_result(const bisect *b, const char *mode, const dp_bisection *found, const dp_git_result *git) {
    int code = found != NULL ? code_of(found) : DP_EXIT_FAIL;
    if (!b->run.json) {
        if (git != NULL)
            dp_git_text(stdout, git);
        else
            dp_bisection_text(stdout, found);
        code = dp_finish_output("bisect", code);
    }
    if (!b->run.json && b->run.out == NULL) return code;
    cJSON *document = cJSON_CreateObject();
    dflash_error err;
    cJSON_AddStringToObject(document, "schema", "dflash-parity-bisect");
    cJSON_AddNumberToObject(document, "schema_version", DP_RESULT_VERSION);
    cJSON_AddStringToObject(document, "mode", mode);
    cJSON_AddStringToObject(document, "command", b->command);
    cJSON_AddNumberToObject(document, "exit_code", code);
    if (found != NULL && (found->comparison.verdict == DP_REFUSED || found->comparison.verdict == DP_ERROR)) {
        cJSON *error = cJSON_AddObjectToObject(document, "error");
        cJSON_AddStringToObject(error, "code", found->comparison.error.code);
        cJSON_AddStringToObject(error, "message", found->comparison.error.message);
    }
    if (git != NULL)
        dp_git_json(document, git);
    else
        dp_bisection_json(document, found);
    cJSON_AddItemToObject(document, "environment", dp_environment());
    if (b->run.json) code = dp_print_json("bisect", document, code);
    if (b->run.out != NULL && dp_write_json(b->run.out, document, &err) != DFLASH_OK)
        code = dp_report_error("bisect", &err);
    cJSON_Delete(document);
    return code;
}

static int bisect_pair(const bisect *b, const char *mode, const char *stage, const char *checkpoint) {
    dp_bisection found;
    dp_bisect_files(&b->compare, stage, checkpoint, &found);
    const int code = print_result(b, mode, &found, NULL);
    dp_bisection_release(&found);
    return code;
}

/* ---- The ways ---- */

enum { RUN_PATH = DP_FOLDER_PATH + 16 };

static dflash_status record(const bisect *b, const dp_run_setup *setup, const char *path, dflash_error *err) {
    dp_run_record run;
    const dflash_status status = dp_record_to_file(setup, b->command, path, &run, err);
    dp_run_record_release(&run);
    return status;
}

/* What the check says is first, so that a bisection and a check of the same pair never disagree. */
static dflash_status first_of_check(const bisect *b, dp_run_setup *setup, char stage[DFLASH_STAGE_NAME_MAX],
                                    dflash_error *err) {
    dp_check_options options = {.checkpoint = setup->checkpoint,
                                .oracle = setup->oracle,
                                .head = setup->head,
                                .precision = setup->precision,
                                .filter = b->run.filter,
                                .threads = setup->engine.threads,
                                .isa = setup->engine.isa};
    dp_result result;
    if (!setup->has_precision) TRY(dp_oracle_precision(setup->oracle, &options.precision, err));
    dp_check(&options, &result);
    dp_divergence_by by;
    const dp_stage_result *first = dp_first_divergence(&result, &by);
    snprintf(stage, DFLASH_STAGE_NAME_MAX, "%.47s", first != NULL ? first->name : "");
    const bool stopped = result.verdict == DP_REFUSED || result.verdict == DP_ERROR;
    if (stopped) *err = result.error;
    dp_result_release(&result);
    return stopped ? err->status : DFLASH_OK;
}

static int bisect_oracle(bisect *b, const char *scratch) {
    char path[RUN_PATH], stage[DFLASH_STAGE_NAME_MAX] = "";
    dflash_error err;
    snprintf(path, sizeof path, "%s/run.h5", scratch);
    dflash_status status = b->expect == NULL ? first_of_check(b, &b->setup, stage, &err) : DFLASH_OK;
    if (status == DFLASH_OK) status = record(b, &b->setup, path, &err);
    if (status != DFLASH_OK) return dp_report_error("bisect", &err);
    b->compare.files.a = b->setup.oracle;
    b->compare.files.b = path;
    return bisect_pair(b, "oracle", stage[0] != '\0' ? stage : NULL, b->setup.checkpoint);
}

static int bisect_sides(bisect *b, const char *scratch) {
    char path[2][RUN_PATH];
    dp_run_setup setup[2] = {b->setup, b->setup};
    dflash_error err;
    dflash_status status = b->between != NULL ? dp_sides_split(b->between, setup, &err) : DFLASH_OK;
    for (int i = 0; status == DFLASH_OK && b->between == NULL && i < 2; i++)
        status = dp_side_parse(b->side[i], strlen(b->side[i]), &setup[i], &err);
    for (int i = 0; status == DFLASH_OK && i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/%c.h5", scratch, "ab"[i]);
        status = record(b, &setup[i], path[i], &err);
    }
    if (status != DFLASH_OK) return dp_report_error("bisect", &err);
    b->compare.files.a = path[0];
    b->compare.files.b = path[1];
    b->compare.files.across_precisions = true;
    if (b->compare.expect == DP_EXPECT_ENVELOPE) b->compare.files.limits = b->setup.oracle;
    return bisect_pair(b, "sides", NULL, b->setup.checkpoint);
}

/* The subject's paths as a program in another folder needs them; the caller frees what is not NULL. */
static dflash_status absolute(const char **path, char **owned, dflash_error *err) {
    if (*path == NULL) return DFLASH_OK;
    *owned = realpath(*path, NULL);
    if (*owned == NULL)
        return df_fail(err, DFLASH_ERR_IO, "bisect.path", "%s cannot be found: %s. Check the path.", *path,
                       strerror(errno));
    *path = *owned;
    return DFLASH_OK;
}

/* The same of FILE[:TENSOR]. */
static dflash_status absolute_head(const char **head, char **owned, dflash_error *err) {
    dp_head_source source;
    if (*head == NULL) return DFLASH_OK;
    dp_head_source_parse(*head, &source);
    const char *file = source.file, *tensor = source.tensor != NULL ? source.tensor : "";
    char *path = NULL;
    TRY(absolute(&file, &path, err));
    const size_t size = strlen(path) + strlen(tensor) + 2;
    *owned = malloc(size);
    if (*owned != NULL) snprintf(*owned, size, "%s%s%s", path, tensor[0] != '\0' ? ":" : "", tensor);
    free(path);
    if (*owned == NULL) return df_fail_memory(err, "a path", size);
    *head = *owned;
    return DFLASH_OK;
}

static int bisect_revisions(bisect *b) {
    dp_git_options options = {.repository = b->repository != NULL ? b->repository : ".",
                              .good = b->good,
                              .bad = b->bad,
                              .build = b->build,
                              .run = b->step_run,
                              .subject = b->setup,
                              .judge = b->compare};
    char *owned[3] = {NULL, NULL, NULL};
    dp_git_result result = {.steps = 0};
    dflash_error err;
    dflash_status status = absolute(&options.subject.checkpoint, &owned[0], &err);
    if (status == DFLASH_OK) status = absolute(&options.subject.oracle, &owned[1], &err);
    if (status == DFLASH_OK) status = absolute_head(&options.subject.head, &owned[2], &err);
    if (options.judge.expect == DP_EXPECT_ENVELOPE) options.judge.files.limits = options.subject.oracle;
    if (options.judge.expect == DP_EXPECT_DEFAULT) options.judge.expect = DP_EXPECT_IDENTICAL;
    if (status == DFLASH_OK) status = dp_bisect_git(&options, &result, &err);
    const int code =
        status == DFLASH_OK ? print_result(b, "revisions", NULL, &result) : dp_report_error("bisect", &err);
    dp_git_result_release(&result);
    for (int i = 0; i < 3; i++) free(owned[i]);
    return code;
}

/* Runs are recorded into a scratch folder that goes away whatever happens. */
static int with_scratch(bisect *b, int (*run)(bisect *b, const char *scratch)) {
    char scratch[DP_FOLDER_PATH];
    dflash_error err;
    if (dp_scratch_make(scratch, &err) != DFLASH_OK) return dp_report_error("bisect", &err);
    dp_interruptions_begin();
    int code = run(b, scratch);
    dp_scratch_remove(scratch);
    if (dp_interrupted()) {
        fprintf(stderr, "dflash-parity bisect: interrupted\n");
        code = DP_EXIT_RUNTIME;
    }
    dp_interruptions_end();
    return code;
}

/* ---- The command line ---- */

static int parse(bisect *b, int argc, char **argv) {
    const dp_option own[] = {{"--between", &b->between}, {"--a", &b->side[0]},    {"--b", &b->side[1]},
                             {"--good", &b->good},       {"--bad", &b->bad},      {"--repo", &b->repository},
                             {"--build", &b->build},     {"--run", &b->step_run}, {"--expect", &b->expect}};
    int code = DP_EXIT_USAGE;
    for (int i = 1; i < argc; i++) {
        int taken = dp_take_run_option("bisect", argc, argv, &i, &b->run, &code);
        if (taken == 0) taken = dp_take_subject_option("bisect", argc, argv, &i, &b->subject, &code);
        if (taken == 0) taken = dp_take_option("bisect", argc, argv, &i, own, sizeof own / sizeof *own, &code);
        if (taken < 0) return code;
        if (taken > 0) continue;
        const char **file = b->compare.files.a == NULL ? &b->compare.files.a : &b->compare.files.b;
        if (argv[i][0] == '-' || *file != NULL) return dp_usage_error("bisect", "unknown word '%s'", argv[i]);
        *file = argv[i];
    }
    return DP_EXIT_PASS;
}

static int check_usage(bisect *b) {
    const bool files = b->compare.files.a != NULL,
               sides = b->between != NULL || b->side[0] != NULL || b->side[1] != NULL;
    const bool revisions = b->good != NULL || b->bad != NULL;
    if (b->run.list) return dp_usage_error("bisect", "--list does not apply");
    if (files + sides + revisions > 1)
        return dp_usage_error("bisect", "two files, --between or --a and --b, and --good and --bad exclude each other");
    if (files && b->compare.files.b == NULL) return dp_usage_error("bisect", "two files are needed");
    if (sides && b->between == NULL && (b->side[0] == NULL || b->side[1] == NULL))
        return dp_usage_error("bisect", "--a and --b are both needed");
    if (b->between != NULL && (b->side[0] != NULL || b->side[1] != NULL))
        return dp_usage_error("bisect", "--between says both sides: --a and --b do not apply");
    if (revisions && (b->good == NULL || b->bad == NULL))
        return dp_usage_error("bisect", "--good and --bad are both needed");
    if (!revisions && (b->repository != NULL || b->build != NULL || b->step_run != NULL))
        return dp_usage_error("bisect", "--repo, --build and --run belong to --good and --bad");
    if ((files || revisions) && (b->run.threads != 0 || b->run.isa != DFLASH_ISA_BEST))
        return dp_usage_error("bisect", "%s: --threads and --isa do not apply",
                              files ? "two files are not run" : "a revision runs as it is, or as --run says");
    if ((files || revisions) && b->run.device != 0)
        return dp_usage_error("bisect", "--device belongs to runs of this program: it does not apply");
    if (b->expect != NULL && !dp_expectation_parse(b->expect, &b->compare))
        return dp_usage_error("bisect", "--expect takes identical, equal, ulp:N or envelope, found '%s'", b->expect);
    return DP_EXIT_PASS;
}

/* Two files need no subject; an oracle beside them lends its limits and a checkpoint its weights. */
static int bisect_files(bisect *b) {
    if (b->subject.name != NULL || b->subject.precision != NULL || b->subject.head != NULL)
        return dp_usage_error("bisect", "two files are not run: --case, --precision and --lm-head do not apply");
    b->compare.files.limits = b->subject.oracle;
    return bisect_pair(b, "files", NULL, b->subject.checkpoint);
}

static int dispatch(bisect *b) {
    if (b->compare.files.a != NULL) return bisect_files(b);
    dp_subject_source source = {.list = {.item = NULL}};
    const bool free_run = b->step_run != NULL && b->subject.checkpoint == NULL && b->subject.name == NULL;
    int code = free_run ? DP_EXIT_PASS : dp_subject_resolve("bisect", &b->subject, &source, &b->setup);
    if (code != DP_EXIT_PASS) return code;
    code = b->good != NULL                            ? bisect_revisions(b)
           : b->between != NULL || b->side[0] != NULL ? with_scratch(b, bisect_sides)
                                                      : with_scratch(b, bisect_oracle);
    dp_subject_source_release(&source);
    return code;
}

int cmd_bisect(int argc, char **argv) {
    bisect b = {.between = NULL};
    int code = parse(&b, argc, argv);
    if (code != DP_EXIT_PASS) return code;
    if (b.run.help) {
        fputs(help, stdout);
        return DP_EXIT_PASS;
    }
    code = check_usage(&b);
    if (code != DP_EXIT_PASS) return code;
    dp_destinations files = {.command = "bisect"};
    dp_destination_add(&files, (dp_destination){"--out", b.run.out, false});
    dp_destination_spare(&files, b.compare.files.a);
    dp_destination_spare(&files, b.compare.files.b);
    dp_destination_spare(&files, b.subject.oracle);
    if (dp_destinations_check(&files) != DP_EXIT_PASS) return files.code;
    b.setup.engine = (dflash_engine_options){.threads = (int)b.run.threads,
                                             .isa = b.run.isa,
                                             .backend = b.run.backend,
                                             .numeric_class = b.run.numeric_class,
                                             .products = b.run.products,
                                             .device = (int)b.run.device};
    b.compare.filter = b.run.filter;
    char *command = dp_command_line(argc, argv);
    b.command = command != NULL ? command : "dflash-parity bisect";
    code = dispatch(&b);
    free(command);
    return code;
}
