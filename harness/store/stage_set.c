/* stage_set.c - see stage_set.h. */
#include "store/stage_set.h"

#include "common/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a dimension of a stage counts. */
typedef enum extent {
    NONE = 0,
    CONTEXT,
    BLOCK,
    ROWS, /* context + block */
    HIDDEN,
    QUERY,
    KEY,
    HEADS,
    KV_HEADS,
    HEAD,
    MLP,
    HALF_ROTARY,
    LAYERS,
    HALVES, /* of a convolution: prepare and finish */
    CONV_TAPS,
    CONV_GROUPS,
    DRAFTED, /* harvested rows */
    VOCAB,
    CANDIDATES,
    SELECTOR_RANK,
    ONE
} extent;

/* When a model has a stage. */
typedef enum condition { ALWAYS = 0, EMBEDDED, CONVOLVED, WITH_HEAD, SELECTED, MARKOV, CONFIDENT } condition;

typedef struct stage_shape {
    dflash_stage stage;
    condition when;
    extent dim[4];
} stage_shape;

static const stage_shape before_layers[] = {
    {DFLASH_STAGE_CTX_FC, ALWAYS, {CONTEXT, HIDDEN}},     {DFLASH_STAGE_CTX_FEATURES, ALWAYS, {CONTEXT, HIDDEN}},
    {DFLASH_STAGE_ROPE_INV_FREQ, ALWAYS, {HALF_ROTARY}},  {DFLASH_STAGE_ROPE_COS, ALWAYS, {ROWS, HALF_ROTARY}},
    {DFLASH_STAGE_ROPE_SIN, ALWAYS, {ROWS, HALF_ROTARY}}, {DFLASH_STAGE_INPUT, EMBEDDED, {BLOCK, HIDDEN}},
};

static const stage_shape in_layer[] = {
    {DFLASH_STAGE_ATTN_NORM, ALWAYS, {BLOCK, HIDDEN}},
    {DFLASH_STAGE_ATTN_CONV_DYN, CONVOLVED, {BLOCK, HALVES, CONV_TAPS, CONV_GROUPS}},
    {DFLASH_STAGE_ATTN_CONV_IN, CONVOLVED, {BLOCK, HIDDEN}},
    {DFLASH_STAGE_ATTN_Q_PROJ, ALWAYS, {BLOCK, QUERY}},
    {DFLASH_STAGE_ATTN_K_PROJ, ALWAYS, {ROWS, KEY}},
    {DFLASH_STAGE_ATTN_V, ALWAYS, {ROWS, KEY}},
    {DFLASH_STAGE_ATTN_Q_NORM, ALWAYS, {BLOCK, HEADS, HEAD}},
    {DFLASH_STAGE_ATTN_K_NORM, ALWAYS, {ROWS, KV_HEADS, HEAD}},
    {DFLASH_STAGE_ATTN_Q_ROPE, ALWAYS, {BLOCK, HEADS, HEAD}},
    {DFLASH_STAGE_ATTN_K_ROPE, ALWAYS, {ROWS, KV_HEADS, HEAD}},
    {DFLASH_STAGE_ATTN_CONTEXT, ALWAYS, {BLOCK, QUERY}},
    {DFLASH_STAGE_ATTN_O_PROJ, ALWAYS, {BLOCK, HIDDEN}},
    {DFLASH_STAGE_ATTN_CONV_OUT, CONVOLVED, {BLOCK, HIDDEN}},
    {DFLASH_STAGE_ATTN_RESIDUAL, ALWAYS, {BLOCK, HIDDEN}},
    {DFLASH_STAGE_MLP_NORM, ALWAYS, {BLOCK, HIDDEN}},
    {DFLASH_STAGE_MLP_CONV_DYN, CONVOLVED, {BLOCK, HALVES, CONV_TAPS, CONV_GROUPS}},
    {DFLASH_STAGE_MLP_CONV_IN, CONVOLVED, {BLOCK, HIDDEN}},
    {DFLASH_STAGE_MLP_GATE, ALWAYS, {BLOCK, MLP}},
    {DFLASH_STAGE_MLP_UP, ALWAYS, {BLOCK, MLP}},
    {DFLASH_STAGE_MLP_ACT, ALWAYS, {BLOCK, MLP}},
    {DFLASH_STAGE_MLP_DOWN, ALWAYS, {BLOCK, HIDDEN}},
    {DFLASH_STAGE_MLP_CONV_OUT, CONVOLVED, {BLOCK, HIDDEN}},
    {DFLASH_STAGE_LAYER_OUT, ALWAYS, {BLOCK, HIDDEN}},
};

