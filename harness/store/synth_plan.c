/*
 * synth_plan.c - see synth_plan.h.
 *
 * A value depends on the seed, the tensor's name and the value's index only. Everything up to the last step is integer
 * arithmetic; the last step is one float32 multiplication and one conversion, both rounded as IEEE 754 says, so every
 * machine writes the same bytes. No value is a sum of products, so nothing can be contracted into a fused operation.
 */
#include "store/synth_plan.h"

#include "common/error.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(FLT_EVAL_METHOD == 0, "float32 arithmetic must be done in float32");

enum {
    STEPS = 4096,           /* units of a range: 2^-12 */
    OUTLIER_ROW_ODDS = 128, /* one row in so many is an outlier */
    RESIDUAL_ODDS = 256,    /* one residual channel in so many, and at least MIN_RESIDUAL */
    MIN_RESIDUAL = 2,
    TWIN_ODDS = 4 /* one odd row of the head in so many */
};

static const uint64_t STRIDE = 0x9e3779b97f4a7c15u;   /* 2^64 / golden ratio: consecutive indices spread evenly */
static const uint64_t ROW_LANE = 0x5851f42d4c957f2du; /* separates a row's draw from its values' draws */
static const float OUTLIER_ROW = 4.0f;
static const float TWIN = 1.0f + 0x1p-9f; /* about what bfloat16 still tells apart */
static const float PADDING_ROW = 0x1p-6f;

/* A bijective mixer of 64 bits: two rounds of xor-shift and odd multiplication. */
static inline uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static inline uint64_t draw(uint64_t key, uint64_t index) { return mix(key + (index + 1) * STRIDE); }

/* FNV-1a, 64 bits. */
static uint64_t hash_name(const char *name) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char *c = name; *c != '\0'; c++) hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    return hash;
}

static uint64_t key_of(uint64_t seed, const char *name) { return mix(mix(seed + STRIDE) ^ hash_name(name)); }

/* ---- Values ---- */

/* The sum of four 16-bit uniforms, doubled and centred: an integer below 2^18 in magnitude, nearly normal. */
static inline int32_t bell(uint64_t bits) {
    const uint64_t pairs = (bits & 0x0000ffff0000ffffu) + (bits >> 16 & 0x0000ffff0000ffffu);
    return 2 * (int32_t)((uint32_t)pairs + (uint32_t)(pairs >> 32)) - 4 * 65535;
}
static const float BELL_DEVIATION = 75674.46f; /* 2 sqrt(4 (2^32 - 1) / 12) */

/* An integer in [low, high), uniform. */
static inline int32_t between(uint64_t bits, int32_t low, int32_t high) {
    return low + (int32_t)((bits >> 40) * (uint64_t)(high - low) >> 24);
}

static inline void store(float value, df_dtype dtype, void *out, int64_t at) {
    if (dtype == DF_F32) {
        ((float *)out)[at] = value;
    } else {
        ((uint16_t *)out)[at] = dtype == DF_BF16 ? df_f32_to_bf16(value) : df_f32_to_f16(value);
    }
}

/* A row of the head that repeats the row before it, a little larger: logits that float32 tells apart and bfloat16 often
 * does not. */
static bool is_twin(const dp_synth_tensor *tensor, int64_t row) {
    if (tensor->kind != DP_SYNTH_HEAD || row % 2 == 0 || row >= tensor->tokens) return false;
    return draw(tensor->key ^ ROW_LANE, (uint64_t)row) % TWIN_ODDS == 0;
}

static float row_factor(const dp_synth_plan *plan, const dp_synth_tensor *tensor, int64_t row) {
    if (tensor->kind == DP_SYNTH_EVEN) return 1.0f;
    const uint64_t bits = draw(tensor->key ^ ROW_LANE, (uint64_t)row);
    const float spread = (float)between(bits, 32, 129) * 0x1p-6f; /* 0.5 to 2 */
    if (tensor->kind == DP_SYNTH_HEAD) return row < tensor->tokens ? spread : PADDING_ROW;
    if (tensor->kind == DP_SYNTH_RESIDUAL_MATRIX) {
        if (!plan->outlier[row]) return spread;
        return spread * (plan->profile == DP_SYNTH_HOT ? 64.0f : 4.0f);
    }
    return bits % OUTLIER_ROW_ODDS == 0 ? spread * OUTLIER_ROW : spread;
}

