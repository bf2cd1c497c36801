/*
 * store_write.c - see store_write.h.
 *
 * HDF5's memory driver holds the file until it is complete: a full disk then meets one plain write of finished bytes,
 * where the library's own writes could leave a torn file and handles that no longer close. The cost is memory of twice
 * the file's size while committing. Metadata is written in the oldest form: from the checksummed ones H5Fget_file_image
 * makes a superblock that fails its own checksum, and their root group carries times whatever the creation list says.
 * Nearly every dataset is one chunk, so the chunk index is made as small as it goes.
 */
#include "store/store_write.h"

#include "base/atomic_file.h"
#include "common/error.h"
#include "store/stage_set.h"
#include "base/sha256.h"
#include "store/sketch.h"
#include "store/store_h5.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t sketch_seed = 1;
static const size_t growth = (size_t)4 << 20;             /* bytes by which the memory image grows */
static const uint64_t chunk_limit = (uint64_t)UINT32_MAX; /* HDF5's limit for one chunk, in bytes */
static const uint64_t chunk_bytes = (uint64_t)16 << 20;   /* blocks of rows as large as this; a small file has one */

struct dp_store_writer {
    char *path;
    hid_t file;
    bool recording;
    bool geometry, provenance;
};

/* ---- Small objects ---- */

static dflash_status write_failed(const dp_store_writer *writer, const char *what, dflash_error *err) {
    return dp_h5_fail(err, "store.write", "%s: %s cannot be written. Free memory, or report this if there is enough.",
                      writer->path, what);
}

static hid_t text_type(size_t length) {
    const hid_t type = H5Tcopy(H5T_C_S1);
    if (type < 0) return type;
    if (H5Tset_size(type, length) >= 0 && H5Tset_strpad(type, H5T_STR_NULLPAD) >= 0 &&
        H5Tset_cset(type, H5T_CSET_UTF8) >= 0)
        return type;
    H5Tclose(type);
    return H5I_INVALID_HID;
}

/* Takes and closes `space`. */
static bool put_attribute(hid_t object, const char *name, hid_t type, hid_t space, const void *value) {
    const hid_t attribute =
        type < 0 || space < 0 ? H5I_INVALID_HID : H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    const bool done = attribute >= 0 && H5Awrite(attribute, type, value) >= 0;
    if (attribute >= 0) H5Aclose(attribute);
    if (space >= 0) H5Sclose(space);
    return done;
}

static bool put_text(hid_t object, const char *name, const char *text) {
    const hid_t type = text_type(strlen(text));
    const bool done = put_attribute(object, name, type, H5Screate(H5S_SCALAR), text);
    if (type >= 0) H5Tclose(type);
    return done;
}

static bool put_int64(hid_t object, const char *name, int64_t value) {
    return put_attribute(object, name, H5T_STD_I64LE, H5Screate(H5S_SCALAR), &value);
}

/* Object headers carry times by default, and equal content would not give equal files. */
static hid_t untimed(hid_t class) {
    const hid_t list = H5Pcreate(class);
    if (list < 0 || H5Pset_obj_track_times(list, false) >= 0) return list;
    H5Pclose(list);
    return H5I_INVALID_HID;
}

static bool put_group(hid_t file, const char *path) {
    const hid_t list = untimed(H5P_GROUP_CREATE);
    const hid_t group = list < 0 ? H5I_INVALID_HID : H5Gcreate2(file, path, H5P_DEFAULT, list, H5P_DEFAULT);
    if (list >= 0) H5Pclose(list);
    return group >= 0 && H5Gclose(group) >= 0;
}

/* ---- Creation ---- */

static hid_t create_in_memory(const char *path) {
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS), creation = untimed(H5P_FILE_CREATE);
    hid_t file = H5I_INVALID_HID;
    if (access >= 0 && creation >= 0 && H5Pset_fapl_core(access, growth, false) >= 0 &&
        H5Pset_libver_bounds(access, H5F_LIBVER_EARLIEST, H5F_LIBVER_V110) >= 0 && H5Pset_istore_k(creation, 1) >= 0)
        file = H5Fcreate(path, H5F_ACC_TRUNC, creation, access);
    if (access >= 0) H5Pclose(access);
    if (creation >= 0) H5Pclose(creation);
    return file;
}

static bool put_skeleton(hid_t file, const char *kind, bool recording) {
    const int32_t version = DP_SCHEMA_VERSION;
    if (!put_text(file, "schema", "dflash-parity") || !put_text(file, "kind", kind) ||
        !put_attribute(file, "schema_version", H5T_STD_I32LE, H5Screate(H5S_SCALAR), &version) ||
        !put_group(file, "/inputs") || !put_group(file, "/stages"))
        return false;
    for (int run = 0; run < (recording ? 1 : DP_RUN_COUNT); run++) {
        char path[32];
        snprintf(path, sizeof path, "/stages/%s", recording ? dp_recorded_run : dp_run_name((dp_run)run));
        if (!put_group(file, path)) return false;
    }
    return true;
}

