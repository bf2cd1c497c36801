/*
 * test_cli_inputs.c - input files that are none: pipes, sockets, folders and devices end a command at once instead of
 * keeping it waiting, while text that is read once may come from a pipe or from standard input.
 */
#include "support/cli_case.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 8 };

/* One command, @ the path under test. The test's own time limit ends one that waits. */
static void refused(const char *const *words, const char *path, const char *found) {
    const char *given[MOST];
    int count = 0;
    for (; count < MOST && words[count] != NULL; count++)
        given[count] = strcmp(words[count], "@") == 0 ? path : words[count];
    child run = child_words(given, count);
    const char *const said[] = {run.out, run.err};
    ck_assert_msg(run.code == 4, "%s %s: code %d: %s%s", words[0], path, run.code, run.out, run.err);
    ck_assert_msg(strstr(said[0], found) != NULL || strstr(said[1], found) != NULL, "%s: no \"%s\" in: %s%s", words[0],
                  found, run.out, run.err);
    child_release(&run);
}

static const char *const inputs[][MOST] = {
    {"check", "--checkpoint", "fixtures/small/tiny-dflash2", "--oracle", "@"},
    {"check", "--checkpoint", "fixtures/small/tiny-dflash2", "--oracle", "@", "--json"}, /* wants the file's digest */
    {"check", "--checkpoint", "fixtures/small/tiny-dflash2", "--oracle", "oracles/tiny-dflash2.h5", "--lm-head", "@"},
    {"compare", "oracles/tiny-plain.h5", "@"},
    {"compare", "@", "oracles/tiny-plain.h5"},
    {"synth", "--config", "@", "--out", "/tmp", "--seed", "1"},
    {"gate", "--cases", "@"},
    {"report", "@"},
    {"history", "@"},
    {"postmortem", "@", "fixtures/results/pass.json"},
    {"identity", "--case", "tiny-plain", "--against", "@"},
};

static void all_refused(const char *path, const char *found) {
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) refused(inputs[i], path, found);
}

START_TEST(a_pipe_that_nobody_writes_to_is_refused_at_once) {
    char path[SCRATCH_PATH];
    scratch_path("pipe", path);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    all_refused(path, "a pipe");
    refused((const char *const[MOST]){"inspect", "@"}, path, "a pipe");
}
END_TEST

START_TEST(a_socket_and_a_device_are_refused_at_once) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char path[SCRATCH_PATH];
    scratch_path("socket", path);
    ck_assert_uint_lt(strlen(path), sizeof at.sun_path);
    memcpy(at.sun_path, path, strlen(path) + 1);
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(listener, (const struct sockaddr *)(const void *)&at, sizeof at), 0);
    all_refused(path, "a socket");
    close(listener);
    all_refused("/dev/zero", "a device");
}
END_TEST

START_TEST(a_folder_is_refused_where_a_file_is_meant) { all_refused(sf_folder, "a directory"); }
END_TEST

START_TEST(the_files_of_a_checkpoint_are_files) {
    static const char *const names[] = {"config.json", "model.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[SCRATCH_PATH];
        scratch_copy_case("tiny-plain");
        scratch_path(names[i], path);
        ck_assert_int_eq(unlink(path), 0);
        ck_assert_int_eq(mkfifo(path, 0600), 0);
        refused((const char *const[MOST]){"check", "--checkpoint", "@", "--oracle", "oracles/tiny-plain.h5", "--json"},
                sf_folder, "a pipe");
        refused((const char *const[MOST]){"inspect", "@"}, sf_folder, "a pipe");
        ck_assert_int_eq(unlink(path), 0);
    }
}
END_TEST

/* ---- Text from a pipe ---- */

/* The end of a pipe that a process fills with the file's bytes, more than a pipe holds, and that the commands inherit.
 */
static int piped(const char *file, pid_t *writer) {
    int ends[2];
    size_t length;
    char *text = scratch_read(file, &length);
    ck_assert_int_eq(pipe(ends), 0);
    *writer = fork();
    ck_assert_int_ge(*writer, 0);
    if (*writer == 0) {
        signal(SIGPIPE, SIG_IGN);
        close(ends[0]);
        usleep(20000); /* the reader comes first, and waits */
        for (size_t at = 0; at < length;) {
            const ssize_t wrote = write(ends[1], text + at, length - at);
            if (wrote < 0) _exit(1);
            at += (size_t)wrote;
        }
        _exit(0);
    }
    close(ends[1]);
    free(text);
    return ends[0];
}

static void from_pipe(const char *const *words, const char *file, int code, const char *out) {
    const char *given[MOST];
    char path[32];
    pid_t writer;
    int count = 0, status;
    const int end = piped(file, &writer);
    snprintf(path, sizeof path, "/dev/fd/%d", end);
    for (; count < MOST && words[count] != NULL; count++)
        given[count] = strcmp(words[count], "@") == 0 ? path : words[count];
    child_expect(child_words(given, count), code, out, NULL);
    close(end);
    ck_assert_int_eq(waitpid(writer, &status, 0), writer);
}

START_TEST(a_result_may_come_from_a_pipe) {
    from_pipe((const char *const[MOST]){"report", "@"}, "fixtures/results/pass.json", 0, "PASS: ");
    from_pipe((const char *const[MOST]){"report", "@", "--as", "junit"}, "fixtures/results/fail.json", 0, "<testsuite");
    from_pipe((const char *const[MOST]){"postmortem", "fixtures/results/pass.json", "@"}, "fixtures/results/fail.json",
              0, "Postmortem: 1 of 1 cases did not pass, over 2 runs");
    from_pipe((const char *const[MOST]){"gate", "-k", "tiny-edge", "--cases", "@"}, "fixtures/cases.json", 0,
              "PASS: 1 of 1 cases passed");
    from_pipe((const char *const[MOST]){"report", "@"}, "oracles/tiny-edge.h5", 3, "");
}
END_TEST

START_TEST(a_dash_is_standard_input) {
    static const char *const words[] = {"-", "/dev/stdin"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        pid_t writer;
        int status;
        const int end = piped("fixtures/results/pass.json", &writer), kept = dup(STDIN_FILENO);
        ck_assert_int_ge(kept, 0);
        ck_assert_int_eq(dup2(end, STDIN_FILENO), STDIN_FILENO);
        child run = CHILD("report", words[i]);
        dup2(kept, STDIN_FILENO);
        close(kept);
        close(end);
        ck_assert_int_eq(waitpid(writer, &status, 0), writer);
        child_expect(run, 0, "PASS: ", "");
    }
}
END_TEST

void cli_add_inputs(Suite *suite) {
    TCase *tests = cli_case("inputs");
    tcase_add_test(tests, a_pipe_that_nobody_writes_to_is_refused_at_once);
    tcase_add_test(tests, a_socket_and_a_device_are_refused_at_once);
    tcase_add_test(tests, a_folder_is_refused_where_a_file_is_meant);
    tcase_add_test(tests, the_files_of_a_checkpoint_are_files);
    tcase_add_test(tests, a_result_may_come_from_a_pipe);
    tcase_add_test(tests, a_dash_is_standard_input);
    suite_add_tcase(suite, tests);
}
