/*
 * dflash.h - the whole interface of the drafter.
 *
 * A block drafter reads hidden states tapped from a target model and drafts one block of tokens. This header serves
 * three families (DFlash, DSpark, DFlash2), every numeric class and every backend through opaque handles; nothing
 * behind it knows about oracles or tolerances.
 *
 * Conventions for every function:
 *   - Tensors are row-major float32 and contiguous, in buffers that the caller owns and that live in the engine's memory
 *     (df_engine_alloc; on the CPU any host pointer will do). Shapes are written [rows, columns].
 *   - Symbols: H hidden size, nh query heads, nkv key/value heads, hd head size, F MLP size, L layers, B block size,
 *     C context rows, T taps. Positions are absolute and count tokens from 0.
 *   - A function returns DF_OK or the status that it also stores in *err with a stable code and a one-paragraph message.
 *     On failure outputs are unspecified, caches keep their length, and nothing leaks.
 *   - An engine, with everything made from it, serves one call at a time; different engines are independent and nothing is
 *     global.
 */
#ifndef DFLASH_H
#define DFLASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- Status ---------------------------------------------------------------------------------------------------- */

typedef enum df_status {
    DF_OK = 0,
    DF_ERR_ARGUMENT, /* the caller's arguments contradict the interface: capacity, positions out of order, a foreign cache */
    DF_ERR_REFUSED,  /* config, weights or geometry are not what this drafter can honestly run */
    DF_ERR_IO,       /* a file cannot be opened, read or mapped */
    DF_ERR_MEMORY,   /* an allocation failed */
    DF_ERR_DEVICE    /* the backend's device is missing or failed */
} df_status;

typedef struct df_error {
    df_status status;
    char code[48];      /* stable identifier, e.g. "config.key.missing"; tests and machines read this */
    char message[1200]; /* what, where, expected, found, what to do */
} df_error;

/* ---- Config (what config.json says, resolved) --------------------------------------------------------------------- */

enum { DF_MAX_LAYERS = 128, DF_MAX_TAPS = 64 };

typedef enum df_family { DF_FAMILY_DFLASH = 0, DF_FAMILY_DSPARK, DF_FAMILY_DFLASH2 } df_family;
typedef enum df_rope_type { DF_ROPE_DEFAULT = 0, DF_ROPE_LINEAR, DF_ROPE_YARN, DF_ROPE_LLAMA3 } df_rope_type;
typedef enum df_markov_kind { DF_MARKOV_NONE = 0, DF_MARKOV_VANILLA, DF_MARKOV_GATED, DF_MARKOV_RNN } df_markov_kind;

/* Which rows of the block become draft tokens. MASK_FILL: rows 1..B-1, row k fills position start+k (dflash, dflash2).
 * SHIFTED: rows 0..B-1, row k predicts position start+k+1 (dspark). A property of how the checkpoint was trained. */
typedef enum df_harvest { DF_HARVEST_MASK_FILL = 0, DF_HARVEST_SHIFTED } df_harvest;

typedef struct df_rope_config {
    df_rope_type type;
    double theta;                     /* base of the geometric frequency table */
    int32_t rotary_dim;               /* leading part of each head that is rotated; even, <= head_dim */
    double factor;                    /* linear, yarn, llama3 */
    int64_t original_max_position;    /* yarn, llama3; falls back to max_position_embeddings */
    double beta_fast, beta_slow;      /* yarn */
    bool truncate;                    /* yarn: floor/ceil the correction range */
    bool has_attention_factor;        /* yarn: attention_factor given in the config */
    double attention_factor;
    double mscale, mscale_all_dim;    /* yarn; 0 = not given */
    double low_freq_factor, high_freq_factor; /* llama3 */
} df_rope_config;

typedef struct df_layer_config {
    bool sliding;   /* layer_types[i] == "sliding_attention" */
    bool causal;    /* explicit is_causal wins; otherwise a sliding layer is causal and a full one is not */
    int32_t window; /* keys with |p - j| < window are visible; 0 = no window */
} df_layer_config;

