/*
 * test_identity_faults.c - drafters with a fault that no tolerance would show: each is caught by the variant that
 * exists for it, at the right stage, and a failing history is reported by its smallest form.
 *
 * Faults are injected through the hooks of `identity`: in the table of operations and in the cache under test.
 */
#include "heads/gather.h"
#include "kv/kv.h"
#include "identity/identity_case.h"
#include "support/identity_cases.h"
#include "support/op_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum fault {
    NONE = 0,
    ONE_ROW_KERNEL,   /* n1-kernel: another order of summation when one row is multiplied */
    ROWS_DEPENDENT,   /* rows-dependent: the split of every sum follows from the number of rows */
    NOT_CROPPED,      /* kv-not-cropped */
    ONE_SHORT,        /* kv-len-off-by-one */
    BLOCK_COMMITTED,  /* kv-block-committed */
    RAW_KEYS,         /* kv-raw-k */
    STALE_POSITIONS,  /* ingest-chunk-stale */
    GREEDY_RING,      /* ring-compaction-off: one row fewer than the next query sees */
    PROBE_PERTURBS,   /* probe-perturbs */
    READS_PADDING,    /* padding-nan: a value past the live length, times zero */
    MOVE_LOSES_A_BIT, /* one value becomes its neighbour whenever the cache is moved */
    IGNORES_A_ROW,    /* the last row of a call of three rows or more is never written */
    OTHER_ORDER,      /* sums in another order, the same one always: only an independent text of the order can tell */
    EMPTY_ROUND       /* a round in one go that says it is done and wrote nothing */
} fault;

enum { LARGEST_TABLE = 1 << 16 };
static struct {
    fault fault;
    dflash_draft *draft;
    const df_ops *own;
    df_ops spoilt;
    bool ingesting, drafting;
    int held; /* before the step */
    int32_t dropped;
    int first_rows; /* of the first ingest of a cache; tables below are its */
    float cos[LARGEST_TABLE], sin[LARGEST_TABLE];
} injection;

/* y = W x in another order: segments of `segment` terms, one after another. */
static void other_order(const df_matrix *w, const float *x, int rows, int64_t segment, float *y) {
    float *row = malloc((size_t)w->in * sizeof *row);
    ck_assert_ptr_nonnull(row);
    for (int64_t o = 0; o < w->out; o++) {
        df_gather_row(w, o, row);
        for (int r = 0; r < rows; r++) {
            float total = 0;
            for (int64_t first = 0; first < w->in; first += segment) {
                float sum = 0;
                for (int64_t k = first; k < w->in && k < first + segment; k++)
                    sum = fmaf(row[k], x[(int64_t)r * w->in + k], sum);
                total += sum;
            }
            y[(int64_t)r * w->out + o] = total;
        }
    }
    free(row);
}

static dflash_status spoilt_matmul(dflash_engine *engine, const df_matrix *w, const float *bias, const float *x,
                                   int rows, float *y, dflash_error *err) {
    const dflash_status status = injection.own->matmul(engine, w, bias, x, rows, y, err);
    if (rows == 0) return status;
    if (injection.fault == ONE_ROW_KERNEL && rows == 1) other_order(w, x, rows, 16, y);
    if (injection.fault == OTHER_ORDER && engine->options.isa != DFLASH_ISA_REFERENCE) other_order(w, x, rows, 16, y);
    if (injection.fault == ROWS_DEPENDENT) other_order(w, x, rows, 8 + rows % 7, y);
    if (injection.fault == PROBE_PERTURBS && injection.draft->observe != NULL) y[0] += 0.125f;
    if (injection.fault == IGNORES_A_ROW && rows >= 3)
        memset(y + (int64_t)(rows - 1) * w->out, 0xff, (size_t)w->out * 4);
    return status;
}

static dflash_status spoilt_rope(dflash_engine *engine, const float *x, const float *cos_table, const float *sin_table,
                                 int rows, int heads, int head_dim, int rotary_dim, float *y, dflash_error *err) {
    const size_t table = (size_t)rows * (size_t)rotary_dim / 2;
    if (injection.fault == RAW_KEYS && injection.ingesting) {
        memcpy(y, x, (size_t)rows * (size_t)heads * (size_t)head_dim * sizeof *y);
        return DFLASH_OK;
    }
    if (injection.fault == STALE_POSITIONS && injection.ingesting) {
        ck_assert_uint_le(table, LARGEST_TABLE);
        if (injection.held == 0) {
            memcpy(injection.cos, cos_table, table * sizeof *injection.cos);
            memcpy(injection.sin, sin_table, table * sizeof *injection.sin);
            injection.first_rows = rows;
        } else if (rows <= injection.first_rows) {
            cos_table = injection.cos;
            sin_table = injection.sin;
        }
    }
    return injection.own->rope(engine, x, cos_table, sin_table, rows, heads, head_dim, rotary_dim, y, err);
}

