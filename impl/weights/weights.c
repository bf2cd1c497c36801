/*
 * weights.c - see weights.h.
 *
 * Holds the census of weights_census.c against a mapped file in both directions, then scans every consumed value and
 * binds it. Matrices stay in the mapping or, converted by a precision mode, share one buffer; vectors share another.
 */
#include "weights/weights.h"

#include "common/error.h"
#include "weights/precision.h"
#include "weights/quant.h"
#include "weights/safetensors_header.h"
#include "weights/weights_census.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    NAMES_SHOWN = 8,
    ALIGNMENT = 64,     /* bytes: a cache line, and every vector register in use */
    SCAN_WORDS = 1024,  /* 64-bit words tested together */
    SCAN_PART = 1 << 16 /* elements that a thread scans at a time */
};

typedef struct name_list {
    char text[640]; /* names separated by commas */
    int shown, count;
} name_list;

static void name_list_add(name_list *list, const char *name) {
    list->count++;
    const size_t used = strlen(list->text);
    if (list->shown == NAMES_SHOWN || used + strlen(name) + 32 > sizeof list->text) return;
    snprintf(list->text + used, sizeof list->text - used, "%s%s", list->shown == 0 ? "" : ", ", name);
    list->shown++;
}

/* A list longer than what it shows ends in "and N more". */
static void name_list_end(name_list *list) {
    const size_t used = strlen(list->text);
    if (list->count > list->shown)
        snprintf(list->text + used, sizeof list->text - used, " and %d more", list->count - list->shown);
}

static dflash_status refuse_sharded(const char *path, dflash_error *err) {
    static const char suffix[] = ".index.json";
    const size_t bytes = strlen(path) + sizeof suffix;
    char *index = malloc(bytes);
    if (index == NULL) return df_fail_memory(err, "a path", bytes);
    snprintf(index, bytes, "%s%s", path, suffix);
    dflash_status status = DFLASH_OK;
    if (access(path, F_OK) != 0 && access(index, F_OK) == 0)
        status = df_fail(err, DFLASH_ERR_REFUSED, "weights.sharded",
                         "%s does not exist, but %s does: the checkpoint is split into shards, which are not "
                         "supported. Expected one model.safetensors; save the checkpoint again as a single file.",
                         path, index);
    free(index);
    return status;
}

/* The tensor of a slot under whichever name the file uses, or NULL. */
static dflash_status find_tensor(const df_safetensors *file, const df_slot *slot, const df_tensor **out,
                                 dflash_error *err) {
    const df_tensor *first = df_safetensors_find(file, slot->name);
    const df_tensor *second = slot->other[0] != '\0' ? df_safetensors_find(file, slot->other) : NULL;
    if (first != NULL && second != NULL)
        return df_fail(err, DFLASH_ERR_REFUSED, "census.tensor.twice",
                       "%s: \"%s\" and \"%s\" are two spellings of one tensor and both are present; expected one of "
                       "them, because nothing says which is meant. Remove the stale one.",
                       df_safetensors_path(file), slot->name, slot->other);
    *out = first != NULL ? first : second;
    return DFLASH_OK;
}

static dflash_status refuse_missing(const df_safetensors *file, const dflash_config *config, name_list *missing,
                                    const name_list *extra, dflash_error *err) {
    char also[DF_TENSOR_NAME_MAX + 96] = "";
    if (extra->count > 0)
        snprintf(also, sizeof also, " The file also holds tensors that are not expected (%d), the first named %.*s.",
                 extra->count, (int)strcspn(extra->text, ","), extra->text);
    name_list_end(missing);
    return df_fail(err, DFLASH_ERR_REFUSED, "census.tensor.missing",
                   "%s: the config's %s drafter of %d layers needs tensors that are missing (%d): %s.%s Export the "
                   "checkpoint again, or use the config.json that was saved with these weights.",
                   df_safetensors_path(file), dflash_family_name(config->family), config->n_layers, missing->count,
                   missing->text, also);
}

