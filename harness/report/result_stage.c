/* result_stage.c - stages, variants and layers of a result file, read back. */
#include "report/result_file.h"

#include "base/coordinates.h"
#include "base/json_number.h"
#include "store/sketch.h"
#include "store/stage_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LAYERS = DFLASH_MAX_LAYERS };
static const int64_t MOST = INT64_C(1) << 53;

static void copy(char *to, size_t size, const char *from) { snprintf(to, size, "%s", from); }

static void read_shape(dp_json_reader *reader, const cJSON *object, dp_stage_result *stage) {
    int rank = -1;
    int64_t *dim = dp_read_integers(reader, object, "shape", &rank);
    double total = 1.0;
    for (int i = 0; dim != NULL && i < rank; i++) total *= (double)dim[i];
    if (dim == NULL || rank > 4 || total < 1.0 || total > (double)MOST)
        dp_read_wrong(reader, "shape", "an array of 1 to 4 extents above 0");
    else
        memcpy(stage->dim, dim, (size_t)rank * sizeof *dim);
    stage->rank = reader->status == DFLASH_OK ? rank : 0;
    free(dim);
}

static const cJSON *read_worst(dp_json_reader *reader, const cJSON *object, const dp_stage_result *stage,
                               int64_t *index, double *got, double *want) {
    const cJSON *worst = dp_read_object_or_null(reader, object, "worst");
    int rank = stage->rank;
    *index = -1;
    if (worst == NULL) return NULL;
    int64_t *at = dp_read_integers(reader, worst, "at", &rank), place[4];
    *index = dp_read_integer(reader, worst, "index", 0, dp_dims_product(stage->rank, stage->dim) - 1);
    if (reader->status == DFLASH_OK) {
        dp_coordinates(stage->rank, stage->dim, *index, place);
        if (at == NULL || memcmp(at, place, (size_t)stage->rank * sizeof *at) != 0)
            dp_read_wrong(reader, "at", "the coordinates of \"index\"");
    }
    free(at);
    *got = dp_read_number(reader, worst, "got");
    *want = dp_read_number(reader, worst, "want");
    return worst;
}

static void read_difference(dp_json_reader *reader, const cJSON *stage_object, const char *key,
                            const dp_stage_result *stage, dp_difference *d) {
    const cJSON *object = dp_read_object(reader, stage_object, key);
    d->count = dp_read_integer(reader, object, "compared", 0, MOST);
    d->mismatches = dp_read_integer(reader, object, "mismatches", 0, d->count);
    d->nan = dp_read_integer(reader, object, "nan", 0, d->count);
    d->inf = dp_read_integer(reader, object, "inf", 0, d->count - d->nan);
    d->nonfinite = d->nan + d->inf;
    d->sign_flips = dp_read_integer(reader, object, "sign_flips", 0, d->count);
    d->l2_rel = dp_read_number(reader, object, "rel_l2");
    d->max_rel = dp_read_number(reader, object, "max_rel_rms");
    d->max_abs = dp_read_number(reader, object, "max_abs");
    d->cosine = dp_read_number(reader, object, "cosine");
    d->ulp_median = dp_read_number(reader, object, "ulp_median");
    d->ulp_p99 = dp_read_number(reader, object, "ulp_p99");
    d->ulp_max = dp_read_number(reader, object, "ulp_max");
    d->largest_in_row = dp_read_number(reader, object, "largest_in_row");
    read_worst(reader, object, stage, &d->worst, &d->worst_got, &d->worst_want);
}

static void read_limit(dp_json_reader *reader, const cJSON *object, dp_stage_result *stage) {
    const cJSON *limit = dp_read_object_or_null(reader, object, "bar");
    if ((limit == NULL) != stage->exact) dp_read_wrong(reader, "bar", "an object, or null for an exact stage");
    if (limit == NULL) return;
    stage->limit.l2_rel = dp_read_number(reader, limit, "rel_l2");
    stage->limit.max_rel = dp_read_number(reader, limit, "max_rel_rms");
    stage->limit.reference_spread_l2_rel = dp_read_number(reader, limit, "bracket_rel_l2");
    stage->limit.reference_spread_max_rel = dp_read_number(reader, limit, "bracket_max_rel_rms");
    copy(stage->limit.origin, sizeof stage->limit.origin, dp_read_text(reader, limit, "origin"));
}

