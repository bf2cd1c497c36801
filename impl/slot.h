/*
 * slot.h - one drafted token chosen from the row of values of its slot.
 *
 * Greedy and sampled in one place, so that share, candidates and distribution mean the same for every family: the row
 * is over the whole vocabulary of the logits (dflash, dspark) or over the selector's candidates (dflash2).
 */
#ifndef DF_SLOT_H
#define DF_SLOT_H

#include "dflash.h"

/* Whether df_slot_choose needs scratch of [n] for these options and outputs. */
bool df_slot_needs_scratch(const df_proposal_options *options, const df_proposal *out);

/*
 * Chooses slot `slot` from row[n] (host memory) and fills the slot's part of *out. *token is the id of the value
 * chosen: ids[index], or the index itself where ids is NULL. greedy   the argmax; share is its softmax at temperature
 * 1; the distribution is all on the chosen token, which is what the rejection rule must be told of a token that was not
 * drawn sampled  drawn by uniform[slot] from softmax(row / temperature); share and distribution are that softmax Codes:
 * "proposal.draw" and those of pick.h.
 */
df_status df_slot_choose(const float *row, int n, const int32_t *ids, const char *what, int slot,
                         const df_proposal_options *options, float *scratch, const df_proposal *out, int32_t *token,
                         df_error *err);

#endif
