/*
 * test_synth_failures.c - what synth refuses, what a failure leaves behind, and the command's exit codes.
 *
 * The cases belong to the suite of test_synth.c.
 */
#include "cli/cmd_synth.h"
#include "support/synth_files.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* A dspark config whose vocabulary is open. */
static const dflash_config OPEN_VOCABULARY = {.family = DFLASH_FAMILY_DSPARK,
                                              .hidden = 8,
                                              .n_heads = 2,
                                              .n_kv_heads = 1,
                                              .head_dim = 4,
                                              .intermediate = 8,
                                              .n_layers = 1,
                                              .n_taps = 1,
                                              .output_multiplier = 1,
                                              .markov = DFLASH_MARKOV_VANILLA,
                                              .markov_rank = 4};

static void assert_plan_fails(const dflash_config *config, unsigned extras, const char *code) {
    dflash_error err = {0};
    dp_synth_plan plan;
    ck_assert_int_eq(dp_synth_plan_make(config, 1, DP_SYNTH_UNIT, extras, &plan, &err), DFLASH_ERR_REFUSED);
    ck_assert_int_eq(err.status, DFLASH_ERR_REFUSED);
    ck_assert_str_eq(err.code, code);
    ck_assert_ptr_null(plan.tensor);
}

static void assert_synth_fails(const char *config, const char *dir, int threads, dflash_status status,
                               const char *code) {
    const dp_synth_options options = {.seed = 1, .dtype = DF_BF16, .threads = threads};
    dflash_error err = {0};
    ck_assert_int_eq(dp_synth_write(config, dir, &options, NULL, &err), status);
    ck_assert_int_eq(err.status, status);
    ck_assert_str_eq(err.code, code);
}

/* ---- Failures ---- */

START_TEST(a_config_that_cannot_be_read_is_an_error) {
    assert_synth_fails("fixtures/no-such/config.json", synth_out, 1, DFLASH_ERR_IO, "synth.config");
    assert_synth_fails(synth_folder, synth_out, 1, DFLASH_ERR_IO, "synth.config"); /* opens, but does not read */
    ck_assert_int_ne(access(synth_out, F_OK), 0);
}
END_TEST

START_TEST(a_refused_config_writes_nothing) {
    synth_put(synth_given, "{\"architectures\":[\"DFlashDraftModel\"]}");
    assert_synth_fails(synth_given, synth_out, 1, DFLASH_ERR_REFUSED, "config.key.missing");
    synth_put(synth_given, "{");
    assert_synth_fails(synth_given, synth_out, 1, DFLASH_ERR_REFUSED, "config.json.syntax");
    ck_assert_int_ne(access(synth_out, F_OK), 0);
}
END_TEST

START_TEST(a_head_over_an_unknown_vocabulary_is_refused) {
    dflash_config config = OPEN_VOCABULARY;
    assert_plan_fails(&config, 0, "synth.shape");
    config.markov = DFLASH_MARKOV_NONE; /* now only the output head needs the vocabulary */
    assert_plan_fails(&config, DP_SYNTH_LM_HEAD, "synth.shape");
}
END_TEST

START_TEST(a_suffix_for_codebooks_that_do_not_exist_is_refused) {
    dflash_config config = OPEN_VOCABULARY;
    config.vocab = 16;
    assert_plan_fails(&config, DP_SYNTH_CODEBOOK_SUFFIX, "synth.extra");
    config.family = DFLASH_FAMILY_DFLASH;
    assert_plan_fails(&config, DP_SYNTH_CODEBOOK_SUFFIX | DP_SYNTH_LM_HEAD, "synth.extra");
}
END_TEST

START_TEST(a_sharp_checkpoint_without_attention_biases_is_refused) {
    dflash_config config = OPEN_VOCABULARY;
    dp_synth_plan plan;
    dflash_error err = {0};
    config.family = DFLASH_FAMILY_DFLASH;
    ck_assert_int_eq(dp_synth_plan_make(&config, 1, DP_SYNTH_SHARP, 0, &plan, &err), DFLASH_ERR_REFUSED);
    ck_assert_str_eq(err.code, "synth.profile");
    ck_assert_ptr_null(plan.tensor);
    config.attention_bias = true;
    ck_assert_int_eq(dp_synth_plan_make(&config, 1, DP_SYNTH_SHARP, 0, &plan, &err), DFLASH_OK);
    dp_synth_plan_release(&plan);
}
END_TEST

START_TEST(a_checkpoint_larger_than_the_disk_is_refused_before_anything_is_written) {
    /* 0.2 PB */
    synth_put(synth_given,
              "{\"architectures\":[\"DFlashDraftModel\"],\"hidden_size\":262144,\"num_attention_heads\":4096,"
              "\"num_key_value_heads\":8,\"head_dim\":128,\"intermediate_size\":1048576,"
              "\"num_hidden_layers\":100,\"rms_norm_eps\":1e-6,\"rope_theta\":10000,\"block_size\":5,"
              "\"mask_token_id\":90,\"target_layer_ids\":[1]}");
    assert_synth_fails(synth_given, synth_out, 1, DFLASH_ERR_IO, "synth.space");
    ck_assert_int_ne(access(synth_out, F_OK), 0);
}
END_TEST

