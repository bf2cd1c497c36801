/*
 * config_lookup.h - typed, range-checked reading of keys that may sit in several places of a config.
 *
 * A key found in two places with one value is fine; with two values it is a refusal that names both. A null counts as
 * absent. Which keys exist and what they imply is left to config.c, config_layers.c, config_rope.c and config_family.c.
 */
#ifndef DF_CONFIG_LOOKUP_H
#define DF_CONFIG_LOOKUP_H

#include "dflash.h"

#include <cjson/cJSON.h>

typedef enum df_place {
    DF_PLACE_TOP = 0,
    DF_PLACE_DFLASH,
    DF_PLACE_ROPE_PARAMETERS,
    DF_PLACE_ROPE_SCALING,
    DF_PLACE_COUNT
} df_place;

/* Sets of places. */
enum {
    DF_IN_TOP = 1 << DF_PLACE_TOP,
    DF_IN_DFLASH = 1 << DF_PLACE_DFLASH,
    DF_IN_MODEL = DF_IN_TOP | DF_IN_DFLASH,
    DF_IN_ROPE = 1 << DF_PLACE_ROPE_PARAMETERS | 1 << DF_PLACE_ROPE_SCALING,
    DF_IN_ANY = DF_IN_MODEL | DF_IN_ROPE
};

typedef struct df_config_doc {
    const char *where;                      /* the file, for messages */
    const cJSON *object[DF_PLACE_COUNT];    /* NULL where the config has no such object */
    const char *place_name[DF_PLACE_COUNT]; /* "the top level", "dflash_config", ... */
    dflash_error *err;
} df_config_doc;

typedef struct df_key {
    const char *name;
    const char *alias; /* another spelling of the same fact, or NULL */
    unsigned places;   /* DF_IN_... */
    bool required;
} df_key;

typedef struct df_found {
    const cJSON *item; /* NULL when absent */
    const char *name;  /* the spelling that was found */
    const char *place;
} df_found;

typedef struct df_range {
    double min, max;
    bool above_min; /* min itself is outside */
} df_range;

enum { DF_SHOWN_MAX = 96 };
/* A short printable form of a value, for messages. */
const char *df_config_show(const cJSON *item, char shown[DF_SHOWN_MAX]);

/* Sets doc to the top level and to dflash_config. The rope places are empty until config_rope.c resolves them. */
dflash_status df_config_doc_init(df_config_doc *doc, const cJSON *root, const char *where, dflash_error *err);

/* An object at the top level that may be absent or null. */
dflash_status df_config_section(const df_config_doc *doc, const char *name, const cJSON **out);

/* Whether two values are the same: numbers as doubles. */
bool df_config_same(const cJSON *a, const cJSON *b);

/* The one value of a key. Codes: "config.key.missing", "config.key.conflict". */
dflash_status df_config_find(const df_config_doc *doc, const df_key *key, df_found *found);

/* Typed forms. *value keeps its default when an optional key is absent; present may be NULL. Further codes:
 * "config.key.type", "config.key.range". */
dflash_status df_config_integer(const df_config_doc *doc, const df_key *key, int64_t min, int64_t max, bool *present,
                                int64_t *value);
dflash_status df_config_number(const df_config_doc *doc, const df_key *key, df_range range, bool *present,
                               double *value);
dflash_status df_config_bool(const df_config_doc *doc, const df_key *key, bool *present, bool *value);
dflash_status df_config_string(const df_config_doc *doc, const df_key *key, const char **value); /* NULL when absent */

/* Many integers at once, each into an int32 field of dflash_config; an absent optional one leaves its field alone. */
typedef struct df_integer_rule {
    df_key key;
    int32_t min, max;
    size_t field; /* offsetof(dflash_config, ...) */
} df_integer_rule;
dflash_status df_config_integers(const df_config_doc *doc, const df_integer_rule *rules, size_t count,
                                 dflash_config *out);

/* An array item or value that must be an integer in [min, max]; name and place are for the message. */
dflash_status df_config_to_integer(const df_config_doc *doc, const df_found *found, int64_t min, int64_t max,
                                   int64_t *value);

/* The usual refusal of a value of the wrong type. */
dflash_status df_config_wrong_type(const df_config_doc *doc, const df_found *found, const char *expected);

#endif
