/* table.cu - the tables of operations of the CUDA classes. They differ in their products, and the fast one in its
 * attention. */
#include "cuda/resident.h"

namespace {

constexpr df_ops make_table(decltype(df_ops::matmul) matmul, decltype(df_ops::attention) attention,
                            decltype(df_ops::round) round, decltype(df_ops::ingest) ingest) {
    df_ops ops = {};
    ops.name = "cuda";
    ops.matmul = matmul;
    ops.rmsnorm = df_cuda_rmsnorm;
    ops.rope = df_cuda_rope;
    ops.attention = attention;
    ops.silu_mul = df_cuda_silu_mul;
    ops.add = df_cuda_add;
    ops.conv = df_cuda_conv;
    ops.scale_cap = df_cuda_scale_cap;
    ops.gather = df_cuda_gather;
    ops.topk = df_cuda_topk;
    ops.choose = df_cuda_choose;
    ops.score = df_cuda_score;
    ops.markov_gate = df_cuda_markov_gate;
    ops.markov_cell = df_cuda_markov_cell;
    ops.round = round;
    ops.ingest = ingest;
    ops.probe = df_cuda_probe;
    return ops;
}

} /* namespace */

extern "C" {
const df_ops df_cuda_ops_exact = make_table(df_cuda_matmul_resident, df_cuda_attention, df_cuda_round, df_cuda_ingest);
const df_ops df_cuda_ops_fast =
    make_table(df_cuda_matmul_resident, df_cuda_attention_fast, df_cuda_round, df_cuda_ingest);
const df_ops df_cuda_ops_cublas = make_table(df_cuda_matmul_cublas, df_cuda_attention, nullptr, nullptr);
}