/* Not there in what earlier releases wrote, which saw samples alone. */
static void read_sketch(dp_json_reader *reader, const cJSON *object, dp_sketch_result *r) {
    if (cJSON_GetObjectItemCaseSensitive(object, "sketch") == NULL) return;
    const cJSON *sketch = dp_read_object_or_null(reader, object, "sketch");
    if (sketch == NULL) return;
    r->judged = true;
    r->pass = dp_read_bool(reader, sketch, "pass");
    r->rows = dp_read_integer(reader, sketch, "rows", 1, MOST);
    r->projections = (int)dp_read_integer(reader, sketch, "projections", 1, DP_SKETCH_PROJECTIONS_MOST);
    r->nonfinite = dp_read_integer(reader, sketch, "nonfinite", 0, MOST);
    r->l2_rel = dp_read_number(reader, sketch, "rel_l2");
    r->l2_limit = dp_read_number(reader, sketch, "rel_l2_bar");
    r->max_rel = dp_read_number(reader, sketch, "max_rel_norm");
    r->max_limit = dp_read_number(reader, sketch, "max_rel_norm_bar");
    r->row = dp_read_integer(reader, sketch, "row", 0, r->rows - 1);
    r->projection = (int)dp_read_integer(reader, sketch, "projection", 0, r->projections);
    r->got = dp_read_number(reader, sketch, "got");
    r->want = dp_read_number(reader, sketch, "want");
}

static void read_isolated(dp_json_reader *reader, const cJSON *object, dp_stage_result *stage) {
    dp_isolated *const alone = &stage->isolated;
    const cJSON *isolated = dp_read_object_or_null(reader, object, "isolated");
    alone->worst = -1;
    if (isolated == NULL) return;
    alone->judged = true;
    alone->pass = dp_read_bool(reader, isolated, "pass");
    alone->fed = dp_read_bool(reader, isolated, "fed");
    if (cJSON_GetObjectItemCaseSensitive(isolated, "fed_values") != NULL)
        alone->fed_count = dp_read_integer(reader, isolated, "fed_values", 0, MOST);
    alone->share = dp_read_number(reader, isolated, "share");
    const cJSON *worst = read_worst(reader, isolated, stage, &alone->worst, &alone->worst_got, &alone->worst_want);
    if (worst != NULL) alone->worst_bound = dp_read_number(reader, worst, "bound");
    alone->tightness = dp_read_number(reader, isolated, "tightness");
    alone->noise = dp_read_number(reader, isolated, "noise");
    alone->noise_limit = dp_read_number(reader, isolated, "noise_bar");
    alone->peak = dp_read_number(reader, isolated, "peak");
    alone->peak_limit = dp_read_number(reader, isolated, "peak_bar");
    alone->oracle_share = dp_read_number_or_null(reader, isolated, "oracle_share", -1.0);
    copy(alone->bound, sizeof alone->bound, dp_read_text(reader, isolated, "bound"));
    read_difference(reader, isolated, "difference", stage, &alone->difference);
}

static void read_rows(dp_json_reader *reader, const cJSON *object, dp_stage_plot *plot) {
    const cJSON *rows = dp_read_array_or_null(reader, object, "rows"), *item;
    int at = 0, bins = DP_ULP_BINS;
    plot->row_group = dp_read_integer(reader, object, "row_group", 1, MOST);
    if (rows == NULL) return;
    plot->rows = cJSON_GetArraySize(rows);
    if (plot->rows == 0 || plot->rows > DP_ROWS_MOST) dp_read_wrong(reader, "rows", "an array of 1 to 256 numbers");
    plot->row = calloc((size_t)plot->rows + 1, sizeof *plot->row);
    if (plot->row == NULL) {
        dp_read_wrong(reader, "rows", "small enough for the memory there is");
        plot->rows = 0;
        return;
    }
    cJSON_ArrayForEach(item, rows) {
        plot->row[at] = -1.0;
        if (!cJSON_IsNull(item) && !dp_json_read_number(item, &plot->row[at]))
            dp_read_wrong(reader, "rows", "an array of numbers and null");
        at++;
    }
    int64_t *ulp = dp_read_integers(reader, object, "ulp", &bins);
    if (ulp != NULL) memcpy(plot->ulp, ulp, sizeof plot->ulp);
    free(ulp);
}

