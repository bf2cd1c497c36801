/*
 * config_parts.h - the parts that df_config_parse is put together from, in the order in which they run.
 *
 * Each part reads its own keys and writes its own fields of dflash_config; later parts rely on the fields of earlier
 * ones.
 */
#ifndef DF_CONFIG_PARTS_H
#define DF_CONFIG_PARTS_H

#include "config/config_lookup.h"

dflash_status df_config_packaging(const df_config_doc *doc); /* refuses what keeps its keys elsewhere */
dflash_status df_config_rope_places(df_config_doc *doc);     /* opens the rope places of doc */
dflash_status df_config_family(const df_config_doc *doc, dflash_config *out);   /* family, harvest */
dflash_status df_config_geometry(const df_config_doc *doc, dflash_config *out); /* sizes, taps, norms, scales */
dflash_status df_config_layers(const df_config_doc *doc, dflash_config *out);   /* layer[], sliding_window */
dflash_status df_config_rope(const df_config_doc *doc, dflash_config *out);     /* rope */
dflash_status df_config_heads(const df_config_doc *doc, dflash_config *out);    /* dflash2 and dspark extras */
dflash_status df_config_backbone(const df_config_doc *doc);                     /* refuses another MLP, other norms */

#endif
