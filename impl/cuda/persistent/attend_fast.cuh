/*
 * attend_fast.cuh - attention of the fast class: one pass over each segment of keys on the tensor cores.
 *
 * Items are those of attend.cuh; each block takes neighbouring ones. Keys and values come through the ring of
 * product_fast.cuh, a stage each (producer_fast.cuh), ahead of the grid's barriers where they are the context's.
 * Queries, keys, values and weights enter the products as hi + lo, both bf16; of the four products of a pair lo lo is
 * left out, so a product errs by about 2^-16 of itself; sums are float32, as in product_fast.cuh. Within its segment an
 * item subtracts its own largest score; dc_context_fast weighs the segments with exp(largest - largest of all). A key
 * that no row of the block sees is not read; one that only some see is multiplied by 0 for the others, so that what is
 * not finite there reaches all of them.
 *
 * Warps w and w + 4 share 16 queries: each has the scores of 32 keys, then 64 channels of the weighted values. All
 * warps together make a stage's keys or values into operands, in their place.
 *
 * The inner index of a product is ours to order, so lanes read 16 bytes at once: at k16 step s lane t of a quad has
 * channels 16 s + 4 t .. + 3 of queries and keys, and keys 16 s + t, + 4, + 8, + 12 of weights and values.
 */
#ifndef DF_CUDA_ATTEND_FAST_CUH
#define DF_CUDA_ATTEND_FAST_CUH

#include "cuda/persistent/attend.cuh"
#include "cuda/persistent/producer_fast.cuh"

/* A operands, [m16][k16][lane]: 64 queries by STEPS times 16 channels or keys. */
template <int STEPS> struct dc_operands { uint4 hi[4][STEPS][32], lo[4][STEPS][32]; };
typedef dc_operands<DC_ITEM_CHANNELS / 16>
    dc_weights; /* of 64 keys: they take the place of the keys, whose scores are known */
static_assert(sizeof(dc_weights) <= DC_WEIGHT_BYTES, "the weights of a segment fit its keys' stage");

struct dc_attend_fast_memory {
    dc_operands<DC_MOST_HEAD / 16> query;
    float largest[2][DC_QUERIES], total[2][DC_QUERIES];
};

/* b: two pairs of hi, two of lo. */
DC_DEVICE void dc_mma_split(float (&c)[4], const uint4 &ah, const uint4 &al, const uint4 &b) {
    dc_mma(c, ah, b.x, b.y);
    dc_mma(c, ah, b.z, b.w);
    dc_mma(c, al, b.x, b.y);
}

/* e^x for x <= 0 in three instructions: the argument's rounding and the unit's give at most 2^-22 + 2^-23 |x| of
 * the result. e^-infinity is 0. */
DC_DEVICE float dc_exp(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
    return y;
}

/* The queries of a pair of warps: each brings half of the channels, a lane rows g and g + 8. */
template <int R>
DC_DEVICE void dc_load_queries(dc_attend_fast_memory &m, const dc_frame &f, const dc_item &item, int m16, int half,
                               int lane) {
    enum { STEPS = DC_MOST_HEAD / 32 };
    const int hd = f.head_dim, group = f.n_heads / f.n_kv_heads, first = half * (DC_MOST_HEAD / 2) + lane % 4 * 4;
    float4 x[2][STEPS];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int query = item.chunk * DC_QUERIES + m16 * 16 + r * 8 + lane / 4, member = query / R;
        const bool held = member < group && query % R < f.rows;
        const float *from = f.q + ((size_t)(query % R) * f.n_heads + item.kv_head * group + member) * hd + first;
#pragma unroll
        for (int step = 0; step < STEPS; step++)
            x[r][step] =
                held && first + step * 16 < hd ? dc_load4(from + step * 16) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        uint4 hi, lo;
        dc_split_pair(x[0][step].x, x[0][step].y, hi.x, lo.x);
        dc_split_pair(x[1][step].x, x[1][step].y, hi.y, lo.y);
        dc_split_pair(x[0][step].z, x[0][step].w, hi.z, lo.z);
        dc_split_pair(x[1][step].z, x[1][step].w, hi.w, lo.w);
        m.query.hi[m16][half * STEPS + step][lane] = hi;
        m.query.lo[m16][half * STEPS + step][lane] = lo;
    }
}

/*
 * Scores of 32 keys: s[j] is an n8 tile; its column n is the key at place 32 half + 8 j + 4 (n % 2) + n / 2. The three
 * products of a pair add up apart, in chains that do not wait for each other.
 */
