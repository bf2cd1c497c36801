/*
 * postmortem.h - several runs of the same cases, put in order: when a case last passed, when it first did not, and
 * what was different.
 *
 * A run is a result file, read by result_file.h alone, or a recording. A recording holds values and no verdict, so it
 * is judged here, against the oracle that the caller names or else, bit by bit, against the first recording in order;
 * the judgement takes the form of a result file, and everything after that treats both alike. A pass counts as good
 * only when it compared what later failed, so a filtered pass is no evidence about what it left out.
 */
#ifndef DP_POSTMORTEM_H
#define DP_POSTMORTEM_H

#include "base/clock.h"
#include "bisect/git_history.h"
#include "judge/identity_pair.h"
#include "report/result_file.h"

#include <stdio.h>

typedef enum dp_order { DP_ORDER_TIME, DP_ORDER_GIVEN, DP_ORDER_REVISION } dp_order;
const char *dp_order_text(dp_order order); /* "in order of their start", ... */

typedef struct dp_postmortem_options {
    const char *const *paths; /* results and recordings */
    int count;
    dp_order order;         /* DP_ORDER_REVISION needs a repository */
    const char *oracle;     /* what recordings are judged by; NULL: the first recording */
    const char *repository; /* a folder of the work tree that the runs were built from; NULL: commits are only names */
} dp_postmortem_options;

/* What a recording has that its judgement does not hold. */
typedef struct dp_past_recording {
    cJSON *engine, *environment; /* owned: what its engine says of itself, and that without how it ran */
    char config_sha256[DP_DIGEST_TEXT], tensors_sha256[DP_DIGEST_TEXT]; /* as in a result file's checkpoint */
    dflash_precision precision;
    const char *against;  /* borrowed: path of what it was held against */
    bool by_bits;         /* against a recording: whatever is not identical fails */
    dp_pair_stage *stage; /* owned: the class of agreement of every stage */
    int stage_count;
} dp_past_recording;

typedef struct dp_past_run {
    const char *path;         /* borrowed */
    bool is_recording;        /* `recording` is set */
    char when[DP_WHEN_TEXT];  /* its start, UTC; of a recording, which does not say, when the file was written */
    const cJSON *environment; /* borrowed: facts of build and machine; a fact that is not known is not in it */
    dp_result_file file;      /* owned: the result, or a recording's judgement */
    dp_past_recording recording;
    dp_commit commit; /* in the repository; an empty hash without one, or when the run names none */
    int position;     /* among the repository's commits, the oldest first; -1 likewise */
} dp_past_run;

/* One case over all runs. */
typedef struct dp_past_case {
    const char *name;                               /* borrowed from a document */
    const dp_result_case **in_run;                  /* owned, [runs]: the case in each run, NULL where it was not run */
    int last_good, first_bad, last_bad, good_again; /* runs; -1: there is none */
    int bad_before, first_before; /* runs before the last good one that did not pass, and the first of them; 0, -1 */
} dp_past_case;

/* A fact that differs between the last good and the first bad run, or that one of them does not have on record. */
typedef struct dp_change {
    char *name, *before, *after; /* owned; DP_NOT_ON_RECORD for a fact that one side does not have */
} dp_change;
#define DP_NOT_ON_RECORD "not on record"

typedef struct dp_changes {
    dp_change *change; /* owned */
    int count;
    char *missing; /* owned: names of facts that neither run has on record, divided by ", "; "" when there is none */
} dp_changes;

typedef struct dp_postmortem {
    dp_postmortem_options options;
    dp_past_run *run; /* owned, in order */
    int run_count;
    dp_past_case *item; /* owned; cases that did not pass first */
    int item_count;
    char *series; /* owned: the case of recordings that stand alone; NULL beside results */
} dp_postmortem;

