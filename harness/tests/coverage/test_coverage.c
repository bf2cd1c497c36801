/*
 * test_coverage.c - the sizes of the code are read as they are written, every one is exceeded by a stored case, and one
 * that is not, or of which nothing is known, fails.
 */
#include "suites.h"

#include "support/child.h"
#include "coverage/constants.h"
#include "support/scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const dp_source_constant *named(const dp_constant_list *list, const char *name) {
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->item[i].name, name) == 0) return &list->item[i];
    return NULL;
}

START_TEST(constants_are_read_as_they_are_written) {
    static const char text[] = "/* enum { COMMENT = 5 }; */\n"
                               "// enum { LINE = 5 };\n"
                               "enum kind { FIRST, SECOND = 2, THIRD };\n"
                               "enum { TILE = 0x40, HALF = TILE / 2 /* of it */, ROOM = (TILE + 16) * 3,\n"
                               "       MANY = 1 << 20, FLAGS = 1 << 2 | 1 << 0, NONE = sizeof(int), OTHER = PARAMETER "
                               "* 2, PAIR = f(1, 2), LAST = 7 };\n"
                               "#define MACRO 12\n"
                               "#define REAL 1e6\n"
                               "#define CALL(x) 12\n"
                               "enum kind variable = SECOND;\n";
    static const struct {
        const char *name;
        int64_t value;
    } expected[] = {{"SECOND", 2},     {"TILE", 64}, {"HALF", 32}, {"ROOM", 240},
                    {"MANY", 1 << 20}, {"FLAGS", 5}, {"LAST", 7},  {"MACRO", 12}};
    enum { EXPECTED = sizeof expected / sizeof *expected };
    dp_constant_list list;
    dflash_error err = {0};
    scratch_open();
    scratch_write_text("one.c", text);
    ck_assert_msg(dp_constants_read(sf_folder, &list, &err) == DFLASH_OK, "%s", err.message);
    for (int i = 0; i < EXPECTED; i++) {
        const dp_source_constant *found = named(&list, expected[i].name);
        ck_assert_msg(found != NULL, "%s is not read", expected[i].name);
        ck_assert_int_eq(found->value, expected[i].value);
        ck_assert_str_eq(found->file, "one.c");
    }
    ck_assert_int_eq(list.count, EXPECTED);
    dp_constants_release(&list);
    scratch_close();
}
END_TEST

START_TEST(a_folder_that_is_not_there_is_refused) {
    dp_constant_list list;
    dflash_error err = {0};
    ck_assert_int_eq(dp_constants_read("no-such-folder", &list, &err), DFLASH_ERR_IO);
    ck_assert_str_eq(err.code, "constants.folder");
    dp_constants_release(&list);
}
END_TEST

START_TEST(the_stored_cases_exceed_every_size_and_the_page_says_by_what) {
    size_t length;
    char *page = scratch_read("reports/CASES.md", &length);
    child run = CHILD("coverage");
    ck_assert_msg(strcmp(run.out, page) == 0,
                  "reports/CASES.md is not what `dflash-parity coverage` prints; write it again:\n%s", run.err);
    free(page);
    child_expect(run, 0, NULL, "");
}
END_TEST

/* Runs coverage over one source file of this text, in a room of its own that is removed again. */
static child over(const char *room, const char *name, const char *text, const char *cases) {
    char folder[SCRATCH_PATH], file[SCRATCH_PATH];
    ck_assert_int_eq(mkdir(scratch_path(room, folder), 0777), 0);
    scratch_write_text(name, text);
    const child run = CHILD("coverage", "--sources", sf_folder, "--cases", cases);
    ck_assert_int_eq(unlink(scratch_path(name, file)), 0);
    ck_assert_int_eq(rmdir(folder), 0);
    return run;
}

START_TEST(a_constant_larger_than_what_the_cases_reach_fails) {
    scratch_open();
    child_expect(over("heads", "heads/topk.c", "enum { CHUNK = 64 };", "fixtures/cases.json"), 0,
                 "`CHUNK` 64 | vocabulary", "");
    child_expect(over("heads", "heads/topk.c", "enum { CHUNK = 4096 };", "fixtures/cases.json"), 1,
                 "`CHUNK` 4096 | vocabulary | **no case: 1201 at most**", "FAIL: 1 of 1");
    scratch_close();
}
END_TEST

START_TEST(a_constant_of_which_nothing_is_known_fails) {
    scratch_open();
    child_expect(over("heads", "heads/topk.c", "enum { CHUNK = 64, FRESH = 48 };", "fixtures/cases.json"), 1,
                 "`FRESH` 48 | | **nothing is known of it", "FAIL: 1 of 2");
    scratch_close();
}
END_TEST

START_TEST(a_case_that_is_taken_away_is_missed) {
    static const char list[] =
        "{\"cases\":[{\"name\":\"one\",\"checkpoint\":\"fixtures/small/tiny-plain\",\"oracle\":\"oracles/"
        "tiny-plain.h5\","
        "\"stored\":true,\"synth\":{\"config\":\"fixtures/small/tiny-plain/config.json\",\"seed\":1,\"dtype\":\"bf16\","
        "\"profile\":\"unit\"}}]}";
    char path[SCRATCH_PATH];
    scratch_open();
    scratch_write_text("list.json", list);
    scratch_path("list.json", path);
    child_expect(over("common", "common/canon.h", "enum { DF_SEGMENT = 64 };", path), 1,
                 "keys in sight without a window | **no case: 29 at most**", "FAIL: ");
    scratch_close();
}
END_TEST

Suite *suite_coverage(void) {
    Suite *suite = suite_create("coverage");
    TCase *tests = tcase_create("coverage");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, constants_are_read_as_they_are_written);
    tcase_add_test(tests, a_folder_that_is_not_there_is_refused);
    tcase_add_test(tests, the_stored_cases_exceed_every_size_and_the_page_says_by_what);
    tcase_add_test(tests, a_constant_larger_than_what_the_cases_reach_fails);
    tcase_add_test(tests, a_constant_of_which_nothing_is_known_fails);
    tcase_add_test(tests, a_case_that_is_taken_away_is_missed);
    suite_add_tcase(suite, tests);
    return suite;
}
