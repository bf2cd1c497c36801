/*
 * engine.h - what stands behind dflash_engine: a table of operations, the memory that they work in, threads, scratch.
 */
#ifndef DF_ENGINE_H
#define DF_ENGINE_H

#include "engine/arena.h"
#include "common/pool.h"
#include "engine/ops.h"

struct dflash_engine {
    dflash_engine_options options;
    const df_ops *ops;
    df_memory memory; /* where the operations' buffers live */
    df_pool *pool;
    df_arena arena; /* scratch of the call in progress */
};

#endif
