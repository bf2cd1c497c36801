/* coverage.c - see coverage.h. */
#include "coverage/coverage.h"

#include "common/canon.h"
#include "base/cli.h"
#include "common/error.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PATH_SIZE = 4096,
    MOST_LINES = 8 /* of one constant */,
    CHANNELS_MET = 64 /* of a unit of the CUDA kernels: DC_ITEM_CHANNELS */
};

/* ---- What a case amounts to ---- */

typedef enum quantity {
    NONE = 0,
    HIDDEN,
    INPUT,
    OUTPUT,
    INTERMEDIATE,
    HEAD_DIM,
    QUERIES,
    ROWS,
    BLOCK,
    KEYS,
    WINDOW_KEYS,
    SEGMENTS,
    SHARES,
    KERNELS,
    ELEMENTS,
    CONTEXT,
    POSITION,
    VOCAB,
    TOP_K,
    RANK,
    MATRICES,
    CONVERTED,
    WORDS,
    QUANTITIES
} quantity;
_Static_assert(QUANTITIES == DP_RANGES + 1, "a range for each");

static const char *const quantity_name[QUANTITIES] = {
    [HIDDEN] = "hidden size",
    [INPUT] = "inputs of a product",
    [OUTPUT] = "outputs of a product",
    [INTERMEDIATE] = "intermediate size",
    [HEAD_DIM] = "channels of a head",
    [QUERIES] = "queries of a key/value head",
    [ROWS] = "rows of a call",
    [BLOCK] = "rows of a block",
    [KEYS] = "keys in sight without a window",
    [WINDOW_KEYS] = "keys in sight of a window",
    [SEGMENTS] = "segments that keys lie in",
    [SHARES] = "segments of keys x heads of 64 channels",
    [KERNELS] = "kernel taps x groups of 64 channels",
    [ELEMENTS] = "elements of a step",
    [CONTEXT] = "rows of context",
    [POSITION] = "last position",
    [VOCAB] = "vocabulary",
    [TOP_K] = "candidates of a slot",
    [RANK] = "rank of a head",
    [MATRICES] = "matrices that read one input",
    [CONVERTED] = "values of a matrix in a precision mode",
    [WORDS] = "64-bit words of a tensor",
};

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Most keys that a row of the block sees in the layer. */
static int64_t keys_in_sight(const dflash_config *c, const dflash_layer_config *layer, const int32_t *pos, int rows) {
    int64_t most = 0;
    for (int row = rows - c->block; row < rows; row++) {
        int64_t seen = 0;
        for (int key = 0; key < rows; key++) {
            const int64_t back = (int64_t)pos[row] - pos[key];
            seen += (back >= 0 || !layer->causal) &&
                    (layer->window == 0 || (back < layer->window && (layer->causal || -back < layer->window)));
        }
        most = larger(most, seen);
    }
    return most;
}

static void measure(const dflash_config *c, dflash_precision precision, const int32_t *pos, int rows,
                    int64_t value[QUANTITIES]) {
    const int64_t h = c->hidden, f = c->intermediate, q = (int64_t)c->n_heads * c->head_dim;
    const int64_t widest = larger(larger(h, f), q), fc = h * c->n_taps * h;
    const int64_t matrix = larger(fc, larger(h * f, h * q));
    int64_t segments = 0;
    for (int i = 0; i < rows; i++) segments += i == 0 || pos[i] / DF_SEGMENT != pos[i - 1] / DF_SEGMENT;
    for (int i = 0; i < c->n_layers; i++) {
        const quantity kind = c->layer[i].window > 0 ? WINDOW_KEYS : KEYS;
        const int64_t seen = keys_in_sight(c, &c->layer[i], pos, rows);
        /* a window that nothing lies outside of is none */
        if (kind == KEYS || seen < rows) value[kind] = larger(value[kind], seen);
        if (kind == KEYS) value[SEGMENTS] = segments;
    }
    value[CONTEXT] = rows - c->block;
    value[POSITION] = pos[rows - 1];
    value[HIDDEN] = h;
    value[INPUT] = larger(widest, h * c->n_taps);
    value[OUTPUT] = larger(widest, c->family != DFLASH_FAMILY_DFLASH ? c->vocab : 0);
    value[INTERMEDIATE] = f;
    value[HEAD_DIM] = c->head_dim;
    value[QUERIES] = (int64_t)c->block * (c->n_heads / c->n_kv_heads);
    value[ROWS] = larger(rows - c->block, c->block);
    value[BLOCK] = c->block;
    value[SHARES] = value[SEGMENTS] * larger(1, smaller(c->n_heads, CHANNELS_MET / c->head_dim));
    value[KERNELS] = c->conv_group > 0 ? (int64_t)c->conv_kernel * (CHANNELS_MET / c->conv_group) : 0;
    value[ELEMENTS] = c->block * larger(h, f);
    value[VOCAB] = c->family != DFLASH_FAMILY_DFLASH ? c->vocab : 0;
    value[TOP_K] = c->selector_top_k;
    value[RANK] = larger(c->selector_rank, c->markov_rank);
    value[MATRICES] = 2 * (int64_t)c->n_layers; /* keys and values of every layer read the context's features */
    value[CONVERTED] = precision != DFLASH_PRECISION_STORED ? matrix : 0;
    value[WORDS] = matrix / 4; /* of bfloat16 */
}

