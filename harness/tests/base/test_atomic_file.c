/*
 * test_atomic_file.c - a file appears whole or not at all, whatever fails on the way.
 *
 * Every failing case also lists the folder: nothing half-written may stay, and the old file must be as it was.
 */
#include "base/atomic_file.h"
#include "suites.h"
#include "support/tensor_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[TF_PATH_MAX], target[TF_PATH_MAX + 16];

static void setup(void) {
    tf_make_dir(folder);
    snprintf(target, sizeof target, "%s/out.bin", folder);
}

static void teardown(void) { tf_remove_dir(folder); }

static void put(const char *text) {
    FILE *file = fopen(target, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text, 1, strlen(text), file), strlen(text));
    ck_assert_int_eq(fclose(file), 0);
}

static void assert_holds(const char *text) {
    char found[256] = {0};
    FILE *file = fopen(target, "rb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fread(found, 1, sizeof found - 1, file), strlen(text));
    fclose(file);
    ck_assert_str_eq(found, text);
}

static int entries(void) {
    int count = 0;
    DIR *dir = opendir(folder);
    ck_assert_ptr_nonnull(dir);
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) count += e->d_name[0] != '.';
    closedir(dir);
    return count;
}

static dp_atomic_file *open_target(void) {
    dp_atomic_file *file = NULL;
    dflash_error err;
    ck_assert_int_eq(dp_atomic_open(target, &file, &err), DFLASH_OK);
    return file;
}

static void write_all(dp_atomic_file *file, const char *text) {
    dflash_error err;
    ck_assert_int_eq(dp_atomic_write(file, text, strlen(text), &err), DFLASH_OK);
}

static void assert_open_fails(const char *path, const char *code) {
    dp_atomic_file *file = NULL;
    dflash_error err = {0};
    ck_assert_int_eq(dp_atomic_open(path, &file, &err), DFLASH_ERR_IO);
    ck_assert_int_eq(err.status, DFLASH_ERR_IO);
    ck_assert_str_eq(err.code, code);
    ck_assert_ptr_null(file);
}

static void assert_commit_fails(dp_atomic_file *file, const char *code) {
    dflash_error err = {0};
    ck_assert_int_eq(dp_atomic_commit(file, &err), DFLASH_ERR_IO);
    ck_assert_int_eq(err.status, DFLASH_ERR_IO);
    ck_assert_str_eq(err.code, code);
    ck_assert_ptr_nonnull(strstr(err.message, target));
}

START_TEST(a_committed_file_holds_all_that_was_written) {
    dp_atomic_file *file = open_target();
    dflash_error err;
    write_all(file, "first, ");
    write_all(file, "");
    write_all(file, "second");
    ck_assert_int_eq(dp_atomic_commit(file, &err), DFLASH_OK);
    assert_holds("first, second");
    ck_assert_int_eq(entries(), 1);
}
END_TEST

START_TEST(a_new_file_has_the_mode_that_the_umask_allows) {
    const mode_t before = umask(027);
    dp_atomic_file *file = open_target();
    umask(before);
    dflash_error err;
    struct stat info;
    ck_assert_int_eq(dp_atomic_commit(file, &err), DFLASH_OK);
    ck_assert_int_eq(stat(target, &info), 0);
    ck_assert_uint_eq(info.st_mode & 0777u, 0640u);
}
END_TEST

START_TEST(the_old_file_stands_until_the_commit) {
    put("old");
    dp_atomic_file *file = open_target();
    dflash_error err;
    write_all(file, "new");
    assert_holds("old");
    ck_assert_int_eq(dp_atomic_commit(file, &err), DFLASH_OK);
    assert_holds("new");
    ck_assert_int_eq(entries(), 1);
}
END_TEST

START_TEST(a_discarded_file_leaves_the_old_one) {
    put("old");
    dp_atomic_file *file = open_target();
    write_all(file, "new");
    ck_assert_int_eq(entries(), 2);
    dp_atomic_discard(file);
    dp_atomic_discard(NULL);
    assert_holds("old");
    ck_assert_int_eq(entries(), 1);
}
END_TEST

START_TEST(two_writers_of_one_target_do_not_mix) {
    dp_atomic_file *one = open_target(), *two = open_target();
    dflash_error err;
    write_all(one, "one");
    write_all(two, "two");
    write_all(one, "one");
    ck_assert_int_eq(dp_atomic_commit(two, &err), DFLASH_OK);
    assert_holds("two");
    ck_assert_int_eq(dp_atomic_commit(one, &err), DFLASH_OK);
    assert_holds("oneone");
    ck_assert_int_eq(entries(), 1);
}
END_TEST

START_TEST(a_folder_at_the_target_is_refused) {
    char path[TF_PATH_MAX + 32];
    assert_open_fails(folder, "atomic.target");
    snprintf(path, sizeof path, "%s/", target);
    assert_open_fails(path, "atomic.target");
    assert_open_fails("", "atomic.target");
    ck_assert_int_eq(entries(), 0);
}
END_TEST

