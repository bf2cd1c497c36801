/*
 * weights_census.c - see weights_census.h.
 *
 * The table of tensors of each family, with shapes computed from the config. The config alone decides; what a file
 * happens to hold is never looked at here.
 */
#include "weights/weights_census.h"

#include "common/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Upper bounds of the lists below. */
enum { SLOTS_PER_LAYER = 19, SLOTS_OUTSIDE = 12 };

/* How else a tensor may be spelled. */
typedef enum spelling {
    ONE_SPELLING,
    OR_WITH_WEIGHT,    /* NAME or NAME.weight */
    OR_WITH_LOGIT_HEAD /* NAME or logit_head.NAME */
} spelling;

typedef struct census {
    df_slot *slot;
    int count;
    char prefix[24]; /* in front of every name that is added, e.g. "layers.3." */
    spelling spelling;
} census;

static df_slot *add(census *list, const char *name, int rank, int64_t d0, int64_t d1, int64_t d2) {
    df_slot *slot = &list->slot[list->count++];
    snprintf(slot->name, sizeof slot->name, "%s%s", list->prefix, name);
    if (list->spelling == OR_WITH_WEIGHT) snprintf(slot->other, sizeof slot->other, "%s%s.weight", list->prefix, name);
    if (list->spelling == OR_WITH_LOGIT_HEAD)
        snprintf(slot->other, sizeof slot->other, "logit_head.%s%s", list->prefix, name);
    slot->rank = rank;
    slot->dim[0] = d0;
    slot->dim[1] = d1;
    slot->dim[2] = d2;
    return slot;
}

static void add_matrix(census *list, const char *name, int64_t out, int64_t in, df_matrix *to) {
    add(list, name, 2, out, in, 0)->matrix = to;
}

static void add_vector(census *list, const char *name, int64_t length, const float **to) {
    add(list, name, 1, length, 0, 0)->vector = to;
}

static void add_conv(census *list, const dflash_config *config, const char *base, const char *projection,
                     df_conv_weights *to) {
    const int64_t hidden = config->hidden, kernel = config->conv_kernel, groups = hidden / config->conv_group;
    add(list, base, 3, 2, kernel, hidden)->vector = &to->base;
    add_matrix(list, projection, 2 * kernel * groups, hidden, &to->projection);
}

static void add_layer(census *list, const dflash_config *config, int index, df_layer_weights *to) {
    const int64_t hidden = config->hidden, head = config->head_dim, mlp = config->intermediate;
    const int64_t queries = config->n_heads * head, keys = config->n_kv_heads * head;
    snprintf(list->prefix, sizeof list->prefix, "layers.%d.", index);
    add_vector(list, "input_layernorm.weight", hidden, &to->input_norm);
    add_vector(list, "post_attention_layernorm.weight", hidden, &to->post_norm);
    add_matrix(list, "self_attn.q_proj.weight", queries, hidden, &to->q);
    add_matrix(list, "self_attn.k_proj.weight", keys, hidden, &to->k);
    add_matrix(list, "self_attn.v_proj.weight", keys, hidden, &to->v);
    add_matrix(list, "self_attn.o_proj.weight", hidden, queries, &to->o);
    if (config->attention_bias) {
        add_vector(list, "self_attn.q_proj.bias", queries, &to->q_bias);
        add_vector(list, "self_attn.k_proj.bias", keys, &to->k_bias);
        add_vector(list, "self_attn.v_proj.bias", keys, &to->v_bias);
        add_vector(list, "self_attn.o_proj.bias", hidden, &to->o_bias);
    }
    add_vector(list, "self_attn.q_norm.weight", head, &to->q_norm);
    add_vector(list, "self_attn.k_norm.weight", head, &to->k_norm);
    add_matrix(list, "mlp.gate_proj.weight", mlp, hidden, &to->gate);
    add_matrix(list, "mlp.up_proj.weight", mlp, hidden, &to->up);
    add_matrix(list, "mlp.down_proj.weight", hidden, mlp, &to->down);
    if (config->family == DFLASH_FAMILY_DFLASH2) {
        add_conv(list, config, "attention_conv.base_kernel", "attention_conv.kernel_projection.weight", &to->attn_conv);
        add_conv(list, config, "mlp_conv.base_kernel", "mlp_conv.kernel_projection.weight", &to->mlp_conv);
    }
    list->prefix[0] = '\0';
}

