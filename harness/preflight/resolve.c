/*
 * resolve.c - see resolve.h; the rotary embedding is resolve_rope.c's.
 *
 * A key of the drafter sits at the top level or in dflash_config, a null counts as absent, and where both have it both
 * say the same (the drafter refuses the rest).
 */
#include "preflight/resolve.h"

#include "common/error.h"
#include "preflight/resolve_rope.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The config being resolved, the record under construction, and the first key that stopped it. */
typedef struct resolver {
    const cJSON *root;
    cJSON *record;
    const char *bad; /* NULL while all is well */
    bool failed;     /* out of memory */
} resolver;

static const cJSON *key_of(const resolver *r, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(r->root, key);
    if (item != NULL && !cJSON_IsNull(item)) return item;
    item = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(r->root, "dflash_config"), key);
    return cJSON_IsNull(item) ? NULL : item;
}

static double number_or(const resolver *r, const char *key, double absent) {
    const cJSON *item = key_of(r, key);
    return cJSON_IsNumber(item) ? item->valuedouble : absent;
}

static double demand(resolver *r, const char *key) {
    if (!cJSON_IsNumber(key_of(r, key)) && r->bad == NULL) r->bad = key;
    return number_or(r, key, 0.0);
}

static void put(resolver *r, const char *name, cJSON *value) {
    if (value != NULL && cJSON_AddItemToObject(r->record, name, value)) return;
    cJSON_Delete(value);
    r->failed = true;
}

static void put_number(resolver *r, const char *name, double value) { put(r, name, cJSON_CreateNumber(value)); }

static void push(resolver *r, cJSON *list, cJSON *value) {
    if (value != NULL && list != NULL && cJSON_AddItemToArray(list, value)) return;
    cJSON_Delete(value);
    r->failed = true;
}

/* ---- The family and its parts ---- */

static const char *family_of(resolver *r) {
    const char *name = cJSON_GetStringValue(cJSON_GetArrayItem(key_of(r, "architectures"), 0));
    const char *projector = cJSON_GetStringValue(key_of(r, "projector_type"));
    if (name == NULL && r->bad == NULL) r->bad = "architectures";
    if (name == NULL) return "dflash";
    if (strstr(name, "DSpark") != NULL) return "dspark";
    if (strcmp(name, "DFlash2DraftModel") == 0) return "dflash2";
    return projector != NULL && strcmp(projector, "dspark") == 0 ? "dspark" : "dflash";
}

