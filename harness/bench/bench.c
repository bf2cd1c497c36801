/* bench.c - see bench.h. */
#include "bench/bench.h"

#include "bench/bench_session.h"
#include "common/error.h"
#include "check/run_check.h"

#include <sys/resource.h>

/* Multiply-adds of one layer: q and o, gate, up and down on the block's rows, k and v on `key_rows`, and every query
 * with every key for the scores and again for the weighted sum. */
static double layer_macs(const dflash_config *c, double block_rows, double key_rows, double keys) {
    const double h = c->hidden, q = (double)c->n_heads * c->head_dim, k = (double)c->n_kv_heads * c->head_dim;
    const double conv = c->family == DFLASH_FAMILY_DFLASH2 ? 4.0 * c->conv_kernel * h / c->conv_group : 0.0;
    return block_rows * h * (2.0 * q + 3.0 * c->intermediate + conv) + key_rows * h * 2.0 * k +
           2.0 * block_rows * q * keys;
}

double dp_bench_limit(const dp_work *least, const dflash_machine *machine) {
    const double compute = least->macs / machine->macs_per_second;
    const double memory = least->bytes / machine->bytes_per_second;
    return compute > memory ? compute : memory;
}

static dflash_status measure_load(dp_bench *b, dp_bench_session *s, dflash_error *err) {
    double times[DP_BENCH_MOST_REPEATS];
    dflash_status status = DFLASH_OK;
    for (long i = 0; status == DFLASH_OK && i < b->repeat; i++) {
        dflash_draft_destroy(s->draft);
        s->draft = NULL;
        DP_BENCH_TIMED(s->engine, &times[i],
                       dflash_draft_load_as(s->engine, b->checkpoint, b->precision, &s->draft, err));
    }
    if (status == DFLASH_OK) b->load = dp_bench_median(times, b->repeat);
    return status;
}

static void count_work(dp_bench *b, const dflash_draft *draft) {
    const dflash_config *c = dflash_draft_config(draft);
    const double layers = c->n_layers, context = (double)b->context, block = c->block, all = context + block;
    const double cache = 2.0 * 4.0 * layers * context * c->n_kv_heads * c->head_dim;
    const double weights = dp_bench_bytes(draft, dp_bench_in_layers);
    b->ingest_work = (dp_work){.macs = layers * layer_macs(c, 0.0, context, 0.0), .bytes = cache};
    b->round_work = (dp_work){.macs = layers * layer_macs(c, block, block, all), .bytes = weights + cache};
    b->block_work = (dp_work){.macs = layers * layer_macs(c, block, all, all), .bytes = weights};
}

static dflash_status measure_forwards(dp_bench *b, dp_bench_session *s, dflash_error *err) {
    double ingest[DP_BENCH_MOST_REPEATS], block[DP_BENCH_MOST_REPEATS], round[DP_BENCH_MOST_REPEATS];
    const int context = (int)b->context;
    dflash_status status = DFLASH_OK;
    for (long i = 0; status == DFLASH_OK && i < b->repeat; i++) {
        dflash_kv_clear(s->kv);
        DP_BENCH_TIMED(s->engine, &ingest[i], dflash_ingest_ctx(s->draft, s->kv, s->features, s->pos, context, err));
        if (status == DFLASH_OK)
            DP_BENCH_TIMED(s->engine, &round[i],
                           dflash_forward_round(s->draft, s->kv, s->noise, s->pos + context, s->out, err));
        if (status == DFLASH_OK)
            DP_BENCH_TIMED(s->engine, &block[i],
                           dflash_forward_block(s->draft, s->features, s->noise, s->pos, context, s->out, err));
    }
    if (status != DFLASH_OK) return status;
    b->ingest = dp_bench_median(ingest, b->repeat);
    b->round = dp_bench_median(round, b->repeat);
    b->block = dp_bench_median(block, b->repeat);
    return DFLASH_OK;
}

static dflash_status begin_session(const dp_bench *b, dp_bench_session *s, dflash_error *err) {
    const dflash_engine_options options = {.backend = b->backend,
                                           .numeric_class = b->numeric_class,
                                           .products = b->products,
                                           .threads = b->threads_asked,
                                           .isa = b->isa_asked,
                                           .device = b->device_asked};
    *s = (dp_bench_session){.engine = NULL};
    return dflash_engine_create(&options, &s->engine, err);
}

