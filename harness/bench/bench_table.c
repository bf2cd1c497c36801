/* bench_table.c - see bench_table.h. */
#include "bench/bench_table.h"

#include "store/cases.h"
#include "base/cli.h"
#include "common/error.h"
#include "base/progress.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WARM_UP = 10 /* rounds that do not count: matrices are packed, clocks rise */ };

/* ---- The list of rows ---- */

static const dp_table_row on_device[] = {{.numeric_class = DFLASH_CLASS_FAST, .precision = DFLASH_PRECISION_BF16},
                                         {.numeric_class = DFLASH_CLASS_EXACT, .precision = DFLASH_PRECISION_BF16},
                                         {.numeric_class = DFLASH_CLASS_EXACT, .precision = DFLASH_PRECISION_F32},
                                         {.numeric_class = DFLASH_CLASS_FAST, .precision = DFLASH_PRECISION_Q8_0}};
static const dp_table_row on_host[] = {{.numeric_class = DFLASH_CLASS_EXACT, .precision = DFLASH_PRECISION_BF16},
                                       {.numeric_class = DFLASH_CLASS_EXACT, .precision = DFLASH_PRECISION_F32},
                                       {.numeric_class = DFLASH_CLASS_EXACT, .precision = DFLASH_PRECISION_Q8_0}};

static dflash_status refuse_path(const char *name, dflash_error *err) {
    return df_fail(err, DFLASH_ERR_REFUSED, "path.long",
                   "The path of the geometry %.60s... is longer than %d characters. Choose shorter folders.", name,
                   DP_TABLE_PATH - 1);
}

dflash_status dp_table_checkpoint(const dp_table *t, const char *name, char path[DP_TABLE_PATH], dflash_error *err) {
    return snprintf(path, DP_TABLE_PATH, "%s/%s", t->checkpoints, name) < DP_TABLE_PATH ? DFLASH_OK
                                                                                        : refuse_path(name, err);
}

static dflash_status config_of(const dp_table *t, const char *name, char path[DP_TABLE_PATH], dflash_error *err) {
    return snprintf(path, DP_TABLE_PATH, "%s/%s/config.json", t->configs, name) < DP_TABLE_PATH
               ? DFLASH_OK
               : refuse_path(name, err);
}

static dflash_status refuse_geometry(const char *name, const char *why, dflash_error *err) {
    return df_fail(err, DFLASH_ERR_REFUSED, "table.geometry",
                   "The geometry '%.100s' cannot be measured: %s. Expected up to %d different folders of "
                   "fixtures/configs (or of --configs), each with a config.json.",
                   name, why, DP_TABLE_GEOMETRIES);
}

dflash_status dp_table_add(dp_table *t, const char *name, dflash_error *err) {
    char path[DP_TABLE_PATH];
    if (t->count == DP_TABLE_GEOMETRIES) return refuse_geometry(name, "there are too many", err);
    if (name[0] == '\0' || strchr(name, '/') != NULL) return refuse_geometry(name, "it is no folder's name", err);
    if (strlen(name) > DP_TABLE_NAME - 32) return refuse_geometry(name, "its name is too long", err);
    for (int i = 0; i < t->count; i++)
        if (strcmp(t->geometry[i].name, name) == 0) return refuse_geometry(name, "it is given twice", err);
    TRY(config_of(t, name, path, err));
    if (access(path, R_OK) != 0) return refuse_geometry(name, "it has no config.json", err);
    dflash_config *config = malloc(sizeof *config);
    if (config == NULL) return df_fail_memory(err, "a config", sizeof *config);
    const dflash_status status = dflash_config_read(path, config, err);
    const int block = config->block;
    free(config);
    if (status != DFLASH_OK) return status;
    dp_table_geometry *g = &t->geometry[t->count++];
    *g = (dp_table_geometry){.name = name, .block = block, .with_torch = true};
    const bool device = t->backend == DFLASH_BACKEND_CUDA;
    g->rows = (int)(device ? sizeof on_device / sizeof *on_device : sizeof on_host / sizeof *on_host);
    memcpy(g->row, device ? on_device : on_host, (size_t)g->rows * sizeof *g->row);
    return DFLASH_OK;
}

