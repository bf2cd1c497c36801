/*
 * round_variants.h - the ways in which a check runs one block, each of which must give the bits of
 * dflash_forward_block.
 *
 * Beside the schedules of ingestion they are what a cache can go through before a draft: a tail that was exported and
 * imported, a floor, a pin that is cut back to, rejected rows, a ring that compacts. Every variant is compared with a
 * forward_block over the rows that its cache stands for.
 */
#ifndef DP_ROUND_VARIANTS_H
#define DP_ROUND_VARIANTS_H

#include "judge/rounds.h"

typedef struct dp_variant dp_variant;

/* NULL past the last. */
const dp_variant *dp_variant_at(int index);
const char *dp_variant_name(const dp_variant *variant); /* "round.chunk7", "round.pin", ... */
/* Whether a model has the variant: only a cache whose layers all slide compacts. */
bool dp_variant_exists(const dp_variant *variant, const dflash_config *config);
/* `block` is the recording of dflash_forward_block on the same input. Fails only where a call does: a variant that
 * differs is a result. */
dflash_status dp_variant_run(const dp_variant *variant, dflash_draft *draft, const dp_round_input *input,
                             const dp_recording *block, dp_variant_result *out, dflash_error *err);

#endif
