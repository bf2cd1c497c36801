/*
 * selector.h - DFlash2's candidate selector: a path through the best candidates of each slot.
 *
 * Private to dflash_propose, which has checked the call and dispatches here.
 */
#ifndef DF_SELECTOR_H
#define DF_SELECTOR_H

#include "model/model.h"

/*
 * h[n, r] = hidden_projection(rows), the operation `matmul`. Slot by slot, with prev the anchor at first and then each
 * token as it is chosen: the k best logits (topk.h) in descending order, ties to the lower row; for candidate b t_j =
 * pred[prev][j] * h[j], rounded;  score(b) = logit(b) + (canonical sum over j of t_j succ[b][j]), one addition; the
 * token is the best score, ties to the first candidate, or the draw from softmax(scores / temperature). Observed once
 * all are chosen: select.topk_values, select.topk_ids, select.scores [n, k], select.hidden [n, r], select.path [n]; ids
 * are the target's.
 *
 * The anchor and every candidate must be below selector_vocab_size (vocab_size when the config does not say), which the
 * codebooks' rows are not fewer than. Codes: "selector.anchor", "selector.candidate", "selector.top_k" (k over the
 * logits' columns), "selector.unfillable" (fewer than k finite logits), and those of pick.h.
 */
dflash_status df_selector_propose(dflash_draft *draft, const dflash_table *table, const float *logits,
                                  const float *rows, int n, int vocab, int32_t anchor,
                                  const dflash_proposal_options *options, const dflash_proposal *out,
                                  dflash_error *err);

#endif
