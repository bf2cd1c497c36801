/*
 * wide_fast.cu - products of many rows on the tensor cores: the rounding model and the order of product_fast.cuh.
 *
 * The rows are first split into their hi and lo parts. A block owns 128 outputs and 64 rows, a warp 32 of each; stages
 * of 64 channels of the weights and of both parts come by asynchronous copies, three under way. After each group of
 * DC_FAST_RUN segments hi + lo enters the tree of canon.h.
 */
#include "cuda/common/chain_sums.cuh"
#include "cuda/persistent/product_fast.cuh"
#include "cuda/persistent/persistent_parts.h"

namespace {

enum {
    OUTPUTS = 128,
    ROWS = 64,
    THREADS = 256,
    STAGES = 3,
    PIECES = DC_ITEM_CHANNELS / 8, /* of 16 bytes, of a row of a stage */
    TALL = 2,                      /* tiles of 16 outputs of a warp */
    WIDE = 4,                      /* tiles of 8 rows of a warp */
    CHAINS = TALL * WIDE * 4,
    DEPTH = 8,   /* at most 240 groups: packed.cu */
    SLICE = 4096 /* rows that are split at a time */
};

struct product {
    const uint4 *w, *hi, *lo; /* rows of `pieces` */
    int out, pieces, rows;
    const float *bias;
    float *y;
};

/* Piece c of row r lies at c ^ r % 8, so that eight rows of a column are in eight different banks. */
struct stage {
    uint4 w[OUTPUTS * PIECES], hi[ROWS * PIECES], lo[ROWS * PIECES];
};

__global__ void split_rows(const float2 *x, size_t pairs, unsigned *hi, unsigned *lo) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < pairs; i += (size_t)gridDim.x * blockDim.x) {
        const float2 v = x[i];
        dc_split_pair(v.x, v.y, hi[i], lo[i]);
    }
}

/* Rows and pieces outside the matrix become zeros. */
__device__ __forceinline__ void copy_piece(uint4 *to, const uint4 *from, int row, int rows, int piece, int pieces) {
    const bool there = row < rows && piece < pieces;
    const uint4 *at = from + (there ? (size_t)row * (size_t)pieces + piece : 0);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dc_shared(to)), "l"(at), "r"(there ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void copy_stage(stage &s, const product &p, int first_out, int first_row, int at) {
    const int column = (int)threadIdx.x % PIECES, piece = at * PIECES + column;
#pragma unroll
    for (int row = (int)threadIdx.x / PIECES; row < OUTPUTS; row += THREADS / PIECES)
        copy_piece(&s.w[row * PIECES + (column ^ row % 8)], p.w, first_out + row, p.out, piece, p.pieces);
#pragma unroll
    for (int row = (int)threadIdx.x / PIECES; row < ROWS; row += THREADS / PIECES) {
        copy_piece(&s.hi[row * PIECES + (column ^ row % 8)], p.hi, first_row + row, p.rows, piece, p.pieces);
        copy_piece(&s.lo[row * PIECES + (column ^ row % 8)], p.lo, first_row + row, p.rows, piece, p.pieces);
    }
}

/* Four 8 x 8 matrices of a stage: this lane names row `row`, piece `column` of the one that it is asked for. */
__device__ __forceinline__ uint4 load_matrices(const uint4 *rows, int row, int column) {
    uint4 v;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(dc_shared(rows + row * PIECES + (column ^ row % 8)))
                 : "memory");
    return v;
}

__device__ __forceinline__ void multiply(const stage &s, int first_out, int first_row, int lane,
                                         float (&hi)[TALL][WIDE][4], float (&lo)[TALL][WIDE][4]) {
#pragma unroll
    for (int k = 0; k < DC_ITEM_CHANNELS / 16; k++) {
        uint4 a[TALL];
#pragma unroll
        for (int m = 0; m < TALL; m++) a[m] = load_matrices(s.w, first_out + m * 16 + lane % 16, 2 * k + lane / 16);
#pragma unroll
        for (int n = 0; n < WIDE; n += 2) {
            const int row = first_row + n * 8 + lane / 16 * 8 + lane % 8, column = 2 * k + lane / 8 % 2;
            const uint4 h = load_matrices(s.hi, row, column), l = load_matrices(s.lo, row, column);
#pragma unroll
            for (int m = 0; m < TALL; m++) {
                dc_mma(hi[m][n], a[m], h.x, h.y);
                dc_mma(hi[m][n + 1], a[m], h.z, h.w);
                dc_mma(lo[m][n], a[m], l.x, l.y);
                dc_mma(lo[m][n + 1], a[m], l.z, l.w);
            }
        }
    }
}

