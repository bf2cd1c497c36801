/*
 * bench_table.h - the table of times: forward_round and a small ingestion, for several geometries, in every class and
 * precision that the backend has a row for, each beside the time of its bytes, and PyTorch's time of the same block.
 *
 * All rows of a geometry are held at once and take turns, round by round, so that what disturbs the machine disturbs
 * all of them. A limit is bytes over the read bandwidth probed in the same run; a row without one shows no time.
 */
#ifndef DP_BENCH_TABLE_H
#define DP_BENCH_TABLE_H

#include "bench/bench_session.h"

#include <cjson/cJSON.h>
#include <stdio.h>

enum {
    DP_TABLE_GEOMETRIES = 16,
    DP_TABLE_ROWS = 4,
    DP_TABLE_NEW_ROWS = 4, /* of the ingestion that is timed */
    DP_TABLE_PATH = 1024,
    DP_TABLE_NAME = 160
};

typedef struct dp_table_row {
    dflash_class numeric_class;
    dflash_precision precision;
    double layer_bytes;  /* the layers' tensors: what a round reads beside rows and the cache */
    double cache_bytes;  /* the context's keys and values, which it reads too; in no limit */
    double ingest_bytes; /* fc, k_proj, v_proj and their norms */
    double round;        /* seconds, medians; 0: not measured */
    double ingest;
} dp_table_row;

/* A plain PyTorch model of the same layers with bfloat16 weights (oracles/plain_block.py). Seconds, 0: not measured. */
typedef struct dp_table_torch {
    char version[32];
    double eager, graph, compiled;
    char why[512]; /* what was not measured, and why; empty: everything was */
} dp_table_torch;

typedef struct dp_table_geometry {
    const char *name;
    int block;
    dp_table_row row[DP_TABLE_ROWS]; /* the first is what `of the first` is a ratio to */
    int rows;
    bool with_torch;
    dp_table_torch torch;
    dflash_machine machine; /* probed before this geometry's rounds */
} dp_table_geometry;

typedef struct dp_table {
    /* what to measure */
    dflash_backend backend;
    int device_asked; /* number of the CUDA device */
    dflash_isa isa;
    int threads; /* 0 = all cores; set to their number by the run */
    long context, repeat;
    const char *configs;     /* folder of NAME/config.json */
    const char *checkpoints; /* folder of NAME/, written when absent */
    const char *cases;       /* list of cases: a geometry that is one of them keeps its recipe */
    const char *python;      /* interpreter with torch; NULL: not timed */
    dp_table_geometry geometry[DP_TABLE_GEOMETRIES];
    int count;
    dflash_device_facts device; /* figures, like the rows */
} dp_table;

/* Adds a geometry with every row of the table's backend. Codes: "table.geometry" (no such config, twice, too many),
 * "path.long", and those of dflash_config_read. */
dflash_status dp_table_add(dp_table *table, const char *name, dflash_error *err);
/* "NAME/fast/bf16", what -k and --list speak of; with row -1 "NAME/pytorch". Returns text. */
const char *dp_table_row_name(const dp_table_geometry *geometry, int row, char text[DP_TABLE_NAME]);
/* Keeps the rows whose names match; returns how many are left, PyTorch's included. */
int dp_table_filter(dp_table *table, const char *glob);

/* Fills the figures of our own rows; checkpoints are written when they are absent. The device is asked for before any
 * of that. Codes are those of what it runs. */
dflash_status dp_table_measure(dp_table *table, dflash_error *err);
/* bench_torch.c: fills the geometry's torch. On failure torch.why says what *err says. Codes:
 * "bench.reference" and those of process.h. */
dflash_status dp_table_time_torch(const dp_table *table, dp_table_geometry *geometry, dflash_error *err);
/* The folder of a geometry's checkpoint. Code: "path.long". */
dflash_status dp_table_checkpoint(const dp_table *table, const char *name, char path[DP_TABLE_PATH], dflash_error *err);

/* bench_table_text.c: aligned text, or with `markdown` a Markdown table; the notes below say what is missing. */
void dp_table_print(const dp_table *table, bool markdown, FILE *to);
cJSON *dp_table_json(const dp_table *table, const char *command);

/* cmd_bench_table.c: whether the words of `bench` ask for the table, and the command for them. */
bool dp_bench_wants_table(int argc, char **argv);
int cmd_bench_table(int argc, char **argv);

#endif
