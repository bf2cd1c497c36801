/*
 * attend_exact.cuh - attention over segments of keys, in the canonical order.
 *
 * Scores first, since every exponential needs the largest score of all segments; after a barrier each item sums its own
 * exponentials and weighted values; the segments are added up when the activations of the output projection are packed
 * (dc_context_exact). A score is the sum over 64 channels from left to right, of each half of the head, then their sum;
 * exponentials and weighted values are summed over the keys of a segment from left to right.
 *
 * A block takes neighbouring items, whose queries are mostly the same. Rows of keys, values and queries come by bulk
 * copies as they lie in memory: the context's keys during the phase before, an item's values while its scores are
 * worked out. The last item's scores stay in shared memory and are the first that the values meet.
 */
#ifndef DF_CUDA_ATTEND_EXACT_CUH
#define DF_CUDA_ATTEND_EXACT_CUH

#include "cuda/persistent/attend.cuh"
#include "cuda/persistent/bulk.cuh"

enum {
    DC_STRIDE = DC_ITEM_CHANNELS + 4, /* of scores in shared memory, so that neighbours meet in no bank */
    DC_ROW = DC_MOST_HEAD + 4,        /* of keys, values and queries likewise */
    DC_EXACT_ATTENDERS = 256,         /* threads: 128 on each half of a head */
    DC_ATTEND_PARTS = DC_EXACT_ATTENDERS / DC_QUERIES /* threads that share a query's largest score */
};

/* 64 rows of a head; or the scores, then the weights, of 64 keys for 64 queries. */
union dc_rows {
    float v[DC_ITEM_CHANNELS][DC_ROW];
    float score[DC_ITEM_CHANNELS][DC_STRIDE];
};

template <int R> struct dc_attend_memory {
    dc_rows query; /* the values of every second item later */
    float largest[DC_ATTEND_PARTS][DC_QUERIES];
    int low[R], high[R];
};

/* Brings the rows of an item's keys or values from `from`, which is the layer's first. Not inlined, as dc_sum_quads. */
template <int R>
static __device__ __noinline__ void dc_async_copy(dc_rows *to, unsigned long long *full, const dc_frame *f,
                                                  const float *from, int index, int thread) {
    const dc_item item = dc_item_at<R>(*f, index);
    const int hd = f->head_dim;
    if (thread == 0) dc_barrier_expect(full, (unsigned)(item.keys * hd * 4));
    if (thread < item.keys)
        dc_bulk_plain(to->v[thread], from + ((size_t)(item.key + thread) * f->n_kv_heads + item.kv_head) * hd,
                      (unsigned)(hd * 4), full);
}

/* What a block has for attention: two buffers for keys and values, one for queries and values, and their barriers.
 * `parity`: bit i is the one that barrier i is waited on with next. */
enum { DC_QUERY_ROWS = 2, DC_ROW_BUFFERS = 3 };
template <int R> struct dc_attender {
    dc_attend_memory<R> &m;
    dc_rows *rows;
    unsigned long long *full;
    unsigned parity;

    __device__ __forceinline__ dc_rows &buffer(int i) { return i == DC_QUERY_ROWS ? m.query : rows[i]; }
    __device__ __forceinline__ void wait(int i) {
        dc_barrier_wait(full + i, parity >> i & 1u);
        parity ^= 1u << i;
    }
    __device__ __forceinline__ void async_copy(int i, const dc_frame &f, const float *from, int index, int thread) {
        dc_async_copy<R>(&buffer(i), full + i, &f, from, index, thread);
    }
    /* The queries of an item; those that there are not are zero. */
    __device__ __forceinline__ void async_copy_queries(const dc_frame &f, const dc_item &item, int thread) {
        const int hd = f.head_dim, group = f.n_heads / f.n_kv_heads, member0 = item.chunk * (DC_QUERIES / R);
        const int members = min(group - member0, DC_QUERIES / R), member = thread / R, row = thread % R;
        if (thread == 0) dc_barrier_expect(full + DC_QUERY_ROWS, (unsigned)(members * f.rows * hd * 4));
        if (thread >= DC_QUERIES) return;
        if (member < members && row < f.rows)
            dc_bulk_plain(m.query.v[thread],
                          f.q + ((size_t)row * f.n_heads + item.kv_head * group + member0 + member) * hd,
                          (unsigned)(hd * 4), full + DC_QUERY_ROWS);
        else
            for (int d = 0; d < hd; d++) m.query.v[thread][d] = 0.0f;
    }
};

