/*
 * test_store_trial.c - files that crash libhdf5, lead it in circles or ask for all memory end a trial and not the
 * program. Part of suite_store.
 */
#include "store/store_trial.h"
#include "support/child.h"
#include "support/store_files.h"
#include "vectors/vectors_file.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const dp_trial_limits enough = {20, 1024};

/* The header of an object goes on at an address that says "none", which libhdf5 1.10.8 follows. */
static void spoil_continuation(const char *object) {
    enum { HEADER = 16, MESSAGE = 8, CONTINUATION = 16, ADDRESS = 8 };
    size_t bytes, at;
    H5O_info_t info;
    const hid_t file = sf_edit();
    ck_assert_int_ge(H5Oget_info_by_name(file, object, &info, H5P_DEFAULT), 0);
    H5Fclose(file);
    unsigned char *data = sf_slurp(&bytes);
    ck_assert_int_eq(data[info.addr], 1); /* an object header of version 1: messages without a checksum */
    for (at = info.addr + HEADER; at + MESSAGE < bytes && (data[at] != CONTINUATION || data[at + 1] != 0);)
        at += MESSAGE + (size_t)(data[at + 2] | data[at + 3] << 8);
    ck_assert_uint_lt(at + MESSAGE + ADDRESS, bytes);
    memset(data + at + MESSAGE, 0xff, ADDRESS);
    sf_spill(data, bytes);
    free(data);
}

START_TEST(metadata_that_crashes_libhdf5_is_refused) {
    static const char *const objects[] = {"/", "/inputs/positions", "/stages/bfloat16/final"};
    dp_vectors_file vectors;
    dflash_error err = {0};
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) {
        sf_write_good();
        spoil_continuation(objects[i]);
        sf_expect_refusal("oracle.damaged", "the process that tried it ");
        child_expect(CHILD("inspect", sf_path), 3, "", "oracle.damaged");
        child_expect(CHILD("compare", sf_path, sf_path), 3, "oracle.damaged", "");
        const dflash_status status = dp_vectors_open(sf_path, &vectors, &err);
        dp_vectors_close(&vectors);
        sf_expect(status, &err, DFLASH_ERR_REFUSED, "oracle.damaged", sf_path);
    }
}
END_TEST

START_TEST(no_truncated_file_is_taken) {
    enum { CUTS = 24 };
    size_t bytes;
    sf_write_good();
    unsigned char *data = sf_slurp(&bytes);
    for (size_t i = 0; i < CUTS; i++) {
        dp_oracle *oracle = NULL;
        dflash_error err = {0};
        sf_spill(data, bytes * i / CUTS);
        ck_assert_int_eq(dp_oracle_open(sf_path, &oracle, &err), DFLASH_ERR_REFUSED);
        ck_assert_msg(strcmp(err.code, "oracle.damaged") == 0 || strcmp(err.code, "oracle.format") == 0, "%s",
                      err.message);
    }
    free(data);
}
END_TEST

/* ---- Limits ------------------------------------------------------------------------------------------------------ */

