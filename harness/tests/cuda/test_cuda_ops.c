/*
 * test_cuda_ops.c - every numeric operation of the CUDA backend gives the CPU's bits: all widths, odd sizes, row counts
 * on both sides of every tile, keys that are not visible, values at the edges of float32.
 */
#include "support/attention_case.h"
#include "support/cuda_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static dflash_error err;
#define WORKS(call) ck_assert_msg((call) == DFLASH_OK, "%s", err.message)

/* ---- Products ---- */

static float *product(dflash_engine *engine, const cuda_matrix *m, const float *bias, const float *x, int rows) {
    const size_t values = (size_t)rows * (size_t)m->matrix.in, results = (size_t)rows * (size_t)m->matrix.out;
    df_matrix w = cuda_matrix_put(engine, m);
    float *in = cuda_put(engine, x, values * sizeof *x), *out = cuda_room(engine, results * sizeof *out);
    float *placed = bias != NULL ? cuda_put(engine, bias, (size_t)w.out * sizeof *bias) : NULL;
    WORKS(engine->ops->matmul(engine, &w, placed, in, rows, out, &err));
    float *result = cuda_get(engine, out, results * sizeof *out);
    cuda_drop(engine, (void *)(uintptr_t)w.data);
    cuda_drop(engine, in);
    cuda_drop(engine, out);
    cuda_drop(engine, placed);
    return result;
}

START_TEST(a_product_of_any_width_and_row_count_has_the_cpus_bits) {
    static const df_dtype dtypes[] = {DF_F32, DF_F16, DF_BF16, DF_Q8_0, DF_Q4_0};
    static const int rows[] = {1, 2, 7, 15, 16, 17, 33, 130};
    static const int64_t shape[][2] = {{1, 32}, {31, 64}, {33, 96}, {70, 1056}, {129, 4160}, {40, 77}, {5, 1}};
    const df_dtype dtype = dtypes[_i];
    cuda_pair pair = cuda_pair_open();
    op_random random = {77};
    for (size_t s = 0; s < sizeof shape / sizeof *shape; s++) {
        const int64_t out = shape[s][0], in = shape[s][1];
        if (in % 32 != 0 && (dtype == DF_Q8_0 || dtype == DF_Q4_0)) continue; /* rows are whole blocks */
        cuda_matrix m = cuda_matrix_make(dtype, out, in, 5 + s);
        float *bias = op_floats((size_t)out), *x = op_floats(130 * (size_t)in);
        op_fill(&random, bias, (size_t)out);
        op_fill(&random, x, 130 * (size_t)in);
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            char what[80];
            const float *added = r % 2 == 0 ? bias : NULL;
            snprintf(what, sizeof what, "%s [%d, %d], %d rows", df_dtype_name(dtype), (int)out, (int)in, rows[r]);
            cuda_expect_same(product(pair.cpu, &m, added, x, rows[r]), product(pair.device, &m, added, x, rows[r]),
                             (size_t)rows[r] * (size_t)out, what);
        }
        free(bias);
        free(x);
        cuda_matrix_release(&m);
    }
    cuda_pair_close(&pair);
}
END_TEST

/* ---- Norms, rotations, elements ---- */

static float *norm(dflash_engine *engine, const float *x, const float *weight, int rows, int n) {
    const size_t bytes = (size_t)rows * (size_t)n * sizeof(float);
    float *in = cuda_put(engine, x, bytes), *w = cuda_put(engine, weight, (size_t)n * sizeof(float)),
          *out = cuda_room(engine, bytes);
    WORKS(engine->ops->rmsnorm(engine, in, w, rows, n, 1e-6f, out, &err));
    float *result = cuda_get(engine, out, bytes);
    cuda_drop(engine, in);
    cuda_drop(engine, w);
    cuda_drop(engine, out);
    return result;
}

START_TEST(norms_of_short_and_long_rows_have_the_cpus_bits) {
    static const int shape[][2] = {{1, 8},   {3, 63},  {5, 64},    {200, 128}, {7, 130},
                                   {4, 512}, {4, 513}, {16, 2560}, {2, 12345}};
    cuda_pair pair = cuda_pair_open();
    op_random random = {78};
    for (size_t s = 0; s < sizeof shape / sizeof *shape; s++) {
        const int rows = shape[s][0], n = shape[s][1];
        const size_t values = (size_t)rows * (size_t)n;
        char what[64];
        float *x = op_floats(values), *weight = op_floats((size_t)n);
        op_fill(&random, x, values);
        op_fill(&random, weight, (size_t)n);
        for (int i = 0; i < n; i++) x[i] *= 1e-22f; /* squares are subnormal or zero: eps decides */
        snprintf(what, sizeof what, "norm of %d rows of %d", rows, n);
        cuda_expect_same(norm(pair.cpu, x, weight, rows, n), norm(pair.device, x, weight, rows, n), values, what);
        free(x);
        free(weight);
    }
    cuda_pair_close(&pair);
}
END_TEST

