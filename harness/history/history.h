/*
 * history.h - one line of JSON for every run, appended to a file that many runs share; and what the lines tell.
 *
 * A line is {"history": 1, "when", "tool", "verdict", "exit_code", "commit", "dirty", "compiler", "command", "cases"};
 * a case is {"case", "verdict", "code" (of an error, or null), "series", "backend", "class", "products", "precision",
 * "stage", "used", "final"}. `used` is the share of its limit that the stage with the least headroom used (1 -
 * headroom), `final` that of the stage `final` (null when it was not compared), `series` 16 hex digits over everything
 * that makes two runs comparable: backend, class, products, precision, the oracle's and the tensors' digests, the
 * filter.
 */
#ifndef DP_HISTORY_H
#define DP_HISTORY_H

#include "report/result_file.h"

enum { DP_HISTORY_VERSION = 1, DP_SERIES_TEXT = 17 };

/* Appends the line of a result. Safe beside other writers: one write under a lock, and a line that could not be written
 * whole is taken back. Where the file ends in a torn line a new line is begun, so that neither is lost. Codes:
 * "history.open", "history.lock", "history.write", "memory". */
dflash_status dp_history_append(const char *path, const dp_result_file *file, dflash_error *err);
/* Whether a line could be appended there; leaves nothing behind. */
dflash_status dp_history_check(const char *path, dflash_error *err);

typedef struct dp_history_entry {
    char *when, *commit, *name, *verdict, *stage; /* owned */
    char series[DP_SERIES_TEXT];
    bool dirty;
    double used, final; /* NaN when not known */
    int line;           /* in the file, from 1 */
} dp_history_entry;

typedef struct dp_history {
    dp_history_entry *entry; /* owned; a line of a gate gives one for each case */
    int count, capacity, lines;
    int *torn; /* owned; numbers of the lines that are no whole lines of this version */
    int torn_count;
} dp_history;

/* Lines that cannot be understood are kept in *out by number and are no error. Codes: those of dp_text_file_read. */
dflash_status dp_history_read(const char *path, dp_history *out, dflash_error *err);
void dp_history_release(dp_history *history);

/* ---- Drift (history_drift.c) ---- */

typedef struct dp_drift {
    const dp_history_entry *first, *last; /* of the runs looked at */
    int changes;          /* values looked at: a run that repeats its predecessor's value says nothing */
    double chance;        /* that values without a trend rise this steadily, or more */
    double rise, scatter; /* by the fitted line, from the first to the last; median distance of the values from it */
    bool growing;
} dp_drift;

/* Whether the values of one series have grown over its last `window` runs. `series_count` is how many series are asked
 * about at once. The decision and its reasons stand in history_drift.c. Code: "memory". */
dflash_status dp_drift_of(const dp_history *history, const char *series, const char *name, int window, int series_count,
                          dp_drift *out, dflash_error *err);

/* Chance that a random order of n different values has at least s more rising than falling pairs (Mann-Kendall). */
double dp_trend_chance(int n, int s);

#endif
