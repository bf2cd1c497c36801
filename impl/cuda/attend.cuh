/*
 * attend.cuh - attention over segments of keys, in the canonical order.
 *
 * An item is one segment of keys, one key/value head and 64 of the queries that share it (query = head in the group
 * times R, plus row). Scores first, since every exponential needs the largest score of all segments; after a barrier
 * each item sums its own exponentials and weighted values; the segments are added up when the activations of the output
 * projection are packed (dc_context).
 */
#ifndef DF_CUDA_ATTEND_CUH
#define DF_CUDA_ATTEND_CUH

#include "cuda/finish.cuh"

enum { DC_STRIDE = DC_UNIT + 4 }; /* of rows in shared memory, so that neighbours meet in no bank */

template <int R> struct dc_attend_memory {
    float a[DC_UNIT][DC_STRIDE], b[DC_UNIT][DC_STRIDE];
    float largest[DC_QUERIES];
    int low[R], high[R];
};

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

template <int R> DC_DEVICE void dc_load_seen(dc_attend_memory<R> &m, const dc_frame &f, int layer, const dc_place &at) {
    if (at.thread < R) m.low[at.thread] = __ldcg(f.seen + layer * 2 * R + at.thread);
    if (at.thread >= 32 && at.thread < 32 + R)
        m.high[at.thread - 32] = __ldcg(f.seen + (layer * 2 + 1) * R + at.thread - 32);
    dc_sync(at.threads);
}

/* NQ queries a thread: 16 threads over the keys (4 each), the rest over the queries. */
template <int R, int NQ>
DC_DEVICE void dc_scores(dc_attend_memory<R> &m, const dc_frame &f, const dc_phase &p, const dc_place &at) {
    const int hd = f.head_dim, group = f.n_heads / f.n_kv_heads, width = f.n_kv_heads * hd;
    const int key0 = at.thread % 16 * 4, query0 = at.thread / 16 * NQ;
    dc_load_seen<R>(m, f, p.layer, at);
    for (int index = at.block; index < dc_items<R>(f); index += at.blocks) {
        const dc_item item = dc_item_at<R>(f, index);
        float total[4][NQ];
        for (int d0 = 0; d0 < hd; d0 += DC_UNIT) {
            const int length = min(DC_UNIT, hd - d0);
            /* keys and queries, channel by channel; 4 channels a thread, two threads on 32 bytes of a row */
            for (int i = at.thread; i < DC_UNIT * (DC_UNIT / 4); i += at.threads) {
                const int d = (i % 2 + i / (2 * DC_UNIT) * 2) * 4, row = i / 2 % DC_UNIT;
                float4 k = make_float4(0.0f, 0.0f, 0.0f, 0.0f), q = k;
                if (d < length && row < item.keys)
                    k = dc_load4(p.k + (size_t)(item.key + row) * width + item.kv_head * hd + d0 + d);
                const int member = (item.chunk * DC_QUERIES + row) / R;
                if (d < length && member < group && row % R < f.rows)
                    q = dc_load4(f.q + ((size_t)(row % R) * f.n_heads + item.kv_head * group + member) * hd + d0 + d);
                m.a[d][row] = k.x, m.a[d + 1][row] = k.y, m.a[d + 2][row] = k.z, m.a[d + 3][row] = k.w;
                m.b[d][row] = q.x, m.b[d + 1][row] = q.y, m.b[d + 2][row] = q.z, m.b[d + 3][row] = q.w;
            }
            dc_sync(at.threads);
            float s[4][NQ];
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < NQ; j++) s[i][j] = 0.0f;
#pragma unroll 8
            for (int d = 0; d < length; d++) {
                float k[4], q[NQ];
                *reinterpret_cast<float4 *>(k) = *reinterpret_cast<const float4 *>(&m.a[d][key0]);
#pragma unroll
                for (int j = 0; j < NQ; j += 4)
                    *reinterpret_cast<float4 *>(q + j) = *reinterpret_cast<const float4 *>(&m.b[d][query0 + j]);
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int j = 0; j < NQ; j++) s[i][j] = fmaf(k[i], q[j], s[i][j]);
            }
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < NQ; j++) total[i][j] = (d0 == 0 ? 0.0f : total[i][j]) + s[i][j];
            dc_sync(at.threads);
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < NQ; j++) m.a[key0 + i][query0 + j] = total[i][j] * f.score_scale;
        dc_sync(at.threads);
        if (at.thread < DC_QUERIES) {
            const int low = m.low[at.thread % R] - item.key, high = m.high[at.thread % R] - item.key;
            float largest = -INFINITY;
            for (int key = 0; key < item.keys; key++) {
                const float score = m.a[key][at.thread];
                if (key >= low && key < high) largest = score > largest ? score : largest;
            }
            f.largest[index * DC_QUERIES + at.thread] = largest;
        }
        for (int i = at.thread; i < DC_UNIT * DC_QUERIES; i += at.threads)
            f.score[(size_t)index * (DC_UNIT * DC_QUERIES) + i] = m.a[i / DC_QUERIES][i % DC_QUERIES];
        dc_sync(at.threads);
    }
}

