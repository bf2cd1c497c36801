/*
 * model.h - what stands behind dflash_draft: shared by the loader, the cache, the heads and the forward programs.
 */
#ifndef DF_MODEL_H
#define DF_MODEL_H

#include "engine/engine.h"
#include "model/rope_rows.h"

struct dflash_draft {
    dflash_engine *engine;
    dflash_config config;
    dflash_precision precision;
    df_weights weights;
    uint64_t weights_hash; /* of the norm vectors that the cache's rows depend on */
    float *inv_freq;       /* [rotary_dim / 2], owned */
    df_rope_rows rope;     /* of inv_freq */
    dflash_observe_fn observe;
    void *observe_user;
    dflash_replace_fn replace;
    void *replace_user;
};

/* dflash_draft_load_as with a config in the place of DIR/config.json, as dflash_config_read would have resolved it: for
 * asking what a drafter would compute that read a field otherwise. */
dflash_status df_draft_load_config(dflash_engine *engine, const char *dir, dflash_precision precision,
                                   const dflash_config *config, dflash_draft **out, dflash_error *err);

#endif
