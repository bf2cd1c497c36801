/*
 * identity_case.h - every variant of `identity` on one checkpoint, and what came of each.
 */
#ifndef DP_IDENTITY_CASE_H
#define DP_IDENTITY_CASE_H

#include "identity/identity_digests.h"
#include "identity/identity_history.h"
#include "check/run_check.h"

typedef struct dp_identity_options {
    const char *filter; /* pattern over variant names; NULL: all */
    const char *head;   /* FILE[:TENSOR] of the output head; NULL: the checkpoint's own, if it has one */
    const char *replay; /* this schedule instead of the variants; NULL: none */
    uint64_t seed;
    int schedules;      /* random histories of this case */
    bool brief;         /* full-size: few rounds to a history */
    bool digests_alone; /* the reference run, and no variant */
    int threads;
    dflash_isa isa;
    dflash_backend backend;
    dflash_class numeric_class;
    dflash_products products;
    int device;                     /* number of the CUDA device */
    const dp_identity_hooks *hooks; /* NULL: none; tests only */
    dp_progress_part progress;      /* all zero: nobody watches */
} dp_identity_options;

enum { DP_OUTCOME_NAME = 32, DP_OUTCOME_MOST = 32 };

typedef enum dp_outcome_state {
    DP_OUTCOME_IDENTICAL = 0,
    DP_OUTCOME_DIFFERS,
    DP_OUTCOME_REFUSED, /* a history that the drafter refused to go on with */
    DP_OUTCOME_NOT_RUN  /* this machine cannot; never a pass */
} dp_outcome_state;

typedef struct dp_outcome {
    char name[DP_OUTCOME_NAME];
    dp_outcome_state state;
    dflash_error why; /* of REFUSED and NOT_RUN */
    dp_pair pair;
    int histories, drafts; /* run in it, and blocks compared with the ledger's; 0 for variants with a fixed script */
    char *replay;          /* a failing history made small; NULL: none */
    int shrink_calls;
    double seconds;
} dp_outcome;

typedef struct dp_identity_result {
    const char *name, *checkpoint; /* borrowed */
    dflash_precision precision;
    uint64_t seed;
    dp_verdict verdict;
    dflash_error error; /* for DP_REFUSED and DP_ERROR */
    dflash_family family;
    int threads;
    const char *isa;
    dflash_device_facts device;
    dp_outcome variant[DP_OUTCOME_MOST];
    int variant_count; /* with those not run */
    int compared, failed, not_run;
    double seconds;
} dp_identity_result;

/* Never fails: what goes wrong is in the result. `oracle` NULL: inputs from the seed. The digests of the reference run
 * are appended to *digests, unless that is NULL. */
void dp_identity_case(const char *name, const char *checkpoint, const char *oracle, dflash_precision precision,
                      const dp_identity_options *options, dp_digest_list *digests, dp_identity_result *out);
void dp_identity_release(dp_identity_result *result);

/* The names of the variants, in order, histories included; NULL beyond the last. */
const char *dp_identity_variant_name(int index);

#endif
