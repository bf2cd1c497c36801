/*
 * store_dataset.h - one numeric dataset of an oracle: what it declares about itself, and its verified values.
 *
 * Used by the store, its writer and inspect; which datasets a file should hold is store.c's business.
 */
#ifndef DP_STORE_DATASET_H
#define DP_STORE_DATASET_H

#include "store/store.h"

#include <hdf5.h>

typedef enum dp_logical {
    DP_LOGICAL_F64 = 0,
    DP_LOGICAL_F32,
    DP_LOGICAL_BF16,
    DP_LOGICAL_I32,
    DP_LOGICAL_COUNT
} dp_logical;

const char *dp_logical_name(dp_logical dtype); /* "float64", "float32", "bfloat16", "int32" */
size_t dp_logical_size(dp_logical dtype);      /* stored bytes of an element */
hid_t dp_logical_h5(dp_logical dtype);         /* the file's type; borrowed from the library */

typedef struct dp_dataset_info {
    dp_logical dtype;
    int rank;
    int64_t dim[4]; /* full shape */
    int64_t total;
    bool sampled;
    int64_t stride, offset; /* 1 and 0 when complete */
    int64_t count;          /* stored elements */
    char sha256[65];
} dp_dataset_info;

/* The product of dim, or 0 when the rank is not 1..4, a dimension is below 1 or the product overflows. */
int64_t dp_shape_total(int rank, const int64_t *dim);

/* Elements offset, offset + stride, ... below total. */
int64_t dp_sample_count(int64_t total, int64_t stride, int64_t offset);

/* Reads and checks everything but the values. `where` is the name in messages. Codes: "oracle.attribute.*",
 * "oracle.dataset.type", "oracle.dataset.shape", "oracle.dataset.layout", "oracle.sampling", "oracle.read". */
dflash_status dp_dataset_describe(hid_t dataset, const char *where, dp_dataset_info *info, dflash_error *err);

/* Reads the values, checks digest and finiteness, and widens them into value[info->count] unless that is NULL.
 * Codes: "oracle.read", "oracle.digest", "oracle.nonfinite". */
dflash_status dp_dataset_read(hid_t dataset, const char *where, const dp_dataset_info *info, double *value,
                              dflash_error *err);

/* The values as they are stored, every bit, after the digest was checked: count elements of dp_logical_size bytes,
 * which the caller frees. Values need not be finite. Codes: "oracle.read", "oracle.digest". */
dflash_status dp_dataset_bytes(hid_t dataset, const char *where, const dp_dataset_info *info, void **out,
                               dflash_error *err);

/* One element of stored bytes as a double, which is exact in every logical dtype but for the payload of a NaN. */
double dp_logical_widen(dp_logical dtype, const void *bytes, int64_t index);

/* What a stage's or an input's dataset declares; NULL when there is none of that name. Borrowed from the oracle. */
const dp_dataset_info *dp_oracle_stage_info(const dp_oracle *oracle, dp_run run, const char *name);
const dp_dataset_info *dp_oracle_input_info(const dp_oracle *oracle, const char *name);

/* The inputs in the order of oracles/FORMAT.md; the last is optional. */
enum { DP_INPUT_COUNT = 5, DP_REQUIRED_INPUTS = 3 };
const char *dp_input_name(int index);

#endif