/* ---- What a constant is held against ---- */

/* A constant may have several lines: the first that says why it is no size decides, else all are held against it. */
typedef struct rule {
    const char *file, *name; /* patterns */
    quantity quantity;       /* NONE: no size */
    const char *text;        /* quantity: the constant whose value it is counted in, or NULL; NONE: the reason */
} rule;

static const char LAYOUT[] = "how work is laid out over lanes, threads, stages or memory: a tile's size counts";
static const char REFUSED[] = "a config or file beyond it is refused, which its suite asserts";
static const char FORMAT[] = "part of a file format or of a name";
static const char ALIGNED[] = "bytes of alignment or of an allocation";
static const char MEASURED[] = "of a measurement, and of no result";

static const rule rules[] = {
    {"common/canon.h", "DF_SEGMENT", HIDDEN, NULL},
    {"common/canon.h", "DF_SEGMENT", INPUT, NULL},
    {"common/canon.h", "DF_SEGMENT", INTERMEDIATE, NULL},
    {"common/canon.h", "DF_SEGMENT", HEAD_DIM, NULL},
    {"common/canon.h", "DF_SEGMENT", KEYS, NULL},
    {"common/canon.h", "DF_SEGMENT", WINDOW_KEYS, NULL},
    {"common/canon.h", "DF_TREE_SLOTS", NONE, "levels of a 32-bit index and one: no sum has more"},
    {"model/rope_rows.[ch]", "*", ROWS, NULL},
    {"heads/topk.c", "CHUNK", VOCAB, NULL},
    {"weights/precision.c", "*", CONVERTED, NULL},
    {"weights/weights.c", "SCAN_PART", WORDS, NULL},
    {"weights/weights.c", "SCAN_WORDS", WORDS, NULL},
    {"weights/quant.h", "DF_QUANT_BLOCK", INPUT, NULL},
    {"cpu/elementwise.c", "ELEMENTS_PER_TASK", ELEMENTS, NULL},
    {"cpu/matmul.c", "OUTPUTS_PER_TASK", OUTPUT, NULL},
    {"cpu/matmul.c", "CHUNK", INPUT, NULL},
    {"cpu/matmul.c", "TILES_PER_PASS", ROWS, "DF_LANES"},
    {"cpu/rmsnorm.c", "ROWS_PER_TASK", ROWS, NULL},
    {"cpu/tile_dot.h", "DF_TILE_OUTPUTS", OUTPUT, NULL},
    {"cpu/tile_dot.h", "DF_TILE_OUTPUTS", KEYS, NULL},
    {"cpu/vec16.h", "DF_LANES", ROWS, NULL},
    {"cpu/vec16.h", "DF_LANES", BLOCK, NULL},
    {"cpu/vec16.h", "DF_LANES", QUERIES, NULL},
    {"cuda/ops/attention.cu", "TILE", KEYS, NULL},
    {"cuda/ops/attention.cu", "TILE", WINDOW_KEYS, NULL},
    {"cuda/ops/attention.cu", "TILE", QUERIES, NULL},
    {"cuda/ops/attention.cu", "TILE", HEAD_DIM, NULL},
    {"cuda/ops/attention.cu", "MOST_SEGMENTS", NONE, "a larger head is refused: 16,320 channels"},
    {"cuda/ops/choose.cu", "FOLD_THREADS", VOCAB, NULL},
    {"cuda/ops/topk_row.h", "DF_TOPK_THREADS", VOCAB, NULL},
    {"cuda/persistent/ingest.cu", "MOST_ROWS", ROWS, NULL},
    {"cuda/persistent/ingest.cu", "LAYERS", MATRICES, NULL},
    {"cuda/persistent/program.h", "DC_PARTS", MATRICES, NULL},
    {"cuda/persistent/program.h", "DC_TILE", OUTPUT, NULL},
    {"cuda/persistent/program.h", "DC_ITEM_CHANNELS", HIDDEN, NULL},
    {"cuda/persistent/program.h", "DC_ITEM_CHANNELS", HEAD_DIM, NULL},
    {"cuda/persistent/program.h", "DC_QUERIES", QUERIES, NULL},
    {"cuda/persistent/program.h", "DC_MOST_HEAD", HEAD_DIM, NULL},
    {"cuda/persistent/program.h", "DC_MOST_DYN", KERNELS, NULL},
    {"cuda/persistent/program.h", "DC_MOST_SHARES", SHARES, NULL},
    {"cuda/persistent/program.h", "DC_FAST_RUN", INPUT, "DF_SEGMENT"},
    {"cuda/persistent/program.h", "DC_EXACT_RUN", INPUT, "DF_SEGMENT"},
    {"cuda/persistent/program.h", "DC_MOST_SEGMENTS", NONE,
     "a row of more than 8,192 channels takes the kernels that heads of odd sizes take"},
    {"cuda/persistent/program.h", "DC_MOST_KEY_SEGMENTS", NONE,
     "more take the other kernels; the suite cuda has one key in each of as many segments"},
    {"cuda/persistent/wide_*.cu", "OUTPUTS", OUTPUT, NULL},
    {"cuda/persistent/wide_*.cu", "ROWS", ROWS, NULL},
    {"cuda/persistent/wide_exact.cu", "STEP", INPUT, NULL},
    {"cuda/persistent/wide_fast.cu", "SLICE", NONE,
     "rows that one buffer holds, one after another; a case of 4,097 rows has 3 MiB"},
    {"cuda/ops/matmul_*.cu", "OUTPUTS", OUTPUT, NULL},
    {"cuda/ops/matmul_*.cu", "ROWS", ROWS, NULL},
    {"cuda/persistent/packed.cu", "MOST_GROUPS", NONE,
     "groups of a product of 122,880 inputs; one with more takes the other kernels"},
    {"cuda/persistent/persistent.cu", "TILE_ROWS", ROWS, NULL},
    {"cuda/persistent/persistent.cu", "FEW_ROWS", ROWS, NULL},
    {"cuda/ops/rmsnorm.cu", "SMALL_ROW", HIDDEN, NULL},
    {"config/config_limits.h", "*", NONE, REFUSED},
    {"include/dflash/*.h", "DFLASH_MAX_*", NONE, REFUSED},
    {"draft/pass.c", "MOST_CONTEXT", NONE, REFUSED},
    {"model/draft_load.c", "SMALLEST_HEAD", NONE, REFUSED},
    {"heads/window.c", "*", NONE, REFUSED},
    {"weights/weights_census.c", "*", NONE, "room for the tensors of a family; the suite weights counts them"},
    {"*", "*_BYTES", NONE, FORMAT},
    {"*", "*_NAME_MAX", NONE, FORMAT},
    {"*", "*_TEXT_MAX", NONE, FORMAT},
    {"*", "*SHOWN*", NONE, FORMAT},
    {"*", "HEADER_MAX", NONE, REFUSED},
    {"include/dflash/*.h", "DFLASH_TENSOR_RANK", NONE, FORMAT},
    {"weights/head_find.c", "LIST_TEXT", NONE, FORMAT},
    {"config/config_keys.c", "FIRST_ROPE", NONE, "the number of a bit"},
    {"common/processors.c", "*", NONE, "a set of processors grows to what the system says"},
    {"*", "PATH_SIZE", NONE, REFUSED},
    {"*", "DF_MAX_RANK", NONE, FORMAT},
    {"config/config_lookup.h", "*", NONE, FORMAT},
    {"weights/quant.c", "HALF", NONE, FORMAT},
    {"*", "ALIGNMENT", NONE, ALIGNED},
    {"engine/arena.c", "SMALLEST_BLOCK", NONE, ALIGNED},
    {"weights/weights_place.c", "BOUNDARY", NONE, ALIGNED},
    {"cuda/engine.cu", "CUBLAS_WORKSPACE", NONE, ALIGNED},
    {"engine/engine.c", "*", NONE, MEASURED},
    {"*/probe.*", "*", NONE, MEASURED},
    {"common/pool.c", "SPINS", NONE, "how long a worker looks for work before it sleeps"},
    {"cpu/vec16.h", "V16_OUTPUTS", NONE, LAYOUT},
    {"cpu/matmul.c", "WIDENED_ROW", NONE, LAYOUT},
    {"cpu/matmul.c", "STEPS", NONE, LAYOUT},
    {"cpu/matmul.c", "CHANNELS", NONE, LAYOUT},
    {"cpu/matmul.c", "ROWS", NONE, LAYOUT},
    {"cuda/persistent/attend_fast.cuh", "DC_CONTEXT_ROWS", BLOCK, NULL},
    {"cuda/*", "*THREADS", NONE, LAYOUT},
    {"cuda/*", "*STAGES", NONE, LAYOUT},
    {"cuda/*", "*LANE*", NONE, LAYOUT},
    {"cuda/*", "*QUADS", NONE, LAYOUT},
    {"cuda/*", "*STRIDE", NONE, LAYOUT},
    {"cuda/*", "BATCH", NONE, LAYOUT},
    {"cuda/*", "EACH", NONE, LAYOUT},
    {"cuda/*", "NT", NONE, LAYOUT},
    {"cuda/*", "CHAINS", NONE, LAYOUT},
    {"cuda/*", "STEPS", NONE, LAYOUT},
    {"cuda/*", "*BLOCKS", NONE, LAYOUT},
    {"cuda/persistent/attend_exact.cuh", "*", NONE, LAYOUT},
    {"cuda/persistent/attend_fast.cuh", "DC_SCORE_BITS", NONE, LAYOUT},
    {"cuda/ops/attention.cu", "SIDE", NONE, LAYOUT},
    {"cuda/ops/attention.cu", "LEVELS", NONE, "levels of the tree over the segments of the largest head that is taken"},
    {"cuda/persistent/epilogue_exact.cuh", "PAIR", NONE, LAYOUT},
    {"cuda/persistent/epilogue_exact.cuh", "*", NONE,
     "a counter over segments, larger than any sum that takes it: asserted where it is"},
    {"cuda/persistent/device.cuh", "*", NONE,
     "a counter over segments, larger than any sum that takes it: asserted where it is"},
    {"cuda/persistent/wide_*.cu", "DEPTH", NONE,
     "levels of the tree over the groups of the largest product that is taken"},
    {"cuda/persistent/wide_exact.cu", "HALF", NONE, LAYOUT},
    {"cuda/persistent/wide_fast.cu", "PIECES", NONE, LAYOUT},
    {"cuda/persistent/wide_fast.cu", "TALL", NONE, LAYOUT},
    {"cuda/persistent/wide_fast.cu", "WIDE", NONE, LAYOUT},
    {"cuda/persistent/producer_fast.cuh", "DC_LEAD", NONE, LAYOUT},
    {"cuda/persistent/product_exact.cuh", "DC_EXACT_*", NONE, LAYOUT},
    {"cuda/persistent/product_exact.cuh", "DC_UNROLL", NONE, LAYOUT},
    {"cuda/persistent/product_exact.cuh", "STEP", NONE, LAYOUT},
    {"cuda/persistent/product_exact.cuh", "BYTES", NONE, LAYOUT},
    {"cuda/persistent/product_exact.cuh", "PLANE", NONE, LAYOUT},
    {"cuda/persistent/product_exact.cuh", "BLOCK", NONE, LAYOUT},
    {"cuda/persistent/product_fast.cuh", "DC_FAST_*", NONE, LAYOUT},
    {"cuda/persistent/product_fast.cuh", "DC_FLIGHT", NONE, LAYOUT},
    {"cuda/persistent/program.h", "DC_ARRIVALS", NONE, LAYOUT},
};

