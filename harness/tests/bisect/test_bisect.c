/* test_bisect.c - the search itself, over every small row of candidates; the other parts have files of their own. */
#include "bisect/bisect_search.h"

#include "support/recording_cases.h"
#include "suites.h"

#include "common/error.h"

enum { MOST = 9 };

static int log2_up(int n) {
    int steps = 0;
    while ((1 << steps) < n) steps++;
    return steps;
}

/* Searches `count` candidates of which `culprit` is the first bad and those in `broken` (bits) cannot be tried; the
 * last one can. Returns the number of tries. */
static int search_for(int count, int culprit, unsigned broken, int *first, int *last) {
    dp_search search;
    dflash_error err;
    int tries = 0;
    ck_assert_int_eq(dp_search_begin(count, &search, &err), DFLASH_OK);
    for (int next; (next = dp_search_next(&search)) >= 0; tries++) {
        ck_assert_int_lt(next, count);
        ck_assert_int_eq(search.state[next], DP_TRIAL_NONE);
        search.state[next] = next < MOST && (broken >> next & 1u) != 0 ? DP_TRIAL_SKIPPED
                             : next >= culprit                         ? DP_TRIAL_BAD
                                                                       : DP_TRIAL_GOOD;
        ck_assert_int_le(tries, count);
    }
    dp_search_suspects(&search, first, last);
    dp_search_release(&search);
    return tries;
}

START_TEST(every_culprit_is_found_in_as_few_tries_as_there_are_bits) {
    for (int count = 1; count <= 200; count++)
        for (int culprit = 0; culprit < count; culprit++) {
            int first, last;
            const int tries = search_for(count, culprit, 0, &first, &last);
            ck_assert_int_eq(first, culprit);
            ck_assert_int_eq(last, culprit);
            ck_assert_int_le(tries, log2_up(count));
        }
}
END_TEST

/* What no search could tell apart, and no more, stays suspect. */
START_TEST(with_every_set_of_skipped_candidates_the_culprit_stays_suspect_and_no_more_than_must) {
    for (int count = 1; count <= MOST; count++)
        for (int culprit = 0; culprit < count; culprit++)
            for (unsigned broken = 0; broken < 1u << (count - 1); broken++) {
                int first, last, low = culprit, high = culprit;
                search_for(count, culprit, broken, &first, &last);
                while ((broken >> high & 1u) != 0) high++;
                while (low > 0 && (broken >> (low - 1) & 1u) != 0) low--;
                ck_assert_int_eq(first, low);
                ck_assert_int_eq(last, high);
            }
}
END_TEST

Suite *suite_bisect(void) {
    Suite *suite = suite_create("bisect");
    TCase *tests = tcase_create("search");
    tcase_add_test(tests, every_culprit_is_found_in_as_few_tries_as_there_are_bits);
    tcase_add_test(tests, with_every_set_of_skipped_candidates_the_culprit_stays_suspect_and_no_more_than_must);
    suite_add_tcase(suite, tests);
    bisect_add_narrow(suite);
    bisect_add_cause(suite);
    bisect_add_git(suite);
    return suite;
}