/* The items of a block: [first, end). */
struct dc_item_range {
    int first, end;
};
template <int R> DC_DEVICE dc_item_range dc_items_of(const dc_frame &f, const dc_thread_index &at) {
    const int items = dc_items<R>(f), each = items / at.blocks, more = items % at.blocks;
    const int first = at.block * each + min(at.block, more);
    return dc_item_range{first, first + each + (at.block < more ? 1 : 0)};
}

/* Whether all keys of an item are the context's, which are there before the round. */
template <int R> DC_DEVICE bool dc_item_early(const dc_frame &f, int index) {
    return f.segment_first[index % f.key_segments + 1] <= f.keys - f.rows;
}

/* In the phase before: the keys of the block's first two items, where they are there. */
template <int R>
DC_DEVICE void dc_keys_early(dc_attender<R> &a, const dc_frame &f, const dc_phase &p, const dc_thread_index &at) {
    const dc_item_range span = dc_items_of<R>(f, at);
    for (int n = 0; n < 2 && span.first + n < span.end; n++) {
        if (dc_item_early<R>(f, span.first + n)) a.async_copy(n, f, p.k, span.first + n, at.thread);
    }
}

template <int R, int NT>
DC_DEVICE void dc_load_seen(int (&low)[R], int (&high)[R], const dc_frame &f, int layer, const dc_thread_index &at) {
    if (at.thread < R) low[at.thread] = __ldcg(f.seen + layer * 2 * R + at.thread);
    if (at.thread >= 32 && at.thread < 32 + R)
        high[at.thread - 32] = __ldcg(f.seen + (layer * 2 + 1) * R + at.thread - 32);
    dc_sync<NT>();
}

/* s[i][j] += one half's channels of key `keys + 8 i` times query j. */
DC_DEVICE void dc_dot(float (&s)[8][4], const float *keys, const float *queries, int length) {
#pragma unroll 1
    for (int d = 0; d < length; d += 4) {
        float k[8][4], q[4][4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            *reinterpret_cast<float4 *>(q[j]) = *reinterpret_cast<const float4 *>(queries + j * DC_ROW + d);
#pragma unroll
        for (int i = 0; i < 8; i++)
            *reinterpret_cast<float4 *>(k[i]) = *reinterpret_cast<const float4 *>(keys + i * 8 * DC_ROW + d);
#pragma unroll
        for (int c = 0; c < 4; c++)
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) s[i][j] = fmaf(k[i][c], q[j][c], s[i][j]);
    }
}

/* The largest of what the threads of a query found. */
template <int R> DC_DEVICE float dc_largest(const dc_attend_memory<R> &m, int query) {
    float largest = m.largest[0][query];
#pragma unroll
    for (int part = 1; part < DC_ATTEND_PARTS; part++)
        largest = m.largest[part][query] > largest ? m.largest[part][query] : largest;
    return largest;
}

/* DC_SCORES. Half of the threads run the first 64 channels, half the others: 8 keys by 4 queries each. */
template <int R, int NT>
DC_DEVICE void dc_scores_exact(dc_attender<R> &a, const dc_frame &f, const dc_phase &p, const dc_thread_index &at) {
    static_assert(NT == DC_EXACT_ATTENDERS, "two halves of 128 threads");
    const dc_item_range span = dc_items_of<R>(f, at);
    const int count = span.end - span.first, hd = f.head_dim;
    const int half = at.thread / 128, key0 = at.thread % 8, query0 = at.thread % 128 / 8 * 4;
    if (count <= 0) return;
    dc_before_bulk_reads();
    a.async_copy_queries(f, dc_item_at<R>(f, span.first), at.thread);
    for (int n = 0; n < 2 && n < count; n++) {
        if (!dc_item_early<R>(f, span.first + n)) a.async_copy(n, f, p.k, span.first + n, at.thread);
    }
    if (count == 1) a.async_copy(1, f, p.v, span.first, at.thread);
    dc_load_seen<R, NT>(a.m.low, a.m.high, f, p.layer, at);
    for (int n = 0; n < count; n++) {
        const int index = span.first + n;
        const dc_item item = dc_item_at<R>(f, index);
        float(&score)[DC_ITEM_CHANNELS][DC_STRIDE] = a.rows[n & 1].score;
        const bool other_queries = n > 0 && item.segment == 0;
        if (other_queries) {
            a.async_copy_queries(f, item, at.thread);
            dc_sync<NT>();
        }
        a.wait(n & 1);
        if (n == 0 || other_queries) a.wait(DC_QUERY_ROWS);
        float s[8][4];
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) s[i][j] = 0.0f;
        dc_dot(s, &a.rows[n & 1].v[key0][half * DC_ITEM_CHANNELS], &a.m.query.v[query0][half * DC_ITEM_CHANNELS],
               min(DC_ITEM_CHANNELS, hd - half * DC_ITEM_CHANNELS));
        dc_sync<NT>();
        if (half == 1)
#pragma unroll
            for (int i = 0; i < 8; i++)
                *reinterpret_cast<float4 *>(&score[key0 + 8 * i][query0]) =
                    make_float4(s[i][0], s[i][1], s[i][2], s[i][3]);
        dc_sync<NT>();
        if (half == 0)
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float4 *to = reinterpret_cast<float4 *>(&score[key0 + 8 * i][query0]);
                const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                float4 v = dc_add(make_float4(s[i][0], s[i][1], s[i][2], s[i][3]), zero);
                v = dc_add(v, hd > DC_ITEM_CHANNELS ? *to : zero);
                v.x *= f.score_scale, v.y *= f.score_scale, v.z *= f.score_scale, v.w *= f.score_scale;
                *to = v;
            }
        dc_sync<NT>();
        const int query = at.thread % DC_QUERIES, part = at.thread / DC_QUERIES;
        const int low = a.m.low[query % R] - item.key, high = min(a.m.high[query % R] - item.key, item.keys);
        float largest = -INFINITY;