/* A dataset of any size that holds no byte: chunked, or one piece of which the file has the room alone. */
static void claim(const char *object, int rank, const hsize_t *dim, bool chunked) {
    const hsize_t one[] = {1, 1, 1, 1};
    const hid_t file = sf_edit(), space = H5Screate_simple(rank, dim, NULL), list = H5Pcreate(H5P_DATASET_CREATE);
    H5Ldelete(file, object, H5P_DEFAULT);
    if (chunked) H5Pset_chunk(list, rank, one);
    if (chunked) H5Pset_fletcher32(list);
    H5Pset_alloc_time(list, chunked ? H5D_ALLOC_TIME_INCR : H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(list, H5D_FILL_TIME_NEVER);
    const hid_t dataset = H5Dcreate2(file, object, H5T_IEEE_F64LE, space, H5P_DEFAULT, list, H5P_DEFAULT);
    const hid_t text = H5Tcopy(H5T_C_S1), scalar = H5Screate(H5S_SCALAR);
    H5Tset_size(text, strlen("float64"));
    const hid_t at = H5Acreate2(dataset, "logical_dtype", text, scalar, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert_int_ge(H5Awrite(at, text, "float64"), 0);
    H5Aclose(at);
    H5Sclose(scalar);
    H5Tclose(text);
    H5Dclose(dataset);
    H5Pclose(list);
    H5Sclose(space);
    H5Fclose(file);
}

START_TEST(a_dataset_of_an_absurd_size_is_refused_at_once) {
    const hsize_t wrapping[] = {196, 5531, 93251, 22809539}; /* 2^61 + 12 elements: 96 bytes, where bytes wrap */
    sf_write_good();
    claim("/stages/float64/final", 4, wrapping, true);
    sf_expect_refusal("oracle.dataset.layout", "/stages/float64/final");
}
END_TEST

#ifndef __SANITIZE_ADDRESS__
START_TEST(memory_beyond_the_limit_is_said_and_not_taken) {
    const dp_trial_limits little = {20, 96};
    const hsize_t large[] = {1, 20 << 20}; /* 160 MiB in one row */
    dflash_error err = {0};
    sf_write_good();
    claim("/stages/float64/final", 2, large, false);
    ck_assert_msg(dp_trial_within(sf_path, &enough, &err) == DFLASH_OK, "%s", err.message);
    sf_expect(dp_trial_within(sf_path, &little, &err), &err, DFLASH_ERR_MEMORY, "oracle.trial.memory", "96 MiB");
}
END_TEST
#endif

START_TEST(a_circle_of_links_ends_with_its_time) {
    const dp_trial_limits second = {1, 1024};
    dflash_error err = {0};
    char name[16];
    sf_write_good();
    const hid_t file = sf_edit();
    for (int i = 0; i < 400; i++) {
        snprintf(name, sizeof name, "round%d", i);
        ck_assert_int_ge(H5Lcreate_hard(file, "/", file, name, H5P_DEFAULT, H5P_DEFAULT), 0);
    }
    H5Fclose(file);
    sf_expect(dp_trial_within(sf_path, &second, &err), &err, DFLASH_ERR_REFUSED, "oracle.trial.time", "1 s of CPU");
}
END_TEST

/* ---- Who asks ---------------------------------------------------------------------------------------------------- */

START_TEST(a_file_that_is_vouched_for_needs_no_trial_until_it_changes) {
    struct stat info;
    dflash_error err = {0};
    sf_write_good();
    spoil_continuation("/");
    ck_assert_int_eq(stat(sf_path, &info), 0);
    dp_trial_vouch(&info); /* written just now: its times do not tell it from another */
    sf_expect(dp_trial(sf_path, &err), &err, DFLASH_ERR_REFUSED, "oracle.damaged", sf_path);
    sleep(2);
    dp_trial_vouch(&info);
    ck_assert_msg(dp_trial(sf_path, &err) == DFLASH_OK, "%s", err.message);
    sf_write_good();
    spoil_continuation("/");
    sf_expect(dp_trial(sf_path, &err), &err, DFLASH_ERR_REFUSED, "oracle.damaged", sf_path);
}
END_TEST

START_TEST(a_trial_ends_well_where_the_ends_of_children_are_ignored) {
    dflash_error err = {0};
    sf_write_good();
    signal(SIGCHLD, SIG_IGN);
    signal(SIGXCPU, SIG_IGN);
    ck_assert_msg(dp_trial_within(sf_path, &enough, &err) == DFLASH_OK, "%s", err.message);
    spoil_continuation("/");
    sf_expect(dp_trial_within(sf_path, &enough, &err), &err, DFLASH_ERR_REFUSED, "oracle.damaged", sf_path);
}
END_TEST

void sf_add_trials(TCase *tcase) {
    tcase_add_test(tcase, metadata_that_crashes_libhdf5_is_refused);
    tcase_add_test(tcase, no_truncated_file_is_taken);
    tcase_add_test(tcase, a_dataset_of_an_absurd_size_is_refused_at_once);
#ifndef __SANITIZE_ADDRESS__
    tcase_add_test(tcase, memory_beyond_the_limit_is_said_and_not_taken);
#endif
    tcase_add_test(tcase, a_circle_of_links_ends_with_its_time);
    tcase_add_test(tcase, a_file_that_is_vouched_for_needs_no_trial_until_it_changes);
    tcase_add_test(tcase, a_trial_ends_well_where_the_ends_of_children_are_ignored);
}
