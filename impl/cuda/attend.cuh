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

template <int R, int NT>
DC_DEVICE void dc_load_seen(int (&low)[R], int (&high)[R], const dc_frame &f, int layer, const dc_place &at) {
    if (at.thread < R) low[at.thread] = __ldcg(f.seen + layer * 2 * R + at.thread);
    if (at.thread >= 32 && at.thread < 32 + R)
        high[at.thread - 32] = __ldcg(f.seen + (layer * 2 + 1) * R + at.thread - 32);
    dc_sync<NT>();
}

/* 16 threads over the keys (4 each), the rest over the queries. */
template <int R, int NT>
DC_DEVICE void dc_scores(dc_attend_memory<R> &m, const dc_frame &f, const dc_phase &p, const dc_place &at) {
    enum { NQ = DC_QUERIES * 16 / NT, FOURS = DC_UNIT * DC_UNIT / 4 / NT };
    const int hd = f.head_dim, group = f.n_heads / f.n_kv_heads, width = f.n_kv_heads * hd;
    const int key0 = at.thread % 16 * 4, query0 = at.thread / 16 * NQ;
    dc_load_seen<R, NT>(m.low, m.high, f, p.layer, at);
    for (int index = at.block; index < dc_items<R>(f); index += at.blocks) {
        const dc_item item = dc_item_at<R>(f, index);
        float total[4][NQ];
#pragma unroll 1
        for (int d0 = 0; d0 < hd; d0 += DC_UNIT) {
            const int length = min(DC_UNIT, hd - d0);
            /* keys and queries, channel by channel; 4 channels a thread, two threads on 32 bytes of a row */
            float4 k[FOURS], q[FOURS];
#pragma unroll
            for (int e = 0; e < FOURS; e++) {
                const int i = at.thread + e * NT, d = (i % 2 + i / (2 * DC_UNIT) * 2) * 4, row = i / 2 % DC_UNIT;
                const int member = (item.chunk * DC_QUERIES + row) / R;
                k[e] = q[e] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                if (d < length && row < item.keys)
                    k[e] = dc_load4(p.k + (size_t)(item.key + row) * width + item.kv_head * hd + d0 + d);
                if (d < length && member < group && row % R < f.rows)
                    q[e] =
                        dc_load4(f.q + ((size_t)(row % R) * f.n_heads + item.kv_head * group + member) * hd + d0 + d);
            }
#pragma unroll
            for (int e = 0; e < FOURS; e++) {
                const int i = at.thread + e * NT, d = (i % 2 + i / (2 * DC_UNIT) * 2) * 4, row = i / 2 % DC_UNIT;
                m.a[d][row] = k[e].x, m.a[d + 1][row] = k[e].y, m.a[d + 2][row] = k[e].z, m.a[d + 3][row] = k[e].w;
                m.b[d][row] = q[e].x, m.b[d + 1][row] = q[e].y, m.b[d + 2][row] = q[e].z, m.b[d + 3][row] = q[e].w;
            }
            dc_sync<NT>();
            float s[4][NQ];
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < NQ; j++) s[i][j] = 0.0f;
#pragma unroll 8
            for (int d = 0; d < length; d++) {
                float kd[4], qd[NQ];
                *reinterpret_cast<float4 *>(kd) = *reinterpret_cast<const float4 *>(&m.a[d][key0]);
#pragma unroll
                for (int j = 0; j < NQ; j += 4)
                    *reinterpret_cast<float4 *>(qd + j) = *reinterpret_cast<const float4 *>(&m.b[d][query0 + j]);
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int j = 0; j < NQ; j++) s[i][j] = fmaf(kd[i], qd[j], s[i][j]);
            }
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < NQ; j++) total[i][j] = (d0 == 0 ? 0.0f : total[i][j]) + s[i][j];
            dc_sync<NT>();
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < NQ; j++) m.a[key0 + i][query0 + j] = total[i][j] * f.score_scale;
        dc_sync<NT>();
        if (at.thread < DC_QUERIES) {
            const int low = m.low[at.thread % R] - item.key, high = m.high[at.thread % R] - item.key;
            float largest = -INFINITY;
#pragma unroll 8
            for (int key = 0; key < item.keys; key++) {
                const float score = m.a[key][at.thread];
                if (key >= low && key < high) largest = score > largest ? score : largest;
            }
            f.largest[index * DC_QUERIES + at.thread] = largest;
        }
