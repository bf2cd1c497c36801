/*
 * bench.h - measures one checkpoint: load, forwards, memory, and the machine's own limits beside them.
 *
 * Times are medians over repetitions in one process and are for people to compare within one run; nothing passes or
 * fails by them. Every forward has a limit: the larger of its multiply-adds over the machine's rate and its bytes over
 * the machine's read bandwidth, both probed in the same run.
 */
#ifndef DP_BENCH_H
#define DP_BENCH_H

#include "bench/bench_session.h"

#include <stdio.h>

/* The least that a program must do: multiply-adds, and bytes read once. */
typedef struct dp_work {
    double macs, bytes;
} dp_work;

typedef struct dp_bench {
    /* what to measure */
    const char *name, *checkpoint;
    const char *head;   /* FILE[:TENSOR] of the check's output head; NULL: the checkpoint's own */
    const char *oracle; /* NULL: no check is run, its figures are 0 */
    const char *python; /* interpreter with the reference's packages; NULL: no side-by-side */
    dflash_precision precision;
    dflash_isa isa_asked;
    dflash_backend backend;
    dflash_class numeric_class;
    dflash_products products;
    int device_asked;  /* number of the CUDA device */
    int threads_asked; /* 0 = all cores */
    long context, repeat;
    /* figures, in seconds and bytes */
    double check, peak_bytes, load, ingest, block, round;
    dp_work ingest_work, round_work, block_work;
    dflash_machine machine;
    double torch_f32, torch_bf16; /* the reference's forward of the same block; 0 when not measured */
    char torch_version[32];
    int threads;
    char isa[16];
    dflash_device_facts device;
    size_t weight_bytes;
} dp_bench;

/* Fills the figures. Codes beside those of what it runs: "bench.verdict" (the check did not pass, so its times mean
 * nothing), "bench.reference". */
dflash_status dp_bench_run(dp_bench *bench, dflash_error *err);

/* Seconds that the machine cannot beat for this work. */
double dp_bench_limit(const dp_work *work, const dflash_machine *machine);

/* Writes a table for reports/cost.gp: forward_round against the context, up to four times bench->context, and against
 * the number of rounds already run. */
dflash_status dp_bench_sweep(const dp_bench *bench, FILE *to, dflash_error *err);

/* bench_torch.c: times the reference with bench->python; dp_bench_run calls it. */
dflash_status dp_bench_reference(dp_bench *bench, dflash_error *err);

#endif
