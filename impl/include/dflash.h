/*
 * dflash.h - the whole interface of the drafter.
 *
 * A block drafter reads hidden states tapped from a target model and drafts one block of tokens. This header serves
 * three families (DFlash, DSpark, DFlash2), every numeric class and every backend through opaque handles; nothing
 * behind it knows about oracles or tolerances.
 *
 * Conventions for every function:
 *   - Tensors are row-major float32 and contiguous, in buffers that the caller owns and that live in the engine's
 * memory (df_engine_alloc; on the CPU any host pointer will do). Shapes are written [rows, columns].
 *   - Symbols: H hidden size, nh query heads, nkv key/value heads, hd head size, F MLP size, L layers, B block size,
 *     C context rows, T taps. Positions are absolute and count tokens from 0.
 *   - A function returns DF_OK or the status that it also stores in *err with a stable code and a one-paragraph
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

typedef enum df_status {
    DF_OK = 0,
    DF_ERR_ARGUMENT, /* the caller's arguments contradict the interface: capacity, positions out of order, a foreign
                        cache */
    DF_ERR_REFUSED,  /* config, weights or geometry are not what this drafter can honestly run */
    DF_ERR_IO,       /* a file cannot be opened, read or mapped */
    DF_ERR_MEMORY,   /* an allocation failed */
    DF_ERR_DEVICE    /* the backend's device is missing or failed */
} df_status;

typedef struct df_error {
    df_status status;
    char code[48];      /* stable identifier, e.g. "config.key.missing"; tests and machines read this */
    char message[6000]; /* what, where, expected, found, what to do */
} df_error;

/* ---- Config (what config.json says, resolved) ---------------------------------------------------------------------
 */

enum { DF_MAX_LAYERS = 128, DF_MAX_TAPS = 64 };

typedef enum df_family { DF_FAMILY_DFLASH = 0, DF_FAMILY_DSPARK, DF_FAMILY_DFLASH2 } df_family;
typedef enum df_rope_type { DF_ROPE_DEFAULT = 0, DF_ROPE_LINEAR, DF_ROPE_YARN, DF_ROPE_LLAMA3 } df_rope_type;
typedef enum df_markov_kind { DF_MARKOV_NONE = 0, DF_MARKOV_VANILLA, DF_MARKOV_GATED, DF_MARKOV_RNN } df_markov_kind;

/* Which rows of the block become draft tokens. MASK_FILL: rows 1..B-1, row k fills position start+k (dflash, dflash2).
 * SHIFTED: rows 0..B-1, row k predicts position start+k+1 (dspark). A property of how the checkpoint was trained. */
typedef enum df_harvest { DF_HARVEST_MASK_FILL = 0, DF_HARVEST_SHIFTED } df_harvest;

typedef struct df_rope_config {
    df_rope_type type;
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
} df_rope_config;

typedef struct df_layer_config {
    bool sliding;   /* layer_types[i] == "sliding_attention" */
    bool causal;    /* explicit is_causal wins; otherwise a sliding layer is causal and a full one is not */
    int32_t window; /* keys with |p - j| < window are visible; 0 = no window */
} df_layer_config;

typedef struct df_config {
    df_family family;
    int32_t hidden;            /* H */
    int32_t n_heads;           /* nh */
    int32_t n_kv_heads;        /* nkv, divides nh */
    int32_t head_dim;          /* hd */
    int32_t intermediate;      /* F */
    int32_t n_layers;          /* L */
    int32_t block;             /* B */
    int32_t vocab;             /* 0 when the config does not say */
    int64_t max_position;      /* 0 when the config does not say */
    int32_t n_target_layers;   /* 0 when the config does not say */
    int32_t n_taps;            /* T */
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
    int32_t conv_kernel, conv_group; /* taps k and channels per group */
    int32_t selector_rank, selector_top_k;
    int32_t selector_vocab; /* 0 = vocab */
    /* dspark */
    df_markov_kind markov;
    int32_t markov_rank;
    bool confidence, confidence_with_markov;
} df_config;

/* Reads DIR/config.json alone. Useful where the weights are not wanted, e.g. to compare geometry. */
df_status df_config_read(const char *path, df_config *out, df_error *err);

