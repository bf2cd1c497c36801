/* choice.c - see choice.h. */
#include "heads/choice.h"

#include "common/error.h"
#include "heads/pick.h"
#include "heads/topk.h"

#include <stdlib.h>
#include <string.h>

bool df_choice_needs_distribution(const df_proposal_options *options, const df_proposal *out) {
    return options->temperature > 0.0f || out->share != NULL;
}

df_status df_choice_take(df_engine *engine, int n, df_choice **out, df_error *err) {
    _Static_assert(sizeof **out % sizeof(float) == 0, "choices are handed out in floats");
    *out = (void *)df_arena_floats(&engine->arena, (size_t)n * (sizeof **out / sizeof(float)), err);
    return *out != NULL ? DF_OK : DF_ERR_MEMORY;
}

df_status df_choice_refuse_draw(int slot, float u, df_error *err) {
    return df_fail(err, DF_ERR_ARGUMENT, "proposal.draw",
                   "Slot %d: no token can be drawn with the uniform number %g; expected 0 <= u < 1. Pass one fresh "
                   "number for each slot.",
                   slot, (double)u);
}

df_status df_choice_check(const df_choice *choice, const char *what, int slot, int n, df_error *err) {
    if (choice->fault == DF_FAULT_NONE) return DF_OK;
    if (choice->fault == DF_FAULT_FEW) return df_pick_refuse_nofinite(n, what, slot, err);
    if (choice->fault == DF_FAULT_DRAW) return df_choice_refuse_draw(slot, choice->value, err);
    return df_topk_refuse(choice->value, what, slot, choice->at, err);
}

static df_status fill(df_engine *engine, const df_choose_args *args, int slot, const df_choice *choice,
                      const int32_t *ids, const df_proposal *out, df_error *err) {
    const size_t width = (size_t)args->width, at = (size_t)slot * width;
    if (out->token != NULL) out->token[slot] = choice->token;
    if (out->share != NULL) out->share[slot] = choice->share;
    for (size_t i = 0; out->candidate != NULL && i < width; i++)
        out->candidate[at + i] = ids != NULL ? ids[i] : (int32_t)i;
    if (out->probability == NULL) return DF_OK;
    if (args->temperature > 0.0f)
        return df_engine_download(engine, out->probability + at, args->probability + at, width, err);
    /* A token that was not drawn has all of the distribution: that is what the rejection rule must be told. */
    memset(out->probability + at, 0, width * sizeof *out->probability);
    out->probability[at + (size_t)choice->index] = 1.0f;
    return DF_OK;
}

df_status df_choice_report(df_engine *engine, const df_choose_args *args, const df_choice *choice, const int32_t *ids,
                           size_t ids_stride, const df_proposal *out, df_error *err) {
    for (int slot = 0; slot < args->n; slot++) {
        TRY(df_choice_check(&choice[slot], args->what, slot, args->width, err));
        TRY(fill(engine, args, slot, &choice[slot], ids != NULL ? ids + (size_t)slot * ids_stride : NULL, out, err));
    }
    return DF_OK;
}

df_status df_choice_fetch(df_engine *engine, const df_choose_args *args, const int32_t *ids, const df_proposal *out,
                          df_error *err) {
    const size_t bytes = (size_t)args->n * sizeof(df_choice);
    df_choice *choice = malloc(bytes);
    if (choice == NULL) return df_fail_memory(err, "the choices", bytes);
    df_status status = engine->memory.download(engine->memory.owner, choice, args->choice, bytes, err);
    if (status == DF_OK) status = df_choice_report(engine, args, choice, ids, 0, out, err);
    free(choice);
    return status;
}
