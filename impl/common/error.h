/*
 * error.h - how the drafter fills a dflash_error.
 *
 * Every message is one paragraph that says what is wrong, where, what was expected, what was found and what to do.
 */
#ifndef DF_ERROR_H
#define DF_ERROR_H

#include "dflash.h"

/* Stores status, code and the formatted message in *err (err may be NULL) and returns status, so that a caller can
 * write `return df_fail(...)`. An error already stored is overwritten. */
dflash_status df_fail(dflash_error *err, dflash_status status, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The usual message of a failed allocation of `bytes` for `what`. */
dflash_status df_fail_memory(dflash_error *err, const char *what, size_t bytes);

/* Returns from the calling function with the status of `call` unless it is DFLASH_OK; for programs that hold nothing to
 * release. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        const dflash_status try_status = (call);                                                                       \
        if (try_status != DFLASH_OK) return try_status;                                                                \
    } while (0)

#endif
