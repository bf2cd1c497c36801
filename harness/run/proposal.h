/*
 * proposal.h - the part of a run that comes after `final`: the output head, the drafted tokens, the verify window.
 *
 * It exists when the oracle's reference ran an output head, which the oracle says by holding the input `anchor`. The
 * head is the target's, not the drafter's: it comes from a file beside the checkpoint or from the checkpoint's own
 * lm_head.weight (head_source.h), and its digest must be the one that the oracle was computed with.
 */
#ifndef DP_PROPOSAL_H
#define DP_PROPOSAL_H

#include "run/recording.h"
#include "store/store.h"

/* Loads the head, `head` as dp_head_open takes it, and holds its dtype, shape and digest against provenance.head.
 * Codes: "provenance.head.missing", "provenance.head.differs", and those of dflash_table_load. */
dflash_status dp_head_load(dflash_engine *engine, const char *checkpoint, const char *head, const dp_oracle *oracle,
                           dflash_table **out, dflash_error *err);

/* Holds an embedding table against provenance.embedding in the same way (embedding.h). */
dflash_status dp_embedding_check(const dflash_table *embedding, const dp_oracle *oracle, dflash_error *err);

/* Logits of the harvested rows of final[B, H], the greedy proposal from `anchor`, the confidence of each slot and the
 * survival window at threshold 0.5, all observed into `recording`. */
dflash_status dp_run_proposal(dflash_draft *draft, const dflash_table *head, const float *final, int32_t anchor,
                              dp_recording *recording, dflash_error *err);

/* The same for a run that is judged: values that are not finite draft nothing, which dflash_propose refuses
 * ("proposal.nan", "proposal.infinite", "proposal.nofinite"), but where they began is what a check is asked. So the
 * stages shown up to the refusal count as the run, and those after it as not shown, which fails. */
dflash_status dp_run_judged_proposal(dflash_draft *draft, const dflash_table *head, const float *final, int32_t anchor,
                                     dp_recording *recording, dflash_error *err);

#endif
