/*
 * bisect_git.h - which commit made a run diverge, and at which stage.
 *
 * Every step is a clone of the repository in a scratch folder (objects are shared, the user's checkout and repository
 * are only read), with a build folder of its own that steps share, so that little is compiled again. The good
 * revision's run is the reference; a step is bad when its run is not what is expected of it. Steps that cannot be built
 * or run are skipped. Searched are the first parents from bad back to good: of a branch that was merged between them
 * the merge stands for all its commits.
 */
#ifndef DP_BISECT_GIT_H
#define DP_BISECT_GIT_H

#include "bisect/bisect_files.h"
#include "bisect/bisect_search.h"
#include "judge/record_run.h"

typedef struct dp_git_options {
    const char *repository; /* a folder of the work tree */
    const char *good, *bad; /* revisions */
    /* Shell commands, run at the root of the clone; NULL: the defaults, which build with make and run
     * `dflash-parity record`, or, where a revision has no such command, `check --json`. The run command writes a
     * recording to $DP_RECORDING. Both find $DP_CHECKPOINT and $DP_ORACLE, the subject's paths. */
    const char *build, *run;
    dp_run_setup subject;     /* checkpoint NULL: only with a run command of one's own */
    dp_compare_options judge; /* what is expected; the files are filled in */
} dp_git_options;

enum { DP_GIT_HASH = 41, DP_GIT_SUBJECT = 160, DP_GIT_DATE = 32, DP_GIT_NOTE = 400 };

typedef struct dp_commit {
    char hash[DP_GIT_HASH], subject[DP_GIT_SUBJECT], date[DP_GIT_DATE]; /* of its author */
    int parents;
} dp_commit;

typedef struct dp_git_step {
    int candidate; /* -1: the good revision */
    dp_trial trial;
    char stage[DFLASH_STAGE_NAME_MAX]; /* first divergent, of a bad one */
    char note[DP_GIT_NOTE];            /* why it was skipped */
} dp_git_step;

typedef struct dp_git_result {
    dp_commit good;
    dp_commit *candidate; /* owned, [candidates]: after good, up to bad */
    int candidates;
    dp_git_step *step; /* owned, in the order tried; the first is good, the second bad */
    int steps, builds, skipped;
    int first, last;                   /* the culprit is one of these candidates */
    int brought_in;                    /* commits that the culprit, a merge, brought in; 0 otherwise */
    bool by_figures;                   /* revisions without `record` were compared by the figures of their checks */
    char stage[DFLASH_STAGE_NAME_MAX]; /* first divergent of candidate `last` */
    bool found;                        /* `bisection` is set: both recordings were compared */
    dp_bisection bisection;
    dp_compare_options compared;      /* what the bisection was asked */
    char scratch[512], paths[2][600]; /* kept until release */
} dp_git_result;

/* Release *out whatever the outcome, which also removes the scratch folder. Codes: "bisect.revision",
 * "bisect.ancestry", "bisect.end" (an end that cannot be built or run), "bisect.same" (bad does not differ from good),
 * "bisect.git", "process.*", "scratch.folder". */
dflash_status dp_bisect_git(const dp_git_options *options, dp_git_result *out, dflash_error *err);
void dp_git_result_release(dp_git_result *result);

void dp_git_text(FILE *to, const dp_git_result *result);
void dp_git_json(cJSON *object, const dp_git_result *result);

#endif
