/*
 * safetensors_header.c - see safetensors_header.h.
 *
 * cJSON builds the tree, but it is more lenient than JSON: it takes control characters for white space, reads 01 and
 * 1e3 into a double, and ends a string at \u0000. A lexical pass therefore runs first and lets through only what means
 * the same to every reader. Integers above 2^53 - 1 are refused because a double no longer tells neighbours apart.
 */
#include "weights/safetensors_header.h"

#include "common/error.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double LARGEST_EXACT = 9007199254740991.0; /* 2^53 - 1 */

/* Where an entry stands, for messages. */
typedef struct entry_context {
    const char *where, *name;
    uint64_t data_bytes;
} entry_context;

const char *df_shape_text(int rank, const int64_t *dim, char text[DF_SHAPE_TEXT_MAX]) {
    size_t used = (size_t)snprintf(text, DF_SHAPE_TEXT_MAX, "[");
    for (int i = 0; i < rank; i++)
        used += (size_t)snprintf(text + used, DF_SHAPE_TEXT_MAX - used, i == 0 ? "%" PRId64 : ", %" PRId64, dim[i]);
    snprintf(text + used, DF_SHAPE_TEXT_MAX - used, "]");
    return text;
}

/* Text out of the file, fit to stand in a message: printable ASCII, 60 characters at most. */
static const char *printable(const char *text, char out[64]) {
    size_t i = 0;
    for (; i < 60 && text[i] != '\0'; i++) out[i] = text[i] >= 0x20 && text[i] <= 0x7e ? text[i] : '?';
    snprintf(out + i, 64 - i, "%s", text[i] != '\0' ? "..." : "");
    return out;
}

