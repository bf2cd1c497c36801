/*
 * markov.c - see markov.h.
 *
 * The chain is sequential: a slot's token decides the next slot's bias. So each slot is one row through the products,
 * and what is small (embedding, gates, state: r values) is computed on the host between them.
 */
#include "markov.h"

#include "error.h"
#include "gather.h"
#include "mathfn.h"
#include "observe.h"
#include "slot.h"
#include "table.h"

#include <stdlib.h>

static const char WHAT[] = "the Markov-corrected logits";

/* One call in progress. */
typedef struct chain {
    df_draft *draft;
    df_engine *engine;
    df_error *err;
    size_t hidden, rank, vocab;
    /* the engine's memory */
    float *joined, *projected;   /* [2r + H], [3r]: input and result of the gates' product */
    float *u, *bias, *corrected; /* [r], [vocab], [vocab] */
    /* host memory, owned */
    float *small;             /* holds the next four */
    float *embedding, *state; /* [r] */
    float *gate;              /* [3r] */
    float *join;              /* [2r + H] */
    float *rows;              /* corrected logits: [n, vocab] when observed, else one row for all slots */
    float *probability;       /* [vocab], scratch of slot.h; NULL when not needed */
    int32_t *token;           /* [n] */
} chain;

static df_status check_call(const df_draft *draft, const df_table *table, int vocab, int32_t anchor, df_error *err) {
    const long long w1 = draft->weights.markov_w1.out, w2 = draft->weights.markov_w2.out;
    if (w2 != vocab)
        return df_fail(err, DF_ERR_REFUSED, "markov.vocab",
                       "The logits have %d columns, but the Markov head's W2 has %lld rows: its bias is for another "
                       "vocabulary. Compute the logits with the output head that the drafter was trained with.",
                       vocab, w2);
    const int target = table != NULL ? df_table_target_vocab(table) : vocab;
    if (w1 != target)
        return df_fail(
            err, DF_ERR_REFUSED, "markov.target_vocab",
            "Drafted tokens are ids below %d, but the Markov head's W1 has %lld rows, one for each token that "
            "may come before. Set the table's offsets if the draft vocabulary is a reduced one, or pair the "
            "drafter with its own target.",
            target, w1);
    if (anchor >= 0 && anchor < w1) return DF_OK;
    return df_fail(err, DF_ERR_REFUSED, "markov.anchor",
                   "The anchor is token %d, outside the vocabulary of %lld. Pass the id of the last accepted token.",
                   anchor, w1);
}

/* ---- Scratch ----------------------------------------------------------------------------------------------------- */

static df_status take(const chain *c, size_t n, float **out) {
    *out = df_arena_floats(&c->engine->arena, n, c->err);
    return *out != NULL ? DF_OK : DF_ERR_MEMORY;
}

static df_status take_engine_memory(chain *c) {
    TRY(take(c, 2 * c->rank + c->hidden, &c->joined));
    TRY(take(c, 3 * c->rank, &c->projected));
    TRY(take(c, c->rank, &c->u));
    TRY(take(c, c->vocab, &c->bias));
    return take(c, c->vocab, &c->corrected);
}

static df_status take_host_memory(chain *c, size_t rows, size_t tokens, bool distribution) {
    const size_t small = 7 * c->rank + c->hidden;
    c->small = calloc(small, sizeof(float)); /* the state starts at zero */
    c->rows = malloc(rows * c->vocab * sizeof(float));
    c->token = malloc(tokens * sizeof *c->token);
    if (distribution) c->probability = malloc(c->vocab * sizeof(float));
    if (c->small == NULL || c->rows == NULL || c->token == NULL || (distribution && c->probability == NULL))
        return df_fail_memory(c->err, "the Markov chain",
                              (small + (rows + distribution) * c->vocab + tokens) * sizeof(float));
    c->embedding = c->small;
    c->state = c->embedding + c->rank;
    c->gate = c->state + c->rank;
    c->join = c->gate + 3 * c->rank;
    return DF_OK;
}

static void release(chain *c) {
    free(c->small);
    free(c->rows);
    free(c->probability);
    free(c->token);
}

/* ---- One slot ---------------------------------------------------------------------------------------------------- */

/* gate[w->out] = w join + bias, through the engine. */
static df_status project(const chain *c, const df_matrix *w, const float *bias) {
    TRY(df_engine_upload(c->engine, c->joined, c->join, (size_t)w->in, c->err));
    TRY(c->engine->ops->matmul(c->engine, w, bias, c->joined, 1, c->projected, c->err));
    return df_engine_download(c->engine, c->gate, c->projected, (size_t)w->out, c->err);
}