static float *rotate(dflash_engine *engine, const float *x, const float *tables, int rows, int heads, int hd, int dim) {
    const size_t bytes = (size_t)(rows * heads * hd) * sizeof(float), half = (size_t)(rows * dim / 2);
    float *in = cuda_put(engine, x, bytes), *t = cuda_put(engine, tables, 2 * half * sizeof(float)),
          *out = cuda_room(engine, bytes);
    WORKS(engine->ops->rope(engine, in, t, t + half, rows, heads, hd, dim, out, &err));
    float *result = cuda_get(engine, out, bytes);
    cuda_drop(engine, in);
    cuda_drop(engine, t);
    cuda_drop(engine, out);
    return result;
}

START_TEST(rotations_of_whole_and_partial_heads_have_the_cpus_bits) {
    static const int shape[][4] = {{1, 1, 8, 8}, {17, 3, 128, 128}, {5, 2, 64, 16}, {9, 4, 256, 64}, {3, 2, 300, 280}};
    cuda_pair pair = cuda_pair_open();
    op_random random = {79};
    for (size_t s = 0; s < sizeof shape / sizeof *shape; s++) {
        const int rows = shape[s][0], heads = shape[s][1], hd = shape[s][2], dim = shape[s][3];
        const size_t values = (size_t)(rows * heads * hd), tables = (size_t)(rows * dim);
        float *x = op_floats(values), *t = op_floats(tables);
        op_fill(&random, x, values);
        op_fill(&random, t, tables);
        cuda_expect_same(rotate(pair.cpu, x, t, rows, heads, hd, dim), rotate(pair.device, x, t, rows, heads, hd, dim),
                         values, "rope");
        free(x);
        free(t);
    }
    cuda_pair_close(&pair);
}
END_TEST

enum { ELEMENTS = 5000, ACTS = 4 };

/* `act`: silu_mul, add, scale, scale and cap. */
static float *elements(dflash_engine *engine, int act, const float *a, const float *b) {
    const size_t bytes = ELEMENTS * sizeof(float);
    float *x = cuda_put(engine, a, bytes), *y = cuda_put(engine, b, bytes), *out = cuda_room(engine, bytes);
    if (act == 0) WORKS(engine->ops->silu_mul(engine, x, y, ELEMENTS, out, &err));
    if (act == 1) WORKS(engine->ops->add(engine, x, y, ELEMENTS, out, &err));
    if (act == 2) WORKS(engine->ops->scale_cap(engine, x, ELEMENTS, 0.37f, 0.0f, out, &err));
    if (act == 3) WORKS(engine->ops->scale_cap(engine, x, ELEMENTS, 1.7f, 30.0f, out, &err));
    float *result = cuda_get(engine, out, bytes);
    cuda_drop(engine, x);
    cuda_drop(engine, y);
    cuda_drop(engine, out);
    return result;
}

START_TEST(elements_of_every_magnitude_have_the_cpus_bits) {
    cuda_pair pair = cuda_pair_open();
    op_random random = {80};
    float *a = op_floats(ELEMENTS), *b = op_floats(ELEMENTS);
    op_fill(&random, a, ELEMENTS);
    op_fill(&random, b, ELEMENTS);
    for (int i = 0; i < ELEMENTS; i++) a[i] = ldexpf(a[i], i % 270 - 145); /* subnormals to the largest */
    a[0] = -0.0f;
    a[1] = -INFINITY;
    b[1] = 0.5f;
    for (int act = 0; act < ACTS; act++) {
        float *cpu = elements(pair.cpu, act, a, b), *device = elements(pair.device, act, a, b);
        for (int i = 0; i < ELEMENTS; i++) /* a NaN is one, whatever its payload */
            if (isnan(cpu[i]) && isnan(device[i])) cpu[i] = device[i] = 0.0f;
        cuda_expect_same(cpu, device, ELEMENTS, "elements");
    }
    free(a);
    free(b);
    cuda_pair_close(&pair);
}
END_TEST

