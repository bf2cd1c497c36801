/*
 * dflash.h - the whole interface of the drafter.
 *
 * A block drafter reads hidden states tapped from a target model and drafts one block of tokens. This header serves
 * three families (DFlash, DSpark, DFlash2), every numeric class and every backend through opaque handles; nothing
 * behind it knows about oracles or tolerances.
 *
 * Conventions for every function:
 *   - Tensors are row-major float32 and contiguous, in buffers that the caller owns and that live in the engine's
 * memory (dflash_engine_alloc; on the CPU any host pointer will do). Shapes are written [rows, columns].
 *   - Symbols: H hidden size, nh query heads, nkv key/value heads, hd head size, F MLP size, L layers, B block size,
 *     C context rows, T taps. Positions are absolute and count tokens from 0.
 *   - A function returns DFLASH_OK or the status that it also stores in *err with a stable code and a one-paragraph
 * message. On failure outputs are unspecified, caches keep their length, and nothing leaks.
 *   - An engine, with everything made from it, serves one call at a time; different engines are independent and nothing
 * is global.
 */
#ifndef DFLASH_H
#define DFLASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- Status ---------------------------------------------------------------------------------------------------- */

typedef enum dflash_status {
    DFLASH_OK = 0,
    DFLASH_ERR_ARGUMENT, /* the caller's arguments contradict the interface: capacity, positions out of order, a foreign
                        cache */
    DFLASH_ERR_REFUSED,  /* config, weights or geometry are not what this drafter can honestly run */
    DFLASH_ERR_IO,       /* a file cannot be opened, read or mapped */
    DFLASH_ERR_MEMORY,   /* an allocation failed */
    DFLASH_ERR_DEVICE    /* the backend's device is missing or failed */
} dflash_status;

typedef struct dflash_error {
    dflash_status status;
    char code[48];      /* stable identifier, e.g. "config.key.missing"; tests and machines read this */
    char message[6000]; /* what, where, expected, found, what to do */
} dflash_error;

/* ---- Config (what config.json says, resolved) ---------------------------------------------------------------------
 */

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

/* ---- Stages (the public vocabulary; reports/STAGES.md describes each) ----------------------------------------------
 */

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

/* ---- Engine: a backend, a numeric class and its memory ------------------------------------------------------------
 */

typedef enum dflash_backend { DFLASH_BACKEND_CPU = 0, DFLASH_BACKEND_CUDA } dflash_backend;
typedef enum dflash_class { DFLASH_CLASS_EXACT = 0, DFLASH_CLASS_CUBLAS, DFLASH_CLASS_FAST } dflash_class;
typedef enum dflash_isa { DFLASH_ISA_BEST = 0, DFLASH_ISA_GENERIC, DFLASH_ISA_AVX2, DFLASH_ISA_AVX512 } dflash_isa;

/* How the operands of every product with a matrix of weights (ops.h: matmul; the output head and the heads after it
 * included) are rounded before they are multiplied; sums stay float32. Attention's scores and weighted sums, norms,
 * rotation and convolutions take no part. The CPU simulates the narrow ones (round to nearest even, activations and
 * weights alike) so that their drift can be measured anywhere. */
typedef enum dflash_products { DFLASH_PRODUCTS_F32 = 0, DFLASH_PRODUCTS_TF32, DFLASH_PRODUCTS_BF16 } dflash_products;

const char *dflash_products_name(dflash_products products);         /* "f32", "tf32", "bf16" */
bool dflash_products_parse(const char *name, dflash_products *out); /* false: no such products */

typedef struct dflash_engine_options {
    dflash_backend backend;
    dflash_class numeric_class;
    dflash_products products;
    dflash_isa isa;      /* CPU only; every choice gives the same bits */
    int threads;         /* CPU only; 0 = as many as this process may use: its affinity, within the quota of its control
                            groups; every choice gives the same bits */
    int device;          /* CUDA only: the device's number, as the runtime counts those that the process sees, from 0 */
    bool poison_scratch; /* fill scratch memory with NaN before every call, so that an unwritten element shows */
} dflash_engine_options;

