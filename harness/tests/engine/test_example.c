/*
 * test_example.c - examples/draft_loop.c, which `make test` builds: it drafts on a small checkpoint, always the same,
 * and says what it lacks.
 */
#include "support/child.h"
#include "suites.h"

#include "base/process.h"
#include "support/scratch.h"

#include <stdlib.h>
#include <string.h>

/* Runs the example; *text is what it printed, to both streams, by way of the file `name`. */
static int example(const char *checkpoint, const char *rounds, const char *name, char **text) {
    char path[SCRATCH_PATH];
    const char *const argv[] = {DP_BUILD_DIR "/draft_loop", checkpoint, rounds, NULL};
    const dp_process process = {.argv = argv, .out = scratch_path(name, path), .err = path};
    dflash_error err = {0};
    size_t length;
    int code = -1;
    ck_assert_msg(dp_process_run(&process, &code, &err) == DFLASH_OK, "%s", err.message);
    *text = scratch_read(path, &length);
    return code;
}

START_TEST(it_drafts_verifies_and_goes_on) {
    static const int accepted[] = {4, 1, 4, 1, 4, 1};
    char *first, *second, line[64];
    ck_assert_int_eq(example("fixtures/small/tiny-embed-dspark", "6", "first", &first), 0);
    ck_assert_int_eq(example("fixtures/small/tiny-embed-dspark", "6", "second", &second), 0);
    ck_assert_str_eq(first, second);
    const char *at = first;
    for (int round = 0, next = 24; round < 6; next += accepted[round++]) {
        snprintf(line, sizeof line, "round %d at %d, accepted %d of 4: ", round, next, accepted[round]);
        at = strstr(at, line);
        ck_assert_msg(at != NULL, "no \"%s\" in %s", line, first);
    }
    free(first);
    free(second);
}
END_TEST

START_TEST(it_says_what_a_checkpoint_lacks) {
    char *text;
    ck_assert_int_eq(example("fixtures/small/tiny-plain", "1", "text", &text), 1);
    ck_assert_msg(strstr(text, "draft_loop: table.tensor.missing: ") != NULL, "%s", text);
    free(text);
}
END_TEST

Suite *suite_example(void) {
    Suite *suite = suite_create("example");
    TCase *tests = tcase_create("draft_loop");
    tcase_add_checked_fixture(tests, scratch_open, scratch_close);
    tcase_add_test(tests, it_drafts_verifies_and_goes_on);
    tcase_add_test(tests, it_says_what_a_checkpoint_lacks);
    suite_add_tcase(suite, tests);
    return suite;
}
