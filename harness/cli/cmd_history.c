/* cmd_history.c - `dflash-parity history`: the runs on record as a table, drifts that grow, and the drift plot. */
#include "cli/commands.h"

#include "base/cli.h"
#include "common/error.h"
#include "history/history.h"
#include "base/output.h"
#include "report/plot_files.h"
#include "report/plot_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: dflash-parity history FILE [options]\n"
    "\n"
    "FILE is what check and gate append to with --history, a line a run. A line each for the runs of every case, "
    "oldest\n"
    "first: when, commit, verdict, the share of its limit that the nearest stage used. A case whose share has grown "
    "over\n"
    "its last comparable runs (same oracle, weights, backend, class, precision) is a warning, however far it is from\n"
    "its limit; a run that repeats the value before it says nothing and is not counted. Runs of a case that cannot be\n"
    "compared, such as of another class, are another series of it.\n"
    "\n"
    "  -k GLOB           only cases that GLOB matches\n"
    "  --last N          look at the last N runs of a case (default 20)\n"
    "  --plot DIR        write DIR/drift.dat, and DIR/drift.svg where gnuplot is there\n"
    "  --help            this text\n"
    "\n"
    "Exit codes: 0 the table was printed, whatever it tells; 2 usage, 3 no line of FILE could be understood, 4 "
    "runtime,\n"
    "5 no run to show.\n";

/* A window holds what a reader would call recently; with 20 runs a slow drift of many small steps is still seen. */
enum { USUAL_WINDOW = 20, MOST_WINDOW = 100000, MOST_TORN = 5 };

typedef struct words {
    const char *path, *filter, *plot;
    long last;
} words;

/* The distinct cases of a history, by series and name; each is the index of its last entry. */
typedef struct groups {
    int *last; /* owned */
    int count;
} groups;

static bool same(const dp_history_entry *a, const dp_history_entry *b) {
    return strcmp(a->series, b->series) == 0 && strcmp(a->name, b->name) == 0;
}

static dflash_status find_groups(const dp_history *h, const char *filter, groups *out, dflash_error *err) {
    *out = (groups){.last = malloc((size_t)(h->count + 1) * sizeof *out->last)};
    if (out->last == NULL) return df_fail_memory(err, "the cases of the history", 0);
    for (int i = 0; i < h->count; i++) {
        int g = 0;
        if (filter != NULL && !dp_glob(filter, h->entry[i].name)) continue;
        while (g < out->count && !same(&h->entry[out->last[g]], &h->entry[i])) g++;
        out->last[g] = i;
        if (g == out->count) out->count++;
    }
    return DFLASH_OK;
}

/* The entry is among the last `window` of its group. */
static bool recent(const dp_history *h, int index, long window) {
    long later = 0;
    for (int i = index + 1; i < h->count; i++) later += same(&h->entry[i], &h->entry[index]);
    return later < window;
}

static void print_share(double share) {
    if (isfinite(share))
        printf(" %8.1f %%", 100.0 * share);
    else
        printf(" %10s", isnan(share) ? "" : "beyond");
}

static void print_group(const dp_history *h, int last, const words *w) {
    const dp_history_entry *key = &h->entry[last];
    printf("%s (series %s)\n", key->name, key->series);
    printf("  %-20s  %-14s %-16s %10s %10s  %s\n", "when", "commit", "verdict", "of its limit", "final",
           "nearest stage");
    for (int i = 0; i <= last; i++) {
        const dp_history_entry *e = &h->entry[i];
        if (!same(e, key) || !recent(h, i, w->last)) continue;
        char commit[32];
        snprintf(commit, sizeof commit, "%.12s%s", e->commit, e->dirty ? "+" : "");
        printf("  %-20s  %-14s %-16s", e->when, commit, e->verdict);
        print_share(e->used);
        print_share(e->final);
        printf("  %s\n", e->stage);
    }
}

static void print_drift(const dp_drift *drift) {
    if (drift->growing)
        printf("  warn: the share has grown over %d changes, by %.2g %% of the limit (scatter %.2g %%), from %s to %s; "
               "values "
               "without a trend rise this steadily with a chance of %.2g %%\n",
               drift->changes, 100.0 * drift->rise, 100.0 * drift->scatter, drift->first->when, drift->last->when,
               100.0 * drift->chance);
}

/* ---- The plot ---- */

