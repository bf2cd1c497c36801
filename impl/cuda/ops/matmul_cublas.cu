/*
 * matmul_cublas.cu - y = x W^T + bias through cuBLAS, by tiles of rows that all have one shape.
 *
 * cuBLAS chooses its kernel by the shape of a product, so a row's bits would depend on how many rows share the call.
 * Here every call has ROWS rows, the last ones filled up with zeros, and the same outputs: whichever kernel is chosen,
 * it is the same for every row. Weights are widened to float32 (or rounded to the narrower products that the engine was
 * asked for) in pieces of bounded size at every call: that costs a write and a read of the piece, but a model that fits
 * the exact class fits this one, and no second copy of the weights exists that could differ from the first.
 */
#include "cuda/common/device_scope.h"

namespace {

enum { ROWS = 16, THREADS = 256 };
const size_t PIECE_BYTES = static_cast<size_t>(256) << 20; /* of widened weights at a time */

/* A value as the products take it, rounded to the nearest, ties to even: cuBLAS finds nothing left to round. */
__device__ void store(float value, dflash_products products, void *to, size_t at) {
    if (products == DFLASH_PRODUCTS_BF16)
        static_cast<uint16_t *>(to)[at] = df_f32_to_bf16(value);
    else
        static_cast<float *>(to)[at] = products == DFLASH_PRODUCTS_TF32 ? df_round_to_tf32(value) : value;
}

/* Rows [0, outputs) of w. */
__global__ void __launch_bounds__(THREADS) widen_kernel(df_dtype dtype, const unsigned char *w, size_t stride,
                                                        int64_t in, dflash_products products, void *to) {
    const size_t o = blockIdx.y;
    const int64_t k = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (k < in) store(df_cuda_weight(dtype, w + o * stride, k), products, to, o * static_cast<size_t>(in) + k);
}

/* x[rows, in] with zero rows behind it, up to whole tiles. Rows are the grid's x here and below: there are more than
 * its other dimensions have room for (65535). */
__global__ void __launch_bounds__(THREADS)
    pad_kernel(const float *x, int rows, int64_t in, dflash_products products, void *to) {
    const int row = static_cast<int>(blockIdx.x);
    const int64_t k = static_cast<int64_t>(blockIdx.y) * THREADS + threadIdx.x;
    const size_t at = static_cast<size_t>(row) * static_cast<size_t>(in) + static_cast<size_t>(k);
    if (k < in) store(row < rows ? x[at] : 0.0f, products, to, at);
}

/* y[row][first + o] = z[row][o] + bias. */
__global__ void __launch_bounds__(THREADS)
    place_kernel(const float *z, int outputs, int64_t first, int64_t out, const float *bias, float *y) {
    const int o = static_cast<int>(blockIdx.y) * THREADS + static_cast<int>(threadIdx.x);
    const size_t row = blockIdx.x;
    if (o >= outputs) return;
    const float value = z[row * static_cast<size_t>(outputs) + static_cast<size_t>(o)];
    y[row * static_cast<size_t>(out) + static_cast<size_t>(first + o)] =
        bias != nullptr ? value + bias[first + o] : value;
}

struct product {
    const df_matrix *w;
    const float *bias, *x;
    int rows, tile, padded; /* padded: up to whole tiles */
    dflash_products products;
    void *weights, *values; /* [piece, in], [padded, in] in the products' width */
    float *result;          /* [padded, piece] */
    int64_t piece;          /* outputs at a time */
    float *y;
};

size_t width_of(dflash_products products) { return products == DFLASH_PRODUCTS_BF16 ? 2 : 4; }

/* z[rows, outputs] = x[rows, in] w[outputs, in]^T, row-major; for cuBLAS, whose matrices are column-major, the product
 * of w^T transposed with x. */
dflash_status multiply(const df_cuda *cuda, const product &p, const void *x, int rows, int outputs, float *z,
                       dflash_error *err) {
    const float one = 1.0f, zero = 0.0f;
    const int in = static_cast<int>(p.w->in);
    const cudaDataType_t type = p.products == DFLASH_PRODUCTS_BF16 ? CUDA_R_16BF : CUDA_R_32F;
    const cublasComputeType_t compute = p.products == DFLASH_PRODUCTS_TF32  ? CUBLAS_COMPUTE_32F_FAST_TF32
                                        : p.products == DFLASH_PRODUCTS_F32 ? CUBLAS_COMPUTE_32F_PEDANTIC
                                                                            : CUBLAS_COMPUTE_32F;
    return df_cublas_check(&cuda->library,
                           cuda->library.gemm(cuda->cublas, CUBLAS_OP_T, CUBLAS_OP_N, outputs, rows, in, &one,
                                              p.weights, type, in, x, type, in, &zero, z, CUDA_R_32F, outputs, compute,
                                              CUBLAS_GEMM_DEFAULT),
                           "a product", err);
}

dflash_status run_piece(dflash_engine *engine, const product &p, int64_t first, int outputs, dflash_error *err) {
    const df_cuda *cuda = df_cuda_of(engine);
    const df_matrix *w = p.w;
    const size_t stride = df_row_bytes(w->dtype, w->in), in = static_cast<size_t>(w->in);
    const unsigned columns = df_cuda_blocks(in, THREADS);
    widen_kernel<<<dim3(columns, static_cast<unsigned>(outputs)), THREADS, 0, cuda->stream>>>(
        w->dtype, static_cast<const unsigned char *>(w->data) + static_cast<size_t>(first) * stride, stride, w->in,
        p.products, p.weights);
    TRY(df_cuda_launched("widening of weights", err));
    for (int row = 0; row < p.padded; row += p.tile) {
        const unsigned char *x =
            static_cast<const unsigned char *>(p.values) + static_cast<size_t>(row) * in * width_of(p.products);
        TRY(multiply(cuda, p, x, p.tile, outputs, p.result + static_cast<size_t>(row) * static_cast<size_t>(outputs),
                     err));
    }
    const dim3 grid(static_cast<unsigned>(p.rows), df_cuda_blocks(static_cast<size_t>(outputs), THREADS));
    place_kernel<<<grid, THREADS, 0, cuda->stream>>>(p.result, outputs, first, w->out, p.bias, p.y);
    return df_cuda_launched("placing of results", err);
}

} /* namespace */

