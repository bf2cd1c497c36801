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

enum { DP_SCHEMA_VERSION = 2 };

/* What a file's stages are: three runs of a reference, or one run of some engine. */
typedef enum dp_kind { DP_KIND_ORACLE = 0, DP_KIND_RECORDING } dp_kind;
const char *dp_kind_name(dp_kind kind); /* "oracle", "recording" */

/* The run of the reference that a stage comes from. A recording has one run, the first: DP_RUN_OWN. */
typedef enum dp_run { DP_RUN_F64 = 0, DP_RUN_F32, DP_RUN_BF16, DP_RUN_COUNT, DP_RUN_OWN = DP_RUN_F64 } dp_run;
const char *dp_run_name(dp_run run); /* "float64", "float32", "bfloat16": the group of an oracle under /stages */
extern const char dp_recorded_run[]; /* "run": the group of a recording under /stages */

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
    int64_t *index;         /* owned, [count] ascending: which elements these are; NULL: those of stride and offset */
    double *rms;            /* owned: the true root mean square of every row; NULL where the values themselves tell */
} dp_array;
/* The flat index, in the full tensor, of stored element i. */
static inline int64_t dp_array_at(const dp_array *array, int64_t i) {
    return array->index != NULL ? array->index[i] : array->offset + i * array->stride;
}
void dp_array_release(dp_array *array);

/* An open file of either kind. */
typedef struct dp_oracle dp_oracle;

/* An oracle; a recording is refused ("oracle.kind"). */
dflash_status dp_oracle_open(const char *path, dp_oracle **out, dflash_error *err);
/* An oracle or a recording. A recording's stages are complete (never sampled), and may hold NaN and infinities. */
dflash_status dp_store_open(const char *path, dp_oracle **out, dflash_error *err);
dp_kind dp_oracle_kind(const dp_oracle *oracle);
/* Whether a path is that of an HDF5 file, by its first bytes or its name (.h5). What is wrong with a file that has only
 * the name, dp_store_open says. */
bool dp_file_is_hdf5(const char *path);
void dp_oracle_close(dp_oracle *oracle);
const char *dp_oracle_path(const dp_oracle *oracle);
const cJSON *dp_oracle_geometry(const dp_oracle *oracle);   /* borrowed */
const cJSON *dp_oracle_provenance(const dp_oracle *oracle); /* borrowed */

/* Stage names found in any run, in forward order (dflash_stage, layer by layer). */
int dp_oracle_stage_count(const dp_oracle *oracle);
const char *dp_oracle_stage_name(const dp_oracle *oracle, int index);
bool dp_oracle_has_stage(const dp_oracle *oracle, dp_run run, const char *name);

/* Codes: "oracle.stage.missing", "oracle.input.missing". Of a recording DP_RUN_OWN alone. A sampled stage of the
 * float64 run comes with the rms of its rows. */
dflash_status dp_oracle_stage(const dp_oracle *oracle, dp_run run, const char *name, dp_array *out, dflash_error *err);
dflash_status dp_oracle_input(const dp_oracle *oracle, const char *name, dp_array *out, dflash_error *err);
/* The same stage bit by bit, in the logical dtype that dp_oracle_stage_info (store_dataset.h) names; free *bytes. */
dflash_status dp_oracle_stage_bytes(const dp_oracle *oracle, dp_run run, const char *name, void **bytes,
                                    dflash_error *err);

#endif
