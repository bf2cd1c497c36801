/*
 * geometry_config.c - from a geometry record back to the config it describes, so that files can be judged without a
 * checkpoint.
 *
 * Only what cannot be put into a dflash_config at all is refused here. Everything else is settled by making the record
 * of the result and comparing: a key that is missing, unknown or contradictory does not survive the way there and back.
 */
#include "preflight/geometry.h"

#include "common/error.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* The record being read; the first field that cannot be held is remembered. */
typedef struct reader {
    const cJSON *object;
    const char *bad; /* key, NULL while all is well */
} reader;

static void refuse(reader *r, const char *key) {
    if (r->bad == NULL) r->bad = key;
}

static double real(reader *r, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(r->object, key);
    if (!cJSON_IsNumber(item)) refuse(r, key);
    return cJSON_IsNumber(item) ? item->valuedouble : 0.0;
}

static int64_t whole_of(reader *r, const cJSON *item, const char *key, int64_t low, int64_t high) {
    const double value = cJSON_IsNumber(item) ? item->valuedouble : 0.5;
    if (value >= (double)low && value <= (double)high && (double)(int64_t)value == value) return (int64_t)value;
    refuse(r, key);
    return low;
}

static int32_t whole(reader *r, const char *key, int32_t low) {
    return (int32_t)whole_of(r, cJSON_GetObjectItemCaseSensitive(r->object, key), key, low, INT32_MAX);
}

static bool boolean(reader *r, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(r->object, key);
    if (!cJSON_IsBool(item)) refuse(r, key);
    return cJSON_IsTrue(item);
}

static const char *family_name(int i) { return dflash_family_name((dflash_family)i); }
static const char *rope_name(int i) { return dflash_rope_type_name((dflash_rope_type)i); }
static const char *harvest_name(int i) { return dflash_harvest_name((dflash_harvest)i); }
static const char *markov_name(int i) { return dflash_markov_kind_name((dflash_markov_kind)i); }

/* The index, up to `last`, of the name at a key. */
static int choice(reader *r, const char *key, const char *(*name)(int), int last) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(r->object, key));
    for (int i = 0; text != NULL && i <= last; i++)
        if (strcmp(text, name(i)) == 0) return i;
    refuse(r, key);
    return 0;
}

static const cJSON *list(reader *r, const char *key, int least, int most) {
    const cJSON *items = cJSON_GetObjectItemCaseSensitive(r->object, key);
    const int size = cJSON_GetArraySize(items);
    if (cJSON_IsArray(items) && size >= least && size <= most) return items;
    refuse(r, key);
    return NULL;
}

static void read_rope(reader *r, dflash_rope_config *rope) {
    reader inner = {.object = cJSON_GetObjectItemCaseSensitive(r->object, "rope")};
    rope->type = (dflash_rope_type)choice(&inner, "type", rope_name, DFLASH_ROPE_LLAMA3);
    rope->theta = real(&inner, "theta");
    rope->rotary_dim = whole(&inner, "rotary_dim", 2);
    rope->attention_factor = real(&inner, "attention_scaling");
    rope->has_attention_factor = rope->type == DFLASH_ROPE_YARN;
    if (rope->type != DFLASH_ROPE_DEFAULT) rope->factor = real(&inner, "factor");
    if (rope->type == DFLASH_ROPE_YARN || rope->type == DFLASH_ROPE_LLAMA3)
        rope->original_max_position = whole(&inner, "original_max_position_embeddings", 1);
    if (rope->type == DFLASH_ROPE_YARN) {
        rope->beta_fast = real(&inner, "beta_fast");
        rope->beta_slow = real(&inner, "beta_slow");
        rope->truncate = boolean(&inner, "truncate");
    }
    if (rope->type == DFLASH_ROPE_LLAMA3) {
        rope->low_freq_factor = real(&inner, "low_freq_factor");
        rope->high_freq_factor = real(&inner, "high_freq_factor");
    }
    if (inner.bad != NULL) refuse(r, "rope");
}

