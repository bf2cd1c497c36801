/*
 * product_exact.cuh - products in the canonical order at the rate of the multipliers.
 *
 * A pair of warps takes one segment of 64 input channels of 256 outputs, each half of the rows: a lane has 8 outputs
 * (lane + 32 j) of them in registers and runs the segment from left to right. The four pairs of a block take four
 * neighbouring segments, which are then folded in shared memory as the tree of canon.h has it; the second half of a
 * group of eight is added to the first's node. What a group adds is left in `partial`; the phase that reads it finishes
 * the tree.
 *
 * Each pair has a ring of its own in shared memory, which a lane of it keeps full with bulk copies: a stage is 16
 * channels (8 of f32) of the weights, laid out by pack.cu as they are read, and of the activations, which are
 * broadcast. One stage is under way while the pair works on the other: with eight pairs on a multiprocessor that is 64
 * KB, more than arrives in the time that the memory takes to answer. A stage is filled again once both warps have left
 * it; the warp that does not fill never waits for the other. Four channels are one turn of the inner loop: at R = 16,
 * 256 multiply-adds, 8 loads of activations, 8 of weights and 32 conversions, which the nearest instruction cache
 * holds.
 */
#ifndef DF_CUDA_PRODUCT_EXACT_CUH
#define DF_CUDA_PRODUCT_EXACT_CUH

#include "cuda/persistent/bulk.cuh"

#include <cuda_fp16.h>

enum {
    DC_EXACT_THREADS = 256,
    DC_EXACT_PAIRS = 4,  /* of warps */
    DC_EXACT_SHARES = 2, /* warps of a pair: each a share of the rows */
    DC_LANE_OUTPUTS = 8,
    DC_LANES_WARP = 32,
    DC_EXACT_STAGES = 2,
    DC_UNROLL = 4 /* channels of a turn of the inner loop */
};

/* A width in a stage: channels, and bytes of them for one output. */
template <int T> struct dc_width;
template <> struct dc_width<DF_F32> {
    enum { STEP = 8, BYTES = 32 };
};
template <> struct dc_width<DF_BF16> {
    enum { STEP = 16, BYTES = 32 };
};
template <> struct dc_width<DF_F16> {
    enum { STEP = 16, BYTES = 32 };
};
template <> struct dc_width<DF_Q8_0> {
    enum { STEP = 16, BYTES = 16 };
};
template <> struct dc_width<DF_Q4_0> {
    enum { STEP = 16, BYTES = 8 };
};

template <int R> struct dc_exact_stage {
    unsigned char weights[DC_TILE * 32];
    float x[16 * R];
};
/* What the next stage of a pair is filled with; segment < 0: nothing is left. In shared memory, for the products need
 * every register, and spilled ones go through an L1 that this much shared memory leaves too small. */
struct dc_feed {
    const char *weights; /* of the segment */
    int work_item, quarter, segment, step;
};
template <int R> struct dc_exact_ring {
    dc_exact_stage<R> stage[DC_EXACT_PAIRS][DC_EXACT_STAGES];
    dc_feed feed[DC_EXACT_PAIRS];
    unsigned long long full[DC_EXACT_PAIRS][DC_EXACT_STAGES], empty[DC_EXACT_PAIRS][DC_EXACT_STAGES];
};
template <int R> struct dc_exact_memory {
    enum { QUADS = 2, PLANE = DC_TILE + 4 }; /* the pad keeps both quads in different banks */
    float4 exchange[DC_EXACT_PAIRS][QUADS][PLANE];
};

/* What four channels of an output are in shared memory, and weight k of them, k a constant after unrolling; d is the
 * scale of their block. A q4_0 word has channels 0..3 of eight in the low halves of its bytes and 4..7 in the high
 * ones: `half` says which are meant. */
#define DC_WEIGHT static __device__ __forceinline__ float weight
template <int T> struct dc_four;
template <> struct dc_four<DF_F32> {
    typedef uint4 type;
    DC_WEIGHT(uint4 v, int k, int, float) { return __uint_as_float(k == 0 ? v.x : k == 1 ? v.y : k == 2 ? v.z : v.w); }
};
template <> struct dc_four<DF_BF16> {
    typedef uint2 type;
    DC_WEIGHT(uint2 v, int k, int, float) {
        const unsigned w = k < 2 ? v.x : v.y;
        return __uint_as_float(k % 2 == 0 ? w << 16 : w & 0xffff0000u);
    }
};
template <> struct dc_four<DF_F16> {
    typedef uint2 type;
    DC_WEIGHT(uint2 v, int k, int, float) {
        return __half2float(__ushort_as_half((unsigned short)((k < 2 ? v.x : v.y) >> (k % 2 * 16) & 0xffffu)));
    }
};
template <> struct dc_four<DF_Q8_0> {
    typedef unsigned type;
    DC_WEIGHT(unsigned v, int k, int, float d) { return d * (float)(int8_t)(v >> (k * 8) & 0xffu); }
};
template <> struct dc_four<DF_Q4_0> {
    typedef unsigned type;
    DC_WEIGHT(unsigned v, int k, int half, float d) { return d * (float)((int)(v >> (k * 8 + half * 4) & 15u) - 8); }
};
#undef DC_WEIGHT

