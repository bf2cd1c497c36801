/* cmd_ladder.c - `dflash-parity ladder`: the command line round dp_ladder_run. */
#include "cli/commands.h"

#include "base/cli.h"
#include "run/head_source.h"
#include "report/ladder_report.h"
#include "base/output.h"
#include "report/report.h"
#include "cli/run_options.h"
#include "cli/subject_options.h"

#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: dflash-parity ladder (--checkpoint DIR --oracle FILE | --case NAME) [options]\n"
    "\n"
    "Runs the drafter on the oracle's inputs once for every precision mode and shows what each costs: the drift by\n"
    "layer and at the end (relative L2 against the reference's float64 run of the stored weights), and how many of "
    "the\n"
    "block's argmaxes and tokens change. A measurement: it gives no verdict, and a mode that the checkpoint refuses "
    "is\n"
    "shown as refused.\n"
    "\n"
    "  --checkpoint DIR  the checkpoint (config.json, model.safetensors)\n"
    "  --oracle FILE     its oracle, of the stored weights\n"
    "  --case NAME       a case of FILE instead of these two\n"
    "  --cases FILE      the list of cases (default fixtures/cases.json)\n" DP_HEAD_OPTION_HELP
    "  --modes LIST      of PRECISION or PRECISION+PRODUCTS, with commas (default: f32,bf16,q8_0,q4_0,mixed,fc,\n"
    "                    stored+tf32,stored+bf16)\n"
    "  --products NAME   products of the modes that name none: f32 (the default), tf32 or bf16\n"
    "  --threads N       threads to use (default: all cores); the result does not depend on it\n"
    "  --isa NAME        generic, avx2 or avx512 (default: the best here); nor on this\n"
    "  --json            print the result as JSON instead of a table\n"
    "  --out FILE        also write the JSON result to FILE, whole or not at all\n"
    "  --help            this text\n"
    "\n"
    "Exit codes: 0 measured, whatever the drift, 2 usage, 3 refused, 4 runtime, 5 no mode ran.\n";

/* Modes from "a,b,c". Returns how many, or -1 with the usage error reported. */
static int parse_modes(const char *list, dflash_products products, dp_mode mode[DP_LADDER_MOST]) {
    int count = 0;
    for (const char *at = list;; at++) {
        char name[DP_MODE_NAME];
        const size_t length = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        if (count == DP_LADDER_MOST || length >= sizeof name || !dp_mode_parse(name, &mode[count])) {
            dp_usage_error(
                "ladder",
                "--modes takes at most %d of stored, f32, bf16, q8_0, q4_0, mixed and fc, each alone or with "
                "+tf32 or +bf16, found '%.*s'",
                DP_LADDER_MOST, (int)length, at);
            return -1;
        }
        if (strchr(name, '+') == NULL) mode[count].products = products;
        count++;
        at += length;
        if (*at == '\0') return count;
    }
}

static int print_ladder(const dp_ladder *ladder, const dp_run_setup *setup, const dp_run_options *run,
                        const char *command) {
    int code = ladder->ran > 0 ? DP_EXIT_PASS : DP_EXIT_NOTHING;
    cJSON *json = run->json || run->out != NULL ? dp_ladder_json(ladder, setup, command) : NULL;
    if (run->json) {
        code = dp_print_json("ladder", json, code);
    } else {
        dp_ladder_text(stdout, ladder);
        code = dp_finish_output("ladder", code);
    }
    dflash_error err;
    if (run->out != NULL && dp_write_json(run->out, json, &err) != DFLASH_OK) code = dp_report_error("ladder", &err);
    cJSON_Delete(json);
    return code;
}

static int measure(const dp_run_setup *setup, const dp_mode *mode, int count, const dp_run_options *run,
                   const char *command) {
    dp_ladder ladder;
    dflash_error err;
    const dflash_status status = dp_ladder_run(setup, mode, count, &ladder, &err);
    const int code = status == DFLASH_OK ? print_ladder(&ladder, setup, run, command) : dp_report_error("ladder", &err);
    dp_ladder_release(&ladder);
    return code;
}

int cmd_ladder(int argc, char **argv) {
    dp_run_options run = {.filter = NULL};
    dp_subject_options subject = {.cases = NULL};
    const char *list = NULL;
    const dp_option own[] = {{"--modes", &list}};
    dp_mode mode[DP_LADDER_MOST];
    int code = DP_EXIT_USAGE;
    for (int i = 1; i < argc; i++) {
        int taken = dp_take_run_option("ladder", argc, argv, &i, &run, &code);
        if (taken == 0) taken = dp_take_subject_option("ladder", argc, argv, &i, &subject, &code);
        if (taken == 0) taken = dp_take_option("ladder", argc, argv, &i, own, 1, &code);
        if (taken < 0) return code;
        if (taken == 0) return dp_usage_error("ladder", "unknown word '%s'", argv[i]);
    }
    if (run.help) {
        fputs(help, stdout);
        return DP_EXIT_PASS;
    }
    if (run.list || run.filter != NULL)
        return dp_usage_error("ladder", "modes are chosen by --modes: -k and --list do not apply");
    if (subject.precision != NULL)
        return dp_usage_error("ladder", "modes are chosen by --modes: --precision does not apply");
    if (run.backend != DFLASH_BACKEND_CPU || run.numeric_class != DFLASH_CLASS_EXACT || run.device != 0)
        return dp_usage_error("ladder", "the ladder runs the exact class on the CPU, which simulates the rest: "
                                        "--backend, --device and --class do not apply");
    int count = dp_ladder_default(mode);
    for (int i = 0; list == NULL && i < count; i++)
        if (mode[i].products == DFLASH_PRODUCTS_F32) mode[i].products = run.products;
    if (list != NULL) count = parse_modes(list, run.products, mode);
    if (count < 0) return DP_EXIT_USAGE;
    dp_run_setup setup = {.engine = {.threads = (int)run.threads, .isa = run.isa}};
    dp_subject_source source;
    code = dp_subject_resolve("ladder", &subject, &source, &setup);
    if (code != DP_EXIT_PASS) return code;
    char *command = dp_command_line(argc, argv);
    code = dp_subject_spared("ladder", run.out, &setup);
    if (code == DP_EXIT_PASS)
        code = measure(&setup, mode, count, &run, command != NULL ? command : "dflash-parity ladder");
    free(command);
    dp_subject_source_release(&source);
    return code;
}
