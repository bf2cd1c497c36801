/* main.c - finds the command named by the first word. */
#include "base/cli.h"
#include "cli/cmd_inspect.h"
#include "cli/cmd_synth.h"
#include "cli/commands.h"
#include "base/environment.h"
#include "cli/startup.h"
#include "store/store_trial.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *what;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"check", "one checkpoint against one oracle: every stage, every round, one verdict", cmd_check},
    {"gate", "every case of fixtures/cases.json, one verdict", cmd_gate},
    {"identity", "the same bits however the work is cut: rounds, histories, threads, instruction sets", cmd_identity},
    {"record", "one run's stages, bit by bit, as a file", cmd_record},
    {"compare", "two files, stage by stage: recordings of any engine, oracles", cmd_compare},
    {"bisect", "where two runs part: the first divergent stage, and the commit that made it so", cmd_bisect},
    {"soak", "many isolated runs on random inputs: no false alarm", cmd_soak},
    {"sensitivity", "field by field of a config, which case notices that it is read otherwise", cmd_sensitivity},
    {"coverage", "size by size of the code, which case exceeds it", cmd_coverage},
    {"report", "a result file rendered again: text, Markdown, JUnit, GitHub, HTML", cmd_report},
    {"history", "runs on record, and drifts that grow inside their limits", cmd_history},
    {"postmortem", "several runs as one story: last good, first bad, what changed between", cmd_postmortem},
    {"explain", "where limits come from: every number with its reason", cmd_explain},
    {"ladder", "what each precision mode does to error, argmax and tokens", cmd_ladder},
    {"inspect", "what is in an oracle, a recording, a checkpoint or a config", cmd_inspect},
    {"synth", "write a checkpoint for a config from a seed", cmd_synth},
    {"gpu-record", "what a machine with a GPU found, as one file", cmd_gpu_record},
    {"release-check", "whether the records of GPUs were made of these sources", cmd_release_check},
    {"bench", "load time, forward times, memory", cmd_bench},
};

static void print_help(FILE *to) {
    fprintf(to, "usage: dflash-parity COMMAND [options]\n\n");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        fprintf(to, "  %-14s %s\n", commands[i].name, commands[i].what);
    fprintf(
        to,
        "\n  --version      what was built, and how\n  --help         this text; every command has its own --help\n");
}

int main(int argc, char **argv) {
    const char *word = argc > 1 ? argv[1] : "";
    if (!dp_startup()) return DP_EXIT_RUNTIME; /* and nobody to tell */
    dp_trial_main(argc, argv);
    if (strcmp(word, "--version") == 0) {
        dp_print_version();
        return DP_EXIT_PASS;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        print_help(stdout);
        return DP_EXIT_PASS;
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(word, commands[i].name) == 0) return commands[i].run(argc - 1, argv + 1);
    if (argc > 1) fprintf(stderr, "dflash-parity: there is no command '%s'\n", word);
    print_help(stderr);
    return DP_EXIT_USAGE;
}