/* Whether the file holds the slot's tensor, under either spelling, behind the first `length` bytes of `prefix`. */
static bool there_behind(const df_safetensors *file, const df_slot *slot, const char *prefix, size_t length) {
    const char *const spelling[] = {slot->name, slot->other};
    for (size_t i = 0; i < sizeof spelling / sizeof *spelling; i++) {
        char name[DF_TENSOR_NAME_MAX + DF_SLOT_NAME_MAX];
        if (spelling[i][0] == '\0') continue;
        snprintf(name, sizeof name, "%.*s%s", (int)length, prefix, spelling[i]);
        if (df_safetensors_find(file, name) != NULL) return true;
    }
    return false;
}

static bool all_there_behind(const df_safetensors *file, const df_slot *slots, int count, const df_tensor **found,
                             const char *prefix, size_t length) {
    for (int i = 0; i < count; i++)
        if (found[i] == NULL && !slots[i].optional && !there_behind(file, &slots[i], prefix, length)) return false;
    return true;
}

/* Where every tensor that is missing is there behind one prefix, as wrappers save them, that is said and not undone: a
 * prefix may as well be the name of another model inside the file. */
static dflash_status refuse_prefix(const df_weights *weights, const df_slot *slots, int count, const df_tensor **found,
                                   int missing, dflash_error *err) {
    const df_safetensors *file = weights->file;
    const df_slot *first = slots;
    while (found[first - slots] != NULL || first->optional) first++;
    for (int i = 0; i < df_safetensors_count(file); i++) {
        const char *name = df_safetensors_at(file, i)->name;
        for (int other = 0; other < 2; other++) {
            const char *const spelling = other == 0 ? first->name : first->other;
            const size_t length = strlen(name), tail = strlen(spelling);
            if (weights->used[i] || tail == 0 || length <= tail || name[length - tail - 1] != '.') continue;
            if (strcmp(name + length - tail, spelling) != 0) continue;
            if (!all_there_behind(file, slots, count, found, name, length - tail)) continue;
            const int prefix = (int)(length - tail);
            return df_fail(err, DFLASH_ERR_REFUSED, "census.tensor.prefix",
                           "%s: %d tensors that the drafter needs are missing, and all of them are there behind the "
                           "common prefix \"%.*s\", e.g. %s: the checkpoint was saved from inside a wrapper. A prefix "
                           "is never dropped silently. Rename the tensors, in Python: save_file({name.removeprefix("
                           "\"%.*s\"): tensor for name, tensor in load_file(path).items()}, path).",
                           df_safetensors_path(file), missing, prefix, name, name, prefix, name);
        }
    }
    return DFLASH_OK;
}

static dflash_status refuse_extra(const df_safetensors *file, const dflash_config *config, name_list *extra,
                                  dflash_error *err) {
    name_list_end(extra);
    return df_fail(err, DFLASH_ERR_REFUSED, "census.tensor.extra",
                   "%s: the file holds tensors that the config's %s drafter of %d layers does not use (%d): %s. "
                   "Dropping them would compute another model than the one that was trained; expected exactly the "
                   "tensors that the config calls for. Correct the architecture or the layer count in config.json, or "
                   "remove the tensors.",
                   df_safetensors_path(file), dflash_family_name(config->family), config->n_layers, extra->count,
                   extra->text);
}

/* Names in both directions. found[i] is the tensor of slot i, NULL for an optional one that is absent. */
static dflash_status check_names(df_weights *weights, const dflash_config *config, const df_slot *slots, int count,
                                 const df_tensor **found, dflash_error *err) {
    const df_safetensors *file = weights->file;
    name_list missing = {.count = 0}, extra = {.count = 0};
    for (int i = 0; i < count; i++) {
        const dflash_status status = find_tensor(file, &slots[i], &found[i], err);
        if (status != DFLASH_OK) return status;
        if (found[i] != NULL) {
            weights->used[df_safetensors_index(file, found[i])] = true;
        } else if (!slots[i].optional) {
            name_list_add(&missing, slots[i].name);
        }
    }
    for (int i = 0; i < df_safetensors_count(file); i++) {
        const char *name = df_safetensors_at(file, i)->name;
        if (!weights->used[i] && !df_census_ignored(name)) name_list_add(&extra, name);
    }
    if (missing.count > 0) TRY(refuse_prefix(weights, slots, count, found, missing.count, err));
    if (missing.count > 0) return refuse_missing(file, config, &missing, &extra, err);
    if (extra.count > 0) return refuse_extra(file, config, &extra, err);
    return DFLASH_OK;
}

