/* dflash/propose.h - from harvested rows to tokens, and what becomes of them. Conventions are those of dflash.h. */
#ifndef DFLASH_PROPOSE_H
#define DFLASH_PROPOSE_H

#include "dflash/draft.h"

DFLASH_BEGIN

/* ---- Vocabulary tables and logits ---- */

/* A matrix [vocabulary, H] of the target: its output head or its embedding. */
typedef struct dflash_table dflash_table;

/* Copies `values`, dtype "BF16", "F16" or "F32". */
dflash_status dflash_table_create(dflash_engine *engine, const char *dtype, int vocab, int hidden, const void *values,
                                  dflash_table **out, dflash_error *err);
/* Reads the tensor `name` of a safetensors file, which it keeps mapped; what else the file holds may be anything that
 * the format knows. NULL: the output head, by rule: lm_head.weight; the same behind a known prefix (language_model.,
 * ...); else the embedding that is tied to it, where no head is present. dflash_table_view says which one was taken. */
dflash_status dflash_table_load(dflash_engine *engine, const char *path, const char *name, dflash_table **out,
                                dflash_error *err);
/* Maps the rows of a reduced draft vocabulary to target ids: target = row + offset[row]. Refused when an id is
 * negative, not below target_vocab, or given twice. */
dflash_status dflash_table_set_offsets(dflash_table *table, const int32_t *offset, int target_vocab, dflash_error *err);
void dflash_table_destroy(dflash_table *table);
int dflash_table_vocab(const dflash_table *table);
/* The matrix as it is held: its name (the tensor's, or "" for a copy), dtype, shape, raw bytes. */
dflash_tensor_view dflash_table_view(const dflash_table *table);

/* noise[B, H]: the embeddings of [anchor, MASK, ...], every row times input_embedding_scale. Ids outside the table are
 * refused. */
dflash_status dflash_embed_block(dflash_draft *draft, const dflash_table *embedding, int32_t anchor, float *noise,
                                 dflash_error *err);

/* logits[n, vocab] = rows[n, H] W^T, times output_multiplier, then softcap: cap tanh(l / cap). */
dflash_status dflash_logits(dflash_draft *draft, const dflash_table *head, const float *rows, int n, float *logits,
                            dflash_error *err);

/* ---- Proposals ---- */

/* Rows of df_forward_*'s output that become tokens: first row and count (mask-fill: 1, B-1; shifted: 0, B). */
void dflash_harvest_rows(const dflash_config *config, int *first, int *count);

typedef struct dflash_proposal_options {
    float temperature;    /* 0: greedy; otherwise sampled */
    const float *uniform; /* [n] in [0, 1), host memory; needed when sampled: the draw of each slot, by inverse of the
                             cumulative distribution in candidate order */
} dflash_proposal_options;

/* Host memory, owned by the caller; a NULL member is not wanted. k is dflash_proposal_width. */
typedef struct dflash_proposal {
    int32_t *token;     /* [n] */
    float *share;       /* [n] the chosen token's softmax share over its slot (of scores / temperature when sampled) */
    int32_t *candidate; /* [n, k] ids that the distribution is over, in its order */
    float
        *probability; /* [n, k] the distribution the token was drawn from, for the rejection rule; greedy: all on it */
} dflash_proposal;

/* Candidates a slot: selector_top_k for dflash2, the vocabulary of the logits otherwise. */
int dflash_proposal_width(const dflash_draft *draft, int vocab);

/*
 * Drafts n tokens from harvested rows[n, H] and their logits[n, vocab] (dflash_logits), left to right from `anchor`:
 *   dflash   argmax (or a draw) per row; ties go to the lowest row of the table
 *   dflash2  top-k per row (descending, ties to the lower row), score(b) = logit(b) + sum_j pred[prev][j] h[j]
 * succ[b][j] with h = hidden_projection(row); the best score (ties: first candidate) is the token and the next prev
 *   dspark   logits + Markov bias of the previous token, then argmax (or a draw)
 * `table` is the table the logits came from (its offsets map rows to ids) or NULL when ids are rows. A row with a NaN
 * or +infinity, or without a finite value, a top-k that cannot be filled, an anchor or candidate outside the vocabulary
 * is refused by name.
 */
dflash_status dflash_propose(dflash_draft *draft, const dflash_table *table, const float *logits, const float *rows,
                             int n, int vocab, int32_t anchor, const dflash_proposal_options *options,
                             const dflash_proposal *out, dflash_error *err);

/* ---- DSpark confidence ---- */

/* raw[n] (host memory) = w [row ; e of prev] + b, before the sigmoid. prev[n]: the token before each slot (anchor
 * first); needed only when the head was trained with the Markov embedding. */
dflash_status dflash_confidence(dflash_draft *draft, const float *rows, const int32_t *prev, int n, float *raw,
                                dflash_error *err);

typedef enum dflash_window_policy {
    DFLASH_WINDOW_SURVIVAL = 0,
    DFLASH_WINDOW_SLOT,
    DFLASH_WINDOW_LADDER
} dflash_window_policy;

typedef struct dflash_window_options {
    dflash_window_policy policy;
    float threshold; /* tau in (0, 1); survival and slot only: give 0 with ladder */
    int cap;         /* largest window, anchor included, >= 2 (ladder, whose smallest is 3: >= 3) */
    int accepted;    /* ladder only: tokens accepted last round; give -1 with the others */
} dflash_window_options;

/* Tokens to verify next, anchor included, within [2, cap]. survival: leading slots while the product of sigmoid(raw)
 * stays
 * >= tau; slot: while each does; ladder: clamp(accepted + 2, 3, cap), raw is not read. Contradictory options are
 * refused, and so is a raw value that is not finite, wherever it stands. */
dflash_status dflash_verify_window(const dflash_window_options *options, const float *raw, int n, int *window,
                                   dflash_error *err);

/* ---- Verification (pure functions, host memory) ---- */

/* Drafted tokens accepted greedily: the length of the longest common prefix of draft[n] and target[n]. */
int dflash_accepted_prefix(const int32_t *draft, const int32_t *target, int n);

/* The rejection rule of sampled drafting: accepted iff u q < p. */
bool dflash_accept_token(float u, float p, float q);

/* The distribution to draw from after a rejection: max(p - q, 0) normalised, p itself when nothing is left. q is given
 * on `k` candidate ids (candidate NULL: k = vocab and ids are indices). residual[vocab] may be p. Refused: a value that
 * is no probability, a distribution that does not sum to 1, a candidate outside the vocabulary or given twice. */
dflash_status dflash_residual(const float *p, int vocab, const float *q, const int32_t *candidate, int k,
                              float *residual, dflash_error *err);

/* First index whose cumulative sum exceeds u times the total, both in double (verify.c gives the order); never one of
 * probability 0. -1 when there is none: u outside [0, 1), a value that is negative or not finite, no mass at all. */
int dflash_draw(const float *probability, int n, float u);

DFLASH_END

#endif
