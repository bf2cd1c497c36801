/*
 * test_cuda.c - the suite of the CUDA backend. What needs a device is in test_cuda_*.c and runs where there is one;
 * here is what any machine must do: refuse by name, with the right exit code, and never pass.
 */
#include "support/child.h"
#include "support/cuda_case.h"

#include <stdio.h>
#include <unistd.h>

enum { DEVICE_TESTS = 46 }; /* those of the cases below, loops counted once */

static dflash_error err;

START_TEST(a_machine_without_a_device_refuses_the_backend_by_name) {
    const dflash_engine_options options = {.backend = DFLASH_BACKEND_CUDA};
    dflash_engine *engine = NULL;
    ck_assert_int_eq(dflash_engine_create(&options, &engine, &err), DFLASH_ERR_DEVICE);
    ck_assert_ptr_null(engine);
#ifdef DF_WITH_CUDA
    ck_assert_str_eq(err.code, "engine.device");
#else
    ck_assert_str_eq(err.code, "engine.backend");
#endif
}
END_TEST

START_TEST(commands_end_with_code_4_where_there_is_no_device) {
#ifdef DF_WITH_CUDA
    const char *const code = "engine.device";
#else
    const char *const code = "engine.backend";
#endif
    child_expect(CHILD("check", "--checkpoint", "fixtures/small/tiny-plain", "--oracle", "oracles/tiny-plain.h5",
                       "--backend", "cuda"),
                 4, code, NULL);
    child_expect(CHILD("gate", "-k", "tiny-plain", "--backend", "cuda"), 4, code, NULL);
    child_expect(CHILD("gate", "-k", "tiny-plain", "--backend", "cuda", "--device", "1"), 4, code, NULL);
    child_expect(CHILD("identity", "--case", "tiny-plain", "--backend", "cuda"), 4, code, NULL);
    child_expect(CHILD("bench", "--checkpoint", "fixtures/small/tiny-plain", "--backend", "cuda"), 4, NULL, code);
    child_expect(CHILD("record", "--case", "tiny-plain", "--out", "/tmp/never.h5", "--backend", "cuda"), 4, NULL, code);
    ck_assert_int_ne(access("/tmp/never.h5", F_OK), 0);
}
END_TEST

START_TEST(the_cpu_has_no_other_class) {
    child_expect(CHILD("check", "--checkpoint", "fixtures/small/tiny-plain", "--oracle", "oracles/tiny-plain.h5",
                       "--class", "cublas"),
                 3, "engine.class", NULL);
}
END_TEST

START_TEST(the_cpu_has_no_number) {
    child_expect(CHILD("check", "--checkpoint", "fixtures/small/tiny-plain", "--oracle", "oracles/tiny-plain.h5",
                       "--device", "1"),
                 3, "engine.device", "");
    child_expect(CHILD("identity", "--case", "tiny-plain", "--device", "1"), 3, "engine.device", "");
    child_expect(CHILD("record", "--case", "tiny-plain", "--out", "/tmp/never.h5", "--device", "1"), 2, "",
                 "engine.device");
    child_expect(CHILD("ladder", "--case", "tiny-plain", "--device", "1"), 2, "", "do not apply");
}
END_TEST

START_TEST(a_backend_class_or_product_that_does_not_exist_is_a_usage_error) {
    child_expect(CHILD("gate", "--backend", "gpu"), 2, "", "--backend takes cpu or cuda, found 'gpu'");
    child_expect(CHILD("gate", "--class", "quick"), 2, "", "--class takes exact, cublas or fast, found 'quick'");
    child_expect(CHILD("gate", "--products", "f16"), 2, "", "--products takes f32, tf32 or bf16, found 'f16'");
    child_expect(CHILD("gate", "--backend"), 2, "", "--backend needs a value");
}
END_TEST

START_TEST(a_result_says_what_computed) {
    cJSON *json = child_case(CHILD("check", "--checkpoint", "fixtures/small/tiny-plain", "--oracle",
                                   "oracles/tiny-plain.h5", "-k", "final", "--json"),
                             0);
    ck_assert_str_eq(child_text(json, "backend"), "cpu");
    ck_assert_str_eq(child_text(json, "class"), "exact");
    ck_assert_str_eq(child_text(json, "products"), "f32");
    ck_assert(cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(json, "device")));
    cJSON_Delete(json);
}
END_TEST

Suite *suite_cuda(void) {
    Suite *suite = suite_create("cuda");
    TCase *tests = tcase_create("anywhere");
    const bool present = cuda_case_present();
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, the_cpu_has_no_other_class);
    tcase_add_test(tests, the_cpu_has_no_number);
    tcase_add_test(tests, a_backend_class_or_product_that_does_not_exist_is_a_usage_error);
    tcase_add_test(tests, a_result_says_what_computed);
    if (!present) {
        tcase_add_test(tests, a_machine_without_a_device_refuses_the_backend_by_name);
        tcase_add_test(tests, commands_end_with_code_4_where_there_is_no_device);
    }
    suite_add_tcase(suite, tests);
    if (!present) {
        fprintf(stderr, "suite cuda: no device: %d tests not run\n", DEVICE_TESTS);
        return suite;
    }
    suite_add_tcase(suite, tcase_cuda_programs());
    suite_add_tcase(suite, tcase_cuda_ops());
    suite_add_tcase(suite, tcase_cuda_heads());
    suite_add_tcase(suite, tcase_cuda_draft());
    suite_add_tcase(suite, tcase_cuda_faults());
    suite_add_tcase(suite, tcase_cuda_engine());
    suite_add_tcase(suite, tcase_cuda_persistent());
    suite_add_tcase(suite, tcase_cuda_shapes());
    cuda_add_devices(suite);
    return suite;
}
