/*
 * identity_run.h - the runs that `identity` compares, each kept as a recording: forward_block over a context, and
 * forward_round over a cache, with the proposal that follows when there is an output head.
 */
#ifndef DP_IDENTITY_RUN_H
#define DP_IDENTITY_RUN_H

#include "judge/identity_pair.h"
#include "identity/identity_subject.h"
#include "judge/rounds.h"

/* features[context, H] of the subject's own context; ctx.* are recorded. `features` may be the only wish (NULL). */
dflash_status dp_record_features(const dp_rig *rig, const dp_subject *subject, float *features, dp_recording *out,
                                 dflash_error *err);

/* forward_block and the proposal, every stage, and kv.k, kv.v as a cache would hold the last `held` rows of the
 * context. */
dflash_status dp_record_block(const dp_rig *rig, const dp_subject *subject, const dp_round_input *input, int held,
                              dp_recording *out, dflash_error *err);

/* The cache's content, forward_round over it (noise[B, H], pos[B]) and the proposal. */
dflash_status dp_record_round(const dp_rig *rig, const dp_subject *subject, dflash_kv *kv, const float *noise,
                              const int32_t *pos, dp_recording *out, dflash_error *err);

/* One step of a cache under test, shown to the subject's hooks before and after. */
dflash_status dp_step_ingest(const dp_rig *rig, const dp_subject *subject, dflash_kv *kv, const float *features,
                             const int32_t *pos, int rows, dflash_error *err);
dflash_status dp_step_truncate(const dp_subject *subject, dflash_kv *kv, int rows,
                               dflash_error *err); /* the last `rows` go */
dflash_status dp_step_round(const dp_rig *rig, const dp_subject *subject, dflash_kv *kv, const float *noise,
                            const int32_t *pos, float *out, dflash_error *err);
/* All rows move to a new cache of the same capacity through export and import; *kv becomes that one. */
dflash_status dp_step_move(const dp_rig *rig, const dp_subject *subject, dflash_kv **kv, dflash_error *err);

#endif