DC_DEVICE void dc_scores_fast(float (&s)[4][4], const unsigned char *keys, const dc_attend_fast_memory &m, int hd,
                              int m16, int half, int lane) {
    const int g = lane / 4, t = lane % 4;
    const unsigned char *from = keys + (half * 32 + g % 2 * 4 + g / 2) * DC_KEY_STRIDE + 16 * t;
    float hl[4][4] = {}, lh[4][4] = {};
#pragma unroll 4
    for (int step = 0; step * 16 < hd; step++) {
        const uint4 ah = m.query.hi[m16][step][lane], al = m.query.lo[m16][step][lane];
        uint4 b[4];
#pragma unroll
        for (int j = 0; j < 4; j++) b[j] = *reinterpret_cast<const uint4 *>(from + 8 * j * DC_KEY_STRIDE + step * 64);
#pragma unroll
        for (int j = 0; j < 4; j++) dc_mma(s[j], ah, b[j].x, b[j].y);
#pragma unroll
        for (int j = 0; j < 4; j++) dc_mma(hl[j], ah, b[j].z, b[j].w);
#pragma unroll
        for (int j = 0; j < 4; j++) dc_mma(lh[j], al, b[j].x, b[j].y);
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) s[j][i] = s[j][i] + (hl[j][i] + lh[j][i]);
}

/* Which of a lane's scores s[j][2 r + c] count, bit 4 (2 j + c), for the row that sees keys [low, high); the place of
 * such a score in its half of the segment is 8 j + 4 c + t. */
enum { DC_SCORE_BITS = 0x11111111 };
DC_DEVICE unsigned dc_scores_seen(const dc_span &span, const dc_item &item, int half, int t, int low, int high) {
    const unsigned taken = (half == 0 ? span.taken[0] : span.taken[1]) >> t & DC_SCORE_BITS;
    if (low <= item.key + span.begin && high >= item.key + span.end) return taken;
    unsigned seen = 0;
#pragma unroll 1
    for (int bit = 0; bit < 32; bit += 4) {
        const int key = span.key_at(item, 32 * half + bit + t);
        if (key >= low && key < high) seen |= 1u << bit;
    }
    return seen & taken;
}

/* o[4 group + j]: an n8 tile; its column n is channel 64 half + 32 group + 4 n + j. */
DC_DEVICE void dc_values_fast(float (&o)[8][4], const unsigned char *values, const dc_weights &w, int hd, int m16,
                              int half, int lane) {
    const int g = lane / 4, t = lane % 4;
#pragma unroll 2
    for (int step = 0; step < 4; step++) {
        const uint4 ah = w.hi[m16][step][lane], al = w.lo[m16][step][lane];
#pragma unroll
        for (int group = 0; group < 2; group++) {
            if (half * 64 + group * 32 >= hd) break;
#pragma unroll
            for (int j = 0; j < 4; j++)
                dc_mma_split(o[group * 4 + j], ah, al,
                             *reinterpret_cast<const uint4 *>(values + (step * 16 + t + 4 * j) * DC_VALUE_STRIDE +
                                                              half * 256 + group * 128 + g * 16));
        }
    }
}

/* ---- Keys and values as operands: in their place, by all threads, once for all queries ---- */

enum { DC_HEAD_QUADS = DC_MOST_HEAD / 4 };

/* Four channels of a key: as pairs, what is hi of them, then lo. Zeros up to a multiple of 16 channels. */
DC_DEVICE void dc_split_keys(unsigned char *keys, int hd, int thread) {
    const int quad = thread % DC_HEAD_QUADS;
    if (quad * 4 < (hd + 15) / 16 * 16)
#pragma unroll
        for (int place = thread / DC_HEAD_QUADS; place < DC_ITEM_CHANNELS; place += DC_FAST_THREADS / DC_HEAD_QUADS) {
            unsigned char *at = keys + place * DC_KEY_STRIDE + quad * 16;
            const float4 k =
                quad * 4 < hd ? *reinterpret_cast<const float4 *>(at) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            uint4 b;
            dc_split_pair(k.x, k.y, b.x, b.z);
            dc_split_pair(k.z, k.w, b.y, b.w);
            *reinterpret_cast<uint4 *>(at) = b;
        }
    dc_before_bulk();
}