static dflash_status check_tensor(const df_safetensors *file, const df_slot *slot, const df_tensor *tensor,
                                  dflash_error *err) {
    TRY(df_safetensors_usable(file, tensor, err));
    if (tensor->rank == slot->rank && memcmp(tensor->dim, slot->dim, sizeof(int64_t) * (size_t)slot->rank) == 0)
        return DFLASH_OK;
    char expected[DF_SHAPE_TEXT_MAX], actual[DF_SHAPE_TEXT_MAX];
    return df_fail(err, DFLASH_ERR_REFUSED, "census.shape",
                   "%s: tensor \"%s\" has shape %s; the config calls for %s. The weights and config.json belong to "
                   "different models; pair them again.",
                   df_safetensors_path(file), tensor->name, df_shape_text(tensor->rank, tensor->dim, actual),
                   df_shape_text(slot->rank, slot->dim, expected));
}

static uint32_t element_bits(const df_tensor *tensor, int64_t index) {
    const unsigned char *from = (const unsigned char *)tensor->data + (size_t)index * df_dtype_size(tensor->dtype);
    uint32_t wide = 0;
    uint16_t narrow = 0;
    if (tensor->dtype == DF_F32) {
        memcpy(&wide, from, sizeof wide);
        return wide;
    }
    memcpy(&narrow, from, sizeof narrow);
    return narrow;
}

/* The exponent field of an element; all ones means NaN or infinity. */
static uint32_t exponent_mask(df_dtype dtype) {
    return dtype == DF_F32 ? 0x7f800000u : dtype == DF_F16 ? 0x7c00u : 0x7f80u;
}

/* The lowest bit of the exponent field; the fraction is all bits below it. */
static uint32_t exponent_step(df_dtype dtype) {
    return dtype == DF_F32 ? 0x00800000u : dtype == DF_F16 ? 0x0400u : 0x0080u;
}

static bool range_is_finite(const df_tensor *tensor, int64_t begin, int64_t end, int64_t *first) {
    const uint32_t mask = exponent_mask(tensor->dtype);
    for (int64_t i = begin; i < end; i++) {
        if ((element_bits(tensor, i) & mask) == mask) {
            *first = i;
            return false;
        }
    }
    return true;
}

/* Whether elements [begin, end) are finite; otherwise *first is the index of the first that is not. Whole words are
 * tested first: in each element of a word, adding the lowest exponent bit to the exponent field reaches the sign bit
 * only from all ones, and never the next element. The first element at fault is looked for only in a block that holds
 * one. */
static bool part_is_finite(const df_tensor *tensor, int64_t begin, int64_t end, int64_t *first) {
    const uint64_t repeat = tensor->dtype == DF_F32 ? 0x0000000100000001u : 0x0001000100010001u;
    const uint64_t mask = exponent_mask(tensor->dtype) * repeat;
    const uint64_t step = exponent_step(tensor->dtype) * repeat;
    const uint64_t sign = (tensor->dtype == DF_F32 ? 0x80000000u : 0x8000u) * repeat;
    const size_t block = SCAN_WORDS * sizeof(uint64_t), element = df_dtype_size(tensor->dtype);
    const unsigned char *bytes = (const unsigned char *)tensor->data + (size_t)begin * element;
    const int64_t per_block = (int64_t)(block / element);
    int64_t at = begin;
    for (; end - at >= per_block; at += per_block, bytes += block) {
        uint64_t seen = 0;
        for (size_t i = 0; i < SCAN_WORDS; i++) {
            uint64_t word;
            memcpy(&word, bytes + i * sizeof word, sizeof word);
            seen |= (word & mask) + step;
        }
        if ((seen & sign) != 0) return range_is_finite(tensor, at, at + per_block, first);
    }
    return range_is_finite(tensor, at, end, first);
}

typedef struct scan {
    const df_tensor *tensor;
    _Atomic int64_t first; /* element at fault that is known; the count while none is */
} scan;

static void scan_task(void *context, int task, int worker) {
    scan *s = context;
    const int64_t begin = (int64_t)task * SCAN_PART, rest = s->tensor->count - begin;
    int64_t found = 0, known = atomic_load(&s->first);
    (void)worker;
    if (begin > known || part_is_finite(s->tensor, begin, begin + (rest < SCAN_PART ? rest : SCAN_PART), &found))
        return;
    while (found < known && !atomic_compare_exchange_weak(&s->first, &known, found)) continue;
}

