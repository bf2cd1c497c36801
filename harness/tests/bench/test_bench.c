/*
 * test_bench.c - the table of times: what it says of given figures, which rows there are, what is refused, and runs on
 * small checkpoints from the command line. No time is judged.
 */
#include "bench/bench_table.h"
#include "support/cli_case.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TINY "--configs", "fixtures/small", "--checkpoints", "fixtures/small", "--context", "16", "--repeat", "2"

/* One geometry with figures whose ratios are round numbers: 4 GB at 4 TB/s. */
static void fill_table(dp_table *t) {
    *t = (dp_table){.backend = DFLASH_BACKEND_CUDA,
                    .context = 2048,
                    .repeat = 100,
                    .python = "python3",
                    .count = 1,
                    .device = {.device = "NVIDIA H200", .driver = "13.0", .runtime = "12.9"}};
    t->geometry[0] = (dp_table_geometry){
        .name = "large",
        .block = 16,
        .rows = 2,
        .with_torch = true,
        .machine = {.macs_per_second = 1e12, .bytes_per_second = 4e12},
        .torch = {.version = "2.11.0", .eager = 8e-3, .graph = 3e-3, .why = "compiled not timed: no compiler"},
        .row = {{DFLASH_CLASS_FAST, DFLASH_PRECISION_BF16, 4e9, 1e8, 4e8, 1.25e-3, 0.125e-3},
                {DFLASH_CLASS_EXACT, DFLASH_PRECISION_F32, 8e9, 1e8, 8e8, 2.5e-3, 0.0}}};
}

static char *printed(const dp_table *t, bool markdown) {
    char *text = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&text, &length);
    ck_assert_ptr_nonnull(to);
    dp_table_print(t, markdown, to);
    ck_assert_int_eq(fclose(to), 0);
    return text;
}

