/* memory.c - the processor's memory behind memory.h; a device's is in its backend's folder. */
#include "common/memory.h"

#include "common/error.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

static dflash_status host_alloc(void *owner, const char *what, size_t bytes, void **out, dflash_error *err) {
    (void)owner;
    const size_t padded = bytes / ALIGNMENT * ALIGNMENT + ALIGNMENT;
    *out = padded > bytes ? aligned_alloc(ALIGNMENT, padded) : NULL;
    return *out != NULL ? DFLASH_OK : df_fail_memory(err, what, bytes);
}

static void host_release(void *owner, void *memory) {
    (void)owner;
    free(memory);
}

static dflash_status host_copy(void *owner, void *to, const void *from, size_t bytes, dflash_error *err) {
    (void)owner;
    (void)err;
    if (bytes > 0) memmove(to, from, bytes);
    return DFLASH_OK;
}

static dflash_status host_fill(void *owner, void *to, int byte, size_t bytes, dflash_error *err) {
    (void)owner;
    (void)err;
    if (bytes > 0) memset(to, byte, bytes);
    return DFLASH_OK;
}

static dflash_status host_map(void *owner, void *to, size_t bytes, void **host, dflash_error *err) {
    (void)owner;
    (void)bytes;
    (void)err;
    *host = to;
    return DFLASH_OK;
}

static dflash_status host_unmap(void *owner, void *to, size_t bytes, dflash_error *err) {
    (void)owner;
    (void)to;
    (void)bytes;
    (void)err;
    return DFLASH_OK;
}

static dflash_status host_finish(void *owner, dflash_error *err) {
    (void)owner;
    (void)err;
    return DFLASH_OK;
}

const df_memory df_host_memory = {.host = true,
                                  .alloc = host_alloc,
                                  .release = host_release,
                                  .upload = host_copy,
                                  .download = host_copy,
                                  .copy = host_copy,
                                  .fill = host_fill,
                                  .map = host_map,
                                  .unmap = host_unmap,
                                  .finish = host_finish};
