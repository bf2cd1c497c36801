/*
 * record_file.h - a run as a file of kind "recording" (oracles/FORMAT.md): geometry, provenance, inputs, every stage.
 *
 * float32 values are stored as they are, so a file holds every bit of the run, NaN and -0 included.
 */
#ifndef DP_RECORD_FILE_H
#define DP_RECORD_FILE_H

#include "judge/record_run.h"

#include <cjson/cJSON.h>

/* Runs, and writes the run to `path`, whole or not at all. `command` says how to write the file again. Release *run
 * whatever the outcome. Codes: those of dp_run_and_record, store_write.h and text_file.h. */
dflash_status dp_record_to_file(const dp_run_setup *setup, const char *command, const char *path, dp_run_record *run,
                                dflash_error *err);

/* How the engine ran, in words and numbers: {"name", "backend", "class", "products", "isa", "threads"} and the build's
 * facts. The caller deletes it; NULL when out of memory. */
cJSON *dp_engine_facts(const dflash_engine *engine, const dflash_engine_options *options);

#endif
