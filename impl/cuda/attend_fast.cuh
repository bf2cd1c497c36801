/*
 * attend_fast.cuh - attention of the fast class: one pass over each segment of keys on the tensor cores.
 *
 * Items are those of attend.cuh. Queries, keys, values and weights enter as hi + lo, both bf16; of the four products of
 * a pair lo lo is left out, so a product errs by about 2^-16 of itself; sums are float32, as in product_fast.cuh.
 * Within its segment an item subtracts its own largest score; dc_context_fast weighs the segments with exp(largest -
 * largest of all), in the order of the keys. A key that no row of the block sees is not read; one that only some see is
 * multiplied by 0 for the others, so that what is not finite there reaches all of them.
 *
 * Warp w: scores of the keys at places 8 w .. 8 w + 7 for all queries, then channels 16 w .. 16 w + 15 of the weighted
 * values.
 */
#ifndef DF_CUDA_ATTEND_FAST_CUH
#define DF_CUDA_ATTEND_FAST_CUH

#include "cuda/attend.cuh"
#include "cuda/product_fast.cuh"

/* An A operand of 64 rows by 64 columns, split: [m16][k16][lane]. */
struct dc_split {
    uint4 hi[4][4][32], lo[4][4][32];
};

template <int R> struct dc_attend_fast_memory {
    dc_split a; /* half of the queries' channels, then the weights */
    float largest[DC_FAST_WARPS][DC_QUERIES], total[DC_FAST_WARPS][DC_QUERIES];
    int low[R], high[R];
    int row_of[DC_UNIT]; /* of the key at each position of the segment; -1: none in sight */
};

/* Two floats as packed bf16, and what is left of them. */
DC_DEVICE void dc_split_pair(float x, float y, unsigned &hi, unsigned &lo) {
    const __nv_bfloat162 h = __floats2bfloat162_rn(x, y);
    const __nv_bfloat162 l = __floats2bfloat162_rn(x - __low2float(h), y - __high2float(h));
    hi = *reinterpret_cast<const unsigned *>(&h);
    lo = *reinterpret_cast<const unsigned *>(&l);
}

DC_DEVICE void dc_mma_split(float (&c)[4], const uint4 &ah, const uint4 &al, unsigned bh0, unsigned bh1, unsigned bl0,
                            unsigned bl1) {
    dc_mma(c, ah, bh0, bh1);
    dc_mma(c, ah, bl0, bl1);
    dc_mma(c, al, bh0, bh1);
}

/* e^x for x <= 0 in three instructions: the argument's rounding and the unit's give at most 2^-22 + 2^-23 |x| of the
 * result. e^-infinity is 0. */
DC_DEVICE float dc_exp(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
    return y;
}