const char *df_family_name(df_family family);     /* "dflash" ... */
const char *df_rope_type_name(df_rope_type type); /* "default" ... */
const char *df_harvest_name(df_harvest harvest);  /* "mask_fill", "shifted" */
const char *df_markov_kind_name(df_markov_kind kind);

/* ---- Stages (the public vocabulary; reports/STAGES.md describes each) ----------------------------------------------
 */

typedef enum df_stage {
    DF_STAGE_CTX_FC = 0,    /* fc(taps)                         [C, H] */
    DF_STAGE_CTX_FEATURES,  /* hidden_norm(fc(taps))            [C, H] */
    DF_STAGE_ROPE_INV_FREQ, /* frequency table                  [rotary_dim / 2] */
    DF_STAGE_ROPE_COS,      /* cos(pos * inv_freq) * factor     [C + B, rotary_dim / 2] */
    DF_STAGE_ROPE_SIN,
    DF_STAGE_INPUT, /* df_embed_block: what layer 0 reads   [B, H] */
    /* per layer, named layers.I.<name> */
    DF_STAGE_ATTN_NORM,     /* input_layernorm                  [B, H] */
    DF_STAGE_ATTN_CONV_DYN, /* dflash2: kernel_projection       [B, 2, k, G] */
    DF_STAGE_ATTN_CONV_IN,  /* dflash2: convolved input         [B, H] */
    DF_STAGE_ATTN_Q_PROJ,   /*                                  [B, nh * hd] */
    DF_STAGE_ATTN_K_PROJ,   /* context rows, then block rows    [C + B, nkv * hd] */
    DF_STAGE_ATTN_V,        /*                                  [C + B, nkv * hd] */
    DF_STAGE_ATTN_Q_NORM,   /*                                  [B, nh, hd] */
    DF_STAGE_ATTN_K_NORM,   /*                                  [C + B, nkv, hd] */
    DF_STAGE_ATTN_Q_ROPE,   /*                                  [B, nh, hd] */
    DF_STAGE_ATTN_K_ROPE,   /*                                  [C + B, nkv, hd] */
    DF_STAGE_ATTN_CONTEXT,  /* softmax(q k / sqrt(hd)) v        [B, nh * hd] */
    DF_STAGE_ATTN_O_PROJ,   /*                                  [B, H] */
    DF_STAGE_ATTN_CONV_OUT, /* dflash2                          [B, H] */
    DF_STAGE_ATTN_RESIDUAL, /* x + attention                    [B, H] */
    DF_STAGE_MLP_NORM,      /* post_attention_layernorm         [B, H] */
    DF_STAGE_MLP_CONV_DYN,
    DF_STAGE_MLP_CONV_IN,
    DF_STAGE_MLP_GATE, /*                                  [B, F] */
    DF_STAGE_MLP_UP,   /*                                  [B, F] */
    DF_STAGE_MLP_ACT,  /* silu(gate) * up                  [B, F] */
    DF_STAGE_MLP_DOWN, /*                                  [B, H] */
    DF_STAGE_MLP_CONV_OUT,
    DF_STAGE_LAYER_OUT, /* the layer's residual stream      [B, H] */
    /* after the layers */
    DF_STAGE_FINAL, /* norm(x)                          [B, H] */
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
    DF_STAGE_KV_K, /* cached keys, normed and roped    [L, len, nkv, hd] */
    DF_STAGE_KV_V, /* cached values                    [L, len, nkv, hd] */
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
    int layer; /* -1 outside the layers */
    int rank;  /* number of dimensions, 1..4 */
    int64_t dim[4];
    const float *f32; /* values, or NULL for an integer stage; host memory, valid during the call only */
    const int32_t *i32;
} df_stage_view;

/* Called at every stage of a forward, in order. Observing changes no bit of any result. */
typedef void (*df_observe_fn)(void *user, const df_stage_view *view);

/* Called at every float stage of a forward, of df_embed_block and of df_logits, after the observer, and may rewrite the
 * stage's values, as many as the view says, in host memory: what follows is computed from them. The frequency table
 * cannot be replaced. Returns whether it wrote. This is how a stage is run alone, on inputs that something else
 * computed. */
