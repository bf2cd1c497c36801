/* rounds.c - see rounds.h. */
#include "judge/rounds.h"

#include "common/error.h"
#include "run/hosted.h"
#include "store/stage_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t dp_first_bit_difference(const float *a, const float *b, int64_t count) {
    if (memcmp(a, b, (size_t)count * sizeof *a) == 0) return -1;
    int64_t i = 0;
    while (memcmp(&a[i], &b[i], sizeof *a) == 0) i++;
    return i;
}

int64_t dp_first_nonfinite(const float *value, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &value[i], sizeof bits);
        if ((bits & 0x7f800000u) == 0x7f800000u) return i;
    }
    return -1;
}

/* Compares `count` values and remembers the first difference of the whole variant. */
static void compare_bits(dp_variant_result *variant, const char *stage, const float *block, const float *round,
                         int64_t count) {
    variant->compared += count;
    if (!variant->identical) return;
    int64_t at = dp_first_bit_difference(block, round, count);
    if (at < 0) {
        at = dp_first_nonfinite(round, count);
        variant->nonfinite = at >= 0;
    }
    if (at < 0) return;
    variant->identical = false;
    snprintf(variant->stage, sizeof variant->stage, "%s", stage);
    variant->index = at;
    memcpy(&variant->block_bits, &block[at], sizeof variant->block_bits);
    memcpy(&variant->round_bits, &round[at], sizeof variant->round_bits);
}

/* A stage that one side lacks, or shows with other rows, is a difference, at index -1. */
void dp_variant_lacks(dp_variant_result *variant, const char *stage) {
    if (!variant->identical) return;
    variant->identical = false;
    snprintf(variant->stage, sizeof variant->stage, "%s", stage);
    variant->index = -1;
}

bool dp_stage_shows_context(dflash_stage stage) {
    return stage == DFLASH_STAGE_ROPE_COS || stage == DFLASH_STAGE_ROPE_SIN || stage == DFLASH_STAGE_ATTN_K_PROJ ||
           stage == DFLASH_STAGE_ATTN_V || stage == DFLASH_STAGE_ATTN_K_NORM || stage == DFLASH_STAGE_ATTN_K_ROPE;
}

/* Shown before the programs that are compared, to which they are inputs. */
static bool before_programs(dflash_stage stage) {
    return stage == DFLASH_STAGE_CTX_FC || stage == DFLASH_STAGE_CTX_FEATURES || stage == DFLASH_STAGE_INPUT;
}

/* The cache's rows against the last context rows that forward_block recomputed. */
static dflash_status compare_cache(dflash_draft *draft, const dflash_kv *kv, int context, const dp_recording *block,
                                   int least, dp_variant_result *variant, dflash_error *err) {
    const dflash_config *c = dflash_draft_config(draft);
    const int held = dflash_kv_len(kv);
    const int64_t row = (int64_t)c->n_kv_heads * c->head_dim, n = held * row, whole = context * row;
    if (held < least || held > context) {
        dp_variant_lacks(variant, "kv.k"); /* rows that were ingested and are not there, or rows too many */
        return DFLASH_OK;
    }
    float *keys = malloc((size_t)(n + 1) * sizeof *keys), *values = malloc((size_t)(n + 1) * sizeof *values);
    dflash_status status =
        keys != NULL && values != NULL ? DFLASH_OK : df_fail_memory(err, "the cache's content", (size_t)n * 8);
    for (int layer = 0; status == DFLASH_OK && layer < c->n_layers; layer++) {
        const dp_recorded *k = dp_recording_find(block, DFLASH_STAGE_ATTN_K_ROPE, layer);
        const dp_recorded *v = dp_recording_find(block, DFLASH_STAGE_ATTN_V, layer);
        status = dflash_kv_read(kv, layer, keys, values, err);
        if (status != DFLASH_OK) break;
        if (k == NULL || v == NULL || dp_dims_product(k->rank, k->dim) < whole ||
            dp_dims_product(v->rank, v->dim) < whole) {
            dp_variant_lacks(variant, k == NULL || dp_dims_product(k->rank, k->dim) < whole ? "kv.k" : "kv.v");
            break;
        }
        compare_bits(variant, "kv.k", k->value + whole - n, keys, n);
        compare_bits(variant, "kv.v", v->value + whole - n, values, n);
    }
    free(keys);
    free(values);
    return status;
}

