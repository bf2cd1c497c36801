/*
 * config.h - config.json to dflash_config, with every rule of where a key may live and what it may hold.
 *
 * A key is looked up at the top level and in dflash_config; rope keys also in rope_parameters (transformers 5, possibly
 * nested per layer type) and rope_scaling (transformers 4). Found twice with different values it is refused, and so is
 * a value of the wrong type or outside its range. Nothing is guessed.
 */
#ifndef DF_CONFIG_H
#define DF_CONFIG_H

#include "dflash.h"

/* Parses the text of a config.json. `where` names it in messages (normally its path). */
dflash_status df_config_parse(const char *text, size_t length, const char *where, dflash_config *out,
                              dflash_error *err);

#endif
