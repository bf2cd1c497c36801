/* test_api.c - .ci/api: it finds every function of the header, and a function that no case reaches fails it. */
#include "support/scratch.h"
#include "suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { OUTPUT = 1 << 16 };

/* Runs a command line; returns its exit code. */
static int run(const char *command, char out[OUTPUT]) {
    FILE *from = popen(command, "r");
    ck_assert_ptr_nonnull(from);
    out[fread(out, 1, OUTPUT - 1, from)] = '\0';
    const int status = pclose(from);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* What a measurement would have written, without the function `left_out`; and the exceptions. */
static int judge(const char *left_out, const char *exceptions, char out[OUTPUT]) {
    static char names[OUTPUT], reached[OUTPUT];
    char command[2 * SCRATCH_PATH + 64], path[SCRATCH_PATH], excepted[SCRATCH_PATH];
    size_t at = 0;
    ck_assert_int_eq(run(".ci/api --list", names), 0);
    for (char *name = strtok(names, "\n"); name != NULL; name = strtok(NULL, "\n"))
        if (strcmp(name, left_out) != 0) at += (size_t)snprintf(reached + at, sizeof reached - at, "%s a-case\n", name);
    scratch_write_text("reached", reached);
    scratch_write_text("exceptions", exceptions);
    snprintf(command, sizeof command, "EXCEPTIONS=%s .ci/api --judge %s", scratch_path("exceptions", excepted),
             scratch_path("reached", path));
    return run(command, out);
}

static char out[OUTPUT];

START_TEST(every_public_function_is_found) {
    static const char *const some[] = {"dflash_accept_token", "dflash_draw",        "dflash_draft_tensor",
                                       "dflash_kv_floor",     "dflash_stage_name",  "dflash_embed_block",
                                       "dflash_config_read",  "dflash_kv_blob_free"};
    static char header[OUTPUT];
    int count = 0;
    ck_assert_int_eq(run("cat impl/include/dflash/*.h", header), 0);
    ck_assert_int_eq(run(".ci/api --list", out), 0);
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) ck_assert_msg(strstr(out, some[i]) != NULL, "%s", some[i]);
    for (char *name = strtok(out, "\n"); name != NULL; name = strtok(NULL, "\n")) {
        char called[128];
        snprintf(called, sizeof called, "%s(", name);
        ck_assert_msg(strstr(header, called) != NULL, "%s is no function of the header", name);
        count++;
    }
    ck_assert_int_ge(count, 75);
}
END_TEST

START_TEST(a_function_that_nothing_reaches_fails) {
    ck_assert_int_eq(judge("", "", out), 0);
    ck_assert_ptr_nonnull(strstr(out, "dflash_draw                  a-case\n"));
    ck_assert_int_eq(judge("dflash_draw", "", out), 1);
    ck_assert_ptr_nonnull(strstr(out, "NOT REACHED: dflash_draw:"));
}
END_TEST

START_TEST(an_exception_says_why_and_must_explain_something) {
    ck_assert_int_eq(judge("dflash_draw", "dflash_draw it is drawn elsewhere\n", out), 0);
    ck_assert_ptr_nonnull(strstr(out, "not judged: it is drawn elsewhere\n"));
    ck_assert_int_eq(judge("", "dflash_draw it is drawn elsewhere\n", out), 1);
    ck_assert_ptr_nonnull(strstr(out, "excepted and reached: dflash_draw by a-case"));
    ck_assert_int_eq(judge("", "dflash_gone it was here once\n", out), 1);
    ck_assert_ptr_nonnull(strstr(out, "no such function: dflash_gone"));
}
END_TEST

START_TEST(the_stored_exceptions_are_functions_with_a_reason) {
    size_t length;
    char *text = scratch_read("fixtures/api-exceptions.txt", &length);
    ck_assert_int_eq(run(".ci/api --list", out), 0);
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char name[64], wanted[72];
        if (line[0] == '#') continue;
        ck_assert_msg(sscanf(line, "%60s", name) == 1 && strlen(line) > strlen(name) + 10, "%s", line);
        snprintf(wanted, sizeof wanted, "%s\n", name);
        ck_assert_msg(strstr(out, wanted) != NULL, "%s is no function of the header", name);
    }
    free(text);
}
END_TEST

Suite *suite_api(void) {
    Suite *suite = suite_create("api");
    TCase *tests = tcase_create("the list of public functions");
    tcase_add_checked_fixture(tests, scratch_open, scratch_close);
    tcase_add_test(tests, every_public_function_is_found);
    tcase_add_test(tests, a_function_that_nothing_reaches_fails);
    tcase_add_test(tests, an_exception_says_why_and_must_explain_something);
    tcase_add_test(tests, the_stored_exceptions_are_functions_with_a_reason);
    suite_add_tcase(suite, tests);
    return suite;
}
