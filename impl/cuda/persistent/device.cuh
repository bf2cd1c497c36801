/*
 * device.cuh - what all phases share: loads that see other blocks' writes, the grid's barrier, sums in the tree of
 * canon.h.
 *
 * -0: canon.h adds +0 to every segment's sum. A node of the tree is -0 only when everything below it is -0, so one
 * addition of +0 at the root gives the same bits, and an absent segment may count as +0.
 */
#ifndef DF_CUDA_DEVICE_CUH
#define DF_CUDA_DEVICE_CUH

#include "cuda/persistent/program.h"
#include "common/mathfn.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

/*
 * The persistent kernels need bulk copies and their barriers (sm_90) and two hundred kilobytes of shared memory for a
 * multiprocessor (not sm_120). Elsewhere they are empty and never launched: the image that the driver has loaded says
 * which, in a variable of program_exact.cu and one of program_fast.cu.
 */
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ < 900 || __CUDA_ARCH__ >= 1200)
#define DC_PERSISTENT 0
#else
#define DC_PERSISTENT 1
#endif

#define DC_DEVICE static __device__ __forceinline__

DC_DEVICE float4 dc_add(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }
DC_DEVICE float dc_add(float a, float b) { return a + b; }
DC_DEVICE float4 dc_load4(const float *p) { return __ldcg(reinterpret_cast<const float4 *>(p)); }

/* Two floats as packed bf16, and what is left of them. */
DC_DEVICE void dc_split_pair(float x, float y, unsigned &hi, unsigned &lo) {
    const __nv_bfloat162 h = __floats2bfloat162_rn(x, y);
    hi = *reinterpret_cast<const unsigned *>(&h);
    const __nv_bfloat162 l =
        __floats2bfloat162_rn(x - __uint_as_float(hi << 16), y - __uint_as_float(hi & 0xffff0000u));
    lo = *reinterpret_cast<const unsigned *>(&l);
}

/* The threads of a block that work on phases: `threads` of them, barrier 1. The producers of the fast class stay out.
 */
template <int NT> DC_DEVICE void dc_sync() { asm volatile("bar.sync 1, %0;" ::"n"(NT) : "memory"); }

/* Between ordinary stores and bulk copies of what they wrote, or over it, wherever it lies (bulk.cuh has narrower
 * ones).
 */
DC_DEVICE void dc_before_any_bulk() { asm volatile("fence.proxy.async;" ::: "memory"); }

DC_DEVICE unsigned dc_arrived(const unsigned *counter) {
    unsigned value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
    return value;
}

/* Waits until every block has come here for the time that makes `target` arrivals. */
template <int NT> DC_DEVICE void dc_grid_sync(unsigned *counter, unsigned target, int thread) {
    dc_sync<NT>();
    if (thread == 0) { /* release and acquire carry what the block's barriers have gathered */
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
        while (dc_arrived(counter) < target) {
        }
    }
    dc_sync<NT>();
}

/* A value that the compiler cannot know to be the same: what a phase works out from it is not kept over all phases, in
 * registers that are needed or in local memory, which the acquiring loads of the barrier keep throwing out of L1. */
DC_DEVICE int dc_again(int value) {
    asm volatile("" : "+r"(value));
    return value;
}

/* Copies a phase to shared memory, where the next barrier shows it. */
template <int NT> DC_DEVICE void dc_fetch_phase(dc_phase *to, const dc_phase *from, int thread) {
    enum { WORDS = sizeof(dc_phase) / 4 };
    for (int i = thread; i < WORDS; i += NT)
        reinterpret_cast<unsigned *>(to)[i] = __ldg(reinterpret_cast<const unsigned *>(from) + i);
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

/*
 * The tree over `count` quads of values, `stride` floats apart from `at` on; the first is number `first` of its tree.
 * Absent ones are +0. At most 127 chunks (2032) behind the aligned start: a counter of SLOTS digits ends there. Not
 * inlined: what a phase runs once a layer must stay in the instruction cache with all the others, for a line of code
 * that comes from memory costs as much as a line of data.
 */
static __device__ __noinline__ float4 dc_sum_quads(const float *at, unsigned stride, int first, int count) {
    enum { CHUNK = 16, SLOTS = 7 };
    const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    dc_counter<SLOTS, float4> tree;
#pragma unroll
    for (int b = 0; b < SLOTS; b++) tree.slot[b] = zero;
    const int base = first & ~((CHUNK << (SLOTS - 1)) - 1), end = first + count;
    int chunk = (first - base) / CHUNK;
#pragma unroll 1
    for (; base + chunk * CHUNK < end; chunk++) {
        float4 v[CHUNK];
#pragma unroll
        for (int i = 0; i < CHUNK; i++) {
            const int n = base + chunk * CHUNK + i;
            v[i] = n >= first && n < end ? dc_load4(at + (size_t)(unsigned)(n - first) * stride) : zero;
        }
#pragma unroll
        for (int width = 1; width < CHUNK; width *= 2)
#pragma unroll
            for (int i = 0; i < CHUNK; i += 2 * width) v[i] = dc_add(v[i], v[i + width]);
        tree.push(chunk, v[0]);
    }
    return dc_add(tree.total(chunk, zero), zero);
}

/* Rows 4 quad .. 4 quad + 3 of one output of a product, bias included. */
template <int R> DC_DEVICE float4 dc_output(const dc_sum &s, int channel, int quad) {
    const float *at = s.partial + (size_t)(channel / DC_TILE) * (size_t)s.groups * (DC_TILE * R) +
                      (size_t)(channel % DC_TILE) * R + 4 * quad;
    float4 y = dc_sum_quads(at, DC_TILE * R, 0, s.groups);
    if (s.bias != nullptr) {
        const float b = s.bias[channel];
        y = dc_add(y, make_float4(b, b, b, b));
    }
    return y;
}

#endif
