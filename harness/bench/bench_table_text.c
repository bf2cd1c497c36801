/* bench_table_text.c - the table of bench_table.h as aligned text, as Markdown and as JSON. */
#include "bench/bench_table.h"

#include "base/environment.h"

#include <string.h>

enum { COLUMNS = 11, CELL = 160, LINES = DP_TABLE_GEOMETRIES * (DP_TABLE_ROWS + 3) };

static const char *const headings[COLUMNS] = {"geometry", "what",     "layers GB", "limit ms",  "round ms", "share",
                                              "of first", "fc+kv GB", "limit ms",  "ingest ms", "share"};

/* What a line shows before it is text; a time without a probed bandwidth is not shown. */
typedef struct line {
    const char *geometry, *numeric_class, *precision; /* the last two are NULL for PyTorch, which has */
    const char *mode;
    double layer_bytes, round, first, ingest_bytes, ingest, bandwidth;
} line;

static double pytorch_bytes(const dp_table_geometry *g) {
    for (int r = 0; r < g->rows; r++)
        if (g->row[r].precision == DFLASH_PRECISION_BF16) return g->row[r].layer_bytes;
    return 0.0;
}

static int list_lines(const dp_table *t, line out[LINES]) {
    int n = 0;
    for (int i = 0; i < t->count; i++) {
        const dp_table_geometry *g = &t->geometry[i];
        const double first = g->rows > 0 ? g->row[0].round : 0.0, bandwidth = g->machine.bytes_per_second;
        for (int r = 0; r < g->rows; r++)
            out[n++] = (line){.geometry = g->name,
                              .numeric_class = dflash_class_name(g->row[r].numeric_class),
                              .precision = dflash_precision_name(g->row[r].precision),
                              .layer_bytes = g->row[r].layer_bytes,
                              .round = g->row[r].round,
                              .first = first,
                              .ingest_bytes = g->row[r].ingest_bytes,
                              .ingest = g->row[r].ingest,
                              .bandwidth = bandwidth};
        const struct {
            const char *mode;
            double seconds;
        } torch[] = {{"PyTorch eager, bf16", g->torch.eager},
                     {"PyTorch CUDA graph, bf16", g->torch.graph},
                     {"PyTorch compiled + graph, bf16", g->torch.compiled}};
        for (size_t k = 0; g->with_torch && k < sizeof torch / sizeof *torch; k++)
            if (torch[k].seconds > 0.0)
                out[n++] = (line){.geometry = g->name,
                                  .mode = torch[k].mode,
                                  .layer_bytes = pytorch_bytes(g),
                                  .round = torch[k].seconds,
                                  .first = first,
                                  .bandwidth = bandwidth};
    }
    return n;
}

static void put_number(char cell[CELL], double value, int digits, const char *unit, bool known) {
    if (known)
        snprintf(cell, CELL, "%.*f%s", digits, value, unit);
    else
        snprintf(cell, CELL, "-");
}

/* Bytes, the seconds that they take, those taken, and the share. */
static void put_time(char (*cell)[CELL], double bytes, double seconds, double bandwidth, char *share) {
    const bool limited = bytes > 0.0 && bandwidth > 0.0, timed = seconds > 0.0 && bandwidth > 0.0;
    put_number(cell[0], 1e-9 * bytes, 3, "", bytes > 0.0);
    put_number(cell[1], 1e3 * bytes / bandwidth, 3, "", limited);
    put_number(cell[2], 1e3 * seconds, 3, "", timed);
    put_number(share, 100.0 * bytes / bandwidth / seconds, 1, " %", limited && timed);
}

static void put_line(const line *l, char cell[COLUMNS][CELL]) {
    snprintf(cell[0], CELL, "%s", l->geometry);
    if (l->mode != NULL)
        snprintf(cell[1], CELL, "%s", l->mode);
    else
        snprintf(cell[1], CELL, "%s, %s", l->numeric_class, l->precision);
    put_time(&cell[2], l->layer_bytes, l->round, l->bandwidth, cell[5]);
    put_number(cell[6], l->round / l->first, 2, " x", l->first > 0.0 && l->round > 0.0 && l->bandwidth > 0.0);
    put_time(&cell[7], l->ingest_bytes, l->ingest, l->bandwidth, cell[10]);
}

static bool is_text(int column) { return column < 2; }

static void print_row(char cell[COLUMNS][CELL], const int width[COLUMNS], bool markdown, FILE *to) {
    for (int c = 0; c < COLUMNS; c++) {
        if (markdown)
            fprintf(to, c == 0 ? "| %s |" : " %s |", cell[c]);
        else
            fprintf(to, is_text(c) ? "%-*s" : "%*s", width[c], cell[c]);
        if (!markdown && c + 1 < COLUMNS) fputs("  ", to);
    }
    fputc('\n', to);
}

static void print_notes(const dp_table *t, FILE *to) {
    if (t->device.device[0] != '\0')
        fprintf(to, "%s, driver for CUDA %s, built with %s; ", t->device.device, t->device.driver, t->device.runtime);
    fprintf(to,
            "medians of %ld turns, one row after the other; %ld context rows, ingestion of %d rows with fc; a limit is "
            "bytes over the read bandwidth probed in this run, and does not count the cache.\n",
            t->repeat, t->context, DP_TABLE_NEW_ROWS);
    for (int i = 0; i < t->count; i++) {
        const dp_table_geometry *g = &t->geometry[i];
        fprintf(to, "%s: block %d, ", g->name, g->block);
        if (g->machine.bytes_per_second > 0.0)
            fprintf(to, "%.0f GB/s read", 1e-9 * g->machine.bytes_per_second);
        else
            fputs("read bandwidth not probed, so no times are shown", to);
        if (!g->with_torch)
            fputs("; PyTorch left out by -k", to);
        else if (t->python == NULL)
            fputs("; PyTorch not timed: no --torch PYTHON was given", to);
        else if (g->torch.version[0] == '\0')
            fprintf(to, "; PyTorch %s", g->torch.why);
        else
            fprintf(to, "; PyTorch %s, plain modules of the same layers, for times alone%s%s", g->torch.version,
                    g->torch.why[0] != '\0' ? "; " : "", g->torch.why);
        fputc('\n', to);
    }
}

