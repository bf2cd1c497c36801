/*
 * table.h - what stands behind dflash_table: a vocabulary matrix of the target, and the ids of its rows.
 */
#ifndef DF_TABLE_H
#define DF_TABLE_H

#include "engine/engine.h"

struct dflash_table {
    dflash_engine *engine;
    const char *name;     /* of the tensor, "" for a copy; borrowed */
    df_matrix matrix;     /* [vocab, H]; points into file, owned or device */
    const void *bytes;    /* the same in host memory */
    void *device;         /* owned by the engine's memory; NULL when that is the host's */
    df_safetensors *file; /* owned, NULL when created from values */
    void *owned;          /* NULL when loaded */
    int32_t *ids;         /* owned, [vocab] target ids of a reduced vocabulary; NULL: a row is its own id */
    int32_t *device_ids;  /* owned by the engine's memory: a copy of ids there, NULL where it is the host's */
    int target_vocab;     /* ids are below it */
};

/* The target ids of the table's rows, NULL when they are the rows themselves; `table` may be NULL. */
static inline const int32_t *df_table_ids(const dflash_table *table) { return table != NULL ? table->ids : NULL; }
/* The same in the engine's memory. */
static inline const int32_t *df_table_engine_ids(const dflash_table *table) {
    return table != NULL && table->device_ids != NULL ? table->device_ids : df_table_ids(table);
}
static inline int df_table_target_vocab(const dflash_table *table) { return table->target_vocab; }

#endif