START_TEST(a_file_where_the_folder_should_be_is_an_error) {
    char path[SYNTH_PATH + 16];
    synth_put(synth_out, "a file");
    snprintf(path, sizeof path, "%s/deeper/still", synth_out);
    assert_synth_fails(SYNTH_PLAIN, path, 1, DFLASH_ERR_IO, "synth.folder");
    assert_synth_fails(SYNTH_PLAIN, synth_out, 1, DFLASH_ERR_IO, "synth.folder");
    ck_assert_int_eq(unlink(synth_out), 0);
}
END_TEST

START_TEST(an_unusable_output_name_is_an_error) {
    char name[5001];
    assert_synth_fails(SYNTH_PLAIN, "", 1, DFLASH_ERR_IO, "synth.path");
    memset(name, 'x', sizeof name);
    name[5000] = '\0';
    assert_synth_fails(SYNTH_PLAIN, name, 1, DFLASH_ERR_IO, "synth.path");
    name[4090] = '\0'; /* a path, but one component of it is too long for a file system */
    assert_synth_fails(SYNTH_PLAIN, name, 1, DFLASH_ERR_IO, "synth.folder");
}
END_TEST

START_TEST(a_number_of_threads_out_of_range_is_refused) {
    assert_synth_fails(SYNTH_PLAIN, synth_out, 0, DFLASH_ERR_ARGUMENT, "synth.thread");
    assert_synth_fails(SYNTH_PLAIN, synth_out, DP_SYNTH_MAX_THREADS + 1, DFLASH_ERR_ARGUMENT, "synth.thread");
    ck_assert_int_ne(access(synth_out, F_OK), 0);
}
END_TEST

