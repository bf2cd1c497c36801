/*
 * tensor_file.h - writes safetensors files for tests: valid ones, and ones that are broken in a chosen way.
 *
 * Every field of an entry may be changed between tf_add and tf_write, so a test states exactly how a file lies. The
 * writer shares no code with the reader under test. A helper that fails ends the test.
 */
#ifndef DP_TESTS_TENSOR_FILE_H
#define DP_TESTS_TENSOR_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TF_RANK_MAX = 9, TF_PATH_MAX = 512 };

typedef struct tf_entry {
    char *name;     /* written into the header as it is */
    char dtype[16]; /* as in the header, "BF16" */
    int rank;
    int64_t dim[TF_RANK_MAX];
    uint64_t begin, end; /* data_offsets as the header will claim them */
    unsigned char *data;
    size_t bytes; /* of data */
} tf_entry;

typedef struct tf_file {
    tf_entry *entry;
    int count;
    const char *header;    /* NULL: made from the entries; else written instead (borrowed) */
    size_t pad_to;         /* spaces bring the header to a multiple of this; 8 at first */
    bool lie_about_length; /* write header_length below instead of the header's own */
    uint64_t header_length;
    int64_t tail; /* > 0: that many zero bytes after the data; < 0: the file ends early by as many */
} tf_file;

tf_file *tf_new(void);
void tf_free(tf_file *file);

/* Appends a tensor behind those already there. data NULL: element i is tf_value(name, i). The pointer is valid until
 * the next tf_add or tf_remove. Dtypes whose size is unknown count one byte an element. */
tf_entry *tf_add(tf_file *file, const char *name, const char *dtype, int rank, const int64_t *dim, const void *data);
tf_entry *tf_get(const tf_file *file, const char *name);
/* Takes a tensor out and closes the gap in the offsets. */
void tf_remove(tf_file *file, const char *name);
/* Lays the offsets out anew, after a change of shape or dtype and data. */
void tf_reshape(tf_file *file, const char *name, const char *dtype, int rank, const int64_t *dim);
void tf_rename(tf_file *file, const char *name, const char *to);
/* Overwrites element `index` with raw bits of the entry's width. */
void tf_set_bits(tf_entry *entry, int64_t index, uint32_t bits);

void tf_write(const tf_file *file, const char *path);

/* The default value of element `index`: nonzero, different from neighbour to neighbour and from name to name, and exact
 * in F32, F16 and BF16. */
float tf_value(const char *name, int64_t index);

/* A fresh folder for a test's files, and its removal with every file in it. */
void tf_make_dir(char path[TF_PATH_MAX]);
void tf_remove_dir(const char *path);

#endif
