/* dflash/config.h - what config.json says, resolved. Conventions are those of dflash.h. */
#ifndef DFLASH_CONFIG_H
#define DFLASH_CONFIG_H

#include "dflash/api.h"

DFLASH_BEGIN

/* ---- Config (what config.json says, resolved) ---- */

enum { DFLASH_MAX_LAYERS = 128, DFLASH_MAX_TAPS = 64 };

typedef enum dflash_family { DFLASH_FAMILY_DFLASH = 0, DFLASH_FAMILY_DSPARK, DFLASH_FAMILY_DFLASH2 } dflash_family;
typedef enum dflash_rope_type {
    DFLASH_ROPE_DEFAULT = 0,
    DFLASH_ROPE_LINEAR,
    DFLASH_ROPE_YARN,
    DFLASH_ROPE_LLAMA3
} dflash_rope_type;
typedef enum dflash_markov_kind {
    DFLASH_MARKOV_NONE = 0,
    DFLASH_MARKOV_VANILLA,
    DFLASH_MARKOV_GATED,
    DFLASH_MARKOV_RNN
} dflash_markov_kind;

/* Which rows of the block become draft tokens. MASK_FILL: rows 1..B-1, row k fills position start+k (dflash, dflash2).
 * SHIFTED: rows 0..B-1, row k predicts position start+k+1 (dspark). A property of how the checkpoint was trained. */
typedef enum dflash_harvest { DFLASH_HARVEST_MASK_FILL = 0, DFLASH_HARVEST_SHIFTED } dflash_harvest;

typedef struct dflash_rope_config {
    dflash_rope_type type;
    double theta;                  /* base of the geometric frequency table */
    int32_t rotary_dim;            /* leading part of each head that is rotated; even, <= head_dim */
    double factor;                 /* linear, yarn, llama3 */
    int64_t original_max_position; /* yarn, llama3; falls back to max_position_embeddings */
    double beta_fast, beta_slow;   /* yarn */
    bool truncate;                 /* yarn: floor/ceil the correction range */
    bool has_attention_factor;     /* yarn: attention_factor given in the config */
    double attention_factor;
    double mscale, mscale_all_dim;            /* yarn; 0 = not given */
    double low_freq_factor, high_freq_factor; /* llama3 */
} dflash_rope_config;

typedef struct dflash_layer_config {
    bool sliding;   /* layer_types[i] == "sliding_attention" */
    bool causal;    /* explicit is_causal wins; otherwise a sliding layer is causal and a full one is not */
    int32_t window; /* keys with |p - j| < window are visible; 0 = no window */
} dflash_layer_config;

typedef struct dflash_config {
    dflash_family family;
    int32_t hidden;                /* H */
    int32_t n_heads;               /* nh */
    int32_t n_kv_heads;            /* nkv, divides nh */
    int32_t head_dim;              /* hd */
    int32_t intermediate;          /* F */
    int32_t n_layers;              /* L */
    int32_t block;                 /* B */
    int32_t vocab;                 /* 0 when the config does not say */
    int64_t max_position;          /* 0 when the config does not say */
    int32_t n_target_layers;       /* 0 when the config does not say */
    int32_t n_taps;                /* T */
    int32_t taps[DFLASH_MAX_TAPS]; /* tap t is the output of target layer t; -1 (dspark only) the embedding output */
    int64_t mask_token_id;
    double rms_eps;
    bool attention_bias;
    int32_t sliding_window; /* 0 when no layer slides */
    dflash_layer_config layer[DFLASH_MAX_LAYERS];
    dflash_rope_config rope;
    dflash_harvest harvest;
    double input_embedding_scale; /* 1 when absent */
    double output_multiplier;     /* 1 when absent */
    double logit_softcap;         /* 0 when absent */
    /* dflash2 */
    int32_t conv_kernel, conv_group; /* taps k and channels per group */
    int32_t selector_rank, selector_top_k;
    int32_t selector_vocab; /* 0 = vocab */
    /* dspark */
    dflash_markov_kind markov;
    int32_t markov_rank;
    bool confidence, confidence_with_markov;
} dflash_config;

/* Reads DIR/config.json alone. Useful where the weights are not wanted, e.g. to compare geometry. */
dflash_status dflash_config_read(const char *path, dflash_config *out, dflash_error *err);

const char *dflash_family_name(dflash_family family);     /* "dflash" ... */
const char *dflash_rope_type_name(dflash_rope_type type); /* "default" ... */
const char *dflash_harvest_name(dflash_harvest harvest);  /* "mask_fill", "shifted" */
const char *dflash_markov_kind_name(dflash_markov_kind kind);

DFLASH_END

#endif