/* What a pair works on: a segment of a tile; segment < 0: none. */
struct dc_work {
    const char *weights;
    const __half *scales;
    int segment;
};

template <int T> DC_DEVICE size_t dc_segment_bytes() {
    return (size_t)DC_TILE * DC_ITEM_CHANNELS / dc_width<T>::STEP * dc_width<T>::BYTES;
}

/* Pair `pair` in quarter `quarter` of work item `work_item`. Work items go tile by tile first. */
template <int T> DC_DEVICE dc_work dc_exact_work(const dc_product &p, int work_item, int quarter, int pair) {
    dc_work work = {nullptr, nullptr, -1};
    if (work_item >= p.tiles * p.groups) return work;
    int tile = work_item % p.tiles, part = 0;
    const int group = work_item / p.tiles, segment = group * p.run + quarter * DC_EXACT_RUN + pair;
    if (segment >= p.segments) return work;
    while (part + 1 < p.parts && tile >= p.part[part].tiles) tile -= p.part[part++].tiles;
    const size_t at = (size_t)tile * p.segments + segment;
    work.segment = segment;
    work.weights = static_cast<const char *>(p.part[part].data) + at * dc_segment_bytes<T>();
    work.scales = static_cast<const __half *>(p.part[part].scale) + at * (2 * DC_TILE);
    return work;
}

/* Where the ring of a pair stands: the stage that is next to be used, over all phases. */
struct dc_exact_pipeline_state {
    int slot;
    unsigned parity;
};

/* On to the next segment of the pair that there is. */
template <int T> DC_DEVICE void dc_feed_segment(dc_feed &feed, const dc_product &p, int pair, int blocks) {
    dc_work work;
    do {
        if (++feed.quarter == p.run / DC_EXACT_RUN) feed.quarter = 0, feed.work_item += blocks;
        work = dc_exact_work<T>(p, feed.work_item, feed.quarter, pair);
    } while (work.segment < 0 && feed.work_item < p.tiles * p.groups);
    feed.weights = work.weights;
    feed.segment = work.segment;
    feed.step = 0;
}

/* One thread of the pair: fills a stage. */
template <int R, int T>
DC_DEVICE void dc_feed_stage(dc_exact_ring<R> &ring, int pair, int slot, const float *act, const dc_product &p,
                             int blocks) {
    enum { STEP = dc_width<T>::STEP, WEIGHTS = DC_TILE * dc_width<T>::BYTES, INPUT = STEP * R * 4 };
    dc_feed &feed = ring.feed[pair];
    if (feed.segment < 0) return;
    dc_exact_stage<R> &s = ring.stage[pair][slot];
    unsigned long long *full = &ring.full[pair][slot];
    dc_barrier_expect(full, WEIGHTS + INPUT);
    dc_bulk(s.weights, feed.weights + (size_t)feed.step * WEIGHTS, WEIGHTS, full, dc_evict_first());
    dc_bulk_plain(s.x, act + ((size_t)feed.segment * DC_ITEM_CHANNELS + feed.step * STEP) * R, INPUT, full);
    if (++feed.step == DC_ITEM_CHANNELS / STEP) dc_feed_segment<T>(feed, p, pair, blocks);
}

/* ROWS of the R rows, whose first x points to. */
template <int R, int ROWS, int T>
DC_DEVICE void dc_exact_four(float (&acc)[DC_LANE_OUTPUTS][ROWS], const unsigned char *weights, const float *x,
                             int half, const float (&d)[DC_LANE_OUTPUTS]) {
    typedef typename dc_four<T>::type four;
    four w[DC_LANE_OUTPUTS];
#pragma unroll
    for (int j = 0; j < DC_LANE_OUTPUTS; j++)
        w[j] = *reinterpret_cast<const four *>(weights + j * DC_LANES_WARP * sizeof(four));
#pragma unroll
    for (int k = 0; k < DC_UNROLL; k++) {
        float xk[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r += 4)
            *reinterpret_cast<float4 *>(xk + r) = *reinterpret_cast<const float4 *>(x + k * R + r);
#pragma unroll
        for (int j = 0; j < DC_LANE_OUTPUTS; j++) {
            const float weight = dc_four<T>::weight(w[j], k, half, d[j]);
#pragma unroll
            for (int r = 0; r < ROWS; r++) acc[j][r] = fmaf(weight, xk[r], acc[j][r]);
        }
    }
}

