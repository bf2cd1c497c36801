/* bench.c - see bench.h. */
#include "bench.h"

#include "clock.h"
#include "error.h"
#include "run_check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* What a measurement holds while it runs. */
typedef struct session {
    df_engine *engine;
    df_draft *draft;
    df_kv *kv;
    float *features, *noise, *out;
    int32_t *pos;
} session;

static double median(double *value, long n) {
    for (long i = 1; i < n; i++) /* insertion sort: a handful of values */
        for (long j = i; j > 0 && value[j] < value[j - 1]; j--) {
            const double swap = value[j];
            value[j] = value[j - 1];
            value[j - 1] = swap;
        }
    return value[n / 2];
}

/* Values in [-1, 1) from a linear congruential generator: what they are does not matter, that they are not zero does.
 */
static void fill(float *to, size_t n) {
    uint32_t state = 12345;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        to[i] = (float)(state >> 8) * 0x1p-23f - 1.0f;
    }
}

/* n such values in the engine's memory. */
static df_status make_values(df_engine *engine, size_t n, float **out, df_error *err) {
    float *host = malloc((n + 1) * sizeof *host);
    if (host == NULL) return df_fail_memory(err, "the inputs", n * sizeof *host);
    fill(host, n);
    df_status status = df_engine_alloc(engine, n, out, err);
    if (status == DF_OK) status = df_engine_upload(engine, *out, host, n, err);
    free(host);
    return status;
}

/* Multiply-adds of one layer: q and o, gate, up and down on the block's rows, k and v on `key_rows`, and every query
 * with every key for the scores and again for the weighted sum. */
static double layer_macs(const df_config *c, double block_rows, double key_rows, double keys) {
    const double h = c->hidden, q = (double)c->n_heads * c->head_dim, k = (double)c->n_kv_heads * c->head_dim;
    const double conv = c->family == DF_FAMILY_DFLASH2 ? 4.0 * c->conv_kernel * h / c->conv_group : 0.0;
    return block_rows * h * (2.0 * q + 3.0 * c->intermediate + conv) + key_rows * h * 2.0 * k +
           2.0 * block_rows * q * keys;
}

/* Bytes of the layers' matrices as they are held: what a forward reads beside rows and the cache. */
static double layer_bytes(const df_draft *draft) {
    double bytes = 0.0;
    for (int i = 0; i < df_draft_tensor_count(draft); i++) {
        const df_tensor_view tensor = df_draft_tensor(draft, i);
        if (tensor.used && strncmp(tensor.name, "layers.", 7) == 0) bytes += (double)tensor.bytes;
    }
    return bytes;
}

double dp_bench_limit(const dp_work *least, const df_machine *machine) {
    const double compute = least->macs / machine->macs_per_second;
    const double memory = least->bytes / machine->bytes_per_second;
    return compute > memory ? compute : memory;
}

/* One timed call on the session's engine, to the end of the work that it queues: seconds go to *elapsed. */
#define TIMED(elapsed, call)                                                                                           \
    do {                                                                                                               \
        const double timed_start = dp_seconds();                                                                       \
        status = (call);                                                                                               \
        if (status == DF_OK) status = df_engine_finish(s->engine, err);                                                \
        *(elapsed) = dp_seconds() - timed_start;                                                                       \
    } while (0)

static df_status measure_load(dp_bench *b, session *s, df_error *err) {
    double times[DP_BENCH_MOST_REPEATS];
    df_status status = DF_OK;
    for (long i = 0; status == DF_OK && i < b->repeat; i++) {
        df_draft_destroy(s->draft);
        s->draft = NULL;
        TIMED(&times[i], df_draft_load_as(s->engine, b->checkpoint, b->precision, &s->draft, err));
    }
    if (status == DF_OK) b->load = median(times, b->repeat);
    return status;
}