#pragma unroll
        for (int e = 0; e < FOURS; e++) {
            const int i = at.thread + e * NT, key = i / (DC_QUERIES / 4), query = i % (DC_QUERIES / 4) * 4;
            reinterpret_cast<float4 *>(f.score + (size_t)index * (DC_UNIT * DC_QUERIES))[i] =
                *reinterpret_cast<const float4 *>(&m.a[key][query]);
        }
        dc_sync<NT>();
    }
}

/* A key's values of four channels, and its weights for NQ queries. */
template <int R, int NQ>
DC_DEVICE void dc_weights(const dc_attend_memory<R> &m, int key, int channel, int query, float (&value)[4],
                          float (&weight)[NQ]) {
    *reinterpret_cast<float4 *>(value) = *reinterpret_cast<const float4 *>(&m.a[key][channel]);
#pragma unroll
    for (int j = 0; j < NQ; j += 4)
        *reinterpret_cast<float4 *>(weight + j) = *reinterpret_cast<const float4 *>(&m.b[key][query + j]);
}

/* A key that a query does not see gets the weight -1, which no exponential is. */
template <int R, int NT>
DC_DEVICE void dc_values(dc_attend_memory<R> &m, const dc_frame &f, const dc_phase &p, const dc_place &at) {
    enum { NQ = DC_QUERIES * 16 / NT, FOURS = DC_UNIT * DC_UNIT / 4 / NT };
    const int hd = f.head_dim, width = f.n_kv_heads * hd;
    const int channel0 = at.thread % 16 * 4, query0 = at.thread / 16 * NQ;
    dc_load_seen<R, NT>(m.low, m.high, f, p.layer, at);
    for (int index = at.block; index < dc_items<R>(f); index += at.blocks) {
        const dc_item item = dc_item_at<R>(f, index);
        bool all = true; /* every row sees every key of the item */
        for (int row = 0; row < R; row++) all = all && m.low[row] <= item.key && m.high[row] >= item.key + item.keys;
        float4 score[FOURS];
#pragma unroll
        for (int e = 0; e < FOURS; e++)
            score[e] = dc_load4(f.score + (size_t)index * (DC_UNIT * DC_QUERIES) + 4 * (at.thread + e * NT));
        if (at.thread < DC_QUERIES) {
            float largest = -INFINITY;
            const float *all = f.largest + (size_t)(index - item.segment) * DC_QUERIES + at.thread;
#pragma unroll 16
            for (int s = 0; s < f.key_segments; s++) {
                const float value = __ldcg(all + s * DC_QUERIES);
                largest = value > largest ? value : largest;
            }
            m.largest[at.thread] = largest;
        }
        dc_sync<NT>();
#pragma unroll
        for (int e = 0; e < FOURS; e++) {
            const int i = at.thread + e * NT, key = i / (DC_QUERIES / 4), query = i % (DC_QUERIES / 4) * 4;
            const float s[4] = {score[e].x, score[e].y, score[e].z, score[e].w};
            float w[4];
#pragma unroll
            for (int q = 0; q < 4; q++) {
                const int row = (query + q) % R;
                const bool visible = item.key + key >= m.low[row] && item.key + key < m.high[row];
                w[q] = visible ? df_exp(s[q] - m.largest[query + q]) : -1.0f;
            }
            *reinterpret_cast<float4 *>(&m.b[key][query]) = make_float4(w[0], w[1], w[2], w[3]);
        }
#pragma unroll 1
        for (int d0 = 0; d0 < hd; d0 += DC_UNIT) {
            const int length = min(DC_UNIT, hd - d0);
            float4 v[FOURS];
#pragma unroll
            for (int e = 0; e < FOURS; e++) {
                const int i = at.thread + e * NT, key = i / (DC_UNIT / 4), d = i % (DC_UNIT / 4) * 4;
                v[e] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                if (d < length && key < item.keys)
                    v[e] = dc_load4(p.v + (size_t)(item.key + key) * width + item.kv_head * hd + d0 + d);
            }
#pragma unroll
            for (int e = 0; e < FOURS; e++) {
                const int i = at.thread + e * NT;
                *reinterpret_cast<float4 *>(&m.a[i / (DC_UNIT / 4)][i % (DC_UNIT / 4) * 4]) = v[e];
            }
            dc_sync<NT>();
            if (d0 == 0 && at.thread < DC_QUERIES) {
                float sum = 0.0f;
#pragma unroll 16
                for (int key = 0; key < item.keys; key++) {
                    const float weight = m.b[key][at.thread];
                    sum = sum + (weight < 0.0f ? 0.0f : weight);
                }
                f.total[index * DC_QUERIES + at.thread] = sum;
            }
            float s[4][NQ];
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < NQ; j++) s[i][j] = 0.0f;
            if (all) {
#pragma unroll 2
                for (int key = 0; key < item.keys; key++) {
                    float vd[4], weight[NQ];
                    dc_weights<R, NQ>(m, key, channel0, query0, vd, weight);
#pragma unroll
                    for (int j = 0; j < NQ; j++)
#pragma unroll
                        for (int i = 0; i < 4; i++) s[i][j] = fmaf(weight[j], vd[i], s[i][j]);
                }
            } else {
#pragma unroll 1
                for (int key = 0; key < item.keys; key++) {
                    float vd[4], weight[NQ];
                    dc_weights<R, NQ>(m, key, channel0, query0, vd, weight);
#pragma unroll
                    for (int j = 0; j < NQ; j++)
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            const float sum = fmaf(weight[j], vd[i], s[i][j]);
                            s[i][j] = weight[j] < 0.0f ? s[i][j] : sum;
                        }
                }
            }
            if (channel0 < length)
#pragma unroll
                for (int j = 0; j < NQ; j++)
                    *reinterpret_cast<float4 *>(f.context + ((size_t)index * DC_QUERIES + query0 + j) * hd + d0 +
                                                channel0) = make_float4(s[0][j], s[1][j], s[2][j], s[3][j]);
            dc_sync<NT>();
        }
    }
}

