/*
 * config_rope.c - the rotary embedding that a config describes, in either generation of its keys.
 *
 * transformers 4 writes rope_theta and rope_scaling {type | rope_type, ...}; transformers 5 writes rope_parameters,
 * possibly once per layer type. Both end in the same dflash_rope_config. Kinds that this drafter does not compute
 * (dynamic, longrope, interleaved pairs, different tables per layer) are refused by name.
 */
#include "config/config_limits.h"
#include "config/config_parts.h"
#include "common/error.h"

#include <math.h>
#include <string.h>

static const df_range factor_range = {1, DF_LIMIT_ROPE_FACTOR, false};
static const df_range positive_range = {0, DF_LIMIT_ROPE_FACTOR, true};
static const df_range from_zero_range = {0, DF_LIMIT_ROPE_FACTOR, false};

/* Read from the text, because the places are opened before the layers are resolved. */
static bool layer_type_occurs(const df_config_doc *doc, const char *name) {
    df_config_doc quiet = *doc;
    quiet.err = NULL; /* config_layers.c reports what is wrong with these keys */
    df_found types;
    const dflash_status status = df_config_find(&quiet, &(df_key){"layer_types", NULL, DF_IN_MODEL, false}, &types);
    if (status == DFLASH_OK && cJSON_IsArray(types.item)) {
        for (const cJSON *item = types.item->child; item != NULL; item = item->next)
            if (cJSON_IsString(item) && strcmp(item->valuestring, name) == 0) return true;
        return false;
    }
    bool use_swa = false;
    if (df_config_bool(&quiet, &(df_key){"use_swa", NULL, DF_IN_MODEL, false}, NULL, &use_swa) != DFLASH_OK)
        return false;
    return strcmp(name, use_swa ? "sliding_attention" : "full_attention") == 0;
}

/* rope_parameters nested per layer type becomes the one object that all the layers present share. */
static dflash_status resolve_nested(df_config_doc *doc) {
    static const char *const names[2] = {"full_attention", "sliding_attention"};
    static const char *const places[2] = {"rope_parameters.full_attention", "rope_parameters.sliding_attention"};
    const cJSON *outer = doc->object[DF_PLACE_ROPE_PARAMETERS];
    if (outer == NULL) return DFLASH_OK;
    int nested = 0, flat = 0;
    for (const cJSON *item = outer->child; item != NULL; item = item->next) {
        const bool is_type = strcmp(item->string, names[0]) == 0 || strcmp(item->string, names[1]) == 0;
        nested += is_type;
        flat += !is_type;
    }
    if (nested == 0) return DFLASH_OK;
    if (flat > 0)
        return df_fail(
            doc->err, DFLASH_ERR_REFUSED, "config.rope.mixed",
            "%s: rope_parameters holds both entries per layer type and keys of its own. It must be one or the "
            "other, because readers differ in which they follow; keep the one that the checkpoint was trained with.",
            doc->where);
    const cJSON *shared = NULL;
    for (int sliding = 0; sliding < 2; sliding++) {
        if (!layer_type_occurs(doc, names[sliding])) continue;
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(outer, names[sliding]);
        const df_found found = {item, names[sliding], "rope_parameters"};
        if (item == NULL || cJSON_IsNull(item))
            return df_fail(
                doc->err, DFLASH_ERR_REFUSED, "config.key.missing",
                "%s: rope_parameters is given per layer type, but has no \"%s\", which layer_types uses. Add "
                "that entry.",
                doc->where, names[sliding]);
        if (!cJSON_IsObject(item)) return df_config_wrong_type(doc, &found, "an object");
        if (shared != NULL && !cJSON_Compare(shared, item, true))
            return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.rope.per_layer",
                           "%s: rope_parameters differs between full_attention and sliding_attention. Different rotary "
                           "tables per layer type are not supported; one table serves all layers of a drafter.",
                           doc->where);
        shared = item;
        doc->object[DF_PLACE_ROPE_PARAMETERS] = item;
        doc->place_name[DF_PLACE_ROPE_PARAMETERS] = places[sliding];
    }
    return DFLASH_OK;
}