static df_status prepare_inputs(const dp_bench *b, session *s, df_error *err) {
    const df_config *c = df_draft_config(s->draft);
    const size_t rows = (size_t)(b->context + c->block), hidden = (size_t)c->hidden;
    s->pos = malloc(rows * sizeof *s->pos);
    if (s->pos == NULL) return df_fail_memory(err, "the inputs", rows * sizeof *s->pos);
    TRY(make_values(s->engine, (size_t)b->context * hidden, &s->features, err));
    TRY(make_values(s->engine, (size_t)c->block * hidden, &s->noise, err));
    TRY(df_engine_alloc(s->engine, (size_t)c->block * hidden, &s->out, err));
    for (size_t i = 0; i < rows; i++) s->pos[i] = (int32_t)i;
    return df_kv_create(s->draft, (int)rows + c->block, &s->kv, err);
}

static void count_work(dp_bench *b, const df_draft *draft) {
    const df_config *c = df_draft_config(draft);
    const double layers = c->n_layers, context = (double)b->context, block = c->block, all = context + block;
    const double cache = 2.0 * 4.0 * layers * context * c->n_kv_heads * c->head_dim;
    const double weights = layer_bytes(draft);
    b->ingest_work = (dp_work){.macs = layers * layer_macs(c, 0.0, context, 0.0), .bytes = cache};
    b->round_work = (dp_work){.macs = layers * layer_macs(c, block, block, all), .bytes = weights + cache};
    b->block_work = (dp_work){.macs = layers * layer_macs(c, block, all, all), .bytes = weights};
}

static df_status measure_forwards(dp_bench *b, session *s, df_error *err) {
    double ingest[DP_BENCH_MOST_REPEATS], block[DP_BENCH_MOST_REPEATS], round[DP_BENCH_MOST_REPEATS];
    const int context = (int)b->context;
    df_status status = DF_OK;
    for (long i = 0; status == DF_OK && i < b->repeat; i++) {
        df_kv_clear(s->kv);
        TIMED(&ingest[i], df_ingest_ctx(s->draft, s->kv, s->features, s->pos, context, err));
        if (status == DF_OK)
            TIMED(&round[i], df_forward_round(s->draft, s->kv, s->noise, s->pos + context, s->out, err));
        if (status == DF_OK)
            TIMED(&block[i], df_forward_block(s->draft, s->features, s->noise, s->pos, context, s->out, err));
    }
    if (status != DF_OK) return status;
    b->ingest = median(ingest, b->repeat);
    b->round = median(round, b->repeat);
    b->block = median(block, b->repeat);
    return DF_OK;
}

static void end_session(session *s) {
    if (s->engine == NULL) return;
    df_engine_free(s->engine, s->features);
    df_engine_free(s->engine, s->noise);
    df_engine_free(s->engine, s->out);
    free(s->pos);
    df_kv_destroy(s->kv);
    df_draft_destroy(s->draft);
    df_engine_destroy(s->engine);
}

static df_status begin_session(const dp_bench *b, session *s, df_error *err) {
    const df_engine_options options = {.backend = b->backend,
                                       .numeric_class = b->numeric_class,
                                       .products = b->products,
                                       .threads = b->threads_asked,
                                       .isa = b->isa_asked};
    *s = (session){.engine = NULL};
    return df_engine_create(&options, &s->engine, err);
}

/* The check runs first and the peak is read right after it, so that it is the check's own. */
static df_status measure_check(dp_bench *b, df_error *err) {
    struct rusage usage;
    dp_result result;
    const dp_check_options options = {.checkpoint = b->checkpoint,
                                      .oracle = b->oracle,
                                      .precision = b->precision,
                                      .threads = b->threads_asked,
                                      .isa = b->isa_asked,
                                      .backend = b->backend,
                                      .numeric_class = b->numeric_class,
                                      .products = b->products};
    dp_check(&options, &result);
    b->check = result.total_seconds;
    const dp_verdict verdict = result.verdict;
    if (verdict == DP_REFUSED || verdict == DP_ERROR) *err = result.error;
    dp_result_release(&result);
    getrusage(RUSAGE_SELF, &usage);
    b->peak_bytes = (double)usage.ru_maxrss * 1024.0;
    if (verdict == DP_FAIL || verdict == DP_NOTHING)
        return df_fail(
            err, DF_ERR_REFUSED, "bench.verdict",
            "The check of %s ended with %s: times of a wrong program mean nothing. Run `dflash-parity check` on it.",
            b->name, dp_verdict_name(verdict));
    return verdict == DP_PASS ? DF_OK : err->status;
}

