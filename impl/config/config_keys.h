/*
 * config_keys.h - which keys a config may and must have.
 *
 * The table is config_key_rows.h. Both checks name every key at fault at once.
 */
#ifndef DF_CONFIG_KEYS_H
#define DF_CONFIG_KEYS_H

#include "config/config_lookup.h"

/* Refuses a config in which keys are absent or null that its family, or its rope type, needs. The rope places of doc
 * must be open. Code: "config.key.missing". */
dflash_status df_config_missing(const df_config_doc *doc, dflash_family family);

/* Refuses a config with keys that are in no row of the table, that its rope type does not read, or that have another
 * value than the one that keeps the arithmetic. Code: "config.key.unread". */
dflash_status df_config_unread(const df_config_doc *doc, dflash_family family);

/* Refuses a config with something in a key that another family alone reads; null, false, 0 and "none" say that the part
 * is not there. Code: "config.family.ambiguous". */
dflash_status df_config_foreign(const df_config_doc *doc, dflash_family family);

#endif
