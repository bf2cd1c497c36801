/*
 * head_source.h - where an output head comes from: a tensor of the target's file, as --lm-head FILE[:TENSOR] says, or
 * the checkpoint's own.
 */
#ifndef DP_HEAD_SOURCE_H
#define DP_HEAD_SOURCE_H

#include "dflash.h"

enum { DP_HEAD_PATH = 4096 };

/* The line of --help, of every command that has the option. */
#define DP_HEAD_OPTION_HELP                                                                                            \
    "  --lm-head FILE[:TENSOR]  safetensors file of the target and the output head in it (default: of FILE "           \
    "lm_head.weight,\n"                                                                                                \
    "                    else the same behind a known prefix, else the embedding that is tied to it; without the\n"    \
    "                    option the checkpoint's own lm_head.weight)\n"

typedef struct dp_head_source {
    char file[DP_HEAD_PATH];
    const char *tensor; /* a part of the text that was parsed; NULL: by rule (dflash_table_load) */
} dp_head_source;

/* What follows the last colon is a tensor's name, unless it has a slash or a file of the whole text is there. A text
 * that is too long leaves the file cut, which then does not exist. */
void dp_head_source_parse(const char *text, dp_head_source *out);

/* Loads the head that `text` says; NULL: the checkpoint's own lm_head.weight, and *out NULL when it has none. An
 * embedding of the drafter's own is never taken for a head. Codes: those of dflash_table_load, "path.long". */
dflash_status dp_head_open(dflash_engine *engine, const char *checkpoint, const char *text, dflash_table **out,
                           dflash_error *err);

#endif