typedef bool (*df_replace_fn)(void *user, const df_stage_view *view, float *value);

/* ---- Engine: a backend, a numeric class and its memory ------------------------------------------------------------
 */

typedef enum df_backend { DF_BACKEND_CPU = 0, DF_BACKEND_CUDA } df_backend;
typedef enum df_class { DF_CLASS_EXACT = 0, DF_CLASS_CUBLAS, DF_CLASS_FAST } df_class;
typedef enum df_isa { DF_ISA_BEST = 0, DF_ISA_GENERIC, DF_ISA_AVX2, DF_ISA_AVX512 } df_isa;

/* How the operands of every product with a matrix of weights (ops.h: matmul; the output head and the heads after it
 * included) are rounded before they are multiplied; sums stay float32. Attention's scores and weighted sums, norms,
 * rotation and convolutions take no part. The CPU simulates the narrow ones (round to nearest even, activations and
 * weights alike) so that their drift can be measured anywhere. */
typedef enum df_products { DF_PRODUCTS_F32 = 0, DF_PRODUCTS_TF32, DF_PRODUCTS_BF16 } df_products;

const char *df_products_name(df_products products);         /* "f32", "tf32", "bf16" */
bool df_products_parse(const char *name, df_products *out); /* false: no such products */

typedef struct df_engine_options {
    df_backend backend;
    df_class numeric_class;
    df_products products;
    df_isa isa;          /* CPU only; every choice gives the same bits */
    int threads;         /* CPU only; 0 = as many as this process may use: its affinity, within the quota of its control
                            groups; every choice gives the same bits */
    int device;          /* CUDA only: the device's number, as the runtime counts those that the process sees, from 0 */
    bool poison_scratch; /* fill scratch memory with NaN before every call, so that an unwritten element shows */
} df_engine_options;

typedef struct df_engine df_engine;

/* A call makes its engine's device current and gives the caller's back, so a process may use engines on several devices
 * and change the current one at will. Giving back device n makes the runtime's context there if there was none. */
df_status df_engine_create(const df_engine_options *options, df_engine **out, df_error *err);
void df_engine_destroy(df_engine *engine); /* NULL is allowed; destroy drafts and caches first */
int df_engine_threads(const df_engine *engine);
const char *df_engine_isa(const df_engine *engine); /* "generic", "avx2", "avx512"; on a device "cuda" */
const char *df_backend_name(df_backend backend);    /* "cpu", "cuda" */
const char *df_class_name(df_class numeric_class);  /* "exact", "cublas", "fast" */

/* What an engine computes with, for reports. Device strings are empty and numbers 0 on the CPU. */
typedef struct df_device_facts {
    const char *backend, *numeric_class, *products;
    char device[256];             /* "NVIDIA H200" */
    char driver[16], runtime[16]; /* CUDA versions: the newest that the driver supports, the one built with; "13.0" */
    char cublas[16];              /* empty unless the class uses it */
    int capability;               /* compute capability, 90 for 9.0 */
    int multiprocessors;
    size_t memory_bytes;
    bool tf32; /* products may be rounded to TF32 */
} df_device_facts;
void df_engine_describe(const df_engine *engine, df_device_facts *out);

/* What the machine can do with this engine's instructions and threads, the best of a few short tries: the limits that a
 * kernel's own figures, taken in the same run, are held against. Takes a second and 512 MiB, or 2 GiB of a
 * device. */
typedef struct df_machine {
    double macs_per_second;  /* float32 multiply-adds, operands in registers */
    double bytes_per_second; /* read once from memory */
} df_machine;
df_status df_engine_probe(df_engine *engine, df_machine *out, df_error *err);

/* Memory of the engine. n is in floats. On a device, calls return once their work is queued; what went wrong in it is
 * reported by the next df_engine_finish or download, or by a later call. */
