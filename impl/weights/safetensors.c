/*
 * safetensors.c - see safetensors.h.
 *
 * Maps the file, has the header read (safetensors_header.c), and proves that the entries together tile the data
 * section. Tensors are used in place, so one that is read and does not start at a multiple of its element size is
 * refused: the format does not forbid it, but no current writer produces it, and a silent copy would double the memory
 * of a matrix.
 */
#include "weights/safetensors.h"

#include "common/error.h"
#include "common/regular_file.h"
#include "weights/safetensors_header.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LENGTH_BYTES = 8, HEADER_MAX = 100000000 };

struct df_safetensors {
    char *path;
    unsigned char *map; /* whole file, or NULL */
    size_t map_bytes;
    df_header_entry *entry; /* in the order of their data */
    int count;
    const df_tensor **by_name; /* sorted */
};

static dflash_status fail_open(const char *path, const char *doing, dflash_error *err) {
    return df_fail(err, DFLASH_ERR_IO, "safetensors.open",
                   "%s: cannot %s: %s. Expected a readable safetensors file; check the path and its permissions.", path,
                   doing, strerror(errno));
}

/* Opens, checks and maps the file. The descriptor is not kept: a mapping outlives it. */
static dflash_status map_file(df_safetensors *file, dflash_error *err) {
    const char *path = file->path;
    dflash_status status = DFLASH_OK;
    struct stat info;
    const char *kind;
    const int fd = df_open_regular(path, &info, &kind);
    if (fd < 0 && kind != NULL)
        return df_fail(err, DFLASH_ERR_IO, "safetensors.open",
                       "%s: expected a regular file, found %s. Name the safetensors file itself.", path, kind);
    if (fd < 0) return fail_open(path, "open the file", err);
    if (info.st_size < LENGTH_BYTES) {
        status = df_fail(err, DFLASH_ERR_REFUSED, "safetensors.size",
                         "%s: the file has %jd bytes; a safetensors file starts with 8 bytes of header length. It is "
                         "empty or truncated; download or export it again.",
                         path, (intmax_t)info.st_size);
        goto cleanup;
    }
    const size_t bytes = (size_t)info.st_size;
    void *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
        status = fail_open(path, "map the file into memory", err);
        goto cleanup;
    }
    file->map = map;
    file->map_bytes = bytes;
cleanup:
    close(fd);
    return status;
}

static dflash_status read_header_length(const df_safetensors *file, size_t *out, dflash_error *err) {
    uint64_t length = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) length = length << 8 | file->map[i];
    const uint64_t rest = file->map_bytes - LENGTH_BYTES;
    if (length < 2 || length > HEADER_MAX || length > rest)
        return df_fail(err, DFLASH_ERR_REFUSED, "safetensors.header.length",
                       "%s: the first 8 bytes say that the header has %" PRIu64
                       " bytes; expected 2 to %d, and not more "
                       "than the %" PRIu64 " bytes that follow. The file is truncated or not a safetensors file; "
                       "download or export it again.",
                       file->path, length, HEADER_MAX, rest);
    *out = (size_t)length;
    return DFLASH_OK;
}

static int compare_range(const void *left, const void *right) {
    const df_header_entry *a = left, *b = right;
    if (a->begin != b->begin) return a->begin > b->begin ? 1 : -1;
    return (a->end > b->end) - (a->end < b->end);
}

