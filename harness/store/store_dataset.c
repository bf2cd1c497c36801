/* store_dataset.c - see store_dataset.h. */
#include "store/store_dataset.h"

#include "common/dtype.h"
#include "common/error.h"
#include "base/sha256.h"
#include "store/store_h5.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Stored bytes are little-endian and are used as they lie in memory. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the store needs a little-endian machine");

static const struct {
    const char *name;
    size_t size;
} logical[DP_LOGICAL_COUNT] = {{"float64", 8}, {"float32", 4}, {"bfloat16", 2}, {"int32", 4}};

const char *dp_logical_name(dp_logical dtype) { return logical[dtype].name; }
size_t dp_logical_size(dp_logical dtype) { return logical[dtype].size; }

hid_t dp_logical_h5(dp_logical dtype) {
    switch (dtype) {
    case DP_LOGICAL_F64:
        return H5T_IEEE_F64LE;
    case DP_LOGICAL_F32:
        return H5T_IEEE_F32LE;
    case DP_LOGICAL_BF16:
        return H5T_STD_U16LE;
    case DP_LOGICAL_I32:
    case DP_LOGICAL_COUNT:
        break;
    }
    return H5T_STD_I32LE;
}

int64_t dp_shape_total(int rank, const int64_t *dim) {
    if (rank < 1 || rank > 4) return 0;
    int64_t total = 1;
    for (int i = 0; i < rank; i++)
        if (dim[i] < 1 || __builtin_mul_overflow(total, dim[i], &total)) return 0;
    return total;
}

int64_t dp_sample_count(int64_t total, int64_t stride, int64_t offset) {
    return offset >= total ? 0 : (total - offset - 1) / stride + 1;
}

/* ---- What a dataset says of itself ---- */

static dflash_status describe_type(hid_t dataset, const char *where, dp_dataset_info *info, dflash_error *err) {
    char name[32];
    const dflash_status status = dp_h5_text_attribute(dataset, where, "logical_dtype", name, sizeof name, err);
    if (status != DFLASH_OK) return status;
    info->dtype = DP_LOGICAL_COUNT;
    for (int i = 0; i < DP_LOGICAL_COUNT; i++)
        if (strcmp(name, logical[i].name) == 0) info->dtype = (dp_logical)i;
    if (info->dtype == DP_LOGICAL_COUNT)
        return df_fail(
            err, DFLASH_ERR_REFUSED, "oracle.dataset.type",
            "%s: logical_dtype is \"%s\"; expected float64, float32, bfloat16 or int32. Write the file again.", where,
            name);
    const hid_t type = H5Dget_type(dataset);
    const htri_t same = type < 0 ? -1 : H5Tequal(type, dp_logical_h5(info->dtype));
    if (type >= 0) H5Tclose(type);
    if (same <= 0)
        return df_fail(
            err, DFLASH_ERR_REFUSED, "oracle.dataset.type",
            "%s: logical_dtype is %s, which is stored as little-endian %s, but the dataset holds another type. "
            "Write the file again.",
            where, name, info->dtype == DP_LOGICAL_BF16 ? "uint16" : name);
    return DFLASH_OK;
}

static dflash_status describe_shape(hid_t dataset, const char *where, dp_dataset_info *info, dflash_error *err) {
    hsize_t stored[H5S_MAX_RANK] = {0};
    const hid_t space = H5Dget_space(dataset);
    const int rank = space < 0 ? -1 : H5Sget_simple_extent_dims(space, stored, NULL);
    const bool simple = space >= 0 && H5Sget_simple_extent_type(space) == H5S_SIMPLE;
    if (space >= 0) H5Sclose(space);
    bool in_range = simple && rank >= 1 && rank <= 4;
    for (int i = 0; in_range && i < rank; i++) {
        in_range = stored[i] <= INT64_MAX;
        info->dim[i] = (int64_t)stored[i];
    }
    info->rank = in_range ? rank : 0;
    info->total = dp_shape_total(info->rank, info->dim);
    if (info->total == 0)
        return df_fail(err, DFLASH_ERR_REFUSED, "oracle.dataset.shape",
                       "%s: expected 1 to 4 dimensions of at least one element each, found rank %d%s. An empty dataset "
                       "compares nothing. Write the file again.",
                       where, rank, in_range ? " with an empty or absurdly large dimension" : "");
    info->count = info->total;
    info->stride = 1;
    return DFLASH_OK;
}

