/*
 * epilogue.cuh - the phases between products: sums are added up, normed, rotated, convolved, and packed as the next
 * product's activations.
 *
 * A block takes 64 channels (or one head) of all rows at a time into shared memory, tile[channel][row]. Every value is
 * the one that the plain operations compute (ops.h), rounding by rounding.
 */
#ifndef DF_CUDA_FINISH_CUH
#define DF_CUDA_FINISH_CUH

#include "cuda/persistent/device.cuh"

/*
 * Where a thread stands in this block, and the block in the grid. NT threads of a block work on phases: a constant, so
 * that a thread's loads are unrolled and under way together; a load that other blocks' writes feed takes most of a
 * microsecond.
 */
struct dc_thread_index {
    int thread, block, blocks;
};

template <int R> struct dc_tile { float v[DC_MOST_HEAD][R + 1]; };

template <int R> struct dc_epilogue_memory {
    dc_tile<R> tile, other;
    float scale[R];
    float dyn[DC_MOST_DYN][R];
    float weight[DC_MOST_HEAD];
    float2 angle[DC_MOST_HEAD / 2 * R]; /* cos, sin */
};

/* ---- Packing ---- */

/* Exact: act[channel][row]. */
template <int R, int NT>
DC_DEVICE void dc_pack_exact(const dc_tile<R> &t, int first, float *act, const dc_thread_index &at) {
    for (int i = at.thread; i < DC_ITEM_CHANNELS * R; i += NT) act[(size_t)first * R + i] = t.v[i / R][i % R];
}

/*
 * Fast: each value as hi + lo, hi = bf16(x), lo = bf16(x - hi), laid out as the B operand of mma.m16n8k16: for 16
 * channels and 8 rows, lane 4 g + t holds row g, channels 2t, 2t + 1, 2t + 8, 2t + 9 as hi, then as lo: 16 bytes, a
 * piece. From channel `from` of the tile on they are channels `first`.. of the activations; the tile has ROWS of the R
 * rows, from `row0` on.
 */
template <int ROWS, int R>
DC_DEVICE void dc_pack_piece(const dc_tile<ROWS> &t, int from, int first, int row0, int piece, void *act) {
    enum { LANES = 32, TILES = ROWS / 8 };
    const int lane = piece % LANES, tile = piece / LANES % TILES, step = piece / LANES / TILES;
    const int row = tile * 8 + lane / 4, channel = from + step * 16 + lane % 4 * 2;
    unsigned word[4];
#pragma unroll
    for (int half = 0; half < 2; half++)
        dc_split_pair(t.v[channel + 8 * half][row], t.v[channel + 8 * half + 1][row], word[half], word[2 + half]);
    uint4 *to = reinterpret_cast<uint4 *>(act) + (size_t)((first / 16 + step) * (R / 8) + row0 / 8 + tile) * LANES;
    to[lane] = make_uint4(word[0], word[1], word[2], word[3]);
}
template <int ROWS, int R, int NT>
DC_DEVICE void dc_pack_fast(const dc_tile<ROWS> &t, int first, int row0, void *act, const dc_thread_index &at) {
    for (int i = at.thread; i < DC_ITEM_CHANNELS * ROWS / 4; i += NT) dc_pack_piece<ROWS, R>(t, 0, first, row0, i, act);
    dc_before_any_bulk(); /* they are read by bulk copies */
}

template <int R, int NT, bool FAST>
DC_DEVICE void dc_pack(const dc_tile<R> &t, int first, void *act, const dc_thread_index &at) {
    if (FAST) {
        dc_pack_fast<R, R, NT>(t, first, 0, act, at);
        return;
    }
    dc_pack_exact<R, NT>(t, first, static_cast<float *>(act), at);
    dc_before_any_bulk();
}

/* ---- Filling a tile ---- */

/* COUNT channels from `first` of a product's result, `QUADS` quads of rows from `quad0` on; channels from `end` on are
 * zero. */
