/* draft_load.c - creates a draft model from a checkpoint directory, and answers questions about it. */
#include "model/model.h"

#include "common/error.h"
#include "common/fnv.h"
#include "model/rope.h"

#include <stdio.h>
#include <stdlib.h>

enum { PATH_SIZE = 4096, SMALLEST_HEAD = 8 /* the attention kernels work on eight channels at a time */ };

static dflash_status join(const char *dir, const char *name, char path[PATH_SIZE], dflash_error *err) {
    const int length = snprintf(path, PATH_SIZE, "%s/%s", dir, name);
    if (length > 0 && length < PATH_SIZE) return DFLASH_OK;
    return df_fail(err, DFLASH_ERR_ARGUMENT, "path.long", "The checkpoint path %.200s... is longer than %d characters.",
                   dir, PATH_SIZE - 1);
}

static dflash_status check_supported(const dflash_config *config, dflash_error *err) {
    if (config->head_dim < SMALLEST_HEAD)
        return df_fail(err, DFLASH_ERR_REFUSED, "config.head_dim.small",
                       "head_dim is %d: the attention kernels need at least %d channels a head.", config->head_dim,
                       SMALLEST_HEAD);
    return DFLASH_OK;
}

dflash_status dflash_draft_load(dflash_engine *engine, const char *dir, dflash_draft **out, dflash_error *err) {
    return dflash_draft_load_as(engine, dir, DFLASH_PRECISION_STORED, out, err);
}

static dflash_status check_precision(dflash_precision precision, dflash_error *err) {
    if ((unsigned)precision <= DFLASH_PRECISION_FC) return DFLASH_OK;
    return df_fail(err, DFLASH_ERR_ARGUMENT, "precision.mode",
                   "Precision mode %d does not exist: expected one of dflash_precision, 0 to %d.", (int)precision,
                   DFLASH_PRECISION_FC);
}

dflash_status dflash_draft_load_as(dflash_engine *engine, const char *dir, dflash_precision precision,
                                   dflash_draft **out, dflash_error *err) {
    char path[PATH_SIZE];
    dflash_config config;
    *out = NULL;
    dflash_status status = check_precision(precision, err);
    if (status == DFLASH_OK) status = join(dir, "config.json", path, err);
    if (status == DFLASH_OK) status = dflash_config_read(path, &config, err);
    return status == DFLASH_OK ? df_draft_load_config(engine, dir, precision, &config, out, err) : status;
}

/* While the vectors are in host memory. */
static uint64_t weights_hash(const dflash_draft *draft) {
    const dflash_config *c = &draft->config;
    uint64_t hash = df_fnv(DF_FNV_START, draft->weights.hidden_norm, (size_t)c->hidden * sizeof(float));
    for (int i = 0; i < c->n_layers; i++) {
        const df_layer_weights *layer = &draft->weights.layer[i];
        hash = df_fnv(hash, layer->input_norm, (size_t)c->hidden * sizeof(float));
        hash = df_fnv(hash, layer->k_norm, (size_t)c->head_dim * sizeof(float));
    }
    return hash;
}

dflash_status df_draft_load_config(dflash_engine *engine, const char *dir, dflash_precision precision,
                                   const dflash_config *config, dflash_draft **out, dflash_error *err) {
    char path[PATH_SIZE];
    *out = NULL;
    dflash_draft *draft = calloc(1, sizeof *draft);
    if (draft == NULL) return df_fail_memory(err, "the draft model", sizeof *draft);
    draft->engine = engine;
    draft->precision = precision;
    draft->config = *config;
    dflash_status status = check_supported(&draft->config, err);
    if (status == DFLASH_OK) status = join(dir, "model.safetensors", path, err);
    if (status == DFLASH_OK)
        status = df_weights_load_as(path, &draft->config, precision, engine->pool, &draft->weights, err);
    if (status != DFLASH_OK) goto fail;
    const size_t half = (size_t)draft->config.rope.rotary_dim / 2;
    draft->inv_freq = malloc(half * sizeof(float));
    if (draft->inv_freq == NULL) {
        status = df_fail_memory(err, "the rotary table", half * sizeof(float));
        goto fail;
    }
    df_rope_inv_freq(&draft->config.rope, draft->inv_freq);
    status = df_rope_rows_open(&draft->rope, draft->inv_freq, (int)half,
                               (float)df_rope_attention_scaling(&draft->config.rope), err);
    if (status != DFLASH_OK) goto fail;
    draft->weights_hash = weights_hash(draft);
    status = df_weights_place(&draft->weights, &draft->config, &engine->memory, err);
    if (status != DFLASH_OK) goto fail;
    *out = draft;
    return DFLASH_OK;

fail:
    dflash_draft_destroy(draft);
    return status;
}

void dflash_draft_destroy(dflash_draft *draft) {
    if (draft == NULL) return;
    df_weights_release(&draft->weights);
    df_rope_rows_close(&draft->rope);
    free(draft->inv_freq);
    free(draft);
}

const dflash_config *dflash_draft_config(const dflash_draft *draft) { return &draft->config; }

dflash_engine *dflash_draft_engine(const dflash_draft *draft) { return draft->engine; }

dflash_precision dflash_draft_precision(const dflash_draft *draft) { return draft->precision; }

size_t dflash_draft_weight_bytes(const dflash_draft *draft) { return draft->weights.bytes; }

int dflash_draft_tensor_count(const dflash_draft *draft) { return df_safetensors_count(draft->weights.file); }

dflash_tensor_view dflash_draft_tensor(const dflash_draft *draft, int index) {
    const df_tensor *tensor = df_safetensors_at(draft->weights.file, index);
    dflash_tensor_view view = {.name = tensor->name,
                               .dtype = tensor->type->name,
                               .rank = tensor->rank,
                               .data = tensor->data,
                               .bytes = tensor->bytes,
                               .used = draft->weights.used[index]};
    for (int i = 0; i < tensor->rank; i++) view.dim[i] = tensor->dim[i];
    return view;
}

void dflash_draft_observe(dflash_draft *draft, dflash_observe_fn fn, void *user) {
    draft->observe = fn;
    draft->observe_user = user;
}

void dflash_draft_replace(dflash_draft *draft, dflash_replace_fn fn, void *user) {
    draft->replace = fn;
    draft->replace_user = user;
}