template <int R, int T>
DC_DEVICE void dc_product_exact(dc_exact_memory<R> &m, dc_exact_ring<R> &ring, dc_exact_pipeline_state &state,
                                const float *act, const dc_product &p, int thread, int block, int blocks) {
    typedef typename dc_four<T>::type four;
    enum {
        STEP = dc_width<T>::STEP,
        STEPS = DC_ITEM_CHANNELS / STEP,
        BLOCK = 32 / STEP, /* steps of a scale */
        QUADS = 2,
        PASSES = R / 8,
        ROWS = R / DC_EXACT_SHARES, /* of a warp */
        EACH = DC_TILE * QUADS / DC_EXACT_THREADS
    };
    const bool scaled = T == DF_Q8_0 || T == DF_Q4_0;
    const int warp = thread / DC_LANES_WARP, lane = thread % DC_LANES_WARP;
    const int pair = warp % DC_EXACT_PAIRS, share = warp / DC_EXACT_PAIRS;
    const bool feeds = share == 0;
    const int quarters = p.run / DC_EXACT_RUN, work_items = p.tiles * p.groups;
    const int start = (block + blocks - p.first_work_item % blocks) % blocks;
    if (start >= work_items) return;

    if (feeds && lane == 0) {
        dc_before_bulk_reads(); /* the activations were written by ordinary stores */
        dc_feed &feed = ring.feed[pair];
        feed.work_item = start;
        feed.quarter = -1;
        dc_feed_segment<T>(feed, p, pair, blocks);
#pragma unroll 1
        for (int i = 0; i < DC_EXACT_STAGES; i++)
            dc_feed_stage<R, T>(ring, pair, (state.slot + i) % DC_EXACT_STAGES, act, p, blocks);
    }
    for (int work_item = start; work_item < work_items; work_item += blocks)
        for (int quarter = 0; quarter < quarters; quarter++) {
            const dc_work work = dc_exact_work<T>(p, work_item, quarter, pair);
            float acc[DC_LANE_OUTPUTS][ROWS], d[DC_LANE_OUTPUTS] = {};
#pragma unroll
            for (int j = 0; j < DC_LANE_OUTPUTS; j++)
#pragma unroll
                for (int r = 0; r < ROWS; r++) acc[j][r] = 0.0f;
            if (work.segment >= 0)
#pragma unroll 1
                for (int step = 0; step < STEPS; step++) {
                    if (scaled && step % BLOCK == 0)
#pragma unroll
                        for (int j = 0; j < DC_LANE_OUTPUTS; j++)
                            d[j] = __half2float(
                                work.scales[((step / BLOCK) * DC_LANE_OUTPUTS + j) * DC_LANES_WARP + lane]);
                    const dc_exact_stage<R> &s = ring.stage[pair][state.slot];
                    const unsigned char *weights = s.weights + lane * sizeof(four);
                    const float *x = s.x + share * ROWS;
                    dc_barrier_wait(&ring.full[pair][state.slot], state.parity);
#pragma unroll 1
                    for (int four_at = 0; four_at < STEP / DC_UNROLL; four_at++, x += DC_UNROLL * R) {
                        dc_exact_four<R, ROWS, T>(acc, weights, x, four_at % 2, d);
                        if (T != DF_Q4_0 || four_at % 2 == 1) weights += DC_TILE * sizeof(four);
                    }
                    dc_barrier_arrive(&ring.empty[pair][state.slot]); /* a lane speaks for itself alone */
                    if (feeds) {
                        dc_barrier_wait(&ring.empty[pair][state.slot], state.parity);
                        if (lane == 0) dc_feed_stage<R, T>(ring, pair, state.slot, act, p, blocks);
                        __syncwarp();
                    }
                    if (++state.slot == DC_EXACT_STAGES) state.slot = 0, state.parity ^= 1u;
                }
            float *partial =
                p.partial + ((size_t)(work_item % p.tiles) * p.groups + work_item / p.tiles) * (DC_TILE * R);
#pragma unroll
            for (int pass = 0; pass < PASSES; pass++) {
                __syncthreads();
#pragma unroll
                for (int q = 0; q < ROWS / 4; q++) {
                    const int quad = share * (ROWS / 4) + q;
                    if (quad / QUADS == pass)
#pragma unroll
                        for (int j = 0; j < DC_LANE_OUTPUTS; j++) {
                            const float *a = &acc[j][4 * q];
                            m.exchange[pair][quad % QUADS][j * DC_LANES_WARP + dc_again(lane)] =
                                make_float4(a[0], a[1], a[2], a[3]);
                        }
                }
                __syncthreads();
#pragma unroll
                for (int e = 0; e < EACH; e++) {
                    const int i = dc_again(thread) + e * DC_EXACT_THREADS, q = i % QUADS, o = i / QUADS;
                    float4 v = dc_add(dc_add(m.exchange[0][q][o], m.exchange[1][q][o]),
                                      dc_add(m.exchange[2][q][o], m.exchange[3][q][o]));
                    float4 *to = reinterpret_cast<float4 *>(partial) + o * (R / 4) + QUADS * pass + q;
                    if (quarter != 0) v = dc_add(*to, v); /* the first half's node, by this thread */
                    *to = v;
                }
            }
        }
    __syncthreads();
}

#endif
