/* identity_run.c - see identity_run.h. */
#include "identity/identity_run.h"

#include "common/error.h"
#include "run/cache_recording.h"
#include "run/hosted.h"
#include "run/proposal.h"

#include <stdlib.h>
#include <string.h>

/* What a cache of the last `held` context rows holds: those rows of attn.k_rope and attn.v. A stage that is lacking
 * leaves kv.* lacking too. */
static df_status add_context(const df_config *c, int context, int held, dp_recording *out, df_error *err) {
    const size_t width = dp_key_width(c), layer = (size_t)held * width, skip = (size_t)(context - held) * width;
    const int64_t rows = (int64_t)context + c->block;
    float *k = NULL, *v = NULL;
    bool whole = true;
    df_status status = dp_take_cache(c, held, &k, &v, err);
    for (int i = 0; status == DF_OK && whole && i < c->n_layers; i++) {
        const dp_recorded *keys = dp_recording_find(out, DF_STAGE_ATTN_K_ROPE, i);
        const dp_recorded *values = dp_recording_find(out, DF_STAGE_ATTN_V, i);
        whole = keys != NULL && values != NULL && keys->dim[0] == rows && values->dim[0] == rows;
        if (!whole) break;
        memcpy(k + (size_t)i * layer, keys->value + skip, layer * sizeof *k);
        memcpy(v + (size_t)i * layer, values->value + skip, layer * sizeof *v);
    }
    if (status == DF_OK && whole) status = dp_recording_add_cache(c, held, k, v, out, err);
    free(k);
    free(v);
    return status;
}

df_status dp_record_features(const dp_rig *rig, const dp_subject *subject, float *features, dp_recording *out,
                             df_error *err) {
    df_draft_observe(rig->draft, dp_recording_observe, out);
    const df_status status = dp_ctx_features(rig->draft, subject->in.taps, subject->in.context, features, err);
    df_draft_observe(rig->draft, NULL, NULL);
    return status == DF_OK ? dp_recording_status(out, err) : status;
}

/* The proposal follows from the block's result, as a caller has it. */
static df_status finish(const dp_rig *rig, const dp_subject *subject, df_status status, const float *result,
                        dp_recording *out, df_error *err) {
    if (status == DF_OK) status = dp_recording_status(out, err);
    return status == DF_OK && rig->head != NULL
               ? dp_run_proposal(rig->draft, rig->head, result, subject->in.anchor, out, err)
               : status;
}

static df_status take_result(const df_config *c, float **result, df_error *err) {
    const size_t n = (size_t)c->block * (size_t)c->hidden;
    *result = malloc(n * sizeof **result);
    return *result != NULL ? DF_OK : df_fail_memory(err, "a block's result", n * sizeof **result);
}

df_status dp_record_block(const dp_rig *rig, const dp_subject *subject, const dp_round_input *input, int held,
                          dp_recording *out, df_error *err) {
    const df_config *c = df_draft_config(rig->draft);
    float *result = NULL;
    df_status status = take_result(c, &result, err);
    if (status != DF_OK) return status;
    df_draft_observe(rig->draft, dp_recording_observe, out);
    status = dp_forward_block(rig->draft, input->features, input->noise, input->pos, input->context, result, err);
    df_draft_observe(rig->draft, NULL, NULL);
    status = finish(rig, subject, status, result, out, err);
    if (status == DF_OK) status = add_context(c, input->context, held, out, err);
    free(result);
    return status;
}

df_status dp_record_round(const dp_rig *rig, const dp_subject *subject, df_kv *kv, const float *noise,
                          const int32_t *pos, dp_recording *out, df_error *err) {
    float *result = NULL;
    df_status status = take_result(df_draft_config(rig->draft), &result, err);
    if (status == DF_OK) status = dp_record_cache(rig->draft, kv, out, err);
    if (status == DF_OK) {
        df_draft_observe(rig->draft, dp_recording_observe, out);
        status = dp_step_round(rig, subject, kv, noise, pos, result, err);
        df_draft_observe(rig->draft, NULL, NULL);
        status = finish(rig, subject, status, result, out, err);
    }
    free(result);
    return status;
}

/* ---- Steps of a cache
 * ------------------------------------------------------------------------------------------------ */

static void show(const dp_subject *subject, df_kv *kv, char kind, bool before) {
    if (subject->hooks != NULL && subject->hooks->step != NULL)
        subject->hooks->step(kv, kind, before, subject->hooks->user);
}

df_status dp_step_ingest(const dp_rig *rig, const dp_subject *subject, df_kv *kv, const float *features,
                         const int32_t *pos, int rows, df_error *err) {
    show(subject, kv, 'i', true);
    const df_status status = dp_ingest_ctx(rig->draft, kv, features, pos, rows, err);
    show(subject, kv, 'i', false);
    return status;
}

df_status dp_step_truncate(const dp_subject *subject, df_kv *kv, int rows, df_error *err) {
    show(subject, kv, 't', true);
    const df_status status = df_kv_truncate(kv, df_kv_len(kv) - rows, err);
    show(subject, kv, 't', false);
    return status;
}

df_status dp_step_round(const dp_rig *rig, const dp_subject *subject, df_kv *kv, const float *noise, const int32_t *pos,
                        float *out, df_error *err) {
    show(subject, kv, 'd', true);
    const df_status status = dp_forward_round(rig->draft, kv, noise, pos, out, err);
    show(subject, kv, 'd', false);
    return status;
}

df_status dp_step_move(const dp_rig *rig, const dp_subject *subject, df_kv **kv, df_error *err) {
    df_kv_blob blob = {.data = NULL};
    df_kv *moved = NULL;
    df_status status = df_kv_create(rig->draft, df_kv_capacity(*kv), &moved, err);
    if (status == DF_OK) status = df_kv_export_tail(*kv, df_kv_len(*kv), &blob, err);
    if (status == DF_OK) status = df_kv_import_tail(moved, &blob, err);
    df_kv_blob_free(&blob);
    if (status != DF_OK) {
        df_kv_destroy(moved);
        return status;
    }
    df_kv_destroy(*kv);
    *kv = moved;
    show(subject, moved, 'x', false);
    return DF_OK;
}