dflash_status dp_store_create(const char *path, const char *kind, dp_store_writer **out, dflash_error *err) {
    *out = NULL;
    if (strcmp(kind, "oracle") != 0 && strcmp(kind, "recording") != 0)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "store.argument",
                       "The kind \"%s\" is unknown; expected oracle or recording.", kind);
    dp_h5_quiet quiet;
    dflash_status status = DFLASH_OK;
    dp_store_writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL) return df_fail_memory(err, "a store writer", sizeof *writer);
    writer->file = H5I_INVALID_HID;
    writer->recording = strcmp(kind, dp_kind_name(DP_KIND_RECORDING)) == 0;
    writer->path = strdup(path);
    if (writer->path == NULL) {
        status = df_fail_memory(err, "a store writer's path", strlen(path) + 1);
        goto cleanup;
    }
    dp_h5_quiet_begin(&quiet);
    writer->file = create_in_memory(path);
    if (writer->file < 0 || !put_skeleton(writer->file, kind, writer->recording))
        status = write_failed(writer, "the file's skeleton", err);
    dp_h5_quiet_end(&quiet);
cleanup:
    if (status == DFLASH_OK)
        *out = writer;
    else
        dp_store_discard(writer);
    return status;
}

/* ---- Content ---- */

dflash_status dp_store_write_text(dp_store_writer *writer, const char *name, const char *text, dflash_error *err) {
    bool *written = strcmp(name, "geometry") == 0     ? &writer->geometry
                    : strcmp(name, "provenance") == 0 ? &writer->provenance
                                                      : NULL;
    if (written == NULL || *written || text[0] == '\0')
        return df_fail(
            err, DFLASH_ERR_ARGUMENT, "store.argument",
            "%s: the record \"%s\" is unknown, empty or written already; expected geometry and provenance, each "
            "once.",
            writer->path, name);
    dp_h5_quiet quiet;
    char digest[65];
    dp_sha256_of(text, strlen(text), digest);
    dp_h5_quiet_begin(&quiet);
    const hid_t type = text_type(strlen(text)), space = H5Screate(H5S_SCALAR), list = untimed(H5P_DATASET_CREATE);
    hid_t dataset = H5I_INVALID_HID;
    dflash_status status = DFLASH_OK;
    if (type >= 0 && space >= 0 && list >= 0)
        dataset = H5Dcreate2(writer->file, name, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    if (dataset < 0 || H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text) < 0 ||
        !put_text(dataset, "sha256", digest))
        status = write_failed(writer, name, err);
    if (dataset >= 0) H5Dclose(dataset);
    if (list >= 0) H5Pclose(list);
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    dp_h5_quiet_end(&quiet);
    if (status == DFLASH_OK) *written = true;
    return status;
}

static bool is_sampled(const dp_store_tensor *tensor) { return tensor->stride != 1 || tensor->offset != 0; }

static void gather(const dp_store_tensor *tensor, int64_t count, unsigned char *out) {
    const size_t size = dp_logical_size(tensor->dtype);
    const unsigned char *data = tensor->data;
    for (int64_t i = 0; i < count; i++)
        memcpy(out + (size_t)i * size, data + (size_t)(tensor->offset + i * tensor->stride) * size, size);
}

static bool put_labels(hid_t dataset, const dp_store_tensor *tensor, bool sampled, const char *digest) {
    if (!put_text(dataset, "logical_dtype", dp_logical_name(tensor->dtype)) || !put_text(dataset, "sha256", digest))
        return false;
    if (!sampled) return true;
    const hsize_t rank = (hsize_t)tensor->rank;
    return put_attribute(dataset, "full_shape", H5T_STD_I64LE, H5Screate_simple(1, &rank, NULL), tensor->dim) &&
           put_int64(dataset, "sample_stride", tensor->stride) && put_int64(dataset, "sample_offset", tensor->offset);
}

/* Rows of a dataset that share a chunk. */
static hsize_t rows_in_chunk(const hsize_t shape[4], int rank, size_t size) {
    uint64_t row = size;
    for (int i = 1; i < rank; i++) row *= shape[i];
    const uint64_t wanted = (row * shape[0] - 1) / chunk_bytes + 1;
    const uint64_t blocks = wanted < shape[0] ? wanted : shape[0];
    return (shape[0] - 1) / blocks + 1; /* of equal size: HDF5 stores the last one in full */
}

