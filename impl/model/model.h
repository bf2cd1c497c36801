/*
 * model.h - what stands behind df_draft: shared by the loader, the cache, the heads and the forward programs.
 */
#ifndef DF_MODEL_H
#define DF_MODEL_H

#include "engine/engine.h"
#include "model/rope_rows.h"

struct df_draft {
    df_engine *engine;
    df_config config;
    df_precision precision;
    df_weights weights;
    uint64_t weights_hash; /* of the norm vectors that the cache's rows depend on */
    float *inv_freq;       /* [rotary_dim / 2], owned */
    df_rope_rows rope;     /* of inv_freq */
    df_observe_fn observe;
    void *observe_user;
    df_replace_fn replace;
    void *replace_user;
};

/* df_draft_load_as with a config in the place of DIR/config.json, as df_config_read would have resolved it: for asking
 * what a drafter would compute that read a field otherwise. */
df_status df_draft_load_config(df_engine *engine, const char *dir, df_precision precision, const df_config *config,
                               df_draft **out, df_error *err);

#endif
