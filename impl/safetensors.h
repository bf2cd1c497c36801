/*
 * safetensors.h - a checkpoint file mapped into memory and validated before anyone reads a weight.
 *
 * Format: 8 bytes little-endian header length N, N bytes of JSON {name: {dtype, shape, data_offsets: [begin, end)}},
 * then the data; offsets count from the end of the header. Validation is complete: header length inside the file and
 * under a ceiling, JSON well formed with nothing after it, no name twice, known dtype, shape of non-negative integers
 * whose product does not overflow and agrees with the byte range, ranges that tile the data section exactly (no
 * overlap, no gap, no byte left over). Which tensors should exist is weights.h's business.
 */
#ifndef DF_SAFETENSORS_H
#define DF_SAFETENSORS_H

#include "dflash.h"
#include "dtype.h"

enum { DF_MAX_RANK = 4 };

typedef struct df_tensor {
    char *name;
    df_dtype dtype;
    int rank;
    int64_t dim[DF_MAX_RANK];
    const void *data; /* into the mapping */
    size_t bytes;
} df_tensor;

typedef struct df_safetensors df_safetensors;

/* Maps and validates `path`. */
df_status df_safetensors_open(const char *path, df_safetensors **out, df_error *err);
void df_safetensors_close(df_safetensors *file);
int df_safetensors_count(const df_safetensors *file);
/* Tensors in the order of their data. */
const df_tensor *df_safetensors_at(const df_safetensors *file, int index);
/* NULL when there is none of that name. */
const df_tensor *df_safetensors_find(const df_safetensors *file, const char *name);
const char *df_safetensors_path(const df_safetensors *file);
/* Gives back the memory of a tensor's pages; they are read from the file again when someone looks. */
void df_safetensors_drop(const df_safetensors *file, const df_tensor *tensor);

#endif
