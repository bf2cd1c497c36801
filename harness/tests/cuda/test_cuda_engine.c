/*
 * test_cuda_engine.c - the device's memory behind memory.h, what an engine says of itself, memory that runs out, and
 * the class cublas: why its rows come in tiles of one size, and that its narrow products are what they say.
 */
#include "support/cuda_case.h"

#ifdef DF_WITH_CUDA
#include "cuda/common/cuda_engine.h"
#endif

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static dflash_error err;
#define WORKS(call) ck_assert_msg((call) == DFLASH_OK, "%s", err.message)

START_TEST(ranges_that_overlap_move_whole_in_both_directions) {
    enum { BYTES = 1000 };
    static const int moves[][3] = {{0, 7, 900}, {7, 0, 900}, {0, 500, 500}, {500, 0, 500}, {3, 3, 100}, {0, 1, 999}};
    dflash_engine *engine = cuda_engine(DFLASH_CLASS_EXACT, DFLASH_PRODUCTS_F32);
    unsigned char expected[BYTES];
    for (size_t m = 0; m < sizeof moves / sizeof *moves; m++) {
        const int to = moves[m][0], from = moves[m][1], bytes = moves[m][2];
        for (int i = 0; i < BYTES; i++) expected[i] = (unsigned char)(i * 7 + i / 256);
        char *data = cuda_put(engine, expected, BYTES);
        WORKS(engine->memory.copy(engine->memory.owner, data + to, data + from, (size_t)bytes, &err));
        memmove(expected + to, expected + from, (size_t)bytes);
        void *moved = cuda_get(engine, data, BYTES);
        ck_assert_mem_eq(moved, expected, BYTES);
        free(moved);
        cuda_drop(engine, data);
    }
    dflash_engine_destroy(engine);
}
END_TEST

START_TEST(windows_reach_the_device_in_the_order_in_which_they_were_written) {
    enum { WINDOWS = 40, INTS = 3000 };
    dflash_engine *engine = cuda_engine(DFLASH_CLASS_EXACT, DFLASH_PRODUCTS_F32);
    int32_t *data = cuda_room(engine, WINDOWS * INTS * sizeof *data);
    for (int w = 0; w < WINDOWS; w++) {
        const size_t bytes = (size_t)(w % 5 == 0 ? INTS : INTS / 2 + w) * sizeof *data; /* grows and shrinks */
        void *window;
        WORKS(engine->memory.map(engine->memory.owner, data + w * INTS, bytes, &window, &err));
        for (size_t i = 0; i < bytes / sizeof *data; i++) ((int32_t *)window)[i] = w * 10000 + (int32_t)i;
        WORKS(engine->memory.unmap(engine->memory.owner, data + w * INTS, bytes, &err));
    }
    int32_t *seen = cuda_get(engine, data, WINDOWS * INTS * sizeof *data);
    for (int w = 0; w < WINDOWS; w++)
        for (int i = 0; i < (w % 5 == 0 ? INTS : INTS / 2 + w); i++)
            OP_REQUIRE(seen[w * INTS + i] == w * 10000 + i, "window %d, element %d holds %d", w, i, seen[w * INTS + i]);
    free(seen);
    cuda_drop(engine, data);
    dflash_engine_destroy(engine);
}
END_TEST

START_TEST(an_engine_names_its_device_and_what_it_computes_with) {
    dflash_engine *engine = cuda_engine(DFLASH_CLASS_CUBLAS, DFLASH_PRODUCTS_TF32);
    dflash_device_facts facts;
    dflash_engine_describe(engine, &facts);
    ck_assert_str_eq(facts.backend, "cuda");
    ck_assert_str_eq(facts.numeric_class, "cublas");
    ck_assert_str_eq(facts.products, "tf32");
    ck_assert(facts.tf32);
    ck_assert_str_ne(facts.device, "");
    ck_assert_str_ne(facts.driver, "");
    ck_assert_str_ne(facts.runtime, "");
    ck_assert_str_ne(facts.cublas, "");
    ck_assert_int_ge(facts.capability, 80);
    ck_assert_int_gt(facts.multiprocessors, 0);
    ck_assert_uint_gt(facts.memory_bytes, (size_t)1 << 30);
    dflash_engine_destroy(engine);
    engine = cuda_engine(DFLASH_CLASS_EXACT, DFLASH_PRODUCTS_F32);
    dflash_engine_describe(engine, &facts);
    ck_assert(!facts.tf32);
    ck_assert_str_eq(facts.cublas, "");
    dflash_engine_destroy(engine);
}
END_TEST

