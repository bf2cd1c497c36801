/*
 * regular_file.h - opens what must be a regular file, and says what else stands there.
 *
 * open(2) waits at a named pipe until someone writes to it, and a socket or a device gives an errno that misleads. What
 * is mapped, read at offsets or read twice goes through here; text that is read once, front to back, may come from a
 * pipe and has a way of its own (harness/base/text_file.c).
 */
#ifndef DF_REGULAR_FILE_H
#define DF_REGULAR_FILE_H

#include <sys/stat.h>

/* "a regular file", "a directory", "a pipe", "a socket" or "a device". */
const char *df_file_kind(mode_t mode);

/* Opens `path` for reading without waiting for anyone. Returns the descriptor, which the caller closes, and fills
 * *info. Or returns -1: *kind says what stands there instead of a regular file, or is NULL and errno says why not. */
int df_open_regular(const char *path, struct stat *info, const char **kind);

#endif
