/* choice.c - see choice.h. */
#include "heads/choice.h"

#include "common/error.h"
#include "heads/pick.h"
#include "heads/topk.h"

#include <stdlib.h>
#include <string.h>

bool df_choice_needs_distribution(const dflash_proposal_options *options, const dflash_proposal *out) {
    return options->temperature > 0.0f || out->share != NULL;
}

dflash_status df_choice_take(dflash_engine *engine, int n, df_choice **out, dflash_error *err) {
    _Static_assert(sizeof **out % sizeof(float) == 0, "choices are handed out in floats");
    *out = (void *)df_arena_floats(&engine->arena, (size_t)n * (sizeof **out / sizeof(float)), err);
    return *out != NULL ? DFLASH_OK : DFLASH_ERR_MEMORY;
}

dflash_status df_choice_refuse_draw(int slot, float u, dflash_error *err) {
    return df_fail(err, DFLASH_ERR_ARGUMENT, "proposal.draw",
                   "Slot %d: no token can be drawn with the uniform number %g; expected 0 <= u < 1. Pass one fresh "
                   "number for each slot.",
                   slot, (double)u);
}

dflash_status df_choice_check(const df_choice *choice, const char *what, int slot, int n, dflash_error *err) {
    if (choice->fault == DF_FAULT_NONE) return DFLASH_OK;
    if (choice->fault == DF_FAULT_FEW) return df_pick_refuse_nofinite(n, what, slot, err);
    if (choice->fault == DF_FAULT_DRAW) return df_choice_refuse_draw(slot, choice->value, err);
    return df_topk_refuse(choice->value, what, slot, choice->at, err);
}

static dflash_status fill(dflash_engine *engine, const df_choose_args *args, int slot, const df_choice *choice,
                          const int32_t *ids, const dflash_proposal *out, dflash_error *err) {
    const size_t width = (size_t)args->width, at = (size_t)slot * width;
    if (out->token != NULL) out->token[slot] = choice->token;
    if (out->share != NULL) out->share[slot] = choice->share;
    for (size_t i = 0; out->candidate != NULL && i < width; i++)
        out->candidate[at + i] = ids != NULL ? ids[i] : (int32_t)i;
    if (out->probability == NULL) return DFLASH_OK;
    if (args->temperature > 0.0f)
        return dflash_engine_download(engine, out->probability + at, args->probability + at, width, err);
    /* A token that was not drawn has all of the distribution: that is what the rejection rule must be told. */
    memset(out->probability + at, 0, width * sizeof *out->probability);
    out->probability[at + (size_t)choice->index] = 1.0f;
    return DFLASH_OK;
}

dflash_status df_choice_report(dflash_engine *engine, const df_choose_args *args, const df_choice *choice,
                               const int32_t *ids, size_t ids_stride, const dflash_proposal *out, dflash_error *err) {
    for (int slot = 0; slot < args->n; slot++) {
        TRY(df_choice_check(&choice[slot], args->what, slot, args->width, err));
        TRY(fill(engine, args, slot, &choice[slot], ids != NULL ? ids + (size_t)slot * ids_stride : NULL, out, err));
    }
    return DFLASH_OK;
}

dflash_status df_choice_fetch(dflash_engine *engine, const df_choose_args *args, const int32_t *ids,
                              const dflash_proposal *out, dflash_error *err) {
    const size_t bytes = (size_t)args->n * sizeof(df_choice);
    df_choice *choice = malloc(bytes);
    if (choice == NULL) return df_fail_memory(err, "the choices", bytes);
    dflash_status status = engine->memory.download(engine->memory.owner, choice, args->choice, bytes, err);
    if (status == DFLASH_OK) status = df_choice_report(engine, args, choice, ids, 0, out, err);
    free(choice);
    return status;
}
