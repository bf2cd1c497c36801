/*
 * preflight.h - may this oracle judge this checkpoint? Everything that is settled before a weight is loaded or a value
 * compared.
 *
 * The config is the authority and the oracle the claimant: geometry, precision, the list of stages and every shape must
 * be what the config demands, the inputs must be exact in float32, and the reference's own runs must not contradict
 * each other. Anything else is a refusal.
 */
#ifndef DP_PREFLIGHT_H
#define DP_PREFLIGHT_H

#include "limits/compare.h"
#include "store/stage_set.h"
#include "store/store.h"

typedef struct dp_preflight {
    dp_oracle *oracle;    /* owned, like every pointer here */
    dflash_config config; /* as the drafter reads it */
    cJSON *resolved;      /* the geometry record of what config.json says (resolve.h) */
    char config_sha256[65];
    dp_stage_set stages;             /* what the config demands and the oracle holds */
    dp_difference *reference_spread; /* [stages.count] the reference's float32 against its float64 (reference_spread.h);
                                        integers: zero */
    dp_difference *sketch;           /* [stages.count] likewise, of the sketches of sampled stages (sketch_check.h) */
    int context;                     /* rows */
    float *taps;                     /* [context, T H] */
    float *noise;                    /* [B, H] */
    int32_t *ids;   /* [B] the block's tokens, where the reference embedded them; NULL: noise is the input */
    int32_t *pos;   /* [context + B] */
    int vocab;      /* rows of the output head that the reference ran; 0 = none */
    int32_t anchor; /* with a head */
} dp_preflight;

/* Opens the oracle and reads DIR/config.json. Codes: those of dflash_config_read, dp_resolve, dp_oracle_open,
 * dp_geometry_check, dp_geometry_check_reading and dp_ids_check, and "provenance.config", "provenance.request",
 * "provenance.precision", "provenance.head.missing", "provenance.embedding.missing", "oracle.block_ids",
 * "oracle.input.embedding", "oracle.head.missing", "oracle.shape", "oracle.stage.missing", "oracle.stage.unexpected",
 * "oracle.sketch", "oracle.reference spread", "oracle.bfloat16", "oracle.frequencies", "oracle.spread",
 * "provenance.orders", "oracle.integers", "oracle.input.precision". Release *out whatever the outcome. */
dflash_status dp_preflight_run(const char *checkpoint, const char *oracle, dflash_precision precision,
                               dp_preflight *out, dflash_error *err);
/* The same in two steps: whether the oracle is of this checkpoint, by what the two files say; then the drafter's
 * reading of the config, and the content of the oracle against it. */
dflash_status dp_preflight_files(const char *checkpoint, const char *oracle, dflash_precision precision,
                                 dp_preflight *out, dflash_error *err);
dflash_status dp_preflight_content(const char *checkpoint, dp_preflight *preflight, dflash_error *err);
/* The part of the above that needs no checkpoint: the reference's own runs do not contradict each other at any stage of
 * preflight->stages, and preflight->reference spread is measured. Codes: those of dp_preflight_run from "oracle.sketch"
 * on. */
dflash_status dp_preflight_spreads(dp_preflight *preflight, dflash_error *err);
void dp_preflight_release(dp_preflight *preflight);

#endif
