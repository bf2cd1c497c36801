/* persistent.cu - products and the fast attention as operations: short programs of their own. */
#include "cuda/common/device_scope.h"
#include "cuda/persistent/persistent_parts.h"

namespace {

/* Segments with a key that a block which starts at `pos` can see through `window` (0: all). */
int visible_segments(const int32_t *key_pos, int keys, int32_t pos, int window) {
    int count = 0;
    for (int i = keys; i > 0; i--) {
        if (window > 0 && (int64_t)pos - key_pos[i - 1] >= window) break;
        count += i == keys || key_pos[i - 1] / DC_ITEM_CHANNELS != key_pos[i] / DC_ITEM_CHANNELS;
    }
    return count;
}

} /* namespace */

/*
 * Whether the persistent kernels' attention covers these shapes and keys. Exact: segments without a gap, within the
 * tree's counter; it does not matter for the bits. Fast: as few segments in sight as a block has shares for, which
 * does, so it may not depend on keys out of sight: those may have left the cache.
 */
bool dc_attention_covered(bool fast, int rows, int head_dim, int window, const int32_t *key_pos, int keys,
                          int segments) {
    if (rows > 16 || head_dim > DC_MOST_HEAD || head_dim % 4 != 0) return false;
    if (fast) {
        const int heads = DC_ITEM_CHANNELS % head_dim == 0   ? DC_ITEM_CHANNELS / head_dim
                          : head_dim % DC_ITEM_CHANNELS == 0 ? 1
                                                             : (DC_ITEM_CHANNELS - 1) / head_dim + 2;
        return heads * segments <= DC_MOST_SHARES || /* then no key need be looked at */
               heads * visible_segments(key_pos, keys, key_pos[keys - rows], window) <= DC_MOST_SHARES;
    }
    const int first = key_pos[0] / DC_ITEM_CHANNELS, last = key_pos[keys - 1] / DC_ITEM_CHANNELS;
    return last - first + 1 == segments && first % 1024 + segments <= DC_MOST_KEY_SEGMENTS;
}

extern "C" dflash_status df_cuda_matmul_persistent(dflash_engine *engine, const df_matrix *w, const float *bias,
                                                   const float *x, int rows, float *y, dflash_error *err) {
    enum { TILE_ROWS = 16, FEW_ROWS = 64 /* above, reading the weights once pays */ };
    dc_persistent *r = df_cuda_of(engine)->persistent;
    const bool fast = r->fast && dc_fast_width(w->dtype);
    if (rows == 0) return DFLASH_OK;
    TRY(dc_ask_blocks(r, err));
    const df_matrix *matrices[1] = {w};
    dc_phase phase[3] = {};
    bool fits = (fast ? r->fast_blocks : r->exact_blocks) > 0;
    if (fits) TRY(dc_plan_product(engine, matrices, 1, fast, &phase[1].product, &fits, err));
    if (!fits) return df_cuda_matmul_plain(engine, w, bias, x, rows, y, err);
    if (rows > FEW_ROWS && (!fast || dc_many_fast_covers(w, x)))
        return fast ? dc_many_fast(engine, w, bias, x, rows, y, err) : dc_many_exact(engine, w, bias, x, rows, y, err);
    const df_arena_mark mark = df_arena_get_mark(&engine->arena);
    const int widest = rows < TILE_ROWS ? dc_padded_rows(rows) : TILE_ROWS;
    dc_product &product = phase[1].product;
    product.partial = df_cuda_take<float>(engine, dc_partial_floats(product, widest), err);
    dc_frame f = {};
    dc_phase *phases = df_cuda_take<dc_phase>(engine, 3 * (size_t)((rows - 1) / TILE_ROWS + 1), err);
    f.act = df_cuda_take<float>(engine, (size_t)product.segments * DC_ITEM_CHANNELS * (size_t)widest, err);
    f.arrived = df_cuda_take<unsigned>(engine, DC_ARRIVALS, err);
    if (product.partial == nullptr || phases == nullptr || f.act == nullptr || f.arrived == nullptr)
        return DFLASH_ERR_MEMORY;
    f.phases = 3;
    phase[0].kind = DC_COPY;
    phase[0].n = (int)w->in;
    phase[1].kind = DC_PRODUCT;
    phase[2].kind = DC_STORE;
    phase[2].n = (int)w->out;
    phase[2].a = dc_sum{product.partial, bias, product.groups};
    const cudaStream_t stream = df_cuda_stream(engine);
    for (int row = 0, tile = 0; row < rows; row += TILE_ROWS, tile++) {
        f.rows = rows - row < TILE_ROWS ? rows - row : TILE_ROWS;
        f.phase = phases + 3 * tile;
        phase[0].x = x + (size_t)row * (size_t)w->in;
        phase[2].y = y + (size_t)row * (size_t)w->out;
        /* from pageable memory: it is read before the call returns */
        TRY(df_cuda_check(
            cudaMemcpyAsync(const_cast<dc_phase *>(f.phase), phase, sizeof phase, cudaMemcpyHostToDevice, stream),
            "the phases of a product", err));
        TRY(df_cuda_check(fast ? dc_launch_fast(&f, r->fast_blocks, stream)
                               : dc_launch_exact(&f, r->exact_blocks, stream),
                          "a product", err));
    }
    df_arena_rewind(&engine->arena, mark);
    return DFLASH_OK;
}

