/* arena.c - see arena.h. */
#include "engine/arena.h"

#include "common/error.h"

#include <stdint.h>
#include <stdlib.h>

enum { ALIGNMENT = 64, SMALLEST_BLOCK = 1 << 20 };

struct df_arena_block {
    df_arena_block *next;
    size_t size, used; /* bytes of data */
    char *data;
};

static const df_memory *memory_of(const df_arena *arena) {
    return arena->memory != NULL ? arena->memory : &df_host_memory;
}

/* All bits set is a quiet NaN in every element. */
static dflash_status block_poison(const df_arena *arena, df_arena_block *block, dflash_error *err) {
    const df_memory *memory = memory_of(arena);
    return arena->poison ? memory->fill(memory->owner, block->data, 0xff, block->size, err) : DFLASH_OK;
}

static void block_destroy(const df_arena *arena, df_arena_block *block) {
    const df_memory *memory = memory_of(arena);
    memory->release(memory->owner, block->data);
    free(block);
}

static df_arena_block *block_create(const df_arena *arena, size_t size, dflash_error *err) {
    const df_memory *memory = memory_of(arena);
    void *data = NULL;
    df_arena_block *block = malloc(sizeof *block);
    if (block == NULL) {
        df_fail_memory(err, "scratch of a forward call", sizeof *block);
        return NULL;
    }
    if (memory->alloc(memory->owner, "scratch of a forward call", size, &data, err) != DFLASH_OK) {
        free(block);
        return NULL;
    }
    *block = (df_arena_block){.next = NULL, .size = size, .used = 0, .data = data};
    return block;
}

void df_arena_release(df_arena *arena) {
    while (arena->blocks != NULL) {
        df_arena_block *next = arena->blocks->next;
        block_destroy(arena, arena->blocks);
        arena->blocks = next;
    }
    arena->in_use = arena->peak = 0;
}

dflash_status df_arena_reset(df_arena *arena, dflash_error *err) {
    if (arena->blocks != NULL && (arena->blocks->next != NULL || arena->peak > arena->blocks->size)) {
        const size_t size = arena->peak;
        df_arena_release(arena);
        arena->blocks = block_create(arena, size, err);
        if (arena->blocks == NULL) return DFLASH_ERR_MEMORY;
    }
    arena->in_use = arena->peak = 0;
    if (arena->blocks == NULL) return DFLASH_OK;
    arena->blocks->used = 0;
    return block_poison(arena, arena->blocks, err);
}

float *df_arena_floats(df_arena *arena, size_t n, dflash_error *err) {
    if (n > (SIZE_MAX / 2) / sizeof(float)) {
        df_fail_memory(err, "scratch of a forward call", SIZE_MAX);
        return NULL;
    }
    const size_t bytes = (n * sizeof(float) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    df_arena_block *block = arena->blocks;
    if (block == NULL || block->size - block->used < bytes) {
        block = block_create(arena, bytes > SMALLEST_BLOCK ? bytes : SMALLEST_BLOCK, err);
        if (block == NULL) return NULL;
        if (block_poison(arena, block, err) != DFLASH_OK) {
            block_destroy(arena, block);
            return NULL;
        }
        block->next = arena->blocks;
        arena->blocks = block;
    }
    void *data = block->data + block->used;
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
        block_destroy(arena, arena->blocks);
        arena->blocks = next;
    }
    if (arena->blocks != NULL) arena->blocks->used = mark.used; /* the first block of all stays, emptied */
    arena->in_use = mark.in_use;
}