/* Four channels of the values of four keys, 4 places apart: as pairs of keys; channel j goes to the place of key j. */
DC_DEVICE void dc_split_values(unsigned char *values, int hd, int thread) {
    const int quad = thread % DC_HEAD_QUADS;
    if (quad * 4 < hd)
#pragma unroll
        for (int four = thread / DC_HEAD_QUADS; four < DC_ITEM_CHANNELS / 4; four += DC_FAST_THREADS / DC_HEAD_QUADS) {
            unsigned char *at = values + (four / 4 * 16 + four % 4) * DC_VALUE_STRIDE + quad * 16;
            float v[4][4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                *reinterpret_cast<float4 *>(v[i]) = *reinterpret_cast<const float4 *>(at + 4 * i * DC_VALUE_STRIDE);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                uint4 b;
                dc_split_pair(v[0][j], v[1][j], b.x, b.z);
                dc_split_pair(v[2][j], v[3][j], b.y, b.w);
                *reinterpret_cast<uint4 *>(at + 4 * j * DC_VALUE_STRIDE) = b;
            }
        }
    dc_before_bulk();
}

/* A stage of keys or values, and the arrival of the producer of activations: whoever took the stage without it could
 * empty the slot twice before that producer has looked, which then waits for the wrong parity and never fills again. */
template <int R> DC_DEVICE void dc_wait_stage(dc_ring<R> &ring, const dc_pipeline_state &state) {
    dc_barrier_wait(&ring.landed[state.slot], state.parity);
    dc_barrier_wait(&ring.full[state.slot], state.parity);
}

template <int R>
DC_DEVICE void dc_attend_fast(dc_attend_fast_memory &m, dc_ring<R> &ring, dc_pipeline_state &state, const dc_frame &f,
                              const dc_phase &p, const dc_thread_index &at) {
    const int hd = f.head_dim, chunks = dc_chunks<R>(f);
    const int warp = at.thread / 32, lane = at.thread % 32, g = lane / 4, t = lane % 4, m16 = warp % 4, half = warp / 4;
    const int begin = dc_first_item<R>(f, at.block, at.blocks), end = dc_first_item<R>(f, at.block + 1, at.blocks);
    if (begin >= end) return;
    /* The loads that describe an item are issued before the one before it is finished, the first one's all at once. */
    const dc_row_visible_range row = dc_row_visible_range_of<R>(f, p.layer, lane);
    dc_item next = dc_item_at<R>(f, begin);
    dc_key_rows next_key_rows = dc_key_rows_of(f, next, lane);
    dc_load_queries<R>(m, f, next, m16, half, lane);
    int held = next.kv_head * chunks + next.chunk;
    const dc_visible_range visibility = dc_visible_range_of(row);
    int low[2], high[2]; /* of rows g and g + 8 of the 16 queries */
#pragma unroll
    for (int r = 0; r < 2; r++) {
        low[r] = __shfl_sync(0xffffffffu, row.low, (m16 * 16 + r * 8 + g) % R);
        high[r] = __shfl_sync(0xffffffffu, row.high, (m16 * 16 + r * 8 + g) % R);
    }
    for (int index = begin; index < end; index++) {
        const dc_item item = next;
        const dc_span span = dc_span_of(item, next_key_rows, visibility, lane);
        if (index + 1 < end) {
            next = dc_item_at<R>(f, index + 1);
            next_key_rows = dc_key_rows_of(f, next, lane);
        }
        if (span.begin >= span.end) continue; /* dc_context_fast leaves it out as well */
        if (held != item.kv_head * chunks + item.chunk) {
            dc_load_queries<R>(m, f, item, m16, half, lane);
            held = item.kv_head * chunks + item.chunk;
        }
        unsigned char *keys = ring.stage[state.slot].weights;
        unsigned long long *keys_empty = &ring.empty[state.slot];
        dc_wait_stage(ring, state);
        dc_split_keys(keys, hd, at.thread);
        dc_sync<DC_FAST_THREADS>();
        float s[4][4] = {};
        dc_scores_fast(s, keys, m, hd, m16, half, lane);
        state.next();

        unsigned seen[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            seen[r] = dc_scores_seen(span, item, half, t, low[r], high[r]);
            float largest = -INFINITY;
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    float &x = s[j][2 * r + c];
                    x *= f.score_scale;
                    largest = fmaxf(largest, (seen[r] >> 4 * (2 * j + c) & 1u) != 0 ? x : -INFINITY);
                }
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
            if (t == 0) m.largest[half][m16 * 16 + r * 8 + g] = largest;
        }
        dc_sync<DC_FAST_THREADS>(); /* nobody reads the keys any more */
        dc_weights &weights = *reinterpret_cast<dc_weights *>(keys);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int query = m16 * 16 + r * 8 + g;
            const float largest = fmaxf(m.largest[0][query], m.largest[1][query]);
            float sum = 0.0f;
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    float &x = s[j][2 * r + c];
                    x = (seen[r] >> 4 * (2 * j + c) & 1u) != 0 ? dc_exp(x - largest) : 0.0f;
                    sum = sum + x;
                }
            sum = sum + __shfl_xor_sync(0xffffffffu, sum, 1);
            sum = sum + __shfl_xor_sync(0xffffffffu, sum, 2);
            if (t == 0) m.total[half][query] = sum;
        }
