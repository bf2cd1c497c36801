/* text_file.h - small text files, read whole and written whole. */
#ifndef DP_TEXT_FILE_H
#define DP_TEXT_FILE_H

#include "dflash.h"

/* Reads a file of at most `most` bytes into a terminated string that the caller frees. It is read once, front to back,
 * so it may be a pipe; "-" is standard input. A pipe without a writer, a directory, a device and a socket are refused
 * at once. Codes: "file.open", "file.read", "file.size", "file.text". */
dflash_status dp_text_file_read(const char *path, size_t most, char **out, dflash_error *err);

/* Writes the string, whole or not at all. */
dflash_status dp_text_file_write(const char *path, const char *text, dflash_error *err);

#endif
