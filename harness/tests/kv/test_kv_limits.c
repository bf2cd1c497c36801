/*
 * test_kv_limits.c - the limits of the draft cache: its floor, its capacity, a call that fails half-way, and memory
 * that holds no row.
 */
#include "support/kv_case.h"

#include <stdlib.h>

/* ---- The floor ---- */

START_TEST(queries_over_a_floor_see_only_what_is_there) {
    kc_drafter drafter = kc_open(&kc_default, true, DFLASH_ISA_BEST);
    kc_history *history = kc_history_new(23, 200);
    kc_grow(history, 30, 1);
    dflash_kv *all = kc_cache_of(&drafter, 60, history, 0, 30), *late = kc_cache(&drafter, 60);
    dflash_error err = {.status = DFLASH_OK};
    ck_assert_int_eq(dflash_kv_floor(late), 0);
    kc_assert_ok(dflash_kv_set_floor(late, 215, &err), &err);
    ck_assert_int_eq(dflash_kv_floor(late), 215);
    kc_ingest(late, history, 20, 30, true);
    ck_assert_int_eq(dflash_kv_floor(late), 220);

    float round[KC_B * KC_H], block[KC_B * KC_H], noise[KC_B * KC_H];
    int32_t pos[10 + KC_B];
    for (int i = 0; i < 10 + KC_B; i++) pos[i] = 220 + i;
    for (int i = 0; i < KC_B * KC_H; i++) noise[i] = (float)(i % 7) - 3.0f;
    kc_assert_ok(dflash_forward_round(drafter.draft, late, noise, pos + 10, round, &err), &err);
    kc_assert_ok(dflash_forward_block(drafter.draft, history->features + 20 * KC_H, noise, pos, 10, block, &err), &err);
    ck_assert_mem_eq(round, block, sizeof round);
    kc_assert_other_round(late, all); /* the missing rows are missed */
    dflash_kv_destroy(all);
    dflash_kv_destroy(late);
    free(history);
    kc_close(&drafter);
}
END_TEST

START_TEST(rows_and_blocks_before_the_floor_are_refused) {
    kc_drafter drafter = kc_open(&kc_default, true, DFLASH_ISA_BEST);
    kc_history *history = kc_history_new(24, 99);
    kc_grow(history, 10, 1);
    dflash_error err = {.status = DFLASH_OK};
    float out[KC_B * KC_H];
    dflash_kv *kv = kc_cache(&drafter, 40);
    kc_assert_refused(dflash_kv_set_floor(kv, -1, &err), &err, DFLASH_ERR_ARGUMENT, "kv.floor.negative", "found -1");
    kc_assert_ok(dflash_kv_set_floor(kv, 100, &err), &err);
    kc_assert_refused(dflash_ingest_ctx(drafter.draft, kv, history->features, history->pos, 3, &err), &err,
                      DFLASH_ERR_ARGUMENT, "kv.floor.position", "starts at 100");
    kc_assert_refused(dflash_forward_round(drafter.draft, kv, history->features, history->pos, out, &err), &err,
                      DFLASH_ERR_ARGUMENT, "kv.floor.position", "the block is 99");
    ck_assert_int_eq(dflash_kv_len(kv), 0);
    kc_ingest(kv, history, 1, 3, false);
    kc_assert_refused(dflash_kv_set_floor(kv, 100, &err), &err, DFLASH_ERR_ARGUMENT, "kv.floor.rows", "holds 2 rows");
    kc_assert_ok(dflash_kv_truncate(kv, 0, &err), &err);
    ck_assert_int_eq(dflash_kv_floor(kv), 100);
    dflash_kv_clear(kv);
    ck_assert_int_eq(dflash_kv_floor(kv), 0);
    kc_ingest(kv, history, 0, 3, false);
    dflash_kv_destroy(kv);
    free(history);
    kc_close(&drafter);
}
END_TEST

/* ---- Room ---- */

START_TEST(a_model_with_a_full_layer_never_drops_and_refuses_when_full) {
    kc_model model = kc_default;
    model.second_layer = "full_attention";
    kc_drafter drafter = kc_open(&model, true, DFLASH_ISA_BEST);
    kc_history *history = kc_history_new(25, 0);
    kc_grow(history, 90, 1);
    dflash_error err = {.status = DFLASH_OK};
    dflash_kv *kv = kc_cache(&drafter, 80), *whole = kc_cache_of(&drafter, KC_ROWS, history, 0, 75);
    kc_ingest(kv, history, 0, 75, true);
    kc_assert_refused(dflash_ingest_ctx(drafter.draft, kv, history->features + 75 * KC_H, history->pos + 75, 6, &err),
                      &err, DFLASH_ERR_ARGUMENT, "kv.full", "a layer without a window");
    ck_assert_int_eq(dflash_kv_len(kv), 75);
    ck_assert_int_eq(dflash_kv_floor(kv), 0);
    kc_assert_same_round(kv, whole);
    kc_ingest(kv, history, 75, 76, true);
    float out[KC_B * KC_H];
    kc_assert_refused(dflash_forward_round(drafter.draft, kv, history->features, history->pos + 76, out, &err), &err,
                      DFLASH_ERR_ARGUMENT, "kv.full", "a block of 5 does not fit");
    dflash_kv_destroy(kv);
    dflash_kv_destroy(whole);
    free(history);
    kc_close(&drafter);
}
END_TEST