typedef struct dflash_engine dflash_engine;

/* A call makes its engine's device current and gives the caller's back, so a process may use engines on several devices
 * and change the current one at will. Giving back device n makes the runtime's context there if there was none. */
dflash_status dflash_engine_create(const dflash_engine_options *options, dflash_engine **out, dflash_error *err);
void dflash_engine_destroy(dflash_engine *engine); /* NULL is allowed; destroy drafts and caches first */
int dflash_engine_threads(const dflash_engine *engine);
const char *dflash_engine_isa(const dflash_engine *engine); /* "generic", "avx2", "avx512"; on a device "cuda" */
const char *dflash_backend_name(dflash_backend backend);    /* "cpu", "cuda" */
const char *dflash_class_name(dflash_class numeric_class);  /* "exact", "cublas", "fast" */

/* What an engine computes with, for reports. Device strings are empty and numbers 0 on the CPU. */
typedef struct dflash_device_facts {
    const char *backend, *numeric_class, *products;
    char device[256];             /* "NVIDIA H200" */
    char driver[16], runtime[16]; /* CUDA versions: the newest that the driver supports, the one built with; "13.0" */
    char cublas[16];              /* empty unless the class uses it */
    int capability;               /* compute capability, 90 for 9.0 */
    int multiprocessors;
    size_t memory_bytes;
    bool tf32; /* products may be rounded to TF32 */
} dflash_device_facts;
void dflash_engine_describe(const dflash_engine *engine, dflash_device_facts *out);

/* What the machine can do with this engine's instructions and threads, the best of a few short tries: the limits that a
 * kernel's own figures, taken in the same run, are held against. Takes a second and 512 MiB, or 2 GiB of a
 * device. */
typedef struct dflash_machine {
    double macs_per_second;  /* float32 multiply-adds, operands in registers */
    double bytes_per_second; /* read once from memory */
} dflash_machine;
dflash_status dflash_engine_probe(dflash_engine *engine, dflash_machine *out, dflash_error *err);

/* Memory of the engine. n is in floats. On a device, calls return once their work is queued; what went wrong in it is
 * reported by the next dflash_engine_finish or download, or by a later call. */
bool dflash_engine_on_host(const dflash_engine *engine); /* whether its memory is the processor's */
dflash_status dflash_engine_finish(dflash_engine *engine,
                                   dflash_error *err); /* waits until everything asked for is done */
dflash_status dflash_engine_alloc(dflash_engine *engine, size_t n, float **out, dflash_error *err);
void dflash_engine_free(dflash_engine *engine, float *buffer);
dflash_status dflash_engine_upload(dflash_engine *engine, float *to, const float *from_host, size_t n,
                                   dflash_error *err);
dflash_status dflash_engine_download(dflash_engine *engine, float *to_host, const float *from, size_t n,
                                     dflash_error *err);

/* ---- Precision modes ------------------------------------------------------------------------------------------------
 */

/*
 * How the matrices are held. Products are taken from the blocks as they are held; activations and sums are float32.
 * STORED keeps each matrix in the file's own width. Norms, biases, base kernels, codebooks and the confidence row are
 * never quantised; Markov W1 is bf16 in every mode but F32 and STORED, and W2 is bf16 in BF16, q8_0 in the quantised
 * ones.
 */
typedef enum dflash_precision {
    DFLASH_PRECISION_STORED = 0,
    DFLASH_PRECISION_F32,
    DFLASH_PRECISION_BF16,
    DFLASH_PRECISION_Q8_0,
    DFLASH_PRECISION_Q4_0,
    DFLASH_PRECISION_MIXED, /* bf16, `.mlp.` matrices q8_0 */
    DFLASH_PRECISION_FC     /* fc bf16, the rest q8_0 */
} dflash_precision;

const char *
dflash_precision_name(dflash_precision precision); /* "stored", "f32", "bf16", "q8_0", "q4_0", "mixed", "fc" */
bool dflash_precision_parse(const char *name, dflash_precision *out); /* false: no such mode */

