/*
 * geometry.c - see geometry.h; the digests of the weights are provenance.c's.
 *
 * Both sides are JSON: the record that the config implies is built as JSON and compared with the claim node by node, so
 * that a new field needs one line here and none in the comparison.
 */
#include "preflight/geometry.h"

#include "common/error.h"
#include "base/shortest.h"
#include "model/rope.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The record of a config ---- */

/* A JSON object under construction; one failed allocation spoils the whole. */
typedef struct builder {
    cJSON *object;
    bool failed;
} builder;

static void number(builder *b, const char *key, double value) {
    b->failed = b->failed || cJSON_AddNumberToObject(b->object, key, value) == NULL;
}

static void text(builder *b, const char *key, const char *value) {
    b->failed = b->failed || cJSON_AddStringToObject(b->object, key, value) == NULL;
}

static void boolean(builder *b, const char *key, bool value) {
    b->failed = b->failed || cJSON_AddBoolToObject(b->object, key, value) == NULL;
}

static cJSON *array(builder *b, const char *key) {
    cJSON *list = cJSON_AddArrayToObject(b->object, key);
    b->failed = b->failed || list == NULL;
    return list;
}

static void append(builder *b, cJSON *list, cJSON *item) {
    if (item != NULL && list != NULL && cJSON_AddItemToArray(list, item)) return;
    cJSON_Delete(item);
    b->failed = true;
}

static void add_rope(builder *b, const dflash_rope_config *rope) {
    builder r = {cJSON_AddObjectToObject(b->object, "rope"), false};
    if (r.object == NULL) {
        b->failed = true;
        return;
    }
    text(&r, "type", dflash_rope_type_name(rope->type));
    number(&r, "theta", rope->theta);
    number(&r, "rotary_dim", rope->rotary_dim);
    number(&r, "attention_scaling", df_rope_attention_scaling(rope));
    if (rope->type != DFLASH_ROPE_DEFAULT) number(&r, "factor", rope->factor);
    if (rope->type == DFLASH_ROPE_YARN || rope->type == DFLASH_ROPE_LLAMA3)
        number(&r, "original_max_position_embeddings", (double)rope->original_max_position);
    if (rope->type == DFLASH_ROPE_YARN) {
        number(&r, "beta_fast", rope->beta_fast);
        number(&r, "beta_slow", rope->beta_slow);
        boolean(&r, "truncate", rope->truncate);
    }
    if (rope->type == DFLASH_ROPE_LLAMA3) {
        number(&r, "low_freq_factor", rope->low_freq_factor);
        number(&r, "high_freq_factor", rope->high_freq_factor);
    }
    b->failed = b->failed || r.failed;
}

static void add_layers(builder *b, const dflash_config *config) {
    cJSON *taps = array(b, "target_layer_ids"), *types = array(b, "layer_types"), *causal = array(b, "is_causal"),
          *window = array(b, "sliding_window");
    for (int t = 0; t < config->n_taps; t++) append(b, taps, cJSON_CreateNumber(config->taps[t]));
    for (int i = 0; i < config->n_layers; i++) {
        const dflash_layer_config *layer = &config->layer[i];
        append(b, types, cJSON_CreateString(layer->sliding ? "sliding_attention" : "full_attention"));
        append(b, causal, cJSON_CreateBool(layer->causal));
        append(b, window, cJSON_CreateNumber(layer->window));
    }
}

static void add_family_parts(builder *b, const dflash_config *config) {
    if (config->family == DFLASH_FAMILY_DFLASH2) {
        number(b, "conv_kernel_size", config->conv_kernel);
        number(b, "conv_group_size", config->conv_group);
        number(b, "selector_rank", config->selector_rank);
        number(b, "selector_top_k", config->selector_top_k);
        number(b, "selector_vocab_size", config->selector_vocab != 0 ? config->selector_vocab : config->vocab);
    }
    if (config->family == DFLASH_FAMILY_DSPARK) {
        text(b, "markov", dflash_markov_kind_name(config->markov));
        number(b, "markov_rank", config->markov_rank);
        boolean(b, "confidence", config->confidence);
        boolean(b, "confidence_with_markov", config->confidence_with_markov);
    }
}