START_TEST(a_ring_below_window_and_two_blocks_is_refused_once_it_is_full) {
    kc_drafter drafter = kc_open(&kc_default, true, DFLASH_ISA_BEST);
    kc_history *history = kc_history_new(26, 0);
    kc_grow(history, 90, 1);
    dflash_error err = {.status = DFLASH_OK};
    dflash_kv *small = kc_cache(&drafter, KC_W + 2 * KC_B - 1), *enough = kc_cache(&drafter, KC_W + 2 * KC_B);
    kc_ingest(small, history, 0, KC_W + KC_B - 1, false);
    kc_assert_refused(dflash_ingest_ctx(drafter.draft, small, history->features + (KC_W + KC_B - 1) * KC_H,
                                        history->pos + (KC_W + KC_B - 1), 1, &err),
                      &err, DFLASH_ERR_ARGUMENT, "kv.full", "window + 2 blocks (26)");
    ck_assert_int_eq(dflash_kv_len(small), KC_W + KC_B - 1);
    kc_ingest(enough, history, 0, 90, true);
    dflash_kv *none = small;
    kc_assert_refused(dflash_kv_create(drafter.draft, KC_B - 1, &none, &err), &err, DFLASH_ERR_ARGUMENT, "kv.capacity",
                      "4 rows");
    ck_assert_ptr_null(none);
    dflash_kv_destroy(small);
    dflash_kv_destroy(enough);
    free(history);
    kc_close(&drafter);
}
END_TEST

static int matmuls_until_failure;
static dflash_status (*working_matmul)(dflash_engine *, const df_matrix *, const float *, const float *, int, float *,
                                       dflash_error *);

static dflash_status failing_matmul(dflash_engine *engine, const df_matrix *w, const float *bias, const float *x,
                                    int rows, float *y, dflash_error *err) {
    if (matmuls_until_failure-- == 0) {
        *err = (dflash_error){.status = DFLASH_ERR_DEVICE, .code = "test.fault"};
        return DFLASH_ERR_DEVICE;
    }
    return working_matmul(engine, w, bias, x, rows, y, err);
}

START_TEST(an_ingest_that_fails_while_compacting_leaves_the_cache_as_it_was) {
    kc_drafter drafter = kc_open(&kc_default, true, DFLASH_ISA_BEST);
    kc_history *history = kc_history_new(27, 0);
    kc_grow(history, 100, 1);
    dflash_kv *ring = kc_cache(&drafter, KC_W + 2 * KC_B), *whole = kc_cache_of(&drafter, KC_ROWS, history, 0, 60);
    kc_ingest(ring, history, 0, 60, false);
    const df_ops *ops = drafter.engine->ops;
    df_ops failing = *ops;
    working_matmul = ops->matmul;
    failing.matmul = failing_matmul;
    int failures = 0;
    for (dflash_status status = DFLASH_ERR_DEVICE; status != DFLASH_OK; failures++) {
        dflash_error err = {.status = DFLASH_OK};
        matmuls_until_failure = failures;
        drafter.engine->ops = &failing;
        status = dflash_ingest_ctx(drafter.draft, ring, history->features + 60 * KC_H, history->pos + 60, 4, &err);
        drafter.engine->ops = ops;
        if (status == DFLASH_OK) continue;
        kc_assert_refused(status, &err, DFLASH_ERR_DEVICE, "test.fault", "");
        ck_assert_int_eq(dflash_kv_floor(ring), 60 - (KC_W + KC_B));
        kc_assert_same_round(ring, whole);
    }
    ck_assert_int_eq(failures, 2 * 2 + 1); /* keys and values of two layers */
    ck_assert_int_eq(dflash_kv_floor(ring), 64 - (KC_W + KC_B));
    dflash_kv_destroy(ring);
    dflash_kv_destroy(whole);
    free(history);
    kc_close(&drafter);
}
END_TEST

START_TEST(rows_that_were_cut_or_moved_away_are_poisoned) {
    kc_drafter drafter = kc_open(&kc_default, true, DFLASH_ISA_BEST);
    kc_history *history = kc_history_new(28, 0);
    kc_grow(history, 60, 1);
    dflash_error err = {.status = DFLASH_OK};
    dflash_kv *ring = kc_cache(&drafter, 60);
    kc_ingest(ring, history, 0, 54, false);
    kc_ingest(ring, history, 54, 56, false); /* moves */
    ck_assert_int_eq(dflash_kv_len(ring), KC_W + KC_B);
    for (int cut = 0; cut < 2; cut++) {
        for (int layer = 0; layer < 2; layer++)
            for (int row = 0; row < ring->capacity; row++) {
                const float k = *df_kv_row(ring, ring->k, layer, row), v = *df_kv_row(ring, ring->v, layer, row);
                ck_assert_msg((k != k) == (row >= ring->len) && (v != v) == (row >= ring->len), "row %d of layer %d",
                              row, layer);
            }
        kc_assert_ok(dflash_kv_truncate(ring, ring->len - 3, &err), &err);
    }
    dflash_kv_destroy(ring);
    free(history);
    kc_close(&drafter);
}
END_TEST

TCase *kv_limit_tests(void) {
    TCase *tests = tcase_create("limits");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, queries_over_a_floor_see_only_what_is_there);
    tcase_add_test(tests, rows_and_blocks_before_the_floor_are_refused);
    tcase_add_test(tests, a_model_with_a_full_layer_never_drops_and_refuses_when_full);
    tcase_add_test(tests, a_ring_below_window_and_two_blocks_is_refused_once_it_is_full);
    tcase_add_test(tests, an_ingest_that_fails_while_compacting_leaves_the_cache_as_it_was);
    tcase_add_test(tests, rows_that_were_cut_or_moved_away_are_poisoned);
    return tests;
}
