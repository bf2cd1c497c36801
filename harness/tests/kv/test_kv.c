/*
 * test_kv.c - the draft cache over long runs: what compaction keeps, and what cutting back and the pin promise. Its
 * limits are tested in test_kv_limits.c, tails as bytes in test_kv_tail.c.
 */
#include "support/kv_case.h"
#include "suites.h"

#include <stdlib.h>
#include <string.h>

/* ---- Long runs ---- */

static const struct run {
    int window, extra; /* capacity = window + 2 B + extra */
    const char *is_causal;
    int gap;
    int32_t start;
    uint64_t seed;
} runs[] = {
    {KC_W, 0, "false", 1, 0, 1},       {KC_W, 0, "true", 1, 61, 2},
    {KC_W, 1, "false", 3, 1000, 3},    {KC_W, KC_W + KC_B, "false", 1, 100000, 4},
    {70, 0, "false", 1, 50, 5},        {70, 3, "true", 2, 0, 6},
    {70, 70 + KC_B, "false", 9, 7, 7}, {3, 0, "false", 1, 0, 8},
    {1, 0, "false", 1, 0, 9},
};

/* Commits 1..B+1 rows a round, takes some back in a third of them, and drafts. */
START_TEST(a_small_ring_gives_the_bits_of_a_cache_that_holds_every_row) {
    const struct run *run = &runs[_i];
    kc_model model = kc_default;
    model.window = run->window;
    model.is_causal = run->is_causal;
    kc_drafter ours = kc_open(&model, true, DFLASH_ISA_BEST), plain = kc_open(&model, false, DFLASH_ISA_GENERIC);
    kc_history *history = kc_history_new(run->seed, run->start);
    dflash_kv *ring = kc_cache(&ours, run->window + 2 * KC_B + run->extra), *whole = kc_cache(&plain, KC_ROWS);
    dflash_error err = {.status = DFLASH_OK};
    int taken_back = 0;
    for (int round = 0; round < 300; round++) {
        const int first = history->rows, rows = 1 + kc_random(history, KC_B + 1);
        kc_grow(history, rows, run->gap);
        kc_ingest(ring, history, first, first + rows, true);
        kc_ingest(whole, history, first, first + rows, true);
        const int back = kc_random(history, 3) == 0 ? kc_random(history, rows) : 0;
        taken_back += back;
        history->rows -= back;
        kc_assert_ok(dflash_kv_truncate(ring, dflash_kv_len(ring) - back, &err), &err);
        kc_assert_ok(dflash_kv_truncate(whole, dflash_kv_len(whole) - back, &err), &err);
        ck_assert_int_eq(whole->len, history->rows);
        ck_assert_msg(kc_same_round(ring, whole), "round %d of run %d differs", round, _i);
        if (round % 50 == 49) {
            dflash_kv *fresh = kc_cache_of(&plain, KC_ROWS, history, 0, history->rows);
            kc_assert_same_round(fresh, ring);
            dflash_kv_destroy(fresh);
        }
    }
    ck_assert_int_gt(taken_back, 50);
    ck_assert_int_eq(dflash_kv_floor(whole), run->start);
    ck_assert_int_gt(dflash_kv_floor(ring), history->pos[history->rows - ring->capacity]);
    dflash_kv_destroy(ring);
    dflash_kv_destroy(whole);
    free(history);
    kc_close(&ours);
    kc_close(&plain);
}
END_TEST

