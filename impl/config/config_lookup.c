/*
 * config_lookup.c - see config_lookup.h.
 *
 * Every message names the file, the key, the place where it sits, what was expected and what was found.
 */
#include "config/config_lookup.h"
#include "common/error.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *df_config_show(const cJSON *item, char shown[DF_SHOWN_MAX]) {
    if (item == NULL)
        snprintf(shown, DF_SHOWN_MAX, "nothing");
    else if (cJSON_IsNumber(item))
        snprintf(shown, DF_SHOWN_MAX, "%.17g", item->valuedouble);
    else if (cJSON_IsString(item))
        snprintf(shown, DF_SHOWN_MAX, "\"%.60s\"", item->valuestring);
    else if (cJSON_IsArray(item))
        snprintf(shown, DF_SHOWN_MAX, "an array of %d", cJSON_GetArraySize(item));
    else if (cJSON_IsObject(item))
        snprintf(shown, DF_SHOWN_MAX, "an object");
    else
        snprintf(shown, DF_SHOWN_MAX, "%s", cJSON_IsNull(item) ? "null" : cJSON_IsTrue(item) ? "true" : "false");
    for (char *c = shown; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    return shown;
}

dflash_status df_config_section(const df_config_doc *doc, const char *name, const cJSON **out) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(doc->object[DF_PLACE_TOP], name);
    *out = NULL;
    if (item == NULL || cJSON_IsNull(item)) return DFLASH_OK;
    if (!cJSON_IsObject(item))
        return df_config_wrong_type(doc, &(df_found){item, name, doc->place_name[DF_PLACE_TOP]}, "an object or null");
    *out = item;
    return DFLASH_OK;
}

dflash_status df_config_doc_init(df_config_doc *doc, const cJSON *root, const char *where, dflash_error *err) {
    *doc = (df_config_doc){.where = where,
                           .object = {root},
                           .place_name = {"the top level", "dflash_config", "rope_parameters", "rope_scaling"},
                           .err = err};
    return df_config_section(doc, "dflash_config", &doc->object[DF_PLACE_DFLASH]);
}

/* Numbers must be the same double; the parser's own comparison would let neighbours pass. */
bool df_config_same(const cJSON *a, const cJSON *b) {
    if (cJSON_IsNumber(a) && cJSON_IsNumber(b)) return a->valuedouble == b->valuedouble;
    return cJSON_Compare(a, b, true);
}

static dflash_status missing(const df_config_doc *doc, const df_key *key) {
    char places[128] = "";
    for (int p = 0; p < DF_PLACE_COUNT; p++) {
        if ((key->places & 1u << p) == 0) continue;
        const size_t used = strlen(places);
        snprintf(places + used, sizeof places - used, "%s%s", used > 0 ? ", " : "", doc->place_name[p]);
    }
    return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.key.missing",
                   "%s: the required key \"%s\" is missing or null. It was looked for in: %s. Its value is never "
                   "guessed; add it to the config as the checkpoint was trained.",
                   doc->where, key->name, places);
}

dflash_status df_config_find(const df_config_doc *doc, const df_key *key, df_found *found) {
    *found = (df_found){0};
    for (int p = 0; p < DF_PLACE_COUNT; p++) {
        if ((key->places & 1u << p) == 0 || doc->object[p] == NULL) continue;
        const char *const names[] = {key->name, key->alias};
        for (int n = 0; n < 2; n++) {
            if (names[n] == NULL) continue;
            const cJSON *item = cJSON_GetObjectItemCaseSensitive(doc->object[p], names[n]);
            if (item == NULL || cJSON_IsNull(item)) continue;
            if (found->item != NULL && !df_config_same(found->item, item)) {
                char first[DF_SHOWN_MAX], second[DF_SHOWN_MAX];
                return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.key.conflict",
                               "%s: \"%s\" in %s is %s, but \"%s\" in %s is %s. One fact may be written in several "
                               "places only with one value; keep the one that the checkpoint was trained with.",
                               doc->where, found->name, found->place, df_config_show(found->item, first), names[n],
                               doc->place_name[p], df_config_show(item, second));
            }
            if (found->item == NULL) *found = (df_found){item, names[n], doc->place_name[p]};
        }
    }
    return found->item == NULL && key->required ? missing(doc, key) : DFLASH_OK;
}

