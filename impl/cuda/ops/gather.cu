/* gather.cu - rows of a table by id, and the selector's scores, which are made of such rows. */
#include "cuda/common/cuda_ops.h"

#include "common/canon.h"

namespace {

enum { THREADS = 128 };

struct table_rows {
    df_dtype dtype;
    const unsigned char *data;
    size_t stride; /* bytes of a row */
    int64_t rows, columns;

    /* An id outside the table stands for row 0: what follows from it is refused, and nothing else is read. */
    __device__ const unsigned char *row(int32_t id) const {
        return data + static_cast<size_t>(id >= 0 && id < rows ? id : 0) * stride;
    }
};

table_rows rows_of(const df_matrix *table) {
    return {table->dtype, static_cast<const unsigned char *>(table->data), df_row_bytes(table->dtype, table->in),
            table->out, table->in};
}

__global__ void __launch_bounds__(THREADS)
    gather_kernel(table_rows table, const int32_t *ids, float scale, float *out, size_t stride) {
    const unsigned char *row = table.row(ids[blockIdx.x]);
    float *to = out + blockIdx.x * stride;
    for (int64_t i = threadIdx.x; i < table.columns; i += THREADS) to[i] = df_cuda_weight(table.dtype, row, i) * scale;
}

struct scores {
    table_rows predecessor, successor;
    const int32_t *prev, *candidate;
    const float *value, *hidden;
    int rank;
    float *score;
};

/* A block is a candidate: its threads run the chains of the segments, the first one folds them. */
__global__ void __launch_bounds__(THREADS) score_kernel(scores s) {
    extern __shared__ float sums[];
    const unsigned char *before = s.predecessor.row(*s.prev), *after = s.successor.row(s.candidate[blockIdx.x]);
    const int segments = (s.rank + DF_SEGMENT - 1) / DF_SEGMENT;
    for (int i = static_cast<int>(threadIdx.x); i < segments; i += THREADS) {
        const int end = s.rank - i * DF_SEGMENT < DF_SEGMENT ? s.rank : (i + 1) * DF_SEGMENT;
        float sum = 0.0f;
        for (int j = i * DF_SEGMENT; j < end; j++) {
            const float t = df_cuda_weight(s.predecessor.dtype, before, j) * s.hidden[j];
            sum = fmaf(t, df_cuda_weight(s.successor.dtype, after, j), sum);
        }
        sums[i] = sum;
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    df_sum tree;
    df_tree_reset(&tree.tree);
    for (int i = 0; i < segments; i++) df_sum_push(&tree, static_cast<unsigned>(i), sums[i]);
    s.score[blockIdx.x] = s.value[blockIdx.x] + df_sum_total(&tree);
}

} /* namespace */

extern "C" dflash_status df_cuda_gather(dflash_engine *engine, const df_matrix *table, const int32_t *ids, int n,
                                        float scale, float *out, size_t stride, dflash_error *err) {
    gather_kernel<<<static_cast<unsigned>(n), THREADS, 0, df_cuda_stream(engine)>>>(rows_of(table), ids, scale, out,
                                                                                    stride);
    return df_cuda_launched("gather", err);
}

extern "C" dflash_status df_cuda_score(dflash_engine *engine, const df_score_args *args, dflash_error *err) {
    const scores s = {rows_of(args->predecessor),
                      rows_of(args->successor),
                      args->prev,
                      args->candidate,
                      args->value,
                      args->hidden,
                      args->rank,
                      args->score};
    const size_t shared = static_cast<size_t>((args->rank + DF_SEGMENT - 1) / DF_SEGMENT) * sizeof(float);
    score_kernel<<<static_cast<unsigned>(args->k), THREADS, shared, df_cuda_stream(engine)>>>(s);
    return df_cuda_launched("selector scores", err);
}