static const stage_shape after_layers[] = {
    {DFLASH_STAGE_FINAL, ALWAYS, {BLOCK, HIDDEN}},
    {DFLASH_STAGE_LOGITS, WITH_HEAD, {DRAFTED, VOCAB}},
    {DFLASH_STAGE_SELECT_TOPK_VALUES, SELECTED, {DRAFTED, CANDIDATES}},
    {DFLASH_STAGE_SELECT_TOPK_IDS, SELECTED, {DRAFTED, CANDIDATES}},
    {DFLASH_STAGE_SELECT_HIDDEN, SELECTED, {DRAFTED, SELECTOR_RANK}},
    {DFLASH_STAGE_SELECT_SCORES, SELECTED, {DRAFTED, CANDIDATES}},
    {DFLASH_STAGE_SELECT_PATH, SELECTED, {DRAFTED}},
    {DFLASH_STAGE_MARKOV_LOGITS, MARKOV, {DRAFTED, VOCAB}},
    {DFLASH_STAGE_MARKOV_TOKENS, MARKOV, {DRAFTED}},
    {DFLASH_STAGE_CONFIDENCE_RAW, CONFIDENT, {DRAFTED}},
    {DFLASH_STAGE_CONFIDENCE_WINDOW, CONFIDENT, {ONE}},
    {DFLASH_STAGE_KV_K, ALWAYS, {LAYERS, CONTEXT, KV_HEADS, HEAD}},
    {DFLASH_STAGE_KV_V, ALWAYS, {LAYERS, CONTEXT, KV_HEADS, HEAD}},
};

enum {
    BEFORE = sizeof before_layers / sizeof *before_layers,
    INSIDE = sizeof in_layer / sizeof *in_layer,
    AFTER = sizeof after_layers / sizeof *after_layers
};

static bool has_stage(const dflash_config *c, const dp_stage_input *input, condition when) {
    switch (when) {
    case ALWAYS:
        return true;
    case EMBEDDED:
        return input->embedded;
    case CONVOLVED:
        return c->family == DFLASH_FAMILY_DFLASH2;
    case WITH_HEAD:
        return input->vocab > 0;
    case SELECTED:
        return input->vocab > 0 && c->family == DFLASH_FAMILY_DFLASH2;
    case MARKOV:
        return input->vocab > 0 && c->markov != DFLASH_MARKOV_NONE;
    case CONFIDENT:
        return input->vocab > 0 && c->confidence;
    }
    return false;
}

static int drafted_rows(const dflash_config *c) {
    int first = 0, count = 0;
    dflash_harvest_rows(c, &first, &count);
    return count;
}

