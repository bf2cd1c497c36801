/*
 * config.c - reads a config.json and resolves the sizes that every family has.
 *
 * The family (config_family.c), the layers (config_layers.c) and the rotary embedding (config_rope.c) have files of
 * their own; this one runs them in order, and holds the names of the enumerations.
 */
#include "config/config.h"
#include "config/config_json.h"
#include "config/config_keys.h"
#include "config/config_limits.h"
#include "config/config_parts.h"
#include "common/error.h"
#include "common/regular_file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

const char *dflash_family_name(dflash_family family) {
    switch (family) {
    case DFLASH_FAMILY_DFLASH:
        return "dflash";
    case DFLASH_FAMILY_DSPARK:
        return "dspark";
    case DFLASH_FAMILY_DFLASH2:
        return "dflash2";
    }
    return "?";
}

const char *dflash_rope_type_name(dflash_rope_type type) {
    switch (type) {
    case DFLASH_ROPE_DEFAULT:
        return "default";
    case DFLASH_ROPE_LINEAR:
        return "linear";
    case DFLASH_ROPE_YARN:
        return "yarn";
    case DFLASH_ROPE_LLAMA3:
        return "llama3";
    }
    return "?";
}

const char *dflash_harvest_name(dflash_harvest harvest) {
    switch (harvest) {
    case DFLASH_HARVEST_MASK_FILL:
        return "mask_fill";
    case DFLASH_HARVEST_SHIFTED:
        return "shifted";
    }
    return "?";
}

const char *dflash_markov_kind_name(dflash_markov_kind kind) {
    switch (kind) {
    case DFLASH_MARKOV_NONE:
        return "none";
    case DFLASH_MARKOV_VANILLA:
        return "vanilla";
    case DFLASH_MARKOV_GATED:
        return "gated";
    case DFLASH_MARKOV_RNN:
        return "rnn";
    }
    return "?";
}

/* Facts that would make the backbone another program. */
dflash_status df_config_backbone(const df_config_doc *doc) {
    const char *activation = NULL, *model_type = NULL;
    dflash_status status = df_config_string(doc, &(df_key){"hidden_act", NULL, DF_IN_MODEL, false}, &activation);
    if (status == DFLASH_OK)
        status = df_config_string(doc, &(df_key){"model_type", NULL, DF_IN_TOP, false}, &model_type);
    if (status != DFLASH_OK) return status;
    if (activation != NULL && strcmp(activation, "silu") != 0)
        return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.activation.unsupported",
                       "%s: \"hidden_act\" is \"%.60s\", and only \"silu\" is supported. Another activation is another "
                       "MLP, so this drafter cannot be judged here; do not change the key.",
                       doc->where, activation);
    /* Drafters on these backbones store norm weights as offsets from one, or other heads in global layers. */
    static const char *const other_norms[] = {"qwen3_5", "gemma4_text"};
    for (size_t i = 0; i < sizeof other_norms / sizeof other_norms[0]; i++)
        if (model_type != NULL && strncmp(model_type, other_norms[i], strlen(other_norms[i])) == 0)
            return df_fail(
                doc->err, DFLASH_ERR_REFUSED, "config.model_type.unsupported",
                "%s: \"model_type\" is \"%.60s\", a backbone whose norms are not the ones computed here. "
                "Supported drafters use the qwen3 backbone, whatever their target is; do not change the key.",
                doc->where, model_type);
    return DFLASH_OK;
}

static dflash_status check_twins(const df_config_doc *doc, const dflash_config *config) {
    const struct {
        const char *key, *twin;
        int32_t expected;
    } twins[] = {{"target_hidden_size", "hidden_size", config->hidden},
                 {"draft_vocab_size", "vocab_size", config->vocab}};
    for (size_t i = 0; i < sizeof twins / sizeof twins[0]; i++) {
        bool present = false;
        int64_t value = 0;
        const dflash_status status =
            df_config_integer(doc, &(df_key){twins[i].key, NULL, DF_IN_MODEL, false}, 1, INT32_MAX, &present, &value);
        if (status != DFLASH_OK) return status;
        if (present && value != twins[i].expected)
            return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.feature.unsupported",
                           "%s: \"%s\" is %lld, but \"%s\" is %d (0 = not given). A drafter whose two sizes differ has "
                           "a mapping between them that is not supported.",
                           doc->where, twins[i].key, (long long)value, twins[i].twin, twins[i].expected);
    }
    return DFLASH_OK;
}

