/*
 * test_store_format.c - what stands at an oracle's path when it is no plain HDF5 file of the format that is written
 * here: pipes and sockets, newer formats, files that their writer left open. Part of suite_store.
 */
#include "support/store_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

START_TEST(what_is_no_regular_file_is_refused_at_once) {
    dp_oracle *oracle = NULL;
    dflash_error err = {0};
    ck_assert_int_eq(mkfifo(sf_path, 0600), 0);
    sf_expect(dp_oracle_open(sf_path, &oracle, &err), &err, DFLASH_ERR_IO, "oracle.open", "found a pipe");
    ck_assert_int_eq(unlink(sf_path), 0);
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%.*s", (int)sizeof at.sun_path - 1, sf_path);
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(listener, (const struct sockaddr *)(const void *)&at, sizeof at), 0);
    sf_expect(dp_oracle_open(sf_path, &oracle, &err), &err, DFLASH_ERR_IO, "oracle.open", "found a socket");
    close(listener);
    ck_assert_int_eq(unlink(sf_path), 0);
    sf_expect(dp_oracle_open("/dev/null", &oracle, &err), &err, DFLASH_ERR_IO, "oracle.open", "found a device");
}
END_TEST

/* ---- The format, and a writer's flags ---- */

static herr_t copy_attribute(hid_t from, const char *name, const H5A_info_t *info, void *to) {
    char value[256];
    const hid_t attribute = H5Aopen(from, name, H5P_DEFAULT), type = H5Aget_type(attribute),
                space = H5Aget_space(attribute);
    (void)info;
    ck_assert_uint_le(H5Tget_size(type), sizeof value);
    ck_assert_int_ge(H5Aread(attribute, type, value), 0);
    const hid_t copy = H5Acreate2(*(hid_t *)to, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert_int_ge(H5Awrite(copy, type, value), 0);
    H5Aclose(copy);
    H5Aclose(attribute);
    H5Tclose(type);
    H5Sclose(space);
    return 0;
}

/* The good file in the newest format that this libhdf5 writes: superblock version 3. */
static void write_newest(hsize_t user_block) {
    static const char *const objects[] = {"geometry", "provenance", "inputs", "stages", "sketch"};
    char old[sizeof sf_path + 8];
    snprintf(old, sizeof old, "%s.old", sf_path);
    sf_write_good();
    ck_assert_int_eq(rename(sf_path, old), 0);
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS), creation = H5Pcreate(H5P_FILE_CREATE);
    ck_assert_int_ge(H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST), 0);
    if (user_block > 0) ck_assert_int_ge(H5Pset_userblock(creation, user_block), 0);
    const hid_t from = H5Fopen(old, H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t to = H5Fcreate(sf_path, H5F_ACC_TRUNC, creation, access);
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++)
        ck_assert_int_ge(H5Ocopy(from, objects[i], to, objects[i], H5P_DEFAULT, H5P_DEFAULT), 0);
    ck_assert_int_ge(H5Aiterate2(from, H5_INDEX_NAME, H5_ITER_INC, NULL, copy_attribute, &to), 0);
    H5Fclose(from);
    H5Fclose(to);
    H5Pclose(access);
    H5Pclose(creation);
    ck_assert_int_eq(unlink(old), 0);
}

START_TEST(the_newest_format_and_a_user_block_are_read) {
    size_t bytes;
    write_newest(0);
    unsigned char *data = sf_slurp(&bytes);
    ck_assert_int_eq(data[8], 3);
    free(data);
    dp_oracle_close(sf_open_good());
    write_newest(2048);
    ck_assert(dp_file_is_hdf5(sf_path));
    dp_oracle_close(sf_open_good());
}
END_TEST

/* What lies on the disk while a writer has the file open, which is what stays when it never closes it. */
static void leave_open(bool swmr) {
    size_t bytes;
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    write_newest(0);
    const hid_t file = H5Fopen(sf_path, H5F_ACC_RDWR, access);
    if (swmr) ck_assert_int_ge(H5Fstart_swmr_write(file), 0);
    unsigned char *data = sf_slurp(&bytes);
    H5Fclose(file);
    H5Pclose(access);
    sf_spill(data, bytes);
    free(data);
}

START_TEST(a_file_that_its_writer_left_open_is_named_and_told_how_to_mend) {
    leave_open(false);
    sf_expect_refusal("oracle.unclosed", "h5clear -s ");
}
END_TEST

START_TEST(a_file_left_by_a_single_writer_with_readers_is_read) {
    size_t bytes;
    leave_open(true);
    unsigned char *data = sf_slurp(&bytes);
    ck_assert_int_eq(data[11] & 5, 5);
    free(data);
    dp_oracle_close(sf_open_good());
}
END_TEST

START_TEST(a_superblock_of_a_version_to_come_is_named) {
    size_t bytes;
    write_newest(0);
    unsigned char *data = sf_slurp(&bytes);
    data[8] = 4;
    sf_spill(data, bytes);
    sf_expect_refusal("oracle.version", "superblock version 4; libhdf5 ");
    free(data);
}
END_TEST

START_TEST(a_message_of_a_version_to_come_is_said_to_be_one) {
    enum { HEADER = 16, MESSAGE = 8, LAYOUT = 8 };
    size_t bytes, found = 0;
    sf_write_good();
    const hid_t file = sf_edit();
    H5O_info_t info;
    ck_assert_int_ge(H5Oget_info_by_name(file, "/inputs/target_hidden", &info, H5P_DEFAULT), 0);
    H5Fclose(file);
    unsigned char *data = sf_slurp(&bytes);
    ck_assert_int_eq(data[info.addr], 1); /* an object header of version 1: messages without a checksum */
    for (size_t at = info.addr + HEADER; found == 0 && at + MESSAGE < bytes;
         at += MESSAGE + (size_t)(data[at + 2] | data[at + 3] << 8))
        if (data[at] == LAYOUT && data[at + 1] == 0) found = at + MESSAGE;
    data[found] = 5;
    sf_spill(data, bytes);
    sf_expect_refusal("oracle.read", "of a newer HDF5 format than libhdf5 ");
    free(data);
}
END_TEST

void sf_add_formats(TCase *tcase) {
    tcase_add_test(tcase, what_is_no_regular_file_is_refused_at_once);
    tcase_add_test(tcase, the_newest_format_and_a_user_block_are_read);
    tcase_add_test(tcase, a_file_that_its_writer_left_open_is_named_and_told_how_to_mend);
    tcase_add_test(tcase, a_file_left_by_a_single_writer_with_readers_is_read);
    tcase_add_test(tcase, a_superblock_of_a_version_to_come_is_named);
    tcase_add_test(tcase, a_message_of_a_version_to_come_is_said_to_be_one);
}
