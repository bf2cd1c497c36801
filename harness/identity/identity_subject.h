/*
 * identity_subject.h - what `identity` runs on: a checkpoint, its inputs, and the drafters opened on it.
 *
 * Inputs are those of a case's oracle, or, for a checkpoint without one, made from the seed. Rows beyond the oracle's
 * come from the seed too, of the size of those before them. The oracle's numbers judge nothing here; its limits only
 * say how far apart two variants are that should have been identical, and its output head decides whether proposals are
 * run.
 */
#ifndef DP_IDENTITY_SUBJECT_H
#define DP_IDENTITY_SUBJECT_H

#include "preflight/preflight.h"

/* What a test injects faults with. No command sets these. */
typedef struct dp_identity_hooks {
    void (*opened)(dflash_draft *draft, void *user);                 /* a drafter was loaded */
    void (*step)(dflash_kv *kv, char kind, bool before, void *user); /* a cache under test takes a step: i, t, d, x */
    void *user;
} dp_identity_hooks;

typedef struct dp_subject {
    const char *name, *checkpoint; /* borrowed */
    const char *head;              /* FILE[:TENSOR] (head_source.h); NULL: the checkpoint's own, if it has one */
    dflash_precision precision;
    uint64_t seed;
    dp_preflight in;                /* config, inputs, oracle (NULL without one) */
    float row_scale, noise_scale;   /* of rows that are made; row_scale is set once features are known */
    bool head_known;                /* the head in the file was held against the oracle's digest already */
    const dp_identity_hooks *hooks; /* NULL: none */
} dp_subject;

/* `oracle` NULL: inputs from the seed. The caller releases *out whatever the outcome. Codes: those of dp_preflight_run
 * and dflash_config_read. */
dflash_status dp_subject_open(const char *name, const char *checkpoint, const char *oracle, dflash_precision precision,
                              uint64_t seed, const dp_identity_hooks *hooks, dp_subject *out, dflash_error *err);
void dp_subject_release(dp_subject *subject);

/* The root of the mean square, times sqrt(3): the range over which even values have that mean square. */
float dp_even_range(const float *values, size_t n);

/* The position of row `row` of a context of any length: the oracle's, then one after another. */
int32_t dp_subject_position(const dp_subject *subject, int row);
/* Feature row number `serial` of the endless stream, [H]: the context's own rows (features[context, H]), then made
 * ones. */
void dp_subject_row(const dp_subject *subject, const float *features, int serial, float *row);
/* The block of draft `index`, [B, H]: the oracle's, then made ones. */
void dp_subject_noise(const dp_subject *subject, int index, float *noise);

/* One engine with the checkpoint loaded on it. */
typedef struct dp_rig {
    dflash_engine *engine;
    dflash_draft *draft;
    dflash_table *head; /* NULL without one */
} dp_rig;

/* Release *out whatever the outcome. */
dflash_status dp_rig_open(const dp_subject *subject, const dflash_engine_options *options, dp_rig *out,
                          dflash_error *err);
void dp_rig_release(dp_rig *rig);

#endif
