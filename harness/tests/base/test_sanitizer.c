/*
 * test_sanitizer.c - under AddressSanitizer leaks are looked for, also in the processes that tests run in and in the
 * programs that they start: a suite that leaks would pass in silence where the look does not happen (it is switched off
 * by an option, and fails under a debugger). Other builds have nothing to test here.
 */
#include "suites.h"

#ifdef __SANITIZE_ADDRESS__

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 100, BYTES = 1000 };

static void *volatile held;

__attribute__((noinline)) static void leak(void) {
    for (int i = 0; i < BLOCKS; i++) held = malloc(BYTES);
    held = NULL;
}

static int end_of_process(void (*body)(void)) {
    int status;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        if (freopen("/dev/null", "w", stderr) == NULL) _exit(1);
        body();
        exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void nothing(void) {}

START_TEST(a_process_that_leaks_does_not_end_well) {
    ck_assert_int_eq(end_of_process(nothing), 0);
    ck_assert_int_ne(end_of_process(leak), 0);
}
END_TEST

#endif

Suite *suite_sanitizer(void) {
    Suite *suite = suite_create("sanitizer");
#ifdef __SANITIZE_ADDRESS__
    TCase *tests = tcase_create("leaks");
    tcase_add_test(tests, a_process_that_leaks_does_not_end_well);
    suite_add_tcase(suite, tests);
#endif
    return suite;
}
