/*
 * topk.h - the k largest values of a row of logits, exactly.
 *
 * The rules that every choice of a token shares: descending values, ties in order of index, -inf never chosen, a NaN or
 * +inf anywhere in the row an error. One comparison decides each, so any way to compute it gives the same answer.
 */
#ifndef DF_TOPK_H
#define DF_TOPK_H

#include "dflash.h"

/*
 * value[k], index[k] of row[n]; *found says how many there are when fewer than k values are finite. Codes
 * "proposal.nan", "proposal.infinite"; `what` and `slot` name the row in the message, e.g. "the logits" of slot 3.
 */
dflash_status df_topk(const float *row, int n, int k, const char *what, int slot, float *value, int32_t *index,
                      int *found, dflash_error *err);

/* The refusal of such a value, which stands at `at`. */
dflash_status df_topk_refuse(float x, const char *what, int slot, int at, dflash_error *err);

#endif
