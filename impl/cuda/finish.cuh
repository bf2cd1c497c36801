/*
 * finish.cuh - the phases between products: sums are added up, normed, rotated, convolved, and packed as the next
 * product's activations.
 *
 * A block takes 64 channels (or one head) of all rows at a time into shared memory, tile[channel][row]. Every value is
 * the one that the plain operations compute (ops.h), rounding by rounding.
 */
#ifndef DF_CUDA_FINISH_CUH
#define DF_CUDA_FINISH_CUH

#include "cuda/device.cuh"

#include <cuda_bf16.h>

/* Where a thread stands: `thread` of `threads` that work on phases in this block, block of blocks. */
struct dc_place {
    int thread, threads, block, blocks;
};

template <int R> struct dc_tile {
    float v[DC_MOST_HEAD][R + 1];
};

template <int R> struct dc_finish_memory {
    dc_tile<R> tile, other;
    float scale[R];
    float node[DC_MOST_SEGMENTS][R];
    float dyn[DC_MOST_DYN][R];
};

/* ---- Packing ---- */

/* Exact: act[channel][row]. */
template <int R> DC_DEVICE void dc_pack_exact(const dc_tile<R> &t, int first, float *act, const dc_place &at) {
    for (int i = at.thread; i < DC_UNIT * R; i += at.threads) act[(size_t)first * R + i] = t.v[i / R][i % R];
}

/*
 * Fast: each value as hi + lo, hi = bf16(x), lo = bf16(x - hi), laid out as the B operand of mma.m16n8k16: for 16
 * channels and 8 rows, lane 4 g + t holds row g, channels 2t, 2t + 1, 2t + 8, 2t + 9 as hi, then as lo: 16 bytes.
 */
template <int R> DC_DEVICE void dc_pack_fast(const dc_tile<R> &t, int first, void *act, const dc_place &at) {
    enum { LANES = 32, TILES = R / 8, PIECES = DC_UNIT / 16 * TILES * LANES };
    for (int i = at.thread; i < PIECES; i += at.threads) {
        const int lane = i % LANES, tile = i / LANES % TILES, step = i / LANES / TILES;
        const int row = tile * 8 + lane / 4, channel = step * 16 + lane % 4 * 2;
        unsigned word[4];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float a = t.v[channel + 8 * half][row], b = t.v[channel + 8 * half + 1][row];
            const __nv_bfloat16 ah = __float2bfloat16_rn(a), bh = __float2bfloat16_rn(b);
            const __nv_bfloat16 al = __float2bfloat16_rn(a - __bfloat162float(ah));
            const __nv_bfloat16 bl = __float2bfloat16_rn(b - __bfloat162float(bh));
            word[half] = (unsigned)__bfloat16_as_ushort(ah) | (unsigned)__bfloat16_as_ushort(bh) << 16;
            word[2 + half] = (unsigned)__bfloat16_as_ushort(al) | (unsigned)__bfloat16_as_ushort(bl) << 16;
        }
        uint4 *to = reinterpret_cast<uint4 *>(act) + (size_t)(first / 16) * TILES * LANES + i;
        *to = make_uint4(word[0], word[1], word[2], word[3]);
    }
}

template <int R, bool FAST> DC_DEVICE void dc_pack(const dc_tile<R> &t, int first, void *act, const dc_place &at) {
    if (FAST)
        dc_pack_fast<R>(t, first, act, at);
    else
        dc_pack_exact<R>(t, first, static_cast<float *>(act), at);
}

/* ---- Filling a tile ---- */

/* Channels [first, first + count) of a product's result; those past n are zero. */
template <int R>
DC_DEVICE void dc_fill_sum(dc_tile<R> &t, const dc_sum &s, int first, int count, int n, const dc_place &at) {
    enum { QUADS = R / 4 };
    for (int i = at.thread; i < count * QUADS; i += at.threads) {
        const int channel = i / QUADS, quad = i % QUADS;
        float4 y = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (first + channel < n) y = dc_output<R>(s, first + channel, quad);
        float *to = &t.v[channel][4 * quad];
        to[0] = y.x, to[1] = y.y, to[2] = y.z, to[3] = y.w;
    }
}