/* Chunks of whole rows (all dimensions but the first are the dataset's), Fletcher32 and nothing else. The storage size
 * is checked so that a lying shape cannot ask for memory that the file has no bytes for: every chunk is stored, the
 * last one too, in full and with its checksum. */
static dflash_status describe_layout(hid_t dataset, const char *where, const dp_dataset_info *info, dflash_error *err) {
    const hid_t list = H5Dget_create_plist(dataset);
    if (list < 0) return dp_h5_fail(err, "oracle.read", "%s: its layout cannot be read. Write the file again.", where);
    hsize_t chunk[H5S_MAX_RANK] = {0};
    unsigned flags = 0;
    size_t parameters = 0;
    bool good = H5Pget_layout(list) == H5D_CHUNKED && H5Pget_chunk(list, info->rank, chunk) == info->rank &&
                chunk[0] >= 1 && chunk[0] <= (hsize_t)info->dim[0];
    for (int i = 1; good && i < info->rank; i++) good = chunk[i] == (hsize_t)info->dim[i];
    good = good && H5Pget_nfilters(list) == 1 &&
           H5Pget_filter2(list, 0, &flags, &parameters, NULL, 0, NULL, NULL) == H5Z_FILTER_FLETCHER32;
    H5Pclose(list);
    const hsize_t stored = H5Dget_storage_size(dataset);
    const uint64_t row = (uint64_t)(info->total / info->dim[0]) * dp_logical_size(info->dtype), checksum = 4;
    const uint64_t chunks = good ? ((uint64_t)info->dim[0] - 1) / chunk[0] + 1 : 1;
    const uint64_t bytes = good ? chunks * (chunk[0] * row + checksum) : (uint64_t)info->dim[0] * row + checksum;
    if (!good || stored != bytes)
        return df_fail(
            err, DFLASH_ERR_REFUSED, "oracle.dataset.layout",
            "%s: expected chunks of whole rows with Fletcher32 and no other filter, %llu bytes with their checksums; "
            "found another layout or %llu stored bytes. Write the file again as oracles/FORMAT.md says.",
            where, (unsigned long long)bytes, (unsigned long long)stored);
    return DFLASH_OK;
}

static dflash_status describe_sampling(hid_t dataset, const char *where, dp_dataset_info *info, dflash_error *err) {
    const char *names[] = {"full_shape", "sample_stride", "sample_offset"};
    for (int i = 0; i < 3; i++) info->sampled = info->sampled || H5Aexists(dataset, names[i]) > 0;
    if (!info->sampled) return DFLASH_OK;
    int64_t full[4] = {0}, stride = 0, offset = 0;
    int rank = 0;
    dflash_status status = dp_h5_int_attribute(dataset, where, names[0], full, 4, &rank, err);
    if (status == DFLASH_OK) status = dp_h5_int_attribute(dataset, where, names[1], &stride, 1, NULL, err);
    if (status == DFLASH_OK) status = dp_h5_int_attribute(dataset, where, names[2], &offset, 1, NULL, err);
    if (status != DFLASH_OK) return status;
    const int64_t total = dp_shape_total(rank, full);
    if (info->rank != 1 || total == 0 || stride < 1 || offset < 0 || offset >= total)
        return df_fail(
            err, DFLASH_ERR_REFUSED, "oracle.sampling",
            "%s: a sampled dataset is 1-D, with a full_shape of positive dimensions, a stride of at least 1 and "
            "an offset inside the tensor; found rank %d, %lld elements in full_shape, stride %lld, offset %lld. "
            "Write the file again.",
            where, info->rank, (long long)total, (long long)stride, (long long)offset);
    const int64_t expected = dp_sample_count(total, stride, offset);
    if (info->count != expected)
        return df_fail(
            err, DFLASH_ERR_REFUSED, "oracle.sampling",
            "%s: %lld elements are stored; every %lldth of %lld from %lld on makes %lld. Write the file again.", where,
            (long long)info->count, (long long)stride, (long long)total, (long long)offset, (long long)expected);
    info->rank = rank;
    memcpy(info->dim, full, sizeof full);
    info->total = total;
    info->stride = stride;
    info->offset = offset;
    return DFLASH_OK;
}