static void put_dflash2(resolver *r) {
    static const char *const plain[] = {"conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) put_number(r, plain[i], demand(r, plain[i]));
    put_number(r, "selector_vocab_size", number_or(r, "selector_vocab_size", demand(r, "vocab_size")));
}

/* Training code attaches a confidence head when it is enabled, under either name, or when its loss has a weight. */
static bool has_confidence(const resolver *r) {
    const cJSON *said = key_of(r, "enable_confidence_head");
    if (said == NULL) said = key_of(r, "use_confidence_head");
    return said != NULL ? cJSON_IsTrue(said) : number_or(r, "confidence_head_alpha", 0.0) > 0.0;
}

static void put_dspark(resolver *r) {
    const double rank = number_or(r, "markov_rank", 0.0);
    const char *kind = cJSON_GetStringValue(key_of(r, "markov_head_type"));
    char lower[16] = "vanilla";
    if (kind != NULL) snprintf(lower, sizeof lower, "%s", kind);
    for (char *c = lower; *c != '\0'; c++)
        if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
    put(r, "markov", cJSON_CreateString(rank > 0.0 ? lower : "none"));
    put_number(r, "markov_rank", rank);
    put(r, "confidence", cJSON_CreateBool(has_confidence(r)));
    put(r, "confidence_with_markov",
        cJSON_CreateBool(has_confidence(r) && cJSON_IsTrue(key_of(r, "confidence_head_with_markov"))));
}

/* ---- Layers ---- */

/* What each layer is: its type where types are written, sliding everywhere where use_swa says so without them. */
static bool slides(const resolver *r, int layer) {
    const cJSON *types = key_of(r, "layer_types");
    if (!cJSON_IsArray(types)) return cJSON_IsTrue(key_of(r, "use_swa"));
    const char *type = cJSON_GetStringValue(cJSON_GetArrayItem(types, layer));
    return type != NULL && strcmp(type, "sliding_attention") == 0;
}

static void put_layers(resolver *r) {
    const cJSON *causal = key_of(r, "is_causal"), *taps = key_of(r, "target_layer_ids"), *tap;
    const int layers = (int)demand(r, "num_hidden_layers");
    cJSON *tap_list = cJSON_AddArrayToObject(r->record, "target_layer_ids"),
          *types = cJSON_AddArrayToObject(r->record, "layer_types"),
          *causals = cJSON_AddArrayToObject(r->record, "is_causal"),
          *windows = cJSON_AddArrayToObject(r->record, "sliding_window");
    const double window = number_or(r, "sliding_window", number_or(r, "swa_window_size", 0.0));
    cJSON_ArrayForEach(tap, taps) push(r, tap_list, cJSON_CreateNumber(tap->valuedouble));
    for (int i = 0; i < layers && i < DFLASH_MAX_LAYERS; i++) {
        const bool sliding = slides(r, i);
        push(r, types, cJSON_CreateString(sliding ? "sliding_attention" : "full_attention"));
        push(r, causals, cJSON_CreateBool(cJSON_IsBool(causal) ? cJSON_IsTrue(causal) : sliding));
        push(r, windows, cJSON_CreateNumber(sliding ? window : 0.0));
    }
}

/* ---- The whole ---- */

static void put_sizes(resolver *r, const char *family) {
    static const char *const demanded[] = {"hidden_size",       "num_attention_heads", "num_key_value_heads",
                                           "intermediate_size", "num_hidden_layers",   "block_size",
                                           "mask_token_id",     "rms_norm_eps"};
    put(r, "family", cJSON_CreateString(family));
    for (size_t i = 0; i < sizeof demanded / sizeof *demanded; i++) put_number(r, demanded[i], demand(r, demanded[i]));
    put_number(r, "vocab_size", number_or(r, "vocab_size", 0.0));
    put(r, "attention_bias", cJSON_CreateBool(cJSON_IsTrue(key_of(r, "attention_bias"))));
    put(r, "harvest", cJSON_CreateString(strcmp(family, "dspark") == 0 ? "shifted" : "mask_fill"));
    put_number(r, "input_embedding_scale", number_or(r, "input_embedding_scale", 1.0));
    put_number(r, "output_multiplier", number_or(r, "output_multiplier", 1.0));
    put_number(r, "final_logit_softcapping", number_or(r, "final_logit_softcapping", 0.0));
}

static void build(resolver *r) {
    const char *family = family_of(r);
    put_sizes(r, family);
    if (r->bad != NULL) return;
    const double head_dim =
        number_or(r, "head_dim", number_or(r, "hidden_size", 0.0) / number_or(r, "num_attention_heads", 1.0));
    put_number(r, "head_dim", head_dim);
    put_layers(r);
    bool any_full = false;
    for (int i = 0; i < (int)demand(r, "num_hidden_layers") && i < DFLASH_MAX_LAYERS; i++)
        any_full = any_full || !slides(r, i);
    put(r, "rope", dp_resolve_rope(r->root, (int)head_dim, any_full, &r->bad));
    if (strcmp(family, "dflash2") == 0) put_dflash2(r);
    if (strcmp(family, "dspark") == 0) put_dspark(r);
}

dflash_status dp_resolve(const char *text, const char *where, cJSON **out, dflash_error *err) {
    resolver r = {.root = NULL};
    *out = NULL;
    cJSON *root = cJSON_ParseWithOpts(text, NULL, true);
    r.root = root;
    r.record = cJSON_CreateObject();
    r.bad = cJSON_IsObject(root) ? NULL : "architectures";
    r.failed = r.record == NULL;
    if (r.bad == NULL && !r.failed) build(&r);
    dflash_status status = DFLASH_OK;
    if (r.bad != NULL)
        status =
            df_fail(err, DFLASH_ERR_REFUSED, "resolve.config",
                    "%s: the harness needs the key \"%s\" to know what the config says: it is missing or of another "
                    "type. Write it as the checkpoint was trained.",
                    where, r.bad);
    else if (r.failed)
        status = df_fail_memory(err, "the geometry record of a config", strlen(text));
    cJSON_Delete(root);
    if (status == DFLASH_OK)
        *out = r.record;
    else
        cJSON_Delete(r.record);
    return status;
}
