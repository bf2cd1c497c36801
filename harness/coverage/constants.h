/*
 * constants.h - the sizes that the code is cut by, read from its sources: every enumerator and macro of impl/ whose
 * value is written down as whole numbers.
 *
 * Read from the text and not from headers, because most of them belong to one file; so none can be left out of what is
 * asked about them (coverage.h).
 */
#ifndef DP_CONSTANTS_H
#define DP_CONSTANTS_H

#include "dflash.h"

typedef struct dp_source_constant {
    char file[96]; /* below the folder, "cuda/program.h" */
    char name[64];
    int64_t value;
} dp_source_constant;

typedef struct dp_constant_list {
    dp_source_constant *item; /* owned, by file, in the order of the text */
    int count;
} dp_constant_list;

/* Reads the .c, .h, .cu and .cuh files of `folder` and of the folders in it. What hangs on sizeof or on a parameter of
 * a template has no value of its own and is left out. Codes: "constants.folder", "constants.name" (one too long to be
 * held), and those of dp_text_file_read. Release *out whatever the outcome. */
dflash_status dp_constants_read(const char *folder, dp_constant_list *out, dflash_error *err);
void dp_constants_release(dp_constant_list *list);

#endif