template <int R>
DC_DEVICE void dc_attend_fast(dc_attend_fast_memory<R> &m, const dc_frame &f, const dc_phase &p, const dc_place &at) {
    enum { NT = DC_FAST_THREADS, PIECES = 4 * 4 * 32 / NT };
    const int hd = f.head_dim, group = f.n_heads / f.n_kv_heads, width = f.n_kv_heads * hd;
    const int warp = at.thread / 32, lane = at.thread % 32, g = lane / 4, t = lane % 4;
    dc_load_seen<R, NT>(m.low, m.high, f, p.layer, at);
    int lowest = m.low[0], highest = m.high[0]; /* keys that no row sees are not read */
#pragma unroll
    for (int row = 1; row < R; row++) lowest = min(lowest, m.low[row]), highest = max(highest, m.high[row]);
    for (int index = at.block; index < dc_items<R>(f); index += at.blocks) {
        const dc_item item = dc_item_at<R>(f, index);
        const int begin = max(lowest - item.key, 0), end = min(highest - item.key, item.keys);
        if (begin >= end) continue; /* dc_context_fast leaves it out as well */
        const float *keys = p.k + item.kv_head * hd, *values = p.v + item.kv_head * hd;
        /* Keys have the places of their positions, so that sums do not depend on where the cache starts. */
        if (at.thread < DC_UNIT) m.row_of[at.thread] = -1;
        dc_sync<NT>();
        if (at.thread >= begin && at.thread < end)
            m.row_of[f.pos[item.key + at.thread] % DC_UNIT] = item.key + at.thread;
        dc_sync<NT>();
        /* Everything that comes from memory is asked for first: this lane's keys, its values, then the queries. What
         * lies outside is read from inside instead: queries are zero past the head, and weights are zero for other
         * keys. */
        const auto row_at = [&](int place) { return m.row_of[place] >= 0 ? m.row_of[place] : item.key + begin; };
        float2 k[DC_MOST_HEAD / 16][2];
        const float *my_key = keys + (size_t)row_at(warp * 8 + g) * width;
#pragma unroll
        for (int step = 0; step < DC_MOST_HEAD / 16; step++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                k[step][h] = __ldcg(reinterpret_cast<const float2 *>(my_key + min(step * 16 + h * 8 + 2 * t, hd - 2)));
        float v[4][4][2]; /* k16 of keys; keys 2t, 2t + 1, 2t + 8, 2t + 9; n8 of channels */
        const float *my_values = values + min(warp * 16 + g, hd - 1);
        const int next = min(8, hd - 1 - min(warp * 16 + g, hd - 1));
#pragma unroll
        for (int step = 0; step < 4; step++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *from = my_values + (size_t)row_at(step * 16 + i / 2 * 8 + 2 * t + i % 2) * width;
                v[step][i][0] = __ldcg(from);
                v[step][i][1] = __ldcg(from + next);
            }
        float s[4][4] = {};
#pragma unroll
        for (int half = 0; half < DC_MOST_HEAD / 64; half++) {
            if (half * 64 >= hd) break;
            float2 q[PIECES][4];
#pragma unroll
            for (int e = 0; e < PIECES; e++) {
                const int piece = at.thread + e * NT, m16 = piece / 128, step = piece / 32 % 4;
#pragma unroll
                for (int i = 0; i < 4; i++) { /* rows g, g + 8; then the same of channels 8 further */
                    const int query = item.chunk * DC_QUERIES + m16 * 16 + i % 2 * 8 + g, member = query / R;
                    const int d = half * 64 + step * 16 + i / 2 * 8 + 2 * t;
                    q[e][i] = make_float2(0.0f, 0.0f);
                    if (d < hd && member < group && query % R < f.rows)
                        q[e][i] = __ldcg(reinterpret_cast<const float2 *>(
                            f.q + ((size_t)(query % R) * f.n_heads + item.kv_head * group + member) * hd + d));
                }
            }
#pragma unroll
            for (int e = 0; e < PIECES; e++) {
                const int piece = at.thread + e * NT;
                uint4 hi, lo;
                dc_split_pair(q[e][0].x, q[e][0].y, hi.x, lo.x);
                dc_split_pair(q[e][1].x, q[e][1].y, hi.y, lo.y);
                dc_split_pair(q[e][2].x, q[e][2].y, hi.z, lo.z);
                dc_split_pair(q[e][3].x, q[e][3].y, hi.w, lo.w);
                (&m.a.hi[0][0][0])[piece] = hi;
                (&m.a.lo[0][0][0])[piece] = lo;
            }
            dc_sync<NT>();
#pragma unroll
            for (int step = 0; step < 4; step++) {
                unsigned bh0, bh1, bl0, bl1;
                dc_split_pair(k[half * 4 + step][0].x, k[half * 4 + step][0].y, bh0, bl0);
                dc_split_pair(k[half * 4 + step][1].x, k[half * 4 + step][1].y, bh1, bl1);
#pragma unroll
                for (int m16 = 0; m16 < 4; m16++)
                    dc_mma_split(s[m16], m.a.hi[m16][step][lane], m.a.lo[m16][step][lane], bh0, bh1, bl0, bl1);
            }
            dc_sync<NT>();
        }
        /* s[m16]: queries m16 * 16 + g (and + 8), keys warp * 8 + 2t, + 1 */
        unsigned seen = 0;
#pragma unroll
        for (int m16 = 0; m16 < 4; m16++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const int query = m16 * 16 + r * 8 + g, row = query % R;
                float largest = -INFINITY;
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    const int key = m.row_of[warp * 8 + 2 * t + c];
                    const bool visible = key >= m.low[row] && key < m.high[row];
                    s[m16][2 * r + c] *= f.score_scale;
                    if (visible) {
                        seen |= 1u << (m16 * 4 + 2 * r + c);
                        largest = s[m16][2 * r + c] > largest ? s[m16][2 * r + c] : largest;
                    }
                }
                largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
                largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
                if (t == 0) m.largest[warp][query] = largest;
            }
        dc_sync<NT>();
#pragma unroll
        for (int m16 = 0; m16 < 4; m16++) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const int query = m16 * 16 + r * 8 + g;
                float largest = m.largest[0][query];
#pragma unroll
                for (int w = 1; w < DC_FAST_WARPS; w++) largest = fmaxf(largest, m.largest[w][query]);
                float sum = 0.0f;
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    float &x = s[m16][2 * r + c];
                    x = (seen >> (m16 * 4 + 2 * r + c) & 1u) != 0 ? dc_exp(x - largest) : 0.0f;
                    sum = sum + x;
                }
                sum = sum + __shfl_xor_sync(0xffffffffu, sum, 1);
                sum = sum + __shfl_xor_sync(0xffffffffu, sum, 2);
                if (t == 0) m.total[warp][query] = sum;
            }
            /* The accumulators of keys warp * 8 .. + 7 are half of the A operand of k16 = warp / 2. */
            unsigned hi[2], lo[2];
            dc_split_pair(s[m16][0], s[m16][1], hi[0], lo[0]);
            dc_split_pair(s[m16][2], s[m16][3], hi[1], lo[1]);
            unsigned *to_hi = reinterpret_cast<unsigned *>(&m.a.hi[m16][warp / 2][lane]) + warp % 2 * 2;
            unsigned *to_lo = reinterpret_cast<unsigned *>(&m.a.lo[m16][warp / 2][lane]) + warp % 2 * 2;
            to_hi[0] = hi[0], to_hi[1] = hi[1];
            to_lo[0] = lo[0], to_lo[1] = lo[1];
        }
        dc_sync<NT>();
        if (at.thread < DC_QUERIES) {
            float largest = m.largest[0][at.thread], total = m.total[0][at.thread];
#pragma unroll
            for (int w = 1; w < DC_FAST_WARPS; w++) {
                largest = fmaxf(largest, m.largest[w][at.thread]);
                total = total + m.total[w][at.thread];
            }
            f.largest[index * DC_QUERIES + at.thread] = largest;
            f.total[index * DC_QUERIES + at.thread] = total;
        }
        if (warp * 16 < hd) {
            float o[4][2][4] = {};
#pragma unroll
            for (int step = 0; step < 4; step++)
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    unsigned bh0, bh1, bl0, bl1;
                    dc_split_pair(v[step][0][n], v[step][1][n], bh0, bl0);
                    dc_split_pair(v[step][2][n], v[step][3][n], bh1, bl1);
#pragma unroll
                    for (int m16 = 0; m16 < 4; m16++)
                        dc_mma_split(o[m16][n], m.a.hi[m16][step][lane], m.a.lo[m16][step][lane], bh0, bh1, bl0, bl1);
                }
