/*
 * kv_tail.c - the tail of a draft cache as self-describing bytes, and the way back.
 *
 * Layout, everything little-endian:
 *   magic "DFKVTAIL" · u64 bytes in all · u64 version
 *   u64 x FIELD_COUNT       what the rows depend on, in the order of `fields` below
 *   u32 x rotary_dim / 2    bits of the frequency table
 *   (u32 window, u32 causal) x L
 *   i64 rows · i64 floor · i64 dropped
 *   i32 x rows              positions
 *   f32 bits x L x rows x nkv * hd, keys (normed, rotated) · the same, values
 *   u64 FNV-1a of all bytes before it
 * A cache that differs in any field would read the rows as something else, so import compares every one by name. The
 * matrices of the checkpoint are not in the bytes: its norm vectors stand for it.
 */
#include "kv/kv.h"

#include "common/error.h"
#include "common/fnv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT_VERSION = 1, MAGIC_BYTES = 8, FRONT_BYTES = MAGIC_BYTES + 2 * 8, CHECKSUM_BYTES = 8 };
static const char MAGIC[MAGIC_BYTES] = {'D', 'F', 'K', 'V', 'T', 'A', 'I', 'L'};

enum field {
    FIELD_FAMILY,
    FIELD_CLASS,
    FIELD_PRECISION,
    FIELD_LAYERS,
    FIELD_KV_HEADS,
    FIELD_HEAD_DIM,
    FIELD_ROTARY_DIM,
    FIELD_SCALING,
    FIELD_EPS,
    FIELD_WEIGHTS,
    FIELD_COUNT
};

static const struct {
    const char *code, *what;
    bool bits; /* printed in hexadecimal */
} fields[FIELD_COUNT] = {
    [FIELD_FAMILY] = {"kv.import.family", "family (number of dflash_family)", false},
    [FIELD_CLASS] = {"kv.import.class",
                     "numeric class (number of dflash_class, plus 256 times that of dflash_products)", false},
    [FIELD_PRECISION] = {"kv.import.precision", "precision mode of the weights (number of dflash_precision)", false},
    [FIELD_LAYERS] = {"kv.import.layers", "number of layers", false},
    [FIELD_KV_HEADS] = {"kv.import.kv_heads", "number of key/value heads", false},
    [FIELD_HEAD_DIM] = {"kv.import.head_dim", "head size", false},
    [FIELD_ROTARY_DIM] = {"kv.import.rotary_dim", "rotary size", false},
    [FIELD_SCALING] = {"kv.import.scaling", "rotary attention factor (float32 bits)", true},
    [FIELD_EPS] = {"kv.import.eps", "rms_norm_eps (float64 bits)", true},
    [FIELD_WEIGHTS] = {"kv.import.weights", "checkpoint (hash of its norm vectors)", true},
};

static void describe(const dflash_draft *draft, uint64_t value[FIELD_COUNT]) {
    const dflash_config *c = &draft->config;
    uint32_t scaling;
    memcpy(&scaling, &draft->rope.scaling, sizeof scaling);
    value[FIELD_FAMILY] = (uint64_t)c->family;
    value[FIELD_CLASS] = (uint64_t)draft->engine->options.numeric_class |
                         (uint64_t)draft->engine->options.products << 8; /* rows of other products have other bits */
    value[FIELD_PRECISION] = (uint64_t)dflash_draft_precision(draft);
    value[FIELD_LAYERS] = (uint64_t)c->n_layers;
    value[FIELD_KV_HEADS] = (uint64_t)c->n_kv_heads;
    value[FIELD_HEAD_DIM] = (uint64_t)c->head_dim;
    value[FIELD_ROTARY_DIM] = (uint64_t)c->rope.rotary_dim;
    value[FIELD_SCALING] = scaling;
    memcpy(&value[FIELD_EPS], &c->rms_eps, sizeof value[FIELD_EPS]);
    value[FIELD_WEIGHTS] = draft->weights_hash;
}

