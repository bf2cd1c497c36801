/* dflash/api.h - what every header of the drafter needs: linkage, version, status. */
#ifndef DFLASH_API_H
#define DFLASH_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Between these stands what the shared library exports. */
#ifdef __cplusplus
#define DFLASH_BEGIN _Pragma("GCC visibility push(default)") extern "C" {
#define DFLASH_END                                                                                                     \
    }                                                                                                                  \
    _Pragma("GCC visibility pop")
#else
#define DFLASH_BEGIN _Pragma("GCC visibility push(default)")
#define DFLASH_END _Pragma("GCC visibility pop")
#endif

DFLASH_BEGIN

/* ---- Version ---- */

/* Of this header. A change of the first number, and before 1.0 of the second, may break callers; it is the library's
 * soname. */
#define DFLASH_VERSION_MAJOR 0
#define DFLASH_VERSION_MINOR 1
#define DFLASH_VERSION_PATCH 0

/* Of the library that runs: "0.1.0". Any thread. */
const char *dflash_version(void);

/* ---- Status ---- */

typedef enum dflash_status {
    DFLASH_OK = 0,
    DFLASH_ERR_ARGUMENT, /* the caller's arguments contradict the interface: capacity, positions out of order, a foreign
                        cache */
    DFLASH_ERR_REFUSED,  /* config, weights or geometry are not what this drafter can honestly run */
    DFLASH_ERR_IO,       /* a file cannot be opened, read or mapped */
    DFLASH_ERR_MEMORY,   /* an allocation failed */
    DFLASH_ERR_DEVICE    /* the backend's device is missing or failed */
} dflash_status;

typedef struct dflash_error {
    dflash_status status;
    char code[48];      /* stable identifier, e.g. "config.key.missing"; tests and machines read this */
    char message[6000]; /* what, where, expected, found, what to do */
} dflash_error;

DFLASH_END

#endif
