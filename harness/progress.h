/*
 * progress.h - one line on stderr that says how far a long job is, how fast it goes and how long it will take.
 *
 * Nothing is printed unless stderr is a terminal, so logs and pipes stay clean. Results belong on stdout and are not
 * this file's business.
 */
#ifndef DP_PROGRESS_H
#define DP_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct dp_progress {
    const char *label; /* borrowed */
    uint64_t total;    /* bytes */
    double started, shown;
    bool terminal;
} dp_progress;

void dp_progress_begin(dp_progress *progress, const char *label, uint64_t total_bytes);
/* Redraws at most ten times a second. */
void dp_progress_update(dp_progress *progress, uint64_t done_bytes);
/* Removes the line. */
void dp_progress_end(dp_progress *progress);

#endif
