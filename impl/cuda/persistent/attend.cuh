/*
 * attend.cuh - what the attention of both classes shares: its items.
 *
 * An item is one segment of keys, one key/value head and 64 of the queries that share it (query = head in the group
 * times R, plus row).
 */
#ifndef DF_CUDA_ATTEND_CUH
#define DF_CUDA_ATTEND_CUH

#include "cuda/persistent/epilogue.cuh"

template <int R> DC_DEVICE int dc_chunks(const dc_frame &f) {
    return (f.n_heads / f.n_kv_heads * R + DC_QUERIES - 1) / DC_QUERIES;
}

/* Item = (kv head * chunks + chunk) * segments + segment. */
struct dc_item {
    int kv_head, chunk, segment, key, keys; /* first key and count */
};
template <int R> DC_DEVICE dc_item dc_item_at(const dc_frame &f, int index) {
    dc_item item;
    const int chunks = dc_chunks<R>(f);
    item.segment = index % f.key_segments;
    item.chunk = index / f.key_segments % chunks;
    item.kv_head = index / f.key_segments / chunks;
    item.key = f.segment_first[item.segment];
    item.keys = f.segment_first[item.segment + 1] - item.key;
    return item;
}
template <int R> DC_DEVICE int dc_items(const dc_frame &f) { return f.n_kv_heads * dc_chunks<R>(f) * f.key_segments; }

/* Where the quad of channels c.. of row `row` lies in context, and its query in total; quads do not cross heads. */
template <int R> DC_DEVICE size_t dc_query_at(const dc_frame &f, int head, int row) {
    const int group = f.n_heads / f.n_kv_heads, query = head % group * R + row;
    return (size_t)(head / group * dc_chunks<R>(f) + query / DC_QUERIES) * f.key_segments * DC_QUERIES +
           query % DC_QUERIES;
}

#endif
