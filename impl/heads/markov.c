/*
 * markov.c - see markov.h.
 *
 * The chain is sequential: a slot's token decides the next slot's bias. So each slot is one row through the products.
 * It runs where the logits are: a slot's token is the id that the next slot's operation reads, so the host sees nothing
 * before the end.
 */
#include "heads/markov.h"

#include "heads/choice.h"
#include "common/error.h"
#include "model/observe.h"
#include "heads/table.h"

#include <stdlib.h>

static const char WHAT[] = "the Markov-corrected logits";

/* One call in progress; all but the last in the engine's memory. */
typedef struct chain {
    dflash_draft *draft;
    dflash_engine *engine;
    dflash_error *err;
    size_t hidden, rank, vocab;
    float *joined, *gates;    /* [2r + H], [3r]: input and result of the gates' product */
    float *embedding, *state; /* [r] */
    float *bias;              /* [vocab] */
    float *rows;              /* corrected logits: [n, vocab] when observed, else one row for all slots */
    float *probability;       /* [n, vocab] when asked for, else one row; NULL when not needed */
    bool keep_rows, keep_probability;
    int32_t *anchor;   /* [1] */
    df_choice *choice; /* [n] */
    int32_t *token;    /* [n], host memory, owned */
} chain;

static dflash_status check_call(const dflash_draft *draft, const dflash_table *table, int vocab, int32_t anchor,
                                dflash_error *err) {
    const long long w1 = draft->weights.markov_w1.out, w2 = draft->weights.markov_w2.out;
    if (w2 != vocab)
        return df_fail(err, DFLASH_ERR_REFUSED, "markov.vocab",
                       "The logits have %d columns, but the Markov head's W2 has %lld rows: its bias is for another "
                       "vocabulary. Compute the logits with the output head that the drafter was trained with.",
                       vocab, w2);
    const int target = table != NULL ? df_table_target_vocab(table) : vocab;
    if (w1 != target)
        return df_fail(
            err, DFLASH_ERR_REFUSED, "markov.target_vocab",
            "Drafted tokens are ids below %d, but the Markov head's W1 has %lld rows, one for each token that "
            "may come before. Set the table's offsets if the draft vocabulary is a reduced one, or pair the "
            "drafter with its own target.",
            target, w1);
    if (anchor >= 0 && anchor < w1) return DFLASH_OK;
    return df_fail(err, DFLASH_ERR_REFUSED, "markov.anchor",
                   "The anchor is token %d, outside the vocabulary of %lld. Pass the id of the last accepted token.",
                   anchor, w1);
}

/* ---- Scratch ---- */

static dflash_status take(const chain *c, size_t n, float **out) {
    *out = df_arena_floats(&c->engine->arena, n, c->err);
    return *out != NULL ? DFLASH_OK : DFLASH_ERR_MEMORY;
}

static dflash_status take_memory(chain *c, int n, bool distribution) {
    const size_t slots = (size_t)n;
    float *integers;
    TRY(take(c, 2 * c->rank + c->hidden, &c->joined));
    TRY(take(c, 3 * c->rank, &c->gates));
    TRY(take(c, c->rank, &c->embedding));
    TRY(take(c, c->rank, &c->state));
    TRY(take(c, c->vocab, &c->bias));
    TRY(take(c, (c->keep_rows ? slots : 1) * c->vocab, &c->rows));
    if (distribution) TRY(take(c, (c->keep_probability ? slots : 1) * c->vocab, &c->probability));
    TRY(take(c, 1, &integers));
    c->anchor = (void *)integers;
    TRY(df_choice_take(c->engine, n, &c->choice, c->err));
    c->token = malloc(slots * sizeof *c->token);
    return c->token != NULL ? DFLASH_OK : df_fail_memory(c->err, "the Markov chain", slots * sizeof *c->token);
}

/* ---- One slot ---- */

static dflash_status copy(const chain *c, float *to, const float *from, size_t n) {
    return c->engine->memory.copy(c->engine->memory.owner, to, from, n * sizeof *to, c->err);
}

/* gates = gate_proj [h ; e]; e *= sigmoid(gates). */
static dflash_status gated_input(const chain *c, const float *row) {
    const df_weights *w = &c->draft->weights;
    TRY(copy(c, c->joined, row, c->hidden));
    TRY(copy(c, c->joined + c->hidden, c->embedding, c->rank));
    TRY(c->engine->ops->matmul(c->engine, &w->markov_gate, w->markov_gate_bias, c->joined, 1, c->gates, c->err));
    return c->engine->ops->markov_gate(c->engine, c->gates, (int)c->rank, c->embedding, c->err);
}

/* gates = joint_proj [state ; e ; h]; the new state, and e = tanh(o). */
static dflash_status recurrent_input(const chain *c, const float *row) {
    const df_weights *w = &c->draft->weights;
    TRY(copy(c, c->joined, c->state, c->rank));
    TRY(copy(c, c->joined + c->rank, c->embedding, c->rank));
    TRY(copy(c, c->joined + 2 * c->rank, row, c->hidden));
    TRY(c->engine->ops->matmul(c->engine, &w->markov_joint, w->markov_joint_bias, c->joined, 1, c->gates, c->err));
    return c->engine->ops->markov_cell(c->engine, c->gates, (int)c->rank, c->state, c->embedding, c->err);
}