static void expect_words(const char *text, const char *const *words, size_t count) {
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(strstr(text, words[i]) != NULL, "expected '%s' in:\n%s", words[i], text);
}
#define EXPECT(text, ...)                                                                                              \
    expect_words(text, (const char *const[]){__VA_ARGS__},                                                             \
                 sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

START_TEST(the_table_sets_times_beside_the_time_of_their_bytes) {
    dp_table t;
    fill_table(&t);
    char *text = printed(&t, true);
    EXPECT(text, "| large | fast, bf16 | 4.000 | 1.000 | 1.250 | 80.0 % | 1.00 x | 0.400 | 0.100 | 0.125 | 80.0 % |\n",
           "| large | exact, f32 | 8.000 | 2.000 | 2.500 | 80.0 % | 2.00 x | 0.800 | 0.200 | - | - |\n",
           "| large | PyTorch eager, bf16 | 4.000 | 1.000 | 8.000 | 12.5 % | 6.40 x | - | - | - | - |\n",
           "| large | PyTorch CUDA graph, bf16 | 4.000 | 1.000 | 3.000 | 33.3 % | 2.40 x | - | - | - | - |\n",
           "\nNVIDIA H200, driver for CUDA 13.0, built with 12.9; medians of 100 turns", "2048 context rows",
           "large: block 16, 4000 GB/s read; PyTorch 2.11.0, plain modules of the same layers, for times alone; "
           "compiled not timed: no compiler\n");
    ck_assert_ptr_null(strstr(text, "compiled + graph"));
    free(text);
    text = printed(&t, false);
    EXPECT(text, "geometry  what                      layers GB  limit ms  round ms   share  of first",
           "large     fast, bf16                    4.000     1.000     1.250  80.0 %    1.00 x");
    ck_assert_ptr_null(strchr(text, '|'));
    free(text);
}
END_TEST

START_TEST(a_time_without_its_probe_is_not_shown) {
    dp_table t;
    fill_table(&t);
    t.geometry[0].machine.bytes_per_second = 0.0;
    char *text = printed(&t, true);
    EXPECT(text, "| large | fast, bf16 | 4.000 | - | - | - | - | 0.400 | - | - | - |\n",
           "| large | PyTorch eager, bf16 | 4.000 | - | - | - | - | - | - | - | - |\n",
           "read bandwidth not probed, so no times are shown");
    free(text);
    cJSON *json = dp_table_json(&t, "bench");
    const cJSON *large = cJSON_GetObjectItem(json, "geometries")->child;
    ck_assert(cJSON_IsNull(cJSON_GetObjectItem(large, "read_bytes_per_second")));
    const cJSON *row = cJSON_GetObjectItem(large, "rows")->child;
    ck_assert(cJSON_IsNull(cJSON_GetObjectItem(row, "round_ms")));
    ck_assert(cJSON_IsNull(cJSON_GetObjectItem(row, "round_limit_ms")));
    ck_assert(cJSON_IsNull(cJSON_GetObjectItem(cJSON_GetObjectItem(large, "pytorch"), "eager_ms")));
    cJSON_Delete(json);
}
END_TEST

START_TEST(the_json_holds_every_figure_and_null_for_what_was_not_measured) {
    dp_table t;
    fill_table(&t);
    cJSON *json = dp_table_json(&t, "dflash-parity bench --table");
    const cJSON *large = cJSON_GetObjectItem(json, "geometries")->child;
    const cJSON *row = cJSON_GetObjectItem(large, "rows")->child, *torch = cJSON_GetObjectItem(large, "pytorch");
    ck_assert_str_eq(child_text(json, "command"), "dflash-parity bench --table");
    ck_assert_str_eq(child_text(json, "driver"), "13.0");
    ck_assert_double_eq_tol(cJSON_GetObjectItem(row, "round_ms")->valuedouble, 1.25, 1e-9);
    ck_assert_double_eq_tol(cJSON_GetObjectItem(row, "round_limit_ms")->valuedouble, 1.0, 1e-9);
    ck_assert_double_eq_tol(cJSON_GetObjectItem(row, "ingest_ms")->valuedouble, 0.125, 1e-9);
    ck_assert_double_eq_tol(cJSON_GetObjectItem(row, "cache_bytes")->valuedouble, 1e8, 1e-9);
    ck_assert(cJSON_IsNull(cJSON_GetObjectItem(row->next, "ingest_ms")));
    ck_assert_double_eq_tol(cJSON_GetObjectItem(torch, "graph_ms")->valuedouble, 3.0, 1e-9);
    ck_assert(cJSON_IsNull(cJSON_GetObjectItem(torch, "compiled_graph_ms")));
    ck_assert_str_eq(child_text(torch, "why"), "compiled not timed: no compiler");
    cJSON_Delete(json);
}
END_TEST

START_TEST(pytorch_that_is_not_there_is_said) {
    dp_table t;
    fill_table(&t);
    t.geometry[0].torch = (dp_table_torch){.why = "not timed: no torch"};
    char *text = printed(&t, false);
    EXPECT(text, "4000 GB/s read; PyTorch not timed: no torch\n");
    free(text);
    t.python = NULL;
    text = printed(&t, false);
    EXPECT(text, "; PyTorch not timed: no --torch PYTHON was given\n");
    free(text);
    t.geometry[0].with_torch = false;
    text = printed(&t, false);
    EXPECT(text, "; PyTorch left out by -k\n");
    free(text);
}
END_TEST

START_TEST(bytes_are_those_that_the_precision_holds) {
    cJSON *json =
        child_json(CHILD("bench", "--table", "--geometry", "tiny-dflash2", TINY, "--json", "--threads", "1"), 0);
    const cJSON *bf16 = cJSON_GetObjectItem(cJSON_GetObjectItem(json, "geometries")->child, "rows")->child;
    const cJSON *f32 = bf16->next, *q8_0 = f32->next;
    for (const cJSON *row = bf16; row != NULL; row = row->next) {
        ck_assert_double_gt(cJSON_GetObjectItem(row, "round_ms")->valuedouble, 0.0);
        ck_assert_double_gt(cJSON_GetObjectItem(row, "ingest_ms")->valuedouble, 0.0);
        ck_assert_double_gt(cJSON_GetObjectItem(row, "round_limit_ms")->valuedouble, 0.0);
    }
    for (int i = 0; i < 2; i++) { /* norms and base kernels keep their width: a little off 2 and 34 / 64 */
        const char *key = i == 0 ? "layer_bytes" : "ingest_bytes";
        const double bytes = cJSON_GetObjectItem(bf16, key)->valuedouble;
        ck_assert_double_eq_tol(cJSON_GetObjectItem(f32, key)->valuedouble / bytes, 2.0, 0.05);
        ck_assert_double_eq_tol(cJSON_GetObjectItem(q8_0, key)->valuedouble / bytes, 34.0 / 64.0, 0.05);
    }
    cJSON_Delete(json);
}
END_TEST

START_TEST(rows_are_listed_and_chosen_by_name) {
    child run = CHILD("bench", "--table", "--list", "--backend", "cuda");
    EXPECT(run.out, "muse-glimmer-30b-dflash2/fast/bf16\n", "gemma4-31b-dflash/exact/f32\n",
           "qwen3-4b-dflash/fast/q8_0\n", "qwen3-4b-dflash/pytorch\n");
    child_expect(run, 0, "muse", "");
    run = CHILD("bench", "--table", "--list", "--geometry", "alpamayo-dflash", "-k", "*/exact/*");
    ck_assert_str_eq(run.out, "alpamayo-dflash/exact/bf16\nalpamayo-dflash/exact/f32\nalpamayo-dflash/exact/q8_0\n");
    child_expect(run, 0, "alpamayo", "");
    run = CHILD("bench", "--geometry", "tiny-edge", TINY, "-k", "*/bf16");
    ck_assert_ptr_null(strstr(run.out, "q8_0"));
    child_expect(run, 0, "exact, bf16", "");
    child_expect(CHILD("bench", "--table", "-k", "*/cublas/*"), 5, "", "-k */cublas/* matches no row");
}
END_TEST

START_TEST(a_geometry_that_cannot_be_measured_is_refused) {
    child_expect(CHILD("bench", "--geometry", "gemma5"), 3, "", "table.geometry");
    child_expect(CHILD("bench", "--geometry", "../small/tiny-edge"), 3, "", "no folder's name");
    child_expect(CHILD("bench", "--geometry", "gemma4-31b-dflash", "--geometry", "gemma4-31b-dflash"), 3, "",
                 "it is given twice");
    child_expect(CHILD("bench", "--geometry", "tiny-windowed", TINY), 3, "", "precision.block"); /* fc: 240 wide */
    dp_table t = {.configs = "fixtures/small"};
    dflash_error err;
    ck_assert_int_eq(dp_table_add(&t, "tiny-edge", &err), DFLASH_OK);
    ck_assert_int_eq(t.geometry[0].block, 3);
    t.count = DP_TABLE_GEOMETRIES;
    ck_assert_int_eq(dp_table_add(&t, "tiny-plain", &err), DFLASH_ERR_REFUSED);
    ck_assert_str_eq(err.code, "table.geometry");
    ck_assert_ptr_nonnull(strstr(err.message, "too many"));
}
END_TEST

START_TEST(words_that_do_not_fit_the_table_are_usage_errors) {
    child_expect(CHILD("bench", "--table", "--case", "tiny-edge"), 2, "", "unknown word '--case' beside --table");
    child_expect(CHILD("bench", "--table", "--class", "fast"), 2, "", "do not apply to --table");
    child_expect(CHILD("bench", "--table", "--as", "html"), 2, "", "--as takes text or markdown, found 'html'");
    child_expect(CHILD("bench", "--table", "--repeat", "1001"), 2, "", "from 1 to 1000, found '1001'");
    child_expect(CHILD("bench", "--table", "--context", "0"), 2, "", "found '0'");
    child_expect(CHILD("bench", "--geometry"), 2, "", "--geometry needs a value");
    child_expect(CHILD("bench", "--table", "--torch", "a", "--torch", "b"), 2, "", "--torch is given twice");
    child_expect(CHILD("bench", "--table", "--report", "html=x"), 2, "", "--report belongs to check and gate");
    child_expect(CHILD("bench", "--table", "--help"), 0, "5 nothing matched", "");
}
END_TEST

/* Nothing is written for a device that is not there: five gigabytes would be waste. */
START_TEST(without_a_device_it_is_code_4_before_a_checkpoint_is_written) {
    char folder[SCRATCH_PATH];
    dflash_engine *engine = NULL;
    const dflash_engine_options options = {.backend = DFLASH_BACKEND_CUDA};
    if (dflash_engine_create(&options, &engine, NULL) == DFLASH_OK) {
        dflash_engine_destroy(engine);
        return; /* there is one */
    }
    child_expect(CHILD("bench", "--table", "--backend", "cuda", "--checkpoints", scratch_path("made", folder)), 4, "",
#ifdef DF_WITH_CUDA
                 "engine.device");
#else
                 "engine.backend");
#endif
    ck_assert_int_ne(access(folder, F_OK), 0);
}
END_TEST

