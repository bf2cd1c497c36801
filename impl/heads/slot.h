/*
 * slot.h - one drafted token chosen from the row of values of its slot, on the host.
 *
 * Greedy and sampled in one place, so that share and distribution mean the same for every family: the row is over the
 * whole vocabulary of the logits (dflash, dspark) or over the selector's candidates (dflash2). This is the plain text
 * of the operation `choose`.
 */
#ifndef DF_SLOT_H
#define DF_SLOT_H

#include "engine/ops.h"

/*
 * Chooses from row `i` of args->rows and fills args->choice[i]. The token is the id of the value chosen: ids[index], or
 * the index itself where ids is NULL.
 *   greedy   the argmax; the share is its softmax at temperature 1
 *   sampled  drawn by uniform[slot] from softmax(row / temperature), of which the share is
 * Codes: "proposal.draw" and those of pick.h.
 */
dflash_status df_slot_choose(const df_choose_args *args, int i, dflash_error *err);

#endif
