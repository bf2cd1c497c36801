/* kv_case.c - see kv_case.h. */
#include "support/kv_case.h"

#include "store/synth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const kc_model kc_default = {.window = KC_W,
                             .second_layer = "sliding_attention",
                             .is_causal = "false",
                             .theta = 100000,
                             .eps = 1e-6,
                             .seed = 31};

static void write_config(const kc_model *model, const char *path) {
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    fprintf(file,
            "{\"architectures\": [\"DFlashDraftModel\"], \"attention_bias\": false, \"block_size\": %d, "
            "\"dflash_config\": {\"mask_token_id\": 100, \"target_layer_ids\": [1, 3]}, \"head_dim\": 16, "
            "\"hidden_act\": \"silu\", \"hidden_size\": %d, \"intermediate_size\": 64, \"is_causal\": %s, "
            "\"layer_types\": [\"sliding_attention\", \"%s\"], \"max_position_embeddings\": 40960, "
            "\"num_attention_heads\": 6, \"num_hidden_layers\": 2, \"num_key_value_heads\": 2, "
            "\"num_target_layers\": 6, \"rms_norm_eps\": %g, \"rope_theta\": %g, \"sliding_window\": %d, "
            "\"use_sliding_window\": true, \"vocab_size\": 128}",
            KC_B, KC_H, model->is_causal, model->second_layer, model->eps, model->theta, model->window);
    ck_assert_int_eq(fclose(file), 0);
}

kc_drafter kc_open(const kc_model *model, bool poison, dflash_isa isa) {
    kc_drafter drafter = {.engine = NULL};
    char given[TF_PATH_MAX + 32];
    dflash_error err = {.status = DFLASH_OK};
    tf_make_dir(drafter.dir);
    snprintf(given, sizeof given, "%s/given.json", drafter.dir);
    write_config(model, given);
    const dp_synth_options synth = {.seed = model->seed, .dtype = DF_BF16, .profile = DP_SYNTH_UNIT, .threads = 1};
    kc_assert_ok(dp_synth_write(given, drafter.dir, &synth, NULL, &err), &err);
    const dflash_engine_options options = {.isa = isa, .threads = 1, .poison_scratch = poison};
    kc_assert_ok(dflash_engine_create(&options, &drafter.engine, &err), &err);
    kc_assert_ok(dflash_draft_load(drafter.engine, drafter.dir, &drafter.draft, &err), &err);
    return drafter;
}

void kc_close(kc_drafter *drafter) {
    dflash_draft_destroy(drafter->draft);
    dflash_engine_destroy(drafter->engine);
    tf_remove_dir(drafter->dir);
}

/* ---- Histories ---- */

/* splitmix64, by Sebastiano Vigna, in the public domain. */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static float random_value(uint64_t *state) { return (float)(next_random(state) >> 40) * 0x1p-23f - 1.0f; }

kc_history *kc_history_new(uint64_t seed, int32_t start) {
    kc_history *history = malloc(sizeof *history);
    ck_assert_ptr_nonnull(history);
    history->random = seed;
    history->rows = 0;
    history->pos[0] = start;
    return history;
}

int kc_random(kc_history *history, int n) { return (int)(next_random(&history->random) % (uint64_t)n); }

void kc_grow(kc_history *history, int rows, int gap) {
    ck_assert_int_le(history->rows + rows, KC_ROWS);
    for (int i = 0; i < rows; i++, history->rows++) {
        const int row = history->rows;
        if (row > 0) history->pos[row] = history->pos[row - 1] + (gap > 1 ? 1 + kc_random(history, gap) : 1);
        for (int c = 0; c < KC_H; c++) history->features[row * KC_H + c] = 2.0f * random_value(&history->random);
    }
}

/* ---- Caches ---- */

dflash_kv *kc_cache(const kc_drafter *drafter, int capacity) {
    dflash_error err = {.status = DFLASH_OK};
    dflash_kv *kv = NULL;
    kc_assert_ok(dflash_kv_create(drafter->draft, capacity, &kv, &err), &err);
    return kv;
}

dflash_kv *kc_cache_of(const kc_drafter *drafter, int capacity, const kc_history *history, int first, int last) {
    dflash_error err = {.status = DFLASH_OK};
    dflash_kv *kv = kc_cache(drafter, capacity);
    kc_assert_ok(dflash_kv_set_floor(kv, history->pos[first], &err), &err);
    kc_assert_ok(
        dflash_ingest_ctx(kv->draft, kv, history->features + first * KC_H, history->pos + first, last - first, &err),
        &err);
    return kv;
}

void kc_ingest(dflash_kv *kv, kc_history *history, int first, int last, bool split) {
    dflash_error err = {.status = DFLASH_OK};
    while (first < last) {
        const int rows = split ? 1 + kc_random(history, last - first) : last - first;
        kc_assert_ok(
            dflash_ingest_ctx(kv->draft, kv, history->features + first * KC_H, history->pos + first, rows, &err), &err);
        first += rows;
    }
}

void kc_round(dflash_kv *kv, float *out) {
    dflash_error err = {.status = DFLASH_OK};
    int32_t pos[KC_B];
    float noise[KC_B * KC_H];
    const int32_t start = kv->len > 0 ? kv->pos[kv->len - 1] + 1 : kv->floor;
    uint64_t random = (uint64_t)start;
    for (int i = 0; i < KC_B; i++) pos[i] = start + i;
    for (int i = 0; i < KC_B * KC_H; i++) noise[i] = random_value(&random);
    kc_assert_ok(dflash_forward_round(kv->draft, kv, noise, pos, out, &err), &err);
}

bool kc_same_round(dflash_kv *a, dflash_kv *b) {
    float from_a[KC_B * KC_H], from_b[KC_B * KC_H];
    kc_round(a, from_a);
    kc_round(b, from_b);
    for (int i = 0; i < KC_B * KC_H; i++) ck_assert_msg(from_a[i] - from_a[i] == 0.0f, "value %d is not finite", i);
    return memcmp(from_a, from_b, sizeof from_a) == 0;
}

/* ---- Statuses ---- */

void kc_assert_ok(dflash_status status, const dflash_error *err) {
    ck_assert_msg(status == DFLASH_OK, "%s: %s", err->code, err->message);
}

void kc_assert_refused(dflash_status status, const dflash_error *err, dflash_status expected, const char *code,
                       const char *word) {
    ck_assert_msg(status == expected && err->status == expected && strcmp(err->code, code) == 0,
                  "expected status %d %s, got %d %s: %s", (int)expected, code, (int)status, err->code, err->message);
    ck_assert_msg(strstr(err->message, word) != NULL, "no \"%s\" in: %s", word, err->message);
}
