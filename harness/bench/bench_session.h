/*
 * bench_session.h - what a measurement holds while it runs: an engine, a draft on it, inputs in its memory, a cache;
 * and the two ways in which it counts, a timed call and a median.
 */
#ifndef DP_BENCH_SESSION_H
#define DP_BENCH_SESSION_H

#include "base/clock.h"
#include "dflash.h"

enum { DP_BENCH_MOST_REPEATS = 1000, DP_BENCH_MOST_CONTEXT = 1 << 20 };

typedef struct dp_bench_session {
    dflash_engine *engine;
    dflash_draft *draft;
    dflash_kv *kv;
    float *features, *noise, *out; /* engine memory: [context, H], [B, H], [B, H] */
    int32_t *pos;                  /* 0, 1, ...: context + spare + B of them */
} dp_bench_session;

/* Inputs and a cache for the session's draft: `context` rows, `spare` more that may be ingested behind them, and a
 * block. A session that is all zeros may be closed. */
dflash_status dp_bench_inputs(dp_bench_session *session, long context, int spare, dflash_error *err);
void dp_bench_close(dp_bench_session *session);

/* n values in [-1, 1) in the engine's memory. What they are does not matter, that they are not zero does. */
dflash_status dp_bench_values(dflash_engine *engine, size_t n, float **out, dflash_error *err);

/* Reorders the n values. */
double dp_bench_median(double *value, long n);

/* Sums the bytes, as they are held, of the draft's consumed tensors that `counts` says yes to. */
double dp_bench_bytes(const dflash_draft *draft, bool (*counts)(const char *tensor));
bool dp_bench_in_layers(const char *tensor);

/* One timed call on an engine, to the end of the work that it queues: `status` is set, seconds go to *elapsed. */
#define DP_BENCH_TIMED(engine, elapsed, call)                                                                          \
    do {                                                                                                               \
        const double timed_start = dp_seconds();                                                                       \
        status = (call);                                                                                               \
        if (status == DFLASH_OK) status = dflash_engine_finish(engine, err);                                           \
        *(elapsed) = dp_seconds() - timed_start;                                                                       \
    } while (0)

#endif
