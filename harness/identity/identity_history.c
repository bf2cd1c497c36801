/* identity_history.c - see identity_history.h. */
#include "identity/identity_history.h"

#include "common/error.h"
#include "run/hosted.h"

#include <stdlib.h>
#include <string.h>

typedef struct history {
    const dp_rig *rig;
    const dp_subject *subject;
    const df_config *c;
    const float *given; /* features of the subject's own context */
    df_kv *kv, *ledger;
    int committed, synced;            /* rows; rows of the ledger that are those of the committed context */
    int serial;                       /* rows of the stream that were used up */
    int32_t window;                   /* the largest when every layer slides; 0 otherwise */
    float *features;                  /* [most committed, H] */
    float *noise, *result, *expected; /* [B, H] */
    int32_t *pos;                     /* [most committed + B] */
    dp_pair *pair;
    df_error *err;
} history;

int32_t dp_sliding_window(const df_config *c) {
    int32_t largest = 0;
    for (int i = 0; i < c->n_layers; i++) {
        if (c->layer[i].window == 0) return 0;
        if (c->layer[i].window > largest) largest = c->layer[i].window;
    }
    return largest;
}

static df_status begin(history *h, const dp_schedule *schedule) {
    const dp_schedule_size size = dp_schedule_measure(schedule);
    const size_t block = (size_t)h->c->block, hidden = (size_t)h->c->hidden, rows = (size_t)size.committed;
    const int room = size.committed + 2 * h->c->block;
    h->window = dp_sliding_window(h->c);
    h->features = malloc((rows + 1) * hidden * sizeof(float));
    h->noise = malloc(block * hidden * sizeof(float));
    h->result = malloc(block * hidden * sizeof(float));
    h->expected = malloc(block * hidden * sizeof(float));
    h->pos = malloc((rows + block) * sizeof *h->pos);
    if (h->features == NULL || h->noise == NULL || h->result == NULL || h->expected == NULL || h->pos == NULL)
        return df_fail_memory(h->err, "a history's rows", (rows + 3 * block) * hidden * sizeof(float));
    for (size_t i = 0; i < rows + block; i++) h->pos[i] = dp_subject_position(h->subject, (int)i);
    const df_status status = df_kv_create(h->rig->draft, room, &h->ledger, h->err);
    if (status != DF_OK) return status;
    return df_kv_create(h->rig->draft, schedule->cache_rows > 0 ? schedule->cache_rows : room, &h->kv, h->err);
}

static void end(history *h) {
    df_kv_destroy(h->kv);
    df_kv_destroy(h->ledger);
    free(h->features);
    free(h->noise);
    free(h->result);
    free(h->expected);
    free(h->pos);
}

/* The cache holds the end of the committed context and nothing else: all of it, unless every layer slides; then at
 * least what the next query can see. */
static bool holds_context(const history *h) {
    const int held = df_kv_len(h->kv),
              least = h->window > 0 && h->window - 1 < h->committed ? h->window - 1 : h->committed;
    return held >= least && held <= h->committed && (held == 0 || df_kv_floor(h->kv) == h->pos[h->committed - held]);
}

static df_status ingest(history *h, int rows) {
    const size_t hidden = (size_t)h->c->hidden;
    float *first = h->features + (size_t)h->committed * hidden;
    for (int i = 0; i < rows; i++) dp_subject_row(h->subject, h->given, h->serial + i, first + (size_t)i * hidden);
    const df_status status = dp_step_ingest(h->rig, h->subject, h->kv, first, h->pos + h->committed, rows, h->err);
    if (status != DF_OK) return status;
    h->serial += rows;
    h->committed += rows;
    return DF_OK;
}

static df_status roll_back(history *h, int rows) {
    const df_status status = dp_step_truncate(h->subject, h->kv, rows, h->err);
    if (status != DF_OK) return status;
    h->committed -= rows;
    if (h->synced > h->committed) h->synced = h->committed;
    return DF_OK;
}

/* The ledger becomes the committed context, and drafts over it. */
static df_status draft_from_ledger(history *h) {
    df_status status = df_kv_truncate(h->ledger, h->synced, h->err);
    if (status == DF_OK && h->committed > h->synced)
        status = dp_ingest_ctx(h->rig->draft, h->ledger, h->features + (size_t)h->synced * (size_t)h->c->hidden,
                               h->pos + h->synced, h->committed - h->synced, h->err);
    if (status != DF_OK) return status;
    h->synced = h->committed;
    return dp_forward_round(h->rig->draft, h->ledger, h->noise, h->pos + h->committed, h->expected, h->err);
}

