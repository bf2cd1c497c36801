/* test_soak.c - a short soak: no correct run leaves its bounds, whatever it is fed; and a soak can fail. */
#include "suites.h"

#include "store/cases.h"
#include "check/soak.h"

START_TEST(no_stage_of_a_correct_run_leaves_its_bounds_whatever_it_is_fed) {
    dp_case_list list;
    dp_soak total = {.runs = 0};
    dflash_error err = {.status = DFLASH_OK};
    int number = 0;
    ck_assert_int_eq(dp_cases_read("fixtures/cases.json", &list, &err), DFLASH_OK);
    for (int i = 0; i < list.count; i++) {
        if (!list.item[i].stored) continue;
        ck_assert_msg(dp_soak_run(list.item[i].checkpoint, list.item[i].precision, 7, number++, &total, &err) ==
                          DFLASH_OK,
                      "%s", err.message);
    }
    dp_cases_release(&list);
    ck_assert_msg(total.alarms == 0, "%s", total.first);
    ck_assert_int_eq(total.runs, number);
    ck_assert_int_gt(total.runs, 20);
    ck_assert_int_gt(total.stages, 40 * total.runs);
    /* The bound of a product is not slack: the issue asks for a median below 50. */
    ck_assert_int_gt(total.judged[DFLASH_STAGE_MLP_GATE], 0);
    ck_assert(total.tightness[DFLASH_STAGE_MLP_GATE] / (double)total.judged[DFLASH_STAGE_MLP_GATE] < 50.0);
}
END_TEST

Suite *suite_soak(void) {
    Suite *suite = suite_create("soak");
    TCase *tests = tcase_create("soak");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, no_stage_of_a_correct_run_leaves_its_bounds_whatever_it_is_fed);
    suite_add_tcase(suite, tests);
    return suite;
}
