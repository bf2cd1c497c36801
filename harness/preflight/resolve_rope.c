/*
 * resolve_rope.c - see resolve_rope.h.
 *
 * transformers 5 writes rope_parameters, flat or once for each type of layer (then all of them are equal, or the config
 * was refused); transformers 4 writes rope_scaling, with the base and the rotated share at the top level.
 */
#include "preflight/resolve_rope.h"

#include <math.h>
#include <string.h>

enum { PLACES = 4 };

typedef struct rope_keys {
    const cJSON *place[PLACES]; /* rope_parameters, rope_scaling, the top level, dflash_config; NULL: not there */
    const char **bad;
} rope_keys;

static const cJSON *member(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNull(item) ? NULL : item;
}

/* The entry of a type of layer that occurs, where parameters are given for each type; else the object itself. */
static const cJSON *flat(const cJSON *parameters, bool any_full) {
    const cJSON *entry = member(parameters, any_full ? "full_attention" : "sliding_attention");
    return cJSON_IsObject(entry) ? entry : parameters;
}

/* A key in the first `places` of the places. */
static const cJSON *find(const rope_keys *k, const char *key, int places) {
    for (int i = 0; i < places; i++) {
        const cJSON *item = member(k->place[i], key);
        if (item != NULL) return item;
    }
    return NULL;
}

static double number_or(const rope_keys *k, const char *key, int places, double absent) {
    const cJSON *item = find(k, key, places);
    return cJSON_IsNumber(item) ? item->valuedouble : absent;
}

static double demand(const rope_keys *k, const char *key, int places) {
    if (!cJSON_IsNumber(find(k, key, places)) && *k->bad == NULL) *k->bad = key;
    return number_or(k, key, places, 0.0);
}

enum { IN_ROPE = 2, ANYWHERE = PLACES };

/* How much YaRN lengthens queries and keys for a stretch of `factor`; `weight` is an mscale. */
static double lengthening(double factor, double weight) {
    return factor > 1.0 ? 1.0 + weight * log(factor) / 10.0 : 1.0;
}

/* A stated factor wins; a pair of mscales makes a quotient; otherwise the paper's own. */
static double yarn_attention(const rope_keys *k, double factor) {
    const double stated = number_or(k, "attention_factor", IN_ROPE, 0.0), mscale = number_or(k, "mscale", IN_ROPE, 0.0),
                 all = number_or(k, "mscale_all_dim", IN_ROPE, 0.0);
    if (stated != 0.0) return stated;
    if (mscale != 0.0 && all != 0.0) return lengthening(factor, mscale) / lengthening(factor, all);
    return lengthening(factor, 1.0);
}

static bool add(cJSON *object, const char *key, double value) {
    return cJSON_AddNumberToObject(object, key, value) != NULL;
}

static bool add_yarn(cJSON *rope, const rope_keys *k) {
    const double longest = number_or(k, "max_position_embeddings", ANYWHERE, 0.0),
                 original = number_or(k, "original_max_position_embeddings", ANYWHERE, longest),
                 slow = number_or(k, "beta_slow", IN_ROPE, 0.0), fast = number_or(k, "beta_fast", IN_ROPE, 0.0),
                 factor = number_or(k, "factor", IN_ROPE, original > 0.0 ? longest / original : 0.0);
    const cJSON *truncate = find(k, "truncate", IN_ROPE);
    return add(rope, "attention_scaling", yarn_attention(k, factor)) && add(rope, "factor", factor) &&
           add(rope, "original_max_position_embeddings", original) &&
           add(rope, "beta_fast", fast != 0.0 ? fast : 32.0) && add(rope, "beta_slow", slow != 0.0 ? slow : 1.0) &&
           cJSON_AddBoolToObject(rope, "truncate", truncate == NULL || cJSON_IsTrue(truncate)) != NULL;
}

static bool add_llama3(cJSON *rope, const rope_keys *k) {
    return add(rope, "original_max_position_embeddings", demand(k, "original_max_position_embeddings", ANYWHERE)) &&
           add(rope, "low_freq_factor", demand(k, "low_freq_factor", IN_ROPE)) &&
           add(rope, "high_freq_factor", demand(k, "high_freq_factor", IN_ROPE));
}

cJSON *dp_resolve_rope(const cJSON *config, int head_dim, bool any_full, const char **bad) {
    const rope_keys k = {.place = {flat(member(config, "rope_parameters"), any_full), member(config, "rope_scaling"),
                                   config, member(config, "dflash_config")},
                         .bad = bad};
    const cJSON *named = find(&k, "rope_type", IN_ROPE);
    if (named == NULL) named = find(&k, "type", IN_ROPE);
    const char *type = cJSON_IsString(named) ? named->valuestring : "default";
    const bool yarn = strcmp(type, "yarn") == 0;
    /* the share of a head that is rotated; what it leaves of a channel is cut off */
    const double rotated = trunc((double)head_dim * number_or(&k, "partial_rotary_factor", ANYWHERE, 1.0));
    cJSON *rope = cJSON_CreateObject();
    bool good = cJSON_AddStringToObject(rope, "type", type) != NULL &&
                add(rope, "theta", demand(&k, "rope_theta", ANYWHERE)) && add(rope, "rotary_dim", rotated);
    if (!yarn) good = good && add(rope, "attention_scaling", 1.0);
    if (strcmp(type, "linear") == 0 || strcmp(type, "llama3") == 0)
        good = good && add(rope, "factor", demand(&k, "factor", IN_ROPE));
    if (yarn) good = good && add_yarn(rope, &k);
    if (strcmp(type, "llama3") == 0) good = good && add_llama3(rope, &k);
    if (good) return rope;
    cJSON_Delete(rope);
    return NULL;
}
