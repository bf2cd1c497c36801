/*
 * selector.c - see selector.h.
 *
 * The walk is sequential and runs where the logits are: each slot's token is the id that the next slot's operation
 * reads, so the host sees nothing before the end.
 */
#include "heads/selector.h"

#include "heads/choice.h"
#include "common/error.h"
#include "model/observe.h"
#include "heads/table.h"

#include <stdlib.h>

static const char SCORES[] = "the selector's scores";

/* One call in progress. */
typedef struct selection {
    dflash_draft *draft;
    dflash_engine *engine;
    const dflash_table *table; /* whose ids the logits' columns have; may be NULL */
    dflash_error *err;
    int n, k, rank, vocab;
    /* the engine's memory */
    float *value, *score, *hidden; /* [n, k], [n, k], [n, r] */
    float *probability;            /* [n, k] */
    int32_t *anchor;               /* [1] */
    /* what the host reads, in one piece: two choices a slot, of the candidates and of the token, then the candidates */
    df_choice *top, *choice; /* [n] */
    int32_t *candidate;      /* [n, k] target ids */
    /* the same in host memory, and the path; owned */
    df_choice *read;
    int32_t *path; /* [n] */
} selection;

/* Ids below this may be proposed, and may come before. */
static int id_bound(const dflash_config *config) {
    return config->selector_vocab != 0 ? config->selector_vocab : config->vocab;
}

static dflash_status check_call(const selection *s, int32_t anchor) {
    const int bound = id_bound(&s->draft->config);
    if (s->k > s->vocab)
        return df_fail(
            s->err, DFLASH_ERR_REFUSED, "selector.top_k",
            "The selector chooses among %d candidates a slot, but the logits have %d columns. Pass the logits of "
            "the head that the drafter was trained with.",
            s->k, s->vocab);
    if (anchor >= 0 && anchor < bound) return DFLASH_OK;
    return df_fail(
        s->err, DFLASH_ERR_REFUSED, "selector.anchor",
        "The anchor is token %d, outside the selector's vocabulary of %d: it has no predecessor embedding. Pass "
        "the id of the last accepted token.",
        anchor, bound);
}

static dflash_status take(const selection *s, size_t n, float **out) {
    *out = df_arena_floats(&s->engine->arena, n, s->err);
    return *out != NULL ? DFLASH_OK : DFLASH_ERR_MEMORY;
}

/* Bytes of what the host reads. */
static size_t read_bytes(const selection *s) {
    return (size_t)s->n * (2 * sizeof *s->top + (size_t)s->k * sizeof *s->candidate);
}

static dflash_status take_memory(selection *s) {
    const size_t slots = (size_t)s->n * (size_t)s->k;
    float *piece;
    TRY(take(s, slots, &s->value));
    TRY(take(s, slots, &s->score));
    TRY(take(s, slots, &s->probability));
    TRY(take(s, (size_t)s->n * (size_t)s->rank, &s->hidden));
    TRY(take(s, 1, &piece));
    s->anchor = (void *)piece;
    TRY(take(s, read_bytes(s) / sizeof *piece, &piece));
    s->top = (void *)piece;
    s->choice = s->top + s->n;
    s->candidate = (void *)(s->choice + s->n);
    s->read = malloc(read_bytes(s));
    s->path = malloc((size_t)s->n * sizeof *s->path);
    return s->read != NULL && s->path != NULL ? DFLASH_OK
                                              : df_fail_memory(s->err, "the selector's candidates", read_bytes(s));
}

/* The host's copies of choice and candidate, once read. */
static const df_choice *read_choices(const selection *s) { return s->read + s->n; }
static const int32_t *read_candidates(const selection *s) {
    return (const int32_t *)(const void *)(s->read + 2 * s->n);
}

static dflash_status read_back(const selection *s) {
    return s->engine->memory.download(s->engine->memory.owner, s->read, s->top, read_bytes(s), s->err);
}

/* ---- Candidates ---- */

static dflash_status check_slots(const selection *s) {
    for (int slot = 0; slot < s->n; slot++) {
        const df_choice *top = &s->read[slot];
        if (top->fault == DF_FAULT_FEW)
            return df_fail(
                s->err, DFLASH_ERR_REFUSED, "selector.unfillable",
                "Slot %d: only %d of its %d logits are finite, too few for %d candidates. A slot is never filled "
                "with a masked token; find out what masked the others.",
                slot, top->at, s->vocab, s->k);
        TRY(df_choice_check(top, "the logits", slot, s->vocab, s->err));
    }
    return DFLASH_OK;
}

/* Refuses what cannot be chosen from: every candidate must have a row in the codebooks. */
static dflash_status check_candidates(const selection *s) {
    const int bound = id_bound(&s->draft->config);
    const int32_t *candidate = read_candidates(s);
    TRY(check_slots(s));
    for (int i = 0; i < s->n * s->k; i++) {
        if (candidate[i] < bound) continue;
        return df_fail(
            s->err, DFLASH_ERR_REFUSED, "selector.candidate",
            "Slot %d: candidate %d is token %d, outside the selector's vocabulary of %d: it has no codebook row "
            "that was trained. The logits are of another head, or its padding rows were not masked.",
            i / s->k, i % s->k, candidate[i], bound);
    }
    return DFLASH_OK;
}

