/*
 * identity_arms.h - the arms of `identity`: other ways to do the same work, each held against one reference run.
 *
 * An arm here has a fixed script; histories at random are identity_case.c's. The table is the list of them, in the
 * order in which they are run and reported.
 */
#ifndef DP_IDENTITY_ARMS_H
#define DP_IDENTITY_ARMS_H

#include "identity/identity_run.h"

/* The run that every arm is compared with. */
typedef struct dp_reference {
    const dp_subject *subject;
    df_engine_options options;
    dp_rig rig;
    float *features;    /* [context, H] */
    dp_recording block; /* ctx.*, forward_block, the proposal, kv.* */
} dp_reference;

/* References that an arm is about. */
typedef enum dp_arm_scope {
    DP_ARM_ANYWHERE = 0,
    DP_ARM_ON_DEVICE,   /* what a device's scheduling could change */
    DP_ARM_ON_CPU,      /* threads and instruction sets are the CPU's */
    DP_ARM_CPU_DEVICE,  /* the exact class on the CPU, on a machine with a CUDA device */
    DP_ARM_DEVICE_EXACT /* the exact class on a device */
} dp_arm_scope;

typedef struct dp_identity_arm {
    const char *name;
    /* Adds what it compared to *pair. */
    df_status (*run)(const dp_reference *reference, int argument, dp_pair *pair, df_error *err);
    int argument;
    dp_arm_scope scope;
} dp_identity_arm;

/* Whether the arm says something about a reference with these options, on this machine. */
bool dp_identity_arm_applies(const dp_identity_arm *arm, const df_engine_options *reference);

int dp_identity_arm_count(void);
const dp_identity_arm *dp_identity_arm_at(int index);

/* Runs the reference; release *out whatever the outcome. Sets the subject's row_scale and head_known. */
df_status dp_reference_run(dp_subject *subject, const df_engine_options *options, dp_reference *out, df_error *err);
void dp_reference_release(dp_reference *reference);

/* The subject's own context, as the reference's input. */
dp_round_input dp_reference_input(const dp_reference *reference);

/* Arms about the rows of one call (identity_rows.c). */
df_status dp_arm_rows_permuted(const dp_reference *reference, int argument, dp_pair *pair, df_error *err);
df_status dp_arm_rows_beside_nan(const dp_reference *reference, int argument, dp_pair *pair, df_error *err);

/* Ingests the context at once into a new cache and compares a round over it. `dirty`: rows of NaN were in the cache
 * before and behind it, and were cut away. */
df_status dp_arm_round_over(const dp_reference *reference, const dp_rig *rig, bool dirty, dp_pair *pair, df_error *err);

#endif