static size_t row_floats(const dflash_config *c) { return (size_t)c->n_kv_heads * (size_t)c->head_dim; }

/* Bytes before the rows. */
static size_t header_bytes(const dflash_config *c) {
    return FRONT_BYTES + 8 * (size_t)FIELD_COUNT + 4 * (size_t)(c->rope.rotary_dim / 2) + 8 * (size_t)c->n_layers +
           3 * 8;
}

static size_t row_bytes(const dflash_config *c) { return 4 + 2 * 4 * (size_t)c->n_layers * row_floats(c); }

/* ---- Little-endian bytes ---- */

typedef unsigned char *writer;
typedef const unsigned char *reader;

static void put(writer *to, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) *(*to)++ = (unsigned char)(value >> 8 * i);
}

static uint64_t get(reader *from, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t) * (*from)++ << 8 * i;
    return value;
}

static void put_floats(writer *to, const float *value, size_t n) {
    for (size_t i = 0; i < n; i++) put(to, df_f32_to_bits(value[i]), 4);
}

static void get_floats(reader *from, float *value, size_t n) {
    for (size_t i = 0; i < n; i++) value[i] = df_bits_to_f32((uint32_t)get(from, 4));
}

/* ---- Export ---- */

/* What is before the tail's first row. A tail that holds all that queries at its end can see goes on knowing which rows
 * are missing; a shorter one is a context that starts at its first row. */
static void tail_start(const dflash_kv *kv, int first, int32_t *floor, int32_t *dropped) {
    *floor = kv->floor;
    *dropped = kv->dropped;
    if (first == 0) return;
    const int64_t next = (int64_t)kv->pos[kv->len - 1] + 1, missing = kv->pos[first - 1], window = df_kv_window(kv);
    const bool complete = window > 0 && next - missing >= window;
    *floor = complete ? kv->pos[first - 1] + 1 : kv->pos[first];
    *dropped = complete ? kv->pos[first - 1] : -1;
}

static dflash_status put_rows(const dflash_kv *kv, float *buffer, int first, int rows, float *staging, writer *to,
                              dflash_error *err) {
    const dflash_config *c = &kv->draft->config;
    const size_t n = (size_t)rows * row_floats(c);
    for (int i = 0; i < c->n_layers; i++) {
        const dflash_status status =
            dflash_engine_download(kv->draft->engine, staging, df_kv_row(kv, buffer, i, first), n, err);
        if (status != DFLASH_OK) return status;
        put_floats(to, staging, n);
    }
    return DFLASH_OK;
}

dflash_status dflash_kv_export_tail(const dflash_kv *kv, int rows, dflash_kv_blob *out, dflash_error *err) {
    const dflash_draft *draft = kv->draft;
    const dflash_config *c = &draft->config;
    *out = (dflash_kv_blob){.data = NULL};
    if (rows < 0 || rows > kv->len || (rows == 0 && kv->len > 0))
        return df_fail(err, DFLASH_ERR_ARGUMENT, "kv.export.rows",
                       "The cache holds %d rows, so a tail has %d..%d of them: asked for %d.", kv->len, kv->len > 0,
                       kv->len, rows);
    const int first = kv->len - rows;
    const size_t bytes = header_bytes(c) + (size_t)rows * row_bytes(c) + CHECKSUM_BYTES;
    const size_t staging_bytes = ((size_t)rows * row_floats(c) + 1) * sizeof(float);
    unsigned char *data = malloc(bytes);
    float *staging = malloc(staging_bytes);
    dflash_status status =
        data != NULL && staging != NULL ? DFLASH_OK : df_fail_memory(err, "the cache's tail", bytes + staging_bytes);
    if (status != DFLASH_OK) goto cleanup;

    writer to = data;
    memcpy(to, MAGIC, MAGIC_BYTES);
    to += MAGIC_BYTES;
    put(&to, bytes, 8);
    put(&to, FORMAT_VERSION, 8);
    uint64_t value[FIELD_COUNT];
    describe(draft, value);
    for (int i = 0; i < FIELD_COUNT; i++) put(&to, value[i], 8);
    put_floats(&to, draft->inv_freq, (size_t)c->rope.rotary_dim / 2);
    for (int i = 0; i < c->n_layers; i++) {
        put(&to, (uint32_t)c->layer[i].window, 4);
        put(&to, c->layer[i].causal, 4);
    }
    int32_t floor, dropped;
    tail_start(kv, first, &floor, &dropped);
    put(&to, (uint64_t)rows, 8);
    put(&to, (uint64_t)(int64_t)floor, 8);
    put(&to, (uint64_t)(int64_t)dropped, 8);
    for (int i = 0; i < rows; i++) put(&to, (uint32_t)kv->pos[first + i], 4);
    status = put_rows(kv, kv->k, first, rows, staging, &to, err);
    if (status == DFLASH_OK) status = put_rows(kv, kv->v, first, rows, staging, &to, err);
    if (status != DFLASH_OK) goto cleanup;
    put(&to, df_fnv(DF_FNV_START, data, bytes - CHECKSUM_BYTES), CHECKSUM_BYTES);
    *out = (dflash_kv_blob){.data = data, .bytes = bytes};
    data = NULL;

cleanup:
    free(data);
    free(staging);
    return status;
}