static dflash_status fail_json(const char *where, size_t at, const char *what, dflash_error *err) {
    return df_fail(err, DFLASH_ERR_REFUSED, "safetensors.header.json",
                   "%s: the header is not the JSON of a safetensors file: at byte %zu of the header, expected %s. The "
                   "file is damaged or was not written by a safetensors library; download or export it again.",
                   where, at, what);
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Passes a string whose opening quote is text[*at]; leaves *at behind the closing quote. */
static dflash_status scan_string(const char *text, size_t length, size_t *at, const char *where, dflash_error *err) {
    size_t i = *at + 1;
    while (i < length && text[i] != '"') {
        if ((unsigned char)text[i] < 0x20) return fail_json(where, i, "no bare control character in a string", err);
        if (text[i] == '\\') {
            if (length - i >= 6 && memcmp(text + i, "\\u0000", 6) == 0)
                return fail_json(where, i, "no zero character in a string", err);
            i++;
        }
        i++;
    }
    if (i >= length) return fail_json(where, *at, "a string that ends inside the header", err);
    *at = i + 1;
    return DFLASH_OK;
}

/* Passes a number that starts at text[*at]: a plain integer, as every number of a header is. */
static dflash_status scan_number(const char *text, size_t length, size_t *at, const char *where, dflash_error *err) {
    const size_t start = *at;
    size_t i = start + (text[start] == '-');
    const size_t digits = i;
    while (i < length && is_digit(text[i])) i++;
    const bool leading_zero = i > digits + 1 && text[digits] == '0';
    if (i == digits || leading_zero || (i < length && strchr("+-.eE", text[i]) != NULL))
        return fail_json(where, start, "a plain decimal integer (no fraction, exponent or leading zero)", err);
    *at = i;
    return DFLASH_OK;
}

static dflash_status scan(const char *text, size_t length, const char *where, dflash_error *err) {
    if (length == 0 || text[0] != '{') return fail_json(where, 0, "an opening brace", err);
    for (size_t i = 0; i < length;) {
        const char c = text[i];
        dflash_status status = DFLASH_OK;
        if (c == '"') {
            status = scan_string(text, length, &i, where, err);
        } else if (c == '-' || is_digit(c)) {
            status = scan_number(text, length, &i, where, err);
        } else if ((unsigned char)c < 0x20 && c != '\t' && c != '\n' && c != '\r') {
            status = fail_json(where, i, "no control character between values", err);
        } else {
            i++;
        }
        if (status != DFLASH_OK) return status;
    }
    return DFLASH_OK;
}

static dflash_status fail_entry(const entry_context *at, const char *found, dflash_error *err) {
    return df_fail(err, DFLASH_ERR_REFUSED, "safetensors.header.entry",
                   "%s: the header's entry \"%s\" is malformed: %s. Expected a name of 1 to %d printable ASCII "
                   "characters and an object with exactly \"dtype\" (string), \"shape\" (array) and \"data_offsets\" "
                   "(array of two); export the file again.",
                   at->where, at->name, found, DF_TENSOR_NAME_MAX);
}

/* The optional __metadata__ entry: strings only. Nothing in it is used. */
static dflash_status check_metadata(const cJSON *item, const entry_context *at, dflash_error *err) {
    bool valid = cJSON_IsObject(item);
    const cJSON *value = NULL;
    if (valid) {
        cJSON_ArrayForEach(value, item) valid = valid && cJSON_IsString(value);
    }
    if (valid) return DFLASH_OK;
    return df_fail(err, DFLASH_ERR_REFUSED, "safetensors.header.entry",
                   "%s: __metadata__ must be an object whose values are all strings, and it is not; export the file "
                   "again.",
                   at->where);
}

static bool exact_integer(const cJSON *item, uint64_t *out) {
    if (!cJSON_IsNumber(item) || item->valuedouble < 0 || item->valuedouble > LARGEST_EXACT) return false;
    *out = (uint64_t)item->valuedouble;
    return true;
}

static dflash_status read_dtype(const cJSON *item, const entry_context *at, df_tensor *out, dflash_error *err) {
    char found[64];
    out->type = df_file_dtype_find(item->valuestring);
    if (out->type == NULL)
        return df_fail(err, DFLASH_ERR_REFUSED, "safetensors.dtype",
                       "%s: tensor \"%s\" has dtype \"%s\", which this reader of the safetensors format does not know, "
                       "so its size cannot be checked. The header is damaged, or of a newer format; export the file "
                       "again, or without that tensor.",
                       at->where, at->name, printable(item->valuestring, found));
    out->dtype = out->type->dtype;
    return DFLASH_OK;
}

static dflash_status fail_overflow(const entry_context *at, dflash_error *err) {
    return df_fail(
        err, DFLASH_ERR_REFUSED, "safetensors.shape",
        "%s: the shape of tensor \"%s\" multiplies to more than 2^63 bits. The header is damaged; export the "
        "file again.",
        at->where, at->name);
}

/* Any rank and any size: whether a tensor can be read is df_safetensors_usable's to say. */
static dflash_status read_shape(const cJSON *shape, const entry_context *at, df_tensor *out, dflash_error *err) {
    const int rank = cJSON_GetArraySize(shape), bits = out->type->bits;
    if (rank > DFLASH_TENSOR_RANK)
        return df_fail(err, DFLASH_ERR_REFUSED, "safetensors.shape",
                       "%s: tensor \"%s\" has %d dimensions; expected at most %d, as every tensor of a model has. The "
                       "header is damaged; export the file again.",
                       at->where, at->name, rank, DFLASH_TENSOR_RANK);
    uint64_t count = 1;
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, shape) {
        uint64_t dim = 0;
        if (!exact_integer(item, &dim))
            return df_fail(err, DFLASH_ERR_REFUSED, "safetensors.shape",
                           "%s: dimension %d of tensor \"%s\" is not an integer from 0 to 2^53 - 1. The header is "
                           "damaged; export the file again.",
                           at->where, out->rank, at->name);
        if (count > 0 && dim > (uint64_t)INT64_MAX / count) return fail_overflow(at, err);
        count *= dim;
        out->dim[out->rank++] = (int64_t)dim;
    }
    if (count > (uint64_t)INT64_MAX / (uint64_t)bits) return fail_overflow(at, err);
    if (count * (uint64_t)bits % 8 != 0) {
        char text[DF_SHAPE_TEXT_MAX];
        return df_fail(err, DFLASH_ERR_REFUSED, "safetensors.shape",
                       "%s: tensor \"%s\" of shape %s and dtype %s takes %" PRIu64 " bits; expected whole bytes. The "
                       "header is damaged; export the file again.",
                       at->where, at->name, df_shape_text(out->rank, out->dim, text), out->type->name,
                       count * (uint64_t)bits);
    }
    out->count = (int64_t)count;
    out->bytes = (size_t)(count * (uint64_t)bits / 8);
    return DFLASH_OK;
}

