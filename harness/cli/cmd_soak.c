/* cmd_soak.c - `dflash-parity soak`: many isolated runs on made inputs; a bound that a correct run leaves is an alarm.
 */
#include "cli/commands.h"

#include "store/cases.h"
#include "base/cli.h"
#include "base/output.h"
#include "base/progress.h"
#include "check/soak.h"

#include <stdio.h>
#include <string.h>

static const char help[] =
    "usage: dflash-parity soak [--runs N] [--seed S] [--cases FILE]\n"
    "\n"
    "Runs every stage of the stored checkpoints alone on random values (ordinary, large, tiny, cancelling, subnormal,\n"
    "signed zeros, mixtures), in each case's precision mode and with float32, tf32 and bf16 products, and holds it\n"
    "against its float64 evaluation. Any stage outside its bound or its expected noise is a false alarm of the "
    "bounds,\n"
    "and fails.\n"
    "\n"
    "  --runs N          how many runs (default 1000)\n"
    "  --seed S          of the random values (default 1)\n"
    "  --cases FILE      the list of cases (default fixtures/cases.json)\n"
    "  --help            this text\n"
    "\n"
    "Exit codes: 0 no alarm, 1 an alarm, 2 usage, 3 refused, 4 runtime, 5 nothing was run.\n";

enum { MOST_RUNS = 10000000 };

static void print_total(const dp_soak *total) {
    for (int i = 0; i < DFLASH_STAGE_COUNT; i++) {
        char name[DFLASH_STAGE_NAME_MAX];
        if (total->judged[i] == 0) continue;
        printf("%-24s bound over error, ordinary values: median %6.1f, the mean of %lld stage%s\n",
               dflash_stage_name((dflash_stage)i, 0, name) +
                   (dflash_stage_per_layer((dflash_stage)i) ? strlen("layers.0.") : 0),
               total->tightness[i] / (double)total->judged[i], (long long)total->judged[i],
               dp_plural(total->judged[i]));
    }
    if (total->alarms > 0) printf("first alarm: %s\n", total->first);
    printf("%s: %d run%s, %lld stages, %lld elements, %lld false alarm%s\n",
           total->runs == 0     ? "NOTHING COMPARED"
           : total->alarms == 0 ? "PASS"
                                : "FAIL",
           total->runs, dp_plural(total->runs), (long long)total->stages, (long long)total->elements,
           (long long)total->alarms, dp_plural(total->alarms));
}

static int run_all(const dp_case_list *list, long runs, long seed) {
    dp_soak total = {.runs = 0};
    dflash_error err;
    int stored = 0;
    dp_progress progress;
    dp_progress_begin(&progress, "soak", "runs", (double)runs);
    for (int i = 0; i < list->count; i++) stored += list->item[i].stored;
    for (int n = 0, i = 0; stored > 0 && n < runs; i = (i + 1) % list->count) {
        if (!list->item[i].stored) continue;
        dp_progress_update(&progress, n, list->item[i].name);
        if (dp_soak_run(list->item[i].checkpoint, list->item[i].precision, (uint64_t)seed, n++, &total, &err) ==
            DFLASH_OK)
            continue;
        dp_progress_end(&progress);
        return dp_report_error("soak", &err);
    }
    dp_progress_end(&progress);
    print_total(&total);
    return dp_finish_output("soak", total.runs == 0     ? DP_EXIT_NOTHING
                                    : total.alarms == 0 ? DP_EXIT_PASS
                                                        : DP_EXIT_FAIL);
}

int cmd_soak(int argc, char **argv) {
    const char *path = "fixtures/cases.json", *runs_word = "1000", *seed_word = "1";
    const dp_option own[] = {{"--runs", &runs_word}, {"--seed", &seed_word}, {"--cases", &path}};
    long runs, seed;
    for (int i = 1; i < argc; i++) {
        int code = DP_EXIT_USAGE;
        if (dp_help_word(argv[i])) {
            fputs(help, stdout);
            return DP_EXIT_PASS;
        }
        const int taken = dp_take_option("soak", argc, argv, &i, own, sizeof own / sizeof *own, &code);
        if (taken < 0) return code;
        if (taken == 0) return dp_usage_error("soak", "unknown word '%s'", argv[i]);
    }
    if (!dp_parse_int(runs_word, 1, MOST_RUNS, &runs))
        return dp_usage_error("soak", "--runs takes a whole number from 1 to %d, found '%s'", MOST_RUNS, runs_word);
    if (!dp_parse_int(seed_word, 0, MOST_RUNS, &seed))
        return dp_usage_error("soak", "--seed takes a whole number from 0 to %d, found '%s'", MOST_RUNS, seed_word);
    dp_case_list list;
    dflash_error err;
    if (dp_cases_read(path, &list, &err) != DFLASH_OK) return dp_report_error("soak", &err);
    const int code = run_all(&list, runs, seed);
    dp_cases_release(&list);
    return code;
}
