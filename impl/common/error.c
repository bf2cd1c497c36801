/* error.c - see error.h. */
#include "common/error.h"

#include "common/printable.h"

#include <stdarg.h>
#include <stdio.h>

dflash_status df_fail(dflash_error *err, dflash_status status, const char *code, const char *format, ...) {
    if (err == NULL) return status;
    err->status = status;
    snprintf(err->code, sizeof err->code, "%s", code);
    char message[sizeof err->message]; /* a name in it may come from a file, control characters and all */
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    df_printable(message, err->message, sizeof err->message);
    return status;
}

dflash_status df_fail_memory(dflash_error *err, const char *what, size_t bytes) {
    return df_fail(err, DFLASH_ERR_MEMORY, "memory.exhausted",
                   "Out of memory: %zu bytes for %s could not be allocated. Free memory or use a smaller input.", bytes,
                   what);
}
