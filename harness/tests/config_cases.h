/*
 * config_cases.h - valid configs to start from and the edits that make other configs of them; for test_config.c (what
 * loads) and test_config_refusals.c (what does not).
 */
#ifndef DP_TESTS_CONFIG_CASES_H
#define DP_TESTS_CONFIG_CASES_H

#include <check.h>

#include "config.h"

extern const char config_plain[], config_sliding[], config_yarn[], config_llama3[], config_nested[], config_dflash2[],
    config_dspark[];

/* One or two keys of a base text: "key" or "section.key" set to a JSON value; a NULL value deletes the key. */
typedef struct edit {
    const char *base, *path, *json;
    const char *path2, *json2; /* a second edit when path2 is not NULL */
} edit;

df_status config_parse(const char *text, df_config *config, df_error *err);
df_status config_parse_edited(const edit *change, df_config *config, df_error *err);
void config_must_load(const char *text, df_config *config);

/* The cases of test_config_refusals.c. */
void config_add_refusals(Suite *suite);

#endif