/* The check runs first and the peak is read right after it, so that it is the check's own. */
static dflash_status measure_check(dp_bench *b, dflash_error *err) {
    struct rusage usage;
    dp_result result;
    const dp_check_options options = {.checkpoint = b->checkpoint,
                                      .head = b->head,
                                      .oracle = b->oracle,
                                      .precision = b->precision,
                                      .threads = b->threads_asked,
                                      .isa = b->isa_asked,
                                      .backend = b->backend,
                                      .numeric_class = b->numeric_class,
                                      .products = b->products,
                                      .device = b->device_asked};
    dp_check(&options, &result);
    b->check = result.total_seconds;
    const dp_verdict verdict = result.verdict;
    if (verdict == DP_REFUSED || verdict == DP_ERROR) *err = result.error;
    dp_result_release(&result);
    getrusage(RUSAGE_SELF, &usage);
    b->peak_bytes = (double)usage.ru_maxrss * 1024.0;
    if (verdict == DP_FAIL || verdict == DP_NOTHING)
        return df_fail(
            err, DFLASH_ERR_REFUSED, "bench.verdict",
            "The check of %s ended with %s: times of a wrong program mean nothing. Run `dflash-parity check` on it.",
            b->name, dp_verdict_name(verdict));
    return verdict == DP_PASS ? DFLASH_OK : err->status;
}

dflash_status dp_bench_run(dp_bench *b, dflash_error *err) {
    dp_bench_session s = {.engine = NULL};
    dflash_status status = b->oracle != NULL ? measure_check(b, err) : DFLASH_OK;
    if (status == DFLASH_OK) status = begin_session(b, &s, err);
    if (status == DFLASH_OK) status = dflash_engine_probe(s.engine, &b->machine, err);
    if (status == DFLASH_OK) status = measure_load(b, &s, err);
    if (status == DFLASH_OK) status = dp_bench_inputs(&s, b->context, 0, err);
    if (status == DFLASH_OK) {
        count_work(b, s.draft);
        status = measure_forwards(b, &s, err);
    }
    if (status == DFLASH_OK) {
        b->threads = dflash_engine_threads(s.engine);
        snprintf(b->isa, sizeof b->isa, "%s", dflash_engine_isa(s.engine));
        dflash_engine_describe(s.engine, &b->device);
        b->weight_bytes = dflash_draft_weight_bytes(s.draft);
    }
    dp_bench_close(&s);
    return status == DFLASH_OK && b->python != NULL ? dp_bench_reference(b, err) : status;
}

/* Seconds of forward_round over the first `context` rows. */
static dflash_status round_seconds(const dp_bench *b, dp_bench_session *s, int context, double *seconds,
                                   dflash_error *err) {
    double times[DP_BENCH_MOST_REPEATS];
    dflash_kv_clear(s->kv);
    dflash_status status = dflash_ingest_ctx(s->draft, s->kv, s->features, s->pos, context, err);
    for (long i = 0; status == DFLASH_OK && i < b->repeat; i++)
        DP_BENCH_TIMED(s->engine, &times[i],
                       dflash_forward_round(s->draft, s->kv, s->noise, s->pos + context, s->out, err));
    if (status == DFLASH_OK) *seconds = dp_bench_median(times, b->repeat);
    return status;
}

dflash_status dp_bench_sweep(const dp_bench *bench, FILE *to, dflash_error *err) {
    enum { POINTS = 8, ROUNDS = 64 };
    dp_bench longer = *bench;
    longer.context = 4 * bench->context; /* far enough for a slope to show */
    const dp_bench *b = &longer;
    dp_bench_session held, *const s = &held;
    double seconds = 0.0;
    dflash_status status = begin_session(b, s, err);
    if (status == DFLASH_OK) status = dflash_draft_load_as(s->engine, b->checkpoint, b->precision, &s->draft, err);
    if (status == DFLASH_OK) status = dp_bench_inputs(s, b->context, 0, err);
    fprintf(to, "# %s: forward_round, median of %ld\n# context rows, milliseconds\n", b->name, b->repeat);
    for (int i = 1; status == DFLASH_OK && i <= POINTS; i++) {
        const int context = (int)(b->context * i / POINTS);
        if (context == 0) continue;
        status = round_seconds(b, s, context, &seconds, err);
        if (status == DFLASH_OK) fprintf(to, "%d %.4f\n", context, 1e3 * seconds);
    }
    fprintf(to, "\n\n# rounds run before over %ld context rows, milliseconds\n", b->context / 2);
    if (status == DFLASH_OK) status = round_seconds(b, s, (int)(b->context / 2), &seconds, err);
    for (int round = 0; status == DFLASH_OK && round < ROUNDS; round++) {
        DP_BENCH_TIMED(s->engine, &seconds,
                       dflash_forward_round(s->draft, s->kv, s->noise, s->pos + b->context / 2, s->out, err));
        if (status == DFLASH_OK) fprintf(to, "%d %.4f\n", round, 1e3 * seconds);
    }
    dp_bench_close(s);
    return status;
}