/* A key of one section that the other does not have is seen by some readers and not by others. */
static dflash_status compare_sections(const df_config_doc *doc) {
    for (int p = DF_PLACE_ROPE_PARAMETERS; p <= DF_PLACE_ROPE_SCALING; p++) {
        const int other = DF_PLACE_ROPE_PARAMETERS + DF_PLACE_ROPE_SCALING - p;
        if (doc->object[other] == NULL || doc->object[other]->child == NULL || doc->object[p] == NULL) continue;
        for (const cJSON *item = doc->object[p]->child; item != NULL; item = item->next) {
            const bool is_type = strcmp(item->string, "type") == 0 || strcmp(item->string, "rope_type") == 0;
            df_found found;
            df_config_doc rest = *doc;
            rest.object[p] = NULL;
            rest.err = NULL;
            const df_key key = {is_type ? "rope_type" : item->string, is_type ? "type" : NULL, DF_IN_ANY, false};
            if (cJSON_IsNull(item) || df_config_find(&rest, &key, &found) != DFLASH_OK || found.item != NULL) continue;
            return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.rope.sections",
                           "%s: \"%.60s\" is in %s, but not in %s. Readers differ in which of the two they follow, so "
                           "what one says the other must say; write both as the checkpoint was trained.",
                           doc->where, item->string, doc->place_name[p], doc->place_name[other]);
        }
    }
    return DFLASH_OK;
}

dflash_status df_config_rope_places(df_config_doc *doc) {
    static const struct {
        const char *name;
        df_place place;
    } sections[] = {{"rope_parameters", DF_PLACE_ROPE_PARAMETERS}, {"rope_scaling", DF_PLACE_ROPE_SCALING}};
    dflash_status status = DFLASH_OK;
    for (size_t i = 0; i < 2 && status == DFLASH_OK; i++) {
        const cJSON *inner = cJSON_GetObjectItemCaseSensitive(doc->object[DF_PLACE_DFLASH], sections[i].name);
        if (inner != NULL && !cJSON_IsNull(inner))
            return df_fail(
                doc->err, DFLASH_ERR_REFUSED, "config.rope.misplaced",
                "%s: \"%s\" is inside dflash_config, where the reference does not look and other readers "
                "may. It must be at the top level if the checkpoint was trained with it, and nowhere if not.",
                doc->where, sections[i].name);
        status = df_config_section(doc, sections[i].name, &doc->object[sections[i].place]);
    }
    if (status == DFLASH_OK) status = resolve_nested(doc);
    return status == DFLASH_OK ? compare_sections(doc) : status;
}

static dflash_status refuse_interleaved(const df_config_doc *doc) {
    static const struct {
        const char *key;
        bool half_split; /* the value that means our layout */
    } flags[] = {{"rope_interleaved", false}, {"rope_interleave", false}, {"interleaved_rope", false},
                 {"rope_traditional", false}, {"is_neox_style", true},    {"rope_is_neox_style", true}};
    const char *asked = NULL;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0] && asked == NULL; i++) {
        bool value = flags[i].half_split;
        const dflash_status status = df_config_bool(doc, &(df_key){flags[i].key, NULL, DF_IN_ANY, false}, NULL, &value);
        if (status != DFLASH_OK) return status;
        if (value != flags[i].half_split) asked = flags[i].key;
    }
    const char *model_type = NULL;
    const dflash_status status = df_config_string(doc, &(df_key){"model_type", NULL, DF_IN_TOP, false}, &model_type);
    if (status != DFLASH_OK) return status;
    if (asked == NULL && model_type != NULL && strncmp(model_type, "lfm2", 4) == 0) asked = "model_type";
    if (asked == NULL) return DFLASH_OK;
    return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.rope.interleaved",
                   "%s: \"%s\" asks for interleaved rotary pairs. Only the half-split layout is supported; running one "
                   "as the other gives fluent nonsense, so this drafter cannot be judged here.",
                   doc->where, asked);
}