#pragma unroll
        for (int step = 0; step < 2; step++) { /* two n8 tiles of scores are the A operand of 16 keys */
            uint4 hi, lo;
            dc_split_pair(s[2 * step][0], s[2 * step][1], hi.x, lo.x);
            dc_split_pair(s[2 * step][2], s[2 * step][3], hi.y, lo.y);
            dc_split_pair(s[2 * step + 1][0], s[2 * step + 1][1], hi.z, lo.z);
            dc_split_pair(s[2 * step + 1][2], s[2 * step + 1][3], hi.w, lo.w);
            weights.hi[m16][half * 2 + step][lane] = hi;
            weights.lo[m16][half * 2 + step][lane] = lo;
        }
        unsigned char *values = ring.stage[state.slot].weights;
        dc_wait_stage(ring, state);
        dc_split_values(values, hd, at.thread);
        dc_sync<DC_FAST_THREADS>();
        if (half == 0 && lane < 16) {
            const int query = m16 * 16 + lane;
            f.largest[index * DC_QUERIES + query] = fmaxf(m.largest[0][query], m.largest[1][query]);
            f.total[index * DC_QUERIES + query] = m.total[0][query] + m.total[1][query];
        }
        float o[8][4] = {};
        dc_values_fast(o, values, weights, hd, m16, half, lane);
        __syncwarp();
        if (lane == 0) {
            dc_barrier_arrive(keys_empty);
            dc_barrier_arrive(&ring.empty[state.slot]);
        }
        state.next();
#pragma unroll
        for (int group = 0; group < 2; group++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float *to = f.context + ((size_t)index * DC_QUERIES + m16 * 16 + r * 8 + g) * hd;
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    const int d = half * 64 + group * 32 + 4 * (2 * t + c);
                    if (d < hd)
                        *reinterpret_cast<float4 *>(to + d) =
                            make_float4(o[group * 4][2 * r + c], o[group * 4 + 1][2 * r + c],
                                        o[group * 4 + 2][2 * r + c], o[group * 4 + 3][2 * r + c]);
                }
            }
    }
}

enum { DC_CONTEXT_ROWS = 8 }; /* of a work item of dc_context_fast: a warp each for their denominators */

struct dc_context_memory {
    float share[DC_MOST_SHARES][DC_CONTEXT_ROWS], total[DC_ITEM_CHANNELS / 4 + 1][DC_CONTEXT_ROWS];
    dc_tile<DC_CONTEXT_ROWS> tile;
};

/*
 * act = sum over segments of exp(largest - largest of all) times their values, over the same sum of their totals.
 * Values of even and of odd segments, counted from the first in sight, are added in the order of the keys, then the
 * two; totals in the tree of a warp's lanes. A segment that a query does not see has -infinity and weighs 0, so the
 * bits do not depend on how much of what is out of sight the cache still holds; segments that no row sees are left out.
 * A work item is 64 channels of 8 rows.
 */
