/*
 * round_arms.h - the ways in which a check runs one block, each of which must give the bits of df_forward_block.
 *
 * Beside the schedules of ingestion they are what a cache can go through before a draft: a tail that was exported and
 * imported, a floor, a pin that is cut back to, rejected rows, a ring that compacts. Every arm is compared with a
 * forward_block over the rows that its cache stands for.
 */
#ifndef DP_ROUND_ARMS_H
#define DP_ROUND_ARMS_H

#include "judge/rounds.h"

typedef struct dp_arm dp_arm;

/* NULL past the last. */
const dp_arm *dp_arm_at(int index);
const char *dp_arm_name(const dp_arm *arm); /* "round.chunk7", "round.pin", ... */
/* Whether a model has the arm: only a cache whose layers all slide compacts. */
bool dp_arm_exists(const dp_arm *arm, const df_config *config);
/* `block` is the recording of df_forward_block on the same input. Fails only where a call does: an arm that differs is
 * a result. */
df_status dp_arm_run(const dp_arm *arm, df_draft *draft, const dp_round_input *input, const dp_recording *block,
                     dp_arm_result *out, df_error *err);

#endif