static void read_layers(reader *r, dflash_config *c) {
    c->n_layers = (int32_t)whole_of(r, cJSON_GetObjectItemCaseSensitive(r->object, "num_hidden_layers"),
                                    "num_hidden_layers", 1, DFLASH_MAX_LAYERS);
    const cJSON *types = list(r, "layer_types", c->n_layers, c->n_layers);
    const cJSON *causal = list(r, "is_causal", c->n_layers, c->n_layers);
    const cJSON *window = list(r, "sliding_window", c->n_layers, c->n_layers);
    const cJSON *taps = list(r, "target_layer_ids", 1, DFLASH_MAX_TAPS);
    for (int i = 0; r->bad == NULL && i < c->n_layers; i++) {
        const char *type = cJSON_GetStringValue(cJSON_GetArrayItem(types, i));
        c->layer[i].sliding = type != NULL && strcmp(type, "sliding_attention") == 0;
        c->layer[i].causal = cJSON_IsTrue(cJSON_GetArrayItem(causal, i));
        c->layer[i].window = (int32_t)whole_of(r, cJSON_GetArrayItem(window, i), "sliding_window", 0, INT32_MAX);
        if (c->layer[i].window > c->sliding_window) c->sliding_window = c->layer[i].window;
    }
    c->n_taps = cJSON_GetArraySize(taps);
    for (int i = 0; r->bad == NULL && i < c->n_taps; i++)
        c->taps[i] = (int32_t)whole_of(r, cJSON_GetArrayItem(taps, i), "target_layer_ids", -1, INT32_MAX);
}

static void read_family_parts(reader *r, dflash_config *c) {
    if (c->family == DFLASH_FAMILY_DFLASH2) {
        c->conv_kernel = whole(r, "conv_kernel_size", 1);
        c->conv_group = whole(r, "conv_group_size", 1);
        c->selector_rank = whole(r, "selector_rank", 1);
        c->selector_top_k = whole(r, "selector_top_k", 1);
        c->selector_vocab = whole(r, "selector_vocab_size", 0);
    }
    if (c->family == DFLASH_FAMILY_DSPARK) {
        c->markov = (dflash_markov_kind)choice(r, "markov", markov_name, DFLASH_MARKOV_RNN);
        c->markov_rank = whole(r, "markov_rank", 0);
        c->confidence = boolean(r, "confidence");
        c->confidence_with_markov = boolean(r, "confidence_with_markov");
    }
}

dflash_status dp_geometry_config(const cJSON *record, const char *where, dflash_config *out, dflash_error *err) {
    reader r = {.object = record};
    dflash_config *c = out;
    *c = (dflash_config){.family = DFLASH_FAMILY_DFLASH};
    c->family = (dflash_family)choice(&r, "family", family_name, DFLASH_FAMILY_DFLASH2);
    c->hidden = whole(&r, "hidden_size", 1);
    c->n_heads = whole(&r, "num_attention_heads", 1);
    c->n_kv_heads = whole(&r, "num_key_value_heads", 1);
    c->head_dim = whole(&r, "head_dim", 2);
    c->intermediate = whole(&r, "intermediate_size", 1);
    c->block = whole(&r, "block_size", 1);
    c->mask_token_id = whole(&r, "mask_token_id", INT32_MIN);
    c->vocab = whole(&r, "vocab_size", 0);
    c->rms_eps = real(&r, "rms_norm_eps");
    c->attention_bias = boolean(&r, "attention_bias");
    c->harvest = (dflash_harvest)choice(&r, "harvest", harvest_name, DFLASH_HARVEST_SHIFTED);
    c->input_embedding_scale = real(&r, "input_embedding_scale");
    c->output_multiplier = real(&r, "output_multiplier");
    c->logit_softcap = real(&r, "final_logit_softcapping");
    read_layers(&r, c);
    read_rope(&r, &c->rope);
    read_family_parts(&r, c);
    if (r.bad != NULL || c->n_heads % c->n_kv_heads != 0 ||
        (c->family == DFLASH_FAMILY_DFLASH2 && c->hidden % c->conv_group != 0))
        return df_fail(err, DFLASH_ERR_REFUSED, "geometry.field.malformed",
                       "%s: the geometry field %s is missing, or holds what no drafter has; expected the record of "
                       "oracles/FORMAT.md, with heads that divide evenly. Write the file again.",
                       where, r.bad != NULL ? r.bad : "num_key_value_heads or conv_group_size");
    cJSON *again = dp_geometry_of(c);
    if (again == NULL) return df_fail_memory(err, "a geometry record", 0);
    const dflash_status status = dp_geometry_compare(again, record, "the rest of the record", where, err);
    cJSON_Delete(again);
    return status;
}