template <int R>
DC_DEVICE void dc_context_fast(dc_context_memory &m, const dc_frame &f, const dc_phase &p, const dc_thread_index &at) {
    enum { NT = DC_FAST_THREADS, BATCH = 9, HALVES = R / DC_CONTEXT_ROWS };
    const int hd = f.head_dim, warp = at.thread / 32, lane = at.thread % 32;
    const int work_items = (p.n + DC_ITEM_CHANNELS - 1) / DC_ITEM_CHANNELS * HALVES;
    if (at.block >= work_items) return;
    const dc_segments in = dc_segments_of(f, dc_row_visible_range_of<R>(f, p.layer, lane), lane);
    const int segments = min(in.end - in.begin, (int)DC_MOST_SHARES);
    for (int work_item = at.block; work_item < work_items; work_item += at.blocks) {
        const int first = work_item / HALVES * DC_ITEM_CHANNELS, row0 = work_item % HALVES * DC_CONTEXT_ROWS,
                  head0 = first / hd;
        const int heads = (min(first + DC_ITEM_CHANNELS, p.n) - 1) / hd - head0 + 1;
        /* two threads a quad of values, for segments of even and of odd number; what they read is under way early */
        const int pair = at.thread / 2, channel = pair % (DC_ITEM_CHANNELS / 4) * 4,
                  row = pair / (DC_ITEM_CHANNELS / 4);
        const int c = first + channel, head = c / hd, odd = at.thread % 2;
        const bool held = c < p.n;
        const float *from = f.context;
        if (held) from += (dc_query_at<R>(f, head, row0 + row) + (size_t)(in.begin + odd) * DC_QUERIES) * hd + c % hd;
        float4 v[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            v[i] = held && odd + 2 * i < segments ? dc_load4(from + (size_t)(2 * i) * (DC_QUERIES * hd))
                                                  : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (int i = warp; i < heads * DC_CONTEXT_ROWS; i += NT / 32) { /* a warp: one head of one row */
            const int r = i % DC_CONTEXT_ROWS, h = i / DC_CONTEXT_ROWS;
            const size_t query = dc_query_at<R>(f, head0 + h, row0 + r) + (size_t)in.begin * DC_QUERIES;
            enum { EACH = DC_MOST_SHARES / 32 };
            float largest[EACH], total[EACH], most = -INFINITY, sum = 0.0f;
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                const int s = lane + 32 * e;
                largest[e] = s < segments ? __ldcg(f.largest + query + s * DC_QUERIES) : -INFINITY;
                total[e] = s < segments ? __ldcg(f.total + query + s * DC_QUERIES) : 0.0f;
            }
#pragma unroll
            for (int e = 0; e < EACH; e++) most = fmaxf(most, largest[e]);
            for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                const int s = lane + 32 * e;
                const float share = dc_exp(largest[e] - most);
                if (s < segments) {
                    m.share[h * segments + s][r] = share;
                    sum = fmaf(total[e], share, sum);
                }
            }
            for (int step = 16; step > 0; step /= 2) sum = sum + __shfl_xor_sync(0xffffffffu, sum, step);
            if (lane == 0) m.total[h][r] = sum;
        }
        dc_sync<NT>();
        float4 y = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        const int share0 = held ? (head - head0) * segments : 0;
#pragma unroll 1
        for (int s0 = odd; s0 < segments; s0 += 2 * BATCH) {
            if (s0 != odd)
#pragma unroll
                for (int i = 0; i < BATCH; i++)
                    v[i] = held && s0 + 2 * i < segments
                               ? dc_load4(from + (size_t)(s0 - odd + 2 * i) * (DC_QUERIES * hd))
                               : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                if (s0 + 2 * i >= segments) break;
                const float weight = m.share[share0 + s0 + 2 * i][row];
                y.x = fmaf(v[i].x, weight, y.x), y.y = fmaf(v[i].y, weight, y.y);
                y.z = fmaf(v[i].z, weight, y.z), y.w = fmaf(v[i].w, weight, y.w);
            }
        }
        y.x = y.x + __shfl_xor_sync(0xffffffffu, y.x, 1), y.y = y.y + __shfl_xor_sync(0xffffffffu, y.y, 1);
        y.z = y.z + __shfl_xor_sync(0xffffffffu, y.z, 1), y.w = y.w + __shfl_xor_sync(0xffffffffu, y.w, 1);
        if (at.thread % 2 == 0) {
            if (held) {
                const float total = m.total[head - head0][row];
                y.x /= total, y.y /= total, y.z /= total, y.w /= total;
                if (p.y != nullptr && row0 + row < f.rows) /* for the caller */
                    *reinterpret_cast<float4 *>(p.y + (size_t)(row0 + row) * p.n + c) = y;
            }
            m.tile.v[channel][row] = y.x, m.tile.v[channel + 1][row] = y.y;
            m.tile.v[channel + 2][row] = y.z, m.tile.v[channel + 3][row] = y.w;
        }
        dc_sync<NT>();
        if (p.y == nullptr) dc_pack_fast<DC_CONTEXT_ROWS, R, NT>(m.tile, first, row0, f.act, at);
        dc_sync<NT>();
    }
}

#endif
