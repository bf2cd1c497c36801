/* stage_set.c - see stage_set.h. */
#include "stage_set.h"

#include "error.h"

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
    LAYERS
} extent;

typedef struct stage_shape {
    df_stage stage;
    extent dim[4];
} stage_shape;

static const stage_shape before_layers[] = {
    {DF_STAGE_CTX_FC, {CONTEXT, HIDDEN}},   {DF_STAGE_CTX_FEATURES, {CONTEXT, HIDDEN}},
    {DF_STAGE_ROPE_INV_FREQ, {HALF_ROTARY}}, {DF_STAGE_ROPE_COS, {ROWS, HALF_ROTARY}},
    {DF_STAGE_ROPE_SIN, {ROWS, HALF_ROTARY}},
};

static const stage_shape in_layer[] = {
    {DF_STAGE_ATTN_NORM, {BLOCK, HIDDEN}},           {DF_STAGE_ATTN_Q_PROJ, {BLOCK, QUERY}},
    {DF_STAGE_ATTN_K_PROJ, {ROWS, KEY}},             {DF_STAGE_ATTN_V, {ROWS, KEY}},
    {DF_STAGE_ATTN_Q_NORM, {BLOCK, HEADS, HEAD}},    {DF_STAGE_ATTN_K_NORM, {ROWS, KV_HEADS, HEAD}},
    {DF_STAGE_ATTN_Q_ROPE, {BLOCK, HEADS, HEAD}},    {DF_STAGE_ATTN_K_ROPE, {ROWS, KV_HEADS, HEAD}},
    {DF_STAGE_ATTN_CONTEXT, {BLOCK, QUERY}},         {DF_STAGE_ATTN_O_PROJ, {BLOCK, HIDDEN}},
    {DF_STAGE_ATTN_RESIDUAL, {BLOCK, HIDDEN}},       {DF_STAGE_MLP_NORM, {BLOCK, HIDDEN}},
    {DF_STAGE_MLP_GATE, {BLOCK, MLP}},               {DF_STAGE_MLP_UP, {BLOCK, MLP}},
    {DF_STAGE_MLP_ACT, {BLOCK, MLP}},                {DF_STAGE_MLP_DOWN, {BLOCK, HIDDEN}},
    {DF_STAGE_LAYER_OUT, {BLOCK, HIDDEN}},
};

static const stage_shape after_layers[] = {
    {DF_STAGE_FINAL, {BLOCK, HIDDEN}},
    {DF_STAGE_KV_K, {LAYERS, CONTEXT, KV_HEADS, HEAD}},
    {DF_STAGE_KV_V, {LAYERS, CONTEXT, KV_HEADS, HEAD}},
};

enum {
    BEFORE = sizeof before_layers / sizeof *before_layers,
    INSIDE = sizeof in_layer / sizeof *in_layer,
    AFTER = sizeof after_layers / sizeof *after_layers
};

static int64_t extent_of(const df_config *c, int context, extent what) {
    switch (what) {
    case CONTEXT: return context;
    case BLOCK: return c->block;
    case ROWS: return (int64_t)context + c->block;
    case HIDDEN: return c->hidden;
    case QUERY: return (int64_t)c->n_heads * c->head_dim;
    case KEY: return (int64_t)c->n_kv_heads * c->head_dim;
    case HEADS: return c->n_heads;
    case KV_HEADS: return c->n_kv_heads;
    case HEAD: return c->head_dim;
    case MLP: return c->intermediate;
    case HALF_ROTARY: return c->rope.rotary_dim / 2;
    case LAYERS: return c->n_layers;
    case NONE: break;
    }
    return 0;
}

static void append(dp_stage_set *set, const df_config *config, int context, const stage_shape *shape, int layer) {
    dp_stage_spec *spec = &set->spec[set->count++];
    *spec = (dp_stage_spec){.stage = shape->stage, .layer = layer};
    df_stage_name(shape->stage, layer, spec->name);
    for (int i = 0; i < 4 && shape->dim[i] != NONE; i++) {
        spec->dim[i] = extent_of(config, context, shape->dim[i]);
        spec->rank++;
    }
}

df_status dp_stage_set_create(const df_config *config, int context, dp_stage_set *out, df_error *err) {
    const size_t capacity = (size_t)BEFORE + (size_t)INSIDE * (size_t)config->n_layers + (size_t)AFTER;
    *out = (dp_stage_set){.spec = calloc(capacity, sizeof *out->spec)};
    if (out->spec == NULL) return df_fail_memory(err, "the list of stages", capacity * sizeof *out->spec);
    for (int i = 0; i < BEFORE; i++) append(out, config, context, &before_layers[i], -1);
    for (int layer = 0; layer < config->n_layers; layer++)
        for (int i = 0; i < INSIDE; i++) append(out, config, context, &in_layer[i], layer);
    for (int i = 0; i < AFTER; i++) append(out, config, context, &after_layers[i], -1);
    return DF_OK;
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

const char *dp_dims_text(int rank, const int64_t *dim, char text[DP_DIMS_TEXT]) {
    size_t at = (size_t)snprintf(text, DP_DIMS_TEXT, "[");
    for (int i = 0; i < rank; i++)
        at += (size_t)snprintf(text + at, DP_DIMS_TEXT - at, "%s%lld", i > 0 ? ", " : "", (long long)dim[i]);
    snprintf(text + at, DP_DIMS_TEXT - at, "]");
    return text;
}