/* ---- Draft model ------------------------------------------------------------------------------------------------- */

typedef struct dflash_draft dflash_draft;

/* Loads DIR/config.json and DIR/model.safetensors. The census is closed both ways: a tensor that is missing, extra,
 * of another dtype or another shape, or that holds a NaN or an infinity, is a refusal. The engine must outlive the
 * draft. */
dflash_status dflash_draft_load(dflash_engine *engine, const char *dir, dflash_draft **out, dflash_error *err);
/* The same in a precision mode. A matrix whose rows are not whole blocks of 32 refuses the quantised modes. */
dflash_status dflash_draft_load_as(dflash_engine *engine, const char *dir, dflash_precision precision,
                                   dflash_draft **out, dflash_error *err);
dflash_precision dflash_draft_precision(const dflash_draft *draft);
void dflash_draft_destroy(dflash_draft *draft);

const dflash_config *dflash_draft_config(const dflash_draft *draft);
size_t dflash_draft_weight_bytes(const dflash_draft *draft); /* bytes of the weights as they are held */
int dflash_draft_tensor_count(const dflash_draft *draft);
/* Tensors by index in file order: name, dtype ("BF16", "F16", "F32"; of one that is not used, any of the format's), raw
 * bytes. Strings live as long as the draft. */
enum { DFLASH_TENSOR_RANK = 8 };
typedef struct dflash_tensor_view {
    const char *name, *dtype;
    int rank;
    int64_t dim[DFLASH_TENSOR_RANK];
    const void *data;
    size_t bytes;
    bool used; /* false: ignored by rule (embed_tokens., lm_head., rotary_emb.), never by accident */
} dflash_tensor_view;
dflash_tensor_view dflash_draft_tensor(const dflash_draft *draft, int index);

dflash_engine *dflash_draft_engine(const dflash_draft *draft); /* the one that it was loaded with */

void dflash_draft_observe(dflash_draft *draft, dflash_observe_fn fn, void *user); /* fn NULL: stop observing */
void dflash_draft_replace(dflash_draft *draft, dflash_replace_fn fn, void *user); /* fn NULL: stop replacing */

/* features[t, H] = hidden_norm(fc(taps[t, T * H])). */
dflash_status dflash_ctx_features(dflash_draft *draft, const float *taps, int t, float *features, dflash_error *err);

/* One block over a context given as features. noise[B, H]; pos[C + B], context then block, strictly increasing;
 * out[B, H] = norm(x). Context keys and values are recomputed in every layer. ctx may be 0. */
dflash_status dflash_forward_block(dflash_draft *draft, const float *features, const float *noise, const int32_t *pos,
                                   int ctx, float *out, dflash_error *err);

/* dflash_ctx_features, then dflash_forward_block. taps[C, T * H]. */
dflash_status dflash_forward(dflash_draft *draft, const float *taps, const float *noise, const int32_t *pos, int ctx,
                             float *out, dflash_error *err);

/* ---- Draft cache ---------------------------------------------------------------------------------------------------
 */

typedef struct dflash_kv dflash_kv;

/*
 * Room for `capacity` rows in every layer: committed rows plus one block in flight.
 *
 * When some layer has no window, every row stays and a cache that is full refuses more ("kv.full"). When every layer
 * slides, rows come and go over any length of run: an ingest that would leave no room for a block first drops all rows
 * but the last window + B (those queries at the end can see, and a block of rejected tokens), W being the largest
 * window. No result changes by a bit. W + 2B rows are the smallest capacity that never refuses; with 2W + 3B a row is
 * moved about once in its life. A smaller cache is allowed and works until it is full.
 */
dflash_status dflash_kv_create(dflash_draft *draft, int capacity, dflash_kv **out, dflash_error *err);
void dflash_kv_destroy(dflash_kv *kv);
int dflash_kv_len(const dflash_kv *kv); /* committed rows held; dropped ones do not count, so an ingest may lower it */
int dflash_kv_capacity(const dflash_kv *kv);
void dflash_kv_clear(dflash_kv *kv); /* as it was created: no rows, floor 0, no pin */
/* Forgets rows from `len` on; len counts rows held and must not exceed dflash_kv_len. Refused ("kv.truncate.compacted")
 * when rows were dropped that a query behind the first `len` rows could see. Going back is always possible to B rows
 * before the furthest end that the cache has reached, and further only to a pin. After a compaction the same row has
 * another number: count from the end (dflash_kv_len - n), or cut by position. */
