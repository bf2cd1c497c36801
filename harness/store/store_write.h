/*
 * store_write.h - writes files in the format of oracles/FORMAT.md.
 *
 * The file is built in memory and appears at its path whole, on commit, or not at all; equal content gives equal bytes.
 * Any failure leaves the writer usable for discard only.
 */
#ifndef DP_STORE_WRITE_H
#define DP_STORE_WRITE_H

#include "store/store_dataset.h"

typedef struct dp_store_writer dp_store_writer;

/* A whole tensor, of which elements offset, offset + stride, ... are stored. */
typedef struct dp_store_tensor {
    dp_logical dtype;
    int rank;
    int64_t dim[4];
    int64_t stride, offset; /* 1 and 0 to store everything; stride must be at least 1 */
    const void *data;       /* double, float, uint16_t (bfloat16 bits) or int32_t [product of dim] */
} dp_store_tensor;

/* `kind` is "oracle" or "recording". The path is claimed on commit. */
dflash_status dp_store_create(const char *path, const char *kind, dp_store_writer **out, dflash_error *err);

/* `name` is "geometry" or "provenance", `text` its JSON; commit needs both. */
dflash_status dp_store_write_text(dp_store_writer *writer, const char *name, const char *text, dflash_error *err);
dflash_status dp_store_write_input(dp_store_writer *writer, const char *name, const dp_store_tensor *tensor,
                                   dflash_error *err);
/* Of a recording, whose one run is DP_RUN_OWN, whole tensors alone. With samples goes the sketch of the whole. */
dflash_status dp_store_write_stage(dp_store_writer *writer, dp_run run, const char *name, const dp_store_tensor *tensor,
                                   dflash_error *err);

/* Ends the file and frees the writer, whether it succeeds or not. Codes: "store.incomplete", "store.write", "atomic.*".
 */
dflash_status dp_store_commit(dp_store_writer *writer, dflash_error *err);
void dp_store_discard(dp_store_writer *writer); /* NULL is allowed */

#endif
