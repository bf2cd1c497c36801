/*
 * program_fast.cu - the fast class's persistent kernel: one block on each multiprocessor, eight warps that compute and
 * two that keep the ring of stages full.
 */
#include "cuda/persistent/program.cuh"

#include "cuda/persistent/attend_fast.cuh"
#include "cuda/persistent/product_fast.cuh"

template <int R> struct fast_shared {
    dc_ring<R> ring;
    union {
        dc_epilogue_memory<R> epilogue;
        dc_attend_fast_memory attend;
        dc_context_memory context;
    };
    dc_phase phase[2];
};

template <int R> DC_DEVICE void compute(fast_shared<R> &s, const dc_frame &f) {
    enum { NT = DC_FAST_THREADS };
    dc_pipeline_state state = {0, 0};
    dc_fetch_phase<NT>(&s.phase[0], f.phase, (int)threadIdx.x);
    dc_sync<NT>();
    for (int i = 0; i < f.phases; i++) {
        const dc_thread_index at = {dc_again((int)threadIdx.x), dc_again((int)blockIdx.x), (int)gridDim.x};
        const dc_phase &p = s.phase[i & 1];
        if (i + 1 < f.phases) dc_fetch_phase<NT>(&s.phase[(i + 1) & 1], f.phase + i + 1, at.thread);
        switch (p.kind) {
        case DC_LOAD:
        case DC_SEEN:
            dc_seen<R, NT>(s.epilogue, f, at);
            if (p.kind == DC_SEEN) break;
            [[fallthrough]];
        case DC_RESIDUAL:
            dc_stream<R, NT>(s.epilogue, f, p, at);
            break;
        case DC_PRODUCT:
            dc_product_fast<R>(s.ring, state, p.product, at.thread, at.block, at.blocks);
            break;
        case DC_QKV:
        case DC_CACHE:
            dc_heads<R, NT>(s.epilogue, f, p, at);
            break;
        case DC_ATTEND:
            dc_attend_fast<R>(s.attend, s.ring, state, f, p, at);
            break;
        case DC_CONTEXT:
            dc_context_fast<R>(s.context, f, p, at);
            break;
        case DC_STORE:
            dc_store_result<R, NT>(s.epilogue, f, p, at);
            break;
        case DC_COPY:
            dc_copy<R, NT, true>(s.epilogue, f, p, at);
            break;
        case DC_SILU:
            dc_gate<R, NT>(s.epilogue, f, p, at);
            break;
        case DC_NORM:
        case DC_CONV:
        case DC_FINAL:
            dc_norm<R, NT, true>(s.epilogue, f, p, at);
            break;
        default: /* DC_SCORES and DC_VALUES are the other class's */
            __trap();
        }
        if (i + 1 == f.phases) break;
        dc_grid_sync<NT>(f.arrived, (unsigned)(i + 1) * gridDim.x, at.thread);
        if (at.thread == 0) dc_begin_phase(s.ring, (unsigned)(i + 1));
    }
}

template <int R> __global__ void __launch_bounds__(DC_FAST_ALL, 1) run_fast(const __grid_constant__ dc_frame f) {
#if DC_PERSISTENT
    extern __shared__ __align__(128) unsigned char memory[];
    fast_shared<R> &s = *reinterpret_cast<fast_shared<R> *>(memory);
    if (threadIdx.x == 0) {
        s.ring.begun = 0;
        for (int i = 0; i < DC_STAGES; i++) {
            dc_barrier_init(&s.ring.landed[i], 1);
            dc_barrier_init(&s.ring.full[i], 1);
            dc_barrier_init(&s.ring.empty[i], DC_FAST_WARPS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x < DC_FAST_THREADS) {
        compute<R>(s, f);
    } else if (threadIdx.x < DC_FAST_THREADS + 32) {
        dc_produce_weights<R>(s.ring, f, (int)threadIdx.x % 32, (int)blockIdx.x, (int)gridDim.x);
    } else {
        dc_produce_act<R>(s.ring, f, (int)threadIdx.x % 32, (int)blockIdx.x, (int)gridDim.x);
    }
#endif
}

__device__ int dc_fast_built = DC_PERSISTENT;

static dc_persistent_kernel kernel_of() {
    dc_persistent_kernel kernel = {};
    kernel.narrow = reinterpret_cast<const void *>(run_fast<8>);
    kernel.wide = reinterpret_cast<const void *>(run_fast<16>);
    kernel.narrow_shared = sizeof(fast_shared<8>);
    kernel.wide_shared = sizeof(fast_shared<16>);
    kernel.threads = DC_FAST_ALL;
    kernel.most = 1;
    return kernel;
}

cudaError_t dc_fast_blocks(int *blocks) {
    const dc_persistent_kernel kernel = kernel_of();
    int built = 0;
    *blocks = 0;
    const cudaError_t status = cudaMemcpyFromSymbol(&built, dc_fast_built, sizeof built);
    return status == cudaSuccess ? dc_persistent_blocks(&kernel, built, blocks) : status;
}

cudaError_t dc_launch_fast(const dc_frame *frame, int blocks, cudaStream_t stream) {
    const dc_persistent_kernel kernel = kernel_of();
    return dc_persistent_launch(&kernel, frame, 1, blocks, stream);
}