const char *dp_table_row_name(const dp_table_geometry *g, int row, char text[DP_TABLE_NAME]) {
    if (row < 0)
        snprintf(text, DP_TABLE_NAME, "%s/pytorch", g->name);
    else
        snprintf(text, DP_TABLE_NAME, "%s/%s/%s", g->name, dflash_class_name(g->row[row].numeric_class),
                 dflash_precision_name(g->row[row].precision));
    return text;
}

int dp_table_filter(dp_table *t, const char *glob) {
    char name[DP_TABLE_NAME];
    int geometries = 0, left = 0;
    for (int i = 0; i < t->count; i++) {
        dp_table_geometry g = t->geometry[i];
        int rows = 0;
        for (int r = 0; r < g.rows; r++)
            if (dp_glob(glob, dp_table_row_name(&t->geometry[i], r, name))) g.row[rows++] = g.row[r];
        g.rows = rows;
        g.with_torch = dp_glob(glob, dp_table_row_name(&g, -1, name));
        if (rows == 0 && !g.with_torch) continue;
        left += rows + g.with_torch;
        t->geometry[geometries++] = g;
    }
    t->count = geometries;
    return left;
}

/* ---- The checkpoint ---- */

/* A geometry that is a case keeps the case's recipe, so that the gate finds what it needs; another has this one. */
static dflash_status prepare_checkpoint(const dp_table *t, const char *name, int threads, dflash_error *err) {
    char config[DP_TABLE_PATH], checkpoint[DP_TABLE_PATH];
    dp_case_list list;
    TRY(config_of(t, name, config, err));
    TRY(dp_table_checkpoint(t, name, checkpoint, err));
    TRY(dp_cases_read(t->cases, &list, err));
    dp_case item = {.name = name,
                    .checkpoint = checkpoint,
                    .synth_config = config,
                    .synth = {.seed = 1, .dtype = DF_BF16, .profile = DP_SYNTH_UNIT}};
    for (int i = 0; i < list.count; i++)
        if (strcmp(list.item[i].checkpoint, checkpoint) == 0) item = list.item[i];
    item.synth.threads = threads < DP_SYNTH_MAX_THREADS ? threads : DP_SYNTH_MAX_THREADS;
    const dflash_status status = dp_case_prepare(&item, err);
    dp_cases_release(&list);
    return status;
}

/* ---- Measuring ---- */

/* One row while it is measured. */
typedef struct subject {
    dp_bench_session session;
    float *taps; /* engine memory: [4, T * H] */
    double round[DP_BENCH_MOST_REPEATS], ingest[DP_BENCH_MOST_REPEATS];
} subject;

static dflash_status open_engine(const dp_table *t, dflash_class numeric_class, dflash_engine **out,
                                 dflash_error *err) {
    const dflash_engine_options options = {.backend = t->backend,
                                           .numeric_class = numeric_class,
                                           .threads = t->threads,
                                           .isa = t->isa,
                                           .device = t->device_asked};
    return dflash_engine_create(&options, out, err);
}

static bool in_ingestion(const char *tensor) {
    return strncmp(tensor, "fc.", 3) == 0 || strcmp(tensor, "hidden_norm.weight") == 0 ||
           strstr(tensor, ".self_attn.k_") != NULL || strstr(tensor, ".self_attn.v_") != NULL;
}

static void count_bytes(const dp_table *t, const dflash_draft *draft, dp_table_row *row) {
    const dflash_config *c = dflash_draft_config(draft);
    row->layer_bytes = dp_bench_bytes(draft, dp_bench_in_layers);
    row->ingest_bytes = dp_bench_bytes(draft, in_ingestion);
    row->cache_bytes = 2.0 * sizeof(float) * c->n_layers * (double)t->context * ((double)c->n_kv_heads * c->head_dim);
}

