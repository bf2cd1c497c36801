/*
 * store.h - reads oracle and recording files (HDF5; the layout is oracles/FORMAT.md).
 *
 * Opening a file verifies it whole: it is HDF5, its schema and version are ours, geometry and provenance parse, every
 * dataset's shape, logical dtype and SHA-256 hold. After that a value read is a value written.
 */
#ifndef DP_STORE_H
#define DP_STORE_H

#include "dflash.h"

#include <cjson/cJSON.h>

enum { DP_SCHEMA_VERSION = 1 };

/* The run of the reference that a stage comes from. */
typedef enum dp_run { DP_RUN_F64 = 0, DP_RUN_F32, DP_RUN_BF16, DP_RUN_COUNT } dp_run;
const char *dp_run_name(dp_run run); /* "float64", "float32", "bfloat16": the group under /stages */

/* Values of one dataset, widened to double (exact for every logical dtype we store: int32 included). A sampled dataset
 * holds elements offset, offset + stride, ... of the flattened full tensor. */
typedef struct dp_array {
    int rank;
    int64_t dim[4];         /* full shape */
    int64_t total;          /* product of dim */
    int64_t stride, offset; /* 1 and 0 when the dataset is complete */
    int64_t count;          /* stored elements */
    bool integer;           /* logical dtype int32 */
    double *value;          /* [count], owned */
} dp_array;
void dp_array_release(dp_array *array);

typedef struct dp_oracle dp_oracle;

df_status dp_oracle_open(const char *path, dp_oracle **out, df_error *err);
void dp_oracle_close(dp_oracle *oracle);
const char *dp_oracle_path(const dp_oracle *oracle);
const cJSON *dp_oracle_geometry(const dp_oracle *oracle);   /* borrowed */
const cJSON *dp_oracle_provenance(const dp_oracle *oracle); /* borrowed */

/* Stage names found in any run, in forward order (df_stage, layer by layer). */
int dp_oracle_stage_count(const dp_oracle *oracle);
const char *dp_oracle_stage_name(const dp_oracle *oracle, int index);
bool dp_oracle_has_stage(const dp_oracle *oracle, dp_run run, const char *name);

/* Codes: "oracle.stage.missing", "oracle.input.missing". */
df_status dp_oracle_stage(const dp_oracle *oracle, dp_run run, const char *name, dp_array *out, df_error *err);
df_status dp_oracle_input(const dp_oracle *oracle, const char *name, dp_array *out, df_error *err);

#endif
