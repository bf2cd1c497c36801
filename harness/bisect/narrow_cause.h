/*
 * narrow_cause.h - what made a stage's values differ, where that can be told from the run's own recorded inputs.
 *
 * For a product (with the checkpoint's weights) and for attention, the stage is computed again from what the run itself
 * recorded before it, under one hypothesis after another: as it should be, without one segment of 64 channels or keys,
 * without one channel or key, with one of them twice, without the bias, under another mask. A hypothesis counts when it
 * explains every value examined, and a cause is named only when exactly one does. Values follow a hypothesis bit by
 * bit, in the canonical order of the exact class, or, for engines that sum in another order, within the forward error
 * bound of the sum.
 */
#ifndef DP_NARROW_CAUSE_H
#define DP_NARROW_CAUSE_H

#include "bisect/narrow.h"

typedef enum dp_cause_kind {
    DP_CAUSE_UNEXAMINED = 0, /* not a stage that can be, or something needed is not at hand: see the text */
    DP_CAUSE_NONE,           /* no hypothesis explains the values */
    DP_CAUSE_AMBIGUOUS,      /* several do */
    DP_CAUSE_INHERITED,      /* the values follow from the run's own inputs: the difference came in with them */
    DP_CAUSE_SEGMENT_MISSING,
    DP_CAUSE_SEGMENT_TWICE,
    DP_CAUSE_CHANNEL_MISSING, /* of attention: one key */
    DP_CAUSE_CHANNEL_TWICE,
    DP_CAUSE_BIAS_MISSING,
    DP_CAUSE_BIAS_TWICE,
    DP_CAUSE_MASK, /* attention under another mask, see the text */
    DP_CAUSE_HEAD, /* attention to another key/value head; index is that head */
    DP_CAUSE_SCALE /* attention without 1 / sqrt(head_dim) */
} dp_cause_kind;

enum { DP_CAUSE_TEXT = 256 };

typedef struct dp_cause {
    dp_cause_kind kind;
    int64_t index;      /* of the segment, channel, key row or head; -1 otherwise */
    bool bitwise;       /* explained bit by bit; false: within the error bound */
    int examined, fits; /* values (of attention: heads of a row) looked at; hypotheses that explain them */
    char text[DP_CAUSE_TEXT];
} dp_cause;

/* `run` is the recording whose values differ from the reference's; `draft` the checkpoint it ran, or NULL. */
typedef struct dp_cause_source {
    const dp_oracle *run;
    const dflash_config *config;
    int context;
    const dflash_draft *draft;
} dp_cause_source;

dflash_status dp_narrow_cause(const dp_cause_source *source, const dp_stage_sides *sides, const bool *off,
                              dp_cause *out, dflash_error *err);

/* narrow_attention.c: the part of the above for attn.context. */
dflash_status dp_cause_of_attention(const dp_cause_source *source, const dp_stage_sides *sides, const bool *off,
                                    dp_cause *out, dflash_error *err);

#endif