template <int R, int NT, int COUNT, int QUADS>
DC_DEVICE void dc_fill_sum(dc_tile<R> &t, const dc_sum &s, int first, int end, int quad0, const dc_thread_index &at) {
#pragma unroll 1
    for (int i = at.thread; i < COUNT * QUADS; i += NT) {
        const int channel = i / QUADS, quad = quad0 + i % QUADS;
        float4 y = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (first + channel < end) y = dc_output<R>(s, first + channel, quad);
        float *to = &t.v[channel][4 * quad];
        to[0] = y.x, to[1] = y.y, to[2] = y.z, to[3] = y.w;
    }
}

/* A thread's values of 64 channels of all rows: value e is channel dc_channel(e), row dc_row(e). */
template <int R, int NT> struct dc_share {
    enum { EACH = DC_ITEM_CHANNELS * R / NT };
    float v[EACH];
    static __device__ __forceinline__ int channel(int thread, int e) { return (thread + e * NT) % DC_ITEM_CHANNELS; }
    static __device__ __forceinline__ int row(int thread, int e) { return (thread + e * NT) / DC_ITEM_CHANNELS; }
};

/* Rows of x; rows past `rows` and channels past n are zero. */
template <int R, int NT>
DC_DEVICE void dc_load_rows(dc_share<R, NT> &s, const float *x, int rows, int first, int n, const dc_thread_index &at) {
#pragma unroll
    for (int e = 0; e < dc_share<R, NT>::EACH; e++) {
        const int channel = s.channel(at.thread, e), row = s.row(at.thread, e);
        s.v[e] = row < rows && first + channel < n ? __ldcg(x + (size_t)row * n + first + channel) : 0.0f;
    }
}

template <int R, int NT> DC_DEVICE void dc_put(dc_tile<R> &t, const dc_share<R, NT> &s, const dc_thread_index &at) {
#pragma unroll
    for (int e = 0; e < dc_share<R, NT>::EACH; e++) t.v[s.channel(at.thread, e)][s.row(at.thread, e)] = s.v[e];
}

/* ---- Norms ---- */

/* One segment of the canonical sum of squares of a row of a tile: 64 channels, zeros where there are none. */
template <int R> DC_DEVICE float dc_squares(const dc_tile<R> &t, int row, int first) {
    float s = 0.0f;
#pragma unroll 8
    for (int c = 0; c < DC_ITEM_CHANNELS; c++) s = fmaf(t.v[first + c][row], t.v[first + c][row], s);
    return s + 0.0f;
}

/* scale[row] = 1 / sqrt(mean + eps) from the segments' sums, which every block adds up for itself: some threads a row,
 * each with whole subtrees of a binary tree of 128 leaves. */
template <int R, int NT>
DC_DEVICE void dc_scales(dc_epilogue_memory<R> &m, const float *ss, int n, float eps, const dc_thread_index &at) {
    enum { SHARES = NT / R, LEAVES = DC_MOST_SEGMENTS / SHARES };
    const int segments = (n + DC_ITEM_CHANNELS - 1) / DC_ITEM_CHANNELS, row = at.thread / SHARES,
              first = at.thread % SHARES * LEAVES;
    float sum[LEAVES];
#pragma unroll
    for (int i = 0; i < LEAVES; i++) sum[i] = first + i < segments ? __ldcg(ss + (first + i) * R + row) : 0.0f;
#pragma unroll
    for (int width = 1; width < LEAVES; width *= 2)
#pragma unroll
        for (int i = 0; i < LEAVES; i += 2 * width) sum[i] = sum[i] + sum[i + width];
    float total = sum[0];
#pragma unroll
    for (int step = 1; step < SHARES; step *= 2) total = total + __shfl_xor_sync(0xffffffffu, total, step);
    if (first == 0) m.scale[row] = 1.0f / sqrtf(total / (float)n + eps);
    dc_sync<NT>();
}

/* ---- Convolution ---- */