static void fill_normal(uint64_t key, int64_t index, int64_t count, float scale, df_dtype dtype, void *out,
                        int64_t at) {
    for (int64_t i = 0; i < count; i++) {
        store((float)bell(draw(key, (uint64_t)(index + i))) * scale, dtype, out, at + i);
    }
}

static float range_value(const dp_synth_plan *plan, const dp_synth_tensor *tensor, int64_t index) {
    const uint64_t bits = draw(tensor->key, (uint64_t)index);
    if (tensor->kind == DP_SYNTH_CONV_BASE && index / tensor->row % tensor->dim[1] != 0) {
        const float size = (float)between(bits, STEPS / 10, STEPS * 4 / 10) * 0x1p-12f;
        return bits & 1u ? size : -size;
    }
    const float value = (float)between(bits, tensor->low, tensor->high) * 0x1p-12f;
    if (tensor->kind != DP_SYNTH_RESIDUAL_RANGE || plan->profile != DP_SYNTH_HOT) return value;
    /* As trained models do: the norm's weight takes back what the outlier channels grew. */
    return plan->outlier[index] ? value * 0.125f : value * 4.0f;
}

/* Values [index, index + count) of one tensor, all in one row, to out[at...]. */
static void fill_row(const dp_synth_plan *plan, const dp_synth_tensor *tensor, int64_t index, int64_t count,
                     df_dtype dtype, void *out, int64_t at) {
    if (tensor->kind <= DP_SYNTH_EVEN) {
        const int64_t row = index / tensor->row;
        const bool twin = is_twin(tensor, row);
        const float factor = twin ? row_factor(plan, tensor, row - 1) * TWIN : row_factor(plan, tensor, row);
        const float scale = tensor->scale / BELL_DEVIATION * factor;
        if (twin) index -= tensor->row;
        /* One call a dtype, so that the compiler specialises the loop. */
        if (dtype == DF_BF16) {
            fill_normal(tensor->key, index, count, scale, DF_BF16, out, at);
        } else {
            fill_normal(tensor->key, index, count, scale, dtype, out, at);
        }
        return;
    }
    for (int64_t i = 0; i < count; i++) store(range_value(plan, tensor, index + i), dtype, out, at + i);
}

void dp_synth_plan_fill(const dp_synth_plan *plan, int64_t first, int64_t count, df_dtype dtype, void *out) {
    const int64_t end = first + count;
    for (int t = 0; t < plan->count; t++) {
        const dp_synth_tensor *tensor = &plan->tensor[t];
        int64_t at = first > tensor->first ? first : tensor->first;
        const int64_t stop = end < tensor->first + tensor->count ? end : tensor->first + tensor->count;
        while (at < stop) {
            const int64_t index = at - tensor->first;
            const int64_t rest = tensor->row - index % tensor->row;
            const int64_t n = rest < stop - at ? rest : stop - at;
            fill_row(plan, tensor, index, n, dtype, out, at - first);
            at += n;
        }
    }
}

/* ---- The list of tensors ---- */

/* What is being listed, and the first thing that went wrong. */
typedef struct builder {
    dp_synth_plan *plan;
    dflash_status status;
    dflash_error *err;
    char prefix[32]; /* "layers.3." */
} builder;

static dp_synth_tensor *add(builder *b, dp_synth_kind kind, int rank, int64_t d0, int64_t d1, int64_t d2,
                            const char *name) {
    dp_synth_plan *plan = b->plan;
    if (b->status != DFLASH_OK) return NULL;
    if (plan->count == plan->capacity) {
        const int capacity = plan->capacity == 0 ? 64 : plan->capacity * 2;
        const size_t bytes = (size_t)capacity * sizeof *plan->tensor;
        dp_synth_tensor *grown = realloc(plan->tensor, bytes);
        if (grown == NULL) {
            b->status = df_fail_memory(b->err, "the list of tensors", bytes);
            return NULL;
        }
        plan->tensor = grown;
        plan->capacity = capacity;
    }
    dp_synth_tensor *tensor = &plan->tensor[plan->count];
    *tensor = (dp_synth_tensor){.kind = kind, .rank = rank, .dim = {d0, d1, d2}, .count = 1, .first = plan->values};
    snprintf(tensor->name, sizeof tensor->name, "%s%s", b->prefix, name);
    for (int d = 0; d < rank; d++) {
        if (tensor->dim[d] <= 0 || __builtin_mul_overflow(tensor->count, tensor->dim[d], &tensor->count)) {
            b->status =
                df_fail(b->err, DFLASH_ERR_REFUSED, "synth.shape",
                        "Cannot make tensor %s: expected a shape whose dimensions are positive and whose product "
                        "fits 63 bits, found %lld for dimension %d. Complete the config (a head over the "
                        "vocabulary needs vocab_size).",
                        tensor->name, (long long)tensor->dim[d], d);
            return NULL;
        }
    }
    tensor->row = tensor->dim[rank - 1];
    tensor->key = key_of(plan->seed, tensor->name);
    plan->values += tensor->count;
    plan->count++;
    return tensor;
}