START_TEST(a_device_without_room_says_so_and_goes_on) {
    dflash_engine *engine = cuda_engine(DFLASH_CLASS_EXACT, DFLASH_PRODUCTS_F32);
    dflash_device_facts facts;
    float *buffer = NULL;
    dflash_engine_describe(engine, &facts);
    ck_assert_int_eq(dflash_engine_alloc(engine, facts.memory_bytes / sizeof *buffer + 1, &buffer, &err),
                     DFLASH_ERR_MEMORY);
    ck_assert_ptr_null(buffer);
    ck_assert_str_eq(err.code, "memory.device");
    dflash_draft *draft = NULL;
    dflash_kv *kv = NULL;
    WORKS(dflash_draft_load(engine, "fixtures/small/tiny-plain", &draft, &err));
    ck_assert_int_eq(dflash_kv_create(draft, INT32_MAX, &kv, &err), DFLASH_ERR_MEMORY);
    ck_assert_ptr_null(kv);
    WORKS(dflash_kv_create(draft, 100, &kv, &err)); /* neither failure stays */
    WORKS(dflash_engine_finish(engine, &err));
    dflash_kv_destroy(kv);
    dflash_draft_destroy(draft);
    dflash_engine_destroy(engine);
}
END_TEST

START_TEST(narrow_products_and_classes_that_do_not_go_together_are_refused) {
    static const struct {
        dflash_engine_options options;
        const char *code;
    } wrong[] = {
        {{.backend = DFLASH_BACKEND_CUDA, .products = DFLASH_PRODUCTS_TF32}, "engine.products"},
        {{.backend = DFLASH_BACKEND_CUDA, .products = DFLASH_PRODUCTS_BF16}, "engine.products"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dflash_engine *engine = NULL;
        ck_assert_int_eq(dflash_engine_create(&wrong[i].options, &engine, &err), DFLASH_ERR_ARGUMENT);
        ck_assert_ptr_null(engine);
        ck_assert_str_eq(err.code, wrong[i].code);
    }
}
END_TEST

/* ---- Class cublas ---- */

#ifdef DF_WITH_CUDA

enum { MOST_ROWS = 256, OUT = 1024, IN = 2560, TILE = 16 };

/* The first row of a product of `rows` rows, in calls of `tile`. */
static float *first_row(dflash_engine *engine, const df_matrix *w, const float *x, int rows, int tile) {
    float *y = cuda_room(engine, (size_t)(rows + tile) * OUT * sizeof *y);
    WORKS(df_arena_reset(&engine->arena, &err));
    WORKS(df_cuda_matmul_tiled(engine, w, NULL, x, rows, tile, y, &err));
    float *row = cuda_get(engine, y, OUT * sizeof *row);
    cuda_drop(engine, y);
    return row;
}

/* Products in which cuBLAS sees the row count differ from row count to row count; in tiles of one size they do not. */
START_TEST(a_rows_bits_depend_on_the_row_count_unless_rows_come_in_tiles) {
    static const int rows[] = {1, 2, 8, 15, 16, 17, 64, MOST_ROWS};
    dflash_engine *engine = cuda_engine(DFLASH_CLASS_CUBLAS, DFLASH_PRODUCTS_F32);
    cuda_matrix m = cuda_matrix_make(DF_F32, OUT, IN, 900);
    df_matrix w = cuda_matrix_put(engine, &m);
    op_random random = {901};
    float *host = op_floats(MOST_ROWS * IN);
    op_fill(&random, host, MOST_ROWS * IN);
    float *x = cuda_put(engine, host, MOST_ROWS * IN * sizeof *x), *truth = first_row(engine, &w, x, TILE, TILE);
    int differ = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        float *whole = first_row(engine, &w, x, rows[i], rows[i]), *tiled = first_row(engine, &w, x, rows[i], TILE);
        differ += !op_same_bits(truth, whole, OUT);
        op_expect_bits(truth, tiled, OUT, "a row among others, in tiles");
        free(whole);
        free(tiled);
    }
    ck_assert_msg(differ > 0, "cuBLAS gave one row the same bits for every row count: the tiles are not needed here");
    cuda_drop(engine, (void *)(uintptr_t)w.data);
    cuda_drop(engine, x);
    free(truth);
    free(host);
    cuda_matrix_release(&m);
    dflash_engine_destroy(engine);
}
END_TEST

