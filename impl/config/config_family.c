/*
 * config_family.c - which drafter a config describes, and the parts that only one family has.
 *
 * The family comes from `architectures` and projector_type alone, never from which tensors exist. A config that carries
 * another family's signals is refused, because loading it as a plain backbone would compute an untrained model.
 */
#include "config/config_keys.h"
#include "config/config_limits.h"
#include "config/config_parts.h"
#include "common/error.h"

#include <string.h>
#include <strings.h>

/* Told first and alone: everything else that is wrong with such a config follows from it. */
dflash_status df_config_packaging(const df_config_doc *doc) {
    static const struct {
        const char *key, *packaging;
    } signs[] = {
        {"speculators_config", "the speculators package"},  {"speculators_model_type", "the speculators package"},
        {"speculators_version", "the speculators package"}, {"transformer_layer_config", "the speculators package"},
        {"dspark_config", "a \"dspark_config\" section"},   {"text_config", "a \"text_config\" section"}};
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++) {
        df_found found;
        const dflash_status status = df_config_find(doc, &(df_key){signs[i].key, NULL, DF_IN_TOP, false}, &found);
        if (status != DFLASH_OK) return status;
        if (found.item != NULL)
            return df_fail(
                doc->err, DFLASH_ERR_REFUSED, "config.packaging.unsupported",
                "%s: \"%s\" says that this drafter is in the packaging of %s, which keeps its keys in other "
                "places and gives some of them other names and meanings. That packaging is not supported yet, so "
                "this drafter cannot be judged here; do not rewrite the config by hand.",
                doc->where, signs[i].key, signs[i].packaging);
    }
    return DFLASH_OK;
}

static dflash_status read_architecture(const df_config_doc *doc, dflash_config *out) {
    df_found found;
    const df_key key = {"architectures", NULL, DF_IN_TOP, false};
    const dflash_status status = df_config_find(doc, &key, &found);
    if (status != DFLASH_OK) return status;
    if (found.item == NULL) return df_config_missing(doc, DFLASH_FAMILY_DFLASH); /* with what every family needs */
    const cJSON *name = cJSON_IsArray(found.item) ? found.item->child : NULL;
    if (name == NULL || name->next != NULL || !cJSON_IsString(name))
        return df_config_wrong_type(doc, &found, "an array of exactly one architecture name");
    if (strcmp(name->valuestring, "DFlashDraftModel") == 0)
        out->family = DFLASH_FAMILY_DFLASH;
    else if (strcmp(name->valuestring, "DFlash2DraftModel") == 0)
        out->family = DFLASH_FAMILY_DFLASH2;
    else if (strstr(name->valuestring, "DSpark") != NULL)
        out->family = DFLASH_FAMILY_DSPARK;
    else {
        char shown[DF_SHOWN_MAX];
        return df_fail(
            doc->err, DFLASH_ERR_REFUSED, "config.family.unknown",
            "%s: \"architectures\" names %s. Supported are DFlashDraftModel, DFlash2DraftModel and names that "
            "contain DSpark; another architecture is another program and is not run as one of these.",
            doc->where, df_config_show(name, shown));
    }
    return DFLASH_OK;
}

static dflash_status read_projector(const df_config_doc *doc, dflash_config *out) {
    const char *projector = NULL;
    const dflash_status status =
        df_config_string(doc, &(df_key){"projector_type", NULL, DF_IN_MODEL, false}, &projector);
    if (status != DFLASH_OK || projector == NULL) return status;
    dflash_family said;
    if (strcmp(projector, "dspark") == 0)
        said = DFLASH_FAMILY_DSPARK;
    else if (strcmp(projector, "dflash") == 0)
        said = DFLASH_FAMILY_DFLASH;
    else if (strcmp(projector, "dflash2") == 0)
        said = DFLASH_FAMILY_DFLASH2;
    else
        return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.projector.unsupported",
                       "%s: \"projector_type\" is \"%.60s\". Supported kinds are dflash, dspark and dflash2; a %.60s "
                       "drafter is another program and cannot be judged here.",
                       doc->where, projector, projector);
    if (said == DFLASH_FAMILY_DSPARK && out->family == DFLASH_FAMILY_DFLASH) out->family = DFLASH_FAMILY_DSPARK;
    if (said != out->family)
        return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.family.ambiguous",
                       "%s: \"architectures\" says %s, but \"projector_type\" says \"%s\". The two must describe one "
                       "family; write both as the checkpoint was trained.",
                       doc->where, dflash_family_name(out->family), projector);
    return DFLASH_OK;
}

