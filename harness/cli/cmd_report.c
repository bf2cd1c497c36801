/* cmd_report.c - `dflash-parity report`: a result file rendered again, for another reader. */
#include "cli/commands.h"

#include "base/cli.h"
#include "base/colour.h"
#include "cli/destinations.h"
#include "base/output.h"
#include "report/render.h"
#include "base/text_file.h"

#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: dflash-parity report RESULT [--as FORMAT] [--out FILE] [--keep-data DIR]\n"
    "\n"
    "Renders a file that check or gate wrote with --out (reports/RESULT.md); - is standard input, and a pipe will do. "
    "It\n"
    "reads nothing else, so old results can be rendered where neither checkpoint nor oracle is.\n"
    "\n"
    "  --as FORMAT       text (default), markdown (for a job summary), junit (XML), github (annotations) or html\n"
    "  --out FILE        write to FILE, whole or not at all, instead of standard output\n"
    "  --keep-data DIR   with --as html: leave in DIR, which is made when it is missing, the data of every plot, the "
    "script\n"
    "                    that draws it and the picture (reports/PLOTS.md); files of these names are replaced\n"
    "  --help            this text\n"
    "\n"
    "Exit codes: 0 it was rendered, whatever its verdict, 2 usage, 3 refused (no result file of this version), 4\n"
    "runtime.\n";

static int render(const char *path, dp_report_format format, const char *out, const char *keep) {
    dp_result_file file;
    dflash_error err;
    char *text = NULL;
    int code = DP_EXIT_PASS;
    dflash_status status = dp_result_read(path, &file, &err);
    if (status == DFLASH_OK) status = dp_render(&file, format, keep, &text, &err);
    if (status == DFLASH_OK && out != NULL) status = dp_text_file_write(out, text, &err);
    if (status == DFLASH_OK && out == NULL) {
        if (format == DP_REPORT_TEXT && dp_colour_wanted(stdout))
            dp_colour_write(stdout, text);
        else
            fputs(text, stdout);
        code = dp_finish_output("report", code);
    }
    if (status != DFLASH_OK) code = dp_report_error("report", &err);
    free(text);
    dp_result_file_release(&file);
    return code;
}

int cmd_report(int argc, char **argv) {
    const char *path = NULL, *as = NULL, *out = NULL, *keep = NULL;
    const dp_option own[] = {{"--as", &as}, {"--out", &out}, {"--keep-data", &keep}};
    dp_report_format format = DP_REPORT_TEXT;
    for (int i = 1; i < argc; i++) {
        if (dp_help_word(argv[i])) {
            fputs(help, stdout);
            return DP_EXIT_PASS;
        }
        int code = DP_EXIT_USAGE;
        const int taken = dp_take_option("report", argc, argv, &i, own, sizeof own / sizeof *own, &code);
        if (taken < 0) return code;
        if (taken > 0) continue;
        if (argv[i][0] == '-' && argv[i][1] != '\0') return dp_usage_error("report", "unknown word '%s'", argv[i]);
        if (path != NULL) return dp_usage_error("report", "one RESULT at a time; found %s and %s", path, argv[i]);
        path = argv[i];
    }
    if (path == NULL) return dp_usage_error("report", "RESULT is missing");
    if (as != NULL && !dp_report_format_parse(as, strlen(as), &format))
        return dp_usage_error("report", "--as takes text, markdown, junit, github or html, found '%s'", as);
    if (keep != NULL && format != DP_REPORT_HTML)
        return dp_usage_error("report", "--keep-data keeps the plots of a page and needs --as html");
    dp_destinations files = {.command = "report"};
    dp_destination_add(&files, (dp_destination){"--out", out, false});
    dp_destination_spare(&files, path);
    return dp_destinations_check(&files) == DP_EXIT_PASS ? render(path, format, out, keep) : files.code;
}
