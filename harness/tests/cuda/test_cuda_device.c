/*
 * test_cuda_device.c - which device an engine works on: numbers that do not exist, two devices in one process, and the
 * caller's current device, which no call may leave changed. And programs that a persistent kernel does not know, which
 * must end as failures of the device.
 */
#include "support/cuda_case.h"
#include "check/run_check.h"

#ifdef DF_WITH_CUDA
#include "cuda/common/cuda_engine.h"
#include "cuda/persistent/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The runtime that the program is linked with; its headers are the compiler's of the device code alone. */
int cudaGetDevice(int *device);
int cudaSetDevice(int device);
int cudaMemGetInfo(size_t *left, size_t *all);

static dflash_error err;
#define WORKS(call) ck_assert_msg((call) == DFLASH_OK, "%s", err.message)

/* ---- Programs that no kernel knows ---- */

static const struct {
    const char *what;
    dflash_class numeric_class;
    int kind, dtype;
    bool known;
} programs[] = {
    {"a phase of nothing", DFLASH_CLASS_EXACT, DC_SILU, 0, true},
    {"a product of nothing", DFLASH_CLASS_EXACT, DC_PRODUCT, DF_BF16, true},
    {"no phase", DFLASH_CLASS_EXACT, DC_STORE + 1, 0, false},
    {"no phase", DFLASH_CLASS_EXACT, -1, 0, false},
    {"a phase of class fast", DFLASH_CLASS_EXACT, DC_ATTEND, 0, false},
    {"a product of no width", DFLASH_CLASS_EXACT, DC_PRODUCT, DF_Q4_0 + 1, false},
    {"a phase of nothing", DFLASH_CLASS_FAST, DC_SILU, 0, true},
    {"a product of nothing", DFLASH_CLASS_FAST, DC_PRODUCT, DF_Q8_0, true},
    {"no phase", DFLASH_CLASS_FAST, DC_STORE + 1, 0, false},
    {"no phase", DFLASH_CLASS_FAST, -1, 0, false},
    {"a phase of class exact", DFLASH_CLASS_FAST, DC_SCORES, 0, false},
    {"a phase of class exact", DFLASH_CLASS_FAST, DC_VALUES, 0, false},
    {"a product of a width of class exact", DFLASH_CLASS_FAST, DC_PRODUCT, DF_F32, false},
};
enum { PROGRAMS = sizeof programs / sizeof *programs };

enum { AS_EXPECTED = 0, NO_ENGINE, NOT_RUN, ANOTHER_END };

static int end_of_program(int index) {
    const dflash_engine_options options = {.backend = DFLASH_BACKEND_CUDA,
                                           .numeric_class = programs[index].numeric_class};
    dflash_engine *engine = NULL;
    bool ran = false;
    if (dflash_engine_create(&options, &engine, &err) != DFLASH_OK) return NO_ENGINE;
    const dflash_status status = df_cuda_run_phase(engine, programs[index].kind, programs[index].dtype, &ran, &err);
    if (status == DFLASH_OK && !ran) return NOT_RUN;
    if (programs[index].known) return status == DFLASH_OK ? AS_EXPECTED : ANOTHER_END;
    return status == DFLASH_ERR_DEVICE && strcmp(err.code, "device.failed") == 0 ? AS_EXPECTED : ANOTHER_END;
}

/* In a process of its own, which a trap leaves without a device; so this test runs before any that uses one here. */
START_TEST(a_program_that_a_kernel_does_not_know_is_a_failure_of_the_device) {
    int status;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) _exit(end_of_program(_i));
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status), "%s: status %x", programs[_i].what, status);
    const int end = WEXITSTATUS(status);
    if (end == NOT_RUN)
        fprintf(stderr, "suite cuda: the device has no persistent kernels: %s not run\n", programs[_i].what);
    ck_assert_msg(end == AS_EXPECTED || end == NOT_RUN, "%s in class %s: end %d", programs[_i].what,
                  dflash_class_name(programs[_i].numeric_class), end);
}
END_TEST

/* ---- Numbers ---- */

START_TEST(a_device_that_does_not_exist_is_refused_with_how_many_there_are) {
    const int devices = cuda_case_devices();
    const int wrong[] = {devices, 1000};
    char count[32];
    snprintf(count, sizeof count, "sees %d,", devices);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dflash_engine *engine = NULL;
        ck_assert_int_eq(
            dflash_engine_create(&(dflash_engine_options){.backend = DFLASH_BACKEND_CUDA, .device = wrong[i]}, &engine,
                                 &err),
            DFLASH_ERR_DEVICE);
        ck_assert_ptr_null(engine);
        ck_assert_str_eq(err.code, "engine.device");
        ck_assert_msg(strstr(err.message, count) != NULL, "\"%s\" is not in: %s", count, err.message);
    }
}
END_TEST

/* ---- Two devices ---- */

static int current(void) {
    int device = -1;
    ck_assert_int_eq(cudaGetDevice(&device), 0);
    return device;
}

static dflash_engine *engine_on(int device, dflash_class numeric_class) {
    dflash_engine *engine = NULL;
    WORKS(dflash_engine_create(
        &(dflash_engine_options){
            .backend = DFLASH_BACKEND_CUDA, .numeric_class = numeric_class, .device = device, .poison_scratch = true},
        &engine, &err));
    return engine;
}

static size_t bytes_left(int device) {
    size_t left = 0, all = 0;
    ck_assert_int_eq(cudaSetDevice(device), 0);
    ck_assert_int_eq(cudaMemGetInfo(&left, &all), 0);
    return left;
}

