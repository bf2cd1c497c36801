/*
 * choice.h - the choices of a call: room for them in the engine's memory, and what the host makes of them afterwards.
 *
 * Tokens are chosen by operations, slot after slot, without a device-to-host synchronisation; then the choices are read
 * together, the first fault is refused by name, and the caller's arrays are filled.
 */
#ifndef DF_CHOICE_H
#define DF_CHOICE_H

#include "engine/engine.h"

/* Whether df_choose_args.probability must be given for these options and outputs. */
bool df_choice_needs_distribution(const dflash_proposal_options *options, const dflash_proposal *out);

/* `n` choices in scratch, valid until the arena goes back. */
dflash_status df_choice_take(dflash_engine *engine, int n, df_choice **out, dflash_error *err);

/* Refuses a recorded fault of slot `slot`, one of `n` values named `what`: "proposal.nan", "proposal.infinite",
 * "proposal.nofinite", "proposal.draw" (whose number is in `value`). */
dflash_status df_choice_check(const df_choice *choice, const char *what, int slot, int n, dflash_error *err);

/* The refusal "proposal.draw". */
dflash_status df_choice_refuse_draw(int slot, float u, dflash_error *err);

/*
 * Checks choice[args->n] on the host, where args describes all slots of the call together, and fills *out slot by slot:
 * token, share, candidates, distribution. ids: host memory, the ids of a slot's columns, `ids_stride` further on for
 * each slot; NULL: columns are ids. args->probability: the distributions of all slots, when out->probability is wanted
 * and sampled.
 */
dflash_status df_choice_report(dflash_engine *engine, const df_choose_args *args, const df_choice *choice,
                               const int32_t *ids, size_t ids_stride, const dflash_proposal *out, dflash_error *err);

/* The same, reading the choices from args->choice in the engine's memory first. */
dflash_status df_choice_fetch(dflash_engine *engine, const df_choose_args *args, const int32_t *ids,
                              const dflash_proposal *out, dflash_error *err);

#endif