/* The constant of that name, anywhere in the sources; 1 without a name. */
static int64_t value_of(const dp_constant_list *list, const char *name) {
    for (int i = 0; name != NULL && i < list->count; i++)
        if (strcmp(list->item[i].name, name) == 0) return list->item[i].value;
    return 1;
}

/* ---- The whole ---- */

typedef struct measured {
    const char *name;
    int64_t value[QUANTITIES];
} measured;

static dflash_status measure_case(const dp_case *item, measured *out, dflash_error *err) {
    char path[PATH_SIZE];
    dflash_config config;
    dp_oracle *oracle = NULL;
    dp_array pos = {.value = NULL};
    int32_t *whole = NULL;
    snprintf(path, sizeof path, "%s/config.json", item->checkpoint);
    dflash_status status = dflash_config_read(path, &config, err);
    if (status == DFLASH_OK) status = dp_oracle_open(item->oracle, &oracle, err);
    if (status == DFLASH_OK) status = dp_oracle_input(oracle, "positions", &pos, err);
    if (status == DFLASH_OK && pos.count <= config.block)
        status = df_fail(err, DFLASH_ERR_REFUSED, "oracle.shape",
                         "%s holds %lld positions, and its block alone has %d. Generate the oracle again.",
                         item->oracle, (long long)pos.count, config.block);
    if (status == DFLASH_OK) {
        whole = malloc((size_t)pos.count * sizeof *whole);
        if (whole == NULL) status = df_fail_memory(err, "the positions", (size_t)pos.count * sizeof *whole);
    }
    if (status == DFLASH_OK) {
        for (int64_t i = 0; i < pos.count; i++) whole[i] = (int32_t)pos.value[i];
        out->name = item->name;
        measure(&config, item->precision, whole, (int)pos.count, out->value);
    }
    free(whole);
    dp_array_release(&pos);
    dp_oracle_close(oracle);
    return status;
}