dflash_status df_config_wrong_type(const df_config_doc *doc, const df_found *found, const char *expected) {
    char shown[DF_SHOWN_MAX];
    return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.key.type",
                   "%s: \"%s\" in %s must be %s, but it is %s. Correct the value in the config.", doc->where,
                   found->name, found->place, expected, df_config_show(found->item, shown));
}

dflash_status df_config_to_integer(const df_config_doc *doc, const df_found *found, int64_t min, int64_t max,
                                   int64_t *value) {
    if (!cJSON_IsNumber(found->item)) return df_config_wrong_type(doc, found, "an integer");
    const double number = found->item->valuedouble;
    if (!isfinite(number) || number != floor(number)) return df_config_wrong_type(doc, found, "an integer");
    if (number < (double)min || number > (double)max) {
        char shown[DF_SHOWN_MAX];
        return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.key.range",
                       "%s: \"%s\" in %s must be an integer from %lld to %lld, but it is %s. No real drafter lies "
                       "outside; correct the value in the config.",
                       doc->where, found->name, found->place, (long long)min, (long long)max,
                       df_config_show(found->item, shown));
    }
    *value = (int64_t)number;
    return DFLASH_OK;
}

dflash_status df_config_integer(const df_config_doc *doc, const df_key *key, int64_t min, int64_t max, bool *present,
                                int64_t *value) {
    df_found found;
    const dflash_status status = df_config_find(doc, key, &found);
    if (present != NULL) *present = found.item != NULL;
    if (status != DFLASH_OK || found.item == NULL) return status;
    return df_config_to_integer(doc, &found, min, max, value);
}

dflash_status df_config_integers(const df_config_doc *doc, const df_integer_rule *rules, size_t count,
                                 dflash_config *out) {
    for (size_t i = 0; i < count; i++) {
        bool present = false;
        int64_t value = 0;
        const dflash_status status =
            df_config_integer(doc, &rules[i].key, rules[i].min, rules[i].max, &present, &value);
        if (status != DFLASH_OK) return status;
        if (!present) continue;
        const int32_t narrow = (int32_t)value;
        memcpy((char *)out + rules[i].field, &narrow, sizeof narrow);
    }
    return DFLASH_OK;
}

dflash_status df_config_number(const df_config_doc *doc, const df_key *key, df_range range, bool *present,
                               double *value) {
    df_found found;
    const dflash_status status = df_config_find(doc, key, &found);
    if (present != NULL) *present = found.item != NULL;
    if (status != DFLASH_OK || found.item == NULL) return status;
    if (!cJSON_IsNumber(found.item)) return df_config_wrong_type(doc, &found, "a number");
    const double number = found.item->valuedouble;
    if (!isfinite(number) || number < range.min || number > range.max || (range.above_min && number == range.min)) {
        char shown[DF_SHOWN_MAX];
        return df_fail(doc->err, DFLASH_ERR_REFUSED, "config.key.range",
                       "%s: \"%s\" in %s must be a finite number %s %g and at most %g, but it is %s. Correct the value "
                       "in the config.",
                       doc->where, found.name, found.place, range.above_min ? "above" : "of at least", range.min,
                       range.max, df_config_show(found.item, shown));
    }
    *value = number;
    return DFLASH_OK;
}

dflash_status df_config_bool(const df_config_doc *doc, const df_key *key, bool *present, bool *value) {
    df_found found;
    const dflash_status status = df_config_find(doc, key, &found);
    if (present != NULL) *present = found.item != NULL;
    if (status != DFLASH_OK || found.item == NULL) return status;
    if (!cJSON_IsBool(found.item)) return df_config_wrong_type(doc, &found, "true or false");
    *value = cJSON_IsTrue(found.item);
    return DFLASH_OK;
}

dflash_status df_config_string(const df_config_doc *doc, const df_key *key, const char **value) {
    df_found found;
    *value = NULL;
    const dflash_status status = df_config_find(doc, key, &found);
    if (status != DFLASH_OK || found.item == NULL) return status;
    if (!cJSON_IsString(found.item)) return df_config_wrong_type(doc, &found, "a string");
    *value = found.item->valuestring;
    return DFLASH_OK;
}