static dflash_status spoilt_attention(dflash_engine *engine, const df_attention_args *args, dflash_error *err) {
    const dflash_status status = injection.own->attention(engine, args, err);
    if (injection.fault == READS_PADDING && injection.drafting)
        args->out[0] += 0.0f * args->v[(int64_t)args->keys * args->n_kv_heads * args->head_dim];
    return status;
}

static void opened(dflash_draft *draft, void *user) {
    (void)user;
    injection.draft = draft;
    injection.own = draft->engine->ops;
    injection.spoilt = *injection.own;
    injection.spoilt.matmul = spoilt_matmul;
    injection.spoilt.rope = spoilt_rope;
    injection.spoilt.attention = spoilt_attention;
    if (injection.fault == EMPTY_ROUND) injection.spoilt.round = op_empty_round;
    draft->engine->ops = &injection.spoilt;
}

/* Old rows went: so do more, until fewer are left than the next query can see. */
static void drop_more(dflash_kv *kv) {
    const int least = df_kv_window(kv) - 2, drop = kv->len - least;
    const size_t width = (size_t)(df_kv_row(kv, kv->k, 0, 1) - df_kv_row(kv, kv->k, 0, 0));
    if (drop <= 0) return;
    for (int layer = 0; layer < kv->draft->config.n_layers; layer++) {
        memmove(df_kv_row(kv, kv->k, layer, 0), df_kv_row(kv, kv->k, layer, drop),
                (size_t)least * width * sizeof(float));
        memmove(df_kv_row(kv, kv->v, layer, 0), df_kv_row(kv, kv->v, layer, drop),
                (size_t)least * width * sizeof(float));
    }
    memmove(kv->pos, kv->pos + drop, (size_t)least * sizeof *kv->pos);
    kv->len = least;
}

static void next_bits(float *value) {
    uint32_t bits;
    memcpy(&bits, value, sizeof bits);
    bits++;
    memcpy(value, &bits, sizeof bits);
}

static void stepped(dflash_kv *kv, char kind, bool before, void *user) {
    (void)user;
    injection.ingesting = before && kind == 'i';
    injection.drafting = before && kind == 'd';
    if (!before) {
        if (injection.fault == NOT_CROPPED && kind == 't') kv->len = injection.held;
        if (injection.fault == ONE_SHORT && kind == 'i') kv->len--;
        if (injection.fault == BLOCK_COMMITTED && kind == 'd') kv->len += kv->draft->config.block;
        if (injection.fault == GREEDY_RING && kind == 'i' && kv->dropped != injection.dropped) drop_more(kv);
        if (injection.fault == MOVE_LOSES_A_BIT && kind == 'x' && kv->len > 0)
            next_bits(df_kv_row(kv, kv->v, 1, 0) + 3);
    }
    injection.held = kv->len;
    injection.dropped = kv->dropped;
}

static const dp_identity_hooks hooks = {.opened = opened, .step = stepped};

static dp_identity_result result;

static void run(fault what, const char *name, const char *filter) {
    static char checkpoint[128], oracle[128];
    snprintf(checkpoint, sizeof checkpoint, "fixtures/small/%s", name);
    snprintf(oracle, sizeof oracle, "oracles/%s.h5", name);
    const dp_identity_options options = {.filter = filter, .seed = 3, .schedules = 40, .threads = 1, .hooks = &hooks};
    injection.fault = what;
    dp_identity_case(name, checkpoint, oracle, DFLASH_PRECISION_STORED, &options, NULL, &result);
    ck_assert_msg(result.verdict != DP_REFUSED && result.verdict != DP_ERROR, "%s", result.error.message);
    ck_assert_int_eq(result.variant_count, 1);
}

