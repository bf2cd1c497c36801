/*
 * process.h - runs a program and waits for it, and keeps a scratch folder that goes away with us.
 *
 * A program runs in a process group of its own, so that an interruption (SIGINT, SIGTERM, SIGHUP) ends it with all its
 * children before the folder is removed.
 */
#ifndef DP_PROCESS_H
#define DP_PROCESS_H

#include "dflash.h"

typedef struct dp_process {
    const char *const *argv;        /* ends with NULL; argv[0] is looked up in PATH */
    const char *folder;             /* to run in; NULL: here */
    const char *const *environment; /* "NAME=value" or "NAME" (unset), ends with NULL; NULL: as it is */
    const char *out, *err;          /* files that receive the streams; NULL: discarded. The same path: one file */
} dp_process;

/* *code is the exit code, or 128 + the signal. However this process treats its own signals, the program starts with
 * none ignored or blocked, and its end is learnt of; where it cannot be, that is an error and not a code. Codes:
 * "process.start", "process.interrupted", "process.wait". */
dflash_status dp_process_run(const dp_process *process, int *code, dflash_error *err);

/* From begin to end interruptions are only remembered: dp_process_run reports them, and so does dp_interrupted. */
void dp_interruptions_begin(void);
void dp_interruptions_end(void);
bool dp_interrupted(void);

enum { DP_FOLDER_PATH = 512 };

/* Makes a new folder under $TMPDIR or /tmp. Code: "scratch.folder". */
dflash_status dp_scratch_make(char path[DP_FOLDER_PATH], dflash_error *err);
/* Removes it with everything in it; links are removed, not followed. An empty path is allowed. */
void dp_scratch_remove(const char *path);

#endif
