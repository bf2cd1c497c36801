/*
 * test_process.c - programs that are run, whatever this process was started with: signals that are ignored or blocked,
 * streams that are closed. What cannot be known of a program's end is never taken for a success.
 */
#include "support/cli_case.h"

#include "base/process.h"
#include "cli/startup.h"
#include "suites.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static dflash_error err;

static int code_of(const char *command) {
    const char *const argv[] = {"sh", "-c", command, NULL};
    const dp_process process = {.argv = argv};
    int code = -1;
    ck_assert_msg(dp_process_run(&process, &code, &err) == DFLASH_OK, "%s", err.message);
    return code;
}

START_TEST(how_a_program_ended_is_known_where_sigchld_is_ignored) {
    const struct sigaction forgetful[] = {{.sa_handler = SIG_IGN}, {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT}};
    for (size_t i = 0; i < sizeof forgetful / sizeof *forgetful; i++) {
        struct sigaction after, before;
        ck_assert_int_eq(sigaction(SIGCHLD, &forgetful[i], &before), 0);
        ck_assert_int_eq(code_of("exit 0"), 0);
        ck_assert_int_eq(code_of("exit 1"), 1);
        ck_assert_int_eq(code_of("exit 7"), 7);
        ck_assert_int_eq(code_of("kill -KILL $$"), 128 + SIGKILL);
        ck_assert_int_eq(sigaction(SIGCHLD, &before, &after), 0);
        ck_assert(after.sa_handler == forgetful[i].sa_handler); /* it was only borrowed */
        ck_assert_int_eq(after.sa_flags & SA_NOCLDWAIT, forgetful[i].sa_flags);
    }
}
END_TEST

/* Something else in this process waits for any child, and gets ours. */
static void take_any_child(int number) {
    (void)number;
    while (waitpid(-1, NULL, 0) > 0) {
    }
}

START_TEST(a_program_whose_end_nobody_knows_is_an_error_and_no_success) {
    const char *const argv[] = {"sh", "-c", "sleep 0.3", NULL};
    const dp_process process = {.argv = argv};
    const struct sigaction taking = {.sa_handler = take_any_child};
    const struct itimerval soon = {.it_value = {.tv_usec = 50 * 1000}};
    struct sigaction before;
    int code = -1;
    ck_assert_int_eq(sigaction(SIGALRM, &taking, &before), 0);
    ck_assert_int_eq(setitimer(ITIMER_REAL, &soon, NULL), 0);
    const dflash_status status = dp_process_run(&process, &code, &err);
    ck_assert_int_eq(sigaction(SIGALRM, &before, NULL), 0);
    ck_assert_int_eq(status, DFLASH_ERR_IO);
    ck_assert_str_eq(err.code, "process.wait");
    ck_assert_int_eq(code, -1);
}
END_TEST

START_TEST(a_program_starts_with_no_signal_ignored_or_blocked) {
    sigset_t every, before;
    sigfillset(&every);
    ck_assert_int_eq(sigprocmask(SIG_SETMASK, &every, &before), 0);
    void (*const pipe)(int) = signal(SIGPIPE, SIG_IGN);
    const int term = code_of("kill -TERM $$"), broken = code_of("kill -PIPE $$");
    signal(SIGPIPE, pipe);
    ck_assert_int_eq(sigprocmask(SIG_SETMASK, &before, NULL), 0);
    ck_assert_int_eq(term, 128 + SIGTERM);
    ck_assert_int_eq(broken, 128 + SIGPIPE);
}
END_TEST

START_TEST(an_interruption_is_heard_where_it_was_blocked) {
    sigset_t interrupt, before, after;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    ck_assert_int_eq(sigprocmask(SIG_BLOCK, &interrupt, &before), 0);
    dp_interruptions_begin();
    raise(SIGINT);
    const bool heard = dp_interrupted();
    dp_interruptions_end();
    ck_assert_int_eq(sigprocmask(SIG_SETMASK, &before, &after), 0);
    ck_assert(heard);
    ck_assert_int_eq(sigismember(&after, SIGINT), 1); /* as it was found */
}
END_TEST

/* In a process of its own: with these streams closed (a bit each), the next file gets none of their numbers, and what
 * is written to them or read from them fails as it would have. */
static int startup_with_closed(int streams) {
    for (int fd = 0; fd <= 2; fd++)
        if ((streams >> fd & 1) != 0) close(fd);
    if (!dp_startup()) return 1;
    if (open("README.md", O_RDONLY) <= 2) return 2;
    for (int fd = 0; fd <= 2; fd++) {
        char byte = 0;
        if ((streams >> fd & 1) != 0 && (fd == 0 ? read(fd, &byte, 1) : write(fd, &byte, 1)) >= 0) return 3;
    }
    return 0;
}

START_TEST(the_number_of_a_closed_stream_goes_to_no_file) {
    int status;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) _exit(startup_with_closed(_i));
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x with streams %d closed", status, _i);
}
END_TEST

/* The program, started by a shell with a stream closed. What is printed goes to a file only where the stream is open.
 */
static int with_closed(const char *stream, const char *more) {
    char command[1024], out[SCRATCH_PATH];
    snprintf(command, sizeof command,
             DP_BUILD_DIR "/dflash-parity check --checkpoint fixtures/small/tiny-edge --oracle oracles/tiny-edge.h5 "
                          "--out '%s' %s %s",
             scratch_path("out.json", out), more, stream);
    const int status = system(command);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* The file is the result, whole and alone: nothing that was meant for a stream is in it. */
static void expect_result_alone(void) {
    char path[SCRATCH_PATH];
    size_t length;
    char *text = scratch_read(scratch_path("out.json", path), &length);
    cJSON *json = cJSON_ParseWithOpts(text, NULL, true);
    ck_assert_msg(json != NULL, "not JSON alone: %s", text);
    cJSON_Delete(json);
    free(text);
}

START_TEST(a_closed_stream_is_no_place_for_a_file) {
    char said[SCRATCH_PATH], elsewhere[SCRATCH_PATH + 8];
    snprintf(elsewhere, sizeof elsewhere, "2>'%s'", scratch_path("said", said));
    ck_assert_int_eq(with_closed(">&-", elsewhere), 4); /* a verdict that nobody could read */
    size_t length;
    char *text = scratch_read(said, &length);
    ck_assert_ptr_nonnull(strstr(text, "output.write"));
    free(text);
    expect_result_alone();
    ck_assert_int_eq(with_closed("2>&-", ">/dev/null"), 0);
    expect_result_alone();
    ck_assert_int_eq(with_closed("<&-", ">/dev/null"), 0);
    expect_result_alone();
    ck_assert_int_eq(with_closed("<&- >&- 2>&-", ""), 4);
    expect_result_alone();
}
END_TEST

Suite *suite_process(void) {
    Suite *suite = suite_create("process");
    TCase *tests = cli_case("programs");
    tcase_add_test(tests, how_a_program_ended_is_known_where_sigchld_is_ignored);
    tcase_add_test(tests, a_program_whose_end_nobody_knows_is_an_error_and_no_success);
    tcase_add_test(tests, a_program_starts_with_no_signal_ignored_or_blocked);
    tcase_add_test(tests, an_interruption_is_heard_where_it_was_blocked);
    tcase_add_loop_test(tests, the_number_of_a_closed_stream_goes_to_no_file, 0, 8);
    tcase_add_test(tests, a_closed_stream_is_no_place_for_a_file);
    suite_add_tcase(suite, tests);
    return suite;
}