/* y = x W^T: with rms(x) = 1, rms(y) is about gain. */
static dp_synth_tensor *add_matrix(builder *b, dp_synth_kind kind, int64_t out, int64_t in, float gain,
                                   const char *name) {
    dp_synth_tensor *tensor = add(b, kind, 2, out, in, 0, name);
    if (tensor != NULL) tensor->scale = gain / sqrtf((float)in);
    return tensor;
}

static void add_even(builder *b, int64_t n, float deviation, const char *name) {
    dp_synth_tensor *tensor = add(b, DP_SYNTH_EVEN, 1, n, 0, 0, name);
    if (tensor != NULL) tensor->scale = deviation;
}

/* low and high in hundredths. */
static void set_range(dp_synth_tensor *tensor, int low, int high) {
    if (tensor == NULL) return;
    tensor->low = STEPS * low / 100;
    tensor->high = STEPS * high / 100;
}

static void add_range(builder *b, dp_synth_kind kind, int64_t n, int low, int high, const char *name) {
    set_range(add(b, kind, 1, n, 0, 0, name), low, high);
}

static void add_conv(builder *b, const dflash_config *c, const char *conv) {
    char name[DP_SYNTH_NAME_MAX / 2];
    const int64_t groups = c->conv_group > 0 ? c->hidden / c->conv_group : 0;
    snprintf(name, sizeof name, "%s.base_kernel", conv);
    set_range(add(b, DP_SYNTH_CONV_BASE, 3, 2, c->conv_kernel, c->hidden, name), 60, 120);
    snprintf(name, sizeof name, "%s.kernel_projection.weight", conv);
    add_matrix(b, DP_SYNTH_MATRIX, 2 * (int64_t)c->conv_kernel * groups, c->hidden, 0.125f, name);
}

/* q_norm and k_norm make every query and key of length sqrt(hd) times these weights, so the common part of a score,
 * that of the two biases, deviates by about the product of the weights from head to head. */
static const struct {
    float bias;
    int q_low, q_high, k_low, k_high; /* in hundredths */
} ATTENTION[] = {[DP_SYNTH_UNIT] = {0.1f, 80, 160, 90, 150},
                 [DP_SYNTH_HOT] = {0.1f, 80, 160, 90, 150},
                 [DP_SYNTH_SHARP] = {32.0f, 900, 1500, 900, 1300}};

const char *dp_synth_profile_name(dp_synth_profile profile) {
    static const char *const names[] = {"unit", "hot", "sharp"};
    return names[profile];
}