/* The least and the most of a quantity over the cases that have it. */
static void find_range(quantity which, const measured *cases, int count, dp_range *out) {
    *out = (dp_range){.quantity = quantity_name[which]};
    for (int i = 0; i < count; i++) {
        const int64_t value = cases[i].value[which];
        if (value > 0 && (out->least_of == NULL || value < out->least)) {
            out->least = value;
            out->least_of = cases[i].name;
        }
        if (value > out->most) {
            out->most = value;
            out->most_of = cases[i].name;
        }
    }
}

static void hold(dp_reach *reach, quantity which, const measured *cases, int count) {
    for (int i = 0; i < count; i++) {
        const int64_t value = cases[i].value[which];
        const bool exceeds = value > reach->threshold && value % reach->threshold != 0;
        if (reach->by == NULL) reach->value = exceeds ? value : larger(reach->value, value);
        if (exceeds && reach->by == NULL) reach->by = cases[i].name;
        reach->cases += exceeds;
    }
    reach->quantity = quantity_name[which];
    reach->good = reach->by != NULL;
}

/* Adds the lines of one constant to the result, which has room for them. */
static void add_constant(const dp_source_constant *constant, const dp_constant_list *all, const measured *cases,
                         int count, dp_coverage *out) {
    const int before = out->count;
    for (size_t i = 0; i < sizeof rules / sizeof *rules && out->count < before + MOST_LINES; i++) {
        const rule *r = &rules[i];
        if (!dp_glob(r->file, constant->file) || !dp_glob(r->name, constant->name)) continue;
        if (r->quantity == NONE && out->count > before) return;
        dp_reach *reach = &out->reach[out->count++];
        *reach = (dp_reach){.constant = constant, .reason = r->text, .good = true};
        if (r->quantity == NONE) return;
        reach->reason = NULL;
        reach->threshold = constant->value * value_of(all, r->text);
        hold(reach, r->quantity, cases, count);
        out->failed += !reach->good;
    }
    if (out->count > before) return;
    out->reach[out->count++] = (dp_reach){.constant = constant};
    out->failed++;
}

