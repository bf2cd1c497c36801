/*
 * fnv.h - FNV-1a with 64 bits: tells a damaged block of bytes from a whole one.
 *
 * Each step is a bijection of the state for a given byte, so any single changed byte changes the result. It is no
 * defence against someone who wants two blocks to agree.
 */
#ifndef DF_FNV_H
#define DF_FNV_H

#include <stddef.h>
#include <stdint.h>

#define DF_FNV_START UINT64_C(0xcbf29ce484222325)

/* The hash of what `hash` covered so far, followed by data[bytes]. */
static inline uint64_t df_fnv(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *byte = data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
    return hash;
}

#endif