/* Public spellings of one fact: row k predicts the token after its own position. */
static dflash_status check_harvest(const df_config_doc *doc, const dflash_config *config) {
    static const char *const keys[] = {"shift_label", "sample_from_anchor", "query_zero_predicts_next"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        bool present = false, shifted = false;
        const dflash_status status =
            df_config_bool(doc, &(df_key){keys[i], NULL, DF_IN_MODEL, false}, &present, &shifted);
        if (status != DFLASH_OK) return status;
        if (!present || shifted == (config->harvest == DFLASH_HARVEST_SHIFTED)) continue;
        return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.harvest.unsupported",
                       "%s: \"%s\" is %s, and %s drafters are supported only with the other layout of the block "
                       "(harvest %s). Which rows become tokens is a property of the training: this layout is not "
                       "supported yet, and the key must not be changed, because the drafter would then be judged by "
                       "the wrong rows.",
                       doc->where, keys[i], shifted ? "true" : "false", dflash_family_name(config->family),
                       dflash_harvest_name(config->harvest));
    }
    return DFLASH_OK;
}

dflash_status df_config_family(const df_config_doc *doc, dflash_config *out) {
    dflash_status status = read_architecture(doc, out);
    if (status == DFLASH_OK) status = read_projector(doc, out);
    if (status == DFLASH_OK) status = df_config_foreign(doc, out->family);
    if (status != DFLASH_OK) return status;
    out->harvest = out->family == DFLASH_FAMILY_DSPARK ? DFLASH_HARVEST_SHIFTED : DFLASH_HARVEST_MASK_FILL;
    return check_harvest(doc, out);
}

static dflash_status read_dflash2(const df_config_doc *doc, dflash_config *out) {
    static const df_integer_rule rules[] = {
        {{"conv_kernel_size", NULL, DF_IN_MODEL, false}, 1, DF_LIMIT_CONV_KERNEL, offsetof(dflash_config, conv_kernel)},
        {{"conv_group_size", NULL, DF_IN_MODEL, false}, 1, DF_LIMIT_HIDDEN, offsetof(dflash_config, conv_group)},
        {{"selector_rank", NULL, DF_IN_MODEL, false}, 1, DF_LIMIT_RANK, offsetof(dflash_config, selector_rank)},
        {{"selector_top_k", NULL, DF_IN_MODEL, false}, 1, DF_LIMIT_TOP_K, offsetof(dflash_config, selector_top_k)},
        {{"selector_vocab_size", NULL, DF_IN_MODEL, false}, 1, DF_LIMIT_VOCAB, offsetof(dflash_config, selector_vocab)},
    };
    dflash_status status = df_config_integers(doc, rules, sizeof rules / sizeof rules[0], out);
    if (status != DFLASH_OK) return status;
    if (out->hidden % out->conv_group != 0)
        return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.conv.group",
                       "%s: \"conv_group_size\" is %d, which does not divide \"hidden_size\" %d. Every channel needs a "
                       "group; write both as the checkpoint was trained.",
                       doc->where, out->conv_group, out->hidden);
    if (out->selector_vocab > out->vocab)
        return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.selector.vocab",
                       "%s: \"selector_vocab_size\" is %d, more than \"vocab_size\" %d. The selector chooses among "
                       "tokens of the vocabulary; write both as the checkpoint was trained.",
                       doc->where, out->selector_vocab, out->vocab);
    const int32_t choices = out->selector_vocab != 0 ? out->selector_vocab : out->vocab;
    if (out->selector_top_k > choices)
        return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.selector.top_k",
                       "%s: \"selector_top_k\" is %d, but there are only %d tokens to choose from. Write it as the "
                       "checkpoint was trained.",
                       doc->where, out->selector_top_k, choices);
    const char *conditioning = NULL;
    status = df_config_string(doc, &(df_key){"conv_kernel_conditioning", NULL, DF_IN_MODEL, false}, &conditioning);
    if (status == DFLASH_OK && conditioning != NULL && strcmp(conditioning, "input") != 0)
        status = df_fail(doc->err, DFLASH_ERR_REFUSED, "config.feature.unsupported",
                         "%s: \"conv_kernel_conditioning\" is \"%.60s\", and only \"input\" is supported. Kernels made "
                         "from anything else than the sublayer's input are another program.",
                         doc->where, conditioning);
    return status;
}