/* The dynamic kernels that channels [first, first + 64) meet: dyn[tap * groups + g][row]. */
template <int R, int NT>
DC_DEVICE void dc_fill_dyn(dc_epilogue_memory<R> &m, const dc_frame &f, const dc_phase &p, int first,
                           const dc_thread_index &at) {
    enum { QUADS = R / 4 };
    const int last = min(first + DC_ITEM_CHANNELS, p.n) - 1, g0 = first / f.conv_group,
              groups = last / f.conv_group - g0 + 1;
#pragma unroll 1
    for (int i = at.thread; i < f.taps * groups * QUADS; i += NT) { /* once, but for very small groups */
        const int quad = i % QUADS, at_dyn = i / QUADS, tap = at_dyn / groups, g = at_dyn % groups;
        const float4 y = dc_output<R>(p.dyn, (p.half * f.taps + tap) * f.conv_groups + g0 + g, quad);
        float *to = &m.dyn[at_dyn][4 * quad];
        to[0] = y.x, to[1] = y.y, to[2] = y.z, to[3] = y.w;
    }
}

template <int R, int NT>
DC_DEVICE float dc_convolved(const dc_epilogue_memory<R> &m, const dc_frame &f, const dc_phase &p, int first,
                             int channel, int row) {
    const int c = first + channel, g0 = first / f.conv_group;
    const int groups = (min(first + DC_ITEM_CHANNELS, p.n) - 1) / f.conv_group - g0 + 1;
    float y = 0.0f;
#pragma unroll 1
    for (int tap = 0; tap < f.taps && tap <= row; tap++) {
        const float x = m.tile.v[channel][row - tap];
        y = fmaf(p.base[(size_t)tap * p.n + c], x, y);
        y = fmaf(m.dyn[tap * groups + c / f.conv_group - g0][row], x, y);
    }
    return y;
}

/* ---- The phases ---- */

/* For the layers: the first key that each row sees, and the end. Positions increase, so both are counts. The last block
 * begins: the first ones have DC_LOAD's rows to bring. */
template <int R, int NT>
DC_DEVICE void dc_seen(dc_epilogue_memory<R> &m, const dc_frame &f, const dc_thread_index &at) {
    for (int work_item = at.blocks - 1 - at.block; work_item < f.layers * R; work_item += at.blocks) {
        const int layer = work_item / R, row = work_item % R < f.rows ? work_item % R : 0;
        const int window = f.visibility[layer].window, causal = f.visibility[layer].causal;
        const long long pos = f.pos[f.keys - f.rows + row];
        const long long least = window > 0 ? pos - window + 1 : 0;
        const long long most = causal ? pos : window > 0 ? pos + window - 1 : 0x7fffffffLL;
        int low = 0, high = 0;
        enum { BATCH = 8 };
        for (int key = at.thread; key < f.keys; key += BATCH * NT) {
            int32_t p[BATCH];
#pragma unroll
            for (int i = 0; i < BATCH; i++) p[i] = key + i * NT < f.keys ? f.pos[key + i * NT] : 0x7fffffff;
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                low += p[i] < least;
                high += key + i * NT < f.keys && p[i] <= most;
            }
        }
        int *count = reinterpret_cast<int *>(m.scale);
        if (at.thread < 2) count[at.thread] = 0;
        dc_sync<NT>();
        atomicAdd(&count[0], low);
        atomicAdd(&count[1], high);
        dc_sync<NT>();
        if (at.thread < 2) f.seen[(layer * 2 + at.thread) * R + work_item % R] = count[at.thread];
        dc_sync<NT>();
    }
}

/* DC_LOAD and DC_RESIDUAL: rows of the stream, and the sums of squares that the next norm needs. */
template <int R, int NT>
DC_DEVICE void dc_stream(dc_epilogue_memory<R> &m, const dc_frame &f, const dc_phase &p, const dc_thread_index &at) {
    for (int work_item = at.block; work_item * DC_ITEM_CHANNELS < p.n; work_item += at.blocks) {
        const int first = work_item * DC_ITEM_CHANNELS, last = min(first + DC_ITEM_CHANNELS, p.n);
        const bool convolved = p.dyn.partial != nullptr;
        dc_share<R, NT> x;
        dc_load_rows<R, NT>(x, p.x, p.x != nullptr ? f.rows : 0, first, p.n, at);
        if (p.kind == DC_RESIDUAL) {
            dc_fill_sum<R, NT, DC_ITEM_CHANNELS, R / 4>(m.tile, p.a, first, p.n, 0, at);
            if (convolved) dc_fill_dyn<R, NT>(m, f, p, first, at);
        }
        dc_put<R, NT>(m.other, x, at); /* each thread's own values again below */
        dc_sync<NT>();
#pragma unroll 1
        for (int i = at.thread; i < DC_ITEM_CHANNELS * R; i += NT) {
            const int channel = i % DC_ITEM_CHANNELS, row = i / DC_ITEM_CHANNELS;
            if (row >= f.rows || first + channel >= last) continue;
            float y = m.other.v[channel][row];
            if (p.kind == DC_RESIDUAL)
                y = y + (convolved ? dc_convolved<R, NT>(m, f, p, first, channel, row) : m.tile.v[channel][row]);
            p.y[(size_t)row * p.n + first + channel] = y;
            m.other.v[channel][row] = y;
        }
        dc_sync<NT>();
        if (at.thread < R) f.ss[work_item * R + at.thread] = dc_squares<R>(m.other, at.thread, 0);
        dc_sync<NT>();
    }
}