__global__ void __launch_bounds__(THREADS, 2) many_fast(product p) {
    extern __shared__ __align__(128) unsigned char memory[];
    stage *stages = reinterpret_cast<stage *>(memory);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int out_in_block = warp % 4 * 32, row_in_block = warp / 4 * 32;
    const int first_out = (int)blockIdx.x * OUTPUTS, first_row = (int)blockIdx.y * ROWS;
    const int steps = (p.pieces + PIECES - 1) / PIECES;
    float hi[TALL][WIDE][4] = {}, lo[TALL][WIDE][4] = {}, sum[CHAINS];
    dc_chain_sums<CHAINS, DEPTH> sums;
    sums.depth = 0;
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < steps) copy_stage(stages[i], p, first_out, first_row, i);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    for (int step = 0; step < steps; step++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads(); /* this stage is there, and nobody reads the one that is filled next */
        const int ahead = step + STAGES - 1;
        if (ahead < steps) copy_stage(stages[ahead % STAGES], p, first_out, first_row, ahead);
        asm volatile("cp.async.commit_group;" ::: "memory");
        multiply(stages[step % STAGES], out_in_block, row_in_block, lane, hi, lo);
        if ((step + 1) % DC_FAST_RUN != 0 && step + 1 != steps) continue;
#pragma unroll
        for (int i = 0; i < CHAINS; i++) {
            float *h = &hi[i / 4 / WIDE][i / 4 % WIDE][i % 4], *l = &lo[i / 4 / WIDE][i / 4 % WIDE][i % 4];
            sum[i] = *h + *l;
            *h = *l = 0.0f;
        }
        sums.push((unsigned)(step / DC_FAST_RUN), sum);
    }
    sums.finish(sum);
#pragma unroll
    for (int i = 0; i < CHAINS; i++) {
        const int m = i / 4 / WIDE, n = i / 4 % WIDE, c = i % 4;
        const int o = first_out + out_in_block + m * 16 + c / 2 * 8 + lane / 4;
        const int row = first_row + row_in_block + n * 8 + lane % 4 * 2 + c % 2;
        if (o < p.out && row < p.rows)
            p.y[(size_t)row * (size_t)p.out + o] = p.bias != nullptr ? sum[i] + p.bias[o] : sum[i];
    }
}

} /* namespace */

bool dc_many_fast_covers(const df_matrix *w, const float *x) {
    return w->dtype == DF_BF16 && w->in % 8 == 0 && reinterpret_cast<uintptr_t>(w->data) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(x) % sizeof(float2) == 0;
}

dflash_status dc_many_fast(dflash_engine *engine, const df_matrix *w, const float *bias, const float *x, int rows,
                           float *y, dflash_error *err) {
    enum { SPLIT_BLOCKS = 528 };
    const cudaStream_t stream = df_cuda_stream(engine);
    const df_arena_mark mark = df_arena_get_mark(&engine->arena);
    const size_t in = (size_t)w->in, most = (size_t)(rows < SLICE ? rows : SLICE) * in / 2;
    unsigned *hi = df_cuda_take<unsigned>(engine, most, err), *lo = df_cuda_take<unsigned>(engine, most, err);
    if (hi == nullptr || lo == nullptr) return DFLASH_ERR_MEMORY;
    TRY(df_cuda_check(
        cudaFuncSetAttribute(many_fast, cudaFuncAttributeMaxDynamicSharedMemorySize, STAGES * (int)sizeof(stage)),
        "shared memory for a product of many rows", err));
    for (int row = 0; row < rows; row += SLICE) {
        const int count = rows - row < SLICE ? rows - row : SLICE;
        split_rows<<<SPLIT_BLOCKS, THREADS, 0, stream>>>(reinterpret_cast<const float2 *>(x + (size_t)row * in),
                                                         (size_t)count * in / 2, hi, lo);
        TRY(df_cuda_launched("splitting rows", err));
        const product p = {static_cast<const uint4 *>(w->data),
                           reinterpret_cast<const uint4 *>(hi),
                           reinterpret_cast<const uint4 *>(lo),
                           (int)w->out,
                           (int)(w->in / 8),
                           count,
                           bias,
                           y + (size_t)row * (size_t)w->out};
        const dim3 grid(df_cuda_blocks((size_t)w->out, OUTPUTS), df_cuda_blocks((size_t)count, ROWS));
        many_fast<<<grid, THREADS, STAGES * sizeof(stage), stream>>>(p);
        TRY(df_cuda_launched("a product of many rows", err));
    }
    df_arena_rewind(&engine->arena, mark);
    return DFLASH_OK;
}