/* join = [h ; e]; e *= sigmoid(gate_proj join). */
static df_status gated_input(const chain *c, const float *row) {
    TRY(df_engine_download(c->engine, c->join, row, c->hidden, c->err));
    memcpy(c->join + c->hidden, c->embedding, c->rank * sizeof(float));
    TRY(project(c, &c->draft->weights.markov_gate, c->draft->weights.markov_gate_bias));
    for (size_t j = 0; j < c->rank; j++) c->embedding[j] = df_sigmoid(c->gate[j]) * c->embedding[j];
    return DF_OK;
}

/* join = [state ; e ; h]; the new state, and e = tanh(o). */
static df_status recurrent_input(const chain *c, const float *row) {
    memcpy(c->join, c->state, c->rank * sizeof(float));
    memcpy(c->join + c->rank, c->embedding, c->rank * sizeof(float));
    TRY(df_engine_download(c->engine, c->join + 2 * c->rank, row, c->hidden, c->err));
    TRY(project(c, &c->draft->weights.markov_joint, c->draft->weights.markov_joint_bias));
    const float *keep = c->gate, *candidate = keep + c->rank, *output = candidate + c->rank;
    for (size_t j = 0; j < c->rank; j++) {
        const float s = df_sigmoid(keep[j]), fresh = (1.0f - s) * df_tanh(candidate[j]);
        c->state[j] = fmaf(s, c->state[j], fresh);
        c->embedding[j] = df_tanh(output[j]);
    }
    return DF_OK;
}

/* host[vocab] = logits[vocab] + the bias that follows `prev`. */
static df_status correct(const chain *c, const float *logits, const float *row, int32_t prev, float *host) {
    df_gather_row(&c->draft->weights.markov_w1, prev, c->embedding);
    if (c->draft->config.markov == DF_MARKOV_GATED) TRY(gated_input(c, row));
    if (c->draft->config.markov == DF_MARKOV_RNN) TRY(recurrent_input(c, row));
    TRY(df_engine_upload(c->engine, c->u, c->embedding, c->rank, c->err));
    TRY(c->engine->ops->matmul(c->engine, &c->draft->weights.markov_w2, NULL, c->u, 1, c->bias, c->err));
    TRY(c->engine->ops->add(c->engine, logits, c->bias, c->vocab, c->corrected, c->err));
    return df_engine_download(c->engine, host, c->corrected, c->vocab, c->err);
}

/* ---- The chain --------------------------------------------------------------------------------------------------- */

static df_status run(chain *c, const df_table *table, const float *logits, const float *rows, int n, int32_t anchor,
                     const df_proposal_options *options, const df_proposal *out) {
    const bool observed = c->draft->observe != NULL;
    int32_t prev = anchor;
    for (int slot = 0; slot < n; slot++) {
        const size_t at = (size_t)slot;
        float *row = c->rows + (observed ? at * c->vocab : 0);
        TRY(correct(c, logits + at * c->vocab, rows + at * c->hidden, prev, row));
        TRY(df_slot_choose(row, (int)c->vocab, df_table_ids(table), WHAT, slot, options, c->probability, out, &prev,
                           c->err));
        c->token[slot] = prev;
    }
    df_observe_rows(c->draft, DF_STAGE_MARKOV_LOGITS, n, (int)c->vocab, c->rows, NULL);
    df_observe_rows(c->draft, DF_STAGE_MARKOV_TOKENS, n, 0, NULL, c->token);
    return DF_OK;
}

df_status df_markov_propose(df_draft *draft, const df_table *table, const float *logits, const float *rows, int n,
                            int vocab, int32_t anchor, const df_proposal_options *options, const df_proposal *out,
                            df_error *err) {
    TRY(check_call(draft, table, vocab, anchor, err));
    chain c = {.draft = draft,
               .engine = draft->engine,
               .err = err,
               .hidden = (size_t)draft->config.hidden,
               .rank = (size_t)draft->weights.markov_w1.in,
               .vocab = (size_t)vocab};
    const df_arena_mark mark = df_arena_get_mark(&c.engine->arena);
    df_status status = take_engine_memory(&c);
    if (status == DF_OK)
        status = take_host_memory(&c, draft->observe != NULL ? (size_t)n : 1, (size_t)n,
                                  df_slot_needs_scratch(options, out));
    if (status == DF_OK) status = run(&c, table, logits, rows, n, anchor, options, out);
    release(&c);
    df_arena_rewind(&c.engine->arena, mark);
    return status;
}