#pragma unroll
            for (int m16 = 0; m16 < 4; m16++)
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    const int d = warp * 16 + n * 8 + 2 * t;
                    float *to = f.context + ((size_t)index * DC_QUERIES + m16 * 16 + g) * hd + d;
                    if (d >= hd) continue;
                    *reinterpret_cast<float2 *>(to) = make_float2(o[m16][n][0], o[m16][n][1]);
                    *reinterpret_cast<float2 *>(to + 8 * hd) = make_float2(o[m16][n][2], o[m16][n][3]);
                }
        }
        dc_sync<NT>();
    }
}

/*
 * act = sum over segments of exp(largest - largest of all) times their values, over the same sum of their totals, both
 * in the order of the keys. A segment that a query does not see has -infinity and weighs 0, so the bits do not depend
 * on how much of what is out of sight the cache still holds; segments that no row sees are left out.
 */
template <int R, int NT>
DC_DEVICE void dc_context_fast(dc_finish_memory<R> &m, const dc_frame &f, const dc_phase &p, const dc_place &at) {
    const int hd = f.head_dim;
    int lowest = 0x7fffffff, highest = 0, begin = 0, end = f.key_segments;
    if (at.block * DC_UNIT >= p.n) return;
#pragma unroll
    for (int row = 0; row < R; row++) {
        lowest = min(lowest, __ldcg(f.seen + p.layer * 2 * R + row));
        highest = max(highest, __ldcg(f.seen + (p.layer * 2 + 1) * R + row));
    }
    while (f.segment_first[begin + 1] <= lowest) begin++;
    while (f.segment_first[end - 1] >= highest) end--;
    const int segments = min(end - begin, (int)DC_MOST_SHARES);
    float *const totals = &m.tile.v[0][0]; /* [heads * segments][R], over both tiles */
    for (int unit = at.block; unit * DC_UNIT < p.n; unit += at.blocks) {
        const int first = unit * DC_UNIT, head0 = first / hd;
        const int heads = (min(first + DC_UNIT, p.n) - 1) / hd - head0 + 1;
        /* share[head * segments + segment][row], and the denominators in dyn[head][row]; 8 threads a head and row */
#pragma unroll 1
        for (int i = at.thread; i < heads * R * 8; i += NT) {
            const int part = i % 8, row = i / 8 % R, head = i / 8 / R;
            const size_t query = dc_query_at<R>(f, head0 + head, row) + (size_t)begin * DC_QUERIES;
            float most = -INFINITY;
#pragma unroll 5
            for (int s = part; s < segments; s += 8) {
                const float x = __ldcg(f.largest + query + s * DC_QUERIES);
                totals[(head * segments + s) * R + row] = __ldcg(f.total + query + s * DC_QUERIES);
                m.share[head * segments + s][row] = x;
                most = fmaxf(most, x);
            }
            const unsigned lanes = __activemask();
            most = fmaxf(most, __shfl_xor_sync(lanes, most, 1));
            most = fmaxf(most, __shfl_xor_sync(lanes, most, 2));
            most = fmaxf(most, __shfl_xor_sync(lanes, most, 4));
#pragma unroll 1
            for (int s = part; s < segments; s += 8)
                m.share[head * segments + s][row] = dc_exp(m.share[head * segments + s][row] - most);
            __syncwarp(lanes);
            if (part == 0) {
                float sum = 0.0f;
#pragma unroll 4
                for (int s = 0; s < segments; s++)
                    sum = fmaf(totals[(head * segments + s) * R + row], m.share[head * segments + s][row], sum);
                m.dyn[head][row] = sum;
            }
        }
        dc_sync<NT>();
#pragma unroll 1
        for (int i = at.thread; i < DC_UNIT / 4 * R; i += NT) {
            const int channel = i % (DC_UNIT / 4) * 4, row = i / (DC_UNIT / 4), c = first + channel, head = c / hd;
            float4 y = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (c < p.n) {
                const float *from =
                    f.context + (dc_query_at<R>(f, head, row) + (size_t)begin * DC_QUERIES) * hd + c % hd;
#pragma unroll 12
                for (int s = 0; s < segments; s++) {
                    const float4 v = dc_load4(from + (size_t)s * (DC_QUERIES * hd));
                    const float weight = m.share[(head - head0) * segments + s][row];
                    y.x = fmaf(v.x, weight, y.x), y.y = fmaf(v.y, weight, y.y);
                    y.z = fmaf(v.z, weight, y.z), y.w = fmaf(v.w, weight, y.w);
                }
                const float total = m.dyn[head - head0][row];
                y.x /= total, y.y /= total, y.z /= total, y.w /= total;
                if (p.y != nullptr && row < f.rows) /* for the caller */
                    *reinterpret_cast<float4 *>(p.y + (size_t)row * p.n + c) = y;
            }
            m.tile.v[channel][row] = y.x, m.tile.v[channel + 1][row] = y.y;
            m.tile.v[channel + 2][row] = y.z, m.tile.v[channel + 3][row] = y.w;
        }
        dc_sync<NT>();
        if (p.y == nullptr) dc_pack<R, NT, true>(m.tile, first, f.act, at);
        dc_sync<NT>();
    }
}

#endif
