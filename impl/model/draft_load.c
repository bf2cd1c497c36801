/* draft_load.c - creates a draft model from a checkpoint directory, and answers questions about it. */
#include "model/model.h"

#include "common/error.h"
#include "common/fnv.h"
#include "model/rope.h"

#include <stdio.h>
#include <stdlib.h>

enum { PATH_SIZE = 4096, SMALLEST_HEAD = 8 /* the attention kernels work on eight channels at a time */ };

static df_status join(const char *dir, const char *name, char path[PATH_SIZE], df_error *err) {
    const int length = snprintf(path, PATH_SIZE, "%s/%s", dir, name);
    if (length > 0 && length < PATH_SIZE) return DF_OK;
    return df_fail(err, DF_ERR_ARGUMENT, "path.long", "The checkpoint path %.200s... is longer than %d characters.",
                   dir, PATH_SIZE - 1);
}

static df_status check_supported(const df_config *config, df_error *err) {
    if (config->head_dim < SMALLEST_HEAD)
        return df_fail(err, DF_ERR_REFUSED, "config.head_dim.small",
                       "head_dim is %d: the attention kernels need at least %d channels a head.", config->head_dim,
                       SMALLEST_HEAD);
    return DF_OK;
}

df_status df_draft_load(df_engine *engine, const char *dir, df_draft **out, df_error *err) {
    return df_draft_load_as(engine, dir, DF_PRECISION_STORED, out, err);
}

static df_status check_precision(df_precision precision, df_error *err) {
    if ((unsigned)precision <= DF_PRECISION_FC) return DF_OK;
    return df_fail(err, DF_ERR_ARGUMENT, "precision.mode",
                   "Precision mode %d does not exist: expected one of df_precision, 0 to %d.", (int)precision,
                   DF_PRECISION_FC);
}

df_status df_draft_load_as(df_engine *engine, const char *dir, df_precision precision, df_draft **out, df_error *err) {
    char path[PATH_SIZE];
    df_config config;
    *out = NULL;
    df_status status = check_precision(precision, err);
    if (status == DF_OK) status = join(dir, "config.json", path, err);
    if (status == DF_OK) status = df_config_read(path, &config, err);
    return status == DF_OK ? df_draft_load_config(engine, dir, precision, &config, out, err) : status;
}

/* While the vectors are in host memory. */
static uint64_t weights_hash(const df_draft *draft) {
    const df_config *c = &draft->config;
    uint64_t hash = df_fnv(DF_FNV_START, draft->weights.hidden_norm, (size_t)c->hidden * sizeof(float));
    for (int i = 0; i < c->n_layers; i++) {
        const df_layer_weights *layer = &draft->weights.layer[i];
        hash = df_fnv(hash, layer->input_norm, (size_t)c->hidden * sizeof(float));
        hash = df_fnv(hash, layer->k_norm, (size_t)c->head_dim * sizeof(float));
    }
    return hash;
}

df_status df_draft_load_config(df_engine *engine, const char *dir, df_precision precision, const df_config *config,
                               df_draft **out, df_error *err) {
    char path[PATH_SIZE];
    *out = NULL;
    df_draft *draft = calloc(1, sizeof *draft);
    if (draft == NULL) return df_fail_memory(err, "the draft model", sizeof *draft);
    draft->engine = engine;
    draft->precision = precision;
    draft->config = *config;
    df_status status = check_supported(&draft->config, err);
    if (status == DF_OK) status = join(dir, "model.safetensors", path, err);
    if (status == DF_OK)
        status = df_weights_load_as(path, &draft->config, precision, engine->pool, &draft->weights, err);
    if (status != DF_OK) goto fail;
    const size_t half = (size_t)draft->config.rope.rotary_dim / 2;
    draft->inv_freq = malloc(half * sizeof(float));
    if (draft->inv_freq == NULL) {
        status = df_fail_memory(err, "the rotary table", half * sizeof(float));
        goto fail;
    }
    df_rope_inv_freq(&draft->config.rope, draft->inv_freq);
    status = df_rope_rows_open(&draft->rope, draft->inv_freq, (int)half,
                               (float)df_rope_attention_scaling(&draft->config.rope), err);
    if (status != DF_OK) goto fail;
    draft->weights_hash = weights_hash(draft);
    status = df_weights_place(&draft->weights, &draft->config, &engine->memory, err);
    if (status != DF_OK) goto fail;
    *out = draft;
    return DF_OK;

fail:
    df_draft_destroy(draft);
    return status;
}

void df_draft_destroy(df_draft *draft) {
    if (draft == NULL) return;
    df_weights_release(&draft->weights);
    df_rope_rows_close(&draft->rope);
    free(draft->inv_freq);
    free(draft);
}

const df_config *df_draft_config(const df_draft *draft) { return &draft->config; }

df_engine *df_draft_engine(const df_draft *draft) { return draft->engine; }

df_precision df_draft_precision(const df_draft *draft) { return draft->precision; }

size_t df_draft_weight_bytes(const df_draft *draft) { return draft->weights.bytes; }

int df_draft_tensor_count(const df_draft *draft) { return df_safetensors_count(draft->weights.file); }

df_tensor_view df_draft_tensor(const df_draft *draft, int index) {
    const df_tensor *tensor = df_safetensors_at(draft->weights.file, index);
    df_tensor_view view = {.name = tensor->name,
                           .dtype = tensor->type->name,
                           .rank = tensor->rank,
                           .data = tensor->data,
                           .bytes = tensor->bytes,
                           .used = draft->weights.used[index]};
    for (int i = 0; i < tensor->rank; i++) view.dim[i] = tensor->dim[i];
    return view;
}

void df_draft_observe(df_draft *draft, df_observe_fn fn, void *user) {
    draft->observe = fn;
    draft->observe_user = user;
}

void df_draft_replace(df_draft *draft, df_replace_fn fn, void *user) {
    draft->replace = fn;
    draft->replace_user = user;
}