START_TEST(the_largest_of_different_windows_decides_what_stays) {
    for (int wide = 0; wide < 2; wide++) {
        kc_drafter drafter = kc_open(&kc_default, true, DFLASH_ISA_BEST);
        drafter.draft->config.layer[!wide].window = 7;
        kc_history *history = kc_history_new(12, 300);
        kc_grow(history, 200, 1);
        dflash_kv *whole = kc_cache_of(&drafter, KC_ROWS, history, 0, 200), *ring = kc_cache(&drafter, KC_W + 2 * KC_B);
        kc_ingest(ring, history, 0, 200, false); /* the ring holds no more than it must */
        kc_assert_same_round(ring, whole);
        drafter.draft->config.layer[wide].window = 7; /* a ring that kept only this much would be wrong */
        dflash_kv *narrow = kc_cache_of(&drafter, KC_ROWS, history, 200 - 7 + 1, 200);
        drafter.draft->config.layer[wide].window = KC_W;
        kc_assert_other_round(narrow, whole);
        dflash_kv_destroy(narrow);
        dflash_kv_destroy(ring);
        dflash_kv_destroy(whole);
        free(history);
        kc_close(&drafter);
    }
}
END_TEST

START_TEST(memory_stays_constant_over_a_long_run) {
    kc_drafter drafter = kc_open(&kc_default, false, DFLASH_ISA_BEST);
    kc_history *history = kc_history_new(13, 0);
    dflash_kv *ring = kc_cache(&drafter, 2 * KC_W + 3 * KC_B);
    size_t early = 0, late = 0;
    float out[KC_B * KC_H];
    for (int round = 0; round < 1200; round++) {
        kc_grow(history, 3, 1);
        kc_ingest(ring, history, history->rows - 3, history->rows, false);
        size_t *peak = round < 100 ? &early : &late;
        if (drafter.engine->arena.peak > *peak) *peak = drafter.engine->arena.peak;
        kc_round(ring, out);
        if (drafter.engine->arena.peak > *peak) *peak = drafter.engine->arena.peak;
        ck_assert_int_le(dflash_kv_len(ring) + KC_B, dflash_kv_capacity(ring));
    }
    ck_assert_int_eq(dflash_kv_capacity(ring), 2 * KC_W + 3 * KC_B);
    ck_assert_uint_gt(early, 0);
    ck_assert_uint_eq(late, early);
    dflash_kv_destroy(ring);
    free(history);
    kc_close(&drafter);
}
END_TEST

START_TEST(rows_move_only_when_room_runs_out_and_then_as_many_as_may) {
    kc_drafter drafter = kc_open(&kc_default, true, DFLASH_ISA_BEST);
    kc_history *history = kc_history_new(14, 0);
    dflash_kv *ring = kc_cache(&drafter, 2 * KC_W + 3 * KC_B);
    int compactions = 0;
    for (int row = 0; row < 1000; row++) {
        const int32_t floor = dflash_kv_floor(ring);
        const int len = dflash_kv_len(ring);
        kc_grow(history, 1, 1);
        kc_ingest(ring, history, row, row + 1, false);
        if (dflash_kv_floor(ring) == floor) {
            ck_assert_int_eq(dflash_kv_len(ring), len + 1);
            continue;
        }
        ck_assert_int_eq(len, dflash_kv_capacity(ring) - KC_B);
        ck_assert_int_eq(dflash_kv_len(ring), KC_W + KC_B);
        compactions++;
    }
    ck_assert_int_eq(compactions, (1000 - (KC_W + KC_B)) / (KC_W + KC_B + 1));
    dflash_kv_destroy(ring);
    free(history);
    kc_close(&drafter);
}
END_TEST

START_TEST(one_call_may_bring_more_rows_than_the_capacity) {
    kc_drafter drafter = kc_open(&kc_default, true, DFLASH_ISA_BEST);
    kc_history *history = kc_history_new(15, 40);
    kc_grow(history, 500, 1);
    dflash_kv *whole = kc_cache_of(&drafter, KC_ROWS, history, 0, 500);
    for (int held = 0; held <= 20; held += 10) {
        dflash_kv *ring = kc_cache(&drafter, KC_W + 2 * KC_B);
        kc_ingest(ring, history, 0, held, false);
        kc_ingest(ring, history, held, 500, false);
        ck_assert_int_eq(dflash_kv_len(ring), KC_W + KC_B);
        ck_assert_int_eq(dflash_kv_floor(ring), history->pos[500 - (KC_W + KC_B)]);
        kc_assert_same_round(ring, whole);
        dflash_kv_destroy(ring);
    }
    dflash_kv_destroy(whole);
    free(history);
    kc_close(&drafter);
}
END_TEST

