/*
 * destinations.h - where a command will write, looked at before it works: a run of minutes is not lost to a folder that
 * is not there, no two results share a file, and none takes the place of what the command reads.
 */
#ifndef DP_DESTINATIONS_H
#define DP_DESTINATIONS_H

#include "dflash.h"

enum { DP_MOST_DESTINATIONS = 16 };

typedef struct dp_destination {
    const char *option, *path; /* borrowed */
    bool appended;             /* to what is there, as a history */
} dp_destination;

typedef struct dp_destinations {
    const char *command;
    dp_destination item[DP_MOST_DESTINATIONS];
    int count;
    int code; /* of the first fault, which was reported; DP_EXIT_PASS so far */
} dp_destinations;

/* Adds one; a NULL path is none. One that is the file of another before it is a usage error. */
void dp_destination_add(dp_destinations *d, dp_destination item);
/* The command reads this file: none of those added may be it, which is a usage error. NULL: no file. */
void dp_destination_spare(dp_destinations *d, const char *path);
/* The same for the file of --lm-head FILE[:TENSOR]. */
void dp_destination_spare_head(dp_destinations *d, const char *head);
/* The same for config.json and model.safetensors of a checkpoint's folder. */
void dp_destination_spare_checkpoint(dp_destinations *d, const char *folder);
/* Whether each can be written. Returns the exit code; nothing is left at any of them. */
int dp_destinations_check(dp_destinations *d);

#endif
