/*
 * main.c - runs the Check suites. `tests [SUITE...]` runs those named; a name that matches nothing is an error, and so
 * is a run in which no check ran.
 */
#include "suites.h"

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

int main(int argc, char **argv) {
    SRunner *runner = srunner_create(NULL);
    int added = 0;
    for (int i = 0; i < SUITES; i++)
        if (wanted(suites[i].name, argc, argv)) {
            srunner_add_suite(runner, suites[i].make());
            added++;
        }
    if (added == 0 || (argc > 1 && added != argc - 1)) {
        fprintf(stderr, "tests: unknown suite name; there are:");
        for (int i = 0; i < SUITES; i++) fprintf(stderr, " %s", suites[i].name);
        fprintf(stderr, "\n");
        srunner_free(runner);
        return EXIT_FAILURE;
    }
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner), ran = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && ran > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
