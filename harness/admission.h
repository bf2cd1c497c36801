/*
 * admission.h - may this oracle judge this checkpoint? Everything that is settled before a weight is loaded or a value
 * compared.
 *
 * The config is the authority and the oracle the claimant: geometry, precision, the list of stages and every shape must
 * be what the config demands, the inputs must be exact in float32, and the reference's own runs must not contradict
 * each other. Anything else is a refusal.
 */
#ifndef DP_ADMISSION_H
#define DP_ADMISSION_H

#include "compare.h"
#include "stage_set.h"
#include "store.h"

typedef struct dp_admission {
    dp_oracle *oracle; /* owned, like every pointer here */
    df_config config;
    dp_stage_set stages;    /* what the config demands and the oracle holds */
    dp_difference *bracket; /* [stages.count] the reference's float32 against its float64 (bracket.h); integers: zero */
    int context;            /* rows */
    float *taps;            /* [context, T H] */
    float *noise;           /* [B, H] */
    int32_t *ids;           /* [B] the block's tokens, where the reference embedded them; NULL: noise is the input */
    int32_t *pos;           /* [context + B] */
    int vocab;              /* rows of the output head that the reference ran; 0 = none */
    int32_t anchor;         /* with a head */
} dp_admission;

/* Opens the oracle and reads DIR/config.json. Codes: those of df_config_read, dp_oracle_open and dp_geometry_check, and
 * "provenance.precision", "provenance.head.missing", "provenance.embedding.missing", "oracle.block_ids",
 * "oracle.input.embedding", "oracle.head.missing", "oracle.shape", "oracle.stage.missing",
 * "oracle.stage.unexpected", "oracle.sampling.sparse", "oracle.sampling.columns", "oracle.bracket", "oracle.bfloat16",
 * "provenance.orders",
 * "oracle.integers", "oracle.input.precision". Release *out
 * whatever the outcome. */
df_status dp_admit(const char *checkpoint, const char *oracle, df_precision precision, dp_admission *out,
                   df_error *err);
/* The part of the above that needs no checkpoint: the reference's own runs do not contradict each other at any stage of
 * admission->stages, and admission->bracket is measured. Codes: those of dp_admit from "oracle.sampling.sparse" on. */
df_status dp_admit_brackets(dp_admission *admission, df_error *err);
void dp_admission_release(dp_admission *admission);

#endif