void dflash_kv_blob_free(dflash_kv_blob *blob) {
    if (blob == NULL) return;
    free(blob->data);
    *blob = (dflash_kv_blob){.data = NULL};
}

/* ---- Import ---- */

static dflash_status check_whole(const dflash_kv_blob *blob, dflash_error *err) {
    if (blob->data == NULL || blob->bytes < FRONT_BYTES + CHECKSUM_BYTES)
        return df_fail(
            err, DFLASH_ERR_REFUSED, "kv.import.truncated",
            "%zu bytes are too few for the tail of a cache. Pass the whole block that dflash_kv_export_tail made.",
            blob->data != NULL ? blob->bytes : 0);
    if (memcmp(blob->data, MAGIC, MAGIC_BYTES) != 0)
        return df_fail(err, DFLASH_ERR_REFUSED, "kv.import.magic",
                       "The bytes do not start with \"DFKVTAIL\", so they are not the tail of a cache.");
    reader from = (reader)blob->data + MAGIC_BYTES;
    const uint64_t bytes = get(&from, 8), version = get(&from, 8);
    if (bytes != blob->bytes)
        return df_fail(
            err, DFLASH_ERR_REFUSED, bytes > blob->bytes ? "kv.import.truncated" : "kv.import.size",
            "The tail of the cache says that it has %llu bytes, but %zu were passed. Pass the whole block that "
            "dflash_kv_export_tail made and nothing more.",
            (unsigned long long)bytes, blob->bytes);
    reader end = (reader)blob->data + blob->bytes - CHECKSUM_BYTES;
    const uint64_t actual = df_fnv(DF_FNV_START, blob->data, blob->bytes - CHECKSUM_BYTES),
                   stored = get(&end, CHECKSUM_BYTES);
    if (actual != stored)
        return df_fail(
            err, DFLASH_ERR_REFUSED, "kv.import.checksum",
            "The tail of the cache is damaged: its checksum is %016llx, its bytes give %016llx. Export it again.",
            (unsigned long long)stored, (unsigned long long)actual);
    if (version != FORMAT_VERSION)
        return df_fail(
            err, DFLASH_ERR_REFUSED, "kv.import.version",
            "The tail of the cache is in format version %llu: this program reads version %d. Export it again.",
            (unsigned long long)version, FORMAT_VERSION);
    return DFLASH_OK;
}