START_TEST(a_query_needs_the_last_window_minus_one_rows_and_none_less) {
    kc_model model = kc_default;
    model.is_causal = _i == 0 ? "false" : "true";
    kc_drafter drafter = kc_open(&model, true, DFLASH_ISA_BEST);
    kc_history *history = kc_history_new(16, 120);
    kc_grow(history, 60, 1);
    dflash_kv *whole = kc_cache_of(&drafter, 100, history, 0, 60);
    dflash_kv *enough = kc_cache_of(&drafter, 100, history, 60 - (KC_W - 1), 60);
    dflash_kv *short_by_one = kc_cache_of(&drafter, 100, history, 60 - (KC_W - 2), 60);
    kc_assert_same_round(enough, whole);
    kc_assert_other_round(short_by_one, whole);
    dflash_kv_destroy(whole);
    dflash_kv_destroy(enough);
    dflash_kv_destroy(short_by_one);
    free(history);
    kc_close(&drafter);
}
END_TEST

/* ---- Cutting back ---- */

START_TEST(every_cut_is_exact_or_refused_and_the_first_refused_one_would_be_wrong) {
    kc_drafter drafter = kc_open(&kc_default, true, DFLASH_ISA_BEST);
    kc_history *history = kc_history_new(17, 55);
    kc_grow(history, 200, 1);
    int refused = 0;
    for (int back = 0; back <= KC_W + KC_B; back++) {
        dflash_kv *ring = kc_cache(&drafter, 2 * KC_W + 3 * KC_B);
        dflash_kv *whole = kc_cache_of(&drafter, KC_ROWS, history, 0, 200 - back);
        kc_ingest(ring, history, 0, 200, false);
        ck_assert_int_eq(dflash_kv_len(ring), KC_W + KC_B);
        dflash_error err = {.status = DFLASH_OK};
        const dflash_status status = dflash_kv_truncate(ring, dflash_kv_len(ring) - back, &err);
        if (back <= KC_B + 1) {
            kc_assert_ok(status, &err);
            kc_assert_same_round(ring, whole);
        } else {
            kc_assert_refused(status, &err, DFLASH_ERR_ARGUMENT, "kv.truncate.compacted", "Pin the length");
            ck_assert_int_eq(dflash_kv_len(ring), KC_W + KC_B);
            if (refused++ == 0) {
                ring->len -= back; /* what the refusal keeps from happening */
                kc_assert_other_round(ring, whole);
            }
        }
        dflash_kv_destroy(whole);
        dflash_kv_destroy(ring);
    }
    ck_assert_int_eq(refused, KC_W - 1);
    free(history);
    kc_close(&drafter);
}
END_TEST

START_TEST(a_cut_by_position_finds_the_row_whatever_its_number) {
    kc_drafter drafter = kc_open(&kc_default, true, DFLASH_ISA_BEST);
    kc_history *history = kc_history_new(18, 10);
    kc_grow(history, 100, 3);
    dflash_error err = {.status = DFLASH_OK};
    dflash_kv *ring = kc_cache(&drafter, KC_W + 2 * KC_B), *whole = kc_cache_of(&drafter, KC_ROWS, history, 0, 97);
    kc_ingest(ring, history, 0, 100, true);
    kc_assert_ok(dflash_kv_truncate_at(ring, history->pos[99] + 1, &err), &err);
    ck_assert_int_eq(ring->pos[ring->len - 1], history->pos[99]);
    kc_assert_ok(dflash_kv_truncate_at(ring, history->pos[96] + 1, &err), &err);
    ck_assert_int_eq(ring->pos[ring->len - 1], history->pos[96]);
    kc_assert_same_round(ring, whole);
    kc_assert_refused(dflash_kv_truncate_at(ring, history->pos[20], &err), &err, DFLASH_ERR_ARGUMENT,
                      "kv.truncate.compacted", "compaction dropped");
    kc_assert_ok(dflash_kv_truncate_at(whole, history->pos[0], &err), &err);
    ck_assert_int_eq(dflash_kv_len(whole), 0);
    dflash_kv_destroy(ring);
    dflash_kv_destroy(whole);
    free(history);
    kc_close(&drafter);
}
END_TEST