typedef struct df_config {
    df_family family;
    int32_t hidden;       /* H */
    int32_t n_heads;      /* nh */
    int32_t n_kv_heads;   /* nkv, divides nh */
    int32_t head_dim;     /* hd */
    int32_t intermediate; /* F */
    int32_t n_layers;     /* L */
    int32_t block;        /* B */
    int32_t vocab;        /* 0 when the config does not say */
    int64_t max_position; /* 0 when the config does not say */
    int32_t n_target_layers; /* 0 when the config does not say */
    int32_t n_taps;          /* T */
    int32_t taps[DF_MAX_TAPS]; /* tap t is the output of target layer t; -1 (dspark only) the embedding output */
    int64_t mask_token_id;
    double rms_eps;
    bool attention_bias;
    int32_t sliding_window; /* 0 when no layer slides */
    df_layer_config layer[DF_MAX_LAYERS];
    df_rope_config rope;
    df_harvest harvest;
    double input_embedding_scale; /* 1 when absent */
    double output_multiplier;     /* 1 when absent */
    double logit_softcap;         /* 0 when absent */
    /* dflash2 */
    int32_t conv_kernel, conv_group;             /* taps k and channels per group */
    int32_t selector_rank, selector_top_k;
    int32_t selector_vocab;                      /* 0 = vocab */
    /* dspark */
    df_markov_kind markov;
    int32_t markov_rank;
    bool confidence, confidence_with_markov;
} df_config;

/* Reads DIR/config.json alone. Useful where the weights are not wanted, e.g. to compare geometry. */
df_status df_config_read(const char *path, df_config *out, df_error *err);

const char *df_family_name(df_family family);       /* "dflash" ... */
const char *df_rope_type_name(df_rope_type type);   /* "default" ... */
const char *df_harvest_name(df_harvest harvest);    /* "mask_fill", "shifted" */
const char *df_markov_kind_name(df_markov_kind kind);

/* ---- Stages (the public vocabulary; reports/STAGES.md describes each) ---------------------------------------------- */

typedef enum df_stage {
    DF_STAGE_CTX_FC = 0,     /* fc(taps)                         [C, H] */
    DF_STAGE_CTX_FEATURES,   /* hidden_norm(fc(taps))            [C, H] */
    DF_STAGE_ROPE_INV_FREQ,  /* frequency table                  [rotary_dim / 2] */
    DF_STAGE_ROPE_COS,       /* cos(pos * inv_freq) * factor     [C + B, rotary_dim / 2] */
    DF_STAGE_ROPE_SIN,
    /* per layer, named layers.I.<name> */
    DF_STAGE_ATTN_NORM,      /* input_layernorm                  [B, H] */
    DF_STAGE_ATTN_CONV_DYN,  /* dflash2: kernel_projection       [B, 2, k, G] */
    DF_STAGE_ATTN_CONV_IN,   /* dflash2: convolved input         [B, H] */
    DF_STAGE_ATTN_Q_PROJ,    /*                                  [B, nh * hd] */
    DF_STAGE_ATTN_K_PROJ,    /* context rows, then block rows    [C + B, nkv * hd] */
    DF_STAGE_ATTN_V,         /*                                  [C + B, nkv * hd] */
    DF_STAGE_ATTN_Q_NORM,    /*                                  [B, nh, hd] */
    DF_STAGE_ATTN_K_NORM,    /*                                  [C + B, nkv, hd] */
    DF_STAGE_ATTN_Q_ROPE,    /*                                  [B, nh, hd] */
    DF_STAGE_ATTN_K_ROPE,    /*                                  [C + B, nkv, hd] */
    DF_STAGE_ATTN_CONTEXT,   /* softmax(q k / sqrt(hd)) v        [B, nh * hd] */
    DF_STAGE_ATTN_O_PROJ,    /*                                  [B, H] */
    DF_STAGE_ATTN_CONV_OUT,  /* dflash2                          [B, H] */
    DF_STAGE_ATTN_RESIDUAL,  /* x + attention                    [B, H] */
    DF_STAGE_MLP_NORM,       /* post_attention_layernorm         [B, H] */
    DF_STAGE_MLP_CONV_DYN,
    DF_STAGE_MLP_CONV_IN,
    DF_STAGE_MLP_GATE,       /*                                  [B, F] */
    DF_STAGE_MLP_UP,         /*                                  [B, F] */
    DF_STAGE_MLP_ACT,        /* silu(gate) * up                  [B, F] */
    DF_STAGE_MLP_DOWN,       /*                                  [B, H] */
    DF_STAGE_MLP_CONV_OUT,
    DF_STAGE_LAYER_OUT,      /* the layer's residual stream      [B, H] */
    /* after the layers */
    DF_STAGE_FINAL,          /* norm(x)                          [B, H] */
    DF_STAGE_LOGITS,
    DF_STAGE_SELECT_TOPK_VALUES,
    DF_STAGE_SELECT_TOPK_IDS,
    DF_STAGE_SELECT_HIDDEN,
    DF_STAGE_SELECT_SCORES,
    DF_STAGE_SELECT_PATH,
    DF_STAGE_MARKOV_LOGITS,
    DF_STAGE_MARKOV_TOKENS,
    DF_STAGE_CONFIDENCE_RAW,
    DF_STAGE_CONFIDENCE_WINDOW,
    DF_STAGE_KV_K,           /* cached keys, normed and roped    [L, len, nkv, hd] */
    DF_STAGE_KV_V,           /* cached values                    [L, len, nkv, hd] */
    DF_STAGE_COUNT
} df_stage;

