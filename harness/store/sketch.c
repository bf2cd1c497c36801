/* sketch.c - see sketch.h. */
#include "store/sketch.h"

#include "common/error.h"
#include "base/sha256.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD = 64, LANES = 8 };
static const uint64_t golden = 0x9E3779B97F4A7C15u;

void dp_sketch_release(dp_sketch *sketch) {
    free(sketch->value);
    *sketch = (dp_sketch){.value = NULL};
}

uint64_t dp_sketch_key(int64_t seed, const char *stage) {
    char text[64 + DFLASH_STAGE_NAME_MAX], digest[65];
    snprintf(text, sizeof text, "sketch:%lld:%s", (long long)seed, stage);
    dp_sha256_of(text, strlen(text), digest);
    digest[16] = '\0';
    return strtoull(digest, NULL, 16);
}

/* Output `index` of splitmix64 that starts from `key`. */
static uint64_t word_of(uint64_t key, uint64_t index) {
    uint64_t z = key + (index + 1) * golden;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* The value with the sign turned that bit `place` of `bits` stands for. */
static double turned(double value, uint64_t bits, int place) {
    uint64_t word;
    memcpy(&word, &value, sizeof word);
    word ^= bits << (WORD - 1 - place) & (uint64_t)1 << (WORD - 1);
    memcpy(&value, &word, sizeof value);
    return value;
}

/* Partial sums in lanes, so that additions do not wait for one another. */
static double project(uint64_t key, uint64_t first, int64_t width, const double *value) {
    double lane[LANES] = {0.0}, sum = 0.0;
    for (int64_t at = 0; at < width; at += WORD) {
        const uint64_t bits = word_of(key, first + (uint64_t)(at / WORD));
        const int n = width - at < WORD ? (int)(width - at) : WORD;
        for (int i = 0; i < n; i++) lane[i % LANES] += turned(value[at + i], bits, i);
    }
    for (int i = 0; i < LANES; i++) sum += lane[i];
    return sum;
}

void dp_sketch_row(const dp_sketch *form, int64_t row, const double *value, double *out) {
    const uint64_t words = (uint64_t)((form->width + WORD - 1) / WORD);
    for (int k = 0; k < form->projections; k++) {
        const uint64_t before = (uint64_t)row * (uint64_t)form->projections + (uint64_t)k;
        out[k] = project(form->key, before * words, form->width, value);
    }
    double squares = 0.0;
    for (int64_t i = 0; i < form->width; i++) squares += value[i] * value[i];
    out[form->projections] = sqrt(squares / (double)form->width);
}

dflash_status dp_sketch_of(const float *full, const dp_sketch *form, dp_sketch *out, dflash_error *err) {
    const int64_t each = form->projections + 1;
    *out = *form;
    out->value = malloc((size_t)(form->rows * each) * sizeof *out->value);
    double *row = malloc((size_t)form->width * sizeof *row);
    const bool made = out->value != NULL && row != NULL;
    for (int64_t r = 0; made && r < form->rows; r++) {
        for (int64_t i = 0; i < form->width; i++) row[i] = (double)full[r * form->width + i];
        dp_sketch_row(form, r, row, out->value + r * each);
    }
    free(row);
    if (made) return DFLASH_OK;
    dp_sketch_release(out);
    return df_fail_memory(err, "a sketch", (size_t)(form->rows * each + form->width) * sizeof(double));
}
