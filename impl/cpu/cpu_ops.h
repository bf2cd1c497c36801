/*
 * cpu_ops.h - the CPU's operations, compiled once per instruction set from the same text.
 *
 * The Makefile builds matmul.c, rmsnorm.c, rope_apply.c, attention.c, conv.c, elementwise.c, probe.c and table.c three
 * times, with DF_ISA set to generic, avx2 or avx512 and the matching compiler flags. DF_CPU(name) is the name of a
 * function in the set being built. One text, IEEE operations and no contraction: the three sets agree bit for bit
 * (tested).
 */
#ifndef DF_CPU_OPS_H
#define DF_CPU_OPS_H

#include "engine/backends.h"

/* heads.c, compiled once for all of them. */
dflash_status df_cpu_gather(dflash_engine *engine, const df_matrix *table, const int32_t *ids, int n, float scale,
                            float *out, size_t stride, dflash_error *err);
dflash_status df_cpu_topk(dflash_engine *engine, const df_topk_args *args, dflash_error *err);
dflash_status df_cpu_choose(dflash_engine *engine, const df_choose_args *args, dflash_error *err);
dflash_status df_cpu_score(dflash_engine *engine, const df_score_args *args, dflash_error *err);
dflash_status df_cpu_markov_gate(dflash_engine *engine, const float *gate, int rank, float *embedding,
                                 dflash_error *err);
dflash_status df_cpu_markov_cell(dflash_engine *engine, const float *joint, int rank, float *state, float *embedding,
                                 dflash_error *err);

/* The generic set's probes, which the reference has too. */
double df_cpu_probe_fma_generic(dflash_engine *engine, int tasks, float *sink);
double df_cpu_probe_read_generic(dflash_engine *engine, const float *memory, size_t n, float *sink);

#ifdef DF_ISA

#define DF_CPU_PASTE2(name, isa) df_cpu_##name##_##isa
#define DF_CPU_PASTE(name, isa) DF_CPU_PASTE2(name, isa)
#define DF_CPU(name) DF_CPU_PASTE(name, DF_ISA)

dflash_status DF_CPU(matmul)(dflash_engine *engine, const df_matrix *w, const float *bias, const float *x, int rows,
                             float *y, dflash_error *err);
dflash_status DF_CPU(rmsnorm)(dflash_engine *engine, const float *x, const float *weight, int rows, int n, float eps,
                              float *y, dflash_error *err);
dflash_status DF_CPU(rope)(dflash_engine *engine, const float *x, const float *cos_table, const float *sin_table,
                           int rows, int heads, int head_dim, int rotary_dim, float *y, dflash_error *err);
dflash_status DF_CPU(attention)(dflash_engine *engine, const df_attention_args *args, dflash_error *err);
dflash_status DF_CPU(silu_mul)(dflash_engine *engine, const float *gate, const float *up, size_t n, float *y,
                               dflash_error *err);
dflash_status DF_CPU(add)(dflash_engine *engine, const float *a, const float *b, size_t n, float *y, dflash_error *err);
dflash_status DF_CPU(conv)(dflash_engine *engine, const df_conv_args *args, dflash_error *err);
dflash_status DF_CPU(scale_cap)(dflash_engine *engine, const float *x, size_t n, float scale, float cap, float *y,
                                dflash_error *err);
double DF_CPU(probe_fma)(dflash_engine *engine, int tasks, float *sink);
double DF_CPU(probe_read)(dflash_engine *engine, const float *memory, size_t n, float *sink);

#endif
#endif