static float *convolve(dflash_engine *engine, df_conv_args args) {
    const size_t values = (size_t)(args.rows * args.hidden) * sizeof(float);
    float *x = cuda_put(engine, args.x, values), *out = cuda_room(engine, values);
    float *base = cuda_put(engine, args.base, (size_t)(args.kernel * args.hidden) * sizeof(float));
    float *dyn = cuda_put(engine, args.dyn, (size_t)args.rows * args.dyn_stride * sizeof(float));
    args.x = x;
    args.base = base;
    args.dyn = dyn;
    args.y = out;
    WORKS(engine->ops->conv(engine, &args, &err));
    float *result = cuda_get(engine, out, values);
    cuda_drop(engine, x);
    cuda_drop(engine, base);
    cuda_drop(engine, dyn);
    cuda_drop(engine, out);
    return result;
}

START_TEST(convolutions_have_the_cpus_bits) {
    static const int shape[][4] = {{1, 32, 1, 32}, {8, 96, 2, 16}, {16, 300, 3, 25}, {5, 128, 7, 1}};
    cuda_pair pair = cuda_pair_open();
    op_random random = {81};
    for (size_t s = 0; s < sizeof shape / sizeof *shape; s++) {
        df_conv_args args = {.rows = shape[s][0], .hidden = shape[s][1], .kernel = shape[s][2], .group = shape[s][3]};
        args.dyn_stride = (size_t)(2 * args.kernel * args.hidden / args.group);
        float *x = op_floats((size_t)(args.rows * args.hidden)), *base = op_floats((size_t)(args.kernel * args.hidden)),
              *dyn = op_floats((size_t)args.rows * args.dyn_stride);
        op_fill(&random, x, (size_t)(args.rows * args.hidden));
        op_fill(&random, base, (size_t)(args.kernel * args.hidden));
        op_fill(&random, dyn, (size_t)args.rows * args.dyn_stride);
        args.x = x;
        args.base = base;
        args.dyn = dyn;
        cuda_expect_same(convolve(pair.cpu, args), convolve(pair.device, args), (size_t)(args.rows * args.hidden),
                         "conv");
        free(x);
        free(base);
        free(dyn);
    }
    cuda_pair_close(&pair);
}
END_TEST

/* ---- Attention ---- */

static float *attend(dflash_engine *engine, const attention_case *c) {
    df_attention_args a = c->args;
    const size_t width = (size_t)(a.n_kv_heads * a.head_dim), out_bytes = attention_case_size(c) * sizeof(float);
    int32_t *first = op_alloc(((size_t)a.keys + 1) * sizeof *first);
    for (int i = 0; i < a.keys; i++)
        if (i == 0 || c->k_pos[i] / 64 != c->k_pos[i - 1] / 64) first[a.map.segments++] = i;
    first[a.map.segments] = a.keys;
    float *q = cuda_put(engine, c->q, out_bytes), *k = cuda_put(engine, c->k, (size_t)a.keys * width * sizeof(float)),
          *v = cuda_put(engine, c->v, (size_t)a.keys * width * sizeof(float)), *out = cuda_room(engine, out_bytes);
    int32_t *pos = cuda_put(engine, c->k_pos, (size_t)a.keys * sizeof *pos),
            *segment = cuda_put(engine, first, ((size_t)a.map.segments + 1) * sizeof *first);
    a.q = q;
    a.k = k;
    a.v = v;
    a.out = out;
    a.map.pos = pos;
    a.map.segment_first = segment;
    WORKS(df_arena_reset(&engine->arena, &err));
    WORKS(engine->ops->attention(engine, &a, &err));
    float *result = cuda_get(engine, out, out_bytes);
    void *const held[] = {q, k, v, out, pos, segment};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) cuda_drop(engine, held[i]);
    free(first);
    return result;
}

static const attention_shape shapes[] = {
    {16, 0, 4, 2, 128, 0, false, 0, 1},
    {16, 300, 8, 2, 128, 0, true, 77, 1},
    {8, 200, 6, 3, 64, 24, false, 1000, 1},
    {7, 333, 5, 5, 72, 50, true, 100000, 5},
    {1, 65, 2, 1, 8, 0, false, 63, 1},
    {16, 1000, 32, 8, 128, 0, false, 5, 3},
    {20, 90, 12, 1, 300, 7, true, 2147480000, 2},
    {16, 500, 4, 4, 256, 128, true, 31, 40},
};

START_TEST(attention_under_every_mask_has_the_cpus_bits) {
    cuda_pair pair = cuda_pair_open();
    op_random random = {90 + (uint64_t)_i};
    attention_case c;
    char what[32];
    attention_case_init(&c, &shapes[_i], &random);
    snprintf(what, sizeof what, "attention shape %d", _i);
    cuda_expect_same(attend(pair.cpu, &c), attend(pair.device, &c), attention_case_size(&c), what);
    attention_case_release(&c);
    cuda_pair_close(&pair);
}
END_TEST

