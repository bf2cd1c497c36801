/*
 * backends.h - what a backend gives the engine. The engine knows its backends by these declarations alone; the folders
 * cpu/ and cuda/ define them.
 */
#ifndef DF_BACKENDS_H
#define DF_BACKENDS_H

#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The CPU's tables of operations, one an instruction set (cpu/table.c). */
extern const df_ops df_cpu_ops_generic;
extern const df_ops df_reference_ops; /* reference/reference.c */
#if defined(__x86_64__)
extern const df_ops df_cpu_ops_avx2;
extern const df_ops df_cpu_ops_avx512;
#endif

/* Codes: "engine.device" (no driver, no GPU, none of the number that the options name, or one that this build has no
 * code for), "engine.products", "engine.cublas", "memory.device", "device.failed". */
dflash_status df_cuda_open(const dflash_engine_options *options, df_memory *memory, const df_ops **ops,
                           dflash_error *err);
/* Does nothing for a memory that df_cuda_open did not fill. */
void df_cuda_close(df_memory *memory);
void df_cuda_describe(const dflash_engine *engine, dflash_device_facts *out);

#ifdef __cplusplus
}
#endif

#endif