/* DC_NORM, DC_CONV, DC_FINAL: weight * (x * scale), then packed, convolved and packed, or stored for the caller. */
template <int R, int NT, bool FAST>
DC_DEVICE void dc_norm(dc_epilogue_memory<R> &m, const dc_frame &f, const dc_phase &p, const dc_thread_index &at) {
    bool scaled = false;
    for (int work_item = at.block; work_item * DC_ITEM_CHANNELS < p.n; work_item += at.blocks) {
        const int first = work_item * DC_ITEM_CHANNELS;
        dc_share<R, NT> x, w;
        dc_load_rows<R, NT>(x, p.x, f.rows, first, p.n, at);
#pragma unroll
        for (int e = 0; e < dc_share<R, NT>::EACH; e++) {
            const int c = first + w.channel(at.thread, e);
            w.v[e] = c < p.n ? __ldg(p.weight + c) : 0.0f;
        }
        if (p.kind == DC_CONV) dc_fill_dyn<R, NT>(m, f, p, first, at);
        if (!scaled) dc_scales<R, NT>(m, f.ss, p.n, f.eps, at);
        scaled = true;
#pragma unroll
        for (int e = 0; e < dc_share<R, NT>::EACH; e++) {
            const int row = x.row(at.thread, e);
            x.v[e] = row < f.rows ? w.v[e] * (x.v[e] * m.scale[row]) : 0.0f;
            if (p.kind == DC_FINAL && row < f.rows && first + x.channel(at.thread, e) < p.n)
                p.y[(size_t)row * p.n + first + x.channel(at.thread, e)] = x.v[e];
        }
        if (p.kind == DC_FINAL) continue;
        dc_put<R, NT>(m.tile, x, at);
        dc_sync<NT>();
        if (p.kind == DC_CONV) {
#pragma unroll 1
            for (int i = at.thread; i < DC_ITEM_CHANNELS * R; i += NT) {
                const int channel = i % DC_ITEM_CHANNELS, row = i / DC_ITEM_CHANNELS;
                m.other.v[channel][row] =
                    first + channel < p.n ? dc_convolved<R, NT>(m, f, p, first, channel, row) : 0.0f;
            }
            dc_sync<NT>();
        }
        dc_pack<R, NT, FAST>(p.kind == DC_CONV ? m.other : m.tile, first, f.act, at);
        dc_sync<NT>();
    }
}

/* DC_COPY: activations as they are. */
template <int R, int NT, bool FAST>
DC_DEVICE void dc_copy(dc_epilogue_memory<R> &m, const dc_frame &f, const dc_phase &p, const dc_thread_index &at) {
    for (int work_item = at.block; work_item * DC_ITEM_CHANNELS < p.n; work_item += at.blocks) {
        dc_share<R, NT> x;
        dc_load_rows<R, NT>(x, p.x != nullptr ? p.x : f.input, f.rows, work_item * DC_ITEM_CHANNELS, p.n, at);
        dc_put<R, NT>(m.tile, x, at);
        dc_sync<NT>();
        dc_pack<R, NT, FAST>(m.tile, work_item * DC_ITEM_CHANNELS, f.act, at);
        dc_sync<NT>();
    }
}

/* DC_SILU, fast (exact: epilogue_exact.cuh): silu(gate) * up. A work item has as many channels as a sum of gate or up
 * for each thread; a block takes as many work items at once as a tile has room for. */