/* What the training code calls the sharing of key/value heads; it refuses a word that the counts do not bear out. */
static dflash_status check_attention_mode(const df_config_doc *doc, const dflash_config *config) {
    const char *mode = NULL;
    const dflash_status status = df_config_string(doc, &(df_key){"attention_mode", NULL, DF_IN_MODEL, false}, &mode);
    if (status != DFLASH_OK || mode == NULL) return status;
    const char *expected = config->n_kv_heads == config->n_heads ? "mha" : "gqa";
    if (strcasecmp(mode, expected) == 0) return DFLASH_OK;
    return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.attention.unsupported",
                   "%s: \"attention_mode\" is \"%.60s\", and with %d query and %d key/value heads only \"%s\" is "
                   "supported. Another attention (mla, for one) is another program; do not change the key.",
                   doc->where, mode, config->n_heads, config->n_kv_heads, expected);
}

static dflash_status read_heads(const df_config_doc *doc, dflash_config *out) {
    if (out->n_heads % out->n_kv_heads != 0)
        return df_fail(
            doc->err, DFLASH_ERR_REFUSED, "config.heads.indivisible",
            "%s: \"num_attention_heads\" %d is not a multiple of \"num_key_value_heads\" %d. Every key/value "
            "head serves an equal group of query heads; write both as the checkpoint was trained.",
            doc->where, out->n_heads, out->n_kv_heads);
    if (out->head_dim != 0) return DFLASH_OK;
    if (out->hidden % out->n_heads != 0 || out->hidden / out->n_heads > DF_LIMIT_HEAD_DIM)
        return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.head_dim.indivisible",
                       "%s: there is no \"head_dim\", and \"hidden_size\" %d divided by \"num_attention_heads\" %d is "
                       "not a whole number up to %d. Write \"head_dim\".",
                       doc->where, out->hidden, out->n_heads, DF_LIMIT_HEAD_DIM);
    out->head_dim = out->hidden / out->n_heads;
    return DFLASH_OK;
}

static dflash_status read_taps(const df_config_doc *doc, dflash_config *out) {
    df_found found;
    dflash_status status = df_config_find(doc, &(df_key){"target_layer_ids", NULL, DF_IN_MODEL, false}, &found);
    if (status != DFLASH_OK) return status;
    if (!cJSON_IsArray(found.item)) return df_config_wrong_type(doc, &found, "an array of layer numbers");
    const int count = cJSON_GetArraySize(found.item);
    if (count < 1 || count > DFLASH_MAX_TAPS)
        return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.taps.count",
                       "%s: \"target_layer_ids\" in %s has %d entries. There must be from 1 to %d tapped layers; "
                       "write the list that the checkpoint was trained with.",
                       doc->where, found.place, count, (int)DFLASH_MAX_TAPS);
    const int32_t lowest = out->family == DFLASH_FAMILY_DSPARK ? -1 : 0;
    const int32_t end = out->n_target_layers != 0 ? out->n_target_layers : DF_LIMIT_TARGET_LAYERS;
    for (const cJSON *item = found.item->child; item != NULL; item = item->next) {
        int64_t id = 0;
        status = df_config_to_integer(doc, &(df_found){item, found.name, found.place}, INT32_MIN, INT32_MAX, &id);
        if (status != DFLASH_OK) return status;
        if (id < lowest || id >= end)
            return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.taps.range",
                           "%s: \"target_layer_ids\"[%d] in %s is %lld. A %s drafter taps layers from %d up to, not "
                           "including, %d (%s; -1 is the embedding output and exists for dspark only); write the list "
                           "that the checkpoint was "
                           "trained with.",
                           doc->where, out->n_taps, found.place, (long long)id, dflash_family_name(out->family), lowest,
                           end, out->n_target_layers != 0 ? "num_target_layers" : "the most any target has");
        for (int i = 0; i < out->n_taps; i++)
            if (out->taps[i] == (int32_t)id)
                return df_fail(
                    doc->err, DFLASH_ERR_REFUSED, "config.taps.repeated",
                    "%s: \"target_layer_ids\" in %s holds %lld twice, at [%d] and [%d]. Every tap is another "
                    "layer; write the list that the checkpoint was trained with.",
                    doc->where, found.place, (long long)id, i, out->n_taps);
        out->taps[out->n_taps++] = (int32_t)id;
    }
    return DFLASH_OK;
}