static dflash_status describe_digest(hid_t dataset, const char *where, dp_dataset_info *info, dflash_error *err) {
    const dflash_status status = dp_h5_text_attribute(dataset, where, "sha256", info->sha256, sizeof info->sha256, err);
    if (status != DFLASH_OK) return status;
    if (strlen(info->sha256) != 64 || strspn(info->sha256, "0123456789abcdef") != 64)
        return df_fail(err, DFLASH_ERR_REFUSED, "oracle.attribute.type",
                       "%s: sha256 is \"%s\"; expected 64 lower-case hexadecimal digits. Write the file again.", where,
                       info->sha256);
    return DFLASH_OK;
}

dflash_status dp_dataset_describe(hid_t dataset, const char *where, dp_dataset_info *info, dflash_error *err) {
    *info = (dp_dataset_info){0};
    dflash_status status = describe_type(dataset, where, info, err);
    if (status == DFLASH_OK) status = describe_shape(dataset, where, info, err);
    if (status == DFLASH_OK) status = describe_layout(dataset, where, info, err);
    if (status == DFLASH_OK) status = describe_sampling(dataset, where, info, err);
    if (status == DFLASH_OK) status = describe_digest(dataset, where, info, err);
    return status;
}

/* ---- Values ---- */

double dp_logical_widen(dp_logical dtype, const void *bytes, int64_t index) {
    const unsigned char *at = (const unsigned char *)bytes + (size_t)index * dp_logical_size(dtype);
    double f64;
    float f32;
    uint16_t bf16;
    int32_t i32;
    switch (dtype) {
    case DP_LOGICAL_F64:
        memcpy(&f64, at, sizeof f64);
        return f64;
    case DP_LOGICAL_F32:
        memcpy(&f32, at, sizeof f32);
        return (double)f32;
    case DP_LOGICAL_BF16:
        memcpy(&bf16, at, sizeof bf16);
        return (double)df_bf16_to_f32(bf16);
    case DP_LOGICAL_I32:
    case DP_LOGICAL_COUNT:
        break;
    }
    memcpy(&i32, at, sizeof i32);
    return (double)i32;
}

/* From the bits, so that no compiler flag can argue NaN away. */
static bool finite_bits(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bits >> 52 & 0x7ffu) != 0x7ffu;
}

dflash_status dp_dataset_bytes(hid_t dataset, const char *where, const dp_dataset_info *info, void **out,
                               dflash_error *err) {
    const size_t size = dp_logical_size(info->dtype), n = (size_t)info->count;
    dflash_status status = DFLASH_OK;
    *out = NULL;
    unsigned char *raw = malloc(n * size);
    if (raw == NULL) return df_fail_memory(err, where, n * size);
    if (H5Dread(dataset, dp_logical_h5(info->dtype), H5S_ALL, H5S_ALL, H5P_DEFAULT, raw) < 0) {
        status =
            dp_h5_fail(err, "oracle.read",
                       "%s: the values cannot be read; a checksum that does not hold means damaged bytes. Write the "
                       "file again or fetch it again.",
                       where);
        goto cleanup;
    }
    char digest[65];
    dp_sha256_of(raw, n * size, digest);
    if (strcmp(digest, info->sha256) != 0) {
        status =
            df_fail(err, DFLASH_ERR_REFUSED, "oracle.digest",
                    "%s: the SHA-256 of the stored values is %s; the file promises %s. The file was altered; write it "
                    "again or fetch it again.",
                    where, digest, info->sha256);
        goto cleanup;
    }
    *out = raw;
    raw = NULL;
cleanup:
    free(raw);
    return status;
}

dflash_status dp_dataset_read(hid_t dataset, const char *where, const dp_dataset_info *info, double *value,
                              dflash_error *err) {
    void *raw = NULL;
    dflash_status status = dp_dataset_bytes(dataset, where, info, &raw, err);
    for (int64_t i = 0; status == DFLASH_OK && i < info->count; i++) {
        const double element = dp_logical_widen(info->dtype, raw, i);
        if (!finite_bits(element))
            status =
                df_fail(err, DFLASH_ERR_REFUSED, "oracle.nonfinite",
                        "%s: stored element %lld of %lld is %s; expected finite numbers only. The reference overflowed "
                        "or was fed a NaN; nothing can be judged by it. Make the oracle again with other inputs.",
                        where, (long long)i, (long long)info->count, isnan(element) ? "NaN" : "infinite");
        else if (value != NULL)
            value[i] = element;
    }
    free(raw);
    return status;
}
