/*
 * propose.c - from harvested rows and their logits to tokens: the checks that every family shares, the plain family's
 * choice, and the way to the others (selector.c, markov.c).
 */
#include "heads/choice.h"
#include "model/model.h"
#include "common/error.h"
#include "heads/markov.h"
#include "heads/selector.h"
#include "heads/table.h"

#include <float.h>

void dflash_harvest_rows(const dflash_config *config, int *first, int *count) {
    *first = config->harvest == DFLASH_HARVEST_MASK_FILL ? 1 : 0;
    *count = config->block - *first;
}

int dflash_proposal_width(const dflash_draft *draft, int vocab) {
    return draft->config.family == DFLASH_FAMILY_DFLASH2 ? draft->config.selector_top_k : vocab;
}

static dflash_status check_options(const dflash_proposal_options *options, int n, dflash_error *err) {
    const float temperature = options->temperature;
    if (!(temperature >= 0.0f && temperature <= FLT_MAX))
        return df_fail(err, DFLASH_ERR_ARGUMENT, "proposal.temperature",
                       "The temperature must be 0 (greedy) or positive and finite: found %g.", (double)temperature);
    if (temperature == 0.0f) return DFLASH_OK;
    if (options->uniform == NULL)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "proposal.uniform",
                       "A proposal at temperature %g needs a uniform number for each of its %d slots: found none.",
                       (double)temperature, n);
    for (int i = 0; i < n; i++)
        if (!(options->uniform[i] >= 0.0f && options->uniform[i] < 1.0f))
            return df_fail(err, DFLASH_ERR_ARGUMENT, "proposal.uniform",
                           "The uniform number of slot %d is %g: it must lie in [0, 1).", i,
                           (double)options->uniform[i]);
    return DFLASH_OK;
}

static dflash_status check_call(const dflash_table *table, int n, int vocab, const dflash_proposal_options *options,
                                dflash_error *err) {
    if (n < 1 || vocab < 1)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "proposal.shape",
                       "A proposal needs at least one slot and one column of logits: found [%d, %d].", n, vocab);
    if (table != NULL && dflash_table_vocab(table) != vocab)
        return df_fail(
            err, DFLASH_ERR_ARGUMENT, "proposal.vocab",
            "The logits have %d columns, but the table that they are said to come from has %d rows. Pass the "
            "table that dflash_logits was given.",
            vocab, dflash_table_vocab(table));
    return check_options(options, n, err);
}

/* dflash, and dspark without a Markov head: every slot on its own. */
static dflash_status propose_plain(dflash_engine *engine, const dflash_table *table, const float *logits, int n,
                                   int vocab, int32_t anchor, const dflash_proposal_options *options,
                                   const dflash_proposal *out, dflash_error *err) {
    const int ids = table != NULL ? df_table_target_vocab(table) : vocab;
    if (anchor < 0 || anchor >= ids)
        return df_fail(
            err, DFLASH_ERR_REFUSED, "proposal.anchor",
            "The anchor is token %d, outside the target's vocabulary of %d. Pass the id of the last accepted "
            "token.",
            anchor, ids);
    df_choose_args args = {.rows = logits,
                           .ids = df_table_engine_ids(table),
                           .n = n,
                           .width = vocab,
                           .what = "the logits",
                           .temperature = options->temperature,
                           .uniform = options->uniform,
                           .share = out->share != NULL};
    TRY(df_choice_take(engine, n, &args.choice, err));
    if (df_choice_needs_distribution(options, out)) {
        args.probability = df_arena_floats(&engine->arena, (size_t)n * (size_t)vocab, err);
        if (args.probability == NULL) return DFLASH_ERR_MEMORY;
    }
    TRY(engine->ops->choose(engine, &args, err));
    return df_choice_fetch(engine, &args, df_table_ids(table), out, err);
}

dflash_status dflash_propose(dflash_draft *draft, const dflash_table *table, const float *logits, const float *rows,
                             int n, int vocab, int32_t anchor, const dflash_proposal_options *options,
                             const dflash_proposal *out, dflash_error *err) {
    const dflash_config *c = &draft->config;
    dflash_status status = check_call(table, n, vocab, options, err);
    if (status == DFLASH_OK) status = df_arena_reset(&draft->engine->arena, err);
    if (status != DFLASH_OK) return status;
    if (c->family == DFLASH_FAMILY_DFLASH2)
        return df_selector_propose(draft, table, logits, rows, n, vocab, anchor, options, out, err);
    if (c->family == DFLASH_FAMILY_DSPARK && c->markov != DFLASH_MARKOV_NONE)
        return df_markov_propose(draft, table, logits, rows, n, vocab, anchor, options, out, err);
    return propose_plain(draft->engine, table, logits, n, vocab, anchor, options, out, err);
}
