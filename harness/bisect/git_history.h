/* git_history.h - what bisect and postmortem ask git: revisions, the commits between two of them, a scratch clone. */
#ifndef DP_GIT_HISTORY_H
#define DP_GIT_HISTORY_H

#include "bisect/bisect_git.h"

/* The commit that a revision names. Code: "bisect.revision". `scratch` is a folder for git's output. */
dflash_status dp_git_commit(const char *repository, const char *revision, const char *scratch, dp_commit *out,
                            dflash_error *err);

/* The first parents of `bad` that descend from `good`, oldest first, bad the last. The caller frees them. Codes:
 * "bisect.ancestry", "bisect.git". */
dflash_status dp_git_between(const char *repository, const dp_commit *good, const dp_commit *bad, const char *scratch,
                             dp_commit **out, int *count, dflash_error *err);

/* Commits in the history of `with` that are not in that of `without`, oldest first. The caller frees them. */
dflash_status dp_git_only_in(const char *repository, const dp_commit *with, const dp_commit *without,
                             const char *scratch, dp_commit **out, int *count, dflash_error *err);

/* Where each commit stands among all commits in the history of any of them, ancestors first. */
dflash_status dp_git_positions(const char *repository, const dp_commit *const *commit, int count, const char *scratch,
                               int *position, dflash_error *err);

/* Commits reachable from `commit` and not from its first parent, itself not counted. */
dflash_status dp_git_brought_in(const char *repository, const dp_commit *commit, const char *scratch, int *count,
                                dflash_error *err);

/* A clone at SCRATCH/tree that shares the repository's objects, and one commit checked out in it. */
dflash_status dp_git_clone(const char *repository, const char *scratch, dflash_error *err);
dflash_status dp_git_checkout(const char *scratch, const dp_commit *commit, dflash_error *err);

/* What a child must not inherit from a git hook or a make that we run in: for dp_process.environment. */
extern const char *const dp_git_clean[];

#endif
