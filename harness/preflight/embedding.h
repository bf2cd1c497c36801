/*
 * embedding.h - the part of a run that comes before layer 0: the block looked up in the target's embedding table.
 *
 * It exists when the oracle's reference embedded the block, which the oracle says by holding the input `block_ids`. The
 * table is the target's and comes from the checkpoint's own embed_tokens.weight; its digest must be the one that the
 * oracle was computed with. Without it the block is the oracle's input `noise_embedding`.
 */
#ifndef DP_EMBEDDING_H
#define DP_EMBEDDING_H

#include "preflight/preflight.h"

/* Sets in->ids, or leaves it NULL where the reference embedded nothing. Codes: "provenance.embedding.missing",
 * "oracle.shape", "oracle.block_ids". */
dflash_status dp_embedding_preflight(dp_preflight *in, dflash_error *err);

/* Whether in->noise is what the reference's float32 run embedded: "oracle.input.embedding" where it is not. */
dflash_status dp_embedding_agrees(const dp_preflight *in, dflash_error *err);

/* Loads the table and holds it against provenance.embedding; *out stays NULL without in->ids. Codes:
 * "provenance.embedding.missing", "provenance.embedding.differs", and those of dflash_table_load. */
dflash_status dp_embedding_load(dflash_engine *engine, const char *checkpoint, const dp_preflight *in,
                                dflash_table **out, dflash_error *err);

/* noise[B, H] of a run: embedded by the drafter itself, or in->noise without a table. */
dflash_status dp_embedding_run(dflash_draft *draft, const dflash_table *embedding, const dp_preflight *in, float *noise,
                               dflash_error *err);

#endif
