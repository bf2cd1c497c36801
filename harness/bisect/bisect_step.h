/*
 * bisect_step.h - one step of a bisection across revisions: build the revision, run it, and keep what it computed.
 */
#ifndef DP_BISECT_STEP_H
#define DP_BISECT_STEP_H

#include "bisect/bisect_git.h"

/* What a step left: a recording, or the JSON of a check where the revision cannot record. */
typedef struct dp_step_run {
    bool done;    /* false: it could not be built or run, see the note */
    bool figures; /* the file is the JSON of a check */
    bool built;   /* a build was made, even if the run then failed */
    char path[600];
    char note[DP_GIT_NOTE];
} dp_step_run;

/* `name` tells the step's files from those of other steps. A failure of the revision is in *out; the status is one that
 * ends the search: no git, no room, an interruption. */
dflash_status dp_step_run_revision(const dp_git_options *options, const char *scratch, const dp_commit *commit,
                                   const char *name, bool by_figures, dp_step_run *out, dflash_error *err);

/* Compares the JSON of two checks, stage by stage: every figure the same, or, when the envelope is expected, passed.
 * stage[0] is '\0' when all are. False: a file is no result of a check, or shows other stages; see `note`. */
bool dp_figures_compare(const char *good, const char *path, const dp_compare_options *judge,
                        char stage[DFLASH_STAGE_NAME_MAX], char note[DP_GIT_NOTE]);

#endif
