/*
 * output.h - the last step of a command that prints a result: what could not be printed is a failure.
 *
 * A verdict that nobody could read must not end with the exit code of a pass.
 */
#ifndef DP_OUTPUT_H
#define DP_OUTPUT_H

#include <cjson/cJSON.h>

/* Flushes standard output. Returns `code`, or the exit code of the error that it reports ("output.write"). */
int dp_finish_output(const char *command, int code);

/* Prints a JSON document and flushes it; NULL stands for one that memory did not suffice for. Returns as above. */
int dp_print_json(const char *command, const cJSON *json, int code);

#endif