/* Runs synth where no file may grow past `bytes`: to a writer this is a disk that is full. */
static void assert_full_disk(rlim_t bytes, const char *dir, uint64_t seed) {
    const dp_synth_options options = {.seed = seed, .dtype = DF_BF16, .threads = 2};
    struct rlimit before;
    dflash_error err = {0};
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit limit = {.rlim_cur = bytes, .rlim_max = before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const dflash_status status = dp_synth_write(SYNTH_PLAIN, dir, &options, NULL, &err);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    ck_assert_int_eq(status, DFLASH_ERR_IO);
    ck_assert_str_eq(err.code, "atomic.write");
}

START_TEST(a_full_disk_leaves_no_new_folder) {
    char deeper[SYNTH_PATH + 16];
    snprintf(deeper, sizeof deeper, "%s/a/b/", synth_out);
    for (rlim_t bytes = 0; bytes <= 400000; bytes += 100000) {
        assert_full_disk(bytes, deeper, 1);
        ck_assert_int_ne(access(synth_out, F_OK), 0);
    }
}
END_TEST

START_TEST(a_full_disk_leaves_the_old_checkpoint) {
    char before[65], after[65];
    synth_run(SYNTH_PLAIN, 1, DF_BF16, DP_SYNTH_UNIT, 2);
    synth_digest(before);
    assert_full_disk(100000, synth_out, 2);
    synth_digest(after);
    ck_assert_str_eq(before, after);
    synth_assert_same_file(synth_out_config, SYNTH_PLAIN);
    ck_assert_int_eq(unlink(synth_out_config), 0);
    ck_assert_int_eq(unlink(synth_out_model), 0);
    ck_assert_int_eq(rmdir(synth_out), 0); /* nothing else was left in it */
}
END_TEST

START_TEST(a_checkpoint_of_another_config_is_replaced_whole) {
    char expected[65], found[65];
    synth_run(SYNTH_EDGE, 1, DF_BF16, DP_SYNTH_UNIT, 2);
    synth_digest(expected);
    synth_run(SYNTH_PLAIN, 1, DF_BF16, DP_SYNTH_UNIT, 2);
    synth_run(SYNTH_EDGE, 1, DF_BF16, DP_SYNTH_UNIT, 2);
    synth_digest(found);
    ck_assert_str_eq(expected, found);
    synth_assert_same_file(synth_out_config, SYNTH_EDGE);
}
END_TEST

/* ---- The command ---- */

/* Runs the command on up to ten words, with its output kept apart. */
static int command(const char *const words[10]) {
    char copy[11][SYNTH_PATH], *argv[12] = {copy[0]};
    int argc = 1;
    snprintf(copy[0], SYNTH_PATH, "synth");
    for (; argc <= 10 && words[argc - 1] != NULL; argc++) {
        snprintf(copy[argc], SYNTH_PATH, "%s", words[argc - 1]);
        argv[argc] = copy[argc];
    }
    fflush(NULL);
    const int quiet = open("/dev/null", O_WRONLY), saved_out = dup(STDOUT_FILENO), saved_err = dup(STDERR_FILENO);
    ck_assert(quiet >= 0 && saved_out >= 0 && saved_err >= 0);
    dup2(quiet, STDOUT_FILENO);
    dup2(quiet, STDERR_FILENO);
    const int code = cmd_synth(argc, argv);
    fflush(NULL);
    dup2(saved_out, STDOUT_FILENO);
    dup2(saved_err, STDERR_FILENO);
    close(quiet);
    close(saved_out);
    close(saved_err);
    return code;
}

START_TEST(the_command_writes_what_the_function_writes) {
    char with_command[65], with_function[65];
    ck_assert_int_eq(command((const char *const[10]){"--config", SYNTH_PLAIN, "--seed", "18446744073709551615", "--out",
                                                     synth_out, "--dtype", "f16", "--profile", "hot"}),
                     0);
    synth_digest(with_command);
    synth_run(SYNTH_PLAIN, UINT64_MAX, DF_F16, DP_SYNTH_HOT, 1);
    synth_digest(with_function);
    ck_assert_str_eq(with_command, with_function);
    ck_assert_int_eq(command((const char *const[10]){"--config", SYNTH_CODEBOOKS, "--codebook-suffix", "--seed", "28",
                                                     "--lm-head", "--out", synth_out}),
                     0);
    synth_digest(with_command);
    synth_run_with(SYNTH_CODEBOOKS, 28, DF_BF16, DP_SYNTH_UNIT, DP_SYNTH_CODEBOOK_SUFFIX | DP_SYNTH_LM_HEAD);
    synth_digest(with_function);
    ck_assert_str_eq(with_command, with_function);
    ck_assert_int_eq(command((const char *const[10]){"--help"}), 0);
}
END_TEST

START_TEST(wrong_usage_exits_with_2_and_writes_nothing) {
    static const char *const wrong[][10] = {
        {"--config", SYNTH_PLAIN, "--seed", "1"},
        {"--config", SYNTH_PLAIN, "--out", "x"},
        {"--seed", "1", "--out", "x"},
        {"--config", SYNTH_PLAIN, "--seed", "1", "--out"},
        {"--config", SYNTH_PLAIN, "--seed", "1", "--seed", "1", "--out", "x"},
        {"--config", SYNTH_PLAIN, "--seed", "1", "--out", "x", "--fast"},
        {"--config", SYNTH_PLAIN, "--seed", "-1", "--out", "x"},
        {"--config", SYNTH_PLAIN, "--seed", "1x", "--out", "x"},
        {"--config", SYNTH_PLAIN, "--seed", "", "--out", "x"},
        {"--config", SYNTH_PLAIN, "--seed", "18446744073709551616", "--out", "x"},
        {"--config", SYNTH_PLAIN, "--seed", "1", "--out", "x", "--dtype", "f64"},
        {"--config", SYNTH_PLAIN, "--seed", "1", "--out", "x", "--profile", "warm"},
        {"--config", SYNTH_PLAIN, "--seed", "1", "--out", "x", "--threads", "0"},
        {"--config", SYNTH_PLAIN, "--seed", "1", "--out", "x", "--lm-head", "--lm-head"},
        {"--config", SYNTH_PLAIN, "--seed", "1", "--out", "x", "--lm-head", "yes"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ck_assert_msg(command(wrong[i]) == 2, "case %zu is not a usage error", i);
    }
    ck_assert_int_ne(access("x", F_OK), 0);
}
END_TEST

START_TEST(a_refused_config_exits_with_3_and_a_failed_file_with_4) {
    synth_put(synth_given, "{}");
    ck_assert_int_eq(command((const char *const[10]){"--config", synth_given, "--seed", "1", "--out", synth_out}), 3);
    ck_assert_int_eq(command((const char *const[10]){"--config", synth_folder, "--seed", "1", "--out", synth_out}), 4);
}
END_TEST

TCase *synth_failures(void) {
    TCase *tcase = tcase_create("failures");
    tcase_add_checked_fixture(tcase, synth_setup, synth_teardown);
    tcase_add_test(tcase, a_config_that_cannot_be_read_is_an_error);
    tcase_add_test(tcase, a_refused_config_writes_nothing);
    tcase_add_test(tcase, a_head_over_an_unknown_vocabulary_is_refused);
    tcase_add_test(tcase, a_suffix_for_codebooks_that_do_not_exist_is_refused);
    tcase_add_test(tcase, a_sharp_checkpoint_without_attention_biases_is_refused);
    tcase_add_test(tcase, a_checkpoint_larger_than_the_disk_is_refused_before_anything_is_written);
    tcase_add_test(tcase, a_file_where_the_folder_should_be_is_an_error);
    tcase_add_test(tcase, an_unusable_output_name_is_an_error);
    tcase_add_test(tcase, a_number_of_threads_out_of_range_is_refused);
    tcase_add_test(tcase, a_full_disk_leaves_no_new_folder);
    tcase_add_test(tcase, a_full_disk_leaves_the_old_checkpoint);
    tcase_add_test(tcase, a_checkpoint_of_another_config_is_replaced_whole);
    tcase_add_test(tcase, the_command_writes_what_the_function_writes);
    tcase_add_test(tcase, wrong_usage_exits_with_2_and_writes_nothing);
    tcase_add_test(tcase, a_refused_config_exits_with_3_and_a_failed_file_with_4);
    return tcase;
}
