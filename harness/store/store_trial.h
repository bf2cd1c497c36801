/*
 * store_trial.h - an HDF5 file of a stranger is read first by a process that may die of it.
 *
 * libhdf5 trusts the metadata of a file: some damaged bytes make it crash, loop, or ask for all the memory there is. So
 * this program starts itself again with a hidden command, which reads all that the store reads, under limits of CPU
 * time and memory. Files that are known need no trial: those that passed one, and those that a manifest vouches for.
 */
#ifndef DP_STORE_TRIAL_H
#define DP_STORE_TRIAL_H

#include "dflash.h"

#include <sys/stat.h>

/* What reading the file may take. Memory is not limited in a build with a sanitizer that maps terabytes. */
typedef struct dp_trial_limits {
    long cpu_seconds, memory_mib;
} dp_trial_limits;

/* DFLASH_OK: the file is known, or was read to its end; what libhdf5 says against it, the reader that follows will hear
 * again and say better. Codes: "oracle.damaged" (a crash), "oracle.trial.time", "oracle.trial.memory",
 * "oracle.trial.killed" (from outside) and those of dp_process_run. */
dflash_status dp_trial(const char *path, dflash_error *err);
/* The same with limits of the caller's, of a file known or not. */
dflash_status dp_trial_within(const char *path, const dp_trial_limits *limits, dflash_error *err);

/* The file of which `info` was taken before its content was found to be what is promised. */
void dp_trial_vouch(const struct stat *info);

/* To be called first by every main that may open a file: does not return where this process is a trial. */
void dp_trial_main(int argc, char **argv);

#endif