void dp_read_stage(dp_json_reader *reader, const cJSON *object, dp_stage_result *stage, dp_stage_plot *plot) {
    dflash_stage id;
    int layer;
    const char *name = dp_read_text(reader, object, "name");
    if (!dflash_stage_parse(name, &id, &layer)) {
        if (strchr(name, '/') == NULL) dp_read_wrong(reader, "name", "the name of a stage, or of a value of vectors");
        layer = -1;
    }
    copy(stage->name, sizeof stage->name, name);
    if (dp_read_number_or_null(reader, object, "layer", -1.0) != layer)
        dp_read_wrong(reader, "layer", "that of the name, null outside the layers");
    read_shape(reader, object, stage);
    stage->exact = dp_read_bool(reader, object, "exact");
    stage->pass = dp_read_bool(reader, object, "pass");
    stage->warn = dp_read_bool(reader, object, "warn");
    read_difference(reader, object, "chained", stage, &stage->difference);
    read_limit(reader, object, stage);
    stage->headroom = dp_read_number(reader, object, "headroom");
    read_sketch(reader, object, &stage->sketch);
    read_isolated(reader, object, stage);
    const cJSON *share = dp_read_object_or_null(reader, object, "share");
    stage->share.known = share != NULL;
    if (share != NULL) {
        stage->share.added = dp_read_number(reader, share, "added");
        stage->share.inherited = dp_read_number(reader, share, "inherited");
    }
    read_rows(reader, object, plot);
}

static uint32_t read_bits(dp_json_reader *reader, const cJSON *object, const char *key) {
    unsigned long bits;
    char *end = NULL;
    const char *text = dp_read_text(reader, object, key);
    const bool shaped = strlen(text) == 10 && strncmp(text, "0x", 2) == 0;
    bits = shaped ? strtoul(text, &end, 16) : 0;
    if (!shaped || *end != '\0') dp_read_wrong(reader, key, "0x and eight hexadecimal digits");
    return (uint32_t)bits;
}

void dp_read_variant(dp_json_reader *reader, const cJSON *object, dp_variant_result *variant) {
    copy(variant->name, sizeof variant->name, dp_read_text(reader, object, "name"));
    variant->chunk = (int)dp_read_integer(reader, object, "rows_per_ingest", 0, INT32_MAX);
    variant->compared = dp_read_integer(reader, object, "compared", 0, MOST);
    variant->identical = dp_read_bool(reader, object, "identical");
    variant->nonfinite = dp_read_bool(reader, object, "nonfinite");
    const cJSON *first = dp_read_object_or_null(reader, object, "first_difference");
    if ((first == NULL) != variant->identical)
        dp_read_wrong(reader, "first_difference", "there unless the variant is identical");
    if (first == NULL) return;
    copy(variant->stage, sizeof variant->stage, dp_read_text(reader, first, "stage"));
    variant->index = dp_read_integer(reader, first, "index", -1, MOST);
    variant->block_bits = read_bits(reader, first, "block");
    variant->round_bits = read_bits(reader, first, "round");
}

void dp_read_growth(dp_json_reader *reader, const cJSON *object, dp_layer_growth *layer) {
    layer->layer = (int)dp_read_integer(reader, object, "layer", 0, MOST_LAYERS - 1);
    layer->in = dp_read_number(reader, object, "in");
    layer->out = dp_read_number(reader, object, "out");
    layer->factor = dp_read_number(reader, object, "factor");
    copy(layer->source, sizeof layer->source, dp_read_text(reader, object, "source"));
    layer->source_share = dp_read_number(reader, object, "source_share");
}
