/* cmd_coverage.c - `dflash-parity coverage`: the sizes in the code, and the cases that reach past them, as a page. */
#include "cli/commands.h"

#include "base/cli.h"
#include "coverage/coverage.h"
#include "base/output.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
    "usage: dflash-parity coverage [--cases FILE] [--sources DIR]\n"
    "\n"
    "Reads every constant of the sources and says which stored case reaches past it: has more keys than a tile, more\n"
    "inputs than a segment, and not by whole multiples. A constant that none exceeds fails, and so does one of which\n"
    "nothing is known. The result is a Markdown page; reports/CASES.md is one.\n"
    "\n"
    "  --cases FILE      the list of cases (default fixtures/cases.json)\n"
    "  --sources DIR     the sources (default impl)\n"
    "  --help            this text\n"
    "\n"
    "Exit codes: 0 every size is exceeded, 1 one is not, 2 usage, 3 refused, 4 runtime, 5 nothing was compared.\n";

static void print_sizes(const dp_coverage *c) {
    printf("| file | constant | exceeded in | at | by |\n|---|---|---|---|---|\n");
    for (int i = 0; i < c->count; i++) {
        const dp_reach *r = &c->reach[i];
        if (r->reason != NULL) continue;
        printf("| `%s` | `%s` ", r->constant->file, r->constant->name);
        if (r->quantity == NULL)
            printf("%" PRId64 " | | **nothing is known of it: harness/coverage/coverage.c needs a line** | |\n",
                   r->constant->value);
        else if (r->good)
            printf("%" PRId64 " | %s | %" PRId64 " | %s, of %d |\n", r->threshold, r->quantity, r->value, r->by,
                   r->cases);
        else
            printf("%" PRId64 " | %s | **no case: %" PRId64 " at most** | |\n", r->threshold, r->quantity, r->value);
    }
}

static void print_ranges(const dp_coverage *c) {
    printf("| quantity | least | of | most | of |\n|---|---|---|---|---|\n");
    for (int i = 0; i < DP_RANGES; i++) {
        const dp_range *r = &c->range[i];
        if (r->most_of != NULL)
            printf("| %s | %" PRId64 " | %s | %" PRId64 " | %s |\n", r->quantity, r->least, r->least_of, r->most,
                   r->most_of);
    }
}

/* Constants that are no size, under their reasons. */
static void print_reasons(const dp_coverage *c) {
    for (int i = 0; i < c->count; i++) {
        const char *reason = c->reach[i].reason;
        bool first = reason != NULL;
        for (int j = 0; first && j < i; j++)
            first = c->reach[j].reason == NULL || strcmp(c->reach[j].reason, reason) != 0;
        if (!first) continue;
        printf("- %s:", reason);
        for (int j = i, shown = 0; j < c->count; j++)
            if (c->reach[j].reason != NULL && strcmp(c->reach[j].reason, reason) == 0)
                printf("%s `%s` (`%s`)", shown++ > 0 ? "," : "", c->reach[j].constant->name,
                       c->reach[j].constant->file);
        printf("\n");
    }
}

static int print_page(const dp_coverage *c) {
    printf("# Sizes in the code and the cases that exceed them\n\n"
           "Printed by `dflash-parity coverage`, which reads the constants from `impl/` and the cases from\n"
           "`fixtures/cases.json`, and fails when a case is missing. The suite `coverage` runs it and holds this page\n"
           "against it. `dflash-parity sensitivity` asks the same of every field of a config.\n\n");
    print_sizes(c);
    printf("\n## What the cases span\n\n");
    print_ranges(c);
    printf("\n## Constants that are no such size\n\n");
    print_reasons(c);
    if (c->cases == 0) fprintf(stderr, "dflash-parity coverage: the list has no stored case.\n");
    if (c->failed > 0)
        fprintf(stderr, "dflash-parity coverage: FAIL: %d of %d sizes and constants are not exceeded or not known.\n",
                c->failed, c->count);
    return dp_finish_output("coverage", c->cases == 0 ? DP_EXIT_NOTHING : c->failed == 0 ? DP_EXIT_PASS : DP_EXIT_FAIL);
}

int cmd_coverage(int argc, char **argv) {
    const char *path = "fixtures/cases.json", *sources = "impl";
    const dp_option own[] = {{"--cases", &path}, {"--sources", &sources}};
    for (int i = 1; i < argc; i++) {
        int code = DP_EXIT_USAGE;
        if (dp_help_word(argv[i])) {
            fputs(help, stdout);
            return DP_EXIT_PASS;
        }
        const int taken = dp_take_option("coverage", argc, argv, &i, own, sizeof own / sizeof *own, &code);
        if (taken < 0) return code;
        if (taken == 0) return dp_usage_error("coverage", "unknown word '%s'", argv[i]);
    }
    dp_case_list list = {.item = NULL};
    dp_constant_list constants = {.item = NULL};
    dp_coverage coverage = {.reach = NULL};
    dflash_error err;
    dflash_status status = dp_cases_read(path, &list, &err);
    if (status == DFLASH_OK) status = dp_constants_read(sources, &constants, &err);
    if (status == DFLASH_OK) status = dp_coverage_measure(&constants, &list, &coverage, &err);
    const int code = status == DFLASH_OK ? print_page(&coverage) : dp_report_error("coverage", &err);
    dp_coverage_release(&coverage);
    dp_constants_release(&constants);
    dp_cases_release(&list);
    return code;
}
