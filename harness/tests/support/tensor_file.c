/* tensor_file.c - see tensor_file.h. */
#include "support/tensor_file.h"

#include <check.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t dtype_bytes(const char *dtype) {
    if (strcmp(dtype, "F64") == 0 || strcmp(dtype, "I64") == 0) return 8;
    if (strcmp(dtype, "F32") == 0 || strcmp(dtype, "I32") == 0) return 4;
    if (strcmp(dtype, "F16") == 0 || strcmp(dtype, "BF16") == 0) return 2;
    return 1;
}

float tf_value(const char *name, int64_t index) {
    uint32_t seed = 7;
    for (const char *c = name; *c != '\0'; c++) seed = seed * 31 + (unsigned char)*c;
    const int32_t step = (int32_t)((seed + (uint64_t)index * 37) % 127) + 1; /* 1..127 fits in seven bits */
    return (float)(((uint64_t)index + seed) % 3 == 0 ? -step : step) / 64.0f;
}

/* Bits of a value that the dtype holds exactly: m / 64 with 0 < m < 128. */
static uint32_t bits_of(const char *dtype, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (strcmp(dtype, "BF16") == 0) return bits >> 16;
    if (strcmp(dtype, "F16") == 0)
        return (bits >> 16 & 0x8000u) | ((bits >> 23 & 0xffu) - 112u) << 10 | (bits >> 13 & 0x3ffu);
    return bits;
}

void tf_set_bits(tf_entry *entry, int64_t index, uint32_t bits) {
    const size_t size = dtype_bytes(entry->dtype);
    ck_assert_uint_lt((size_t)index * size, entry->bytes);
    for (size_t i = 0; i < size && i < sizeof bits; i++)
        entry->data[(size_t)index * size + i] = (unsigned char)(bits >> (8 * i) & 0xffu);
}

tf_file *tf_new(void) {
    tf_file *file = calloc(1, sizeof *file);
    ck_assert_ptr_nonnull(file);
    file->pad_to = 8;
    return file;
}

void tf_free(tf_file *file) {
    if (file == NULL) return;
    for (int i = 0; i < file->count; i++) {
        free(file->entry[i].name);
        free(file->entry[i].data);
    }
    free(file->entry);
    free(file);
}

static void fill(tf_entry *entry, const char *dtype, int rank, const int64_t *dim, const void *data) {
    int64_t elements = 1;
    ck_assert_int_le(rank, TF_RANK_MAX);
    for (int i = 0; i < rank; i++) {
        entry->dim[i] = dim[i];
        elements *= dim[i];
    }
    entry->rank = rank;
    snprintf(entry->dtype, sizeof entry->dtype, "%s", dtype);
    entry->bytes = (size_t)elements * dtype_bytes(dtype);
    free(entry->data);
    entry->data = calloc(1, entry->bytes + 1);
    ck_assert_ptr_nonnull(entry->data);
    if (data != NULL) {
        memcpy(entry->data, data, entry->bytes);
    } else {
        for (int64_t i = 0; i < elements; i++) tf_set_bits(entry, i, bits_of(dtype, tf_value(entry->name, i)));
    }
}

static void lay_out(tf_file *file) {
    uint64_t at = 0;
    for (int i = 0; i < file->count; i++) {
        file->entry[i].begin = at;
        at += file->entry[i].bytes;
        file->entry[i].end = at;
    }
}

tf_entry *tf_add(tf_file *file, const char *name, const char *dtype, int rank, const int64_t *dim, const void *data) {
    tf_entry *grown = realloc(file->entry, ((size_t)file->count + 1) * sizeof *grown);
    ck_assert_ptr_nonnull(grown);
    file->entry = grown;
    tf_entry *entry = &file->entry[file->count];
    memset(entry, 0, sizeof *entry);
    entry->name = strdup(name);
    ck_assert_ptr_nonnull(entry->name);
    fill(entry, dtype, rank, dim, data);
    entry->begin = file->count == 0 ? 0 : entry[-1].end;
    entry->end = entry->begin + entry->bytes;
    file->count++;
    return entry;
}

tf_entry *tf_get(const tf_file *file, const char *name) {
    for (int i = 0; i < file->count; i++)
        if (strcmp(file->entry[i].name, name) == 0) return &file->entry[i];
    ck_abort_msg("the test's file has no tensor %s", name);
}

void tf_remove(tf_file *file, const char *name) {
    tf_entry *entry = tf_get(file, name);
    free(entry->name);
    free(entry->data);
    file->count--;
    memmove(entry, entry + 1, (size_t)(&file->entry[file->count] - entry) * sizeof *entry);
    lay_out(file);
}

void tf_reshape(tf_file *file, const char *name, const char *dtype, int rank, const int64_t *dim) {
    fill(tf_get(file, name), dtype, rank, dim, NULL);
    lay_out(file);
}

void tf_rename(tf_file *file, const char *name, const char *to) {
    tf_entry *entry = tf_get(file, name);
    free(entry->name);
    entry->name = strdup(to);
    ck_assert_ptr_nonnull(entry->name);
}

static void print_header(const tf_file *file, FILE *to) {
    fputs("{\"__metadata__\":{\"format\":\"pt\"}", to);
    for (int i = 0; i < file->count; i++) {
        const tf_entry *entry = &file->entry[i];
        fprintf(to, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", entry->name, entry->dtype);
        for (int d = 0; d < entry->rank; d++) fprintf(to, "%s%" PRId64, d == 0 ? "" : ",", entry->dim[d]);
        fprintf(to, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", entry->begin, entry->end);
    }
    fputc('}', to);
}

void tf_write(const tf_file *file, const char *path) {
    char *made = NULL;
    size_t length = 0;
    FILE *text = open_memstream(&made, &length);
    ck_assert_ptr_nonnull(text);
    if (file->header != NULL) {
        fputs(file->header, text);
    } else {
        print_header(file, text);
    }
    ck_assert_int_eq(fflush(text), 0);
    while (length % file->pad_to != 0) {
        fputc(' ', text);
        ck_assert_int_eq(fflush(text), 0);
    }
    ck_assert_int_eq(fclose(text), 0);

    FILE *to = fopen(path, "wb");
    ck_assert_ptr_nonnull(to);
    const uint64_t claimed = file->lie_about_length ? file->header_length : length;
    for (int i = 0; i < 8; i++) fputc((int)(claimed >> (8 * i) & 0xffu), to);
    fwrite(made, 1, length, to);
    for (int i = 0; i < file->count; i++) fwrite(file->entry[i].data, 1, file->entry[i].bytes, to);
    for (int64_t i = 0; i < file->tail; i++) fputc(0, to);
    ck_assert_int_eq(fflush(to), 0);
    if (file->tail < 0) ck_assert_int_eq(ftruncate(fileno(to), ftello(to) + file->tail), 0);
    ck_assert_int_eq(fclose(to), 0);
    free(made);
}

void tf_make_dir(char path[TF_PATH_MAX]) {
    const char *base = getenv("TMPDIR");
    snprintf(path, TF_PATH_MAX, "%s/df-test-XXXXXX", base != NULL && base[0] != '\0' ? base : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(path));
}

void tf_remove_dir(const char *path) {
    DIR *dir = opendir(path);
    ck_assert_ptr_nonnull(dir);
    for (const struct dirent *item = readdir(dir); item != NULL; item = readdir(dir)) {
        if (strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0)
            ck_assert_int_eq(unlinkat(dirfd(dir), item->d_name, 0), 0);
    }
    closedir(dir);
    ck_assert_int_eq(rmdir(path), 0);
}