bool df_engine_on_host(const df_engine *engine);              /* whether its memory is the processor's */
df_status df_engine_finish(df_engine *engine, df_error *err); /* waits until everything asked for is done */
df_status df_engine_alloc(df_engine *engine, size_t n, float **out, df_error *err);
void df_engine_free(df_engine *engine, float *buffer);
df_status df_engine_upload(df_engine *engine, float *to, const float *from_host, size_t n, df_error *err);
df_status df_engine_download(df_engine *engine, float *to_host, const float *from, size_t n, df_error *err);

/* ---- Precision modes ------------------------------------------------------------------------------------------------
 */

/*
 * How the matrices are held. Products are taken from the blocks as they are held; activations and sums are float32.
 * STORED keeps each matrix in the file's own width. Norms, biases, base kernels, codebooks and the confidence row are
 * never quantised; Markov W1 is bf16 in every mode but F32 and STORED, and W2 is bf16 in BF16, q8_0 in the quantised
 * ones.
 */
typedef enum df_precision {
    DF_PRECISION_STORED = 0,
    DF_PRECISION_F32,
    DF_PRECISION_BF16,
    DF_PRECISION_Q8_0,
    DF_PRECISION_Q4_0,
    DF_PRECISION_MIXED, /* bf16, `.mlp.` matrices q8_0 */
    DF_PRECISION_FC     /* fc bf16, the rest q8_0 */
} df_precision;

const char *df_precision_name(df_precision precision); /* "stored", "f32", "bf16", "q8_0", "q4_0", "mixed", "fc" */
bool df_precision_parse(const char *name, df_precision *out); /* false: no such mode */

/* ---- Draft model ------------------------------------------------------------------------------------------------- */

typedef struct df_draft df_draft;

/* Loads DIR/config.json and DIR/model.safetensors. The census is closed both ways: a tensor that is missing, extra,
 * of another dtype or another shape, or that holds a NaN or an infinity, is a refusal. The engine must outlive the
 * draft. */
df_status df_draft_load(df_engine *engine, const char *dir, df_draft **out, df_error *err);
/* The same in a precision mode. A matrix whose rows are not whole blocks of 32 refuses the quantised modes. */
df_status df_draft_load_as(df_engine *engine, const char *dir, df_precision precision, df_draft **out, df_error *err);
df_precision df_draft_precision(const df_draft *draft);
void df_draft_destroy(df_draft *draft);

const df_config *df_draft_config(const df_draft *draft);
size_t df_draft_weight_bytes(const df_draft *draft); /* bytes of the weights as they are held */
int df_draft_tensor_count(const df_draft *draft);
/* Tensors by index in file order: name, dtype ("BF16", "F16", "F32"; of one that is not used, any of the format's), raw
 * bytes. Strings live as long as the draft. */
enum { DF_TENSOR_RANK = 8 };
typedef struct df_tensor_view {
    const char *name, *dtype;
    int rank;
    int64_t dim[DF_TENSOR_RANK];
    const void *data;
    size_t bytes;
    bool used; /* false: ignored by rule (embed_tokens., lm_head., rotary_emb.), never by accident */
} df_tensor_view;
df_tensor_view df_draft_tensor(const df_draft *draft, int index);

df_engine *df_draft_engine(const df_draft *draft); /* the one that it was loaded with */

void df_draft_observe(df_draft *draft, df_observe_fn fn, void *user); /* fn NULL: stop observing */
void df_draft_replace(df_draft *draft, df_replace_fn fn, void *user); /* fn NULL: stop replacing */

/* features[t, H] = hidden_norm(fc(taps[t, T * H])). */
df_status df_ctx_features(df_draft *draft, const float *taps, int t, float *features, df_error *err);

/* One block over a context given as features. noise[B, H]; pos[C + B], context then block, strictly increasing;
 * out[B, H] = norm(x). Context keys and values are recomputed in every layer. ctx may be 0. */
df_status df_forward_block(df_draft *draft, const float *features, const float *noise, const int32_t *pos, int ctx,
                           float *out, df_error *err);

/* df_ctx_features, then df_forward_block. taps[C, T * H]. */
df_status df_forward(df_draft *draft, const float *taps, const float *noise, const int32_t *pos, int ctx, float *out,
                     df_error *err);

