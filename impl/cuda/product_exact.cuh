/*
 * product_exact.cuh - products in the canonical order at the rate of the multipliers.
 *
 * A warp takes one segment of 64 input channels of 256 outputs: a lane has 8 outputs (lane + 32 j) and all R rows in
 * registers, runs the segment from left to right, and the four warps of a block take four neighbouring segments, which
 * are then folded in shared memory as the tree of canon.h has it. Longer groups keep their unfinished nodes in the
 * block's own `stack`. What a group adds goes to `partial`; the phase that reads it finishes the tree.
 *
 * Weights come straight from memory into registers, 16 bytes a lane and coalesced (pack.cu lays them out by tile,
 * segment, step, j, lane), one step ahead; activations are broadcast from shared memory, a segment ahead. At R = 16 a
 * channel costs a warp 128 multiply-adds, 4 shared loads and 8 conversions.
 */
#ifndef DF_CUDA_PRODUCT_EXACT_CUH
#define DF_CUDA_PRODUCT_EXACT_CUH

#include "cuda/device.cuh"

#include <cuda_fp16.h>

enum { DC_EXACT_THREADS = 128, DC_EXACT_WARPS = 4, DC_LANE_OUTPUTS = 8, DC_LANES_WARP = 32 };

template <int R> struct dc_exact_memory {
    enum { QUADS = R / 4, PLANE = DC_TILE + 8 / QUADS }; /* the pad keeps quads of one output in different banks */
    float4 exchange[DC_EXACT_WARPS][QUADS][PLANE];
};
template <int R> struct dc_exact_input {
    float x[DC_EXACT_WARPS][2][DC_UNIT * R];
};

/* A step is what 16 bytes hold. */
template <int T> struct dc_width;
template <> struct dc_width<DF_F32> { enum { STEP = 4 }; };
template <> struct dc_width<DF_BF16> { enum { STEP = 8 }; };
template <> struct dc_width<DF_F16> { enum { STEP = 8 }; };
template <> struct dc_width<DF_Q8_0> { enum { STEP = 16 }; };
template <> struct dc_width<DF_Q4_0> { enum { STEP = 32 }; };

DC_DEVICE uint4 dc_stream_load(const void *p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

DC_DEVICE unsigned dc_word(const uint4 &v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

/* Weight k of batch `batch` of a step (dc_exact_step), k a constant after unrolling; d the scale of its block. */
template <int T> DC_DEVICE float dc_weight(const uint4 &v, int batch, int k, float d) {
    if (T == DF_F32) return __uint_as_float(dc_word(v, k));
    if (T == DF_BF16) {
        const unsigned w = dc_word(v, k / 2);
        return __uint_as_float(k % 2 == 0 ? w << 16 : w & 0xffff0000u);
    }
    if (T == DF_F16)
        return __half2float(__ushort_as_half((unsigned short)(dc_word(v, k / 2) >> (k % 2 * 16) & 0xffffu)));
    if (T == DF_Q8_0) return d * (float)(int8_t)(dc_word(v, batch) >> (k * 8) & 0xffu);
    /* q4_0: byte i of a block has value i in its low half and i + 16 in its high half */
    return d * (float)((int)(dc_word(v, batch % 4) >> (k * 8 + batch / 4 * 4) & 15u) - 8);
}

DC_DEVICE void dc_copy16(void *shared, const void *global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(shared)),
                 "l"(global)
                 : "memory");
}

/* What a warp works on: a segment of a tile; segment < 0: none. */
struct dc_work {
    const char *weights;
    const __half *scales;
    int segment;
};

template <int T> DC_DEVICE size_t dc_segment_bytes() {
    return (size_t)DC_TILE * DC_UNIT / dc_width<T>::STEP * 16;
}

/* The quantised widths run four channels at a time so that the code of a step stays within the instruction cache. */
template <int R, int T>
DC_DEVICE void dc_exact_step(float (&acc)[DC_LANE_OUTPUTS][R], const uint4 (&w)[DC_LANE_OUTPUTS],
                             const float (&d)[DC_LANE_OUTPUTS], const float *x) {
    enum { STEP = dc_width<T>::STEP, BATCH = STEP > 8 ? 4 : STEP };
#pragma unroll 1
    for (int batch = 0; batch < STEP / BATCH; batch++) {
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            float xk[R];
#pragma unroll
            for (int r = 0; r < R; r += 4)
                *reinterpret_cast<float4 *>(xk + r) =
                    *reinterpret_cast<const float4 *>(x + (batch * BATCH + k) * R + r);
#pragma unroll
            for (int j = 0; j < DC_LANE_OUTPUTS; j++) {
                const float weight = dc_weight<T>(w[j], batch, k, d[j]);
#pragma unroll
                for (int r = 0; r < R; r++) acc[j][r] = fmaf(weight, xk[r], acc[j][r]);
            }
        }
    }
}

template <int T>
DC_DEVICE void dc_exact_load(uint4 (&w)[DC_LANE_OUTPUTS], const dc_work &work, int step, int lane) {
    if (work.segment < 0) return;
#pragma unroll
    for (int j = 0; j < DC_LANE_OUTPUTS; j++)
        w[j] = dc_stream_load(work.weights + ((size_t)(step * DC_LANE_OUTPUTS + j) * DC_LANES_WARP + lane) * 16);
}

/* The scales of block `block` (32 channels) of a segment. */
template <int T>
DC_DEVICE void dc_exact_scales(float (&d)[DC_LANE_OUTPUTS], const dc_work &work, int block, int lane) {
    if (T != DF_Q8_0 && T != DF_Q4_0) return;
#pragma unroll
    for (int j = 0; j < DC_LANE_OUTPUTS; j++)
        d[j] = __half2float(work.scales[(block * DC_LANE_OUTPUTS + j) * DC_LANES_WARP + lane]);
}

