/*
 * test_quant.c - the block formats of impl/weights/quant.h: bytes against what the gguf package wrote (fixtures/quant),
 * decoding against the definition in double, and the matrix product that reads the blocks.
 */
#include "engine/engine.h"
#include "weights/quant.h"
#include "suites.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct block_format {
    df_dtype dtype;
    size_t block_bytes;
    const char *file;
    void (*encode)(const float *x, int64_t n, void *blocks);
    void (*decode)(const void *row, int64_t first, int64_t count, float *out);
} block_format;

static const block_format FORMATS[] = {
    {DF_Q8_0, 34, "fixtures/quant/q8_0.bin", df_quantize_q8_0, df_dequantize_q8_0},
    {DF_Q4_0, 18, "fixtures/quant/q4_0.bin", df_quantize_q4_0, df_dequantize_q4_0},
};
enum { FORMAT_COUNT = 2, BLOCK = 32 };

/* The whole file; the caller frees it. */
static void *slurp(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "%s is missing", path);
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    *bytes = (size_t)ftell(file);
    rewind(file);
    void *data = malloc(*bytes);
    ck_assert_uint_eq(fread(data, 1, *bytes, file), *bytes);
    fclose(file);
    return data;
}

/* Values in (-1, 1) from a fixed seed. */
static float next_value(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return (float)((int32_t)*state >> 8) * 0x1p-23f;
}

static void fill(float *x, int64_t n, uint32_t seed) {
    for (int64_t i = 0; i < n; i++) x[i] = next_value(&seed);
}

/* ---- Encoding ---- */

START_TEST(the_encoders_write_the_bytes_of_the_reference) {
    size_t input_bytes;
    float *x = slurp("fixtures/quant/inputs_f32.bin", &input_bytes);
    const int64_t n = (int64_t)(input_bytes / sizeof(float)), blocks = n / BLOCK;
    ck_assert_int_ge(blocks, 480);
    for (int f = 0; f < FORMAT_COUNT; f++) {
        size_t bytes;
        unsigned char *expected = slurp(FORMATS[f].file, &bytes), *actual = malloc(bytes);
        ck_assert_uint_eq(bytes, (size_t)blocks * FORMATS[f].block_bytes);
        FORMATS[f].encode(x, n, actual);
        for (size_t i = 0; i < bytes; i++)
            ck_assert_msg(actual[i] == expected[i], "%s: block %zu byte %zu is 0x%02x, expected 0x%02x",
                          FORMATS[f].file, i / FORMATS[f].block_bytes, i % FORMATS[f].block_bytes, actual[i],
                          expected[i]);
        free(expected);
        free(actual);
    }
    free(x);
}
END_TEST

START_TEST(a_block_does_not_depend_on_its_neighbours) {
    float x[4 * BLOCK];
    fill(x, 4 * BLOCK, 3);
    for (int f = 0; f < FORMAT_COUNT; f++) {
        unsigned char together[4 * 34], alone[34];
        FORMATS[f].encode(x, 4 * BLOCK, together);
        for (size_t b = 0; b < 4; b++) {
            FORMATS[f].encode(x + b * BLOCK, BLOCK, alone);
            ck_assert_mem_eq(together + b * FORMATS[f].block_bytes, alone, FORMATS[f].block_bytes);
        }
    }
}
END_TEST

/* 0.49999997 + 0.5 is 1 in float32, so adding a half first would round it up. */
START_TEST(a_quotient_just_under_a_half_rounds_to_zero) {
    float x[BLOCK] = {127.0f, nextafterf(0.5f, 0.0f), 0.5f, -0.5f, -nextafterf(0.5f, 0.0f), 125.5f};
    unsigned char block[34];
    const int8_t expected[] = {127, 0, 1, -1, 0, 126};
    df_quantize_q8_0(x, BLOCK, block);
    ck_assert_mem_eq(block + 2, expected, sizeof expected);
}
END_TEST

START_TEST(the_first_of_two_extremes_gives_the_sign_of_a_q4_0_scale) {
    float x[BLOCK] = {0};
    unsigned char block[18];
    x[3] = 8.0f, x[9] = -8.0f;
    df_quantize_q4_0(x, BLOCK, block);
    ck_assert_uint_eq(df_block_scale(block), 0xbc00); /* -1: the extreme becomes q = 0 */
    ck_assert_uint_eq(block[2 + 3] & 15, 0);
    ck_assert_uint_eq(block[2 + 9] & 15, 15); /* 16 does not fit */
    x[3] = -8.0f, x[9] = 8.0f;
    df_quantize_q4_0(x, BLOCK, block);
    ck_assert_uint_eq(df_block_scale(block), 0x3c00);
}
END_TEST