START_TEST(a_key_that_no_query_sees_takes_no_part_on_the_device_whatever_it_holds) {
    const attention_shape shape = {8, 200, 4, 2, 64, 24, true, 1000, 1};
    cuda_pair pair = cuda_pair_open();
    op_random random = {99};
    attention_case c;
    attention_case_init(&c, &shape, &random);
    float *clean = attend(pair.device, &c);
    for (int key = 0; key < c.args.keys; key++) {
        bool seen = false;
        for (int row = 0; row < c.args.rows; row++) seen = seen || attention_sees(&c.args, row, key);
        for (int i = 0; !seen && i < c.args.n_kv_heads * c.args.head_dim; i++) {
            c.k[key * c.args.n_kv_heads * c.args.head_dim + i] = NAN;
            c.v[key * c.args.n_kv_heads * c.args.head_dim + i] = i % 2 == 0 ? NAN : INFINITY;
        }
    }
    cuda_expect_same(clean, attend(pair.device, &c), attention_case_size(&c), "attention beside NaN");
    attention_case_release(&c);
    cuda_pair_close(&pair);
}
END_TEST

/* Class fast, where its kernel covers the shape: hi and lo parts make a product's error about 2^-16 of its terms. A
 * segment left out, or a key of another row, is a hundred times the bound. */
START_TEST(the_fast_attention_is_the_softmax_under_every_mask) {
    dflash_engine *engine = cuda_engine(DFLASH_CLASS_FAST, DFLASH_PRODUCTS_F32);
    op_random random = {90 + (uint64_t)_i};
    attention_case c;
    attention_case_init(&c, &shapes[_i], &random);
    const size_t n = attention_case_size(&c);
    double *truth = op_alloc(n * sizeof *truth);
    float *fast = attend(engine, &c);
    attention_double(&c.args, truth);
    const double distance = op_relative_l2(fast, truth, n);
    ck_assert_msg(distance < 1e-3, "attention shape %d: %g", _i, distance); /* NaN is not */
    free(truth);
    free(fast);
    attention_case_release(&c);
    dflash_engine_destroy(engine);
}
END_TEST

/* A key that no row of the block sees is not read, so its bits cannot matter, whatever segments hold it. */
START_TEST(a_key_that_no_query_sees_is_not_read_by_the_fast_attention) {
    static const attention_shape hidden[] = {{8, 200, 4, 2, 64, 24, true, 1000, 1},
                                             {16, 300, 3, 1, 124, 40, false, 37, 1},
                                             {3, 150, 9, 1, 12, 30, true, 5, 4}};
    dflash_engine *engine = cuda_engine(DFLASH_CLASS_FAST, DFLASH_PRODUCTS_F32);
    op_random random = {99};
    attention_case c;
    int spoilt = 0;
    attention_case_init(&c, &hidden[_i], &random);
    float *clean = attend(engine, &c);
    for (int key = 0; key < c.args.keys; key++) {
        bool seen = false;
        for (int row = 0; row < c.args.rows; row++) seen = seen || attention_sees(&c.args, row, key);
        spoilt += !seen;
        for (int i = 0; !seen && i < c.args.n_kv_heads * c.args.head_dim; i++) {
            c.k[key * c.args.n_kv_heads * c.args.head_dim + i] = NAN;
            c.v[key * c.args.n_kv_heads * c.args.head_dim + i] = i % 2 == 0 ? NAN : INFINITY;
        }
    }
    ck_assert_int_gt(spoilt, 64);
    cuda_expect_same(clean, attend(engine, &c), attention_case_size(&c), "fast attention beside NaN");
    attention_case_release(&c);
    dflash_engine_destroy(engine);
}
END_TEST

TCase *tcase_cuda_ops(void) {
    TCase *tests = tcase_create("operations");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, a_product_of_any_width_and_row_count_has_the_cpus_bits, 0, 5);
    tcase_add_test(tests, norms_of_short_and_long_rows_have_the_cpus_bits);
    tcase_add_test(tests, rotations_of_whole_and_partial_heads_have_the_cpus_bits);
    tcase_add_test(tests, elements_of_every_magnitude_have_the_cpus_bits);
    tcase_add_test(tests, convolutions_have_the_cpus_bits);
    tcase_add_loop_test(tests, attention_under_every_mask_has_the_cpus_bits, 0, (int)(sizeof shapes / sizeof *shapes));
    tcase_add_test(tests, a_key_that_no_query_sees_takes_no_part_on_the_device_whatever_it_holds);
    tcase_add_loop_test(tests, the_fast_attention_is_the_softmax_under_every_mask, 0,
                        (int)(sizeof shapes / sizeof *shapes));
    tcase_add_loop_test(tests, a_key_that_no_query_sees_is_not_read_by_the_fast_attention, 0, 3);
    return tests;
}