static dflash_status read_scale(const df_config_doc *doc, const char *name, double *value) {
    const df_key key = {name, NULL, DF_IN_MODEL, false};
    const dflash_status status =
        df_config_number(doc, &key, (df_range){-DF_LIMIT_SCALE, DF_LIMIT_SCALE, false}, NULL, value);
    if (status != DFLASH_OK || fabs(*value) >= 1 / DF_LIMIT_SCALE) return status;
    return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.key.range",
                   "%s: \"%s\" is %.17g. It multiplies every value, so it must not be zero or vanishingly small (below "
                   "%g); write the one that the checkpoint was trained with.",
                   doc->where, name, *value, 1 / DF_LIMIT_SCALE);
}

static dflash_status read_mask_token(const df_config_doc *doc, dflash_config *out) {
    const dflash_status status = df_config_integer(doc, &(df_key){"mask_token_id", NULL, DF_IN_MODEL, false}, 0,
                                                   DF_LIMIT_VOCAB, NULL, &out->mask_token_id);
    if (status != DFLASH_OK || out->vocab == 0 || out->mask_token_id < out->vocab) return status;
    return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.mask_token.range",
                   "%s: \"mask_token_id\" is %lld, but \"vocab_size\" is %d. The mask is embedded with the target's "
                   "table, so it must be a token of it; write both as the checkpoint was trained.",
                   doc->where, (long long)out->mask_token_id, out->vocab);
}

dflash_status df_config_geometry(const df_config_doc *doc, dflash_config *out) {
    const df_integer_rule rules[] = {
        {{"hidden_size", NULL, DF_IN_MODEL, false}, 1, DF_LIMIT_HIDDEN, offsetof(dflash_config, hidden)},
        {{"num_attention_heads", NULL, DF_IN_MODEL, false}, 1, DF_LIMIT_HEADS, offsetof(dflash_config, n_heads)},
        {{"num_key_value_heads", NULL, DF_IN_MODEL, false}, 1, DF_LIMIT_HEADS, offsetof(dflash_config, n_kv_heads)},
        {{"head_dim", NULL, DF_IN_MODEL, false}, 1, DF_LIMIT_HEAD_DIM, offsetof(dflash_config, head_dim)},
        {{"intermediate_size", NULL, DF_IN_MODEL, false},
         1,
         DF_LIMIT_INTERMEDIATE,
         offsetof(dflash_config, intermediate)},
        {{"num_hidden_layers", NULL, DF_IN_MODEL, false}, 1, DFLASH_MAX_LAYERS, offsetof(dflash_config, n_layers)},
        {{"block_size", NULL, DF_IN_MODEL, false}, 1, DF_LIMIT_BLOCK, offsetof(dflash_config, block)},
        {{"vocab_size", NULL, DF_IN_MODEL, false}, 1, DF_LIMIT_VOCAB, offsetof(dflash_config, vocab)},
        {{"num_target_layers", NULL, DF_IN_MODEL, false},
         1,
         DF_LIMIT_TARGET_LAYERS,
         offsetof(dflash_config, n_target_layers)},
    };
    out->input_embedding_scale = 1;
    out->output_multiplier = 1;
    dflash_status status = df_config_integers(doc, rules, sizeof rules / sizeof rules[0], out);
    if (status == DFLASH_OK)
        status = df_config_integer(doc, &(df_key){"max_position_embeddings", NULL, DF_IN_MODEL, false}, 1,
                                   DF_LIMIT_POSITION, NULL, &out->max_position);
    if (status == DFLASH_OK) status = read_heads(doc, out);
    if (status == DFLASH_OK) status = read_taps(doc, out);
    if (status == DFLASH_OK) status = read_mask_token(doc, out);
    if (status == DFLASH_OK)
        status = df_config_number(doc, &(df_key){"rms_norm_eps", NULL, DF_IN_MODEL, false}, (df_range){0, 1, true},
                                  NULL, &out->rms_eps);
    if (status == DFLASH_OK)
        status = df_config_bool(doc, &(df_key){"attention_bias", NULL, DF_IN_MODEL, false}, NULL, &out->attention_bias);
    if (status == DFLASH_OK) status = read_scale(doc, "input_embedding_scale", &out->input_embedding_scale);
    if (status == DFLASH_OK) status = read_scale(doc, "output_multiplier", &out->output_multiplier);
    if (status == DFLASH_OK)
        status = df_config_number(doc, &(df_key){"final_logit_softcapping", NULL, DF_IN_MODEL, false},
                                  (df_range){0, DF_LIMIT_SCALE, false}, NULL, &out->logit_softcap);
    if (status == DFLASH_OK) status = check_attention_mode(doc, out);
    return status == DFLASH_OK ? check_twins(doc, out) : status;
}

/* Whether a part found nothing. The first fault keeps its code; what else is wrong is told behind it, without the name
 * of the file again. */
