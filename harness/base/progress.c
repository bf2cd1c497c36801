/* progress.c - see progress.h. */
#include "base/progress.h"

#include "base/clock.h"

#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LINE = 400, USUAL_COLUMNS = 80 };
static const double REDRAW_SECONDS = 0.1, LOG_SECONDS = 10.0;
#define CLEAR "\r\033[K"

void dp_progress_begin(dp_progress *progress, const char *label, const char *unit, double total) {
    const double now = dp_seconds();
    *progress = (dp_progress){.label = label,
                              .unit = unit,
                              .total = total,
                              .started = now,
                              .shown = now - REDRAW_SECONDS,
                              .terminal = isatty(STDERR_FILENO) == 1};
}

/* A line that wraps could not be removed. */
static int columns(void) {
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : USUAL_COLUMNS;
}

static void time_text(double seconds, char *out, size_t size) {
    if (seconds < 120.0)
        snprintf(out, size, "%.0f s", seconds);
    else if (seconds < 7200.0)
        snprintf(out, size, "%.0f min", seconds / 60.0);
    else
        snprintf(out, size, "%.1f h", seconds / 3600.0);
}

static void rate_text(const dp_progress *p, double rate, char *out, size_t size) {
    if (p->unit == NULL)
        snprintf(out, size, "%.0f MB/s", rate / 1e6);
    else if (rate >= 1.0 || rate <= 0.0)
        snprintf(out, size, "%.3g %s/s", rate, p->unit);
    else
        snprintf(out, size, "%.3g %s/min", 60.0 * rate, p->unit);
}

void dp_progress_update(dp_progress *progress, double done, const char *what) {
    const double now = dp_seconds(), spent = now - progress->started;
    if (now - progress->shown < (progress->terminal ? REDRAW_SECONDS : LOG_SECONDS)) return;
    progress->shown = now;
    progress->drawn = progress->terminal;
    char line[LINE], rate[40] = "", left[24] = "";
    int used = snprintf(line, sizeof line, "%s: ", progress->label);
    if (progress->total > 0.0)
        used += snprintf(line + used, sizeof line - (size_t)used, "%.0f %%", 100.0 * done / progress->total);
    else
        used += snprintf(line + used, sizeof line - (size_t)used, "%.0f %s", done, progress->unit);
    if (done > 0.0 && spent > 0.0) {
        rate_text(progress, done / spent, rate, sizeof rate);
        used += snprintf(line + used, sizeof line - (size_t)used, ", %s", rate);
        if (progress->total > 0.0) {
            time_text((progress->total - done) * spent / done, left, sizeof left);
            used += snprintf(line + used, sizeof line - (size_t)used, ", %s left", left);
        }
    }
    if (what != NULL) snprintf(line + used, sizeof line - (size_t)used, ": %s", what);
    if (progress->terminal)
        fprintf(stderr, CLEAR "%.*s", columns() - 1, line);
    else
        fprintf(stderr, "%s\n", line);
}

void dp_progress_skip(dp_progress *progress, double moment) { progress->started += dp_seconds() - moment; }

void dp_progress_clear(dp_progress *progress) {
    if (progress->drawn) fputs(CLEAR, stderr);
    progress->drawn = false;
}

void dp_progress_end(dp_progress *progress) { dp_progress_clear(progress); }

void dp_progress_share(const dp_progress_part *part, double share, const char *what) {
    char both[LINE / 2];
    if (part->progress == NULL) return;
    snprintf(both, sizeof both, "%s%s%s", part->label != NULL ? part->label : "", part->label != NULL ? ", " : "",
             what);
    dp_progress_update(part->progress, part->from + share * part->size, both);
}

dp_progress_part dp_progress_stretch(const dp_progress_part *part, double from, double to) {
    dp_progress_part stretch = *part;
    stretch.from += from * part->size;
    stretch.size *= to - from;
    return stretch;
}
