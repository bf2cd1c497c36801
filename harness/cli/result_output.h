/* result_output.h - everything that a run leaves besides its table: the result file, the reports, the history line. */
#ifndef DP_RESULT_OUTPUT_H
#define DP_RESULT_OUTPUT_H

#include "cli/destinations.h"
#include "cli/run_options.h"

#include <cjson/cJSON.h>

/*
 * Writes what the options ask for. The document is read back first, as any reader would, so that one that memory did
 * not suffice for is never written. Returns `code`, or that of an error, which it reports: a result that is lost is no
 * pass. NULL: nothing was asked for.
 */
int dp_write_results(const char *command, cJSON *document, const dp_run_options *options, int code);

/* Adds every file that the options name, each of its kind. */
void dp_run_destinations(const dp_run_options *options, dp_destinations *d);

#endif