static void add_selector(census *list, const dflash_config *config, df_weights *to) {
    const int64_t rank = config->selector_rank;
    add_matrix(list, "candidate_selector.hidden_projection.weight", rank, config->hidden, &to->selector_projection);
    /* The codebooks have a row for every id of the vocabulary, also where selector_vocab bounds the candidates. */
    list->spelling = OR_WITH_WEIGHT;
    add_matrix(list, "candidate_selector.predecessor_codebook", config->vocab, rank, &to->predecessor);
    add_matrix(list, "candidate_selector.successor_codebook", config->vocab, rank, &to->successor);
    list->spelling = ONE_SPELLING;
}

static void add_heads(census *list, const dflash_config *config, df_weights *to) {
    const int64_t hidden = config->hidden, rank = config->markov_rank;
    list->spelling = OR_WITH_LOGIT_HEAD;
    if (config->markov != DFLASH_MARKOV_NONE) {
        add_matrix(list, "markov_head.markov_w1.weight", config->vocab, rank, &to->markov_w1);
        add_matrix(list, "markov_head.markov_w2.weight", config->vocab, rank, &to->markov_w2);
    }
    if (config->markov == DFLASH_MARKOV_GATED) {
        add_matrix(list, "markov_head.gate_proj.weight", rank, hidden + rank, &to->markov_gate);
        add_vector(list, "markov_head.gate_proj.bias", rank, &to->markov_gate_bias);
    }
    if (config->markov == DFLASH_MARKOV_RNN) {
        add_matrix(list, "markov_head.joint_proj.weight", 3 * rank, 2 * rank + hidden, &to->markov_joint);
        add_vector(list, "markov_head.joint_proj.bias", 3 * rank, &to->markov_joint_bias);
    }
    if (config->confidence) {
        const int64_t in = config->confidence_with_markov ? hidden + rank : hidden;
        add_matrix(list, "confidence_head.proj.weight", 1, in, &to->confidence);
        df_slot *bias = add(list, "confidence_head.proj.bias", 1, 1, 0, 0);
        bias->vector = &to->confidence_bias;
        bias->optional = true;
    }
    list->spelling = ONE_SPELLING;
}

dflash_status df_census_list(const dflash_config *config, df_weights *weights, df_slot **slots, int *count,
                             dflash_error *err) {
    *slots = NULL;
    *count = 0;
    const bool needs_vocab = config->family == DFLASH_FAMILY_DFLASH2 ||
                             (config->family == DFLASH_FAMILY_DSPARK && config->markov != DFLASH_MARKOV_NONE);
    if (needs_vocab && config->vocab <= 0)
        return df_fail(err, DFLASH_ERR_REFUSED, "census.shape",
                       "The config of this %s drafter does not say vocab_size, so the number of rows of its vocabulary "
                       "tables cannot be checked. Expected a positive integer; add vocab_size to config.json.",
                       dflash_family_name(config->family));

    const size_t room = (size_t)config->n_layers * SLOTS_PER_LAYER + SLOTS_OUTSIDE;
    census list = {.slot = calloc(room, sizeof(df_slot)), .spelling = ONE_SPELLING};
    if (list.slot == NULL) return df_fail_memory(err, "the census", room * sizeof(df_slot));

    add_matrix(&list, "fc.weight", config->hidden, (int64_t)config->n_taps * config->hidden, &weights->fc);
    add_vector(&list, "hidden_norm.weight", config->hidden, &weights->hidden_norm);
    add_vector(&list, "norm.weight", config->hidden, &weights->norm);
    for (int i = 0; i < config->n_layers; i++) add_layer(&list, config, i, &weights->layer[i]);
    if (config->family == DFLASH_FAMILY_DFLASH2) add_selector(&list, config, weights);
    if (config->family == DFLASH_FAMILY_DSPARK) add_heads(&list, config, weights);
    *slots = list.slot;
    *count = list.count;
    return DFLASH_OK;
}

static bool starts_with(const char *text, const char *prefix) { return strncmp(text, prefix, strlen(prefix)) == 0; }

bool df_census_ignored(const char *name) {
    if (starts_with(name, "model.")) name += strlen("model.");
    return starts_with(name, "embed_tokens.") || starts_with(name, "lm_head.") || starts_with(name, "rotary_emb.");
}