static dflash_status read_markov(const df_config_doc *doc, dflash_config *out) {
    static const df_integer_rule rule = {
        {"markov_rank", NULL, DF_IN_MODEL, false}, 0, DF_LIMIT_RANK, offsetof(dflash_config, markov_rank)};
    dflash_status status = df_config_integers(doc, &rule, 1, out);
    const char *kind = NULL;
    if (status == DFLASH_OK)
        status = df_config_string(doc, &(df_key){"markov_head_type", NULL, DF_IN_MODEL, false}, &kind);
    if (status != DFLASH_OK) return status;
    dflash_markov_kind said = DFLASH_MARKOV_VANILLA; /* what the training code takes when the key is absent */
    if (kind != NULL) {
        for (said = DFLASH_MARKOV_NONE; said <= DFLASH_MARKOV_RNN; said++)
            if (strcasecmp(kind, dflash_markov_kind_name(said)) == 0) break; /* the training code lowers the case */
        if (said > DFLASH_MARKOV_RNN)
            return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.markov.kind",
                           "%s: \"markov_head_type\" is \"%.60s\". Supported are none, vanilla, gated and rnn; another "
                           "head is another program.",
                           doc->where, kind);
    }
    if (said == DFLASH_MARKOV_NONE && out->markov_rank > 0)
        return df_fail(
            doc->err, DFLASH_ERR_REFUSED, "config.markov.contradiction",
            "%s: \"markov_head_type\" is \"none\", but \"markov_rank\" is %d. Either there is a head or there "
            "is none; write both as the checkpoint was trained.",
            doc->where, out->markov_rank);
    out->markov = out->markov_rank > 0 ? said : DFLASH_MARKOV_NONE;
    return DFLASH_OK;
}

static dflash_status read_confidence(const df_config_doc *doc, dflash_config *out) {
    bool present = false;
    dflash_status status =
        df_config_bool(doc, &(df_key){"enable_confidence_head", "use_confidence_head", DF_IN_MODEL, false}, &present,
                       &out->confidence);
    if (status != DFLASH_OK) return status;
    if (!present) { /* the training code attaches the head when its loss has a weight */
        double alpha = 0;
        status = df_config_number(doc, &(df_key){"confidence_head_alpha", NULL, DF_IN_MODEL, false},
                                  (df_range){0, DF_LIMIT_SCALE, false}, NULL, &alpha);
        if (status != DFLASH_OK) return status;
        out->confidence = alpha > 0;
    }
    bool with_markov = false;
    status =
        df_config_bool(doc, &(df_key){"confidence_head_with_markov", NULL, DF_IN_MODEL, false}, NULL, &with_markov);
    if (status != DFLASH_OK) return status;
    if (with_markov && out->markov == DFLASH_MARKOV_NONE)
        return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.confidence.markov",
                       "%s: \"confidence_head_with_markov\" is true, but there is no Markov head (\"markov_rank\" is 0 "
                       "or absent). Write both as the checkpoint was trained.",
                       doc->where);
    out->confidence_with_markov = out->confidence && with_markov;
    return DFLASH_OK;
}

dflash_status df_config_heads(const df_config_doc *doc, dflash_config *out) {
    if (out->family == DFLASH_FAMILY_DFLASH2) return read_dflash2(doc, out);
    if (out->family != DFLASH_FAMILY_DSPARK) return DFLASH_OK;
    if (out->output_multiplier != 1 || out->logit_softcap != 0)
        return df_fail(
            doc->err, DFLASH_ERR_REFUSED, "config.feature.unsupported",
            "%s: \"output_multiplier\" is %.17g and \"final_logit_softcapping\" %.17g, but the reference of "
            "dspark applies neither, so nothing says what such a drafter computes. It cannot be judged here; "
            "do not change the keys.",
            doc->where, out->output_multiplier, out->logit_softcap);
    const dflash_status status = read_markov(doc, out);
    return status == DFLASH_OK ? read_confidence(doc, out) : status;
}