/* corrected[vocab] = logits[vocab] + the bias that follows `prev`. */
static dflash_status correct(const chain *c, const float *logits, const float *row, const int32_t *prev,
                             float *corrected) {
    const df_ops *ops = c->engine->ops;
    const df_weights *w = &c->draft->weights;
    TRY(ops->gather(c->engine, &w->markov_w1, prev, 1, 1.0f, c->embedding, c->rank, c->err));
    if (c->draft->config.markov == DFLASH_MARKOV_GATED) TRY(gated_input(c, row));
    if (c->draft->config.markov == DFLASH_MARKOV_RNN) TRY(recurrent_input(c, row));
    TRY(ops->matmul(c->engine, &w->markov_w2, NULL, c->embedding, 1, c->bias, c->err));
    return ops->add(c->engine, logits, c->bias, c->vocab, corrected, c->err);
}

/* ---- The chain ---- */

static dflash_status begin(const chain *c, int32_t anchor) {
    const df_memory *memory = &c->engine->memory;
    void *window;
    TRY(memory->map(memory->owner, c->anchor, sizeof anchor, &window, c->err));
    *(int32_t *)window = anchor;
    TRY(memory->unmap(memory->owner, c->anchor, sizeof anchor, c->err));
    return memory->fill(memory->owner, c->state, 0, c->rank * sizeof *c->state, c->err); /* the state starts at zero */
}

/* What the choices of slots [first, first + n) are made from. */
static df_choose_args choose_args(const chain *c, const dflash_table *table, int first, int n,
                                  const dflash_proposal_options *options, const dflash_proposal *out) {
    const size_t at = (size_t)first * c->vocab;
    return (df_choose_args){.rows = c->rows + (c->keep_rows ? at : 0),
                            .ids = df_table_engine_ids(table),
                            .n = n,
                            .width = (int)c->vocab,
                            .what = WHAT,
                            .first_slot = first,
                            .temperature = options->temperature,
                            .uniform = options->uniform,
                            .share = out->share != NULL,
                            .probability =
                                c->probability != NULL ? c->probability + (c->keep_probability ? at : 0) : NULL,
                            .choice = c->choice + first};
}

static dflash_status run(const chain *c, const dflash_table *table, const float *logits, const float *rows, int n,
                         int32_t anchor, const dflash_proposal_options *options, const dflash_proposal *out) {
    TRY(begin(c, anchor));
    for (int slot = 0; slot < n; slot++) {
        const size_t at = (size_t)slot;
        float *row = c->rows + (c->keep_rows ? at * c->vocab : 0);
        const df_choose_args choose = choose_args(c, table, slot, 1, options, out);
        TRY(correct(c, logits + at * c->vocab, rows + at * c->hidden,
                    slot == 0 ? c->anchor : &c->choice[slot - 1].token, row));
        TRY(c->engine->ops->choose(c->engine, &choose, c->err));
    }
    const df_choose_args all = choose_args(c, table, 0, n, options, out);
    dflash_proposal filled = *out;
    filled.token = c->token; /* the observer wants them too */
    TRY(df_choice_fetch(c->engine, &all, df_table_ids(table), &filled, c->err));
    for (int slot = 0; out->token != NULL && slot < n; slot++) out->token[slot] = c->token[slot];
    TRY(df_observe_engine_rows(c->draft, DFLASH_STAGE_MARKOV_LOGITS, n, (int)c->vocab, c->rows, NULL, c->err));
    df_observe_rows(c->draft, DFLASH_STAGE_MARKOV_TOKENS, n, 0, NULL, c->token);
    return DFLASH_OK;
}

dflash_status df_markov_propose(dflash_draft *draft, const dflash_table *table, const float *logits, const float *rows,
                                int n, int vocab, int32_t anchor, const dflash_proposal_options *options,
                                const dflash_proposal *out, dflash_error *err) {
    TRY(check_call(draft, table, vocab, anchor, err));
    chain c = {.draft = draft,
               .engine = draft->engine,
               .err = err,
               .hidden = (size_t)draft->config.hidden,
               .rank = (size_t)draft->weights.markov_w1.in,
               .vocab = (size_t)vocab};
    c.keep_rows = draft->observe != NULL;
    c.keep_probability = options->temperature > 0.0f && out->probability != NULL;
    const df_arena_mark mark = df_arena_get_mark(&c.engine->arena);
    dflash_status status = take_memory(&c, n, df_choice_needs_distribution(options, out));
    if (status == DFLASH_OK) status = run(&c, table, logits, rows, n, anchor, options, out);
    free(c.token);
    df_arena_rewind(&c.engine->arena, mark);
    return status;
}