static bool settle(dflash_status status, dflash_error *all, dflash_error *one, const char *where) {
    if (status == DFLASH_OK) return true;
    if (all->status == DFLASH_OK) {
        *all = *one;
    } else {
        const size_t used = strlen(all->message), name = strlen(where);
        const bool named = strncmp(one->message, where, name) == 0 && strncmp(one->message + name, ": ", 2) == 0;
        snprintf(all->message + used, sizeof all->message - used, " And: %s", one->message + (named ? name + 2 : 0));
    }
    *one = (dflash_error){0};
    return false;
}

/* All that is wrong, as far as one fault does not hide another: values are not looked at while keys are missing, nor
 * layers, rope and heads while sizes are wrong. */
static dflash_status read_parts(const df_config_doc *doc, dflash_config *out) {
    dflash_error all = {0}, one = {0};
    df_config_doc part = *doc;
    part.err = &one;
    if (settle(df_config_missing(&part, out->family), &all, &one, doc->where) &&
        settle(df_config_geometry(&part, out), &all, &one, doc->where)) {
        settle(df_config_layers(&part, out), &all, &one, doc->where);
        settle(df_config_rope(&part, out), &all, &one, doc->where);
        settle(df_config_heads(&part, out), &all, &one, doc->where);
    }
    settle(df_config_backbone(&part), &all, &one, doc->where);
    settle(df_config_unread(&part, out->family), &all, &one, doc->where);
    if (all.status != DFLASH_OK && doc->err != NULL) *doc->err = all;
    return all.status;
}

dflash_status df_config_parse(const char *text, size_t length, const char *where, dflash_config *out,
                              dflash_error *err) {
    if (text == NULL || where == NULL || out == NULL)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "config.argument",
                       "df_config_parse needs a text, a name for it and a place for the result; one of them is null.");
    memset(out, 0, sizeof *out);
    cJSON *root = NULL;
    dflash_status status = df_config_json_parse(text, length, where, &root, err);
    if (status != DFLASH_OK) return status;
    df_config_doc doc;
    status = df_config_doc_init(&doc, root, where, err);
    if (status == DFLASH_OK) status = df_config_packaging(&doc);
    if (status == DFLASH_OK) status = df_config_rope_places(&doc);
    if (status == DFLASH_OK) status = df_config_family(&doc, out);
    if (status == DFLASH_OK) status = read_parts(&doc, out);
    cJSON_Delete(root);
    return status;
}

static dflash_status fail_read(dflash_error *err, const char *path, const char *why) {
    return df_fail(err, DFLASH_ERR_IO, "config.file.read",
                   "%s: the config cannot be read: %s. Check the file and its disk.", path, why);
}

dflash_status dflash_config_read(const char *path, dflash_config *out, dflash_error *err) {
    if (path == NULL || out == NULL)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "config.argument",
                       "dflash_config_read needs a path and a place for the result; one of them is null.");
    dflash_status status = DFLASH_OK;
    char *text = NULL;
    struct stat info;
    const char *kind;
    const int fd = df_open_regular(path, &info, &kind);
    if (fd < 0 && kind != NULL)
        return df_fail(err, DFLASH_ERR_IO, "config.file.kind",
                       "%s: this is %s, and a config must be a regular file. Give the path of config.json itself.",
                       path, kind);
    if (fd < 0)
        return df_fail(
            err, DFLASH_ERR_IO, "config.file.open",
            "%s: the config cannot be opened: %s. A checkpoint is a folder with a readable config.json; check "
            "the path and the permissions.",
            path, strerror(errno));
    if (info.st_size > DF_LIMIT_CONFIG_BYTES) {
        status = df_fail(err, DFLASH_ERR_REFUSED, "config.file.size",
                         "%s: the file has %lld bytes, and a config may have at most %d. This is not a config.json; "
                         "check the path.",
                         path, (long long)info.st_size, DF_LIMIT_CONFIG_BYTES);
        goto cleanup;
    }
    const size_t size = (size_t)info.st_size;
    text = malloc(size + 1); /* one more, so that a file that grows meanwhile shows */
    if (text == NULL) {
        status = df_fail_memory(err, "the text of a config", size + 1);
        goto cleanup;
    }
    size_t used = 0;
    while (used <= size) {
        const ssize_t got = read(fd, text + used, size + 1 - used);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            status = fail_read(err, path, strerror(errno));
            goto cleanup;
        }
        if (got == 0) break;
        used += (size_t)got;
    }
    status = used == size ? df_config_parse(text, size, path, out, err)
                          : fail_read(err, path, "its length changed while it was read");
cleanup:
    free(text);
    close(fd);
    return status;
}