static void add_layer(builder *b, const dflash_config *c, int layer, dp_synth_profile profile) {
    const int64_t h = c->hidden, f = c->intermediate;
    const int64_t q = (int64_t)c->n_heads * c->head_dim, kv = (int64_t)c->n_kv_heads * c->head_dim;
    /* Each layer writes more than the one before. Multiples of 1/4, hence exact. */
    const int depth = layer + 1;
    const float growth = profile == DP_SYNTH_HOT ? (float)(3 * depth) : 0.25f * (float)(depth + 1);
    /* Layer 0 reads the noise embedding, which has none of the outliers that the layers write. */
    const dp_synth_kind input = layer == 0 ? DP_SYNTH_RANGE : DP_SYNTH_RESIDUAL_RANGE;
    snprintf(b->prefix, sizeof b->prefix, "layers.%d.", layer);
    add_range(b, input, h, 30, 150 + 10 * (layer % 6), "input_layernorm.weight");
    if (c->family == DFLASH_FAMILY_DFLASH2) add_conv(b, c, "attention_conv");
    add_matrix(b, DP_SYNTH_MATRIX, q, h, 1.0f, "self_attn.q_proj.weight");
    if (c->attention_bias) add_even(b, q, ATTENTION[profile].bias, "self_attn.q_proj.bias");
    add_matrix(b, DP_SYNTH_MATRIX, kv, h, 1.0f, "self_attn.k_proj.weight");
    if (c->attention_bias) add_even(b, kv, ATTENTION[profile].bias, "self_attn.k_proj.bias");
    add_matrix(b, DP_SYNTH_MATRIX, kv, h, 1.0f, "self_attn.v_proj.weight");
    if (c->attention_bias) add_even(b, kv, 0.1f, "self_attn.v_proj.bias");
    add_matrix(b, DP_SYNTH_RESIDUAL_MATRIX, h, q, growth, "self_attn.o_proj.weight");
    if (c->attention_bias) add_even(b, h, 0.1f, "self_attn.o_proj.bias");
    add_range(b, DP_SYNTH_RANGE, c->head_dim, ATTENTION[profile].q_low, ATTENTION[profile].q_high,
              "self_attn.q_norm.weight");
    add_range(b, DP_SYNTH_RANGE, c->head_dim, ATTENTION[profile].k_low, ATTENTION[profile].k_high,
              "self_attn.k_norm.weight");
    add_range(b, DP_SYNTH_RESIDUAL_RANGE, h, 30, 200 - 10 * (layer % 6), "post_attention_layernorm.weight");
    if (c->family == DFLASH_FAMILY_DFLASH2) add_conv(b, c, "mlp_conv");
    add_matrix(b, DP_SYNTH_MATRIX, f, h, 1.0f, "mlp.gate_proj.weight");
    add_matrix(b, DP_SYNTH_MATRIX, f, h, 1.0f, "mlp.up_proj.weight");
    add_matrix(b, DP_SYNTH_RESIDUAL_MATRIX, h, f, growth, "mlp.down_proj.weight");
    b->prefix[0] = '\0';
}

/* score = sum_j pred[j] h[j] succ[j]: codebooks of deviation 2 / r^(1/4), so that the sum is about 4 rms(h), and rms(h)
 * about 0.2. */
static void add_selector(builder *b, const dflash_config *c, bool suffix) {
    const int64_t r = c->selector_rank, v = c->vocab;
    const float gain = 2.0f * sqrtf(sqrtf((float)r)); /* add_matrix divides by sqrt(r) */
    add_matrix(b, DP_SYNTH_MATRIX, r, c->hidden, 0.125f, "candidate_selector.hidden_projection.weight");
    add_matrix(b, DP_SYNTH_MATRIX, v, r, gain,
               suffix ? "candidate_selector.predecessor_codebook.weight" : "candidate_selector.predecessor_codebook");
    add_matrix(b, DP_SYNTH_MATRIX, v, r, gain,
               suffix ? "candidate_selector.successor_codebook.weight" : "candidate_selector.successor_codebook");
}

static void add_dspark_heads(builder *b, const dflash_config *c) {
    const int64_t h = c->hidden, r = c->markov_rank, v = c->vocab;
    if (c->markov != DFLASH_MARKOV_NONE) {
        add_matrix(b, DP_SYNTH_MATRIX, v, r, sqrtf((float)r), "markov_head.markov_w1.weight"); /* rows of rms 1 */
        add_matrix(b, DP_SYNTH_MATRIX, v, r, 1.0f, "markov_head.markov_w2.weight");
    }
    if (c->markov == DFLASH_MARKOV_GATED) {
        add_matrix(b, DP_SYNTH_MATRIX, r, h + r, 1.0f, "markov_head.gate_proj.weight");
        add_even(b, r, 0.5f, "markov_head.gate_proj.bias");
    }
    if (c->markov == DFLASH_MARKOV_RNN) {
        add_matrix(b, DP_SYNTH_MATRIX, 3 * r, 2 * r + h, 1.0f, "markov_head.joint_proj.weight");
        add_even(b, 3 * r, 0.5f, "markov_head.joint_proj.bias");
    }
    if (c->confidence) {
        add_matrix(b, DP_SYNTH_EVEN, 1, c->confidence_with_markov ? h + r : h, 0.75f, "confidence_head.proj.weight");
        add_range(b, DP_SYNTH_RANGE, 1, 50, 100, "confidence_head.proj.bias");
    }
}

