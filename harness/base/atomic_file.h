/*
 * atomic_file.h - files that appear whole or not at all.
 *
 * Bytes go to a temporary name in the same folder; commit flushes, syncs, closes and renames. Any failure, a full disk
 * included, removes the temporary file and leaves whatever stood at the final name before.
 */
#ifndef DP_ATOMIC_FILE_H
#define DP_ATOMIC_FILE_H

#include "dflash.h"

typedef struct dp_atomic_file dp_atomic_file;

dflash_status dp_atomic_open(const char *path, dp_atomic_file **out, dflash_error *err);
dflash_status dp_atomic_write(dp_atomic_file *file, const void *data, size_t bytes, dflash_error *err);
/* Ends the file and frees the handle, whether it succeeds or not. */
dflash_status dp_atomic_commit(dp_atomic_file *file, dflash_error *err);
/* Whether a file could be opened at that path; leaves nothing there. For commands that run long before they write. */
dflash_status dp_atomic_check(const char *path, dflash_error *err);
/* Removes the temporary file and frees the handle. NULL is allowed. */
void dp_atomic_discard(dp_atomic_file *file);

#endif