/* Item `i` of this block's share: unit i / (run / 4), quarter i % (run / 4). Units go tile by tile first. */
template <int T>
DC_DEVICE dc_work dc_exact_work(const dc_product &p, int unit, int part_of_run, int warp) {
    dc_work work = {nullptr, nullptr, -1};
    if (unit >= p.tiles * p.groups) return work;
    int tile = unit % p.tiles, part = 0;
    const int group = unit / p.tiles, segment = group * p.run + part_of_run * DC_EXACT_RUN + warp;
    if (segment >= p.segments) return work;
    while (part + 1 < p.parts && tile >= p.part[part].tiles) tile -= p.part[part++].tiles;
    const size_t at = (size_t)tile * p.segments + segment;
    work.segment = segment;
    work.weights = static_cast<const char *>(p.part[part].data) + at * dc_segment_bytes<T>();
    work.scales = static_cast<const __half *>(p.part[part].scale) + at * (2 * DC_TILE);
    return work;
}

template <int R>
DC_DEVICE void dc_exact_input_copy(float *to, const float *act, const dc_work &work, int lane) {
    if (work.segment >= 0) {
        const float *from = act + (size_t)work.segment * (DC_UNIT * R);
#pragma unroll
        for (int i = 0; i < DC_UNIT * R / 4; i += DC_LANES_WARP) dc_copy16(to + 4 * (i + lane), from + 4 * (i + lane));
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int R, int T>
DC_DEVICE void dc_product_exact(dc_exact_memory<R> &m, dc_exact_input<R> &in, const dc_frame &f, const dc_product &p,
                                int thread, int block, int blocks) {
    enum { STEP = dc_width<T>::STEP, STEPS = DC_UNIT / STEP, QUADS = R / 4 };
    const int warp = thread / DC_LANES_WARP, lane = thread % DC_LANES_WARP;
    const int quarters = p.run / DC_EXACT_RUN, units = p.tiles * p.groups;
    const int start = (block + blocks - p.first_unit % blocks) % blocks;
    float *stack = f.stack + (size_t)block * (3 * DC_TILE * R);
    const float *act = static_cast<const float *>(f.act);
    if (start >= units) return;

    dc_work work = dc_exact_work<T>(p, start, 0, warp);
    uint4 w[2][DC_LANE_OUTPUTS];
    dc_exact_load<T>(w[0], work, 0, lane);
    dc_exact_input_copy<R>(in.x[warp][0], act, work, lane);
    int buffer = 0;
    for (int unit = start; unit < units; unit += blocks)
        for (int quarter = 0; quarter < quarters; quarter++, buffer ^= 1) {
            const bool last = quarter + 1 == quarters;
            const dc_work next = dc_exact_work<T>(p, last ? unit + blocks : unit, last ? 0 : quarter + 1, warp);
            dc_exact_input_copy<R>(in.x[warp][buffer ^ 1], act, next, lane);
            asm volatile("cp.async.wait_group 1;" ::: "memory");
            __syncwarp();
            float acc[DC_LANE_OUTPUTS][R];
#pragma unroll
            for (int j = 0; j < DC_LANE_OUTPUTS; j++)
#pragma unroll
                for (int r = 0; r < R; r++) acc[j][r] = 0.0f;
            const float *x = in.x[warp][buffer];
            if (work.segment >= 0) {
                float d[DC_LANE_OUTPUTS];
#pragma unroll 1
                for (int step = 0; step < STEPS; step += 2) {
                    if (STEP == 32 || step * STEP % 32 == 0) dc_exact_scales<T>(d, work, step * STEP / 32, lane);
                    dc_exact_load<T>(w[1], work, step + 1, lane);
                    dc_exact_step<R, T>(acc, w[0], d, x + step * STEP * R);
                    if (STEP == 32) dc_exact_scales<T>(d, work, step + 1, lane);
                    if (step + 2 < STEPS)
                        dc_exact_load<T>(w[0], work, step + 2, lane);
                    else
                        dc_exact_load<T>(w[0], next, 0, lane);
                    dc_exact_step<R, T>(acc, w[1], d, x + (step + 1) * STEP * R);
                }
            } else {
                dc_exact_load<T>(w[0], next, 0, lane);
            }
            __syncthreads();
#pragma unroll
            for (int q = 0; q < QUADS; q++)
#pragma unroll
                for (int j = 0; j < DC_LANE_OUTPUTS; j++)
                    m.exchange[warp][q][j * DC_LANES_WARP + lane] =
                        make_float4(acc[j][4 * q], acc[j][4 * q + 1], acc[j][4 * q + 2], acc[j][4 * q + 3]);
            __syncthreads();
            float *partial = p.partial + ((size_t)(unit % p.tiles) * p.groups + unit / p.tiles) * (DC_TILE * R);
#pragma unroll
            for (int i = thread; i < DC_TILE * QUADS; i += DC_EXACT_THREADS) {
                const int q = i % QUADS, o = i / QUADS;
                float4 v = dc_add(dc_add(m.exchange[0][q][o], m.exchange[1][q][o]),
                                  dc_add(m.exchange[2][q][o], m.exchange[3][q][o]));
                int level = 0;
                for (; (quarter >> level & 1) != 0; level++)
                    v = dc_add(reinterpret_cast<const float4 *>(stack)[level * DC_TILE * QUADS + i], v);
                float *to = last ? partial : stack + level * DC_TILE * R;
                reinterpret_cast<float4 *>(to)[i] = v;
            }
            work = next;
        }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
}

#endif
