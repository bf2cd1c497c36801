/*
 * progress.h - a line on stderr that says how far a long job is, how fast it goes and how long it will take.
 *
 * A terminal shows one line, which each update draws again and the end removes. A log or a pipe gets a line of its own
 * every ten seconds, so that a quick job leaves none and a long one is not taken for dead. Results belong on stdout and
 * are not this file's business. Of jobs inside each other the inner one has the line while it lasts.
 */
#ifndef DP_PROGRESS_H
#define DP_PROGRESS_H

#include <stdbool.h>

typedef struct dp_progress {
    const char *label; /* borrowed */
    const char *unit;  /* borrowed, the plural of what is counted; NULL: bytes */
    double total;      /* in units; 0: not known */
    double started, shown;
    bool terminal, drawn;
} dp_progress;

void dp_progress_begin(dp_progress *progress, const char *label, const char *unit, double total);
/* Shows at most ten lines a second on a terminal, one in ten seconds in a log. `what` is at work now; NULL: nothing to
 * add. */
void dp_progress_update(dp_progress *progress, double done, const char *what);
/* Leaves the time since `moment` (clock.h) out of the rate: another job with a line of its own took it. */
void dp_progress_skip(dp_progress *progress, double moment);
/* Removes the line, for something else that is printed now; the next update draws it again. */
void dp_progress_clear(dp_progress *progress);
/* Removes the line. */
void dp_progress_end(dp_progress *progress);

/* A stretch of a job that somebody else goes through, who knows it as 0 to 1. All zero: nobody watches. */
typedef struct dp_progress_part {
    dp_progress *progress;
    double from, size;
    const char *label; /* goes before `what`; borrowed, NULL: none */
} dp_progress_part;
void dp_progress_share(const dp_progress_part *part, double share, const char *what);
/* The stretch from one share of `part` to another. */
dp_progress_part dp_progress_stretch(const dp_progress_part *part, double from, double to);

#endif
