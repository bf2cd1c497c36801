/*
 * history_drift.c - has the error of a case grown over its last runs, while every run passed?
 *
 * The value of a run is the share of its limit that it used. Runs are comparable when their series agree. The same
 * program gives the same value every time, so a run that repeats its predecessor's says nothing about a trend and is
 * left out; so is a run without a finite value, which is a failure and not a drift. What is left is judged by two
 * questions, and only two yes are a warning:
 *
 *   steadily?  Mann-Kendall: of all pairs of values, how many more rise than fall. If the values came in random order,
 *              each of the n! orders would be as likely, which gives the exact chance of rising so steadily. Equal
 *              values count neither way, which makes the chance too large and the warning rarer, never more frequent.
 *              The chance must be below `false_warnings`, divided by the number of series that are asked about in one
 *              go (Bonferroni), so that the figure holds for the whole table however many cases it has.
 *   by much?   Theil-Sen: the median slope of all pairs. Its rise over the runs must exceed the scatter, which is the
 *              median distance of the values from that line: a change that the values' own unrest could be is none.
 */
#include "history/history.h"

#include "common/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of how many looks at a history without any drift one may warn: 1 in 20. A warning fails nothing; it costs a reader a
 * look at a table, and one needless look in twenty is what statistics commonly allows. With one series the fewest
 * changes that can be significant are then 4 (1/4! = 4.2 %), with 28 series 6 (1/6! = 0.14 %). */
static const double false_warnings = 1.0 / 20.0;

/* Orders are counted exactly in a table of n (n - 1) / 2 entries; this many keep it small, and 64! / 2^64 fits. */
enum { MOST_VALUES = 64 };

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *value, int count) {
    qsort(value, (size_t)count, sizeof *value, by_value);
    return count % 2 == 1 ? value[count / 2] : 0.5 * (value[count / 2 - 1] + value[count / 2]);
}

double dp_trend_chance(int n, int s) {
    /* share[k]: of the orders of the values so far, the share with k falling pairs. Value i adds 0 ... i of them, each
     * equally often. */
    enum { MOST_PAIRS = MOST_VALUES * (MOST_VALUES - 1) / 2 };
    double share[MOST_PAIRS + 1] = {1.0}, next[MOST_PAIRS + 1];
    const int pairs = n * (n - 1) / 2;
    double chance = 0.0;
    if (n < 2 || n > MOST_VALUES) return 1.0;
    for (int i = 1; i < n; i++) {
        for (int k = 0; k <= pairs; k++) {
            next[k] = 0.0;
            for (int added = 0; added <= i && added <= k; added++) next[k] += share[k - added] / (i + 1);
        }
        memcpy(share, next, sizeof *share * (size_t)(pairs + 1));
    }
    for (int k = 0; k <= pairs && pairs - 2 * k >= s; k++) chance += share[k]; /* s = rising - falling */
    return fmin(chance, 1.0);
}

static int surplus(const double *value, int n) {
    int s = 0;
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++) s += (value[j] > value[i]) - (value[j] < value[i]);
    return s;
}

/* Fits the line, and says how far it rises and how far the values lie from it. `room` holds n (n - 1) / 2. */
static void fit(const double *value, int n, double *room, dp_drift *out) {
    int pairs = 0;
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++) room[pairs++] = (value[j] - value[i]) / (j - i);
    const double slope = median(room, pairs);
    for (int i = 0; i < n; i++) room[i] = value[i] - slope * i;
    const double start = median(room, n);
    for (int i = 0; i < n; i++) room[i] = fabs(value[i] - slope * i - start);
    out->scatter = median(room, n);
    out->rise = slope * (n - 1);
}

static bool belongs(const dp_history_entry *e, const char *series, const char *name) {
    return strcmp(e->series, series) == 0 && strcmp(e->name, name) == 0;
}

dflash_status dp_drift_of(const dp_history *history, const char *series, const char *name, int window, int series_count,
                          dp_drift *out, dflash_error *err) {
    double value[MOST_VALUES];
    int runs = 0, seen = 0;
    *out = (dp_drift){.chance = 1.0};
    for (int i = 0; i < history->count; i++) runs += belongs(&history->entry[i], series, name);
    for (int i = 0; i < history->count; i++) {
        const dp_history_entry *e = &history->entry[i];
        if (!belongs(e, series, name) || seen++ < runs - window) continue;
        out->last = e;
        if (out->first == NULL) out->first = e;
        if (!isfinite(e->used) || (out->changes > 0 && value[out->changes - 1] == e->used)) continue;
        if (out->changes == MOST_VALUES) memmove(value, value + 1, (size_t)--out->changes * sizeof *value);
        value[out->changes++] = e->used;
    }
    if (out->changes < 2) return DFLASH_OK;
    double *room = malloc((size_t)(out->changes * out->changes) * sizeof *room);
    if (room == NULL) return df_fail_memory(err, "the drift of a history", 0);
    out->chance = dp_trend_chance(out->changes, surplus(value, out->changes));
    fit(value, out->changes, room, out);
    out->growing = out->chance <= false_warnings / (series_count > 0 ? series_count : 1) && out->rise > out->scatter;
    free(room);
    return DFLASH_OK;
}
