/*
 * printable.h - text of any origin (names in files, paths, messages) as a line of a terminal or a log may hold it.
 */
#ifndef DF_PRINTABLE_H
#define DF_PRINTABLE_H

#include <stddef.h>
#include <stdint.h>

/* The first character of a UTF-8 string: its length in bytes, and its number in *code. 0: not UTF-8 (overlong forms,
 * surrogates and numbers beyond the last included). The terminator is a character of length 1. */
size_t df_utf8(const char *text, uint32_t *code);

/* Copies `text` with control characters (line ends, escape, delete, U+0080 to U+009F) and bytes that are no UTF-8
 * written as \xNN, one for each byte. Returns the length of the whole; like snprintf it stores at most `size` bytes,
 * terminator included, and here never a part of a character. `out` may be NULL when size is 0. */
size_t df_printable(const char *text, char *out, size_t size);

#endif