/* ---- Draft cache ---------------------------------------------------------------------------------------------------
 */

typedef struct df_kv df_kv;

/*
 * Room for `capacity` rows in every layer: committed rows plus one block in flight.
 *
 * When some layer has no window, every row stays and a cache that is full refuses more ("kv.full"). When every layer
 * slides, rows come and go over any length of run: an ingest that would leave no room for a block first drops all rows
 * but the last window + B (those queries at the end can see, and a block of rejected tokens), W being the largest
 * window. No result changes by a bit. W + 2B rows are the smallest capacity that never refuses; with 2W + 3B a row is
 * moved about once in its life. A smaller cache is allowed and works until it is full.
 */
df_status df_kv_create(df_draft *draft, int capacity, df_kv **out, df_error *err);
void df_kv_destroy(df_kv *kv);
int df_kv_len(const df_kv *kv); /* committed rows held; dropped ones do not count, so an ingest may lower it */
int df_kv_capacity(const df_kv *kv);
void df_kv_clear(df_kv *kv); /* as it was created: no rows, floor 0, no pin */
/* Forgets rows from `len` on; len counts rows held and must not exceed df_kv_len. Refused ("kv.truncate.compacted")
 * when rows were dropped that a query behind the first `len` rows could see. Going back is always possible to B rows
 * before the furthest end that the cache has reached, and further only to a pin. After a compaction the same row has
 * another number: count from the end (df_kv_len - n), or cut by position. */
df_status df_kv_truncate(df_kv *kv, int len, df_error *err);
/* Forgets the rows at `position` and beyond; otherwise as df_kv_truncate. */
df_status df_kv_truncate_at(df_kv *kv, int32_t position, df_error *err);
/* Copies the committed rows of one layer to host memory, each [len, nkv * hd]; either may be NULL. */
df_status df_kv_read(const df_kv *kv, int layer, float *keys, float *values, df_error *err);

/* Appends t context rows: keys normed and rotated, values raw. features[t, H], pos[t] strictly increasing, beyond every
 * cached position and not before the floor. The bits do not depend on how the rows are split into calls; when every
 * layer slides, t may exceed the capacity, and rows that would be dropped at once are not computed. A call that fails
 * leaves the cache as it was. */
df_status df_ingest_ctx(df_draft *draft, df_kv *kv, const float *features, const int32_t *pos, int t, df_error *err);
/* df_ctx_features, then df_ingest_ctx: what follows every verified block. taps[t, T * H]. */
df_status df_ingest_taps(df_draft *draft, df_kv *kv, const float *taps, const int32_t *pos, int t, df_error *err);

/* One block over the cached context: out[B, H], noise[B, H], pos[B]. The block's own keys and values land at
 * rows len..len+B, and len does not move, so the next round overwrites them. The bits are those of df_forward_block
 * over the same context. */
df_status df_forward_round(df_draft *draft, df_kv *kv, const float *noise, const int32_t *pos, float *out,
                           df_error *err);

/* Position of the first row held; of an empty cache, the lowest position that its next row may have. */
int32_t df_kv_floor(const df_kv *kv);

/* For an empty cache whose context before position `floor` does not exist: the next row and block must be at or beyond
 * it, and a query whose window reaches before it sees only what is there. */
df_status df_kv_set_floor(df_kv *kv, int32_t floor, df_error *err);

/* Until df_kv_unpin, cutting back to the present length stays possible and exact: compaction keeps the window + B rows
 * before it and everything behind it, and an ingest for which that leaves no room is refused ("kv.full"). There is one
 * pin; a cut below it moves it there. Remember the position of the next row to come back with df_kv_truncate_at. */
df_status df_kv_pin(df_kv *kv, df_error *err);
void df_kv_unpin(df_kv *kv);

/* The last `rows` rows as one self-describing block of bytes, the same on every machine, that the caller frees with
 * df_kv_blob_free. rows is 1..len, or 0 for an empty cache. A tail with everything that queries at the end can see (the
 * last W - 1 positions when every layer slides, all rows otherwise) gives the same bits after import; a shorter one is
 * a context that starts at its first row, as after df_kv_set_floor. */