df_status dp_bench_run(dp_bench *b, df_error *err) {
    session s = {.engine = NULL};
    df_status status = b->oracle != NULL ? measure_check(b, err) : DF_OK;
    if (status == DF_OK) status = begin_session(b, &s, err);
    if (status == DF_OK) status = df_engine_probe(s.engine, &b->machine, err);
    if (status == DF_OK) status = measure_load(b, &s, err);
    if (status == DF_OK) status = prepare_inputs(b, &s, err);
    if (status == DF_OK) {
        count_work(b, s.draft);
        status = measure_forwards(b, &s, err);
    }
    if (status == DF_OK) {
        b->threads = df_engine_threads(s.engine);
        snprintf(b->isa, sizeof b->isa, "%s", df_engine_isa(s.engine));
        df_engine_describe(s.engine, &b->device);
        b->weight_bytes = df_draft_weight_bytes(s.draft);
    }
    end_session(&s);
    return status == DF_OK && b->python != NULL ? dp_bench_reference(b, err) : status;
}

/* Seconds of forward_round over the first `context` rows. */
static df_status round_seconds(const dp_bench *b, session *s, int context, double *seconds, df_error *err) {
    double times[DP_BENCH_MOST_REPEATS];
    df_kv_clear(s->kv);
    df_status status = df_ingest_ctx(s->draft, s->kv, s->features, s->pos, context, err);
    for (long i = 0; status == DF_OK && i < b->repeat; i++)
        TIMED(&times[i], df_forward_round(s->draft, s->kv, s->noise, s->pos + context, s->out, err));
    if (status == DF_OK) *seconds = median(times, b->repeat);
    return status;
}

df_status dp_bench_sweep(const dp_bench *bench, FILE *to, df_error *err) {
    enum { POINTS = 8, ROUNDS = 64 };
    dp_bench longer = *bench;
    longer.context = 4 * bench->context; /* far enough for a slope to show */
    const dp_bench *b = &longer;
    session held, *const s = &held;
    double seconds = 0.0;
    df_status status = begin_session(b, s, err);
    if (status == DF_OK) status = df_draft_load_as(s->engine, b->checkpoint, b->precision, &s->draft, err);
    if (status == DF_OK) status = prepare_inputs(b, s, err);
    fprintf(to, "# %s: forward_round, median of %ld\n# context rows, milliseconds\n", b->name, b->repeat);
    for (int i = 1; status == DF_OK && i <= POINTS; i++) {
        const int context = (int)(b->context * i / POINTS);
        if (context == 0) continue;
        status = round_seconds(b, s, context, &seconds, err);
        if (status == DF_OK) fprintf(to, "%d %.4f\n", context, 1e3 * seconds);
    }
    fprintf(to, "\n\n# rounds run before over %ld context rows, milliseconds\n", b->context / 2);
    if (status == DF_OK) status = round_seconds(b, s, (int)(b->context / 2), &seconds, err);
    for (int round = 0; status == DF_OK && round < ROUNDS; round++) {
        TIMED(&seconds, df_forward_round(s->draft, s->kv, s->noise, s->pos + b->context / 2, s->out, err));
        if (status == DF_OK) fprintf(to, "%d %.4f\n", round, 1e3 * seconds);
    }
    end_session(s);
    return status;
}
