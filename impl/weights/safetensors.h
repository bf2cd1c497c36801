/*
 * safetensors.h - a checkpoint file mapped into memory and validated before anyone reads a weight.
 *
 * Format: 8 bytes little-endian header length N, N bytes of JSON {name: {dtype, shape, data_offsets: [begin, end)}},
 * then the data; offsets count from the end of the header. Validation is complete: header length inside the file and
 * under a ceiling, JSON well formed with nothing after it, no name twice, a dtype of the format, shape of non-negative
 * integers whose product does not overflow and agrees with the byte range, ranges that tile the data section exactly
 * (no overlap, no gap, no byte left over). That holds for every tensor. What a weight must be (our dtypes, 1 to 4
 * dimensions, aligned) is asked of those alone that are read: a file of the target holds others beside them. Which
 * tensors should exist is weights.h's business.
 */
#ifndef DF_SAFETENSORS_H
#define DF_SAFETENSORS_H

#include "dflash.h"
#include "weights/safetensors_dtype.h"

enum { DF_MAX_RANK = 4 }; /* of a weight; any other tensor has up to DFLASH_TENSOR_RANK dimensions */

typedef struct df_tensor {
    char *name;
    const df_file_dtype *type; /* the file's */
    df_dtype dtype;            /* ours, of a tensor that df_safetensors_usable lets through */
    int rank;
    int64_t dim[DFLASH_TENSOR_RANK];
    int64_t count;    /* elements: the product of dim, 1 without any */
    const void *data; /* into the mapping */
    size_t bytes;
} df_tensor;

typedef struct df_safetensors df_safetensors;

/* Maps and validates `path`. */
dflash_status df_safetensors_open(const char *path, df_safetensors **out, dflash_error *err);
void df_safetensors_close(df_safetensors *file);
int df_safetensors_count(const df_safetensors *file);
/* Tensors in the order of their data. */
const df_tensor *df_safetensors_at(const df_safetensors *file, int index);
/* NULL when there is none of that name. */
const df_tensor *df_safetensors_find(const df_safetensors *file, const char *name);
/* The index of one of the file's tensors. */
int df_safetensors_index(const df_safetensors *file, const df_tensor *tensor);
/* Whether a tensor can be read as a weight: BF16, F16 or F32, of 1 to 4 dimensions, none of them 0, and at a multiple
 * of its element's size. To be asked before dtype and data are used. Codes: "safetensors.dtype", "safetensors.shape",
 * "safetensors.offsets". */
dflash_status df_safetensors_usable(const df_safetensors *file, const df_tensor *tensor, dflash_error *err);
const char *df_safetensors_path(const df_safetensors *file);
/* Gives back the memory of a tensor's pages; they are read from the file again when someone looks. */
void df_safetensors_drop(const df_safetensors *file, const df_tensor *tensor);

#endif
