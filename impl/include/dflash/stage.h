/* dflash/stage.h - the public vocabulary of what a forward pass shows. Conventions are those of dflash.h. */
#ifndef DFLASH_STAGE_H
#define DFLASH_STAGE_H

#include "dflash/config.h"

DFLASH_BEGIN

/* ---- Stages (the public vocabulary; reports/STAGES.md describes each) ---- */

typedef enum dflash_stage {
    DFLASH_STAGE_CTX_FC = 0,    /* fc(taps)                         [C, H] */
    DFLASH_STAGE_CTX_FEATURES,  /* hidden_norm(fc(taps))            [C, H] */
    DFLASH_STAGE_ROPE_INV_FREQ, /* frequency table                  [rotary_dim / 2] */
    DFLASH_STAGE_ROPE_COS,      /* cos(pos * inv_freq) * factor     [C + B, rotary_dim / 2] */
    DFLASH_STAGE_ROPE_SIN,
    DFLASH_STAGE_INPUT, /* dflash_embed_block: what layer 0 reads   [B, H] */
    /* per layer, named layers.I.<name> */
    DFLASH_STAGE_ATTN_NORM,     /* input_layernorm                  [B, H] */
    DFLASH_STAGE_ATTN_CONV_DYN, /* dflash2: kernel_projection       [B, 2, k, G] */
    DFLASH_STAGE_ATTN_CONV_IN,  /* dflash2: convolved input         [B, H] */
    DFLASH_STAGE_ATTN_Q_PROJ,   /*                                  [B, nh * hd] */
    DFLASH_STAGE_ATTN_K_PROJ,   /* context rows, then block rows    [C + B, nkv * hd] */
    DFLASH_STAGE_ATTN_V,        /*                                  [C + B, nkv * hd] */
    DFLASH_STAGE_ATTN_Q_NORM,   /*                                  [B, nh, hd] */
    DFLASH_STAGE_ATTN_K_NORM,   /*                                  [C + B, nkv, hd] */
    DFLASH_STAGE_ATTN_Q_ROPE,   /*                                  [B, nh, hd] */
    DFLASH_STAGE_ATTN_K_ROPE,   /*                                  [C + B, nkv, hd] */
    DFLASH_STAGE_ATTN_CONTEXT,  /* softmax(q k / sqrt(hd)) v        [B, nh * hd] */
    DFLASH_STAGE_ATTN_O_PROJ,   /*                                  [B, H] */
    DFLASH_STAGE_ATTN_CONV_OUT, /* dflash2                          [B, H] */
    DFLASH_STAGE_ATTN_RESIDUAL, /* x + attention                    [B, H] */
    DFLASH_STAGE_MLP_NORM,      /* post_attention_layernorm         [B, H] */
    DFLASH_STAGE_MLP_CONV_DYN,
    DFLASH_STAGE_MLP_CONV_IN,
    DFLASH_STAGE_MLP_GATE, /*                                  [B, F] */
    DFLASH_STAGE_MLP_UP,   /*                                  [B, F] */
    DFLASH_STAGE_MLP_ACT,  /* silu(gate) * up                  [B, F] */
    DFLASH_STAGE_MLP_DOWN, /*                                  [B, H] */
    DFLASH_STAGE_MLP_CONV_OUT,
    DFLASH_STAGE_LAYER_OUT, /* the layer's residual stream      [B, H] */
    /* after the layers */
    DFLASH_STAGE_FINAL, /* norm(x)                          [B, H] */
    DFLASH_STAGE_LOGITS,
    DFLASH_STAGE_SELECT_TOPK_VALUES,
    DFLASH_STAGE_SELECT_TOPK_IDS,
    DFLASH_STAGE_SELECT_HIDDEN,
    DFLASH_STAGE_SELECT_SCORES,
    DFLASH_STAGE_SELECT_PATH,
    DFLASH_STAGE_MARKOV_LOGITS,
    DFLASH_STAGE_MARKOV_TOKENS,
    DFLASH_STAGE_CONFIDENCE_RAW,
    DFLASH_STAGE_CONFIDENCE_WINDOW,
    DFLASH_STAGE_KV_K, /* cached keys, normed and roped    [L, len, nkv, hd] */
    DFLASH_STAGE_KV_V, /* cached values                    [L, len, nkv, hd] */
    DFLASH_STAGE_COUNT
} dflash_stage;

enum { DFLASH_STAGE_NAME_MAX = 48 };

bool dflash_stage_per_layer(dflash_stage stage);
/* Writes "ctx.fc" or "layers.3.attn.norm". layer is ignored for stages outside the layers. Returns name. */
const char *dflash_stage_name(dflash_stage stage, int layer, char name[DFLASH_STAGE_NAME_MAX]);
/* The inverse; *layer is -1 outside the layers. False when no stage has that name. */
bool dflash_stage_parse(const char *name, dflash_stage *stage, int *layer);

typedef struct dflash_stage_view {
    dflash_stage stage;
    int layer; /* -1 outside the layers */
    int rank;  /* number of dimensions, 1..4 */
    int64_t dim[4];
    const float *f32; /* values, or NULL for an integer stage; host memory, valid during the call only */
    const int32_t *i32;
} dflash_stage_view;

/* Called at every stage of a forward, in order. Observing changes no bit of any result. */
typedef void (*dflash_observe_fn)(void *user, const dflash_stage_view *view);

/* Called at every float stage of a forward, of dflash_embed_block and of dflash_logits, after the observer, and may
 * rewrite the stage's values, as many as the view says, in host memory: what follows is computed from them. The
 * frequency table cannot be replaced. Returns whether it wrote. This is how a stage is run alone, on inputs that
 * something else computed. */
typedef bool (*dflash_replace_fn)(void *user, const dflash_stage_view *view, float *value);

DFLASH_END

#endif