dflash_status dflash_kv_truncate(dflash_kv *kv, int len, dflash_error *err);
/* Forgets the rows at `position` and beyond; otherwise as dflash_kv_truncate. */
dflash_status dflash_kv_truncate_at(dflash_kv *kv, int32_t position, dflash_error *err);
/* Copies the committed rows of one layer to host memory, each [len, nkv * hd]; either may be NULL. */
dflash_status dflash_kv_read(const dflash_kv *kv, int layer, float *keys, float *values, dflash_error *err);

/* Appends t context rows: keys normed and rotated, values raw. features[t, H], pos[t] strictly increasing, beyond every
 * cached position and not before the floor. The bits do not depend on how the rows are split into calls; when every
 * layer slides, t may exceed the capacity, and rows that would be dropped at once are not computed. A call that fails
 * leaves the cache as it was. */
dflash_status dflash_ingest_ctx(dflash_draft *draft, dflash_kv *kv, const float *features, const int32_t *pos, int t,
                                dflash_error *err);
/* dflash_ctx_features, then dflash_ingest_ctx: what follows every verified block. taps[t, T * H]. */
dflash_status dflash_ingest_taps(dflash_draft *draft, dflash_kv *kv, const float *taps, const int32_t *pos, int t,
                                 dflash_error *err);

/* One block over the cached context: out[B, H], noise[B, H], pos[B]. The block's own keys and values land at
 * rows len..len+B, and len does not move, so the next round overwrites them. The bits are those of dflash_forward_block
 * over the same context. */
dflash_status dflash_forward_round(dflash_draft *draft, dflash_kv *kv, const float *noise, const int32_t *pos,
                                   float *out, dflash_error *err);

/* Position of the first row held; of an empty cache, the lowest position that its next row may have. */
int32_t dflash_kv_floor(const dflash_kv *kv);

/* For an empty cache whose context before position `floor` does not exist: the next row and block must be at or beyond
 * it, and a query whose window reaches before it sees only what is there. */
dflash_status dflash_kv_set_floor(dflash_kv *kv, int32_t floor, dflash_error *err);

/* Until dflash_kv_unpin, cutting back to the present length stays possible and exact: compaction keeps the window + B
 * rows before it and everything behind it, and an ingest for which that leaves no room is refused ("kv.full"). There is
 * one pin; a cut below it moves it there. Remember the position of the next row to come back with
 * dflash_kv_truncate_at. */
dflash_status dflash_kv_pin(dflash_kv *kv, dflash_error *err);
void dflash_kv_unpin(dflash_kv *kv);

/* The last `rows` rows as one self-describing block of bytes, the same on every machine, that the caller frees with
 * dflash_kv_blob_free. rows is 1..len, or 0 for an empty cache. A tail with everything that queries at the end can see
 * (the last W - 1 positions when every layer slides, all rows otherwise) gives the same bits after import; a shorter
 * one is a context that starts at its first row, as after dflash_kv_set_floor. */
typedef struct dflash_kv_blob {
    void *data;
    size_t bytes;
} dflash_kv_blob;
dflash_status dflash_kv_export_tail(const dflash_kv *kv, int rows, dflash_kv_blob *out, dflash_error *err);
/* Replaces the content of `kv`, and its floor, by that of the blob; a pin is lifted. Refused, and `kv` as it was, when
 * the blob is truncated or damaged, does not fit, or differs in family, numeric class, precision mode, layers,
 * key/value heads, head size, rotary size or table or factor, rms_norm_eps, a layer's window or causality, or the
 * checkpoint's norm vectors ("kv.import.layers" and so on). The checkpoint's matrices are not compared. If the device
 * fails half-way the cache is empty. */