static bool put_dataset(hid_t file, const char *path, const dp_store_tensor *tensor, bool sampled, int64_t count,
                        const void *data, const char *digest) {
    const hid_t type = dp_logical_h5(tensor->dtype);
    const int rank = sampled ? 1 : tensor->rank;
    hsize_t shape[4] = {(hsize_t)count};
    for (int i = 0; !sampled && i < rank; i++) shape[i] = (hsize_t)tensor->dim[i];
    hsize_t chunk[4] = {rows_in_chunk(shape, rank, dp_logical_size(tensor->dtype)), shape[1], shape[2], shape[3]};
    const hid_t space = H5Screate_simple(rank, shape, NULL), list = untimed(H5P_DATASET_CREATE);
    hid_t dataset = H5I_INVALID_HID;
    if (space >= 0 && list >= 0 && H5Pset_chunk(list, rank, chunk) >= 0 && H5Pset_fletcher32(list) >= 0)
        dataset = H5Dcreate2(file, path, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    const bool done = dataset >= 0 && H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0 &&
                      put_labels(dataset, tensor, sampled, digest);
    if (dataset >= 0) H5Dclose(dataset);
    if (list >= 0) H5Pclose(list);
    if (space >= 0) H5Sclose(space);
    return done;
}

static dflash_status write_tensor(dp_store_writer *writer, const char *path, const dp_store_tensor *tensor,
                                  dflash_error *err) {
    const int64_t total = dp_shape_total(tensor->rank, tensor->dim);
    if (tensor->dtype >= DP_LOGICAL_COUNT || total == 0 || tensor->stride < 1 || tensor->offset < 0 ||
        tensor->offset >= total || (uint64_t)(total / tensor->dim[0]) > chunk_limit / dp_logical_size(tensor->dtype))
        return df_fail(
            err, DFLASH_ERR_ARGUMENT, "store.argument",
            "%s: %s has rank %d, %lld elements, stride %lld, offset %lld; expected 1 to 4 positive dimensions of "
            "rows of less than 4 GiB, a stride of at least 1 and an offset inside the tensor.",
            writer->path, path, tensor->rank, (long long)total, (long long)tensor->stride, (long long)tensor->offset);
    const bool sampled = is_sampled(tensor);
    const int64_t count = dp_sample_count(total, tensor->stride, tensor->offset);
    const size_t bytes = (size_t)count * dp_logical_size(tensor->dtype);
    dp_h5_quiet quiet;
    char digest[65];
    unsigned char *part = NULL;
    const void *data = tensor->data;
    if (sampled) {
        part = malloc(bytes);
        if (part == NULL) return df_fail_memory(err, path, bytes);
        gather(tensor, count, part);
        data = part;
    }
    dp_sha256_of(data, bytes, digest);
    dflash_status status = DFLASH_OK;
    dp_h5_quiet_begin(&quiet);
    if (H5Lexists(writer->file, path, H5P_DEFAULT) > 0)
        status = df_fail(err, DFLASH_ERR_ARGUMENT, "store.argument", "%s: %s is written already; expected each once.",
                         writer->path, path);
    else if (!put_dataset(writer->file, path, tensor, sampled, count, data, digest))
        status = write_failed(writer, path, err);
    dp_h5_quiet_end(&quiet);
    free(part);
    return status;
}

dflash_status dp_store_write_input(dp_store_writer *writer, const char *name, const dp_store_tensor *tensor,
                                   dflash_error *err) {
    bool known = false;
    for (int i = 0; i < DP_INPUT_COUNT; i++) known = known || strcmp(name, dp_input_name(i)) == 0;
    if (!known)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "store.argument",
                       "%s: \"%s\" is not an input; expected target_hidden, noise_embedding or positions.",
                       writer->path, name);
    char path[64];
    snprintf(path, sizeof path, "/inputs/%s", name);
    return write_tensor(writer, path, tensor, err);
}

/* The groups of the sketches, with the first of them. */
static dflash_status begin_sketches(const dp_store_writer *writer, dflash_error *err) {
    char path[32];
    if (H5Lexists(writer->file, "/sketch", H5P_DEFAULT) > 0) return DFLASH_OK;
    bool done = put_group(writer->file, "/sketch");
    for (int run = 0; done && run < DP_RUN_COUNT; run++) {
        snprintf(path, sizeof path, "/sketch/%s", dp_run_name((dp_run)run));
        done = put_group(writer->file, path);
    }
    const hid_t group = done ? H5Gopen2(writer->file, "/sketch", H5P_DEFAULT) : H5I_INVALID_HID;
    done = group >= 0 && put_int64(group, "seed", sketch_seed);
    if (group >= 0) H5Gclose(group);
    return done ? DFLASH_OK : write_failed(writer, "/sketch", err);
}

