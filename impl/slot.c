/* slot.c - see slot.h. */
#include "slot.h"

#include "error.h"
#include "pick.h"

#include <string.h>

bool df_slot_needs_scratch(const df_proposal_options *options, const df_proposal *out) {
    return options->temperature > 0.0f || out->share != NULL;
}

static df_status choose_greedy(const float *row, int n, const char *what, int slot, float *scratch,
                               const df_proposal *out, int32_t *index, df_error *err) {
    df_status status = df_pick_argmax(row, n, what, slot, index, err);
    if (status == DF_OK && out->share != NULL) {
        status = df_pick_softmax(row, n, 1.0f, scratch, what, slot, err);
        if (status == DF_OK) out->share[slot] = scratch[*index];
    }
    if (status == DF_OK && out->probability != NULL) {
        float *probability = out->probability + (size_t)slot * (size_t)n;
        memset(probability, 0, (size_t)n * sizeof *probability);
        probability[*index] = 1.0f;
    }
    return status;
}

static df_status choose_sampled(const float *row, int n, const char *what, int slot, const df_proposal_options *options,
                                float *scratch, const df_proposal *out, int32_t *index, df_error *err) {
    const float u = options->uniform[slot];
    const df_status status = df_pick_softmax(row, n, options->temperature, scratch, what, slot, err);
    if (status != DF_OK) return status;
    *index = df_draw(scratch, n, u);
    if (*index < 0)
        return df_fail(err, DF_ERR_ARGUMENT, "proposal.draw",
                       "Slot %d: no token can be drawn with the uniform number %g; expected 0 <= u < 1. Pass one fresh "
                       "number for each slot.",
                       slot, (double)u);
    if (out->share != NULL) out->share[slot] = scratch[*index];
    if (out->probability != NULL)
        memcpy(out->probability + (size_t)slot * (size_t)n, scratch, (size_t)n * sizeof *scratch);
    return status;
}

df_status df_slot_choose(const float *row, int n, const int32_t *ids, const char *what, int slot,
                         const df_proposal_options *options, float *scratch, const df_proposal *out, int32_t *token,
                         df_error *err) {
    int32_t index = -1;
    const df_status status = options->temperature > 0.0f
                                 ? choose_sampled(row, n, what, slot, options, scratch, out, &index, err)
                                 : choose_greedy(row, n, what, slot, scratch, out, &index, err);
    if (status != DF_OK) return status;
    *token = ids != NULL ? ids[index] : index;
    if (out->token != NULL) out->token[slot] = *token;
    if (out->candidate != NULL)
        for (int i = 0; i < n; i++) out->candidate[(size_t)slot * (size_t)n + (size_t)i] = ids != NULL ? ids[i] : i;
    return DF_OK;
}
