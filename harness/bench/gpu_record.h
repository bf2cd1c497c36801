/*
 * gpu_record.h - what a machine with a GPU found, kept for machines without one: made from the results of
 * reports/gpu/record.sh, and held against the sources that it was made of. reports/gpu/README.md describes the file.
 */
#ifndef DP_GPU_RECORD_H
#define DP_GPU_RECORD_H

#include "dflash.h"

#include <cjson/cJSON.h>

enum { DP_GPU_RECORD_VERSION = 1 };

/* Reads FOLDER/steps.tsv and the results that the steps wrote beside it. The verdict is PASS when every step that a
 * record needs is there, ended with 0 and left its result; what speaks against it is the record's array `faults`, in
 * words. The caller deletes *out. Codes: "gpu.steps" (no list of steps, or a line that is none), "gpu.result" (a step's
 * result that is no JSON), and those of text_file.h. */
dflash_status dp_gpu_record_collect(const char *folder, const char *name, cJSON **out, dflash_error *err);

/* Reads and validates a record. Codes: "gpu.record" and those of text_file.h. */
dflash_status dp_gpu_record_read(const char *path, cJSON **out, dflash_error *err);

typedef enum dp_source_change { DP_SOURCE_CHANGED = 0, DP_SOURCE_ADDED, DP_SOURCE_REMOVED } dp_source_change;

/* Called for every file that is not as it was when the record was made. */
typedef void (*dp_source_report)(const char *path, dp_source_change change, void *user);

/* How many files of this program's sources differ from the record's; 0: the record is fresh. */
int dp_gpu_record_stale(const cJSON *record, dp_source_report report, void *user);

/* The verdict that the record holds. */
bool dp_gpu_record_passed(const cJSON *record);

#endif
