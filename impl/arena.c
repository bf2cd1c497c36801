/* arena.c - see arena.h. */
#include "arena.h"

#include "error.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64, SMALLEST_BLOCK = 1 << 20 };

struct df_arena_block {
    df_arena_block *next;
    size_t size, used; /* bytes of data, which starts at the next 64-byte boundary */
};

static char *block_data(df_arena_block *block) { return (char *)block + ALIGNMENT; }

/* All bits set is a quiet NaN in every element. */
static void block_poison(df_arena_block *block) { memset(block_data(block), 0xff, block->size); }

static df_arena_block *block_create(size_t size, df_error *err) {
    _Static_assert(sizeof(df_arena_block) <= ALIGNMENT, "the header of a block fits before its data");
    df_arena_block *block = aligned_alloc(ALIGNMENT, ALIGNMENT + size);
    if (block == NULL) {
        df_fail_memory(err, "scratch of a forward call", size);
        return NULL;
    }
    *block = (df_arena_block){.next = NULL, .size = size, .used = 0};
    return block;
}

void df_arena_release(df_arena *arena) {
    while (arena->blocks != NULL) {
        df_arena_block *next = arena->blocks->next;
        free(arena->blocks);
        arena->blocks = next;
    }
    arena->in_use = arena->peak = 0;
}

df_status df_arena_reset(df_arena *arena, df_error *err) {
    if (arena->blocks != NULL && (arena->blocks->next != NULL || arena->peak > arena->blocks->size)) {
        const size_t size = arena->peak;
        df_arena_release(arena);
        arena->blocks = block_create(size, err);
        if (arena->blocks == NULL) return DF_ERR_MEMORY;
    }
    if (arena->blocks != NULL) {
        arena->blocks->used = 0;
        if (arena->poison) block_poison(arena->blocks);
    }
    arena->in_use = arena->peak = 0;
    return DF_OK;
}

float *df_arena_floats(df_arena *arena, size_t n, df_error *err) {
    if (n > (SIZE_MAX / 2) / sizeof(float)) {
        df_fail_memory(err, "scratch of a forward call", SIZE_MAX);
        return NULL;
    }
    const size_t bytes = (n * sizeof(float) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    df_arena_block *block = arena->blocks;
    if (block == NULL || block->size - block->used < bytes) {
        block = block_create(bytes > SMALLEST_BLOCK ? bytes : SMALLEST_BLOCK, err);
        if (block == NULL) return NULL;
        if (arena->poison) block_poison(block);
        block->next = arena->blocks;
        arena->blocks = block;
    }
    void *data = block_data(block) + block->used;
    block->used += bytes;
    arena->in_use += bytes;
    if (arena->in_use > arena->peak) arena->peak = arena->in_use;
    return data;
}

df_arena_mark df_arena_get_mark(const df_arena *arena) {
    return (df_arena_mark){
        .block = arena->blocks, .used = arena->blocks != NULL ? arena->blocks->used : 0, .in_use = arena->in_use};
}

void df_arena_rewind(df_arena *arena, df_arena_mark mark) {
    while (arena->blocks != mark.block && arena->blocks->next != NULL) {
        df_arena_block *next = arena->blocks->next;
        free(arena->blocks);
        arena->blocks = next;
    }
    if (arena->blocks != NULL) arena->blocks->used = mark.used; /* the first block of all stays, emptied */
    arena->in_use = mark.in_use;
}
