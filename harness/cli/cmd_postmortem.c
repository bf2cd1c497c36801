/* cmd_postmortem.c - `dflash-parity postmortem`: results of several runs, told as one story. */
#include "cli/commands.h"

#include "base/cli.h"
#include "cli/destinations.h"
#include "base/output.h"
#include "history/postmortem.h"
#include "base/text_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: dflash-parity postmortem RUN... [options]\n"
    "\n"
    "RUN is a file that check --out or gate --out wrote, or a recording (record --out). The runs are put in order; "
    "for\n"
    "every case that does not pass the story tells the last good run, the first bad one, what changed between them,\n"
    "where it began, what carried it on and what it did to the tokens. Without --markdown the text goes to standard\n"
    "output. A recording holds no verdict: it is held against the oracle, or else, bit for bit, against the first\n"
    "recording in order; beside results it needs their oracle.\n"
    "\n"
    "  --out FILE        also write the page (HTML, one file, plots inside)\n"
    "  --markdown FILE   write the text to FILE\n"
    "  --oracle FILE     what recordings are judged by\n"
    "  --order ORDER     time: by the start of each run, for a recording the time of its file (default); revision: "
    "along\n"
    "                    the commits of --repo, runs of one commit by time; given: as named\n"
    "  --repo DIR        the repository that the runs were built from; the commits between good and bad are listed\n"
    "  --keep-data DIR   leave in DIR the data of every plot of the page, the script that draws it and the picture\n"
    "  --help            this text\n"
    "\n"
    "Exit codes: 0 the story was written, whatever it tells; 2 usage, 3 refused (no result or recording, or of "
    "another\n"
    "series), 4 runtime.\n";

typedef struct words {
    dp_postmortem_options read;
    const char **path; /* owned list of borrowed words; read.paths */
    const char *out, *markdown, *keep;
} words;

static int take(words *w, int argc, char **argv, int *i) {
    static const char *const orders[] = {
        [DP_ORDER_TIME] = "time", [DP_ORDER_GIVEN] = "given", [DP_ORDER_REVISION] = "revision"};
    const char *order = NULL;
    const dp_option own[] = {{"--out", &w->out},
                             {"--markdown", &w->markdown},
                             {"--keep-data", &w->keep},
                             {"--oracle", &w->read.oracle},
                             {"--repo", &w->read.repository},
                             {"--order", &order}};
    int code = DP_EXIT_USAGE;
    const int taken = dp_take_option("postmortem", argc, argv, i, own, sizeof own / sizeof *own, &code);
    if (taken < 0) return code;
    if (order != NULL) {
        int o = 0;
        while (o <= DP_ORDER_REVISION && strcmp(order, orders[o]) != 0) o++;
        if (o > DP_ORDER_REVISION)
            return dp_usage_error("postmortem", "--order is time, revision or given, not '%s'", order);
        w->read.order = (dp_order)o;
    }
    if (taken > 0) return DP_EXIT_PASS;
    if (argv[*i][0] == '-' && argv[*i][1] != '\0') return dp_usage_error("postmortem", "unknown word '%s'", argv[*i]);
    w->path[w->read.count++] = argv[*i];
    return DP_EXIT_PASS;
}

static dflash_status tell(const words *w, const dp_postmortem *summary, dflash_error *err) {
    char *markdown = NULL, *page = NULL;
    dflash_status status = dp_postmortem_markdown(summary, &markdown, err);
    if (status == DFLASH_OK && w->markdown != NULL) status = dp_text_file_write(w->markdown, markdown, err);
    if (status == DFLASH_OK && w->markdown == NULL) fputs(markdown, stdout);
    if (status == DFLASH_OK && w->out != NULL) status = dp_postmortem_html(summary, w->keep, &page, err);
    if (status == DFLASH_OK && w->out != NULL) status = dp_text_file_write(w->out, page, err);
    free(markdown);
    free(page);
    return status;
}

int cmd_postmortem(int argc, char **argv) {
    words w = {.path = calloc((size_t)argc + 1, sizeof *w.path)};
    dp_postmortem summary = {.run = NULL};
    dflash_error err = {.message = ""};
    int code = DP_EXIT_PASS;
    if (w.path == NULL) {
        fputs("dflash-parity postmortem: out of memory\n", stderr);
        return DP_EXIT_RUNTIME;
    }
    for (int i = 1; code == DP_EXIT_PASS && i < argc; i++) {
        if (dp_help_word(argv[i])) {
            fputs(help, stdout);
            goto cleanup;
        }
        code = take(&w, argc, argv, &i);
    }
    if (code != DP_EXIT_PASS) goto cleanup;
    if (w.read.count == 0) code = dp_usage_error("postmortem", "RUN is missing");
    if (code == DP_EXIT_PASS && w.read.order == DP_ORDER_REVISION && w.read.repository == NULL)
        code = dp_usage_error("postmortem", "--order revision needs --repo DIR, the repository that tells the order");
    if (code == DP_EXIT_PASS && w.keep != NULL && w.out == NULL)
        code = dp_usage_error("postmortem", "--keep-data keeps the plots of the page and needs --out FILE");
    if (code != DP_EXIT_PASS) goto cleanup;
    dp_destinations files = {.command = "postmortem"};
    dp_destination_add(&files, (dp_destination){"--out", w.out, false});
    dp_destination_add(&files, (dp_destination){"--markdown", w.markdown, false});
    dp_destination_spare(&files, w.read.oracle);
    for (int i = 0; i < w.read.count; i++) dp_destination_spare(&files, w.path[i]);
    code = dp_destinations_check(&files);
    if (code != DP_EXIT_PASS) goto cleanup;
    w.read.paths = w.path;
    dflash_status status = dp_postmortem_read(&w.read, &summary, &err);
    if (status == DFLASH_OK) status = tell(&w, &summary, &err);
    code = status == DFLASH_OK ? dp_finish_output("postmortem", DP_EXIT_PASS) : dp_report_error("postmortem", &err);
cleanup:
    dp_postmortem_release(&summary);
    free(w.path);
    return code;
}