template <int R, int NT>
DC_DEVICE void dc_gate(dc_epilogue_memory<R> &m, const dc_frame &f, const dc_phase &p, const dc_thread_index &at) {
    enum { CHANNELS = 2 * NT / R, WORK_ITEMS = DC_MOST_HEAD / CHANNELS, PIECES = CHANNELS * R / 4, QUADS = R / 4 };
    const int work_items = (p.n + DC_ITEM_CHANNELS - 1) / DC_ITEM_CHANNELS * DC_ITEM_CHANNELS / CHANNELS,
              i = at.thread % (NT / 2);
    const bool up = at.thread >= NT / 2;
    for (int work_item0 = at.block; work_item0 < work_items; work_item0 += WORK_ITEMS * at.blocks) {
        const int here = min((work_items - work_item0 + at.blocks - 1) / at.blocks, (int)WORK_ITEMS);
#pragma unroll 1
        for (int u = 0; u < here; u++) {
            const int first = (work_item0 + u * at.blocks) * CHANNELS, channel = i / QUADS, quad = i % QUADS;
            const float4 y = first + channel < p.n ? dc_output<R>(up ? p.b : p.a, first + channel, quad)
                                                   : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            float *to = (up ? m.other : m.tile).v[u * CHANNELS + channel] + 4 * quad;
            to[0] = y.x, to[1] = y.y, to[2] = y.z, to[3] = y.w;
        }
        dc_sync<NT>();
        for (int at_value = at.thread; at_value < here * CHANNELS * R; at_value += NT) {
            float *v = &m.tile.v[at_value / R][at_value % R];
            *v = df_silu(*v) * m.other.v[at_value / R][at_value % R];
        }
        dc_sync<NT>();
        for (int piece = at.thread; piece < here * PIECES; piece += NT) {
            const int u = piece / PIECES;
            dc_pack_piece<R, R>(m.tile, u * CHANNELS, (work_item0 + u * at.blocks) * CHANNELS, 0, piece % PIECES,
                                f.act);
        }
        dc_before_any_bulk();
        dc_sync<NT>();
    }
}

/* DC_STORE: rows for the caller. */
template <int R, int NT>
DC_DEVICE void dc_store_result(dc_epilogue_memory<R> &m, const dc_frame &f, const dc_phase &p,
                               const dc_thread_index &at) {
    for (int work_item = at.block; work_item * DC_ITEM_CHANNELS < p.n; work_item += at.blocks) {
        const int first = work_item * DC_ITEM_CHANNELS;
        dc_fill_sum<R, NT, DC_ITEM_CHANNELS, R / 4>(m.tile, p.a, first, p.n, 0, at);
        dc_sync<NT>();
        for (int i = at.thread; i < DC_ITEM_CHANNELS * f.rows; i += NT) {
            const int channel = i % DC_ITEM_CHANNELS, row = i / DC_ITEM_CHANNELS;
            if (first + channel < p.n) p.y[(size_t)row * p.n + first + channel] = m.tile.v[channel][row];
        }
        dc_sync<NT>();
    }
}

/* A head of a product's result and where its rows go, `width` apart. */
struct dc_head {
    dc_sum sum;
    const float *norm; /* NULL: a value, neither normed nor rotated */
    float *to;
    int index, width;
};

/* Head `any` of DC_QKV: the queries', the keys', the values'. Keys and values follow the context in the cache. */
DC_DEVICE dc_head dc_head_of_block(const dc_frame &f, const dc_phase &p, int any) {
    const int hd = f.head_dim, queries = f.n_heads, keys = f.n_kv_heads;
    if (any < queries) return dc_head{p.a, p.weight, f.q + any * hd, any, queries * hd};
    const bool value = any >= queries + keys;
    const int index = value ? any - queries - keys : any - queries;
    float *to = (value ? p.v : p.k) + (size_t)(f.keys - f.rows) * (keys * hd) + index * hd;
    return dc_head{value ? p.c : p.b, value ? nullptr : p.weight2, to, index, keys * hd};
}

