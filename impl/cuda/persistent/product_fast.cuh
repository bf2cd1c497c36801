/*
 * product_fast.cuh - products on the tensor cores, at the rate of the memory.
 *
 * Rounding model. Weights are exact (bf16, or the integers of q8_0 as bf16 with their scales applied in float32); an
 * activation x is used as hi + lo, both bf16, |x - hi - lo| <= 2^-17 |x| (2^-134 near underflow). Products of bf16 are
 * exact; mma.m16n8k16 adds 16 of them to a float32 accumulator with an error that is at most 17 units of 2^-22 of
 * the largest term or partial sum (the unit truncates after alignment; we take 2^-22 to be safe). hi and lo parts
 * accumulate apart over a group of 512 channels (q8_0: together over 32, then fma by the scale into the group's sum in
 * channel order), then hi + lo is rounded once; groups are added in the binary tree of canon.h, bias last.
 *
 * Weights and activations come through a ring of stages in shared memory (producer_fast.cuh). Eight warps multiply, 32
 * outputs each.
 */
#ifndef DF_CUDA_PRODUCT_FAST_CUH
#define DF_CUDA_PRODUCT_FAST_CUH

#include "cuda/persistent/bulk.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

enum {
    DC_FAST_WARPS = 8,
    DC_FAST_THREADS = 256,
    DC_FAST_ALL = DC_FAST_THREADS + 64, /* and the two producers' warps */
    DC_STAGES = 5,
    DC_FLIGHT = 3,                                   /* stages under way at most, once their phase has begun */
    DC_AHEAD = 1,                                    /* before; of q8_0, which are half as large, two */
    DC_WEIGHT_BYTES = DC_TILE * DC_ITEM_CHANNELS * 2 /* of a stage, at most */
};

template <int R> struct dc_stage {
    unsigned char weights[DC_WEIGHT_BYTES];
    unsigned char act[DC_ITEM_CHANNELS * R * 4];
};
template <int R> struct dc_ring {
    dc_stage<R> stage[DC_STAGES];
    unsigned long long landed[DC_STAGES], full[DC_STAGES], empty[DC_STAGES]; /* weights; activations; read */
    unsigned begun; /* phases whose barrier has opened, for the producers */
};

/* Place in the ring; the parity turns each time round. */
struct dc_pipeline_state {
    int slot;
    unsigned parity;
    __device__ __forceinline__ void next() {
        if (++slot == DC_STAGES) slot = 0, parity ^= 1u;
    }
};

/* Outputs of a tile that are held: the last is cut to a multiple of 32. */
DC_DEVICE int dc_tile_rows(int out, int tile) { return min(DC_TILE, (out - tile * DC_TILE + 31) / 32 * 32); }

/* One work item: a group of segments of one tile. Stages follow each other in memory. */
struct dc_work_item {
    const unsigned char *weights;
    int rows, first, stages; /* outputs held; first segment; segments */
    int tile, group;
    unsigned bytes; /* of a stage */
};
DC_DEVICE unsigned dc_stage_bytes(int dtype, int rows) {
    return dtype == DF_Q8_0 ? (unsigned)rows * (DC_ITEM_CHANNELS + 4) : (unsigned)rows * (DC_ITEM_CHANNELS * 2);
}
DC_DEVICE dc_work_item dc_work_item_at(const dc_product &p, int index) {
    dc_work_item u;
    u.tile = index % p.tiles;
    u.group = index / p.tiles;
    int tile = u.tile, part = 0;
    while (part + 1 < p.parts && tile >= p.part[part].tiles) tile -= p.part[part++].tiles;
    u.rows = dc_tile_rows(p.part[part].out, tile);
    u.bytes = dc_stage_bytes(p.dtype, u.rows);
    u.first = u.group * p.run;
    u.stages = min(p.run, p.segments - u.first);
    u.weights = static_cast<const unsigned char *>(p.part[part].data) +
                (size_t)tile * p.segments * dc_stage_bytes(p.dtype, DC_TILE) + (size_t)u.first * u.bytes;
    return u;
}
DC_DEVICE int dc_first_work_item(const dc_product &p, int block, int blocks) {
    return (block + blocks - p.first_work_item % blocks) % blocks;
}

DC_DEVICE void dc_mma(float (&c)[4], const uint4 &a, unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

/* (v & mask) | 0x43004300: bf16 with exponent 7 have 128 + their low seven bits. */
DC_DEVICE unsigned dc_bits_over_128(unsigned v, unsigned mask) {
    unsigned y;
    asm("lop3.b32 %0, %1, %2, 0x43004300, 0xEA;" : "=r"(y) : "r"(v), "r"(mask));
    return y;
}

/* Bytes 0 and 2 of v, two's complement, as a pair of bf16: (128 + low seven bits) - (128, or 256 when negative). */
DC_DEVICE unsigned dc_pair_from_bytes(unsigned v) {
    const unsigned low = dc_bits_over_128(v, 0x007f007fu), sign = dc_bits_over_128(v, 0x00800080u);
    const __nv_bfloat162 y =
        __hsub2(*reinterpret_cast<const __nv_bfloat162 *>(&low), *reinterpret_cast<const __nv_bfloat162 *>(&sign));
    return *reinterpret_cast<const unsigned *>(&y);
}

/* Loads that stay in the order in which they are written: all of a stage are under way before the first is used. */
DC_DEVICE uint4 dc_load_shared(const uint4 *p) {
    uint4 v;
    asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(dc_shared(p)));
    return v;
}