/* A long context has more rows than the second dimension of a grid has places. */
START_TEST(a_product_of_more_rows_than_65535_has_the_bits_of_its_tiles) {
    enum { ROWS = 65552, NARROW = 32 };
    dflash_engine *engine = cuda_engine(DFLASH_CLASS_CUBLAS, DFLASH_PRODUCTS_F32);
    cuda_matrix m = cuda_matrix_make(DF_F32, NARROW, NARROW, 904);
    df_matrix w = cuda_matrix_put(engine, &m);
    op_random random = {905};
    float *host = op_floats((size_t)ROWS * NARROW);
    op_fill(&random, host, (size_t)ROWS * NARROW);
    float *x = cuda_put(engine, host, (size_t)ROWS * NARROW * sizeof *x),
          *y = cuda_room(engine, (size_t)ROWS * NARROW * sizeof *y),
          *last = cuda_room(engine, (size_t)TILE * NARROW * sizeof *last);
    const size_t tail = (size_t)(ROWS - TILE) * NARROW;
    WORKS(df_arena_reset(&engine->arena, &err));
    WORKS(engine->ops->matmul(engine, &w, NULL, x, ROWS, y, &err));
    WORKS(engine->ops->matmul(engine, &w, NULL, x + tail, TILE, last, &err));
    cuda_expect_same(cuda_get(engine, last, (size_t)TILE * NARROW * sizeof *last),
                     cuda_get(engine, y + tail, (size_t)TILE * NARROW * sizeof *y), (size_t)TILE * NARROW,
                     "the last rows of many");
    void *const held[] = {(void *)(uintptr_t)w.data, x, y, last};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) cuda_drop(engine, held[i]);
    free(host);
    cuda_matrix_release(&m);
    dflash_engine_destroy(engine);
}
END_TEST

/* The product in double of operands rounded by `round`, and the relative L2 distance of a class's product from it. */
static double distance(dflash_products products, float (*round)(float), const cuda_matrix *m, const float *x) {
    dflash_engine *engine = cuda_engine(DFLASH_CLASS_CUBLAS, products);
    df_matrix w = cuda_matrix_put(engine, m);
    float *placed = cuda_put(engine, x, TILE * IN * sizeof *x), *row = first_row(engine, &w, placed, TILE, TILE);
    double *truth = op_alloc(OUT * sizeof *truth);
    for (int o = 0; o < OUT; o++) {
        truth[o] = 0.0;
        for (int k = 0; k < IN; k++)
            truth[o] += (double)round(((const float *)m->bytes)[o * IN + k]) * (double)round(x[k]);
    }
    const double result = op_relative_l2(row, truth, OUT);
    cuda_drop(engine, (void *)(uintptr_t)w.data);
    cuda_drop(engine, placed);
    free(row);
    free(truth);
    dflash_engine_destroy(engine);
    return result;
}

static float as_it_is(float x) { return x; }
static float to_bf16(float x) { return df_bf16_to_f32(df_f32_to_bf16(x)); }
static float to_tf32(float x) {
    const uint32_t bits = df_f32_to_bits(x);
    return df_bits_to_f32((bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu);
}

START_TEST(narrow_products_round_their_operands_and_nothing_else) {
    static const struct {
        dflash_products products;
        float (*round)(float);
    } modes[] = {{DFLASH_PRODUCTS_F32, as_it_is}, {DFLASH_PRODUCTS_TF32, to_tf32}, {DFLASH_PRODUCTS_BF16, to_bf16}};
    /* gamma_IN bounds any order of float32 sums relative to sum |w||x|, which random signs make about sqrt(IN) times
     * the result. */
    const double bound = (double)IN * ldexp(1.0, -24) * sqrt((double)IN);
    cuda_matrix m = cuda_matrix_make(DF_F32, OUT, IN, 902);
    op_random random = {903};
    float *x = op_floats(TILE * IN);
    op_fill(&random, x, TILE * IN);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        const double right = distance(modes[i].products, modes[i].round, &m, x);
        ck_assert_msg(right < bound, "%s: %g", dflash_products_name(modes[i].products), right);
        if (modes[i].products == DFLASH_PRODUCTS_F32) continue;
        const double unrounded = distance(modes[i].products, as_it_is, &m, x);
        ck_assert_msg(unrounded > 20.0 * right, "%s: %g from the product of rounded operands, %g from the exact one",
                      dflash_products_name(modes[i].products), right, unrounded);
    }
    free(x);
    cuda_matrix_release(&m);
}
END_TEST

#endif

TCase *tcase_cuda_engine(void) {
    TCase *tests = tcase_create("engine");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, ranges_that_overlap_move_whole_in_both_directions);
    tcase_add_test(tests, windows_reach_the_device_in_the_order_in_which_they_were_written);
    tcase_add_test(tests, an_engine_names_its_device_and_what_it_computes_with);
    tcase_add_test(tests, a_device_without_room_says_so_and_goes_on);
    tcase_add_test(tests, narrow_products_and_classes_that_do_not_go_together_are_refused);
#ifdef DF_WITH_CUDA
    tcase_add_test(tests, a_rows_bits_depend_on_the_row_count_unless_rows_come_in_tiles);
    tcase_add_test(tests, a_product_of_more_rows_than_65535_has_the_bits_of_its_tiles);
    tcase_add_test(tests, narrow_products_round_their_operands_and_nothing_else);
#endif
    return tests;
}
