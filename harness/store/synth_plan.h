/*
 * synth_plan.h - which tensors a synthetic checkpoint holds, and what values they take.
 *
 * A plan lists the tensors of a config's family in file order and fills any range of their values. It is a pure
 * function of config, seed and profile; files, threads and the container format are synth.c's business.
 */
#ifndef DP_SYNTH_PLAN_H
#define DP_SYNTH_PLAN_H

#include "dflash.h"
#include "common/dtype.h"

/* Unit: the residual stream stays between about 1 and 10. Hot: it grows to 1e3..1e4 in a few outlier channels. Sharp:
 * attention's scores lie far beyond the range of exp, above and below, and near enough to each other that several keys
 * count: queries and keys have large biases in common. */
typedef enum dp_synth_profile { DP_SYNTH_UNIT = 0, DP_SYNTH_HOT, DP_SYNTH_SHARP } dp_synth_profile;

const char *dp_synth_profile_name(dp_synth_profile profile); /* "unit", "hot", "sharp" */

/* What a checkpoint may have beyond its family's tensors; flags. */
typedef enum dp_synth_extra {
    DP_SYNTH_LM_HEAD = 1,         /* lm_head.weight [V, H]: the target's output head, which no drafter consumes */
    DP_SYNTH_CODEBOOK_SUFFIX = 2, /* dflash2: the codebooks' names end in ".weight" */
    DP_SYNTH_EMBED_TOKENS = 4     /* embed_tokens.weight [V, H]: the target's embedding table */
} dp_synth_extra;

enum { DP_SYNTH_NAME_MAX = 80 };

typedef enum dp_synth_kind {
    DP_SYNTH_MATRIX,          /* normal, rows of uneven size and a few outlier rows */
    DP_SYNTH_RESIDUAL_MATRIX, /* the same, writing the residual stream: the same outlier rows in every layer */
    DP_SYNTH_HEAD,            /* the same without outlier rows: near twins among the rows, small rows beyond `tokens` */
    DP_SYNTH_EVEN,            /* normal, one size: biases, embeddings of a single row */
    DP_SYNTH_RANGE,           /* uniform in [low, high) */
    DP_SYNTH_RESIDUAL_RANGE,  /* the same, reading the residual stream: small where its outliers are */
    DP_SYNTH_CONV_BASE        /* [2, k, H]: tap 0 in [low, high), later taps in +-[0.1, 0.4) */
} dp_synth_kind;

typedef struct dp_synth_tensor {
    char name[DP_SYNTH_NAME_MAX];
    dp_synth_kind kind;
    int rank;
    int64_t dim[3];
    int64_t row;       /* values in one row (the last dimension) */
    int64_t count;     /* values in all */
    int64_t first;     /* index of its first value in the file's data */
    uint64_t key;      /* of the generator */
    float scale;       /* normal kinds: standard deviation before the row's factor */
    int64_t tokens;    /* head: rows that stand for a token; the rest pads the vocabulary */
    int32_t low, high; /* range kinds, in units of 2^-12 */
} dp_synth_tensor;

typedef struct dp_synth_plan {
    dp_synth_profile profile;
    uint64_t seed;
    int count, capacity;
    dp_synth_tensor *tensor; /* owned, in file order */
    int64_t values;          /* of all tensors */
    int64_t hidden;
    bool *outlier; /* owned, [H]: outlier channels of the residual stream */
} dp_synth_plan;

/* `extras` is a sum of dp_synth_extra. Values follow the tensor's name, so an extra changes no other tensor. On failure
 * *out is empty. Codes: "synth.shape" when the config leaves a dimension open (no vocab_size), "synth.extra" for a
 * suffix without codebooks, "synth.profile" for sharp without attention biases. */
dflash_status dp_synth_plan_make(const dflash_config *config, uint64_t seed, dp_synth_profile profile, unsigned extras,
                                 dp_synth_plan *out, dflash_error *err);
void dp_synth_plan_release(dp_synth_plan *plan);

/* Values [first, first + count) of the file's data, converted to `dtype`, into out. The same bits however the data is
 * cut into calls. */
void dp_synth_plan_fill(const dp_synth_plan *plan, int64_t first, int64_t count, df_dtype dtype, void *out);

#endif