/* A key that a query does not see gets the weight -1, which no exponential is. */
template <int R, int NQ>
DC_DEVICE void dc_values(dc_attend_memory<R> &m, const dc_frame &f, const dc_phase &p, const dc_place &at) {
    const int hd = f.head_dim, width = f.n_kv_heads * hd;
    const int channel0 = at.thread % 16 * 4, query0 = at.thread / 16 * NQ;
    dc_load_seen<R>(m, f, p.layer, at);
    for (int index = at.block; index < dc_items<R>(f); index += at.blocks) {
        const dc_item item = dc_item_at<R>(f, index);
        if (at.thread < DC_QUERIES) {
            float largest = -INFINITY;
            const float *all = f.largest + (size_t)(index - item.segment) * DC_QUERIES + at.thread;
#pragma unroll 8
            for (int s = 0; s < f.key_segments; s++) {
                const float value = __ldcg(all + s * DC_QUERIES);
                largest = value > largest ? value : largest;
            }
            m.largest[at.thread] = largest;
        }
        dc_sync(at.threads);
        for (int i = at.thread; i < item.keys * DC_QUERIES; i += at.threads) {
            const int key = i / DC_QUERIES, query = i % DC_QUERIES, row = query % R;
            const bool visible = item.key + key >= m.low[row] && item.key + key < m.high[row];
            const float score = __ldcg(f.score + (size_t)index * (DC_UNIT * DC_QUERIES) + i);
            m.b[key][query] = visible ? df_exp(score - m.largest[query]) : -1.0f;
        }
        dc_sync(at.threads);
        if (at.thread < DC_QUERIES) {
            float sum = 0.0f;
#pragma unroll 16
            for (int key = 0; key < item.keys; key++) {
                const float weight = m.b[key][at.thread];
                sum = sum + (weight < 0.0f ? 0.0f : weight);
            }
            f.total[index * DC_QUERIES + at.thread] = sum;
        }
        for (int d0 = 0; d0 < hd; d0 += DC_UNIT) {
            const int length = min(DC_UNIT, hd - d0);
            for (int i = at.thread; i < item.keys * (DC_UNIT / 4); i += at.threads) {
                const int key = i / (DC_UNIT / 4), d = i % (DC_UNIT / 4) * 4;
                float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                if (d < length) v = dc_load4(p.v + (size_t)(item.key + key) * width + item.kv_head * hd + d0 + d);
                *reinterpret_cast<float4 *>(&m.a[key][d]) = v;
            }
            dc_sync(at.threads);
            float s[4][NQ];
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < NQ; j++) s[i][j] = 0.0f;
#pragma unroll 2
            for (int key = 0; key < item.keys; key++) {
                float v[4], weight[NQ];
                *reinterpret_cast<float4 *>(v) = *reinterpret_cast<const float4 *>(&m.a[key][channel0]);
#pragma unroll
                for (int j = 0; j < NQ; j += 4)
                    *reinterpret_cast<float4 *>(weight + j) = *reinterpret_cast<const float4 *>(&m.b[key][query0 + j]);
#pragma unroll
                for (int j = 0; j < NQ; j++)
                    if (!(weight[j] < 0.0f)) {
#pragma unroll
                        for (int i = 0; i < 4; i++) s[i][j] = fmaf(weight[j], v[i], s[i][j]);
                    }
            }
            if (channel0 < length)
#pragma unroll
                for (int j = 0; j < NQ; j++)
                    *reinterpret_cast<float4 *>(f.context + ((size_t)index * DC_QUERIES + query0 + j) * hd + d0 +
                                                channel0) = make_float4(s[0][j], s[1][j], s[2][j], s[3][j]);
            dc_sync(at.threads);
        }
    }
}

/* DC_CONTEXT: act = sum of the segments / sum of the exponentials. */
template <int R, bool FAST>
DC_DEVICE void dc_context(dc_finish_memory<R> &m, const dc_frame &f, const dc_phase &p, const dc_place &at) {
    enum { SLOTS = 8 };
    const int hd = f.head_dim, group = f.n_heads / f.n_kv_heads, chunks = dc_chunks<R>(f);
    for (int unit = at.block; unit * DC_UNIT < p.n; unit += at.blocks) {
        const int first = unit * DC_UNIT, head0 = first / hd;
        const int heads = (min(first + DC_UNIT, p.n) - 1) / hd - head0 + 1;
        for (int pass = 0; pass < 2; pass++) { /* the denominators, then the values */
            const int count = pass == 0 ? heads * R : DC_UNIT * R;
            for (int i = at.thread; i < count; i += at.threads) {
                const int channel = pass == 0 ? 0 : i % DC_UNIT, row = pass == 0 ? i % R : i / DC_UNIT;
                const int head = pass == 0 ? head0 + i / R : (first + channel) / hd;
                float value = 0.0f;
                if (first + channel < p.n) {
                    const int query = head % group * R + row;
                    const size_t item = (size_t)(head / group * chunks + query / DC_QUERIES) * f.key_segments;
                    const float *from = pass == 0 ? f.total + item * DC_QUERIES + query % DC_QUERIES
                                                  : f.context + (item * DC_QUERIES + query % DC_QUERIES) * hd +
                                                        (first + channel) % hd;
                    const size_t stride = pass == 0 ? DC_QUERIES : (size_t)DC_QUERIES * hd;
                    const int before = f.first_key_segment;
                    value = dc_tree<SLOTS>(before, f.key_segments, 0.0f,
                                           [&](int s) { return __ldcg(from + (size_t)(s - before) * stride); });
                    value = value + 0.0f;
                }
                if (pass == 0)
                    m.node[i / R][row] = value;
                else
                    m.tile.v[channel][row] = first + channel < p.n ? value / m.node[head - head0][row] : 0.0f;
            }
            dc_sync(at.threads);
        }
        dc_pack<R, FAST>(m.tile, first, f.act, at);
        dc_sync(at.threads);
    }
}

#endif
