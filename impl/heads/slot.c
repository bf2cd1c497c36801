/* slot.c - see slot.h. */
#include "heads/slot.h"

#include "heads/choice.h"
#include "common/error.h"
#include "heads/pick.h"

static dflash_status choose_greedy(const df_choose_args *args, const float *row, int slot, float *probability,
                                   df_choice *choice, dflash_error *err) {
    TRY(df_pick_argmax(row, args->width, args->what, slot, &choice->index, err));
    if (!args->share) return DFLASH_OK;
    TRY(df_pick_softmax(row, args->width, 1.0f, probability, args->what, slot, err));
    choice->share = probability[choice->index];
    return DFLASH_OK;
}

static dflash_status choose_sampled(const df_choose_args *args, const float *row, int slot, float *probability,
                                    df_choice *choice, dflash_error *err) {
    const float u = args->uniform[slot];
    TRY(df_pick_softmax(row, args->width, args->temperature, probability, args->what, slot, err));
    choice->index = dflash_draw(probability, args->width, u);
    if (choice->index < 0) return df_choice_refuse_draw(slot, u, err);
    choice->share = probability[choice->index];
    return DFLASH_OK;
}

dflash_status df_slot_choose(const df_choose_args *args, int i, dflash_error *err) {
    const size_t at = (size_t)i * (size_t)args->width;
    const int slot = args->first_slot + i;
    float *probability = args->probability != NULL ? args->probability + at : NULL;
    df_choice choice = {.fault = DF_FAULT_NONE};
    TRY(args->temperature > 0.0f ? choose_sampled(args, args->rows + at, slot, probability, &choice, err)
                                 : choose_greedy(args, args->rows + at, slot, probability, &choice, err));
    choice.token = args->ids != NULL ? args->ids[choice.index] : choice.index;
    args->choice[i] = choice;
    return DFLASH_OK;
}
