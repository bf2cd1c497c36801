/*
 * vectors_file.h - harness/vectors/vectors_file.h for tests of oracles/vectors.h5: whatever fails there fails the test,
 * and so does a group that is closed with a dataset not taken, so that nothing stored goes uncompared.
 */
#ifndef DP_TESTS_VECTORS_FILE_H
#define DP_TESTS_VECTORS_FILE_H

#include "vectors/vectors_file.h"
#include "suites.h"

enum { VF_NAME = DP_VECTOR_NAME, VF_MOST = DP_VECTOR_MOST };

typedef dp_vectors_file vf_file;
typedef dp_vector_group vf_group;

void vf_open(vf_file *file);
void vf_close(vf_file *file);

/* The cases of a part ("yarn"); fails the test when there are fewer than `least`. Release the names. */
dp_h5_names vf_cases(const vf_file *file, const char *part, int least);

void vf_group_open(const vf_file *file, const char *part, const char *name, vf_group *group);
void vf_group_close(vf_group *group);

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
