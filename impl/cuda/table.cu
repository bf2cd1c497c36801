/* table.cu - the tables of operations of the CUDA classes, every one on its engine's device. They differ in their
 * products, and the fast one in its attention. */
#include "cuda/common/device_scope.h"
#include "cuda/persistent/persistent.h"

namespace {

template <auto F> constexpr auto on_device = df_cuda_guarded<F>::call;

constexpr df_ops make_table(decltype(df_ops::matmul) matmul, decltype(df_ops::attention) attention,
                            decltype(df_ops::round) round, decltype(df_ops::ingest) ingest) {
    df_ops ops = {};
    ops.name = "cuda";
    ops.matmul = matmul;
    ops.rmsnorm = on_device<df_cuda_rmsnorm>;
    ops.rope = on_device<df_cuda_rope>;
    ops.attention = attention;
    ops.silu_mul = on_device<df_cuda_silu_mul>;
    ops.add = on_device<df_cuda_add>;
    ops.conv = on_device<df_cuda_conv>;
    ops.scale_cap = on_device<df_cuda_scale_cap>;
    ops.gather = on_device<df_cuda_gather>;
    ops.topk = on_device<df_cuda_topk>;
    ops.choose = on_device<df_cuda_choose>;
    ops.score = on_device<df_cuda_score>;
    ops.markov_gate = on_device<df_cuda_markov_gate>;
    ops.markov_cell = on_device<df_cuda_markov_cell>;
    ops.round = round;
    ops.ingest = ingest;
    ops.probe = on_device<df_cuda_probe>;
    return ops;
}

} /* namespace */

extern "C" {
const df_ops df_cuda_ops_exact = make_table(on_device<df_cuda_matmul_persistent>, on_device<df_cuda_attention>,
                                            on_device<df_cuda_round>, on_device<df_cuda_ingest>);
const df_ops df_cuda_ops_fast = make_table(on_device<df_cuda_matmul_persistent>, on_device<df_cuda_attention_fast>,
                                           on_device<df_cuda_round>, on_device<df_cuda_ingest>);
const df_ops df_cuda_ops_cublas =
    make_table(on_device<df_cuda_matmul_cublas>, on_device<df_cuda_attention>, nullptr, nullptr);
}
