/* op_case.c - see op_case.h. */
#include "support/op_case.h"

#include "common/canon.h"

#include <math.h>
#include <stdlib.h>

/* Quiet NaNs that no arithmetic makes. */
enum { GUARD = 64 };
static const uint32_t unwritten_bits = 0x7fd0beefu, guard_bits = 0x7fd1cafeu;

int op_isas(dflash_isa isa[OP_ISAS]) {
    int n = 0;
    isa[n++] = DFLASH_ISA_REFERENCE;
    isa[n++] = DFLASH_ISA_GENERIC;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) isa[n++] = DFLASH_ISA_AVX2;
    if (n == 3 && __builtin_cpu_supports("avx512f")) isa[n++] = DFLASH_ISA_AVX512;
#endif
    return n;
}

dflash_engine *op_engine(dflash_isa isa, int threads, bool poison) {
    static const char *const names[] = {[DFLASH_ISA_GENERIC] = "generic",
                                        [DFLASH_ISA_AVX2] = "avx2",
                                        [DFLASH_ISA_AVX512] = "avx512",
                                        [DFLASH_ISA_REFERENCE] = "reference"};
    const dflash_engine_options options = {.isa = isa, .threads = threads, .poison_scratch = poison};
    dflash_error err = {0};
    dflash_engine *engine = NULL;
    ck_assert_msg(dflash_engine_create(&options, &engine, &err) == DFLASH_OK, "%s", err.message);
    if (isa != DFLASH_ISA_BEST) ck_assert_str_eq(dflash_engine_isa(engine), names[isa]);
    if (threads > 0) ck_assert_int_eq(dflash_engine_threads(engine), threads);
    return engine;
}

/* SplitMix64 (Steele, Lea, Flood 2014). */
uint64_t op_next(op_random *random) {
    uint64_t z = random->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

int op_below(op_random *random, int n) { return (int)(op_next(random) % (uint64_t)n); }

float op_unit(op_random *random) {
    const int64_t step = (int64_t)(op_next(random) >> 39) - (1 << 24);
    return ((float)step + 0.5f) * 0x1p-24f;
}

void op_fill(op_random *random, float *x, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = op_unit(random);
}

void *op_alloc(size_t bytes) {
    void *memory = malloc(bytes > 0 ? bytes : 1);
    ck_assert_ptr_nonnull(memory);
    return memory;
}

float *op_floats(size_t n) { return op_alloc(n * sizeof(float)); }

static void mark(float *x, size_t n, uint32_t bits) {
    for (size_t i = 0; i < n; i++) memcpy(x + i, &bits, sizeof bits);
}

float *op_output(size_t n) {
    float *memory = op_floats(n + 2 * GUARD);
    mark(memory, GUARD, guard_bits);
    mark(memory + GUARD, n, unwritten_bits);
    mark(memory + GUARD + n, GUARD, guard_bits);
    return memory + GUARD;
}

void op_output_check(const float *y, size_t n, const char *what) {
    for (size_t i = 0; i < n; i++)
        OP_REQUIRE(df_f32_to_bits(y[i]) != unwritten_bits, "%s: element %zu of %zu was not written", what, i, n);
    for (size_t i = 0; i < GUARD; i++) {
        OP_REQUIRE(df_f32_to_bits(*(y - 1 - i)) == guard_bits, "%s: wrote %zu before the output", what, i + 1);
        OP_REQUIRE(df_f32_to_bits(y[n + i]) == guard_bits, "%s: wrote %zu past the output", what, i + 1);
    }
}

void op_output_free(float *y) { free(y - GUARD); }

void op_expect_bits(const float *expected, const float *actual, size_t n, const char *what) {
    if (op_same_bits(expected, actual, n)) return;
    size_t i = 0;
    while (df_f32_to_bits(expected[i]) == df_f32_to_bits(actual[i])) i++;
    ck_abort_msg("%s: element %zu of %zu is %a (0x%08x), expected %a (0x%08x)", what, i, n, (double)actual[i],
                 df_f32_to_bits(actual[i]), (double)expected[i], df_f32_to_bits(expected[i]));
}

bool op_same_bits(const float *a, const float *b, size_t n) { return memcmp(a, b, n * sizeof(float)) == 0; }

double op_relative_l2(const float *a, const double *b, size_t n) {
    double error = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += b[i] * b[i];
    }
    return sqrt(error / size);
}

/* The node that holds these segments, which agree above the lowest `level` bits of their index. */
static float tree_node(const unsigned *segment, const float *sum, int n, int level) {
    if (level == 0) return sum[0] + 0.0f;
    int left = 0;
    while (left < n && (segment[left] >> (level - 1) & 1u) == 0) left++;
    if (left == 0 || left == n) return tree_node(segment, sum, n, level - 1);
    return tree_node(segment, sum, left, level - 1) + tree_node(segment + left, sum + left, n - left, level - 1);
}

float op_tree(const unsigned *segment, const float *sum, int n) { return tree_node(segment, sum, n, 32); }

float op_dot(const float *w, const float *x, int n) {
    enum { MOST = 64 };
    unsigned segment[MOST];
    float sum[MOST];
    int segments = 0;
    for (int k = 0; k < n; k++) {
        if (k % DF_SEGMENT == 0) {
            OP_REQUIRE(segments < MOST, "a sum of %d terms is too long", n);
            segment[segments] = (unsigned)segments;
            sum[segments++] = 0.0f;
        }
        sum[segments - 1] = fmaf(w[k], x[k], sum[segments - 1]);
    }
    return op_tree(segment, sum, segments);
}

dflash_status op_empty_round(dflash_engine *engine, const df_round_args *args, bool *done, dflash_error *err) {
    (void)engine, (void)args, (void)err;
    *done = true;
    return DFLASH_OK;
}
