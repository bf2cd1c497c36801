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
static dflash_status add_context(const dflash_config *c, int context, int held, dp_recording *out, dflash_error *err) {
    const size_t width = dp_key_width(c), layer = (size_t)held * width, skip = (size_t)(context - held) * width;
    const int64_t rows = (int64_t)context + c->block;
    float *k = NULL, *v = NULL;
    bool whole = true;
    dflash_status status = dp_take_cache(c, held, &k, &v, err);
    for (int i = 0; status == DFLASH_OK && whole && i < c->n_layers; i++) {
        const dp_recorded *keys = dp_recording_find(out, DFLASH_STAGE_ATTN_K_ROPE, i);
        const dp_recorded *values = dp_recording_find(out, DFLASH_STAGE_ATTN_V, i);
        whole = keys != NULL && values != NULL && keys->dim[0] == rows && values->dim[0] == rows;
        if (!whole) break;
        memcpy(k + (size_t)i * layer, keys->value + skip, layer * sizeof *k);
        memcpy(v + (size_t)i * layer, values->value + skip, layer * sizeof *v);
    }
    if (status == DFLASH_OK && whole) status = dp_recording_add_cache(c, held, k, v, out, err);
    free(k);
    free(v);
    return status;
}

dflash_status dp_record_features(const dp_rig *rig, const dp_subject *subject, float *features, dp_recording *out,
                                 dflash_error *err) {
    dflash_draft_observe(rig->draft, dp_recording_observe, out);
    const dflash_status status = dp_ctx_features(rig->draft, subject->in.taps, subject->in.context, features, err);
    dflash_draft_observe(rig->draft, NULL, NULL);
    return status == DFLASH_OK ? dp_recording_status(out, err) : status;
}

/* The proposal follows from the block's result, as a caller has it. */
static dflash_status finish(const dp_rig *rig, const dp_subject *subject, dflash_status status, const float *result,
                            dp_recording *out, dflash_error *err) {
    if (status == DFLASH_OK) status = dp_recording_status(out, err);
    return status == DFLASH_OK && rig->head != NULL
               ? dp_run_proposal(rig->draft, rig->head, result, subject->in.anchor, out, err)
               : status;
}

static dflash_status take_result(const dflash_config *c, float **result, dflash_error *err) {
    const size_t n = (size_t)c->block * (size_t)c->hidden;
    *result = malloc(n * sizeof **result);
    return *result != NULL ? DFLASH_OK : df_fail_memory(err, "a block's result", n * sizeof **result);
}

dflash_status dp_record_block(const dp_rig *rig, const dp_subject *subject, const dp_round_input *input, int held,
                              dp_recording *out, dflash_error *err) {
    const dflash_config *c = dflash_draft_config(rig->draft);
    float *result = NULL;
    dflash_status status = take_result(c, &result, err);
    if (status != DFLASH_OK) return status;
    dflash_draft_observe(rig->draft, dp_recording_observe, out);
    status = dp_forward_block(rig->draft, input->features, input->noise, input->pos, input->context, result, err);
    dflash_draft_observe(rig->draft, NULL, NULL);
    status = finish(rig, subject, status, result, out, err);
    if (status == DFLASH_OK) status = add_context(c, input->context, held, out, err);
    free(result);
    return status;
}

dflash_status dp_record_round(const dp_rig *rig, const dp_subject *subject, dflash_kv *kv, const float *noise,
                              const int32_t *pos, dp_recording *out, dflash_error *err) {
    float *result = NULL;
    dflash_status status = take_result(dflash_draft_config(rig->draft), &result, err);
    if (status == DFLASH_OK) status = dp_record_cache(rig->draft, kv, out, err);
    if (status == DFLASH_OK) {
        dflash_draft_observe(rig->draft, dp_recording_observe, out);
        status = dp_step_round(rig, subject, kv, noise, pos, result, err);
        dflash_draft_observe(rig->draft, NULL, NULL);
        status = finish(rig, subject, status, result, out, err);
    }
    free(result);
    return status;
}

/* ---- Steps of a cache ---- */

static void show(const dp_subject *subject, dflash_kv *kv, char kind, bool before) {
    if (subject->hooks != NULL && subject->hooks->step != NULL)
        subject->hooks->step(kv, kind, before, subject->hooks->user);
}

dflash_status dp_step_ingest(const dp_rig *rig, const dp_subject *subject, dflash_kv *kv, const float *features,
                             const int32_t *pos, int rows, dflash_error *err) {
    show(subject, kv, 'i', true);
    const dflash_status status = dp_ingest_ctx(rig->draft, kv, features, pos, rows, err);
    show(subject, kv, 'i', false);
    return status;
}

dflash_status dp_step_truncate(const dp_subject *subject, dflash_kv *kv, int rows, dflash_error *err) {
    show(subject, kv, 't', true);
    const dflash_status status = dflash_kv_truncate(kv, dflash_kv_len(kv) - rows, err);
    show(subject, kv, 't', false);
    return status;
}

dflash_status dp_step_round(const dp_rig *rig, const dp_subject *subject, dflash_kv *kv, const float *noise,
                            const int32_t *pos, float *out, dflash_error *err) {
    show(subject, kv, 'd', true);
    const dflash_status status = dp_forward_round(rig->draft, kv, noise, pos, out, err);
    show(subject, kv, 'd', false);
    return status;
}

dflash_status dp_step_move(const dp_rig *rig, const dp_subject *subject, dflash_kv **kv, dflash_error *err) {
    dflash_kv_blob blob = {.data = NULL};
    dflash_kv *moved = NULL;
    dflash_status status = dflash_kv_create(rig->draft, dflash_kv_capacity(*kv), &moved, err);
    if (status == DFLASH_OK) status = dflash_kv_export_tail(*kv, dflash_kv_len(*kv), &blob, err);
    if (status == DFLASH_OK) status = dflash_kv_import_tail(moved, &blob, err);
    dflash_kv_blob_free(&blob);
    if (status != DFLASH_OK) {
        dflash_kv_destroy(moved);
        return status;
    }
    dflash_kv_destroy(*kv);
    *kv = moved;
    show(subject, moved, 'x', false);
    return DFLASH_OK;
}
