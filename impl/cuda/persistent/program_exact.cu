/* program_exact.cu - the exact class's persistent kernel: two blocks of eight warps on each multiprocessor. */
#include "cuda/persistent/program.cuh"

#include "cuda/persistent/attend_exact.cuh"
#include "cuda/persistent/epilogue_exact.cuh"
#include "cuda/persistent/product_exact.cuh"

template <int R> struct exact_shared {
    union {
        dc_exact_ring<R> ring;
        dc_rows rows[2]; /* over the stages alone: the ring's barriers live on */
    };
    union {
        dc_epilogue_memory<R> epilogue;
        dc_attend_memory<R> attend;
        dc_exact_memory<R> exact;
    };
    unsigned long long rows_full[DC_ROW_BUFFERS];
    dc_frame frame; /* for functions that are not inlined: a parameter's address would mean loads from memory */
    dc_phase phase[2];
    int block;
    static_assert(sizeof(dc_rows[2]) <= sizeof(dc_exact_ring<R>::stage), "attention's rows must spare the barriers");
};

/* A product phase, in functions of their own: they need every register that there is. `slot` says which phase. */
template <int R, int T>
__device__ __noinline__ dc_exact_pipeline_state run_width(int slot, dc_exact_pipeline_state state, const float *act,
                                                          int thread, int blocks) {
    extern __shared__ __align__(128) unsigned char memory[];
    exact_shared<R> &s = *reinterpret_cast<exact_shared<R> *>(memory);
    dc_product_exact<R, T>(s.exact, s.ring, state, act, s.phase[slot].product, thread, s.block, blocks);
    return state;
}

template <int R>
DC_DEVICE dc_exact_pipeline_state run_product(int dtype, int slot, dc_exact_pipeline_state state, const float *act,
                                              const dc_thread_index &at) {
    switch (dtype) {
    case DF_BF16:
        return run_width<R, DF_BF16>(slot, state, act, at.thread, at.blocks);
    case DF_F32:
        return run_width<R, DF_F32>(slot, state, act, at.thread, at.blocks);
    case DF_F16:
        return run_width<R, DF_F16>(slot, state, act, at.thread, at.blocks);
    case DF_Q8_0:
        return run_width<R, DF_Q8_0>(slot, state, act, at.thread, at.blocks);
    case DF_Q4_0:
        return run_width<R, DF_Q4_0>(slot, state, act, at.thread, at.blocks);
    default:
        __trap();
        return state;
    }
}

template <int R> DC_DEVICE dc_attender<R> attender_of(unsigned parity) {
    extern __shared__ __align__(128) unsigned char memory[];
    exact_shared<R> &s = *reinterpret_cast<exact_shared<R> *>(memory);
    return dc_attender<R>{s.attend, s.rows, s.rows_full, parity};
}

/* Attention likewise, so that its registers are its own. These return the next parities of the attender's barriers. */
template <int R> __device__ __noinline__ unsigned run_scores(int slot, unsigned parity, int thread, int blocks) {
    extern __shared__ __align__(128) unsigned char memory[];
    exact_shared<R> &s = *reinterpret_cast<exact_shared<R> *>(memory);
    dc_attender<R> attender = attender_of<R>(parity);
    dc_scores_exact<R, DC_EXACT_THREADS>(attender, s.frame, s.phase[slot], dc_thread_index{thread, s.block, blocks});
    return attender.parity;
}
template <int R> __device__ __noinline__ unsigned run_values(int slot, unsigned parity, int thread, int blocks) {
    extern __shared__ __align__(128) unsigned char memory[];
    exact_shared<R> &s = *reinterpret_cast<exact_shared<R> *>(memory);
    dc_attender<R> attender = attender_of<R>(parity);
    dc_values_exact<R, DC_EXACT_THREADS>(attender, s.frame, s.phase[slot], dc_thread_index{thread, s.block, blocks});
    return attender.parity;
}

/* Work goes to blocks in the order of their numbers, so the two blocks of a multiprocessor get numbers that are far
 * apart: where there is work for half of the blocks only, each has a multiprocessor to itself. A third block that says
 * it is on one (a driver may move blocks) would leave a number to nobody: that is an error, not a result. */
template <int R> DC_DEVICE int place_of_block(const dc_frame &f) {
    unsigned processor, processors;
    asm("mov.u32 %0, %%smid;" : "=r"(processor));
    asm("mov.u32 %0, %%nsmid;" : "=r"(processors));
    if (2 * processors != gridDim.x) return (int)blockIdx.x;
    const unsigned before = atomicAdd(f.arrived + 1 + processor, 1u);
    if (before >= 2) __trap();
    return (int)(before * processors + processor);
}