START_TEST(a_cut_outside_the_rows_is_refused) {
    kc_drafter drafter = kc_open(&kc_default, true, DFLASH_ISA_BEST);
    kc_history *history = kc_history_new(19, 0);
    kc_grow(history, 4, 1);
    dflash_error err = {.status = DFLASH_OK};
    dflash_kv *kv = kc_cache_of(&drafter, 40, history, 0, 4);
    kc_assert_refused(dflash_kv_truncate(kv, 5, &err), &err, DFLASH_ERR_ARGUMENT, "kv.truncate", "asked for 5");
    kc_assert_refused(dflash_kv_truncate(kv, -1, &err), &err, DFLASH_ERR_ARGUMENT, "kv.truncate", "asked for -1");
    ck_assert_int_eq(dflash_kv_len(kv), 4);
    dflash_kv_destroy(kv);
    free(history);
    kc_close(&drafter);
}
END_TEST

/* ---- The pin ---- */

START_TEST(a_pin_keeps_across_compaction_what_queries_there_see) {
    kc_drafter drafter = kc_open(&kc_default, true, DFLASH_ISA_BEST);
    kc_history *history = kc_history_new(20, 500);
    kc_grow(history, 140, 1);
    dflash_error err = {.status = DFLASH_OK};
    dflash_kv *whole = kc_cache_of(&drafter, KC_ROWS, history, 0, 100);
    for (int pinned = 0; pinned < 2; pinned++) {
        dflash_kv *ring = kc_cache(&drafter, 60);
        kc_ingest(ring, history, 0, 95, false);
        kc_ingest(ring, history, 95, 100, true);
        if (pinned) kc_assert_ok(dflash_kv_pin(ring, &err), &err);
        const int32_t floor = dflash_kv_floor(ring);
        kc_ingest(ring, history, 100, 130, true);
        ck_assert_int_gt(dflash_kv_floor(ring), floor);
        if (pinned) /* a second compaction finds nothing more to drop */
            kc_assert_refused(
                dflash_ingest_ctx(drafter.draft, ring, history->features + 130 * KC_H, history->pos + 130, 10, &err),
                &err, DFLASH_ERR_ARGUMENT, "kv.full", "only 0 may go before the pin");
        const dflash_status status = dflash_kv_truncate_at(ring, history->pos[100], &err);
        if (pinned) {
            kc_assert_ok(status, &err);
            kc_assert_same_round(ring, whole);
        } else
            kc_assert_refused(status, &err, DFLASH_ERR_ARGUMENT, "kv.truncate.compacted", "Pin the length");
        dflash_kv_destroy(ring);
    }
    dflash_kv_destroy(whole);
    free(history);
    kc_close(&drafter);
}
END_TEST

