/* test_identity_shrink.c - schedules as text, at random, and made small by predicates that know nothing of a drafter.
 */
#include "identity/identity_case.h"
#include "support/identity_cases.h"
#include "identity/identity_shrink.h"

#include <stdlib.h>
#include <string.h>

static dp_schedule parsed(const char *text) {
    dp_schedule schedule;
    dflash_error err;
    ck_assert_msg(dp_schedule_parse(text, &schedule, &err) == DFLASH_OK, "%s", err.message);
    return schedule;
}

static void assert_text(const dp_schedule *schedule, const char *expected) {
    char *text = dp_schedule_text(schedule);
    ck_assert_str_eq(text, expected);
    free(text);
}

START_TEST(a_schedule_written_and_read_again_is_the_same) {
    static const char *const texts[] = {"d", "i1 d", "c40 i3 d i2 t1 d x d", "i1048576 t1048576 d"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        dp_schedule schedule = parsed(texts[i]);
        assert_text(&schedule, texts[i]);
        dp_schedule_release(&schedule);
    }
    dp_schedule schedule = parsed("  i3   d ");
    assert_text(&schedule, "i3 d");
    dp_schedule_release(&schedule);
}
END_TEST

static const struct {
    const char *text, *code;
} refused[] = {
    {"i3 e d", "schedule.word"},
    {"i d", "schedule.word"},
    {"i0 d", "schedule.word"},
    {"i03 d", "schedule.word"},
    {"d2", "schedule.word"},
    {"i-3 d", "schedule.word"},
    {"i3x d", "schedule.word"},
    {"i3 c40 d", "schedule.word"},
    {"c40 c41 d", "schedule.word"},
    {"xx d", "schedule.word"},
    {"i1048577 d", "schedule.word"},
    {"i99999999999 d", "schedule.word"},
    {"", "schedule.draft"},
    {"i3", "schedule.draft"},
    {"i3 t4 d", "schedule.rows"},
    {"d t1", "schedule.rows"},
    {"i1048576 d i1", "schedule.rows"},
    {"i2 d t1 t2 i5", "schedule.rows"},
};
enum { REFUSED = sizeof refused / sizeof *refused };

START_TEST(a_schedule_that_cannot_be_run_is_refused) {
    dp_schedule schedule;
    dflash_error err = {.status = DFLASH_OK};
    ck_assert_int_eq(dp_schedule_parse(refused[_i].text, &schedule, &err), DFLASH_ERR_ARGUMENT);
    ck_assert_str_eq(err.code, refused[_i].code);
    ck_assert_ptr_null(schedule.step);
}
END_TEST

START_TEST(random_schedules_are_possible_differ_and_hold_every_kind_of_step) {
    const dp_schedule_plan plan = {.block = 5, .window = 16, .rounds = 12};
    int seen[128] = {0}, narrow = 0, distinct = 0;
    char *before = NULL;
    dflash_error err;
    for (uint64_t seed = 0; seed < 300; seed++) {
        dp_schedule schedule, again;
        ck_assert_int_eq(dp_schedule_random(&plan, seed, &schedule, &err), DFLASH_OK);
        ck_assert_int_eq(dp_schedule_random(&plan, seed, &again, &err), DFLASH_OK);
        const dp_schedule_size size = dp_schedule_measure(&schedule);
        ck_assert(size.possible);
        ck_assert_int_eq(size.drafts, 12);
        for (int i = 0; i < schedule.count; i++) seen[(int)schedule.step[i].kind]++;
        if (schedule.cache_rows > 0) {
            narrow++;
            ck_assert_int_ge(schedule.cache_rows, 16 + 2 * 5);
        }
        char *text = dp_schedule_text(&schedule);
        assert_text(&again, text);
        distinct += before == NULL || strcmp(before, text) != 0;
        free(before);
        before = text;
        dp_schedule_release(&schedule);
        dp_schedule_release(&again);
    }
    free(before);
    ck_assert_int_eq(distinct, 300);
    ck_assert_int_gt(narrow, 200);
    for (const char *kind = "idtx"; *kind != '\0'; kind++) ck_assert_int_gt(seen[(int)*kind], 50);
}
END_TEST

/* ---- Shrinking ---- */

static int kind_count(const dp_schedule *schedule, char kind) {
    int count = 0;
    for (int i = 0; i < schedule->count; i++) count += schedule->step[i].kind == kind;
    return count;
}