extern "C" dflash_status df_cuda_matmul_tiled(dflash_engine *engine, const df_matrix *w, const float *bias,
                                              const float *x, int rows, int tile, float *y, dflash_error *err) {
    const df_cuda_scope scope(df_cuda_of(engine)->device);
    TRY(scope.check(err));
    const size_t in = static_cast<size_t>(w->in), width = width_of(engine->options.products);
    product p = {};
    p.w = w;
    p.bias = bias;
    p.x = x;
    p.rows = rows;
    p.tile = tile;
    p.padded = static_cast<int>(df_cuda_blocks(static_cast<size_t>(rows), static_cast<size_t>(tile))) * tile;
    p.products = engine->options.products;
    p.y = y;
    p.piece = static_cast<int64_t>(PIECE_BYTES / (in * width));
    if (p.piece > 32768) p.piece = 32768; /* a dimension of a grid ends at 65535 */
    if (p.piece > w->out) p.piece = w->out;
    const df_arena_mark mark = df_arena_get_mark(&engine->arena);
    p.weights = df_cuda_take<char>(engine, static_cast<size_t>(p.piece) * in * width, err);
    if (p.weights == nullptr) return DFLASH_ERR_MEMORY;
    p.values = df_cuda_take<char>(engine, static_cast<size_t>(p.padded) * in * width, err);
    if (p.values == nullptr) return DFLASH_ERR_MEMORY;
    p.result = df_cuda_take<float>(engine, static_cast<size_t>(p.padded) * static_cast<size_t>(p.piece), err);
    if (p.result == nullptr) return DFLASH_ERR_MEMORY;
    pad_kernel<<<dim3(static_cast<unsigned>(p.padded), df_cuda_blocks(in, THREADS)), THREADS, 0,
                 df_cuda_stream(engine)>>>(x, rows, w->in, p.products, p.values);
    TRY(df_cuda_launched("padding of rows", err));
    for (int64_t first = 0; first < w->out; first += p.piece)
        TRY(run_piece(engine, p, first, static_cast<int>(w->out - first < p.piece ? w->out - first : p.piece), err));
    df_arena_rewind(&engine->arena, mark);
    return DFLASH_OK;
}

extern "C" dflash_status df_cuda_matmul_cublas(dflash_engine *engine, const df_matrix *w, const float *bias,
                                               const float *x, int rows, float *y, dflash_error *err) {
    return rows > 0 ? df_cuda_matmul_tiled(engine, w, bias, x, rows, ROWS, y, err) : DFLASH_OK;
}