START_TEST(a_scale_beyond_f16_is_seen_to_be_infinite) {
    const float limit[FORMAT_COUNT] = {65520.0f * 127, 65520.0f * 8};
    for (int f = 0; f < FORMAT_COUNT; f++) {
        float x[BLOCK] = {0};
        unsigned char block[34];
        x[7] = -nextafterf(limit[f], 0.0f);
        FORMATS[f].encode(x, BLOCK, block);
        ck_assert(df_scale_is_finite(df_block_scale(block)));
        x[7] = -limit[f];
        FORMATS[f].encode(x, BLOCK, block);
        ck_assert(!df_scale_is_finite(df_block_scale(block)));
    }
}
END_TEST

/* ---- Decoding ---- */

/* The scale and the value by the definition, in double. */
static double defined_scale(unsigned bits) {
    const int exponent = (int)(bits >> 10 & 31u);
    const double fraction = (double)(bits & 1023u) / 1024;
    const double size = exponent == 0 ? ldexp(fraction, -14) : ldexp(1 + fraction, exponent - 15);
    return (bits & 0x8000u) != 0 ? -size : size;
}

static double defined_value(const block_format *format, double scale, const unsigned char *row, int index) {
    const unsigned char *block = row + (size_t)(index / BLOCK) * format->block_bytes;
    const size_t at = (size_t)(index % BLOCK);
    if (format->dtype == DF_Q8_0) return scale * (block[2 + at] < 128 ? block[2 + at] : block[2 + at] - 256);
    const int nibble = at < 16 ? block[2 + at] & 15 : block[2 + at - 16] >> 4;
    return scale * (nibble - 8);
}

START_TEST(decoding_is_exact_for_every_scale_and_code) {
    for (int f = 0; f < FORMAT_COUNT; f++) {
        const int rows = f == 0 ? 8 : 1; /* blocks that hold every code once */
        unsigned char block[8 * 34];
        float out[8 * BLOCK];
        for (unsigned scale = 0; scale < 65536; scale++) {
            if ((scale & 0x7c00u) == 0x7c00u) continue; /* refused at load */
            for (int b = 0; b < rows; b++) {
                unsigned char *at = block + (size_t)b * FORMATS[f].block_bytes;
                at[0] = (unsigned char)scale, at[1] = (unsigned char)(scale >> 8);
                for (int i = 0; i < (f == 0 ? 32 : 16); i++) at[2 + i] = (unsigned char)(f == 0 ? b * 32 + i : i * 17);
            }
            FORMATS[f].decode(block, 0, rows * BLOCK, out);
            const double d = defined_scale(scale);
            for (int i = 0; i < rows * BLOCK; i++)
                if ((double)out[i] != defined_value(&FORMATS[f], d, block, i))
                    ck_abort_msg("scale 0x%04x, value %d: %a, expected %a", scale, i, (double)out[i],
                                 defined_value(&FORMATS[f], d, block, i));
        }
    }
}
END_TEST

START_TEST(a_part_of_a_row_decodes_like_the_whole) {
    float x[5 * BLOCK], whole[5 * BLOCK], part[2 * BLOCK];
    unsigned char row[5 * 34];
    fill(x, 5 * BLOCK, 8);
    for (int f = 0; f < FORMAT_COUNT; f++) {
        FORMATS[f].encode(x, 5 * BLOCK, row);
        FORMATS[f].decode(row, 0, 5 * BLOCK, whole);
        FORMATS[f].decode(row, 2 * BLOCK, 2 * BLOCK, part);
        ck_assert_mem_eq(part, whole + 2 * BLOCK, sizeof part);
    }
}
END_TEST

START_TEST(decoded_values_are_within_half_a_step) {
    float x[64 * BLOCK], out[64 * BLOCK];
    unsigned char row[64 * 34];
    fill(x, 64 * BLOCK, 21);
    for (int f = 0; f < FORMAT_COUNT; f++) {
        FORMATS[f].encode(x, 64 * BLOCK, row);
        FORMATS[f].decode(row, 0, 64 * BLOCK, out);
        for (int i = 0; i < 64 * BLOCK; i++) {
            const double d =
                fabs((double)df_f16_to_f32(df_block_scale(row + (size_t)(i / BLOCK) * FORMATS[f].block_bytes)));
            /* q4_0 has no code for the extreme's opposite, so it may be a whole step away; f16 rounds d by 2^-11 */
            const double allowed = f == 0 ? d * (0.5 + 127 * 0x1p-11) : d * (1 + 8 * 0x1p-11);
            ck_assert_msg(fabs((double)out[i] - (double)x[i]) <= allowed, "value %d: %g became %g", i, (double)x[i],
                          (double)out[i]);
        }
    }
}
END_TEST

