/*
 * config_json.h - the text of a config.json to a parsed document, or a refusal.
 *
 * Stricter than the parser underneath: UTF-8 throughout, numbers in JSON's grammar, no control character in a string,
 * no NUL byte raw or escaped, nothing but white space after the value, an object at the top, and no key twice in any
 * object. What the keys mean is left to config_lookup.h.
 */
#ifndef DF_CONFIG_JSON_H
#define DF_CONFIG_JSON_H

#include "dflash.h"

#include <cjson/cJSON.h>

/* The caller deletes *out with cJSON_Delete. */
dflash_status df_config_json_parse(const char *text, size_t length, const char *where, cJSON **out, dflash_error *err);

#endif