/*
 * Reads the files and puts them in order; equal times stay as given, and two runs of one commit are ordered by time.
 * Codes: those of dp_result_read, dp_store_open, dp_file_pair_open (a recording that is not of the same drafter,
 * weights and inputs), and "postmortem.twice" (a file, or a copy of it, given twice), "postmortem.when" (a start that
 * cannot be ordered), "postmortem.oracle" (an oracle among the runs, one that is missing beside recordings and results,
 * or another than the results'), "postmortem.case" (a run with no case in common with the others),
 * "postmortem.reference" (the first recording is not whole or not finite), "postmortem.precision" (a recording's has no
 * name here), "postmortem.commit" (not in the repository, or none on record where the order needs it),
 * "postmortem.empty" (no case in any of them).
 */
dflash_status dp_postmortem_read(const dp_postmortem_options *options, dp_postmortem *out, dflash_error *err);
void dp_postmortem_release(dp_postmortem *summary);

/* What differs between two runs of a case: environment, checkpoint, oracle, how it ran. Release *out whatever the
 * outcome. */
dflash_status dp_postmortem_changes(const dp_postmortem *summary, const dp_past_case *item, int before, int after,
                                    dp_changes *out, dflash_error *err);
void dp_changes_release(dp_changes *changes);

/* Commits between two runs, as the repository tells them; empty without one. */
typedef struct dp_past_commits {
    dp_commit *commit; /* owned: in the history of the later run and not of the earlier, oldest first */
    int count;
    int left_behind; /* commits of the earlier run that the later one does not have: it is no descendant */
    bool known;      /* false: no repository, or a run names no commit */
} dp_past_commits;
dflash_status dp_postmortem_commits(const dp_postmortem *summary, int before, int after, dp_past_commits *out,
                                    dflash_error *err);
void dp_past_commits_release(dp_past_commits *commits);

/* Name of a run for people: commit (with + when dirty) and start. */
enum { DP_RUN_NAME = 112 };
const char *dp_past_run_name(const dp_past_run *run, char name[DP_RUN_NAME]);
const char *dp_past_commit(const dp_past_run *run);      /* "" when there is none on record */
const char *dp_past_commit_name(const dp_past_run *run); /* "no commit" when there is none on record */
bool dp_past_dirty(const dp_past_run *run);

/* In sentences, names in `ticks` (postmortem_words.c): the outcome of a case over all runs; where the first bad run
 * went off; how closely a recording agrees with what it was held against (nothing for a result); how recordings are
 * treated (nothing without one); which of the last good and the first bad build was not of its commit alone; the
 * commits between. */
void dp_postmortem_outcome(FILE *to, const dp_postmortem *summary, const dp_past_case *item);
void dp_postmortem_begin(FILE *to, const dp_postmortem *summary, const dp_past_case *item);
void dp_postmortem_bits(FILE *to, const dp_past_run *run);
void dp_postmortem_notes(FILE *to, const dp_postmortem *summary);
void dp_postmortem_builds(FILE *to, const dp_postmortem *summary, const dp_past_case *item);
void dp_postmortem_history(FILE *to, const dp_past_commits *found);

/* Cases that did not pass in some run: the first ones of the list. */
int dp_postmortem_bad_cases(const dp_postmortem *summary);
/* Of those, the ones told in full; a gate that breaks everywhere has one cause. */
enum { DP_MOST_TOLD = 3, DP_MOST_COMMITS = 20 };

/* The text to paste, and the page (with plots; keep as in plot_run.h). The caller frees them. */
dflash_status dp_postmortem_markdown(const dp_postmortem *summary, char **out, dflash_error *err);
dflash_status dp_postmortem_html(const dp_postmortem *summary, const char *keep, char **out, dflash_error *err);

/* Parts of dp_postmortem_read: reads what a recording says of itself; puts the runs in order; gives each recording its
 * verdict and its case, which needs that order. */
dflash_status dp_past_open_recording(dp_past_run *run, dflash_error *err);
void dp_past_recording_release(dp_past_recording *recording);
dflash_status dp_past_put_in_order(dp_postmortem *summary, dflash_error *err);
dflash_status dp_past_judge_recordings(dp_postmortem *summary, dflash_error *err);

#endif