/* What catches a fault: the variant, the first stage, and for histories the smallest schedule. */
static const struct {
    fault fault;
    const char *name, *variant, *stage, *smallest;
} caught[] = {
    {ONE_ROW_KERNEL, "tiny-plain", "ingest.chunk1", "kv.k", NULL},
    {ONE_ROW_KERNEL, "tiny-plain", "history.random", "kv.k", "i1 i1 d"},
    {ONE_ROW_KERNEL, "tiny-dflash2", "history.random", "kv.k", "i1 i1 d"},
    {ONE_ROW_KERNEL, "tiny-dspark", "history.long", "kv.k", "i1 i1 d"},
    {ROWS_DEPENDENT, "tiny-plain", "history.random", "kv.k", "i1 i1 d"},
    {ROWS_DEPENDENT, "tiny-plain", "ingest.chunk7", "kv.k", NULL},
    {ROWS_DEPENDENT, "tiny-plain", "rows.nan", "ctx.features", NULL},
    {NOT_CROPPED, "tiny-plain", "history.random", "kv.k", "i1 t1 d"},
    {NOT_CROPPED, "tiny-dflash2", "history.random", "kv.k", "i1 t1 d"},
    {ONE_SHORT, "tiny-plain", "history.random", "kv.k", "i1 d"},
    {ONE_SHORT, "tiny-dflash2", "history.random", "kv.k", "i1 d"},
    {ONE_SHORT, "tiny-plain", "round.all", "kv.k", NULL},
    {BLOCK_COMMITTED, "tiny-plain", "history.random", "kv.k", "d"},
    {RAW_KEYS, "tiny-plain", "history.random", "kv.k", "i1 d"},
    {RAW_KEYS, "tiny-plain", "round.all", "kv.k", NULL},
    {STALE_POSITIONS, "tiny-plain", "ingest.chunk7", "kv.k", NULL},
    {STALE_POSITIONS, "tiny-plain", "history.random", "kv.k", "i1 i1 d"},
    {OTHER_ORDER, "tiny-plain", "isa.reference", "ctx.fc", NULL},
    {EMPTY_ROUND, "tiny-plain", "observer.off", "final", NULL},
    {GREEDY_RING, "tiny-dflash2", "history.random", "kv.k", NULL},
    {PROBE_PERTURBS, "tiny-plain", "observer.off", "ctx.features", NULL},
    {READS_PADDING, "tiny-plain", "rows.nan", "layers.0.attn.context", NULL},
    {READS_PADDING, "tiny-plain", "scratch.poisoned", "layers.0.attn.context", NULL},
    {MOVE_LOSES_A_BIT, "tiny-plain", "cache.moved", "kv.v", NULL},
    {MOVE_LOSES_A_BIT, "tiny-plain", "history.random", "kv.v", "i1 x d"},
    {IGNORES_A_ROW, "tiny-plain", "engine.fresh", "ctx.fc", NULL},
};
enum { CAUGHT = sizeof caught / sizeof *caught };

START_TEST(a_planted_fault_is_caught_at_its_first_stage_by_the_smallest_history) {
    run(caught[_i].fault, caught[_i].name, caught[_i].variant);
    const dp_outcome *variant = &result.variant[0];
    const dp_pair_stage *first = dp_pair_first(&variant->pair);
    ck_assert_int_eq(result.verdict, DP_FAIL);
    ck_assert_int_eq(variant->state, DP_OUTCOME_DIFFERS);
    ck_assert_ptr_nonnull(first);
    ck_assert_str_eq(first->name, caught[_i].stage);
    if (strncmp(caught[_i].variant, "history", 7) == 0) {
        ck_assert_ptr_nonnull(variant->replay);
        if (caught[_i].smallest != NULL) ck_assert_str_eq(variant->replay, caught[_i].smallest);
    }
    dp_identity_release(&result);
}
END_TEST

START_TEST(a_ring_that_keeps_too_few_rows_is_reported_with_a_small_cache) {
    run(GREEDY_RING, "tiny-dflash2", "history.random");
    ck_assert_msg(result.variant[0].replay[0] == 'c', "%s", result.variant[0].replay);
    ck_assert_uint_lt(strlen(result.variant[0].replay), 24);
    dp_identity_release(&result);
}
END_TEST

START_TEST(hooks_that_plant_nothing_leave_every_arm_identical) {
    static const char *const variants[] = {"round.all", "ingest.chunk1", "history.random",
                                           "rows.nan",  "cache.moved",   "rows.permuted"};
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        run(NONE, "tiny-dflash2", variants[i]);
        ck_assert_int_eq(result.verdict, DP_PASS);
        ck_assert_int_gt(dp_pair_compared(&result.variant[0].pair), 1000);
        dp_identity_release(&result);
    }
}
END_TEST

START_TEST(an_infinitesimal_fault_has_the_class_ulp_and_a_large_one_is_divergent) {
    run(MOVE_LOSES_A_BIT, "tiny-plain", "cache.moved");
    const dp_pair_stage *first = dp_pair_first(&result.variant[0].pair);
    ck_assert_int_eq(first->reached, DP_BITS_ULP);
    ck_assert_uint_eq(first->ulp, 2); /* the variant moves twice */
    ck_assert_int_eq(first->differing, 1);
    ck_assert_uint_eq(first->bits[1] - first->bits[0], 2);
    dp_identity_release(&result);
    run(RAW_KEYS, "tiny-plain", "round.all");
    ck_assert_int_eq(dp_pair_first(&result.variant[0].pair)->reached, DP_BITS_DIVERGENT);
    dp_identity_release(&result);
    run(ONE_ROW_KERNEL, "tiny-plain", "ingest.chunk1"); /* other roundings of the same sums */
    ck_assert_int_eq(dp_pair_class(&result.variant[0].pair), DP_BITS_ENVELOPE);
    dp_identity_release(&result);
}
END_TEST

void identity_add_faults(Suite *suite) {
    TCase *tests = tcase_create("faults");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, a_planted_fault_is_caught_at_its_first_stage_by_the_smallest_history, 0, CAUGHT);
    tcase_add_test(tests, a_ring_that_keeps_too_few_rows_is_reported_with_a_small_cache);
    tcase_add_test(tests, hooks_that_plant_nothing_leave_every_arm_identical);
    tcase_add_test(tests, an_infinitesimal_fault_has_the_class_ulp_and_a_large_one_is_divergent);
    suite_add_tcase(suite, tests);
}