/* Where the quad of channels c.. of row `row` lies in context, and its query in total; quads do not cross heads. */
template <int R> DC_DEVICE size_t dc_query_at(const dc_frame &f, int head, int row) {
    const int group = f.n_heads / f.n_kv_heads, query = head % group * R + row;
    return (size_t)(head / group * dc_chunks<R>(f) + query / DC_QUERIES) * f.key_segments * DC_QUERIES +
           query % DC_QUERIES;
}

/* DC_CONTEXT: act = sum of the segments / sum of the exponentials. */
template <int R, int NT>
DC_DEVICE void dc_context(dc_finish_memory<R> &m, const dc_frame &f, const dc_phase &p, const dc_place &at) {
    const int hd = f.head_dim;
    for (int unit = at.block; unit * DC_UNIT < p.n; unit += at.blocks) {
        const int first = unit * DC_UNIT, head0 = first / hd;
        const int heads = (min(first + DC_UNIT, p.n) - 1) / hd - head0 + 1;
#pragma unroll 1
        for (int i = at.thread; i < heads * R; i += NT) {
            const float *from = f.total + dc_query_at<R>(f, head0 + i / R, i % R);
            m.node[i / R][i % R] = dc_sum_singles(from, DC_QUERIES, f.first_key_segment, f.key_segments);
        }
        dc_sync<NT>();
#pragma unroll 1
        for (int i = at.thread; i < DC_UNIT / 4 * R; i += NT) {
            const int channel = i % (DC_UNIT / 4) * 4, row = i / (DC_UNIT / 4), c = first + channel, head = c / hd;
            float4 y = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (c < p.n) {
                const float *from = f.context + dc_query_at<R>(f, head, row) * hd + c % hd;
                const float total = m.node[head - head0][row];
                y = dc_sum_quads(from, DC_QUERIES * hd, f.first_key_segment, f.key_segments);
                y.x /= total, y.y /= total, y.z /= total, y.w /= total;
            }
            m.tile.v[channel][row] = y.x, m.tile.v[channel + 1][row] = y.y;
            m.tile.v[channel + 2][row] = y.z, m.tile.v[channel + 3][row] = y.w;
        }
        dc_sync<NT>();
        dc_pack<R, NT, false>(m.tile, first, f.act, at);
        dc_sync<NT>();
    }
}

#endif
