/*
 * topk.cu - the k best values of each row, exactly: descending, ties to the lower column, -inf never chosen.
 *
 * A value and its column make one 64-bit key whose order is the rule, so a maximum over keys needs no tie-breaking and
 * any reduction gives the same answer. A block owns a row and finds one key a pass, each below the one before: k passes
 * over a row that stays in the cache. A NaN or +infinity anywhere, or too few finite values, is recorded in the row's
 * choice.
 */
#include "cuda/ops/topk_row.h"

namespace {

__global__ void __launch_bounds__(DF_TOPK_THREADS) topk_kernel(df_topk_args a) {
    const size_t slot = blockIdx.x, at = slot * static_cast<size_t>(a.k);
    const float *row = a.rows + slot * static_cast<size_t>(a.width);
    df_choice choice = {};
    uint64_t key = UINT64_MAX;
    for (int i = 0; i < a.k; i++) {
        const df_topk_found found = df_topk_below(row, a.width, key);
        key = found.key;
        if (i == 0 && found.bad < a.width) choice = df_topk_fault(row, found.bad);
        if (key == 0 && choice.fault == DF_FAULT_NONE) {
            choice.fault = DF_FAULT_FEW;
            choice.at = i;
        }
        if (threadIdx.x != 0) continue;
        const int32_t column = df_topk_column(key);
        a.value[at + static_cast<size_t>(i)] = key != 0 ? row[column] : -INFINITY;
        a.id[at + static_cast<size_t>(i)] = a.ids != nullptr ? a.ids[column] : column;
    }
    if (threadIdx.x == 0) a.choice[slot] = choice;
}

} /* namespace */

extern "C" dflash_status df_cuda_topk(dflash_engine *engine, const df_topk_args *args, dflash_error *err) {
    topk_kernel<<<static_cast<unsigned>(args->n), DF_TOPK_THREADS, 0, df_cuda_stream(engine)>>>(*args);
    return df_cuda_launched("top-k", err);
}