START_TEST(a_pinned_cache_without_room_refuses_and_stays_as_it_was) {
    kc_drafter drafter = kc_open(&kc_default, true, DFLASH_ISA_BEST);
    kc_history *history = kc_history_new(21, 0);
    kc_grow(history, 100, 1);
    dflash_error err = {.status = DFLASH_OK};
    dflash_kv *ring = kc_cache(&drafter, KC_W + 2 * KC_B + 4), *whole = kc_cache_of(&drafter, KC_ROWS, history, 0, 44);
    kc_ingest(ring, history, 0, 40, true);
    kc_assert_ok(dflash_kv_pin(ring, &err), &err);
    kc_ingest(ring, history, 40, 44, true);
    const int len = dflash_kv_len(ring);
    const int32_t floor = dflash_kv_floor(ring);
    kc_assert_refused(dflash_ingest_ctx(drafter.draft, ring, history->features + 44 * KC_H, history->pos + 44, 1, &err),
                      &err, DFLASH_ERR_ARGUMENT, "kv.full", "before the pin");
    ck_assert_int_eq(dflash_kv_len(ring), len);
    ck_assert_int_eq(dflash_kv_floor(ring), floor);
    kc_assert_same_round(ring, whole);
    dflash_kv_unpin(ring);
    kc_ingest(ring, history, 44, 45, false);
    ck_assert_int_gt(dflash_kv_floor(ring), floor);
    dflash_kv_destroy(ring);
    dflash_kv_destroy(whole);
    free(history);
    kc_close(&drafter);
}
END_TEST

START_TEST(there_is_one_pin_and_a_cut_below_moves_it) {
    kc_drafter drafter = kc_open(&kc_default, true, DFLASH_ISA_BEST);
    kc_history *history = kc_history_new(22, 0);
    kc_grow(history, 60, 1);
    dflash_error err = {.status = DFLASH_OK};
    dflash_kv *ring = kc_cache(&drafter, 60), *whole = kc_cache_of(&drafter, KC_ROWS, history, 0, 30);
    kc_ingest(ring, history, 0, 40, true);
    kc_assert_ok(dflash_kv_pin(ring, &err), &err);
    kc_assert_refused(dflash_kv_pin(ring, &err), &err, DFLASH_ERR_ARGUMENT, "kv.pinned", "at 40 of 40 rows");
    kc_assert_ok(dflash_kv_truncate(ring, 30, &err), &err);
    kc_ingest(ring, history, 30, 60, true);
    ck_assert_int_gt(dflash_kv_floor(ring), 0);
    kc_assert_ok(dflash_kv_truncate_at(ring, history->pos[30], &err), &err);
    kc_assert_same_round(ring, whole);
    dflash_kv_unpin(ring);
    dflash_kv_unpin(ring);
    kc_assert_ok(dflash_kv_pin(ring, &err), &err);
    dflash_kv_destroy(ring);
    dflash_kv_destroy(whole);
    free(history);
    kc_close(&drafter);
}
END_TEST

Suite *suite_kv(void) {
    Suite *suite = suite_create("kv");
    TCase *tests = tcase_create("cache");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, a_small_ring_gives_the_bits_of_a_cache_that_holds_every_row, 0,
                        (int)(sizeof runs / sizeof *runs));
    tcase_add_test(tests, the_largest_of_different_windows_decides_what_stays);
    tcase_add_test(tests, memory_stays_constant_over_a_long_run);
    tcase_add_test(tests, rows_move_only_when_room_runs_out_and_then_as_many_as_may);
    tcase_add_test(tests, one_call_may_bring_more_rows_than_the_capacity);
    tcase_add_loop_test(tests, a_query_needs_the_last_window_minus_one_rows_and_none_less, 0, 2);
    tcase_add_test(tests, every_cut_is_exact_or_refused_and_the_first_refused_one_would_be_wrong);
    tcase_add_test(tests, a_cut_by_position_finds_the_row_whatever_its_number);
    tcase_add_test(tests, a_cut_outside_the_rows_is_refused);
    tcase_add_test(tests, a_pin_keeps_across_compaction_what_queries_there_see);
    tcase_add_test(tests, a_pinned_cache_without_room_refuses_and_stays_as_it_was);
    tcase_add_test(tests, there_is_one_pin_and_a_cut_below_moves_it);
    suite_add_tcase(suite, tests);
    suite_add_tcase(suite, kv_limit_tests());
    suite_add_tcase(suite, kv_tail_tests());
    return suite;
}
