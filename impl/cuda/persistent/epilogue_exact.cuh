/*
 * epilogue_exact.cuh - the exact class's phases that read many sums, spread over all blocks.
 *
 * What such a phase takes is its loads' way to memory and back, so LANES neighbouring threads share a sum: each adds up
 * aligned runs of 16 of its terms and the runs' sums meet by shuffles, which is the tree of canon.h. The fast class's
 * phases of the same names are in epilogue.cuh and attend_fast.cuh.
 */
#ifndef DF_CUDA_FINISH_EXACT_CUH
#define DF_CUDA_FINISH_EXACT_CUH

#include "cuda/persistent/attend.cuh"
#include "cuda/persistent/bulk.cuh"

DC_DEVICE float4 dc_shuffled(float4 v, int mask) {
    return make_float4(__shfl_xor_sync(0xffffffffu, v.x, mask), __shfl_xor_sync(0xffffffffu, v.y, mask),
                       __shfl_xor_sync(0xffffffffu, v.z, mask), __shfl_xor_sync(0xffffffffu, v.w, mask));
}
DC_DEVICE float dc_shuffled(float v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
DC_DEVICE void dc_fetch(float4 &v, const float *at) { v = dc_load4(at); }
DC_DEVICE void dc_fetch(float &v, const float *at) { v = __ldcg(at); }
DC_DEVICE void dc_clear(float4 &v) { v = make_float4(0.0f, 0.0f, 0.0f, 0.0f); }
DC_DEVICE void dc_clear(float &v) { v = 0.0f; }

/* dc_sum_quads by LANES threads, which all get the sum. Whole warps call it, with the same `first` and `count`. MOST
 * terms behind the aligned start: the round after those would carry out of the counter and be lost. */
template <int LANES> struct dc_lanes {
    enum { CHUNK = 16, ROUND = CHUNK * LANES, SLOTS = LANES == 4 ? 5 : 6, MOST = ((1 << SLOTS) - 1) * ROUND };
};
template <int LANES, typename T>
DC_DEVICE T dc_sum_lanes(const float *at, unsigned stride, int first, int count, int lane) {
    enum { CHUNK = dc_lanes<LANES>::CHUNK, ROUND = dc_lanes<LANES>::ROUND, SLOTS = dc_lanes<LANES>::SLOTS };
    T zero;
    dc_clear(zero);
    dc_counter<SLOTS, T> tree;
#pragma unroll
    for (int b = 0; b < SLOTS; b++) tree.slot[b] = zero;
    const int base = first & ~((ROUND << (SLOTS - 1)) - 1), end = first + count;
    int round = (first - base) / ROUND;
#pragma unroll 1
    for (; base + round * ROUND < end; round++) {
        T v[CHUNK];
#pragma unroll
        for (int i = 0; i < CHUNK; i++) {
            const int n = base + round * ROUND + lane * CHUNK + i;
            dc_clear(v[i]);
            if (n >= first && n < end) dc_fetch(v[i], at + (size_t)(unsigned)(n - first) * stride);
        }
#pragma unroll
        for (int width = 1; width < CHUNK; width *= 2)
#pragma unroll
            for (int i = 0; i < CHUNK; i += 2 * width) v[i] = dc_add(v[i], v[i + width]);
#pragma unroll
        for (int mask = 1; mask < LANES; mask *= 2) v[0] = dc_add(v[0], dc_shuffled(v[0], mask));
        tree.push(round, v[0]);
    }
    return dc_add(tree.total(round, zero), zero);
}

/* DC_CONTEXT: act = sum of the segments / sum of the exponentials. A block takes NT / R channels at a time, four
 * threads a quad of channels of one row. */
template <int R, int NT>
DC_DEVICE void dc_context_exact(const dc_frame &f, const dc_phase &p, const dc_thread_index &at) {
    enum { LANES = 4, CHANNELS = NT / R, PAIR = 2 };
    static_assert(DC_MOST_KEY_SEGMENTS <= dc_lanes<LANES>::MOST, "the counter holds all segments of keys");
    const int hd = f.head_dim, lane = at.thread % LANES, item = at.thread / LANES;
    const int row = item / PAIR % R, channel = (item % PAIR + item / (PAIR * R) * PAIR) * 4;
    float *act = static_cast<float *>(f.act);
    for (int first = at.block * CHANNELS; first < (p.n + DC_ITEM_CHANNELS - 1) / DC_ITEM_CHANNELS * DC_ITEM_CHANNELS;
         first += at.blocks * CHANNELS) {
        const int c = first + channel, known = min(c, p.n - 4), head = known / hd;
        const size_t query = dc_query_at<R>(f, head, row);
        const float4 y = dc_sum_lanes<LANES, float4>(f.context + query * hd + known % hd, DC_QUERIES * hd,
                                                     f.first_key_segment, f.key_segments, lane);
        const float total =
            dc_sum_lanes<LANES, float>(f.total + query, DC_QUERIES, f.first_key_segment, f.key_segments, lane);
        const float mine = lane == 0 ? y.x : lane == 1 ? y.y : lane == 2 ? y.z : y.w;
        act[(size_t)(c + lane) * R + row] = c < p.n ? mine / total : 0.0f;
    }
    dc_before_bulk_reads();
}

/* DC_SILU: a pair of threads takes four rows of a channel, one sums the gate and the other the rest, two rows each. */
template <int R, int NT> DC_DEVICE void dc_silu_exact(const dc_frame &f, const dc_phase &p, const dc_thread_index &at) {
    enum { PAIR = 2, QUADS = R / 4 };
    const int items =
        (p.n + DC_ITEM_CHANNELS - 1) / DC_ITEM_CHANNELS * DC_ITEM_CHANNELS * QUADS * PAIR; /* whole warps */
    const bool second = at.thread % PAIR == 1;
    for (int i = at.block * NT + at.thread; i < items; i += at.blocks * NT) {
        const int channel = i / (PAIR * QUADS), quad = i / PAIR % QUADS;
        const float4 y = dc_output<R>(second ? p.b : p.a, min(channel, p.n - 1), quad);
        const float give0 = second ? y.x : y.z, give1 = second ? y.y : y.w;
        const float take0 = dc_shuffled(give0, 1), take1 = dc_shuffled(give1, 1);
        const float gate0 = second ? take0 : y.x, gate1 = second ? take1 : y.y;
        const float up0 = second ? y.z : take0, up1 = second ? y.w : take1;
        float2 act = make_float2(0.0f, 0.0f);
        if (channel < p.n) act = make_float2(df_silu(gate0) * up0, df_silu(gate1) * up1);
        reinterpret_cast<float2 *>(f.act)[i] = act;
    }
    dc_before_bulk_reads();
}

/* DC_RESIDUAL: a block takes four rows of 64 channels, a thread each; a convolution needs the rows before. */
template <int R, int NT>
DC_DEVICE void dc_residual_exact(dc_epilogue_memory<R> &m, const dc_frame &f, const dc_phase &p,
                                 const dc_thread_index &at) {
    enum { LANES = NT / DC_ITEM_CHANNELS, QUADS = R / 4, ROWS = 4 / LANES };
    const int channel = at.thread / LANES, lane = at.thread % LANES;
    const bool convolved = p.dyn.partial != nullptr;
    for (int work_item = at.block; work_item / QUADS * DC_ITEM_CHANNELS < p.n; work_item += at.blocks) {
        const int segment = work_item / QUADS, quad = work_item % QUADS, first = segment * DC_ITEM_CHANNELS;
        const int last = min(first + DC_ITEM_CHANNELS, p.n), known = min(first + channel, p.n - 1),
                  row0 = 4 * quad + ROWS * lane;
        float x[ROWS];
#pragma unroll
        for (int e = 0; e < ROWS; e++)
            x[e] = p.x != nullptr && row0 + e < f.rows ? __ldcg(p.x + (size_t)(row0 + e) * p.n + known) : 0.0f;
#pragma unroll 1
        for (int q = convolved ? max(4 * quad - f.taps + 1, 0) / 4 : quad; q <= quad; q++) {
            const float *from = p.a.partial + (size_t)(known / DC_TILE) * (size_t)p.a.groups * (DC_TILE * R) +
                                (size_t)(known % DC_TILE) * R + 4 * q;
            float4 y = dc_sum_lanes<LANES, float4>(from, DC_TILE * R, 0, p.a.groups, lane);
            if (p.a.bias != nullptr) {
                const float b = p.a.bias[known];
                y = dc_add(y, make_float4(b, b, b, b));
            }
            float *to = &m.tile.v[channel][4 * q];
            if (lane == 0) to[0] = y.x, to[1] = y.y, to[2] = y.z, to[3] = y.w;
        }
        if (convolved) dc_fill_dyn<R, NT>(m, f, p, first, at);
        dc_sync<NT>();
#pragma unroll
        for (int e = 0; e < ROWS; e++) {
            const int row = row0 + e;
            float y = 0.0f;
            if (row < f.rows && first + channel < last) {
                y = x[e] + (convolved ? dc_convolved<R, NT>(m, f, p, first, channel, row) : m.tile.v[channel][row]);
                p.y[(size_t)row * p.n + first + channel] = y;
            }
            m.other.v[channel][row] = y;
        }
        dc_sync<NT>();
        if (at.thread < 4) f.ss[segment * R + 4 * quad + at.thread] = dc_squares<R>(m.other, 4 * quad + at.thread, 0);
        dc_sync<NT>();
    }
}

#endif