/* Stage by stage against forward_block. */
static df_status check_stages(history *h, bool *same) {
    dp_recording block = {.stage = NULL}, round = {.stage = NULL};
    dp_pair pair = {.stage = NULL};
    const dp_round_input input = {.features = h->features, .noise = h->noise, .pos = h->pos, .context = h->committed};
    df_status status = dp_record_block(h->rig, h->subject, &input, df_kv_len(h->kv), &block, h->err);
    if (status == DF_OK)
        status = dp_record_round(h->rig, h->subject, h->kv, h->noise, h->pos + h->committed, &round, h->err);
    if (status == DF_OK) status = dp_pair_compare(&block, &round, DP_PAIR_ROUND, &h->subject->in, &pair, h->err);
    if (status == DF_OK) *same = dp_pair_passes(&pair);
    if (status == DF_OK) status = dp_pair_compare(&block, &round, DP_PAIR_ROUND, &h->subject->in, h->pair, h->err);
    dp_pair_release(&pair);
    dp_recording_release(&block);
    dp_recording_release(&round);
    return status;
}

static df_status draft(history *h, int index, bool stages, bool *same) {
    const int64_t dim[] = {h->c->block, h->c->hidden};
    dp_subject_noise(h->subject, index, h->noise);
    df_status status = dp_step_round(h->rig, h->subject, h->kv, h->noise, h->pos + h->committed, h->result, h->err);
    if (status == DF_OK && !holds_context(h)) return DF_OK; /* the caller sees that too, and says so */
    if (status == DF_OK) status = draft_from_ledger(h);
    if (status != DF_OK) return status;
    *same = dp_first_bit_difference(h->expected, h->result, dim[0] * dim[1]) < 0;
    if (!*same || stages) { /* what differs is looked at stage by stage, to name the first */
        bool stages_same = true;
        status = check_stages(h, &stages_same);
        *same = *same && stages_same;
    }
    return status == DF_OK
               ? dp_pair_floats(DF_STAGE_FINAL, -1, 2, dim, h->expected, h->result, &h->subject->in, h->pair, h->err)
               : status;
}

static df_status take_step(history *h, dp_step step, int drafts, int last, bool every_stage, bool *same) {
    switch (step.kind) {
    case 'i':
        return ingest(h, step.rows);
    case 't':
        return roll_back(h, step.rows);
    case 'x':
        return dp_step_move(h->rig, h->subject, &h->kv, h->err);
    default:
        break;
    }
    return draft(h, drafts, every_stage || drafts + 1 == last || drafts % DP_HISTORY_CHECK_EVERY == 0, same);
}

df_status dp_history_run(const dp_rig *rig, const dp_subject *subject, const float *features,
                         const dp_schedule *schedule, bool every_stage, dp_pair *pair, dp_history_result *out,
                         df_error *err) {
    history h = {.rig = rig, .subject = subject, .c = &subject->in.config, .given = features, .pair = pair, .err = err};
    const int last = dp_schedule_measure(schedule).drafts;
    *out = (dp_history_result){.end = DP_HISTORY_SAME};
    df_status status = begin(&h, schedule);
    const bool begun = status == DF_OK;
    for (int i = 0; status == DF_OK && out->end == DP_HISTORY_SAME && i < schedule->count; i++) {
        bool same = true;
        out->step = i;
        status = take_step(&h, schedule->step[i], out->drafts, last, every_stage, &same);
        if (status == DF_OK && schedule->step[i].kind == 'd') out->drafts++;
        if (status == DF_OK && same && !holds_context(&h)) {
            same = false;
            status = dp_pair_lacking(DF_STAGE_KV_K, -1, pair, err);
        }
        if (!same) out->end = DP_HISTORY_DIFFERS;
    }
    if ((begun || schedule->cache_rows > 0) && (status == DF_ERR_ARGUMENT || status == DF_ERR_REFUSED)) {
        out->end = DP_HISTORY_REFUSED;
        out->why = *err;
        status = DF_OK;
    }
    end(&h);
    return status;
}