/* Every stage of a run against the same stage of the block run, or against its last rows. A round shows the block's
 * rows alone, another block run `context` rows more. */
static void compare_stages(const dp_recording *block, const dp_recording *run, int rows, dp_variant_result *variant) {
    char name[DFLASH_STAGE_NAME_MAX];
    for (int i = 0; i < block->count; i++) {
        const dp_recorded *b = &block->stage[i];
        if (before_programs(b->stage)) continue;
        if (b->stage > DFLASH_STAGE_FINAL) continue; /* proposals follow from `final`; compare_cache does the cache */
        dflash_stage_name(b->stage, b->layer, name);
        const dp_recorded *r = dp_recording_find(run, b->stage, b->layer);
        const int64_t expected = dp_stage_shows_context(b->stage) ? rows : b->dim[0];
        if (r == NULL || r->rank != b->rank || r->dim[0] != expected || expected > b->dim[0] ||
            !dp_dims_equal(b->rank - 1, b->dim + 1, r->rank - 1, r->dim + 1)) {
            dp_variant_lacks(variant, name);
            continue;
        }
        const int64_t row = dp_dims_product(b->rank - 1, b->dim + 1);
        compare_bits(variant, name, b->value + (b->dim[0] - expected) * row, r->value, expected * row);
    }
    for (int i = 0; i < run->count; i++) {
        const dp_recorded *r = &run->stage[i];
        if (dp_recording_find(block, r->stage, r->layer) == NULL && !before_programs(r->stage))
            dp_variant_lacks(variant, dflash_stage_name(r->stage, r->layer, name));
    }
}

void dp_variant_begin(dp_variant_result *out, const char *name, int chunk) {
    *out = (dp_variant_result){.chunk = chunk, .identical = true};
    snprintf(out->name, sizeof out->name, "%s", name);
}

/* What the caller receives, not only what the observer saw. */
static void compare_result(const dflash_draft *draft, const dp_recording *block, const float *result,
                           dp_variant_result *out) {
    const dflash_config *c = dflash_draft_config(draft);
    const dp_recorded *final = dp_recording_find(block, DFLASH_STAGE_FINAL, -1);
    if (final == NULL)
        dp_variant_lacks(out, "final");
    else
        compare_bits(out, "final", final->value, result, (int64_t)c->block * c->hidden);
}

void dp_compare_runs(const dflash_draft *draft, const dp_recording *block, const dp_recording *run, int context,
                     const float *result, dp_variant_result *out) {
    const dflash_config *c = dflash_draft_config(draft);
    compare_stages(block, run, context + c->block, out);
    compare_result(draft, block, result, out);
    if (out->compared == 0) out->identical = false;
}

dflash_status dp_compare_round(dflash_draft *draft, dflash_kv *kv, const dp_round_input *input,
                               const dp_recording *block, int least, bool twice, dp_variant_result *out,
                               dflash_error *err) {
    const dflash_config *c = dflash_draft_config(draft);
    dp_recording round = {.stage = NULL};
    float *result = malloc((size_t)c->block * (size_t)c->hidden * sizeof *result);
    dflash_status status = result != NULL ? DFLASH_OK : df_fail_memory(err, "a round's result", 0);
    if (status == DFLASH_OK) {
        dflash_draft_observe(draft, dp_recording_observe, &round);
        status = dp_forward_round(draft, kv, input->noise, input->pos + input->context, result, err);
        dflash_draft_observe(draft, NULL, NULL);
    }
    if (status == DFLASH_OK) status = dp_recording_status(&round, err);
    if (status == DFLASH_OK) status = compare_cache(draft, kv, input->context, block, least, out, err);
    if (status == DFLASH_OK) dp_compare_runs(draft, block, &round, 0, result, out);
    /* once more without an observer, which a device may run as one program, over what the first block left */
    if (status == DFLASH_OK && twice)
        status = dp_forward_round(draft, kv, input->noise, input->pos + input->context, result, err);
    if (status == DFLASH_OK && twice) compare_result(draft, block, result, out);
    dp_recording_release(&round);
    free(result);
    return status;
}
