/*
 * pick.h - how a token is chosen from one row of values: the best, or a distribution to draw from.
 *
 * Every family chooses with these, so that ties, NaN and rows without a finite value mean the same everywhere. Host
 * memory. `what` and `slot` name the row in messages, e.g. "the logits" of slot 3.
 */
#ifndef DF_PICK_H
#define DF_PICK_H

#include "dflash.h"

/* The index of the largest of n values, the lowest of those that tie. Codes: "proposal.nan", "proposal.infinite"
 * (+inf), "proposal.nofinite" (nothing but -inf). */
dflash_status df_pick_argmax(const float *row, int n, const char *what, int slot, int32_t *index, dflash_error *err);

/* probability[i] = exp((row[i] - max) / temperature) / sum, each step rounded, the sum over i in canonical order. -inf
 * has probability 0. temperature > 0 and finite, else "proposal.temperature"; other codes as above. */
dflash_status df_pick_softmax(const float *row, int n, float temperature, float *probability, const char *what,
                              int slot, dflash_error *err);

/* The refusal "proposal.nofinite" of a row of n values. */
dflash_status df_pick_refuse_nofinite(int n, const char *what, int slot, dflash_error *err);

#endif
