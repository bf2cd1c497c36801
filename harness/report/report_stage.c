/* report_stage.c - one stage and one variant of a result file. */
#include "report/report.h"

#include "base/json_out.h"

static void add_count(cJSON *object, const char *key, int64_t value) {
    cJSON_AddNumberToObject(object, key, (double)value);
}

/* null when there is no such element. Returns the object. */
static cJSON *add_worst(cJSON *object, const dp_stage_result *stage, int64_t index, double got, double want) {
    if (index < 0) {
        cJSON_AddNullToObject(object, "worst");
        return NULL;
    }
    cJSON *worst = cJSON_AddObjectToObject(object, "worst");
    add_count(worst, "index", index);
    dp_json_coordinates(worst, "at", stage->rank, stage->dim, index);
    dp_json_add_number(worst, "got", got);
    dp_json_add_number(worst, "want", want);
    return worst;
}

static void add_difference(cJSON *object, const char *key, const dp_stage_result *stage, const dp_difference *d) {
    cJSON *difference = cJSON_AddObjectToObject(object, key);
    add_count(difference, "compared", d->count);
    add_count(difference, "mismatches", d->mismatches);
    add_count(difference, "nan", d->nan);
    add_count(difference, "inf", d->inf);
    add_count(difference, "sign_flips", d->sign_flips);
    dp_json_add_number(difference, "rel_l2", d->l2_rel);
    dp_json_add_number(difference, "max_rel_rms", d->max_rel);
    dp_json_add_number(difference, "max_abs", d->max_abs);
    dp_json_add_number(difference, "cosine", d->cosine);
    dp_json_add_number(difference, "ulp_median", d->ulp_median);
    dp_json_add_number(difference, "ulp_p99", d->ulp_p99);
    dp_json_add_number(difference, "ulp_max", d->ulp_max);
    dp_json_add_number(difference, "largest_in_row", d->largest_in_row);
    add_worst(difference, stage, d->worst, d->worst_got, d->worst_want);
}

static void add_limit(cJSON *object, const dp_stage_result *stage) {
    if (stage->exact) {
        cJSON_AddNullToObject(object, "bar");
        return;
    }
    cJSON *limit = cJSON_AddObjectToObject(object, "bar");
    dp_json_add_number(limit, "rel_l2", stage->limit.l2_rel);
    dp_json_add_number(limit, "max_rel_rms", stage->limit.max_rel);
    dp_json_add_number(limit, "bracket_rel_l2", stage->limit.reference_spread_l2_rel);
    dp_json_add_number(limit, "bracket_max_rel_rms", stage->limit.reference_spread_max_rel);
    cJSON_AddStringToObject(limit, "origin", stage->limit.origin);
}

static void add_sketch(cJSON *object, const dp_sketch_result *r) {
    if (!r->judged) {
        cJSON_AddNullToObject(object, "sketch");
        return;
    }
    cJSON *sketch = cJSON_AddObjectToObject(object, "sketch");
    cJSON_AddBoolToObject(sketch, "pass", r->pass);
    add_count(sketch, "rows", r->rows);
    add_count(sketch, "projections", r->projections);
    add_count(sketch, "nonfinite", r->nonfinite);
    dp_json_add_number(sketch, "rel_l2", r->l2_rel);
    dp_json_add_number(sketch, "rel_l2_bar", r->l2_limit);
    dp_json_add_number(sketch, "max_rel_norm", r->max_rel);
    dp_json_add_number(sketch, "max_rel_norm_bar", r->max_limit);
    add_count(sketch, "row", r->row);
    add_count(sketch, "projection", r->projection);
    dp_json_add_number(sketch, "got", r->got);
    dp_json_add_number(sketch, "want", r->want);
}

