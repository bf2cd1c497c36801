/*
 * safetensors_header.h - the JSON header of a safetensors file, read entry by entry.
 *
 * Everything that a single entry can get wrong is found here. What entries do to each other (a name twice, overlap,
 * gap) is safetensors.c's business. Private to the two and to weights.c, which prints shapes in the same way.
 */
#ifndef DF_SAFETENSORS_HEADER_H
#define DF_SAFETENSORS_HEADER_H

#include "weights/safetensors.h"

/* Longest tensor name; long enough for any model and short enough to stand in a message. */
enum { DF_TENSOR_NAME_MAX = 255, DF_SHAPE_TEXT_MAX = 192 };

typedef struct df_header_entry {
    df_tensor tensor;    /* name is owned; data is NULL until the caller sets it */
    uint64_t begin, end; /* byte range in the data section, inside it and of the size that dtype and shape need */
} df_header_entry;

/* Parses the `length` bytes of `text`. `where` names the file in messages, `data_bytes` is the size of its data
 * section. On success *entries holds *count entries in the order of the header; release them with df_header_free. */
dflash_status df_header_parse(const char *text, size_t length, const char *where, uint64_t data_bytes,
                              df_header_entry **entries, int *count, dflash_error *err);
void df_header_free(df_header_entry *entries, int count);

/* Writes "[2, 3, 4]" and returns it. */
const char *df_shape_text(int rank, const int64_t *dim, char text[DF_SHAPE_TEXT_MAX]);

#endif
