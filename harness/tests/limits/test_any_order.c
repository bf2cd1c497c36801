/*
 * test_any_order.c - formulations of a stage other than the exact class's: they may leave the bound of that class,
 * which is of one order of operations, and may not leave that of any order; a result that is wrong leaves both. And the
 * tables of frequencies, whose bound follows the mixtures that they are made of.
 */
#include "support/bounds_case.h"

#include "formulas/evaluate_parts.h"
#include "common/mathfn.h"
#include "support/op_case.h"
#include "model/rope.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS = 6, WIDTH = 48, TAPS = 4, GROUP = 8, TRIALS = 60, COUNT = ROWS * WIDTH };

static dp_class_model exact_class(void) {
    return dp_class_model_of(DFLASH_BACKEND_CPU, DFLASH_CLASS_EXACT, DFLASH_PRODUCTS_F32);
}

/* One stage on random values: inputs as float32 and widened, and the result of some formulation. */
typedef struct trial {
    float x[COUNT], y[COUNT], base[2 * TAPS * WIDTH], dyn[ROWS * 2 * TAPS * WIDTH / GROUP];
    double wide_x[COUNT], wide_y[COUNT], wide_dyn[ROWS * 2 * TAPS * WIDTH / GROUP];
    float result[COUNT];
    dflash_config config;
    dp_stage_spec spec;
    dp_job job;
    double weight[WIDTH], extra[WIDTH];
    dp_scratch scratch;
} trial;

static void widen(double *to, const float *from, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] = (double)from[i];
}

static void prepare(trial *t, op_random *random) {
    op_fill(random, t->x, COUNT);
    op_fill(random, t->y, COUNT);
    op_fill(random, t->base, sizeof t->base / sizeof *t->base);
    op_fill(random, t->dyn, sizeof t->dyn / sizeof *t->dyn);
    widen(t->wide_x, t->x, COUNT);
    widen(t->wide_y, t->y, COUNT);
    widen(t->wide_dyn, t->dyn, sizeof t->dyn / sizeof *t->dyn);
    t->config = (dflash_config){.hidden = WIDTH, .conv_kernel = TAPS, .conv_group = GROUP, .rms_eps = 1e-6};
    t->scratch = (dp_scratch){.weight = t->weight, .extra = t->extra, .row = -1};
    t->job = (dp_job){.c = &t->config, .spec = &t->spec, .in = {t->wide_x}, .vector = t->base, .width = WIDTH};
}

/* (base + dyn) x, tap by tap: the kernel is added up first. */
static void convolve(trial *t) {
    t->spec = (dp_stage_spec){.stage = DFLASH_STAGE_ATTN_CONV_OUT};
    t->job.in[1] = t->wide_dyn;
    t->job.element = dp_conv_element;
    for (int row = 0; row < ROWS; row++)
        for (int c = 0; c < WIDTH; c++) {
            float sum = 0.0f;
            for (int o = 0; o < TAPS && o <= row; o++) {
                const float dyn = t->dyn[((row * 2 + 1) * TAPS + o) * (WIDTH / GROUP) + c / GROUP];
                const float kernel = t->base[(TAPS + o) * WIDTH + c] + dyn;
                const float product = kernel * t->x[(row - o) * WIDTH + c];
                sum += product;
            }
            t->result[row * WIDTH + c] = sum;
        }
}

/* (w x) / root, the squares in one chain, each rounded before it is added, their sum times 1 / n. */
static void normalize(trial *t) {
    t->spec = (dp_stage_spec){.stage = DFLASH_STAGE_ATTN_NORM};
    t->job.element = dp_norm_element;
    const float share = 1.0f / (float)WIDTH;
    for (int row = 0; row < ROWS; row++) {
        float sum = 0.0f;
        for (int c = 0; c < WIDTH; c++) {
            const float square = t->x[row * WIDTH + c] * t->x[row * WIDTH + c];
            sum += square;
        }
        const float mean = sum * share;
        const float root = sqrtf(mean + 1e-6f);
        const float inverse = 1.0f / root;
        for (int c = 0; c < WIDTH; c++) {
            const float weighted = t->base[c] * t->x[row * WIDTH + c];
            t->result[row * WIDTH + c] = weighted * inverse;
        }
    }
}

/* gate sigmoid(gate) up. */
static void activate(trial *t) {
    t->spec = (dp_stage_spec){.stage = DFLASH_STAGE_MLP_ACT};
    t->job.in[1] = t->wide_y;
    t->job.element = dp_act_element;
    for (int i = 0; i < COUNT; i++) {
        t->x[i] *= 8.0f;
        t->wide_x[i] = (double)t->x[i];
        const float below = 1.0f + df_exp(-t->x[i]);
        const float sigmoid = 1.0f / below;
        const float silu = t->x[i] * sigmoid;
        t->result[i] = silu * t->y[i];
    }
}

static const struct {
    void (*compute)(trial *t);
    double least; /* of the exact class's bound: how far outside of it the formulation is seen */
} formulations[] = {{convolve, 1.5}, {normalize, 0.0}, {activate, 0.0}};

