/*
 * record_run.h - runs a checkpoint on an oracle's inputs and keeps everything it shows: every stage, the cache, the
 * proposal where the oracle ran an output head.
 *
 * The oracle lends its inputs alone. Neither its weights nor its precision must be the checkpoint's (the recording says
 * what was run); its geometry must, and its output head, which is an input too. Writing the file is record_file.h's
 * business.
 */
#ifndef DP_RECORD_RUN_H
#define DP_RECORD_RUN_H

#include "preflight/preflight.h"
#include "run/recording.h"

/* How a checkpoint is run. */
typedef struct dp_run_setup {
    const char *checkpoint, *oracle;
    const char *head; /* FILE[:TENSOR] (head_source.h); NULL: the checkpoint's own */
    bool has_precision;
    dflash_precision precision; /* without has_precision the oracle's own */
    dflash_engine_options engine;
} dp_run_setup;

/* A run and what it was made of; owned, like every pointer in it. */
typedef struct dp_run_record {
    dp_preflight in;
    dflash_precision precision; /* as run */
    dflash_engine_options engine;
    dflash_engine *handle;
    dflash_draft *draft;
    dflash_table *head, *embedding; /* NULL without one */
    dp_recording stages;
} dp_run_record;

/* The mode that an oracle was computed with. Codes: those of dp_oracle_open, "provenance.precision". */
dflash_status dp_oracle_precision(const char *path, dflash_precision *out, dflash_error *err);

/* Release *out whatever the outcome. Codes: those of dp_preflight_run, dflash_engine_create, dflash_draft_load_as,
 * dp_head_load, and "oracle.head.unused". */
dflash_status dp_run_and_record(const dp_run_setup *setup, dp_run_record *out, dflash_error *err);
void dp_run_record_release(dp_run_record *run);

#endif
