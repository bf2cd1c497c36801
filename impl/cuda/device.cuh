/*
 * device.cuh - what all phases share: loads that see other blocks' writes, the grid's barrier, sums in the tree of
 * canon.h.
 *
 * -0: canon.h adds +0 to every segment's sum. A node of the tree is -0 only when everything below it is -0, so one
 * addition of +0 at the root gives the same bits, and an absent segment may count as +0.
 */
#ifndef DF_CUDA_DEVICE_CUH
#define DF_CUDA_DEVICE_CUH

#include "cuda/program.h"
#include "mathfn.h"

#include <cuda_runtime.h>

#define DC_DEVICE static __device__ __forceinline__

DC_DEVICE float4 dc_add(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }
DC_DEVICE float dc_add(float a, float b) { return a + b; }
DC_DEVICE float4 dc_load4(const float *p) { return __ldcg(reinterpret_cast<const float4 *>(p)); }

/* The threads of a block that work on phases: `threads` of them, barrier 1. The producers of the fast class stay out. */
template <int NT> DC_DEVICE void dc_sync() { asm volatile("bar.sync 1, %0;" ::"n"(NT) : "memory"); }

DC_DEVICE unsigned dc_arrived(const unsigned *counter) {
    unsigned value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
    return value;
}

#ifdef DC_TIMES
static __device__ unsigned long long dc_times[512];
#define DC_MARK(i)                                                                                                     \
    do {                                                                                                               \
        unsigned long long now;                                                                                        \
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));                                                        \
        if (threadIdx.x == 0 && blockIdx.x == 0) dc_times[i] = now;                                                    \
    } while (0)
#else
#define DC_MARK(i)
#endif

/* Waits until every block has come here for the time that makes `target` arrivals. */
template <int NT> DC_DEVICE void dc_grid_sync(unsigned *counter, unsigned target, int thread) {
    asm volatile("fence.proxy.async;" ::: "memory"); /* packed activations are read by bulk copies */
    dc_sync<NT>();
    if (thread == 0) {
        __threadfence();
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
        while (dc_arrived(counter) < target) {
        }
        __threadfence();
    }
    dc_sync<NT>();
}

/* A binary counter of unfinished nodes: chunk number i, counted from an aligned start, is folded into the nodes that it
 * completes. SLOTS levels; what was never pushed counts as +0. */
template <int SLOTS, typename T> struct dc_counter {
    T slot[SLOTS];
    __device__ __forceinline__ void push(int i, T value) {
        bool open = true;
#pragma unroll
        for (int b = 0; b < SLOTS; b++) {
            const bool full = (i >> b & 1) != 0;
            if (open && full) value = dc_add(slot[b], value);
            if (open && !full) {
                slot[b] = value;
                open = false;
            }
        }
    }
    /* The root, after `count` chunks (the last pushed has number count - 1). */
    __device__ __forceinline__ T total(int count, T zero) const {
        T value = zero;
        bool any = false;
#pragma unroll
        for (int b = 0; b < SLOTS; b++)
            if ((count >> b & 1) != 0) {
                value = any ? dc_add(slot[b], value) : slot[b];
                any = true;
            }
        return value;
    }
};

/* The tree over values load(i), i in [first, first + count), i absolute; absent ones are +0. CHUNK values are loaded
 * together; fewer than CHUNK 2^SLOTS behind the aligned start. */
template <int CHUNK, int SLOTS, typename T, typename Load> DC_DEVICE T dc_tree(int first, int count, T zero, Load load) {
    dc_counter<SLOTS, T> tree;
#pragma unroll
    for (int b = 0; b < SLOTS; b++) tree.slot[b] = zero;
    const int base = first & ~((CHUNK << (SLOTS - 1)) - 1), end = first + count;
    int chunk = (first - base) / CHUNK;
    for (; base + chunk * CHUNK < end; chunk++) {
        T v[CHUNK];
#pragma unroll
        for (int i = 0; i < CHUNK; i++) {
            const int at = base + chunk * CHUNK + i;
            v[i] = at >= first && at < end ? load(at) : zero;
        }
#pragma unroll
        for (int width = 1; width < CHUNK; width *= 2)
#pragma unroll
            for (int i = 0; i < CHUNK; i += 2 * width) v[i] = dc_add(v[i], v[i + width]);
        tree.push(chunk, v[0]);
    }
    return tree.total(chunk, zero);
}

/* Rows 4 quad .. 4 quad + 3 of one output of a product, bias included. */
template <int R> DC_DEVICE float4 dc_output(const dc_sum &s, int channel, int quad) {
    const float *at = s.partial + (size_t)(channel / DC_TILE) * (size_t)s.groups * (DC_TILE * R) +
                      (size_t)(channel % DC_TILE) * R + 4 * quad;
    const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float4 y = dc_tree<16, 4>(0, s.groups, zero, [&](int g) { return dc_load4(at + (size_t)g * (DC_TILE * R)); });
    y = dc_add(y, zero);
    if (s.bias != nullptr) {
        const float b = s.bias[channel];
        y = dc_add(y, make_float4(b, b, b, b));
    }
    return y;
}

#endif
