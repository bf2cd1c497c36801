/*
 * persistent.h - the tuned products and rounds behind the table of operations.
 *
 * An engine's `dc_persistent` keeps what they need between calls: matrices packed for the class, made when a matrix is
 * first multiplied with, and programs for each draft model, with their buffers. A program runs a whole round or
 * ingestion in one launch; the plain operations give the same bits stage by stage, for observers.
 */
#ifndef DF_CUDA_PERSISTENT_H
#define DF_CUDA_PERSISTENT_H

#include "cuda/common/cuda_ops.h"

struct dc_persistent;

/* NULL when memory is exhausted. */
dc_persistent *dc_persistent_create(bool fast);
void dc_persistent_destroy(dc_persistent *persistent);

/* Keeps account of the engine's allocations: what was packed from released memory is dropped. False when the host's
 * memory is exhausted. */
bool dc_persistent_allocated(dc_persistent *persistent, const void *memory, size_t bytes);
void dc_persistent_released(dc_persistent *persistent, const void *memory);

extern "C" {
dflash_status df_cuda_matmul_persistent(dflash_engine *engine, const df_matrix *w, const float *bias, const float *x,
                                        int rows, float *y, dflash_error *err);
dflash_status df_cuda_attention_fast(dflash_engine *engine, const df_attention_args *args, dflash_error *err);
dflash_status df_cuda_round(dflash_engine *engine, const df_round_args *args, bool *done, dflash_error *err);
dflash_status df_cuda_ingest(dflash_engine *engine, const df_ingest_args *args, bool *done, dflash_error *err);
}

#endif