typedef struct df_kv_blob {
    void *data;
    size_t bytes;
} df_kv_blob;
df_status df_kv_export_tail(const df_kv *kv, int rows, df_kv_blob *out, df_error *err);
/* Replaces the content of `kv`, and its floor, by that of the blob; a pin is lifted. Refused, and `kv` as it was, when
 * the blob is truncated or damaged, does not fit, or differs in family, numeric class, precision mode, layers,
 * key/value heads, head size, rotary size or table or factor, rms_norm_eps, a layer's window or causality, or the
 * checkpoint's norm vectors ("kv.import.layers" and so on). The checkpoint's matrices are not compared. If the device
 * fails half-way the cache is empty. */
df_status df_kv_import_tail(df_kv *kv, const df_kv_blob *blob, df_error *err);
void df_kv_blob_free(df_kv_blob *blob);

/* ---- DFlash2 convolution
 * --------------------------------------------------------------------------------------------- */

typedef enum df_sublayer { DF_SUBLAYER_ATTENTION = 0, DF_SUBLAYER_MLP } df_sublayer;

/* dyn[rows, 2, k, G] = kernel_projection(x); y[p, c] = sum over o <= min(k-1, p) of base[0][o][c] x[p-o][c], then
 * dyn[p][0][o][c / group] x[p-o][c], o ascending. x, y [rows, H]; rows are one block: nothing is seen before row 0. */
df_status df_conv_prepare(df_draft *draft, int layer, df_sublayer sublayer, const float *x, int rows, float *y,
                          float *dyn, df_error *err);
/* The same convolution of the sublayer's output with half 1 of the kernels that prepare returned. */
df_status df_conv_finish(df_draft *draft, int layer, df_sublayer sublayer, const float *x, const float *dyn, int rows,
                         float *y, df_error *err);

/* ---- Vocabulary tables and logits
 * ------------------------------------------------------------------------------------ */

/* A matrix [vocabulary, H] of the target: its output head or its embedding. */
typedef struct df_table df_table;

/* Copies `values`, dtype "BF16", "F16" or "F32". */
df_status df_table_create(df_engine *engine, const char *dtype, int vocab, int hidden, const void *values,
                          df_table **out, df_error *err);
/* Reads the tensor `name` of a safetensors file, which it keeps mapped; what else the file holds may be anything that
 * the format knows. NULL: the output head, by rule: lm_head.weight; the same behind a known prefix (language_model.,
 * ...); else the embedding that is tied to it, where no head is present. df_table_view says which one was taken. */
df_status df_table_load(df_engine *engine, const char *path, const char *name, df_table **out, df_error *err);
/* Maps the rows of a reduced draft vocabulary to target ids: target = row + offset[row]. Refused when an id is
 * negative, not below target_vocab, or given twice. */
df_status df_table_set_offsets(df_table *table, const int32_t *offset, int target_vocab, df_error *err);
void df_table_destroy(df_table *table);
int df_table_vocab(const df_table *table);
/* The matrix as it is held: its name (the tensor's, or "" for a copy), dtype, shape, raw bytes. */
df_tensor_view df_table_view(const df_table *table);

/* noise[B, H]: the embeddings of [anchor, MASK, ...], every row times input_embedding_scale. Ids outside the table are
 * refused. */
df_status df_embed_block(df_draft *draft, const df_table *embedding, int32_t anchor, float *noise, df_error *err);

/* logits[n, vocab] = rows[n, H] W^T, times output_multiplier, then softcap: cap tanh(l / cap). */
df_status df_logits(df_draft *draft, const df_table *head, const float *rows, int n, float *logits, df_error *err);

/* ---- Proposals
 * -------------------------------------------------------------------------------------------------------- */

/* Rows of df_forward_*'s output that become tokens: first row and count (mask-fill: 1, B-1; shifted: 0, B). */
void df_harvest_rows(const df_config *config, int *first, int *count);

typedef struct df_proposal_options {
    float temperature;    /* 0: greedy; otherwise sampled */
    const float *uniform; /* [n] in [0, 1), host memory; needed when sampled: the draw of each slot, by inverse of the
                             cumulative distribution in candidate order */
} df_proposal_options;

