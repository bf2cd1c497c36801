/*
 * rounds.h - is forward_round the same program as forward_block, bit for bit?
 *
 * A variant (round_variants.h) brings the context into a cache in one way, drafts one block from it, and is compared
 * with a recording of forward_block: every stage of the block's rows, and the cache's content against the context rows
 * of attn.k_rope and attn.v. Bits are compared, so -0 differs from +0 and one NaN from another.
 */
#ifndef DP_ROUNDS_H
#define DP_ROUNDS_H

#include "run/recording.h"

enum { DP_VARIANT_NAME = 32, DP_MOST_VARIANTS = 16 };

typedef struct dp_variant_result {
    char name[DP_VARIANT_NAME];        /* those of round_variants.c: "round.all", "round.chunk7", ... */
    int chunk;                         /* rows per ingest call */
    int64_t compared;                  /* elements */
    bool identical;                    /* every compared bit, all values finite, and at least one compared */
    bool nonfinite;                    /* the first fault is a NaN or an infinity, the same on both sides */
    char stage[DFLASH_STAGE_NAME_MAX]; /* first that differs, "" when identical */
    int64_t index;                     /* flat index within the compared rows of that stage */
    uint32_t block_bits, round_bits;
} dp_variant_result;

/* What the block run was given, in host memory. */
typedef struct dp_round_input {
    const float *taps;     /* [context, T H]; read by variants that start from them */
    const float *features; /* [context, H] */
    const float *noise;    /* [B, H] */
    const int32_t *pos;    /* [context + B] */
    int context;
} dp_round_input;

/* A variant with nothing compared yet. */
void dp_variant_begin(dp_variant_result *out, const char *name, int chunk);
/* A stage that one side lacks, or shows with other rows, is a difference, at index -1. */
void dp_variant_lacks(dp_variant_result *variant, const char *stage);

/* Drafts one block over `kv` and compares it with `block`, the recording of dflash_forward_block on the same input, and
 * the rows that kv holds with the last ones of the context; fewer than `least` are a difference. `twice`: the block is
 * drafted once more, without an observer, and its result compared too. */
dflash_status dp_compare_round(dflash_draft *draft, dflash_kv *kv, const dp_round_input *input,
                               const dp_recording *block, int least, bool twice, dp_variant_result *out,
                               dflash_error *err);

/* Another run of the same block, of which result[B, H] was received; it shows `context` rows beside the block's. */
void dp_compare_runs(const dflash_draft *draft, const dp_recording *block, const dp_recording *run, int context,
                     const float *result, dp_variant_result *out);

/* Stages that forward_block shows for the context's rows too, where a round shows the block's rows alone. */
bool dp_stage_shows_context(dflash_stage stage);

/* Where two float buffers first differ in a bit; -1 when they do not. */
int64_t dp_first_bit_difference(const float *a, const float *b, int64_t count);

/* Where a NaN or an infinity stands, judged from the bits; -1 when every value is finite. */
int64_t dp_first_nonfinite(const float *value, int64_t count);

#endif
