/*
 * config_cases.h - the list of configs with their verdicts (fixtures/config-rules/), which oracles/test_config_rules.py
 * walks as well, and the edits that make one config of another.
 */
#ifndef DP_TESTS_CONFIG_CASES_H
#define DP_TESTS_CONFIG_CASES_H

#include <check.h>

#include "config/config.h"

/* The text of a config of bases.json; kept until the test ends. */
const char *config_base(const char *name);

/* One or two keys of a base: "key" or "section.key" set to a JSON value; a NULL value deletes the key. */
typedef struct edit {
    const char *base, *path, *json;
    const char *path2, *json2; /* a second edit when path2 is not NULL */
} edit;

dflash_status config_parse(const char *text, dflash_config *config, dflash_error *err);
dflash_status config_parse_edited(const edit *change, dflash_config *config, dflash_error *err);
void config_must_load(const char *text, dflash_config *config);

/* The cases of test_config_rules.c and of test_config_refusals.c. */
void config_add_rules(Suite *suite);
void config_add_refusals(Suite *suite);

#endif
