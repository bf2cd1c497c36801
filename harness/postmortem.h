/*
 * postmortem.h - several results of the same cases, put in order: when a case last passed, when it first did not, and
 * what was different.
 *
 * A pass counts as good only when it compared the stage that later diverged, so a filtered pass is no evidence about
 * what it left out.
 */
#ifndef DP_POSTMORTEM_H
#define DP_POSTMORTEM_H

#include "dflash.h"

#include <cjson/cJSON.h>
#include <stdio.h>

typedef enum dp_order { DP_ORDER_TIME, DP_ORDER_GIVEN } dp_order;

typedef struct dp_past_run {
    const char *path; /* borrowed */
    cJSON *document;  /* owned; a result file */
} dp_past_run;

/* One case over all runs. */
typedef struct dp_past_case {
    const char *name;                               /* borrowed from a document */
    const cJSON **in_run;                           /* owned, [runs]: the case in each run, NULL where it was not run */
    int last_good, first_bad, last_bad, good_again; /* runs; -1: there is none */
} dp_past_case;

/* A fact that differs between the last good and the first bad run. */
typedef struct dp_change {
    char *name, *before, *after; /* owned; "-" for a fact that one side does not have */
} dp_change;

typedef struct dp_postmortem {
    dp_past_run *run; /* owned, in order */
    int run_count;
    dp_past_case *item; /* owned; cases that did not pass first */
    int item_count;
} dp_postmortem;

/* Reads the files. With DP_ORDER_TIME runs are ordered by their start, equal ones as given. Codes: those of reading a
 * result file, "postmortem.recording" (an .h5 file), "postmortem.empty" (no case in any of them). */
df_status dp_postmortem_read(const char *const *paths, int count, dp_order order, dp_postmortem *out, df_error *err);
void dp_postmortem_release(dp_postmortem *story);

/* What differs between two runs of a case: environment, checkpoint, oracle, how it ran. The caller releases the list.
 */
df_status dp_postmortem_changes(const dp_postmortem *story, const dp_past_case *item, int before, int after,
                                dp_change **out, int *count, df_error *err);
void dp_changes_release(dp_change *list, int count);

/* Name of a run for people: commit (with + when dirty) and start. */
enum { DP_RUN_NAME = 96 };
const char *dp_past_run_name(const dp_past_run *run, char name[DP_RUN_NAME]);

/* The outcome of a case over all runs, in a sentence; names in `ticks`. */
void dp_postmortem_outcome(FILE *to, const dp_postmortem *story, const dp_past_case *item);

/* The text to paste, and the page (with plots; keep as in plot_run.h). The caller frees them. */
df_status dp_postmortem_markdown(const dp_postmortem *story, char **out, df_error *err);
df_status dp_postmortem_html(const dp_postmortem *story, const char *keep, char **out, df_error *err);

#endif