dflash_status dflash_kv_import_tail(dflash_kv *kv, const dflash_kv_blob *blob, dflash_error *err);
void dflash_kv_blob_free(dflash_kv_blob *blob);

/* ---- DFlash2 convolution
 * --------------------------------------------------------------------------------------------- */

typedef enum dflash_sublayer { DFLASH_SUBLAYER_ATTENTION = 0, DFLASH_SUBLAYER_MLP } dflash_sublayer;

/* dyn[rows, 2, k, G] = kernel_projection(x); y[p, c] = sum over o <= min(k-1, p) of base[0][o][c] x[p-o][c], then
 * dyn[p][0][o][c / group] x[p-o][c], o ascending. x, y [rows, H]; rows are one block: nothing is seen before row 0. */
dflash_status dflash_conv_prepare(dflash_draft *draft, int layer, dflash_sublayer sublayer, const float *x, int rows,
                                  float *y, float *dyn, dflash_error *err);
/* The same convolution of the sublayer's output with half 1 of the kernels that prepare returned. */
dflash_status dflash_conv_finish(dflash_draft *draft, int layer, dflash_sublayer sublayer, const float *x,
                                 const float *dyn, int rows, float *y, dflash_error *err);

/* ---- Vocabulary tables and logits
 * ------------------------------------------------------------------------------------ */

/* A matrix [vocabulary, H] of the target: its output head or its embedding. */
typedef struct dflash_table dflash_table;

/* Copies `values`, dtype "BF16", "F16" or "F32". */
dflash_status dflash_table_create(dflash_engine *engine, const char *dtype, int vocab, int hidden, const void *values,
                                  dflash_table **out, dflash_error *err);
/* Reads the tensor `name` of a safetensors file, which it keeps mapped; what else the file holds may be anything that
 * the format knows. NULL: the output head, by rule: lm_head.weight; the same behind a known prefix (language_model.,
 * ...); else the embedding that is tied to it, where no head is present. dflash_table_view says which one was taken. */
dflash_status dflash_table_load(dflash_engine *engine, const char *path, const char *name, dflash_table **out,
                                dflash_error *err);
/* Maps the rows of a reduced draft vocabulary to target ids: target = row + offset[row]. Refused when an id is
 * negative, not below target_vocab, or given twice. */
dflash_status dflash_table_set_offsets(dflash_table *table, const int32_t *offset, int target_vocab, dflash_error *err);
void dflash_table_destroy(dflash_table *table);
int dflash_table_vocab(const dflash_table *table);
/* The matrix as it is held: its name (the tensor's, or "" for a copy), dtype, shape, raw bytes. */
dflash_tensor_view dflash_table_view(const dflash_table *table);

/* noise[B, H]: the embeddings of [anchor, MASK, ...], every row times input_embedding_scale. Ids outside the table are
 * refused. */
dflash_status dflash_embed_block(dflash_draft *draft, const dflash_table *embedding, int32_t anchor, float *noise,
                                 dflash_error *err);

/* logits[n, vocab] = rows[n, H] W^T, times output_multiplier, then softcap: cap tanh(l / cap). */
dflash_status dflash_logits(dflash_draft *draft, const dflash_table *head, const float *rows, int n, float *logits,
                            dflash_error *err);

/* ---- Proposals
 * -------------------------------------------------------------------------------------------------------- */

/* Rows of df_forward_*'s output that become tokens: first row and count (mask-fill: 1, B-1; shifted: 0, B). */
void dflash_harvest_rows(const dflash_config *config, int *first, int *count);

typedef struct dflash_proposal_options {
    float temperature;    /* 0: greedy; otherwise sampled */
    const float *uniform; /* [n] in [0, 1), host memory; needed when sampled: the draw of each slot, by inverse of the
                             cumulative distribution in candidate order */
} dflash_proposal_options;