static dflash_status read_rotary_dim(const df_config_doc *doc, dflash_config *out) {
    double part = 1;
    const dflash_status status = df_config_number(doc, &(df_key){"partial_rotary_factor", NULL, DF_IN_ANY, false},
                                                  (df_range){0, 1, true}, NULL, &part);
    if (status != DFLASH_OK) return status;
    out->rope.rotary_dim = (int32_t)((double)out->head_dim * part);
    if (out->rope.rotary_dim < 2 || out->rope.rotary_dim % 2 != 0)
        return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.rope.rotary_dim",
                       "%s: head_dim %d times partial_rotary_factor %.17g rotates %d dimensions of a head. The number "
                       "must be even and at least 2; write both as the checkpoint was trained.",
                       doc->where, out->head_dim, part, out->rope.rotary_dim);
    return DFLASH_OK;
}

static dflash_status read_type(const df_config_doc *doc, dflash_rope_config *rope) {
    const char *name = NULL;
    dflash_status status = df_config_string(doc, &(df_key){"rope_type", "type", DF_IN_ROPE, false}, &name);
    if (status != DFLASH_OK) return status;
    if (name == NULL) {
        df_found factor;
        status = df_config_find(doc, &(df_key){"factor", NULL, DF_IN_ROPE, false}, &factor);
        if (status != DFLASH_OK || factor.item == NULL) return status;
        return df_config_find(doc, &(df_key){"rope_type", "type", DF_IN_ROPE, true}, &factor);
    }
    for (rope->type = DFLASH_ROPE_DEFAULT; rope->type <= DFLASH_ROPE_LLAMA3; rope->type++)
        if (strcmp(name, dflash_rope_type_name(rope->type)) == 0) return DFLASH_OK;
    return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.rope.type",
                   "%s: the rope type is \"%.60s\". Supported are default, linear, yarn and llama3; another table is "
                   "never put in its place.",
                   doc->where, name);
}

/* A yarn factor that is written as null means max_position_embeddings / original_max_position_embeddings, as in
 * transformers; a factor that is not written at all is refused there and here. */
static dflash_status read_yarn_factor(const df_config_doc *doc, const dflash_config *config, dflash_rope_config *rope) {
    bool has_factor = false, null_factor = false;
    for (int p = DF_PLACE_ROPE_PARAMETERS; p <= DF_PLACE_ROPE_SCALING; p++)
        null_factor = null_factor || cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(doc->object[p], "factor"));
    const df_key key = {"factor", NULL, DF_IN_ROPE, !null_factor};
    const dflash_status status = df_config_number(doc, &key, factor_range, &has_factor, &rope->factor);
    if (status != DFLASH_OK || has_factor) return status;
    if (rope->original_max_position == 0 || config->max_position < rope->original_max_position)
        return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.rope.factor",
                       "%s: the yarn \"factor\" is null, which means max_position_embeddings (%lld) divided by "
                       "original_max_position_embeddings (%lld; 0 = not given). Both must be given and the result at "
                       "least 1; write the factor that the checkpoint was trained with.",
                       doc->where, (long long)config->max_position, (long long)rope->original_max_position);
    rope->factor = (double)config->max_position / (double)rope->original_max_position;
    return DFLASH_OK;
}

static dflash_status read_yarn(const df_config_doc *doc, const dflash_config *config, dflash_rope_config *rope) {
    dflash_status status = df_config_integer(doc, &(df_key){"original_max_position_embeddings", NULL, DF_IN_ANY, false},
                                             1, DF_LIMIT_POSITION, NULL, &rope->original_max_position);
    if (status == DFLASH_OK) status = read_yarn_factor(doc, config, rope);
    if (status == DFLASH_OK)
        status = df_config_bool(doc, &(df_key){"truncate", NULL, DF_IN_ROPE, false}, NULL, &rope->truncate);
    if (status == DFLASH_OK)
        status = df_config_number(doc, &(df_key){"attention_factor", NULL, DF_IN_ROPE, false}, positive_range,
                                  &rope->has_attention_factor, &rope->attention_factor);
    const struct {
        const char *name;
        double *field;
    } numbers[] = {{"beta_fast", &rope->beta_fast},
                   {"beta_slow", &rope->beta_slow},
                   {"mscale", &rope->mscale},
                   {"mscale_all_dim", &rope->mscale_all_dim}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && status == DFLASH_OK; i++)
        status = df_config_number(doc, &(df_key){numbers[i].name, NULL, DF_IN_ROPE, false}, from_zero_range, NULL,
                                  numbers[i].field);
    if (status != DFLASH_OK) return status;
    if (rope->original_max_position == 0) rope->original_max_position = config->max_position;
    if (rope->original_max_position == 0)
        return df_fail(
            doc->err, DFLASH_ERR_REFUSED, "config.rope.original_max",
            "%s: yarn needs \"original_max_position_embeddings\", or \"max_position_embeddings\" in its place, "
            "and the config has neither. Write the length the target was pretrained with.",
            doc->where);
    if (rope->beta_fast == 0) rope->beta_fast = 32;
    if (rope->beta_slow == 0) rope->beta_slow = 1;
    if (rope->beta_fast < rope->beta_slow)
        return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.rope.range",
                       "%s: yarn's beta_fast is %.17g, less than beta_slow %.17g (0 or absent mean 32 and 1). The "
                       "correction range would run backwards; write both as the checkpoint was trained.",
                       doc->where, rope->beta_fast, rope->beta_slow);
    return DFLASH_OK;
}

