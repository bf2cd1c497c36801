/*
 * identity_variants.h - the variants of `identity`: other ways to do the same work, each held against one reference
 * run.
 *
 * A variant here has a fixed script; histories at random are identity_case.c's. The table is the list of them, in the
 * order in which they are run and reported.
 */
#ifndef DP_IDENTITY_VARIANTS_H
#define DP_IDENTITY_VARIANTS_H

#include "identity/identity_run.h"

/* The run that every variant is compared with. */
typedef struct dp_reference {
    const dp_subject *subject;
    dflash_engine_options options;
    dp_rig rig;
    float *features;    /* [context, H] */
    dp_recording block; /* ctx.*, forward_block, the proposal, kv.* */
} dp_reference;

/* References that a variant is about. */
typedef enum dp_variant_scope {
    DP_VARIANT_ANYWHERE = 0,
    DP_VARIANT_ON_DEVICE,   /* what a device's scheduling could change */
    DP_VARIANT_ON_CPU,      /* threads and instruction sets are the CPU's */
    DP_VARIANT_CPU_DEVICE,  /* the exact class on the CPU, on a machine with a CUDA device */
    DP_VARIANT_DEVICE_EXACT /* the exact class on a device */
} dp_variant_scope;

typedef struct dp_identity_variant {
    const char *name;
    /* Adds what it compared to *pair. */
    dflash_status (*run)(const dp_reference *reference, int argument, dp_pair *pair, dflash_error *err);
    int argument;
    dp_variant_scope scope;
} dp_identity_variant;

/* Whether the variant says something about a reference with these options, on this machine. */
bool dp_identity_variant_applies(const dp_identity_variant *variant, const dflash_engine_options *reference);

int dp_identity_variant_count(void);
const dp_identity_variant *dp_identity_variant_at(int index);

/* Runs the reference; release *out whatever the outcome. Sets the subject's row_scale and head_known. */
dflash_status dp_reference_run(dp_subject *subject, const dflash_engine_options *options, dp_reference *out,
                               dflash_error *err);
void dp_reference_release(dp_reference *reference);

/* The subject's own context, as the reference's input. */
dp_round_input dp_reference_input(const dp_reference *reference);

/* Variants about the rows of one call (identity_rows.c). */
dflash_status dp_variant_rows_permuted(const dp_reference *reference, int argument, dp_pair *pair, dflash_error *err);
dflash_status dp_variant_rows_beside_nan(const dp_reference *reference, int argument, dp_pair *pair, dflash_error *err);

/* Ingests the context at once into a new cache and compares a round over it. `dirty`: rows of NaN were in the cache
 * before and behind it, and were cut away. */
dflash_status dp_variant_round_over(const dp_reference *reference, const dp_rig *rig, bool dirty, dp_pair *pair,
                                    dflash_error *err);

#endif