static dflash_status read_offsets(const cJSON *offsets, const entry_context *at, df_header_entry *out,
                                  dflash_error *err) {
    if (cJSON_GetArraySize(offsets) != 2 || !exact_integer(offsets->child, &out->begin) ||
        !exact_integer(offsets->child->next, &out->end))
        return df_fail(err, DFLASH_ERR_REFUSED, "safetensors.offsets",
                       "%s: data_offsets of tensor \"%s\" must be two integers from 0 to 2^53 - 1, and are not. The "
                       "header is damaged; export the file again.",
                       at->where, at->name);
    if (out->begin > out->end || out->end > at->data_bytes)
        return df_fail(err, DFLASH_ERR_REFUSED, "safetensors.offsets",
                       "%s: tensor \"%s\" claims the bytes [%" PRIu64 ", %" PRIu64 ") of a data section of %" PRIu64
                       " bytes; expected begin <= end <= %" PRIu64 ". The file is truncated or its header is damaged; "
                       "download or export it again.",
                       at->where, at->name, out->begin, out->end, at->data_bytes, at->data_bytes);
    if (out->end - out->begin != out->tensor.bytes) {
        char shape[DF_SHAPE_TEXT_MAX];
        return df_fail(err, DFLASH_ERR_REFUSED, "safetensors.offsets",
                       "%s: tensor \"%s\" of shape %s and dtype %s needs %zu bytes, but its data_offsets [%" PRIu64
                       ", %" PRIu64 ") hold %" PRIu64 ". The header is damaged; export the file again.",
                       at->where, at->name, df_shape_text(out->tensor.rank, out->tensor.dim, shape),
                       out->tensor.type->name, out->tensor.bytes, out->begin, out->end, out->end - out->begin);
    }
    return DFLASH_OK;
}

static bool valid_name(const char *name) {
    const size_t length = strlen(name);
    if (length == 0 || length > DF_TENSOR_NAME_MAX) return false;
    for (size_t i = 0; i < length; i++)
        if (name[i] < 0x20 || name[i] > 0x7e) return false;
    return true;
}

