/*
 * resident.h - the tuned products and rounds behind the table of operations.
 *
 * An engine's `dc_resident` keeps what they need between calls: matrices packed for the class, made when a matrix is
 * first multiplied with, and programs for each draft model, with their buffers. A program runs a whole round or
 * ingestion in one launch; the plain operations give the same bits stage by stage, for observers.
 */
#ifndef DF_CUDA_RESIDENT_H
#define DF_CUDA_RESIDENT_H

#include "cuda/common/cuda_ops.h"

struct dc_resident;

/* NULL when memory is exhausted. */
dc_resident *dc_resident_create(bool fast);
void dc_resident_destroy(dc_resident *resident);

/* Keeps account of the engine's allocations: what was packed from released memory is dropped. False when the host's
 * memory is exhausted. */
bool dc_resident_allocated(dc_resident *resident, const void *memory, size_t bytes);
void dc_resident_released(dc_resident *resident, const void *memory);

extern "C" {
df_status df_cuda_matmul_resident(df_engine *engine, const df_matrix *w, const float *bias, const float *x, int rows,
                                  float *y, df_error *err);
df_status df_cuda_attention_fast(df_engine *engine, const df_attention_args *args, df_error *err);
df_status df_cuda_round(df_engine *engine, const df_round_args *args, bool *done, df_error *err);
df_status df_cuda_ingest(df_engine *engine, const df_ingest_args *args, bool *done, df_error *err);
}

#endif
