/* record_run.c - see record_run.h. */
#include "judge/record_run.h"

#include "preflight/embedding.h"
#include "common/error.h"
#include "run/hosted.h"
#include "run/cache_recording.h"
#include "run/proposal.h"

#include <stdio.h>
#include <stdlib.h>

dflash_status dp_oracle_precision(const char *path, dflash_precision *out, dflash_error *err) {
    dp_oracle *oracle = NULL;
    TRY(dp_oracle_open(path, &oracle, err));
    const cJSON *record = cJSON_GetObjectItemCaseSensitive(dp_oracle_provenance(oracle), "precision");
    const char *name = record == NULL ? "stored" : cJSON_GetStringValue(record);
    dflash_status status = DFLASH_OK;
    if (name == NULL || !dflash_precision_parse(name, out))
        status = df_fail(err, DFLASH_ERR_REFUSED, "provenance.precision",
                         "%s was computed with the precision %.60s; expected stored, f32, bf16, q8_0, q4_0, mixed or "
                         "fc. Generate the oracle again.",
                         path, name != NULL ? name : "that is not a string");
    dp_oracle_close(oracle);
    return status;
}

static dflash_status load_head(const dp_run_setup *setup, dp_run_record *run, dflash_error *err) {
    if (run->in.vocab == 0 && setup->head != NULL)
        return df_fail(err, DFLASH_ERR_REFUSED, "oracle.head.unused",
                       "An output head was given (%s), but the reference of %s ran none, so there is no anchor to "
                       "draft from. Leave --lm-head out, or give the oracle of a run with a head.",
                       setup->head, setup->oracle);
    if (run->in.vocab == 0) return DFLASH_OK;
    return dp_head_load(run->handle, setup->checkpoint, setup->head, run->in.oracle, &run->head, err);
}

static dflash_status load(const dp_run_setup *setup, dp_run_record *run, dflash_error *err) {
    dflash_precision claimed = DFLASH_PRECISION_STORED;
    TRY(dp_oracle_precision(setup->oracle, &claimed, err));
    TRY(dp_preflight_run(setup->checkpoint, setup->oracle, claimed, &run->in, err));
    run->precision = setup->has_precision ? setup->precision : claimed;
    run->engine = setup->engine;
    run->engine.poison_scratch = true;
    TRY(dflash_engine_create(&run->engine, &run->handle, err));
    TRY(dflash_draft_load_as(run->handle, setup->checkpoint, run->precision, &run->draft, err));
    TRY(load_head(setup, run, err));
    return dp_embedding_load(run->handle, setup->checkpoint, &run->in, &run->embedding, err);
}

/* The context's rows as the cache itself holds them, not as the block's stages suggest. */
static dflash_status record_cache(dp_run_record *run, const float *features, dflash_error *err) {
    dflash_kv *kv = NULL;
    dflash_status status = dflash_kv_create(run->draft, run->in.context + run->in.config.block, &kv, err);
    if (status == DFLASH_OK) status = dp_ingest_ctx(run->draft, kv, features, run->in.pos, run->in.context, err);
    if (status == DFLASH_OK) status = dp_record_cache(run->draft, kv, &run->stages, err);
    dflash_kv_destroy(kv);
    return status;
}

static dflash_status forward(dp_run_record *run, float *features, float *noise, float *result, dflash_error *err) {
    const dp_preflight *in = &run->in;
    dflash_draft_observe(run->draft, dp_recording_observe, &run->stages);
    dflash_status status = dp_ctx_features(run->draft, in->taps, in->context, features, err);
    if (status == DFLASH_OK) status = dp_embedding_run(run->draft, run->embedding, in, noise, err);
    if (status == DFLASH_OK) status = dp_forward_block(run->draft, features, noise, in->pos, in->context, result, err);
    dflash_draft_observe(run->draft, NULL, NULL);
    if (status == DFLASH_OK) status = dp_recording_status(&run->stages, err);
    if (status == DFLASH_OK && run->head != NULL)
        status = dp_run_proposal(run->draft, run->head, result, in->anchor, &run->stages, err);
    return status;
}

dflash_status dp_run_and_record(const dp_run_setup *setup, dp_run_record *out, dflash_error *err) {
    *out = (dp_run_record){.handle = NULL};
    TRY(load(setup, out, err));
    const size_t hidden = (size_t)out->in.config.hidden;
    const size_t context = (size_t)out->in.context * hidden, block = (size_t)out->in.config.block * hidden;
    float *features = malloc(context * sizeof *features), *noise = malloc(block * sizeof *noise),
          *result = malloc(block * sizeof *result);
    dflash_status status = DFLASH_OK;
    if (features == NULL || noise == NULL || result == NULL)
        status = df_fail_memory(err, "the run's outputs", (context + 2 * block) * sizeof *features);
    if (status == DFLASH_OK) status = forward(out, features, noise, result, err);
    if (status == DFLASH_OK) status = record_cache(out, features, err);
    free(features);
    free(noise);
    free(result);
    return status;
}

void dp_run_record_release(dp_run_record *run) {
    dp_recording_release(&run->stages);
    dflash_table_destroy(run->head);
    dflash_table_destroy(run->embedding);
    dflash_draft_destroy(run->draft);
    dflash_engine_destroy(run->handle);
    dp_preflight_release(&run->in);
    *run = (dp_run_record){.handle = NULL};
}
