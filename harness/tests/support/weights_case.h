/*
 * weights_case.h - the fixture that the two files of suite_weights share: a small config of each kind of drafter,
 * exactly the tensors that it calls for, and assertions of which refusal a changed file gets.
 */
#ifndef DP_TESTS_WEIGHTS_CASE_H
#define DP_TESTS_WEIGHTS_CASE_H

#include "support/tensor_file.h"
#include "weights/weights.h"

#include <check.h>

/* One geometry in which no two sizes agree by accident: G = H / group = 3. */
enum {
    WS_H = 12,
    WS_NH = 6,
    WS_NKV = 2,
    WS_HD = 5,
    WS_F = 21,
    WS_L = 2,
    WS_T = 3,
    WS_V = 17,
    WS_R = 7,
    WS_K = 3,
    WS_GROUP = 4
};

/* Every kind of model, for the tests that go through all of them. */
enum {
    WS_DFLASH = 0,
    WS_DFLASH_BIAS,
    WS_DFLASH2,
    WS_DSPARK_VANILLA, /* confidence head over H + r */
    WS_DSPARK_GATED,   /* confidence head over H */
    WS_DSPARK_RNN,     /* attention bias, no confidence head */
    WS_DSPARK_BARE,    /* confidence head alone */
    WS_VARIANTS
};

/* Of the running test. */
extern char ws_path[TF_PATH_MAX + 32];
extern tf_file *ws_file;
extern dflash_config ws_config;

/* Sets ws_config and ws_file, all tensors BF16. */
void ws_make_variant(int variant);
/* Writes ws_file and expects that loading it is refused with this code and `word` in the message. */
void ws_refuse(const char *code, const char *word);
/* Writes ws_file and loads it. */
df_weights ws_load(void);

/* Adds a test case with the fixture. */
void ws_add_case(Suite *suite, const char *name, void (*add)(TCase *tests));
void ws_add_census_tests(TCase *tests);

#endif