dflash_status dp_coverage_measure(const dp_constant_list *constants, const dp_case_list *list, dp_coverage *out,
                                  dflash_error *err) {
    const size_t room = MOST_LINES * (size_t)constants->count + 1;
    measured *cases = calloc((size_t)list->count + 1, sizeof *cases);
    *out = (dp_coverage){.reach = calloc(room, sizeof *out->reach)};
    dflash_status status = cases != NULL && out->reach != NULL
                               ? DFLASH_OK
                               : df_fail_memory(err, "the coverage of constants", room * sizeof *out->reach);
    for (int i = 0; status == DFLASH_OK && i < list->count; i++)
        if (list->item[i].stored) status = measure_case(&list->item[i], &cases[out->cases++], err);
    for (int i = 0; status == DFLASH_OK && i < constants->count; i++)
        if (constants->item[i].value > 1) /* a step of one is crossed by everything */
            add_constant(&constants->item[i], constants, cases, out->cases, out);
    for (int i = 0; status == DFLASH_OK && i < DP_RANGES; i++)
        find_range((quantity)(i + 1), cases, out->cases, &out->range[i]);
    free(cases);
    return status;
}

void dp_coverage_release(dp_coverage *coverage) {
    free(coverage->reach);
    *coverage = (dp_coverage){.reach = NULL};
}