START_TEST(a_device_at_the_target_is_refused) {
    struct stat info;
    assert_open_fails("/dev/full", "atomic.target");
    ck_assert_int_eq(stat("/dev/full", &info), 0);
    ck_assert(S_ISCHR(info.st_mode));
}
END_TEST

START_TEST(a_missing_folder_is_an_error) {
    char path[TF_PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/missing/out.bin", folder);
    assert_open_fails(path, "atomic.open");
    ck_assert_int_eq(entries(), 0);
}
END_TEST

START_TEST(a_folder_that_may_not_be_written_is_an_error) {
    const uid_t user = geteuid();
    put("old");
    ck_assert_int_eq(chmod(folder, 0555), 0);
    /* root may write anywhere, so the test gives its rights up for the call */
    if (user == 0) ck_assert_int_eq(seteuid(65534), 0);
    assert_open_fails(target, "atomic.open");
    if (user == 0) ck_assert_int_eq(seteuid(user), 0);
    ck_assert_int_eq(chmod(folder, 0755), 0);
    assert_holds("old");
    ck_assert_int_eq(entries(), 1);
}
END_TEST

/* Lets no file of this process grow past `bytes`: to a writer this is a disk that is full. */
static void limit_file_size(rlim_t bytes, struct rlimit *before) {
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, before), 0);
    const struct rlimit limit = {.rlim_cur = bytes, .rlim_max = before->rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void lift_limit(const struct rlimit *before) {
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, before), 0);
    signal(SIGXFSZ, SIG_DFL);
}

/* Opens, writes 1000 bytes that fit, then 8192 of which some do not. Returns the handle after that failure. */
static dp_atomic_file *fill_disk(void) {
    static const char block[8192];
    dflash_error err = {0};
    struct rlimit before;
    dp_atomic_file *file = open_target();
    limit_file_size(4096, &before);
    const dflash_status fits = dp_atomic_write(file, block, 1000, &err);
    const dflash_status full = dp_atomic_write(file, block, sizeof block, &err);
    lift_limit(&before);
    ck_assert_int_eq(fits, DFLASH_OK);
    ck_assert_int_eq(full, DFLASH_ERR_IO);
    ck_assert_str_eq(err.code, "atomic.write");
    ck_assert_ptr_nonnull(strstr(err.message, target));
    return file;
}

START_TEST(a_full_disk_leaves_the_old_file_and_nothing_else) {
    put("old");
    dp_atomic_discard(fill_disk());
    assert_holds("old");
    ck_assert_int_eq(entries(), 1);
}
END_TEST

START_TEST(a_file_with_a_failed_write_cannot_be_committed) {
    put("old");
    dp_atomic_file *file = fill_disk();
    write_all(file, "space again");
    assert_commit_fails(file, "atomic.write");
    assert_holds("old");
    ck_assert_int_eq(entries(), 1);
}
END_TEST

START_TEST(a_failed_sync_leaves_the_old_file_and_nothing_else) {
    put("old");
    int ends[2];
    const int next = open("/dev/null", O_RDONLY); /* the descriptor that the handle will get */
    ck_assert_int_ge(next, 0);
    ck_assert_int_eq(close(next), 0);
    dp_atomic_file *file = open_target();
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(dup2(ends[1], next), next); /* a pipe cannot be synced */
    assert_commit_fails(file, "atomic.sync");
    close(ends[0]);
    close(ends[1]);
    assert_holds("old");
    ck_assert_int_eq(entries(), 1);
}
END_TEST

START_TEST(a_target_that_becomes_a_folder_fails_the_commit) {
    dp_atomic_file *file = open_target();
    write_all(file, "new");
    ck_assert_int_eq(mkdir(target, 0777), 0);
    assert_commit_fails(file, "atomic.rename");
    ck_assert_int_eq(entries(), 1);
    ck_assert_int_eq(rmdir(target), 0);
}
END_TEST

Suite *suite_atomic_file(void) {
    Suite *suite = suite_create("atomic_file");
    TCase *tcase = tcase_create("atomic_file");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_committed_file_holds_all_that_was_written);
    tcase_add_test(tcase, a_new_file_has_the_mode_that_the_umask_allows);
    tcase_add_test(tcase, the_old_file_stands_until_the_commit);
    tcase_add_test(tcase, a_discarded_file_leaves_the_old_one);
    tcase_add_test(tcase, two_writers_of_one_target_do_not_mix);
    tcase_add_test(tcase, a_folder_at_the_target_is_refused);
    tcase_add_test(tcase, a_device_at_the_target_is_refused);
    tcase_add_test(tcase, a_missing_folder_is_an_error);
    tcase_add_test(tcase, a_folder_that_may_not_be_written_is_an_error);
    tcase_add_test(tcase, a_full_disk_leaves_the_old_file_and_nothing_else);
    tcase_add_test(tcase, a_file_with_a_failed_write_cannot_be_committed);
    tcase_add_test(tcase, a_failed_sync_leaves_the_old_file_and_nothing_else);
    tcase_add_test(tcase, a_target_that_becomes_a_folder_fails_the_commit);
    suite_add_tcase(suite, tcase);
    return suite;
}
