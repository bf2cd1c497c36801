/* dflash/draft.h - the draft model, its cache, and the convolution of DFlash2. Conventions are those of dflash.h. */
#ifndef DFLASH_DRAFT_H
#define DFLASH_DRAFT_H

#include "dflash/engine.h"
#include "dflash/stage.h"

DFLASH_BEGIN

/* ---- Draft model ---- */

typedef struct dflash_draft dflash_draft;

/* Loads DIR/config.json and DIR/model.safetensors. The census is closed both ways: a tensor that is missing, extra,
 * of another dtype or another shape, or that holds a NaN or an infinity, is a refusal. The engine must outlive the
 * draft. */
dflash_status dflash_draft_load(dflash_engine *engine, const char *dir, dflash_draft **out, dflash_error *err);
/* The same in a precision mode. A matrix whose rows are not whole blocks of 32 refuses the quantised modes. */
dflash_status dflash_draft_load_as(dflash_engine *engine, const char *dir, dflash_precision precision,
                                   dflash_draft **out, dflash_error *err);
dflash_precision dflash_draft_precision(const dflash_draft *draft);
void dflash_draft_destroy(dflash_draft *draft);

const dflash_config *dflash_draft_config(const dflash_draft *draft);
size_t dflash_draft_weight_bytes(const dflash_draft *draft); /* bytes of the weights as they are held */
int dflash_draft_tensor_count(const dflash_draft *draft);
/* Tensors by index in file order: name, dtype ("BF16", "F16", "F32"; of one that is not used, any of the format's), raw
 * bytes. Strings live as long as the draft. */
enum { DFLASH_TENSOR_RANK = 8 };
typedef struct dflash_tensor_view {
    const char *name, *dtype;
    int rank;
    int64_t dim[DFLASH_TENSOR_RANK];
    const void *data;
    size_t bytes;
    bool used; /* false: ignored by rule (embed_tokens., lm_head., rotary_emb.), never by accident */
} dflash_tensor_view;
dflash_tensor_view dflash_draft_tensor(const dflash_draft *draft, int index);

dflash_engine *dflash_draft_engine(const dflash_draft *draft); /* the one that it was loaded with */

void dflash_draft_observe(dflash_draft *draft, dflash_observe_fn fn, void *user); /* fn NULL: stop observing */
void dflash_draft_replace(dflash_draft *draft, dflash_replace_fn fn, void *user); /* fn NULL: stop replacing */

/* features[t, H] = hidden_norm(fc(taps[t, T * H])). */
dflash_status dflash_ctx_features(dflash_draft *draft, const float *taps, int t, float *features, dflash_error *err);

/* One block over a context given as features. noise[B, H]; pos[C + B], context then block, strictly increasing;
 * out[B, H] = norm(x). Context keys and values are recomputed in every layer. ctx may be 0. */
dflash_status dflash_forward_block(dflash_draft *draft, const float *features, const float *noise, const int32_t *pos,
                                   int ctx, float *out, dflash_error *err);

/* dflash_ctx_features, then dflash_forward_block. taps[C, T * H]. */
dflash_status dflash_forward(dflash_draft *draft, const float *taps, const float *noise, const int32_t *pos, int ctx,
                             float *out, dflash_error *err);

/* ---- Draft cache ---- */

typedef struct dflash_kv dflash_kv;

/*
 * Room for `capacity` rows in every layer: committed rows plus one block in flight.
 *
 * When some layer has no window, every row stays and a cache that is full refuses more ("kv.full"). When every layer
 * slides, rows come and go over any length of run: an ingest that would leave no room for a block first drops all rows
 * but the last window + B (those queries at the end can see, and a block of rejected tokens), W being the largest
 * window. No result changes by a bit. W + 2B rows are the smallest capacity that never refuses; with 2W + 3B a row is
 * moved about once in its life. A smaller cache is allowed and works until it is full.
 */
dflash_status dflash_kv_create(dflash_draft *draft, int capacity, dflash_kv **out, dflash_error *err);
void dflash_kv_destroy(dflash_kv *kv);
int dflash_kv_len(const dflash_kv *kv); /* committed rows held; dropped ones do not count, so an ingest may lower it */
int dflash_kv_capacity(const dflash_kv *kv);
void dflash_kv_clear(dflash_kv *kv); /* as it was created: no rows, floor 0, no pin */
/* Forgets rows from `len` on; len counts rows held and must not exceed dflash_kv_len. Refused ("kv.truncate.compacted")
 * when rows were dropped that a query behind the first `len` rows could see. Going back is always possible to B rows
 * before the furthest end that the cache has reached, and further only to a pin. After a compaction the same row has
 * another number: count from the end (dflash_kv_len - n), or cut by position. */
