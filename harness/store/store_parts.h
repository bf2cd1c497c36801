/*
 * store_parts.h - an open file as the files of store.h see it: what each dataset declared, and how values are read.
 */
#ifndef DP_STORE_PARTS_H
#define DP_STORE_PARTS_H

#include "store/store_dataset.h"

#include <hdf5.h>

/* One stage, with its companions where samples are all that the runs hold of it. */
typedef struct dp_stage_entry {
    char name[DFLASH_STAGE_NAME_MAX];
    dflash_stage stage;
    int layer;
    dp_dataset_info info[DP_RUN_COUNT];
    dp_dataset_info sketch[DP_RUN_COUNT]; /* rank 0: stored whole */
    dp_dataset_info rows;                 /* the whole rows of the float64 run; rank 0: none */
    int64_t *row;                         /* owned, [rows.dim[0]]: which rows they are */
} dp_stage_entry;

struct dp_oracle {
    char *path;
    hid_t file;
    dp_kind kind;
    cJSON *geometry, *provenance;
    dp_dataset_info input[DP_INPUT_COUNT];
    dp_stage_entry *stage; /* owned, in forward order */
    int count;
    int64_t seed; /* of the sketches' signs */
};

/* NULL when the file has no such stage. */
const dp_stage_entry *dp_store_entry(const dp_oracle *oracle, const char *name);

/* Every link of the group is one of `allowed`; what is not read would be passed over in silence. Code:
 * "oracle.object.unknown". */
dflash_status dp_store_check_closed(const dp_oracle *oracle, const char *path, const char *const *allowed, int count,
                                    dflash_error *err);

/* Where the values of a dataset go; all NULL: they are verified alone. */
typedef struct dp_destination {
    double *value; /* [count] */
    void **bytes;  /* as stored */
    bool any;      /* values need not be finite */
} dp_destination;

/* Reads and verifies PARENT/NAME. Opening fills *info (describe), later reads use it. */
dflash_status dp_store_visit(const dp_oracle *oracle, const char *parent, const char *name, dp_dataset_info *info,
                             const dp_destination *to, bool describe, dflash_error *err);
/* The values of a dataset that was visited before. */
dflash_status dp_store_fetch(const dp_oracle *oracle, const char *parent, const char *name, const dp_dataset_info *info,
                             bool any, dp_array *out, dflash_error *err);

/* store_inputs.c. Codes: "oracle.input.missing", "oracle.positions", "oracle.dataset.*". */
dflash_status dp_store_load_inputs(dp_oracle *oracle, dflash_error *err);
/* store_sketch.c: the companions of sampled stages. Codes: "oracle.sketch", "oracle.sketch.missing", "oracle.rows". */
dflash_status dp_store_load_sketches(dp_oracle *oracle, dflash_error *err);
/* store_sketch.c: sets array->rms of a sampled stage of the float64 run. */
dflash_status dp_store_fetch_rms(const dp_oracle *oracle, const char *name, dp_array *array, dflash_error *err);

#endif