cJSON *dp_geometry_of(const dflash_config *config) {
    builder b = {cJSON_CreateObject(), false};
    if (b.object == NULL) return NULL;
    text(&b, "family", dflash_family_name(config->family));
    number(&b, "hidden_size", config->hidden);
    number(&b, "num_attention_heads", config->n_heads);
    number(&b, "num_key_value_heads", config->n_kv_heads);
    number(&b, "head_dim", config->head_dim);
    number(&b, "intermediate_size", config->intermediate);
    number(&b, "num_hidden_layers", config->n_layers);
    number(&b, "block_size", config->block);
    number(&b, "mask_token_id", (double)config->mask_token_id);
    number(&b, "vocab_size", config->vocab);
    number(&b, "rms_norm_eps", config->rms_eps);
    boolean(&b, "attention_bias", config->attention_bias);
    add_layers(&b, config);
    add_rope(&b, &config->rope);
    text(&b, "harvest", dflash_harvest_name(config->harvest));
    number(&b, "input_embedding_scale", config->input_embedding_scale);
    number(&b, "output_multiplier", config->output_multiplier);
    number(&b, "final_logit_softcapping", config->logit_softcap);
    add_family_parts(&b, config);
    if (!b.failed) return b.object;
    cJSON_Delete(b.object);
    return NULL;
}

/* ---- Comparison ---- */

/* Numbers that are computed or measured, where two right answers may differ in the last bits. All others are integers.
 */
static bool is_real(const char *name) {
    static const char *const real[] = {
        "rms_norm_eps",          "rope.theta",        "rope.attention_scaling", "rope.factor",
        "rope.beta_fast",        "rope.beta_slow",    "rope.low_freq_factor",   "rope.high_freq_factor",
        "input_embedding_scale", "output_multiplier", "final_logit_softcapping"};
    for (size_t i = 0; i < sizeof real / sizeof real[0]; i++)
        if (strcmp(name, real[i]) == 0) return true;
    return false;
}

/* Doubles in the order of their values as integers, so that a difference counts units in the last place. */
static int64_t ordered(double value) {
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits < 0 ? INT64_MIN - bits : bits;
}

static bool agree(double a, double b, bool real) {
    if (!real) return a == b;
    if (!isfinite(a) || !isfinite(b)) return false;
    const int64_t x = ordered(a), y = ordered(b);
    const uint64_t apart = x > y ? (uint64_t)x - (uint64_t)y : (uint64_t)y - (uint64_t)x;
    return apart <= 4;
}

static const char *type_name(const cJSON *item) {
    if (cJSON_IsObject(item)) return "object";
    if (cJSON_IsArray(item)) return "array";
    if (cJSON_IsString(item)) return "string";
    if (cJSON_IsBool(item)) return "boolean";
    return cJSON_IsNumber(item) ? "number" : "null";
}

/* A value as a message shows it: numbers with as many digits as tell them apart, long values cut. */
static void show(const cJSON *item, char *out, size_t size) {
    if (cJSON_IsNumber(item)) {
        dp_shortest(item->valuedouble, out, size);
        return;
    }
    char *printed = cJSON_PrintUnformatted(item);
    snprintf(out, size, "%s", printed != NULL ? printed : type_name(item));
    cJSON_free(printed);
}

/* Who says what, for messages. */
typedef struct sides {
    const char *where;     /* the claimant's file */
    const char *authority; /* "the checkpoint's config" */
    const char *claimant;  /* "the oracle" */
    const char *verb;      /* "claims" */
    const char *advice;
} sides;