void dp_table_print(const dp_table *t, bool markdown, FILE *to) {
    line lines[LINES];
    char cell[COLUMNS][CELL];
    int width[COLUMNS];
    const int count = list_lines(t, lines);
    for (int c = 0; c < COLUMNS; c++) width[c] = (int)strlen(headings[c]);
    for (int i = 0; i < count; i++) {
        put_line(&lines[i], cell);
        for (int c = 0; c < COLUMNS; c++)
            if ((int)strlen(cell[c]) > width[c]) width[c] = (int)strlen(cell[c]);
    }
    for (int c = 0; c < COLUMNS; c++) snprintf(cell[c], CELL, "%s", headings[c]);
    print_row(cell, width, markdown, to);
    for (int c = 0; markdown && c < COLUMNS; c++) snprintf(cell[c], CELL, "%s", is_text(c) ? "---" : "---:");
    if (markdown) print_row(cell, width, markdown, to);
    for (int i = 0; i < count; i++) {
        put_line(&lines[i], cell);
        print_row(cell, width, markdown, to);
    }
    fputc('\n', to);
    print_notes(t, to);
}

/* Milliseconds, or null for a time that there is not. */
static void add_time(cJSON *object, const char *key, double seconds, double bandwidth) {
    if (seconds > 0.0 && bandwidth > 0.0)
        cJSON_AddNumberToObject(object, key, 1e3 * seconds);
    else
        cJSON_AddNullToObject(object, key);
}

static void add_rows(cJSON *object, const dp_table_geometry *g, double bandwidth) {
    cJSON *rows = cJSON_AddArrayToObject(object, "rows");
    for (int r = 0; r < g->rows; r++) {
        const dp_table_row *row = &g->row[r];
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "class", dflash_class_name(row->numeric_class));
        cJSON_AddStringToObject(item, "precision", dflash_precision_name(row->precision));
        cJSON_AddNumberToObject(item, "layer_bytes", row->layer_bytes);
        cJSON_AddNumberToObject(item, "cache_bytes", row->cache_bytes);
        add_time(item, "round_limit_ms", bandwidth > 0.0 ? row->layer_bytes / bandwidth : 0.0, bandwidth);
        add_time(item, "round_ms", row->round, bandwidth);
        cJSON_AddNumberToObject(item, "ingest_bytes", row->ingest_bytes);
        add_time(item, "ingest_limit_ms", bandwidth > 0.0 ? row->ingest_bytes / bandwidth : 0.0, bandwidth);
        add_time(item, "ingest_ms", row->ingest, bandwidth);
        cJSON_AddItemToArray(rows, item);
    }
}

static void add_torch(cJSON *object, const dp_table *t, const dp_table_geometry *g, double bandwidth) {
    cJSON *torch = cJSON_AddObjectToObject(object, "pytorch");
    cJSON_AddStringToObject(torch, "version", g->torch.version);
    cJSON_AddStringToObject(torch, "model", "plain modules of the same layers, bf16, for times alone");
    add_time(torch, "eager_ms", g->torch.eager, bandwidth);
    add_time(torch, "graph_ms", g->torch.graph, bandwidth);
    add_time(torch, "compiled_graph_ms", g->torch.compiled, bandwidth);
    cJSON_AddStringToObject(torch, "why",
                            !g->with_torch      ? "left out by -k"
                            : t->python == NULL ? "not timed: no --torch PYTHON was given"
                                                : g->torch.why);
}

cJSON *dp_table_json(const dp_table *t, const char *command) {
    cJSON *json = cJSON_CreateObject();
    if (json == NULL) return NULL;
    cJSON_AddStringToObject(json, "schema", "dflash-parity-bench-table");
    cJSON_AddStringToObject(json, "command", command);
    cJSON_AddNumberToObject(json, "context_rows", (double)t->context);
    cJSON_AddNumberToObject(json, "new_rows", DP_TABLE_NEW_ROWS);
    cJSON_AddNumberToObject(json, "repeat", (double)t->repeat);
    cJSON_AddNumberToObject(json, "threads", t->threads);
    cJSON_AddStringToObject(json, "backend", dflash_backend_name(t->backend));
    if (t->device.device[0] != '\0') {
        cJSON_AddStringToObject(json, "device", t->device.device);
        cJSON_AddStringToObject(json, "driver", t->device.driver);
        cJSON_AddStringToObject(json, "runtime", t->device.runtime);
    }
    cJSON *list = cJSON_AddArrayToObject(json, "geometries");
    for (int i = 0; i < t->count; i++) {
        const dp_table_geometry *g = &t->geometry[i];
        const double bandwidth = g->machine.bytes_per_second;
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "name", g->name);
        cJSON_AddNumberToObject(item, "block_rows", g->block);
        if (bandwidth > 0.0)
            cJSON_AddNumberToObject(item, "read_bytes_per_second", bandwidth);
        else
            cJSON_AddNullToObject(item, "read_bytes_per_second");
        add_rows(item, g, bandwidth);
        add_torch(item, t, g, bandwidth);
        cJSON_AddItemToArray(list, item);
    }
    cJSON_AddItemToObject(json, "environment", dp_environment());
    return json;
}
