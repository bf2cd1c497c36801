/*
 * vectors_file.h - reads a file of kind "vectors": isolated parts of the reference (oracles/FORMAT.md, "Vectors").
 *
 * The file is verified as an oracle is: kind, version, the record's digest, and each dataset's type, shape and digest.
 * What the values must agree with is vectors.h's.
 */
#ifndef DP_VECTORS_FILE_H
#define DP_VECTORS_FILE_H

#include "store/store_dataset.h"
#include "store/store_h5.h"

#include <cjson/cJSON.h>

enum { DP_VECTOR_NAME = 80, DP_VECTOR_MOST = 64 };

typedef struct dp_vectors_file {
    const char *path; /* borrowed */
    hid_t file;
    dp_h5_quiet quiet;
    dp_h5_names parts; /* the names at the root */
} dp_vectors_file;

/* Close *out whatever the outcome. Codes: those of store_h5.h and store_record.h, and "vectors.kind". */
dflash_status dp_vectors_open(const char *path, dp_vectors_file *out, dflash_error *err);
void dp_vectors_close(dp_vectors_file *file);
/* The groups of a part ("conv"); release the names. */
dflash_status dp_vectors_groups(const dp_vectors_file *file, const char *part, dp_h5_names *out, dflash_error *err);

typedef struct dp_vector_group {
    char path[2 * DP_VECTOR_NAME];
    cJSON *params; /* owned */
    hid_t group;
    dp_h5_names names;
    bool taken[DP_VECTOR_MOST];
} dp_vector_group;

/* Close *out whatever the outcome. Codes: those of store_h5.h, and "vectors.params". */
dflash_status dp_vector_open(const dp_vectors_file *file, const char *part, const char *name, dp_vector_group *out,
                             dflash_error *err);
void dp_vector_close(dp_vector_group *group);
/* The first dataset that was never read; NULL when all were. */
const char *dp_vector_untaken(const dp_vector_group *group);

/* Members of the params: "vectors.params" when one is absent or of another type. */
dflash_status dp_vector_text(const dp_vector_group *group, const char *key, const char **out, dflash_error *err);
dflash_status dp_vector_int(const dp_vector_group *group, const char *key, int *out, dflash_error *err);

bool dp_vector_has(const dp_vector_group *group, const char *name);
/* The shape of a dataset, which is not read by it; 0 behind its rank. */
dflash_status dp_vector_shape(const dp_vector_group *group, const char *name, int64_t dim[4], dflash_error *err);
/* The values of a dataset, which must have this shape (up to the first 0 of dim); the caller frees them. */
dflash_status dp_vector_doubles(dp_vector_group *group, const char *name, const int64_t dim[4], double **out,
                                dflash_error *err);
dflash_status dp_vector_floats(dp_vector_group *group, const char *name, const int64_t dim[4], float **out,
                               dflash_error *err);
dflash_status dp_vector_ints(dp_vector_group *group, const char *name, const int64_t dim[4], int32_t **out,
                             dflash_error *err);

#endif