static void add_isolated(cJSON *object, const dp_stage_result *stage) {
    const dp_isolated *alone = &stage->isolated;
    if (!alone->judged) {
        cJSON_AddNullToObject(object, "isolated");
        return;
    }
    cJSON *isolated = cJSON_AddObjectToObject(object, "isolated");
    cJSON_AddBoolToObject(isolated, "pass", alone->pass);
    cJSON_AddBoolToObject(isolated, "fed", alone->fed);
    add_count(isolated, "fed_values", alone->fed_count);
    dp_json_add_number(isolated, "share", alone->share);
    cJSON *worst = add_worst(isolated, stage, alone->worst, alone->worst_got, alone->worst_want);
    if (worst != NULL) dp_json_add_number(worst, "bound", alone->worst_bound);
    dp_json_add_number(isolated, "tightness", alone->tightness);
    dp_json_add_number(isolated, "noise", alone->noise);
    dp_json_add_number(isolated, "noise_bar", alone->noise_limit);
    dp_json_add_number(isolated, "peak", alone->peak);
    dp_json_add_number(isolated, "peak_bar", alone->peak_limit);
    if (alone->oracle_share < 0.0)
        cJSON_AddNullToObject(isolated, "oracle_share");
    else
        dp_json_add_number(isolated, "oracle_share", alone->oracle_share);
    cJSON_AddStringToObject(isolated, "bound", alone->bound);
    add_difference(isolated, "difference", stage, &alone->difference);
}

static void add_plot(cJSON *object, const dp_stage_plot *plot) {
    if (plot == NULL || plot->row == NULL) {
        cJSON_AddNullToObject(object, "rows");
        cJSON_AddNumberToObject(object, "row_group", 1);
        cJSON_AddNullToObject(object, "ulp");
        return;
    }
    cJSON *rows = cJSON_AddArrayToObject(object, "rows");
    for (int i = 0; i < plot->rows; i++)
        cJSON_AddItemToArray(rows,
                             plot->row[i] < 0.0 ? cJSON_CreateNull() : dp_json_number(dp_plot_digits(plot->row[i])));
    add_count(object, "row_group", plot->row_group);
    cJSON *ulp = cJSON_AddArrayToObject(object, "ulp");
    for (int i = 0; i < DP_ULP_BINS; i++) cJSON_AddItemToArray(ulp, cJSON_CreateNumber((double)plot->ulp[i]));
}

cJSON *dp_stage_json(const dp_stage_result *stage, const dp_stage_plot *plot) {
    const int layer = dp_stage_layer(stage);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", stage->name);
    if (layer >= 0)
        cJSON_AddNumberToObject(object, "layer", layer);
    else
        cJSON_AddNullToObject(object, "layer");
    dp_json_dims(object, "shape", stage->rank, stage->dim);
    cJSON_AddBoolToObject(object, "exact", stage->exact);
    cJSON_AddBoolToObject(object, "pass", stage->pass);
    cJSON_AddBoolToObject(object, "warn", stage->warn);
    add_difference(object, "chained", stage, &stage->difference);
    add_limit(object, stage);
    dp_json_add_number(object, "headroom", stage->headroom);
    add_sketch(object, &stage->sketch);
    add_isolated(object, stage);
    if (stage->share.known) {
        cJSON *share = cJSON_AddObjectToObject(object, "share");
        dp_json_add_number(share, "added", stage->share.added);
        dp_json_add_number(share, "inherited", stage->share.inherited);
    } else
        cJSON_AddNullToObject(object, "share");
    add_plot(object, plot);
    return object;
}

cJSON *dp_variant_json(const dp_variant_result *variant) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", variant->name);
    cJSON_AddNumberToObject(object, "rows_per_ingest", variant->chunk);
    add_count(object, "compared", variant->compared);
    cJSON_AddBoolToObject(object, "identical", variant->identical);
    cJSON_AddBoolToObject(object, "nonfinite", variant->nonfinite);
    if (variant->identical) {
        cJSON_AddNullToObject(object, "first_difference");
        return object;
    }
    cJSON *first = cJSON_AddObjectToObject(object, "first_difference");
    cJSON_AddStringToObject(first, "stage", variant->stage);
    add_count(first, "index", variant->index);
    dp_json_bits(first, "block", variant->block_bits);
    dp_json_bits(first, "round", variant->round_bits);
    return object;
}
