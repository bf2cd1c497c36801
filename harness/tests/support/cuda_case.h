/*
 * cuda_case.h - what the tests of the CUDA backend share: whether there is a device, one engine of each backend, and
 * one call made on both with the same host values.
 */
#ifndef DP_TESTS_CUDA_CASE_H
#define DP_TESTS_CUDA_CASE_H

#include "support/draft_case.h"

/* Asked in a child process, so that this one stays able to fork. Remembered. */
bool cuda_case_present(void);
int cuda_case_devices(void); /* how many there are */

typedef struct cuda_pair {
    dflash_engine *cpu, *device; /* both of the exact class; the device's scratch is poisoned */
} cuda_pair;
cuda_pair cuda_pair_open(void);
void cuda_pair_close(cuda_pair *pair);

dflash_engine *cuda_engine(dflash_class numeric_class, dflash_products products);
/* Whether the engine's device runs the persistent kernels: compute capability 9.0 to 11.x
 * (impl/cuda/persistent/device.cuh). */
bool cuda_persistent(const dflash_engine *engine);

/* Copies of host values in an engine's memory, and results back; any of them fails the test rather than return an
 * error. */
void *cuda_put(dflash_engine *engine, const void *values, size_t bytes);
void *cuda_room(dflash_engine *engine, size_t bytes);                  /* filled with NaN */
void *cuda_get(dflash_engine *engine, const void *from, size_t bytes); /* the caller frees it */
void cuda_drop(dflash_engine *engine, void *memory);

/* Fails at the first element of the two results that differs in a bit, and when one was never written. Frees both. */
void cuda_expect_same(float *cpu, float *device, size_t n, const char *what);

/* W[out, in] of seeded values in any width, in the engine's memory. */
typedef struct cuda_matrix {
    df_matrix matrix;
    void *bytes; /* owned, host memory */
    size_t size;
} cuda_matrix;
cuda_matrix cuda_matrix_make(df_dtype dtype, int64_t out, int64_t in, uint64_t seed);
df_matrix cuda_matrix_put(dflash_engine *engine, const cuda_matrix *m); /* data is to be dropped */
void cuda_matrix_release(cuda_matrix *m);

/* Parts of the suite that need a device. */
TCase *tcase_cuda_ops(void);
TCase *tcase_cuda_heads(void);
TCase *tcase_cuda_draft(void);
TCase *tcase_cuda_faults(void);
TCase *tcase_cuda_engine(void);
TCase *tcase_cuda_persistent(void);
TCase *tcase_cuda_shapes(void);
TCase *tcase_cuda_programs(void);    /* before the others: it forks */
void cuda_add_devices(Suite *suite); /* those that need two only where there are two */

#endif