static dflash_status write_plot(const dp_history *h, const groups *g, const words *w, dflash_error *err) {
    const size_t entries = (size_t)h->count + 1;
    dp_plot_curve *curve = calloc((size_t)g->count + 1, sizeof *curve);
    const char **point = malloc(entries * sizeof *point);
    int *x = malloc(entries * sizeof *x);
    double *value = malloc(entries * sizeof *value);
    int used = 0;
    dflash_status status = curve != NULL && point != NULL && x != NULL && value != NULL
                               ? DFLASH_OK
                               : df_fail_memory(err, "the plot of the history", entries * sizeof *value);
    for (int i = 0; status == DFLASH_OK && i < g->count; i++) {
        const dp_history_entry *key = &h->entry[g->last[i]];
        curve[i] = (dp_plot_curve){.label = key->name, .point = point + used, .x = x + used, .value = value + used};
        for (int e = 0; e <= g->last[i]; e++) {
            if (!same(&h->entry[e], key) || !recent(h, e, w->last) || isnan(h->entry[e].used)) continue;
            point[used] = h->entry[e].when;
            x[used] = curve[i].count++;
            value[used++] = h->entry[e].used;
        }
    }
    dp_plots plots;
    char *picture = NULL;
    if (status == DFLASH_OK) status = dp_plots_begin(w->plot, &plots, err);
    if (status == DFLASH_OK) status = dp_plot_write_curves(&plots, "drift", curve, g->count, true, err);
    /* The data is the result; a picture that cannot be drawn is told and changes no exit code. */
    if (status == DFLASH_OK &&
        dp_plots_draw(&plots, "drift", "drift", "Share of the limit used, run by run", &picture, err) != DFLASH_OK)
        dp_report_error("history", err);
    free(picture);
    free(curve);
    free(point);
    free(x);
    free(value);
    return status;
}

/* ---- The command ---- */

static int show(const words *w, const dp_history *h, dflash_error *err) {
    groups g;
    int warnings = 0;
    dflash_status status = find_groups(h, w->filter, &g, err);
    for (int i = 0; status == DFLASH_OK && i < g.count; i++) {
        const dp_history_entry *key = &h->entry[g.last[i]];
        dp_drift drift;
        status = dp_drift_of(h, key->series, key->name, (int)w->last, g.count, &drift, err);
        if (status != DFLASH_OK) break;
        print_group(h, g.last[i], w);
        print_drift(&drift);
        warnings += drift.growing;
    }
    if (status == DFLASH_OK && w->plot != NULL && g.count > 0) status = write_plot(h, &g, w, err);
    const int count = g.count;
    free(g.last);
    if (status != DFLASH_OK) return dp_report_error("history", err);
    for (int i = 0; i < h->torn_count && i < MOST_TORN; i++)
        printf("line %d of %s is no whole line of a run; it was left as it is and not counted\n", h->torn[i], w->path);
    if (h->torn_count > MOST_TORN) printf("nor are %d more of its lines\n", h->torn_count - MOST_TORN);
    printf("%d run%s, %d series, %d with a drift that grows\n", h->lines, dp_plural(h->lines), count, warnings);
    if (count == 0 && h->lines > 0 && w->filter != NULL)
        fprintf(stderr, "dflash-parity history: -k '%s' matches no case of %s; run it without -k.\n", w->filter,
                w->path);
    if (h->lines == 0 && h->torn_count > 0) {
        fprintf(stderr,
                "dflash-parity history: %s is no history; give a file that check or gate wrote with --history.\n",
                w->path);
        return dp_finish_output("history", DP_EXIT_REFUSED);
    }
    return dp_finish_output("history", count > 0 ? DP_EXIT_PASS : DP_EXIT_NOTHING);
}

int cmd_history(int argc, char **argv) {
    words w = {.last = USUAL_WINDOW};
    const char *last = NULL;
    const dp_option own[] = {{"-k", &w.filter}, {"--last", &last}, {"--plot", &w.plot}};
    for (int i = 1; i < argc; i++) {
        int code = DP_EXIT_USAGE;
        if (dp_help_word(argv[i])) {
            fputs(help, stdout);
            return DP_EXIT_PASS;
        }
        const int taken = dp_take_option("history", argc, argv, &i, own, sizeof own / sizeof *own, &code);
        if (taken < 0) return code;
        if (taken > 0) continue;
        if ((argv[i][0] == '-' && argv[i][1] != '\0') || w.path != NULL)
            return dp_usage_error("history", "unknown word '%s'", argv[i]);
        w.path = argv[i];
    }
    if (w.path == NULL) return dp_usage_error("history", "FILE is missing");
    if (last != NULL && !dp_parse_int(last, 2, MOST_WINDOW, &w.last))
        return dp_usage_error("history", "--last takes a whole number from 2 to %d, found '%s'", MOST_WINDOW, last);
    dp_history history;
    dflash_error err;
    const int code = dp_history_read(w.path, &history, &err) == DFLASH_OK ? show(&w, &history, &err)
                                                                          : dp_report_error("history", &err);
    dp_history_release(&history);
    return code;
}
