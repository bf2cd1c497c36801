/*
 * op_case.h - what the tests of the numeric core share: engines for every instruction set that this machine runs,
 * seeded values, outputs between guards, comparison of bits, and the canonical sum written as the recursion that
 * canon.h describes. None of it calls the arithmetic under test.
 */
#ifndef DP_TESTS_OP_CASE_H
#define DP_TESTS_OP_CASE_H

#include "engine/engine.h"
#include "suites.h"

enum { OP_ISAS = 4 };

/* The instruction sets of this machine, generic first, found from the processor and not from the engine. */
int op_isas(dflash_isa isa[OP_ISAS]);
/* Fails the test when it cannot be created or runs another instruction set than asked for. */
dflash_engine *op_engine(dflash_isa isa, int threads, bool poison);

/* ck_assert_msg for loops over values: it does not record every success in a file. */
#define OP_REQUIRE(condition, ...)                                                                                     \
    do {                                                                                                               \
        if (!(condition)) ck_abort_msg(__VA_ARGS__);                                                                   \
    } while (0)

/* A seeded stream; any two seeds give unrelated values. */
typedef struct op_random {
    uint64_t state;
} op_random;
uint64_t op_next(op_random *random);
int op_below(op_random *random, int n);
/* Uniform in (-1, 1). */
float op_unit(op_random *random);
void op_fill(op_random *random, float *x, size_t n);

/* Memory that fails the test rather than be NULL; released with free. */
void *op_alloc(size_t bytes);
float *op_floats(size_t n);

/* An output of n floats, every one marked as unwritten, between two guards. */
float *op_output(size_t n);
/* Fails when an element is still marked or a guard has changed. `what` names the case. */
void op_output_check(const float *y, size_t n, const char *what);
void op_output_free(float *y);

/* Fails at the first element whose bits differ. */
void op_expect_bits(const float *expected, const float *actual, size_t n, const char *what);
bool op_same_bits(const float *a, const float *b, size_t n);
/* sqrt(sum (a - b)^2 / sum b^2); b is the truth. */
double op_relative_l2(const float *a, const double *b, size_t n);

/* The value of the whole tree over n >= 1 segments, strictly increasing, each with its sum. */
float op_tree(const unsigned *segment, const float *sum, int n);
/* The canonical sum of w[i] x[i], i < n. */
float op_dot(const float *w, const float *x, int n);

/* For faults that tests inject into a table of operations: a whole round that says it is done and wrote nothing. */
dflash_status op_empty_round(dflash_engine *engine, const df_round_args *args, bool *done, dflash_error *err);

/* Parts of suite_ops and suite_draft that live in files of their own. */
TCase *tcase_matmul(void);
TCase *tcase_products(void);
TCase *tcase_attention(void);
TCase *tcase_attention_masks(void);
TCase *tcase_draft_rounds(void);
TCase *tcase_draft_errors(void);
TCase *tcase_arena(void);
TCase *tcase_stage_names(void);

#endif