enum { DF_STAGE_NAME_MAX = 48 };

bool df_stage_per_layer(df_stage stage);
/* Writes "ctx.fc" or "layers.3.attn.norm". layer is ignored for stages outside the layers. Returns name. */
const char *df_stage_name(df_stage stage, int layer, char name[DF_STAGE_NAME_MAX]);
/* The inverse; *layer is -1 outside the layers. False when no stage has that name. */
bool df_stage_parse(const char *name, df_stage *stage, int *layer);

typedef struct df_stage_view {
    df_stage stage;
    int layer;        /* -1 outside the layers */
    int rank;         /* number of dimensions, 1..4 */
    int64_t dim[4];
    const float *f32; /* values, or NULL for an integer stage; host memory, valid during the call only */
    const int32_t *i32;
} df_stage_view;

/* Called at every stage of a forward, in order. Observing changes no bit of any result. */
typedef void (*df_observe_fn)(void *user, const df_stage_view *view);

/* ---- Engine: a backend, a numeric class and its memory ------------------------------------------------------------ */

typedef enum df_backend { DF_BACKEND_CPU = 0, DF_BACKEND_CUDA } df_backend;
typedef enum df_class { DF_CLASS_EXACT = 0, DF_CLASS_CUBLAS, DF_CLASS_FAST } df_class;
typedef enum df_isa { DF_ISA_BEST = 0, DF_ISA_GENERIC, DF_ISA_AVX2, DF_ISA_AVX512 } df_isa;

typedef struct df_engine_options {
    df_backend backend;
    df_class numeric_class;
    df_isa isa;          /* CPU only; every choice gives the same bits */
    int threads;         /* CPU only; 0 = all the cores this process may use; every choice gives the same bits */
    bool poison_scratch; /* fill scratch memory with NaN before every call, so that an unwritten element shows */
} df_engine_options;

typedef struct df_engine df_engine;

df_status df_engine_create(const df_engine_options *options, df_engine **out, df_error *err);
void df_engine_destroy(df_engine *engine); /* NULL is allowed; destroy drafts and caches first */
int df_engine_threads(const df_engine *engine);
const char *df_engine_isa(const df_engine *engine); /* "generic", "avx2", "avx512" */

