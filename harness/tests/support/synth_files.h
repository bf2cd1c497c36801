/*
 * synth_files.h - what the tests of synth share: a fresh folder for each test, and ways to run synth and read its
 * output.
 */
#ifndef DP_TESTS_SYNTH_FILES_H
#define DP_TESTS_SYNTH_FILES_H

#include "weights/safetensors.h"
#include "store/synth.h"
#include "support/tensor_file.h"

#include <check.h>

#define SYNTH_PLAIN "fixtures/small/tiny-plain/config.json"
#define SYNTH_EDGE "fixtures/small/tiny-edge/config.json"
#define SYNTH_CODEBOOKS "fixtures/small/tiny-dflash2-k3/config.json"

enum { SYNTH_DIR = TF_PATH_MAX + 16, SYNTH_PATH = TF_PATH_MAX + 64 };

/* The test's folder, the output folder in it (not made yet), a config that the test may write, and the output's files.
 */
extern char synth_folder[TF_PATH_MAX], synth_out[SYNTH_DIR], synth_given[SYNTH_DIR];
extern char synth_out_config[SYNTH_PATH], synth_out_model[SYNTH_PATH];

void synth_setup(void);
void synth_teardown(void);

void synth_put(const char *path, const char *text);
/* The whole file with a NUL after it; the caller frees it. */
char *synth_slurp(const char *path, size_t *length);
void synth_assert_same_file(const char *a, const char *b);

/* Writes synth_out; the test fails if that does. */
void synth_run(const char *config, uint64_t seed, df_dtype dtype, dp_synth_profile profile, int threads);
/* The same with a sum of dp_synth_extra. */
void synth_run_with(const char *config, uint64_t seed, df_dtype dtype, dp_synth_profile profile, unsigned extras);
/* SHA-256 of synth_out's model.safetensors. */
void synth_digest(char hex[65]);
df_safetensors *synth_open(void);

/* The cases of test_synth_failures.c. */
TCase *synth_failures(void);

#endif
