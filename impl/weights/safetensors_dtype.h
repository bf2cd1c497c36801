/*
 * safetensors_dtype.h - the element types of the safetensors format, those included that no weight of ours has: a
 * target's file holds them beside the tensor that is read, and their sizes must fit the file all the same.
 */
#ifndef DF_SAFETENSORS_DTYPE_H
#define DF_SAFETENSORS_DTYPE_H

#include "common/dtype.h"

typedef struct df_file_dtype {
    const char *name; /* as in the header, "BF16" */
    int bits;         /* of an element; elements narrower than a byte are packed */
    bool weight;      /* a weight may have it: dtype says which of ours it is */
    df_dtype dtype;
} df_file_dtype;

/* NULL: the format has no such type. */
const df_file_dtype *df_file_dtype_find(const char *name);

#endif