#pragma unroll
        for (int i = 0; i < DC_ITEM_CHANNELS / DC_ATTEND_PARTS; i++) {
            const int key = part * (DC_ITEM_CHANNELS / DC_ATTEND_PARTS) + i;
            const float v = score[key][query];
            if (key >= low && key < high) largest = v > largest ? v : largest;
        }
        a.m.largest[part][query] = largest;
        if (n + 1 < count)
#pragma unroll
            for (int e = 0; e < DC_ITEM_CHANNELS * DC_QUERIES / 4 / NT; e++) {
                const int i = at.thread + e * NT, key = i / (DC_QUERIES / 4);
                reinterpret_cast<float4 *>(f.score + (size_t)index * (DC_ITEM_CHANNELS * DC_QUERIES))[i] =
                    *reinterpret_cast<const float4 *>(&score[key][i % (DC_QUERIES / 4) * 4]);
            }
        dc_before_bulk();
        dc_sync<NT>();
        if (part == 0) f.largest[index * DC_QUERIES + query] = dc_largest<R>(a.m, query);
        if (n + 2 < count) a.async_copy(n & 1, f, p.k, index + 2, at.thread);
        if (n + 2 == count) a.async_copy(n & 1, f, p.v, index + 1, at.thread);
    }
    dc_sync<NT>();
}

/* s[j][i] += the values of 4 channels of a key times the weight of query j; ALL: every query sees the key. A weight of
 * -1, which no exponential is, marks a key that a query does not see. */
template <bool ALL> DC_DEVICE void dc_weigh(float (&s)[8][4], const float *values, const float *weights, int keys) {
#pragma unroll(ALL ? 4 : 1)
    for (int key = 0; key < keys; key++) {
        float v[4], w[8];
        *reinterpret_cast<float4 *>(v) = *reinterpret_cast<const float4 *>(values + key * DC_ROW);
        *reinterpret_cast<float4 *>(w) = *reinterpret_cast<const float4 *>(weights + key * DC_STRIDE);
        *reinterpret_cast<float4 *>(w + 4) = *reinterpret_cast<const float4 *>(weights + key * DC_STRIDE + 4);
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float sum = fmaf(w[j], v[i], s[j][i]);
                s[j][i] = !ALL && w[j] < 0.0f ? s[j][i] : sum;
            }
    }
}