/* Channels of rows of x; rows past `rows` and channels past n are zero. */
template <int R>
DC_DEVICE void dc_fill_rows(dc_tile<R> &t, const float *x, int rows, int first, int n, const dc_place &at) {
    for (int i = at.thread; i < DC_UNIT * R; i += at.threads) {
        const int channel = i % DC_UNIT, row = i / DC_UNIT;
        t.v[channel][row] = row < rows && first + channel < n ? __ldcg(x + (size_t)row * n + first + channel) : 0.0f;
    }
}

/* A tile of weight * (x * scale). */
template <int R>
DC_DEVICE void dc_fill_normed(dc_tile<R> &t, const dc_phase &p, const float *scale, int rows, int first,
                              const dc_place &at) {
    for (int i = at.thread; i < DC_UNIT * R; i += at.threads) {
        const int channel = i % DC_UNIT, row = i / DC_UNIT;
        float y = 0.0f;
        if (row < rows && first + channel < p.n)
            y = p.weight[first + channel] * (__ldcg(p.x + (size_t)row * p.n + first + channel) * scale[row]);
        t.v[channel][row] = y;
    }
}

/* ---- Norms ---- */

/* One segment of the canonical sum of squares of each row of a tile: channels [first, last). */
template <int R> DC_DEVICE float dc_squares(const dc_tile<R> &t, int row, int first, int last) {
    float s = 0.0f;
#pragma unroll 16
    for (int c = first; c < last; c++) s = fmaf(t.v[c][row], t.v[c][row], s);
    return s + 0.0f;
}

/* scale[row] = 1 / sqrt(mean + eps) from the segments' sums, which every block adds up for itself. */
template <int R> DC_DEVICE void dc_scales(dc_finish_memory<R> &m, const float *ss, int n, float eps, const dc_place &at) {
    const int segments = (n + DC_UNIT - 1) / DC_UNIT;
    for (int i = at.thread; i < segments * R; i += at.threads) m.node[i / R][i % R] = __ldcg(ss + i);
    dc_sync(at.threads);
    if (at.thread < 4 * R) { /* four threads a row: whole quarters of a binary tree of 128 leaves, then their nodes */
        const int row = at.thread / 4, quarter = at.thread % 4;
        enum { LEAVES = DC_MOST_SEGMENTS / 4 };
        float v = dc_tree<3>(0, LEAVES, 0.0f, [&](int i) {
            return quarter * LEAVES + i < segments ? m.node[quarter * LEAVES + i][row] : 0.0f;
        });
        const unsigned lanes = __activemask();
        v = v + __shfl_xor_sync(lanes, v, 1);
        v = v + __shfl_xor_sync(lanes, v, 2);
        if (quarter == 0) m.scale[row] = 1.0f / sqrtf(v / (float)n + eps);
    }
    dc_sync(at.threads);
}

/* ---- Convolution ---- */

/* The dynamic kernels that channels [first, first + 64) meet: dyn[tap * groups + g][row]. */
template <int R>
DC_DEVICE void dc_fill_dyn(dc_finish_memory<R> &m, const dc_frame &f, const dc_phase &p, int first, const dc_place &at) {
    enum { QUADS = R / 4 };
    const int last = min(first + DC_UNIT, p.n) - 1, g0 = first / f.conv_group, groups = last / f.conv_group - g0 + 1;
    for (int i = at.thread; i < f.taps * groups * QUADS; i += at.threads) {
        const int quad = i % QUADS, at_dyn = i / QUADS, tap = at_dyn / groups, g = at_dyn % groups;
        const float4 y = dc_output<R>(p.dyn, (p.half * f.taps + tap) * f.conv_groups + g0 + g, quad);
        float *to = &m.dyn[at_dyn][4 * quad];
        to[0] = y.x, to[1] = y.y, to[2] = y.z, to[3] = y.w;
    }
}

template <int R>
DC_DEVICE float dc_convolved(const dc_finish_memory<R> &m, const dc_frame &f, const dc_phase &p, int first, int channel,
                             int row) {
    const int c = first + channel, g0 = first / f.conv_group;
    const int groups = (min(first + DC_UNIT, p.n) - 1) / f.conv_group - g0 + 1;
    float y = 0.0f;
    for (int tap = 0; tap < f.taps && tap <= row; tap++) {
        const float x = m.tile.v[channel][row - tap];
        y = fmaf(p.base[(size_t)tap * p.n + c], x, y);
        y = fmaf(m.dyn[tap * groups + c / f.conv_group - g0][row], x, y);
    }
    return y;
}

/* ---- The phases ---- */

