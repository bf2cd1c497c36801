/*
 * vectors_file.h - reads oracles/vectors.h5, the isolated parts of the reference (oracles/FORMAT.md, "Vectors").
 *
 * The file is verified as an oracle is: kind, version, the record's digest, and each dataset's type, shape and digest.
 * A group that is closed with a dataset not taken fails the test, so that nothing stored goes uncompared. What the
 * values must agree with is test_vectors*.c's.
 */
#ifndef DP_TESTS_VECTORS_FILE_H
#define DP_TESTS_VECTORS_FILE_H

#include "store_dataset.h"
#include "store_h5.h"
#include "suites.h"

#include <cjson/cJSON.h>

enum { VF_NAME = 80, VF_MOST = 64 };

typedef struct vf_file {
    hid_t file;
    dp_h5_quiet quiet;
    dp_h5_names parts; /* the names at the root */
} vf_file;

void vf_open(vf_file *file);
void vf_close(vf_file *file);

/* The cases of a part ("yarn"); fails the test when there are fewer than `least`. Release the names. */
dp_h5_names vf_cases(const vf_file *file, const char *part, int least);

typedef struct vf_group {
    char path[2 * VF_NAME];
    cJSON *params; /* owned */
    hid_t group;
    dp_h5_names names;
    bool taken[VF_MOST];
} vf_group;

void vf_group_open(const vf_file *file, const char *part, const char *name, vf_group *group);
/* Fails the test when a dataset was not taken. */
void vf_group_close(vf_group *group);

/* A member of the group's params; fails the test when there is none. */
const cJSON *vf_param(const vf_group *group, const char *key);
int vf_param_int(const vf_group *group, const char *key);
const char *vf_param_text(const vf_group *group, const char *key);

/* The values of a dataset, which must have this shape (up to the first 0 of dim); the caller frees them. */
double *vf_doubles(vf_group *group, const char *name, const int64_t dim[4]);
float *vf_floats(vf_group *group, const char *name, const int64_t dim[4]);
int32_t *vf_ints(vf_group *group, const char *name, const int64_t dim[4]);
/* The first dimension of a dataset, which is not taken by it. */
int vf_rows(const vf_group *group, const char *name);

#endif
