/*
 * main.c - runs the Check suites. `tests [SUITE...]` runs those named; a name that matches nothing is an error, and so
 * is a run in which no check ran. Tests run in processes of their own, but for the suite `cuda` where there is a
 * device: a process that has forked cannot share one, so that suite runs last and in this process.
 */
#include "support/cuda_case.h"

#include "store/store_trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    Suite *(*make)(void);
} suites[] = {
#define ENTRY(name) {#name, suite_##name},
    DP_SUITES(ENTRY)
#undef ENTRY
};
enum { SUITES = sizeof suites / sizeof *suites };

static int wanted(const char *name, int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0) return 1;
    return argc == 1;
}

typedef struct tally {
    int failed, ran;
} tally;

/* Runs the wanted suites of which `name` is (or is not) the one; returns how many there were. */
static int run(const char *name, int is, enum fork_status forks, int argc, char **argv, tally *sum) {
    SRunner *runner = srunner_create(NULL);
    int added = 0;
    if (forks == CK_NOFORK) srunner_set_fork_status(runner, forks);
    for (int i = 0; i < SUITES; i++)
        if (wanted(suites[i].name, argc, argv) && (strcmp(suites[i].name, name) == 0) == is) {
            srunner_add_suite(runner, suites[i].make());
            added++;
        }
    if (added > 0) srunner_run_all(runner, CK_NORMAL);
    sum->failed += srunner_ntests_failed(runner);
    sum->ran += srunner_ntests_run(runner);
    srunner_free(runner);
    return added;
}

int main(int argc, char **argv) {
    tally sum = {0};
    int named = 0;
    dp_trial_main(argc, argv); /* a trial runs the program that asks for it: here, this one */
    for (int i = 0; i < SUITES; i++) named += wanted(suites[i].name, argc, argv);
    if (named == 0 || (argc > 1 && named != argc - 1)) {
        fprintf(stderr, "tests: unknown suite name; there are:");
        for (int i = 0; i < SUITES; i++) fprintf(stderr, " %s", suites[i].name);
        fprintf(stderr, "\n");
        return EXIT_FAILURE;
    }
    run("cuda", 0, CK_FORK_GETENV, argc, argv, &sum);
    if (wanted("cuda", argc, argv)) run("cuda", 1, cuda_case_present() ? CK_NOFORK : CK_FORK_GETENV, argc, argv, &sum);
    return sum.failed == 0 && sum.ran > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
