/*
 * identity_report.h - what `identity` found on one checkpoint, in words and in JSON.
 */
#ifndef DP_IDENTITY_REPORT_H
#define DP_IDENTITY_REPORT_H

#include "identity/identity_case.h"

#include <cjson/cJSON.h>
#include <stdio.h>

/* A line a variant; under one that is not identical a line for each stage that is not, with the first differing
 * element, and the command that replays a failing history. `origin` are the words that choose the checkpoint, e.g.
 * "--case X". With `failures_only` identical variants are left out. */
void dp_identity_text(FILE *to, const dp_identity_result *result, const char *origin, bool failures_only);

/* Every variant with every stage; the caller deletes it. NULL when out of memory. */
cJSON *dp_identity_json(const dp_identity_result *result, const char *origin);

#endif