START_TEST(a_missing_checkpoint_is_written_and_kept) {
    char folder[SCRATCH_PATH], file[SCRATCH_PATH];
    struct stat first, second;
    scratch_path("made", folder);
    scratch_path("made/tiny-edge/model.safetensors", file);
    for (int i = 0; i < 2; i++) {
        child_expect(CHILD("bench", "--geometry", "tiny-edge", "--configs", "fixtures/small", "--checkpoints", folder,
                           "--context", "8", "--repeat", "1", "-k", "*/bf16"),
                     0, "tiny-edge", "");
        ck_assert_int_eq(stat(file, i == 0 ? &first : &second), 0);
    }
    ck_assert_int_eq(first.st_mtim.tv_nsec, second.st_mtim.tv_nsec);
    ck_assert(first.st_ino == second.st_ino);
    tf_remove_dir(scratch_path("made/tiny-edge", file));
    tf_remove_dir(folder);
}
END_TEST

static const char *make_python(char path[SCRATCH_PATH], const char *text) {
    scratch_write_text("python", text);
    ck_assert_int_eq(chmod(scratch_path("python", path), 0700), 0);
    return path;
}

START_TEST(pytorch_is_asked_for_the_same_rows_and_a_failure_keeps_the_table) {
    char python[SCRATCH_PATH];
    make_python(python,
                "#!/bin/sh\n[ \"$*\" = 'oracles/time_plain.py --checkpoint fixtures/small/tiny-edge --device "
                "cpu --context 16 --threads 1 --repeat 2' ] || exit 7\n"
                "echo '{\"torch\":\"9.9\",\"eager_ms\":12.5,\"graph_ms\":null,\"why\":\"graphs need a GPU\"}'\n");
    child run = CHILD("bench", "--geometry", "tiny-edge", TINY, "--threads", "1", "-k", "*[6h]", "--torch", python);
    EXPECT(run.out, "PyTorch eager, bf16", "12.500", "PyTorch 9.9, plain modules", "; graphs need a GPU\n");
    child_expect(run, 0, "exact, bf16", "");

    make_python(python, "#!/bin/sh\necho 'Traceback' >&2\necho 'No module named torch' >&2\nexit 1\n");
    run = CHILD("bench", "--geometry", "tiny-edge", TINY, "-k", "*[6h]", "--torch", python);
    EXPECT(run.out, "exact, bf16", "PyTorch not timed: ", "No module named torch");
    child_expect(run, 4, "exact, bf16", "bench.reference");

    make_python(python, "#!/bin/sh\necho '{\"torch\":\"9.9\"}'\n");
    child_expect(CHILD("bench", "--geometry", "tiny-edge", TINY, "-k", "*[6h]", "--torch", python), 4,
                 "PyTorch not timed: ", "it printed no figures");
    child_expect(CHILD("bench", "--geometry", "tiny-edge", TINY, "-k", "*[6h]", "--torch", "no/such/python"), 4,
                 "PyTorch not timed: ", "process.start");
}
END_TEST

Suite *suite_bench(void) {
    Suite *suite = suite_create("bench");
    TCase *tests = cli_case("bench");
    tcase_add_test(tests, the_table_sets_times_beside_the_time_of_their_bytes);
    tcase_add_test(tests, a_time_without_its_probe_is_not_shown);
    tcase_add_test(tests, the_json_holds_every_figure_and_null_for_what_was_not_measured);
    tcase_add_test(tests, pytorch_that_is_not_there_is_said);
    tcase_add_test(tests, bytes_are_those_that_the_precision_holds);
    tcase_add_test(tests, rows_are_listed_and_chosen_by_name);
    tcase_add_test(tests, a_geometry_that_cannot_be_measured_is_refused);
    tcase_add_test(tests, words_that_do_not_fit_the_table_are_usage_errors);
    tcase_add_test(tests, without_a_device_it_is_code_4_before_a_checkpoint_is_written);
    tcase_add_test(tests, a_missing_checkpoint_is_written_and_kept);
    tcase_add_test(tests, pytorch_is_asked_for_the_same_rows_and_a_failure_keeps_the_table);
    suite_add_tcase(suite, tests);
    return suite;
}
