/* text_file.h - small text files, read whole and written whole. */
#ifndef DP_TEXT_FILE_H
#define DP_TEXT_FILE_H

#include "dflash.h"

/* Reads a file of at most `most` bytes into a terminated string that the caller frees. Codes: "file.open", "file.read",
 * "file.size". */
df_status dp_text_file_read(const char *path, size_t most, char **out, df_error *err);

/* Writes the string, whole or not at all. */
df_status dp_text_file_write(const char *path, const char *text, df_error *err);

#endif
