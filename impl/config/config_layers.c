/*
 * config_layers.c - which layers slide, how wide their window is and which of them are causal.
 *
 * Public readers disagree about several of these keys (a window without use_sliding_window, use_swa without
 * layer_types, "causal" without "is_causal"). Where a config leaves two readings open it is refused, and one message
 * names every key that must be written.
 */
#include "config/config_limits.h"
#include "config/config_parts.h"
#include "common/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct layer_keys {
    bool has_types, any_sliding;
    bool has_use_sliding, use_sliding; /* use_sliding_window */
    bool has_use_swa, use_swa;         /* another project's switch */
    bool has_window;                   /* sliding_window itself */
    bool has_is_causal, has_causal;    /* is_causal; is_causal or its other spelling */
    bool causal;
    int64_t window;
} layer_keys;

/* What does not fit together; the first one gives the code. */
typedef struct layer_faults {
    const char *code;
    char text[2400];
} layer_faults;

__attribute__((format(printf, 3, 4))) static void note(layer_faults *faults, const char *code, const char *format,
                                                       ...) {
    const size_t used = strlen(faults->text);
    if (faults->code == NULL) faults->code = code;
    const int joint = snprintf(faults->text + used, sizeof faults->text - used, "%s", used > 0 ? "; " : "");
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(faults->text + used + joint, sizeof faults->text - used - (size_t)joint, format, arguments);
    va_end(arguments);
}

static dflash_status read_types(const df_config_doc *doc, dflash_config *out, layer_keys *keys) {
    df_found found;
    const df_key key = {"layer_types", NULL, DF_IN_MODEL, false};
    const dflash_status status = df_config_find(doc, &key, &found);
    if (status != DFLASH_OK || found.item == NULL) return status;
    if (!cJSON_IsArray(found.item)) return df_config_wrong_type(doc, &found, "an array of layer types");
    keys->has_types = true;
    const int count = cJSON_GetArraySize(found.item);
    if (count != out->n_layers)
        return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.layer_types.length",
                       "%s: \"layer_types\" in %s has %d entries, but \"num_hidden_layers\" is %d. There must be one "
                       "type a layer; write both as the checkpoint was trained.",
                       doc->where, found.place, count, out->n_layers);
    int i = 0;
    for (const cJSON *item = found.item->child; item != NULL; item = item->next, i++) {
        if (!cJSON_IsString(item)) return df_config_wrong_type(doc, &found, "an array of strings");
        out->layer[i].sliding = strcmp(item->valuestring, "sliding_attention") == 0;
        keys->any_sliding = keys->any_sliding || out->layer[i].sliding;
        if (!out->layer[i].sliding && strcmp(item->valuestring, "full_attention") != 0)
            return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.layer_types.unknown",
                           "%s: \"layer_types\"[%d] in %s is \"%.60s\". Supported are full_attention and "
                           "sliding_attention; a drafter with another kind of layer is another program.",
                           doc->where, i, found.place, item->valuestring);
    }
    return DFLASH_OK;
}

static dflash_status read_switches(const df_config_doc *doc, layer_keys *keys) {
    dflash_status status = df_config_bool(doc, &(df_key){"use_sliding_window", NULL, DF_IN_MODEL, false},
                                          &keys->has_use_sliding, &keys->use_sliding);
    if (status == DFLASH_OK)
        status =
            df_config_bool(doc, &(df_key){"use_swa", NULL, DF_IN_MODEL, false}, &keys->has_use_swa, &keys->use_swa);
    if (status == DFLASH_OK)
        status = df_config_integer(doc, &(df_key){"sliding_window", NULL, DF_IN_MODEL, false}, 1, DF_LIMIT_WINDOW,
                                   &keys->has_window, &keys->window);
    if (status == DFLASH_OK)
        status =
            df_config_bool(doc, &(df_key){"is_causal", NULL, DF_IN_MODEL, false}, &keys->has_is_causal, &keys->causal);
    if (status == DFLASH_OK)
        status =
            df_config_bool(doc, &(df_key){"is_causal", "causal", DF_IN_MODEL, false}, &keys->has_causal, &keys->causal);
    return status;
}

/* Without layer_types every layer is full, unless a switch says otherwise. */
static dflash_status resolve_untyped(const df_config_doc *doc, dflash_config *out, layer_keys *keys,
                                     layer_faults *faults) {
    if (keys->use_swa) {
        if (!keys->has_is_causal)
            note(faults, "config.causal.ambiguous",
                 "\"use_swa\" is true, and there is neither \"layer_types\" nor \"is_causal\": some engines run such "
                 "sliding layers causally and some do not, so \"is_causal\" must say it");
        keys->any_sliding = true;
        for (int i = 0; i < out->n_layers; i++) out->layer[i].sliding = true;
        return DFLASH_OK;
    }
    if (!keys->use_sliding || !keys->has_window) return DFLASH_OK;
    int64_t full_below = 28; /* the default of the reference's config class: layers from here on would slide */
    const dflash_status status = df_config_integer(doc, &(df_key){"max_window_layers", NULL, DF_IN_MODEL, false}, 0,
                                                   INT32_MAX, NULL, &full_below);
    if (status == DFLASH_OK && full_below < out->n_layers)
        note(faults, "config.window.ambiguous",
             "there is no \"layer_types\", \"use_sliding_window\" is true and \"max_window_layers\" is %d with %d "
             "layers, so some readers would make the later layers slide and some none: \"layer_types\" must say it",
             (int)full_below, out->n_layers);
    return status;
}

