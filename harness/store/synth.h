/*
 * synth.h - writes a checkpoint for any config from a seed: DIR/config.json and DIR/model.safetensors.
 *
 * The same config, seed, dtype and profile give the same bytes on every machine and with any number of threads. What
 * the values are is synth_plan.h's business; the command line is cmd_synth.h's.
 */
#ifndef DP_SYNTH_H
#define DP_SYNTH_H

#include "dflash.h"
#include "common/dtype.h"
#include "store/synth_plan.h"

enum { DP_SYNTH_MAX_THREADS = 256 };

typedef struct dp_synth_options {
    uint64_t seed;
    df_dtype dtype; /* of every tensor */
    dp_synth_profile profile;
    unsigned extras; /* a sum of dp_synth_extra */
    int threads;     /* 1..DP_SYNTH_MAX_THREADS */
} dp_synth_options;

typedef struct dp_synth_result {
    int tensors;
    int64_t parameters;
    uint64_t bytes; /* of model.safetensors */
} dp_synth_result;

/* Creates `dir` (and its parents) when it is missing. config.json is a byte copy of `config_path`. model.safetensors
 * takes its name last, so a folder that holds it is complete; both files appear whole or not at all. A failure leaves
 * what the folder held before, and no folder that was not there. Codes: "synth.config", "synth.extra", "synth.folder",
 * "synth.path", "synth.shape", "synth.space", "synth.thread", and those of df_config_parse and atomic_file.h. `result`
 * may be NULL.
 */
dflash_status dp_synth_write(const char *config_path, const char *dir, const dp_synth_options *options,
                             dp_synth_result *result, dflash_error *err);

/* About how many bytes that model.safetensors would have; 0 where the config says nothing usable. For estimates. */
double dp_synth_bytes(const char *config_path, const dp_synth_options *options);

/* "bf16", "f16", "f32"; "unit", "hot", "sharp". False when the word is none. */
bool dp_synth_parse_dtype(const char *word, df_dtype *out);
bool dp_synth_parse_profile(const char *word, dp_synth_profile *out);

#endif