/* Compares the description of the rows; the tables are read only once their sizes are known to agree. */
static dflash_status check_geometry(const dflash_draft *draft, const dflash_kv_blob *blob, reader *from,
                                    dflash_error *err) {
    const dflash_config *c = &draft->config;
    uint64_t value[FIELD_COUNT];
    describe(draft, value);
    const char *const advice = "Import it into a cache of the same drafter, loaded in the same way.";
    if (blob->bytes < FRONT_BYTES + 8 * (size_t)FIELD_COUNT + CHECKSUM_BYTES)
        return df_fail(err, DFLASH_ERR_REFUSED, "kv.import.truncated",
                       "The tail of the cache ends within its description.");
    for (int i = 0; i < FIELD_COUNT; i++) {
        const uint64_t found = get(from, 8);
        if (found == value[i]) continue;
        if (fields[i].bits)
            return df_fail(err, DFLASH_ERR_REFUSED, fields[i].code,
                           "The tail of the cache is of another drafter: %s is %016llx here and %016llx there. %s",
                           fields[i].what, (unsigned long long)value[i], (unsigned long long)found, advice);
        return df_fail(err, DFLASH_ERR_REFUSED, fields[i].code,
                       "The tail of the cache is of another drafter: %s is %llu here and %llu there. %s",
                       fields[i].what, (unsigned long long)value[i], (unsigned long long)found, advice);
    }
    if (blob->bytes < header_bytes(c) + CHECKSUM_BYTES)
        return df_fail(err, DFLASH_ERR_REFUSED, "kv.import.truncated",
                       "The tail of the cache ends within its description.");
    for (int i = 0; i < c->rope.rotary_dim / 2; i++) {
        const uint32_t here = df_f32_to_bits(draft->inv_freq[i]), there = (uint32_t)get(from, 4);
        if (here != there)
            return df_fail(
                err, DFLASH_ERR_REFUSED, "kv.import.rope",
                "The keys in the tail of the cache were rotated otherwise: frequency %d of the rotary table is "
                "%.9g (0x%08x) here and %.9g (0x%08x) there. %s",
                i, (double)draft->inv_freq[i], here, (double)df_bits_to_f32(there), there, advice);
    }
    for (int i = 0; i < c->n_layers; i++) {
        const uint32_t window = (uint32_t)get(from, 4), causal = (uint32_t)get(from, 4);
        if (window != (uint32_t)c->layer[i].window)
            return df_fail(
                err, DFLASH_ERR_REFUSED, "kv.import.window",
                "The tail of the cache is of another drafter: the window of layer %d is %d here and %u there "
                "(0: none). %s",
                i, c->layer[i].window, window, advice);
        if (causal != (uint32_t)c->layer[i].causal)
            return df_fail(
                err, DFLASH_ERR_REFUSED, "kv.import.causal",
                "The tail of the cache is of another drafter: causal of layer %d is %d here and %u there. %s", i,
                (int)c->layer[i].causal, causal, advice);
    }
    return DFLASH_OK;
}

/* The rows of a tail and where they start. */
typedef struct tail_rows {
    int rows;
    int32_t floor, dropped;
    int32_t *pos; /* [rows], owned */
} tail_rows;

