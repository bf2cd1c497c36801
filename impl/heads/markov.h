/*
 * markov.h - DSpark's Markov head: logits corrected by the token before, left to right through a block.
 *
 * Private to dflash_propose, which checks null pointers, n, the options and the table's size, and dispatches here for a
 * dspark drafter with a Markov head.
 */
#ifndef DF_MARKOV_H
#define DF_MARKOV_H

#include "model/model.h"

/*
 * Slot by slot, with e = W1[prev], h the slot's row, prev the anchor at first and then each token as it is chosen:
 *   vanilla  u = e
 *   gated    u = sigmoid(gate_proj [h ; e]) * e
 *   rnn      (a, c, o) = joint_proj [state ; e ; h] in thirds, s = sigmoid(a),
 *            state = fma(s, state, (1 - s) * tanh(c)), u = tanh(o); state is zero at the start of every call
 *   logits + W2 u, then the argmax (ties to the lowest row) or a draw from softmax(. / temperature).
 * Products are the operation `matmul` (canonical order, biases last); the sum with the logits is one addition; sigmoid
 * and tanh are those of mathfn.h. Observed: markov.logits [n, vocab] (corrected) and markov.tokens [n], once all are
 * chosen.
 *
 * W2 has one row for each column of the logits; W1 has one for each id of the target, and prev is always such an id:
 * with a table that has offsets, the chosen row's target id. So a table's target vocabulary must be W1's rows, and
 * without offsets the logits must be as wide as W1. Codes: "markov.vocab", "markov.target_vocab", "markov.anchor",
 * "markov.draw", and those of pick.h.
 */
dflash_status df_markov_propose(dflash_draft *draft, const dflash_table *table, const float *logits, const float *rows,
                                int n, int vocab, int32_t anchor, const dflash_proposal_options *options,
                                const dflash_proposal *out, dflash_error *err);

#endif