template <int R> __global__ void __launch_bounds__(DC_EXACT_THREADS, 2) run_exact(const __grid_constant__ dc_frame f) {
#if DC_PERSISTENT
    extern __shared__ __align__(128) unsigned char memory[];
    exact_shared<R> &s = *reinterpret_cast<exact_shared<R> *>(memory);
    if (threadIdx.x == 0) {
        s.block = place_of_block<R>(f);
        s.frame = f;
    }
    __syncthreads();
    enum { NT = DC_EXACT_THREADS };
    dc_exact_pipeline_state state = {0, 0};
    unsigned parity = 0;
    if (threadIdx.x < DC_EXACT_PAIRS * DC_EXACT_STAGES) {
        dc_barrier_init(&s.ring.full[0][0] + threadIdx.x, 1);
        dc_barrier_init(&s.ring.empty[0][0] + threadIdx.x, DC_EXACT_SHARES * DC_LANES_WARP);
    }
    if (threadIdx.x < DC_ROW_BUFFERS) dc_barrier_init(s.rows_full + threadIdx.x, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    dc_fetch_phase<NT>(&s.phase[0], f.phase, (int)threadIdx.x);
    __syncthreads();
    for (int i = 0; i < f.phases; i++) {
        const dc_thread_index at = {dc_again((int)threadIdx.x), s.block, (int)gridDim.x};
        const dc_phase &p = s.phase[i & 1];
        if (i + 1 < f.phases) dc_fetch_phase<NT>(&s.phase[(i + 1) & 1], f.phase + i + 1, at.thread);
        switch (p.kind) {
        case DC_LOAD:
        case DC_SEEN:
            dc_seen<R, NT>(s.epilogue, f, at);
            if (p.kind == DC_LOAD) dc_stream<R, NT>(s.epilogue, f, p, at);
            break;
        case DC_RESIDUAL:
            dc_residual_exact<R, NT>(s.epilogue, f, p, at);
            break;
        case DC_PRODUCT:
            state = run_product<R>(p.product.dtype, i & 1, state, static_cast<const float *>(f.act), at);
            break;
        case DC_QKV: {
            dc_attender<R> attender = attender_of<R>(parity);
            dc_keys_early<R>(attender, s.frame, p, at);
            dc_heads<R, NT>(s.epilogue, f, p, at);
            dc_before_bulk(); /* over the tiles come queries */
            dc_before_bulk_reads();
            break;
        }
        case DC_CACHE:
            dc_heads<R, NT>(s.epilogue, f, p, at);
            break;
        case DC_SCORES:
            parity = run_scores<R>(i & 1, parity, at.thread, at.blocks);
            break;
        case DC_VALUES:
            parity = run_values<R>(i & 1, parity, at.thread, at.blocks);
            break;
        case DC_CONTEXT:
            dc_context_exact<R, NT>(f, p, at);
            break;
        case DC_STORE:
            dc_store_result<R, NT>(s.epilogue, f, p, at);
            break;
        case DC_SILU:
            dc_silu_exact<R, NT>(f, p, at);
            break;
        case DC_COPY:
            dc_copy<R, NT, false>(s.epilogue, f, p, at);
            break;
        case DC_NORM:
        case DC_CONV:
        case DC_FINAL:
            dc_norm<R, NT, false>(s.epilogue, f, p, at);
            break;
        default: /* DC_ATTEND is the other class's */
            __trap();
        }
        if (i + 1 < f.phases) dc_grid_sync<NT>(f.arrived, (unsigned)(i + 1) * gridDim.x, at.thread);
    }
#endif
}

__device__ int dc_exact_built = DC_PERSISTENT;

static dc_persistent_kernel kernel_of() {
    dc_persistent_kernel kernel = {};
    kernel.narrow = reinterpret_cast<const void *>(run_exact<8>);
    kernel.wide = reinterpret_cast<const void *>(run_exact<16>);
    kernel.narrow_shared = sizeof(exact_shared<8>);
    kernel.wide_shared = sizeof(exact_shared<16>);
    kernel.threads = DC_EXACT_THREADS;
    kernel.most = 2;
    return kernel;
}

cudaError_t dc_exact_blocks(int *blocks) {
    const dc_persistent_kernel kernel = kernel_of();
    int built = 0;
    *blocks = 0;
    const cudaError_t status = cudaMemcpyFromSymbol(&built, dc_exact_built, sizeof built);
    return status == cudaSuccess ? dc_persistent_blocks(&kernel, built, blocks) : status;
}

cudaError_t dc_launch_exact(const dc_frame *frame, int blocks, cudaStream_t stream) {
    const dc_persistent_kernel kernel = kernel_of();
    return dc_persistent_launch(&kernel, frame, DC_ARRIVALS, blocks, stream);
}