static dflash_status check_finite(const df_safetensors *file, const df_tensor *tensor, df_pool *pool,
                                  dflash_error *err) {
    scan s = {.tensor = tensor};
    const int tasks = (int)((tensor->count + SCAN_PART - 1) / SCAN_PART);
    atomic_init(&s.first, tensor->count);
    if (pool != NULL && tasks > 1)
        df_pool_run(pool, scan_task, &s, tasks);
    else
        for (int i = 0; i < tasks; i++) scan_task(&s, i, 0);
    const int64_t at = atomic_load(&s.first);
    if (at == tensor->count) return DFLASH_OK;
    const uint32_t bits = element_bits(tensor, at);
    const bool infinite = (bits & (exponent_step(tensor->dtype) - 1)) == 0;
    return df_fail(err, DFLASH_ERR_REFUSED, "weights.nonfinite",
                   "%s: element %" PRId64 " (row-major) of tensor \"%s\" is %s (%s bits 0x%0*" PRIx32
                   "); every weight must be finite. The checkpoint is damaged or its training diverged; export it "
                   "again.",
                   df_safetensors_path(file), at, tensor->name, infinite ? "infinite" : "NaN",
                   df_dtype_name(tensor->dtype), (int)(2 * df_dtype_size(tensor->dtype)), bits);
}

static size_t padded(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static size_t padded_floats(const df_tensor *tensor) {
    return padded((size_t)tensor->count * sizeof(float)) / sizeof(float);
}

static void widen(const df_tensor *tensor, float *to) {
    const int64_t count = tensor->count;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t bits = element_bits(tensor, i);
        to[i] = tensor->dtype == DF_F32   ? df_bits_to_f32(bits)
                : tensor->dtype == DF_F16 ? df_f16_to_f32((uint16_t)bits)
                                          : df_bf16_to_f32((uint16_t)bits);
    }
}

static df_matrix stored_matrix(const df_tensor *tensor) {
    return (df_matrix){tensor->dtype, tensor->dim[0], tensor->dim[1], tensor->data};
}

static size_t matrix_bytes(df_dtype dtype, const df_tensor *tensor) {
    return df_row_bytes(dtype, tensor->dim[1]) * (size_t)tensor->dim[0];
}

/* The width that a slot's tensor is held in; vectors and absent tensors have none to convert to. */
static bool converts(dflash_precision precision, const df_slot *slot, const df_tensor *tensor, df_dtype *to) {
    if (tensor == NULL || slot->matrix == NULL) return false;
    *to = df_precision_dtype(precision, slot->name, tensor->dtype);
    return *to != tensor->dtype;
}

/* Allocates the converted matrices' buffer, after refusing shapes that the mode cannot hold. */
static dflash_status make_room(df_weights *weights, dflash_precision precision, const df_slot *slots, int count,
                               const df_tensor *const *found, dflash_error *err) {
    size_t bytes = 0;
    for (int i = 0; i < count; i++) {
        df_dtype to;
        if (!converts(precision, &slots[i], found[i], &to)) continue;
        const dflash_status status = df_precision_check_rows(precision, df_safetensors_path(weights->file),
                                                             found[i]->name, to, found[i]->dim[1], err);
        if (status != DFLASH_OK) return status;
        bytes += padded(matrix_bytes(to, found[i]));
    }
    if (bytes == 0) return DFLASH_OK;
    weights->converted = aligned_alloc(ALIGNMENT, bytes);
    return weights->converted != NULL ? DFLASH_OK : df_fail_memory(err, "the converted weights", bytes);
}

/*
 * Scans every consumed value, and converts the matrices that the mode holds in another width. One tensor at a time,
 * whose pages are given back at once, so that a converted model and its file are never in memory together.
 */