/* A stage of bf16: weights[warp][m16][k16][lane], 16 bytes each: the A operand. */
template <int R>
DC_DEVICE void dc_stage_bf16(const dc_stage<R> &s, int warp, int lane, float (&hi)[2][R / 8][4],
                             float (&lo)[2][R / 8][4]) {
    const uint4 *w = reinterpret_cast<const uint4 *>(s.weights) + warp * 256 + lane;
    const uint4 *x = reinterpret_cast<const uint4 *>(s.act) + lane;
    uint4 a0[4], a1[4], b[4][R / 8];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        a0[k] = dc_load_shared(w + k * 32);
        a1[k] = dc_load_shared(w + (4 + k) * 32);
#pragma unroll
        for (int n = 0; n < R / 8; n++) b[k][n] = dc_load_shared(x + (k * (R / 8) + n) * 32);
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int n = 0; n < R / 8; n++) {
            dc_mma(hi[0][n], a0[k], b[k][n].x, b[k][n].y);
            dc_mma(hi[1][n], a1[k], b[k][n].x, b[k][n].y);
            dc_mma(lo[0][n], a0[k], b[k][n].z, b[k][n].w);
            dc_mma(lo[1][n], a1[k], b[k][n].z, b[k][n].w);
        }
}

/* A stage of q8_0: weights[warp][m16][k32][lane], 16 bytes each, then for all outputs scales[warp][m16][k32][16]. A
 * block of 32 channels is summed as integers times hi, times lo, and enters the sum with its scale. */
template <int R>
DC_DEVICE void dc_stage_q8(const dc_stage<R> &s, int rows, int warp, int lane, float (&sum)[2][R / 8][4]) {
    const uint4 *w = reinterpret_cast<const uint4 *>(s.weights) + warp * 128 + lane;
    const __half *scale = reinterpret_cast<const __half *>(s.weights + rows * DC_ITEM_CHANNELS) + warp * 64 + lane / 4;
    const uint4 *x = reinterpret_cast<const uint4 *>(s.act) + lane;
#pragma unroll
    for (int block = 0; block < 2; block++) {
#pragma unroll
        for (int m = 0; m < 2; m++) {
            const uint4 q = w[(m * 2 + block) * 32];
            const uint4 a0 = make_uint4(dc_pair_from_bytes(q.x), dc_pair_from_bytes(q.x >> 8), dc_pair_from_bytes(q.y),
                                        dc_pair_from_bytes(q.y >> 8));
            const uint4 a1 = make_uint4(dc_pair_from_bytes(q.z), dc_pair_from_bytes(q.z >> 8), dc_pair_from_bytes(q.w),
                                        dc_pair_from_bytes(q.w >> 8));
            const float d0 = __half2float(scale[(m * 2 + block) * 16]),
                        d8 = __half2float(scale[(m * 2 + block) * 16 + 8]);
#pragma unroll
            for (int n = 0; n < R / 8; n++) {
                float t[4] = {0.0f, 0.0f, 0.0f, 0.0f};
                const uint4 b0 = x[(block * 2 * (R / 8) + n) * 32], b1 = x[((block * 2 + 1) * (R / 8) + n) * 32];
                dc_mma(t, a0, b0.x, b0.y);
                dc_mma(t, a1, b1.x, b1.y);
                dc_mma(t, a0, b0.z, b0.w);
                dc_mma(t, a1, b1.z, b1.w);
                sum[m][n][0] = fmaf(d0, t[0], sum[m][n][0]);
                sum[m][n][1] = fmaf(d0, t[1], sum[m][n][1]);
                sum[m][n][2] = fmaf(d8, t[2], sum[m][n][2]);
                sum[m][n][3] = fmaf(d8, t[3], sum[m][n][3]);
            }
        }
    }
}

template <int R>
DC_DEVICE void dc_product_fast(dc_ring<R> &ring, dc_pipeline_state &state, const dc_product &p, int thread, int block,
                               int blocks) {
    const int warp = thread / 32, lane = thread % 32;
    const bool q8 = p.dtype == DF_Q8_0;
    if (!q8 && p.dtype != DF_BF16) __trap();
    for (int index = dc_first_work_item(p, block, blocks); index < p.tiles * p.groups; index += blocks) {
        const dc_work_item u = dc_work_item_at(p, index);
        float hi[2][R / 8][4] = {}, lo[2][R / 8][4] = {};
#pragma unroll 1
        for (int s = 0; s < u.stages; s++, state.next()) {
            dc_barrier_wait(&ring.landed[state.slot], state.parity);
            dc_barrier_wait(&ring.full[state.slot], state.parity);
            if (warp * 32 < u.rows) {
                if (q8)
                    dc_stage_q8<R>(ring.stage[state.slot], u.rows, warp, lane, hi);
                else
                    dc_stage_bf16<R>(ring.stage[state.slot], warp, lane, hi, lo);
            }
            __syncwarp();
            if (lane == 0) dc_barrier_arrive(&ring.empty[state.slot]);
        }
        if (warp * 32 >= u.rows) continue;
        float *partial = p.partial + ((size_t)u.tile * p.groups + u.group) * (DC_TILE * R);
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int n = 0; n < R / 8; n++) {
                float *to = partial + (size_t)(warp * 32 + m * 16 + lane / 4) * R + n * 8 + lane % 4 * 2;
                *reinterpret_cast<float2 *>(to) = make_float2(hi[m][n][0] + lo[m][n][0], hi[m][n][1] + lo[m][n][1]);
                *reinterpret_cast<float2 *>(to + 8 * R) =
                    make_float2(hi[m][n][2] + lo[m][n][2], hi[m][n][3] + lo[m][n][3]);
            }
    }
}

#endif
