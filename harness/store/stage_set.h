/*
 * stage_set.h - which stages a checkpoint must show for an input, and their shapes.
 *
 * This list, derived from the config alone, is what makes the gate fail closed: an oracle or a run that lacks one of
 * these stages, or shows another shape, cannot pass.
 */
#ifndef DP_STAGE_SET_H
#define DP_STAGE_SET_H

#include "base/coordinates.h"
#include "dflash.h"

typedef struct dp_stage_spec {
    char name[DFLASH_STAGE_NAME_MAX];
    dflash_stage stage;
    int layer; /* -1 outside the layers */
    int rank;
    int64_t dim[4];
    bool exact; /* ids and counts: compared as integers, where any difference is a failure */
} dp_stage_spec;

/* What an input asks of a run beside the config. */
typedef struct dp_stage_input {
    int context;   /* context rows */
    int vocab;     /* rows of the output head; 0 = no head, so nothing after `final` is computed */
    bool embedded; /* the block comes from the target's embedding table, which the stage `input` shows */
} dp_stage_input;

typedef struct dp_stage_set {
    dp_stage_spec *spec; /* owned, in forward order */
    int count;
} dp_stage_set;

/* The stages of one block over that input. */
dflash_status dp_stage_set_create(const dflash_config *config, const dp_stage_input *input, dp_stage_set *out,
                                  dflash_error *err);
void dp_stage_set_release(dp_stage_set *set);

/* NULL when the set has no such stage. */
const dp_stage_spec *dp_stage_set_find(const dp_stage_set *set, const char *name);

/* kv.k and kv.v, which hold every layer: a row of them is one token of one layer. */
bool dp_is_cache(dflash_stage stage);

int64_t dp_dims_product(int rank, const int64_t *dim);
bool dp_dims_equal(int rank_a, const int64_t *a, int rank_b, const int64_t *b);

/* Values of one row: of all dimensions but the first, a token's; every value of the frequency table is its own row. */
int64_t dp_row_length(dflash_stage stage, int rank, const int64_t *dim);

#endif
