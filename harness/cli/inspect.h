/*
 * inspect.h - the parts of `dflash-parity inspect`: one description per kind of path, as text or as JSON on stdout.
 */
#ifndef DP_INSPECT_H
#define DP_INSPECT_H

#include "store/store.h"

typedef struct dp_inspect_options {
    const char *path;
    const char *pattern; /* over stages, tensors or fields; NULL: all */
    bool json;
} dp_inspect_options;

/* Each sets *shown to the number of stages, tensors or fields that the pattern let through, and prints nothing when
 * that is 0. */
dflash_status dp_inspect_store(const dp_inspect_options *options, int *shown,
                               dflash_error *err); /* oracle or recording */
dflash_status dp_inspect_checkpoint(const dp_inspect_options *options, int *shown,
                                    dflash_error *err); /* DIR or config.json */

/* The part of a recording, of which something is to be shown. */
dflash_status dp_inspect_recording(const dp_inspect_options *options, const dp_oracle *file, dflash_error *err);

/* The inputs of an oracle or a recording: a line each, and {name: {shape, dtype, sha256}}. */
void dp_inspect_inputs(const dp_oracle *file);
cJSON *dp_inspect_inputs_json(const dp_oracle *file);

bool dp_inspect_wants(const dp_inspect_options *options, const char *name);

/* One line per leaf of a JSON object, "rope.theta  1000000"; arrays on one line. With options only those that it wants,
 * without (NULL) all. `print` false only counts. */
int dp_inspect_fields(const dp_inspect_options *options, const cJSON *record, bool print);

/* "[24, 2560]". */
const char *dp_inspect_shape(int rank, const int64_t *dim, char out[96]);
cJSON *dp_inspect_shape_json(int rank, const int64_t *dim);

/* Prints a JSON document and deletes it; NULL is an allocation that failed. */
dflash_status dp_inspect_json(cJSON *document, dflash_error *err);

#endif