/* m.largest: the largest score of each query over the segments, each part over its own. */
template <int R>
DC_DEVICE void dc_largest_of_all(dc_attend_memory<R> &m, const dc_frame &f, int index, const dc_item &item,
                                 int thread) {
    enum { BATCH = 16, PARTS = DC_ATTEND_PARTS };
    const int query = thread % DC_QUERIES, part = thread / DC_QUERIES;
    const float *from = f.largest + (size_t)(index - item.segment) * DC_QUERIES + query;
    float largest = -INFINITY;
#pragma unroll 1
    for (int s = part; s < f.key_segments; s += PARTS * BATCH) {
        float v[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            v[i] = s + PARTS * i < f.key_segments ? __ldcg(from + (size_t)(s + PARTS * i) * DC_QUERIES) : -INFINITY;
#pragma unroll
        for (int i = 0; i < BATCH; i++) largest = v[i] > largest ? v[i] : largest;
    }
    m.largest[part][query] = largest;
}

/* DC_VALUES. The last item first; a thread has 8 queries and 4 channels, laid out so that half a warp reads as few
 * bytes of each as it can. */
template <int R, int NT>
DC_DEVICE void dc_values_exact(dc_attender<R> &a, const dc_frame &f, const dc_phase &p, const dc_thread_index &at) {
    enum { FOURS = DC_ITEM_CHANNELS * DC_QUERIES / 4 / NT };
    const dc_item_range span = dc_items_of<R>(f, at);
    const int count = span.end - span.first, hd = f.head_dim;
    const int channel0 = at.thread / 32 % 4 * 32 + at.thread % 8 * 4;
    const int query0 = (at.thread / 128 * 4 + at.thread / 8 % 4) * 8, kept = (count - 1) & 1;
    dc_attend_memory<R> &m = a.m;
    if (count <= 0) return;
    float(&weight)[DC_ITEM_CHANNELS][DC_STRIDE] = a.rows[kept].score;
    if (count > 1) a.async_copy(DC_QUERY_ROWS, f, p.v, span.end - 2, at.thread);
    for (int n = count - 1; n >= 0; n--) {
        const int index = span.first + n, values = (count - 1 - n) & 1 ? (int)DC_QUERY_ROWS : 1 - kept;
        const dc_item item = dc_item_at<R>(f, index);
        if (n + 1 < count) {
            float4 score[FOURS];
#pragma unroll
            for (int e = 0; e < FOURS; e++)
                score[e] =
                    dc_load4(f.score + (size_t)index * (DC_ITEM_CHANNELS * DC_QUERIES) + 4 * (at.thread + e * NT));
#pragma unroll
            for (int e = 0; e < FOURS; e++) {
                const int i = at.thread + e * NT;
                *reinterpret_cast<float4 *>(&weight[i / (DC_QUERIES / 4)][i % (DC_QUERIES / 4) * 4]) = score[e];
            }
        }
        if (n + 1 == count || item.segment + 1 == f.key_segments) dc_largest_of_all<R>(m, f, index, item, at.thread);
        dc_sync<NT>();
        bool all = true; /* every row sees every key of the item */
#pragma unroll
        for (int row = 0; row < R; row++) all = all && m.low[row] <= item.key && m.high[row] >= item.key + item.keys;
        const int query = at.thread % (DC_QUERIES / 4) * 4; /* of the thread's weights */
        float largest[4];
#pragma unroll
        for (int q = 0; q < 4; q++) largest[q] = dc_largest<R>(m, query + q);
#pragma unroll 2
        for (int e = 0; e < FOURS; e++) {
            const int key = at.thread / (DC_QUERIES / 4) + e * (NT / (DC_QUERIES / 4));
            float w[4];
            *reinterpret_cast<float4 *>(w) = *reinterpret_cast<const float4 *>(&weight[key][query]);
#pragma unroll
            for (int q = 0; q < 4; q++) {
                const int row = (query + q) % R;
                const bool visible = all || (item.key + key >= m.low[row] && item.key + key < m.high[row]);
                w[q] = visible ? df_exp(w[q] - largest[q]) : -1.0f;
            }
            *reinterpret_cast<float4 *>(&weight[key][query]) = *reinterpret_cast<const float4 *>(w);
        }
        dc_sync<NT>();
        if (at.thread < DC_QUERIES) {
            float sum = 0.0f;
#pragma unroll 16
            for (int key = 0; key < item.keys; key++) {
                const float w = weight[key][at.thread];
                sum = sum + (w < 0.0f ? 0.0f : w);
            }
            f.total[index * DC_QUERIES + at.thread] = sum;
        }
        a.wait(values);
        float s[8][4];
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) s[j][i] = 0.0f;
        if (all)
            dc_weigh<true>(s, &a.buffer(values).v[0][channel0], &weight[0][query0], item.keys);
        else
            dc_weigh<false>(s, &a.buffer(values).v[0][channel0], &weight[0][query0], item.keys);
        if (channel0 < hd)
#pragma unroll
            for (int j = 0; j < 8; j++)
                *reinterpret_cast<float4 *>(f.context + ((size_t)index * DC_QUERIES + query0 + j) * hd + channel0) =
                    make_float4(s[j][0], s[j][1], s[j][2], s[j][3]);
        dc_before_bulk();
        dc_sync<NT>();
        if (n > 1) a.async_copy(values, f, p.v, index - 2, at.thread);
    }
}

#endif