/* Memory of the engine. n is in floats. */
df_status df_engine_alloc(df_engine *engine, size_t n, float **out, df_error *err);
void df_engine_free(df_engine *engine, float *buffer);
df_status df_engine_upload(df_engine *engine, float *to, const float *from_host, size_t n, df_error *err);
df_status df_engine_download(df_engine *engine, float *to_host, const float *from, size_t n, df_error *err);

/* ---- Draft model ------------------------------------------------------------------------------------------------- */

typedef struct df_draft df_draft;

/* Loads DIR/config.json and DIR/model.safetensors. The census is closed both ways: a tensor that is missing, extra,
 * of another dtype or another shape, or that holds a NaN or an infinity, is a refusal. The engine must outlive the draft. */
df_status df_draft_load(df_engine *engine, const char *dir, df_draft **out, df_error *err);
void df_draft_destroy(df_draft *draft);

const df_config *df_draft_config(const df_draft *draft);
size_t df_draft_weight_bytes(const df_draft *draft); /* bytes of the weights as they are held */
int df_draft_tensor_count(const df_draft *draft);
/* Tensors by index in file order: name, dtype ("BF16", "F16", "F32"), raw bytes. Strings live as long as the draft. */
typedef struct df_tensor_view {
    const char *name, *dtype;
    int rank;
    int64_t dim[4];
    const void *data;
    size_t bytes;
    bool used; /* false: ignored by rule (embed_tokens., lm_head., rotary_emb.), never by accident */
} df_tensor_view;
df_tensor_view df_draft_tensor(const df_draft *draft, int index);

void df_draft_observe(df_draft *draft, df_observe_fn fn, void *user); /* fn NULL: stop observing */

/* features[t, H] = hidden_norm(fc(taps[t, T * H])). */
df_status df_ctx_features(df_draft *draft, const float *taps, int t, float *features, df_error *err);

/* One block over a context given as features. noise[B, H]; pos[C + B], context then block, strictly increasing;
 * out[B, H] = norm(x). Context keys and values are recomputed in every layer. ctx may be 0. */
df_status df_forward_block(df_draft *draft, const float *features, const float *noise, const int32_t *pos, int ctx,
                           float *out, df_error *err);

/* df_ctx_features, then df_forward_block. taps[C, T * H]. */
df_status df_forward(df_draft *draft, const float *taps, const float *noise, const int32_t *pos, int ctx, float *out,
                     df_error *err);

/* ---- Draft cache --------------------------------------------------------------------------------------------------- */

typedef struct df_kv df_kv;

/* Room for `capacity` rows in every layer: committed rows plus one block in flight. */
df_status df_kv_create(df_draft *draft, int capacity, df_kv **out, df_error *err);
void df_kv_destroy(df_kv *kv);
int df_kv_len(const df_kv *kv);      /* committed rows */
int df_kv_capacity(const df_kv *kv);
/* Forgets rows from `len` on. len must not exceed df_kv_len. */
df_status df_kv_truncate(df_kv *kv, int len, df_error *err);
/* Copies the committed rows of one layer to host memory, each [len, nkv * hd]; either may be NULL. */
df_status df_kv_read(const df_kv *kv, int layer, float *keys, float *values, df_error *err);

/* Appends t context rows: keys normed and rotated, values raw. features[t, H], pos[t] strictly increasing and beyond
 * every cached position. The bits do not depend on how the rows are split into calls. */
df_status df_ingest_ctx(df_draft *draft, df_kv *kv, const float *features, const int32_t *pos, int t, df_error *err);

/* One block over the cached context: out[B, H], noise[B, H], pos[B]. The block's own keys and values land at
 * rows len..len+B, and len does not move, so the next round overwrites them. The bits are those of df_forward_block
 * over the same context. */
df_status df_forward_round(df_draft *draft, df_kv *kv, const float *noise, const int32_t *pos, float *out,
                           df_error *err);

#endif
