/*
 * cmd_sensitivity.c - `dflash-parity sensitivity`: field by field, which case notices that the drafter reads it
 * otherwise.
 */
#include "cli/commands.h"

#include "base/cli.h"
#include "base/output.h"
#include "base/progress.h"
#include "coverage/sensitivity.h"

#include <stdio.h>

static const char help[] =
    "usage: dflash-parity sensitivity [--cases FILE] [-k GLOB]\n"
    "\n"
    "Changes one field of the config at a time by one step (a whole number by 1, a real one by a sixteenth, a choice "
    "to\n"
    "the next), computes with it and holds the run against the oracle, which stays as it is. Prints for every field "
    "the\n"
    "first case that notices and where: in the values of a stage, by the census of the weights, or, where nothing is\n"
    "computed from the field, by the oracle's geometry record. A field that goes unnoticed, or is noticed only by "
    "less\n"
    "than should notice it, fails. Cases whose checkpoints are not stored are left out.\n"
    "\n"
    "  --cases FILE      the list of cases (default fixtures/cases.json)\n"
    "  -k GLOB           only the cases whose names match\n"
    "  --help            this text\n"
    "\n"
    "Exit codes: 0 every field is noticed, 1 one is not, 2 usage, 3 refused, 4 runtime, 5 nothing was compared.\n";

/* The strongest notice that any of the cases gives, and which case that is; stops at the first that suffices. */
typedef struct finding {
    dp_sensitivity best;
    const dp_case *by;
    int tried;
} finding;

static dflash_status ask_cases(const dp_case_list *list, const char *filter, const dp_field *field, finding *out,
                               dflash_error *err) {
    *out = (finding){.by = NULL};
    for (int i = 0; i < list->count; i++) {
        const dp_case *item = &list->item[i];
        dp_sensitivity found;
        bool applies;
        if (!item->stored || (filter != NULL && !dp_glob(filter, item->name))) continue;
        const dflash_status status = dp_sensitivity_of(item, field, &applies, &found, err);
        if (status != DFLASH_OK) return status;
        out->tried += applies;
        if (!applies) continue;
        if (found.noticed > out->best.noticed) {
            out->best = found;
            out->by = item;
        }
        if (out->best.noticed >= field->expected) return DFLASH_OK;
    }
    return DFLASH_OK;
}

static int run_fields(const dp_case_list *list, const char *filter) {
    int noticed = 0, tried = 0;
    dflash_error err;
    dp_progress progress;
    dp_progress_begin(&progress, "sensitivity", "fields", dp_field_count());
    printf("%-29s %-9s %-19s %s\n", "field", "noticed", "by case", "at");
    for (int i = 0; i < dp_field_count(); i++) {
        const dp_field *field = dp_field_at(i);
        finding found;
        dp_progress_update(&progress, i, field->name);
        const dflash_status status = ask_cases(list, filter, field, &found, &err);
        dp_progress_clear(&progress);
        if (status != DFLASH_OK) return dp_report_error("sensitivity", &err);
        const bool enough = found.tried > 0 && found.best.noticed >= field->expected;
        noticed += enough;
        tried += found.tried;
        printf("%-29s %-9s %-19s %s", field->name, found.tried == 0 ? "not tried" : dp_noticed_name(found.best.noticed),
               found.by != NULL ? found.by->name : "-", found.best.where);
        printf(enough ? "\n" : "   FAIL: expected %s\n", dp_noticed_name(field->expected));
    }
    dp_progress_end(&progress);
    printf("%s: %d of %d fields are noticed\n",
           tried == 0                    ? "NOTHING COMPARED"
           : noticed == dp_field_count() ? "PASS"
                                         : "FAIL",
           noticed, dp_field_count());
    return dp_finish_output("sensitivity", tried == 0                    ? DP_EXIT_NOTHING
                                           : noticed == dp_field_count() ? DP_EXIT_PASS
                                                                         : DP_EXIT_FAIL);
}

int cmd_sensitivity(int argc, char **argv) {
    const char *path = "fixtures/cases.json", *filter = NULL;
    const dp_option own[] = {{"--cases", &path}, {"-k", &filter}};
    for (int i = 1; i < argc; i++) {
        int code = DP_EXIT_USAGE;
        if (dp_help_word(argv[i])) {
            fputs(help, stdout);
            return DP_EXIT_PASS;
        }
        const int taken = dp_take_option("sensitivity", argc, argv, &i, own, sizeof own / sizeof *own, &code);
        if (taken < 0) return code;
        if (taken == 0) return dp_usage_error("sensitivity", "unknown word '%s'", argv[i]);
    }
    dp_case_list list;
    dflash_error err;
    if (dp_cases_read(path, &list, &err) != DFLASH_OK) return dp_report_error("sensitivity", &err);
    const int code = run_fields(&list, filter);
    dp_cases_release(&list);
    return code;
}