static dflash_status differs(const char *name, const cJSON *config, const cJSON *claim, const sides *s,
                             dflash_error *err) {
    char expected[160], found[160];
    show(config, expected, sizeof expected);
    show(claim, found, sizeof found);
    return df_fail(err, DFLASH_ERR_REFUSED, "geometry.field.differs",
                   "%s: the geometry field %s differs: %s says %s, %s %s %s. No value was compared. %s", s->where, name,
                   s->authority, expected, s->claimant, s->verb, found, s->advice);
}

static dflash_status compare(const char *name, const cJSON *config, const cJSON *claim, const sides *s,
                             dflash_error *err);

static dflash_status compare_arrays(const char *name, const cJSON *config, const cJSON *claim, const sides *s,
                                    dflash_error *err) {
    if (cJSON_GetArraySize(config) != cJSON_GetArraySize(claim)) return differs(name, config, claim, s, err);
    const cJSON *theirs = claim->child, *ours;
    int index = 0;
    cJSON_ArrayForEach(ours, config) {
        char element[128];
        snprintf(element, sizeof element, "%s[%d]", name, index++);
        const dflash_status status = compare(element, ours, theirs, s, err);
        if (status != DFLASH_OK) return status;
        theirs = theirs->next;
    }
    return DFLASH_OK;
}

static dflash_status compare_objects(const char *name, const cJSON *config, const cJSON *claim, const sides *s,
                                     dflash_error *err) {
    const char *dot = name[0] != '\0' ? "." : "";
    char field[128], value[160];
    const cJSON *child;
    cJSON_ArrayForEach(child, config) {
        const cJSON *theirs = cJSON_GetObjectItemCaseSensitive(claim, child->string);
        snprintf(field, sizeof field, "%s%s%s", name, dot, child->string);
        if (theirs == NULL) {
            show(child, value, sizeof value);
            return df_fail(
                err, DFLASH_ERR_REFUSED, "geometry.field.missing",
                "%s: the geometry field %s is missing from %s; %s says %s. What is not stated cannot be trusted; write "
                "the file again as oracles/FORMAT.md says.",
                s->where, field, s->claimant, s->authority, value);
        }
        const dflash_status status = compare(field, child, theirs, s, err);
        if (status != DFLASH_OK) return status;
    }
    cJSON_ArrayForEach(child, claim) {
        const bool known = cJSON_GetObjectItemCaseSensitive(config, child->string) != NULL;
        if (known && cJSON_GetObjectItemCaseSensitive(claim, child->string) == child) continue;
        snprintf(field, sizeof field, "%s%s%s", name, dot, child->string);
        show(child, value, sizeof value);
        return df_fail(err, DFLASH_ERR_REFUSED, "geometry.field.unknown",
                       "%s: %s %s %s = %s, a geometry field that %s%s. Write the file again as oracles/FORMAT.md says.",
                       s->where, s->claimant, s->verb, field, value, known ? "it states twice" : s->authority,
                       known ? "" : " does not give rise to");
    }
    return DFLASH_OK;
}

static dflash_status compare(const char *name, const cJSON *config, const cJSON *claim, const sides *s,
                             dflash_error *err) {
    bool same = strcmp(type_name(config), type_name(claim)) == 0;
    if (same && cJSON_IsObject(config)) return compare_objects(name, config, claim, s, err);
    if (same && cJSON_IsArray(config)) return compare_arrays(name, config, claim, s, err);
    if (same && cJSON_IsString(config)) same = strcmp(config->valuestring, claim->valuestring) == 0;
    if (same && cJSON_IsBool(config)) same = cJSON_IsTrue(config) == cJSON_IsTrue(claim);
    if (same && cJSON_IsNumber(config)) same = agree(config->valuedouble, claim->valuedouble, is_real(name));
    return same ? DFLASH_OK : differs(name, config, claim, s, err);
}

/* ---- Every field that differs ---- */