dflash_status dflash_kv_truncate(dflash_kv *kv, int len, dflash_error *err);
/* Forgets the rows at `position` and beyond; otherwise as dflash_kv_truncate. */
dflash_status dflash_kv_truncate_at(dflash_kv *kv, int32_t position, dflash_error *err);
/* Copies the committed rows of one layer to host memory, each [len, nkv * hd]; either may be NULL. */
dflash_status dflash_kv_read(const dflash_kv *kv, int layer, float *keys, float *values, dflash_error *err);

/* Appends t context rows: keys normed and rotated, values raw. features[t, H], pos[t] strictly increasing, beyond every
 * cached position and not before the floor. The bits do not depend on how the rows are split into calls; when every
 * layer slides, t may exceed the capacity, and rows that would be dropped at once are not computed. A call that fails
 * leaves the cache as it was. */
dflash_status dflash_ingest_ctx(dflash_draft *draft, dflash_kv *kv, const float *features, const int32_t *pos, int t,
                                dflash_error *err);
/* dflash_ctx_features, then dflash_ingest_ctx: what follows every verified block. taps[t, T * H]. */
dflash_status dflash_ingest_taps(dflash_draft *draft, dflash_kv *kv, const float *taps, const int32_t *pos, int t,
                                 dflash_error *err);

/* One block over the cached context: out[B, H], noise[B, H], pos[B]. The block's own keys and values land at
 * rows len..len+B, and len does not move, so the next round overwrites them. The bits are those of dflash_forward_block
 * over the same context. */
dflash_status dflash_forward_round(dflash_draft *draft, dflash_kv *kv, const float *noise, const int32_t *pos,
                                   float *out, dflash_error *err);

/* Position of the first row held; of an empty cache, the lowest position that its next row may have. */
int32_t dflash_kv_floor(const dflash_kv *kv);

/* For an empty cache whose context before position `floor` does not exist: the next row and block must be at or beyond
 * it, and a query whose window reaches before it sees only what is there. */
dflash_status dflash_kv_set_floor(dflash_kv *kv, int32_t floor, dflash_error *err);

/* Until dflash_kv_unpin, cutting back to the present length stays possible and exact: compaction keeps the window + B
 * rows before it and everything behind it, and an ingest for which that leaves no room is refused ("kv.full"). There is
 * one pin; a cut below it moves it there. Remember the position of the next row to come back with
 * dflash_kv_truncate_at. */
dflash_status dflash_kv_pin(dflash_kv *kv, dflash_error *err);
void dflash_kv_unpin(dflash_kv *kv);

/* The last `rows` rows as one self-describing block of bytes, the same on every machine, that the caller frees with
 * dflash_kv_blob_free. rows is 1..len, or 0 for an empty cache. A tail with everything that queries at the end can see
 * (the last W - 1 positions when every layer slides, all rows otherwise) gives the same bits after import; a shorter
 * one is a context that starts at its first row, as after dflash_kv_set_floor. */
typedef struct dflash_kv_blob {
    void *data;
    size_t bytes;
} dflash_kv_blob;
dflash_status dflash_kv_export_tail(const dflash_kv *kv, int rows, dflash_kv_blob *out, dflash_error *err);
/* Replaces the content of `kv`, and its floor, by that of the blob; a pin is lifted. Refused, and `kv` as it was, when
 * the blob is truncated or damaged, does not fit, or differs in family, numeric class, precision mode, layers,
 * key/value heads, head size, rotary size or table or factor, rms_norm_eps, a layer's window or causality, or the
 * checkpoint's norm vectors ("kv.import.layers" and so on). The checkpoint's matrices are not compared. If the device
 * fails half-way the cache is empty. */
dflash_status dflash_kv_import_tail(dflash_kv *kv, const dflash_kv_blob *blob, dflash_error *err);
void dflash_kv_blob_free(dflash_kv_blob *blob);

/* ---- DFlash2 convolution ---- */

typedef enum dflash_sublayer { DFLASH_SUBLAYER_ATTENTION = 0, DFLASH_SUBLAYER_MLP } dflash_sublayer;

/* dyn[rows, 2, k, G] = kernel_projection(x); y[p, c] = sum over o <= min(k-1, p) of base[0][o][c] x[p-o][c], then
 * dyn[p][0][o][c / group] x[p-o][c], o ascending. x, y [rows, H]; rows are one block: nothing is seen before row 0. */
dflash_status dflash_conv_prepare(dflash_draft *draft, int layer, dflash_sublayer sublayer, const float *x, int rows,
                                  float *y, float *dyn, dflash_error *err);
/* The same convolution of the sublayer's output with half 1 of the kernels that prepare returned. */
dflash_status dflash_conv_finish(dflash_draft *draft, int layer, dflash_sublayer sublayer, const float *x,
                                 const float *dyn, int rows, float *y, dflash_error *err);

DFLASH_END

#endif