/* The largest share of the bound that an element's error is. */
static double share_of(trial *t, const dp_class_model *model, double injected) {
    double most = 0.0;
    t->job.m = model;
    t->scratch.row = -1;
    for (int64_t i = 0; i < COUNT; i++) {
        const dp_approx want = t->job.element(&t->job, i, &t->scratch);
        const double error = fabs((double)t->result[i] - want.value) + (i == COUNT / 2 ? injected * want.error : 0.0);
        if (error > 0.0) most = fmax(most, error / want.error);
    }
    return most;
}

START_TEST(another_correct_formulation_lies_inside_the_bound_of_any_order) {
    const dp_class_model exact = exact_class(), any = dp_class_model_any_order();
    op_random random = {123};
    double outside = 0.0;
    trial *t = op_alloc(sizeof *t);
    for (int k = 0; k < TRIALS; k++) {
        prepare(t, &random);
        formulations[_i].compute(t);
        const double share = share_of(t, &any, 0.0);
        ck_assert_msg(share <= 1.0, "trial %d: %g of the bound of any order", k, share);
        ck_assert_msg(share > 0.01, "trial %d: a bound that nothing comes near: %g", k, share);
        ck_assert(share_of(t, &any, 2.0) > 1.0);
        outside = fmax(outside, share_of(t, &exact, 0.0));
    }
    ck_assert_msg(outside >= formulations[_i].least, "%g of the exact class's bound", outside);
    free(t);
}
END_TEST

START_TEST(the_bound_of_any_order_is_never_inside_that_of_the_exact_class) {
    const dp_class_model exact = exact_class(), any = dp_class_model_any_order();
    op_random random = {321};
    trial *t = op_alloc(sizeof *t);
    prepare(t, &random);
    formulations[_i].compute(t);
    for (int64_t i = 0; i < COUNT; i++) {
        t->scratch.row = -1;
        t->job.m = &exact;
        const dp_approx narrow = t->job.element(&t->job, i, &t->scratch);
        t->scratch.row = -1;
        t->job.m = &any;
        const dp_approx wide = t->job.element(&t->job, i, &t->scratch);
        ck_assert(wide.value == narrow.value && wide.error >= narrow.error && wide.variance >= narrow.variance);
    }
    free(t);
}
END_TEST

/* ---- Frequencies ---- */

static double between(op_random *random, double low, double high) {
    return low + (high - low) * 0.5 * (1.0 + (double)op_unit(random));
}

static dflash_rope_config random_rope(op_random *random, int kind) {
    static const int dims[] = {4, 8, 16, 24, 64, 80, 96, 128, 256};
    dflash_rope_config rope = {.type = kind == 2 ? DFLASH_ROPE_LLAMA3 : DFLASH_ROPE_YARN,
                               .rotary_dim = dims[op_below(random, 9)],
                               .theta = exp(between(random, log(1e3), log(2e7))),
                               .factor = between(random, 1.0, 64.0),
                               .original_max_position = 128 << op_below(random, 12),
                               .truncate = kind == 0};
    rope.beta_fast = between(random, 2.0, 64.0);
    rope.beta_slow = rope.beta_fast * between(random, 0.01, 0.9);
    rope.low_freq_factor = between(random, 0.3, 4.0);
    rope.high_freq_factor = rope.low_freq_factor + between(random, 0.1, 8.0);
    return rope;
}

/* The table as transformers computes it in float32 (impl/model/rope.c, bit for bit: suite vectors) against float64. */
START_TEST(a_correct_table_of_any_scaling_lies_within_its_bound) {
    enum { TABLES = 400 };
    static const int least_beyond[] = {1, 40, 40}; /* tables that a limit of 8 roundings would refuse */
    op_random random = {99 + (uint64_t)_i};
    int beyond = 0, all = 0, wide = 0;
    for (int k = 0; k < TABLES; k++) {
        const dflash_rope_config rope = random_rope(&random, _i);
        float table[128];
        bool far = false;
        df_rope_inv_freq(&rope, table);
        for (int i = 0; i < rope.rotary_dim / 2; i++) {
            const dp_approx want = dp_frequency(&rope, i);
            const double error = fabs((double)table[i] - want.value);
            ck_assert_msg(error <= want.error, "table %d, frequency %d: %g of the bound", k, i, error / want.error);
            all++;
            wide += want.error > 100.0 * 0x1p-24 * want.value;
            far = far || error > 8.0 * 0x1p-24 * want.value;
        }
        beyond += far;
    }
    ck_assert_msg(wide < all / 20, "%d of %d bounds are beyond 100 roundings", wide, all);
    ck_assert_msg(beyond >= least_beyond[_i], "%d tables beyond 8 roundings", beyond);
}
END_TEST

void bounds_add_any_order(Suite *suite) {
    TCase *tests = tcase_create("any order");
    const int all = sizeof formulations / sizeof *formulations;
    tcase_add_loop_test(tests, another_correct_formulation_lies_inside_the_bound_of_any_order, 0, all);
    tcase_add_loop_test(tests, the_bound_of_any_order_is_never_inside_that_of_the_exact_class, 0, all);
    tcase_add_loop_test(tests, a_correct_table_of_any_scaling_lies_within_its_bound, 0, 3);
    suite_add_tcase(suite, tests);
}