static int compare_name(const void *left, const void *right) {
    const df_tensor *const *a = left, *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

static int compare_key(const void *key, const void *element) {
    const df_tensor *const *tensor = element;
    return strcmp(key, (*tensor)->name);
}

/* Every byte of the data section belongs to exactly one tensor. Entries are sorted by range; an empty one stands before
 * the one that begins where it does. */
static dflash_status check_tiling(const df_safetensors *file, uint64_t data_bytes, dflash_error *err) {
    uint64_t reached = 0;
    for (int i = 0; i < file->count; i++) {
        const df_header_entry *entry = &file->entry[i];
        if (entry->begin < reached)
            return df_fail(err, DFLASH_ERR_REFUSED, "safetensors.overlap",
                           "%s: tensors \"%s\" and \"%s\" overlap: the first ends at byte %" PRIu64
                           " of the data, the second begins at %" PRIu64 ". The header is damaged; export the file "
                           "again.",
                           file->path, file->entry[i - 1].tensor.name, entry->tensor.name, reached, entry->begin);
        if (entry->begin > reached)
            return df_fail(err, DFLASH_ERR_REFUSED, "safetensors.gap",
                           "%s: the bytes [%" PRIu64 ", %" PRIu64 ") of the data, before tensor \"%s\", belong to no "
                           "tensor; expected the tensors to fill the file. Export the file again.",
                           file->path, reached, entry->begin, entry->tensor.name);
        reached = entry->end;
    }
    if (reached != data_bytes)
        return df_fail(err, DFLASH_ERR_REFUSED, "safetensors.gap",
                       "%s: the tensors end at byte %" PRIu64 " of the data, but the file goes on to byte %" PRIu64
                       "; expected nothing after the last tensor. Export the file again.",
                       file->path, reached, data_bytes);
    return DFLASH_OK;
}

static dflash_status check_names(df_safetensors *file, dflash_error *err) {
    const size_t bytes = ((size_t)file->count + 1) * sizeof *file->by_name;
    file->by_name = malloc(bytes);
    if (file->by_name == NULL) return df_fail_memory(err, "the tensor index", bytes);
    for (int i = 0; i < file->count; i++) file->by_name[i] = &file->entry[i].tensor;
    qsort(file->by_name, (size_t)file->count, sizeof *file->by_name, compare_name);
    for (int i = 1; i < file->count; i++) {
        if (strcmp(file->by_name[i - 1]->name, file->by_name[i]->name) == 0)
            return df_fail(err, DFLASH_ERR_REFUSED, "safetensors.name.twice",
                           "%s: the header has two entries named \"%s\"; expected each name once, because readers "
                           "would differ in which one they take. Export the file again.",
                           file->path, file->by_name[i]->name);
    }
    return DFLASH_OK;
}

/* Points every tensor at its bytes. */
static void place_tensors(df_safetensors *file, size_t data_start) {
    for (int i = 0; i < file->count; i++)
        file->entry[i].tensor.data = file->map + data_start + (size_t)file->entry[i].begin;
}

dflash_status df_safetensors_open(const char *path, df_safetensors **out, dflash_error *err) {
    *out = NULL;
    df_safetensors *file = calloc(1, sizeof *file);
    if (file == NULL) return df_fail_memory(err, "a file handle", sizeof *file);

    size_t header = 0;
    dflash_status status = DFLASH_OK;
    file->path = strdup(path);
    if (file->path == NULL) {
        status = df_fail_memory(err, "a path", strlen(path) + 1);
        goto cleanup;
    }
    status = map_file(file, err);
    if (status != DFLASH_OK) goto cleanup;
    status = read_header_length(file, &header, err);
    if (status != DFLASH_OK) goto cleanup;

    const size_t data_start = LENGTH_BYTES + header;
    const uint64_t data_bytes = file->map_bytes - data_start;
    status = df_header_parse((const char *)file->map + LENGTH_BYTES, header, path, data_bytes, &file->entry,
                             &file->count, err);
    if (status != DFLASH_OK) goto cleanup;
    qsort(file->entry, (size_t)file->count, sizeof *file->entry, compare_range);
    status = check_names(file, err);
    if (status == DFLASH_OK) status = check_tiling(file, data_bytes, err);
    if (status != DFLASH_OK) goto cleanup;
    place_tensors(file, data_start);
    *out = file;
    file = NULL;
cleanup:
    df_safetensors_close(file);
    return status;
}

void df_safetensors_close(df_safetensors *file) {
    if (file == NULL) return;
    if (file->map != NULL) munmap(file->map, file->map_bytes);
    df_header_free(file->entry, file->count);
    free(file->by_name);
    free(file->path);
    free(file);
}

int df_safetensors_count(const df_safetensors *file) { return file->count; }

const df_tensor *df_safetensors_at(const df_safetensors *file, int index) { return &file->entry[index].tensor; }

const df_tensor *df_safetensors_find(const df_safetensors *file, const char *name) {
    const df_tensor **found = bsearch(name, file->by_name, (size_t)file->count, sizeof *file->by_name, compare_key);
    return found == NULL ? NULL : *found;
}

int df_safetensors_index(const df_safetensors *file, const df_tensor *tensor) {
    const df_header_entry *entry = (const df_header_entry *)(const void *)tensor; /* its first member */
    return (int)(entry - file->entry);
}

dflash_status df_safetensors_usable(const df_safetensors *file, const df_tensor *tensor, dflash_error *err) {
    const char *where = file->path, *name = tensor->name;
    if (!tensor->type->weight)
        return df_fail(err, DFLASH_ERR_REFUSED, "safetensors.dtype",
                       "%s: tensor \"%s\" has dtype \"%s\"; a tensor that is read is BF16, F16 or F32. Convert it, or "
                       "export the checkpoint in one of these.",
                       where, name, tensor->type->name);
    if (tensor->rank < 1 || tensor->rank > DF_MAX_RANK)
        return df_fail(
            err, DFLASH_ERR_REFUSED, "safetensors.shape",
            "%s: tensor \"%s\" has %d dimensions; expected 1 to %d of a tensor that is read. This is another "
            "model's, or its header is damaged; export it again.",
            where, name, tensor->rank, DF_MAX_RANK);
    for (int i = 0; i < tensor->rank; i++)
        if (tensor->dim[i] == 0)
            return df_fail(err, DFLASH_ERR_REFUSED, "safetensors.shape",
                           "%s: dimension %d of tensor \"%s\" is 0, so the tensor is empty; none that is read is. The "
                           "export lost its values; export the file again.",
                           where, i, name);
    /* The mapping starts on a page, so offsets in the file decide the alignment. */
    const size_t at = (size_t)((const unsigned char *)tensor->data - file->map), size = df_dtype_size(tensor->dtype);
    if (at % size != 0)
        return df_fail(err, DFLASH_ERR_REFUSED, "safetensors.offsets",
                       "%s: tensor \"%s\" (%s) starts at byte %zu of the file, which is not a multiple of %zu, so it "
                       "cannot be used in place. Save the checkpoint again with a current safetensors library, which "
                       "pads the header and orders the tensors so that this does not happen.",
                       where, name, tensor->type->name, at, size);
    return DFLASH_OK;
}

const char *df_safetensors_path(const df_safetensors *file) { return file->path; }

void df_safetensors_drop(const df_safetensors *file, const df_tensor *tensor) {
    /* The mapping is read-only, so a page shared with a neighbour is clean too, and dropping it loses nothing. */
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t begin = (size_t)((const unsigned char *)tensor->data - file->map), first = begin / page * page;
    /* Advice: when it is not taken, memory is used for longer and nothing else changes. */
    (void)madvise(file->map + first, begin - first + tensor->bytes, MADV_DONTNEED);
}