/* A draft after an ingest of one row onto at least one other. */
static bool one_row_onto_others(const dp_schedule *schedule, void *user) {
    int committed = 0;
    bool wrong = false;
    (void)user;
    for (int i = 0; i < schedule->count; i++) {
        const dp_step step = schedule->step[i];
        wrong = wrong || (step.kind == 'i' && step.rows == 1 && committed > 0);
        if (step.kind == 'd' && wrong) return true;
        committed += step.kind == 'i' ? step.rows : step.kind == 't' ? -step.rows : 0;
    }
    return false;
}

static bool many_rows(const dp_schedule *schedule, void *user) {
    (void)user;
    return dp_schedule_measure(schedule).ingested >= 13;
}

static bool rollback_of_two(const dp_schedule *schedule, void *user) {
    (void)user;
    for (int i = 0; i < schedule->count; i++)
        if (schedule->step[i].kind == 't' && schedule->step[i].rows >= 2) return true;
    return false;
}

static bool move_then_draft(const dp_schedule *schedule, void *user) {
    (void)user;
    for (int i = 0; i + 1 < schedule->count; i++)
        if (schedule->step[i].kind == 'x' && kind_count(schedule, 'd') >= 2) return true;
    return false;
}

/* More rows than the cache has room for. */
static bool overflow(const dp_schedule *schedule, void *user) {
    (void)user;
    return schedule->cache_rows >= 9 && dp_schedule_measure(schedule).committed > schedule->cache_rows;
}

static const struct {
    dp_schedule_fails fails;
    const char *minimal;
} predicates[] = {{one_row_onto_others, "i1 i1 d"},
                  {many_rows, "i13 d"},
                  {rollback_of_two, "i2 t2 d"},
                  {move_then_draft, "x d d"},
                  {overflow, "c9 i10 d"}};
enum { PREDICATES = sizeof predicates / sizeof *predicates, FROM_RANDOM = 40 };

START_TEST(a_failing_schedule_shrinks_to_the_smallest_that_fails) {
    const dp_schedule_plan plan = {.block = 5, .window = 16, .rounds = 12};
    int failing = 0;
    dflash_error err;
    for (uint64_t seed = 0; seed < FROM_RANDOM; seed++) {
        dp_schedule schedule;
        int calls = 0;
        ck_assert_int_eq(dp_schedule_random(&plan, seed, &schedule, &err), DFLASH_OK);
        if (predicates[_i].fails(&schedule, NULL)) {
            ck_assert_int_eq(dp_schedule_shrink(&schedule, predicates[_i].fails, NULL, 100000, &calls, &err),
                             DFLASH_OK);
            assert_text(&schedule, predicates[_i].minimal);
            failing++;
        }
        dp_schedule_release(&schedule);
    }
    ck_assert_int_gt(failing, 10);
}
END_TEST

static bool always(const dp_schedule *schedule, void *user) {
    ck_assert(dp_schedule_measure(schedule).possible);
    ++*(int *)user;
    return true;
}

static bool never(const dp_schedule *schedule, void *user) {
    (void)schedule;
    ++*(int *)user;
    return false;
}

START_TEST(the_predicate_sees_possible_schedules_only_and_no_more_than_the_budget) {
    dp_schedule schedule = parsed("c40 i5 d i5 t2 d i5 t3 d x i1 t1 d");
    int calls = 0, seen = 0;
    dflash_error err;
    ck_assert_int_eq(dp_schedule_shrink(&schedule, always, &seen, 1000, &calls, &err), DFLASH_OK);
    ck_assert_int_eq(seen, calls);
    assert_text(&schedule, "d");
    dp_schedule_release(&schedule);
    schedule = parsed("c40 i5 d i5 t2 d i5 t3 d x i1 t1 d");
    seen = 0;
    ck_assert_int_eq(dp_schedule_shrink(&schedule, never, &seen, 7, &calls, &err), DFLASH_OK);
    ck_assert_int_eq(calls, 7);
    ck_assert_int_eq(seen, 7);
    assert_text(&schedule, "c40 i5 d i5 t2 d i5 t3 d x i1 t1 d");
    dp_schedule_release(&schedule);
}
END_TEST

void identity_add_shrink(Suite *suite) {
    TCase *tests = tcase_create("schedules");
    tcase_add_test(tests, a_schedule_written_and_read_again_is_the_same);
    tcase_add_loop_test(tests, a_schedule_that_cannot_be_run_is_refused, 0, REFUSED);
    tcase_add_test(tests, random_schedules_are_possible_differ_and_hold_every_kind_of_step);
    tcase_add_loop_test(tests, a_failing_schedule_shrinks_to_the_smallest_that_fails, 0, PREDICATES);
    tcase_add_test(tests, the_predicate_sees_possible_schedules_only_and_no_more_than_the_budget);
    suite_add_tcase(suite, tests);
}
