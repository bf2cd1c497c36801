/*
 * identity_history.h - runs a schedule on a cache and holds every block it drafts against the same context fed
 * otherwise.
 *
 * Beside the cache under test there is a ledger: a cache with room for everything, cut back to what the two contexts
 * have in common and fed the rest at once. Every drafted block is compared with the ledger's; the last one, and every
 * few in between, stage by stage with forward_block over the committed context, the cache's content included.
 */
#ifndef DP_IDENTITY_HISTORY_H
#define DP_IDENTITY_HISTORY_H

#include "identity/identity_run.h"
#include "identity/identity_schedule.h"

/* The largest window when every layer slides, so that old rows may go; 0 otherwise. */
int32_t dp_sliding_window(const dflash_config *config);

typedef enum dp_history_end {
    DP_HISTORY_SAME = 0,
    DP_HISTORY_DIFFERS, /* a bit differs, or rows are lacking in the cache or too many */
    DP_HISTORY_REFUSED  /* the drafter refused a step: the error says why */
} dp_history_end;

typedef struct dp_history_result {
    dp_history_end end;
    int drafts;       /* blocks compared */
    int step;         /* the step, from 0, at which it ended, unless SAME */
    dflash_error why; /* of a refusal */
} dp_history_result;

/* How often forward_block runs: every draft (a replay), or every DP_HISTORY_CHECK_EVERY-th and the last. */
enum { DP_HISTORY_CHECK_EVERY = 16 };

/* Runs until the end or the first difference. Stages compared are added to *pair. `features` are those of the subject's
 * own context, [context, H]. Fails only for reasons that are no verdict on the drafter: memory, a device. */
dflash_status dp_history_run(const dp_rig *rig, const dp_subject *subject, const float *features,
                             const dp_schedule *schedule, bool every_stage, dp_pair *pair, dp_history_result *out,
                             dflash_error *err);

#endif
