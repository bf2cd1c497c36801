/* plot_run.c - see plot_run.h. */
#include "report/plot_run.h"

#include "common/error.h"
#include "base/process.h"
#include "base/text_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_SVG = 8 << 20, MOST_SCRIPT = 1 << 20, MOST_LOG = 1 << 20, QUOTED = 2 * DP_PLOT_PATH };

/* ---- Folders ---- */

static bool holds_scripts(const char *folder) {
    char path[DP_PLOT_PATH];
    snprintf(path, sizeof path, "%s/stages.gp", folder);
    return access(path, R_OK) == 0;
}

/* build/dflash-parity has its scripts in reports/ beside build/, wherever it is called from. */
static dflash_status find_scripts(dp_plots *out, dflash_error *err) {
    char program[DP_PLOT_PATH - 300];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length > 0) {
        program[length] = '\0';
        for (int up = 0; up < 2; up++) {
            char *slash = strrchr(program, '/');
            if (slash != NULL) *slash = '\0';
        }
        snprintf(out->scripts, sizeof out->scripts, "%s/reports", program);
        if (holds_scripts(out->scripts)) return DFLASH_OK;
    }
    snprintf(out->scripts, sizeof out->scripts, "reports");
    if (holds_scripts(out->scripts)) return DFLASH_OK;
    return df_fail(err, DFLASH_ERR_IO, "plot.scripts",
                   "The gnuplot scripts are not there: expected reports/stages.gp beside the build folder of this "
                   "program or below the current folder. Run the program from the repository that it was built in.");
}

dflash_status dp_plots_begin(const char *keep, dp_plots *out, dflash_error *err) {
    *out = (dp_plots){.temporary = keep == NULL};
    dp_progress_begin(&out->progress, "gnuplot", "plots", 0.0);
    TRY(find_scripts(out, err));
    if (keep == NULL) return dp_scratch_make(out->folder, err);
    if (strlen(keep) >= sizeof out->folder)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "plot.folder",
                       "The folder for plots has a path of %zu characters; expected fewer than %zu. Choose a shorter "
                       "one.",
                       strlen(keep), sizeof out->folder);
    snprintf(out->folder, sizeof out->folder, "%s", keep);
    struct stat found;
    if (mkdir(out->folder, 0777) == 0) return DFLASH_OK;
    if (errno == EEXIST && stat(out->folder, &found) == 0 && S_ISDIR(found.st_mode)) return DFLASH_OK;
    return df_fail(
        err, DFLASH_ERR_IO, "plot.folder",
        "Cannot make the folder %s for plots: %s. Check that its parent exists and can be written, and that no file "
        "stands there.",
        out->folder, strerror(errno));
}

void dp_plots_end(dp_plots *plots) {
    dp_progress_end(&plots->progress);
    if (plots->temporary) dp_scratch_remove(plots->folder);
    plots->temporary = false;
}

dflash_status dp_plots_keep_script(const dp_plots *plots, const char *script, dflash_error *err) {
    char from[DP_PLOT_PATH], to[DP_PLOT_PATH], *text = NULL, *there = NULL;
    dflash_error absent;
    if (plots->temporary) return DFLASH_OK;
    snprintf(from, sizeof from, "%s/%s.gp", plots->scripts, script);
    snprintf(to, sizeof to, "%s/%s.gp", plots->folder, script);
    TRY(dp_text_file_read(from, MOST_SCRIPT, &text, err));
    /* One that is the same is left alone: the folder may be that of the scripts. */
    const bool same = dp_text_file_read(to, MOST_SCRIPT, &there, &absent) == DFLASH_OK && strcmp(there, text) == 0;
    const dflash_status status = same ? DFLASH_OK : dp_text_file_write(to, text, err);
    free(there);
    free(text);
    return status;
}

/* ---- gnuplot ---- */

/* A string of gnuplot in single quotes: a quote is doubled, and a line break, which would end it, becomes a space. */
static void quote(const char *text, char out[QUOTED]) {
    size_t used = 0;
    out[used++] = '\'';
    for (; *text != '\0' && used + 3 < QUOTED; text++) {
        if (*text == '\'') out[used++] = '\'';
        out[used++] = (unsigned char)*text < 0x20 ? ' ' : *text;
    }
    out[used++] = '\'';
    out[used] = '\0';
}

static dflash_status gnuplot_failed(int code, const char *script, const char *log, dflash_error *err) {
    char *words = NULL;
    dflash_error ignored;
    if (dp_text_file_read(log, MOST_LOG, &words, &ignored) == DFLASH_OK)
        for (char *s = words; *s != '\0'; s++)
            if (*s == '\n') *s = ' ';
    df_fail(err, DFLASH_ERR_IO, "plot.gnuplot",
            "gnuplot ended with exit code %d over %s: \"%.300s\". The report is complete but for this plot; gnuplot "
            "5.4 or later draws it.",
            code, script, words != NULL ? words + strspn(words, " ") : "");
    free(words);
    return DFLASH_ERR_IO;
}

dflash_status dp_plots_draw(dp_plots *plots, const char *script, const char *name, const char *title, char **svg,
                            dflash_error *err) {
    char data[DP_PLOT_PATH], out[DP_PLOT_PATH], log[DP_PLOT_PATH], path[DP_PLOT_PATH];
    char quoted[3][QUOTED], settings[3 * QUOTED + 64];
    *svg = NULL;
    dp_progress_update(&plots->progress, plots->drawn++, title);
    snprintf(data, sizeof data, "%s/%s.dat", plots->folder, name);
    snprintf(out, sizeof out, "%s/%s.svg", plots->folder, name);
    snprintf(log, sizeof log, "%s/%s.log", plots->folder, name);
    snprintf(path, sizeof path, "%s/%s.gp", plots->scripts, script);
    quote(data, quoted[0]);
    quote(out, quoted[1]);
    quote(title, quoted[2]);
    snprintf(settings, sizeof settings, "data=%s; out=%s; title=%s", quoted[0], quoted[1], quoted[2]);
    const char *const argv[] = {"gnuplot", "-d", "-e", settings, path, NULL};
    const dp_process gnuplot = {.argv = argv, .out = log, .err = log};
    dflash_error why;
    int code = 0;
    unlink(log); /* streams are appended to */
    dflash_status status = dp_process_run(&gnuplot, &code, &why);
    if (status != DFLASH_OK && strcmp(why.code, "process.start") == 0)
        status = df_fail(err, DFLASH_ERR_IO, "plot.gnuplot.missing",
                         "gnuplot is not installed (no such program in PATH), so this report has no plots. It is "
                         "complete otherwise; install gnuplot (Debian: gnuplot-nox) and render the result file again.");
    else if (status != DFLASH_OK)
        status = df_fail(err, DFLASH_ERR_IO, "plot.gnuplot", "gnuplot did not draw: %s The report has no plots.",
                         why.message);
    else if (code != 0)
        status = gnuplot_failed(code, path, log, err);
    if (status == DFLASH_OK) status = dp_text_file_read(out, MOST_SVG, svg, err);
    unlink(log);
    return status;
}
