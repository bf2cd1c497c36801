/* table.c - the table of operations of the instruction set being built. */
#include "cpu/cpu_ops.h"

#define DF_STRING2(text) #text
#define DF_STRING(text) DF_STRING2(text)

const df_ops DF_CPU(ops) = {
    .name = DF_STRING(DF_ISA),
    .matmul = DF_CPU(matmul),
    .rmsnorm = DF_CPU(rmsnorm),
    .rope = DF_CPU(rope),
    .attention = DF_CPU(attention),
    .silu_mul = DF_CPU(silu_mul),
    .add = DF_CPU(add),
    .conv = DF_CPU(conv),
    .scale_cap = DF_CPU(scale_cap),
    .gather = df_cpu_gather,
    .topk = df_cpu_topk,
    .choose = df_cpu_choose,
    .score = df_cpu_score,
    .markov_gate = df_cpu_markov_gate,
    .markov_cell = df_cpu_markov_cell,
    .probe_fma = DF_CPU(probe_fma),
    .probe_read = DF_CPU(probe_read),
};
