/* ladder_report.h - the ladder as a table and as JSON. */
#ifndef DP_LADDER_REPORT_H
#define DP_LADDER_REPORT_H

#include "check/ladder.h"

#include <stdio.h>

enum { DP_LADDER_VERSION = 1 };

/* One column a mode, one line a layer. */
void dp_ladder_text(FILE *to, const dp_ladder *ladder);

/* The caller deletes it. `command` reproduces the run. */
cJSON *dp_ladder_json(const dp_ladder *ladder, const dp_run_setup *setup, const char *command);

#endif