typedef struct field_list {
    char text[480];
    int count;
} field_list;

static void add_field(field_list *list, const char *name) {
    const size_t used = strlen(list->text);
    if (used + strlen(name) + sizeof ", ..." < sizeof list->text)
        snprintf(list->text + used, sizeof list->text - used, "%s%s", used > 0 ? ", " : "", name);
    else if (used > 3 && strcmp(list->text + used - 3, "...") != 0)
        strcat(list->text, ", ...");
    list->count++;
}

static void list_fields(const char *name, const cJSON *config, const cJSON *claim, const sides *s, field_list *list) {
    const char *dot = name[0] != '\0' ? "." : "";
    char field[128];
    const cJSON *child;
    if (!cJSON_IsObject(config) || !cJSON_IsObject(claim)) {
        if (compare(name, config, claim, s, NULL) != DFLASH_OK) add_field(list, name);
        return;
    }
    cJSON_ArrayForEach(child, config) {
        const cJSON *theirs = cJSON_GetObjectItemCaseSensitive(claim, child->string);
        snprintf(field, sizeof field, "%s%s%s", name, dot, child->string);
        if (theirs != NULL)
            list_fields(field, child, theirs, s, list);
        else
            add_field(list, field);
    }
    cJSON_ArrayForEach(child, claim) {
        snprintf(field, sizeof field, "%s%s%s", name, dot, child->string);
        if (cJSON_GetObjectItemCaseSensitive(config, child->string) == NULL) add_field(list, field);
    }
}

/* The refusal of the first field that differs, and the names of all when there are more. */
static dflash_status compare_records(const cJSON *record, const cJSON *claim, const sides *s, dflash_error *err) {
    field_list list = {.count = 0};
    if (cJSON_IsObject(claim)) {
        const dflash_status status = compare("", record, claim, s, err);
        if (status == DFLASH_OK || err == NULL) return status;
        list_fields("", record, claim, s, &list);
        const size_t used = strlen(err->message);
        if (list.count > 1)
            snprintf(err->message + used, sizeof err->message - used, " In all %d fields differ: %s.", list.count,
                     list.text);
        return status;
    }
    return df_fail(err, DFLASH_ERR_REFUSED, "geometry.field.differs",
                   "%s: the geometry record is not a JSON object. Write the file again as oracles/FORMAT.md says.",
                   s->where);
}

dflash_status dp_geometry_compare(const cJSON *first, const cJSON *second, const char *where_first,
                                  const char *where_second, dflash_error *err) {
    const sides s = {.where = where_second,
                     .authority = where_first,
                     .claimant = "this file",
                     .verb = "claims",
                     .advice = "They are not of one drafter; compare runs of one."};
    return compare_records(first, second, &s, err);
}

dflash_status dp_geometry_check(const cJSON *resolved, const cJSON *claim, const char *where, dflash_error *err) {
    const sides s = {.where = where,
                     .authority = "the checkpoint's config",
                     .claimant = "the oracle",
                     .verb = "claims",
                     .advice =
                         "They are not of one drafter; use the oracle of this checkpoint, or correct config.json."};
    return compare_records(resolved, claim, &s, err);
}

dflash_status dp_geometry_check_reading(const cJSON *resolved, const dflash_config *config, const char *where,
                                        dflash_error *err) {
    const sides s = {.where = where,
                     .authority = "config.json",
                     .claimant = "the drafter",
                     .verb = "resolved",
                     .advice =
                         "The drafter runs another model than the checkpoint is; correct how it reads its config."};
    cJSON *record = dp_geometry_of(config);
    if (record == NULL) return df_fail_memory(err, "a geometry record", 4096);
    const dflash_status status = compare_records(resolved, record, &s, err);
    if (status == DFLASH_ERR_REFUSED && err != NULL) snprintf(err->code, sizeof err->code, "%s", DP_MISREAD);
    cJSON_Delete(record);
    return status;
}