/* For the layers: the first key that each row sees, and the end. */
template <int R> DC_DEVICE void dc_seen(const dc_frame &f, const dc_phase *phase, const dc_place &at) {
    for (int i = at.thread + at.block * at.threads; i < f.layers * R; i += at.threads * at.blocks) {
        const int layer = i / R, row = i % R < f.rows ? i % R : 0;
        int window = 0, causal = 0;
        for (int j = 0; j < f.phases; j++)
            if (phase[j].kind == DC_SCORES && phase[j].layer == layer) window = phase[j].window, causal = phase[j].causal;
        const long long pos = f.pos[f.keys - f.rows + row];
        const long long least = window > 0 ? pos - window + 1 : 0;
        const long long most = causal ? pos : window > 0 ? pos + window - 1 : 0x7fffffffLL;
        int low = 0, high = f.keys;
        for (int end = f.keys; low < end;) { /* the first key at or beyond the least position */
            const int middle = (low + end) / 2;
            if (f.pos[middle] < least)
                low = middle + 1;
            else
                end = middle;
        }
        for (int start = low; start < high;) { /* the first key beyond the last one */
            const int middle = (start + high) / 2;
            if (f.pos[middle] <= most)
                start = middle + 1;
            else
                high = middle;
        }
        f.seen[(layer * 2) * R + i % R] = low;
        f.seen[(layer * 2 + 1) * R + i % R] = high;
    }
}

/* DC_LOAD and DC_RESIDUAL: rows of the stream, and the sums of squares that the next norm needs. */
template <int R>
DC_DEVICE void dc_stream(dc_finish_memory<R> &m, const dc_frame &f, const dc_phase &p, const dc_place &at) {
    for (int unit = at.block; unit * DC_UNIT < p.n; unit += at.blocks) {
        const int first = unit * DC_UNIT, last = min(first + DC_UNIT, p.n);
        if (p.kind == DC_RESIDUAL) {
            dc_fill_sum<R>(m.tile, p.a, first, DC_UNIT, p.n, at);
            if (p.dyn.partial != nullptr) dc_fill_dyn<R>(m, f, p, first, at);
            dc_sync(at.threads);
        }
        for (int i = at.thread; i < DC_UNIT * R; i += at.threads) {
            const int channel = i % DC_UNIT, row = i / DC_UNIT;
            const size_t index = (size_t)row * p.n + first + channel;
            float y = 0.0f;
            if (row < f.rows && first + channel < last) {
                y = __ldcg(p.x + index);
                if (p.kind == DC_RESIDUAL)
                    y = y + (p.dyn.partial != nullptr ? dc_convolved<R>(m, f, p, first, channel, row)
                                                      : m.tile.v[channel][row]);
                p.y[index] = y;
            }
            m.other.v[channel][row] = y;
        }
        dc_sync(at.threads);
        if (at.thread < R) f.ss[unit * R + at.thread] = dc_squares<R>(m.other, at.thread, 0, last - first);
        dc_sync(at.threads);
    }
}

/* DC_NORM, DC_CONV, DC_COPY, DC_SILU: activations. */
template <int R, bool FAST>
DC_DEVICE void dc_activate(dc_finish_memory<R> &m, const dc_frame &f, const dc_phase &p, const dc_place &at) {
    if ((p.kind == DC_NORM || p.kind == DC_CONV) && at.block * DC_UNIT < p.n) dc_scales<R>(m, f.ss, p.n, f.eps, at);
    for (int unit = at.block; unit * DC_UNIT < p.n; unit += at.blocks) {
        const int first = unit * DC_UNIT;
        dc_tile<R> *out = &m.tile;
        switch (p.kind) {
        case DC_NORM:
            dc_fill_normed<R>(m.tile, p, m.scale, f.rows, first, at);
            break;
        case DC_CONV:
            dc_fill_normed<R>(m.tile, p, m.scale, f.rows, first, at);
            dc_fill_dyn<R>(m, f, p, first, at);
            dc_sync(at.threads);
            for (int i = at.thread; i < DC_UNIT * R; i += at.threads) {
                const int channel = i % DC_UNIT, row = i / DC_UNIT;
                m.other.v[channel][row] =
                    first + channel < p.n ? dc_convolved<R>(m, f, p, first, channel, row) : 0.0f;
            }
            out = &m.other;
            break;
        case DC_COPY:
            dc_fill_rows<R>(m.tile, p.x, f.rows, first, p.n, at);
            break;
        default:
            dc_fill_sum<R>(m.tile, p.a, first, DC_UNIT, p.n, at);
            dc_fill_sum<R>(m.other, p.b, first, DC_UNIT, p.n, at);
            dc_sync(at.threads);
            for (int i = at.thread; i < DC_UNIT * R; i += at.threads) {
                float *v = &m.tile.v[i / R][i % R];
                *v = df_silu(*v) * m.other.v[i / R][i % R];
            }
        }
        dc_sync(at.threads);
        dc_pack<R, FAST>(*out, first, f.act, at);
        dc_sync(at.threads);
    }
}