extern "C" dflash_status df_cuda_attention_fast(dflash_engine *engine, const df_attention_args *a, dflash_error *err) {
    dc_persistent *r = df_cuda_of(engine)->persistent;
    TRY(dc_ask_blocks(r, err));
    if (r->fast_blocks == 0 ||
        !dc_attention_covered(true, a->rows, a->head_dim, a->window, a->k_pos, a->keys, a->map.segments))
        return df_cuda_attention(engine, a, err);
    const df_arena_mark mark = df_arena_get_mark(&engine->arena);
    const int padded = dc_padded_rows(a->rows), group = a->n_heads / a->n_kv_heads;
    const int chunks = (group * padded + DC_QUERIES - 1) / DC_QUERIES;
    const size_t items = (size_t)a->n_kv_heads * (size_t)chunks * (size_t)a->map.segments;
    struct sent {
        dc_phase phase[3];
        dc_visibility visibility;
    } host = {};
    dc_frame f = {};
    sent *device = df_cuda_take<sent>(engine, 1, err);
    f.seen = df_cuda_take<int32_t>(engine, 2 * (size_t)padded, err);
    f.largest = df_cuda_take<float>(engine, items * DC_QUERIES, err);
    f.total = df_cuda_take<float>(engine, items * DC_QUERIES, err);
    f.context = df_cuda_take<float>(engine, items * DC_QUERIES * (size_t)a->head_dim, err);
    f.arrived = df_cuda_take<unsigned>(engine, DC_ARRIVALS, err);
    if (device == nullptr || f.seen == nullptr || f.largest == nullptr || f.total == nullptr || f.context == nullptr ||
        f.arrived == nullptr)
        return DFLASH_ERR_MEMORY;
    host.visibility = dc_visibility{a->window, a->causal};
    host.phase[0].kind = DC_SEEN;
    host.phase[1].kind = DC_ATTEND;
    host.phase[1].k = const_cast<float *>(a->k);
    host.phase[1].v = const_cast<float *>(a->v);
    host.phase[2].kind = DC_CONTEXT;
    host.phase[2].n = a->n_heads * a->head_dim;
    host.phase[2].y = a->out;
    f.phase = device->phase;
    f.visibility = &device->visibility;
    f.phases = 3;
    f.layers = 1;
    f.rows = a->rows;
    f.n_heads = a->n_heads;
    f.n_kv_heads = a->n_kv_heads;
    f.head_dim = a->head_dim;
    f.score_scale = 1.0f / sqrtf((float)a->head_dim);
    f.q = const_cast<float *>(a->q);
    f.pos = a->map.pos;
    f.segment_first = a->map.segment_first;
    f.keys = a->keys;
    f.key_segments = a->map.segments;
    f.first_key_segment = a->k_pos[0] / DC_ITEM_CHANNELS;
    const cudaStream_t stream = df_cuda_stream(engine);
    TRY(df_cuda_check(cudaMemcpyAsync(device, &host, sizeof host, cudaMemcpyHostToDevice, stream),
                      "the phases of an attention", err));
    TRY(df_cuda_check(dc_launch_fast(&f, r->fast_blocks, stream), "an attention", err));
    df_arena_rewind(&engine->arena, mark);
    return DFLASH_OK;
}

extern "C" dflash_status df_cuda_run_phase(dflash_engine *engine, int kind, int dtype, bool *ran, dflash_error *err) {
    const df_cuda_scope scope(df_cuda_of(engine)->device);
    dc_persistent *r = df_cuda_of(engine)->persistent;
    TRY(scope.check(err));
    *ran = false;
    if (r == nullptr) return DFLASH_OK; /* class cublas has no such kernel */
    TRY(dc_ask_blocks(r, err));
    const int blocks = r->fast ? r->fast_blocks : r->exact_blocks;
    *ran = blocks > 0;
    if (!*ran) return DFLASH_OK;
    dc_phase host = {}; /* of nothing: whatever it is, there is no work in it */
    host.kind = kind;
    host.product.dtype = dtype;
    TRY(df_arena_reset(&engine->arena, err));
    dc_phase *device = df_cuda_take<dc_phase>(engine, 1, err);
    dc_frame f = {};
    f.arrived = df_cuda_take<unsigned>(engine, DC_ARRIVALS, err);
    if (device == nullptr || f.arrived == nullptr) return DFLASH_ERR_MEMORY;
    f.phase = device;
    f.phases = 1;
    f.rows = 1;
    TRY(engine->memory.upload(engine->memory.owner, device, &host, sizeof host, err));
    const cudaStream_t stream = df_cuda_stream(engine);
    TRY(df_cuda_check(r->fast ? dc_launch_fast(&f, blocks, stream) : dc_launch_exact(&f, blocks, stream),
                      "a program of one phase", err));
    return engine->memory.finish(engine->memory.owner, err);
}
