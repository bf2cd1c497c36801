/*
 * arena.h - scratch memory of one forward call.
 *
 * Buffers lie in the engine's memory, are handed out in order and all given back together by a reset, so a forward
 * makes no allocation once its sizes have been seen: a reset merges what the last call needed into one block.
 */
#ifndef DF_ARENA_H
#define DF_ARENA_H

#include "common/memory.h"

typedef struct df_arena_block df_arena_block;

typedef struct df_arena {
    df_arena_block *blocks;  /* newest first */
    size_t in_use, peak;     /* bytes handed out now, and at most since the last reset */
    bool poison;             /* fill with NaN at every reset and in every new block */
    const df_memory *memory; /* where blocks come from; NULL: the processor's memory */
} df_arena;

/* Gives everything back. Fails only when merging cannot allocate, or when a device cannot be poisoned. */
dflash_status df_arena_reset(df_arena *arena, dflash_error *err);
void df_arena_release(df_arena *arena);

/* `n` floats, aligned to 64 bytes, valid until the next reset. NULL with *err set when memory is exhausted. */
float *df_arena_floats(df_arena *arena, size_t n, dflash_error *err);

/* A point to go back to: a rewind gives back what was handed out after its mark. */
typedef struct df_arena_mark {
    df_arena_block *block;
    size_t used, in_use;
} df_arena_mark;

df_arena_mark df_arena_get_mark(const df_arena *arena);
void df_arena_rewind(df_arena *arena, df_arena_mark mark);

#endif
