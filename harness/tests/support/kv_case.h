/*
 * kv_case.h - what the tests of the draft cache share: a small drafter made from a seed, a history of committed rows,
 * and comparison of what two caches give for the same block.
 */
#ifndef DP_TESTS_KV_CASE_H
#define DP_TESTS_KV_CASE_H

#include "kv/kv.h"
#include "support/tensor_file.h"

#include <check.h>

enum { KC_W = 16, KC_B = 5, KC_H = 48, KC_ROWS = 4096 };

/* What a checkpoint is made from; kc_default with a field changed. */
typedef struct kc_model {
    int window;
    const char *second_layer; /* layer_types[1]: "sliding_attention" or "full_attention" */
    const char *is_causal;    /* "true", "false" */
    double theta, eps;
    unsigned seed;
} kc_model;
extern const kc_model kc_default;

/* A drafter of two layers on an engine of its own. */
typedef struct kc_drafter {
    char dir[TF_PATH_MAX];
    dflash_engine *engine;
    dflash_draft *draft;
} kc_drafter;

kc_drafter kc_open(const kc_model *model, bool poison, dflash_isa isa);
void kc_close(kc_drafter *drafter);

/* The committed rows of a run, which a test may cut back and grow otherwise. */
typedef struct kc_history {
    uint64_t random;
    int rows;
    int32_t pos[KC_ROWS];
    float features[KC_ROWS * KC_H];
} kc_history;

kc_history *kc_history_new(uint64_t seed, int32_t start); /* the caller frees it */
/* Uniform in 0..n-1. */
int kc_random(kc_history *history, int n);
/* Adds rows with new random features; gap > 1: steps between positions are random up to gap. */
void kc_grow(kc_history *history, int rows, int gap);

dflash_kv *kc_cache(const kc_drafter *drafter, int capacity);
/* A cache that holds history rows [first, last), and knows of none before them. */
dflash_kv *kc_cache_of(const kc_drafter *drafter, int capacity, const kc_history *history, int first, int last);
/* Ingests history rows [first, last), split at random when split is true. */
void kc_ingest(dflash_kv *kv, kc_history *history, int first, int last, bool split);

/* One round behind the committed rows: out[KC_B * KC_H]. Block and noise follow from the last position alone. */
void kc_round(dflash_kv *kv, float *out);
bool kc_same_round(dflash_kv *a, dflash_kv *b);
#define kc_assert_same_round(a, b) ck_assert_msg(kc_same_round(a, b), "the rounds of " #a " and " #b " differ")
#define kc_assert_other_round(a, b) ck_assert_msg(!kc_same_round(a, b), "the rounds of " #a " and " #b " agree")

void kc_assert_ok(dflash_status status, const dflash_error *err);
/* Status, its copy in *err, code, and a word of the message. */
void kc_assert_refused(dflash_status status, const dflash_error *err, dflash_status expected, const char *code,
                       const char *word);

/* The cases of test_kv_limits.c and test_kv_tail.c. */
TCase *kv_limit_tests(void);
TCase *kv_tail_tests(void);

#endif