/* Rows of rms 1.3 over a final norm of rms 1.2: logits deviate by about 2.3, whatever multiplies them later. */
static void add_head(builder *b, const dflash_config *c) {
    const float gain = 1.5f / (float)c->output_multiplier;
    dp_synth_tensor *head = add_matrix(b, DP_SYNTH_HEAD, c->vocab, c->hidden, gain, "lm_head.weight");
    if (head != NULL) head->tokens = c->selector_vocab != 0 ? c->selector_vocab : c->vocab;
}

/* Embedded blocks are small: rows of rms 1/4 after the scale, where that is not below 1. */
static void add_embedding(builder *b, const dflash_config *c) {
    const float scale = fabsf((float)c->input_embedding_scale);
    add_matrix(b, DP_SYNTH_MATRIX, c->vocab, c->hidden, 0.25f * sqrtf((float)c->hidden) / fmaxf(1.0f, scale),
               "embed_tokens.weight");
}

static dflash_status choose_outliers(dp_synth_plan *plan, dflash_error *err) {
    const uint64_t key = key_of(plan->seed, "residual outliers"), h = (uint64_t)plan->hidden;
    plan->outlier = calloc((size_t)h, sizeof *plan->outlier);
    if (plan->outlier == NULL) return df_fail_memory(err, "the outlier channels", (size_t)h * sizeof *plan->outlier);
    const uint64_t n = h / RESIDUAL_ODDS > MIN_RESIDUAL ? h / RESIDUAL_ODDS : MIN_RESIDUAL;
    for (uint64_t i = 0; i < n; i++) plan->outlier[draw(key, i) % h] = true; /* a repeat makes one fewer */
    return DFLASH_OK;
}

dflash_status dp_synth_plan_make(const dflash_config *config, uint64_t seed, dp_synth_profile profile, unsigned extras,
                                 dp_synth_plan *out, dflash_error *err) {
    const bool suffix = (extras & DP_SYNTH_CODEBOOK_SUFFIX) != 0;
    *out = (dp_synth_plan){.profile = profile, .seed = seed, .hidden = config->hidden};
    builder b = {.plan = out, .status = DFLASH_OK, .err = err};
    if (suffix && config->family != DFLASH_FAMILY_DFLASH2) {
        return df_fail(err, DFLASH_ERR_REFUSED, "synth.extra",
                       "A suffix is asked for the codebooks' names, but the config describes a %s drafter, and only "
                       "dflash2 has codebooks. Leave --codebook-suffix (codebook_suffix in a case list) out.",
                       dflash_family_name(config->family));
    }
    if (profile == DP_SYNTH_SHARP && !config->attention_bias) {
        return df_fail(err, DFLASH_ERR_REFUSED, "synth.profile",
                       "The profile sharp makes scores large by the biases of queries and keys: expected a config with "
                       "attention_bias true, found false. Set it, or choose another --profile.");
    }
    const int64_t h = config->hidden;
    add_matrix(&b, DP_SYNTH_MATRIX, h, config->n_taps * h, 1.0f, "fc.weight");
    add_range(&b, DP_SYNTH_RANGE, h, 30, 200, "hidden_norm.weight");
    for (int layer = 0; layer < config->n_layers; layer++) add_layer(&b, config, layer, profile);
    add_range(&b, DP_SYNTH_RESIDUAL_RANGE, h, 40, 180, "norm.weight");
    if (config->family == DFLASH_FAMILY_DFLASH2) add_selector(&b, config, suffix);
    if (config->family == DFLASH_FAMILY_DSPARK) add_dspark_heads(&b, config);
    if ((extras & DP_SYNTH_LM_HEAD) != 0) add_head(&b, config);
    if ((extras & DP_SYNTH_EMBED_TOKENS) != 0) add_embedding(&b, config);
    if (b.status == DFLASH_OK) b.status = choose_outliers(out, err);
    if (b.status != DFLASH_OK) dp_synth_plan_release(out);
    return b.status;
}

void dp_synth_plan_release(dp_synth_plan *plan) {
    free(plan->tensor);
    free(plan->outlier);
    *plan = (dp_synth_plan){0};
}
