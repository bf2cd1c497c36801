/* identity_history.c - see identity_history.h. */
#include "identity/identity_history.h"

#include "common/error.h"
#include "run/hosted.h"

#include <stdlib.h>
#include <string.h>

typedef struct history {
    const dp_rig *rig;
    const dp_subject *subject;
    const dflash_config *c;
    const float *given; /* features of the subject's own context */
    dflash_kv *kv, *ledger;
    int committed, synced;            /* rows; rows of the ledger that are those of the committed context */
    int serial;                       /* rows of the stream that were used up */
    int32_t window;                   /* the largest when every layer slides; 0 otherwise */
    float *features;                  /* [most committed, H] */
    float *noise, *result, *expected; /* [B, H] */
    int32_t *pos;                     /* [most committed + B] */
    dp_pair *pair;
    dflash_error *err;
} history;

int32_t dp_sliding_window(const dflash_config *c) {
    int32_t largest = 0;
    for (int i = 0; i < c->n_layers; i++) {
        if (c->layer[i].window == 0) return 0;
        if (c->layer[i].window > largest) largest = c->layer[i].window;
    }
    return largest;
}

static dflash_status begin(history *h, const dp_schedule *schedule) {
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
    const dflash_status status = dflash_kv_create(h->rig->draft, room, &h->ledger, h->err);
    if (status != DFLASH_OK) return status;
    return dflash_kv_create(h->rig->draft, schedule->cache_rows > 0 ? schedule->cache_rows : room, &h->kv, h->err);
}

static void end(history *h) {
    dflash_kv_destroy(h->kv);
    dflash_kv_destroy(h->ledger);
    free(h->features);
    free(h->noise);
    free(h->result);
    free(h->expected);
    free(h->pos);
}

/* The cache holds the end of the committed context and nothing else: all of it, unless every layer slides; then at
 * least what the next query can see. */
static bool holds_context(const history *h) {
    const int held = dflash_kv_len(h->kv),
              least = h->window > 0 && h->window - 1 < h->committed ? h->window - 1 : h->committed;
    return held >= least && held <= h->committed &&
           (held == 0 || dflash_kv_floor(h->kv) == h->pos[h->committed - held]);
}

static dflash_status ingest(history *h, int rows) {
    const size_t hidden = (size_t)h->c->hidden;
    float *first = h->features + (size_t)h->committed * hidden;
    for (int i = 0; i < rows; i++) dp_subject_row(h->subject, h->given, h->serial + i, first + (size_t)i * hidden);
    const dflash_status status = dp_step_ingest(h->rig, h->subject, h->kv, first, h->pos + h->committed, rows, h->err);
    if (status != DFLASH_OK) return status;
    h->serial += rows;
    h->committed += rows;
    return DFLASH_OK;
}

static dflash_status roll_back(history *h, int rows) {
    const dflash_status status = dp_step_truncate(h->subject, h->kv, rows, h->err);
    if (status != DFLASH_OK) return status;
    h->committed -= rows;
    if (h->synced > h->committed) h->synced = h->committed;
    return DFLASH_OK;
}

/* The ledger becomes the committed context, and drafts over it. */
static dflash_status draft_from_ledger(history *h) {
    dflash_status status = dflash_kv_truncate(h->ledger, h->synced, h->err);
    if (status == DFLASH_OK && h->committed > h->synced)
        status = dp_ingest_ctx(h->rig->draft, h->ledger, h->features + (size_t)h->synced * (size_t)h->c->hidden,
                               h->pos + h->synced, h->committed - h->synced, h->err);
    if (status != DFLASH_OK) return status;
    h->synced = h->committed;
    return dp_forward_round(h->rig->draft, h->ledger, h->noise, h->pos + h->committed, h->expected, h->err);
}

/* Stage by stage against forward_block. */
static dflash_status check_stages(history *h, bool *same) {
    dp_recording block = {.stage = NULL}, round = {.stage = NULL};
    dp_pair pair = {.stage = NULL};
    const dp_round_input input = {.features = h->features, .noise = h->noise, .pos = h->pos, .context = h->committed};
    dflash_status status = dp_record_block(h->rig, h->subject, &input, dflash_kv_len(h->kv), &block, h->err);
    if (status == DFLASH_OK)
        status = dp_record_round(h->rig, h->subject, h->kv, h->noise, h->pos + h->committed, &round, h->err);
    if (status == DFLASH_OK) status = dp_pair_compare(&block, &round, DP_PAIR_ROUND, &h->subject->in, &pair, h->err);
    if (status == DFLASH_OK) *same = dp_pair_passes(&pair);
    if (status == DFLASH_OK) status = dp_pair_compare(&block, &round, DP_PAIR_ROUND, &h->subject->in, h->pair, h->err);
    dp_pair_release(&pair);
    dp_recording_release(&block);
    dp_recording_release(&round);
    return status;
}

static dflash_status draft(history *h, int index, bool stages, bool *same) {
    const int64_t dim[] = {h->c->block, h->c->hidden};
    dp_subject_noise(h->subject, index, h->noise);
    dflash_status status = dp_step_round(h->rig, h->subject, h->kv, h->noise, h->pos + h->committed, h->result, h->err);
    if (status == DFLASH_OK && !holds_context(h)) return DFLASH_OK; /* the caller sees that too, and says so */
    if (status == DFLASH_OK) status = draft_from_ledger(h);
    if (status != DFLASH_OK) return status;
    *same = dp_first_bit_difference(h->expected, h->result, dim[0] * dim[1]) < 0;
    if (!*same || stages) { /* what differs is looked at stage by stage, to name the first */
        bool stages_same = true;
        status = check_stages(h, &stages_same);
        *same = *same && stages_same;
    }
    return status == DFLASH_OK ? dp_pair_floats(DFLASH_STAGE_FINAL, -1, 2, dim, h->expected, h->result, &h->subject->in,
                                                h->pair, h->err)
                               : status;
}

static dflash_status take_step(history *h, dp_step step, int drafts, int last, bool every_stage, bool *same) {
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

dflash_status dp_history_run(const dp_rig *rig, const dp_subject *subject, const float *features,
                             const dp_schedule *schedule, bool every_stage, dp_pair *pair, dp_history_result *out,
                             dflash_error *err) {
    history h = {.rig = rig, .subject = subject, .c = &subject->in.config, .given = features, .pair = pair, .err = err};
    const int last = dp_schedule_measure(schedule).drafts;
    *out = (dp_history_result){.end = DP_HISTORY_SAME};
    dflash_status status = begin(&h, schedule);
    const bool begun = status == DFLASH_OK;
    for (int i = 0; status == DFLASH_OK && out->end == DP_HISTORY_SAME && i < schedule->count; i++) {
        bool same = true;
        out->step = i;
        status = take_step(&h, schedule->step[i], out->drafts, last, every_stage, &same);
        if (status == DFLASH_OK && schedule->step[i].kind == 'd') out->drafts++;
        if (status == DFLASH_OK && same && !holds_context(&h)) {
            same = false;
            status = dp_pair_lacking(DFLASH_STAGE_KV_K, -1, pair, err);
        }
        if (!same) out->end = DP_HISTORY_DIFFERS;
    }
    if ((begun || schedule->cache_rows > 0) && (status == DFLASH_ERR_ARGUMENT || status == DFLASH_ERR_REFUSED)) {
        out->end = DP_HISTORY_REFUSED;
        out->why = *err;
        status = DFLASH_OK;
    }
    end(&h);
    return status;
}
