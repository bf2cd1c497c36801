/*
 * confidence.c - DSpark's confidence head: how likely each drafted token is to be accepted, before the sigmoid.
 *
 * raw = w [row ; e] + b, one canonical dot product over H (+ r) channels counted from the row's first, the bias added
 * last; e is Markov W1's row of the token before the slot, as stored, whatever the kind of Markov head. What to make of
 * the values is window.c's business.
 */
#include "model/model.h"

#include "common/error.h"
#include "model/observe.h"

static dflash_status check_call(const dflash_draft *draft, const float *rows, const int32_t *prev, int n,
                                const float *raw, dflash_error *err) {
    const dflash_config *c = &draft->config;
    if (!c->confidence)
        return df_fail(err, DFLASH_ERR_REFUSED, "confidence.absent",
                       "This %s drafter has no confidence head (\"enable_confidence_head\" is not true), so there is "
                       "nothing to compute. Use the ladder policy for the verify window.",
                       dflash_family_name(c->family));
    if (rows == NULL || raw == NULL || n < 1)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "confidence.argument",
                       "dflash_confidence needs at least one row and a place for its value: found %s and %d rows.",
                       rows == NULL || raw == NULL ? "a null pointer" : "no null pointer", n);
    if (!c->confidence_with_markov) return DFLASH_OK;
    if (prev == NULL)
        return df_fail(
            err, DFLASH_ERR_ARGUMENT, "confidence.prev",
            "This confidence head was trained with the Markov embedding of the token before each slot, and no "
            "tokens were given. Pass the anchor, then the drafted tokens.");
    for (int i = 0; i < n; i++)
        if (prev[i] < 0 || prev[i] >= draft->weights.markov_w1.out)
            return df_fail(err, DFLASH_ERR_REFUSED, "confidence.prev.range",
                           "The token before slot %d is %d, outside the %lld rows of Markov W1. Pass token ids of the "
                           "target, the anchor first.",
                           i, prev[i], (long long)draft->weights.markov_w1.out);
    return DFLASH_OK;
}

/* joined[n, H + r] = each row with its token's embedding behind it. */
static dflash_status join_embeddings(dflash_draft *draft, const float *rows, const int32_t *prev, int n, float **joined,
                                     dflash_error *err) {
    dflash_engine *engine = draft->engine;
    const df_memory *memory = &engine->memory;
    const df_matrix *w1 = &draft->weights.markov_w1;
    const size_t hidden = (size_t)draft->config.hidden, width = hidden + (size_t)w1->in;
    const size_t bytes = (size_t)n * sizeof *prev;
    *joined = df_arena_floats(&engine->arena, (size_t)n * width, err);
    void *ids = df_arena_floats(&engine->arena, (size_t)n, err), *window;
    if (*joined == NULL || ids == NULL) return DFLASH_ERR_MEMORY;
    TRY(memory->map(memory->owner, ids, bytes, &window, err));
    memcpy(window, prev, bytes);
    TRY(memory->unmap(memory->owner, ids, bytes, err));
    for (size_t i = 0; i < (size_t)n; i++)
        TRY(memory->copy(memory->owner, *joined + i * width, rows + i * hidden, hidden * sizeof *rows, err));
    return engine->ops->gather(engine, w1, ids, n, 1.0f, *joined + hidden, width, err);
}

dflash_status dflash_confidence(dflash_draft *draft, const float *rows, const int32_t *prev, int n, float *raw,
                                dflash_error *err) {
    dflash_status status = check_call(draft, rows, prev, n, raw, err);
    if (status != DFLASH_OK) return status;
    dflash_engine *engine = draft->engine;
    const df_weights *w = &draft->weights;
    status = df_arena_reset(&engine->arena, err);
    if (status != DFLASH_OK) return status;
    const float *input = rows;
    if (draft->config.confidence_with_markov) {
        float *joined = NULL;
        status = join_embeddings(draft, rows, prev, n, &joined, err);
        input = joined;
    }
    float *out = status == DFLASH_OK ? df_arena_floats(&engine->arena, (size_t)n, err) : NULL;
    if (out == NULL) return status == DFLASH_OK ? DFLASH_ERR_MEMORY : status;
    status = engine->ops->matmul(engine, &w->confidence, w->confidence_bias, input, n, out, err);
    if (status == DFLASH_OK) status = dflash_engine_download(engine, raw, out, (size_t)n, err);
    if (status != DFLASH_OK) return status;
    df_observe_rows(draft, DFLASH_STAGE_CONFIDENCE_RAW, n, 0, raw, NULL);
    for (int i = 0; i < n; i++)
        if ((df_f32_to_bits(raw[i]) & 0x7f800000u) == 0x7f800000u)
            return df_fail(
                err, DFLASH_ERR_REFUSED, "confidence.nonfinite",
                "The confidence of slot %d is %g; expected a finite value. The weights are finite, so the row "
                "it was computed from is not: look at the stages before it.",
                i, (double)raw[i]);
    return DFLASH_OK;
}
