/*
 * rounds.h - is forward_round the same program as forward_block, bit for bit?
 *
 * An arm ingests the context under one schedule, drafts one block from the cache, and is compared with a recording of
 * forward_block: every stage of the block's rows, and the cache's content against the context rows of attn.k_rope and
 * attn.v. Bits are compared, so -0 differs from +0 and one NaN from another.
 */
#ifndef DP_ROUNDS_H
#define DP_ROUNDS_H

#include "recording.h"

enum { DP_ARM_NAME = 32 };

typedef struct dp_arm_result {
    char name[DP_ARM_NAME];        /* "round.all", "round.chunk1", "round.chunk7" */
    int chunk;                     /* rows per ingest call */
    int64_t compared;              /* elements */
    bool identical;                /* every compared bit, all values finite, and at least one compared */
    bool nonfinite;                /* the first fault is a NaN or an infinity, the same on both sides */
    char stage[DF_STAGE_NAME_MAX]; /* first that differs, "" when identical */
    int64_t index;                 /* flat index within the compared rows of that stage */
    uint32_t block_bits, round_bits;
} dp_arm_result;

/* What the block run was given, in host memory. */
typedef struct dp_round_input {
    const float *features; /* [context, H] */
    const float *noise;    /* [B, H] */
    const int32_t *pos;    /* [context + B] */
    int context;
} dp_round_input;

/* Runs one arm, `chunk` rows to an ingest call. `block` is the recording of df_forward_block on the same input. */
df_status dp_run_arm(df_draft *draft, const dp_round_input *input, const dp_recording *block, const char *name,
                     int chunk, dp_arm_result *out, df_error *err);

/* Stages that forward_block shows for the context's rows too, where a round shows the block's rows alone. */
bool dp_stage_shows_context(df_stage stage);

/* Where two float buffers first differ in a bit; -1 when they do not. */
int64_t dp_first_bit_difference(const float *a, const float *b, int64_t count);

/* Where a NaN or an infinity stands, judged from the bits; -1 when every value is finite. */
int64_t dp_first_nonfinite(const float *value, int64_t count);

#endif
