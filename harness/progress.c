/* progress.c - see progress.h. */
#include "progress.h"

#include "clock.h"

#include <stdio.h>
#include <unistd.h>

static const double REDRAW_SECONDS = 0.1;

void dp_progress_begin(dp_progress *progress, const char *label, uint64_t total_bytes) {
    progress->label = label;
    progress->total = total_bytes;
    progress->terminal = isatty(STDERR_FILENO) == 1;
    progress->started = dp_seconds();
    progress->shown = progress->started;
}

void dp_progress_update(dp_progress *progress, uint64_t done_bytes) {
    if (!progress->terminal || progress->total == 0 || done_bytes == 0) return;
    const double now = dp_seconds();
    if (now - progress->shown < REDRAW_SECONDS) return;
    progress->shown = now;
    const double done = (double)done_bytes, total = (double)progress->total;
    const double rate = done / (now - progress->started);
    fprintf(stderr, "\r%s: %3.0f %%, %.0f MB/s, %.0f s left ", progress->label, 100.0 * done / total, rate / 1e6,
            (total - done) / rate);
}

void dp_progress_end(dp_progress *progress) {
    /* Return, then clear to the end of the line. */
    if (progress->terminal && progress->shown > progress->started) fputs("\r\033[K", stderr);
}
