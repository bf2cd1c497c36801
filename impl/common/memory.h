/*
 * memory.h - where an engine's buffers live, and how bytes get in and out.
 *
 * The forward programs, the arena, the cache and the weights see memory through these functions alone, so that they are
 * the same text for the processor's memory and for a device's. Calls take effect in the order in which they are made,
 * among themselves and with the engine's operations.
 */
#ifndef DF_MEMORY_H
#define DF_MEMORY_H

#include "dflash.h"

typedef struct df_memory {
    void *owner; /* given to every function; NULL for the processor's memory */
    bool host;   /* the processor reads and writes it through the same pointers */

    /* `bytes` (0 is allowed) aligned to 64 bytes at least; `what` names it in the message of a failure. */
    dflash_status (*alloc)(void *owner, const char *what, size_t bytes, void **out, dflash_error *err);
    void (*release)(void *owner, void *memory); /* NULL is allowed */

    /* The host's buffer is free for other use when they return. */
    dflash_status (*upload)(void *owner, void *to, const void *from_host, size_t bytes, dflash_error *err);
    dflash_status (*download)(void *owner, void *to_host, const void *from, size_t bytes, dflash_error *err);

    /* Both ends in this memory; they may overlap. */
    dflash_status (*copy)(void *owner, void *to, const void *from, size_t bytes, dflash_error *err);
    dflash_status (*fill)(void *owner, void *to, int byte, size_t bytes, dflash_error *err);

    /* A window for writing `bytes` at `to`: *host is `to` itself, or staging memory whose content unmap sends there.
     * One window at a time. */
    dflash_status (*map)(void *owner, void *to, size_t bytes, void **host, dflash_error *err);
    dflash_status (*unmap)(void *owner, void *to, size_t bytes, dflash_error *err);

    /* Waits for everything that was asked for; a failure that came late is reported here or by a download. */
    dflash_status (*finish)(void *owner, dflash_error *err);
} df_memory;

/* The processor's. */
extern const df_memory df_host_memory;

#endif