/* What stands for the values that are left out. */
static dflash_status write_sketch(dp_store_writer *writer, const char *path, const char *name, int64_t width,
                                  const dp_store_tensor *tensor, dflash_error *err) {
    const dp_sketch form = {.rows = dp_shape_total(tensor->rank, tensor->dim) / width,
                            .width = width,
                            .projections = DP_SKETCH_PROJECTIONS,
                            .key = dp_sketch_key(sketch_seed, name)};
    dp_h5_quiet quiet;
    dp_h5_quiet_begin(&quiet);
    dflash_status status = begin_sketches(writer, err);
    dp_h5_quiet_end(&quiet);
    const int64_t each = form.projections + 1;
    double *row = malloc((size_t)width * sizeof *row), *out = malloc((size_t)(form.rows * each) * sizeof *out);
    if (status == DFLASH_OK && (row == NULL || out == NULL))
        status = df_fail_memory(err, path, (size_t)(width + form.rows * each) * sizeof *out);
    for (int64_t r = 0; status == DFLASH_OK && r < form.rows; r++) {
        for (int64_t i = 0; i < width; i++) row[i] = dp_logical_widen(tensor->dtype, tensor->data, r * width + i);
        dp_sketch_row(&form, r, row, out + r * each);
    }
    const dp_store_tensor values = {
        .dtype = DP_LOGICAL_F64, .rank = 2, .dim = {form.rows, each}, .stride = 1, .data = out};
    if (status == DFLASH_OK) status = write_tensor(writer, path, &values, err);
    free(row);
    free(out);
    return status;
}

dflash_status dp_store_write_stage(dp_store_writer *writer, dp_run run, const char *name, const dp_store_tensor *tensor,
                                   dflash_error *err) {
    dflash_stage stage = DFLASH_STAGE_COUNT;
    int layer = -1;
    if (run >= DP_RUN_COUNT || !dflash_stage_parse(name, &stage, &layer))
        return df_fail(err, DFLASH_ERR_ARGUMENT, "store.argument", "%s: \"%s\" is not a stage, or the run is unknown.",
                       writer->path, name);
    if (writer->recording && (run != DP_RUN_OWN || tensor->stride != 1 || tensor->offset != 0))
        return df_fail(err, DFLASH_ERR_ARGUMENT, "store.argument",
                       "%s: %s is sampled or of a run of a reference; a recording has one run and every element.",
                       writer->path, name);
    char path[32 + DFLASH_STAGE_NAME_MAX];
    snprintf(path, sizeof path, "/stages/%s/%s", writer->recording ? dp_recorded_run : dp_run_name(run), name);
    TRY(write_tensor(writer, path, tensor, err));
    if (!is_sampled(tensor)) return DFLASH_OK;
    snprintf(path, sizeof path, "/sketch/%s/%s", dp_run_name(run), name);
    return write_sketch(writer, path, name, dp_row_length(stage, tensor->rank, tensor->dim), tensor, err);
}

/* ---- The end ---- */

static dflash_status take_image(const dp_store_writer *writer, void **image, size_t *bytes, dflash_error *err) {
    const ssize_t size = H5Fflush(writer->file, H5F_SCOPE_GLOBAL) < 0 ? -1 : H5Fget_file_image(writer->file, NULL, 0);
    if (size <= 0) return write_failed(writer, "the finished file", err);
    *image = malloc((size_t)size);
    if (*image == NULL) return df_fail_memory(err, "the image of a store file", (size_t)size);
    if (H5Fget_file_image(writer->file, *image, (size_t)size) != size)
        return write_failed(writer, "the finished file", err);
    *bytes = (size_t)size;
    return DFLASH_OK;
}

dflash_status dp_store_commit(dp_store_writer *writer, dflash_error *err) {
    dp_h5_quiet quiet;
    dp_atomic_file *file = NULL;
    void *image = NULL;
    size_t bytes = 0;
    dflash_status status = DFLASH_OK;
    if (!writer->geometry || !writer->provenance) {
        status = df_fail(err, DFLASH_ERR_ARGUMENT, "store.incomplete",
                         "%s: the %s record was never written; a file without it could not be judged.", writer->path,
                         writer->geometry ? "provenance" : "geometry");
        goto cleanup;
    }
    dp_h5_quiet_begin(&quiet);
    status = take_image(writer, &image, &bytes, err);
    dp_h5_quiet_end(&quiet);
    if (status == DFLASH_OK) status = dp_atomic_open(writer->path, &file, err);
    if (status == DFLASH_OK) status = dp_atomic_write(file, image, bytes, err);
    if (status == DFLASH_OK) {
        status = dp_atomic_commit(file, err);
        file = NULL;
    }
cleanup:
    dp_atomic_discard(file);
    free(image);
    dp_store_discard(writer);
    return status;
}

void dp_store_discard(dp_store_writer *writer) {
    if (writer == NULL) return;
    dp_h5_quiet quiet;
    dp_h5_quiet_begin(&quiet);
    if (writer->file >= 0) H5Fclose(writer->file);
    dp_h5_quiet_end(&quiet);
    free(writer->path);
    free(writer);
}