START_TEST(rows_have_the_bytes_of_their_width) {
    ck_assert_uint_eq(df_row_bytes(DF_F32, 96), 384);
    ck_assert_uint_eq(df_row_bytes(DF_F16, 96), 192);
    ck_assert_uint_eq(df_row_bytes(DF_BF16, 97), 194);
    ck_assert_uint_eq(df_row_bytes(DF_Q8_0, 96), 102);
    ck_assert_uint_eq(df_row_bytes(DF_Q4_0, 96), 54);
    ck_assert_str_eq(df_dtype_name(DF_Q8_0), "q8_0");
    ck_assert_str_eq(df_dtype_name(DF_Q4_0), "q4_0");
}
END_TEST

/* ---- The matrix product ---- */

enum { OUT = 37, MOST_IN = 416, MOST_ROWS = 33 }; /* outputs that fill no tile; 13 blocks */

static void multiply(dflash_isa isa, int threads, const df_matrix *w, const float *bias, const float *x, int rows,
                     float *y, bool *ran) {
    dflash_error err;
    dflash_engine *engine;
    const dflash_engine_options options = {.isa = isa, .threads = threads, .poison_scratch = true};
    const dflash_status status = dflash_engine_create(&options, &engine, &err);
    *ran = status == DFLASH_OK;
    if (!*ran) {
        ck_assert_str_eq(err.code, "engine.isa"); /* this processor lacks it */
        return;
    }
    ck_assert_msg(engine->ops->matmul(engine, w, bias, x, rows, y, &err) == DFLASH_OK, "%s", err.message);
    dflash_engine_destroy(engine);
}

START_TEST(a_product_with_blocks_is_that_with_the_decoded_matrix_to_the_bit) {
    static float values[OUT * MOST_IN], wide[OUT * MOST_IN], x[MOST_ROWS * MOST_IN], bias[OUT];
    static float expected[MOST_ROWS * OUT], actual[MOST_ROWS * OUT];
    static unsigned char blocks[OUT * MOST_IN / BLOCK * 34];
    const int inputs[] = {32, 64, 96, 160, MOST_IN}, rows[] = {1, 2, 16, 17, MOST_ROWS};
    fill(bias, OUT, 5);
    int compared = 0;
    for (int f = 0; f < FORMAT_COUNT; f++) {
        for (size_t s = 0; s < sizeof inputs / sizeof *inputs; s++) {
            const int in = inputs[s];
            fill(values, (int64_t)OUT * in, (uint32_t)(100 + s));
            fill(x, (int64_t)MOST_ROWS * in, (uint32_t)(200 + s));
            FORMATS[f].encode(values, (int64_t)OUT * in, blocks);
            FORMATS[f].decode(blocks, 0, (int64_t)OUT * in, wide);
            const df_matrix narrow = {FORMATS[f].dtype, OUT, in, blocks}, plain = {DF_F32, OUT, in, wide};
            for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
                bool ran;
                multiply(DFLASH_ISA_GENERIC, 1, &plain, bias, x, rows[r], expected, &ran);
                ck_assert(ran);
                for (dflash_isa isa = DFLASH_ISA_GENERIC; isa <= DFLASH_ISA_REFERENCE; isa++) {
                    multiply(isa, 2, &narrow, bias, x, rows[r], actual, &ran);
                    if (!ran) continue;
                    ck_assert_mem_eq(actual, expected, (size_t)rows[r] * OUT * sizeof(float));
                    compared++;
                }
            }
        }
    }
    ck_assert_int_ge(compared, FORMAT_COUNT * 25);
}
END_TEST

Suite *suite_quant(void) {
    Suite *suite = suite_create("quant");
    TCase *tests = tcase_create("blocks");
    tcase_add_test(tests, the_encoders_write_the_bytes_of_the_reference);
    tcase_add_test(tests, a_block_does_not_depend_on_its_neighbours);
    tcase_add_test(tests, a_quotient_just_under_a_half_rounds_to_zero);
    tcase_add_test(tests, the_first_of_two_extremes_gives_the_sign_of_a_q4_0_scale);
    tcase_add_test(tests, a_scale_beyond_f16_is_seen_to_be_infinite);
    tcase_add_test(tests, decoding_is_exact_for_every_scale_and_code);
    tcase_add_test(tests, a_part_of_a_row_decodes_like_the_whole);
    tcase_add_test(tests, decoded_values_are_within_half_a_step);
    tcase_add_test(tests, rows_have_the_bytes_of_their_width);
    tcase_add_test(tests, a_product_with_blocks_is_that_with_the_decoded_matrix_to_the_bit);
    tcase_set_timeout(tests, 120);
    suite_add_tcase(suite, tests);
    return suite;
}