/* Head `any` of DC_CACHE: layer by layer, the keys', the values'. */
DC_DEVICE dc_head dc_head_of_cache(const dc_frame &f, const dc_phase &p, int any) {
    const int hd = f.head_dim, keys = f.n_kv_heads, layer = p.layer + any / (2 * keys), index = any % keys;
    const bool value = any % (2 * keys) >= keys;
    const dc_cached &c = f.cached[layer];
    float *to = (value ? f.cache_v : f.cache_k) + (size_t)layer * f.layer_stride + index * hd;
    return dc_head{value ? c.v : c.k, value ? nullptr : c.norm, to, index, keys * hd};
}

/* DC_QKV, DC_CACHE: some rows of a head at a time. Queries and keys are normed over the head and rotated. */
template <int R, int NT>
DC_DEVICE void dc_heads(dc_epilogue_memory<R> &m, const dc_frame &f, const dc_phase &p, const dc_thread_index &at) {
    enum { QUADS = NT / DC_MOST_HEAD < R / 4 ? NT / DC_MOST_HEAD : R / 4, ROWS = 4 * QUADS, SHARES = R / ROWS };
    const int hd = f.head_dim, half = f.rotary_half;
    const int heads = p.kind == DC_CACHE ? 2 * f.n_kv_heads * p.n : f.n_heads + 2 * f.n_kv_heads;
    for (int work_item = at.block; work_item < heads * SHARES; work_item += at.blocks) {
        const int any = work_item % heads, row0 = work_item / heads * ROWS, rows = min(f.rows - row0, (int)ROWS);
        if (rows <= 0) continue;
        const dc_head h = p.kind == DC_CACHE ? dc_head_of_cache(f, p, any) : dc_head_of_block(f, p, any);
        const bool value = h.norm == nullptr;
        float *to = h.to + (size_t)row0 * h.width;
        float w = 0.0f;
        float2 angle[(ROWS * (DC_MOST_HEAD / 2) + NT - 1) / NT];
        if (!value) {
            if (at.thread < hd) w = h.norm[at.thread];
#pragma unroll
            for (int e = 0; e < (ROWS * (DC_MOST_HEAD / 2) + NT - 1) / NT; e++) {
                const int i = at.thread + e * NT;
                if (i < rows * half) angle[e] = make_float2(f.cos[row0 * half + i], f.sin[row0 * half + i]);
            }
        }
        dc_fill_sum<R, NT, DC_MOST_HEAD, QUADS>(m.tile, h.sum, h.index * hd, (h.index + 1) * hd, row0 / 4, at);
        if (!value) {
            if (at.thread < hd) m.weight[at.thread] = w;
#pragma unroll
            for (int e = 0; e < (ROWS * (DC_MOST_HEAD / 2) + NT - 1) / NT; e++)
                if (at.thread + e * NT < rows * half) m.angle[at.thread + e * NT] = angle[e];
        }
        dc_sync<NT>();
        if (!value) {
            if (at.thread < 2 * ROWS) { /* two threads a row, one for each segment of the head */
                const int row = row0 + at.thread / 2, from = at.thread % 2 * DC_ITEM_CHANNELS;
                float s = dc_squares<R>(m.tile, row, from);
                s = s + __shfl_xor_sync(__activemask(), s, 1);
                m.scale[row] = 1.0f / sqrtf(s / (float)hd + f.eps);
            }
            dc_sync<NT>();
        }
#pragma unroll 1
        for (int i = at.thread; i < hd * rows; i += NT) {
            const int c = i % hd, row = i / hd;
            float y = m.tile.v[c][row0 + row];
            if (!value) {
                y = m.weight[c] * (y * m.scale[row0 + row]);
                if (c < 2 * half) {
                    const int other = c < half ? c + half : c - half;
                    const float2 angle = m.angle[row * half + (c < half ? c : c - half)];
                    const float z = m.weight[other] * (m.tile.v[other][row0 + row] * m.scale[row0 + row]);
                    y = c < half ? fmaf(y, angle.x, -(z * angle.y)) : fmaf(y, angle.x, z * angle.y);
                }
            }
            to[(size_t)row * h.width + c] = y;
        }
        dc_before_any_bulk(); /* the fast class reads keys and values by bulk copies */
        dc_sync<NT>();
    }
}

#endif
