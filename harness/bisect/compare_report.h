/* compare_report.h - the comparison of two files in words and in JSON. */
#ifndef DP_COMPARE_REPORT_H
#define DP_COMPARE_REPORT_H

#include "bisect/compare_files.h"

#include <stdio.h>

/* What was compared, a line a stage, the verdict. */
void dp_comparison_text(FILE *to, const dp_file_comparison *comparison);

/* Two lines of one stage: what differs where, both values in decimal and in bits, and how far that is. */
void dp_file_stage_text(FILE *to, const dp_file_stage *stage);
cJSON *dp_file_stage_json(const dp_file_stage *stage);

/* {"schema": "dflash-parity-compare", ...}; the caller deletes it. NULL when out of memory. */
cJSON *dp_comparison_json(const dp_file_comparison *comparison, const char *command);

#endif