/* Host memory, owned by the caller; a NULL member is not wanted. k is df_proposal_width. */
typedef struct df_proposal {
    int32_t *token;     /* [n] */
    float *share;       /* [n] the chosen token's softmax share over its slot (of scores / temperature when sampled) */
    int32_t *candidate; /* [n, k] ids that the distribution is over, in its order */
    float
        *probability; /* [n, k] the distribution the token was drawn from, for the rejection rule; greedy: all on it */
} df_proposal;

/* Candidates a slot: selector_top_k for dflash2, the vocabulary of the logits otherwise. */
int df_proposal_width(const df_draft *draft, int vocab);

/*
 * Drafts n tokens from harvested rows[n, H] and their logits[n, vocab] (df_logits), left to right from `anchor`:
 *   dflash   argmax (or a draw) per row; ties go to the lowest row of the table
 *   dflash2  top-k per row (descending, ties to the lower row), score(b) = logit(b) + sum_j pred[prev][j] h[j]
 * succ[b][j] with h = hidden_projection(row); the best score (ties: first candidate) is the token and the next prev
 *   dspark   logits + Markov bias of the previous token, then argmax (or a draw)
 * `table` is the table the logits came from (its offsets map rows to ids) or NULL when ids are rows. A row with a NaN
 * or +infinity, or without a finite value, a top-k that cannot be filled, an anchor or candidate outside the vocabulary
 * is refused by name.
 */
df_status df_propose(df_draft *draft, const df_table *table, const float *logits, const float *rows, int n, int vocab,
                     int32_t anchor, const df_proposal_options *options, const df_proposal *out, df_error *err);

/* ---- DSpark confidence
 * ------------------------------------------------------------------------------------------------- */

/* raw[n] (host memory) = w [row ; e of prev] + b, before the sigmoid. prev[n]: the token before each slot (anchor
 * first); needed only when the head was trained with the Markov embedding. */
df_status df_confidence(df_draft *draft, const float *rows, const int32_t *prev, int n, float *raw, df_error *err);

typedef enum df_window_policy { DF_WINDOW_SURVIVAL = 0, DF_WINDOW_SLOT, DF_WINDOW_LADDER } df_window_policy;

typedef struct df_window_options {
    df_window_policy policy;
    float threshold; /* tau in (0, 1); survival and slot only: give 0 with ladder */
    int cap;         /* largest window, anchor included, >= 2 (ladder, whose smallest is 3: >= 3) */
    int accepted;    /* ladder only: tokens accepted last round; give -1 with the others */
} df_window_options;

/* Tokens to verify next, anchor included, within [2, cap]. survival: leading slots while the product of sigmoid(raw)
 * stays
 * >= tau; slot: while each does; ladder: clamp(accepted + 2, 3, cap), raw is not read. Contradictory options are
 * refused, and so is a raw value that is not finite, wherever it stands. */
df_status df_verify_window(const df_window_options *options, const float *raw, int n, int *window, df_error *err);

/* ---- Verification (pure functions, host memory)
 * ------------------------------------------------------------------------- */

/* Drafted tokens accepted greedily: the length of the longest common prefix of draft[n] and target[n]. */
int df_accepted_prefix(const int32_t *draft, const int32_t *target, int n);

/* The rejection rule of sampled drafting: accepted iff u q < p. */
bool df_accept_token(float u, float p, float q);

/* The distribution to draw from after a rejection: max(p - q, 0) normalised, p itself when nothing is left. q is given
 * on `k` candidate ids (candidate NULL: k = vocab and ids are indices). residual[vocab] may be p. Refused: a value that
 * is no probability, a distribution that does not sum to 1, a candidate outside the vocabulary or given twice. */
df_status df_residual(const float *p, int vocab, const float *q, const int32_t *candidate, int k, float *residual,
                      df_error *err);

/* First index whose cumulative sum exceeds u times the total, both in double (verify.c gives the order); never one of
 * probability 0. -1 when there is none: u outside [0, 1), a value that is negative or not finite, no mass at all. */
int df_draw(const float *probability, int n, float u);

#endif