static dflash_status scan_and_convert(df_weights *weights, dflash_precision precision, df_pool *pool,
                                      const df_slot *slots, int count, const df_tensor *const *found,
                                      dflash_error *err) {
    unsigned char *next = weights->converted;
    for (int i = 0; i < count; i++) {
        if (found[i] == NULL) continue;
        df_dtype to;
        dflash_status status = check_finite(weights->file, found[i], pool, err);
        if (status != DFLASH_OK) return status;
        if (!converts(precision, &slots[i], found[i], &to)) continue;
        const df_matrix from = stored_matrix(found[i]);
        status = df_precision_convert(pool, df_safetensors_path(weights->file), found[i]->name, &from, to, next, err);
        if (status != DFLASH_OK) return status;
        *slots[i].matrix = (df_matrix){to, from.out, from.in, next};
        next += padded(matrix_bytes(to, found[i]));
        df_safetensors_drop(weights->file, found[i]);
    }
    return DFLASH_OK;
}

/* Sets every pointer and matrix that the slots name. Shapes and values have been checked. */
static dflash_status bind(df_weights *weights, const df_slot *slots, int count, const df_tensor *const *found,
                          dflash_error *err) {
    size_t floats = 0;
    for (int i = 0; i < count; i++)
        if (found[i] != NULL && slots[i].vector != NULL) floats += padded_floats(found[i]);
    weights->vectors = aligned_alloc(ALIGNMENT, floats * sizeof(float));
    if (weights->vectors == NULL) return df_fail_memory(err, "norms and biases", floats * sizeof(float));
    float *next = weights->vectors;
    for (int i = 0; i < count; i++) {
        const df_tensor *tensor = found[i];
        if (tensor == NULL) continue;
        if (slots[i].vector != NULL) {
            widen(tensor, next);
            *slots[i].vector = next;
            next += padded_floats(tensor);
            weights->bytes += (size_t)tensor->count * sizeof(float);
        } else {
            df_matrix *matrix = slots[i].matrix;
            if (matrix->data == NULL) *matrix = stored_matrix(tensor); /* else it was converted */
            weights->bytes += matrix_bytes(matrix->dtype, tensor);
        }
    }
    return DFLASH_OK;
}

dflash_status df_weights_load(const char *path, const dflash_config *config, df_weights *out, dflash_error *err) {
    return df_weights_load_as(path, config, DFLASH_PRECISION_STORED, NULL, out, err);
}

dflash_status df_weights_load_as(const char *path, const dflash_config *config, dflash_precision precision,
                                 df_pool *pool, df_weights *out, dflash_error *err) {
    memset(out, 0, sizeof *out);
    df_slot *slots = NULL;
    const df_tensor **found = NULL;
    int count = 0;
    dflash_status status = refuse_sharded(path, err);
    if (status == DFLASH_OK) status = df_safetensors_open(path, &out->file, err);
    if (status != DFLASH_OK) goto cleanup;

    const size_t layers = (size_t)config->n_layers, tensors = (size_t)df_safetensors_count(out->file);
    out->layer = calloc(layers, sizeof *out->layer);
    out->used = calloc(tensors + 1, sizeof *out->used); /* never zero bytes */
    if (out->layer == NULL || out->used == NULL) {
        status = df_fail_memory(err, "the layers", layers * sizeof *out->layer + tensors + 1);
        goto cleanup;
    }
    status = df_census_list(config, out, &slots, &count, err);
    if (status != DFLASH_OK) goto cleanup;
    found = calloc((size_t)count, sizeof *found);
    if (found == NULL) {
        status = df_fail_memory(err, "the census", (size_t)count * sizeof *found);
        goto cleanup;
    }
    status = check_names(out, config, slots, count, found, err);
    for (int i = 0; i < count && status == DFLASH_OK; i++)
        if (found[i] != NULL) status = check_tensor(out->file, &slots[i], found[i], err);
    if (status == DFLASH_OK) status = make_room(out, precision, slots, count, found, err);
    if (status == DFLASH_OK) status = scan_and_convert(out, precision, pool, slots, count, found, err);
    if (status == DFLASH_OK) status = bind(out, slots, count, found, err);
cleanup:
    free(found);
    free(slots);
    if (status != DFLASH_OK) df_weights_release(out);
    return status;
}

void df_weights_release(df_weights *weights) {
    if (weights == NULL) return;
    if (weights->device != NULL) weights->memory->release(weights->memory->owner, weights->device);
    df_safetensors_close(weights->file);
    free(weights->converted);
    free(weights->vectors);
    free(weights->used);
    free(weights->layer);
    memset(weights, 0, sizeof *weights);
}