static int64_t extent_of(const dflash_config *c, const dp_stage_input *input, extent what) {
    switch (what) {
    case CONTEXT:
        return input->context;
    case BLOCK:
        return c->block;
    case ROWS:
        return (int64_t)input->context + c->block;
    case HIDDEN:
        return c->hidden;
    case QUERY:
        return (int64_t)c->n_heads * c->head_dim;
    case KEY:
        return (int64_t)c->n_kv_heads * c->head_dim;
    case HEADS:
        return c->n_heads;
    case KV_HEADS:
        return c->n_kv_heads;
    case HEAD:
        return c->head_dim;
    case MLP:
        return c->intermediate;
    case HALF_ROTARY:
        return c->rope.rotary_dim / 2;
    case LAYERS:
        return c->n_layers;
    case HALVES:
        return 2;
    case CONV_TAPS:
        return c->conv_kernel;
    case CONV_GROUPS:
        return c->hidden / c->conv_group;
    case DRAFTED:
        return drafted_rows(c);
    case VOCAB:
        return input->vocab;
    case CANDIDATES:
        return c->selector_top_k;
    case SELECTOR_RANK:
        return c->selector_rank;
    case ONE:
        return 1;
    case NONE:
        break;
    }
    return 0;
}

static bool is_exact(dflash_stage stage) {
    return stage == DFLASH_STAGE_SELECT_TOPK_IDS || stage == DFLASH_STAGE_SELECT_PATH ||
           stage == DFLASH_STAGE_MARKOV_TOKENS || stage == DFLASH_STAGE_CONFIDENCE_WINDOW;
}

static void append(dp_stage_set *set, const dflash_config *config, const dp_stage_input *input,
                   const stage_shape *shapes, int count, int layer) {
    for (int s = 0; s < count; s++) {
        if (!has_stage(config, input, shapes[s].when)) continue;
        dp_stage_spec *spec = &set->spec[set->count++];
        *spec = (dp_stage_spec){.stage = shapes[s].stage, .layer = layer, .exact = is_exact(shapes[s].stage)};
        dflash_stage_name(spec->stage, layer, spec->name);
        for (int i = 0; i < 4 && shapes[s].dim[i] != NONE; i++) {
            spec->dim[i] = extent_of(config, input, shapes[s].dim[i]);
            spec->rank++;
        }
    }
}

dflash_status dp_stage_set_create(const dflash_config *config, const dp_stage_input *input, dp_stage_set *out,
                                  dflash_error *err) {
    const size_t capacity = (size_t)BEFORE + (size_t)INSIDE * (size_t)config->n_layers + (size_t)AFTER;
    *out = (dp_stage_set){.spec = calloc(capacity, sizeof *out->spec)};
    if (out->spec == NULL) return df_fail_memory(err, "the list of stages", capacity * sizeof *out->spec);
    append(out, config, input, before_layers, BEFORE, -1);
    for (int layer = 0; layer < config->n_layers; layer++) append(out, config, input, in_layer, INSIDE, layer);
    append(out, config, input, after_layers, AFTER, -1);
    return DFLASH_OK;
}

void dp_stage_set_release(dp_stage_set *set) {
    free(set->spec);
    *set = (dp_stage_set){.spec = NULL};
}

const dp_stage_spec *dp_stage_set_find(const dp_stage_set *set, const char *name) {
    for (int i = 0; i < set->count; i++)
        if (strcmp(set->spec[i].name, name) == 0) return &set->spec[i];
    return NULL;
}

int64_t dp_dims_product(int rank, const int64_t *dim) {
    int64_t product = 1;
    for (int i = 0; i < rank; i++) product *= dim[i];
    return product;
}

bool dp_dims_equal(int rank_a, const int64_t *a, int rank_b, const int64_t *b) {
    if (rank_a != rank_b) return false;
    for (int i = 0; i < rank_a; i++)
        if (a[i] != b[i]) return false;
    return true;
}

bool dp_is_cache(dflash_stage stage) { return stage == DFLASH_STAGE_KV_K || stage == DFLASH_STAGE_KV_V; }

int64_t dp_row_length(dflash_stage stage, int rank, const int64_t *dim) {
    if (stage == DFLASH_STAGE_ROPE_INV_FREQ) return 1;
    /* [L, C, ...]: a row is one token of one layer */
    if (dp_is_cache(stage)) return dp_dims_product(rank - 2, dim + 2);
    return rank > 1 ? dp_dims_product(rank - 1, dim + 1) : dim[0];
}