static dflash_status read_rows(const dflash_kv *kv, const dflash_kv_blob *blob, reader *from, tail_rows *tail,
                               dflash_error *err) {
    const dflash_config *c = &kv->draft->config;
    const uint64_t rows = get(from, 8);
    const int64_t floor = (int64_t)get(from, 8), dropped = (int64_t)get(from, 8);
    const size_t room = blob->bytes - header_bytes(c) - CHECKSUM_BYTES;
    if (room % row_bytes(c) != 0 || room / row_bytes(c) != rows)
        return df_fail(
            err, DFLASH_ERR_REFUSED, "kv.import.size",
            "The tail of the cache says that it has %llu rows of %zu bytes, but %zu bytes of rows are there.",
            (unsigned long long)rows, row_bytes(c), room);
    if (rows > (uint64_t)df_kv_limit(kv))
        return df_fail(err, DFLASH_ERR_ARGUMENT, "kv.import.capacity",
                       "The tail has %llu rows, and this cache of capacity %d can hold %d besides what a block needs. "
                       "Create it with more capacity, or export fewer rows.",
                       (unsigned long long)rows, kv->capacity, df_kv_limit(kv));
    tail->rows = (int)rows;
    tail->pos = malloc((size_t)rows * sizeof *tail->pos + 1);
    if (tail->pos == NULL) return df_fail_memory(err, "the positions of a tail", (size_t)rows * sizeof *tail->pos);
    for (int i = 0; i < tail->rows; i++) {
        tail->pos[i] = (int32_t)(uint32_t)get(from, 4);
        if (tail->pos[i] > (i > 0 ? tail->pos[i - 1] : -1)) continue;
        return df_fail(
            err, DFLASH_ERR_REFUSED, "kv.import.positions",
            "The positions in the tail of the cache must be non-negative and strictly increasing: row %d is at "
            "position %d.",
            i, tail->pos[i]);
    }
    /* What queries at the end can see must be there, as it is in every cache. */
    const int64_t first = tail->rows > 0 ? tail->pos[0] : INT32_MAX;
    if (dropped >= INT32_MAX || floor > INT32_MAX)
        return df_fail(err, DFLASH_ERR_REFUSED, "kv.import.floor",
                       "The tail of the cache names positions that do not exist: context from %lld, rows dropped up to "
                       "%lld (-1: none). Export it again.",
                       (long long)floor, (long long)dropped);
    const int64_t next = (tail->rows > 0 ? tail->pos[tail->rows - 1] : dropped) + 1, window = df_kv_window(kv);
    const bool whole =
        dropped == -1 || (dropped >= 0 && floor == dropped + 1 && window > 0 && next - dropped >= window);
    if (!whole || floor < 0 || floor > first)
        return df_fail(
            err, DFLASH_ERR_REFUSED, "kv.import.floor",
            "The tail of the cache contradicts itself: its context starts at position %lld, rows up to position "
            "%lld were dropped (-1: none), and its first row is at position %lld.",
            (long long)floor, (long long)dropped, (long long)first);
    tail->floor = (int32_t)floor;
    tail->dropped = (int32_t)dropped;
    return DFLASH_OK;
}

static dflash_status load_rows(dflash_kv *kv, float *buffer, int rows, float *staging, reader *from,
                               dflash_error *err) {
    const dflash_config *c = &kv->draft->config;
    const size_t n = (size_t)rows * row_floats(c);
    for (int i = 0; i < c->n_layers; i++) {
        get_floats(from, staging, n);
        const dflash_status status =
            dflash_engine_upload(kv->draft->engine, df_kv_row(kv, buffer, i, 0), staging, n, err);
        if (status != DFLASH_OK) return status;
    }
    return DFLASH_OK;
}

dflash_status dflash_kv_import_tail(dflash_kv *kv, const dflash_kv_blob *blob, dflash_error *err) {
    tail_rows tail = {.pos = NULL};
    float *staging = NULL;
    dflash_status status = check_whole(blob, err);
    if (status != DFLASH_OK) return status;
    reader from = (reader)blob->data + FRONT_BYTES;
    status = check_geometry(kv->draft, blob, &from, err);
    if (status == DFLASH_OK) status = read_rows(kv, blob, &from, &tail, err);
    if (status != DFLASH_OK) goto cleanup;
    const size_t staging_bytes = ((size_t)tail.rows * row_floats(&kv->draft->config) + 1) * sizeof(float);
    staging = malloc(staging_bytes);
    status = staging != NULL ? DFLASH_OK : df_fail_memory(err, "the rows of a tail", staging_bytes);
    if (status != DFLASH_OK) goto cleanup;

    dflash_kv_clear(kv); /* from here on only the device can fail, and then no half of the old rows may stay */
    status = load_rows(kv, kv->k, tail.rows, staging, &from, err);
    if (status == DFLASH_OK) status = load_rows(kv, kv->v, tail.rows, staging, &from, err);
    if (status != DFLASH_OK) goto cleanup;
    memcpy(kv->pos, tail.pos, (size_t)tail.rows * sizeof *kv->pos);
    kv->len = tail.rows;
    kv->floor = tail.floor;
    kv->dropped = tail.dropped;

cleanup:
    free(tail.pos);
    free(staging);
    return status;
}