static dflash_status read_entry(const cJSON *item, const entry_context *at, df_header_entry *out, dflash_error *err) {
    if (!valid_name(item->string)) {
        char shown[64];
        const entry_context named = {at->where, printable(item->string, shown), at->data_bytes};
        return fail_entry(&named, "its name cannot be a tensor's", err);
    }
    if (!cJSON_IsObject(item)) return fail_entry(at, "its value is not an object", err);
    const cJSON *dtype = NULL, *shape = NULL, *offsets = NULL, *field = NULL;
    cJSON_ArrayForEach(field, item) {
        const cJSON **to = strcmp(field->string, "dtype") == 0          ? &dtype
                           : strcmp(field->string, "shape") == 0        ? &shape
                           : strcmp(field->string, "data_offsets") == 0 ? &offsets
                                                                        : NULL;
        if (to == NULL) return fail_entry(at, "it has a key of another name", err);
        if (*to != NULL) return fail_entry(at, "it has the same key twice", err);
        *to = field;
    }
    if (!cJSON_IsString(dtype)) return fail_entry(at, "\"dtype\" is missing or not a string", err);
    if (!cJSON_IsArray(shape)) return fail_entry(at, "\"shape\" is missing or not an array", err);
    if (!cJSON_IsArray(offsets)) return fail_entry(at, "\"data_offsets\" is missing or not an array", err);

    dflash_status status = read_dtype(dtype, at, &out->tensor, err);
    if (status == DFLASH_OK) status = read_shape(shape, at, &out->tensor, err);
    if (status == DFLASH_OK) status = read_offsets(offsets, at, out, err);
    if (status != DFLASH_OK) return status;
    out->tensor.name = strdup(item->string);
    if (out->tensor.name == NULL) return df_fail_memory(err, "a tensor name", strlen(item->string) + 1);
    return DFLASH_OK;
}

/* The tree of the header, or NULL with the reason in *err. */
static cJSON *parse_tree(const char *text, size_t length, const char *where, dflash_error *err) {
    cJSON *tree = NULL;
    /* A copy that ends in a zero byte: cJSON may look one byte past the length it is given. */
    char *copy = malloc(length + 1);
    if (copy == NULL) {
        df_fail_memory(err, "a copy of the header", length + 1);
        return NULL;
    }
    memcpy(copy, text, length);
    copy[length] = '\0';

    const char *end = copy;
    tree = cJSON_ParseWithLengthOpts(copy, length + 1, &end, false);
    size_t at = (size_t)(end - copy);
    if (tree == NULL) {
        fail_json(where, at, "well-formed JSON", err);
        goto cleanup;
    }
    while (at < length && strchr(" \t\n\r", copy[at]) != NULL) at++;
    if (at < length) {
        fail_json(where, at, "nothing but white space after the closing brace", err);
        cJSON_Delete(tree);
        tree = NULL;
    }
cleanup:
    free(copy);
    return tree;
}

dflash_status df_header_parse(const char *text, size_t length, const char *where, uint64_t data_bytes,
                              df_header_entry **entries, int *count, dflash_error *err) {
    *entries = NULL;
    *count = 0;
    dflash_status status = scan(text, length, where, err);
    if (status != DFLASH_OK) return status;
    dflash_error reason = {.status = DFLASH_OK};
    cJSON *tree = parse_tree(text, length, where, &reason);
    if (tree == NULL) {
        if (err != NULL) *err = reason;
        return reason.status;
    }

    int filled = 0;
    bool metadata_seen = false;
    const size_t room = (size_t)cJSON_GetArraySize(tree) + 1; /* never zero */
    df_header_entry *list = calloc(room, sizeof *list);
    if (list == NULL) {
        status = df_fail_memory(err, "the tensor list", room * sizeof *list);
        goto cleanup;
    }
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, tree) {
        const entry_context at = {where, item->string, data_bytes};
        if (strcmp(item->string, "__metadata__") != 0) {
            status = read_entry(item, &at, &list[filled], err);
            if (status == DFLASH_OK) filled++;
        } else if (metadata_seen) {
            status = df_fail(err, DFLASH_ERR_REFUSED, "safetensors.name.twice",
                             "%s: the header has two entries named \"__metadata__\"; expected at most one. Export the "
                             "file again.",
                             where);
        } else {
            metadata_seen = true;
            status = check_metadata(item, &at, err);
        }
        if (status != DFLASH_OK) goto cleanup;
    }
    *entries = list;
    *count = filled;
    list = NULL;
cleanup:
    df_header_free(list, filled);
    cJSON_Delete(tree);
    return status;
}

void df_header_free(df_header_entry *entries, int count) {
    if (entries == NULL) return;
    for (int i = 0; i < count; i++) free(entries[i].tensor.name);
    free(entries);
}