/* Host memory, owned by the caller; a NULL member is not wanted. k is dflash_proposal_width. */
typedef struct dflash_proposal {
    int32_t *token;     /* [n] */
    float *share;       /* [n] the chosen token's softmax share over its slot (of scores / temperature when sampled) */
    int32_t *candidate; /* [n, k] ids that the distribution is over, in its order */
    float
        *probability; /* [n, k] the distribution the token was drawn from, for the rejection rule; greedy: all on it */
} dflash_proposal;

/* Candidates a slot: selector_top_k for dflash2, the vocabulary of the logits otherwise. */
int dflash_proposal_width(const dflash_draft *draft, int vocab);

/*
 * Drafts n tokens from harvested rows[n, H] and their logits[n, vocab] (dflash_logits), left to right from `anchor`:
 *   dflash   argmax (or a draw) per row; ties go to the lowest row of the table
 *   dflash2  top-k per row (descending, ties to the lower row), score(b) = logit(b) + sum_j pred[prev][j] h[j]
 * succ[b][j] with h = hidden_projection(row); the best score (ties: first candidate) is the token and the next prev
 *   dspark   logits + Markov bias of the previous token, then argmax (or a draw)
 * `table` is the table the logits came from (its offsets map rows to ids) or NULL when ids are rows. A row with a NaN
 * or +infinity, or without a finite value, a top-k that cannot be filled, an anchor or candidate outside the vocabulary
 * is refused by name.
 */
dflash_status dflash_propose(dflash_draft *draft, const dflash_table *table, const float *logits, const float *rows,
                             int n, int vocab, int32_t anchor, const dflash_proposal_options *options,
                             const dflash_proposal *out, dflash_error *err);

/* ---- DSpark confidence
 * ------------------------------------------------------------------------------------------------- */

/* raw[n] (host memory) = w [row ; e of prev] + b, before the sigmoid. prev[n]: the token before each slot (anchor
 * first); needed only when the head was trained with the Markov embedding. */
dflash_status dflash_confidence(dflash_draft *draft, const float *rows, const int32_t *prev, int n, float *raw,
                                dflash_error *err);

typedef enum dflash_window_policy {
    DFLASH_WINDOW_SURVIVAL = 0,
    DFLASH_WINDOW_SLOT,
    DFLASH_WINDOW_LADDER
} dflash_window_policy;

typedef struct dflash_window_options {
    dflash_window_policy policy;
    float threshold; /* tau in (0, 1); survival and slot only: give 0 with ladder */
    int cap;         /* largest window, anchor included, >= 2 (ladder, whose smallest is 3: >= 3) */
    int accepted;    /* ladder only: tokens accepted last round; give -1 with the others */
} dflash_window_options;

/* Tokens to verify next, anchor included, within [2, cap]. survival: leading slots while the product of sigmoid(raw)
 * stays
 * >= tau; slot: while each does; ladder: clamp(accepted + 2, 3, cap), raw is not read. Contradictory options are
 * refused, and so is a raw value that is not finite, wherever it stands. */
dflash_status dflash_verify_window(const dflash_window_options *options, const float *raw, int n, int *window,
                                   dflash_error *err);

/* ---- Verification (pure functions, host memory)
 * ------------------------------------------------------------------------- */

/* Drafted tokens accepted greedily: the length of the longest common prefix of draft[n] and target[n]. */
int dflash_accepted_prefix(const int32_t *draft, const int32_t *target, int n);

/* The rejection rule of sampled drafting: accepted iff u q < p. */
bool dflash_accept_token(float u, float p, float q);

/* The distribution to draw from after a rejection: max(p - q, 0) normalised, p itself when nothing is left. q is given
 * on `k` candidate ids (candidate NULL: k = vocab and ids are indices). residual[vocab] may be p. Refused: a value that
 * is no probability, a distribution that does not sum to 1, a candidate outside the vocabulary or given twice. */
dflash_status dflash_residual(const float *p, int vocab, const float *q, const int32_t *candidate, int k,
                              float *residual, dflash_error *err);

/* First index whose cumulative sum exceeds u times the total, both in double (verify.c gives the order); never one of
 * probability 0. -1 when there is none: u outside [0, 1), a value that is negative or not finite, no mass at all. */
int dflash_draw(const float *probability, int n, float u);

#endif