START_TEST(an_engine_takes_its_memory_from_its_own_device) {
    const size_t floats = (size_t)1 << 28, bytes = floats * sizeof(float);
    dflash_engine *engine = engine_on(1, DFLASH_CLASS_EXACT);
    const size_t left[2] = {bytes_left(0), bytes_left(1)};
    float *buffer = NULL;
    ck_assert_int_eq(cudaSetDevice(0), 0);
    WORKS(dflash_engine_alloc(engine, floats, &buffer, &err));
    ck_assert_int_eq(current(), 0);
    ck_assert_uint_ge(left[1] - bytes_left(1), bytes / 2);
    ck_assert(bytes_left(0) > left[0] - bytes / 2);
    ck_assert_int_eq(cudaSetDevice(0), 0);
    dflash_engine_free(engine, buffer);
    ck_assert_int_eq(current(), 0);
    dflash_engine_destroy(engine);
    ck_assert_int_eq(current(), 0);
}
END_TEST

enum { ROWS = 5, OUT = 96, IN = 80 };

/* A product on an engine, by a caller whose device is `mine` before and after every call. */
static float *product_from(dflash_engine *engine, int mine, const cuda_matrix *m, const float *x) {
    ck_assert_int_eq(cudaSetDevice(mine), 0);
    df_matrix w = cuda_matrix_put(engine, m);
    ck_assert_int_eq(current(), mine);
    float *in = cuda_put(engine, x, (size_t)ROWS * IN * sizeof *x),
          *y = cuda_room(engine, (size_t)ROWS * OUT * sizeof *y);
    WORKS(df_arena_reset(&engine->arena, &err));
    WORKS(engine->ops->matmul(engine, &w, NULL, in, ROWS, y, &err));
    ck_assert_int_eq(current(), mine);
    float *result = cuda_get(engine, y, (size_t)ROWS * OUT * sizeof *y);
    ck_assert_int_eq(current(), mine);
    void *const held[] = {(void *)(uintptr_t)w.data, in, y};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) cuda_drop(engine, held[i]);
    ck_assert_int_eq(current(), mine);
    return result;
}

START_TEST(engines_of_two_devices_work_in_turn_whatever_the_callers_device) {
    static const dflash_class classes[] = {DFLASH_CLASS_EXACT, DFLASH_CLASS_CUBLAS, DFLASH_CLASS_FAST};
    const dflash_class numeric_class = classes[_i];
    cuda_matrix m = cuda_matrix_make(DF_BF16, OUT, IN, 910);
    op_random random = {911};
    float *x = op_floats((size_t)ROWS * IN);
    op_fill(&random, x, (size_t)ROWS * IN);
    ck_assert_int_eq(cudaSetDevice(1), 0);
    dflash_engine *engine[2] = {engine_on(0, numeric_class), engine_on(1, numeric_class)};
    ck_assert_int_eq(current(), 1);
    float *first = product_from(engine[0], 1, &m, x);
    for (int turn = 0; turn < 8; turn++) { /* every engine with every caller's device, in changing order */
        float *y = product_from(engine[turn / 2 % 2], turn % 2, &m, x);
        op_expect_bits(first, y, (size_t)ROWS * OUT, "a product of another turn");
        free(y);
    }
    ck_assert_int_eq(cudaSetDevice(1), 0);
    dflash_engine_destroy(engine[0]);
    ck_assert_int_eq(current(), 1);
    float *y = product_from(engine[1], 0, &m, x); /* what the other one held is gone, and nothing of this one */
    op_expect_bits(first, y, (size_t)ROWS * OUT, "a product beside an engine that was closed");
    dflash_engine_destroy(engine[1]);
    ck_assert_int_eq(current(), 0);
    free(first);
    free(y);
    free(x);
    cuda_matrix_release(&m);
}
END_TEST

START_TEST(a_check_on_the_second_device_passes_and_leaves_the_first_current) {
    static const char *const cases[] = {"tiny-plain", "tiny-dflash2", "tiny-dspark-rnn"};
    char checkpoint[96], oracle[96];
    dp_result result;
    snprintf(checkpoint, sizeof checkpoint, "fixtures/small/%s", cases[_i]);
    snprintf(oracle, sizeof oracle, "oracles/%s.h5", cases[_i]);
    const dp_check_options options = {
        .checkpoint = checkpoint, .oracle = oracle, .backend = DFLASH_BACKEND_CUDA, .device = 1};
    ck_assert_int_eq(cudaSetDevice(0), 0);
    dp_check(&options, &result);
    ck_assert_msg(result.verdict == DP_PASS, "%s: verdict %d %s", cases[_i], (int)result.verdict, result.error.message);
    dp_result_release(&result);
    ck_assert_int_eq(current(), 0);
}
END_TEST

TCase *tcase_cuda_programs(void) {
    TCase *tests = tcase_create("programs");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, a_program_that_a_kernel_does_not_know_is_a_failure_of_the_device, 0, PROGRAMS);
    return tests;
}

void cuda_add_devices(Suite *suite) {
    TCase *tests = tcase_create("devices");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, a_device_that_does_not_exist_is_refused_with_how_many_there_are);
    suite_add_tcase(suite, tests);
    if (cuda_case_devices() < 2) {
        fprintf(stderr, "suite cuda: one device: 3 tests of two devices skipped, not run\n");
        return;
    }
    tests = tcase_create("two devices");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, an_engine_takes_its_memory_from_its_own_device);
    tcase_add_loop_test(tests, engines_of_two_devices_work_in_turn_whatever_the_callers_device, 0, 3);
    tcase_add_loop_test(tests, a_check_on_the_second_device_passes_and_leaves_the_first_current, 0, 3);
    suite_add_tcase(suite, tests);
}

#else

/* A build without the backend has no device, and nobody asks for these. */
TCase *tcase_cuda_programs(void) { return tcase_create("programs"); }
void cuda_add_devices(Suite *suite) { (void)suite; }

#endif