static dflash_status find_candidates(const selection *s, const float *logits) {
    const df_topk_args args = {.rows = logits,
                               .ids = df_table_engine_ids(s->table),
                               .n = s->n,
                               .width = s->vocab,
                               .k = s->k,
                               .what = "the logits",
                               .value = s->value,
                               .id = s->candidate,
                               .choice = s->top};
    return s->engine->ops->topk(s->engine, &args, s->err);
}

/* ---- The walk ---- */

/* What the choices of slots [first, first + n) are made from. */
static df_choose_args choose_args(const selection *s, int first, int n, const dflash_proposal_options *options,
                                  const dflash_proposal *out) {
    const size_t at = (size_t)first * (size_t)s->k;
    return (df_choose_args){.rows = s->score + at,
                            .ids = s->candidate + at,
                            .n = n,
                            .width = s->k,
                            .what = SCORES,
                            .first_slot = first,
                            .temperature = options->temperature,
                            .uniform = options->uniform,
                            .share = out->share != NULL,
                            .probability = s->probability + at,
                            .choice = s->choice + first};
}

static dflash_status walk(const selection *s, int32_t anchor, const dflash_proposal_options *options,
                          const dflash_proposal *out) {
    const df_memory *memory = &s->engine->memory;
    const df_weights *w = &s->draft->weights;
    void *window;
    TRY(memory->map(memory->owner, s->anchor, sizeof anchor, &window, s->err));
    *(int32_t *)window = anchor;
    TRY(memory->unmap(memory->owner, s->anchor, sizeof anchor, s->err));
    for (int slot = 0; slot < s->n; slot++) {
        const size_t at = (size_t)slot * (size_t)s->k;
        const df_score_args score = {.predecessor = &w->predecessor,
                                     .successor = &w->successor,
                                     .prev = slot == 0 ? s->anchor : &s->choice[slot - 1].token,
                                     .candidate = s->candidate + at,
                                     .value = s->value + at,
                                     .hidden = s->hidden + (size_t)slot * (size_t)s->rank,
                                     .k = s->k,
                                     .rank = s->rank,
                                     .score = s->score + at};
        const df_choose_args choose = choose_args(s, slot, 1, options, out);
        TRY(s->engine->ops->score(s->engine, &score, s->err));
        TRY(s->engine->ops->choose(s->engine, &choose, s->err));
    }
    return DFLASH_OK;
}

/* Fills *out; the path is wanted by the observer too. */
static dflash_status report(const selection *s, const dflash_proposal_options *options, const dflash_proposal *out) {
    const df_choose_args all = choose_args(s, 0, s->n, options, out);
    dflash_proposal filled = *out;
    filled.token = s->path;
    TRY(df_choice_report(s->engine, &all, read_choices(s), read_candidates(s), (size_t)s->k, &filled, s->err));
    for (int slot = 0; out->token != NULL && slot < s->n; slot++) out->token[slot] = s->path[slot];
    return DFLASH_OK;
}

static dflash_status observe(const selection *s) {
    TRY(df_observe_engine_rows(s->draft, DFLASH_STAGE_SELECT_TOPK_VALUES, s->n, s->k, s->value, NULL, s->err));
    df_observe_rows(s->draft, DFLASH_STAGE_SELECT_TOPK_IDS, s->n, s->k, NULL, read_candidates(s));
    TRY(df_observe_engine_rows(s->draft, DFLASH_STAGE_SELECT_HIDDEN, s->n, s->rank, s->hidden, NULL, s->err));
    TRY(df_observe_engine_rows(s->draft, DFLASH_STAGE_SELECT_SCORES, s->n, s->k, s->score, NULL, s->err));
    df_observe_rows(s->draft, DFLASH_STAGE_SELECT_PATH, s->n, 0, NULL, s->path);
    return DFLASH_OK;
}

static dflash_status run(selection *s, const float *logits, const float *rows, int32_t anchor,
                         const dflash_proposal_options *options, const dflash_proposal *out) {
    TRY(check_call(s, anchor));
    TRY(take_memory(s));
    TRY(find_candidates(s, logits));
    if (s->engine->memory.host) { /* a device is read once, at the end; its walk reads no row that is not there */
        TRY(read_back(s));
        TRY(check_candidates(s));
    }
    TRY(s->engine->ops->matmul(s->engine, &s->draft->weights.selector_projection, NULL, rows, s->n, s->hidden, s->err));
    TRY(walk(s, anchor, options, out));
    TRY(read_back(s));
    TRY(check_candidates(s));
    TRY(report(s, options, out));
    return observe(s);
}

dflash_status df_selector_propose(dflash_draft *draft, const dflash_table *table, const float *logits,
                                  const float *rows, int n, int vocab, int32_t anchor,
                                  const dflash_proposal_options *options, const dflash_proposal *out,
                                  dflash_error *err) {
    selection s = {.draft = draft,
                   .engine = draft->engine,
                   .table = table,
                   .err = err,
                   .n = n,
                   .k = draft->config.selector_top_k,
                   .rank = draft->config.selector_rank,
                   .vocab = vocab};
    const dflash_status status = run(&s, logits, rows, anchor, options, out);
    free(s.read);
    free(s.path);
    return status;
}
