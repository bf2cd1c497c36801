/* subject_options.c - see subject_options.h. */
#include "cli/subject_options.h"

#include "base/cli.h"
#include "cli/destinations.h"
#include "common/error.h"

#include <string.h>

int dp_take_subject_option(const char *command, int argc, char **argv, int *index, dp_subject_options *options,
                           int *code) {
    const dp_option known[] = {
        {"--checkpoint", &options->checkpoint}, {"--oracle", &options->oracle}, {"--lm-head", &options->head},
        {"--precision", &options->precision},   {"--case", &options->name},     {"--cases", &options->cases}};
    return dp_take_option(command, argc, argv, index, known, sizeof known / sizeof *known, code);
}

static dflash_status find_case(const char *path, const char *name, dp_case_list *list, dp_run_setup *setup,
                               dflash_error *err) {
    const dp_case *found = NULL;
    TRY(dp_cases_read(path, list, err));
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->item[i].name, name) == 0) found = &list->item[i];
    if (found == NULL)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "cases.name",
                       "%s has no case %s: expected the name of one of its %d cases. See dflash-parity gate --list.",
                       path, name, list->count);
    setup->checkpoint = found->checkpoint;
    setup->oracle = found->oracle;
    if (setup->head == NULL) setup->head = found->head;
    return dp_case_prepare(found, err);
}

int dp_subject_resolve(const char *command, const dp_subject_options *options, dp_subject_source *source,
                       dp_run_setup *setup) {
    *source = (dp_subject_source){.list = {.item = NULL}};
    const bool pair = options->checkpoint != NULL && options->oracle != NULL;
    const bool any = options->checkpoint != NULL || options->oracle != NULL;
    if (options->name != NULL ? any : !pair)
        return dp_usage_error(command, "either --checkpoint and --oracle, or --case, is needed");
    if (options->cases != NULL && options->name == NULL) return dp_usage_error(command, "--cases belongs to --case");
    setup->has_precision = options->precision != NULL;
    if (setup->has_precision && !dflash_precision_parse(options->precision, &setup->precision))
        return dp_usage_error(command, "--precision takes stored, f32, bf16, q8_0, q4_0, mixed or fc, found '%s'",
                              options->precision);
    setup->head = options->head;
    setup->checkpoint = options->checkpoint;
    setup->oracle = options->oracle;
    if (options->name == NULL) return DP_EXIT_PASS;
    dflash_error err;
    const char *cases = options->cases != NULL ? options->cases : "fixtures/cases.json";
    if (find_case(cases, options->name, &source->list, setup, &err) == DFLASH_OK) return DP_EXIT_PASS;
    dp_subject_source_release(source);
    return dp_report_error(command, &err);
}

int dp_subject_spared(const char *command, const char *out, const dp_run_setup *setup) {
    dp_destinations files = {.command = command};
    dp_destination_add(&files, (dp_destination){"--out", out, false});
    dp_destination_spare(&files, setup->oracle);
    dp_destination_spare_head(&files, setup->head);
    dp_destination_spare_checkpoint(&files, setup->checkpoint);
    return dp_destinations_check(&files);
}

void dp_subject_source_release(dp_subject_source *source) { dp_cases_release(&source->list); }
