/*
 * json_text.h - JSON documents as text: numbers written so that they read back to the bit, and strings of a document
 * from elsewhere made fit to be shown.
 */
#ifndef DP_JSON_TEXT_H
#define DP_JSON_TEXT_H

#include "dflash.h"

#include <cjson/cJSON.h>

/* The document as text, every number in as few digits as give back the same double; cJSON's own printing keeps 15. The
 * caller frees it. NULL: memory did not suffice. */
char *dp_json_print(const cJSON *json, bool indented);

/* Whether every string and key can be shown as it is (impl/common/printable.h). */
bool dp_json_is_printable(const cJSON *json);
/* Puts what df_printable makes of them in the place of those that cannot. For a document that nobody else holds. */
dflash_status dp_json_make_printable(cJSON *json, dflash_error *err);

#endif