static dflash_status resolve_window(const df_config_doc *doc, dflash_config *out, layer_keys *keys,
                                    layer_faults *faults) {
    if (keys->has_types && keys->has_use_swa && keys->use_swa != keys->any_sliding)
        note(faults, "config.window.contradiction", "\"use_swa\" is %s, but \"layer_types\" has %s",
             keys->use_swa ? "true" : "false", keys->any_sliding ? "sliding layers" : "no sliding layer");
    if (!keys->any_sliding && !keys->use_swa) return DFLASH_OK;
    if (keys->has_use_sliding && !keys->use_sliding)
        note(faults, "config.window.contradiction",
             "\"use_sliding_window\" is false, and where layers slide it must be true");
    if (!keys->has_use_sliding && !keys->use_swa)
        note(faults, "config.window.ambiguous",
             "there are sliding layers, but no \"use_sliding_window\": the reference's config class takes its absence "
             "as false and drops the window, other engines keep it");
    /* The second spelling may confirm the window, but only where use_swa itself is in force does it give one. */
    bool stated = false;
    const dflash_status status =
        df_config_integer(doc, &(df_key){"sliding_window", "swa_window_size", DF_IN_MODEL, false}, 1, DF_LIMIT_WINDOW,
                          &stated, &keys->window);
    if (status != DFLASH_OK) return status;
    if (!stated || (keys->has_types && !keys->has_window))
        note(faults, "config.window.missing",
             "\"sliding_window\", the width of the window of sliding layers (at least 1), is missing or null, and is "
             "never guessed");
    if (keys->any_sliding) out->sliding_window = (int32_t)keys->window;
    return DFLASH_OK;
}

static dflash_status resolve_causality(const df_config_doc *doc, dflash_config *out, const layer_keys *keys,
                                       layer_faults *faults) {
    bool has_non_causal = false, non_causal = false;
    const dflash_status status = df_config_bool(doc, &(df_key){"sliding_window_non_causal", NULL, DF_IN_MODEL, false},
                                                &has_non_causal, &non_causal);
    if (status != DFLASH_OK) return status;
    const char *other = NULL; /* a key that some readers follow and the reference does not */
    for (int i = 0; i < out->n_layers; i++) {
        dflash_layer_config *layer = &out->layer[i];
        layer->window = layer->sliding ? out->sliding_window : 0;
        layer->causal = keys->has_is_causal ? keys->causal : layer->sliding;
        if (other != NULL) continue;
        const bool slides = layer->sliding || keys->use_swa; /* what layer_types will say once it agrees */
        const bool causal = keys->has_is_causal ? keys->causal : slides;
        if (keys->has_causal && keys->causal != causal) other = "causal";
        if (has_non_causal && slides && non_causal == causal) other = "sliding_window_non_causal";
        if (other != NULL)
            note(faults, "config.causal.ambiguous",
                 "layer %d is %s by %s, but \"%s\" says the opposite, and readers differ in which key they follow: "
                 "\"is_causal\" must say it and agree",
                 i, causal ? "causal" : "not causal",
                 keys->has_is_causal ? "\"is_causal\""
                 : slides            ? "sliding"
                                     : "being full",
                 other);
    }
    return DFLASH_OK;
}

/* The one reference of dspark makes its masks itself: sliding layers are causal inside the block and see the whole of
 * it, full layers see everything. */
static dflash_status require_reference_mask(const df_config_doc *doc, const dflash_config *out) {
    for (int i = 0; i < out->n_layers; i++) {
        const dflash_layer_config *layer = &out->layer[i];
        if (layer->causal != layer->sliding)
            return df_fail(
                doc->err, DFLASH_ERR_REFUSED, "config.dspark.mask",
                "%s: layer %d is a %s layer and %s, but the reference of dspark runs sliding layers causally "
                "and full layers not, whatever \"is_causal\" says. Nothing says what another mask computes, so "
                "this drafter cannot be judged here; do not change the key.",
                doc->where, i, layer->sliding ? "sliding" : "full", layer->causal ? "causal" : "not causal");
        if (layer->sliding && layer->window < out->block)
            return df_fail(
                doc->err, DFLASH_ERR_REFUSED, "config.dspark.mask",
                "%s: \"sliding_window\" is %d, less than \"block_size\" %d, and the reference of dspark has no "
                "window inside the block. Nothing says what such a window computes, so this drafter cannot be "
                "judged here; do not change the keys.",
                doc->where, layer->window, out->block);
    }
    return DFLASH_OK;
}

dflash_status df_config_layers(const df_config_doc *doc, dflash_config *out) {
    layer_keys keys = {0};
    layer_faults faults = {0};
    dflash_status status = read_types(doc, out, &keys);
    if (status == DFLASH_OK) status = read_switches(doc, &keys);
    if (status == DFLASH_OK && !keys.has_types) status = resolve_untyped(doc, out, &keys, &faults);
    if (status == DFLASH_OK) status = resolve_window(doc, out, &keys, &faults);
    if (status == DFLASH_OK) status = resolve_causality(doc, out, &keys, &faults);
    if (status != DFLASH_OK) return status;
    if (faults.code == NULL) return out->family == DFLASH_FAMILY_DSPARK ? require_reference_mask(doc, out) : DFLASH_OK;
    return df_fail(
        doc->err, DFLASH_ERR_REFUSED, faults.code,
        "%s: %s. Write every key named here as the checkpoint was trained: another choice is another drafter.",
        doc->where, faults.text);
}
