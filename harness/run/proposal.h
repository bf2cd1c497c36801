/*
 * proposal.h - the part of a run that comes after `final`: the output head, the drafted tokens, the verify window.
 *
 * It exists when the oracle's reference ran an output head, which the oracle says by holding the input `anchor`. The
 * head is the target's, not the drafter's: it comes from a file beside the checkpoint or from the checkpoint's own
 * lm_head.weight (head_source.h), and its digest must be the one that the oracle was computed with.
 */
#ifndef DP_PROPOSAL_H
#define DP_PROPOSAL_H

#include "base/sha256.h"
#include "run/recording.h"
#include "store/store.h"

#include <pthread.h>

/* Loads the head, `head` as dp_head_open takes it, and holds its dtype, shape and digest against provenance.head.
 * Codes: "provenance.head.missing", "provenance.head.differs", and those of dflash_table_load. */
dflash_status dp_head_load(dflash_engine *engine, const char *checkpoint, const char *head, const dp_oracle *oracle,
                           dflash_table **out, dflash_error *err);

/* The same in two steps, for what can be done meanwhile: the head is the largest tensor of most checkpoints, and
 * SHA-256 is one chain, so with more than one thread its digest is taken by a thread of its own between the steps. */
typedef struct dp_head_loading {
    const dp_oracle *oracle; /* borrowed */
    dflash_table *table;     /* owned until the end */
    dflash_status status;
    dflash_error error;
    pthread_t thread;
    bool beside;
    char digest[DP_DIGEST_TEXT];
} dp_head_loading;
/* *out stays where it is until its end, which must follow whatever became of the begin. */
void dp_head_begin(dflash_engine *engine, const char *checkpoint, const char *head, const dp_oracle *oracle,
                   dp_head_loading *out);
dflash_status dp_head_end(dp_head_loading *loading, dflash_table **out, dflash_error *err);

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
