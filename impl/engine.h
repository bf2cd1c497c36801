/*
 * engine.h - what stands behind df_engine: a table of operations, threads, scratch memory.
 */
#ifndef DF_ENGINE_H
#define DF_ENGINE_H

#include "arena.h"
#include "cpu/pool.h"
#include "ops.h"

struct df_engine {
    df_engine_options options;
    const df_ops *ops;
    df_pool *pool;
    df_arena arena; /* scratch of the call in progress */
};

#endif