static dflash_status read_llama3(const df_config_doc *doc, dflash_rope_config *rope) {
    dflash_status status =
        df_config_number(doc, &(df_key){"factor", NULL, DF_IN_ROPE, false}, factor_range, NULL, &rope->factor);
    if (status == DFLASH_OK)
        status = df_config_number(doc, &(df_key){"low_freq_factor", NULL, DF_IN_ROPE, false}, positive_range, NULL,
                                  &rope->low_freq_factor);
    if (status == DFLASH_OK)
        status = df_config_number(doc, &(df_key){"high_freq_factor", NULL, DF_IN_ROPE, false}, positive_range, NULL,
                                  &rope->high_freq_factor);
    if (status == DFLASH_OK)
        status = df_config_integer(doc, &(df_key){"original_max_position_embeddings", NULL, DF_IN_ANY, false}, 1,
                                   DF_LIMIT_POSITION, NULL, &rope->original_max_position);
    if (status == DFLASH_OK && rope->high_freq_factor <= rope->low_freq_factor)
        status = df_fail(doc->err, DFLASH_ERR_REFUSED, "config.rope.range",
                         "%s: llama3's high_freq_factor is %.17g, and low_freq_factor is %.17g. The first must be the "
                         "greater, because their difference divides; write both as the checkpoint was trained.",
                         doc->where, rope->high_freq_factor, rope->low_freq_factor);
    return status;
}

/* Some readers rotate that part of a head, some whole heads: the reference takes no notice of the key for this type. */
static dflash_status refuse_default_part(const df_config_doc *doc, const dflash_config *out) {
    if (out->rope.rotary_dim == out->head_dim) return DFLASH_OK;
    return df_fail(
        doc->err, DFLASH_ERR_REFUSED, "config.rope.partial",
        "%s: \"partial_rotary_factor\" is given with the rope type default, and rotates %d of %d dimensions. "
        "Readers disagree: some rotate that part, and the reference as published rotates whole heads. This "
        "drafter cannot be judged here; do not change the key. With the types linear, yarn and llama3 readers "
        "agree.",
        doc->where, out->rope.rotary_dim, out->head_dim);
}

dflash_status df_config_rope(const df_config_doc *doc, dflash_config *out) {
    dflash_rope_config *rope = &out->rope;
    rope->truncate = true;
    dflash_status status = refuse_interleaved(doc);
    if (status == DFLASH_OK)
        status = df_config_number(doc, &(df_key){"rope_theta", NULL, DF_IN_ANY, false},
                                  (df_range){1, DF_LIMIT_THETA, true}, NULL, &rope->theta);
    if (status == DFLASH_OK) status = read_rotary_dim(doc, out);
    if (status == DFLASH_OK) status = read_type(doc, rope);
    if (status != DFLASH_OK) return status;
    switch (rope->type) {
    case DFLASH_ROPE_DEFAULT:
        return refuse_default_part(doc, out);
    case DFLASH_ROPE_LINEAR:
        return df_config_number(doc, &(df_key){"factor", NULL, DF_IN_ROPE, false}, factor_range, NULL, &rope->factor);
    case DFLASH_ROPE_YARN:
        return read_yarn(doc, out, rope);
    case DFLASH_ROPE_LLAMA3:
        return read_llama3(doc, rope);
    }
    return DFLASH_OK;
}