/* Loads the row's draft, and ingests the context. */
static dflash_status open_subject(const dp_table *t, const dp_table_geometry *g, dp_table_row *row, subject *u,
                                  dflash_error *err) {
    char checkpoint[DP_TABLE_PATH];
    dp_bench_session *s = &u->session;
    TRY(dp_table_checkpoint(t, g->name, checkpoint, err));
    TRY(open_engine(t, row->numeric_class, &s->engine, err));
    TRY(dflash_draft_load_as(s->engine, checkpoint, row->precision, &s->draft, err));
    TRY(dp_bench_inputs(s, t->context, DP_TABLE_NEW_ROWS, err));
    const dflash_config *c = dflash_draft_config(s->draft);
    TRY(dp_bench_values(s->engine, (size_t)DP_TABLE_NEW_ROWS * (size_t)c->n_taps * (size_t)c->hidden, &u->taps, err));
    TRY(dflash_ingest_ctx(s->draft, s->kv, s->features, s->pos, (int)t->context, err));
    count_bytes(t, s->draft, row);
    return dflash_engine_finish(s->engine, err);
}

static void close_subject(subject *u) {
    if (u->session.engine != NULL) dflash_engine_free(u->session.engine, u->taps);
    dp_bench_close(&u->session);
}

/* One round and one ingestion, which is taken back. */
static dflash_status take_turn(const dp_table *t, subject *u, double *round, double *ingested, dflash_error *err) {
    dp_bench_session *s = &u->session;
    dflash_status status;
    DP_BENCH_TIMED(s->engine, round, dflash_forward_round(s->draft, s->kv, s->noise, s->pos + t->context, s->out, err));
    if (status == DFLASH_OK)
        DP_BENCH_TIMED(s->engine, ingested,
                       dflash_ingest_taps(s->draft, s->kv, u->taps, s->pos + t->context, DP_TABLE_NEW_ROWS, err));
    return status == DFLASH_OK ? dflash_kv_truncate(s->kv, (int)t->context, err) : status;
}

/* How far the whole table is, in turns of all rows. */
typedef struct watch {
    dp_progress line;
    double turns;
} watch;

static dflash_status measure_rows(const dp_table *t, dp_table_geometry *g, subject *u, watch *seen, dflash_error *err) {
    double unused;
    for (int r = 0; r < g->rows; r++) {
        dp_progress_update(&seen->line, seen->turns, g->name);
        TRY(open_subject(t, g, &g->row[r], &u[r], err));
    }
    for (long i = -WARM_UP; i < t->repeat; i++) {
        for (int r = 0; r < g->rows; r++)
            TRY(take_turn(t, &u[r], i < 0 ? &unused : &u[r].round[i], i < 0 ? &unused : &u[r].ingest[i], err));
        dp_progress_update(&seen->line, ++seen->turns, g->name);
    }
    for (int r = 0; r < g->rows; r++) {
        g->row[r].round = dp_bench_median(u[r].round, t->repeat);
        g->row[r].ingest = dp_bench_median(u[r].ingest, t->repeat);
    }
    return DFLASH_OK;
}

static dflash_status measure_geometry(const dp_table *t, dp_table_geometry *g, watch *seen, dflash_error *err) {
    dflash_engine *engine = NULL;
    subject *subjects = calloc(DP_TABLE_ROWS, sizeof *subjects);
    if (subjects == NULL) return df_fail_memory(err, "the figures", DP_TABLE_ROWS * sizeof *subjects);
    dflash_status status = prepare_checkpoint(t, g->name, t->threads, err);
    if (status == DFLASH_OK) status = open_engine(t, DFLASH_CLASS_EXACT, &engine, err);
    if (status == DFLASH_OK) status = dflash_engine_probe(engine, &g->machine, err);
    dflash_engine_destroy(engine);
    if (status == DFLASH_OK) status = measure_rows(t, g, subjects, seen, err);
    for (int r = 0; r < DP_TABLE_ROWS; r++) close_subject(&subjects[r]);
    free(subjects);
    return status;
}

dflash_status dp_table_measure(dp_table *t, dflash_error *err) {
    dflash_engine *engine = NULL;
    TRY(open_engine(t, DFLASH_CLASS_EXACT, &engine, err));
    t->threads = dflash_engine_threads(engine);
    dflash_engine_describe(engine, &t->device);
    dflash_engine_destroy(engine);
    dflash_status status = DFLASH_OK;
    watch seen = {.turns = 0.0};
    dp_progress_begin(&seen.line, "measuring", "turns", (double)t->count * (double)(WARM_UP + t->repeat));
    for (int i = 0; status == DFLASH_OK && i < t->count; i++) status = measure_geometry(t, &t->geometry[i], &seen, err);
    dp_progress_end(&seen.line);
    return status;
}