/* DC_FINAL and DC_STORE: rows for the caller. */
template <int R>
DC_DEVICE void dc_deliver(dc_finish_memory<R> &m, const dc_frame &f, const dc_phase &p, const dc_place &at) {
    if (p.kind == DC_FINAL && at.block * DC_UNIT < p.n) dc_scales<R>(m, f.ss, p.n, f.eps, at);
    for (int unit = at.block; unit * DC_UNIT < p.n; unit += at.blocks) {
        const int first = unit * DC_UNIT;
        if (p.kind == DC_FINAL)
            dc_fill_normed<R>(m.tile, p, m.scale, f.rows, first, at);
        else
            dc_fill_sum<R>(m.tile, p.a, first, DC_UNIT, p.n, at);
        dc_sync(at.threads);
        for (int i = at.thread; i < DC_UNIT * f.rows; i += at.threads) {
            const int channel = i % DC_UNIT, row = i / DC_UNIT;
            if (first + channel < p.n) p.y[(size_t)row * p.n + first + channel] = m.tile.v[channel][row];
        }
        dc_sync(at.threads);
    }
}

/* DC_QKV: a head at a time. Queries and keys are normed over the head and rotated; keys and values go to the rows of the
 * cache that follow the context. */
template <int R>
DC_DEVICE void dc_heads(dc_finish_memory<R> &m, const dc_frame &f, const dc_phase &p, const dc_place &at) {
    const int hd = f.head_dim, heads = f.n_heads + 2 * f.n_kv_heads, segments = (hd + DC_UNIT - 1) / DC_UNIT;
    for (int unit = at.block; unit < heads; unit += at.blocks) {
        const bool query = unit < f.n_heads, value = unit >= f.n_heads + f.n_kv_heads;
        const int head = query ? unit : value ? unit - f.n_heads - f.n_kv_heads : unit - f.n_heads;
        const int width = query ? f.n_heads * hd : f.n_kv_heads * hd;
        dc_fill_sum<R>(m.tile, query ? p.a : value ? p.c : p.b, head * hd, hd, width, at);
        dc_sync(at.threads);
        const size_t block_row = (size_t)(f.keys - f.rows);
        if (value) {
            for (int i = at.thread; i < hd * f.rows; i += at.threads)
                p.v[(block_row + i / hd) * width + head * hd + i % hd] = m.tile.v[i % hd][i / hd];
            dc_sync(at.threads);
            continue;
        }
        const float *weight = query ? p.weight : p.weight2;
        if (at.thread < segments * R) {
            const int row = at.thread % R, segment = at.thread / R;
            m.node[segment][row] = dc_squares<R>(m.tile, row, segment * DC_UNIT, min((segment + 1) * DC_UNIT, hd));
        }
        dc_sync(at.threads);
        if (at.thread < R) {
            const float s = segments > 1 ? m.node[0][at.thread] + m.node[1][at.thread] : m.node[0][at.thread];
            m.scale[at.thread] = 1.0f / sqrtf(s / (float)hd + f.eps);
        }
        dc_sync(at.threads);
        for (int i = at.thread; i < hd * f.rows; i += at.threads) {
            const int c = i % hd, row = i / hd, half = f.rotary_half;
            float y = weight[c] * (m.tile.v[c][row] * m.scale[row]);
            if (c < 2 * half) {
                const int other = c < half ? c + half : c - half, angle = c < half ? c : c - half;
                const float cos = f.cos[row * half + angle], sin = f.sin[row * half + angle];
                const float z = weight[other] * (m.tile.v[other][row] * m.scale[row]);
                y = c < half ? fmaf(y, cos, -(z * sin)) : fmaf(y, cos, z * sin);
            }
            if (query)
                f.q[(size_t)row * width + head * hd + c] = y;
            else
                p.k[(block_row + row) * width + head * hd + c] = y;
        }
        dc_sync(at.threads);
    }
}

#endif
