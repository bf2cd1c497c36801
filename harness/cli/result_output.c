/* result_output.c - see result_output.h. */
#include "cli/result_output.h"

#include "base/cli.h"
#include "history/history.h"
#include "report/render.h"
#include "report/report.h"
#include "base/text_file.h"

#include <stdlib.h>
#include <string.h>

static dflash_status write_report(const dp_result_file *file, const char *word, dflash_error *err) {
    const char *equals = strchr(word, '=');
    dp_report_format format = DP_REPORT_TEXT;
    char *text = NULL;
    dp_report_format_parse(word, (size_t)(equals - word), &format); /* checked when the option was taken */
    dflash_status status = dp_render(file, format, NULL, &text, err);
    if (status == DFLASH_OK) status = dp_text_file_write(equals + 1, text, err);
    free(text);
    return status;
}

int dp_write_results(const char *command, cJSON *document, const dp_run_options *options, int code) {
    dp_result_file file;
    dflash_error err;
    if (!dp_run_wants_result(options)) return code;
    dflash_status status = dp_result_parse(document, "the result of this run", &file, &err);
    if (status != DFLASH_OK) code = dp_report_error(command, &err);
    if (status == DFLASH_OK && options->out != NULL && dp_write_json(options->out, document, &err) != DFLASH_OK)
        code = dp_report_error(command, &err);
    for (int i = 0; status == DFLASH_OK && i < options->report_count; i++)
        if (write_report(&file, options->report[i], &err) != DFLASH_OK) code = dp_report_error(command, &err);
    if (status == DFLASH_OK && options->history != NULL &&
        dp_history_append(options->history, &file, &err) != DFLASH_OK)
        code = dp_report_error(command, &err);
    dp_result_file_release(&file);
    return code;
}

void dp_run_destinations(const dp_run_options *options, dp_destinations *d) {
    dp_destination_add(d, (dp_destination){"--out", options->out, false});
    for (int i = 0; i < options->report_count; i++)
        dp_destination_add(d, (dp_destination){"--report", strchr(options->report[i], '=') + 1, false});
    dp_destination_add(d, (dp_destination){"--history", options->history, true});
}
